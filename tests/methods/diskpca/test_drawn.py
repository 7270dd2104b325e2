"""Landmarks of the normal law of all rows: parties of any size count, by sums alone."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA as PooledKPCA

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like
from eigenmesh.methods.diskpca.drawn import NormalLaw, released_points, stream_of
from eigenmesh.numerics.centroids import MIN_CLUSTER


def drawn_rows(rng, n=240, d=5):
    """A few groups, somewhere, in columns of different scale."""
    centres = rng.normal(size=(6, d)) * 3 + rng.normal(size=d) * 10
    return (centres[rng.integers(6, size=n)] + rng.normal(size=(n, d))) * np.exp(rng.normal(size=d))


def gamma_for(X):
    return 1 / (4 * X.var(axis=0).sum())


def parts_of(X, rng, sizes):
    order = rng.permutation(len(X))
    return em.Partitioned(rows=np.split(X[order], np.cumsum(sizes)[:-1]))


def sizes_of(rng, n):
    """From single rows to most of them."""
    small = list(rng.integers(1, 5, size=20))
    return [*small, n - sum(small)]


def drawn(X, **options):
    gamma = gamma_for(X)
    return em.DisKPCA(3, kernel="rbf", gamma=gamma, landmarks="drawn", random_state=0, **options)


@pytest.mark.parametrize("seed", range(6))
def test_how_rows_are_split_makes_no_difference(seed):
    rng = np.random.default_rng(seed)
    X = drawn_rows(rng)
    whole = drawn(X, n_landmarks=40).fit(em.Partitioned(rows=[X]))
    split = drawn(X, n_landmarks=40).fit(parts_of(X, rng, sizes_of(rng, len(X))))
    assert np.allclose(split.landmarks_, whole.landmarks_, rtol=0, atol=1e-8 * np.abs(X).max())
    assert np.allclose(split.eigenvalues_, whole.eigenvalues_, rtol=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_components_of_parties_of_four_rows_are_the_pooled_ones_within_accuracy(seed):
    rng = np.random.default_rng(100 + seed)
    X = drawn_rows(rng, n=400, d=int(rng.integers(2, 9)))
    parts = em.Partitioned(rows=np.split(X[rng.permutation(400)], 100))
    fitted = drawn(X, accuracy=0.01, max_landmarks=390).fit(parts)
    pooled = PooledKPCA(3, kernel="rbf", gamma=gamma_for(X)).fit(X)
    missing = 1 - fitted.eigenvalues_ / pooled.eigenvalues_
    assert missing.max() < 0.01
    assert np.abs(fitted.shortfalls_ - missing).max() < 0.01


@pytest.mark.parametrize("seed", range(4))
def test_wide_rows_of_few_parties_keep_most_of_the_variance(seed):
    rng = np.random.default_rng(seed)
    X, _ = gene_like(n_samples=70, n_features=1500, random_state=seed)
    X = np.asarray(X)
    with pytest.warns(em.EigenmeshWarning, match="landmarks miss"):
        fitted = drawn(X, accuracy=0.001).fit(parts_of(X, rng, [3, 30, 37]))
    pooled = PooledKPCA(3, kernel="rbf", gamma=gamma_for(X)).fit(X)
    assert fitted.eigenvalues_.sum() > 0.94 * pooled.eigenvalues_.sum()


def test_no_party_is_asked_for_rows_or_centroids():
    rng = np.random.default_rng(0)
    X = drawn_rows(rng)
    fitted = drawn(X, n_landmarks=30, accuracy=0.5).fit(parts_of(X, rng, sizes_of(rng, len(X))))
    kinds = set().union(*fitted.report_.reveals.values())
    assert kinds <= {"counts", "gram", "moments"}


@pytest.mark.parametrize("seed", range(5))
def test_sparse_rows_give_what_dense_ones_do(seed):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((150, 30)) < 0.1, rng.normal(size=(150, 30)), 0.0)
    dense = drawn(X, n_landmarks=30).fit(em.Partitioned(rows=[X[:40], X[40:]]))
    sparse_parts = [sp.csr_array(X[:40]), sp.csr_array(X[40:])]
    sparse = drawn(X, n_landmarks=30).fit(em.Partitioned(rows=sparse_parts))
    assert np.allclose(sparse.eigenvalues_, dense.eigenvalues_, rtol=1e-8)


@pytest.mark.parametrize("seed", range(50))
def test_every_released_mean_and_the_rest_stand_for_enough_rows(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 12, size=rng.integers(1, 20)) * rng.integers(0, 2)
    released = released_points(counts, int(rng.integers(1, 20)))
    rest = counts.sum() - counts[released].sum()
    assert (counts[released] >= MIN_CLUSTER).all()
    assert rest == 0 or rest >= MIN_CLUSTER or not len(released)


def test_the_law_has_the_moments_of_the_rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 6)) * [5, 4, 3, 0.1, 0.1, 0.1] + 7
    m, A = X.mean(axis=0), X - X.mean(axis=0)
    law = NormalLaw.of(m, np.eye(6), A.T @ A, len(X))
    points = law.draw(200_000, stream_of(0))
    assert np.allclose(points.mean(axis=0), m, atol=0.05)
    assert np.allclose(np.cov(points.T), A.T @ A / len(X), atol=0.2)


@pytest.mark.parametrize("round_", range(2, 8))
def test_a_party_that_is_lost_on_the_way_is_named_and_the_rest_is_a_model(round_):
    rng = np.random.default_rng(5)
    X = drawn_rows(rng)
    parts = parts_of(X, rng, [80, 80, 80])
    leaving = [em.Fault("kill", "party-1", round=round_)]
    with em.federation(parts, faults=leaving, on_loss="survivors", timeout=5) as fed:
        fitted = drawn(X, n_landmarks=30).fit(fed)
    assert set(fitted.report_.lost) == {"party-1"}
    others = np.vstack([parts.parts[0], parts.parts[2]])
    pooled = PooledKPCA(3, kernel="rbf", gamma=gamma_for(X)).fit(others)
    assert fitted.eigenvalues_.sum() > 0.9 * pooled.eigenvalues_.sum()


def test_sketches_take_no_drawn_landmarks():
    X = drawn_rows(np.random.default_rng(0))
    with pytest.raises(em.EigenmeshError, match="exact is False"):
        drawn(X, exact=False).fit(em.Partitioned(rows=[X[:100], X[100:]]))
