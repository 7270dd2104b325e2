"""disKPCA: kernel PCA over row partitions from a few well-chosen rows.

Balcan, Liang, Song, Woodruff and Xie, "Communication Efficient Distributed Kernel Principal
Component Analysis", KDD 2016.

===================  ============================================================================
party keeps          its rows A_i (n_i, d), their leverage scores and distances; their scores in
                     the components, if the study says so (`scores.py`)
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
Above the usual length: one role draws, measures, sums and scores, for all protocols of this folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Annotated, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from eigenmesh.methods.diskpca.landmark_draws import (
    LandmarkSet,
    LandmarkShare,
    NewLandmarks,
    Numbers,
    choose_landmarks,
    choosing,
    more_landmarks,
    unseen_sizes,
)
from eigenmesh.methods.diskpca.landmark_growth import (
    Accuracy,
    OutsideProbes,
    ProbeAsk,
    ProbedComponents,
    SpanFit,
    fit_until_accurate,
    growing,
    probes_of,
)
from eigenmesh.methods.diskpca.leverage import ScoredRows, gram_rounds, leverage_by_gram
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup, ScoredComponents, keep_points
from eigenmesh.numerics.arrays import Doubles, Rows, is_sparse
from eigenmesh.numerics.centroids import MIN_CLUSTER, centroids
from eigenmesh.numerics.draws import draw_distinct
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import (
    LandmarkSums,
    Span,
    landmark_sums,
    residuals,
    span_residual,
)
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import OutsideSums, OutsideView, corrected, outside_sizes
from eigenmesh.numerics.shortfall import probe
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Message, NonNegative, Positive
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import Node, Scope, Size, ask, enlist, maybe, sequence
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.coverage import Coverage
from eigenmesh.stages.row_messages import (
    CentredSums,
    GramSums,
    RowBlock,
    full,
    kernel_of,
    pack,
    stack,
    unpack,
    upper,
)

for kind in (LandmarkModel, Kernel):
    record(kind)

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

    Setup: ClassVar[type[Message]] = LandmarkSetup
    state = ("scores", "drawn", "fresh", "landmarks")

    def __init__(self, site: SiteView, setup: LandmarkSetup) -> None:
        super().__init__(site, setup)
        self.drawn = np.zeros(site.data.shape[0], dtype=bool)
        self.fresh = pack(site.data[:0])  # what was sent last, not yet among the landmarks
        self.landmarks: list[dict[str, Any]] = []

    @step(reusable=False)
    def draw_rows(self, share: LandmarkShare) -> RowBlock:
        """Distinct rows with probability in proportion to their scores."""
        weights = np.where(self.drawn, 0.0, self.scores)
        rng = self.site.generator(self.setup.seed, diskpca.number, int(self.drawn.sum()))
        indices = draw_distinct(weights, share.n_rows, rng)
        self.drawn = self.drawn.copy()
        self.drawn[indices] = True
        self.fresh = pack(self.site.data[indices])
        return RowBlock(**self.fresh)

    @step(reusable=False)
    def local_centroids(self, share: LandmarkShare) -> Centroids:
        """Means of clusters of the own rows, none of fewer than MIN_CLUSTER rows."""
        seed = self.site.generator(self.setup.seed, diskpca.number).integers(2**31)
        means: Any = centroids(self.site.data, share.n_rows, MIN_CLUSTER, int(seed))
        if is_sparse(self.site.data) and 2 * np.count_nonzero(means) < means.size:
            means = sp.csr_array(means)
        self.fresh, self.landmarks = pack(means), []  # more of them replace the first
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
        """What the rows add up to with all landmarks, `numerics.landmark_sums`."""
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
    def probe_outside(self, components: ProbeAsk) -> OutsideProbes:
        """What the landmarks miss of some components, `numerics.shortfall`."""
        seed, A, Y = self.setup.seed, self.site.data, self.all_landmarks()
        rng = self.site.generator(seed, diskpca.number, _PROBING)
        return OutsideProbes(*probe(self.kernel, Y, A, probes_of(components), seed, rng))

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
        return fit_rounds(scope, setup, numbers, is_sure, center)

    def in_span(numbers: Numbers) -> Node:
        if accuracy is None:
            return fit(numbers, True)
        is_exact = n_components is not None and accuracy.variance_share is None
        probes = ProbedComponents(setup.kernel, n_components, is_exact, center)
        return growing(scope, RowHolder, landmarks, probes, accuracy, numbers, fit)

    leverage = gram_rounds(RowHolder)
    return sequence(
        enlist(RowHolder, setup),
        choosing(RowHolder, setup, n_landmarks, landmarks, leverage, in_span),
    )


def fit_rounds(
    scope: Scope, setup: LandmarkSetup, numbers: Numbers, is_sure: bool, center: bool
) -> Node:
    """The sums of one fit, of so many landmarks or, unless that is sure, at most so many."""
    d, q = numbers.d, Size(numbers.q, is_sure)
    new = unseen_sizes(numbers.last, d, numbers.last_planned)
    plain = ask(RowHolder.projected_gram, **new, up={"q": q})
    if not center or (is_sure and numbers.is_every_row):
        return plain
    t, f = outside_sizes(setup.kernel, d) if len(scope.parties) > 1 else (0, 0)
    centred = ask(RowHolder.centred_gram, **new, up={"q": q, "t": t, "f": f})
    if not numbers.is_every_row:
        return centred
    return sequence(maybe(centred, planned=False), maybe(plain))  # as many as rows, or fewer


@protocol("diskpca", roles=(RowHolder,), skips=True, schedule=schedule)
def diskpca(
    rows: Federation,
    setup: LandmarkSetup,
    n_components: int | None,
    n_landmarks: int,
    landmarks: str,
    center: bool,
    accuracy: Accuracy | None = None,
) -> DisKPCAResult:
    """Algorithm 1. More landmarks than rows means every row, no number of components all there are.

    `landmarks` is one of LANDMARKS. With an accuracy there may be more of them.
    """
    rows.enlist(RowHolder, setup)
    leverage = leverage_by_gram(RowHolder)
    first = choose_landmarks(rows, RowHolder, setup, n_landmarks, landmarks, leverage)

    # 3. disLR: the best subspace inside span φ(Y).
    def fit(landmark_set: LandmarkSet) -> SpanFit:
        return fit_in_span(rows, kernel_of(setup), n_components, landmark_set, center)

    if accuracy is None:
        return result_of(first, fit(first), None)
    more = more_landmarks(rows, RowHolder, setup, landmarks)
    probing = RowHolder.probe_outside
    return result_of(*fit_until_accurate(rows, probing, accuracy, center, first, fit, more))


def result_of(
    landmark_set: LandmarkSet, in_span: SpanFit, coverage: Coverage | None
) -> DisKPCAResult:
    """What a fit amounts to."""
    facts = (landmark_set.skew, in_span.outside, landmark_set.n_values, in_span.error)
    return DisKPCAResult(in_span.model, *facts, coverage)


def fit_in_span(
    rows: Federation,
    kernel: Kernel,
    n_components: int | None,
    landmark_set: LandmarkSet,
    center: bool,
    in_total: bool = True,
) -> SpanFit:
    """The best components inside the span; `in_total` says whether the total variance matters.

    If centred, that takes the mean outside the span, too.
    """
    estimated = center and in_total and landmark_set.share > 0
    if estimated:
        total = rows.total(RowHolder.centred_gram, each=sampled(landmark_set)).sum
    else:
        total = rows.total(RowHolder.projected_gram, each=landmark_set.unseen).sum
    sums = LandmarkSums(full(total.upper), total.sums, total.n_rows, total.trace)
    span = Span.of(kernel, landmark_set.Y)
    model = LandmarkModel.fit(kernel, landmark_set.Y, sums, n_components, center, span)
    outside, error = span_residual(span, sums), 0.0
    if estimated:
        model, error = corrected(model, outside_of(total), outside)
    return SpanFit(model, span, outside, error)


def sampled(landmark_set: LandmarkSet) -> dict[str, SampledLandmarks]:
    """What each party has not seen; still one message for all who have seen nothing."""
    share, news = landmark_set.share, landmark_set.unseen
    made = {id(new): SampledLandmarks(**vars(new), share=share) for new in news.values()}
    return {name: made[id(new)] for name, new in news.items()}


def outside_of(total: CentredSums) -> OutsideSums:
    """What all rows add up to outside the span."""
    return OutsideSums(*(getattr(total, name) for name in OutsideSums._fields))
