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
from typing import Annotated, Any, NamedTuple

import numpy as np

from eigenmesh.errors import RankError
from eigenmesh.methods.diskpca.landmark_draws import LandmarkSet, Numbers, drawing_more
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import outside_floats
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
from eigenmesh.runtime.schedule import Node, Scope, Size, ask, loop, maybe, sequence
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


record(Shortfall)


class SpanFit(NamedTuple):
    """A fit inside the landmarks' span."""

    model: LandmarkModel
    span: Span
    outside: float  # squared distance of all rows to the span, Σ‖φ(a) − Pφ(a)‖²
    error: float = 0.0  # standard error of the model's total


class MeasuredFit(NamedTuple):
    """A fit, with the landmarks that it ended with, and what they miss."""

    landmark_set: LandmarkSet
    in_span: SpanFit
    coverage: Coverage


# The schedule.


class ProbedComponents(NamedTuple):
    """Components that are probed: how many at most, and whether that many are sure to be."""

    kernel: str
    n_components: int | None
    is_exact: bool
    center: bool


def doublings(q: int, most: int) -> int:
    """How often q landmarks can double until there are `most`.

    >>> doublings(30, 200), doublings(30, 30)
    (3, 0)
    """
    count = 0
    while 0 < q < most:
        q, count = 2 * q, count + 1
    return count


def most_after(accuracy: Accuracy, numbers: Numbers) -> int:
    """How many landmarks there are at most in the end."""
    return min(accuracy.most_landmarks, numbers.most)


def growing(
    scope: Scope,
    role: Any,
    landmarks: str,
    components: ProbedComponents | None,
    accuracy: Accuracy,
    numbers: Numbers,
    fit: Callable[[Numbers, bool], Node],
) -> Node:
    """The rounds of `fit_until_accurate`; `fit` has those of a fit, if so many landmarks are sure.

    Without `components` nobody looks at what the landmarks miss of them. How many landmarks there
    are after a further draw is not sure: rows in the span of others are not drawn.
    """
    most = most_after(accuracy, numbers)

    def level(own: Numbers, is_sure: bool, left: int) -> Node:
        looks = _looks(scope, role.probe_outside, components, own, is_sure, left > 0)
        if not left:
            return sequence(fit(own, is_sure), looks)
        q = min(2 * own.q, most)
        anew = landmarks == "centroids"
        planned = q if anew else q - own.q
        share = planned if anew or is_sure else min(own.q, most)
        grown = own._replace(q=q, quota=q, last=share, last_planned=planned)
        more = drawing_more(role, landmarks, share, own.d, planned)
        further = maybe(more, level(grown, False, left - 1), planned=False)
        return sequence(fit(own, is_sure), looks, further)

    return level(numbers, True, doublings(numbers.q, most))


def _looks(
    scope: Scope,
    step: Any,
    components: ProbedComponents | None,
    numbers: Numbers,
    is_sure: bool,
    may_grow: bool,
) -> Node | None:
    """The rounds of `measure`: none if every row is a landmark, else one or two."""
    n, d, q = numbers.n, numbers.d, numbers.q
    if components is None or (is_sure and q >= n):
        return None
    is_alone = len(scope.parties) == 1
    survives = scope.on_loss in ("survivors", "skip")  # one may then be alone who was not
    k = q if components.n_components is None else components.n_components
    floats = None if is_alone else floats_of_fit(components.kernel, q, d, components.center)
    (probes, width), (alone, widest) = (probed(k, q, floats), probed(k, q, None))
    is_exact = is_sure and components.is_exact and not survives
    p = len(probes) if is_exact else max(len(probes), len(alone) if survives else 0)
    sizes = {"q": Size(q, is_sure), "p": Size(p, is_exact, len(probes))}

    def look(times: int) -> Node:
        t = Size(times * (width if is_exact else widest), is_exact, times * width)
        return ask(step, down={**sizes, "n_features": t}, up={**sizes, "t": t})

    sees_all = share_to_see(q if is_sure else 1, n) == 1
    closer = None if sees_all else maybe(look(_CLOSER_FEATURES), planned=False)
    # A fit of too low a rank is not looked at where more landmarks may mend it.
    sure = q < n and not (is_alone or survives or may_grow)
    planned = int(q < n and not is_alone)
    return loop(1, look(1), closer, fewest=int(sure), usual=planned)


# The coordinator's side.


def fit_until_accurate(
    rows: Federation,
    step: Step,
    accuracy: Accuracy,
    center: bool,
    landmark_set: LandmarkSet,
    fit: Callable[[LandmarkSet], SpanFit],
    draw_more: Callable[[LandmarkSet, int], LandmarkSet],
) -> MeasuredFit:
    """Fit, look at what is missing, and draw twice as many landmarks while it is too much.

    `step` is the role's `probe_outside`.
    """
    most = min(accuracy.most_landmarks, sum(landmark_set.most.values()))
    left, is_last = doublings(landmark_set.Y.shape[0], most), False
    while True:
        q = landmark_set.Y.shape[0]
        is_last = is_last or not left
        try:
            result = fit(landmark_set)
        except RankError:  # which more landmarks may have
            if is_last:
                raise
        else:
            coverage = measure(rows, step, accuracy, center, landmark_set, result)
            if is_last or coverage.shortfall.is_within(accuracy.largest_missing):
                return MeasuredFit(landmark_set, result, coverage)
        landmark_set, left = draw_more(landmark_set, min(2 * q, most)), left - 1
        # None where all rows are in the span, or who had some is lost: the parties have new ones.
        is_last = landmark_set.Y.shape[0] <= q


def measure(
    rows: Federation,
    step: Step,
    accuracy: Accuracy,
    center: bool,
    landmark_set: LandmarkSet,
    fit: SpanFit,
) -> Coverage:
    """What the landmarks miss: one round, or a second with a closer look where that leaves doubt.

    Where more than one party is asked, all are, so that the cost is known beforehand.
    """
    model, n = fit.model, fit.model.n_rows
    k, q, alone = accuracy.n_wanted(model), landmark_set.Y.shape[0], len(rows.parties) == 1
    z = model.eigenvalues[:k]
    proven = fit.outside <= max(ROUNDING * model.total, _PROVEN * float(z[-1]))
    if q >= n or (alone and proven):
        return Coverage(nothing_missing(k), {}, landmark_set.unheard)
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
        return Coverage(
            missing, outside, landmark_set.unheard, q >= sum(landmark_set.most.values())
        )

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
