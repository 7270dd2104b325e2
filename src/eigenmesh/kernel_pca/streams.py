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
from eigenmesh.runtime.records import record
from eigenmesh.stages.row_messages import stack

ROWS_A_LANDMARK = 20  # rows seen for each landmark before the landmarks are fixed
_SEED = 0  # of the random features, so that a stream can be taken up again


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


class LandmarkStream:
    """Sums of blocks of rows; landmarks and gamma come from the first rows, or are given.

    `choose` gives a model with landmarks that were drawn from rows. Until `enough` rows are there
    all are kept, and landmarks are drawn from them; then the landmarks stay, and no row is kept.
    """

    def __init__(self, choose: Callable[[Rows], LandmarkModel] | None, enough: int) -> None:
        self.choose = choose
        self.enough = enough
        self.pending: Rows | None = None
        self.kernel: Kernel | None = None
        self.landmarks: Rows | None = None
        self.sums: StreamSums | None = None
        self.view: OutsideView | None = None

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
        self.view = None
        self._count(self.pending)

    def _count(self, block: Rows) -> None:
        assert self.kernel is not None  # there are landmarks
        if self.view is None:
            self.view = OutsideView.of(Span.of(self.kernel, self.landmarks), _SEED)
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


def added(one: StreamSums, other: StreamSums) -> StreamSums:
    """The sums of two sets of rows together."""
    return StreamSums(
        LandmarkSums(*_pairwise(one.inside, other.inside)),
        OutsideSums(*_pairwise(one.outside, other.outside)),
    )


def _pairwise(one: tuple[Any, ...], other: tuple[Any, ...]) -> list[Any]:
    return [a + b for a, b in zip(one, other, strict=True)]
