"""Centroids: as many as asked for, of disjoint rows, each of enough; the cost does not grow."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin_min

from eigenmesh.numerics import centroids as module
from eigenmesh.numerics.centroids import centroids

DIGITS = load_digits().data / 16
WIDE = np.hstack([DIGITS, DIGITS[:, ::-1], DIGITS**2])  # so wide that a sketch comes first


def clusters_of(monkeypatch, A, count, least, seed=0):
    """Sizes of the clusters whose means are given."""
    calls = []
    means = module._means

    def spy(sample, labels, clusters):
        calls.append((sample.shape[0], np.bincount(labels, minlength=clusters)))
        return means(sample, labels, clusters)

    monkeypatch.setattr(module, "_means", spy)
    centres = centroids(A, count, least, seed)
    return centres, *calls[-1]


@pytest.mark.parametrize("count", [1, 10, 60])
@pytest.mark.parametrize("least", [1, 5, 25])
@pytest.mark.parametrize(
    "rows", [DIGITS, WIDE, sp.csr_array(WIDE)], ids=["narrow", "wide", "sparse"]
)
def test_every_centroid_is_the_mean_of_enough_rows(count, least, rows, monkeypatch):
    centres, sample, sizes = clusters_of(monkeypatch, rows, count, least)
    assert len(centres) == min(count, rows.shape[0] // least)
    assert sizes.min() >= least
    assert sizes.sum() == sample  # no row is in two means: their difference would give it away


def test_rows_that_cluster_badly_still_give_enough_of_each(monkeypatch):
    rng = np.random.default_rng(0)
    A = np.vstack([rng.normal(size=(390, 3)), 50 + 10 * rng.normal(size=(10, 3))])
    centres, _, sizes = clusters_of(monkeypatch, A, 20, 5)
    assert len(centres) == 20
    assert sizes.min() >= 5


def test_equal_rows_are_no_trouble():
    np.testing.assert_array_equal(centroids(np.ones((100, 2)), 4, 5, seed=0), np.ones((4, 2)))


def test_clusters_of_sketches_are_nearly_as_good_as_clusters_of_rows():
    def cost(centres):
        return np.square(pairwise_distances_argmin_min(WIDE, centres)[1]).mean()

    full = KMeans(40, init="random", n_init=1, max_iter=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain = [cost(full.set_params(random_state=s).fit(WIDE).cluster_centers_) for s in range(5)]
    sketched = [cost(centroids(WIDE, 40, 5, seed)) for seed in range(5)]
    assert np.mean(sketched) <= 1.05 * np.mean(plain)


def test_float32_rows_far_from_the_origin_keep_their_digits():
    far = (WIDE + 1000).astype(np.float32)
    np.testing.assert_allclose(
        centroids(far, 20, 5, 0) - 1000, centroids(WIDE, 20, 5, 0), atol=2e-3
    )


def test_the_rows_are_left_as_they_were():
    rows = WIDE[:30].copy()
    centroids(rows, 30, 1, 0)
    np.testing.assert_array_equal(rows, WIDE[:30])


def test_too_few_rows_give_none():
    assert centroids(DIGITS[:4], 3, 5, seed=0).shape == (0, 64)


def test_means_keep_the_precision_of_the_rows():
    double = centroids(DIGITS, 12, 5, seed=3)
    single = centroids(DIGITS.astype(np.float32), 12, 5, seed=3)
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    assert centroids((DIGITS * 16).astype(np.uint8), 12, 5, seed=3).dtype == np.float64


def test_the_same_seed_gives_the_same_centroids():
    np.testing.assert_array_equal(centroids(DIGITS, 9, 5, 1), centroids(DIGITS, 9, 5, 1))
    assert not np.array_equal(centroids(DIGITS, 9, 5, 1), centroids(DIGITS, 9, 5, 2))


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("rows", [DIGITS, WIDE], ids=["narrow", "wide"])
def test_sparse_rows_give_the_centroids_of_dense_ones(index, rows):
    A = sp.csr_array(rows)
    A = sp.csr_array((A.data, A.indices.astype(index), A.indptr.astype(index)), shape=A.shape)
    np.testing.assert_allclose(centroids(A, 8, 5, 0), centroids(rows, 8, 5, 0), atol=1e-12)


def test_only_a_sample_is_looked_at(tmp_path):
    class Counted(np.ndarray):
        rows = 0

        def __getitem__(self, key):
            taken = super().__getitem__(key)
            Counted.rows += len(taken) if np.ndim(taken) == 2 else 0
            return taken

    A = np.tile(DIGITS, (20, 1)).view(Counted)
    sampled = []
    original = module.raw_rows
    module.raw_rows = lambda rows: rows
    try:
        sampled = centroids(A, 10, 5, 0)
    finally:
        module.raw_rows = original
    assert len(sampled) == 10
    assert 0 < Counted.rows <= 10 * 20 * 3
