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

from eigenmesh.errors import RankError
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
from eigenmesh.protocols.consensus import Mixture, largest, mixing, root_of
from eigenmesh.protocols.passing_on import PassingParty, PassingSetup, settled_average
from eigenmesh.protocols.vfed_pca import VFedResult, VFedSetup, model_of, prepared_block


class PeerSetup(PassingSetup, reveals=None):
    """What the nodes agree on; the first node's directions count."""

    n_components: Annotated[int, Positive]
    center: bool
    standardize: bool
    fill_missing: float | None
    model: str
    seed: int
    n_nodes: Annotated[int, Positive]


class PeerStart(Message, reveals="counts"):
    """What a node holds."""

    n_samples: Annotated[int, SameEverywhere]
    n_columns: int
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    total: Annotated[float, Reveals("moments"), NonNegative]


class GramMixture(Mixture, reveals="gram"):
    """A running average of products."""


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


class PeerHolder(PassingParty):
    """Holds some columns of all samples; ends with the joint scores and its loadings."""

    Setup = PeerSetup
    state = (*PassingParty.state, "Q", "AQ", "vectors", "values", "progress")

    def __init__(self, site: SiteView, setup: PeerSetup) -> None:
        super().__init__(site, setup)
        self.columns = prepared_block(site, setup)
        n, k = self.columns.shape[0], setup.n_components
        self.Q, self.AQ = np.zeros((n, 0)), np.zeros((n, 0))
        rng = np.random.default_rng(np.random.SeedSequence(setup.seed, spawn_key=(1,)))
        self.vectors = np.linalg.qr(rng.standard_normal((n, min(k, n))))[0]
        self.values = np.zeros(min(k, n))
        self.progress = {"residual": 1.0, "next_value": 0.0, "trace": 0.0}

    @step(reusable=False)
    def introduce(self) -> PeerStart:
        """Who is there, with what."""
        n, m = self.columns.shape
        ids, total = self.site.sample_ids_hash, self.columns.total
        return PeerStart(n_samples=n, n_columns=m, sample_ids=ids, total=total)

    @step(reusable=False)
    def propose(self) -> None:
        """The first node's next directions, to be passed on; zeros where there are no more."""
        block = self._next()
        padded = np.zeros_like(self.vectors)
        padded[:, : block.shape[1]] = block
        self.pass_on(padded)

    @step(reusable=False)
    def multiply(self) -> None:
        """Begin the average of X_i X_iᵀ Q and of the traces."""
        block = self._block()
        product = self.columns.times(self.columns.transposed_times(block))
        self.start_mixing(np.append(product.ravel(), self.columns.total))

    @step(reusable=False)
    def look(self) -> Progress:
        """The sum is there: the best vectors so far, and how good they are."""
        block, p = self._block(), self.setup.n_nodes
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
        """The first node's vectors, to be passed on."""
        self.pass_on(fix_signs(self.vectors))

    @step(reusable=False)
    def keep_loadings(self) -> NodeScores:
        """Loadings from the common scores stay in the site's store."""
        scores = self._block() * np.sqrt(self.values)
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

    def _block(self) -> Doubles:
        return np.asarray(self.passed.reshape(self.vectors.shape))


@protocol("vfed-peers", roles=(PeerHolder,))
def vfed_peers(nodes: Federation, setup: VFedSetup, n_rounds: int, tolerance: float) -> VFedResult:
    """Every node's side, in at most `n_rounds` products; anew without a node that leaves."""
    while True:
        covered = nodes.parties
        nodes.enlist(PeerHolder, _agreed(nodes, setup))
        starts = nodes.ask(PeerHolder.introduce)
        found = _search(nodes, covered, setup.n_components, n_rounds, tolerance)
        if found is None:
            continue
        nodes.ask(PeerHolder.propose_scores)
        largest(nodes, PeerHolder)
        if nodes.parties != covered:  # the first node may have left with what it was passing on
            continue
        ends = nodes.ask(PeerHolder.keep_loadings)
        if nodes.parties == covered:
            return _result(starts, ends, setup, tolerance, *found)


def _search(
    nodes: Federation, covered: tuple[str, ...], k: int, n_rounds: int, tolerance: float
) -> tuple[list[float], str] | None:
    """The bounds of the residuals, and why it stopped; None if a node has left."""
    trace, why = list[float](), "as many were asked for"
    for _ in range(n_rounds):
        found = _product(nodes, covered)
        if found is None:
            return None
        replies = found
        trace.append(max(reply.residual for reply in replies))
        if trace[-1] <= tolerance:
            why = "that is small enough"
            break
        if not all(reply.width for reply in replies):
            why = "no direction is left"
            break
    _require_rank(replies, k)
    size = f"residuals are at most {trace[-1]:.1e} of the largest eigenvalue"
    return trace, f"{size}, after {len(trace)} products: {why}"


def _product(nodes: Federation, covered: tuple[str, ...]) -> Replies | None:
    """A Q at every node, and how far that gets them; None if a node has left, perhaps the first."""
    nodes.ask(PeerHolder.propose)
    largest(nodes, PeerHolder)
    if nodes.parties != covered:
        return None
    nodes.ask(PeerHolder.multiply)
    settled_average(nodes, PeerHolder)
    if nodes.parties != covered:
        return None
    replies = nodes.ask(PeerHolder.look)
    return replies if nodes.parties == covered else None


def _require_rank(replies: Replies, k: int) -> None:
    rank = min(reply.rank for reply in replies)
    if rank < k:
        raise RankError(
            f"{k} components were asked for, the columns determine {rank}; lower n_components, or "
            f"check that the samples differ"
        )


def _agreed(nodes: Federation, setup: VFedSetup) -> PeerSetup:
    agreed = {**mixing(nodes), **vars(setup)}
    return PeerSetup(**agreed, first=root_of(nodes), n_nodes=len(nodes.parties))


def _result(
    starts: Replies,
    ends: Replies,
    setup: VFedSetup,
    tolerance: float,
    trace: list[float],
    reason: str,
) -> VFedResult:
    first: Any = ends[0]
    values = np.einsum("ij,ij->j", first.scores, first.scores)
    pairs = JointPairs(values, first.scores / np.sqrt(values), first.next_value, first.residual)
    model = model_of(starts, pairs, setup)
    vectors = np.array([end.scores / np.linalg.norm(end.scores, axis=0) for end in ends])
    return VFedResult(model, tuple(trace), trace[-1] <= tolerance, reason, vectors)
