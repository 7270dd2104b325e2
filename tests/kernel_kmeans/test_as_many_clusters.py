"""Drawn cases of few rows and many clusters: as many come out as rows differ, in every mode."""

import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.cluster import KMeans

import eigenmesh as em
from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.metrics import feature_space_inertia

MODES = {
    "means": {},
    "means of k components": {"n_eigenvectors": "k"},
    "coreset": {"kmeans": "coreset"},
    "lloyd": {"kmeans": "lloyd"},
    "rows as landmarks": {"landmarks": "uniform"},
    "cosine": {"kernel": "cosine"},
    "rbf": {"kernel": "rbf", "gamma": 0.5},
    "masked": {"secure": True},
    "masked, k components": {"secure": True, "n_eigenvectors": "k"},
    "masked, few landmarks": {"secure": True, "landmarks": "rpcholesky"},
    "ring": {"topology": "ring"},
    "tree, k components": {"topology": "star", "n_eigenvectors": "k"},
    "columns": {"by": "columns"},
    "array": {"by": "array"},
}
AS_GOOD = [name for name in MODES if "k components" not in name]  # which search no better clusters
WITHIN = 1.05


def drawn(seed):
    """Rows of 1 to 10 columns, all different or some alike; parties; and clusters to ask for."""
    rng = np.random.default_rng([seed, 7])
    n, d = int(rng.integers(25, 70)), int(rng.choice([2, 3, 10]))
    alike = rng.normal(size=(int(rng.integers(3, 15)), d))
    kinds = (
        lambda: rng.normal(size=(n, d)),
        lambda: 1.0 * (rng.random((n, d)) < 0.3),
        lambda: alike[rng.integers(0, len(alike), n)],
    )
    return kinds[seed % 3](), int(rng.integers(2, 6)), int(rng.integers(3, 14))


@cache
def pooled(seed, kernel):
    """The kernel matrix, how many of its rows differ, and the least inertia."""
    X, _, k = drawn(seed)
    K = kernel_matrix(X, kernel)
    values, vectors = np.linalg.eigh(K)
    large = values > 1e-12 * values[-1]
    points = np.round(vectors[:, large] * np.sqrt(values[large]), 9)
    different = len(np.unique(points, axis=0))
    best = KMeans(min(k, different), n_init=30, random_state=0).fit(points).inertia_
    return K, different, best


def kernel_matrix(X, kernel):
    if kernel == "rbf":
        squares = np.square(X[:, None] - X).sum(axis=2)
        return np.exp(-MODES["rbf"]["gamma"] * squares)
    if kernel == "cosine":
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        X = X / np.where(norms > 0, norms, 1.0)
    return X @ X.T


def fitted(X, n_parties, k, how):
    """Labels of all rows, and the words of the warnings of clusters and of landmarks."""
    how = {"kernel": "linear", **how}
    by, secure = how.pop("by", "rows"), how.pop("secure", False)
    if how.get("n_eigenvectors") == "k":
        how["n_eigenvectors"] = k
    model = em.KernelKMeans(k, random_state=0, **how)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if by == "array":
            labels = model.fit(X).labels_
        elif by == "columns":
            parts = em.split(X, min(n_parties, X.shape[1]), by="columns", random_state=0)
            labels = model.fit(parts).labels_
        else:
            parts = em.split(X, n_parties, random_state=0)
            with em.federation(parts, secure=secure, topology=how.get("topology")) as fed:
                model.fit(fed)
            labels = np.empty(len(X), int)
            for rows, own in zip(parts.order, model.labels_, strict=True):
                labels[rows] = own
    words = [str(one.message) for one in caught if issubclass(one.category, EigenmeshWarning)]
    return np.asarray(labels), words


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", MODES)
def test_as_many_clusters_come_out_as_rows_differ(mode, seed):
    X, n_parties, k = drawn(seed)
    labels, words = fitted(X, n_parties, k, MODES[mode])
    K, different, best = pooled(seed, MODES[mode].get("kernel"))
    assert len(np.unique(labels)) == min(k, different)
    if different < k:
        assert any(f"{different} came out: no more rows differ" in one for one in words)
        assert any(f"pass n_clusters={different}" in one for one in words)
    if mode in AS_GOOD and not any("landmarks miss" in one for one in words):
        assert feature_space_inertia(K, labels) <= WITHIN * best + 1e-9 * np.trace(K)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("topology", [None, "ring"])
def test_points_that_lie_evenly_around_their_mean_are_parted(topology, seed):
    """Whose means of five, and whose rows weighed by how far they are, are all at one place."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(int(rng.integers(1, 4)), 3))
    X = np.tile(np.vstack([base, -base]), (6, 1))
    parts = em.Partitioned(rows=[X, X.copy()])
    k = 2 * len(base)
    model = em.KernelKMeans(
        k, kernel="linear", topology=topology, n_eigenvectors=3, random_state=seed
    ).fit(parts)
    assert len(np.unique(np.concatenate(model.labels_))) == k
    assert model.inertia_ == pytest.approx(0.0, abs=1e-9)


def test_without_a_mean_of_five_rows_clusters_begin_from_the_mean_of_all():
    """Parties of fewer rows that are taken by name had met a refusal, after that remedy."""
    X = np.random.default_rng(0).normal(size=(20, 3))
    parts = em.split(X, 6, random_state=0)
    model = em.KernelKMeans(3, kernel="linear", small_parties="reveal", random_state=0).fit(parts)
    best = KMeans(3, n_init=30, random_state=0).fit(X).inertia_
    assert model.inertia_ <= WITHIN * best


@pytest.mark.parametrize("topology", [None, "ring"])
def test_few_groups_of_rows_are_said_with_what_would_help(topology):
    X = np.random.default_rng(0).normal(size=(60, 3))
    how = {"kernel": "linear", "kmeans": "groups", "topology": topology, "random_state": 0}
    parts = em.split(X, 4, random_state=0)
    with pytest.warns(EigenmeshWarning, match="60 rows make at most 12 groups.*n_clusters=2"):
        em.KernelKMeans(7, **how).fit(parts)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EigenmeshWarning)
        warnings.simplefilter("ignore", em.CostWarning)
        em.KernelKMeans(2, **how).fit(parts)


@pytest.mark.parametrize("topology", [None, "ring"])
def test_no_group_at_all_is_refused_in_words_that_fit(topology):
    parts = em.split(np.random.default_rng(0).normal(size=(20, 3)), 6, random_state=0)
    how = {"kernel": "linear", "kmeans": "groups", "small_parties": "reveal"}
    with warnings.catch_warnings(), pytest.raises(InputError, match="rows enough for a group"):
        warnings.simplefilter("ignore", EigenmeshWarning)  # on a graph features are random
        em.KernelKMeans(3, topology=topology, random_state=0, **how).fit(parts)


@pytest.mark.filterwarnings("ignore:eigenvalues .* differ")
@pytest.mark.parametrize("seed", range(5))
def test_nodes_keep_what_they_have_where_no_cluster_can_be_parted(seed):
    """Parts of whole clusters may have fewer points than these: 3 starts had become 2 clusters."""
    rng = np.random.default_rng(seed)
    X = (20 * rng.normal(size=(3, 5)))[rng.integers(3, size=300)]
    model = em.KernelKMeans(5, gamma=0.05, topology="ring", random_state=0)
    with pytest.warns(EigenmeshWarning, match="3 came out: no more rows differ"):
        model.fit(em.split(X, 3, random_state=0))
    assert model.inertia_ == pytest.approx(0.0, abs=1e-8)
