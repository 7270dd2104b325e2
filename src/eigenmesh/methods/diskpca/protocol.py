"""disKPCA: kernel PCA over row partitions from a few well-chosen rows.

Balcan, Liang, Song, Woodruff and Xie, "Communication Efficient Distributed Kernel Principal
Component Analysis", KDD 2016.

===================  ============================================================================
party keeps          its rows A_i (n_i, d), their leverage scores and distances
party reveals        the Gram matrix of its embedded rows, the mass of its scores and distances,
                     the rows that are drawn from it, sums of kernel values with all landmarks, and
                     if centred the sum of random features of a sample, less their part in the span;
                     with an accuracy, what `landmark_growth` says
coordinator learns   these; the landmarks go to all parties
===================  ============================================================================

Letters: A rows, P landmarks by leverage, Y all landmarks, |Y| = q.
Readings: Y contains P; exact Gram matrices take the place of the sketched ones, since they add up
and cost no more at this size (`diskpca_sketched` has the sketches); landmarks are distinct, and a
party is not sent its own. Beyond the paper: the mean outside the span, for the centred variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp

from eigenmesh.errors import InputError, PartitionError
from eigenmesh.methods.diskpca.landmark_draws import (
    Chosen,
    LandmarkShare,
    NewLandmarks,
    draw_from,
    masses_of,
    new_to_each,
)
from eigenmesh.methods.diskpca.landmark_growth import (
    Accuracy,
    OutsideProbes,
    ProbeAsk,
    SpanFit,
    fit_until_accurate,
    probes_of,
)
from eigenmesh.methods.diskpca.leverage import LeverageMass, ScoredRows, Whitening, skew_of
from eigenmesh.numerics.arrays import Doubles, Rows, is_sparse
from eigenmesh.numerics.centroids import MIN_CLUSTER
from eigenmesh.numerics.draws import draw_distinct
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.float32_sums import Span
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmarks import (
    LandmarkModel,
    LandmarkSums,
    centroids,
    landmark_sums,
    residuals,
)
from eigenmesh.numerics.mean_outside import SAMPLE_ROWS, OutsideSums, OutsideView, corrected
from eigenmesh.numerics.shortfall import probe
from eigenmesh.numerics.span_residual import span_residual
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Message, NonNegative, Positive
from eigenmesh.runtime.party import Step, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.coverage import Coverage
from eigenmesh.stages.row_messages import (
    CentredSums,
    GramSums,
    KernelSetup,
    RowBlock,
    RowCount,
    by_party,
    full,
    kernel_of,
    pack,
    stack,
    unpack,
    upper,
)

for kind in (LandmarkModel, Kernel):
    record(kind)

LANDMARKS = ("diskpca", "uniform", "leverage", "rpcholesky", "centroids")
RPCHOLESKY_BLOCKS = 8  # more blocks are nearer to the sequential method, and cost rounds
_SAMPLING = 2**32  # a round of its own for the draw of a sample, above all that draw landmarks
_PROBING = _SAMPLING + 1


class Mass(Message, reveals="moments"):
    """The sum of a party's squared distances."""

    mass: Annotated[float, NonNegative]


class Centroids(RowBlock, reveals="centroids"):
    """Means of at least MIN_CLUSTER rows each."""


class SampledLandmarks(NewLandmarks, reveals="rows"):
    """The last of them, and which share of its rows a party shall look at from outside the span."""

    share: Annotated[float, Positive]


class RowHolder(ScoredRows):
    """Holds some rows of all columns.

    Steps that draw or take up landmarks are not reusable: an old reply in place of a lost one would
    leave the parties with different landmarks, whose sums do not add up.
    """

    state = ("scores", "drawn", "fresh", "landmarks")

    def __init__(self, site: SiteView, setup: KernelSetup) -> None:
        super().__init__(site, setup)
        self.drawn = np.zeros(site.data.shape[0], dtype=bool)
        self.fresh = pack(site.data[:0])  # what was sent last, not yet among the landmarks
        self.landmarks: list[dict[str, Any]] = []

    @step(reusable=False)
    def draw_rows(self, asked: LandmarkShare) -> RowBlock:
        """Distinct rows with probability in proportion to their scores."""
        weights = np.where(self.drawn, 0.0, self.scores)
        rng = self.site.generator(self.setup.seed, diskpca.number, int(self.drawn.sum()))
        chosen = draw_distinct(weights, asked.n_rows, rng)
        self.drawn = self.drawn.copy()
        self.drawn[chosen] = True
        self.fresh = pack(self.site.data[chosen])
        return RowBlock(**self.fresh)

    @step(reusable=False)
    def local_centroids(self, asked: LandmarkShare) -> Centroids:
        """Means of clusters of the own rows, none of fewer than MIN_CLUSTER rows."""
        seed = self.site.generator(self.setup.seed, diskpca.number).integers(2**31)
        found: Any = centroids(self.site.data, asked.n_rows, MIN_CLUSTER, int(seed))
        if is_sparse(self.site.data) and 2 * np.count_nonzero(found) < found.size:
            found = sp.csr_array(found)
        self.fresh, self.landmarks = pack(found), []  # more of them replace the first
        return Centroids(**self.fresh)

    @step
    def norm_mass(self) -> Mass:
        """Squared norms ‖φ(a)‖², the distances to no landmarks at all."""
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
        """What the rows add up to with all landmarks, `numerics.landmarks.LandmarkSums`."""
        Y = self.take_up(others)
        return GramSums(**self._sums(Y, Span.of(self.kernel, Y)))

    @step(reusable=False)
    def centred_gram(self, others: SampledLandmarks) -> CentredSums:
        """The same, and what they add up to outside the landmarks' span."""
        Y = self.take_up(others)
        span = Span.of(self.kernel, Y)
        return CentredSums(**self._sums(Y, span), **self.outside(span, others.share))

    def _sums(self, Y: Rows, span: Span) -> dict[str, Any]:
        sums = landmark_sums(self.kernel, self.site.data, Y, span)
        return {
            "upper": upper(sums.gram),
            "sums": sums.sums,
            "n_rows": sums.n_rows,
            "trace": sums.trace,
        }

    def outside(self, span: Span, share: float) -> dict[str, Any]:
        """The last fields of CentredSums, from a share of the rows."""
        A, seed = self.site.data, self.setup.seed
        rng = self.site.generator(seed, diskpca.number, _SAMPLING)
        most = ceil(share * A.shape[0])
        if len(self.site.names) == 1:
            return OutsideView.of(span, None).sums_alone(A, rng, most)._asdict()
        return OutsideView.of(span, seed).sums(A, rng, most)._asdict()

    @step(reusable=False)
    def probe_outside(self, asked: ProbeAsk) -> OutsideProbes:
        """What the landmarks miss of some components, `numerics.shortfall`."""
        seed, A, Y = self.setup.seed, self.site.data, self.all_landmarks()
        rng = self.site.generator(seed, diskpca.number, _PROBING)
        return OutsideProbes(*probe(self.kernel, Y, A, probes_of(asked), seed, rng))

    def take_up(self, others: NewLandmarks) -> Rows:
        """All landmarks so far; the own rows are put where they belong among the others'."""
        theirs, own = unpack(others), unpack(RowBlock(**self.fresh))
        added = stack([theirs[: others.before], own, theirs[others.before :]])
        self.landmarks = [*self.landmarks, pack(added)]
        self.fresh = pack(own[:0])
        return self.all_landmarks()

    def all_landmarks(self) -> Rows:
        """Those of all parties, in the order that all know."""
        return stack([unpack(RowBlock(**fields)) for fields in self.landmarks])


@record
@dataclass(frozen=True)
class DisKPCAResult:
    """The model, and what is known of how good the landmarks are."""

    model: LandmarkModel
    leverage_skew: float | None  # largest rank-k leverage / mean, estimated; None if not measured
    outside: float  # squared distance of all rows to the landmarks' span, Σ‖φ(a) − Pφ(a)‖²
    baseline_floats: int  # what shipping every row would have cost
    residual_error: float = 0.0  # standard error of the model's total
    coverage: Coverage | None = None  # what the landmarks miss; None if nobody asked
    stop_reason: str = "the landmarks' sums are complete"


def steps_for(landmarks: str, center: bool, accuracy: bool = False) -> list[Step]:
    """The steps that a choice of landmarks asks for; `accuracy` says whether they may grow."""
    centred = [RowHolder.centred_gram] if center else []
    growing = growing_steps(landmarks, RowHolder) if accuracy else []
    return [*drawing_steps(landmarks, RowHolder), RowHolder.projected_gram, *centred, *growing]


def growing_steps(landmarks: str, role: type[RowHolder]) -> list[Step]:
    """Those that measure what landmarks miss, and draw more."""
    far = [role.residual_mass] if landmarks in ("leverage", "diskpca", "rpcholesky") else []
    return [role.probe_outside, *far]


def drawing_steps(landmarks: str, role: type[RowHolder]) -> list[Step]:
    """Those of them that come before disLR."""
    draw = role.local_centroids if landmarks == "centroids" else role.draw_rows
    leverage = [role.embedded_gram, role.leverage_mass]
    further = {
        "diskpca": [*leverage, role.residual_mass],
        "leverage": leverage,
        "rpcholesky": [role.norm_mass, role.residual_mass],
    }
    return [role.count_rows, draw, *further.get(landmarks, [])]


@protocol("diskpca", roles=(RowHolder,), skips=True)
def diskpca(
    rows: Federation,
    setup: KernelSetup,
    n_components: int | None,
    n_landmarks: int,
    landmarks: str,
    center: bool,
    accuracy: Accuracy | None = None,
) -> DisKPCAResult:
    """Algorithm 1. More landmarks than rows means every row, no number of components all there are.

    `landmarks` is one of LANDMARKS. With an accuracy there may be more of them.
    """
    rows.enlist(RowHolder, setup, steps_for(landmarks, center, accuracy is not None))
    chosen = choose_landmarks(rows, RowHolder, setup, n_landmarks, landmarks, leverage_by_gram)

    # 3. disLR: the best subspace inside span φ(Y).
    def fit(chosen: Chosen) -> SpanFit:
        return _fit_in_span(rows, kernel_of(setup), n_components, chosen, center)

    if accuracy is None:
        result, coverage = fit(chosen), None
    else:
        more = more_landmarks(rows, RowHolder, setup, landmarks)
        probing = RowHolder.probe_outside
        chosen, result, coverage = fit_until_accurate(
            rows, probing, accuracy, center, chosen, fit, more
        )
    model, outside, error = result
    return DisKPCAResult(model, chosen.skew, outside, chosen.n_values, error, coverage)


def _fit_in_span(
    rows: Federation, kernel: Kernel, n_components: int | None, chosen: Chosen, center: bool
) -> SpanFit:
    estimated = center and chosen.share > 0
    if estimated:
        total = rows.total(RowHolder.centred_gram, each=sampled(chosen)).sum
    else:
        total = rows.total(RowHolder.projected_gram, each=chosen.unseen).sum
    sums = LandmarkSums(full(total.upper), total.sums, total.n_rows, total.trace)
    span = Span.of(kernel, chosen.Y)
    model = LandmarkModel.fit(kernel, chosen.Y, sums, n_components, center, span)
    outside = span_residual(span, sums)
    if not estimated:
        return SpanFit(model, outside)
    model, error = corrected(model, outside_of(total), outside)
    return SpanFit(model, outside, error)


def sampled(chosen: Chosen) -> dict[str, SampledLandmarks]:
    """What each party has not seen; still one message for all who have seen nothing."""
    made = {
        id(new): SampledLandmarks(**vars(new), share=chosen.share) for new in chosen.unseen.values()
    }
    return {name: made[id(new)] for name, new in chosen.unseen.items()}


def outside_of(total: CentredSums) -> OutsideSums:
    """What all rows add up to outside the span."""
    return OutsideSums(*(getattr(total, name) for name in OutsideSums._fields))


Leverage = Callable[[Federation], dict[str, LeverageMass]]


def choose_landmarks(
    rows: Federation,
    role: type[RowHolder],
    setup: KernelSetup,
    n_landmarks: int,
    landmarks: str,
    leverage: Leverage,
) -> Chosen:
    """Steps 1 and 2 of Algorithm 1, with `leverage` as disLS."""
    sizes: dict[str, RowCount] = by_party(rows.ask(role.count_rows))
    n = sum(size.n_rows for size in sizes.values())
    most = {name: most_landmarks(landmarks, size.n_rows) for name, size in sizes.items()}
    left, q = most, min(n_landmarks, sum(most.values()))
    draw = role.local_centroids if landmarks == "centroids" else role.draw_rows
    rng = np.random.default_rng(setup.seed)

    if not q:
        raise PartitionError(
            f"every party has fewer than {MIN_CLUSTER} rows, the fewest that a mean may stand for; "
            f"join some parties, or pass landmarks='uniform' or 'diskpca' if rows may leave"
        )

    # 1. Leverage scores of the embedded rows; without them, each row counts the same.
    masses, skew = {name: float(size.n_rows) for name, size in sizes.items()}, None
    if q < n and landmarks in ("diskpca", "leverage"):
        scores = leverage(rows)
        masses, skew = masses_of(scores, left), skew_of(scores, n)
    elif q < n and landmarks == "rpcholesky":
        masses = masses_of(by_party(rows.ask(role.norm_mass)), left)

    # 2. Landmarks, in one or more shares: after the first, by distance to the span so far.
    Y: list[Rows] = []
    fresh: dict[str, Rows] = {}
    for share in shares_of(landmarks, q, n):
        if fresh:
            far = rows.ask(role.residual_mass, each=new_to_each(fresh))
            masses = masses_of(by_party(far), left)
        fresh = draw_from(rows, draw, masses, left, share, rng)
        left = {name: left[name] - part.shape[0] for name, part in fresh.items()}
        Y.extend(fresh.values())
    n_values = sum(size.n_values for size in sizes.values())
    n_rows = {name: size.n_rows for name, size in sizes.items()}
    seen = share_seen(q, n)
    return Chosen(stack(Y), new_to_each(fresh), skew, n_values, seen, n_rows, most, left)


def share_seen(q: int, n: int) -> float:
    """The share of n rows that is looked at from outside the span of q landmarks."""
    return min(1.0, SAMPLE_ROWS / n) if q < n else 0.0


def more_landmarks(
    rows: Federation, role: type[RowHolder], setup: KernelSetup, landmarks: str
) -> Callable[[Chosen, int], Chosen]:
    """What draws more of the same kind, up to a number in all: centroids anew, else more rows."""

    def draw_more(before: Chosen, count: int) -> Chosen:
        rng = np.random.default_rng((setup.seed, count))
        Y, left, masses = [before.Y], before.left, {n: float(s) for n, s in before.sizes.items()}
        if landmarks == "centroids":
            Y, left, draw = [], before.most, role.local_centroids
        else:
            draw = role.draw_rows
            if landmarks != "uniform":
                nothing = NewLandmarks(**pack(before.Y[:0]), before=0)
                masses = masses_of(by_party(rows.ask(role.residual_mass, nothing)), left)
        fresh = draw_from(rows, draw, masses, left, count - sum(y.shape[0] for y in Y), rng)
        drawn = {name: part.shape[0] for name, part in fresh.items()}
        return before._replace(
            Y=stack([*Y, *fresh.values()]),
            unseen=new_to_each(fresh),
            share=share_seen(count, sum(before.sizes.values())),
            left={name: left[name] - own for name, own in drawn.items()},
        )

    return draw_more


def leverage_by_gram(rows: Federation) -> dict[str, LeverageMass]:
    """Algorithm 2, disLS, with the exact Gram matrix in place of a sketched QR."""
    gram = full(rows.total(RowHolder.embedded_gram).sum.upper)
    whitening = Whitening(matrix=square(pseudo_inverse_root(gram)))
    return by_party(rows.ask(RowHolder.leverage_mass, whitening))


def square(B: Doubles) -> Doubles:
    """Columns of zeros make up for a rank below t, so that the traffic is known beforehand."""
    return np.hstack([B, np.zeros((len(B), len(B) - B.shape[1]))])


def most_landmarks(landmarks: str, n_rows: int) -> int:
    """How many landmarks a party can give: every row, or clusters that are large enough."""
    return n_rows // MIN_CLUSTER if landmarks == "centroids" else n_rows


def shares_of(landmarks: str, q: int, n: int) -> list[int]:
    """How many landmarks are drawn before the distances to their span are measured again."""
    if q == n:
        return [q]
    parts = min(q, {"diskpca": 2, "rpcholesky": RPCHOLESKY_BLOCKS}.get(landmarks, 1))
    return [q * (i + 1) // parts - q * i // parts for i in range(parts)]


def require_fresh_replies(rows: Federation) -> None:
    """For protocols with steps of their own that an old reply could stand in for."""
    if rows.on_loss == "reuse":
        raise InputError(
            "on_loss is 'reuse'; 'raise' or 'survivors' is expected: an old draw in place of a "
            "lost one would leave the parties with different landmarks, whose sums do not add up"
        )
