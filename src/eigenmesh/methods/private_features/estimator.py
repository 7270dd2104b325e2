"""Kernel PCA of rows with differential privacy, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

from eigenmesh.errors import EigenmeshWarning
from eigenmesh.estimators.accuracy import missing_gap
from eigenmesh.estimators.base import Needs
from eigenmesh.estimators.checks import whole_number
from eigenmesh.estimators.report import RunReport
from eigenmesh.estimators.rows import RowEstimator
from eigenmesh.methods.private_features.promises import (
    ONE_ROW,
    checked_fields,
    large_delta,
    outlook,
)
from eigenmesh.methods.private_features.protocol import PrivateResult, PrivateSetup, private_pca
from eigenmesh.methods.registry import Method, register
from eigenmesh.numerics.kernels import UNIT_NORM
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.privacy import in_words
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.count import survey

_ENOUGH = 0.9  # of the variance that k components can have


class PrivatePCA(RowEstimator):
    """Kernel PCA of rows that tells no more of any one row than epsilon and delta allow.

    Rows become random features of norm 1, whose products are summed, and noise is added where the
    rows are, before anything leaves: whoever has all that left, the model included, and knows all
    rows but one, cannot tell what that one holds but for the chance that (ε, δ) leaves. This takes
    many rows: at ε = 1 some ten thousand for three components, fifty thousand for ten. `em.plan`
    says beforehand where it is useless.

    Parameters
    ----------
    n_components : components wanted.
    epsilon, delta : the promise for each row, over this fit. Fits add up: `em.Budget(epsilon=)`.
    kernel : "rbf", "laplacian" or "cosine", whose features have norm 1.
    gamma : a number, or None for 1/n_features: no rule that looks at the rows.
    n_features : random features; more are nearer to the kernel, and noise grows with their root.
        Of a cosine kernel the columns.
    center : centre in feature space.
    random_state : seed of the features. Noise comes from each site's own entropy, and no seed gives
        it again.

    Attributes
    ----------
    eigenvalues_, total_variance_, residual_, explained_variance_ratio_ : of the features, without
        what noise adds to them on average.
    shortfalls_, shortfall_ : the share of each eigenvalue that noise has lost, estimated.
    noise_edge_ : the largest eigenvalue that noise has by itself.
    report_ : what it cost, and what left each party; `report_.privacy` has the promise.

    Examples
    --------
    >>> import eigenmesh as em, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3)) * [3, 1, 0.3]
    >>> parts = em.split(X, n_parties=4, random_state=0)
    >>> kpca = em.PrivatePCA(2, epsilon=2.0, gamma=0.05, n_features=60).fit(parts)
    >>> kpca.report_.privacy
    {'epsilon': 2.0, 'delta': 1e-06}
    >>> bool(kpca.shortfall_ < 0.2)
    True
    """

    _cheaper = "lower n_features"
    _judges_shortfall = True
    _fitted = (
        "eigenvalues_",
        "explained_variance_ratio_",
        "total_variance_",
        "residual_",
        "gamma_",
        "noise_edge_",
        "model_",
        "shortfalls_",
        "shortfall_",
        "shortfall_error_",
    )

    def __init__(
        self,
        n_components: int = 2,
        *,
        epsilon: float | None = 1.0,
        delta: float = 1e-6,
        kernel: str = "rbf",
        gamma: float | None = None,
        n_features: int = 200,
        center: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.kernel = kernel
        self.gamma = gamma
        self.n_features = n_features
        self.center = center
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows split over parties: a Partitioned, a Federation, or a plain array."""
        planned = self._stage(None)
        with self._opened(self._source(X)) as fed, fed.recording() as recording:
            self._require_rows(fed)
            fed.require_stages(planned)
            n_columns = fed.run(survey).value[0].n_columns if self.gamma is None else None
            run = self._stage(n_columns)
            outcome: PrivateResult = run.run(fed).value
        setup: PrivateSetup = run.args[0]
        self._adopt(outcome, setup)
        caveats = self._caveats(outcome, setup)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=outcome.stop_reason,
            baseline_floats=outcome.baseline_floats,
            notes=(*caveats, *_facts(outcome, setup)),
            cheaper=self._less(fed.split, fed.graph is not None),
            privacy={"epsilon": setup.epsilon, "delta": setup.delta},
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    def _needs(self, fed: Federation, *, weighted: bool = False) -> Needs:
        return [self._stage(None)]

    def _stages(self, parties: Parties) -> list[Stage]:
        """What a fit runs."""
        n_columns = parties.shapes[0][1]
        sizes = [stage(survey)] if self.gamma is None else []
        return [*sizes, self._stage(n_columns)]

    def _stage(self, n_columns: int | None) -> Stage:
        return stage(private_pca, self._setup(n_columns), self._wanted())

    def _setup(self, n_columns: int | None) -> PrivateSetup:
        return PrivateSetup(**checked_fields(self, n_columns, center=bool(self.center)))

    def _wanted(self) -> int:
        return whole_number(self.n_components, "n_components")

    def _plan_notes(
        self, names: Sequence[str], shapes: Sequence[tuple[int, int]]
    ) -> tuple[str, ...]:
        return outlook(self._setup(shapes[0][1]), shapes, self._wanted())

    def _adopt(self, outcome: PrivateResult, setup: PrivateSetup) -> None:
        model = outcome.model
        self.model_ = model
        self.gamma_ = setup.gamma
        self.noise_edge_ = outcome.edge
        self.eigenvalues_ = model.eigenvalues
        self.total_variance_ = model.total
        self.residual_ = model.residual
        self.explained_variance_ratio_ = model.eigenvalues / (model.total or 1.0)
        self.shortfalls_ = 1.0 - outcome.aligned
        self.shortfall_ = float(self.shortfalls_.max())
        self.shortfall_error_ = 0.0
        self.n_features_in_ = model.n_columns
        self._last_transform: list[RunReport] = []

    def _caveats(self, outcome: PrivateResult, setup: PrivateSetup) -> tuple[str, ...]:
        k, told_apart = self._wanted(), outcome.n_told_apart
        words = missing_gap(outcome.model.eigenvalues, outcome.model.next_eigenvalue)
        if told_apart < k:
            words = (
                f"{k - told_apart} of {k} components cannot be told from noise, whose largest "
                f"eigenvalue is {outcome.edge:,.0f}: take {told_apart or 'none'}, more rows or a "
                f"larger epsilon than {setup.epsilon:g}",
            )
        elif outcome.share_of_best < _ENOUGH:
            words += (
                f"the components have about {outcome.share_of_best:.0%} of the variance that {k} "
                f"can have; the rest is lost to noise: more rows, fewer components or a larger "
                f"epsilon than {setup.epsilon:g} lose less",
            )
        return (*words, *large_delta(setup, outcome.model.n_rows))

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)


def _facts(outcome: PrivateResult, setup: PrivateSetup) -> tuple[str, ...]:
    promise = in_words({"epsilon": setup.epsilon, "delta": setup.delta})
    return (
        f"differential privacy: {promise}, {ONE_ROW}",
        f"noise of {outcome.sigma:.3g} in every sum; eigenvalues and residual are those of "
        f"{len(outcome.model.components)} features, without what noise adds on average",
    )


register(
    Method(
        "private-features",
        "rows",
        UNIT_NORM,
        PrivatePCA,
        "noise hides what any one row holds, as epsilon and delta say",
        discloses="sums",
        accurate=False,
        private=True,
        span="embedding",
    )
)
