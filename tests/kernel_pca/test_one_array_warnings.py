"""What one array's fits say of what landmarks miss, against exact eigenvalues of drawn rows."""

import warnings
from itertools import product

import numpy as np
from scipy.sparse.linalg import eigsh

import eigenmesh as em

ROWS, MOST = 2400, 10
LANDMARKS, COMPONENTS, WIDTHS = (40, 80, 160), (3, MOST), (0.5, 2.0)
ACCURACIES = (0.004, 0.01, 0.025)


def heavy(rng):
    return rng.standard_t(3, size=(ROWS, 8))


def clustered(rng):
    return 1.5 * rng.standard_normal((20, 30))[rng.integers(20, size=ROWS)] + rng.normal(
        scale=0.5, size=(ROWS, 30)
    )


def narrow(rng):
    return rng.standard_normal((ROWS, 6)) * np.arange(1, 7) ** -0.5


def few_far(rng):
    X = rng.standard_normal((ROWS, 5))
    X[:10] *= 8
    return X


def of_low_rank(rng):
    return rng.standard_normal((ROWS, 4)) @ rng.standard_normal((4, 40))


def exact_eigenvalues(X, gamma):
    squares = np.einsum("ij,ij->i", X, X)
    K = np.exp(-gamma * np.maximum(squares[:, None] + squares - 2 * X @ X.T, 0.0))
    K -= K.mean(axis=0)
    K -= K.mean(axis=1)[:, None]
    start = np.random.default_rng(0).standard_normal(ROWS)
    return np.sort(eigsh(K, MOST, which="LA", v0=start, tol=1e-8)[0])[::-1]


def fits_against_exact():
    """Of every drawn fit the largest share missing, that said, and whether a warning came."""
    for make, width in product((heavy, clustered, narrow, few_far, of_low_rank), WIDTHS):
        X = make(np.random.default_rng(0)).astype(np.float32)
        gamma = width / (2 * X.var(axis=0).sum())
        exact = exact_eigenvalues(X.astype(np.float64), gamma)
        for q, k, accuracy in product(LANDMARKS, COMPONENTS, ACCURACIES):
            kpca = em.KernelPCA(k, kernel="rbf", gamma=gamma, n_landmarks=q, accuracy=accuracy)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                kpca.fit(X)
            missing = float((1 - kpca.eigenvalues_ / exact[:k]).max())
            warned = any("miss" in str(w.message) for w in caught)
            yield missing, kpca.shortfall_, missing > accuracy, warned


def test_who_misses_too_much_is_warned_and_few_others_are():
    missing, stated, too_much, warned = map(np.array, zip(*fits_against_exact(), strict=True))
    near = np.abs(stated - missing) <= 0.002
    near |= (stated <= 2 * missing) & (missing <= 2 * stated)
    assert warned[too_much].mean() >= 0.95
    assert near.mean() >= 0.95
    # 6 of 125; with looks at fewer rows there were 21.
    assert warned[~too_much].mean() <= 0.08
