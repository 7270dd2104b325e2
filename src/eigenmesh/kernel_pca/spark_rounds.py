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
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.data.odd_columns import warn_of_columns
from eigenmesh.data.spark_passes import over_partitions, sum_over_partitions
from eigenmesh.data.spark_rows import NO_ROWS, FeatureLayout, SparkRows
from eigenmesh.errors import InputError
from eigenmesh.estimators.accuracy import caveats_of, lost_in_rounding
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import components_asked
from eigenmesh.kernel_pca.one_array import (
    ComponentFit,
    LandmarkFacts,
    explaining,
    landmark_gamma,
    learn_alone,
    require_sums_suit,
    stated_gamma,
    stream_of_given,
    with_landmarks,
)
from eigenmesh.kernel_pca.streams import ROWS_A_LANDMARK, LandmarkStream, StreamSums, added
from eigenmesh.methods.diskpca.protocol import ROUNDING
from eigenmesh.numerics.arrays import Floats, Rows
from eigenmesh.numerics.gamma_rules import (
    Moments,
    gamma_for_manhattan,
    gamma_mean_distance,
    gamma_scale,
    merge,
    moments_of,
)
from eigenmesh.numerics.kernels import KERNELS, Kernel
from eigenmesh.numerics.landmark_sums import Span, landmark_sums, span_residual
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import OutsideView, rows_to_see
from eigenmesh.numerics.paired_shortfall import paired_shortfall
from eigenmesh.numerics.shortfall import Shortfall, nothing_missing
from eigenmesh.runtime.records import record
from eigenmesh.stages.coverage import Coverage

SAMPLE_ROWS = 20_000  # that come to the driver, where the landmarks' number is not given
_SAMPLE_FLOATS = 1 << 25  # that they have at most, but for 20 rows a landmark
_PROBED_ROWS = 1024  # of them, by which what landmarks miss is measured
_SEED = 0  # of the random features, as of a stream's

record(Moments)


class SparkFit(NamedTuple):
    """Components of a Spark frame, what its rows add up to, and its features' names."""

    components: ComponentFit
    stream: LandmarkStream
    names: tuple[str, ...]


def fit_spark(kpca: Any, source: SparkRows) -> SparkFit:
    """The three passes, with the parameters of a `KernelPCA`."""
    require_sums_suit(kpca)
    share, k = components_asked(kpca.n_components)
    centre, layout = bool(kpca.center), source.layout()
    q = len(kpca.landmarks) if kpca.landmarks_are_given else kpca.n_landmarks
    sample = sampled(source, layout, q, seed_of(kpca.random_state))
    warn_of_columns(sample.rows, layout.names)
    stream, skew, why = _landmarks_from(kpca, sample, k)
    assert stream.kernel is not None  # there are landmarks
    stream.sums = summed_in_spark(sample, stream.kernel, stream.landmarks)
    whole = stream.model(k, centre)
    model = explaining(whole.model, share)
    missing = _missing(sample, stream, model, centre)
    q, wants_number = int(model.landmarks.shape[0]), kpca.n_components is not None
    caveats = caveats_of(Coverage(missing, {}, ()), kpca.accuracy, q, "given", wants_number)
    caveats += lost_in_rounding(model) if wants_number else ()
    words = f"diskpca: rows of {sample.n_partitions} Spark partitions add up over landmarks; {why}"
    facts = LandmarkFacts(whole.outside, whole.error, skew)
    components = ComponentFit(model, stated_gamma(model), words, missing, facts, caveats)
    return SparkFit(components, stream, layout.names)


def _landmarks_from(
    kpca: Any, sample: SparkSample, k: int | None
) -> tuple[LandmarkStream, float | None, str]:
    """What adds up over landmarks from the rows at the driver; their skewness; why these."""
    if kpca.landmarks_are_given:
        return stream_of_given(kpca, sample.rows), None, "the landmarks are given"
    gamma = spark_gamma(kpca.kernel, kpca.gamma, sample)
    if gamma is None:
        gamma = landmark_gamma(kpca, sample.rows)
    estimator, why = with_landmarks(kpca, sample.rows, gamma, k, kpca.accuracy)
    learn_alone(estimator, sample.rows, gamma)
    model = estimator.model_
    return (
        LandmarkStream.resumed(model.kernel, model.landmarks, None),
        estimator.leverage_skew_,
        f"{why}, by {len(sample.rows):,} of {sample.n_rows:,} rows",
    )


def spark_gamma(kernel: str, gamma: Any, sample: SparkSample) -> float | None:
    """The gamma of a rule that all rows' moments settle; None of others."""
    d, moments = len(sample.moments.mean), sample.moments
    if not KERNELS[kernel].uses_gamma or gamma not in ("scale", "mean-distance"):
        return None
    if gamma == "scale":
        euclidean = gamma_scale(d, moments.entries().variance)
    else:
        euclidean = gamma_mean_distance(moments.count, moments.deviation)
    return gamma_for_manhattan(euclidean, d) if kernel == "laplacian" else euclidean


def _missing(
    sample: SparkSample, stream: LandmarkStream, model: LandmarkModel, centre: bool
) -> Shortfall:
    """What landmarks miss of each eigenvalue, by the rows at the driver.

    These stand for all: eigenvalues and distances count as those of so many rows.
    """
    assert stream.kernel is not None  # there are landmarks
    assert stream.sums is not None  # of all rows
    span, k = Span.of(stream.kernel, stream.landmarks), len(model.eigenvalues)
    outside = span_residual(span, stream.sums.inside)
    if model.landmarks.shape[0] >= model.n_rows or outside <= ROUNDING * model.total:
        return nothing_missing(k)  # the landmarks span every row
    share = len(sample.rows) / sample.n_rows
    scaled = replace(model, eigenvalues=model.eigenvalues * share)
    rng, rows = np.random.default_rng(_SEED), sample.rows
    return paired_shortfall(span, scaled, k, rows, share * outside, _PROBED_ROWS, centre, rng)


class SparkSample(NamedTuple):
    """A Spark frame after two passes: moments of all rows, and some of them, drawn uniformly."""

    source: SparkRows
    layout: FeatureLayout
    moments: Moments
    n_partitions: int
    rows: Floats  # (m, d)

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
    draws = over_partitions(frame, partial(_drawn, layout, places), "drawing rows", n)
    for number, size in sizes.items():
        require_same_rows(size, draws[number][0] if number in draws else 0)
    rows = np.concatenate([own for _, own in draws.values() if len(own)])
    return SparkSample(source, layout, moments, len(sizes), rows)


def sample_size(n_landmarks: int | None, n_columns: int) -> int:
    """How many rows come to the driver, if there are so many: 20 a landmark at least.

    >>> sample_size(None, 100), sample_size(None, 100_000), sample_size(5000, 100)
    (20000, 2000, 100000)
    """
    least = ROWS_A_LANDMARK * (100 if n_landmarks is None else n_landmarks)
    return max(least, min(SAMPLE_ROWS, _SAMPLE_FLOATS // n_columns))


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
