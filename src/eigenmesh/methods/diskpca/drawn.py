"""Landmarks that stand for all rows and are drawn from nobody's: for sums that hide summands.

Parties of a few rows can give no centroid, and a row of theirs is a row. What all rows add up to
is enough for good landmarks: points drawn from the normal law that has the rows' mean and their
largest directions, and the means of the rows nearest to each. With masked sums (`secure=True`)
nobody sees what a single party adds; without them its own sums are seen.

===================  ============================================================================
party keeps          its rows, and to which drawn point each is nearest
party reveals        the sum of its rows, products of their scatter with a few directions (twice),
                     how many are nearest to each point, and the sums of those; masked, only what
                     all parties' add up to is seen
coordinator learns   these; points and means go to all parties
===================  ============================================================================

Letters: m the mean, C the scatter around it, Q (d, c) directions, c a few more than components are
wanted. Two products with C, the first to turn Q towards the largest directions; then C is about
F Fᵀ, F = CQ (QᵀCQ)^-½ (Nyström), and points are m + F g/√n with g normal.

One pass to the nearest points, and no second: where means move, rows change sides one at a time,
and the difference of two sums is a row. A mean is released of at least MIN_CLUSTER rows, and so
many, or none, are in no mean: else the rest would be what a few rows add up to. More landmarks are
more points of the same law, which tell nothing new.

Measured on 16 sets, RBF, 3 components: 100 points and the means have 96–99.8 % of the variance
that pooled components have; means alone 41 % on 72 wide rows, points alone 93 % on digits.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows, blocks, dense, is_sparse, squared_norms
from eigenmesh.numerics.centroids import MIN_CLUSTER
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Floats,
    Integers,
    Message,
    NonNegative,
    Positive,
    Reveals,
    Shape,
)
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.schedule import Node, at_most, enlist, sequence, total
from eigenmesh.runtime.site import SiteView

_MORE_DIRECTIONS = 3  # than components: what a second product leaves unturned
_FEWEST_DIRECTIONS = 16  # of narrow rows all count: points in a subspace miss what is beside it
_POINTS = 0.6  # of the landmarks; the rest are means, or more points where means are few
_TINY = 1e-12  # of the largest direction, below which there is none
_STREAM = 0x6472776E  # apart from all other draws by the same seed


# Messages.


class SumSetup(Message, reveals=None):
    """Sums need no setup."""


class RowSums(Message, reveals="moments"):
    """The sum of some rows, and how many they are."""

    n_rows: Annotated[int, Reveals("counts"), Positive]
    sums: Annotated[Floats, Shape("d")]


class ScatterDirections(Message, reveals="moments"):
    """Around which mean, and along which directions."""

    mean: Annotated[Floats, Shape("d")]
    basis: Annotated[Floats, Shape("d", "c")]


class ScatterProducts(Message, reveals="moments"):
    """C Q of some rows."""

    products: Annotated[Floats, Shape("d", "c")]


class DrawnPoints(Message, reveals="moments"):
    """Points of the normal law."""

    points: Annotated[Floats, Shape("m", "d")]


class NearestCounts(Message, reveals="moments"):
    """How many rows are nearest to each point."""

    counts: Annotated[Integers, Shape("m"), NonNegative]


class ReleasedMeans(Message, reveals="moments"):
    """The points whose rows' sums shall be told."""

    points: Annotated[Integers, Shape("r"), NonNegative]


class NearestSums(Message, reveals="moments"):
    """Of the rows that are nearest to each: how many they are, and their sums."""

    counts: Annotated[Integers, Shape("r"), NonNegative]
    sums: Annotated[Floats, Shape("r", "d")]


# The party.


class SummedRows(Party):
    """Holds some rows of all columns, of which it tells sums."""

    Setup: ClassVar[type[Message]] = SumSetup
    state: ClassVar[tuple[str, ...]] = ("labels",)

    def __init__(self, site: SiteView, setup: SumSetup) -> None:
        super().__init__(site, setup)
        self.labels = np.full(site.data.shape[0], -1)

    @step
    def row_sums(self) -> RowSums:
        """Of all rows."""
        A = self.site.data
        return RowSums(n_rows=int(A.shape[0]), sums=_total(A))

    @step(reusable=False)
    def scatter_products(self, directions: ScatterDirections) -> ScatterProducts:
        """C Q of the own rows around the mean of all."""
        A, m, Q = self.site.data, directions.mean, directions.basis
        parts = (_scatter_product(A[rows], m, Q) for rows in blocks(A.shape[0]))
        return ScatterProducts(products=sum(parts, np.zeros_like(Q)))

    @step(reusable=False)
    def count_nearest(self, centres: DrawnPoints) -> NearestCounts:
        """One pass: to which point each row is nearest."""
        A, n = self.site.data, self.site.data.shape[0]
        labels = [_nearest(A[rows], centres.points) for rows in blocks(n)]
        self.labels = np.concatenate(labels)
        return NearestCounts(counts=np.bincount(self.labels, minlength=len(centres.points)))

    @step(reusable=False)
    def sum_nearest(self, released: ReleasedMeans) -> NearestSums:
        """Sums of the rows nearest to each of some points."""
        A = self.site.data
        members = [self.labels == point for point in released.points]
        sums = np.array([_total(A[own]) for own in members])
        counts = np.array([own.sum() for own in members], dtype=np.int64)
        return NearestSums(counts=counts, sums=sums.reshape(len(members), A.shape[1]))


def _total(rows: Rows) -> Doubles:
    return np.asarray(rows.sum(axis=0, dtype=np.float64)).ravel()


def _scatter_product(rows: Rows, m: Floats, Q: Floats) -> Doubles:
    """Σ (x − m)(x − m)ᵀQ; sparse rows are not filled up."""
    if is_sparse(rows):
        sums, around = np.asarray(rows.sum(axis=0)).ravel(), m @ Q
        crossed = np.outer(sums, around) + np.outer(m, sums @ Q)
        return np.asarray(rows.T @ (rows @ Q) - crossed + rows.shape[0] * np.outer(m, around))
    X = np.asarray(rows, dtype=np.float64) - m
    return X.T @ (X @ Q)


def _nearest(rows: Rows, points: Floats) -> Any:
    """Around the points' mean: far from the origin, products lose the digits that differ."""
    middle = points.mean(axis=0)
    X, Y = dense(rows).astype(np.float64) - middle, points - middle
    return np.argmin(squared_norms(Y) - 2 * (X @ Y.T), axis=1)


# What is drawn.


class NormalLaw(NamedTuple):
    """N(m, F Fᵀ/n): what points are drawn from."""

    mean: Doubles  # (d,)
    factor: Doubles  # (d, c), F/√n

    @classmethod
    def of(cls, mean: Doubles, basis: Doubles, products: Doubles, n: int) -> NormalLaw:
        """From C Q of all rows."""
        inner = basis.T @ products
        values, vectors = np.linalg.eigh((inner + inner.T) / 2)
        present = values > _TINY * max(values[-1], np.finfo(float).tiny)
        roots = vectors[:, present] / np.sqrt(values[present])
        return cls(mean, products @ roots / np.sqrt(n))

    def draw(self, count: int, rng: np.random.Generator) -> Doubles:
        """Points, (count, d)."""
        return self.mean + rng.normal(size=(count, self.factor.shape[1])) @ self.factor.T


class DrawnLandmarks(NamedTuple):
    """Landmarks, and the law of which there may be more."""

    points: Doubles  # (q, d)
    law: NormalLaw


def stream_of(seed: int, count: int = 0) -> np.random.Generator:
    """What everybody may know: the draws tell nothing of a row."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM, count)))


def n_directions(rank: int, d: int) -> int:
    """c, for so many components of rows with d columns."""
    return min(max(rank + _MORE_DIRECTIONS, _FEWEST_DIRECTIONS), d)


def n_points(q: int) -> int:
    """How many of q landmarks are points to begin with."""
    return max(1, int(np.ceil(_POINTS * q)))


def released_points(counts: Any, most: int) -> Any:
    """Points with enough rows for a mean; the rows in no mean are enough too, or none.

    >>> released_points(np.array([9, 0, 3, 7, 6]), 5).tolist()
    [0, 3]
    >>> released_points(np.array([9, 5, 0, 7]), 5).tolist()
    [0, 1, 3]
    """
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= MIN_CLUSTER][:most]
    n = counts.sum()
    while len(order) and 0 < n - counts[order].sum() < MIN_CLUSTER:
        order = order[:-1]
    return np.sort(order)


# The schedule.


def drawing_rounds(rank: int, q: int, d: int) -> Node:
    """The rounds of `draw_landmarks`."""
    c, m = n_directions(rank, d), n_points(q)
    return sequence(
        enlist(SummedRows, SumSetup()),
        total(SummedRows.row_sums, d=d),
        total(SummedRows.scatter_products, d=d, c=c),
        total(SummedRows.scatter_products, d=d, c=c),
        total(SummedRows.count_nearest, m=m, d=d),
        total(SummedRows.sum_nearest, r=at_most(q - m), d=d),
    )


# The coordinator's side.


def draw_landmarks(rows: Federation, rank: int, q: int, d: int, seed: int) -> DrawnLandmarks:
    """So many landmarks, for `rank` components of rows with d columns."""
    rows.enlist(SummedRows, SumSetup())
    rng = stream_of(seed)

    # 1. The law: mean, then two products with the scatter.
    all_rows = rows.total(SummedRows.row_sums).sum
    n, mean = all_rows.n_rows, all_rows.sums / all_rows.n_rows
    basis = np.linalg.qr(rng.normal(size=(d, n_directions(rank, d))))[0]
    products = _products(rows, mean, basis)
    basis = np.linalg.qr(products)[0]
    law = NormalLaw.of(mean, basis, _products(rows, mean, basis), n)

    # 2. Points, and the means of the rows nearest to them.
    points = law.draw(n_points(q), rng)
    counts = rows.total(SummedRows.count_nearest, DrawnPoints(points=points)).sum.counts
    released = ReleasedMeans(points=released_points(counts, q - len(points)))
    near = rows.total(SummedRows.sum_nearest, released).sum
    enough = near.counts >= MIN_CLUSTER  # of those whose rows a lost party had, perhaps not
    means = near.sums[enough] / near.counts[enough][:, None]

    # 3. More points where means are few.
    more = law.draw(q - len(points) - len(means), rng)
    return DrawnLandmarks(np.vstack([points, means, more]), law)


def _products(rows: Federation, mean: Doubles, basis: Doubles) -> Doubles:
    directions = ScatterDirections(mean=mean, basis=basis)
    products: Doubles = rows.total(SummedRows.scatter_products, directions).sum.products
    return products
