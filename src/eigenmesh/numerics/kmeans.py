"""k-means of weighted points."""

from __future__ import annotations

import threading
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from eigenmesh.numerics.arrays import (
    Doubles,
    Floats,
    blocks,
)
from eigenmesh.threads import one_openmp_thread

POINTS_A_BLOCK = 4096
_SAME_COST = 1e-4  # relative difference of costs below which solutions are taken for the same
# By which powers of ten of its distance to the nearest other centre a centre's parts begin beside
# it, drawn. By a tenth of the spread of all centres, which one far row may set, parts of the others
# began beyond all of their points.
_ASIDE = (-1.5, 0.0)
_FAR = 4  # power of squared distances: so weighed, the mean is near the farthest points
_REGROUPINGS, _SETTLING = 12, 50  # starts of k-means of clusters' parts, and steps of each
_STARTS = 8  # seedings tried at the coordinator for each that goes out to the parties

Labels = NDArray[np.int64]


class ClusterSums(NamedTuple):
    """What points add up to, cluster by cluster; sums over parties are those of all points."""

    sums: Doubles  # (k, dim), Σ w x
    weights: Doubles  # (k,), Σ w
    cost: float  # Σ w ‖x − nearest centre‖²


class WeightedPoints(NamedTuple):
    """Points and how much each counts."""

    points: Doubles  # (n, dim)
    weights: Doubles  # (n,)


def nearest(points: Floats, centres: Floats) -> tuple[Labels, Doubles]:
    """The nearest centre of every point, the first of several, and the squared distance to it.

    >>> nearest(np.array([[0.0], [5.0]]), np.array([[1.0], [5.0]]))
    (array([0, 1]), array([1., 0.]))
    """
    labels, distances = np.empty(len(points), dtype=np.int64), np.empty(len(points))
    origin, opposite, norms = _centre_terms(centres)
    for rows in blocks(len(points), POINTS_A_BLOCK):
        here = points[rows]
        labels[rows] = np.argmin((here - origin) @ opposite + norms, axis=1)
        distances[rows] = _squared_distances(here, centres, labels[rows])
    return labels, distances


def _centre_terms(centres: Floats) -> tuple[Doubles, Doubles, Doubles]:
    """‖x − c‖² − ‖x‖² is (x − o)·(−2(c − o)) + ‖c − o‖²; o, their mean, keeps digits far away."""
    origin = np.asarray(centres.mean(axis=0), dtype=np.float64)
    offsets = centres - origin
    return origin, -2.0 * offsets.T, np.einsum("ij,ij->i", offsets, offsets)


def _squared_distances(points: Floats, centres: Floats, labels: Labels) -> Doubles:
    # By differences: equal points have distance 0, not the rounding of a product.
    difference = points - centres[labels]
    return np.asarray(np.einsum("ij,ij->i", difference, difference), dtype=np.float64)


def cost_of(data: WeightedPoints, centres: Floats, labels: Labels) -> float:
    """Σ w ‖x − c‖² of the points that have a label, c being the centre of that number.

    >>> data = WeightedPoints(np.array([[0.0], [4.0]]), np.array([1.0, 2.0]))
    >>> cost_of(data, np.array([[1.0], [3.0]]), np.array([1, 1]))
    11.0
    """
    cost = 0.0
    for rows in blocks(len(labels), POINTS_A_BLOCK):
        squared = _squared_distances(data.points[rows], centres, labels[rows])
        cost += float(data.weights[rows] @ squared)
    return cost


def cluster_sums(data: WeightedPoints, centres: Floats) -> ClusterSums:
    """One Lloyd step's sums of the points with each centre.

    Centres of fewer coordinates are nearest by these, the first ones; the sums have all.

    >>> cluster_sums(WeightedPoints(np.array([[0.0], [4.0]]), np.ones(2)), np.array([[1.0]])).sums
    array([[4.]])
    """
    k, leading = centres.shape
    sums, weights, cost = np.zeros((k, data.points.shape[1])), np.zeros(k), 0.0
    origin, opposite, norms = _centre_terms(centres)
    for rows in blocks(len(data.points), POINTS_A_BLOCK):
        here, own = data.points[rows], data.weights[rows]
        leading_part = here[:, :leading]
        labels = np.argmin((leading_part - origin) @ opposite + norms, axis=1)
        members = membership(labels, own, k)
        sums += members @ here
        weights += members.sum(axis=1)
        cost += float(own @ _squared_distances(leading_part, centres, labels))
    return ClusterSums(sums, weights, cost)


def membership(labels: Labels, weights: Doubles, k: int) -> Doubles:
    """(k, n), in column i the weight of point i at the row of its cluster.

    >>> membership(np.array([1, 0]), np.array([2.0, 3.0]), 2)
    array([[0., 3.],
           [2., 0.]])
    """
    members = np.zeros((len(labels), k))
    members[np.arange(len(labels)), labels] = weights
    return members.T


def weight_of_each(labels: Labels, weights: Doubles, k: int) -> Doubles:
    """The weight of the points with each of k labels.

    >>> weight_of_each(np.array([2, 0, 2]), np.array([1.0, 5.0, 1.0]), 3)
    array([5., 0., 2.])
    """
    return np.asarray(np.bincount(labels, weights=weights, minlength=k), dtype=np.float64)


def distinct(data: WeightedPoints) -> WeightedPoints:
    """Each different point once, with the weights of its copies; points of no weight are left out.

    >>> distinct(WeightedPoints(np.array([[2.0], [2.0], [1.0]]), np.array([1.0, 2.0, 0.0])))
    WeightedPoints(points=array([[2.]]), weights=array([3.]))
    """
    positive = data.weights > 0
    points, copies = np.unique(data.points[positive], axis=0, return_inverse=True)
    weights = weight_of_each(copies.ravel(), data.weights[positive], len(points))
    return WeightedPoints(points, weights)


def weighted_kmeans(
    data: WeightedPoints, k: int, rng: np.random.Generator, n_best: int = 1
) -> Doubles:
    """The `n_best` of many k-means solutions of a small weighted set, best first, (n_best, k, dim).

    They differ as far as different ones were found: what is best for a sample may not be so for
    all. Fewer different points than k give that many centres.

    >>> points = WeightedPoints(np.array([[0.0], [1.0], [9.0]]), np.array([1.0, 3.0, 1.0]))
    >>> weighted_kmeans(points, 2, np.random.default_rng(0))[0].ravel().tolist()
    [0.75, 9.0]
    """
    few = clearly_different(data).points
    if len(few) <= k:
        return np.repeat(few[None], n_best, axis=0)
    points, weights = distinct(data)
    solutions = []
    for seed in rng.integers(2**31, size=_STARTS * n_best):
        kmeans = fitted(KMeans(k, n_init=1, random_state=int(seed)), points, weights)
        solutions.append((float(kmeans.inertia_), kmeans.cluster_centers_))
    solutions.sort(key=lambda solution: solution[0])
    best = [solutions[0]]
    for solution in solutions:
        if len(best) < n_best and solution[0] > best[-1][0] * (1 + _SAME_COST):
            best.append(solution)
    best += solutions[: n_best - len(best)]
    return np.stack([_in_order(centres) for _, centres in best])


def fitted(kmeans: KMeans, points: Floats, weights: Doubles | None = None) -> KMeans:
    """scikit-learn's k-means, added up in one order, and silent where fewer points differ.

    Who asked for the clusters says so in words of its own.

    >>> fitted(KMeans(2, n_init=1, random_state=0), np.ones((3, 1))).labels_
    array([0, 0, 0], dtype=int32)
    """
    # Points and parameters are our own: looking at them again takes a third of a small fit.
    ours = config_context(assume_finite=True, skip_parameter_validation=True)
    with _silence, one_openmp_thread(), ours:
        return kmeans.fit(points, sample_weight=weights)


class _Silence:
    """No warnings of convergence while any thread is inside.

    `catch_warnings` alone does not count threads: who leaves first gives the others theirs back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._filters: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore", ConvergenceWarning)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._filters.__exit__(*error)


_silence = _Silence()


def _in_order(centres: Doubles) -> Doubles:
    """Centres by their first coordinate, then the next: cluster numbers mean nothing else."""
    return np.asarray(centres[np.lexsort(centres.T[::-1])])


def spread_out(data: WeightedPoints, k: int, rng: np.random.Generator) -> Doubles:
    """At most k of the points, each drawn by its squared distance to those before: k-means++.

    >>> data = WeightedPoints(np.array([[1.0], [1.0], [7.0]]), np.ones(3))
    >>> sorted(spread_out(data, 5, np.random.default_rng(0)).ravel().tolist())
    [1.0, 7.0]
    """
    chances = data.weights
    centres: list[Doubles] = []
    while len(centres) < k and chances.any():
        point = draw_far(data.points, chances, 1, rng)
        costs = nearest(data.points, point)[1] * data.weights
        chances = np.minimum(chances, costs) if centres else costs
        centres.append(point)
    return np.vstack([data.points[:0], *centres])


def lloyd(data: WeightedPoints, centres: Doubles, max_iter: int) -> Doubles:
    """The centres after some of Lloyd's iterations; one that is nobody's nearest stays.

    scikit-learn's k-means takes milliseconds to begin, too much for ten thousand small parties.

    >>> data = WeightedPoints(np.array([[0.0], [1.0], [9.0]]), np.ones(3))
    >>> lloyd(data, np.array([[0.0], [1.0]]), 10).ravel().tolist()
    [0.5, 9.0]
    """
    for _ in range(max_iter):
        sums = cluster_sums(data, centres)
        nonempty = sums.weights > 0
        before, centres = centres, centres.copy()
        centres[nonempty] = sums.sums[nonempty] / sums.weights[nonempty, None]
        if np.array_equal(before, centres):
            break
    return centres


def split_centres(centres: Doubles, cost: float, n_parts: int, rng: np.random.Generator) -> Doubles:
    """One centre to either side of each in a drawn direction; of three parts itself, too.

    `cost` is the mean squared distance of points to their centres. Lloyd's iteration then turns
    the parts towards where the cluster is widest, as a power iteration would.

    >>> split_centres(np.array([[0.0], [4.0]]), 1.0, 3, np.random.default_rng(0)).shape
    (6, 1)
    """
    # Of a single centre the first term is 0: the points' own spread is in it, too.
    squares = np.square(centres - centres.mean(axis=0)).mean(axis=0) + cost / centres.shape[1]
    ways = rng.standard_normal(centres.shape) * np.sqrt(squares)
    ways /= np.linalg.norm(ways, axis=1)[:, None]
    apart = np.linalg.norm(centres[:, None] - centres, axis=2)
    np.fill_diagonal(apart, np.inf if len(centres) > 1 else np.sqrt(cost))
    step = ways * (apart.min(axis=1) * 10 ** rng.uniform(*_ASIDE, size=len(centres)))[:, None]
    middle = [centres] if n_parts == 3 else []
    return np.vstack([*middle, centres + step, centres - step])


def far_sums(data: WeightedPoints, centres: Floats, spread: float) -> tuple[Doubles, Doubles]:
    """(k, dim) and (k,): what points add up to, and weigh, that count by how far they are off.

    By the fourth power of their squared distance to the nearest centre over `spread`, so that the
    mean is near the farthest points.

    >>> data = WeightedPoints(np.array([[1.0], [-2.0], [9.0]]), np.ones(3))
    >>> sums, masses = far_sums(data, np.array([[0.0]]), 1.0)
    >>> bool(8.9 < (sums / masses).item() < 9)
    True
    """
    sums, masses = np.zeros(centres.shape), np.zeros(len(centres))
    for rows in blocks(len(data.points), POINTS_A_BLOCK):
        here = data.points[rows]
        labels, squared = nearest(here, centres)
        members = membership(labels, data.weights[rows] * (squared / spread) ** _FAR, len(centres))
        sums += members @ here
        masses += members.sum(axis=1)
    return sums, masses


def joined(clusters: WeightedPoints, spare: Doubles) -> Doubles:
    """As many centres as are `spare`: the two whose union costs least become one (Ward, 1963).

    Clusters without weight are left out; where too few are left some of `spare` are taken.

    >>> means = WeightedPoints(np.array([[0.0], [1.0], [9.0], [5.0]]), np.array([1.0, 3, 1, 0]))
    >>> joined(means, np.zeros((2, 1))).ravel().tolist()
    [0.75, 9.0]
    """
    filled = clusters.weights > 0
    means, weights = clusters.points[filled].copy(), clusters.weights[filled].copy()
    while len(means) > len(spare):
        together = weights[:, None] + weights
        apart = np.square(means[:, None] - means).sum(axis=2)
        # What a union adds to the inertia: W w / (W + w) ‖μ − ν‖².
        costs = apart * np.outer(weights, weights) / together
        np.fill_diagonal(costs, np.inf)
        first, second = np.unravel_index(int(np.argmin(costs)), costs.shape)
        both = weights[[first, second]]
        means[first] = both @ means[[first, second]] / both.sum()
        weights[first] = both.sum()
        means, weights = np.delete(means, second, axis=0), np.delete(weights, second)
    return np.vstack([means, spare[: len(spare) - len(means)]])


def other_grouping(clusters: WeightedPoints, before: Doubles, rng: np.random.Generator) -> Doubles:
    """As many centres as `before`, which group the clusters otherwise: the cheapest that is known.

    Ward's rule leads back where two moves that each cost something would pay together; k-means of
    the clusters' means makes both. Where all lead back, what Ward's rule gives.

    >>> means = WeightedPoints(np.array([[0.0], [4.0], [9.0]]), np.ones(3))
    >>> others = other_grouping(means, np.array([[2.0], [9.0]]), np.random.default_rng(0))
    >>> sorted(others.ravel().tolist())
    [0.0, 6.5]
    """
    k, ward = len(before), joined(clusters, before)
    filled = clusters.weights > 0
    cells = WeightedPoints(clusters.points[filled], clusters.weights[filled])
    if len(cells.points) <= k:
        return ward
    seeds = (spread_out(cells, k, rng) for _ in range(_REGROUPINGS))
    all_of_them = [lloyd(cells, start, _SETTLING) for start in (ward, *seeds) if len(start) == k]
    groups_before = _groups(cells, before)
    others = [centres for centres in all_of_them if _groups(cells, centres) != groups_before]
    return min(others, key=lambda centres: cluster_sums(cells, centres).cost, default=ward)


def _groups(cells: WeightedPoints, centres: Doubles) -> list[int]:
    """Of each cell, the first one with the same nearest centre."""
    labels, _ = nearest(cells.points, centres)
    return [int(np.argmax(labels == own)) for own in labels]


def draw_far(points: Doubles, chances: Doubles, count: int, rng: np.random.Generator) -> Doubles:
    """At most `count` of the points, without replacement, in proportion to `chances`.

    >>> draw_far(np.array([[1.0], [2.0]]), np.array([0.0, 0.5]), 2, np.random.default_rng(0))
    array([[2.]])
    """
    possible = int(np.count_nonzero(chances))
    if not min(count, possible):
        return points[:0]
    rows = rng.choice(len(points), min(count, possible), replace=False, p=chances / chances.sum())
    return np.asarray(points[np.sort(rows)])


def shares(masses: Doubles, count: int) -> list[int]:
    """`count` divided in proportion to the masses, largest remainders first.

    >>> shares(np.array([1.0, 0.0, 3.0]), 10)
    [3, 0, 7]
    """
    total = float(masses.sum())
    if not total > 0:
        return [0] * len(masses)
    exact = masses * (count / total)
    counts = np.floor(exact).astype(int)
    # Stable: of equal remainders the first takes it, on every machine.
    by_remainder = np.argsort(counts - exact, kind="stable")
    counts[by_remainder[: max(0, count - int(counts.sum()))]] += 1
    return [int(share) for share in counts]


_STARTING_POINTS = 2000
SAME = 1e-10  # of the largest score: a difference that is rounding


class ScoreClusters(NamedTuple):
    """Centres, and how the points fall to them."""

    centres: Doubles  # (k', dim)
    labels: Labels  # (n,)
    cost: float  # Σ w ‖z − nearest centre‖²
    n_iter: int


def clearly_different(data: WeightedPoints) -> WeightedPoints:
    """The different points, where scores of equal samples differ by rounding: the first of each.

    >>> clearly_different(WeightedPoints(np.array([[1.0], [1 + 1e-15]]), np.ones(2))).points
    array([[1.]])
    """
    grain = SAME * float(np.abs(data.points).max(initial=0.0))
    if not grain:
        return distinct(data)
    points, weights = data.points[data.weights > 0], data.weights[data.weights > 0]
    rounded = np.round(points / grain)
    _, first, copies = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    return WeightedPoints(points[first], weight_of_each(copies.ravel(), weights, len(first)))


def different_parts(parts: WeightedPoints, k: int) -> Doubles:
    """The parts' means that have weight and clearly differ; more than k are joined by Ward's rule.

    >>> parts = WeightedPoints(np.array([[0.0], [1.0], [9.0], [5.0]]), np.array([1.0, 3, 1, 0]))
    >>> different_parts(parts, 2).ravel().tolist(), different_parts(parts, 5).ravel().tolist()
    ([0.75, 9.0], [0.0, 1.0, 9.0])
    """
    different = clearly_different(parts)
    if len(different.points) <= k:
        return different.points
    return joined(different, np.zeros((k, different.points.shape[1])))


def _some(data: WeightedPoints, rng: np.random.Generator) -> WeightedPoints:
    """Points to find starts for all from."""
    if len(data.points) <= _STARTING_POINTS:
        return data
    rows = np.sort(rng.choice(len(data.points), _STARTING_POINTS, replace=False))
    return WeightedPoints(data.points[rows], data.weights[rows])


def score_kmeans(
    data: WeightedPoints, k: int, n_init: int, max_iter: int, tol: float, seed: int
) -> ScoreClusters:
    """The best of `n_init` runs, each from the best of several starts on some of the points.

    Where fewer points than k differ, each is a centre.

    >>> data = WeightedPoints(np.array([[0.0], [1.0], [9.0], [9.0]]), np.array([1.0, 3.0, 1.0, 1]))
    >>> sorted(score_kmeans(data, 2, 4, 100, 0.0, 0).centres.ravel().tolist())
    [0.75, 9.0]
    """
    different, few = distinct(data), clearly_different(data)
    if len(few.points) <= k:
        centres, n_iter = few.points, 1
    else:
        rng = np.random.default_rng(seed)
        starts = weighted_kmeans(_some(different, rng), k, rng, n_init)
        runs = [
            fitted(KMeans(k, init=start, n_init=1, max_iter=max_iter, tol=tol), *different)
            for start in starts
        ]
        best = min(runs, key=lambda run: float(run.inertia_))
        centres, n_iter = np.asarray(best.cluster_centers_, np.float64), int(best.n_iter_)
    labels, distances = nearest(data.points, centres)
    return ScoreClusters(centres, labels, float(data.weights @ distances), n_iter)
