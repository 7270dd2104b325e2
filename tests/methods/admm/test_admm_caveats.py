"""ADMMKPCA says where its answer is not that of all rows, and keeps noise on all that leaves."""

from __future__ import annotations

import warnings

import networkx as nx
import numpy as np
import pytest
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em
from eigenmesh.methods.admm.neighbourhood import STORE


def fitted(estimator, source):
    """The fit, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", em.CostWarning)
        estimator.fit(source)
    return estimator, [str(w.message) for w in caught]


def clusters(rng, n, d=4):
    """Rows around a few centres, sorted by centre."""
    centres = rng.normal(size=(5, d)) * 3
    return centres[np.sort(rng.integers(5, size=n))] + rng.normal(size=(n, d))


def hard_case(kind, rng):
    if kind == "long path":
        parts = em.split(clusters(rng, 48), 12, random_state=int(rng.integers(99)))
        return parts, nx.path_graph(12)
    if kind == "sorted path":
        return em.Partitioned(rows=np.array_split(clusters(rng, 80), 8)), nx.path_graph(8)
    X = rng.permutation(clusters(rng, 83))
    return em.Partitioned(rows=np.split(X, np.cumsum(rng.integers(1, 3, size=3)))), "ring"


@pytest.mark.parametrize("kind", ["long path", "sorted path", "single rows"])
@pytest.mark.parametrize("seed", range(2))
def test_a_node_far_from_the_pooled_component_is_said(kind, seed):
    rng = np.random.default_rng([seed, len(kind)])
    parts, graph = hard_case(kind, rng)
    X = np.vstack(parts.parts)
    how = {"kernel": "rbf", "gamma": 0.05, "topology": graph, "reference": X}
    kpca, words = fitted(em.ADMMKPCA(1, **how), parts)
    assert kpca.consensus_similarity_.min() > 0.95 or words
    for told in words:
        assert told in kpca.report_.notes


def test_among_hard_cases_some_nodes_are_named_as_moving():
    rng = np.random.default_rng(4)
    parts, graph = hard_case("sorted path", rng)
    _, words = fitted(em.ADMMKPCA(1, kernel="rbf", gamma=0.05, topology=graph), parts)
    assert any("still moves" in told and "'party-" in told for told in words)


@pytest.mark.parametrize("seed", range(4))
def test_alike_nodes_with_enough_neighbours_come_to_rest_without_a_word(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(160, 5)) * [4, 2, 1, 1, 1]
    parts = em.split(X, 5, random_state=seed)
    kpca, words = fitted(em.ADMMKPCA(1, topology=("lattice", 2), reference=X), parts)
    assert words == []
    assert kpca.consensus_similarity_.min() > 0.999


@pytest.mark.parametrize("seed", range(6))
def test_eigenvalues_are_not_above_the_pooled_ones_without_a_word(seed):
    rng = np.random.default_rng(seed)
    d, kernel = int(rng.integers(2, 12)), ("laplacian", "rbf")[seed % 2]
    X = rng.normal(size=(100, d)) * rng.uniform(0.3, 3, size=d)
    X[:50] += rng.uniform(0, 3)
    parts = em.split(X, 4, random_state=seed)
    kpca, words = fitted(em.ADMMKPCA(1, topology="ring", kernel=kernel), parts)
    K = pairwise_kernels(X, metric=kernel, gamma=kpca.gamma_)
    H = np.eye(len(K)) - 1 / len(K)
    most = np.linalg.eigvalsh(H @ K @ H)[-1]
    assert kpca.eigenvalues_[0] <= 1.25 * most, "what the origin misses is taken off"
    assert kpca.eigenvalues_[0] <= 1.10 * most or words
    pairs = zip(parts.names, parts.parts, strict=True)
    scores = [kpca.node_models_[name].transform(part) for name, part in pairs]
    off = abs(np.vstack(scores).mean()) / np.vstack(scores).std()
    assert off < 1e-6, "scores of all rows have mean 0, each by its own node's model"


def noisy(fed, parts):
    stores = [fed.local_sites()[name].store[STORE] for name in parts.names]
    return [store["rows"][i] for i, store in enumerate(stores)], stores


@pytest.mark.parametrize(("topology", "seed"), [("ring", 0), ("full", 1), ("star", 0)])
def test_with_noise_the_answer_is_that_of_the_noisy_rows(topology, seed):
    rng = np.random.default_rng(seed)
    parts = em.split(rng.normal(size=(60, 6)) * [5, 2, 1, 1, 1, 1] + 7, 4, random_state=seed)
    deviation = float(rng.uniform(0.2, 2))
    with em.federation(parts, topology=topology) as fed:
        kpca = em.ADMMKPCA(1, row_noise=deviation, n_iterations=60)
        fitted(kpca, fed)
        X = np.vstack(noisy(fed, parts)[0])
    assert np.std(X - np.vstack(parts.parts)) == pytest.approx(deviation, rel=0.2)
    centred = X - X.mean(axis=0)
    assert kpca.total_variance_ == pytest.approx(np.sum(centred**2), rel=1e-6)
    most = np.linalg.eigvalsh(centred.T @ centred)[-1]
    assert kpca.eigenvalues_[0] == pytest.approx(most, rel=5e-3)


@pytest.mark.parametrize("seed", range(3))
def test_no_centroid_without_noise_leaves_beside_noisy_rows(seed):
    rng = np.random.default_rng(seed)
    parts = em.split(rng.uniform(size=(60, 3)), 4, random_state=seed)
    with em.federation(parts, topology="ring") as fed:
        how = {"kernel": "rbf", "gamma": 1e-5, "row_noise": 100.0, "random_state": seed}
        fitted(em.ADMMKPCA(1, **how), fed)
        rows, stores = noisy(fed, parts)
        again = em.ADMMKPCA(1, **how)
        fitted(again, fed)
        assert all(map(np.array_equal, rows, noisy(fed, parts)[0])), "or the noise averages out"
    origin = stores[0]["origin"].points
    assert np.abs(origin).max(axis=1).min() > 5, "means of 15 rows have noise of about 26"
