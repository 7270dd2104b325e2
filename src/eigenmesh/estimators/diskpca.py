"""Kernel PCA over row partitions from a few landmarks, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from eigenmesh.errors import EigenmeshWarning
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import (
    checked_gamma,
    find_gamma,
    missing_gap,
    one_of,
    whole_number,
)
from eigenmesh.estimators.row_estimator import RowEstimator
from eigenmesh.estimators.run_report import RunReport
from eigenmesh.federation.ledger import Ledger
from eigenmesh.protocols.bandwidth import forecast as bandwidth_forecast
from eigenmesh.protocols.bandwidth import forecast_rounds
from eigenmesh.protocols.diskpca import (
    LANDMARKS,
    DisKPCAResult,
    LandmarkSetup,
    RowHolder,
    diskpca,
    forecast,
    steps_for,
)

KERNELS = ("linear", "poly", "rbf")


class DisKPCA(RowEstimator):
    """Kernel PCA of rows held by several parties, from a few well-chosen landmarks.

    The parties agree on landmarks, rows or means of rows, and send what their rows add up to in the
    landmarks' span; the traffic does not grow with the number of rows. With `n_landmarks` at the
    number of rows the answer is that of scikit-learn's KernelPCA on the pooled rows.

    Parameters
    ----------
    n_components : components wanted.
    kernel : "linear", "poly", (gamma x·y + coef0)^degree, or "rbf", exp(−gamma ‖x−y‖²).
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance".
    n_landmarks : distinct landmarks in all; the number of rows or more means every row.
    landmarks : "diskpca" draws half by leverage score and half by distance to the span of these,
        right for skewed data; "uniform"; "leverage"; "rpcholesky" draws 8 blocks, each by distance
        to the span of those before, at twice 8 rounds; "centroids" takes means of clusters of at
        least 5 rows of a party, best for "rbf" on real data, and no row leaves.
    embedding_dim : dimensions in which leverage is measured; 2·n_components if None.
    center : centre in feature space, exactly.
    random_state : seed of all draws.

    Attributes
    ----------
    eigenvalues_ : of the (centred) kernel matrix of all rows, inside the landmarks' span.
    total_variance_, residual_, explained_variance_ratio_ : the variance in feature space; upper
        bounds if centred, exact otherwise.
    landmarks_ : the landmarks, (q, n_features).
    leverage_skew_ : largest leverage score / mean, None where it was not measured. Above about 20
        "diskpca" beats "uniform" by far.
    report_ : what it cost, and what left each party.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_digits
    >>> parts = em.split(load_digits().data / 16, n_parties=5, law="power", random_state=0)
    >>> kpca = em.DisKPCA(3, kernel="rbf", gamma="mean-distance", landmarks="centroids").fit(parts)
    >>> [Z.shape[1] for Z in kpca.transform(parts)]
    [3, 3, 3, 3, 3]
    >>> "rows" in kpca.report_.reveals["party-0"]
    False
    """

    _fitted = (
        "eigenvalues_",
        "explained_variance_ratio_",
        "total_variance_",
        "residual_",
        "gamma_",
        "leverage_skew_",
        "model_",
    )

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: str = "linear",
        gamma: float | str | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        n_landmarks: int = 100,
        landmarks: str = "diskpca",
        embedding_dim: int | None = None,
        center: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.embedding_dim = embedding_dim
        self.center = center
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows split over parties: a Partitioned, a Federation, or a plain array.

        Of a Dask array in chunks of rows, or a Dask DataFrame, every chunk is a party.
        """
        k = whole_number(self.n_components, "n_components")
        q = whole_number(self.n_landmarks, "n_landmarks")
        choice = one_of(self.landmarks, "landmarks", LANDMARKS)
        with self._opened(self._source(X)) as fed, fed.recording() as recording:
            self._require_rows(fed)
            fed.require(RowHolder, steps_for(choice))
            linear = one_of(self.kernel, "kernel", KERNELS) == "linear"
            seed = seed_of(self.random_state)
            gamma = None if linear else find_gamma(fed, self.gamma, seed)
            agreed = self._agreed(k, gamma)
            outcome = fed.run(diskpca, agreed, k, q, choice, bool(self.center)).value
        self._adopt(outcome, gamma)
        notes = missing_gap(outcome.model.eigenvalues, outcome.model.next_eigenvalue)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=outcome.stop_reason,
            baseline_floats=outcome.baseline_floats,
            notes=notes,
        )
        for note in notes:
            warnings.warn(note, EigenmeshWarning, stacklevel=2)
        return self

    def _agreed(self, k: int, gamma: float | None) -> LandmarkSetup:
        width = 2 * k if self.embedding_dim is None else self.embedding_dim
        return LandmarkSetup(
            kernel=one_of(self.kernel, "kernel", KERNELS),
            gamma=gamma,
            degree=float(self.degree),
            coef0=float(self.coef0),
            embedding_dim=whole_number(width, "embedding_dim"),
            seed=seed_of(self.random_state),
        )

    def _forecast(self, names: Sequence[str], shapes: Sequence[tuple[int, int]]) -> Ledger:
        """The ledger that a fit to dense rows will have."""
        rule = None if self.kernel == "linear" else checked_gamma(self.gamma)
        k = whole_number(self.n_components, "n_components")
        setup = self._agreed(k, 1.0)
        ledger = forecast(names, shapes, setup, self.n_landmarks, self.landmarks)
        if self.kernel != "linear" and not isinstance(rule, float):
            ledger.entries += bandwidth_forecast(rule, "rows", names, shapes)
            ledger.rounds += forecast_rounds(rule, "rows", len(names))
        return ledger

    def _adopt(self, outcome: DisKPCAResult, gamma: float | None) -> None:
        model = outcome.model
        self.model_ = model
        self.gamma_ = gamma
        self.eigenvalues_ = model.eigenvalues
        self.total_variance_ = model.total
        self.residual_ = model.residual
        self.explained_variance_ratio_ = model.eigenvalues / model.total
        self.leverage_skew_ = outcome.leverage_skew
        self.n_features_in_ = int(model.landmarks.shape[1])
        self._last_transform: list[RunReport] = []

    @property
    def landmarks_(self) -> Any:
        """The landmarks."""
        check_is_fitted(self)
        return self.model_.landmarks

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)
