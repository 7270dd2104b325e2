"""disKPCA of rows that count differently: as so many copies of each as its weight says.

Landmarks as in disKPCA, where a row is a row; then sums over rows with their weights, which each
party has in its own store.

===================  ============================================================================
party keeps          its rows and their weights
party reveals        what it reveals in disKPCA, with sums that are weighted, and the sum of its
                     weights (moments)
coordinator learns   these; the landmarks go to all parties
===================  ============================================================================

What landmarks miss is estimated from the variance outside their span alone, without another round;
the mean outside the span is not looked for, so that a centred variance is an upper bound.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.methods.diskpca.landmark_draws import Chosen, NewLandmarks
from eigenmesh.methods.diskpca.landmark_growth import ROUNDING, Accuracy
from eigenmesh.methods.diskpca.leverage import LeverageMass, Whitening
from eigenmesh.methods.diskpca.protocol import (
    DisKPCAResult,
    RowHolder,
    choose_landmarks,
    drawing_steps,
    growing_steps,
    more_landmarks,
    require_fresh_replies,
    square,
)
from eigenmesh.methods.diskpca.weighted_sums import weighted_landmark_sums
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.float32_sums import Span
from eigenmesh.numerics.landmarks import LandmarkModel, LandmarkSums
from eigenmesh.numerics.shortfall import Shortfall, nothing_missing, unprobed_shortfall
from eigenmesh.numerics.span_residual import span_residual
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, NonNegative, Reveals, Shape
from eigenmesh.runtime.party import Step, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.stages.coverage import Coverage
from eigenmesh.stages.row_messages import KernelSetup, by_party, full, kernel_of, upper


class WeightSetup(KernelSetup, reveals=None):
    """Under which key of its own store a site keeps its rows' weights."""

    weights: str


class WeightedSums(Message, reveals="gram"):
    """Σ w k kᵀ, Σ w k, Σ w and Σ w k(x, x) of some rows, k being shifted values with landmarks."""

    upper: Annotated[Floats, Shape("q*(q+1)//2")]
    sums: Annotated[Floats, Shape("q")]
    n_rows: Annotated[int, Reveals("counts")]
    weight: Annotated[float, Reveals("moments"), NonNegative]
    trace: Annotated[float, Reveals("moments")]


class WeightedRows(RowHolder):
    """Holds rows, and how much each counts."""

    Setup = WeightSetup

    @step(reusable=False)
    def weighted_gram(self, others: NewLandmarks) -> WeightedSums:
        """What the rows add up to with all landmarks."""
        Y, w = self.take_up(others), self._weights()
        sums = weighted_landmark_sums(Span.of(self.kernel, Y), self.site.data, w)
        return WeightedSums(
            upper=upper(sums.gram),
            sums=sums.sums,
            n_rows=sums.n_rows,
            weight=float(w.sum()),
            trace=sums.trace,
        )

    def _weights(self) -> Doubles:
        kept = self.site.kept(self.setup.weights)
        weights = np.zeros(0) if kept is None else np.asarray(kept["weights"])
        n = int(self.site.data.shape[0])
        if len(weights) != n:
            raise InputError(
                f"party {self.site.name!r} has {n} rows and {len(weights)} weights; one a row is "
                f"expected",
                party=self.site.name,
            )
        return weights


def weighted_steps(landmarks: str) -> list[Step]:
    """The steps that a choice of landmarks asks for."""
    role = WeightedRows
    far = [step for step in growing_steps(landmarks, role) if step is not role.probe_outside]
    return list(dict.fromkeys([*drawing_steps(landmarks, role), role.weighted_gram, *far]))


@protocol("weighted-kpca", roles=(WeightedRows,))
def weighted_kpca(
    rows: Federation,
    setup: WeightSetup,
    n_components: int | None,
    n_landmarks: int,
    landmarks: str,
    center: bool,
    accuracy: Accuracy | None = None,
) -> DisKPCAResult:
    """Landmarks, and the best components inside their span; with an accuracy perhaps more."""
    require_fresh_replies(rows)
    rows.enlist(WeightedRows, setup, weighted_steps(landmarks))
    chosen = choose_landmarks(rows, WeightedRows, setup, n_landmarks, landmarks, _leverage)
    more = more_landmarks(rows, WeightedRows, setup, landmarks)
    while True:
        model, outside = _fit(rows, setup, n_components, chosen, center)
        q, most = chosen.Y.shape[0], sum(chosen.most.values())
        missing = _missing(model, outside, q >= sum(chosen.sizes.values()), accuracy)
        largest = 0 if accuracy is None else min(2 * q, accuracy.most_landmarks, most)
        if accuracy is None or missing.is_within(accuracy.largest_missing) or largest <= q:
            break
        chosen = more(chosen, largest)
    coverage = Coverage(missing, {}, chosen.unheard, q >= most)
    unknown = outside if center else 0.0  # of the mean, at most so much lies outside the span
    return DisKPCAResult(model, chosen.skew, outside, chosen.n_values, unknown, coverage)


def _leverage(rows: Federation) -> dict[str, LeverageMass]:
    gram = full(rows.total(WeightedRows.embedded_gram).sum.upper)
    whitening = Whitening(matrix=square(pseudo_inverse_root(gram)))
    return by_party(rows.ask(WeightedRows.leverage_mass, whitening))


def _fit(
    rows: Federation, setup: WeightSetup, k: int | None, chosen: Chosen, center: bool
) -> tuple[LandmarkModel, float]:
    total = rows.total(WeightedRows.weighted_gram, each=chosen.unseen).sum
    if not total.weight > 0:
        raise InputError("sample_weight is 0 everywhere; a positive weight is expected of some row")
    # As if all rows together weighed as much as they are; eigenvalues are then scaled back.
    scale = total.n_rows / total.weight
    scaled = (scale * full(total.upper), scale * total.sums, total.n_rows, scale * total.trace)
    sums, span = LandmarkSums(*scaled), Span.of(kernel_of(setup), chosen.Y)
    model = LandmarkModel.fit(span.kernel, chosen.Y, sums, k, center, span)
    weighted = dataclasses.replace(
        model,
        eigenvalues=model.eigenvalues / scale,
        next_eigenvalue=model.next_eigenvalue / scale,
        total=model.total / scale,
    )
    return weighted, span_residual(span, sums) / scale


def _missing(
    model: LandmarkModel, outside: float, every: bool, accuracy: Accuracy | None
) -> Shortfall:
    k = len(model.eigenvalues) if accuracy is None else accuracy.n_wanted(model)
    if every or outside <= ROUNDING * model.total:
        return nothing_missing(k)
    return unprobed_shortfall(model.eigenvalues[:k], outside, int(model.landmarks.shape[0]))
