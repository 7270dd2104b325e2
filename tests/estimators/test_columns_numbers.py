"""Columns by the front door with n_components=None or a share of the variance."""

import warnings

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import InputError, RankError
from eigenmesh.metrics import aligned_error

KERNELS = ("linear", "rbf", "poly", "cosine")


def drawn(seed, rank=None):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(25, 60)), int(rng.integers(5, 30))
    X = rng.normal(size=(n, m)) * np.geomspace(5, 0.3, m) + 1.0
    if rank is not None:
        X = X[:, :rank] @ rng.normal(size=(rank, m))
    return X, int(rng.integers(2, 5))


def fit(kpca, parts):
    with warnings.catch_warnings():
        for words in (".*where shipping", ".*are not determined", ".*is not determined"):
            warnings.filterwarnings("ignore", words, em.EigenmeshWarning)
        return kpca.fit(parts)


def pooled(X, kernel, k):
    return em.KernelPCA(k, kernel=kernel, gamma=0.003, degree=2, method="exact").fit(X)


@pytest.mark.parametrize("topology", [None, "ring"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("wanted", [None, 0.5, 0.9, 0.999])
def test_as_many_components_as_the_pooled_columns_give(kernel, wanted, topology):
    for seed in range(1 if topology else 2):
        X, parties = drawn(seed)
        parts = em.split(X, parties, by="columns")
        alone = pooled(X, kernel, wanted)
        options = {"gamma": 0.003, "degree": 2, "topology": topology}
        kpca = em.KernelPCA(wanted, kernel=kernel, **options)
        plan, kpca = em.plan(kpca, parts), fit(kpca, parts)
        k = len(kpca.eigenvalues_)
        # What is all of it, to rounding, may differ by components that are rounding.
        common = min(k, len(alone.eigenvalues_))
        assert abs(k - len(alone.eigenvalues_)) <= (0 if wanted else 3)
        np.testing.assert_allclose(
            kpca.eigenvalues_[:common],
            alone.eigenvalues_[:common],
            rtol=1e-6,
            atol=1e-9 * alone.eigenvalues_[0],
        )
        if wanted is not None:
            shares = kpca.explained_variance_ratio_
            assert shares.sum() >= wanted - 1e-9 > shares[:-1].sum() - 1e-8
        assert aligned_error(kpca.transform(X)[:, :2], alone.transform(X)[:, :2]) < 1e-5
        assert plan.floats_up >= kpca.report_.floats_up
        assert plan.rounds >= kpca.report_.rounds


@pytest.mark.parametrize("topology", [None, "ring"])
@pytest.mark.parametrize("rank", [1, 3, 7])
def test_all_components_of_linear_columns_are_as_many_as_their_rank(rank, topology):
    X, parties = drawn(rank, rank=rank)
    model = fit(em.VFedPCA(None, topology=topology), em.split(X, parties, by="columns"))
    true = np.linalg.svd(X - X.mean(0), compute_uv=False)[:rank] ** 2
    np.testing.assert_allclose(model.eigenvalues_, true, rtol=1e-8)
    assert model.components_.shape == (rank, X.shape[1])
    restored = model.inverse_transform(model.transform(X))
    np.testing.assert_allclose(restored, X, atol=1e-7 * np.abs(X).max())


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("wanted", [None, 0.6])
def test_one_message_gives_what_its_spectra_determine(kernel, wanted):
    X, parties = drawn(5)
    parts = em.split(X, parties, by="columns")
    kpca = em.OneShotKPCA(wanted, kernel=kernel, gamma=0.003, local_rank=len(X))
    plan, kpca = em.plan(kpca, parts), fit(kpca, parts)
    alone = pooled(X, kernel, wanted)
    common = min(len(kpca.eigenvalues_), len(alone.eigenvalues_))
    assert abs(len(kpca.eigenvalues_) - len(alone.eigenvalues_)) <= (0 if wanted else 3)
    np.testing.assert_allclose(
        kpca.eigenvalues_[:common], alone.eigenvalues_[:common], rtol=1e-6, atol=1e-8
    )
    assert plan.floats_up == kpca.report_.floats_up
    usual = fit(em.OneShotKPCA(wanted, kernel=kernel, gamma=0.003), parts)
    assert len(usual.eigenvalues_) >= 1


def test_what_is_no_number_is_explained():
    X, parties = drawn(1)
    parts = em.split(X, parties, by="columns")
    for wrong in (1.5, 0.0, "all", 0):
        with pytest.raises(InputError, match="n_components is"):
            em.KernelPCA(wrong, kernel="rbf").fit(parts)
    with pytest.raises(RankError, match="determine"):
        em.KernelPCA(None, kernel="linear").fit(em.split(np.ones((9, 4)), 2, by="columns"))
