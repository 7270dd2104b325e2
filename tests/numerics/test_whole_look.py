"""What landmarks miss of a few rows: their whole kernel matrix leaves nothing to guess."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span, landmark_sums, span_residual
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.whole_look import whole_look


def drawn_rows(rng, kind, n, d):
    """Rows whose kernel matrix is smooth, nearly the identity, or that but for some pairs."""
    X = rng.normal(size=(n, d))
    if kind == "apart":
        X[:, 0] *= 300
    if kind == "pairs":
        few = max(n // 20, 1)
        X *= 30
        X[:few] = X[-few:] + rng.normal(size=(few, d)) * rng.choice([0.01, 0.5, 1.0])
    return rng.standard_cauchy((n, d)) if kind == "heavy" else X


def centred_spectrum(kernel, X):
    K = np.asarray(kernel.matrix(X.astype(np.float64)))
    return np.linalg.eigvalsh(K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean())[::-1], K


KINDS = ("smooth", "apart", "pairs", "heavy")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_all_pairs_tell_what_is_missing_and_the_mean_without_an_error(kind, seed):
    rng = np.random.default_rng((seed, KINDS.index(kind)))
    n, d, k = int(rng.choice([12, 40, 300, 700])), int(rng.integers(1, 20)), int(rng.integers(1, 4))
    name = str(rng.choice(["rbf", "laplacian", "poly", "cosine"]))
    kernel = Kernel(name, None if name == "cosine" else 0.3 / d, 2, 1.0)
    X = drawn_rows(rng, kind, n, d)
    Y = X[rng.choice(n, max(n // 4, k + 1), replace=False)]
    span = Span.of(kernel, Y)
    sums = landmark_sums(kernel, X, Y, span)
    k = min(k, len(span.basis.T))
    model = LandmarkModel.fit(kernel, Y, sums, k, True, span)
    k = len(model.eigenvalues)
    look = whole_look(span, model, k, X, span_residual(span, sums), True)
    values, K = centred_spectrum(kernel, X)
    true = np.maximum(1 - model.eigenvalues / values[:k], 0.0)
    np.testing.assert_allclose(look.missing.values, true, atol=1e-5)
    assert not look.missing.errors.any()
    inside = (np.asarray(kernel.matrix(X, Y)) @ span.basis).mean(axis=0)
    np.testing.assert_allclose(
        look.mean.variance, n * (K.mean() - inside @ inside), atol=1e-9 * np.trace(K)
    )


@pytest.mark.filterwarnings("ignore::eigenmesh.EigenmeshWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_a_few_rows_of_one_array_never_lack_what_is_not_said(kind, seed):
    rng = np.random.default_rng((1, seed, KINDS.index(kind)))
    n, d, k = int(rng.choice([120, 300, 513, 1000])), int(rng.integers(2, 10)), 3
    kernel = str(rng.choice(["rbf", "laplacian"]))
    X = drawn_rows(rng, kind, n, d).astype(rng.choice([np.float32, np.float64]))
    how = {"kernel": kernel, "gamma": 0.3 / d, "random_state": seed, "accuracy": 1.0}
    pca = em.KernelPCA(k, **how, method="diskpca", landmarks="uniform").fit(X)
    for model in (pca, em.KernelPCRegressor(k, **how).fit(X, X[:, 0])):
        true = centred_spectrum(Kernel(kernel, 0.3 / d), X)[0][:k]
        missing = max(float(np.max(1 - model.eigenvalues_ / true)), 0.0)
        assert model.shortfall_ == pytest.approx(missing, rel=0.05, abs=1e-3)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_rows_with_weights_count_as_so_many_copies(seed, centred):
    rng, kernel = np.random.default_rng(seed), Kernel("rbf", 0.1)
    X = rng.normal(size=(60, 4))
    w = rng.choice([0, 1, 1, 3, 20], 60)
    copies, Y = np.repeat(X, w, axis=0), X[:8]
    span = Span.of(kernel, Y)
    sums = landmark_sums(kernel, copies, Y, span)
    model = LandmarkModel.fit(kernel, Y, sums, 2, centred, span)
    outside = span_residual(span, sums)
    ours = whole_look(span, model, 2, X, outside, centred, w.astype(float))
    theirs = whole_look(span, model, 2, copies, outside, centred)
    np.testing.assert_allclose(ours.missing.values, theirs.missing.values, atol=1e-5)
    np.testing.assert_allclose(ours.mean.variance, theirs.mean.variance, rtol=1e-6)
