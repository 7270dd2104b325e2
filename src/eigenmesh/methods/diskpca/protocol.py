"""disKPCA: kernel PCA over row partitions from a few well-chosen rows.

Balcan, Liang, Song, Woodruff and Xie, "Communication Efficient Distributed Kernel Principal
Component Analysis", KDD 2016.

===================  ============================================================================
party keeps          its rows A_i (n_i, d), their leverage scores and distances; their scores in
                     the components, if the study says so (`scores.py`)
party reveals        how many rows it has, the Gram matrix of its embedded rows, the mass of its
                     scores and distances, the rows, or means of rows, that are drawn from it, sums
                     of kernel values with all landmarks, and if centred the sum of random features
                     of a sample, less their part in the span
with an accuracy     such sums with weights 1 and the scores of a few components; the largest
                     direction of their variance; the sum and a power sum of distances to the span
coordinator learns   these; the landmarks, and with an accuracy some components, go to all parties
===================  ============================================================================

Letters: A rows, P landmarks by leverage, Y all landmarks, |Y| = q. E embedded rows (n, t), t
`embedding_dim`; E R with orthonormal columns, so that the leverage of a row is its squared length
in E R. The first k columns of R belong to the k largest directions: they give the scores with
respect to rank k, `leverage_rank`.

Readings: Y contains P; exact Gram matrices take the place of the sketched ones, since they add up
and cost no more at this size (`diskpca_sketched` has the sketches); landmarks are distinct, and a
party is not sent its own. Beyond the paper: the mean outside the span, for the centred variance;
and an accuracy. With one, the parties are asked once more after a fit, for what their rows add up
to outside the span (`numerics.shortfall`), unless that is proven to be too little to matter. Where
the wanted eigenvalues lack more than they may, landmarks of the same kind are drawn, twice as many;
what leaves a party was settled beforehand.

Far above the usual length: one role draws, measures, sums and scores, for all
protocols of this folder, and a step, its rounds in the schedule and its call by the coordinator are
read together. Messages, party, schedule and coordinator follow each other as in any protocol. What
is known of landmarks and fits is in `landmark_fits.py`, what landmarks miss in `looks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Annotated, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from eigenmesh.errors import InputError, MessageRefused, PartitionError, PartyLost, RankError
from eigenmesh.methods.diskpca.drawn import (
    SummedRows,
    SumSetup,
    draw_landmarks,
    drawing_rounds,
)
from eigenmesh.methods.diskpca.landmark_fits import (
    Accuracy,
    DisKPCAResult,
    LandmarkSet,
    MeasuredFit,
    Numbers,
    SpanFit,
    allocate,
    bits_of,
    doublings,
    most_in_all,
    most_landmarks,
    planned_rank,
    projects,
    rank_size,
    share_seen,
    shares_of,
)
from eigenmesh.methods.diskpca.looks import (
    PROBING,
    SAMPLING,
    OutsideProbes,
    ProbeAsk,
    ProbedComponents,
    SummedOutside,
    in_few_bits,
    look_at_own,
    measure,
    more_than_rows,
    outside_of,
    probes_of,
    rounds_of_looks,
    shows_mean,
    with_absent,
)
from eigenmesh.methods.diskpca.site_scores import (
    RANK_BY_RULE,
    LandmarkSetup,
    ScoredComponents,
)
from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, blocks, is_sparse
from eigenmesh.numerics.centroids import MIN_CLUSTER
from eigenmesh.numerics.drawn_parties import FEWEST_DRAWN
from eigenmesh.numerics.draws import Indices, draw_distinct, drawn_power
from eigenmesh.numerics.embeddings import embedded_width, embedding, whitening_of
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import (
    LandmarkSums,
    Span,
    full,
    inside_sums,
    landmark_sums,
    residual_of,
    residuals,
    span_residual,
    spanning,
    upper,
)
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.leading_directions import rank_for
from eigenmesh.numerics.mean_outside import (
    OutsideView,
    corrected,
    outside_floats,
    outside_sizes,
)
from eigenmesh.numerics.plausible import exceeds, require_possible_sums
from eigenmesh.numerics.robust_sums import FEWEST, bounded_sizes, median_weights
from eigenmesh.numerics.rounded_points import rounded_points
from eigenmesh.numerics.shortfall import (
    probe,
    probe_for_sum,
)
from eigenmesh.runtime.compact import EXACT
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Context,
    Floats,
    InBits,
    Message,
    NonNegative,
    Positive,
    Reveals,
    Shape,
    fields_of,
)
from eigenmesh.runtime.party import Party, Step, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import (
    Node,
    Own,
    Parties,
    Scope,
    Size,
    ask,
    at_most,
    by_rows,
    enlist,
    maybe,
    sequence,
    settle,
    total,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.runtime.statements import in_short
from eigenmesh.stages.coverage import Coverage
from eigenmesh.stages.row_messages import (
    CentredSums,
    GramSums,
    KernelSetup,
    RowBlock,
    RowCount,
    UpperGram,
    by_party,
    count,
    kernel_of,
    pack,
    stack,
    unpack,
)
from eigenmesh.stages.site_centroids import site_centroids
from eigenmesh.stages.site_points import keep_points
from eigenmesh.stages.site_samples import sample_bounds
from eigenmesh.stages.unit_check import compare_units

for kind in (LandmarkModel, Kernel):
    record(kind)

GRAMS = ("sum", "median")
LANDMARKS = ("diskpca", "uniform", "leverage", "rpcholesky", "centroids", "drawn")
_TURNS = 2  # of a party, in one draw by distance: 8 blocks in all, as many passes over rows
_BY_LEVERAGE = ("diskpca", "leverage")
_MANY = 10**9  # rows, for which every step occurs that may
# Of the trace of a Gram matrix: parties' sums of float32 are off by 2⁻²⁴ of each number, those of
# products and, twice over the number of rows, the products of those of rows.
_FLOAT32_SUMS = 3 * 2.0**-24
_SINGLE_SHOWS = 1e-6  # of Σ k(x, x): smaller eigenvalues are near what float32 sums are off by
_LARGEST = PROBING + 1  # a round of its own, as those have


# Messages.


class LandmarkShare(Message, reveals=None):
    """How many rows a party is to draw, and in how many bits it rounds them."""

    n_rows: Annotated[int, NonNegative]
    bits: Annotated[int, InBits]


class NewLandmarks(RowBlock, reveals="rows"):
    """Landmarks of the other parties; `before` of them come before the receiver's `own` new ones.

    Sums are asked for in `rank` leading directions of their span, in all if that is 0.
    """

    is_handed_on: ClassVar[bool] = True
    before: Annotated[int, Reveals("counts"), NonNegative]
    own: Annotated[int, Reveals("counts"), NonNegative]
    rank: Annotated[int, Reveals("counts"), NonNegative]


class SampledLandmarks(NewLandmarks, reveals="rows"):
    """The last of them, and which share of its rows a party shall look at from outside the span."""

    share: Annotated[float, Positive]


class Centroids(RowBlock, reveals="centroids", covers="fewest"):
    """Means of at least MIN_CLUSTER rows each."""


class Mass(Message, reveals="moments"):
    """The sum of a party's squared distances."""

    mass: Annotated[float, NonNegative]

    def contradiction(self, context: Context) -> str | None:
        """Distances to a span are no longer than the rows."""
        return more_than_rows(context, self.mass)


class Whitening(Message, reveals="gram"):
    """R: makes the embedded rows of all parties together orthonormal, largest direction first."""

    matrix: Annotated[Floats, Shape("t", "r")]


class LeverageMass(Message, reveals="moments"):
    """The sum of a party's scores, and its largest with respect to rank k (`largest_of`)."""

    mass: Annotated[float, NonNegative]
    largest: Annotated[float, NonNegative]
    rank: Annotated[int, Positive]  # k, or less where the embedded rows have less

    def contradiction(self, context: Context) -> str | None:
        """A score is no more than all together; by a sketch it may be above 1."""
        return "one score is larger than all" if exceeds(self.largest, self.mass) else None


# The party.


class ScoredRows(Party):
    """Holds some rows of all columns, and learns their leverage."""

    Setup: ClassVar[type[Message]] = KernelSetup
    state: ClassVar[tuple[str, ...]] = ("scores",)

    def __init__(self, site: SiteView, setup: KernelSetup) -> None:
        super().__init__(site, setup)
        self.scores = np.ones(site.data.shape[0])
        self.kernel = kernel_of(setup)

    @step
    def count_rows(self) -> RowCount:
        """Rows and columns."""
        return count(self.site)

    @step
    def embedded_gram(self) -> UpperGram:
        """EᵀE of the embedded rows."""
        gram: Any = sum(E.T @ E for E in self.embedded())
        return UpperGram(upper=upper(gram))

    @step
    def leverage_mass(self, whitening: Whitening) -> LeverageMass:
        """‖E_a R‖² of every row a: its share in the rank-t row space of all rows."""
        rank = int(np.count_nonzero(whitening.matrix.any(axis=0)))
        n, k = len(self.scores), min(self.setup.leverage_rank, rank)
        scores, of_rank = np.empty(n), np.empty(n)
        for rows, E in zip(blocks(n), self.embedded(), strict=True):
            squares = np.square(E @ whitening.matrix)
            scores[rows] = squares.sum(axis=1)
            of_rank[rows] = squares[:, :k].sum(axis=1)
        self.scores = scores
        largest = largest_of(of_rank, self.site)
        return LeverageMass(mass=float(scores.sum()), largest=largest, rank=k)

    def embedded(self) -> Iterator[Doubles]:
        """Blocks of E."""
        return embedded_blocks(self.setup, self.site.data)


def largest_of(scores: Doubles, site: SiteView) -> float:
    """The largest score; where rows are kept, the mean of so many that none of them is told.

    The largest of scores with a matrix of the asker's choice is about one row: four directions, and
    that row of four columns was had to the last digit. Of a mean a power of 2 tells enough.
    """
    count = min(site.rows_of_a_largest, len(scores))
    largest = float(np.partition(scores, -count)[-count:].mean())
    if count == 1:
        return largest
    key = site.private_generator(diskpca.number, _LARGEST).bytes(16)
    return min(drawn_power(largest, key), float(scores.sum()))


def embedded_blocks(setup: KernelSetup, A: Rows) -> Iterator[Doubles]:
    """Rows A embedded by the shared seed, block by block: every party embeds alike."""
    how = (setup.embedding_dim, setup.seed, getattr(setup, "reduction", "gaussian"))
    embed = embedding(kernel_of(setup), A.shape[1], *how)
    return (embed(A[rows]) for rows in blocks(A.shape[0]))


class RowHolder(ScoredRows):
    """Holds some rows of all columns.

    Steps that draw or take up landmarks are not reusable: an old reply in place of a lost one would
    leave the parties with different landmarks, whose sums do not add up.
    """

    Setup: ClassVar[type[Message]] = LandmarkSetup
    state = ("scores", "measures_anew", "drawn", "fresh", "landmarks", "rank")

    def __init__(self, site: SiteView, setup: LandmarkSetup) -> None:
        super().__init__(site, setup)
        self.measures_anew = False  # distances, several times in one draw
        self.drawn = np.zeros(site.data.shape[0], dtype=bool)
        self.fresh = pack(site.data[:0])  # what was sent last, not yet among the landmarks
        self.landmarks: list[dict[str, Any]] = []
        self.rank = 0  # of the span that sums were asked for in; 0 for all of it

    @step(reusable=False)
    def draw_rows(self, share: LandmarkShare) -> RowBlock:
        """Distinct rows with probability in proportion to their scores.

        Of "rpcholesky" they are distances, and measured anew some times on the way.
        They leave as they are: that a seed tells which they were adds their place among the others.
        """
        weights = np.where(self.drawn, 0.0, self.scores)
        rng = self.site.generator(self.setup.seed, diskpca.number, int(self.drawn.sum()))
        indices = self._draw(weights, share.n_rows, rng)
        self.drawn = self.drawn.copy()
        self.drawn[indices] = True
        rows = self.site.data[indices]
        self.fresh = pack(rows if share.bits == EXACT else self._rounded(rows, share.bits))
        return RowBlock(**self.fresh)

    @step(reusable=False)
    def local_centroids(self, share: LandmarkShare) -> Centroids:
        """Means of clusters of the own rows, none of fewer than MIN_CLUSTER rows.

        No seed moves them; more of them refine the first.
        """
        means: Any = site_centroids(self.site, self.site.data, share.n_rows)
        means = means if share.bits == EXACT else self._rounded(means, share.bits)
        if is_sparse(self.site.data) and 2 * np.count_nonzero(means) < means.size:
            means = sp.csr_array(means)
        self.fresh, self.landmarks = pack(means), []  # more of them take the place of the first
        return Centroids(**self.fresh)

    def _draw(self, weights: Doubles, count: int, rng: np.random.Generator) -> Indices:
        if not self.measures_anew:
            return draw_distinct(weights, count, rng)
        A, left, taken = self.site.data, weights.copy(), np.empty(0, np.intp)
        landmarks = [self.all_landmarks()] if self.landmarks else []
        for turn in range(_TURNS):
            upto = count * (turn + 1) // _TURNS
            if len(taken):
                left = residuals(self.kernel, A, stack([*landmarks, A[taken]]))
                left = np.where(weights > 0, left, 0.0)
                left[taken] = 0.0
            taken = np.append(taken, draw_distinct(left, upto - len(taken), rng))
        rest = np.array(weights)  # for rows that the others' span has, if so many were asked for
        rest[taken] = 0.0
        return np.sort(np.append(taken, draw_distinct(rest, count - len(taken), rng)))

    def _rounded(self, points: Rows, bits: int) -> Rows:
        """Before anybody has them: any points are good as landmarks, if all have the same."""
        return rounded_points(points, self.site.data, bits) if points.shape[0] else points

    @step
    def norm_mass(self) -> Mass:
        """Squared norms ‖φ(a)‖², the distances to no landmarks at all."""
        self.measures_anew = True
        return self._drawn_by(np.asarray(self.kernel.diagonal(self.site.data), dtype=np.float64))

    @step(reusable=False)
    def residual_mass(self, others: NewLandmarks) -> Mass:
        """Squared distance of every row to the span of the landmarks so far."""
        return self._drawn_by(residuals(self.kernel, self.site.data, self.take_up(others)))

    def _drawn_by(self, scores: Doubles) -> Mass:
        self.scores = scores
        return Mass(mass=float(np.where(self.drawn, 0.0, scores).sum()))

    @step(reusable=False)
    def projected_gram(self, others: NewLandmarks) -> GramSums:
        """What the rows add up to with all landmarks, `numerics.landmark_sums`."""
        sums, _ = self._sums(others)
        return GramSums(**sums)

    @step(reusable=False)
    def centred_gram(self, others: SampledLandmarks) -> CentredSums:
        """The same, and what they add up to outside the landmarks' span."""
        sums, span = self._sums(others)
        outside = self.outside(span, others.share)
        if self.setup.bits != EXACT:
            outside = {name: self._few(own) for name, own in outside.items()}
        return CentredSums(**sums, **outside)

    def _sums(self, others: NewLandmarks) -> tuple[dict[str, Any], Span]:
        A, Y, self.rank = self.site.data, self.take_up(others), others.rank
        span = Span.of(self.kernel, Y, self.rank or None)
        sums = landmark_sums(self.kernel, A, Y, span, self.site.kernel_values)
        # In all directions sums need all digits: what is off counts by the smallest of them.
        is_short = self.setup.bits != EXACT and span.rank is not None
        return sums.packed(span, np.float32 if is_short else np.float64), span

    def _few(self, numbers: Any) -> Any:
        """Of what is an estimate anyhow."""
        return in_few_bits(numbers, self.setup.bits)

    def outside(self, span: Span, share: float) -> dict[str, Any]:
        """The last fields of CentredSums, from a share of the rows; nobody else knows which."""
        A, seed = self.site.data, self.setup.seed
        rng = self.site.private_generator(diskpca.number, SAMPLING)
        if len(self.site.names) == 1:
            most = ceil(share * A.shape[0])
            return OutsideView.of(span, None).sums_alone(A, rng, most)._asdict()
        sizes = sample_bounds(self.site, outside_floats(self.setup.kernel, A.shape[1]))
        return OutsideView.of(span, seed).sums_of_share(A, rng, share, sizes)._asdict()

    @step(reusable=False)
    def probe_outside(self, components: ProbeAsk) -> OutsideProbes:
        """What landmarks miss of some components, `numerics.shortfall`, by rows of its choice."""
        measure = partial(probe, n_far=self.site.rows_of_a_largest)
        return OutsideProbes(*map(self._few, self.probed(measure, components)))

    @step(reusable=False)
    def probe_summed(self, components: ProbeAsk) -> SummedOutside:
        """The same where sums are masked: nobody shall see what a party's rows alone miss."""
        return SummedOutside(*self.probed(probe_for_sum, components))

    def probed(self, by: Callable[..., Any], components: ProbeAsk) -> Any:
        """What the own rows show of them."""
        span = Span.of(self.kernel, self.all_landmarks(), self.rank or None)
        question = probes_of(components, span)
        rng = self.site.private_generator(diskpca.number, PROBING)
        sizes = sample_bounds(self.site, question.n_numbers)
        return by(span, self.site.data, question, self.setup.seed, rng, sizes)

    @step
    def keep_scores(self, components: ScoredComponents) -> None:
        """Score the own rows, for whatever comes next at this site; nothing is said of it."""
        model = LandmarkModel(
            self.kernel,
            self.all_landmarks(),
            coefficients=np.array(components.coefficients, dtype=np.float64),
            offset=np.array(components.offset, dtype=np.float64),
            eigenvalues=np.array(components.eigenvalues, dtype=np.float64),
            next_eigenvalue=0.0,
            total=0.0,
            n_rows=int(self.site.data.shape[0]),
        )
        points, landmarks = model.transform(self.site.data), pack(model.landmarks)
        keep_points(self.site, self.setup, points, landmarks=landmarks)

    def take_up(self, others: NewLandmarks) -> Rows:
        """All landmarks so far; the own rows are put where they belong among the others'."""
        theirs, own = unpack(others), unpack(RowBlock(**self.fresh))
        if own.shape[0] != others.own:
            raise MessageRefused(
                f"{others.own} of its landmarks have come to the coordinator, it sent "
                f"{own.shape[0]}: its reply was changed on the way"
            )
        added = stack([theirs[: others.before], own, theirs[others.before :]])
        self.landmarks = [*self.landmarks, pack(added)]
        self.fresh = pack(own[:0])
        return self.all_landmarks()

    def all_landmarks(self) -> Rows:
        """Those of all parties, in the order that all know."""
        return stack([unpack(RowBlock(**fields)) for fields in self.landmarks])


# The schedule.


def schedule(
    scope: Scope,
    setup: LandmarkSetup,
    n_components: int | None,
    n_landmarks: int,
    landmarks: str,
    center: bool,
    accuracy: Accuracy | None,
) -> Node:
    """Landmarks, then the sums of a fit in their span; with an accuracy looks, and more of both."""

    def fit(numbers: Numbers, is_sure: bool) -> Node:
        return fit_rounds(scope, setup, numbers, is_sure, center, n_components)

    def in_span(numbers: Numbers) -> Node:
        if accuracy is None:
            return fit(numbers, True)
        is_exact = n_components is not None and accuracy.variance_share is None
        how = (setup.kernel, n_components, is_exact, center, setup.gram_rank)
        probes = ProbedComponents(*how)
        return growing(scope, RowHolder, landmarks, probes, accuracy, numbers, fit)

    leverage = gram_rounds(RowHolder)
    return sequence(
        enlist(RowHolder, setup),
        choosing(RowHolder, setup, n_landmarks, landmarks, leverage, in_span),
    )


def gram_rounds(role: Any) -> Callable[[int], Node]:
    """The rounds of `leverage_by_gram` in t dimensions."""
    return lambda t: sequence(total(role.embedded_gram, t=t), ask(role.leverage_mass, t=t, r=t))


def choosing(
    role: Any,
    setup: KernelSetup,
    n_landmarks: int,
    landmarks: str,
    leverage: Callable[[int], Node],
    rest: Callable[[Numbers], Node],
    is_counted: bool = False,
) -> Node:
    """The rounds of `choose_landmarks`, then `rest`; `leverage` has those of its namesake.

    With `is_counted` the coordinator knows by an earlier run how many rows there are.
    """

    def after_counts(n: int, d: int, most: int) -> Node:
        q = min(n_landmarks, most)
        bits = bits_of(setup, q, n)
        if landmarks == "drawn":
            return sequence(
                drawing_rounds(sum_setup(setup, q), d),
                rest(Numbers(n, d, most, q, q, q, q, are_drawn=True, shows=True, bits=bits)),
            )
        shares = shares_of(landmarks, q, n)
        scores = _scores(role, setup, landmarks, leverage, d) if q < n else None
        draws: list[Node] = []
        for i, share in enumerate(shares):
            if i:
                draws.append(ask(role.residual_mass, **unseen_sizes(shares[i - 1], d)))
            draws.append(drawing(role, landmarks, share, d, bits=bits))
        last = shares[-1] if shares else 0
        drawn = settle(
            lambda parties: {"q": q},
            lambda q: rest(Numbers(n, d, most, q, min(n_landmarks, most), last, last, bits=bits)),
            lambda own, q: 0 <= q <= min(n_landmarks, most),
            q=q,
        )
        return sequence(scores, *draws, drawn)

    def planned(parties: Parties) -> dict[str, int]:
        most = sum(most_landmarks(landmarks, rows) for rows, _ in parties.shapes)
        most = most_in_all(landmarks, most)
        return {"n": parties.n_rows, "d": parties.shapes[0][1], "most": most}

    def fits(own: Own, n: int, d: int, most: int) -> bool:
        own_most = most_in_all(landmarks, most_landmarks(landmarks, own.rows))
        # Of few rows a larger share may be means than of many: the sum is bounded by rows alone.
        most_of_all = n // MIN_CLUSTER if landmarks == "centroids" else most_in_all(landmarks, n)
        return n >= own.rows and d == own.columns and own_most <= most <= most_of_all

    many = max(_MANY, 100 * n_landmarks)
    most = most_landmarks(landmarks, many)
    sizes = settle(planned, after_counts, fits, n=many, d=100, most=most)
    return sizes if is_counted else sequence(ask(role.count_rows), sizes)


def _scores(
    role: Any, setup: KernelSetup, landmarks: str, leverage: Callable[[int], Node], d: int
) -> Node | None:
    """What the first landmarks are drawn by, if rows do not all count the same."""
    if landmarks in _BY_LEVERAGE:
        return leverage(embedded_width(setup.kernel, d, setup.embedding_dim))
    return ask(role.norm_mass) if landmarks == "rpcholesky" else None


def sum_setup(setup: KernelSetup, q: int) -> SumSetup:
    """For so many landmarks that no party gives."""
    bits = setup.bits if isinstance(setup, LandmarkSetup) else EXACT
    return SumSetup(setup.seed, setup.leverage_rank, q, bits)


def drawing(
    role: Any, landmarks: str, share: int, d: int, planned: int | None = None, bits: int = EXACT
) -> Node:
    """One draw of `share` landmarks in all, or at most so many; a plan counts `planned`."""
    step = role.local_centroids if landmarks == "centroids" else role.draw_rows
    own_most = at_most(lambda own: min(share, most_landmarks(landmarks, own.rows)))
    count = share if planned is None else planned
    return ask(
        step,
        down={"n_rows": own_most, "bits": bits},
        up={"n": at_most(share, by_rows(count)), "n_columns": d, "n_plus_1": at_most(share + 1)},
    )


def unseen_sizes(
    share: int, d: int, planned: int | None = None, are_drawn: bool = False
) -> dict[str, Any]:
    """The sizes of `NewLandmarks` of one draw: to each what fell to the others."""
    count = share if planned is None else planned
    unseen = count if are_drawn else lambda own: count - by_rows(count)(own)
    return {
        "down": {
            "n": at_most(share, unseen),
            "n_columns": d,
            "n_plus_1": at_most(share + 1),
            "before": at_most(share),
            "rank": 0,
        }
    }


def landmarks_of_fit(numbers: Numbers, rank: Size | int = 0) -> dict[str, Any]:
    """The sizes of what comes with the question for sums; all get the same where none drew it."""
    sizes = unseen_sizes(numbers.last, numbers.d, numbers.last_planned, numbers.are_drawn)
    down = {**sizes["down"], "rank": rank}
    return {"down": down, "apart": not numbers.are_drawn, "shows": numbers.shows}


def fit_rounds(
    scope: Scope,
    setup: LandmarkSetup,
    numbers: Numbers,
    is_sure: bool,
    center: bool,
    n_components: int | None = None,
) -> Node:
    """The sums of one fit, of so many landmarks or, unless that is sure, at most so many."""
    d, q, rank = numbers.d, Size(numbers.q, is_sure), Size(0)
    if setup.gram_rank is not None:
        q = rank = rank_size(setup.gram_rank, n_components, numbers.q, is_sure)
    new = landmarks_of_fit(numbers, rank)
    plain = total(RowHolder.projected_gram, **new, up={"q": q})
    is_every_row = numbers.is_every_row and not projects(setup)
    if not center or (is_sure and is_every_row):
        return plain
    t, f = outside_sizes(setup.kernel, d) if len(scope.parties) > 1 else (0, 0)
    centred = total(RowHolder.centred_gram, **new, up={"q": q, "t": t, "f": f})
    if not is_every_row:
        return centred
    return sequence(maybe(centred, planned=False), maybe(plain))  # as many as rows, or fewer


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
    most = most_after(accuracy, numbers, landmarks)

    def level(own: Numbers, is_sure: bool, left: int) -> Node:
        looks = rounds_of_looks(scope, role, components, own, is_sure)
        if not left:
            return sequence(fit(own, is_sure), looks)
        q = min(2 * own.q, most)
        anew = landmarks == "centroids"
        planned = q if anew else q - own.q
        share = planned if anew or is_sure else min(own.q, most)
        grown = own._replace(q=q, quota=q, last=share, last_planned=planned, shows=False)
        more = drawing_more(role, landmarks, share, own, planned)
        further = maybe(more, level(grown, own.are_drawn, left - 1), planned=False)
        return sequence(fit(own, is_sure), looks, further)

    return level(numbers, True, doublings(numbers.q, most))


def most_after(accuracy: Accuracy, numbers: Numbers, landmarks: str) -> int:
    """How many landmarks there are at most in the end."""
    # Rounded, they are not the rows; points that are drawn are not anyhow.
    most = numbers.most - (numbers.bits != EXACT and landmarks != "drawn")
    return min(accuracy.most_landmarks, max(most, numbers.q))


def drawing_more(
    role: Any, landmarks: str, share: int, numbers: Numbers, planned: int
) -> Node | None:
    """The rounds of `more_landmarks`, with at most `share` new ones."""
    if landmarks == "drawn":
        return None  # nobody is asked
    by_distance = landmarks not in ("uniform", "centroids")
    d = numbers.d
    far = ask(role.residual_mass, **unseen_sizes(0, d)) if by_distance else None
    return sequence(far, drawing(role, landmarks, share, d, planned, numbers.bits))


# The coordinator's side.


@protocol("diskpca", roles=(RowHolder, SummedRows), skips=True, schedule=schedule)
def diskpca(
    rows: Federation,
    setup: LandmarkSetup,
    n_components: int | None,
    n_landmarks: int,
    landmarks: str,
    center: bool,
    accuracy: Accuracy | None = None,
    gram: str = "sum",
) -> DisKPCAResult:
    """Algorithm 1. More landmarks than rows means every row, no number of components all there are.

    `landmarks` is one of LANDMARKS, `gram` one of GRAMS. With an accuracy there may be more
    landmarks.
    """
    is_robust = gram == "median"
    if is_robust:
        require_single_sums(rows)
    rows.enlist(RowHolder, setup)
    leverage = leverage_by_gram(RowHolder)
    how = (setup, n_landmarks, landmarks, leverage)
    first = choose_landmarks(rows, RowHolder, *how, are_bounded=is_robust)

    # 3. disLR: the best subspace inside span φ(Y).
    def fit(landmark_set: LandmarkSet) -> SpanFit:
        if landmarks == "centroids" and shows_mean(rows, accuracy):
            return fit_at_home(rows, kernel_of(setup), n_components, landmark_set.Y, center)
        total = partial(median_total, rows) if is_robust else None
        rank = _rank(setup, landmark_set.Y, n_components, center, accuracy)
        how = (n_components, landmark_set, center, not shows_mean(rows, accuracy), total, rank)
        in_span = fit_in_span(rows, kernel_of(setup), *how, accuracy is not None)
        if setup.gram_rank is None:
            return in_span
        q = landmark_set.Y.shape[0]
        planned = planned_rank(setup.gram_rank, n_components, q)
        return in_span._replace(planned_rank=planned)

    if accuracy is None:
        return result_of(first, fit(first), None)
    more = more_landmarks(rows, RowHolder, setup, landmarks)
    return result_of(*fit_until_accurate(rows, RowHolder, accuracy, center, first, fit, more))


def _rank(
    setup: LandmarkSetup, Y: Rows, k: int | None, center: bool, accuracy: Accuracy | None
) -> int:
    """In how many directions of the landmarks' span to add up; 0 for all."""
    if setup.gram_rank is None or (setup.gram_rank == RANK_BY_RULE and k is None):
        return 0
    if setup.gram_rank != RANK_BY_RULE:
        return min(setup.gram_rank, int(Y.shape[0]))
    largest_missing = None if accuracy is None else accuracy.largest_missing
    return rank_for(Span.of(kernel_of(setup), Y).K, k or 0, center, largest_missing)


def result_of(
    landmark_set: LandmarkSet, in_span: SpanFit, coverage: Coverage | None
) -> DisKPCAResult:
    """What a fit amounts to."""
    facts = (landmark_set.skew, in_span.outside, landmark_set.n_values, in_span.error)
    return DisKPCAResult(in_span.model, *facts, coverage, in_span.span.rank, in_span.rounding)


# 1. Leverage scores.


def leverage_by_gram(role: Any) -> Callable[[Federation], dict[str, LeverageMass]]:
    """Algorithm 2, disLS, with the exact Gram matrix in place of a sketched QR."""

    def leverage(rows: Federation) -> dict[str, LeverageMass]:
        gram = full(rows.total(role.embedded_gram).sum.upper)
        whitening = Whitening(matrix=square(whitening_of(gram)))
        return by_party(rows.ask(role.leverage_mass, whitening))

    return leverage


def square(B: Doubles) -> Doubles:
    """Columns of zeros make up for a rank below t, so that the traffic is known beforehand."""
    return np.hstack([B, np.zeros((len(B), len(B) - B.shape[1]))])


def skew_of(masses: dict[str, LeverageMass], n_rows: int) -> float:
    """Largest rank-k score / mean: 1 if all rows matter alike, n/k if some row is a direction."""
    rank = max(score.rank for score in masses.values())
    return n_rows * max(score.largest for score in masses.values()) / rank


# 2. Landmarks.


Leverage = Callable[[Federation], dict[str, LeverageMass]]


def choose_landmarks(
    rows: Federation,
    role: Any,
    setup: KernelSetup,
    n_landmarks: int,
    landmarks: str,
    leverage: Leverage,
    row_counts: Replies | None = None,
    are_bounded: bool = False,
) -> LandmarkSet:
    """Steps 1 and 2 of Algorithm 1, with `leverage` as disLS.

    `row_counts` are the parties' sizes, if they have told them; who has left since does not count.
    With `are_bounded` landmarks are shared out by sizes of which none is much above the others'.
    """
    counts = by_party(rows.ask(role.count_rows) if row_counts is None else row_counts)
    still_in = set(rows.parties)
    sizes: dict[str, RowCount] = {name: counts[name] for name in counts if name in still_in}
    n_rows = {name: size.n_rows for name, size in sizes.items()}
    most = {name: most_landmarks(landmarks, size) for name, size in n_rows.items()}
    n, in_all = sum(n_rows.values()), most_in_all(landmarks, sum(most.values()))
    q = min(n_landmarks, in_all)
    if not q:
        raise PartitionError(
            f"every party has fewer than {MIN_CLUSTER} rows, the fewest that a mean may stand for; "
            f"join some parties, or pass landmarks='uniform' or 'diskpca' if rows may leave"
        )
    d = next(iter(sizes.values())).n_columns
    rows.settle(n=n, d=d, most=in_all)
    facts: dict[str, Any] = {
        "n_values": sum(size.n_values for size in sizes.values()),
        "share": share_seen(q, n, setup),
        "sizes": n_rows,
        "most": most,
        "bits": bits_of(setup, q, n),
        "seed": setup.seed,
    }
    if landmarks == "drawn":
        draw = draw_landmarks(rows, sum_setup(setup, q), d)
        points = draw.kept["landmarks"]
        unseen = to_all(points, rows.parties)
        return LandmarkSet(points, unseen, skew=None, left=most, draw=draw, **facts)

    # 1. Leverage scores of the embedded rows; without them, each row counts the same.
    masses, skew = masses_by_size(n_rows, are_bounded), None
    if q < n:
        masses, skew = first_masses(rows, role, landmarks, masses, n, leverage)

    # 2. Landmarks, in one or more shares: after the first, by distance to the span so far.
    Y: list[Rows] = []
    fresh: dict[str, Rows] = {}
    left, rng = most, np.random.default_rng(setup.seed)
    draw_step = role.local_centroids if landmarks == "centroids" else role.draw_rows
    for share in shares_of(landmarks, q, n):
        if fresh:
            far = rows.ask(role.residual_mass, each=new_to_each(fresh))
            masses = masses_of(by_party(far), left)
        fresh = draw_from(rows, draw_step, masses, left, (share, facts["bits"]), rng)
        left = {name: left[name] - part.shape[0] for name, part in fresh.items()}
        Y.extend(fresh.values())
    landmark_rows = stack(Y)
    _require_some_given(rows, landmark_rows)
    rows.settle(q=landmark_rows.shape[0])
    return LandmarkSet(landmark_rows, new_to_each(fresh), skew, left=left, **facts)


def _require_some_given(rows: Federation, Y: Rows) -> None:
    """Few landmarks are shared out by size: all may have fallen to who has left."""
    if rows.lost and not Y.shape[0]:
        raise PartyLost(
            f"{in_short(list(rows.lost))} left, to whom all landmarks had been shared out, before "
            f"any was given; fit again with those who stay, or pass more landmarks"
        )


def masses_by_size(n_rows: Mapping[str, int], are_bounded: bool) -> dict[str, float]:
    """What parties count by if each row counts the same; bounded, none by much more than others."""
    masses = [float(size) for size in n_rows.values()]
    if are_bounded:
        masses = bounded_sizes(masses).tolist()
    return dict(zip(n_rows, masses, strict=True))


def first_masses(
    rows: Federation,
    role: Any,
    landmarks: str,
    by_size: dict[str, float],
    n_rows: int,
    leverage: Leverage,
) -> tuple[dict[str, float], float | None]:
    """What parties count by in the first draw, and how skewed leverage is, if that is looked at."""
    if landmarks in _BY_LEVERAGE:
        scores = leverage(rows)
        return masses_of(scores, by_size), skew_of(scores, n_rows)
    if landmarks == "rpcholesky":
        return masses_of(by_party(rows.ask(role.norm_mass)), by_size), None
    return by_size, None


def masses_of(replies: Mapping[str, Any], parties: Collection[str]) -> dict[str, float]:
    """By party, the mass that it said; a party that missed an earlier round stays out."""
    return {name: reply.mass for name, reply in replies.items() if name in parties}


def draw_from(
    rows: Federation,
    draw: Step,
    masses: Mapping[str, float],
    left: Mapping[str, int],
    count_and_bits: tuple[int, int],
    rng: np.random.Generator,
) -> dict[str, Rows]:
    """Rows from the parties in proportion to their masses, at most as many as each has left."""
    count, bits = count_and_bits
    counts = allocate(list(masses.values()), [left[name] for name in masses], count, rng)
    shares = {k: LandmarkShare(k, bits) for k in set(counts)}  # of many parties most have one
    requests = {name: shares[k] for name, k in zip(masses, counts, strict=True)}
    fresh = {name: unpack(r) for name, r in by_party(rows.ask(draw, each=requests)).items()}
    if len(fresh) > 1:
        compare_units(rows, fresh, means=draw.name == "local_centroids")
    return fresh


def new_to_each(fresh: Mapping[str, Rows]) -> dict[str, NewLandmarks]:
    """To each party what the others drew; it holds its own."""
    drawn = stack(list(fresh.values()))
    # One for all who drew none: they are many.
    all_of_them = NewLandmarks(**pack(drawn), before=0, own=0, rank=0)
    messages, before = {}, 0
    for name, own in fresh.items():
        after = before + own.shape[0]
        if after == before:
            messages[name] = all_of_them
        else:
            others = stack([drawn[:before], drawn[after:]])
            messages[name] = NewLandmarks(**pack(others), before=before, own=after - before, rank=0)
        before = after
    return messages


def to_all(points: Rows, parties: Sequence[str]) -> dict[str, NewLandmarks]:
    """Landmarks that no party gave."""
    return dict.fromkeys(parties, NewLandmarks(**pack(points), before=0, own=0, rank=0))


def require_fresh_replies(rows: Federation) -> None:
    """For protocols with steps of their own that an old reply could stand in for."""
    if rows.on_loss == "reuse":
        raise InputError(
            "on_loss is 'reuse'; 'raise' or 'survivors' is expected: an old draw in place of a "
            "lost one would leave the parties with different landmarks, whose sums do not add up"
        )


# 3. The best subspace inside their span.


def fit_in_span(
    rows: Federation,
    kernel: Kernel,
    n_components: int | None,
    landmark_set: LandmarkSet,
    center: bool,
    in_total: bool = True,
    total_of: Callable[..., Any] | None = None,
    rank: int = 0,
    tells_parties: bool = False,
) -> SpanFit:
    """The best components inside the span; `in_total` says whether the total variance matters.

    If centred, that takes the mean outside the span, too. `total_of` adds up in place of
    `rows.total`. With a `rank` the span is that of so many directions, and all else outside.
    Whoever then draws some of many parties needs to know what each has outside (`tells_parties`).
    """
    estimated = center and in_total and landmark_set.share > 0
    by_party: dict[str, float] = {}
    note: Callable[[str, Any], None] | None = None
    is_told = total_of is None and not rows.scope.secure and len(rows.parties) > FEWEST_DRAWN
    if tells_parties and is_told:
        measured = residual_of(Span.of(kernel, landmark_set.Y, rank or None))

        def note(party: str, sums: Any) -> None:
            by_party[party] = measured(sums)

    add_up = total_of or (lambda step, each: rows.total(step, each=each, look=note).sum)
    if estimated:
        total = add_up(RowHolder.centred_gram, _questions(landmark_set, rank, is_sampled=True))
    else:
        total = add_up(RowHolder.projected_gram, _questions(landmark_set, rank, is_sampled=False))
    span = Span.of(kernel, landmark_set.Y, rank or None)
    span = span.by_factor() if len(rows.members) == 1 else span
    sums, rounding = LandmarkSums.unpacked(total, span), 0.0
    if landmark_set.bits != EXACT and span.rank is not None:
        rounding = _FLOAT32_SUMS * float(np.trace(full(total.upper)))
    outside, error = span_residual(span, sums), 0.0
    model = LandmarkModel.fit(kernel, landmark_set.Y, sums, n_components, center, span)
    model = model.signed_by(span)
    require_possible_sums(float(np.sum(model.eigenvalues)), model.total)
    if estimated:
        model, error = corrected(model, outside_of(total), outside)
    model = replace(model, total=model.total + rounding)
    return SpanFit(model, span, outside, error, rounding, by_party=by_party)


def fit_at_home(
    rows: Federation, kernel: Kernel, n_components: int | None, Y: Rows, center: bool
) -> SpanFit:
    """The same of an owner's own rows, without messages to itself.

    Landmarks that others span are left out where some components are wanted, not all there are.
    """
    with rows.naming_errors():
        span, A = Span.of(kernel, Y).by_factor(), rows.own_rows
        if n_components is not None:
            span = spanning(span, A, n_components)
        sums = inside_sums(span, A, rows.own_values)
    how, Y = (n_components, center, span), as_rows(span.landmarks, Y.dtype)
    model = LandmarkModel.of_inside(sums, *how, Y)
    smallest = model.eigenvalues[0 if n_components is None else -1]
    if A.dtype == np.float32 and smallest < _SINGLE_SHOWS * sums.trace:
        sums = inside_sums(span, A.astype(np.float64))
        model = LandmarkModel.of_inside(sums, *how, Y)
    model = model.signed_by(span)
    require_possible_sums(float(np.sum(model.eigenvalues)), model.total)
    return SpanFit(model, span, sums.outside)


def require_single_sums(rows: Federation) -> None:
    """A median is of sums that are seen one by one, of three parties or more."""
    if rows.secure:
        raise InputError(
            "gram is 'median' and sums are masked; a median is of what each party sends, which "
            "masks hide: gram='sum' is expected, or secure=False"
        )
    if len(rows.parties) < FEWEST:
        raise InputError(
            f"gram is 'median' and there are {len(rows.parties)} parties; at least {FEWEST} are "
            f"expected: of two nobody can say which is off"
        )


def median_total(rows: Federation, step: Step, each: Mapping[str, Message]) -> Any:
    """In place of the sum: as many rows as there are, each as the median party has them."""
    replies: list[Any] = []
    rows.total(step, each=each, look=lambda _, reply: replies.append(reply))
    names = [field.name for field in fields_of(type(replies[0])) if field.name != "n_rows"]
    blocks = {
        name: np.array([np.ravel(getattr(reply, name)) for reply in replies]) for name in names
    }
    sizes = [reply.n_rows for reply in replies]
    weights = median_weights(list(blocks.values()), sizes)
    summed = {name: weights @ block for name, block in blocks.items()}
    scalars = {name for name in names if np.ndim(getattr(replies[0], name)) == 0}
    values = {name: float(own[0]) if name in scalars else own for name, own in summed.items()}
    return replace(replies[0], n_rows=round(float(np.sum(bounded_sizes(sizes)))), **values)


def _questions(landmark_set: LandmarkSet, rank: int, is_sampled: bool) -> dict[str, NewLandmarks]:
    """What each party has not seen; still one message for all who have seen nothing."""
    kind: Any = SampledLandmarks if is_sampled else NewLandmarks
    more = {"share": landmark_set.share} if is_sampled else {}
    news = landmark_set.unseen
    messages = {id(new): kind(**{**vars(new), "rank": rank}, **more) for new in news.values()}
    return {name: messages[id(new)] for name, new in news.items()}


# 4. Beyond the paper: landmarks that are doubled until they miss little of what is wanted.


def fit_until_accurate(
    rows: Federation,
    role: Any,
    accuracy: Accuracy,
    center: bool,
    landmark_set: LandmarkSet,
    fit: Callable[[LandmarkSet], SpanFit],
    draw_more: Callable[[LandmarkSet, int], LandmarkSet],
) -> MeasuredFit:
    """Fit, look at what is missing, and draw twice as many landmarks while it is too much."""
    most = min(accuracy.most_landmarks, landmark_set.most_in_all)
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
            how = (accuracy, center, landmark_set, result)
            if rows.own_rows is not None:
                result, coverage = look_at_own(rows, *how, may_grow=not is_last)
            else:
                coverage = measure(rows, role, *how)
            coverage = with_absent(coverage, accuracy, result)
            if is_last or coverage.shortfall.is_within(accuracy.largest_missing):
                return MeasuredFit(landmark_set, result, coverage)
        landmark_set, left = draw_more(landmark_set, min(2 * q, most)), left - 1
        # None where all rows are in the span, or who had some is lost: the parties have new ones.
        is_last = landmark_set.Y.shape[0] <= q


def more_landmarks(
    rows: Federation, role: Any, setup: KernelSetup, landmarks: str
) -> Callable[[LandmarkSet, int], LandmarkSet]:
    """What draws more of the same kind, up to a number in all: finer centroids, else rows."""

    def draw_more(before: LandmarkSet, count: int) -> LandmarkSet:
        share = share_seen(count, sum(before.sizes.values()), setup)
        if before.draw is not None:
            points = before.draw.more(count - before.Y.shape[0])
            unseen = to_all(points, rows.parties)
            return before._replace(Y=stack([before.Y, points]), unseen=unseen, share=share)
        rng = np.random.default_rng((setup.seed, count))
        Y, left, draw = [before.Y], before.left, role.draw_rows
        if landmarks == "centroids":
            Y, left, draw = [], before.most, role.local_centroids
        still_in = set(rows.parties)
        left = {name: own for name, own in left.items() if name in still_in}
        masses = {name: float(size) for name, size in before.sizes.items() if name in left}
        if landmarks not in ("uniform", "centroids"):
            nothing = NewLandmarks(**pack(before.Y[:0]), before=0, own=0, rank=0)
            masses = masses_of(by_party(rows.ask(role.residual_mass, nothing)), left)
        missing = count - sum(y.shape[0] for y in Y)
        fresh = draw_from(rows, draw, masses, left, (missing, before.bits), rng)
        drawn = {name: part.shape[0] for name, part in fresh.items()}
        return before._replace(
            Y=stack([*Y, *fresh.values()]),
            unseen=new_to_each(fresh),
            share=share,
            left={name: left[name] - own for name, own in drawn.items()},
        )

    return draw_more
