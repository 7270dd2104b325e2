"""Coresets: a few weighted points whose k-means cost is near that of many, for any centres.

Balcan, Ehrlich and Liang, "Distributed k-means and k-median clustering on general topologies",
NeurIPS 2013, Algorithm 1.
"""

from __future__ import annotations

import numpy as np

from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.kmeans import (
    WeightedPoints,
    distinct,
    lloyd,
    nearest,
    spread_out,
    weight_of_each,
)

_SAMPLE = 20_000  # points on which a local solution is found
_ITERATIONS = 10


def local_solution(data: WeightedPoints, k: int, rng: np.random.Generator) -> Doubles:
    """At most k centres of approximately least cost for these points.

    >>> few = WeightedPoints(np.array([[3.0], [3.0], [1.0]]), np.ones(3))
    >>> local_solution(few, 5, np.random.default_rng(0)).ravel().tolist()
    [1.0, 3.0]
    """
    n = len(data.points)
    chosen = np.sort(rng.permutation(n)[:_SAMPLE]) if n > _SAMPLE else slice(None)
    sample = WeightedPoints(data.points[chosen], data.weights[chosen])
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
    labels, squared = nearest(data.points, centres)
    costs = data.weights * squared
    drawn = rng.choice(len(costs), n_draws, p=costs / costs.sum()) if n_draws else np.zeros(0, int)
    weights = cost_of_a_draw / squared[drawn]
    # Draws may come to weigh more than their cluster, and its centre would weigh less than
    # nothing: no k-means takes that. They then share the weight that there is.
    there = weight_of_each(labels, data.weights, len(centres))
    claimed = weight_of_each(labels[drawn], weights, len(centres))
    scale = np.minimum(1.0, there / np.where(claimed > 0, claimed, 1.0))
    weights *= scale[labels[drawn]]
    left = np.maximum(there - scale * claimed, 0.0)
    points = np.vstack([data.points[drawn], centres])
    return WeightedPoints(points, np.concatenate([weights, left]))
