"""What landmarks miss of the wanted eigenvalues: after a fit parties are asked once more.

===================  ============================================================================
party reveals        what its rows add up to outside the landmarks' span, in random features that
                     all draw alike, with weights 1 and the scores of a few components; the largest
                     direction of their variance; the sum and a power sum of distances to the span
coordinator learns   these, or their masked sums without directions and power sums
===================  ============================================================================

Where all rows are in one place pairs of them are looked at instead, and no message is made. What is
measured and why is in `numerics.shortfall`; `protocol.py` has the step of the party that answers,
and doubles landmarks while they miss too much.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import ceil, sqrt
from typing import Annotated, Any, NamedTuple

import numpy as np

from eigenmesh.errors import PartyLost
from eigenmesh.methods.diskpca.landmark_fits import (
    Accuracy,
    LandmarkSet,
    Numbers,
    SpanFit,
    planned_rank,
    rank_size,
)
from eigenmesh.numerics.arrays import Doubles, Rows, raw_rows
from eigenmesh.numerics.drawn_parties import DrawnParties, drawn_parties
from eigenmesh.numerics.landmark_sums import KernelValues, Span
from eigenmesh.numerics.mean_outside import (
    MeanOutside,
    OutsideSums,
    OutsideView,
    RowSampler,
    corrected,
    corrected_by,
    outside_floats,
)
from eigenmesh.numerics.paired_shortfall import PairedLook, paired_look
from eigenmesh.numerics.plausible import exceeds
from eigenmesh.numerics.shortfall import (
    PROBE_WIDTH,
    Probes,
    ProbeSums,
    Shortfall,
    SummedProbes,
    may_have_rivals,
    nothing_missing,
    probe_directions,
    probed,
    proven_shortfall,
    share_to_see,
    shortfall,
    summed_shortfall,
)
from eigenmesh.numerics.whole_look import whole_look
from eigenmesh.runtime.compact import EXACT
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Context,
    Floats,
    Message,
    NonNegative,
    OwnRows,
    Positive,
    Reveals,
    Shape,
)
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import Node, Scope, Size, ask, maybe, sequence, total
from eigenmesh.stages.coverage import Coverage
from eigenmesh.stages.row_messages import CentredSums, by_party, kernel_of

record(Shortfall)

_ROUNDING = 1e-10  # of the variance: if no more is outside, nothing is
_SPANNED = 1e-6  # of the variance: if more is outside where every row is a landmark, it is lost
# Of the variance: if more is outside, there is another eigenvalue. Of float32 rows rounding alone
# leaves up to a millionth there.
ABSENT = 1e-5
# Rounds of their own for the draws of samples, above all that draw landmarks.
SAMPLING = 2**32
PROBING = SAMPLING + 1
# Times as many features in a second look, of few parties and of more. A party's own sums are as
# long as kernel values say; what those of different parties have in common only features show.
_CLOSER_FEATURES, _FEW_PARTIES = (4, 8), 16
_OWN_LOOKS = (256, 512, 1024)  # rows looked at where all are in one place, while a doubt is left
_WARNED = 2.0  # standard errors above what may be missing, with which no closer look is taken
_PROVEN = 1e-3  # of the last wanted eigenvalue: if less is outside, nobody needs to be asked


# Question and answers.


class ProbeAsk(Message, reveals="gram"):
    """`numerics.shortfall.Probes`, in the directions that sums are in; the receiver holds Y."""

    coefficients: Annotated[Floats, Shape("q", "p")]
    offset: Annotated[Floats, Shape("p")]
    scale: Annotated[float, Reveals("moments"), NonNegative]
    share: Annotated[float, Positive]
    n_features: Annotated[int, Positive]
    seeks_directions: bool


class OutsideProbes(Message, reveals="moments", covers="fewest"):
    """`numerics.shortfall.ProbeSums`."""

    features: Annotated[Floats, Shape("p", "t")]
    noise: Annotated[Floats, Shape("p"), NonNegative]
    mean: Annotated[Floats, Shape("t")]
    direction: Annotated[Floats, Shape("t")]
    peak: Annotated[float, NonNegative]
    outside: Annotated[float, NonNegative]
    n_rows: Annotated[int, Reveals("counts"), Positive, OwnRows]

    def contradiction(self, context: Context) -> str | None:
        """As of `Mass`."""
        return more_than_rows(context, self.outside)


class SummedOutside(Message, reveals="moments"):
    """`numerics.shortfall.SummedProbes`: what may be masked."""

    features: Annotated[Floats, Shape("p", "t")]
    noise: Annotated[Floats, Shape("p"), NonNegative]
    whole: Annotated[Floats, Shape("t")]
    scatter: Annotated[Floats, Shape("t*(t+1)//2")]
    outside: Annotated[float, NonNegative]
    n_rows: Annotated[int, Reveals("counts"), Positive]
    n_seen: Annotated[int, Reveals("counts"), Positive]


def more_than_rows(context: Context, squares: float) -> str | None:
    """Why squared distances cannot be those of the sender's rows, where k(x, x) = 1."""
    rows = context.facts.get(OwnRows)
    if rows is not None and kernel_of(context.setup).is_level and exceeds(squares, rows):
        return f"squared distances of {rows} rows add up to {squares:.6g}, where k(x, x) = 1"
    return None


def probes_of(question: ProbeAsk, span: Span) -> Probes:
    """What a party is to look for."""
    probes: Probes = _fields_of(Probes, question)
    if span.rank is None:
        return probes
    return probes._replace(coefficients=span.basis @ probes.coefficients)


# The schedule.


class ProbedComponents(NamedTuple):
    """Components that are probed: how many at most, and whether that many are sure to be."""

    kernel: str
    n_components: int | None
    is_exact: bool
    center: bool
    gram_rank: int | None = None  # of LandmarkSetup


def rounds_of_looks(
    scope: Scope,
    role: Any,
    components: ProbedComponents | None,
    numbers: Numbers,
    is_sure: bool,
) -> Node | None:
    """The rounds of `measure`: none if every row is a landmark, else two at most."""
    n, d, q = numbers.n, numbers.d, numbers.q
    if components is None:
        return None
    gram_rank = components.gram_rank
    is_whole = q >= n and gram_rank is None
    if is_sure and is_whole:
        return None
    is_alone = scope.n_taking_part == 1
    survives = scope.on_loss in ("survivors", "skip")  # one may then be alone who was not
    k = q if components.n_components is None else components.n_components
    r = q if gram_rank is None else planned_rank(gram_rank, k, q)
    floats = None if is_alone else floats_of_fit(components.kernel, (q, r, d), components.center)
    count = probed(k, r, floats, scope.secure)
    span = Size(q, is_sure)
    if gram_rank is not None:
        span = rank_size(gram_rank, components.n_components, q, is_sure)
    is_exact = is_sure and components.is_exact and not survives
    # Of fewer landmarks, or of a party that is left alone, more components may be probed.
    most = count if is_sure and not survives else k

    def look(n_probes: int, most_probes: int, times: int) -> Node:
        sizes = {"q": span, "p": Size(most_probes, is_exact, n_probes)}
        t = Size(times * PROBE_WIDTH)
        down, up = {**sizes, "n_features": t}, {**sizes, "t": t}
        if scope.secure:
            return total(role.probe_summed, down=down, up=up)
        return ask(role.probe_outside, down=down, up=up)

    # Nobody is asked where too little is outside, or where more landmarks may mend too low a rank;
    # and of many parties some may be asked for a closer look alone.
    first = maybe(look(count, most, 1), planned=not is_whole)
    return sequence(first, maybe(look(k, k, _closer_features(scope)), planned=False))


def _closer_features(scope: Scope) -> int:
    return _CLOSER_FEATURES[len(scope.parties) > _FEW_PARTIES]


def floats_of_fit(kernel: str, sizes: tuple[int, int, int], center: bool) -> int:
    """Floats that a party sends and gets in a fit with q landmarks of d columns, r directions."""
    q, r, d = sizes
    return r * (r + 1) // 2 + r + q * d + (outside_floats(kernel, d) if center else 0)


# The coordinator's side, of several parties.


def measure(
    rows: Federation,
    role: Any,
    accuracy: Accuracy,
    center: bool,
    landmark_set: LandmarkSet,
    fit: SpanFit,
) -> Coverage:
    """What the landmarks miss: one round, or a second with a closer look where that leaves doubt.

    The second looks at more rows, in more features, and at every wanted component by itself. None
    is needed where all there is outside could not make a wanted eigenvalue larger by more than a
    thousandth, or by half of the accuracy; nor a second where too much is likely to be missing. Of
    many parties, each of which has little outside, the first is at some (`numerics.drawn_parties`),
    the second at all.
    """
    model, n = fit.model, fit.model.n_rows
    k, q, alone = accuracy.n_wanted(model), landmark_set.Y.shape[0], rows.scope.n_taking_part == 1
    z = model.eigenvalues[:k]
    certain = _certain_shortfall(fit, k, landmark_set, accuracy)
    exhausted = q >= landmark_set.most_in_all
    if certain is not None:
        return Coverage(certain, {}, landmark_set.unheard, exhausted)
    d = int(model.landmarks.shape[1])
    rank, r = fit.span.rank, fit.planned_rank or q
    fit_floats = None if alone else floats_of_fit(model.kernel.name, (q, r, d), center)
    count = probed(k, r, fit_floats, rows.scope.secure)
    coefficients = model.coefficients[:, :k]
    if rank is not None:
        coefficients = fit.span.basis.T @ fit.span.K @ coefficients

    def ask_for(count: int, n_features: int, share: float, directions: bool = True) -> ProbeAsk:
        scaled = probe_directions(z, count) / np.sqrt(np.maximum(z, np.finfo(float).tiny))[:, None]
        return ProbeAsk(
            coefficients=in_few_bits(coefficients @ scaled, landmark_set.bits),
            offset=in_few_bits(model.offset[:k] @ scaled, landmark_set.bits),
            scale=fit.outside / fit.n_counted,
            share=share,
            n_features=n_features,
            seeks_directions=directions,
        )

    def look(question: ProbeAsk, some: DrawnParties | None = None) -> Coverage:
        how = (model.kernel.name, z, fit.outside, center, some)
        missing, outside = _missing(rows, role, question, *how)
        outside = dict(fit.by_party) or outside
        return Coverage(missing, outside, landmark_set.unheard, exhausted)

    some = _drawn_of(rows, fit, z, accuracy, landmark_set)
    among = n if some is None else sum(landmark_set.sizes[name] for name in some.chances)
    # Of parties that are masked nobody sees single directions anyhow.
    rivals = rows.scope.secure or may_have_rivals(z, fit.outside)
    first = look(ask_for(count, PROBE_WIDTH, share_to_see(q, among), rivals), some)
    missing, most = first.shortfall, accuracy.largest_missing
    if missing.is_likely_above(most) or not missing.is_doubtful(most):
        return first
    share = share_to_see(q, n, is_closer=True)
    return look(ask_for(k, _closer_features(rows.scope) * PROBE_WIDTH, share))


def _drawn_of(
    rows: Federation, fit: SpanFit, z: Doubles, accuracy: Accuracy, landmark_set: LandmarkSet
) -> DrawnParties | None:
    """Which parties look first; None if all do."""
    if not fit.by_party:
        return None
    outside = {name: fit.by_party[name] for name in rows.parties if name in fit.by_party}
    rng = np.random.default_rng((landmark_set.seed, landmark_set.Y.shape[0], PROBING))
    return drawn_parties(outside, fit.outside, accuracy.largest_missing * float(z[-1]), rng)


def _certain_shortfall(
    fit: SpanFit, k: int, landmark_set: LandmarkSet, accuracy: Accuracy
) -> Shortfall | None:
    """What is missing where it is known without a look, since so little is outside the span."""
    model, z = fit.model, fit.model.eigenvalues[:k]
    # Of rows that are lost since, landmarks may outnumber those that stay and not be these.
    is_every_row = landmark_set.Y.shape[0] >= sum(landmark_set.sizes.values())
    if fit.outside <= _ROUNDING * model.total:
        return nothing_missing(k)
    if is_every_row and fit.span.rank is None:
        # A factor leaves out directions that floats do not tell from 0. Far from 0 all variance is
        # so small beside the rows' squares.
        is_spanned = fit.outside <= _SPANNED * model.total
        return nothing_missing(k) if is_spanned else proven_shortfall(z, fit.outside)
    most_missing = fit.outside + fit.rounding
    if most_missing <= min(_PROVEN, accuracy.largest_missing / 2) * float(z[-1]):
        return proven_shortfall(z, most_missing)
    return None


def _missing(
    rows: Federation,
    role: Any,
    question: ProbeAsk,
    kernel: str,
    z: Doubles,
    outside: float,
    center: bool,
    some: DrawnParties | None,
) -> tuple[Shortfall, dict[str, float]]:
    """What parties see outside the span, and how much of it is whose; masked, nobody's is known.

    With `some` these alone are asked.
    """
    if rows.scope.secure:
        summed = _probed_sums(SummedProbes, rows.total(role.probe_summed, question).sum)
        return summed_shortfall(kernel, z, summed, outside, center), {}
    each = None if some is None else dict.fromkeys(some.chances, question)
    replies = by_party(rows.ask(role.probe_outside, question, each=each))
    if not replies:
        raise PartyLost("no party that was to look at what is missing has answered")
    sums = [_probed_sums(ProbeSums, reply) for reply in replies.values()]
    by_name = {name: reply.outside for name, reply in replies.items()}
    drawn = None if some is None else some.of(replies)
    how = (center, drawn, question.seeks_directions)
    return shortfall(kernel, z, sums, outside, *how), by_name


def with_absent(coverage: Coverage, accuracy: Accuracy, fit: SpanFit) -> Coverage:
    """The next wanted eigenvalue as missing whole, where the span has none and rows are outside."""
    has_all = len(fit.model.eigenvalues) >= (accuracy.most_wanted or 0)
    if has_all or fit.outside <= ABSENT * fit.model.total:
        return coverage
    values, errors, is_complete = coverage.shortfall
    whole = Shortfall(np.append(values, 1.0), np.append(errors, 0.0), is_complete)
    return replace(coverage, shortfall=whole)


# Of rows in one place.


def shows_mean(rows: Federation, accuracy: Accuracy | None) -> bool:
    """Whether the look at what is missing is at the caller's own rows, and shows their mean, too.

    A share of the variance is wanted of a total that is known.
    """
    knows = accuracy is not None and accuracy.variance_share is None
    return rows.is_alone and rows.own_weights is None and knows


def look_at_own(
    rows: Federation,
    accuracy: Accuracy,
    center: bool,
    landmark_set: LandmarkSet,
    fit: SpanFit,
    may_grow: bool,
) -> tuple[SpanFit, Coverage]:
    """`measure` of rows in one place, which shows how far their mean is outside, too."""
    k, q = accuracy.n_wanted(fit.model), landmark_set.Y.shape[0]
    missing, mean = _certain_shortfall(fit, k, landmark_set, accuracy), None
    if missing is None:
        # What a pass has kept for `fit_transform` must not decide how many landmarks there are.
        kept = rows.own_values if q >= accuracy.most_landmarks else None
        how = (k, accuracy.largest_missing, center, fit, may_grow)
        sampler = RowSampler(fit.model.kernel, raw_rows(rows.own_rows), rows.own_weights)
        missing, mean = _pairs_of_own(sampler, kept, *how)
    if center and landmark_set.share > 0 and shows_mean(rows, accuracy):
        fit = _less_mean(fit, rows.own_rows, landmark_set.share, mean)
    return fit, Coverage(missing, {}, landmark_set.unheard, q >= landmark_set.most_in_all)


def _pairs_of_own(
    rows: RowSampler,
    kept: KernelValues | None,
    k: int,
    largest_missing: float,
    center: bool,
    fit: SpanFit,
    may_grow: bool,
) -> PairedLook:
    """What few rows show, and unless they miss too much for sure, as many as may end a doubt.

    Where landmarks may double they do so as soon as they are likely to miss too much.
    """
    few_rows = _OWN_LOOKS[-1]  # of so few all pairs cost less than the fit
    if rows.shape[0] <= few_rows:
        all_of_them = (rows.rows, fit.outside, center, rows.weights)
        return whole_look(fit.span, fit.model, k, *all_of_them)

    def look_at(count: int) -> PairedLook:
        rng = np.random.default_rng((PROBING, count))
        how = (count, center, rng, kept)
        return paired_look(fit.span, fit.model, k, rows, fit.outside, *how)

    # Nobody passes by the fewest, which may lack rows far away. Errors fall by the root of the
    # number of rows: what a look is likely to leave in doubt is left out for the next.
    most_errors, last = (1.0 if may_grow else _WARNED), _OWN_LOOKS[-1]
    look = look_at(_OWN_LOOKS[0])
    for before, number in pairwise(_OWN_LOOKS):
        missing = look.missing
        # Who has missed too much is warned as well where a closer look might have let it pass.
        if missing.is_likely_above(largest_missing, most_errors):
            return look
        if before != _OWN_LOOKS[0] and not missing.is_doubtful(largest_missing):
            return look
        finer = missing._replace(errors=sqrt(before / number) * missing.errors)
        if number == last or finer.is_within(largest_missing):
            look = look_at(number)
    return look


def _less_mean(fit: SpanFit, rows: Rows, share: float, mean: MeanOutside | None) -> SpanFit:
    """The fit with a total that counts all of the mean: by a look if that knows it well enough."""
    if mean is not None and mean.is_fine(fit.model.total, fit.model.n_rows):
        model, error = corrected_by(mean, fit.model)
    else:
        rng, most = np.random.default_rng(SAMPLING), ceil(share * rows.shape[0])
        sums = OutsideView.of(fit.span, None).sums_alone(rows, rng, most)
        model, error = corrected(fit.model, sums, fit.outside)
    return fit._replace(model=model, error=error)


# Messages and what they are made of.


def outside_of(total: CentredSums) -> OutsideSums:
    """What all rows add up to outside the span."""
    sums: OutsideSums = _fields_of(OutsideSums, total)
    return sums


def _probed_sums(record_type: Any, message: Message) -> Any:
    """Their rows count by weight, where the message has one."""
    sums, weight = _fields_of(record_type, message), getattr(message, "weight", None)
    return sums if weight is None else sums._replace(n_rows=weight)


def _fields_of(record_type: Any, message: Message) -> Any:
    return record_type(*(_as_double(getattr(message, name)) for name in record_type._fields))


def _as_double(value: Any) -> Any:
    return value.astype(np.float64, copy=False) if isinstance(value, np.ndarray) else value


def in_few_bits(numbers: Any, bits: int) -> Any:
    """An array in float32, if landmarks are in fewer bits than all."""
    is_long = bits != EXACT and isinstance(numbers, np.ndarray)
    return numbers.astype(np.float32) if is_long else numbers
