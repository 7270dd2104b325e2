"""Estimator and federation agree on the graph, whatever its edges are annotated with."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.errors import TopologyError
from eigenmesh.numerics.mixing import lossy_mixes

N = 7
NAMED = ["star", "full", "ring", "random-regular", ("lattice", 4), "grid"]
ROWS = em.split(np.random.default_rng(0).normal(size=(70, 8)), N, random_state=0)
COLUMNS = em.split(np.random.default_rng(1).normal(size=(40, 14)), N, by="columns")
OF_ROWS = {
    "gossip": lambda t: em.GossipKPCA(2, topology=t),
    "admm": lambda t: em.ADMMKPCA(1, topology=t, n_iterations=1),
    "kernel-pca": lambda t: em.KernelPCA(2, topology=t),
    "kernel-kmeans": lambda t: em.KernelKMeans(2, topology=t),
    "regressor": lambda t: em.KernelPCRegressor(2, topology=t),
}
OF_COLUMNS = {
    "dpca": lambda t: em.DPCA(1, topology=t, n_iterations=1),
    "vfed-pca": lambda t: em.VFedPCA(1, topology=t),
    "vfed-akpca": lambda t: em.VFedAKPCA(1, topology=t),
    "kernel-pca": lambda t: em.KernelPCA(1, topology=t),
    "kernel-kmeans": lambda t: em.KernelKMeans(2, topology=t),
}
CASES = [(ROWS, build) for build in OF_ROWS.values()]
CASES += [(COLUMNS, build) for build in OF_COLUMNS.values()]
IDS = [f"rows-{name}" for name in OF_ROWS] + [f"columns-{name}" for name in OF_COLUMNS]


def drawn_graph(rng):
    while True:
        graph = nx.gnp_random_graph(N, 0.5, seed=int(rng.integers(1000)))
        if nx.is_connected(graph):
            return graph


def drawn_topology(rng):
    choices = [*NAMED, drawn_graph(rng)]
    return choices[rng.integers(len(choices))]


def fit(estimator, fed, parts):
    y = [np.zeros(len(part)) for part in parts.parts] if hasattr(estimator, "alpha") else None
    return estimator.fit(fed, y) if y is not None else estimator.fit(fed)


@pytest.mark.parametrize(("parts", "build"), CASES, ids=IDS)
@pytest.mark.parametrize("seed", range(3))
def test_another_graph_than_the_federation_s_is_refused_in_fit_and_plan(parts, build, seed):
    rng = np.random.default_rng([seed, len(str(build))])
    own, other = drawn_topology(rng), drawn_topology(rng)
    with em.federation(parts, topology=own) as fed:
        same = nx.utils.graphs_equal(
            nx.Graph(fed.graph.edges), nx.Graph(em.federation(parts, topology=other).graph.edges)
        )
        if same:
            return
        for act in (lambda e: fit(e, fed, parts), lambda e: em.plan(e, fed)):
            with pytest.raises(TopologyError, match="opened on another graph"):
                act(build(other))
    with em.federation(parts) as fed:
        for act in (lambda e: fit(e, fed, parts), lambda e: em.plan(e, fed)):
            with pytest.raises(TopologyError, match="opened with a coordinator"):
                act(build(other))


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")  # a round is not enough
@pytest.mark.parametrize("seed", range(6))
def test_the_same_graph_in_another_form_passes(seed):
    rng = np.random.default_rng(seed)
    topology = drawn_topology(rng)
    with em.federation(ROWS, topology=topology) as fed:
        edges = [(j, i) for i, j in fed.graph.edges]
        rng.shuffle(edges)
        by_number = nx.Graph(edges)
        by_name = nx.Graph([(ROWS.names[i], ROWS.names[j]) for i, j in edges])
        for graph in (topology, by_number, by_name, "auto"):
            estimator = em.GossipKPCA(2, topology=graph, n_features=12, n_rounds=1)
            expected = em.plan(estimator, fed)
            assert estimator.fit(fed).report_.floats_up == expected.floats_up


@pytest.mark.parametrize(
    ("parts", "estimator"),
    [
        (ROWS, em.DisKPCA(2)),
        (ROWS, em.SketchingPCA(2)),
        (ROWS, em.FedKernelKMeans(2)),
        (COLUMNS, em.OneShotKPCA(2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_who_needs_a_coordinator_does_not_make_one_of_a_graph(parts, estimator):
    with em.federation(parts, topology="ring") as fed:
        for act in (estimator.fit, lambda fed: em.plan(estimator, fed)):
            with pytest.raises(TopologyError, match="needs a coordinator"):
                act(fed)


def weighted(graph, rng):
    for edge in graph.edges:
        graph.edges[edge]["weight"] = float(rng.choice([0.0, 0.01, 1.0, 7.0, 1000.0]))
    return graph


@pytest.mark.filterwarnings("ignore:the iteration has not come to rest")
@pytest.mark.parametrize("on_loss", ["raise", "survivors", "reuse"])
@pytest.mark.parametrize("seed", range(3))
def test_weights_of_edges_change_nothing(on_loss, seed):
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(4, 0.9, seed=seed)
    parts = ROWS.select(ROWS.names[:4])
    found = []
    for topology in (nx.Graph(graph.edges), weighted(graph, rng)):
        with em.federation(parts, topology=topology, on_loss=on_loss) as fed:
            found.append(em.GossipKPCA(2, kernel="rbf", gamma=0.05, n_rounds=2).fit(fed))
    assert found[0].report_.floats_up == found[1].report_.floats_up
    np.testing.assert_array_equal(found[0].eigenvalues_, found[1].eigenvalues_)
    models = list(found[1].node_models_.values())
    X = np.vstack(parts.parts)
    for model in models[1:]:
        np.testing.assert_allclose(model.transform(X), models[0].transform(X), atol=1e-7)


def test_a_weighted_graph_of_networkx_mixes_as_often_as_without_weights():
    graph = nx.karate_club_graph()
    assert 100 < lossy_mixes(graph) == lossy_mixes(nx.Graph(graph.edges)) < 600
