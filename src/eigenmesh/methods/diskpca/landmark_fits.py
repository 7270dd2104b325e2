"""Landmarks and the fits in their span: what is known of them, and how many there may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eigenmesh.methods.diskpca.drawn import Draw
from eigenmesh.methods.diskpca.site_scores import RANK_BY_RULE, LandmarkSetup
from eigenmesh.numerics.arrays import Rows
from eigenmesh.numerics.centroids import most_centroids
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.leading_directions import usual_rank
from eigenmesh.numerics.mean_outside import SAMPLE_ROWS
from eigenmesh.runtime.compact import EXACT
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import Size, at_most
from eigenmesh.stages.coverage import Coverage
from eigenmesh.stages.row_messages import KernelSetup, RowBlock

# More blocks are nearer to the sequential method, and cost rounds. A party measures anew within a
# block, so that only what different parties draw in it does not know of each other.
RPCHOLESKY_BLOCKS = 4


@record
@dataclass(frozen=True)
class Accuracy:
    """What is wanted of landmarks, and how many there may be.

    `largest_missing` is the largest share of a wanted eigenvalue that may be missing. Of all
    components that landmarks determine no more than `variance_share` may be wanted.
    """

    largest_missing: float
    most_landmarks: int
    variance_share: float | None = None
    most_wanted: int | None = None  # components, of all that a model has

    def n_wanted(self, model: LandmarkModel) -> int:
        """How many components of a model are wanted."""
        explained = np.cumsum(model.eigenvalues[: self.most_wanted]) / model.total
        if self.variance_share is None or explained[-1] < self.variance_share:
            return len(explained)
        return 1 + int(np.argmax(explained >= self.variance_share))


class LandmarkSet(NamedTuple):
    """Landmarks, and what each party has not seen of them."""

    Y: Rows
    unseen: Mapping[str, RowBlock]
    skew: float | None
    n_values: int  # that shipping every row would take
    share: float  # of the rows, to be looked at from outside the span; 0 if all are landmarks
    sizes: dict[str, int]  # rows of each party
    most: dict[str, int]  # landmarks that each can give
    left: dict[str, int]  # how many more
    draw: Draw | None = None  # of landmarks that no party gave
    bits: int = EXACT  # in which they are rounded
    seed: int = 0  # by which whatever is the coordinator's to draw is drawn

    @property
    def most_in_all(self) -> int:
        """How many there can be."""
        are_no_rows = self.draw is not None or self.bits != EXACT
        return most_in_all("drawn" if are_no_rows else "", sum(self.most.values()))

    @property
    def unheard(self) -> tuple[str, ...]:
        """Parties that can give none."""
        return tuple(name for name, most in self.most.items() if not most)


class SpanFit(NamedTuple):
    """A fit inside the landmarks' span."""

    model: LandmarkModel
    span: Span
    outside: float  # squared distance of all rows to the span, Σ‖φ(a) − Pφ(a)‖²
    error: float = 0.0  # standard error of the model's total
    rounding: float = 0.0  # by which, at most, numbers in fewer bits move an eigenvalue
    planned_rank: int = 0  # directions that a plan counts; 0 for as many as landmarks
    by_party: Mapping[str, float] = {}  # of `outside`, what is whose; empty where it was not asked
    weight: float | None = None  # of all rows, where they do not all count the same

    @property
    def n_counted(self) -> float:
        """How many rows there are, each as often as it counts."""
        return self.model.n_rows if self.weight is None else self.weight


class MeasuredFit(NamedTuple):
    """A fit, with the landmarks that it ended with, and what they miss."""

    landmark_set: LandmarkSet
    in_span: SpanFit
    coverage: Coverage


@record
@dataclass(frozen=True)
class DisKPCAResult:
    """The model, and what is known of how good the landmarks are."""

    model: LandmarkModel
    leverage_skew: float | None  # largest rank-k leverage / mean, estimated; None if not measured
    outside: float  # squared distance of all rows to the landmarks' span, Σ‖φ(a) − Pφ(a)‖²
    baseline_floats: int  # what shipping every row would have cost
    residual_error: float = 0.0  # standard error of the model's total
    coverage: Coverage | None = None  # what the landmarks miss; None if nobody asked
    rank: int | None = None  # directions of the landmarks' span that sums are in; None for all
    rounding: float = 0.0  # by which, at most, numbers in fewer bits move an eigenvalue
    stop_reason: str = "the landmarks' sums are complete"


# How many landmarks.


def most_landmarks(landmarks: str, n_rows: int) -> int:
    """How many landmarks a party can give: every row, or clusters that are large enough."""
    return most_centroids(n_rows) if landmarks == "centroids" else n_rows


def most_in_all(landmarks: str, most: int) -> int:
    """How many there can be, of parties that can give `most`: points that are drawn are no rows.

    As many landmarks as rows would be taken for all of these.
    """
    return max(1, most - 1) if landmarks == "drawn" else most


def shares_of(landmarks: str, q: int, n: int) -> list[int]:
    """How many landmarks are drawn before the distances to their span are measured again."""
    if q == n:
        return [q]
    parts = min(q, {"diskpca": 2, "rpcholesky": RPCHOLESKY_BLOCKS}.get(landmarks, 1))
    return [q * (i + 1) // parts - q * i // parts for i in range(parts)]


def share_seen(q: int, n: int, setup: KernelSetup) -> float:
    """The share of n rows that is looked at from outside the span of q landmarks."""
    return min(1.0, SAMPLE_ROWS / n) if q < n or projects(setup) else 0.0


def projects(setup: KernelSetup) -> bool:
    """Whether sums may be in fewer directions than there are landmarks."""
    return isinstance(setup, LandmarkSetup) and setup.gram_rank is not None


def bits_of(setup: KernelSetup, q: int, n: int) -> int:
    """In how many bits the first q landmarks of n rows are: where every row is one, in all."""
    return setup.bits if isinstance(setup, LandmarkSetup) and q < n else EXACT


def allocate(
    masses: Sequence[float], most: Sequence[int], count: int, rng: np.random.Generator
) -> list[int]:
    """How many of `count` draws fall to each party; none gets more than its `most`.

    >>> allocate([1.0, 0.0, 3.0], [5, 5, 2], 4, np.random.default_rng(0))
    [2, 0, 2]
    """
    room = np.array(most)
    draws = np.zeros(len(room), dtype=int)
    weights = np.asarray(masses, dtype=float)
    while count and (weights * room).any():
        chances = np.where(room > 0, weights, 0.0)
        share = np.minimum(rng.multinomial(count, chances / chances.sum()), room)
        draws, room, count = draws + share, room - share, count - int(share.sum())
    return draws.tolist()


def doublings(q: int, most: int) -> int:
    """How often q landmarks can double until there are `most`.

    >>> doublings(30, 200), doublings(30, 30)
    (3, 0)
    """
    count = 0
    while 0 < q < most:
        q, count = 2 * q, count + 1
    return count


# Before they are there.


class Numbers(NamedTuple):
    """What is known once the first landmarks are drawn."""

    n: int  # rows in all
    d: int  # columns
    most: int  # landmarks that the parties can give
    q: int  # landmarks that they have given
    quota: int  # that they were to give
    last: int  # of the quota, in the last draw
    last_planned: int  # where a draw may be smaller, what a plan counts
    are_drawn: bool = False  # by no party: each is told all
    shows: bool = False  # the total of which they were drawn: only the first follow from one
    bits: int = EXACT  # in which they are rounded

    @property
    def is_every_row(self) -> bool:
        """Whether as many landmarks as rows were asked for, so that nothing is outside."""
        return self.quota >= self.n


def rank_size(gram_rank: int, k: int | None, q: int, is_sure: bool) -> Size:
    """In how many directions of the span of q landmarks, or of at most so many, sums are."""
    if gram_rank == RANK_BY_RULE:
        return at_most(q, planned_rank(gram_rank, k, q))
    return Size(min(gram_rank, q), is_sure)


def planned_rank(gram_rank: int, k: int | None, q: int) -> int:
    """What a plan counts."""
    by_rule = gram_rank == RANK_BY_RULE and k is not None
    return usual_rank(k or q, q) if by_rule else min(gram_rank or q, q)
