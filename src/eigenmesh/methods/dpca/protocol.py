"""Decentralised linear PCA over column partitions, by coordinate descent with ADMM inside.

Schizas and Aduroja, "A distributed framework for dimensionality reduction and denoising", IEEE
Transactions on Signal Processing 63, 2015: the baseline that one-shot kernel PCA is compared with.

=============  =============================================================================
node keeps     its columns X_j (n, m_j), its loadings B_j, multipliers
node reveals   to its neighbours: its estimate of the common scores S (n, k), and the bridge
               between its neighbours' (scores); on its way to an average, X_j X_jᵀU of the
               common directions U (gram); how many samples and columns, a digest of the ids;
               where a history is asked for, a basis of S after every fit (scores)
=============  =============================================================================

min Σ_j ‖X_j − S_j B_jᵀ‖² with S_j equal at all nodes. B_j is a least-squares fit at its node. For S
the nodes run consensus ADMM: a bridge Z_l = mean of S_j + V_jl / c over the neighbours j of l,
itself included, then V_jl ← V_jl + c (S_j − Z_l). Multipliers are kept from one fit of the loadings
to the next. The paper's c is a number; here it is a share of the largest ‖B_j‖², so that the answer
does not depend on the units of the data. Afterwards an average of products says how good it is.

Above the usual length: every equation is an exchange, and so two steps of a node.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import RankError
from eigenmesh.graphs.consensus import (
    MixingParty,
    MixingSetup,
    NodeTotal,
    average,
    largest,
    largest_rounds,
    mixing_rounds,
)
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.column_pieces import share_to_tree
from eigenmesh.numerics.tracking import principal_rotation, random_directions
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, NonNegative, Positive, Shape
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import (
    Node,
    Scope,
    ask,
    at_most,
    enlist,
    exchange,
    rows,
    sequence,
    times,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.linear_columns import (
    GramMixture,
    PeerStart,
    VFedResult,
    model_of,
    prepared_block,
)

_LEAST = np.finfo(float).eps  # of the products, that scores have of variance: none has no direction
_TINY = 1e-200  # whose root can be divided by


class DpcaSetup(MixingSetup, reveals=None):
    """What the nodes agree on."""

    n_components: Annotated[int, Positive]
    center: bool
    standardize: bool
    fill_missing: float | None
    model: str
    seed: int
    penalty: Annotated[float, Positive]


class Estimate(Message, reveals="scores"):
    """S_j + V_jl / c for the bridge of the receiver l, or that bridge."""

    value: Annotated[Floats, Shape("n", "k")]


class ScoreBasis(Message, reveals="scores", covers="joint"):
    """An orthonormal basis of a node's estimate of the scores, on the way."""

    basis: Annotated[Floats, Shape("n", "k")]


class NodeScores(Message, reveals="scores", covers="joint"):
    """A node's answer; the residual is the largest as a share of its own eigenvalue."""

    scores: Annotated[Floats, Shape("n", "k")]
    residual: Annotated[float, NonNegative]


class DpcaNode(MixingParty):
    """Holds some columns of all samples."""

    Setup = DpcaSetup
    state = (*MixingParty.state, "S", "B", "V", "estimates", "bridges", "penalty", "U")

    def __init__(self, site: SiteView, setup: DpcaSetup) -> None:
        super().__init__(site, setup)
        self.columns = prepared_block(site, setup)
        n, k = self.columns.shape[0], setup.n_components
        if k > n:
            raise RankError(f"{k} components were asked for, there are {n} samples; lower them")
        self.S = self.U = random_directions(n, k, setup.seed)
        self.B = np.zeros((self.columns.shape[1], k))
        self.V: dict[str, Doubles] = {}
        self.estimates: dict[str, Any] = {}  # the last that each neighbour sent
        self.bridges: dict[str, Any] = {str(site.index): self.S}
        self.penalty = 0.0

    @step(reusable=False)
    def introduce(self) -> PeerStart:
        """Who is there, with what."""
        n, m = self.columns.shape
        ids, total = self.site.sample_ids_hash, self.columns.total
        return PeerStart(n_samples=n, n_columns=m, sample_ids=ids, total=total)

    # One fit of the loadings, then several steps towards common scores.

    @step(reusable=False)
    def fit_loadings(self) -> None:
        """B_j = X_jᵀS (SᵀS)⁺."""
        inverse = np.linalg.pinv(self.S.T @ self.S, hermitian=True)
        self.B = self.columns.transposed_times(self.S) @ inverse
        self.peak = np.array([np.linalg.norm(self.B, 2) ** 2])

    @step(reusable=False)
    def adopt_penalty(self) -> None:
        """A share of the largest curvature."""
        self.penalty = max(self.setup.penalty * float(self.peak[0]), np.finfo(float).tiny)

    def _multiplier(self, node: int) -> Doubles:
        return self.V.get(str(node), np.zeros_like(self.S))

    def _tied(self) -> list[int]:
        return sorted([*self.site.neighbours, self.site.index])

    @step
    def offer_estimates(self) -> dict[int, Estimate]:
        """S-step, then S_j + V_jl / c to each neighbour."""
        c, k = self.penalty, self.setup.n_components
        bridged = [n for n in self._tied() if str(n) in self.bridges]
        right = 2 * self.columns.times(self.B)
        for n in bridged:
            right = right + c * self.bridges[str(n)] - self._multiplier(n)
        left = 2 * self.B.T @ self.B + c * len(bridged) * np.eye(k)
        self.S = np.asarray(np.linalg.solve(left, right.T).T)
        values = {n: self.S + self._multiplier(n) / c for n in self.site.neighbours}
        return {n: Estimate(value=value) for n, value in values.items()}

    @step
    def take_estimates(self, received: dict[int, Estimate]) -> None:
        """The bridge between all neighbours that were ever heard."""
        new = {str(n): np.asarray(message.value) for n, message in received.items()}
        self.estimates = {**self.estimates, **new}
        own = self.S + self._multiplier(self.site.index) / self.penalty
        heard = [self.estimates[str(n)] for n in self.site.neighbours if str(n) in self.estimates]
        self.bridges = {**self.bridges, str(self.site.index): np.mean([own, *heard], axis=0)}

    @step
    def offer_bridge(self) -> Estimate:
        """Z of this node."""
        return Estimate(value=self.bridges[str(self.site.index)])

    @step
    def take_bridges(self, received: dict[int, Estimate]) -> None:
        """Multipliers."""
        new = {str(n): np.asarray(message.value) for n, message in received.items()}
        self.bridges = {**self.bridges, **new}
        bridged = [n for n in self._tied() if str(n) in self.bridges]
        moved = {n: self.penalty * (self.S - self.bridges[str(n)]) for n in bridged}
        self.V = {str(n): self._multiplier(n) + moved[n] for n in bridged}

    # How good it is, and what it is.

    @step(reusable=False)
    def tell_basis(self) -> ScoreBasis:
        """For the history."""
        return ScoreBasis(basis=np.linalg.qr(self.S)[0])

    @step(reusable=False)
    def begin_products(self) -> None:
        """Average X_j X_jᵀU."""
        self.U = np.linalg.qr(self.S)[0]
        product = self.columns.times(self.columns.transposed_times(self.U))
        self.start_mixing(product)

    @step(reusable=False)
    def keep_loadings(self, whole: NodeTotal) -> NodeScores:
        """Scores in the order of their variance; the loadings stay in the site's store."""
        product = self.mixture * whole.n_nodes
        inner = self.U.T @ product
        values, turn = principal_rotation(inner)
        # Of nodes that do not agree yet, the variance along a direction may come out negative.
        values = np.maximum(values, _LEAST * max(float(np.linalg.norm(product)), _TINY))
        vectors = self.U @ turn
        off = np.linalg.norm(product @ turn - vectors * values, axis=0)
        residual = float((off / values).max())
        scores = vectors * np.sqrt(values)
        self.site.keep(self.setup.model, share_to_tree(self.columns.share_of(scores)), for_any=True)
        return NodeScores(scores=scores, residual=residual)

    @step(cumulative=True)
    def offer_mixture(self) -> GramMixture:
        """The running average of products."""
        return GramMixture(**self.mixture_fields())

    @step
    def take_mixture(self, received: dict[int, GramMixture]) -> None:
        """One mix."""
        self.mix(received)


def schedule(
    scope: Scope, setup: DpcaSetup, n_iterations: int, n_inner: int, keep_history: bool = False
) -> Node:
    """As many steps as were asked for, then one average."""
    k = setup.n_components
    steps = times(
        n_inner,
        exchange(DpcaNode.offer_estimates, DpcaNode.take_estimates, n=rows, k=k),
        exchange(DpcaNode.offer_bridge, DpcaNode.take_bridges, n=rows, k=k),
    )
    return sequence(
        enlist(DpcaNode, setup),
        ask(DpcaNode.introduce),
        times(
            n_iterations,
            ask(DpcaNode.fit_loadings),
            largest_rounds(scope, DpcaNode, 1),
            ask(DpcaNode.adopt_penalty),
            steps,
            *([ask(DpcaNode.tell_basis, n=rows, k=k)] if keep_history else []),
        ),
        ask(DpcaNode.begin_products),
        mixing_rounds(scope, DpcaNode, lambda own: own.rows * k),
        ask(DpcaNode.keep_loadings, n=rows, k=k, n_nodes=at_most(len(scope.parties))),
    )


@protocol("dpca", roles=(DpcaNode,), schedule=schedule)
def dpca(
    nodes: Federation,
    setup: DpcaSetup,
    n_iterations: int,
    n_inner: int,
    keep_history: bool = False,
) -> VFedResult:
    """`n_iterations` fits of the loadings, after each `n_inner` ADMM steps of two exchanges."""
    nodes.enlist(DpcaNode, setup)
    starts = nodes.ask(DpcaNode.introduce)
    history: list[Doubles] = []
    for _ in range(n_iterations):
        nodes.ask(DpcaNode.fit_loadings)
        largest(nodes, DpcaNode)
        nodes.ask(DpcaNode.adopt_penalty)
        for _ in range(n_inner):
            nodes.exchange(DpcaNode.offer_estimates, DpcaNode.take_estimates)
            nodes.exchange(DpcaNode.offer_bridge, DpcaNode.take_bridges)
        if keep_history:
            history.append(np.array([reply.basis for reply in nodes.ask(DpcaNode.tell_basis)]))
    nodes.ask(DpcaNode.begin_products)
    average(nodes, DpcaNode)
    ends = nodes.ask(DpcaNode.keep_loadings, NodeTotal(n_nodes=len(nodes.parties)))
    # A node that has left on the way keeps no loadings: the model is of those who end.
    introduced = dict(zip(starts.parties, starts, strict=True))
    those = Replies(tuple(introduced[name] for name in ends.parties), ends.parties)
    return _result(those, ends, setup, n_iterations, tuple(history))


def _result(
    starts: Any, ends: Any, setup: DpcaSetup, n_iterations: int, history: tuple[Doubles, ...]
) -> VFedResult:
    first = ends[0]
    values = np.einsum("ij,ij->j", first.scores, first.scores)
    residual = max(end.residual for end in ends)
    k, U = setup.n_components, first.scores / np.sqrt(values)
    model = model_of(starts, np.append(values, 0.0), U, k, setup.model)
    vectors = np.array([end.scores / np.linalg.norm(end.scores, axis=0) for end in ends])
    reason = f"{n_iterations} fits of the loadings are done"
    residuals = np.full(len(values), residual)
    shortfalls = residuals / (1 + residuals)
    return VFedResult(model, (residual,), residuals, shortfalls, True, reason, vectors, history)
