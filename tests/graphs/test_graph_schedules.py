"""Schedules of what nodes exchange: just what runs make, and bounds for what is left of a graph."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from eigenmesh.graphs.consensus import (
    MixingParty,
    mixes_on,
    mixing_rounds,
    rounds_in,
    rounds_over,
)
from eigenmesh.graphs.shared_centroids import CentroidNode, spreading
from eigenmesh.numerics.mixing import lossy_mixes, lossy_mixes_of_parts
from eigenmesh.runtime.schedule import Parties, Scope, columns, forecast
from eigenmesh.runtime.topology import mark_averaging, mark_losses


def drawn_graph(seed, n=7):
    rng = np.random.default_rng(seed)
    while True:
        graph = nx.gnp_random_graph(n, 0.4, seed=int(rng.integers(10_000)))
        if nx.is_connected(graph):
            return graph


def parts_of(graph):
    """Every connected part, of one node and more."""
    for size in range(1, len(graph) + 1):
        for nodes in combinations(graph, size):
            part = graph.subgraph(nodes)
            if nx.is_connected(part):
                yield part


def scope_on(graph, on_loss, averaging="gossip"):
    names = tuple(f"party-{i}" for i in graph)
    edges = tuple(sorted(graph.edges))
    return Scope(names, "rows", on_loss, edges=edges, averaging=averaging)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_left_of_a_graph_mixes_as_often_as_the_schedule_lets_it(seed):
    graph = mark_losses(drawn_graph(seed), True)
    scope = scope_on(graph, "survivors")
    usual, longest = rounds_in(scope)
    assert usual == rounds_over(graph)
    for accuracy in (1e-12, 1e-3, 0.25):
        fewest, most = lossy_mixes_of_parts(graph, accuracy)
        counts = [lossy_mixes(part, accuracy) for part in parts_of(graph)]
        assert fewest <= min(counts)
        assert max(counts) <= most
        for n_left in range(len(graph)):
            smaller = [part for part in parts_of(graph) if len(part) <= len(graph) - n_left]
            counts = [lossy_mixes(part, accuracy) for part in smaller]
            assert max(counts, default=0) <= lossy_mixes_of_parts(graph, accuracy, n_left)[1]
    assert max(rounds_over(part) for part in parts_of(graph)) <= longest


@pytest.mark.parametrize("graph", [nx.path_graph(5), nx.star_graph(6), nx.complete_graph(4)])
def test_where_nothing_may_be_lost_the_count_is_exact(graph):
    mixes = mixing_rounds(scope_on(graph, "raise"), MixingParty, 3)
    mixes_by_gossip = mixes_on(mark_averaging(graph, "gossip"))
    assert mixes.fewest == mixes.most == mixes.usual == mixes_by_gossip


@pytest.mark.parametrize("averaging", ["tree", "gossip"])
@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
@pytest.mark.parametrize("seed", range(4))
def test_every_centroid_is_planned_to_reach_every_node_once(seed, on_loss, averaging):
    graph = mark_losses(drawn_graph(seed), on_loss != "raise")
    counts = np.random.default_rng(seed).integers(0, 5, len(graph)).tolist()
    scope = scope_on(graph, on_loss, averaging)
    parties = Parties(scope.parties, ((10, 3),) * len(graph), graph)
    node = spreading(scope, CentroidNode, lambda parties: counts, sum(counts), columns)
    plan = forecast(node, parties)
    assert plan.floats_up == 3 * sum(counts) * (len(graph) - 1)
    rounds = 2 * parties.tree.height if averaging == "tree" else 3 * rounds_over(graph)
    assert plan.rounds == rounds + (on_loss != "raise")
