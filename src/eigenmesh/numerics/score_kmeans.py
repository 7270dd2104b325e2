"""k-means of points that are all in one place, by scikit-learn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans

from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.centroids import Labels, WeightedPoints, distinct, fitted, nearest

_SAME = 1e-10  # of the largest score: a difference that is rounding


class ScoreClusters(NamedTuple):
    """Centres, and how the points fall to them."""

    centres: Doubles  # (k', dim)
    labels: Labels  # (n,)
    cost: float  # Σ w ‖z − nearest centre‖²
    n_iter: int


def clearly_different(data: WeightedPoints) -> WeightedPoints:
    """The different points, where scores of equal samples differ by rounding.

    >>> clearly_different(WeightedPoints(np.array([[1.0], [1 + 1e-15]]), np.ones(2))).points
    array([[1.]])
    """
    grain = _SAME * float(np.abs(data.points).max(initial=0.0))
    if not grain:
        return distinct(data)
    return distinct(WeightedPoints(np.round(data.points / grain) * grain, data.weights))


def score_kmeans(
    data: WeightedPoints, k: int, n_init: int, max_iter: int, tol: float, seed: int
) -> ScoreClusters:
    """The best of `n_init` runs; where fewer points than k differ, each is a centre.

    >>> data = WeightedPoints(np.array([[0.0], [1.0], [9.0], [9.0]]), np.array([1.0, 3.0, 1.0, 1]))
    >>> sorted(score_kmeans(data, 2, 4, 100, 0.0, 0).centres.ravel().tolist())
    [0.75, 9.0]
    """
    different, few = distinct(data), clearly_different(data)
    if len(few.points) <= k:
        centres, n_iter = few.points, 1
    else:
        kmeans = KMeans(k, n_init=n_init, max_iter=max_iter, tol=tol, random_state=seed)
        fitted(kmeans, different.points, different.weights)
        centres, n_iter = np.asarray(kmeans.cluster_centers_, np.float64), int(kmeans.n_iter_)
    labels, distances = nearest(data.points, centres)
    return ScoreClusters(centres, labels, float(data.weights @ distances), n_iter)
