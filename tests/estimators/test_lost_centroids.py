"""Centroids that get lost on links: no healthy node is out, and all have the same landmarks."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from tests.graph_faults import federation_over

import eigenmesh as em
from eigenmesh.errors import PartyLost
from eigenmesh.graphs.consensus import mixing
from eigenmesh.graphs.shared_centroids import spread, spreading
from eigenmesh.methods.admm.neighbourhood import NeighbourhoodSetup, RowNeighbour
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import ask, at_most, columns, enlist, sequence


def drawn(rng, n=5):
    while True:
        graph = nx.gnp_random_graph(n, 0.5, seed=int(rng.integers(1000)))
        if nx.is_connected(graph):
            break
    parts = em.split(rng.normal(size=(30 * n, 3)), n, law="power", exponent=0.3, random_state=0)
    return parts, graph


def schedule(scope, setup):
    return sequence(
        enlist(RowNeighbour, setup),
        ask(RowNeighbour.begin_centroids),
        spreading(scope, RowNeighbour, lambda parties: [2] * len(parties.names), 10, columns),
        ask(RowNeighbour.tell_centroids, h=at_most(len(scope.parties))),
    )


@protocol("test-spread", roles=(RowNeighbour,), schedule=schedule)
def only_spread(nodes, setup):
    nodes.enlist(RowNeighbour, setup)
    nodes.ask(RowNeighbour.begin_centroids)
    spread(nodes, RowNeighbour)
    return nodes.ask(RowNeighbour.tell_centroids)


def setup_for(fed):
    kernel = {"kernel": "rbf", "gamma": 0.1, "degree": 3.0, "coef0": 1.0}
    own = {"row_noise": 0.0, "origin": "landmarks", "n_centroids": 2, "seed": 0}
    return NeighbourhoodSetup(**mixing(fed), **kernel, **own)


@pytest.mark.parametrize("on_loss", ["survivors", "reuse"])
@pytest.mark.parametrize("seed", range(3))
def test_all_nodes_end_with_the_same_landmarks_whatever_is_lost(on_loss, seed):
    rng = np.random.default_rng(seed)
    parts, graph = drawn(rng)
    share = float(rng.uniform(0.2, 0.7))
    with federation_over(parts, graph, on_loss=on_loss, max_age=2, loses=share, seed=seed) as fed:
        run = fed.run(only_spread, setup_for(fed))
    assert run.parties == parts.names, "no healthy node is out"
    assert len({reply.digest for reply in run.value}) == 1
    assert all(reply.owners.tolist() == list(range(5)) for reply in run.value)


@pytest.mark.parametrize("seed", range(3))
def test_a_link_that_is_dead_in_one_direction_expels_nobody(seed):
    rng = np.random.default_rng(seed)
    parts, graph = drawn(rng)
    i, j = list(nx.Graph([*graph.edges, (0, 1), (1, 2), (2, 0)]).edges)[seed % 3]
    graph.add_edges_from([(0, 1), (1, 2), (2, 0), (i, j)])
    dead = [em.Fault("lose", parts.names[i], to=parts.names[j])]
    options = {"topology": graph, "on_loss": "reuse", "max_age": 2, "faults": dead}
    with em.federation(parts, **options) as fed:
        run = fed.run(only_spread, setup_for(fed))
    assert run.parties == parts.names
    assert len({reply.digest for reply in run.value}) == 1


def test_a_fit_over_links_that_lose_half_of_all_centroids_is_that_without_losses():
    rng = np.random.default_rng(0)
    parts = em.split(rng.normal(size=(90, 3)), 3, random_state=0)
    estimator = em.GossipKPCA(1, kernel="rbf", gamma=0.1, n_features=12, n_rounds=10)
    expected = estimator.fit(parts).eigenvalues_
    faults = [em.Fault("lose", to=name, share=0.3, seed=i) for i, name in enumerate(parts.names)]
    with em.federation(parts, topology="ring", on_loss="survivors", faults=faults) as fed:
        lossy = estimator.fit(fed)
    assert lossy.nodes_ == parts.names
    np.testing.assert_allclose(lossy.eigenvalues_, expected, rtol=1e-6)


def test_a_node_that_nothing_reaches_is_named():
    parts = em.split(np.random.default_rng(0).normal(size=(40, 3)), 4, random_state=0)
    deaf = [em.Fault("lose", to="party-2")]
    options = {"topology": "ring", "on_loss": "survivors", "faults": deaf}
    words = "nothing of 'party-.' has come to 'party-2'"
    with em.federation(parts, **options) as fed, pytest.raises(PartyLost, match=words):
        fed.run(only_spread, setup_for(fed))
