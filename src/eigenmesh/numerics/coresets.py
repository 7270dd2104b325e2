"""Coresets: a few weighted points whose k-means cost is near that of many, for any centres.

Balcan, Ehrlich and Liang, "Distributed k-means and k-median clustering on general topologies",
NeurIPS 2013, Algorithm 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.kmeans import (
    Labels,
    WeightedPoints,
    cluster_sums,
    distinct,
    lloyd,
    membership,
    nearest,
    spread_out,
    weight_of_each,
)

_SAMPLE = 20_000  # points on which a local solution is found
_ITERATIONS = 10
_SETTLING = 100
_ROWS_EACH = 20  # points a mean, on which clusters are found


def local_solution(data: WeightedPoints, k: int, rng: np.random.Generator) -> Doubles:
    """At most k centres of approximately least cost for these points.

    >>> few = WeightedPoints(np.array([[3.0], [3.0], [1.0]]), np.ones(3))
    >>> local_solution(few, 5, np.random.default_rng(0)).ravel().tolist()
    [1.0, 3.0]
    """
    n = len(data.points)
    rows = np.sort(rng.permutation(n)[:_SAMPLE]) if n > _SAMPLE else slice(None)
    sample = WeightedPoints(data.points[rows], data.weights[rows])
    different = distinct(sample) if n <= _SAMPLE else sample
    if len(different.points) <= k:
        return different.points
    return lloyd(different, spread_out(different, k, rng), _ITERATIONS)


def coreset(
    data: WeightedPoints,
    centres: Doubles,
    n_draws: int,
    cost_of_a_draw: float,
    rng: np.random.Generator,
) -> WeightedPoints:
    """Draws in proportion to the points' costs, and the centres with what weight is left.

    `cost_of_a_draw` is the cost of all parties / the draws of all. A party whose points are no
    more than its draws and centres gives them all, as they are.

    >>> data = WeightedPoints(np.array([[0.0], [2.0], [9.0]]), np.ones(3))
    >>> float(coreset(data, np.array([[1.0]]), 5, 1.0, np.random.default_rng(0)).weights.sum())
    3.0
    """
    if len(data.points) <= n_draws + len(centres) or not len(centres):
        return data
    labels, distances = nearest(data.points, centres)
    costs = data.weights * distances
    draws = rng.choice(len(costs), n_draws, p=costs / costs.sum()) if n_draws else np.zeros(0, int)
    # Drawn with chance w d / Σ w d, a point stands for Σ w d / (draws · d): its own weight cancels.
    weights = cost_of_a_draw / distances[draws]
    # Draws may come to weigh more than their cluster, and its centre would weigh less than
    # nothing: no k-means takes that. They then share the weight that there is.
    masses = weight_of_each(labels, data.weights, len(centres))
    claims = weight_of_each(labels[draws], weights, len(centres))
    scale = np.minimum(1.0, masses / np.where(claims > 0, claims, 1.0))
    weights *= scale[labels[draws]]
    remainder = np.maximum(masses - scale * claims, 0.0)
    points = np.vstack([data.points[draws], centres])
    return WeightedPoints(points, np.concatenate([weights, remainder]))


class Groups(NamedTuple):
    """Points in groups: their means with what each stands for, and the group of each point."""

    means: WeightedPoints
    labels: Labels

    @property
    def sizes(self) -> Labels:
        """How many points each has."""
        return np.bincount(self.labels, minlength=len(self.means.weights))


def point_groups(data: WeightedPoints, most: int, least: int, rng: np.random.Generator) -> Groups:
    """`most` clusters that hold all points, each at least `least` of them.

    Fewer where there are not `least` points for each; none where there are fewer in all.

    >>> data = WeightedPoints(np.array([[0.0], [2.0], [9.0], [9.5]]), np.ones(4))
    >>> sorted(point_groups(data, 9, 2, np.random.default_rng(0)).means.points.ravel().tolist())
    [1.0, 9.25]
    """
    n, dim = data.points.shape
    count = min(most, n // least)
    if not count:
        none = WeightedPoints(np.zeros((0, dim)), np.zeros(0))
        return Groups(none, np.zeros(0, dtype=int))
    rows = np.sort(rng.choice(n, min(n, _ROWS_EACH * count), replace=False))
    sample = WeightedPoints(data.points[rows], data.weights[rows])
    centres = lloyd(sample, sample.points[rng.choice(len(rows), count, replace=False)], 4)
    labels, _ = nearest(data.points, centres)
    _fill_up(data.points, centres, labels, least)
    return groups_by_label(data, labels)


def groups_by_label(data: WeightedPoints, labels: Labels) -> Groups:
    """The groups of points that have one label; each label from 0 has some."""
    count = int(labels.max()) + 1
    sums = membership(labels, data.weights, count) @ data.points
    weights = weight_of_each(labels, data.weights, count)
    return Groups(WeightedPoints(np.asarray(sums) / weights[:, None], weights), labels)


def _fill_up(points: Doubles, centres: Doubles, labels: Labels, least: int) -> None:
    """Move the nearest points to clusters that are too small, from where more than `least` are."""
    sizes = np.bincount(labels, minlength=len(centres))
    for small in np.flatnonzero(sizes < least):
        away = np.square(points - centres[small]).sum(axis=1)
        for row in np.argsort(away, kind="stable"):
            if sizes[small] == least:
                break
            if sizes[labels[row]] > least:
                sizes[labels[row]] -= 1
                sizes[small] += 1
                labels[row] = small


def settle(part: WeightedPoints, centres: Doubles, means: Doubles) -> Doubles:
    """Where Lloyd's iteration would lead from here, as far as a coreset can tell.

    `means` are those of all points nearest to each of the centres. A coreset's own differ from
    them; it is iterated with each of its means moved by that difference.

    >>> part = WeightedPoints(np.array([[0.0], [1.0], [4.0], [9.0]]), np.ones(4))
    >>> settle(part, np.array([[0.0], [4.0]]), np.array([[0.6], [6.5]])).ravel().round(3).tolist()
    [0.6, 6.5]
    """
    sums = cluster_sums(part, centres)
    nonempty = sums.weights > 0
    off = np.zeros_like(centres)
    off[nonempty] = means[nonempty] - sums.sums[nonempty] / sums.weights[nonempty, None]
    places = means
    for _ in range(_SETTLING):
        sums = cluster_sums(part, places)
        nonempty = sums.weights > 0
        before, places = places, places.copy()
        places[nonempty] = sums.sums[nonempty] / sums.weights[nonempty, None] + off[nonempty]
        if np.allclose(before, places, rtol=0, atol=1e-9 * np.abs(places).max()):
            break
    return places
