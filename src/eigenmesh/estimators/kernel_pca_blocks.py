"""Landmarks over a stream of blocks: fixed after the first rows, then every row only adds up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eigenmesh.federation.records import record
from eigenmesh.numerics.arrays import Rows
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmarks import LandmarkModel, LandmarkSums, landmark_sums
from eigenmesh.protocols.row_messages import stack

record(LandmarkSums)

ROWS_A_LANDMARK = 20  # rows seen for each landmark before the landmarks are fixed


class LandmarkStream:
    """Sums of blocks of rows; landmarks and gamma come from the first rows, or are given.

    `choose` gives an estimator that has drawn landmarks from rows. Until `enough` rows are there
    all are kept, and landmarks are drawn from them; then the landmarks stay, and no row is kept.
    """

    def __init__(self, choose: Callable[[Rows], Any] | None, enough: int) -> None:
        self.choose = choose
        self.enough = enough
        self.pending: Rows | None = None
        self.kernel: Kernel | None = None
        self.landmarks: Rows | None = None
        self.sums: LandmarkSums | None = None

    @classmethod
    def resumed(cls, kernel: Kernel, landmarks: Rows, sums: LandmarkSums | None) -> LandmarkStream:
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
        chosen = self.choose(self.pending).model_
        self.kernel, self.landmarks, self.sums = chosen.kernel, chosen.landmarks, None
        self._count(self.pending)

    def _count(self, block: Rows) -> None:
        assert self.kernel is not None  # there are landmarks
        more = landmark_sums(self.kernel, block, self.landmarks)
        self.sums = more if self.sums is None else added(self.sums, more)

    def model(self, n_components: int | None, centre: bool) -> LandmarkModel:
        """The best components of all rows so far."""
        self.settle()
        assert self.kernel is not None  # there are landmarks
        assert self.sums is not None
        return LandmarkModel.fit(self.kernel, self.landmarks, self.sums, n_components, centre)


def added(one: LandmarkSums, other: LandmarkSums) -> LandmarkSums:
    """The sums of two sets of rows together."""
    return LandmarkSums(
        one.gram + other.gram,
        one.sums + other.sums,
        one.n_rows + other.n_rows,
        one.trace + other.trace,
    )
