"""Kernel PCA of rows from summed moments, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.accuracy import missing_gap
from eigenmesh.estimators.base import DoorArguments, Needs, Shapes, seed_of
from eigenmesh.estimators.checks import checked_scores, one_of
from eigenmesh.estimators.kernel_gamma import gamma_stages, kernel_gamma, psd_kernel
from eigenmesh.estimators.party_values import NONE, at_sites, in_order_of_ids
from eigenmesh.estimators.report import RunReport
from eigenmesh.estimators.rows import RowEstimator
from eigenmesh.methods.moments.protocol import (
    MOST_FEATURES,
    MomentResult,
    MomentSetup,
    moment_pca,
)
from eigenmesh.methods.registry import Method, register
from eigenmesh.numerics.explicit_features import EXPLICIT, explicit_width
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, stage


class MomentPCA(RowEstimator):
    """Exact kernel PCA of rows from sums over each party's rows, for kernels with few features.

    The features of a linear kernel are the columns, of a cosine kernel the columns of unit rows, of
    a polynomial kernel all products of up to `degree` columns: d, d, and (d + degree choose degree)
    of them. Their mean and products, D(D+1)/2 + D numbers a party, are all that leaves, however
    many rows there are; no row, and no mean of a few.

    Parameters
    ----------
    n_components : components wanted; None for all that the rows determine.
    kernel : "linear", "cosine" or "poly".
    gamma, degree, coef0 : as in DisKPCA.
    center : centre in feature space, exactly.

    Attributes
    ----------
    eigenvalues_, total_variance_, residual_, explained_variance_ratio_ : of the (centred) kernel
        matrix of all rows, exact.
    shortfalls_, shortfall_, shortfall_error_ : 0, as in `KernelPCA`.
    components_, mean_ : of the features, (k, D) and (D,).
    report_ : what it cost, and what left each party.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_wine
    >>> parts = em.split(load_wine().data, n_parties=3, random_state=0)
    >>> pca = em.MomentPCA(2).fit(parts)
    >>> pca.explained_variance_ratio_.round(4)
    array([0.9981, 0.0017])
    >>> pca.report_.floats_up == 3 * (13 * 14 // 2 + 13), sorted(pca.report_.reveals["party-0"])
    (True, ['counts', 'moments'])
    """

    # Landmarks' sums are no smaller: a front door takes moments where these are few beside them.
    _cheaper = "leave out columns that tell nothing"
    _fitted = (
        "eigenvalues_",
        "explained_variance_ratio_",
        "total_variance_",
        "residual_",
        "gamma_",
        "model_",
        "shortfalls_",
        "shortfall_",
        "shortfall_error_",
    )

    def __init__(
        self,
        n_components: int | None = 2,
        *,
        kernel: str = "linear",
        gamma: float | str | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        center: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.center = center
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows split over parties: a Partitioned, a Federation, or a plain array.

        `sample_weight` says as how many copies a row counts: an array for an array, for parties a
        list with one each, which goes into its own party's site and no further.
        """
        planned = self._planned_stage(sample_weight is not None)
        with self._opened(self._source(X)) as fed, fed.recording() as recording:
            self._require_rows(fed)
            fed.require_stages(planned)
            gamma = kernel_gamma(fed, self.kernel, self.gamma, seed_of(self.random_state))
            own = in_order_of_ids(X, sample_weight)
            with at_sites(fed, own, "sample_weight") as weights:
                outcome: MomentResult = self._stage(gamma, weights).run(fed).value
        self._adopt(outcome, gamma)
        caveats = missing_gap(outcome.model.eigenvalues, outcome.model.next_eigenvalue)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=outcome.stop_reason,
            baseline_floats=outcome.baseline_floats,
            notes=(*caveats, "components, eigenvalues and residual are exact"),
            cheaper=self._less(fed.split, fed.graph is not None),
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    @classmethod
    def _for_door(cls, arguments: DoorArguments, options: Mapping[str, Any]) -> Self:
        own = {**arguments.shared_with(cls), "n_components": arguments.n_components}
        return cls(**own)

    def _needs(self, fed: Federation, *, weighted: bool = False) -> Needs:
        return [self._planned_stage(weighted)]

    def _planned_stage(self, weighted: bool = False) -> Stage:
        return self._stage(1.0, "sample_weight" if weighted else NONE)

    def _agreed(self, gamma: float | None) -> dict[str, Any]:
        one_of(self.kernel, "kernel", EXPLICIT)
        kernel = psd_kernel(self.kernel, gamma, self.degree, self.coef0)
        return {
            "kernel": kernel.name,
            "gamma": kernel.gamma,
            "degree": float(kernel.degree),
            "coef0": float(kernel.coef0),
            "center": bool(self.center),
        }

    def _stages(self, parties: Parties) -> list[Stage]:
        """What a fit without weights runs."""
        seed = seed_of(self.random_state)
        return [*gamma_stages(self.kernel, self.gamma, parties, seed), self._stage(1.0)]

    def _stage(self, gamma: float | None, weights: str = NONE) -> Stage:
        setup = MomentSetup(**self._agreed(gamma), weights=weights)
        return stage(moment_pca, setup, self._wanted())

    def _scoring(self, gamma: float | None, k: int, scores: str, weights: str = NONE) -> Stage:
        """A fit whose sites keep the scores of k components, or of as many as there are."""
        agreed = self._agreed(gamma)
        setup = MomentSetup(**agreed, scores=scores, weights=weights, weighted=False)
        return stage(moment_pca, setup, k)

    def _adopt(self, outcome: MomentResult, gamma: float | None) -> None:
        model = outcome.model
        self.model_ = model
        self.gamma_ = gamma
        self.eigenvalues_ = model.eigenvalues
        self.total_variance_ = model.total
        self.residual_ = model.residual
        self.explained_variance_ratio_ = model.eigenvalues / (model.total or 1.0)
        self.shortfalls_ = np.zeros(len(model.eigenvalues))
        self.shortfall_ = self.shortfall_error_ = 0.0
        self.n_features_in_ = model.n_columns
        self._last_transform: list[RunReport] = []

    def inverse_transform(self, X: Any) -> Any:
        """The rows that have these scores, and are the mean otherwise; for linear kernels.

        Of a list with scores a party it is a list of rows a party.
        """
        check_is_fitted(self)
        if isinstance(X, list) and X and np.ndim(X[0]) == 2:
            return [self.inverse_transform(own) for own in X]
        if not self.model_.goes_back:
            raise InputError(
                f"kernel is {self.kernel!r}, whose features are not the columns; kernel='linear' "
                f"is expected, or landmarks='centroids' and fit_inverse_transform=True in KernelPCA"
            )
        scores = checked_scores(X, len(self.eigenvalues_))
        return self.model_.rows_of(scores.astype(np.float64, copy=False))

    @property
    def components_(self) -> Any:
        """Principal axes of the features, one a row."""
        check_is_fitted(self)
        return self.model_.components.T

    @property
    def mean_(self) -> Any:
        """The mean of the features; 0 if not centred."""
        check_is_fitted(self)
        return self.model_.mean

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)


def sizes_allow(arguments: DoorArguments, shapes: Shapes) -> bool:
    """Whether the features' products are few: beside the rows, or beside landmarks' sums.

    Landmarks double where they miss too much, so twice as many features are no more.
    """
    params, n_columns = arguments.params, shapes[0][1]
    width = explicit_width(params["kernel"], n_columns, params["degree"], params["coef0"])
    if not 0 < width <= MOST_FEATURES:
        return False
    sent = len(shapes) * width * (width + 3) // 2
    return width <= 2 * arguments.n_landmarks or sent <= sum(n * d for n, d in shapes)


register(
    Method(
        "moments",
        "rows",
        EXPLICIT,
        MomentPCA,
        "the kernel's features are few, so that their sums and products over each party's rows "
        "are all that is needed: exact, and no row leaves",
        rank=5,
        discloses="sums",
        n_components="or share",
        span="features",
        takes_weights=True,
        sizes_allow=sizes_allow,
    )
)
