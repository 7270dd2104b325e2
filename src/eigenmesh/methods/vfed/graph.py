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

Above the usual length: every product is a mix with steps of its own, and the node keeps by itself
what with a coordinator stands on two sides.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import networkx as nx
import numpy as np

from eigenmesh.errors import RankError
from eigenmesh.graphs.consensus import (
    enlist_left,
    graph_in,
    mixing_on,
    require_graph,
    root_on,
)
from eigenmesh.graphs.spread_from_first import (
    PassingParty,
    PassingSetup,
    hand_down,
    handing_down,
    settled_average,
    settling,
)
from eigenmesh.methods.vfed.maths import JointOperator, JointPairs, LockedPairs
from eigenmesh.methods.vfed.protocol import VFedSetup, n_components_of
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.column_pieces import share_to_tree
from eigenmesh.numerics.eigen import SPECTRUM_ROUNDING, fix_signs, numerical_rank
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Floats,
    Message,
    NonEmpty,
    NonNegative,
    Positive,
    Reveals,
    Shape,
)
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import Node, Own, Scope, ask, at_most, loop, restarted, rows
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.linear_columns import (
    GramMixture,
    PeerStart,
    VFedResult,
    model_of,
    prepared_block,
)


class PeerSetup(PassingSetup, reveals=None):
    """What the nodes agree on; the first node's directions count."""

    n_components: Annotated[int, Positive]
    n_rounds: Annotated[int, Positive]
    at_most: bool
    share: float | None
    center: bool
    standardize: bool
    fill_missing: float | None
    model: str
    seed: int
    tolerance: Annotated[float, Positive]
    n_nodes: Annotated[int, Positive]


class Progress(Message, reveals="moments"):
    """Bounds of the residuals, directions left to multiply, components above rounding."""

    residual: Annotated[float, NonNegative]  # the largest, as a share of its own eigenvalue
    settled: bool  # whether all are small
    width: Annotated[int, NonNegative]
    rank: Annotated[int, NonNegative]


class PeerVectors(Message, reveals="eigenvectors", covers="joint"):
    """A node's vectors after a product, for whoever keeps a history."""

    vectors: Annotated[Floats, Shape("n", "k"), NonEmpty]


class PeerScores(Message, reveals="scores", covers="joint"):
    """A node's answer."""

    scores: Annotated[Floats, Shape("n", "k"), NonEmpty]
    residuals: Annotated[Floats, Shape("k"), Reveals("moments"), NonNegative]
    shortfalls: Annotated[Floats, Shape("k"), Reveals("moments"), NonNegative]
    next_value: Annotated[float, NonNegative]


class PeerHolder(PassingParty):
    """Holds some columns of all samples; ends with the joint scores and its loadings."""

    Setup = PeerSetup
    state = (*PassingParty.state, "Q", "AQ", "locked", "pairs", "trace", "block")

    def __init__(self, site: SiteView, setup: PeerSetup) -> None:
        super().__init__(site, setup)
        self.columns = prepared_block(site, setup)
        n = self.columns.shape[0]
        k = min(setup.n_components, n)
        rng = np.random.default_rng(np.random.SeedSequence(setup.seed, spawn_key=(1,)))
        start = np.linalg.qr(rng.standard_normal((n, k)))[0]
        self.Q, self.AQ = np.zeros((n, 0)), np.zeros((n, 0))
        self.locked = vars(LockedPairs.none(n))
        self.pairs = vars(JointPairs(np.zeros(k), start, 0.0, np.ones(k), np.zeros(k), start))
        self.trace, self.block = 0.0, start

    @step(reusable=False)
    def introduce(self) -> PeerStart:
        """Who is there, with what."""
        n, m = self.columns.shape
        ids, total = self.site.sample_ids_hash, self.columns.total
        return PeerStart(n_samples=n, n_columns=m, sample_ids=ids, total=total)

    @step(reusable=False)
    def propose(self) -> None:
        """The first node's next directions, to be passed on; zeros where there are no more.

        Before them come the vectors that are to be locked, and after all the number of these.
        """
        operator, pairs = self._operator, JointPairs(**self.pairs)
        more, m = operator.lockable(pairs, self.setup.tolerance), len(operator.locked.values)
        if more:
            operator = operator.relieved(more, pairs)
        block = operator.next_block(pairs, self.setup.seed)
        self.pass_on(np.append(self._padded(pairs.vectors[:, m : m + more], block), more))

    @step(reusable=False)
    def multiply(self) -> None:
        """Begin the average of X_i X_iᵀ Q and of the traces."""
        self._take_block()
        product = self.columns.times(self.columns.transposed_times(self.block))
        self.start_mixing(np.append(self._padded(product), self.columns.total))

    @step(reusable=False)
    def look(self) -> Progress:
        """The sum is there: the best vectors so far, and how good they are."""
        (n, k), width = self.pairs["vectors"].shape, self.block.shape[1]
        total = self.setup.n_nodes * self.mixture
        self.trace = float(total[-1])
        basis = self._operator.grown(self.block, [total[:-1].reshape(n, k)[:, :width]])
        pairs = basis.top(k)
        self.Q, self.AQ, self.pairs = basis.Q, basis.AQ, vars(pairs)
        tolerance = self.setup.tolerance
        settled = not (len(pairs.unsettled(tolerance)) or basis.lockable(pairs, tolerance))
        return Progress(
            residual=pairs.residual,
            settled=settled,
            width=basis.next_block(pairs, self.setup.seed).shape[1],
            rank=numerical_rank(pairs.values, rounding=SPECTRUM_ROUNDING),
        )

    @step(reusable=False)
    def tell_vectors(self) -> PeerVectors:
        """The best vectors so far."""
        return PeerVectors(vectors=self.pairs["vectors"])

    @step(reusable=False)
    def propose_scores(self) -> None:
        """The first node's vectors, to be passed on; zeros in the place of those not wanted."""
        k = n_components_of(self.setup, self.pairs["values"], self.trace)
        vectors = fix_signs(self.pairs["vectors"])
        vectors[:, k:] = 0.0
        self.pass_on(vectors)

    @step(reusable=False)
    def keep_loadings(self) -> PeerScores:
        """Loadings from the common scores stay in the site's store."""
        pairs = JointPairs(**self.pairs)
        vectors = self.passed.reshape(pairs.vectors.shape)
        k = int(np.count_nonzero(np.abs(vectors).max(axis=0)))
        scores = vectors[:, :k] * np.sqrt(pairs.values[:k])
        self.site.keep(self.setup.model, share_to_tree(self.columns.share_of(scores)), for_any=True)
        after = np.append(pairs.values, pairs.next_value)[k]
        return PeerScores(
            scores=np.asarray(scores),
            residuals=pairs.residuals[:k],
            shortfalls=pairs.shortfalls[:k],
            next_value=float(after),
        )

    # Messages of their own kind.

    @step(cumulative=True)
    def offer_mixture(self) -> GramMixture:
        """The running average of products, to every neighbour."""
        return GramMixture(**self.mixture_fields())

    @step
    def take_mixture(self, received: dict[int, GramMixture]) -> None:
        """One mix."""
        self.mix(received)

    # What they do.

    @property
    def _operator(self) -> JointOperator:
        return JointOperator((), (), self.trace, self.Q, self.AQ, LockedPairs(**self.locked))

    def _padded(self, *parts: Doubles) -> Doubles:
        """As many columns as there are components, zeros the last: the traffic is always equal."""
        n, k = self.pairs["vectors"].shape
        return np.hstack([*parts, np.zeros((n, k))])[:, :k]

    def _take_block(self) -> None:
        """The directions that were passed on; what comes before them is locked from now on."""
        columns = self.passed[:-1].reshape(self.pairs["vectors"].shape)
        more, m = int(self.passed[-1]), len(self.locked["values"])
        if more:
            # Every node locks the very same vectors.
            self.pairs["vectors"][:, m : m + more] = columns[:, :more]
            operator = self._operator.relieved(more, JointPairs(**self.pairs))
            self.Q, self.AQ, self.locked = operator.Q, operator.AQ, vars(operator.locked)
        block = columns[:, more:]
        self.block = block[:, : int(np.count_nonzero(np.abs(block).max(axis=0, initial=0.0)))]


def schedule(scope: Scope, setup: VFedSetup, tolerance: float, keep_history: bool = False) -> Node:
    """Directions from the first node and an average of products, a round; in the end the scores."""

    def width(own: Own) -> int:
        return min(setup.n_components, own.rows)

    def block(own: Own) -> int:
        return own.rows * width(own)

    def block_and_one(own: Own) -> int:
        return block(own) + 1

    search = loop(
        setup.n_rounds,
        ask(PeerHolder.propose),
        handing_down(scope, PeerHolder, block_and_one),
        ask(PeerHolder.multiply),
        settling(scope, PeerHolder, block_and_one),
        ask(PeerHolder.look),
        ask(PeerHolder.tell_vectors, n=rows, k=width) if keep_history else None,
        fewest=1,
    )
    return restarted(
        scope,
        enlist_left(scope, PeerHolder, _agreed(graph_in(scope), setup, tolerance)),
        ask(PeerHolder.introduce),
        search,
        ask(PeerHolder.propose_scores),
        handing_down(scope, PeerHolder, block),
        ask(PeerHolder.keep_loadings, n=rows, k=at_most(width) if setup.at_most else width),
    )


@protocol("vfed-peers", roles=(PeerHolder,), schedule=schedule)
def vfed_peers(
    nodes: Federation,
    setup: VFedSetup,
    tolerance: float,
    keep_history: bool = False,
) -> VFedResult:
    """Every node's side, in at most `n_rounds` products; anew without a node that leaves.

    With `keep_history` the nodes tell their vectors after every product.
    """
    while True:
        covered = nodes.parties
        nodes.enlist(PeerHolder, _agreed(require_graph(nodes), setup, tolerance))
        starts = nodes.ask(PeerHolder.introduce)
        k = 0 if setup.at_most else setup.n_components
        end = _search(nodes, covered, k, setup.n_rounds, keep_history)
        if end is None:
            continue
        nodes.ask(PeerHolder.propose_scores)
        hand_down(nodes, PeerHolder)
        if nodes.parties != covered:  # the first node may have left with what it was passing on
            continue
        scores = nodes.ask(PeerHolder.keep_loadings)
        if nodes.parties == covered:
            return _result(starts, scores, setup, end)


class SearchEnd(NamedTuple):
    """The bounds of the residuals after each product, whether all are small, and why it ended.

    The history has every node's vectors after each, (nodes, n, k), if it was asked for.
    """

    trace: list[float]
    settled: bool
    reason: str
    history: tuple[Doubles, ...] = ()


def _search(
    nodes: Federation, covered: tuple[str, ...], k: int, n_rounds: int, keep_history: bool
) -> SearchEnd | None:
    """Products until the residuals are small; None if a node has left."""
    trace, history, why = list[float](), list[Doubles](), "as many were asked for"
    for _ in range(n_rounds):
        replies = _product(nodes, covered)
        if replies is None:
            return None
        trace.append(max(reply.residual for reply in replies))
        if keep_history:
            vectors = nodes.ask(PeerHolder.tell_vectors)
            if nodes.parties != covered:
                return None
            history.append(np.array([own.vectors for own in vectors]))
        if all(reply.settled for reply in replies):
            why = "that is small enough"
            break
        if not all(reply.width for reply in replies):
            why = "no direction is left"
            break
    assert replies is not None, "there is at least one product"
    _require_rank(replies, k)
    size = f"residuals are at most {trace[-1]:.1e} of their eigenvalues"
    settled = all(reply.settled for reply in replies)
    reason = f"{size}, after {len(trace)} products: {why}"
    return SearchEnd(trace, settled, reason, tuple(history))


def _product(nodes: Federation, covered: tuple[str, ...]) -> Replies | None:
    """A Q at every node, and how far that gets them; None if a node has left, perhaps the first."""
    nodes.ask(PeerHolder.propose)
    hand_down(nodes, PeerHolder)
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


def _agreed(graph: nx.Graph, setup: VFedSetup, tolerance: float) -> PeerSetup:
    agreed = {**mixing_on(graph), **vars(setup), "tolerance": tolerance}
    return PeerSetup(**agreed, first=root_on(graph), n_nodes=len(graph))


def _result(starts: Replies, scores: Replies, setup: VFedSetup, end: SearchEnd) -> VFedResult:
    first: Any = scores[0]
    values = np.einsum("ij,ij->j", first.scores, first.scores)
    k, U = len(values), first.scores / np.sqrt(values)
    model = model_of(starts, np.append(values, first.next_value), U, k, setup.model)
    vectors = np.array([own.scores / np.linalg.norm(own.scores, axis=0) for own in scores])
    bounds = (first.residuals, first.shortfalls)
    facts = (*bounds, end.settled, end.reason, vectors, end.history)
    return VFedResult(model, tuple(end.trace), *facts)
