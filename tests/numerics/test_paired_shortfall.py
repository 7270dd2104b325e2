"""What landmarks miss of rows in one place, from pairs of some rows, beside the whole matrix."""

import numpy as np
import pytest

from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import KernelValues, Span, landmark_sums, span_residual
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.paired_shortfall import PairedRows, paired_look, paired_shortfall


def missing(kernel, X, Y, k, centred, count, seed):
    """Estimated, and as the whole kernel matrix says."""
    span = Span.of(kernel, Y)
    sums = landmark_sums(kernel, X, Y, span)
    model = LandmarkModel.fit(kernel, Y, sums, k, centred, span)
    rng = np.random.default_rng(seed)
    outside = span_residual(span, sums)
    shares = paired_shortfall(span, model, k, X, outside, count, centred, rng)
    K = np.asarray(kernel.matrix(X))
    if centred:
        K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    return shares, 1 - model.eigenvalues / np.linalg.eigvalsh(K)[::-1][:k]


def drawn(seed):
    rng = np.random.default_rng(seed)
    d, centred = int(rng.integers(2, 12)), bool(rng.integers(2))
    X = (
        rng.normal(size=(900, d))
        + rng.choice([0, 3]) * rng.normal(size=(6, d))[rng.integers(6, size=900)]
    )
    name = ("rbf", "laplacian", "poly", "arc-cosine")[seed % 4]
    kernel = Kernel(
        name, 0.5 / d if name != "arc-cosine" else None, 1 if name == "arc-cosine" else 2, 1.0
    )
    Y = X[rng.choice(900, int(rng.integers(10, 60)), replace=False)]
    return kernel, X, Y, int(rng.integers(1, 5)), centred


@pytest.mark.parametrize("seed", range(24))
def test_some_rows_tell_what_landmarks_miss_within_a_factor_of_two_or_their_error(seed):
    shares, true = missing(*drawn(seed), 400, seed)
    near = (shares.values <= 2 * true) & (shares.values >= true / 2)
    off = np.abs(shares.values - true)
    assert (near | (off < 0.002) | (off < 3 * shares.errors)).all()


@pytest.mark.parametrize("seed", range(8))
def test_all_rows_tell_the_largest_share_without_an_error_of_the_draw(seed):
    shares, true = missing(*drawn(seed), 900, seed)
    assert (shares.errors < 1e-9).all()
    assert true.max() / 2 <= shares.largest + 1e-9 <= 2 * true.max() + 1e-8


@pytest.mark.parametrize("seed", range(6))
def test_a_far_row_that_no_sample_has_leaves_doubt(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1200, 4))
    X[rng.integers(1200)] *= 1e4
    shares, true = missing(Kernel("rbf", 1e-3 / 4), X, rng.normal(size=(12, 4)), 2, False, 64, seed)
    assert true.max() > 0.01
    assert not shares.is_within(0.01)


def test_a_group_that_no_landmark_is_near_shows_as_a_direction():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(300, 3)), rng.normal(size=(200, 3)) / 4 + 30])
    shares, true = missing(Kernel("rbf", 0.1), X, X[:40], 2, True, 200, 0)
    assert true.max() > 0.1
    assert shares.largest > true.max() / 2


@pytest.mark.parametrize("seed", [0, 4, 8, 12])  # of the rbf kernel
@pytest.mark.parametrize("far", [0.0, 300.0])
def test_single_precision_sees_what_double_precision_sees(seed, far):
    kernel, X, Y, k, centred = drawn(seed)
    single = (X + far).astype(np.float32)
    span = Span.of(kernel, (Y + far).astype(np.float32))
    sums = landmark_sums(kernel, single, span.landmarks, span)
    model = LandmarkModel.fit(kernel, span.landmarks, sums, k, centred, span)
    shares, doubles = (
        paired_shortfall(
            span,
            model,
            k,
            rows,
            span_residual(span, sums),
            400,
            centred,
            np.random.default_rng(seed),
        )
        for rows in (single, single.astype(np.float64))
    )
    np.testing.assert_allclose(shares.values, doubles.values, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(shares.errors, doubles.errors, rtol=1e-2, atol=1e-6)


def _outside_mean(kernel, Y, X):
    """n‖m − Pm‖² from the whole kernel matrix."""
    K, B = kernel.matrix(X), pseudo_inverse_root(kernel.matrix(Y))
    inside = (kernel.matrix(X, Y) @ B).mean(axis=0)
    return len(X) * (K.mean() - inside @ inside)


@pytest.mark.parametrize(("count", "errors"), [(600, 1e-9), (128, 4.0)])
def test_the_rows_that_are_looked_at_show_the_mean_outside_as_well(count, errors):
    kernel, X = Kernel("rbf", 0.2), np.random.default_rng(5).normal(1.0, 1.0, size=(600, 4))
    span, sums, model = _fitted(kernel, X, X[:6])
    outside = span_residual(span, sums)
    rng = np.random.default_rng(0)
    mean = paired_look(span, model, 2, X, outside, count, True, rng).mean
    true = _outside_mean(kernel, X[:6], X)
    assert true > 1
    assert abs(mean.variance - true) <= errors * max(mean.error, 1.0)
    assert bool(mean.error) == (count < len(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernel_values_that_a_pass_has_kept_show_what_others_show(dtype):
    kernel = Kernel("rbf", 0.02)
    X = np.random.default_rng(3).normal(size=(2000, 40)).astype(dtype)
    kept = KernelValues()
    span, sums, model = _fitted(kernel, X, X[:50], kept)
    how = (span, model, 3, X, span_residual(span, sums), 300, True)
    anew = paired_look(*how, np.random.default_rng(0))
    seen = paired_look(*how, np.random.default_rng(0), kept)
    np.testing.assert_allclose(seen.missing.values, anew.missing.values, rtol=1e-3)
    np.testing.assert_allclose(seen.mean, anew.mean, rtol=1e-3)
    kept.values *= 0  # of which nothing is left to see
    assert not np.allclose(paired_look(*how, np.random.default_rng(0), kept).mean, anew.mean)


def _fitted(kernel, X, Y, kept=None):
    span = Span.of(kernel, Y)
    sums = landmark_sums(kernel, X, Y, span, kept)
    return span, sums, LandmarkModel.fit(kernel, Y, sums, 3, True, span)


@pytest.mark.parametrize("seed", range(2))
def test_errors_count_rows_that_are_far_from_each_other_too(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1500, 5))
    X[rng.choice(1500, 15, replace=False)] *= 8  # a component of such is of rows by themselves
    kernel = Kernel("rbf", 0.04)
    span = Span.of(kernel, rng.normal(size=(60, 5)))
    sums = landmark_sums(kernel, X, span.landmarks, span)
    model = LandmarkModel.fit(kernel, span.landmarks, sums, 6, True, span)
    outside, roots = span_residual(span, sums), np.sqrt(model.eigenvalues)
    looks = []
    for _ in range(300):
        rows = PairedRows.draw(span, X, outside, 200, rng)
        W = rows.scores(model.coefficients, model.offset) / roots
        looks.append(rows.squared_lengths(W, rows.sums_with(W)))
    squares, errors = zip(*looks, strict=True)
    stated = np.sqrt(np.square(errors).mean(axis=0)) / np.std(squares, axis=0)
    assert ((stated > 0.8) & (stated < 1.6)).all()
