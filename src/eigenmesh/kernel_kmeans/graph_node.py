"""A node of a graph whose rows are to be clustered: what travels, and the node's side.

The schedule, with who learns what, is in `kernel_kmeans/graph.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import InputError, MissingPartyShare
from eigenmesh.graphs.consensus import Mixture
from eigenmesh.graphs.node_models import KEPT, Question
from eigenmesh.graphs.spread_from_first import PassedOn, PassingParty, PassingSetup
from eigenmesh.kernel_kmeans.protocol import LABELS, good_enough
from eigenmesh.numerics.arrays import Doubles, as_rows, blocks
from eigenmesh.numerics.cluster_moments import cluster_moments, inertia_of
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.embeddings import embedding
from eigenmesh.numerics.kmeans import (
    WeightedPoints,
    clearly_different,
    cluster_sums,
    cost_of,
    different_parts,
    far_sums,
    membership,
    nearest,
    other_grouping,
    split_centres,
    weight_of_each,
    weighted_kmeans,
)
from eigenmesh.runtime.message import Floats, Message, NonNegative, Positive, Reveals, Shape
from eigenmesh.runtime.party import step
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.distributed_kmeans import PARTS
from eigenmesh.stages.kmeans_party import MOST_GROUPS
from eigenmesh.stages.more_centres import no_groups
from eigenmesh.stages.site_centroids import site_groups

SPANS = ("landmarks", "features", "scores")  # in which the clusters' means are compared with rows
DRAWN = 50  # candidates drawn where there are no landmarks, times the number of clusters
MOST_CANDIDATES = 1000
EMPTY = 1e-9  # share of the weight below which averages are rounding, and a cluster is empty
# For rows far from all candidates, before the start. With two all of 7 fits to breast cancer (poly
# 2, 7 clusters) stayed 4 to 9 % above the best inertia, with four 1 of 3.
LOOKS = 4
NOBODYS = -1  # the group of a row that has no weight
_STILL = 1e-20  # of the scores' mean square: a squared move that is rounding


class ClusterSetup(PassingSetup, reveals=None):
    """What is to be found, and under which key of its own a site has weights of its rows."""

    n_nodes: Annotated[int, Positive]
    n_clusters: Annotated[int, Positive]
    n_init: Annotated[int, Positive]
    tol: Annotated[float, NonNegative]
    span: str  # one of SPANS
    weights: str
    seed: int


class ClusterMixture(Mixture, reveals="moments", covers=1):
    """A running average of what clusters add up to; a sum over one row is that row's scores."""


class GroupMixture(Mixture, reveals="moments", covers="fewest"):
    """The same over whole groups of rows, each as many as a node lets a sum be over."""


class PassedCentres(PassedOn, reveals="moments", covers="joint"):
    """Centres, or numbers of which the largest counts."""


class StartCount(Message, reveals="counts"):
    """How many centres the starts have."""

    n_centres: Annotated[int, Positive]


class StillMoving(Message, reveals="counts"):
    """How many restarts go on."""

    n_moving: Annotated[int, NonNegative]


class ClusterCost(Message, reveals="moments", covers="joint"):
    """The mean squared distance of scores to their centres, and one that is good enough."""

    cost: Annotated[float, NonNegative]
    enough: Annotated[float, NonNegative]


class RestartCosts(Message, reveals="moments", covers="joint"):
    """The mean squared distance of scores to their centres, restart by restart."""

    costs: Annotated[Floats, Shape("r"), NonNegative]


class ClusterOutcome(Message, reveals="moments", covers="joint"):
    """What every node knows in the end."""

    centres: Annotated[Floats, Shape("k", "dim")]
    weights: Annotated[Floats, Reveals("counts"), Shape("k"), NonNegative]
    cost: Annotated[float, NonNegative]  # Σ w ‖z − nearest centre‖²
    inertia: Annotated[float, NonNegative]
    outside: Annotated[float, NonNegative]  # Σ w ‖φ(x) − Pφ(x)‖², P on the landmarks' span
    apart: Annotated[float, NonNegative]  # between nodes, the largest difference of a centre


class ClusterNode(PassingParty):
    """Holds rows and a model of all rows; ends with the rows' labels and the common centres."""

    Setup = ClusterSetup
    _weightless = "the rows weigh 0 in all; a positive weight is expected of some"
    state = (
        *(*PassingParty.state, "candidates", "centres", "stayed", "costs"),
        *("best", "best_cost", "filling", "n_splits", "n_grown", "unsplit"),
    )

    def __init__(self, site: SiteView, setup: ClusterSetup) -> None:
        super().__init__(site, setup)
        share = site.kept(KEPT, "consensus")
        if share is None:
            raise MissingPartyShare("this node has no model", party=site.name)
        self.model: Any = share["consensus"]
        self.data = WeightedPoints(
            np.asarray(self.model.transform(site.data), dtype=np.float64), self._weights()
        )
        self.summed = self.data  # what averages are of
        self.candidates, self.costs = np.zeros((0, 0)), np.zeros(0)
        self.centres, self.stayed = np.zeros((0, 0, 0)), np.zeros(0, dtype=bool)
        self.best, self.best_cost = np.zeros((0, 0)), 0.0
        self.filling, self.n_splits, self.n_grown = np.zeros(0), 0, 0
        self.unsplit = np.zeros((0, 0))

    def _weights(self) -> Doubles:
        n, key = self.site.data.shape[0], self.setup.weights
        weights = (
            np.asarray((self.site.kept(key, "weights") or {}).get("weights", ()))
            if key
            else np.ones(n)
        )
        if len(weights) == n:
            return weights
        raise InputError(
            f"party {self.site.name!r} has {n} rows and {len(weights)} weights; one a row is "
            f"expected",
            party=self.site.name,
        )

    # 1. Candidates.

    @step(reusable=False)
    def begin_spread(self) -> None:
        """Average what the scores' mean and variances follow from."""
        Z, w = self.data
        self.start_mixing(np.concatenate([[w.sum()], w @ Z, w @ np.square(Z)]))

    @step(reusable=False)
    def draw_candidates(self) -> None:
        """The same everywhere, to rounding."""
        dim = self.data.points.shape[1]
        mean, square = (self.mixture[1:] / self.mixture[0]).reshape(2, dim)
        rng = np.random.default_rng(np.random.SeedSequence(self.setup.seed, spawn_key=(dim,)))
        draws = rng.standard_normal((n_drawn(self.setup.n_clusters), dim))
        self.candidates = mean + draws * np.sqrt(np.maximum(square - mean**2, 0.0))

    @step(reusable=False)
    def score_landmarks(self) -> None:
        """Of a node that is alone, and whose rows are all landmarks, not more than some."""
        Y = self.model.landmarks
        some = Y[:: _stride(Y.shape[0])]
        self.candidates = np.asarray(self.model.transform(some), dtype=np.float64)

    @step(reusable=False)
    def begin_weights(self) -> None:
        """Average the weight of the scores nearest to each candidate."""
        labels, _ = nearest(self.summed.points, self.candidates)
        self.start_mixing(weight_of_each(labels, self.summed.weights, len(self.candidates)))

    # 2. The start.

    @step(reusable=False)
    def propose_starts(self) -> None:
        """The first node's choice, to be passed on; fewer where fewer candidates count."""
        if not self.mixture.sum() > 0:
            raise InputError(self._weightless)
        self._pass_starts(self._clustered_candidates)

    def _clustered_candidates(self) -> Doubles:
        rng = np.random.default_rng(np.random.SeedSequence(self.setup.seed))
        masses = np.where(_filled(self.mixture), self.mixture, 0.0)
        cells = clearly_different(WeightedPoints(self.candidates, masses))
        return weighted_kmeans(cells, self.setup.n_clusters, rng, self.setup.n_init)

    def _pass_starts(self, choose: Callable[[], Doubles]) -> None:
        """What the first node chooses, (n_init, k', dim) or the same for all, and k'."""
        shape = (self.setup.n_init, self.setup.n_clusters, self.data.points.shape[1])
        packed, n_centres = np.zeros(shape), 0
        if self.is_first:
            starts = choose()
            n_centres = starts.shape[-2]
            packed[:, :n_centres] = starts
        self.pass_on(np.append(packed, n_centres))

    @step(reusable=False)
    def take_starts(self) -> StartCount:
        """Begin where the first node says."""
        agreed, n_centres = self.setup, int(self.passed[-1])
        shape = (agreed.n_init, agreed.n_clusters, self.data.points.shape[1])
        self._begin_from(self.passed[:-1].reshape(shape)[:, :n_centres])
        return StartCount(n_centres=n_centres)

    @step(reusable=False)
    def split_starts(self) -> None:
        """Begin from two parts of each centre, where candidates have given fewer than clusters."""
        self.n_grown += 1
        rng = np.random.default_rng([self.setup.seed, self.setup.n_clusters, 0, self.n_grown])
        self.unsplit = self.centres[0].copy()
        self._begin_from(split_centres(self.unsplit, self._mean_square, 2, rng)[None])

    @step(reusable=False)
    def propose_more(self) -> None:
        """The first node's choice of the parts that differ, if they are more than before."""
        parts = WeightedPoints(self.centres[0], self.filling)

        def more_or_as_before() -> Doubles:
            different = different_parts(parts, self.setup.n_clusters)
            return different if len(different) > len(self.unsplit) else self.unsplit

        self._pass_starts(more_or_as_before)

    def _begin_from(self, centres: Doubles) -> None:
        self.centres = centres.copy()
        self.stayed, self.costs = np.zeros(len(centres), dtype=bool), np.zeros(len(centres))

    @step(reusable=False)
    def begin_far(self) -> None:
        """Average where rows are far from the best start: each cluster's mean, so weighed."""
        sums, masses = far_sums(self.summed, self.centres[0], self._mean_square)
        self.start_mixing(np.column_stack([sums, masses]))

    @step(reusable=False)
    def add_far(self) -> None:
        """Candidates where a few rows are far from the others, which no landmark is near."""
        self.candidates = np.vstack([self.candidates, self._far_from_centres()])

    def _far_from_centres(self) -> Doubles:
        """Where rows are far, one place a cluster."""
        return _moved(self.centres[0], self.mixture[:, :-1], self.mixture[:, -1])

    # 3. Lloyd.

    @property
    def _moving(self) -> Any:
        """The restarts that are averaged: all, where nodes might not agree on who has stayed."""
        return np.flatnonzero(~self.stayed | self.setup.lossy)

    @step(reusable=False)
    def begin_sums(self) -> None:
        """Average what the scores nearest to each centre add up to, restart by restart."""
        self.start_mixing(np.stack([_summed(self.summed, self.centres[i]) for i in self._moving]))

    @step(reusable=False)
    def move(self) -> None:
        """Centres become means; of their moves and the costs, the largest of all nodes count."""
        k, dim = self.centres.shape[1:]
        centres, news = self.centres.copy(), np.full((2, len(self.centres)), -1.0)
        for i, parts in zip(self._moving, self.mixture, strict=True):
            sums, weights, cost = parts[: k * dim].reshape(k, dim), parts[k * dim : -1], parts[-1]
            self.filling = np.where(_filled(weights), weights, 0.0)
            if not self.stayed[i]:
                centres[i] = _moved(self.centres[i], sums, weights)
            shift = float(np.square(centres[i] - self.centres[i]).sum())
            spread = max(cost, 0.0) / weights.sum()
            news[:, i] = shift - self.setup.tol * spread - _STILL * self._mean_square, spread
        self.centres = centres
        self._compare(news)

    @property
    def _mean_square(self) -> float:
        return float(self.model.eigenvalues.sum() / self.model.n_rows)

    def _compare(self, values: Doubles) -> None:
        """Begin to look for the largest of all nodes' values."""
        self.passes += 1
        self.peak = np.asarray(values, dtype=np.float64).ravel()

    @step(reusable=False)
    def tell_moving(self) -> StillMoving:
        """Whose centres stay is done; all nodes see the same numbers."""
        excess, spreads = self.peak.reshape(2, -1)
        self.costs = np.where(self.stayed, self.costs, spreads)
        self.stayed = self.stayed | (excess <= 0)
        return StillMoving(n_moving=int(np.count_nonzero(~self.stayed)))

    @step(reusable=False)
    def tell_costs(self) -> RestartCosts:
        """For research: a round's costs, before its move."""
        return RestartCosts(costs=self.costs)

    # 4. Splitting and joining.

    @step(reusable=False)
    def tell_cost(self) -> ClusterCost:
        """Of the best restart."""
        enough = good_enough(self.model, self.setup.n_clusters, self.setup.weights)
        return ClusterCost(cost=float(self.costs.min()), enough=enough)

    @step(reusable=False)
    def keep_best(self) -> None:
        """The best restart is what further ones have to better."""
        i = int(np.argmin(self.costs))
        self.best, self.best_cost = self.centres[i], float(self.costs[i])

    @step(reusable=False)
    def split(self) -> None:
        """Go on from parts of the best clusters, beside them in directions that all nodes draw."""
        n_parts, rng = PARTS[self.n_splits % len(PARTS)], self._draws_of_split()
        self.n_splits += 1
        self._begin_from(split_centres(self.best, self.best_cost, n_parts, rng)[None])

    def _draws_of_split(self) -> np.random.Generator:
        return np.random.default_rng([self.setup.seed, self.best.shape[1], self.n_splits])

    @step(reusable=False)
    def return_to_best(self) -> None:
        """The best clusters again, of which rows may be far."""
        self._begin_from(self.best[None])

    @step(reusable=False)
    def split_far(self) -> None:
        """Go on from the best clusters, and from where rows are far from their centres."""
        self.n_splits += 1
        self._begin_from(np.vstack([self.best, self._far_from_centres()])[None])

    @step(reusable=False)
    def propose_joined(self) -> None:
        """The first node's choice of parts to be joined, to be passed on."""
        parts, rng = WeightedPoints(self.centres[0], self.filling), self._draws_of_split()
        self.pass_on(other_grouping(parts, self.best, rng))

    @step(reusable=False)
    def take_joined(self) -> None:
        """Go on where the first node says."""
        self._begin_from(self.passed.reshape(1, *self.best.shape))

    # 5. The end.

    @step(reusable=False)
    def begin_clusters(self) -> None:
        """Label the own rows; average what the inertia follows from; compare the centres."""
        centres = self.best
        labels, _ = nearest(self.data.points, centres)
        self.site.keep(LABELS, {"labels": labels})
        labels = self._summed_labels(labels)
        cost = cost_of(self.data, centres, labels)
        sums, trace, inside = self._span_sums(labels, len(centres))
        weights = weight_of_each(labels, self.data.weights, len(centres))
        self.start_mixing(np.concatenate([[cost, trace, inside], weights, sums.ravel()]))
        self._compare(np.stack([centres, -centres]))

    def _summed_labels(self, labels: Any) -> Any:
        """In which cluster rows are when sums of clusters are formed."""
        return labels

    def _span_sums(self, labels: Any, k: int) -> tuple[Doubles, float, float]:
        """Of each cluster the sum (k, width), and Σ w ‖·‖² of all rows, whole and inside."""
        w = self.data.weights
        if self.setup.span == "landmarks":
            kernel, Y = self.model.kernel, as_rows(self.model.landmarks, np.float64)
            moments = cluster_moments(kernel, self.site.data, Y, (labels, w, k), self._basis)
            return moments.sums, moments.trace, moments.inside
        if self.setup.span == "scores":
            return _point_sums(self.data, labels, k)
        return _point_sums(WeightedPoints(self._features(), w), labels, k)

    @property
    def _basis(self) -> Doubles:
        Y = as_rows(self.model.landmarks, np.float64)
        return pseudo_inverse_root(self.model.kernel.matrix(Y))

    def _features(self) -> Doubles:
        model, X = self.model, self.site.data
        embed = embedding(model.kernel, model.n_columns, model.width, model.seed)
        return np.vstack([embed(X[rows]) for rows in blocks(X.shape[0])])

    @step(reusable=False)
    def tell_clusters(self, question: Question) -> ClusterOutcome:
        """What all nodes know by now."""
        centres, whole = self.best, self.setup.n_nodes * self.mixture
        k = len(centres)
        (cost, trace, inside), weights = whole[:3], whole[3 : 3 + k]
        weights = np.where(_filled(weights), weights, 0.0)
        sums = whole[3 + k :].reshape(k, -1)
        if self.setup.span == "landmarks":
            sums = sums @ self._basis
        highest, lowest = self.peak.reshape(2, *centres.shape)
        return ClusterOutcome(
            centres=centres,
            weights=weights,
            cost=max(float(cost), 0.0),
            inertia=inertia_of(float(trace), sums, weights),
            outside=max(float(trace - inside), 0.0),
            apart=float(np.max(highest + lowest)),
        )

    # Messages of their own kind.

    @step(cumulative=True)
    def offer_mixture(self) -> ClusterMixture:
        """The running average, to every neighbour."""
        return ClusterMixture(**self.mixture_fields())

    @step
    def take_mixture(self, received: dict[int, ClusterMixture]) -> None:
        """One mix."""
        self.mix(received)

    @step(cumulative=True)
    def offer_peak(self) -> PassedCentres:
        """What is passed on, or the largest values so far."""
        return PassedCentres(value=self.peak, number=self.passes)

    @step
    def take_peaks(self, received: dict[int, PassedCentres]) -> None:
        """Keep the largest of each."""
        super().take_peaks(received)


class GroupNode(ClusterNode):
    """Sums are over whole groups of rows that stay together, which go where their mean is nearest.

    Labels are each row's own.
    """

    _weightless = no_groups("node")

    def __init__(self, site: SiteView, setup: ClusterSetup) -> None:
        super().__init__(site, setup)
        groups = site_groups(site, self.data, MOST_GROUPS)
        self.summed, self.group_of = groups.means, np.full(len(self.data.weights), NOBODYS)
        if len(groups.labels):
            self.group_of[self.data.weights > 0] = groups.labels

    def _summed_labels(self, labels: Any) -> Any:
        nearest_of, _ = nearest(self.summed.points, self.best)
        grouped, kept = self.group_of != NOBODYS, labels.copy()
        kept[grouped] = nearest_of[self.group_of[grouped]]
        return kept

    @step(cumulative=True)
    def offer_mixture(self) -> GroupMixture:
        """The running average, to every neighbour."""
        return GroupMixture(**self.mixture_fields())

    @step
    def take_mixture(self, received: dict[int, GroupMixture]) -> None:
        """One mix."""
        self.mix(received)


def n_drawn(n_clusters: int) -> int:
    """Candidates where there are no landmarks."""
    return min(DRAWN * n_clusters, MOST_CANDIDATES)


def n_scored(n_landmarks: int) -> int:
    """Candidates where landmarks serve."""
    return len(range(0, n_landmarks, _stride(n_landmarks)))


def _stride(n_landmarks: int) -> int:
    return -(-n_landmarks // MOST_CANDIDATES)


def _summed(data: WeightedPoints, centres: Doubles) -> Doubles:
    """Sums and weights of the points nearest to each centre, and the cost, as one array."""
    clusters = cluster_sums(data, centres)
    return np.concatenate([clusters.sums.ravel(), clusters.weights, [clusters.cost]])


def _point_sums(data: WeightedPoints, labels: Any, k: int) -> tuple[Doubles, float, float]:
    squared = float(data.weights @ np.einsum("ij,ij->i", data.points, data.points))
    return membership(labels, data.weights, k) @ data.points, squared, squared


def _filled(weights: Doubles) -> Any:
    return weights > EMPTY * weights.sum()


def _moved(centres: Doubles, sums: Doubles, weights: Doubles) -> Doubles:
    """The means; a centre that is nobody's nearest stays."""
    filled, moved = _filled(weights), centres.copy()
    moved[filled] = sums[filled] / weights[filled, None]
    return moved
