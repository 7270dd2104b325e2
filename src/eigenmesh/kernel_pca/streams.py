"""Landmarks over a stream of blocks: fixed after the first rows, then every row only adds up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.numerics.arrays import Rows
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import LandmarkSums, Span, landmark_sums, span_residual
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import OutsideSums, OutsideView, corrected, rows_to_see
from eigenmesh.numerics.paired_shortfall import paired_shortfall
from eigenmesh.numerics.reservoir import Reservoir
from eigenmesh.numerics.shortfall import Shortfall
from eigenmesh.numerics.whole_look import whole_look
from eigenmesh.runtime.records import record
from eigenmesh.stages.row_messages import stack

ROWS_A_LANDMARK = 20  # rows seen for each landmark before the landmarks are fixed
_SEED = 0  # of the random features, so that a stream can be taken up again
# By how much rows, and their distance to the span, may grow until what is missing is measured anew:
# small blocks then pay for a look as seldom as large ones.
_GROWTH = 1.1
_FARTHER = 1.25  # times the mean distance before: of rows that come, at most, until then


@record
class StreamSums(NamedTuple):
    """What all rows so far add up to, inside the landmarks' span and outside."""

    inside: LandmarkSums
    outside: OutsideSums


for kind in (LandmarkSums, OutsideSums):
    record(kind)


class StreamModel(NamedTuple):
    """The best components of a stream, and how good they are."""

    model: LandmarkModel
    outside: float  # squared distance of all rows to the landmarks' span
    error: float  # standard error of the model's total


class _Look(NamedTuple):
    """What was missing when rows were looked at."""

    goal: tuple[int, bool]  # how many components, and whether centred
    n_rows: int
    outside: float
    missing: Shortfall

    def still_holds(self, goal: tuple[int, bool], n_rows: int, outside: float) -> bool:
        """Whether rows that have come since are few, and no farther from the span."""
        few = n_rows <= _GROWTH * self.n_rows and outside <= _GROWTH * self.outside
        usual = (n_rows - self.n_rows) * self.outside / self.n_rows
        return goal == self.goal and few and outside - self.outside <= _FARTHER * usual


class LandmarkStream:
    """Sums of blocks of rows; landmarks and gamma come from the first rows, or are given.

    `choose` gives a model with landmarks that were drawn from rows. Until `enough` rows are there
    all are kept, and landmarks are drawn from them; then the landmarks stay. Some rows, drawn from
    all, are kept to measure what the landmarks miss; neither files nor pickles have them.
    """

    def __init__(self, choose: Callable[[Rows], LandmarkModel] | None, enough: int) -> None:
        self.choose = choose
        self.enough = enough
        self.pending: Rows | None = None
        self.kernel: Kernel | None = None
        self.landmarks: Rows | None = None
        self.sums: StreamSums | None = None
        self.view: OutsideView | None = None
        self.looks: Reservoir | None = None
        self.unseen: LandmarkSums | None = None  # of rows that were never here
        self._last_look: _Look | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without rows: those to be looked at are then as if never here, and landmarks stay."""
        if self.pending is not None:
            self.settle()
        of_rows = dict.fromkeys(("choose", "pending", "looks", "view", "_last_look"))
        return {**self.__dict__, **of_rows}

    @classmethod
    def resumed(cls, kernel: Kernel, landmarks: Rows, sums: StreamSums | None) -> LandmarkStream:
        """A stream whose landmarks are fixed."""
        stream = cls(None, 0)
        stream.kernel, stream.landmarks, stream.sums = kernel, landmarks, sums
        return stream

    @property
    def fixed(self) -> bool:
        """Whether the landmarks will stay."""
        return self.pending is None and self.landmarks is not None

    def add(self, block: Rows) -> None:
        """Take up some rows."""
        if self.fixed:
            self._count(block)
            return
        self.pending = block if self.pending is None else stack([self.pending, block])
        self.landmarks = None
        if self.pending.shape[0] >= self.enough:
            self.settle()
            self.pending = None

    def settle(self) -> None:
        """Landmarks from the rows so far, and the sums of these rows."""
        if self.landmarks is not None:
            return
        assert self.choose is not None  # or the landmarks were given
        model = self.choose(self.pending)
        self.kernel, self.landmarks, self.sums = model.kernel, model.landmarks, None
        self.view = self.looks = self._last_look = None
        self._count(self.pending)

    def _count(self, block: Rows) -> None:
        assert self.kernel is not None  # there are landmarks
        if self.view is None:
            self.view = OutsideView.of(Span.of(self.kernel, self.landmarks), _SEED)
        if self.looks is None:
            self.looks = Reservoir(self.kernel, int(block.shape[1]), _SEED)
            self.unseen = None if self.sums is None else self.sums.inside
        self.looks.add(block)
        before = 0 if self.sums is None else self.sums.inside.n_rows
        most = rows_to_see(block.shape[0], before)
        more = StreamSums(
            landmark_sums(self.kernel, block, self.landmarks, self.view.span),
            self.view.sums(block, np.random.default_rng((_SEED, before)), most),
        )
        self.sums = more if self.sums is None else added(self.sums, more)

    def model(self, n_components: int | None, centre: bool) -> StreamModel:
        """The best components of all rows so far."""
        self.settle()
        assert self.kernel is not None  # there are landmarks
        assert self.sums is not None
        span, sums = Span.of(self.kernel, self.landmarks), self.sums.inside
        model = LandmarkModel.fit(self.kernel, self.landmarks, sums, n_components, centre, span)
        outside = span_residual(span, sums)
        if not centre:
            return StreamModel(model, outside, 0.0)
        model, error = corrected(model, self.sums.outside, outside)
        return StreamModel(model, outside, error)

    def missing(self, model: LandmarkModel, outside: float, centre: bool) -> Shortfall:
        """What landmarks miss of each eigenvalue of a model of all rows so far.

        It may be that of some rows before; of rows that were never here it is in the error.
        """
        goal, last = (len(model.eigenvalues), centre), self._last_look
        if last is None or not last.still_holds(goal, model.n_rows, outside):
            now = self._measured(model, outside, centre)
            last = self._last_look = _Look(goal, model.n_rows, outside, now)
        return last.missing

    def _measured(self, model: LandmarkModel, outside: float, centre: bool) -> Shortfall:
        assert self.view is not None  # rows were added
        assert self.looks is not None
        span, looks, k = self.view.span, self.looks, len(model.eigenvalues)
        if looks.has_all and self.unseen is None:
            return whole_look(span, model, k, looks.sample().rows, outside, centre).missing
        rows, rng = looks.sampler(model.n_rows), np.random.default_rng(_SEED)
        missing = paired_shortfall(span, model, k, rows, outside, looks.size, centre, rng)
        if self.unseen is None:
            return missing
        # By no more than what is outside of them (Weyl); two errors are held against accuracy.
        most = span_residual(span, self.unseen)
        unknown = most / np.maximum(model.eigenvalues + most, np.finfo(float).tiny) / 2
        return missing._replace(errors=np.maximum(missing.errors, unknown))


def added(one: StreamSums, other: StreamSums) -> StreamSums:
    """The sums of two sets of rows together."""
    return StreamSums(
        LandmarkSums(*_pairwise(one.inside, other.inside)),
        OutsideSums(*_pairwise(one.outside, other.outside)),
    )


def _pairwise(one: tuple[Any, ...], other: tuple[Any, ...]) -> list[Any]:
    return [a + b for a, b in zip(one, other, strict=True)]
