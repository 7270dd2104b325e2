"""Means of clusters of rows whose owner keeps them: as landmarks, found as fast as can be.

What leaves an owner is a cut of one tree (`centroids`), so that many fits tell no more than one.
Here nothing leaves, and two steps of Lloyd's on some of the rows find better means sooner. Wide
rows are compared in the few directions in which some of them spread most. Still no mean is of fewer
than `least` rows, since models are given away: a cluster that is smaller goes to its neighbours,
and a large one is halved in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

import numpy as np
import scipy.sparse as sp

from eigenmesh.numerics.arrays import Floats, Rows, as_rows, blocks, dense, is_sparse, raw_rows
from eigenmesh.numerics.draws import Indices, draw_distinct
from eigenmesh.numerics.embeddings import count_sketch
from eigenmesh.threads import spread

_ROWS_EACH = 20  # a centroid: twice as many gain a little, half as many lose much
_FEWEST_ROWS = 2048  # in all
_FEWEST_EACH = 10  # of which clusters can be found
_LLOYD_STEPS = 2
_DIRECTIONS = 32  # in which wide rows are compared
_SPREAD_ROWS = 512  # that show these: of half as many some draws were 5 % worse
_WIDE = 2 * _DIRECTIONS
_BLOCK = 1 << 18  # numbers copied or compared at a time, which stay in cache
_LEAST_ROWS = 256


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
    points = _points(A, some, rng)
    labels = _lloyd(points, count, rng)
    labels = _none_small(points, labels, least)
    labels = _halved(points, labels, count, least)
    means = _means(as_rows(A[some]), labels) if is_sparse(A) else _means_of_rows(A, some, labels)
    # In an order that tells no more than they do.
    return np.asarray(means[np.argsort(means.sum(axis=1), kind="stable")])


def _points(A: Rows, some: Indices, rng: np.random.Generator) -> Floats:
    """What clusters of some rows are found by: these about their mean, or a few directions of wide
    ones.
    """
    d = int(A.shape[1])
    if is_sparse(A):
        rows = as_rows(A[some])
        sketch = count_sketch(d, min(d, _WIDE), rng).astype(rows.dtype)
        return np.asarray(dense(rows @ sketch))
    if d <= _WIDE:
        rows = as_rows(A[some])
        return np.asarray(rows - rows.mean(axis=0))
    spread_rows = as_rows(A[some[:: -(-len(some) // _SPREAD_ROWS)]])
    middle = spread_rows.mean(axis=0)
    basis = _directions(spread_rows - middle, rng)
    points, middle = np.empty((len(some), _DIRECTIONS), basis.dtype), middle @ basis

    def project(rows: slice) -> None:
        np.subtract(as_rows(A[some[rows]]) @ basis, middle, out=points[rows])

    _block_by_block(project, len(some), d)
    return points


def _directions(offsets: Floats, rng: np.random.Generator) -> Floats:
    """(d, 32), orthonormal, near the first principal ones: a range finder with a power step."""
    images = offsets.T @ rng.standard_normal((len(offsets), _DIRECTIONS)).astype(offsets.dtype)
    return np.asarray(np.linalg.qr(offsets.T @ (offsets @ images))[0])


def _block_by_block(work: Callable[[slice], None], n: int, width: int) -> None:
    """Blocks of so wide rows, on all idle cores: each writes where no other does."""
    cuts = list(blocks(n, max(_BLOCK // width, _LEAST_ROWS)))
    if len(cuts) == 1:
        work(cuts[0])
        return

    def worker(tasks: Iterator[int]) -> None:
        for i in tasks:
            work(cuts[i])

    spread(worker, len(cuts))


def _lloyd(points: Floats, count: int, rng: np.random.Generator) -> Indices:
    """The cluster of every point, after two steps from seeds of which half are drawn far away."""
    first = rng.permutation(len(points))[: -(-count // 2)]
    labels, near = _nearest(points, points[first])
    # By distance and not by its square: single rows far away have no cluster to be a mean of.
    norms = np.einsum("ij,ij->i", points, points)
    far = np.sqrt(np.maximum(norms - 2 * near, 0), dtype=np.float64)
    others = draw_distinct(far, count - len(first), rng)
    if len(others):
        numbers, nearer = _nearest(points, points[others])
        labels = np.where(nearer > near, numbers + len(first), labels)
    for _ in range(_LLOYD_STEPS):
        labels, _ = _nearest(points, _means(points, labels))
    return labels


def _nearest(points: Floats, centres: Floats) -> tuple[Indices, Floats]:
    """The centre c of every point x, and x·c − ‖c‖²/2, which is largest there."""
    # ‖x‖² is the same for every centre.
    weights, norms = centres.T.copy(), np.einsum("ij,ij->i", centres, centres) / 2
    labels = np.empty(len(points), dtype=np.intp)
    largest = np.empty(len(points), dtype=points.dtype)

    def compare(rows: slice) -> None:
        scores = points[rows] @ weights
        scores -= norms
        labels[rows] = np.argmax(scores, axis=1)
        largest[rows] = scores[np.arange(len(scores)), labels[rows]]

    _block_by_block(compare, len(points), len(centres))
    return labels, largest


def _means(rows: Rows, labels: Indices) -> Floats:
    """Of every cluster that has rows, (clusters, d)."""
    _, labels = np.unique(labels, return_inverse=True)
    sizes = np.bincount(labels)
    ones = np.ones(len(labels), rows.dtype)
    places = np.arange(len(labels) + 1)
    members = sp.csr_array((ones, labels, places), shape=(len(labels), len(sizes)))
    return np.asarray(dense(members.T @ rows) / sizes.astype(rows.dtype)[:, None])


def _means_of_rows(A: Rows, some: Indices, labels: Indices) -> Floats:
    """The same of some of the rows, where labels are 0, 1, …, each of at least one row."""
    order, sizes = some[np.argsort(labels, kind="stable")], np.bincount(labels)
    ends = np.cumsum(sizes)
    means = np.empty((len(sizes), A.shape[1]), as_rows(A[:0]).dtype)

    def add_up(rows: slice) -> None:
        """Of clusters that end among these."""
        own = range(*np.searchsorted(ends, [rows.start + 1, rows.stop + 1]).tolist())
        first = ends[own[0]] - sizes[own[0]] if own else rows.stop
        members = as_rows(A[order[first : rows.stop]])
        for i in own:
            last = ends[i] - first
            np.add.reduce(members[last - sizes[i] : last], axis=0, out=means[i])

    _block_by_block(add_up, len(order), int(A.shape[1]))
    means /= sizes[:, None].astype(means.dtype)
    return means


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
        labels[homeless] = _nearest(points[homeless], centres)[0]


def _halved(points: Floats, labels: Indices, count: int, least: int) -> Indices:
    """As many clusters as asked for, by halves of the largest, if these can be halved."""
    order, ends = np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels)).tolist()
    clusters = [order[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    by_size = [(-len(cluster), number) for number, cluster in enumerate(clusters)]
    heapify(by_size)
    while len(clusters) < count:
        size, largest = heappop(by_size)
        if -size < 2 * least:
            break
        cluster = clusters[largest]
        inside = points[cluster]
        along = inside[:, np.argmax(inside.var(axis=0))]
        # At the middle row, not at the middle place: so either half has rows enough.
        turned = cluster[np.argpartition(along, len(cluster) // 2)]
        clusters[largest], half = turned[: len(cluster) // 2], turned[len(cluster) // 2 :]
        clusters.append(half)
        heappush(by_size, (-len(clusters[largest]), largest))
        heappush(by_size, (-len(half), len(clusters) - 1))
    for number, cluster in enumerate(clusters):
        labels[cluster] = number
    return labels
