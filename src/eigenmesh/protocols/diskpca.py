"""disKPCA: kernel PCA over row partitions from a few well-chosen rows.

Balcan, Liang, Song, Woodruff and Xie, "Communication Efficient Distributed Kernel Principal
Component Analysis", KDD 2016.

===================  ============================================================================
party keeps          its rows A_i (n_i, d), their leverage scores and distances
party reveals        the Gram matrix of its embedded rows, the mass of its scores and distances,
                     the rows that are drawn from it, and sums of kernel values with all landmarks
coordinator learns   these; the landmarks go to all parties
===================  ============================================================================

Letters: A rows, E embedded rows (n, t), P landmarks by leverage, Y all landmarks, |Y| = q.
Readings: Y contains P; exact Gram matrices take the place of the sketched ones, since they add up
and cost no more at this size; landmarks are distinct, and a party is not sent its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.federation.federation import Federation
from eigenmesh.federation.ledger import Entry, Ledger, forecast_entry, forecast_message
from eigenmesh.federation.message import (
    Floats,
    Message,
    NonNegative,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
)
from eigenmesh.federation.party import Party, Step, step
from eigenmesh.federation.protocol import protocol
from eigenmesh.federation.records import record
from eigenmesh.federation.results import Replies
from eigenmesh.federation.site import SiteView
from eigenmesh.numerics.arrays import Doubles, Rows, blocks, is_sparse
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.embeddings import embedding
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmarks import (
    LandmarkModel,
    LandmarkSums,
    centroids,
    landmark_sums,
    residuals,
)
from eigenmesh.protocols.row_messages import RowBlock, pack, stack, unpack

for kind in (LandmarkModel, Kernel):
    record(kind)

LANDMARKS = ("diskpca", "uniform", "leverage", "rpcholesky", "centroids")
RPCHOLESKY_BLOCKS = 8  # more blocks are nearer to the sequential method, and cost rounds
MIN_CLUSTER = 5  # a mean of fewer rows says too much of each


class LandmarkSetup(Message, reveals=None):
    """Kernel, width of the embedding and seed, the same for all."""

    kernel: str
    gamma: float | None
    degree: float
    coef0: float
    embedding_dim: Annotated[int, Positive]
    seed: int


class RowCount(Message, reveals="counts"):
    """How much a party holds; `n_values` are the numbers that shipping its rows would take."""

    n_rows: Annotated[int, Positive]
    n_columns: Annotated[int, SameEverywhere]
    n_values: Annotated[int, NonNegative]


class UpperGram(Message, reveals="gram"):
    """A symmetric matrix, by its upper triangle."""

    upper: Annotated[Floats, Shape("t(t+1)/2")]


class Whitening(Message, reveals="gram"):
    """Makes the embedded rows of all parties together orthonormal."""

    matrix: Annotated[Floats, Shape("t", "t")]


class Mass(Message, reveals="moments"):
    """The sum of a party's scores, and its largest."""

    mass: Annotated[float, NonNegative]
    largest: Annotated[float, NonNegative]


class Draw(Message, reveals=None):
    """How many rows a party is to draw."""

    n_rows: Annotated[int, NonNegative]


class Centroids(RowBlock, reveals="centroids"):
    """Means of at least MIN_CLUSTER rows each."""


class NewLandmarks(RowBlock, reveals="rows"):
    """Landmarks of the other parties; `before` of them come before the receiver's own."""

    before: Annotated[int, Reveals("counts"), NonNegative]


class GramSums(Message, reveals="gram"):
    """Shifted sums of kernel values with the landmarks, `numerics.landmarks.LandmarkSums`."""

    upper: Annotated[Floats, Shape("q(q+1)/2")]
    sums: Annotated[Floats, Shape("q")]
    n_rows: Annotated[int, Reveals("counts")]
    trace: Annotated[float, Reveals("moments")]


class RowHolder(Party):
    """Holds some rows of all columns."""

    Setup = LandmarkSetup
    state = ("scores", "drawn", "fresh", "landmarks")

    def __init__(self, site: SiteView, setup: LandmarkSetup) -> None:
        super().__init__(site, setup)
        self.kernel = kernel_of(setup)
        self.scores = np.ones(site.data.shape[0])
        self.drawn = np.zeros(site.data.shape[0], dtype=bool)
        self.fresh = pack(site.data[:0])  # what was sent last, not yet among the landmarks
        self.landmarks: list[dict[str, Any]] = []

    # 1. Leverage scores.

    @step
    def count_rows(self) -> RowCount:
        """Rows and columns."""
        A = self.site.data
        n_values = A.nnz if is_sparse(A) else A.size
        return RowCount(n_rows=int(A.shape[0]), n_columns=int(A.shape[1]), n_values=int(n_values))

    @step
    def embedded_gram(self) -> UpperGram:
        """EᵀE of the embedded rows."""
        gram: Any = 0.0
        for E in self._embedded():
            gram = gram + E.T @ E
        return UpperGram(upper=upper(gram))

    @step
    def leverage_mass(self, whitening: Whitening) -> Mass:
        """‖E_a R⁻¹‖² of every row a: its share in the rank-t row space of all rows."""
        whitened = (E @ whitening.matrix for E in self._embedded())
        self.scores = np.concatenate([np.einsum("ij,ij->i", W, W) for W in whitened])
        return self._mass()

    def _embedded(self) -> Any:
        A, agreed = self.site.data, self.setup
        embed = embedding(self.kernel, A.shape[1], agreed.embedding_dim, agreed.seed)
        return (embed(A[rows]) for rows in blocks(A.shape[0]))

    def _mass(self) -> Mass:
        open_scores = np.where(self.drawn, 0.0, self.scores)
        return Mass(mass=float(open_scores.sum()), largest=float(open_scores.max()))

    # 2. Landmarks.

    @step
    def draw_rows(self, asked: Draw) -> RowBlock:
        """Distinct rows with probability in proportion to their scores."""
        weights = np.where(self.drawn, 0.0, self.scores)
        n = min(asked.n_rows, int(np.count_nonzero(weights)))
        rng = self.site.generator(self.setup.seed, diskpca.number, int(self.drawn.sum()))
        chances = weights / (weights.sum() or 1.0)
        chosen = np.sort(rng.choice(len(weights), n, replace=False, p=chances if n else None))
        self.drawn = self.drawn | np.isin(np.arange(len(weights)), chosen)
        self.fresh = pack(self.site.data[chosen])
        return RowBlock(**self.fresh)

    @step
    def local_centroids(self, asked: Draw) -> Centroids:
        """Means of clusters of the own rows, none of fewer than MIN_CLUSTER rows."""
        seed = self.site.generator(self.setup.seed, diskpca.number).integers(2**31)
        found = centroids(self.site.data, asked.n_rows, MIN_CLUSTER, int(seed))
        self.fresh = pack(found)
        return Centroids(**self.fresh)

    @step
    def norm_mass(self) -> Mass:
        """Squared norms ‖φ(a)‖², the distances to no landmarks at all."""
        self.scores = np.asarray(self.kernel.diagonal(self.site.data), dtype=np.float64)
        return self._mass()

    @step
    def residual_mass(self, others: NewLandmarks) -> Mass:
        """Squared distance of every row to the span of the landmarks so far."""
        self._add(others)
        self.scores = residuals(self.kernel, self.site.data, self._all_landmarks())
        return self._mass()

    # 3. The rows' sums.

    @step
    def projected_gram(self, others: NewLandmarks) -> GramSums:
        """What the rows add up to, with all landmarks."""
        self._add(others)
        sums = landmark_sums(self.kernel, self.site.data, self._all_landmarks())
        return GramSums(
            upper=upper(sums.gram), sums=sums.sums, n_rows=sums.n_rows, trace=sums.trace
        )

    def _add(self, others: NewLandmarks) -> None:
        """Put the own rows where they belong among the others'."""
        theirs, own = unpack(others), unpack(RowBlock(**self.fresh))
        added = stack([theirs[: others.before], own, theirs[others.before :]])
        self.landmarks = [*self.landmarks, pack(added)]
        self.fresh = pack(own[:0])

    def _all_landmarks(self) -> Rows:
        return stack([unpack(RowBlock(**fields)) for fields in self.landmarks])


@record
@dataclass(frozen=True)
class DisKPCAResult:
    """The model, how skewed the leverage is, and what shipping every row would have cost."""

    model: LandmarkModel
    leverage_skew: float | None  # largest leverage score / mean; None if none were computed
    baseline_floats: int
    stop_reason: str = "the landmarks' sums are complete"


def steps_for(landmarks: str) -> list[Step]:
    """The steps that a choice of landmarks asks for."""
    always = [RowHolder.count_rows, RowHolder.projected_gram]
    drawing = [RowHolder.local_centroids if landmarks == "centroids" else RowHolder.draw_rows]
    leverage = [RowHolder.embedded_gram, RowHolder.leverage_mass]
    further = {
        "diskpca": [*leverage, RowHolder.residual_mass],
        "leverage": leverage,
        "rpcholesky": [RowHolder.norm_mass, RowHolder.residual_mass],
    }
    return [*always, *drawing, *further.get(landmarks, [])]


@protocol("diskpca", roles=(RowHolder,))
def diskpca(
    rows: Federation,
    setup: LandmarkSetup,
    n_components: int,
    n_landmarks: int,
    landmarks: str,
    center: bool,
) -> DisKPCAResult:
    """Algorithm 1. `landmarks` is one of LANDMARKS; more landmarks than rows means every row."""
    if rows.on_loss == "reuse":
        raise InputError(
            "on_loss is 'reuse'; 'raise' or 'survivors' is expected: an old draw in place of a "
            "lost one would leave the parties with different landmarks, whose sums do not add up"
        )
    rows.enlist(RowHolder, setup, steps_for(landmarks))
    sizes = _by_party(rows.ask(RowHolder.count_rows))
    n = sum(size.n_rows for size in sizes.values())
    q = min(n_landmarks, n)
    draw = RowHolder.local_centroids if landmarks == "centroids" else RowHolder.draw_rows
    rng = np.random.default_rng(setup.seed)

    # 1. Leverage scores of the embedded rows; without them, each row counts the same.
    masses, skew = {name: float(size.n_rows) for name, size in sizes.items()}, None
    if q < n and landmarks in ("diskpca", "leverage"):
        leverage = _leverage(rows)
        masses = {name: score.mass for name, score in leverage.items()}
        skew = n * max(score.largest for score in leverage.values()) / sum(masses.values())
    elif q < n and landmarks == "rpcholesky":
        norms = _by_party(rows.ask(RowHolder.norm_mass))
        masses = {name: score.mass for name, score in norms.items()}

    # 2. Landmarks, in one or more shares: after the first, by distance to the span so far.
    Y: list[Rows] = []
    fresh: dict[str, Rows] = {}
    for share in _shares(landmarks, q, n):
        if fresh:
            far = _by_party(rows.ask(RowHolder.residual_mass, each=_new_to_each(fresh)))
            masses = {name: score.mass for name, score in far.items()}
        fresh = _draw(rows, draw, masses, sizes, share, rng)
        Y.extend(fresh.values())

    # 3. The best subspace inside span φ(Y).
    total = rows.total(RowHolder.projected_gram, each=_new_to_each(fresh)).sum
    sums = LandmarkSums(full(total.upper), total.sums, total.n_rows, total.trace)
    model = LandmarkModel.fit(kernel_of(setup), stack(Y), sums, n_components, center)
    return DisKPCAResult(model, skew, sum(size.n_values for size in sizes.values()))


def forecast(
    names: Sequence[str],
    shapes: Sequence[tuple[int, int]],
    setup: LandmarkSetup,
    n_landmarks: int,
    landmarks: str,
) -> Ledger:
    """The ledger of a run over dense rows.

    Whose rows become landmarks is drawn; here they fall to the parties by their sizes.
    """
    n, d = sum(rows for rows, _ in shapes), shapes[0][1]
    q, t = min(n_landmarks, n), _embedded_width(setup, d)
    own = {name: q * rows // n for name, (rows, _) in zip(names, shapes, strict=True)}
    own[names[0]] += q - sum(own.values())
    asked = {step.name for step in steps_for(landmarks)} if q < n else set()
    shares = len(_shares(landmarks, q, n))
    ledger = Ledger(rounds=1 + 2 * shares)  # count; draw and look, or draw and sum
    for name in names:
        up = forecast_entry(RowHolder.count_rows, name, 0)
        ledger.entries.append(up)
        if "embedded_gram" in asked:
            ledger.entries += _leverage_entries(name, t)
        ledger.entries += _landmark_entries(name, own[name], q, d, landmarks, shares > 1)
    ledger.rounds += 2 * ("embedded_gram" in asked) + ("norm_mass" in asked)
    return ledger


def _embedded_width(setup: LandmarkSetup, d: int) -> int:
    widths = {"linear": min(d, setup.embedding_dim), "rbf": 2 * ((setup.embedding_dim + 1) // 2)}
    return widths.get(setup.kernel, setup.embedding_dim)


def _leverage_entries(name: str, t: int) -> list[Entry]:
    return [
        forecast_entry(RowHolder.embedded_gram, name, t * (t + 1) // 2),
        forecast_message(RowHolder.leverage_mass, name, t * t),
        forecast_entry(RowHolder.leverage_mass, name, 0),
    ]


def _landmark_entries(
    name: str, own: int, q: int, d: int, landmarks: str, in_shares: bool
) -> list[Entry]:
    draw = RowHolder.local_centroids if landmarks == "centroids" else RowHolder.draw_rows
    looks = [forecast_entry(RowHolder.residual_mass, name, 0)] if in_shares else []
    norms = [forecast_entry(RowHolder.norm_mass, name, 0)] if landmarks == "rpcholesky" else []
    return [
        *norms,
        forecast_entry(draw, name, own * d),
        *looks,
        forecast_message(RowHolder.projected_gram, name, (q - own) * d),
        forecast_entry(RowHolder.projected_gram, name, q * (q + 1) // 2 + q),
    ]


def _shares(landmarks: str, q: int, n: int) -> list[int]:
    """How many landmarks are drawn before the distances to their span are measured again."""
    if q == n:
        return [q]
    parts = {"diskpca": 2, "rpcholesky": min(RPCHOLESKY_BLOCKS, q)}.get(landmarks, 1)
    return [q * (i + 1) // parts - q * i // parts for i in range(parts)]


def _by_party(replies: Replies) -> dict[str, Any]:
    """Parties may be lost on the way, so everything goes by their names."""
    return dict(zip(replies.parties, replies, strict=True))


def _leverage(rows: Federation) -> dict[str, Any]:
    """Algorithm 2, disLS, with the exact Gram matrix in place of a sketched QR."""
    gram = full(rows.total(RowHolder.embedded_gram).sum.upper)
    whitening = Whitening(matrix=_square(pseudo_inverse_root(gram)))
    return _by_party(rows.ask(RowHolder.leverage_mass, whitening))


def _square(B: Doubles) -> Doubles:
    """Columns of zeros make up for a rank below t, so that the traffic is known beforehand."""
    return np.hstack([B, np.zeros((len(B), len(B) - B.shape[1]))])


def _draw(
    rows: Federation,
    draw: Step,
    masses: Mapping[str, float],
    sizes: Mapping[str, RowCount],
    count: int,
    rng: np.random.Generator,
) -> dict[str, Rows]:
    """Rows from the parties in proportion to their masses, at most as many as each has."""
    most = [sizes[name].n_rows for name in masses]
    counts = allocate(list(masses.values()), most, count, rng)
    asked = {name: Draw(n_rows=k) for name, k in zip(masses, counts, strict=True)}
    return {name: unpack(r) for name, r in _by_party(rows.ask(draw, each=asked)).items()}


def allocate(
    masses: Sequence[float], most: Sequence[int], count: int, rng: np.random.Generator
) -> list[int]:
    """How many of `count` draws fall to each party; none gets more than its `most`.

    >>> allocate([1.0, 0.0, 3.0], [5, 5, 2], 4, np.random.default_rng(0))
    [2, 0, 2]
    """
    left = np.array(most)
    given = np.zeros(len(left), dtype=int)
    weights = np.asarray(masses, dtype=float)
    while count and (weights * left).any():
        chances = np.where(left > 0, weights, 0.0)
        share = np.minimum(rng.multinomial(count, chances / chances.sum()), left)
        given, left, count = given + share, left - share, count - int(share.sum())
    return given.tolist()


def _new_to_each(fresh: Mapping[str, Rows]) -> dict[str, NewLandmarks]:
    """To each party what the others drew; it holds its own."""
    messages, before = {}, 0
    for name, own in fresh.items():
        others = [part for other, part in fresh.items() if other != name]
        block = stack(others) if others else own[:0]
        messages[name] = NewLandmarks(**pack(block), before=before)
        before += own.shape[0]
    return messages


def kernel_of(setup: LandmarkSetup) -> Kernel:
    """The kernel that the parties agreed on."""
    return Kernel(setup.kernel, setup.gamma, setup.degree, setup.coef0)


def upper(matrix: Doubles) -> Doubles:
    """The upper triangle of a symmetric matrix, row by row."""
    return np.asarray(matrix[np.triu_indices(len(matrix))])


def full(triangle: Doubles) -> Doubles:
    """The symmetric matrix of an upper triangle.

    >>> full(np.array([1.0, 2.0, 3.0]))
    array([[1., 2.],
           [2., 3.]])
    """
    size = int((np.sqrt(8 * len(triangle) + 1) - 1) / 2)
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = triangle
    return matrix + np.triu(matrix, 1).T
