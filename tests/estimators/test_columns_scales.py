"""Linear columns of any units: every wanted eigenvalue, or a warning that names components."""

import warnings

import numpy as np
import pytest

import eigenmesh as em

SCALES = ("one column", "several columns", "steep", "cluster beside a giant", "far from the origin")


def drawn(seed):
    """Columns in units 1 to 10⁶ apart, spectra over as many decades, clusters; and a split."""
    rng = np.random.default_rng(seed)
    n, m, k = int(rng.integers(30, 250)), int(rng.integers(6, 30)), int(rng.integers(2, 6))
    kind, r = SCALES[seed % len(SCALES)], min(n, m)
    X = rng.normal(size=(n, 5)) @ rng.normal(size=(5, m)) + rng.normal(size=(n, m))
    U = np.linalg.qr(rng.normal(size=(n, r)))[0]
    V = np.linalg.qr(rng.normal(size=(m, r)))[0]
    if kind == "one column":
        X[:, rng.integers(m)] *= 10.0 ** rng.uniform(3, 6)
    elif kind == "several columns":
        X *= np.where(rng.random(m) < 0.3, 10.0 ** rng.uniform(0, 6, m), 1.0)
    elif kind == "steep":
        X = U * np.geomspace(100, 10.0 ** -rng.uniform(0, 4), r) @ V.T
    elif kind == "cluster beside a giant":
        s = 10.0 ** -rng.uniform(0, 5) * (1 + 1e-3 * rng.random(r))
        s[0] = 10.0
        X = U * s @ V.T
    else:
        X = X * 10.0 ** rng.uniform(-3, 3) + 10.0 ** rng.uniform(0, 6)
    return X, k, int(rng.integers(2, min(m, 6) + 1))


def true_eigenvalues(X, k):
    return np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:k] ** 2


@pytest.mark.parametrize(
    ("seed", "topology"),
    [*((seed, None) for seed in range(15)), *((seed, "ring") for seed in range(0, 15, 3))],
)
def test_every_wanted_eigenvalue_is_right_whatever_stands_beside_it(seed, topology):
    X, k, parties = drawn(seed)
    parts = em.split(X, parties, by="columns")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", em.EigenmeshWarning)
        kpca = em.KernelPCA(k, kernel="linear", topology=topology).fit(parts)
    true = true_eigenvalues(X, k)
    np.testing.assert_allclose(kpca.eigenvalues_, true, rtol=1e-6)
    told = " ".join(str(w.message) for w in caught)
    assert "not converged" not in told
    U = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[0][:, :k]
    scores, apart = kpca.transform(X), np.diff(true) / true[:-1]
    if not len(apart) or (np.abs(apart).min() > 0.01 and "not determined" not in told):
        off = np.abs(np.abs(scores) - np.abs(U * np.sqrt(true))).max(axis=0)
        assert (off / np.sqrt(true)).max() < 1e-3


@pytest.mark.parametrize("topology", [None, "ring"])
@pytest.mark.parametrize("n_rounds", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_too_few_rounds_are_told_with_the_components_that_are_off(seed, n_rounds, topology):
    X, _, _ = drawn(seed * len(SCALES))
    parts = em.split(X, 3, by="columns")
    with pytest.warns(em.EigenmeshWarning, match=r"components? .*may be off.*raise n_rounds"):
        pca = em.VFedPCA(3, n_rounds=n_rounds, topology=topology).fit(parts)
    missing = 1 - pca.eigenvalues_ / true_eigenvalues(X, 3)
    assert (missing <= np.maximum(1.1 * pca.shortfalls_, 1e-3)).all()
    assert pca.shortfall_ == pca.shortfalls_.max()
