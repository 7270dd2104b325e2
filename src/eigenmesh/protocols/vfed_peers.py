"""PCA over column partitions without a coordinator: `vfed_pca` on average consensus.

Every node does what the coordinator of `vfed_pca` does, from A Q = Σ_i X_i X_iᵀ Q, which is an
average over the nodes times their number. (Cheung et al. let neighbours merge once a round, which
never agrees; see `vfed_paper`.)

=============  ==============================================================================
node keeps     its columns X_i (n, m_i); its share: mean and loadings
node reveals   to its neighbours: running averages of X_i X_iᵀ Q (gram), in the first mix its
               own; the common directions Q and scores; how many samples and columns, a digest
               of the sample ids; to whoever runs the schedule how far it is, and its scores
=============  ==============================================================================

Averages agree to about 1e-12 of their size, but the next directions are what is left after nearly
all of them has been subtracted, and are brought to unit length: there the nodes would part. So the
first node's directions are passed on, whole, before each product; all nodes multiply the same.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import MessageRefused, RankError
from eigenmesh.federation.federation import Federation
from eigenmesh.federation.message import (
    Floats,
    Message,
    NonEmpty,
    NonNegative,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
)
from eigenmesh.federation.party import step
from eigenmesh.federation.protocol import protocol
from eigenmesh.federation.results import Replies
from eigenmesh.federation.site import SiteView
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.columns import share_to_tree
from eigenmesh.numerics.eigen import fix_signs, numerical_rank
from eigenmesh.numerics.joint_operator import JointOperator, JointPairs
from eigenmesh.protocols.consensus import MixingParty, MixingSetup, average, largest, mixing
from eigenmesh.protocols.vfed_pca import VFedResult, VFedSetup, model_of, prepared_block

# Entries of directions and scores lie above this share of their scale: a node without them yields.
_NOTHING = -2.0


class PeerSetup(MixingSetup, reveals=None):
    """What the nodes agree on; the first node's directions count."""

    n_components: Annotated[int, Positive]
    center: bool
    standardize: bool
    fill_missing: float | None
    model: str
    seed: int
    first: int
    n_nodes: Annotated[int, Positive]


class PeerStart(Message, reveals="counts"):
    """What a node holds."""

    n_samples: Annotated[int, SameEverywhere]
    n_columns: int
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    total: Annotated[float, Reveals("moments"), NonNegative]


class GramMixture(Message, reveals="gram"):
    """A running average of products, as `consensus.Mixture`."""

    value: Annotated[Floats, Shape("n")]
    weight: float
    degree: Annotated[int, Reveals("counts"), NonNegative]
    series: int


class PassedOn(Message, reveals="eigenvectors"):
    """Directions or scores of the first node; or nothing yet."""

    value: Annotated[Floats, Shape("n")]
    number: int  # counts what is passed on: an old message must not mix with a new one


class Progress(Message, reveals="moments"):
    """A bound of the residuals, directions left to multiply, components above rounding."""

    residual: Annotated[float, NonNegative]
    width: Annotated[int, NonNegative]
    rank: Annotated[int, NonNegative]


class NodeScores(Message, reveals="scores"):
    """A node's answer."""

    scores: Annotated[Floats, Shape("n", "k"), NonEmpty]
    residual: Annotated[float, NonNegative]
    next_value: Annotated[float, NonNegative]


class PeerHolder(MixingParty):
    """Holds some columns of all samples; ends with the joint scores and its loadings."""

    Setup = PeerSetup
    state = (*MixingParty.state, "Q", "AQ", "vectors", "values", "progress", "passes")

    def __init__(self, site: SiteView, setup: PeerSetup) -> None:
        super().__init__(site, setup)
        self.columns = prepared_block(site, setup)
        n, k = self.columns.shape[0], setup.n_components
        self.Q, self.AQ = np.zeros((n, 0)), np.zeros((n, 0))
        rng = np.random.default_rng(np.random.SeedSequence(setup.seed, spawn_key=(1,)))
        self.vectors = np.linalg.qr(rng.standard_normal((n, min(k, n))))[0]
        self.values = np.zeros(min(k, n))
        self.progress = {"residual": 1.0, "next_value": 0.0, "trace": 0.0}
        self.passes = 0

    @step(reusable=False)
    def introduce(self) -> PeerStart:
        """Who is there, with what."""
        n, m = self.columns.shape
        ids, total = self.site.sample_ids_hash, self.columns.total
        return PeerStart(n_samples=n, n_columns=m, sample_ids=ids, total=total)

    @step(reusable=False)
    def propose(self) -> None:
        """The first node's next directions, to be passed on; zeros where there are no more."""
        self._pass_on(self._next())

    @step(reusable=False)
    def multiply(self) -> None:
        """Begin the average of X_i X_iᵀ Q and of the traces."""
        block = self._passed()
        product = self.columns.times(self.columns.transposed_times(block))
        self.start_mixing(np.append(product.ravel(), self.columns.total))

    @step(reusable=False)
    def look(self) -> Progress:
        """The sum is there: the best vectors so far, and how good they are."""
        block, p = self._passed(), self.setup.n_nodes
        width = int(np.count_nonzero(np.abs(block).max(axis=0)))
        total = p * self.mixture
        product = total[:-1].reshape(block.shape)[:, :width]
        known = JointOperator((), float(total[-1]), self.Q, self.AQ).grown(
            block[:, :width], [product]
        )
        self.Q, self.AQ = known.Q, known.AQ
        self._adopt(known.top(self.vectors.shape[1]), float(total[-1]))
        return Progress(
            residual=self.progress["residual"],
            width=self._next().shape[1],
            rank=numerical_rank(self.values, len(self.Q)),
        )

    @step(reusable=False)
    def propose_scores(self) -> None:
        """The first node's scores, to be passed on."""
        scores = fix_signs(self.vectors) * np.sqrt(self.values)
        self._pass_on(scores / max(float(np.abs(scores).max()), np.finfo(float).tiny))

    @step(reusable=False)
    def keep_loadings(self) -> NodeScores:
        """Loadings from the common scores stay in the site's store."""
        vectors = self._passed()
        vectors = vectors / np.linalg.norm(vectors, axis=0)
        scores = vectors * np.sqrt(self.values)
        self.site.keep(self.setup.model, share_to_tree(self.columns.share_of(scores)))
        about = {key: float(self.progress[key]) for key in ("residual", "next_value")}
        return NodeScores(scores=np.asarray(scores), **about)

    # Messages of their own kind.

    @step
    def offer_mixture(self) -> GramMixture:
        """The running average of products, to every neighbour."""
        return GramMixture(**self.mixture_fields())

    @step
    def take_mixture(self, received: dict[int, GramMixture]) -> None:
        """One mix."""
        self.mix(received)

    @step
    def offer_peak(self) -> PassedOn:
        """The first node's directions or scores, once they are known here."""
        return PassedOn(value=self.peak, number=self.passes)

    @step
    def take_peaks(self, received: dict[int, PassedOn]) -> None:
        """Whoever has them not yet takes them over."""
        for other in received.values():
            if other.number == self.passes and other.value.shape == self.peak.shape:
                self.peak = np.maximum(self.peak, other.value)

    # What they do.

    def _next(self) -> Doubles:
        operator = JointOperator((), float(self.progress["trace"]), self.Q, self.AQ)
        pairs = JointPairs(self.values, self.vectors, 0.0, 0.0)
        return operator.next_block(pairs, self.setup.seed)

    def _adopt(self, pairs: JointPairs, trace: float) -> None:
        self.vectors, self.values = pairs.vectors, pairs.values
        self.progress = {
            "residual": pairs.residual,
            "next_value": pairs.next_value,
            "trace": trace,
        }

    def _pass_on(self, block: Floats) -> None:
        n, k = self.vectors.shape
        padded = np.zeros((n, k))
        padded[:, : block.shape[1]] = block
        self.passes += 1
        first = self.site.index == self.setup.first
        self.peak = padded.ravel() if first else np.full(n * k, _NOTHING)

    def _passed(self) -> Doubles:
        if self.peak.min() <= _NOTHING:
            raise MessageRefused("the first node's directions have not arrived")
        return np.asarray(self.peak.reshape(self.vectors.shape))


@protocol("vfed-peers", roles=(PeerHolder,))
def vfed_peers(nodes: Federation, setup: VFedSetup, n_rounds: int, tolerance: float) -> VFedResult:
    """Every node's side, in at most `n_rounds` products; anew without a node that leaves."""
    while True:
        covered = nodes.parties
        nodes.enlist(PeerHolder, _agreed(nodes, setup))
        starts = nodes.ask(PeerHolder.introduce)
        trace, reason = _search(nodes, setup.n_components, n_rounds, tolerance)
        nodes.ask(PeerHolder.propose_scores)
        largest(nodes, PeerHolder)
        ends = nodes.ask(PeerHolder.keep_loadings)
        if nodes.parties == covered:
            return _result(starts, ends, setup, trace, tolerance, reason)


def _search(nodes: Federation, k: int, n_rounds: int, tolerance: float) -> tuple[list[float], str]:
    covered, trace = nodes.parties, list[float]()
    for done in range(1, n_rounds + 1):
        nodes.ask(PeerHolder.propose)
        largest(nodes, PeerHolder)
        nodes.ask(PeerHolder.multiply)
        average(nodes, PeerHolder)
        replies = nodes.ask(PeerHolder.look)
        trace.append(max(reply.residual for reply in replies))
        size = f"residuals are at most {trace[-1]:.1e} of the largest eigenvalue"
        if trace[-1] <= tolerance or nodes.parties != covered:
            _require_rank(replies, k)
            return trace, f"{size}, after {done} products"
        if not all(reply.width for reply in replies):
            _require_rank(replies, k)
            return trace, f"no direction is left after {done} products; {size}"
    _require_rank(replies, k)
    return trace, f"{n_rounds} products were asked for; {size}"


def _require_rank(replies: Replies, k: int) -> None:
    rank = min(reply.rank for reply in replies)
    if rank < k:
        raise RankError(
            f"{k} components were asked for, the columns determine {rank}; lower n_components, or "
            f"check that the samples differ"
        )


def _agreed(nodes: Federation, setup: VFedSetup) -> PeerSetup:
    graph = nodes.graph
    first = min(graph) if graph is not None else 0
    return PeerSetup(**mixing(nodes), **vars(setup), first=first, n_nodes=len(nodes.parties))


def _result(
    starts: Replies,
    ends: Replies,
    setup: VFedSetup,
    trace: list[float],
    tolerance: float,
    reason: str,
) -> VFedResult:
    first: Any = ends[0]
    values = np.einsum("ij,ij->j", first.scores, first.scores)
    pairs = JointPairs(values, first.scores / np.sqrt(values), first.next_value, first.residual)
    model = model_of(starts, pairs, setup)
    vectors = np.array([end.scores / np.linalg.norm(end.scores, axis=0) for end in ends])
    return VFedResult(model, tuple(trace), trace[-1] <= tolerance, reason, vectors)
