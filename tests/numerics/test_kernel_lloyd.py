"""Kernel k-means on a whole kernel matrix is near the best that many restarts find."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import rbf_kernel

from eigenmesh.metrics import feature_space_inertia
from eigenmesh.numerics.kernel_lloyd import kernel_lloyd


def drawn(seed):
    """Many overlapping groups of uneven sizes, in which restarts differ by percents."""
    rng = np.random.default_rng(seed)
    d, groups = int(rng.integers(4, 12)), 25
    X = 2 * rng.normal(size=(groups, d))[rng.choice(groups, 250, p=rng.dirichlet(np.ones(groups)))]
    X = X + rng.normal(size=X.shape)
    return rbf_kernel(X, gamma=1 / (2 * X.var(axis=0).sum()))


@pytest.mark.parametrize("seed", range(4))
def test_few_restarts_come_near_the_best_of_many(seed):
    K, k = drawn(seed), 12
    values, vectors = np.linalg.eigh(K)
    Z = vectors * np.sqrt(np.maximum(values, 0))  # all of feature space
    best = min(KMeans(k, n_init=30, random_state=s).fit(Z).inertia_ for s in range(2))
    clusters = kernel_lloyd(K, np.ones(len(K)), k, 4, 300, np.random.default_rng(seed))
    assert clusters.inertia == pytest.approx(feature_space_inertia(K, clusters.labels))
    assert clusters.inertia <= 1.005 * best


@pytest.mark.parametrize("seed", range(3))
def test_weights_are_copies(seed):
    K, rng = drawn(seed)[:80, :80], np.random.default_rng(seed)
    copies = rng.integers(0, 4, 80)
    rows = np.repeat(np.arange(80), copies)
    weighted = kernel_lloyd(K, copies.astype(float), 5, 10, 300, np.random.default_rng(0))
    repeated = kernel_lloyd(K[np.ix_(rows, rows)], np.ones(len(rows)), 5, 10, 300, rng)
    inertia = feature_space_inertia(K[np.ix_(rows, rows)], weighted.labels[rows])
    assert weighted.inertia == pytest.approx(inertia)
    assert weighted.inertia == pytest.approx(repeated.inertia, rel=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_every_row_ends_with_its_nearest_mean(seed):
    K = drawn(seed)
    weights = np.random.default_rng(seed).integers(0, 3, len(K)).astype(float)
    clusters = kernel_lloyd(K, weights, 9, 3, 300, np.random.default_rng(seed))
    lengths = np.einsum("cn,cn->c", clusters.members @ K, clusters.members)
    distances = lengths[:, None] - 2 * clusters.members @ K
    own = distances[clusters.labels, np.arange(len(K))]
    assert np.all(own <= distances.min(axis=0) + 1e-9)
