from __future__ import annotations

import networkx as nx
import pytest

from eigenmesh.errors import TopologyError
from eigenmesh.runtime.topology import build_graph

BY_NAME = ["star", "full", "ring", "grid", "random-regular"]


def names(n):
    return [f"p{i}" for i in range(n)]


@pytest.mark.parametrize("topology", BY_NAME)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 12, 30])
def test_every_name_gives_a_connected_graph_without_loops(topology, n):
    graph = build_graph(topology, names(n))
    assert sorted(graph) == list(range(n))
    assert nx.is_connected(graph)
    assert nx.number_of_selfloops(graph) == 0
    assert not graph.is_multigraph()


@pytest.mark.parametrize("topology", BY_NAME)
def test_one_party_has_no_neighbours_and_two_have_each_other(topology):
    assert list(build_graph(topology, names(1)).edges) == []
    assert [set(edge) for edge in build_graph(topology, names(2)).edges] == [{0, 1}]


def degrees(topology, n):
    graph = build_graph(topology, names(n))
    return [graph.degree(i) for i in range(n)]


def test_degrees_are_those_of_the_name():
    assert degrees("star", 5) == [4, 1, 1, 1, 1]
    assert degrees("full", 4) == [3] * 4
    assert degrees("ring", 3) == [2] * 3
    assert degrees("ring", 6) == [2] * 6
    assert degrees("random-regular", 3) == [2] * 3
    assert degrees("random-regular", 9) == [4] * 9
    assert degrees(("lattice", 4), 7) == [4] * 7


def test_grid_is_as_square_as_the_number_allows():
    assert sorted(degrees("grid", 12)) == [2] * 4 + [3] * 6 + [4] * 2
    assert sorted(degrees("grid", 9)) == [2] * 4 + [3] * 4 + [4]
    assert sorted(degrees("grid", 3)) == [1, 1, 2]
    assert sorted(degrees("grid", 7)) == [1, 1] + [2] * 5


def test_random_regular_graph_is_the_same_on_every_machine():
    one, other = (build_graph("random-regular", names(20)) for _ in range(2))
    assert sorted(map(sorted, one.edges)) == sorted(map(sorted, other.edges))


@pytest.mark.parametrize(("k", "n"), [(2, 3), (2, 6), (4, 5), (6, 20)])
def test_lattice_has_half_its_neighbours_on_each_side(k, n):
    near = set(build_graph(("lattice", k), names(n)).neighbors(0))
    assert near == {j % n for j in range(-k // 2, k // 2 + 1)} - {0}


@pytest.mark.parametrize(("k", "n"), [(3, 9), (0, 9), (-2, 9), (4, 4), (2, 2), ("4", 9), (2.0, 9)])
def test_lattice_that_does_not_fit_is_refused(k, n):
    with pytest.raises(TopologyError, match=r"lattice.*even number"):
        build_graph(("lattice", k), names(n))


@pytest.mark.parametrize("topology", ["rign", "", 3, ("ring", 2), [], object()])
def test_unknown_topology_is_refused_with_the_list(topology):
    with pytest.raises(TopologyError, match="'ring'"):
        build_graph(topology, names(4))


def test_networkx_graph_by_number():
    graph = build_graph(nx.path_graph(4), names(4))
    assert sorted(graph.edges) == [(0, 1), (1, 2), (2, 3)]


def test_networkx_graph_by_name():
    given = nx.Graph([("c", "a"), ("a", "b")])
    graph = build_graph(given, ["a", "b", "c"])
    assert {frozenset(edge) for edge in graph.edges} == {frozenset({0, 1}), frozenset({0, 2})}


def test_given_graph_is_left_as_it_was():
    given = nx.Graph([(0, 1), (1, 1)])
    assert list(build_graph(given, names(2)).edges) == [(0, 1)]
    assert nx.number_of_selfloops(given) == 1


def test_parallel_edges_are_one():
    given = nx.MultiGraph([(0, 1), (0, 1), (1, 2)])
    graph = build_graph(given, names(3))
    assert sorted(graph.edges) == [(0, 1), (1, 2)]
    assert not graph.is_multigraph()


def test_single_node_without_edges_is_a_graph_of_one_party():
    assert list(build_graph(nx.empty_graph(1), names(1))) == [0]


def with_nodes(n, *edges):
    graph = nx.empty_graph(n)
    graph.add_edges_from(edges)
    return graph


@pytest.mark.parametrize(
    ("graph", "cut_off"),
    [
        (with_nodes(3, (0, 1)), "'p2'"),
        (with_nodes(4, (0, 1), (2, 3)), "'p0', 'p1'"),
        (with_nodes(3), "'p0'"),
        (with_nodes(3, (0, 1), (2, 2)), "'p2'"),
    ],
)
def test_disconnected_graph_is_refused_and_says_who_is_cut_off(graph, cut_off):
    n = graph.number_of_nodes()
    with pytest.raises(TopologyError, match=f"{cut_off} cannot reach the rest"):
        build_graph(graph, names(n))
    named = nx.relabel_nodes(graph, dict(enumerate(names(n))))
    with pytest.raises(TopologyError, match="cannot reach the rest"):
        build_graph(named, names(n))


def test_a_directed_graph_keeps_its_directions_unless_all_links_go_both_ways():
    ring = nx.DiGraph([(0, 1), (1, 2), (2, 0)])
    assert set(build_graph(ring, names(3)).edges) == set(ring.edges)
    assert not build_graph(ring.to_undirected().to_directed(), names(3)).is_directed()
    with pytest.raises(TopologyError, match="'p1' cannot reach 'p0'"):
        build_graph(nx.DiGraph([(0, 1)]), names(2))


@pytest.mark.parametrize("nodes", [[0, 1], [0, 1, 2, 3], [1, 2, 3], ["p0", "p1", "x"]])
def test_graph_over_other_nodes_is_refused(nodes):
    with pytest.raises(TopologyError, match="party numbers 0 to 2 or the party names"):
        build_graph(nx.path_graph(nodes), names(3))
