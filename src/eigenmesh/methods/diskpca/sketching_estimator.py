"""Kernel PCA by an embedding of the rows, as a scikit-learn estimator: a baseline."""

from __future__ import annotations

import warnings
from typing import Any, Self

from eigenmesh.errors import EigenmeshWarning
from eigenmesh.estimators.accuracy import missing_gap
from eigenmesh.estimators.base import Needs, seed_of
from eigenmesh.estimators.kernel_gamma import (
    PSD_KERNELS,
    agreed_fields,
    gamma_stages,
    kernel_gamma,
    psd_kernel,
)
from eigenmesh.estimators.report import RunReport
from eigenmesh.estimators.rows import RowEstimator
from eigenmesh.methods.diskpca.sketching import SketchingPCAResult, sketching_pca
from eigenmesh.methods.registry import Method, register
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.row_messages import KernelSetup


class SketchingPCA(RowEstimator):
    """Linear PCA of rows embedded by a shared seed: the baseline of disKPCA's paper.

    No row leaves a party and nothing large goes down, but what is found are the components of the
    embedded rows: those of the kernel only for `embedding_dim` large. `DisKPCA` is nearer for the
    same traffic. For "linear" and "cosine" it is exact once `embedding_dim` reaches the columns.

    Parameters
    ----------
    n_components : components wanted; None for all that the embedding determines.
    kernel, gamma, degree, coef0 : as in DisKPCA.
    embedding_dim : dimensions of the embedding; 20·n_components if None, or 200.
    center : centre the embedded rows, exactly.
    random_state : seed of the embedding.

    Attributes
    ----------
    eigenvalues_, total_variance_, residual_, explained_variance_ratio_ : of the embedded rows.
    exact_ : whether these are those of the kernel.
    report_ : what it cost, and what left each party.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_digits
    >>> parts = em.split(load_digits().data / 16, n_parties=5, random_state=0)
    >>> kpca = em.SketchingPCA(3, kernel="rbf", gamma="mean-distance", random_state=0).fit(parts)
    >>> kpca.transform(parts)[0].shape
    (360, 3)
    """

    _cheaper = "lower embedding_dim"
    _fitted = (
        "eigenvalues_",
        "explained_variance_ratio_",
        "total_variance_",
        "residual_",
        "gamma_",
        "exact_",
        "model_",
    )

    def __init__(
        self,
        n_components: int | None = 2,
        *,
        kernel: str = "linear",
        gamma: float | str | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        embedding_dim: int | None = None,
        center: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.embedding_dim = embedding_dim
        self.center = center
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows split over parties: a Partitioned, a Federation, or a plain array."""
        planned = self._stage(1.0)
        with self._opened(self._source(X)) as fed, fed.recording() as recording:
            self._require_rows(fed)
            fed.require_stages(planned)
            gamma = kernel_gamma(fed, self.kernel, self.gamma, seed_of(self.random_state))
            outcome = self._stage(gamma).run(fed).value
        self._adopt(outcome, gamma)
        caveats = missing_gap(outcome.model.eigenvalues, outcome.model.next_eigenvalue)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=outcome.stop_reason,
            baseline_floats=outcome.baseline_floats,
            notes=(*caveats, _worth(outcome)),
            cheaper=self._less(fed.split, fed.graph is not None),
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    def _needs(self, fed: Federation, *, weighted: bool = False) -> Needs:
        return [self._stage(1.0)]

    def _agreed(self, gamma: float | None) -> KernelSetup:
        kernel = psd_kernel(self.kernel, gamma, self.degree, self.coef0)
        rank = self._wanted() or 10
        width = 20 * rank if self.embedding_dim is None else self.embedding_dim
        return KernelSetup(**agreed_fields(kernel, rank, width, self.random_state))

    def _stages(self, parties: Parties) -> list[Stage]:
        """What a fit runs."""
        seed = seed_of(self.random_state)
        return [*gamma_stages(self.kernel, self.gamma, parties, seed), self._stage(1.0)]

    def _stage(self, gamma: float | None) -> Stage:
        return stage(sketching_pca, self._agreed(gamma), self._wanted(), bool(self.center))

    def _adopt(self, outcome: SketchingPCAResult, gamma: float | None) -> None:
        model = outcome.model
        self.model_ = model
        self.gamma_ = gamma
        self.exact_ = outcome.exact
        self.eigenvalues_ = model.eigenvalues
        self.total_variance_ = model.total
        self.residual_ = model.residual
        self.explained_variance_ratio_ = model.eigenvalues / model.total
        self.n_features_in_ = model.n_columns
        self._last_transform: list[RunReport] = []

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)


def _worth(outcome: SketchingPCAResult) -> str:
    if outcome.exact:
        return "the embedding is the kernel's own feature space: exact"
    off = abs(outcome.embedded_trace / outcome.kernel_trace - 1) if outcome.kernel_trace else 0.0
    return (
        f"eigenvalues and residual are those of rows embedded in {len(outcome.model.components)} "
        f"dimensions, not of the kernel; the embedding is off by {off:.1%} in the rows' squares"
    )


register(
    Method(
        "sketching-pca",
        "rows",
        PSD_KERNELS,
        SketchingPCA,
        "sums of embedded rows are all that may leave; the components are those of the embedding",
        rank=20,
        discloses="sums",
        accurate=False,
        n_components="or all",
        span="embedding",
        cheaper="lower n_components",
    )
)
