"""Few float32 rows have the answer of the same rows in float64, whatever their units are."""

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA as Pooled
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em

KERNELS = {
    "linear": {},
    "rbf": {"gamma": 1.0},
    "laplacian": {"gamma": 1.0},
    "poly": {"gamma": 0.01, "degree": 2, "coef0": 1},
    "cosine": {},
}


def drawn_rows(rng):
    X = rng.random((150, 6)) * 10.0 ** rng.integers(-1, 3)
    X[:, 0] *= 10.0 ** rng.integers(0, 6)
    return (X + 10.0 ** rng.integers(0, 5)).astype(np.float32)


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("seed", range(4))
def test_few_rows_lose_nothing_in_float32(kernel, seed):
    X = drawn_rows(np.random.default_rng(seed))
    how = dict(KERNELS[kernel])
    if kernel in ("rbf", "laplacian"):  # distances of about 1, where no kernel value is 0
        how["gamma"] /= X.var(axis=0).sum() if kernel == "rbf" else X.std(axis=0).sum()
    own = em.KernelPCA(3, kernel=kernel, **how)
    K = pairwise_kernels(X.astype(np.float64), metric=kernel, **how, filter_params=True)
    pooled = Pooled(3, kernel="precomputed", eigen_solver="dense").fit(K)
    scores = own.fit_transform(X)
    rounding = 1e-15 * float(np.square(X.astype(np.float64)).sum()) if kernel == "linear" else 0.0
    np.testing.assert_allclose(own.eigenvalues_, pooled.eigenvalues_, rtol=1e-6, atol=rounding)
    np.testing.assert_allclose(own.transform(X[:20]), scores[:20], atol=1e-5 * np.abs(scores).max())


@pytest.mark.parametrize("seed", range(3))
def test_clusters_of_few_float32_rows_are_those_of_float64(seed):
    rng = np.random.default_rng(seed)
    X = (rng.random((90, 3)) + 2000 + 3 * rng.integers(3, size=(90, 1))).astype(np.float32)
    build = lambda: em.KernelKMeans(3, kernel="linear", method="exact", random_state=0)  # noqa: E731
    of_float32, of_float64 = build().fit(X), build().fit(X.astype(np.float64))
    np.testing.assert_array_equal(of_float32.labels_, of_float64.labels_)
    assert of_float32.inertia_ == pytest.approx(of_float64.inertia_, rel=1e-6)


@pytest.mark.parametrize("spread", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("seed", range(2))
def test_rows_that_hardly_differ_are_not_float32s_rounding(seed, spread):
    """Too many for a matrix: of n kernel values near 1 the sums have digits for less than these."""
    rng = np.random.default_rng(seed)
    X = (100.0 * seed + spread * rng.normal(size=(2100, 1))).astype(np.float32)
    K = pairwise_kernels(X.astype(np.float64), metric="rbf", gamma=0.3)
    pooled = Pooled(2, kernel="precomputed").fit(K).eigenvalues_
    own = em.KernelPCA(2, kernel="rbf", gamma=0.3, random_state=0).fit(X)
    np.testing.assert_allclose(own.eigenvalues_, pooled, rtol=1e-3)
