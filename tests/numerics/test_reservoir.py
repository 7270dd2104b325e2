"""Rows that pass by and stay: drawn from all, alike whatever the blocks are, in bounded memory."""

import numpy as np
import pytest
import scipy.sparse as sp

from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.reservoir import Reservoir

RBF, POLY = Kernel("rbf", 1.0), Kernel("poly", 1.0, 2, 0.0)


def kept(kernel, X, sizes, seed=0):
    reservoir, start = Reservoir(kernel, X.shape[1], seed), 0
    for size in sizes:
        reservoir.add(X[start : start + size])
        start += size
    return reservoir.sample()


@pytest.mark.parametrize("kernel", [RBF, POLY], ids=["level", "not level"])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_rows_stay_whatever_the_blocks_are(kernel, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.choice([40, 1024, 1025, 3000]))
    X = rng.standard_cauchy((n, 3))
    cuts = np.sort(rng.integers(0, n, size=9))
    one = kept(kernel, X, np.diff([0, *cuts, n]))
    for size, rows in ((n, X), (7, X), (100, sp.csr_array(X))):
        other = kept(kernel, rows, [size] * (n // size + 1))
        dense = other.rows.toarray() if sp.issparse(other.rows) else other.rows
        np.testing.assert_array_equal(dense, one.rows)
        np.testing.assert_allclose(other.counts, one.counts, rtol=1e-12)
    assert len(one.rows) <= 1024
    if n == 40:
        assert not one.noise
        np.testing.assert_array_equal(np.sort(one.rows, axis=0), np.sort(X, axis=0))


@pytest.mark.parametrize("kernel", [RBF, POLY], ids=["level", "not level"])
def test_every_row_counts_as_one_in_the_mean_over_draws(kernel):
    rng = np.random.default_rng(3)
    X = np.exp(rng.normal(size=(2000, 1)))
    counts = np.zeros(2000)
    for seed in range(300):
        sample = kept(kernel, X, [500] * 4, seed)
        counts[np.searchsorted(np.sort(X[:, 0]), sample.rows[:, 0])] += sample.counts / 300
    groups = counts.reshape(20, -1).mean(axis=1)  # by size
    np.testing.assert_allclose(groups, 1, atol=0.05)


def test_rows_that_weigh_most_stay():
    X = np.random.default_rng(0).normal(size=(20_000, 2))
    X[777] *= 1e3
    sample = kept(POLY, X, [250] * 80)
    assert sample.counts[np.abs(sample.rows).max(axis=1) > 100] == pytest.approx(1.0, rel=0.1)


def test_wide_rows_are_fewer():
    assert Reservoir(RBF, 10**6, 0).size == 256
