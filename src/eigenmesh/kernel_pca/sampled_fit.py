"""Rows that are elsewhere, in a Spark frame or on a device, and some of them here.

Gamma and landmarks follow from those that are here as from an array, and what the landmarks miss is
measured on them. What all rows add up to is worked out where they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from eigenmesh.estimators.accuracy import caveats_of, lost_in_rounding, n_resolved
from eigenmesh.estimators.checks import components_asked
from eigenmesh.kernel_pca.one_array import (
    ComponentFit,
    LandmarkFacts,
    explaining,
    landmark_gamma,
    learn_alone,
    stated_gamma,
    stream_of_given,
    with_landmarks,
)
from eigenmesh.kernel_pca.streams import ROWS_A_LANDMARK, LandmarkStream
from eigenmesh.numerics.arrays import Floats, Rows
from eigenmesh.numerics.gamma_rules import (
    Moments,
    gamma_for_manhattan,
    gamma_mean_distance,
    gamma_scale,
)
from eigenmesh.numerics.kernels import KERNELS, Kernel
from eigenmesh.numerics.landmark_sums import Span, span_residual
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.paired_shortfall import paired_shortfall
from eigenmesh.numerics.shortfall import Shortfall, nothing_missing, spans_all
from eigenmesh.stages.coverage import Coverage

SAMPLE_ROWS = 20_000  # that come here, where the landmarks' number is not given
_SAMPLE_FLOATS = 1 << 25  # that they have at most, but for 20 rows a landmark
PROBED_ROWS = 1024  # of them, by which what landmarks miss is measured
_SEED = 0


class RowsElsewhere(Protocol):
    """Rows, drawn uniformly, of all that are elsewhere."""

    @property
    def rows(self) -> Floats:
        """Those that are here, (m, d)."""

    def candidates(self, kernel: Kernel) -> Floats:
        """Those of which landmarks are made."""

    def looks(self, kernel: Kernel) -> Rows:
        """Those, or who draws those, by which it is measured what landmarks miss."""

    @property
    def n_rows(self) -> int:
        """Of all."""

    @property
    def moments(self) -> Moments:
        """Of all."""


class LandmarkStart(NamedTuple):
    """What rows are to be added up with, how skewed leverage is, and why these landmarks."""

    stream: LandmarkStream
    skew: float | None
    why: str


def sample_size(n_landmarks: int | None, n_columns: int) -> int:
    """How many rows come here, if there are so many: 20 a landmark at least.

    >>> sample_size(None, 100), sample_size(None, 100_000), sample_size(5000, 100)
    (20000, 2000, 100000)
    """
    least = ROWS_A_LANDMARK * (100 if n_landmarks is None else n_landmarks)
    return max(least, min(SAMPLE_ROWS, _SAMPLE_FLOATS // n_columns))


def landmarks_from(kpca: Any, sample: RowsElsewhere) -> LandmarkStart:
    """Landmarks by the rows that are here, unless they are given."""
    if kpca.landmarks_are_given:
        return LandmarkStart(stream_of_given(kpca, sample.rows), None, "the landmarks are given")
    gamma = gamma_of_all(kpca.kernel, kpca.gamma, sample)
    if gamma is None:
        gamma = landmark_gamma(kpca, sample.rows)
    _, k = components_asked(kpca.n_components)
    # Landmarks of a number that is given stay, whatever they miss of these rows.
    accuracy = kpca.accuracy if kpca.n_landmarks is None else None
    rows = sample.candidates(Kernel(kpca.kernel, gamma, kpca.degree, kpca.coef0))
    estimator, why = with_landmarks(kpca, rows, gamma, k, accuracy)
    learn_alone(estimator, rows, gamma)
    model = estimator.model_
    return LandmarkStart(
        LandmarkStream.resumed(model.kernel, model.landmarks, None),
        estimator.leverage_skew_,
        f"{why}, by {len(rows):,} of {sample.n_rows:,} rows",
    )


def gamma_of_all(kernel: str, gamma: Any, sample: RowsElsewhere) -> float | None:
    """The gamma of a rule that all rows' moments settle; None of others."""
    if not KERNELS[kernel].uses_gamma or gamma not in ("scale", "mean-distance"):
        return None
    moments = sample.moments
    d = len(moments.mean)
    if gamma == "scale":
        euclidean = gamma_scale(d, moments.entries().variance)
    else:
        euclidean = gamma_mean_distance(moments.count, moments.deviation)
    return gamma_for_manhattan(euclidean, d) if kernel == "laplacian" else euclidean


def sampled_components(
    kpca: Any, sample: RowsElsewhere, start: LandmarkStart, words: str
) -> ComponentFit:
    """The components, once the stream has the sums of all rows; `words` say where these are."""
    share, k = components_asked(kpca.n_components)
    whole = start.stream.model(k, bool(kpca.center))
    model = explaining(whole.model, share)
    missing = _missing(sample, start.stream, model, bool(kpca.center))
    q, wants_number = int(model.landmarks.shape[0]), kpca.n_components is not None
    how = (q, "given", wants_number, False, n_resolved(model))
    caveats = caveats_of(Coverage(missing, {}, ()), kpca.accuracy, *how)
    if wants_number or not caveats:  # else they say already that not all there are can be had
        caveats += lost_in_rounding(model)
    facts = LandmarkFacts(whole.outside, whole.error, start.skew)
    method = f"diskpca: {words} add up over landmarks; {start.why}"
    return ComponentFit(model, stated_gamma(model), method, missing, facts, caveats)


def _missing(
    sample: RowsElsewhere, stream: LandmarkStream, model: LandmarkModel, centre: bool
) -> Shortfall:
    """What landmarks miss of each eigenvalue, by some of the rows that are here.

    These stand for all: eigenvalues and distances count as those of so many rows.
    """
    assert stream.kernel is not None  # there are landmarks
    assert stream.sums is not None  # of all rows
    span, k = Span.of(stream.kernel, stream.landmarks), len(model.eigenvalues)
    outside = span_residual(span, stream.sums.inside)
    if spans_all(outside, model.total, int(model.landmarks.shape[0]), model.n_rows):
        return nothing_missing(k)
    rng, rows = np.random.default_rng(_SEED), sample.looks(stream.kernel)
    share = int(rows.shape[0]) / sample.n_rows
    scaled = replace(model, eigenvalues=model.eigenvalues * share)
    return paired_shortfall(span, scaled, k, rows, share * outside, PROBED_ROWS, centre, rng)
