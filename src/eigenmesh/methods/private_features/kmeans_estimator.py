"""Kernel k-means of rows with differential privacy, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.checks import whole_number
from eigenmesh.estimators.party_labels import PartyLabels
from eigenmesh.estimators.report import RunReport
from eigenmesh.methods.private_features.clusters import (
    CANDIDATES,
    FINAL_ROUNDS,
    PrivateClusters,
    PrivateKMeansSetup,
    private_kmeans,
)
from eigenmesh.methods.private_features.promises import (
    ONE_ROW,
    checked_fields,
    large_delta,
    outlook,
)
from eigenmesh.methods.registry import Method, register
from eigenmesh.numerics.kernels import UNIT_NORM
from eigenmesh.runtime.privacy import in_words
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.count import survey

SCORES, LABELS = "private-kmeans-scores", "private-kmeans-labels"


class PrivateKMeans(PartyLabels):
    """Kernel k-means of rows that tells no more of any one row than epsilon and delta allow.

    The leading components of random features are found from noised sums, as in `PrivatePCA`; the
    rows' scores are clustered by Lloyd's iteration on noised sums and sizes of cells. Labels stay
    where the rows are. Half of the loss goes to the components, half to the rounds.

    Parameters
    ----------
    n_clusters : clusters wanted.
    epsilon, delta, kernel, gamma, n_features, random_state : as in `PrivatePCA`.
    n_eigenvectors : components that are clustered; n_clusters if None.
    n_rounds : of noised cells, which share half of the loss.

    Attributes
    ----------
    labels_ : the rows' clusters; for split data a list; labels that are at a site and not in this
        process say so in their place. They are each site's own, and under no noise.
    cluster_centers_ : in the coordinates that `transform` gives.
    inertia_ : Σ ‖e − μ‖² over the features, without what noise adds to it on average.
    cluster_sizes_ : about how many rows each cluster has.
    eigenvalues_ : of the uncentred features, without what noise adds on average.
    report_ : what it cost, and what left each party; `report_.privacy` has the promise.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import make_blobs
    >>> from sklearn.metrics import adjusted_rand_score
    >>> X, y = make_blobs(20_000, centers=[[0, 0], [4, 0], [0, 4]], random_state=0)
    >>> parts = em.split(X, n_parties=3, random_state=0)
    >>> blobs = em.PrivateKMeans(3, epsilon=2.0, gamma=0.1, n_features=40).fit(parts)
    >>> bool(adjusted_rand_score(y, blobs.predict(X)) > 0.9)
    True
    """

    _cheaper = "lower n_features"
    _fitted = (
        "eigenvalues_",
        "cluster_centers_",
        "cluster_sizes_",
        "inertia_",
        "gamma_",
        "n_iter_",
        "model_",
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        epsilon: float | None = 1.0,
        delta: float = 1e-6,
        n_eigenvectors: int | None = None,
        kernel: str = "rbf",
        gamma: float | None = None,
        n_features: int = 100,
        n_rounds: int = 5,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.n_eigenvectors = n_eigenvectors
        self.kernel = kernel
        self.gamma = gamma
        self.n_features = n_features
        self.n_rounds = n_rounds
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows split over parties: a Partitioned, a Federation, or a plain array."""
        planned = self._stage(None)
        with self._opened(self._source(X)) as fed, fed.recording() as recording:
            self._require_rows(fed)
            fed.require_stages(planned)
            n_columns = fed.run(survey).value[0].n_columns if self.gamma is None else None
            run = self._stage(n_columns)
            outcome: PrivateClusters = run.run(fed).value
            self._labels = self._own_labels(fed, LABELS, X)
        setup: PrivateKMeansSetup = run.args[0]
        self._adopt(outcome, setup)
        caveats = self._caveats(outcome, setup)
        promise = {"epsilon": setup.epsilon, "delta": setup.delta}
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=outcome.stop_reason,
            baseline_floats=outcome.baseline_floats,
            notes=(*caveats, f"differential privacy: {in_words(promise)}, {ONE_ROW}"),
            cheaper=self._less(fed.split, fed.graph is not None),
            privacy=promise,
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    def _stages(self, parties: Parties) -> list[Stage]:
        """What a fit runs."""
        sizes = [stage(survey)] if self.gamma is None else []
        return [*sizes, self._stage(parties.shapes[0][1])]

    def _stage(self, n_columns: int | None) -> Stage:
        setup = self._setup(n_columns)
        return stage(private_kmeans, setup, self._numbers()[0], self._numbers()[1])

    def _setup(self, n_columns: int | None) -> PrivateKMeansSetup:
        n_rounds = whole_number(self.n_rounds, "n_rounds")
        if n_rounds <= FINAL_ROUNDS:
            raise InputError(f"n_rounds is {n_rounds}; at least {FINAL_ROUNDS + 1} is expected")
        return PrivateKMeansSetup(
            **checked_fields(self, n_columns, center=False),
            n_rounds=n_rounds,
            n_cells=CANDIDATES * self._numbers()[0],
            scores=SCORES,
            labels=LABELS,
        )

    def _numbers(self) -> tuple[int, int]:
        k = whole_number(self.n_clusters, "n_clusters")
        return k, whole_number(self.n_eigenvectors or k, "n_eigenvectors")

    def _plan_notes(
        self, names: Sequence[str], shapes: Sequence[tuple[int, int]]
    ) -> tuple[str, ...]:
        setup, (_, s) = self._setup(shapes[0][1]), self._numbers()
        return outlook(setup, shapes, s)

    def _adopt(self, outcome: PrivateClusters, setup: PrivateKMeansSetup) -> None:
        self.model_ = outcome.model
        self.gamma_ = setup.gamma
        self.eigenvalues_ = outcome.model.eigenvalues
        self.cluster_centers_ = outcome.centres
        self.cluster_sizes_ = outcome.sizes
        self.inertia_ = outcome.inertia
        self.n_iter_ = setup.n_rounds
        self.n_features_in_ = outcome.model.n_columns
        self._last_transform: list[RunReport] = []

    def _caveats(self, outcome: PrivateClusters, setup: PrivateKMeansSetup) -> tuple[str, ...]:
        words: tuple[str, ...] = ()
        s, lost = len(outcome.model.eigenvalues), int((outcome.sizes == 0).sum())
        more = f"more rows or a larger epsilon than {setup.epsilon:g} would help"
        if outcome.n_told_apart < s:
            words += (f"{s - outcome.n_told_apart} of {s} components are noise; {more}",)
        if lost:
            words += (
                f"{lost} of {len(outcome.sizes)} clusters cannot be told from noise; {more}, or "
                f"fewer clusters",
            )
        return (*words, *large_delta(setup, outcome.model.n_rows))

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)


register(
    Method(
        "private-features",
        "rows",
        UNIT_NORM,
        PrivateKMeans,
        "noise hides what any one row holds, as epsilon and delta say",
        task="clusters",
        discloses="sums",
        accurate=False,
        private=True,
    )
)
