"""Clusters of drawn data over small parties cost no more than those of pooled rows, or it is said.

Parties of 5 to 30 rows have few means of five to begin with, and k eigenvectors are too few where
there are more clusters than were asked for: both left 3 to 17 % more inertia without a word. So did
k eigenvectors on a graph, and rings of rows, on which Lloyd is slow and has many optima. Rows with
heavy tails have clusters of one or two rows, beside which no part of a cluster begins.
"""

import warnings

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em

KERNELS = {
    "rbf": {"gamma": 0.2},
    "poly": {"gamma": 0.5, "degree": 2, "coef0": 1.0},
    "cosine": {},
    "laplacian": {"gamma": 0.1},
    "linear": {},
}
TOLERANCE = 1.02


def drawn(seed):
    """Rows, the parties' sizes, a kernel and a number of clusters."""
    rng = np.random.default_rng([seed, 13])
    n = int(rng.integers(80, 200))
    d = int(rng.integers(2, 8))
    if seed % 3 == 0:
        X = make_moons(n, noise=0.1, random_state=seed)[0]
    elif seed % 3 == 1:
        X = make_blobs(n, d, centers=int(rng.integers(4, 9)), random_state=seed)[0] / 4
    else:
        X = rng.normal(size=(n, d)) * 2.0 ** -np.arange(d)
    sizes = []
    while n - sum(sizes) >= 10:
        sizes.append(int(rng.integers(5, min(30, n - sum(sizes) - 5) + 1)))
    sizes[-1] += n - sum(sizes)
    kernel = list(KERNELS)[int(rng.integers(4))]
    return X, np.cumsum(sizes)[:-1], kernel, int(rng.integers(2, 8))


def least_and_own(X, kernel, k, labels):
    """The best inertia of ten runs in the whole feature space, and that of labels."""
    values, vectors = np.linalg.eigh(pairwise_kernels(X, metric=kernel, **KERNELS[kernel]))
    kept = values > 1e-12 * values[-1]  # the others are rounding, and cost k-means time
    points = vectors[:, kept] * np.sqrt(values[kept])
    own = sum(
        np.square(points[labels == c] - points[labels == c].mean(axis=0)).sum()
        for c in np.unique(labels)
    )
    return KMeans(k, n_init=10, random_state=0).fit(points).inertia_, own


@pytest.mark.parametrize("seed", range(12))
def test_clusters_over_small_parties_cost_what_pooled_ones_do(seed):
    X, cuts, kernel, k = drawn(seed)
    require_pooled_or_said(np.split(X, cuts), kernel, k, random_state=seed)


def require_pooled_or_said(parts, kernel, k, **options):
    """The clusters cost what pooled ones do, or a warning says so."""
    model = em.KernelKMeans(k, kernel=kernel, **KERNELS[kernel], **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        labels = np.concatenate(model.fit(em.Partitioned(rows=parts)).labels_)
    least, own = least_and_own(np.vstack(parts), kernel, k, labels)
    said = any(issubclass(one.category, em.EigenmeshWarning) for one in caught)
    assert own <= TOLERANCE * least or said


# In k eigenvectors, without splitting, the clusters of all but 20 cost 2.0 to 3.4 % more.
@pytest.mark.parametrize("seed", [1, 13, 15, 20])
def test_clusters_on_a_graph_cost_what_pooled_ones_do(seed):
    rng = np.random.default_rng([seed, 17])
    n, k = int(rng.integers(80, 160)), int(rng.integers(3, 8))
    if seed % 2:
        X = make_moons(n, noise=0.1, random_state=seed)[0]
    else:
        dim, centres = int(rng.integers(6, 15)), int(rng.integers(5, 9))
        X = make_blobs(n, dim, centers=centres, random_state=seed)[0] / 4
    kernel = ["linear", "rbf", "cosine"][seed % 3]
    parts = em.split(X, int(rng.integers(3, 6)), random_state=seed).parts
    require_pooled_or_said(parts, kernel, k, topology="star", random_state=seed)


@pytest.mark.parametrize("seed", [2, 10, 21, 22])
def test_clusters_of_rings_cost_what_pooled_ones_do(seed):
    rng = np.random.default_rng([seed, 19])
    n, k = int(rng.integers(100, 160)), int(rng.integers(4, 9))
    X = make_circles(n, noise=0.08, random_state=seed)[0]
    parts = np.array_split(X, int(rng.integers(3, 8)))
    require_pooled_or_said(parts, ["cosine", "linear"][seed % 2], k, random_state=seed)


def with_heavy_tails(seed):
    """Rows some of which are far from all others, a kernel and a number of clusters."""
    rng = np.random.default_rng([seed, 23])
    n, d, k = int(rng.integers(80, 300)), int(rng.integers(2, 12)), int(rng.integers(2, 8))
    X = rng.normal(size=(n, d)) * (1 + rng.pareto(rng.uniform(1, 2.5), size=(n, 1)))
    if rng.random() < 0.5:
        X = X**3
    kernel = ["linear", "poly", "linear", "rbf"][rng.integers(4)]
    return X / np.median(np.abs(X)), kernel, k, int(rng.integers(3, 8))


# Before parts began where rows are far, 13 cost 3.7 % more and 34 5.6 %; 51, of one array, 2.1 %.
@pytest.mark.parametrize("seed", [*range(12, 18), 34, 52])
def test_clusters_of_heavy_tails_cost_what_pooled_ones_do(seed):
    X, kernel, k, n_parties = with_heavy_tails(seed)
    topology = "star" if seed % 3 == 2 else None
    parts = np.array_split(X, n_parties)
    require_pooled_or_said(parts, kernel, k, topology=topology, random_state=seed)


@pytest.mark.filterwarnings("ignore:.* may be rounding")  # of eigenvalues that tails leave small
@pytest.mark.parametrize("seed", [*range(12, 18), 51])
def test_clusters_of_heavy_tails_in_one_place_are_searched_too(seed):
    X, kernel, k, _ = with_heavy_tails(seed)
    model = em.KernelKMeans(k, kernel=kernel, **KERNELS[kernel], random_state=seed).fit(X)
    least, own = least_and_own(X, kernel, k, model.labels_)
    assert own <= TOLERANCE * least
