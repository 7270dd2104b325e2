"""Means of clusters that are nodes of one tree: all of them together tell no more than its leaves.

Two clusterings of the same rows tell more than either: their clusters intersect, and from enough of
them every row follows by linear algebra. Here every cluster that is ever asked for is a node of one
tree a data set. Whatever the numbers asked for, the means are sums of leaves, and no leaf has fewer
than `least` rows.

A tree is grown from its root, always at the leaf that spreads most: `n` of its nodes are the leaves
after n − 1 splits, and more of them refine these. Few centroids need few rows, so that a large data
set is divided beforehand, by a draw that only its owner can repeat: 1024 rows, twice as many, and
so on, up to half of them all; the last part has the rest. Each part has its own tree, and the
parts have no row in common.

A split is made at right angles to the line between two means, near the direction of the largest
variance (three steps of the power method and five of Lloyd's, on some of the rows). Each side gets
a multiple of `least` rows, but for the remainder: so there are as many leaves as there can be.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from eigenmesh.numerics.arrays import (
    Floats,
    Rows,
    as_rows,
    dense,
    is_sparse,
    raw_rows,
    working_dtype,
)
from eigenmesh.numerics.draws import Indices
from eigenmesh.numerics.embeddings import count_sketch

MIN_CLUSTER = 5  # a mean of fewer rows says too much of each

_FIRST_PART = 1024  # rows; of fewer than twice as many no part is made
_ROWS_EACH = 20  # a centroid; more change little
_LOOKED_AT = 256  # rows of a node, from which a direction follows
_LARGE = 1e15
_POWER_STEPS, _LLOYD_STEPS, _FULL_STEPS = 3, 5, 2
_SKETCH = 64  # columns that keep distances well enough to begin with
_WIDE = 2 * _SKETCH  # columns from which a sketch pays

Draws = Callable[[int], np.random.Generator]  # by the number of a part, always the same
SplitBy = Callable[[Indices], Rows]  # some of the rows, in the form that trees are made by


class TreeNode(NamedTuple):
    """A node: rows from `start` to `stop` in the tree's order."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Its rows."""
        return self.stop - self.start


class CentroidTree:
    """Splits of some rows, as far as they have been needed; by where they are, or by others.

    >>> tree = CentroidTree(np.array([[0.0], [0.2], [9.0], [9.2]]), 2, np.random.default_rng(0))
    >>> tree.means(tree.cut(2)).ravel().round(1).tolist()
    [0.1, 9.1]
    """

    def __init__(
        self, rows: Rows, least: int, rng: np.random.Generator, split_by: Rows | None = None
    ) -> None:
        self._rows, self._least, self._rng = rows, least, rng
        n, by = int(rows.shape[0]), rows if split_by is None else split_by
        self._order = rng.permutation(n)
        # Products of rows far from the origin would lose the digits in which the rows differ.
        self._offsets = by if is_sparse(by) else by - by.mean(axis=0)
        self._points = _points(self._offsets, rng)[self._order]
        self._splits: list[tuple[TreeNode, TreeNode, TreeNode]] = []  # a node and its two sides
        self._root = TreeNode(0, n)
        self._spreads: list[tuple[float, TreeNode]] = []
        self._note(self._root)

    def cut(self, count: int, fewest: int = 0) -> list[TreeNode]:
        """At most `count` nodes that have each row once: fewer where there are no more leaves.

        A node with a side of less than `fewest` rows stays whole.
        """
        self._grow(count - 1)
        leaves = {self._root}
        for node, *sides in self._splits[: count - 1]:
            if node in leaves and min(side.size for side in sides) >= fewest:
                leaves.remove(node)
                leaves.update(sides)
        return sorted(leaves)

    def refinement(self, before: int, count: int) -> list[TreeNode]:
        """At most `count` nodes below those of `cut(before)`, one of each further split.

        The smaller side: with the node above it, the other one follows.
        """
        self._grow(before + count - 1)
        splits = self._splits[before - 1 : before + count - 1]
        return [min(sides, key=lambda side: side.size) for _, *sides in splits]

    def rows_in(self, node: TreeNode) -> Indices:
        """The numbers of a node's rows."""
        return np.asarray(self._order[node.start : node.stop])

    def means(self, nodes: list[TreeNode]) -> Floats:
        """Of the rows of each node (nodes, d), in an order that tells nothing of the tree."""
        sizes = np.array([node.size for node in nodes], dtype=np.intp)
        places = np.concatenate([self._order[node.start : node.stop] for node in nodes])
        ends = np.concatenate([[0], np.cumsum(sizes)])
        ones = np.ones(len(places), self._rows.dtype)
        members = sp.csr_array((ones, places, ends), shape=(len(nodes), len(self._order)))
        means = dense(members @ self._rows) / sizes.astype(self._rows.dtype)[:, None]
        return np.asarray(means[np.lexsort(means.T[::-1])])

    def _grow(self, n_splits: int) -> None:
        while len(self._splits) < n_splits and self._spreads:
            _, node = heapq.heappop(self._spreads)
            sides = self._split(node)
            self._splits.append((node, *sides))
            for side in sides:
                self._note(side)

    def _note(self, node: TreeNode) -> None:
        """Put a node among those that may be split, by its spread; if it may be."""
        if node.size >= 2 * self._least:
            points = self._points[node.start : node.stop]
            sums = points.sum(axis=0)
            # By sums, without a pass for the node's mean: points are about that of all, and few
            # digits cancel.
            spread = float(np.vdot(points, points)) - float(sums @ sums) / node.size
            # Of two that spread alike the larger comes first: more rows gain by it.
            heapq.heappush(self._spreads, (-spread * np.sqrt(node.size), node))

    def _split(self, node: TreeNode) -> tuple[TreeNode, TreeNode]:
        here = slice(node.start, node.stop)
        points, order = self._points[here], self._order[here]
        places, middle = _division(points, self._rng)
        if self._offsets.shape[1] > _WIDE:
            places, middle = _in_full(self._offsets[order], places, middle)
        left = _multiple(int(np.count_nonzero(places <= middle)), node.size, self._least)
        turned = np.argpartition(places, left)
        self._points[here], self._order[here] = points[turned], order[turned]
        return TreeNode(node.start, node.start + left), TreeNode(node.start + left, node.stop)


def _points(rows: Rows, rng: np.random.Generator) -> Floats:
    """What the rows are split by: themselves, or a sketch of wide ones, about their mean."""
    d = rows.shape[1]
    if d > _WIDE:
        sketch = count_sketch(d, _SKETCH, rng).astype(rows.dtype)
        rows = rows @ (sketch if is_sparse(rows) else dense(sketch))
    points = dense(rows)
    return np.asarray(points - points.mean(axis=0))


def _division(points: Floats, rng: np.random.Generator) -> tuple[Floats, float]:
    """Where each point is on a line, and where between two means the line is cut."""
    some = points[:: -(-len(points) // _LOOKED_AT)]
    mean = some.mean(axis=0)
    offsets = some - mean
    line: Floats = np.asarray(rng.standard_normal(points.shape[1]), dtype=points.dtype)
    for _ in range(_POWER_STEPS):
        line = offsets.T @ (offsets @ line)
        if (most := float(np.abs(line).max())) > _LARGE:  # whose squares would overflow float32
            line = line / most
        line = line / (np.sqrt(line @ line) or 1)
    places, middle, before = offsets @ line, 0.0, 0
    for _ in range(_LLOYD_STEPS):
        above = places > middle
        n_above = int(np.count_nonzero(above))
        n_below = len(some) - n_above
        if not n_above or not n_below or n_above == before:
            break
        sums = above.astype(points.dtype) @ offsets  # those below add up to its opposite
        line = sums * (1 / n_above + 1 / n_below)
        places, before = offsets @ line, n_above
        middle = float(sums @ line) * (1 / n_above - 1 / n_below) / 2
    return points @ line, middle + float(mean @ line)


def _in_full(rows: Rows, places: Floats, middle: float) -> tuple[Floats, float]:
    """The same of wide rows, from where their sketches are: two more of Lloyd's steps."""
    for _ in range(_FULL_STEPS):
        above = places > middle
        n_above = int(np.count_nonzero(above))
        if n_above in (0, len(above)):
            break
        weights = np.stack([above / n_above, ~above / (len(above) - n_above)]).astype(rows.dtype)
        upper, lower = dense(weights @ rows)
        places = np.asarray(rows @ (upper - lower))
        middle = float((upper + lower) @ (upper - lower)) / 2
    return places, middle


def _multiple(size: int, whole: int, least: int) -> int:
    """The multiple of `least` next to a size, which leaves `least` at least on either side."""
    return int(np.clip(round(size / least), 1, (whole - least) // least)) * least


# Of a data set.


def part_sizes(n_rows: int) -> list[int]:
    """How many rows each part has.

    >>> part_sizes(2000), part_sizes(10_000)
    ([2000], [1024, 2048, 6928])
    """
    sizes: list[int] = []
    while 2 * (sum(sizes) + (size := _FIRST_PART << len(sizes))) <= n_rows:
        sizes.append(size)
    return [*sizes, n_rows - sum(sizes)]


def most_centroids(n_rows: int, least: int = MIN_CLUSTER) -> int:
    """How many centroids there are of so many rows.

    >>> most_centroids(4), most_centroids(100), most_centroids(10_000)
    (0, 20, 1385)
    """
    return part_sizes(n_rows)[-1] // least


def centroids(
    A: Rows,
    count: int,
    least: int,
    draws: Draws,
    before: int = 0,
    split_by: SplitBy | None = None,
) -> Floats:
    """Means of `count` nodes of the rows' tree, none of fewer than `least` rows.

    Fewer where there are not so many, none where there are fewer than `least` rows. They have no
    row in common; or, where so many were given `before`, refine those. The cost is that of
    the part of the rows that is looked at, and does not grow with them. Where the rows are as
    somebody else wants them, what they are split by is not: else many forms were many trees.

    >>> rows = np.array([[0.0], [0.2], [9.0], [9.2]])
    >>> centroids(rows, 2, 2, np.random.default_rng).ravel().round(1).tolist()
    [0.1, 9.1]
    """
    A = raw_rows(A)
    n, d = A.shape
    count = min(count, most_centroids(n, least) - before)
    if count < 1:
        return np.zeros((0, d), working_dtype(A))
    part = _part_for((before + count) * max(_ROWS_EACH, 2 * least), part_sizes(n))
    places = _rows_of(part, n, draws)
    by = None if split_by is None else as_rows(split_by(places))
    tree = CentroidTree(as_rows(A[places]), least, draws(part), by)
    return tree.means(tree.refinement(before, count) if before else tree.cut(count))


def groups_of_rows(
    A: Rows,
    count: int,
    least: int,
    draws: Draws,
    split_by: SplitBy | None = None,
    fewest: int = 0,
) -> Indices:
    """For each row the number of its group, of at most `count`, each at least `least` rows.

    They are nodes of the same trees, over all parts of the rows; one where rows are too few. Of
    trees with such leaves they may be nodes of `fewest` rows or more.

    >>> rows = np.array([[0.0], [0.2], [9.0], [9.2]])
    >>> groups_of_rows(rows, 2, 2, np.random.default_rng).tolist()
    [0, 0, 1, 1]
    """
    A = raw_rows(A)
    n, numbers = int(A.shape[0]), 0
    groups = np.zeros(n, dtype=np.intp)
    sizes = part_sizes(n)
    for part, size in enumerate(sizes):
        places = _rows_of(part, n, draws)
        by = None if split_by is None else as_rows(split_by(places))
        tree = CentroidTree(as_rows(A[places]), least, draws(part), by)
        for node in tree.cut(max(1, count * size // n), fewest):
            groups[places[tree.rows_in(node)]] = numbers
            numbers += 1
    return groups


def _part_for(n_rows: int, sizes: list[int]) -> int:
    """The first part that has so many rows, or the last."""
    enough = [part for part, size in enumerate(sizes) if size >= n_rows]
    return enough[0] if enough else len(sizes) - 1


def _rows_of(part: int, n_rows: int, draws: Draws) -> Indices:
    """The rows of a part, in their order; those of the last are what is left."""
    sizes = part_sizes(n_rows)
    is_left = np.ones(n_rows, dtype=bool)
    for number, size in enumerate(sizes[:-1]):
        # In random order, and so many more that enough are left without the earlier parts'.
        order = draws(number).choice(n_rows, size + sum(sizes[:number]), replace=False)
        rows = order[is_left[order]][:size]
        if number == part:
            return np.asarray(np.sort(rows))
        is_left[rows] = False
    return np.flatnonzero(is_left)
