"""`KernelPCRegressor`: ridge regression on kernel components, with targets that stay put."""

from __future__ import annotations

import time
import warnings
from functools import partial
from numbers import Real
from typing import Any, Self, overload

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from eigenmesh.connect import is_dask_collection
from eigenmesh.data.spark_rows import SparkRows, is_spark
from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.accuracy import SHORTFALL, adopt_missing
from eigenmesh.estimators.base import FrontDoor, require_no_iterator, seed_of
from eigenmesh.estimators.checks import checked_accuracy, checked_gamma, one_of, whole_number
from eigenmesh.estimators.kernel_gamma import psd_kernel
from eigenmesh.estimators.party_values import (
    in_order_of_ids,
    is_plain,
    own_rows,
    values_by_party,
    weight_array,
)
from eigenmesh.estimators.precision import landmark_bits, sent_in
from eigenmesh.estimators.preparation import Preparation
from eigenmesh.estimators.report import LESS_ON_A_GRAPH, RunReport, less_of_columns
from eigenmesh.estimators.rows import RowEstimator
from eigenmesh.estimators.small_parties import CHOICES, LEAVE_OUT
from eigenmesh.kernel_pca.estimator import KernelPCA
from eigenmesh.methods.registry import method_called, methods, names_of
from eigenmesh.numerics.arrays import Floats, Samples
from eigenmesh.regression.column_ridge import require_targets, target_array
from eigenmesh.regression.fit import Regression, RegressionParameters, fit_split
from eigenmesh.regression.planned import (
    PlannedRegression,
    planned,
    planned_unopened,
)
from eigenmesh.regression.spark_ridge import fit_spark_ridge
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.topology import Topology


class KernelPCRegressor(RegressorMixin, FrontDoor, RowEstimator):
    """Ridge regression on the leading kernel components of rows or columns that parties hold.

    Components come as in `KernelPCA`. For rows the coefficients come from sums over the parties, at
    a coordinator or averaged over a graph, and no target leaves its party; for columns the
    coordinator has the targets. With every row a landmark, and with the exact methods for columns,
    this is scikit-learn's ``make_pipeline(KernelPCA(n_components), Ridge(alpha))`` on pooled data.

    Parameters
    ----------
    n_components : components to regress on; fewer, with a warning, where rows at a coordinator have
        fewer, an error elsewhere.
    alpha : penalty of the squared coefficients, from 0.
    kernel : "rbf", "laplacian", "cosine", "poly", "linear" or "arc-cosine"; fewer for columns.
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance".
    degree, coef0 : of polynomial kernels; `degree` also of "arc-cosine".
    method : "auto", or by name: "diskpca" (landmarks; rows), "sketching-pca" (an embedding; rows),
        "gossip", "admm" (rows on a graph), "vfed-pca", "vfed-akpca", "one-shot" (columns).
    n_landmarks : distinct landmarks in all; None for ten a component, 100 at least. The number of
        rows or more means every row.
    landmarks : one of DisKPCA's choices; "auto" is "centroids", so that no row leaves, where
        the kernel's features are too many for `MomentPCA`. For one array with n_landmarks given
        "diskpca" comes first, since centroids are never every row.
    topology : of parties without a coordinator; None for one.
    averaging : on a graph "tree" or "gossip", as in `GossipKPCA`.
    random_state : seed of all draws.
    small_parties : "leave-out" or "reveal", as in `KernelPCA`.
    preparation : `em.Preparation`, of rows, before all else: standardised, gaps filled, logarithms.
    precision : "exact", or in how many bits what leaves may travel where it need not be exact: 32,
        16, 8, 4, or "auto". Over rows landmarks, as in `DisKPCA`; over columns the eigenvectors of
        method="one-shot".
    accuracy : the largest share of a wanted eigenvalue that may be missing. What landmarks miss is
        measured; unless `n_landmarks` is given they double while it is more, up to 2000 or to the
        centroids that the parties can give. A warning says if more is missing in the end.

    Attributes
    ----------
    method_ : the method's name, a colon, and why it was chosen.
    coef_, intercept_ : in the scores that `transform` gives; (k,) and a number for one target.
    r_squared_ : of the fitted rows, as `score` would give it for them; on a graph, of every node's
        rows by that node's model.
    eigenvalues_, gamma_, report_ : as in KernelPCA.
    shortfalls_ : the share of each eigenvalue that is missing, estimated, (k,), 0 where nothing is;
        `shortfall_` is the largest, `shortfall_error_` its standard error. None where they are not
        known.
    model_ : what scores rows, fitted at a coordinator; else None.
    estimator_ : the fitted `KernelPCA` of rows on a graph and of columns; else None.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = em.KernelPCRegressor(20, alpha=0.1, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.5)
    True
    >>> parts = em.Partitioned(rows=[X[:200], X[200:]])
    >>> split = em.KernelPCRegressor(3, alpha=0.1, random_state=0).fit(parts, [y[:200], y[200:]])
    >>> "moments" in split.report_.reveals["party-0"], "rows" in split.report_.reveals["party-0"]
    (True, False)
    >>> columns = em.Partitioned(columns=[X[:, :4], X[:, 4:]])
    >>> print(em.KernelPCRegressor(9, kernel="linear").fit(columns, y).method_)
    vfed-pca: 2 parties hold columns; vectors over the samples go to and fro until the answer ...
    """

    method_: str

    _cheaper = "lower n_landmarks or n_components"
    _fitted = (
        "coef_",
        "intercept_",
        "r_squared_",
        "eigenvalues_",
        "gamma_",
        "method_",
        "model_",
        "estimator_",
    )

    def __init__(
        self,
        n_components: int = 20,
        *,
        alpha: float = 1.0,
        kernel: str = "rbf",
        gamma: float | str | None = "mean-distance",
        degree: int = 3,
        coef0: float = 1.0,
        method: str = "auto",
        n_landmarks: int | None = None,
        landmarks: str = "auto",
        topology: Topology | None = None,
        averaging: str | tuple[str, float] = "auto",
        random_state: Any = None,
        accuracy: float = 0.01,
        small_parties: str = LEAVE_OUT,
        preparation: Preparation | None = None,
        precision: int | str = "exact",
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.method = method
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.topology = topology
        self.averaging = averaging
        self.random_state = random_state
        self.accuracy = accuracy
        self.small_parties = small_parties
        self.preparation = preparation
        self.precision = precision

    # Fitting.

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows or columns and their targets.

        For one array, and for columns of parties, `y` has the samples' targets, (n,) or
        (n, n_targets). For split rows `y` is a list of such arrays, one a party in their order, or
        a dictionary of them by party; each goes into its own party's site and no further. In a job
        of several processes each may pass None for the others' entries and, of columns, all but the
        first may pass None. For a Spark frame, or an `em.SparkRows`, `y` is the name of its column
        of targets, or a list of names.
        """
        if is_spark(X):
            self._require_none_for_spark()
            return self._fit_spark(SparkRows.of(X), y)
        params, source = self._checked_parameters(), self._source(X)
        y = self._checked_targets(source.n_samples, y) if is_plain(X) else in_order_of_ids(X, y)
        topology = None if is_plain(X) else self.topology
        with (
            self._opened(source, topology) as fed,
            fed.recording() as recording,
            self._preparing(fed),
        ):
            if is_plain(X):
                params.door.precision = "exact"  # nothing is sent
                if self.preparation is None:
                    fed.own_rows = own_rows(fed)
            regression = fit_split(fed, params, y)
        self._adopt(regression)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=regression.stop_reason,
            baseline_floats=regression.baseline_floats,
            notes=(*regression.caveats, *regression.notes),
            cheaper=self._less(fed.split, fed.graph is not None),
            **sent_in(params.door.precision, regression.model, regression.estimator),
        )
        if not is_plain(X) and regression.estimator is None:
            self.method_ += f"; {self.report_.what_left}"
        if self.preparation is not None:
            self._note_preparation()
        for caveat in regression.caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        if regression.left_out is not None:
            regression.left_out.warn()
        return self

    def _fit_spark(self, source: SparkRows, y: Any) -> Self:
        start = time.perf_counter()
        params = self._checked_parameters()
        regression = fit_spark_ridge(params, source, y)
        self._keep_names_of(params.door)
        self._adopt(regression)
        self.report_ = RunReport.of_rows_in_one_place(
            time.perf_counter() - start, regression.baseline_floats, regression.notes
        )
        return self

    def _less(self, split: str, on_graph: bool) -> str:
        if split == "columns":
            return less_of_columns(self, "n_components", on_graph)
        return f"{self._cheaper}, or {LESS_ON_A_GRAPH}" if on_graph else self._cheaper

    def _checked_parameters(self) -> RegressionParameters:
        """Wrong parameters are told before anybody is asked."""
        k, alpha = whole_number(self.n_components, "n_components"), self._alpha()
        psd_kernel(self.kernel, 1.0, self.degree, self.coef0)
        checked_gamma(self.gamma)
        q = None if self.n_landmarks is None else whole_number(self.n_landmarks, "n_landmarks")
        door = KernelPCA(
            k,
            kernel=self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            method=one_of(self.method, "method", ("auto", *names_of(methods()))),
            n_landmarks=q,
            landmarks=one_of(
                self.landmarks, "landmarks", ("auto", *method_called("diskpca").landmarks)
            ),
            topology=self.topology,
            averaging=self.averaging,
            random_state=seed_of(self.random_state),
            accuracy=checked_accuracy(self.accuracy),
            small_parties=one_of(self.small_parties, "small_parties", CHOICES),
            precision=self.precision,
        )
        landmark_bits(self.precision)  # refused here if it is none
        return RegressionParameters(door, k, alpha)

    def _alpha(self) -> float:
        alpha: Any = self.alpha
        if isinstance(alpha, Real) and 0 <= float(alpha) < np.inf:
            return float(alpha)
        raise InputError(f"alpha is {alpha!r}; a number from 0 is expected")

    def _checked_targets(self, n: int, y: Any) -> Any:
        """The targets of one array are checked here, those of parties where they arrive."""
        targets = target_array(y)
        if len(targets) != n:
            raise InputError(f"X has {n} rows and y {len(targets)}; one target a row is expected")
        return targets

    def _adopt(self, regression: Regression) -> None:
        fit, flat = regression.fit, regression.flat
        self.model_ = regression.model
        self.estimator_ = regression.estimator
        self.method_ = regression.method
        self.gamma_ = regression.gamma
        self.eigenvalues_ = regression.eigenvalues
        self.coef_ = fit.coefficients[:, 0] if flat else fit.coefficients.T
        self.intercept_ = float(fit.intercept[0]) if flat else fit.intercept
        self.r_squared_ = float(np.mean(fit.r_squared))
        self.n_features_in_ = regression.n_features
        adopt_missing(self, regression.missing)
        if regression.estimator is not None:
            self._keep_names_of(regression.estimator)
        self._last_transform = (
            [] if regression.estimator is None else regression.estimator._last_transform
        )

    # Using it.

    @overload
    def transform(self, X: Samples) -> Floats: ...
    @overload
    def transform(self, X: Any) -> Any: ...
    def transform(self, X: Any) -> Any:
        """Scores: an array for an array, a list for rows split over parties.

        Only columns split over parties take messages; a `transform_report_` then tells of them.
        """
        check_is_fitted(self)
        require_no_iterator(X)
        if is_spark(X):
            return self._mapped_in_spark(X)
        door = self.estimator_
        of_columns = door is not None and door.over_columns
        if isinstance(X, Federation) and not of_columns:
            raise InputError(
                "the model is of rows and the new data are a federation; who has the model scores "
                "its own rows: give it to each party, as a file, and pass its rows there"
            )
        return super().transform(X) if door is None else door.transform(self._for_inner(X))

    def predict(self, X: Any) -> Any:
        """Predicted targets; a list for rows split over parties.

        Columns split over parties send what their scores take, else nothing is sent. Of a Spark
        frame it is a Spark frame, with a column `prediction` (or `prediction0` and so on) and the
        ids beside it.
        """
        check_is_fitted(self)
        if is_spark(X):
            several = np.ndim(self.coef_) == 2
            names = (
                [f"prediction{i}" for i in range(len(self.coef_))] if several else ["prediction"]
            )
            predict = partial(_predicted, coefficients=self.coef_, intercept=self.intercept_)
            return self._mapped_in_spark(X, predict, names, "float64")
        scores = self.transform(X)
        if isinstance(scores, list):
            return [self._predicted(own) for own in scores]
        return self._predicted(scores)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions for all rows together; of several targets, their mean.

        For rows split over parties `y`, and `sample_weight` if there is one, are lists with one
        array a party in the order of X; else one array. What scores them has to be here.
        """
        predictions = self.predict(X)
        if not isinstance(predictions, list):
            n, w = len(predictions), sample_weight
            weights = None if w is None else weight_array(w, n)
            return self._r_squared(self._checked_targets(n, y), predictions, weights)
        require_targets(y)
        sizes = {name: len(own) for name, own in zip(X.names, predictions, strict=True)}
        targets = values_by_party(in_order_of_ids(X, y), sizes, "y", signed=True)
        weights = None
        if sample_weight is not None:
            own = in_order_of_ids(X, sample_weight)
            weights = np.concatenate(values_by_party(own, sizes, "sample_weight"))
        matrices = [own.reshape(len(own), -1) for own in targets]
        self._require_width(dict(zip(X.names, matrices, strict=True)))
        return self._r_squared(np.vstack(matrices), np.concatenate(predictions), weights)

    def _require_width(self, targets: dict[str, Any]) -> None:
        expected = np.atleast_2d(self.coef_).shape[0]
        for party, own in targets.items():
            if own.shape[1] != expected:
                raise InputError(
                    f"y of party {party!r} has {own.shape[1]} targets a row; {expected} are "
                    f"expected, as in fit",
                    party=party,
                )

    @staticmethod
    def _r_squared(targets: Any, predictions: Any, weights: Any) -> float:
        return float(r2_score(targets, predictions, sample_weight=weights))

    def _predicted(self, scores: Any) -> Any:
        return _predicted(scores, self.coef_, self.intercept_)

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags

    # Files and forecasts.

    def _saved_names(self) -> list[str]:
        return [*super()._saved_names(), *(name for name in SHORTFALL if hasattr(self, name))]

    def _masks_unasked(self, source: Any) -> bool:
        return self._checked_parameters().door._masks_unasked(source)

    def _planned(self, source: Any) -> PlannedRegression:
        params = self._checked_parameters()
        if is_plain(source) or is_dask_collection(source):
            return planned_unopened(source, params)
        with self._opened(source, self.topology) as fed:
            return planned(fed, params)


def _predicted(scores: Any, coefficients: Any, intercept: Any) -> Any:
    return np.asarray(scores, dtype=np.float64) @ coefficients.T + intercept
