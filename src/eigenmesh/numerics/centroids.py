"""Means of clusters of rows, as landmarks that are nobody's row."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances

from eigenmesh.numerics.arrays import Floats, Rows, as_rows, is_sparse, raw_rows, working_dtype
from eigenmesh.threads import one_openmp_thread

_SAMPLE = 20  # rows a cluster; more change little


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
    size = min(n, count * max(_SAMPLE, 2 * least))
    chosen = np.random.default_rng(seed).choice(n, size, replace=False)
    sample = _with_short_indices(as_rows(A[np.sort(chosen)]))
    labels = _clustered(sample, clusters, least, seed)
    means = _means(sample, labels, clusters)
    return means[np.lexsort(means.T[::-1])].astype(sample.dtype, copy=False)


def _clustered(sample: Rows, clusters: int, least: int, seed: int) -> NDArray[np.intp]:
    # Random rows cost a tenth of k-means++ to start from, and the landmarks are as good; more steps
    # make them no better.
    kmeans = KMeans(clusters, init="random", n_init=1, max_iter=4, tol=0, random_state=seed)
    with warnings.catch_warnings(), one_openmp_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = np.asarray(kmeans.fit_predict(sample), dtype=np.intp)
    sizes = np.bincount(labels, minlength=clusters)
    small = np.flatnonzero(sizes < least)
    if len(small):
        distances = euclidean_distances(sample, kmeans.cluster_centers_[small])
        _fill_up(labels, sizes, small, distances, least)
    return labels


def _fill_up(
    labels: NDArray[np.intp],
    sizes: NDArray[np.intp],
    too_small: NDArray[np.intp],
    distances: Floats,
    least: int,
) -> None:
    """Move the nearest rows to clusters that are too small, from where more than `least` are."""
    for small, away in zip(too_small, distances.T, strict=True):
        for row in np.argsort(away, kind="stable"):
            if sizes[small] == least:
                break
            if sizes[labels[row]] > least:
                sizes[labels[row]] -= 1
                sizes[small] += 1
                labels[row] = small


def _means(sample: Rows, labels: NDArray[np.intp], clusters: int) -> Floats:
    m = sample.shape[0]
    members = sp.csr_array((np.ones(m), (labels, np.arange(m))), shape=(clusters, m))
    sums = members @ as_rows(sample, np.float64)
    total = sums.toarray() if is_sparse(sums) else sums
    return np.asarray(total / np.bincount(labels, minlength=clusters)[:, None])


def _with_short_indices(A: Rows) -> Rows:
    """scikit-learn's k-means takes sparse rows with 32-bit indices only."""
    if is_sparse(A) and A.indices.dtype != np.int32 and A.nnz < 2**31:
        parts = (A.data, A.indices.astype(np.int32), A.indptr.astype(np.int32))
        return sp.csr_array(parts, shape=A.shape)
    return A
