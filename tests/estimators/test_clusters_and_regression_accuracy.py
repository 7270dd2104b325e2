"""What landmarks miss is measured for clusters and regression, and parties left out are named."""

import warnings

import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em


def drawn(seed):
    """Rows of some shape and scale, a kernel, and parties of any sizes."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(150, 400)), int(rng.integers(2, 12))
    X = rng.normal(size=(n, d)) * rng.uniform(0.2, 2, d)
    X[rng.random(n) < 0.5] += rng.normal(size=d) * 2
    X *= 10.0 ** rng.integers(-3, 6)
    cuts = np.sort(rng.choice(np.arange(20, n - 20), int(rng.integers(1, 4)), replace=False))
    gamma = float(rng.uniform(0.3, 3) / (2 * X.var(axis=0).sum()))
    return X, np.split(rng.permutation(n), cuts), gamma


def spectrum(X, gamma, centred):
    K = pairwise_kernels(X, metric="rbf", gamma=gamma)
    if centred:
        K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    return np.linalg.eigvalsh(K)[::-1]


def fitted(kind, k, X, pieces, gamma, **options):
    """The estimator, and the warnings that it gave."""
    parts = em.Partitioned(rows=[X[rows] for rows in pieces])
    y = np.tanh(X[:, 0] / X[:, 0].std())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if kind == "clusters":
            model = em.KernelKMeans(k, gamma=gamma, random_state=0, **options).fit(parts)
        else:
            model = em.KernelPCRegressor(k, gamma=gamma, random_state=0, **options)
            model.fit(parts, [y[rows] for rows in pieces])
    return model, [str(w.message) for w in caught]


def test_the_shortfall_is_near_the_true_one_and_more_than_accuracy_is_warned_of():
    k, near, cases = 4, [], range(15)
    for kind in ("clusters", "regression"):
        for seed in cases:
            X, pieces, gamma = drawn(seed)
            options = {"n_landmarks": 30} if seed % 3 == 0 else {}
            model, said = fitted(kind, k, X, pieces, gamma, **options)
            true = spectrum(X, gamma, kind == "regression")[:k]
            worst, estimate = (1 - model.eigenvalues_[:k] / true).max(), model.shortfall_
            assert model.shortfalls_.shape == (k,)
            assert estimate == model.shortfalls_.max()
            near.append(worst / 2 <= estimate <= 2 * worst or abs(worst - estimate) <= 0.002)
            warned = any("landmarks miss" in words for words in said)
            doubt = 2 * model.shortfall_error_
            assert warned or estimate + doubt <= model.accuracy
            assert warned or worst <= 2 * model.accuracy
    assert np.mean(near) >= 0.9


@pytest.mark.parametrize("kind", ["clusters", "regression"])
def test_landmarks_double_while_they_miss_too_much(kind):
    X, pieces, gamma = drawn(3)
    first, said = fitted(kind, 4, X, pieces, 5 * gamma, accuracy=1.0)
    assert not any("landmarks miss" in words for words in said)
    grown, _ = fitted(kind, 4, X, pieces, 5 * gamma, landmarks="uniform", accuracy=0.001)
    assert grown.shortfall_ <= 0.001
    assert len(grown.model_.landmarks) > len(first.model_.landmarks)
    for wrong in (0, 1.5, "much"):
        with pytest.raises(em.EigenmeshError, match="accuracy is .* expected"):
            fitted(kind, 4, X, pieces, gamma, accuracy=wrong)


@pytest.mark.parametrize("kind", ["clusters", "regression"])
@pytest.mark.parametrize("seed", range(2))
def test_parties_of_few_rows_are_named_with_their_share(kind, seed):
    """Most rows are in parties too small for a mean: the model would be of the others alone."""
    rng = np.random.default_rng(seed)
    size, far = int(rng.integers(1, 5)), float(rng.uniform(5, 20))
    X = rng.normal(size=(60 + 20 * size, 3))
    X[60:] += far
    pieces = np.split(np.arange(len(X)), np.arange(60, len(X), size))
    gamma = 1 / (2 * X.var(axis=0).sum())
    unheard, said = fitted(kind, 3, X, pieces, 5 * gamma, small_parties="reveal")
    assert unheard.shortfall_ > 0.1
    (words,) = [words for words in said if "landmarks miss" in words]
    assert "'party-1'" in words
    assert "fewer than 5 rows" in words
    assert "landmarks='uniform' or 'diskpca'" in words
    counted, said = fitted(kind, 3, X, pieces, 5 * gamma, landmarks="uniform")
    assert counted.shortfall_ <= counted.accuracy
    assert not any("landmarks miss" in words for words in said)


@pytest.mark.parametrize("seed", range(3))
def test_one_array_takes_rows_where_centroids_are_too_few(seed):
    X, _, gamma = drawn(seed)
    X, gamma = X[:600], 4 * gamma
    y = np.sin(X[:, 0] / X[:, 0].std())
    model = em.KernelPCRegressor(6, gamma=gamma, random_state=0).fit(X, y)
    true = spectrum(X, gamma, True)[:6]
    assert (1 - model.eigenvalues_ / true).max() <= 2 * model.accuracy
    assert model.shortfall_ <= model.accuracy


@pytest.mark.parametrize("kind", ["clusters", "regression"])
def test_the_shortfall_is_in_the_model_file(kind, tmp_path):
    X, pieces, gamma = drawn(1)
    model, _ = fitted(kind, 3, X, pieces, gamma)
    model.save(tmp_path / "model.em")
    loaded = em.load(tmp_path / "model.em")
    np.testing.assert_array_equal(loaded.shortfalls_, model.shortfalls_)
    assert (loaded.shortfall_, loaded.shortfall_error_) == (
        model.shortfall_,
        model.shortfall_error_,
    )


def test_exact_components_miss_nothing_and_others_do_not_know():
    X, pieces, gamma = drawn(2)
    exact = em.KernelKMeans(3, gamma=gamma, method="exact").fit(X)
    assert exact.shortfall_ == 0
    features = em.KernelKMeans(3, gamma=gamma, method="random-features").fit(X)
    assert features.shortfalls_ is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("topology", [None, "full"])
def test_components_that_are_hardly_apart_are_told(seed, topology):
    """Two directions of nearly one variance: which is the last one hangs on the landmarks."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(300, 10))
    Q = np.linalg.qr(G - G.mean(axis=0))[0]
    X = Q * [9.0, 4.0, 3.995, 0.5, *[0.05] * 6]
    pieces = np.array_split(np.arange(300), 3)
    options = {"kernel": "linear", "topology": topology, "n_landmarks": 8}
    if topology is None:  # else moments, which miss nothing
        options["landmarks"] = "diskpca"
    for k, close in ((1, False), (2, True)):
        _, said = fitted("regression", k, X, pieces, None, **options)
        assert any("differ by" in words for words in said) == close


@pytest.mark.filterwarnings("ignore:.*less than accuracy=1")
@pytest.mark.parametrize("door", [em.KernelKMeans, em.KernelPCRegressor])
@pytest.mark.parametrize("seed", range(4))
def test_what_landmarks_miss_of_one_array_is_read_off_its_own_rows(door, seed):
    """Of rough kernels few random features carry most: they told twice what is missing."""
    rng = np.random.default_rng(seed)
    n, center = int(rng.integers(150, 400)), door is em.KernelPCRegressor
    X = np.round(rng.normal(size=(n, 3)) * [30, 1, 1], 1)
    how = {"kernel": "laplacian", "gamma": "scale", "n_landmarks": 40, "random_state": 0}
    model = door(6, accuracy=1, **how).fit(X, np.sin(X[:, 0] / 30))
    pooled = em.KernelPCA(6, kernel="laplacian", gamma=model.gamma_, center=center).fit(X)
    missing = 1 - model.eigenvalues_[:6] / pooled.eigenvalues_
    np.testing.assert_allclose(model.shortfalls_, missing, rtol=0.25, atol=0.002)


@pytest.mark.parametrize("kind", ["clusters", "regression"])
@pytest.mark.parametrize("seed", range(6))
def test_eigenvalues_far_below_the_first_are_said_to_be_rounding(kind, seed):
    """Sums over rows that one loud column makes large tell of the others no more than so much."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 5)) * [10.0 ** rng.uniform(1, 4), 1, 1, 1, 1]
    pieces = np.split(rng.permutation(300), [100, 220])
    by_landmarks = {"landmarks": "diskpca"} if kind == "clusters" else {"method": "diskpca"}
    options = {"kernel": "poly", "degree": 2, **by_landmarks}
    model, said = fitted(kind, 4, X, pieces, 1 / 5, **options)
    shares = model.eigenvalues_[:4] / model.eigenvalues_.sum()
    is_said = any("may be rounding" in words for words in said)
    assert is_said == bool((shares < 1e-6).any())
