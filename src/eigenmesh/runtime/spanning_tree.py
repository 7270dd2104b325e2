"""Spanning trees: the few links of a graph along which sums go up and totals come down.

Everybody who knows the graph and who has left it finds the same tree: a host follows its own, and
nobody tells it whose child it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import networkx as nx

UP, DOWN = "up", "down"
BOTH = (UP, DOWN)  # a sum of all, at every node
Links = Mapping[int, list[int]]  # receivers by sender


class Losses(NamedTuple):
    """Of a graph, the nodes that have left and the links over which nothing comes."""

    nodes: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()


NOBODY = Losses()


@dataclass(frozen=True, eq=False)
class SpanningTree:
    """Breadth first from a middle of the graph, so that it is about as low as it can be.

    >>> tree = SpanningTree.of(nx.path_graph(5))
    >>> tree.root, tree.height, tree.links_at(1, "up"), tree.links_at(1, "down")
    (2, 2, {1: [2], 3: [2]}, {2: [1, 3]})
    """

    parents: Mapping[int, int]
    levels: tuple[tuple[int, ...], ...]  # nodes by their distance from the root

    @classmethod
    def of(cls, graph: nx.Graph) -> SpanningTree:
        """Of a connected graph."""
        near = {node: sorted(graph.adj[node]) for node in sorted(graph)}
        # From an end of the longest path seen to its other end: its middle is near all.
        end = _breadth_first(near, min(near)).levels[-1][0]
        across = _breadth_first(near, end)
        middle = across.levels[-1][0]
        for _ in range(across.height // 2):
            middle = across.parents[middle]
        return _breadth_first(near, middle)

    @property
    def root(self) -> int:
        """Where sums end and totals begin."""
        return self.levels[0][0]

    @property
    def height(self) -> int:
        """Rounds from the farthest node to the root."""
        return len(self.levels) - 1

    @cached_property
    def children(self) -> Mapping[int, tuple[int, ...]]:
        """Of each node, in order."""
        children: dict[int, list[int]] = {node: [] for level in self.levels for node in level}
        for child, parent in self.parents.items():
            children[parent].append(child)
        return {node: tuple(sorted(own)) for node, own in children.items()}

    @cached_property
    def below(self) -> Mapping[int, frozenset[int]]:
        """Of each node, itself and all whose sums pass it."""
        below: dict[int, frozenset[int]] = {}
        for level in reversed(self.levels):
            for node in level:
                below[node] = frozenset({node}).union(*(below[c] for c in self.children[node]))
        return below

    def links_at(self, depth: int, way: str) -> Links:
        """Between the nodes of a depth and their parents."""
        if way == UP:
            return {child: [self.parents[child]] for child in self.levels[depth]}
        parents = sorted({self.parents[child] for child in self.levels[depth]})
        return {parent: list(self.children[parent]) for parent in parents}

    def receivers(self, node: int, way: str) -> tuple[int, ...]:
        """To whom a node sends."""
        if way == DOWN:
            return self.children[node]
        return (self.parents[node],) if node in self.parents else ()


def _breadth_first(near: Mapping[int, list[int]], root: int) -> SpanningTree:
    parents: dict[int, int] = {}
    levels: list[tuple[int, ...]] = [(root,)]
    reached = {root}
    while levels[-1]:
        level = []
        for node in levels[-1]:
            for other in near[node]:
                if other not in reached:
                    reached.add(other)
                    parents[other] = node
                    level.append(other)
        levels.append(tuple(sorted(level)))
    return SpanningTree(parents, tuple(levels[:-1]))
