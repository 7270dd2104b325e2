"""Rows in a Spark frame: three passes over its partitions, and the components follow.

1. Every partition counts its rows, looks whether they are numbers, and takes their moments.
2. Rows drawn uniformly from all come to the driver: gamma and the landmarks follow from them as
   from an array, and what the landmarks miss is measured on them.
3. Every partition adds up its kernel values with the landmarks, and what it has outside their span.

The driver holds these rows, of a number that does not grow with the frame's, the landmarks and q²
numbers. A frame that is not cached is computed anew for each pass; one that comes out otherwise is
refused as far as it can be seen, by its partitions' numbers of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.data.spark_passes import over_partitions, sum_over_partitions
from eigenmesh.data.spark_rows import NO_ROWS, FeatureLayout, SparkRows
from eigenmesh.errors import InputError
from eigenmesh.estimators.base import seed_of
from eigenmesh.kernel_pca.one_array import ComponentFit, require_sums_suit
from eigenmesh.kernel_pca.sampled_fit import (
    PROBED_ROWS,
    landmarks_from,
    sample_size,
    sampled_components,
)
from eigenmesh.kernel_pca.streams import LandmarkStream, StreamSums, added
from eigenmesh.numerics.arrays import Floats, Rows
from eigenmesh.numerics.gamma_rules import Moments, merge, moments_of
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span, landmark_sums
from eigenmesh.numerics.mean_outside import OutsideView, rows_to_see
from eigenmesh.runtime.records import record

_SEED = 0  # of the random features, as of a stream's
_FURTHER = 1  # draw of rows by the same seed
_LOOKS = 4  # times as many come as are looked at: where rows weigh unlike, these are drawn by it

record(Moments)


class SparkFit(NamedTuple):
    """Components of a Spark frame, what its rows add up to, and its features' names."""

    components: ComponentFit
    stream: LandmarkStream
    names: tuple[str, ...]


def fit_spark(kpca: Any, source: SparkRows) -> SparkFit:
    """The three passes, with the parameters of a `KernelPCA`."""
    require_sums_suit(kpca)
    layout = source.layout()
    q = len(kpca.landmarks) if kpca.landmarks_are_given else kpca.n_landmarks
    sample = sampled(source, layout, q, seed_of(kpca.random_state))
    kpca._look_at_columns(sample.rows, layout.names)
    start = landmarks_from(kpca, sample)
    stream = start.stream
    assert stream.kernel is not None  # there are landmarks
    stream.sums = summed_in_spark(sample, stream.kernel, stream.landmarks)
    words = f"rows of {sample.n_partitions} Spark partitions"
    return SparkFit(sampled_components(kpca, sample, start, words), stream, layout.names)


class SparkSample(NamedTuple):
    """A Spark frame after two passes: moments of all rows, and some of them, drawn uniformly."""

    source: SparkRows
    layout: FeatureLayout
    moments: Moments
    n_partitions: int
    rows: Floats  # (m, d)
    further: Floats  # of another draw

    def candidates(self, kernel: Kernel) -> Floats:
        """These rows."""
        return self.rows

    def looks(self, kernel: Kernel) -> Floats:
        """Those of the other draw: landmarks were made of the first, which lie nearer to them."""
        return self.further

    @property
    def n_rows(self) -> int:
        """Of the frame."""
        return self.moments.count


def sampled(
    source: SparkRows, layout: FeatureLayout, n_landmarks: int | None, seed: int
) -> SparkSample:
    """The first two passes."""
    frame = source.selected(layout)
    parts = over_partitions(frame, partial(_counted, layout), "counting rows")
    sizes = {number: part.count for number, part in parts.items()}
    n = sum(sizes.values())
    if n < 2:
        raise InputError(NO_ROWS if not n else "the Spark frame has 1 row; at least 2 are expected")
    moments = merge(list(parts.values()))
    count = sample_size(n_landmarks, len(moments.mean))
    places = _places(sizes, count, np.random.default_rng(seed))
    others = min(count, _LOOKS * PROBED_ROWS)
    further = _places(sizes, others, np.random.default_rng((seed, _FURTHER)))
    both = {number: np.union1d(own, further[number]) for number, own in places.items()}
    draws = over_partitions(frame, partial(_drawn, layout, both), "drawing rows", n)
    for number, size in sizes.items():
        require_same_rows(size, draws[number][0] if number in draws else 0)

    def at(wanted: dict[int, Any]) -> Floats:
        own = [X[np.isin(both[number], wanted[number])] for number, (_, X) in draws.items()]
        return np.concatenate([X for X in own if len(X)])

    return SparkSample(source, layout, moments, len(sizes), at(places), at(further))


def require_same_rows(before: int, now: int) -> None:
    """Refuse a frame that has changed from one pass to the next."""
    if before != now:
        raise InputError(
            f"a partition of the Spark frame had {before} rows and then {now}: the frame is "
            f"computed for each pass, and not the same each time; frame.cache() or "
            f"frame.checkpoint() keeps it"
        )


def _places(sizes: dict[int, int], count: int, rng: np.random.Generator) -> dict[int, Any]:
    """The rows that each partition is to give, of `count` drawn from all without replacement."""
    ends = np.cumsum(list(sizes.values()))
    n = int(ends[-1])
    rows = np.arange(n) if count >= n else np.sort(rng.choice(n, count, replace=False))
    cuts = np.searchsorted(rows, ends)
    starts = np.concatenate([[0], ends[:-1]])
    each = np.split(rows, cuts[:-1])
    return {number: own - start for number, own, start in zip(sizes, each, starts, strict=True)}


def summed_in_spark(sample: SparkSample, kernel: Kernel, Y: Rows) -> StreamSums:
    """The third pass: what all rows add up to with the landmarks."""
    frame = sample.source.selected(sample.layout)
    work = partial(_summed, sample.layout, kernel, Y, sample.n_rows)
    passing = (sample.n_partitions, "kernel PCA", sample.n_rows)
    sums: StreamSums = sum_over_partitions(frame, work, _added_if_any, *passing)
    require_same_rows(sample.n_rows, 0 if sums is None else sums.inside.n_rows)
    return sums


# At the executors.


def _counted(layout: FeatureLayout, number: int, batches: Iterator[Any]) -> Moments:
    parts = [moments_of(X) for X in layout.blocks(number, batches)]
    return merge(parts) if parts else Moments(0, np.zeros(len(layout.names)), 0.0)


def _drawn(
    layout: FeatureLayout, places: dict[int, Any], number: int, batches: Iterator[Any]
) -> list[Any]:
    """How many rows there are, and those at some places."""
    n, own = 0, places.get(number, np.zeros(0, dtype=np.intp))
    rows = [np.zeros((0, len(layout.names)), layout.dtype)]
    for X in layout.blocks(number, batches):
        rows.append(X[own[(own >= n) & (own < n + len(X))] - n])
        n += len(X)
    return [n, np.concatenate(rows)]


def _summed(
    layout: FeatureLayout,
    kernel: Kernel,
    Y: Rows,
    n_rows: int,
    number: int,
    batches: Iterator[Any],
) -> StreamSums | None:
    view = OutsideView.of(Span.of(kernel, Y), _SEED)
    sums: StreamSums | None = None
    for i, X in enumerate(layout.blocks(number, batches)):
        # Every block is looked at in the share that the whole frame is.
        rng, most = np.random.default_rng((_SEED, number, i)), rows_to_see(len(X), n_rows - len(X))
        inside = landmark_sums(kernel, X, Y, view.span)
        sums = _added_if_any(sums, StreamSums(inside, view.sums(X, rng, most)))
    return sums


def _added_if_any(one: StreamSums | None, other: StreamSums | None) -> StreamSums | None:
    """Empty partitions have no sums."""
    if one is None or other is None:
        return other if one is None else one
    return added(one, other)
