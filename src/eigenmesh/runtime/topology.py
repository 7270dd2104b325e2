"""Graphs on which parties exchange messages without a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import networkx as nx

from eigenmesh.errors import TopologyError

Topology = Any  # a name, ('lattice', k) or a networkx graph, directed for push-sum
AUTO, USUAL = "auto", "ring"  # that of an open federation, and what it is if none is open
_LOSSY = "eigenmesh: messages may be lost"  # an attribute of the graph of an open federation
_AVERAGING = "eigenmesh: how values are averaged"  # likewise
_TOLERANCE = "eigenmesh: what differences mixing may leave"  # likewise
TREE, GOSSIP, PUSH_SUM = "tree", "gossip", "push-sum"
AVERAGING = (TREE, GOSSIP, PUSH_SUM)
ROUGHEST = 1e-5  # with more, nodes no longer take what they have for the same
USUAL_TOLERANCE = 1e-12  # of the differences between nodes, that mixing leaves
Averaging = str | tuple[str, float]  # how nodes of a graph average, perhaps with a tolerance
Links = tuple[tuple[int, int], ...]


def build_graph(topology: Topology, names: Sequence[str], seed: int = 0) -> nx.Graph:
    """The graph on nodes 0 … n-1 for a topology given by name or as a networkx graph.

    >>> sorted(build_graph("ring", ["a", "b", "c", "d"]).edges)
    [(0, 1), (0, 3), (1, 2), (2, 3)]
    >>> sorted(build_graph(("lattice", 4), list("abcdefg")).neighbors(0))
    [1, 2, 5, 6]
    """
    n = len(names)
    if isinstance(topology, nx.Graph):
        graph = _relabelled(topology, names)
    else:
        graph = _named(topology, n, seed)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))  # a node is not its own neighbour
    require_connected(graph, names)
    return graph


def same_graph(one: nx.Graph, other: nx.Graph) -> bool:
    """Whether the same nodes are neighbours; what edges are annotated with does not count.

    >>> same_graph(nx.cycle_graph(4), nx.path_graph(4))
    False
    """
    links = [set(graph.to_directed(as_view=True).edges) for graph in (one, other)]
    return set(one) == set(other) and links[0] == links[1]


def graph_to_tree(graph: nx.Graph) -> dict[str, Any]:
    """A graph as it goes into a file."""
    tree = {"nodes": list(graph.nodes), "edges": [list(edge) for edge in graph.edges]}
    return {**tree, "directed": True} if graph.is_directed() else tree


def is_graph_tree(tree: Any) -> bool:
    """Whether it is what `graph_to_tree` gives."""
    return isinstance(tree, dict) and set(tree) - {"directed"} == {"nodes", "edges"}


def graph_from_tree(tree: dict[str, Any]) -> nx.Graph:
    """The graph that `graph_to_tree` took apart.

    >>> graph_from_tree(graph_to_tree(nx.DiGraph([(1, 0)]))).edges
    OutEdgeView([(1, 0)])
    """
    graph = nx.DiGraph() if tree.get("directed") else nx.Graph()
    graph.add_nodes_from(tree["nodes"])
    graph.add_edges_from(tree["edges"])
    return graph


def renumbered(graph: nx.Graph) -> nx.Graph:
    """The same graph with its nodes numbered from 0, in their order.

    >>> list(renumbered(nx.path_graph(4).subgraph([1, 2, 3])).edges)
    [(0, 1), (1, 2)]
    """
    return nx.convert_node_labels_to_integers(graph, ordering="sorted")


def mark_losses(graph: nx.Graph, lossy: bool) -> nx.Graph:
    """The graph, with a mark that messages on it may be lost: more are then sent, and planned."""
    graph.graph[_LOSSY] = lossy
    return graph


def is_lossy(graph: nx.Graph) -> bool:
    """Whether messages may be lost without ending the run.

    >>> is_lossy(nx.path_graph(2))
    False
    """
    return bool(graph.graph.get(_LOSSY, False))


def mark_averaging(graph: nx.Graph, averaging: Averaging) -> nx.Graph:
    """The graph, with a mark of how values are averaged on it."""
    graph.graph[_AVERAGING], graph.graph[_TOLERANCE] = way_and_tolerance(averaging)
    return graph


def tolerance_on(graph: nx.Graph) -> float:
    """Which share of the differences between nodes mixing may leave."""
    return float(graph.graph.get(_TOLERANCE, USUAL_TOLERANCE))


def averaging_on(graph: nx.Graph) -> str:
    """How values are averaged.

    >>> averaging_on(nx.path_graph(2))
    'tree'
    """
    return str(graph.graph.get(_AVERAGING, TREE))


def goes_one_way(graph: nx.Graph) -> bool:
    """Whether any link has no other back.

    >>> goes_one_way(nx.path_graph(3)), goes_one_way(nx.DiGraph([(0, 1), (1, 2), (2, 0)]))
    (False, True)
    """
    return graph.is_directed() and any((j, i) not in graph.edges for i, j in graph.edges)


def links_of(graph: nx.Graph) -> Links:
    """Who is near whom: by push-sum who sends to whom, else each pair once.

    >>> links_of(nx.path_graph(3)), links_of(mark_averaging(nx.path_graph(2), PUSH_SUM))
    (((0, 1), (1, 2)), ((0, 1), (1, 0)))
    """
    if averaging_on(graph) == PUSH_SUM:
        return tuple(sorted(graph.to_directed(as_view=True).edges))
    return tuple(sorted((min(edge), max(edge)) for edge in graph.edges))


def senders_to(graph: nx.Graph, node: int) -> list[int]:
    """Who sends to a node."""
    return sorted(graph.pred[node] if graph.is_directed() else graph.adj[node])


def require_two_ways(graph: nx.Graph, averaging: str) -> None:
    """Refuse links that go one way where nothing but push-sum can do with them."""
    if graph.is_directed() and averaging != PUSH_SUM:
        raise TopologyError(
            f"the graph is directed and averaging is {averaging!r}; a tree and gossip take links "
            f"that go both ways: averaging='push-sum' is expected, or an nx.Graph"
        )


def way_and_tolerance(averaging: object) -> tuple[str, float]:
    """How values are averaged, and how exactly; what is no way to average is refused.

    >>> way_and_tolerance("tree"), way_and_tolerance(("gossip", 1e-6))
    (('tree', 1e-12), ('gossip', 1e-06))
    """
    match averaging:
        case str() if averaging in AVERAGING:
            return averaging, USUAL_TOLERANCE
        case (str(way), float(tolerance)) if (
            way in AVERAGING[1:] and 1e-14 <= tolerance <= ROUGHEST
        ):
            return way, tolerance
    raise TopologyError(
        f"averaging is {averaging!r}; expected one of {', '.join(map(repr, AVERAGING))}, or "
        f"('gossip', t) or ('push-sum', t), t from 1e-14 to {ROUGHEST} being the share of the "
        f"nodes' differences that may be left"
    )


def require_connected(graph: nx.Graph, names: Sequence[str]) -> None:
    """Raise `TopologyError` naming a part of the graph that cannot reach the rest."""
    if graph.number_of_nodes() == 0:
        raise TopologyError("the graph has no nodes; at least one party is needed")
    if graph.is_directed():
        _require_strongly_connected(graph, names)
        return
    parts = sorted(nx.connected_components(graph), key=len)
    if len(parts) > 1:
        cut_off = ", ".join(repr(names[i]) for i in sorted(parts[0])[:5])
        raise TopologyError(
            f"the graph falls into {len(parts)} parts and {cut_off} cannot reach the rest; "
            f"add an edge between the parts"
        )


def _require_strongly_connected(graph: nx.DiGraph, names: Sequence[str]) -> None:
    first = min(graph)
    for reached, words in (
        (nx.descendants(graph, first), "cannot be reached from"),
        (nx.ancestors(graph, first), "cannot reach"),
    ):
        apart = sorted(set(graph) - reached - {first})
        if apart:
            some = ", ".join(repr(names[i]) for i in apart[:5])
            raise TopologyError(
                f"{some} {words} {names[first]!r} along the links' directions; a directed graph "
                f"is expected in which everybody reaches everybody: add a link"
            )


def _named(topology: Any, n: int, seed: int) -> nx.Graph:
    match topology:
        case str() if topology in _BY_NAME:
            return _BY_NAME[topology](n, seed)
        case ("lattice", int(k)) if k >= 2 and k % 2 == 0 and k < n:
            return nx.circulant_graph(n, range(1, k // 2 + 1))
        case ("lattice", k):
            raise TopologyError(
                f"('lattice', {k!r}) over {n} parties; an even number of neighbours "
                f"from 2 to {n - 1} is expected"
            )
    raise TopologyError(
        f"topology {topology!r} is unknown; expected {', '.join(map(repr, _BY_NAME))}, "
        f"('lattice', k) or a networkx graph"
    )


def _grid(n: int, seed: int) -> nx.Graph:
    """The most nearly square grid with n nodes."""
    height = max(h for h in range(1, int(n**0.5) + 1) if n % h == 0)
    return nx.convert_node_labels_to_integers(nx.grid_2d_graph(height, n // height))


def _random_regular(n: int, seed: int) -> nx.Graph:
    """Four neighbours a node, or as many as there are; drawn until connected."""
    if n <= 5:
        return nx.complete_graph(n)
    for attempt in range(100):
        graph = nx.random_regular_graph(4, n, seed=seed + attempt)
        if nx.is_connected(graph):
            return graph
    raise TopologyError(f"no connected random-regular graph over {n} parties was found")


_BY_NAME: dict[str, Callable[[int, int], nx.Graph]] = {
    "star": lambda n, seed: nx.star_graph(n - 1),
    "full": lambda n, seed: nx.complete_graph(n),
    "ring": lambda n, seed: nx.cycle_graph(n),
    "grid": _grid,
    "random-regular": _random_regular,
}


def _relabelled(graph: nx.Graph, names: Sequence[str]) -> nx.Graph:
    """Nodes may be party numbers or party names."""
    nodes, kind = set(graph.nodes), nx.DiGraph if goes_one_way(graph) else nx.Graph
    if nodes == set(range(len(names))):
        return kind(graph)  # a copy: with nodes that have no edge, without parallel edges
    if nodes == set(names):
        return nx.relabel_nodes(kind(graph), {name: i for i, name in enumerate(names)})
    raise TopologyError(
        f"the graph has the nodes {sorted(map(str, nodes))[:5]}…; the party numbers 0 to "
        f"{len(names) - 1} or the party names are expected"
    )
