"""A row's weight counts as so many copies of it, and stays with the row's party."""

import warnings

import numpy as np
import pytest

import eigenmesh as em

pytestmark = pytest.mark.filterwarnings("ignore:the .* landmarks miss")
KERNELS = ("rbf", "linear", "poly", "laplacian", "cosine")


def drawn(seed, n=80):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)) * rng.uniform(0.3, 2, 5) * 10.0 ** rng.integers(-3, 4)
    weights = rng.integers(0, 5, n)
    weights[0] = 3
    return X, weights, 0.3 / X.var(axis=0).sum(), KERNELS[seed % len(KERNELS)]


def assert_same(weighted, repeated, X):
    np.testing.assert_allclose(weighted.eigenvalues_, repeated.eigenvalues_, rtol=1e-7)
    assert weighted.total_variance_ == pytest.approx(repeated.total_variance_, rel=1e-7)
    ours, theirs = weighted.transform(X), repeated.transform(X)
    signs = np.sign(np.einsum("ij,ij->j", ours, theirs))
    np.testing.assert_allclose(ours * signs, theirs, atol=1e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_whole_weights_are_copies_in_one_array(seed, center):
    X, w, gamma, kernel = drawn(seed)
    options = {"kernel": kernel, "gamma": gamma, "degree": 2, "center": center}
    for more in ({}, {"method": "diskpca", "landmarks": "uniform", "n_landmarks": 1000}):
        model = em.KernelPCA(3, **options, **more)
        weighted = model.fit(X, sample_weight=w.astype(float))
        repeated = em.KernelPCA(3, **options).fit(np.repeat(X, w, axis=0))
        assert_same(weighted, repeated, X)
    scaled = em.KernelPCA(3, **options).fit(X, sample_weight=0.1 * w)
    np.testing.assert_allclose(scaled.eigenvalues_, 0.1 * weighted.eigenvalues_, rtol=1e-7)
    fitted = em.KernelPCA(3, **options).fit_transform(X, sample_weight=w)
    np.testing.assert_allclose(
        np.abs(fitted), np.abs(weighted.transform(X)), atol=1e-5 * np.abs(fitted).max()
    )


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_components_have_the_signs_that_copies_give_them(seed, center):
    X, w, gamma, kernel = drawn(seed)
    model = em.KernelPCA(3, kernel=kernel, gamma=gamma, degree=2, center=center)
    weighted = model.fit(X, sample_weight=w).transform(X)
    repeated = model.fit(np.repeat(X, w, axis=0)).transform(X)
    assert (np.einsum("ij,ij->j", weighted, repeated) > 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_whole_weights_are_copies_at_parties(seed, tmp_path):
    X, w, gamma, kernel = drawn(seed)
    parts = em.split(X, 3, random_state=seed)
    copies = em.Partitioned(rows=[np.repeat(X[own], w[own], axis=0) for own in parts.order])
    options = {"kernel": kernel, "gamma": gamma, "degree": 2, "landmarks": "uniform"}
    model = em.KernelPCA(3, n_landmarks=1000, **options)
    weighted = model.fit(parts, sample_weight=[w[own] for own in parts.order])
    repeated = em.KernelPCA(3, n_landmarks=1000, **options).fit(copies)
    assert_same(weighted, repeated, X)
    allowed = {"rows", "gram", "moments", "counts"}
    assert set().union(*weighted.report_.reveals.values()) <= allowed
    weighted.save(tmp_path / "model.em")
    np.testing.assert_array_equal(
        em.load(tmp_path / "model.em").transform(X), weighted.transform(X)
    )


@pytest.mark.parametrize("seed", range(3))
def test_landmarks_come_near_with_weights_too(seed):
    """Centroids of the rows, components of the weighted ones; what is missing is told."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 3))
    w = rng.uniform(0, 2, 400) * (X[:, 0] > 0)
    parts = em.split(X, 4, random_state=seed)
    model = em.KernelPCA(3, kernel="rbf", gamma=0.1).fit(
        parts, sample_weight=[w[own] for own in parts.order]
    )
    exact = em.KernelPCA(3, kernel="rbf", gamma=0.1).fit(X, sample_weight=w)
    np.testing.assert_allclose(model.eigenvalues_, exact.eigenvalues_, rtol=0.02)
    assert model.total_variance_ >= exact.total_variance_ * (1 - 1e-9)
    assert model.total_variance_ - model.residual_error_ <= exact.total_variance_ * (1 + 1e-9)
    assert model.shortfalls_.shape == (3,)
    assert "rows" not in set().union(*model.report_.reveals.values())


def test_weights_do_not_stay_in_the_store_nor_leave():
    X, w, gamma, _ = drawn(0)
    with em.federation(em.split(X, 2, random_state=0)) as fed:
        sizes = [len(own) for own in em.split(X, 2, random_state=0).order]
        em.KernelPCA(2, kernel="rbf", gamma=gamma).fit(
            fed, sample_weight=[np.ones(n) for n in sizes]
        )
        assert not any("weight" in key for site in fed.local_sites().values() for key in site.store)


@pytest.mark.parametrize("seed", range(3))
def test_what_takes_no_weights_says_so(seed):
    X, w, gamma, _ = drawn(seed)
    columns, parts = em.split(X, 2, by="columns"), em.split(X, 2, random_state=0)
    weights = [w[own] for own in parts.order]
    kpca = em.KernelPCA(2, kernel="rbf", gamma=gamma)
    for source, own, options in (
        (columns, w, {}),
        (parts, weights, {"topology": "full"}),
        (parts, weights, {"method": "sketching-pca"}),
        (iter([X]), w, {}),
        (X, w, {"landmarks": X[:10]}),
    ):
        model = em.KernelPCA(2, kernel="rbf", gamma=gamma, **options)
        with pytest.raises(em.EigenmeshError, match="sample_weight is given.*None is expected"):
            model.fit(source, sample_weight=own)
    with pytest.raises(em.EigenmeshError, match="'party-1'.*weights"):
        kpca.fit(parts, sample_weight=[weights[0], weights[1][:-1]])
    for wrong in (w[:-1], -1.0 * w, np.zeros(len(X)), np.full(len(X), np.nan)):
        with pytest.raises(em.EigenmeshError, match="sample_weight"):
            kpca.fit(X, sample_weight=wrong)


def weights_drawn(rng, X):
    """Of all kinds: a heavy tail, many or one that weighs much, far apart, none."""
    n = len(X)
    kinds = (
        lambda: np.where(X[:, 0] > np.quantile(X[:, 0], 0.97), 30.0, 1.0),
        lambda: rng.choice([1.0, 1.0, 1.0, 50.0], size=n),
        lambda: np.where(np.arange(n) == 5, 300.0, 1.0),
        lambda: np.exp(1.5 * rng.normal(size=n)),
        lambda: rng.uniform(0, 1e-3, n) * (rng.random(n) < 0.5),
    )
    return kinds[int(rng.integers(len(kinds)))]()


def claimed_and_missing(seed):
    """What a weighted fit says is missing, what is, and whether it warns."""
    rng = np.random.default_rng((164, seed))
    X = rng.normal(size=(300, int(rng.integers(2, 8))))
    w, gamma, k = weights_drawn(rng, X), rng.choice([0.02, 0.05, 0.1]), int(rng.integers(1, 4))
    options = {"kernel": "rbf", "gamma": float(gamma)}
    exact = em.KernelPCA(k, **options, method="exact").fit(X, sample_weight=w)
    model = em.KernelPCA(k, **options, method="diskpca", random_state=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if seed % 3 == 0:
            model.fit(X, sample_weight=w)
        else:
            parts = em.Partitioned(rows=np.split(X, 3))
            with em.federation(parts, secure=seed % 3 == 2) as fed:
                model.fit(fed, sample_weight=np.split(w, 3))
    missing = float((1 - model.eigenvalues_ / exact.eigenvalues_).max())
    return model.shortfall_, missing, any("landmarks miss" in str(own.message) for own in caught)


def test_what_is_missing_of_weighted_rows_is_told():
    """By the variance outside alone claims were too small in 31 such fits of 72, 12 silent."""
    fits = [claimed_and_missing(seed) for seed in range(30)]
    near = [true / 2 <= own <= 2 * true or abs(own - true) < 0.002 for own, true, _ in fits]
    assert np.mean(near) >= 0.9
    assert not [(own, true) for own, true, warns in fits if true > 0.0105 and not warns]
