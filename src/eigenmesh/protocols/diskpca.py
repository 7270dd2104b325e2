"""disKPCA: kernel PCA over row partitions from a few well-chosen rows.

Balcan, Liang, Song, Woodruff and Xie, "Communication Efficient Distributed Kernel Principal
Component Analysis", KDD 2016.

===================  ============================================================================
party keeps          its rows A_i (n_i, d), their leverage scores and distances
party reveals        the Gram matrix of its embedded rows, the mass of its scores and distances,
                     the rows that are drawn from it, and sums of kernel values with all landmarks
coordinator learns   these; the landmarks go to all parties
===================  ============================================================================

Letters: A rows, P landmarks by leverage, Y all landmarks, |Y| = q.
Readings: Y contains P; exact Gram matrices take the place of the sketched ones, since they add up
and cost no more at this size (`diskpca_sketched` has the sketches); landmarks are distinct, and a
party is not sent its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from eigenmesh.errors import InputError
from eigenmesh.federation.federation import Federation
from eigenmesh.federation.message import Message, NonNegative
from eigenmesh.federation.party import Step, step
from eigenmesh.federation.protocol import protocol
from eigenmesh.federation.records import record
from eigenmesh.federation.site import SiteView
from eigenmesh.numerics.arrays import Doubles, Rows, is_sparse
from eigenmesh.numerics.draws import draw_distinct
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmarks import (
    LandmarkModel,
    LandmarkSums,
    centroids,
    landmark_sums,
    residuals,
)
from eigenmesh.numerics.span_residual import span_residual
from eigenmesh.protocols.landmark_draws import (
    Draw,
    NewLandmarks,
    draw_from,
    masses_of,
    new_to_each,
)
from eigenmesh.protocols.leverage_scores import LeverageMass, ScoredRows, Whitening, skew_of
from eigenmesh.protocols.row_messages import (
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
MIN_CLUSTER = 5  # a mean of fewer rows says too much of each


class Mass(Message, reveals="moments"):
    """The sum of a party's squared distances."""

    mass: Annotated[float, NonNegative]


class Centroids(RowBlock, reveals="centroids"):
    """Means of at least MIN_CLUSTER rows each."""


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
    def draw_rows(self, asked: Draw) -> RowBlock:
        """Distinct rows with probability in proportion to their scores."""
        weights = np.where(self.drawn, 0.0, self.scores)
        rng = self.site.generator(self.setup.seed, diskpca.number, int(self.drawn.sum()))
        chosen = draw_distinct(weights, asked.n_rows, rng)
        self.drawn = self.drawn.copy()
        self.drawn[chosen] = True
        self.fresh = pack(self.site.data[chosen])
        return RowBlock(**self.fresh)

    @step(reusable=False)
    def local_centroids(self, asked: Draw) -> Centroids:
        """Means of clusters of the own rows, none of fewer than MIN_CLUSTER rows."""
        seed = self.site.generator(self.setup.seed, diskpca.number).integers(2**31)
        found: Any = centroids(self.site.data, asked.n_rows, MIN_CLUSTER, int(seed))
        if is_sparse(self.site.data) and 2 * np.count_nonzero(found) < found.size:
            found = sp.csr_array(found)
        self.fresh = pack(found)
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
        sums = landmark_sums(self.kernel, self.site.data, self.take_up(others))
        return GramSums(
            upper=upper(sums.gram), sums=sums.sums, n_rows=sums.n_rows, trace=sums.trace
        )

    def take_up(self, others: NewLandmarks) -> Rows:
        """All landmarks so far; the own rows are put where they belong among the others'."""
        theirs, own = unpack(others), unpack(RowBlock(**self.fresh))
        added = stack([theirs[: others.before], own, theirs[others.before :]])
        self.landmarks = [*self.landmarks, pack(added)]
        self.fresh = pack(own[:0])
        return stack([unpack(RowBlock(**fields)) for fields in self.landmarks])


@record
@dataclass(frozen=True)
class DisKPCAResult:
    """The model, and what is known of how good the landmarks are."""

    model: LandmarkModel
    leverage_skew: float | None  # largest rank-k leverage / mean, estimated; None if not measured
    outside: float  # squared distance of all rows to the landmarks' span, Σ‖φ(a) − Pφ(a)‖²
    baseline_floats: int  # what shipping every row would have cost
    stop_reason: str = "the landmarks' sums are complete"


def steps_for(landmarks: str) -> list[Step]:
    """The steps that a choice of landmarks asks for."""
    return [*drawing_steps(landmarks, RowHolder), RowHolder.projected_gram]


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
) -> DisKPCAResult:
    """Algorithm 1. More landmarks than rows means every row, no number of components all there are.

    `landmarks` is one of LANDMARKS.
    """
    rows.enlist(RowHolder, setup, steps_for(landmarks))
    chosen = choose_landmarks(rows, RowHolder, setup, n_landmarks, landmarks, leverage_by_gram)

    # 3. disLR: the best subspace inside span φ(Y).
    total = rows.total(RowHolder.projected_gram, each=chosen.unseen).sum
    sums = LandmarkSums(full(total.upper), total.sums, total.n_rows, total.trace)
    kernel = kernel_of(setup)
    model = LandmarkModel.fit(kernel, chosen.Y, sums, n_components, center)
    outside = span_residual(kernel, chosen.Y, sums)
    return DisKPCAResult(model, chosen.skew, outside, chosen.n_values)


class Chosen(NamedTuple):
    """Landmarks, and what each party has not seen of them."""

    Y: Rows
    unseen: dict[str, NewLandmarks]
    skew: float | None
    n_values: int


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
    left = {name: most_landmarks(landmarks, size.n_rows) for name, size in sizes.items()}
    q = min(n_landmarks, sum(left.values()))
    draw = role.local_centroids if landmarks == "centroids" else role.draw_rows
    rng = np.random.default_rng(setup.seed)

    if not q:
        raise InputError(
            f"no party has {MIN_CLUSTER} rows, the fewest that a centroid may stand for; choose "
            f"other landmarks than 'centroids'"
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
    return Chosen(stack(Y), new_to_each(fresh), skew, n_values)


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
    parts = {"diskpca": 2, "rpcholesky": min(RPCHOLESKY_BLOCKS, q)}.get(landmarks, 1)
    return [q * (i + 1) // parts - q * i // parts for i in range(parts)]


def require_fresh_replies(rows: Federation) -> None:
    """For protocols with steps of their own that an old reply could stand in for."""
    if rows.on_loss == "reuse":
        raise InputError(
            "on_loss is 'reuse'; 'raise' or 'survivors' is expected: an old draw in place of a "
            "lost one would leave the parties with different landmarks, whose sums do not add up"
        )
