"""disKPCA of rows that count differently: as so many copies of each as its weight says.

Landmarks as in disKPCA, where a row is a row; then sums over rows with their weights, which each
party has in its own store.

===================  ============================================================================
party keeps          its rows and their weights
party reveals        what it reveals in disKPCA, with sums that are weighted, and the sum of its
                     weights (moments)
coordinator learns   these; the landmarks go to all parties
===================  ============================================================================

With an accuracy parties are asked what landmarks miss, as in disKPCA, by sums of rows that are as
much longer as makes their squares count by weight. The mean outside the span is not looked for, so
that a centred variance is an upper bound.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.methods.diskpca.drawn import SummedRows
from eigenmesh.methods.diskpca.landmark_fits import (
    Accuracy,
    DisKPCAResult,
    LandmarkSet,
    Numbers,
    SpanFit,
)
from eigenmesh.methods.diskpca.looks import OutsideProbes, ProbeAsk, ProbedComponents, SummedOutside
from eigenmesh.methods.diskpca.protocol import (
    NewLandmarks,
    RowHolder,
    choose_landmarks,
    choosing,
    fit_until_accurate,
    gram_rounds,
    growing,
    landmarks_of_fit,
    leverage_by_gram,
    more_landmarks,
    require_fresh_replies,
    result_of,
)
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup
from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, blocks
from eigenmesh.numerics.landmark_sums import LandmarkSums, Span, full, span_residual
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.plausible import exceeds, is_gram, require_possible_sums
from eigenmesh.numerics.shortfall import probe, probe_for_sum
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Context,
    Floats,
    Message,
    NonNegative,
    OwnRows,
    Reveals,
    Shape,
)
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Node, Scope, Size, enlist, sequence, total
from eigenmesh.stages.row_messages import (
    NOT_A_GRAM,
    kernel_of,
    wrong_trace,
)
from eigenmesh.stages.site_points import weights_of
from eigenmesh.threads import one_blas_thread


class WeightedSums(Message, reveals="gram"):
    """Σ w k kᵀ, Σ w k, Σ w and Σ w k(x, x) of some rows, k being shifted values with landmarks."""

    upper: Annotated[Floats, Shape("q*(q+1)//2")]
    sums: Annotated[Floats, Shape("q")]
    n_rows: Annotated[int, Reveals("counts"), OwnRows]
    weight: Annotated[float, Reveals("moments"), NonNegative]
    trace: Annotated[float, Reveals("moments")]

    def contradiction(self, context: Context) -> str | None:
        """As of `GramSums`, with weights."""
        if not is_gram(full(self.upper), self.sums, self.weight):
            return NOT_A_GRAM
        return wrong_trace(context, self.trace, self.weight)


class WeightedProbes(OutsideProbes, reveals="moments", covers="fewest"):
    """The same of rows that count by weight."""

    weight: Annotated[float, NonNegative]

    def contradiction(self, context: Context) -> str | None:
        """Distances to a span are no longer than the rows."""
        if kernel_of(context.setup).is_level and exceeds(self.outside, self.weight):
            return (
                f"squared distances of rows that weigh {self.weight:.6g} add up to "
                f"{self.outside:.6g}, where k(x, x) = 1"
            )
        return None


class WeightedOutside(SummedOutside, reveals="moments"):
    """What may be masked of it."""

    weight: Annotated[float, NonNegative]


class WeightedRows(RowHolder):
    """Holds rows, and how much each counts."""

    @step(reusable=False)
    def weighted_gram(self, others: NewLandmarks) -> WeightedSums:
        """What the rows add up to with all landmarks."""
        Y, w = self.take_up(others), self.weights
        sums = weighted_landmark_sums(Span.of(self.kernel, Y), self.site.data, w)
        return WeightedSums(**sums.packed(), weight=float(w.sum()))

    @step(reusable=False)
    def probe_outside(self, components: ProbeAsk) -> WeightedProbes:
        """As of rows that all count the same."""
        measure = partial(probe, n_far=self.site.rows_of_a_largest, weights=self.weights)
        sums = self._weighed(self.probed(measure, components))
        return WeightedProbes(**{name: self._few(own) for name, own in sums.items()})

    @step(reusable=False)
    def probe_summed(self, components: ProbeAsk) -> WeightedOutside:
        """As of rows that all count the same."""
        by = partial(probe_for_sum, weights=self.weights)
        return WeightedOutside(**self._weighed(self.probed(by, components)))

    def _weighed(self, sums: Any) -> dict[str, Any]:
        """Fields of a message with sums, whose rows count by weight."""
        return {**sums._asdict(), "n_rows": len(self.scores), "weight": sums.n_rows}

    @property
    def weights(self) -> Doubles:
        """How much each row counts."""
        return np.asarray(weights_of(self.site, self.setup.weights), dtype=np.float64)


def schedule(
    scope: Scope,
    setup: LandmarkSetup,
    n_components: int | None,
    n_landmarks: int,
    landmarks: str,
    center: bool,
    accuracy: Accuracy | None,
) -> Node:
    """Landmarks, and sums with weights; with an accuracy looks, and perhaps more of all."""

    def fit(numbers: Numbers, is_sure: bool) -> Node:
        new = landmarks_of_fit(numbers)
        return total(WeightedRows.weighted_gram, **new, up={"q": Size(numbers.q, is_sure)})

    def fits(numbers: Numbers) -> Node:
        if accuracy is None:
            return fit(numbers, True)
        is_exact = n_components is not None and accuracy.variance_share is None
        probes = ProbedComponents(setup.kernel, n_components, is_exact, center)
        return growing(scope, WeightedRows, landmarks, probes, accuracy, numbers, fit)

    leverage = gram_rounds(WeightedRows)
    return sequence(
        enlist(WeightedRows, setup),
        choosing(WeightedRows, setup, n_landmarks, landmarks, leverage, fits),
    )


@protocol("weighted-kpca", roles=(WeightedRows, SummedRows), schedule=schedule, version=2)
def weighted_kpca(
    rows: Federation,
    setup: LandmarkSetup,
    n_components: int | None,
    n_landmarks: int,
    landmarks: str,
    center: bool,
    accuracy: Accuracy | None = None,
) -> DisKPCAResult:
    """Landmarks, and the best components inside their span; with an accuracy perhaps more."""
    require_fresh_replies(rows)
    rows.enlist(WeightedRows, setup)
    leverage = leverage_by_gram(WeightedRows)
    first = choose_landmarks(rows, WeightedRows, setup, n_landmarks, landmarks, leverage)

    def fit(landmark_set: LandmarkSet) -> SpanFit:
        return _fit(rows, setup, n_components, landmark_set, center)

    if accuracy is None:
        return result_of(first, fit(first), None)
    more = more_landmarks(rows, WeightedRows, setup, landmarks)
    return result_of(*fit_until_accurate(rows, WeightedRows, accuracy, center, first, fit, more))


def _fit(
    rows: Federation, setup: LandmarkSetup, k: int | None, landmark_set: LandmarkSet, center: bool
) -> SpanFit:
    total = rows.total(WeightedRows.weighted_gram, each=landmark_set.unseen).sum
    if not total.weight > 0:
        raise InputError("sample_weight is 0 everywhere; a positive weight is expected of some row")
    # As if all rows together weighed as much as they are; eigenvalues are then scaled back.
    scale = total.n_rows / total.weight
    scaled = (scale * full(total.upper), scale * total.sums, total.n_rows, scale * total.trace)
    sums, span = LandmarkSums(*scaled), Span.of(kernel_of(setup), landmark_set.Y)
    model = LandmarkModel.fit(span.kernel, landmark_set.Y, sums, k, center, span)
    model = model.signed_by(span)
    require_possible_sums(float(np.sum(model.eigenvalues)), model.total)
    weighted = dataclasses.replace(
        model,
        eigenvalues=model.eigenvalues / scale,
        next_eigenvalue=model.next_eigenvalue / scale,
        total=model.total / scale,
    )
    outside = span_residual(span, sums) / scale
    unknown = outside if center else 0.0  # of the mean, at most so much lies outside the span
    return SpanFit(weighted, span, outside, unknown, weight=float(total.weight))


def weighted_landmark_sums(span: Span, A: Rows, weights: Doubles) -> LandmarkSums:
    """`landmark_sums` of rows A as if there were as many copies of each as its weight says.

    >>> from eigenmesh.numerics.kernels import Kernel
    >>> span = Span.of(Kernel("linear"), np.array([[1.0], [2.0]]))
    >>> weighted_landmark_sums(span, np.array([[1.0], [4.0]]), np.array([1.0, 2.0])).sums
    array([4.5, 9. ])
    """
    q = len(span.K)
    gram, sums, trace = np.zeros((q, q)), np.zeros(q), 0.0
    with one_blas_thread():
        for rows in blocks(A.shape[0]):
            X, w = as_rows(A[rows], np.float64), weights[rows]
            K = np.asarray(span.kernel.block(X, span.landmarks), dtype=np.float64) - span.shift
            scaled = np.sqrt(w)[:, None] * K
            gram += scaled.T @ scaled
            sums += w @ K
            trace += float(w @ np.asarray(span.kernel.diagonal(X), dtype=np.float64))
    return LandmarkSums(gram, sums, int(A.shape[0]), trace)
