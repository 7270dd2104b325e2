"""`KernelPCRegressor`: ridge regression on kernel components, with targets that stay put."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array

from eigenmesh.data import Partitioned
from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import checked_gamma, one_of, whole_number
from eigenmesh.estimators.kernel_gamma import forecast_gamma, kernel_gamma, psd_kernel
from eigenmesh.estimators.kernel_pca_methods import default_landmarks
from eigenmesh.estimators.party_values import NONE, at_sites, is_plain
from eigenmesh.estimators.row_estimator import RowEstimator
from eigenmesh.estimators.run_report import RunReport
from eigenmesh.federation.ledger import Ledger, forecast_entry, forecast_message
from eigenmesh.protocols.component_ridge import (
    RidgeResult,
    RidgeSetup,
    TargetRows,
    component_ridge,
    regression_steps,
)
from eigenmesh.protocols.diskpca import LANDMARKS
from eigenmesh.protocols.diskpca_forecast import forecast as diskpca_forecast

UNIT_NORM = ("rbf", "laplacian", "cosine")
SCORES = "kernel-pc-regressor scores"


class KernelPCRegressor(RegressorMixin, RowEstimator):
    """Ridge regression on the leading kernel components of rows that parties hold.

    Components come from landmarks, as in `DisKPCA`; the coefficients from sums over the parties,
    so that no target leaves its party. With every row a landmark this is scikit-learn's
    ``make_pipeline(KernelPCA(n_components), Ridge(alpha))`` on the pooled rows.

    Parameters
    ----------
    n_components : components to regress on; fewer, with a warning, where there are fewer.
    alpha : penalty of the squared coefficients, from 0.
    kernel : "rbf", "laplacian", "cosine", "poly", "linear" or "arc-cosine".
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance".
    n_landmarks : distinct landmarks in all; None for ten a component, 100 at least. The number of
        rows or more means every row.
    landmarks : one of DisKPCA's choices; "auto" is "centroids", so that no row leaves, for kernels
        under which every row has the same norm, else "diskpca".
    random_state : seed of all draws.

    Attributes
    ----------
    coef_, intercept_ : in the scores that `transform` gives; (k,) and a number for one target.
    r_squared_ : of the fitted rows, as `score` would give it for them.
    eigenvalues_, gamma_, model_, report_ : as in DisKPCA.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = em.KernelPCRegressor(20, alpha=0.1, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.5)
    True
    >>> parts = em.Partitioned(rows=[X[:200], X[200:]])
    >>> split = em.KernelPCRegressor(20, alpha=0.1, random_state=0).fit(parts, [y[:200], y[200:]])
    >>> "moments" in split.report_.reveals["party-0"], "rows" in split.report_.reveals["party-0"]
    (True, False)
    """

    _fitted = ("coef_", "intercept_", "r_squared_", "eigenvalues_", "gamma_", "model_")

    def __init__(
        self,
        n_components: int = 20,
        *,
        alpha: float = 1.0,
        kernel: str = "rbf",
        gamma: float | str | None = "mean-distance",
        degree: int = 3,
        coef0: float = 1.0,
        n_landmarks: int | None = None,
        landmarks: str = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows and their targets.

        For one array `y` has its rows' targets, (n,) or (n, n_targets). For split rows `y` is a
        list of such arrays, one a party in their order; each goes into its own party's site and no
        further. In a job of several processes each may pass None for the others' entries.
        """
        k, alpha = whole_number(self.n_components, "n_components"), self._alpha()
        choice, seed = self._choice(), seed_of(self.random_state)
        setup = self._agreed(k, 1.0, NONE)
        source = self._source(X)
        y = self._checked_targets(source, y, is_plain(X))
        with self._opened(source) as fed, fed.recording() as recording:
            self._require_rows(fed)
            fed.require(TargetRows, regression_steps(choice))
            with at_sites(fed, y, "y", field="targets", signed=True) as targets:
                gamma = kernel_gamma(fed, self.kernel, self.gamma, seed)
                setup = self._agreed(k, gamma, targets)
                wanted = (k, self._n_landmarks(k), choice, alpha)
                outcome = fed.run(component_ridge, setup, *wanted).value
        self._adopt(outcome, gamma, _is_flat(y))
        caveats = self._caveats(outcome, k)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=outcome.stop_reason,
            baseline_floats=outcome.baseline_floats,
            notes=caveats,
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    def _alpha(self) -> float:
        alpha: Any = self.alpha
        if isinstance(alpha, Real) and 0 <= float(alpha) < np.inf:
            return float(alpha)
        raise InputError(f"alpha is {alpha!r}; a number from 0 is expected")

    def _choice(self) -> str:
        asked = one_of(self.landmarks, "landmarks", ("auto", *LANDMARKS))
        if asked != "auto":
            return asked
        return "centroids" if self.kernel in UNIT_NORM and self.n_landmarks is None else "diskpca"

    def _n_landmarks(self, k: int) -> int:
        if self.n_landmarks is not None:
            return whole_number(self.n_landmarks, "n_landmarks")
        return default_landmarks(k, self.kernel, None)

    def _agreed(self, k: int, gamma: float | None, targets: str) -> RidgeSetup:
        kernel = psd_kernel(self.kernel, gamma, self.degree, self.coef0)
        checked_gamma(self.gamma)
        return RidgeSetup(
            kernel=kernel.name,
            gamma=kernel.gamma,
            degree=float(kernel.degree),
            coef0=float(kernel.coef0),
            leverage_rank=k,
            embedding_dim=2 * k,
            seed=seed_of(self.random_state),
            scores=SCORES,
            weights=NONE,
            targets=targets,
        )

    def _checked_targets(self, source: Any, y: Any, plain: bool) -> Any:
        """The targets of one array are checked here, those of parties where they arrive."""
        if y is None:
            raise InputError("KernelPCRegressor requires y to be passed, but the target y is None")
        if not plain:
            return y
        try:
            found = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        except ValueError as error:
            raise InputError(str(error).partition("\n")[0]) from None
        n = source.n_samples
        if len(found) != n:
            raise InputError(f"X has {n} rows and y {len(found)}; one target a row is expected")
        return found

    def _adopt(self, outcome: RidgeResult, gamma: float | None, flat: bool) -> None:
        self.model_ = outcome.model
        self.gamma_ = gamma
        self.eigenvalues_ = outcome.model.eigenvalues
        self.coef_ = outcome.coefficients[:, 0] if flat else outcome.coefficients.T
        self.intercept_ = float(outcome.intercept[0]) if flat else outcome.intercept
        self.r_squared_ = float(np.mean(outcome.r_squared))
        self.n_features_in_ = int(outcome.model.landmarks.shape[1])
        self._last_transform: list[RunReport] = []

    def _caveats(self, outcome: RidgeResult, k: int) -> tuple[str, ...]:
        rank = len(outcome.model.eigenvalues)
        if rank >= k:
            return ()
        return (f"{k} components were asked for, the landmarks determine {rank}",)

    def predict(self, X: Any) -> Any:
        """Predicted targets; a list for rows split over parties. Nothing is sent."""
        scores = self.transform(X)
        if isinstance(X, Partitioned):
            return [self._predicted(own) for own in scores]
        return self._predicted(scores)

    def _predicted(self, scores: Any) -> Any:
        return np.asarray(scores, dtype=np.float64) @ self.coef_.T + self.intercept_

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags

    def _forecast(self, names: Sequence[str], shapes: Sequence[tuple[int, int]]) -> Ledger:
        """The ledger that a fit of one target to dense rows will have."""
        k, choice = whole_number(self.n_components, "n_components"), self._choice()
        q = min(self._n_landmarks(k), sum(n for n, _ in shapes))
        found = diskpca_forecast(names, shapes, self._agreed(k, 1.0, NONE), k, q, choice)
        ledger = Ledger(rounds=found.rounds + 3)
        ledger.entries += [
            entry._replace(step=entry.step.replace("RowHolder.", "TargetRows."))
            for entry in found.entries
        ]
        for name in names:
            ledger.entries += [
                forecast_entry(TargetRows.sum_targets, name, 1),
                forecast_message(TargetRows.keep_scores, name, q * k + 2 * k),
                forecast_message(TargetRows.normal_equations, name, 1),
                forecast_entry(TargetRows.normal_equations, name, k * (k + 1) // 2 + 2 * k + 2),
            ]
        forecast_gamma(ledger, self.kernel, self.gamma, names, shapes)
        return ledger


def _is_flat(y: Any) -> bool:
    """Whether there is one target a row, and not a matrix of them."""
    first = next((own for own in y if own is not None), 0.0) if isinstance(y, list | tuple) else y
    return np.ndim(first) == 1
