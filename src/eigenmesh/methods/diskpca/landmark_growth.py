"""Landmarks that are doubled until they miss little of what is wanted.

After a fit inside the span of some landmarks the parties are asked once more, for what their rows
add up to outside it (`numerics.shortfall`). Where the wanted eigenvalues lack more than they may,
landmarks of the same kind are drawn, twice as many; what leaves a party was settled beforehand.

===================  ============================================================================
party reveals        sums of random features of a sample of its rows, less their part in the span,
                     with weights 1 and the scores of a few components; the largest direction of
                     their variance; the sum and a power sum of distances to the span (moments)
coordinator learns   these; some components go to all parties
===================  ============================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from eigenmesh.errors import RankError
from eigenmesh.methods.diskpca.landmark_draws import Chosen
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.outside_features import outside_floats
from eigenmesh.numerics.shortfall import (
    Probes,
    ProbeSums,
    Shortfall,
    nothing_missing,
    probed,
    share_to_see,
    shortfall,
)
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, NonNegative, Positive, Reveals, Shape
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.records import record
from eigenmesh.stages.coverage import Coverage
from eigenmesh.stages.row_messages import by_party

ROUNDING = 1e-10  # of the variance: if no more is outside, nothing is
_CLOSER_ROWS, _CLOSER_FEATURES = 8, 4  # times as many, in a second look
_PROVEN = 1e-3  # of the last eigenvalue: if less is outside, nobody needs to be asked


class ProbeAsk(Message, reveals="gram"):
    """`numerics.shortfall.Probes`; the receiver holds Y."""

    coefficients: Annotated[Floats, Shape("q", "p")]
    offset: Annotated[Floats, Shape("p")]
    scale: Annotated[float, Reveals("moments"), NonNegative]
    share: Annotated[float, Positive]
    n_features: Annotated[int, Positive]


class OutsideProbes(Message, reveals="moments"):
    """`numerics.shortfall.ProbeSums`."""

    features: Annotated[Floats, Shape("p", "t")]
    noise: Annotated[Floats, Shape("p"), NonNegative]
    mean: Annotated[Floats, Shape("t")]
    direction: Annotated[Floats, Shape("t")]
    peak: Annotated[float, NonNegative]
    outside: Annotated[float, NonNegative]
    n_rows: Annotated[int, Reveals("counts"), Positive]


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


record(Shortfall)


class SpanFit(NamedTuple):
    """A fit inside the landmarks' span."""

    model: LandmarkModel
    outside: float  # squared distance of all rows to the span, Σ‖φ(a) − Pφ(a)‖²
    error: float = 0.0  # standard error of the model's total


def fit_until_accurate(
    rows: Federation,
    step: Step,
    accuracy: Accuracy,
    center: bool,
    chosen: Chosen,
    fit: Callable[[Chosen], SpanFit],
    draw_more: Callable[[Chosen, int], Chosen],
) -> tuple[Chosen, SpanFit, Coverage]:
    """Fit, look at what is missing, and draw twice as many landmarks while it is too much.

    `step` is the role's `probe_outside`.
    """
    is_last = False
    while True:
        q = chosen.Y.shape[0]
        more = min(2 * q, accuracy.most_landmarks, sum(chosen.most.values()))
        is_last = is_last or more <= q
        try:
            result = fit(chosen)
        except RankError:  # which more landmarks may have
            if is_last:
                raise
        else:
            coverage = measure(rows, step, accuracy, center, chosen, result)
            if is_last or coverage.shortfall.is_within(accuracy.largest_missing):
                return chosen, result, coverage
        chosen = draw_more(chosen, more)
        # None where all rows are in the span, or who had some is lost: the parties have new ones.
        is_last = chosen.Y.shape[0] <= q


def measure(
    rows: Federation, step: Step, accuracy: Accuracy, center: bool, chosen: Chosen, fit: SpanFit
) -> Coverage:
    """What the landmarks miss: one round, or a second with a closer look where that leaves doubt.

    Where more than one party is asked, all are, so that the cost is known beforehand.
    """
    model, n = fit.model, fit.model.n_rows
    k, q, alone = accuracy.n_wanted(model), chosen.Y.shape[0], len(rows.parties) == 1
    z = model.eigenvalues[:k]
    proven = fit.outside <= max(ROUNDING * model.total, _PROVEN * float(z[-1]))
    if q >= n or (alone and proven):
        return Coverage(nothing_missing(k), {}, chosen.unheard)
    d = int(model.landmarks.shape[1])
    fit_floats = None if alone else floats_of_fit(model.kernel.name, q, d, center)
    which, width = probed(k, q, fit_floats)
    roots = np.sqrt(np.maximum(z[which], np.finfo(float).tiny))
    asked = ProbeAsk(
        coefficients=model.coefficients[:, which] / roots,
        offset=model.offset[which] / roots,
        scale=fit.outside / n,
        share=share_to_see(q, n),
        n_features=width,
    )

    def look(asked: ProbeAsk) -> Coverage:
        replies = by_party(rows.ask(step, asked))
        sums = [ProbeSums(*(getattr(r, f) for f in ProbeSums._fields)) for r in replies.values()]
        missing = shortfall(model.kernel.name, z, which, sums, fit.outside, center)
        if fit.outside <= ROUNDING * model.total:
            missing = nothing_missing(k)
        outside = {name: reply.outside for name, reply in replies.items()}
        return Coverage(missing, outside, chosen.unheard, q >= sum(chosen.most.values()))

    first = look(asked)
    if asked.share == 1 or not first.shortfall.is_doubtful(accuracy.largest_missing):
        return first
    share, features = min(1.0, _CLOSER_ROWS * asked.share), _CLOSER_FEATURES * width
    return look(dataclasses.replace(asked, share=share, n_features=features))


def probes_of(asked: ProbeAsk) -> Probes:
    """What a party is to look for."""
    return Probes(*(getattr(asked, name) for name in Probes._fields))


def floats_of_fit(kernel: str, q: int, d: int, center: bool) -> int:
    """Floats that a party sends and gets in a fit with q landmarks."""
    return q * (q + 1) // 2 + q + q * d + (outside_floats(kernel, d) if center else 0)


class ProbeCost(NamedTuple):
    """Floats of one look outside the span, a party."""

    down: int
    up: int


def probe_cost(kernel: str, k: int, q: int, d: int, center: bool) -> ProbeCost:
    """The floats of `measure` where several parties are asked."""
    which, t = probed(k, q, floats_of_fit(kernel, q, d, center))
    return ProbeCost((q + 1) * len(which), (len(which) + 2) * t + len(which))


def closer_floats(kernel: str, k: int, q: int, shape: tuple[int, int], center: bool) -> int:
    """Floats a party of a second look at `shape` rows and columns; 0 if the first sees all rows."""
    n, d = shape
    if share_to_see(q, n) == 1:
        return 0
    which, t = probed(k, q, floats_of_fit(kernel, q, d, center))
    return (q + 2) * len(which) + (len(which) + 2) * _CLOSER_FEATURES * t
