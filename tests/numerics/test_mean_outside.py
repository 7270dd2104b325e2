"""The mean outside the landmarks' span: recomputed from whole kernel matrices, over many draws."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.mean_outside import (
    SAMPLE_ROWS,
    OutsideSums,
    OutsideView,
    mean_outside,
    outside_floats,
    rows_to_see,
)

DIGITS = load_digits().data / 16
KERNELS = [
    Kernel("rbf", 0.05),
    Kernel("laplacian", 0.05),
    Kernel("poly", 1.0, 2, 0.0),
    Kernel("poly", 0.1, 3, 1.0),
    Kernel("linear"),
    Kernel("cosine"),
    Kernel("arc-cosine", degree=0),
    Kernel("arc-cosine", degree=1),
    Kernel("arc-cosine", degree=2),
]


def truth(kernel, X, Y):
    """n‖m − Pm‖² and Σ‖φ − Pφ‖², from the whole matrices."""
    K_XY = np.asarray(kernel.matrix(X, Y))
    inverse = np.linalg.pinv(kernel.matrix(Y), rcond=1e-10, hermitian=True)
    outside = np.asarray(kernel.matrix(X)) - K_XY @ inverse @ K_XY.T
    return outside.sum() / X.shape[0], np.trace(outside)


def estimate(kernel, X, Y, seed, most=10**9, blocks=1):
    view = OutsideView.of(Span.of(kernel, Y), seed)
    total = None
    for i, rows in enumerate(np.array_split(np.arange(X.shape[0]), blocks)):
        more = view.sums(X[rows], np.random.default_rng((seed or 0, i)), most)
        total = more if total is None else OutsideSums(*map(np.add, total, more))
    return mean_outside(kernel, X.shape[1], total, X.shape[0], np.inf)


SEEDS = 24


@pytest.mark.parametrize(
    ("kernel", "blocks", "most"),
    [
        *((kernel, 8, 15) for kernel in KERNELS),
        *((kernel, 8, 10**9) for kernel in KERNELS[::2]),
        *((kernel, 1, 100) for kernel in KERNELS[1::2]),
    ],
    ids=str,
)
def test_the_estimate_is_right_on_average_and_its_error_is_honest(kernel, blocks, most):
    X, Y = DIGITS[:200], DIGITS[:15]
    true, _ = truth(kernel, X, Y)
    estimates = [estimate(kernel, X, Y, seed, most, blocks) for seed in range(SEEDS)]
    values = np.array([each.variance for each in estimates])
    errors = np.array([each.error for each in estimates])
    rounding = 1e-9 * true
    assert np.abs(values - true).max() <= 4 * errors.max() + rounding
    assert abs(values.mean() - true) <= 4 * values.std() / np.sqrt(SEEDS) + rounding
    # Neither too proud nor too modest.
    assert values.std() <= 1.5 * np.sqrt(np.mean(errors**2)) + rounding
    assert np.sqrt(np.mean(errors**2)) <= 5 * values.std() + rounding


@pytest.mark.parametrize("blocks", [1, 4])
def test_rare_heavy_rows_are_not_missed(blocks):
    X = np.abs(np.random.default_rng(0).normal(size=(4000, 8)))
    X[::400] *= 12
    kernel = Kernel("poly", 1.0, 2, 0.0)
    true, trace = truth(kernel, X, X[1:20])[0], kernel.diagonal(X).sum()
    for seed in range(12):
        outside = estimate(kernel, X, X[1:20], seed, 512 // blocks, blocks)
        assert abs(outside.variance - true) <= 4 * outside.error
        assert outside.error <= 1e-4 * trace


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_span_that_holds_every_row_leaves_nothing(kernel):
    X = DIGITS[:200]
    for Y in (X, np.vstack([X, X[:50]])):
        outside = estimate(kernel, X, Y, 0)
        assert outside.variance <= 1e-10 * float(np.sum(kernel.diagonal(X)))
        assert outside.error <= 1e-10 * float(np.sum(kernel.diagonal(X)))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_one_block_that_is_seen_whole_needs_no_features(kernel):
    X, Y = DIGITS[:300], DIGITS[:10]
    for seed in (None, 0):  # features that are there all the same change nothing
        outside = estimate(kernel, X, Y, seed)
        assert outside.variance == pytest.approx(truth(kernel, X, Y)[0], rel=1e-7)
        assert outside.error <= 1e-9 * outside.variance


def test_a_linear_kernel_of_few_columns_is_exact_over_blocks():
    X, Y = DIGITS[:500], DIGITS[:10]
    outside = estimate(Kernel("linear"), X, Y, 0, blocks=7)
    assert outside.variance == pytest.approx(truth(Kernel("linear"), X, Y)[0], rel=1e-9)
    assert outside.error == 0.0


def test_blocks_with_nothing_in_common_and_blocks_that_cancel():
    """Their products vanish in the mean, or outweigh the sum; the error must not."""
    rng = np.random.default_rng(0)
    X = np.sign(rng.normal(size=(40, 6)))
    X = np.vstack([X, -X])
    for kernel, Y in ((Kernel("poly", 1.0, 3, 0.0), X[:1]), (Kernel("rbf", 3.0), X[:1])):
        true, _ = truth(kernel, X, Y)
        estimates = [estimate(kernel, X, Y, seed, blocks=2) for seed in range(SEEDS)]
        off = np.array([each.variance for each in estimates]) - true
        assert np.abs(off).max() <= 4 * max(each.error for each in estimates) + 1e-9


@pytest.mark.parametrize("name", ["linear", "cosine", "rbf"])
def test_wide_sparse_rows_are_seen_as_dense_ones(name):
    rng = np.random.default_rng(0)
    X = sp.random_array((200, 5000), density=0.01, random_state=rng, format="csr")
    kernel = Kernel(name, 0.5 if name == "rbf" else None)
    true, _ = truth(kernel, X.toarray(), X[:20].toarray())
    estimates = [estimate(kernel, rows, rows[:20], 3, blocks=4) for rows in (X, X.toarray())]
    assert estimates[0].variance == pytest.approx(estimates[1].variance, rel=1e-8)
    assert abs(estimates[0].variance - true) <= 4 * estimates[0].error
    assert estimates[0].error < 0.2 * true


@pytest.mark.parametrize("gamma", [5e-2, 5e-5])
def test_rows_far_from_the_origin_and_flat_kernels(gamma):
    kernel, Y = Kernel("rbf", gamma), DIGITS[:40]
    true, outside = truth(kernel, DIGITS[:300], Y)
    far = estimate(kernel, DIGITS[:300] + 1000.0, Y + 1000.0, 0, blocks=3)
    assert abs(far.variance - true) <= 4 * far.error + 1e-9
    assert far.error <= 0.1 * outside


def test_the_estimate_never_leaves_its_bounds():
    sums, kernel = OutsideSums(np.zeros(0), np.zeros(0), 1e3, 1e6, 0.0, 0.0), Kernel("rbf", 1.0)
    assert mean_outside(kernel, 28, sums, 100, 1.0).variance == 0.0
    big = mean_outside(kernel, 28, sums._replace(noise=0.0, spread=1e9), 100, 0.05)
    assert big == (0.05, 0.05)


def test_the_length_is_known_beforehand():
    for kernel in KERNELS:
        for d in (3, 64, 1100):
            X = np.random.default_rng(0).normal(size=(6, d))
            view = OutsideView.of(Span.of(kernel, X[:2]), 0)
            sums = view.sums(X, np.random.default_rng(0))
            assert len(sums.features) + len(sums.energies) == outside_floats(kernel.name, d)


def test_a_long_stream_is_seen_at_a_cost_that_hardly_grows():
    total = sum(rows_to_see(1000, 1000 * i) for i in range(1000))
    assert SAMPLE_ROWS <= total <= SAMPLE_ROWS * (2 + np.log(1000))
