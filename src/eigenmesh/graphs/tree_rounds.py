"""Rounds along a spanning tree, level by level: sums up to its root, what the root has down to all.

A round is between one level and the next, and only those of them take part. A message that did not
come is asked for again, and nobody goes on before it has come; when a node has left, or a link is
dead, everybody begins anew on the tree of what is left, with values that they still have.
"""

from __future__ import annotations

from typing import Any

from eigenmesh.errors import PartyLost, TopologyError
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.schedule import Node, Scope, exchange
from eigenmesh.runtime.spanning_tree import BOTH, UP, Links

_ATTEMPTS = 20  # to get a message over a link: where half are lost, one in a million fails
_MOST_CUTS = 100  # links that are given up in one run, as far as a schedule allows for them


def along_tree(nodes: Federation, send: Any, receive: Any, ways: tuple[str, ...] = BOTH) -> None:
    """Each link of the tree once, in each of the ways.

    Anew without a node that leaves, and without a link that has lost all attempts.
    """
    while not all(_all_levels(nodes, send, receive, way) for way in ways):
        pass


def _all_levels(nodes: Federation, send: Any, receive: Any, way: str) -> bool:
    """Whether the same tree was there from one end to the other."""
    tree = nodes.tree
    depths = range(1, 1 + tree.height)
    for depth in reversed(depths) if way == UP else depths:
        _pass_level(nodes, send, receive, way, tree.links_at(depth, way))
        if nodes.tree is not tree:
            return False
    return True


def _pass_level(nodes: Federation, send: Any, receive: Any, way: str, links: Links) -> None:
    for _ in range(_ATTEMPTS):
        links = nodes.pass_along(send, receive, way, links)
        if not links:
            return
    sender, receivers = next(iter(links.items()))
    one, other = nodes.members[sender], nodes.members[receivers[0]]
    try:
        nodes.cut(one, other)
    except TopologyError:
        raise PartyLost(
            f"nothing of {one!r} has come to {other!r} in {_ATTEMPTS} attempts, and no other way "
            f"leads there; choose a graph with more edges",
            party=one,
        ) from None


def tree_rounds(
    scope: Scope,
    send: Any,
    receive: Any,
    ways: tuple[str, ...] = BOTH,
    **sizes: Any,  # `Size | Amount`
) -> Node:
    """`along_tree`; where messages may be lost, as often as that may take."""
    usual = len(ways) * scope.tree_without().height
    if not scope.lossy:
        return exchange(send, receive, usual, ways=ways, **sizes)
    n = scope.n_taking_part
    most = len(ways) * (n - 1) * _ATTEMPTS * (1 + scope.restarts + _MOST_CUTS)
    return exchange(send, receive, most, 0, usual, ways=ways, **sizes)
