"""Federated kernel k-means by stochastic proximal gradient descent, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.accuracy import missing_gap
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import (
    checked_gamma,
    finite_number,
    one_of,
    optional_count,
    restarts,
    whole_number,
)
from eigenmesh.estimators.kernel_gamma import gamma_stages, kernel_gamma
from eigenmesh.estimators.party_labels import PartyLabels
from eigenmesh.estimators.report import RunReport
from eigenmesh.methods.dspgd.direct import dspgd_direct
from eigenmesh.methods.dspgd.features import LAWS, PAPER_KERNELS
from eigenmesh.methods.dspgd.labels import label_everybody
from eigenmesh.methods.dspgd.maths import STEP_SIZES
from eigenmesh.methods.dspgd.outcome import DSPGDResult, Goal
from eigenmesh.methods.dspgd.party_side import EXTRA_DRAWS, DSPGDSetup
from eigenmesh.methods.dspgd.protocol import SOLVERS, dspgd, last_rotation
from eigenmesh.methods.registry import Method, register
from eigenmesh.numerics.arrays import as_rows
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.ask_again import patient
from eigenmesh.stages.distributed_kmeans import METHODS as CLUSTERINGS
from eigenmesh.stages.distributed_kmeans import KMeansResult, distributed_kmeans
from eigenmesh.stages.kmeans_party import KMeansSetup

KERNELS = ("rbf", "laplacian", "poly", "linear", "cosine")
MECHANISMS = ("efficient", "direct")
SCORES = "fed-kernel-kmeans-scores"  # where a site keeps its rows of H
LABELS = "fed-kernel-kmeans-labels"
RESTARTS = 10  # of k-means, by default


class FedKernelKMeans(PartyLabels):
    """Kernel k-means of rows held by several parties, without landmarks: no row ever leaves.

    Every iteration draws fresh random features, from a seed that all know, and improves the top of
    the kernel matrix, of which every party keeps its own rows; then the rows of that are clustered
    by distributed k-means. The squared error of the kernel matrix falls as 1 / n_iterations.
    `KernelKMeans` needs far fewer floats where landmarks may leave.

    Parameters
    ----------
    n_clusters : clusters wanted.
    n_eigenvectors : of the kernel matrix, s; n_clusters if None.
    kernel : "rbf", "laplacian", "poly", "linear" or "cosine".
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance".
    degree, coef0 : of polynomial kernels.
    n_features : random features of an iteration, D; an RBF kernel's come in pairs, unless they are
        the paper's.
    n_iterations : T.
    solver : "nystrom", one round an iteration and the fewest floats; "gram", one round, exact;
        "lanczos", the paper's, exact to 1e-6 in as many rounds as it takes, some 30.
    step_size : "1/t", or "2/t" as in the paper's theorem, cut at 1.
    threshold : None caps the rank of the iterate; "paper" cuts eigenvalues instead, below a level
        that is too high where D is small, and then loses eigenvectors for good.
    rank : the cap; None for s + s/2 + 3, and for 2s + 6 with "nystrom", whose sketch loses some.
    features : "complementary" random directions go on being orthogonal from one iteration to the
        next (RBF kernels), so that the error falls faster; with "independent" they are orthogonal
        within an iteration only. "paper": √2 cos(ωx + b) with every ω and b drawn on its own, for
        "rbf" and "laplacian"; its error is the largest.
    mechanism : "efficient"; "direct" is the paper's comparison without it, for "lanczos" only: the
        coordinator then sees every coordinate of every row, and the traffic grows with the rows.
    clustering : "coreset" (Balcan et al., 2013), three rounds; "lloyd", exact.
    coreset_size : draws of "coreset"; None for 50 a cluster, at least 200.
    n_init : starts of k-means; "auto" is 10.
    random_state : seed of all draws.

    Attributes
    ----------
    labels_ : the rows' clusters; of split data a list; labels that are at a site and not in this
        process say so in their place.
    cluster_centers_ : in the coordinates that `transform` gives.
    inertia_ : squared distances to the nearest centre in these coordinates.
    eigenvalues_ : of the uncentred kernel matrix, as estimated.
    trace_ : one entry an iteration, with step size, rank, products of Lanczos, change and how much
        of the rows it rests on.
    recovery_error_ : estimated ‖K̂ − K_s‖²_F / n², from the change of the last iterations as if
        their features were independent: up to five times too high where they complement each
        other, too low where eigenvalues s and s + 1 are close; None where there is no telling.
    history_ : with clustering="lloyd", mean squared distance of scores to their centres before
        every round's move, (rounds,). `transform_history` gives the scores of every iteration.
    report_ : what it cost, what left each party, and who missed what.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.metrics import normalized_mutual_info_score
    >>> X, y = load_digits(return_X_y=True)
    >>> parts = em.split(X / 16, n_parties=5, random_state=0)
    >>> model = em.FedKernelKMeans(10, n_eigenvectors=12, n_iterations=10, random_state=0)
    >>> [len(labels) for labels in model.fit(parts).labels_]
    [360, 360, 359, 359, 359]
    >>> bool(normalized_mutual_info_score(y, model.predict(X / 16)) > 0.65)
    True
    """

    _cheaper = "lower n_features or n_iterations, or take KernelKMeans, whose landmarks send less"
    _fitted = (
        "eigenvalues_",
        "cluster_centers_",
        "inertia_",
        "trace_",
        "recovery_error_",
        "threshold_",
        "gamma_",
        "n_iter_",
        "model_",
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_eigenvectors: int | None = None,
        kernel: str = "rbf",
        gamma: float | str | None = "mean-distance",
        degree: int = 3,
        coef0: float = 1.0,
        n_features: int = 100,
        n_iterations: int = 50,
        solver: str = "nystrom",
        step_size: str = "1/t",
        threshold: str | None = None,
        rank: int | None = None,
        features: str = "complementary",
        mechanism: str = "efficient",
        clustering: str = "coreset",
        n_init: int | str = RESTARTS,
        random_state: Any = None,
        coreset_size: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_eigenvectors = n_eigenvectors
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_features = n_features
        self.n_iterations = n_iterations
        self.solver = solver
        self.step_size = step_size
        self.threshold = threshold
        self.rank = rank
        self.features = features
        self.mechanism = mechanism
        self.clustering = clustering
        self.n_init = n_init
        self.random_state = random_state
        self.coreset_size = coreset_size

    # Fitting.

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows split over parties: a Partitioned, a Federation, or a plain array."""
        goal, seed = self._goal(), seed_of(self.random_state)
        n_init = restarts(self.n_init, RESTARTS)
        checked_gamma(self.gamma)
        clustering = one_of(self.clustering, "clustering", CLUSTERINGS)
        # Wrong parameters are refused before anything is opened.
        descent = self._descent(self._agreed(goal, 1.0, seed), goal)
        with self._opened(self._source(X)) as fed, fed.recording() as recording:
            self._require_rows(fed)
            fed.require_stages(descent, self._clustering(goal, clustering, n_init, seed))
            gamma = kernel_gamma(patient(fed), self.kernel, self.gamma, seed)
            result = self._descent(self._agreed(goal, gamma, seed), goal).run(fed).value
            clusters = self._clusters(fed, goal, clustering, n_init, seed)
            self._labels = self._own_labels(fed, LABELS, X)
        self._adopt(result, clusters, gamma)
        notes = self._notes(result, clusters, goal, fed)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=result.stop_reason,
            baseline_floats=result.baseline_floats,
            notes=notes,
            cheaper=self._less(fed.split, fed.graph is not None),
        )
        for note in notes:
            warnings.warn(note, EigenmeshWarning, stacklevel=2)
        return self

    def _goal(self) -> Goal:
        k = whole_number(self.n_clusters, "n_clusters")
        s = k if self.n_eigenvectors is None else self.n_eigenvectors
        s = whole_number(s, "n_eigenvectors")
        if self.threshold == "paper":
            if self.rank is not None:
                raise InputError(
                    f"rank is {self.rank} and threshold 'paper'; one of them is expected to be None"
                )
            return Goal(s, k, None)
        if self.threshold is not None:
            raise InputError(f"threshold is {self.threshold!r}; None or 'paper' is expected")
        rank = self._default_rank(s) if self.rank is None else whole_number(self.rank, "rank")
        if rank < s:
            raise InputError(f"rank is {rank}; at least n_eigenvectors, {s}, is expected")
        return Goal(s, k, rank)

    def _default_rank(self, s: int) -> int:
        """More for a sketch, which with these does what exact eigenvectors do with fewer."""
        return 2 * s + 6 if self.solver == "nystrom" else s + s // 2 + 3

    def _agreed(self, goal: Goal, gamma: float | None, seed: int) -> DSPGDSetup:
        rank = 2 * goal.first_rank if goal.rank is None else goal.rank
        return DSPGDSetup(
            kernel=one_of(self.kernel, "kernel", KERNELS),
            gamma=gamma,
            degree=float(self.degree),
            coef0=finite_number(self.coef0, "coef0"),
            n_features=whole_number(self.n_features, "n_features"),
            sketch_width=rank + EXTRA_DRAWS,
            step_rule=one_of(self.step_size, "step_size", STEP_SIZES),
            seed=seed,
            scores=SCORES,
            law=self._law(),
        )

    def _law(self) -> str:
        law = one_of(self.features, "features", LAWS)
        if law == "paper" and self.kernel not in PAPER_KERNELS:
            raise InputError(
                f"features is 'paper', which is a law of shift-invariant kernels, and kernel is "
                f"{self.kernel!r}; one of {', '.join(map(repr, PAPER_KERNELS))} is expected, or "
                f"features='independent'"
            )
        return law

    def _is_direct(self) -> bool:
        direct = one_of(self.mechanism, "mechanism", MECHANISMS) == "direct"
        if one_of(self.solver, "solver", SOLVERS) != "lanczos" and direct:
            raise InputError(
                f"solver is {self.solver!r}; 'lanczos' is expected with mechanism='direct', which "
                f"has no small matrix to send"
            )
        return direct

    def _descent(self, setup: DSPGDSetup, goal: Goal) -> Stage:
        """The run that finds the eigenvectors."""
        n_iterations = whole_number(self.n_iterations, "n_iterations")
        if self._is_direct():
            return stage(dspgd_direct, setup, goal, n_iterations)
        return stage(dspgd, setup, goal, n_iterations, self.solver)

    def _clusters(
        self, fed: Federation, goal: Goal, clustering: str, n_init: int, seed: int
    ) -> KMeansResult:
        search = self._clustering(goal, clustering, n_init, seed)
        # Steps of a coreset can be asked for again; those of seeding change a party's state, but
        # Lloyd's sums are of whoever is there.
        clusters: KMeansResult = search.run(patient(fed) if clustering == "coreset" else fed).value
        if fed.on_loss == "skip" and clustering != "coreset":
            fed.run(label_everybody, _points(seed), clusters.centres)
        return clusters

    def _clustering(self, goal: Goal, clustering: str, n_init: int, seed: int) -> Stage:
        how = {
            "method": clustering,
            "n_init": n_init,
            "dim": goal.n_eigenvectors,
            "coreset_size": optional_count(self.coreset_size, "coreset_size"),
        }
        return stage(distributed_kmeans, _points(seed), goal.n_clusters, **how)

    def _adopt(self, result: DSPGDResult, clusters: KMeansResult, gamma: float | None) -> None:
        self.model_ = result.model
        self.eigenvalues_ = result.eigenvalues
        self.threshold_ = result.threshold
        self.trace_ = result.trace
        self.recovery_error_ = result.recovery_error
        self.cluster_centers_ = clusters.centres
        self.inertia_ = float(clusters.inertia)
        self.history_ = clusters.history
        self.n_iter_ = len(result.trace)
        self.gamma_ = gamma
        self.n_features_in_ = result.model.n_columns
        self._last_transform: list[RunReport] = []

    def _notes(
        self, result: DSPGDResult, clusters: KMeansResult, goal: Goal, fed: Federation
    ) -> tuple[str, ...]:
        notes = missing_gap(result.eigenvalues, result.next_eigenvalue)
        if len(result.eigenvalues) < goal.n_eigenvectors:
            few = f"{len(result.eigenvalues)} of {goal.n_eigenvectors} eigenvectors"
            notes += (f"only {few} were found; the clusters rest on these",)
        if fed.dropped:
            thin = min(entry.covered for entry in result.trace)
            notes += (
                f"{sum(fed.dropped.values())} replies of {len(fed.dropped)} parties were missing; "
                f"they were asked again, and at worst an iteration rests on {thin:.0%} of the rows",
            )
        return (*notes, *clusters.notes)

    def transform_history(self, X: Any) -> Iterator[Any]:
        """Scores after each iteration, as if it had been the last: for research, without refits.

        `X` has all rows that were fitted, in one place: the eigenvectors of an iterate are theirs.

        >>> import eigenmesh as em
        >>> from sklearn.datasets import load_iris
        >>> X = load_iris().data
        >>> model = em.FedKernelKMeans(3, n_iterations=4, random_state=0).fit(X)
        >>> history = list(model.transform_history(X))
        >>> len(history), bool(abs(abs(history[-1]) - abs(model.transform(X))).max() < 1e-8)
        (4, True)
        """
        check_is_fitted(self)
        goal = self._goal()
        for B in self.model_.iterates(as_rows(X)):
            rotation = last_rotation(B.T @ B, goal, self.threshold_)[1]
            yield B @ rotation

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    # Before anything runs.

    def _stages(self, parties: Parties) -> list[Stage]:
        goal, seed = self._goal(), seed_of(self.random_state)
        clustering = one_of(self.clustering, "clustering", CLUSTERINGS)
        return [
            *gamma_stages(self.kernel, self.gamma, parties, seed),
            self._descent(self._agreed(goal, 1.0, seed), goal),
            self._clustering(goal, clustering, restarts(self.n_init, RESTARTS), seed),
        ]


def _points(seed: int) -> KMeansSetup:
    return KMeansSetup(points=SCORES, labels=LABELS, seed=seed)


register(
    Method(
        "fed",
        "rows",
        KERNELS,
        FedKernelKMeans,
        "random features improved in rounds, then distributed k-means",
        task="clusters",
        rank=10,
    )
)
