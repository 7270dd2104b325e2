"""Means of clusters of rows whose owner keeps them: as landmarks, found as fast as can be.

What leaves an owner is a cut of one tree (`centroids`), so that many fits tell no more than one.
Here nothing leaves, and two steps of Lloyd's on some of the rows find better means sooner. Wide
rows are compared in the few directions in which some of them spread most. Still no mean is of fewer
than `least` rows, since models are given away: a cluster that is smaller goes to its neighbours,
and a large one is halved in its place.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from eigenmesh.numerics.arrays import Floats, Rows, as_rows, dense, is_sparse, raw_rows
from eigenmesh.numerics.draws import Indices, draw_distinct
from eigenmesh.numerics.embeddings import count_sketch

_ROWS_EACH = 20  # a centroid: twice as many gain a little, half as many lose much
_FEWEST_ROWS = 2048  # in all
_FEWEST_EACH = 10  # of which clusters can be found
_LLOYD_STEPS = 2
_DIRECTIONS = 32  # in which wide rows are compared
_SPREAD_ROWS = 512  # that show these
_WIDE = 2 * _DIRECTIONS


def has_clusters(n_rows: int, count: int) -> bool:
    """Whether there are rows enough for so many clusters."""
    return n_rows >= _FEWEST_EACH * count


def own_centroids(A: Rows, count: int, least: int, rng: np.random.Generator) -> Floats:
    """At most `count` means of clusters, each of at least `least` rows, (count, d).

    >>> rows = np.repeat([[0.0], [9.0]], 20, axis=0)
    >>> own_centroids(rows, 2, 5, np.random.default_rng(0)).ravel().tolist()
    [0.0, 9.0]
    """
    A = raw_rows(A)
    n = int(A.shape[0])
    some = np.sort(rng.choice(n, min(n, max(_ROWS_EACH * count, _FEWEST_ROWS)), replace=False))
    rows = as_rows(A[some] if len(some) < n else A)
    points = _points(rows, rng)
    labels = _lloyd(points, count, rng)
    labels = _none_small(points, labels, least)
    labels = _halved(points, labels, count, least)
    means = _means(rows, labels)
    return np.asarray(means[np.lexsort(means.T[::-1])])


def _points(rows: Rows, rng: np.random.Generator) -> Floats:
    """What clusters are found by: the rows about their mean, or a few directions of wide ones."""
    d = int(rows.shape[1])
    if is_sparse(rows):
        sketch = count_sketch(d, min(d, _WIDE), rng).astype(rows.dtype)
        return np.asarray(dense(rows @ sketch))
    mean = rows.mean(axis=0)
    if d <= _WIDE:
        return np.asarray(rows - mean)
    offsets = rows[:: -(-len(rows) // _SPREAD_ROWS)] - mean
    # A randomised range finder with one power step: near the first principal directions.
    images = offsets @ rng.standard_normal((d, _DIRECTIONS)).astype(rows.dtype)
    basis = np.linalg.qr(offsets.T @ (offsets @ (offsets.T @ images)))[0]
    return np.asarray(rows @ basis - mean @ basis)


def _lloyd(points: Floats, count: int, rng: np.random.Generator) -> Indices:
    """The cluster of every point, after two steps from seeds of which half are drawn far away."""
    first = rng.permutation(len(points))[: -(-count // 2)]
    seeds = points[first]
    labels = _nearest(points, seeds)
    if count > len(first):
        offsets = points - seeds[labels]
        # By distance and not by its square: single rows far away have no cluster to be a mean of.
        far = np.sqrt(np.einsum("ij,ij->i", offsets, offsets, dtype=np.float64))
        far = draw_distinct(far, count - len(first), rng)
        labels = _nearest(points, np.vstack([seeds, points[far]]))
    for _ in range(_LLOYD_STEPS):
        labels = _nearest(points, _means(points, labels))
    return labels


def _nearest(points: Floats, centres: Floats) -> Indices:
    # ‖x‖² is the same for every centre: x·c − ‖c‖²/2 decides.
    norms = np.einsum("ij,ij->i", centres, centres) / 2
    return np.asarray(np.argmax(points @ centres.T - norms, axis=1))


def _means(rows: Rows, labels: Indices) -> Floats:
    """Of every cluster that has rows, (clusters, d)."""
    _, labels = np.unique(labels, return_inverse=True)
    sizes = np.bincount(labels)
    ones = np.ones(len(labels), rows.dtype)
    places = np.arange(len(labels) + 1)
    members = sp.csr_array((ones, labels, places), shape=(len(labels), len(sizes)))
    return np.asarray(dense(members.T @ rows) / sizes.astype(rows.dtype)[:, None])


def _none_small(points: Floats, labels: Indices, least: int) -> Indices:
    """The same, with the points of clusters that are too small among the others."""
    while True:
        _, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        is_large = sizes >= least
        if is_large.all() or not is_large.any():
            return np.asarray(labels) if is_large.any() else np.zeros(len(points), dtype=np.intp)
        centres = _means(points, labels)[is_large]
        homeless = ~is_large[labels]
        labels = np.cumsum(is_large)[labels] - 1
        labels[homeless] = _nearest(points[homeless], centres)


def _halved(points: Floats, labels: Indices, count: int, least: int) -> Indices:
    """As many clusters as asked for, by halves of the largest, if these can be halved."""
    order = np.argsort(labels, kind="stable")
    clusters = np.split(order, np.cumsum(np.bincount(labels))[:-1])
    while len(clusters) < count:
        largest = max(range(len(clusters)), key=lambda c: len(clusters[c]))
        cluster = clusters.pop(largest)
        if len(cluster) < 2 * least:
            clusters.append(cluster)
            break
        inside = points[cluster]
        along = inside[:, np.argmax(inside.var(axis=0))]
        # At the middle row, not at the middle place: so either half has rows enough.
        turned = cluster[np.argpartition(along, len(cluster) // 2)]
        clusters += [turned[: len(cluster) // 2], turned[len(cluster) // 2 :]]
    for number, cluster in enumerate(clusters):
        labels[cluster] = number
    return labels
