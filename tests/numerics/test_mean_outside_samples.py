"""Samples stand for all rows: right in the mean, and rare heavy rows are not missed."""

import numpy as np
import pytest
import scipy.sparse as sp

from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.mean_outside import RowSampler

RBF, POLY = Kernel("rbf", 0.1), Kernel("poly", 1.0, 2, 0.0)
LEVEL = [RBF, Kernel("laplacian", 0.1), Kernel("cosine"), Kernel("arc-cosine", degree=0)]
UNEVEN = [POLY, Kernel("linear"), Kernel("sigmoid", 0.1), Kernel("arc-cosine", degree=1)]


def heavy_rows(n=3000, d=3):
    """Five rows have nearly all of Σ‖x‖⁴."""
    X = np.random.default_rng(0).normal(size=(n, d))
    X[::600] *= 30
    return X


def test_all_rows_stand_for_themselves():
    X = heavy_rows(50)
    sample = RowSampler(POLY, X).draw(50, np.random.default_rng(0))
    np.testing.assert_array_equal(sample.rows, X)
    np.testing.assert_array_equal(sample.counts, np.ones(50))
    assert sample.noise == 0


@pytest.mark.parametrize("kernel", [RBF, POLY], ids=str)
def test_sums_are_right_in_the_mean_and_vary_as_stated(kernel):
    X = heavy_rows()
    sampler, sums, variances = RowSampler(kernel, X), [], []
    for seed in range(400):
        sample = sampler.draw(60, np.random.default_rng(seed))
        parts = sample.counts * np.abs(sample.rows[:, 0])
        sums.append(parts.sum())
        variances.append(sample.noise * len(parts) * np.var(parts, ddof=1))
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - np.abs(X[:, 0]).sum()) <= 4 * error
    assert np.mean(variances) == pytest.approx(np.var(sums), rel=0.3)


@pytest.mark.parametrize("rows", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_rare_heavy_rows_are_drawn_where_they_weigh_more(rows):
    X = heavy_rows()
    heavy = np.sqrt(np.sum(np.square(X), axis=1)) > 20
    for seed in range(20):
        sample = RowSampler(POLY, rows(X)).draw(100, np.random.default_rng(seed))
        norms = np.asarray(np.sqrt((sample.rows**2).sum(axis=1))).ravel()
        assert 10 < np.count_nonzero(norms > 20) < 60  # half of the draws are by weight
        assert sample.counts[norms > 20].sum() == pytest.approx(heavy.sum(), rel=0.6)


@pytest.mark.parametrize("kernel", LEVEL + UNEVEN, ids=str)
def test_the_trace_is_that_of_the_kernel(kernel):
    X = heavy_rows(200)
    assert kernel.is_level == (kernel in LEVEL)
    assert RowSampler(kernel, X).trace == pytest.approx(kernel.diagonal(X).sum())


def test_rows_of_zeros_and_rows_whose_kernel_overflows_are_drawn_alike():
    for X in (np.zeros((9, 2)), np.full((9, 2), 1e100)):
        sample = RowSampler(POLY, X).draw(3, np.random.default_rng(0))
        np.testing.assert_allclose(sample.counts, 3.0)


def test_integers_are_counted_without_overflow():
    X = np.full((5, 2), 200, np.uint8)
    assert RowSampler(POLY, X).trace == 5 * 80_000.0**2
