"""Means of clusters of rows, as landmarks that are nobody's row."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from eigenmesh.numerics.arrays import (
    Floats,
    Rows,
    as_rows,
    dense,
    is_sparse,
    raw_rows,
    squared_norms,
    working_dtype,
)
from eigenmesh.numerics.embeddings import count_sketch
from eigenmesh.numerics.kmeans import fitted

_SAMPLE = 20  # rows a cluster; more change little
_SKETCH = 64  # columns that keep distances well enough to begin with
_WIDE = 2 * _SKETCH  # columns from which a sketch pays

Labels = NDArray[np.intp]

MIN_CLUSTER = 5  # a mean of fewer rows says too much of each


def centroids(A: Rows, count: int, least: int, seed: int) -> Floats:
    """Means of `count` disjoint clusters of rows, of at least `least` rows each.

    Fewer where there are not `least` rows for each; none where there are fewer than `least` in all.
    A few Lloyd steps on a uniform sample are enough, and the means are the sample's, so the cost
    does not grow with the rows. Clusters that are too small take the nearest rows that others can
    spare.

    >>> centroids(np.array([[0.0], [0.2], [9.0], [9.2]]), 2, 2, seed=0).ravel().round(1).tolist()
    [0.1, 9.1]
    """
    A = raw_rows(A)
    n, d = A.shape
    clusters = min(count, n // least)
    if clusters < 1:
        return np.zeros((0, d), working_dtype(A))
    rng = np.random.default_rng(seed)
    size = min(n, count * max(_SAMPLE, 2 * least))
    sample = as_rows(A[np.sort(rng.choice(n, size, replace=False))])
    # Products of rows far from the origin would lose the digits in which the rows differ.
    rows = sample if is_sparse(sample) else sample - sample.mean(axis=0)
    labels = _cluster_labels(rows, clusters, rng)
    _fill_up(rows, labels, clusters, least)
    means = _means(sample, labels, clusters)
    return means[np.lexsort(means.T[::-1])]


def _cluster_labels(sample: Rows, clusters: int, rng: np.random.Generator) -> Labels:
    """Wide rows move between clusters of their sketches, which costs little, then once in full."""
    d = sample.shape[1]
    if d <= _WIDE:
        return _lloyd(dense(sample), clusters, rng)
    sketch = count_sketch(d, _SKETCH, rng).astype(sample.dtype)
    sketches = sample @ (sketch if is_sparse(sample) else dense(sketch))
    labels = _lloyd(dense(sketches), clusters, rng)
    return _nearest(sample, _means(sample, labels, clusters))


def _lloyd(points: Floats, clusters: int, rng: np.random.Generator) -> Labels:
    # Random rows cost a tenth of k-means++ to start from, and the landmarks are as good; more steps
    # make them no better.
    seed = int(rng.integers(2**31))
    kmeans = KMeans(clusters, init="random", n_init=1, max_iter=4, tol=0, random_state=seed)
    return np.asarray(fitted(kmeans, points).labels_, dtype=np.intp)


def _nearest(sample: Rows, centres: Floats) -> Labels:
    """Of rows dense or sparse, in their own precision: ties and last digits do not matter here."""
    return np.asarray(np.argmin(squared_norms(centres) - 2 * (sample @ centres.T), axis=1))


def _fill_up(sample: Rows, labels: Labels, clusters: int, least: int) -> None:
    """Move the nearest rows to clusters that are too small, from where more than `least` are."""
    sizes = np.bincount(labels, minlength=clusters)
    too_small = np.flatnonzero(sizes < least)
    if not len(too_small):
        return
    products = sample @ _means(sample, labels, clusters)[too_small].T
    distances = squared_norms(sample)[:, None] - 2 * products  # but for the centres' own norms
    for small, away in zip(too_small, distances.T, strict=True):
        for row in np.argsort(away, kind="stable"):
            if sizes[small] == least:
                break
            if sizes[labels[row]] > least:
                sizes[labels[row]] -= 1
                sizes[small] += 1
                labels[row] = small


def _means(sample: Rows, labels: Labels, clusters: int) -> Floats:
    """Of every cluster (clusters, d), in the precision of the rows; that of none is 0."""
    m = len(labels)
    ones = np.ones(m, sample.dtype)
    sums = dense(sp.csr_array((ones, (labels, np.arange(m))), shape=(clusters, m)) @ sample)
    sizes = np.bincount(labels, minlength=clusters).astype(sample.dtype)
    return np.asarray(sums / np.maximum(sizes, 1)[:, None])
