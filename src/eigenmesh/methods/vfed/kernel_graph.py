"""Kernel PCA over column partitions without a coordinator: `argument_fusion` on average consensus.

Squared distances, L1 distances and inner products of samples add over columns. The nodes average
theirs over the graph (Metropolis weights, Chebyshev acceleration); that times their number is what
the kernel of the pooled columns is a function of, at every node. The first node decomposes, passes
its answer on, and every other node holds it against its own average before it takes it.

=============  ==============================================================================
node keeps     its columns X_i (n, m_i), which are its share of the model
node reveals   to its neighbours: running averages of its samples' distances or products, in the
               first mix its own; the common components; how many samples and columns, a digest
               of the sample ids; to whoever runs the schedule the common components
=============  ==============================================================================

Every pair of samples takes part, n(n−1)/2 numbers in every message of every mix: far more than
shipping the columns, for those who may not. Beyond `most_samples`, samples with landmarks instead.

Above the usual length: all pairs and landmarks are two ways to one answer, with the same messages
and the same end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import networkx as nx
import numpy as np

from eigenmesh.errors import MessageRefused
from eigenmesh.graphs.consensus import (
    Mixture,
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
from eigenmesh.numerics.arrays import Doubles, squared_norms
from eigenmesh.numerics.column_fusion import Wanted
from eigenmesh.numerics.column_pieces import ArgumentShare, share_to_tree
from eigenmesh.numerics.kernel_of_sums import (
    ArgumentFusion,
    LandmarkFusion,
    Piece,
    full_matrix,
    n_pairs,
    packed_size,
    upper_triangle,
)
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.plausible import require_possible_sums
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Floats,
    Message,
    NonEmpty,
    NonNegative,
    OwnColumns,
    OwnRows,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
)
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import Node, Own, Scope, ask, restarted
from eigenmesh.runtime.site import SiteView
from eigenmesh.runtime.statements import in_short
from eigenmesh.stages.column_scores import ColumnModel, landmarks_of, require_samples
from eigenmesh.stages.linear_columns import GramMixture
from eigenmesh.stages.prepare import prepared_columns
from eigenmesh.stages.summed_kernel import (
    ArgumentSetup,
    fusion_notes,
    sampling_words,
)

_AGREES = 1e-8  # residuals by a node's own average, as a share of the variance
# The same of angles: that of a cosine near 1 has the root of its rounding.
_ANGLES_AGREE = 1e-5


class ArgumentPeerSetup(PassingSetup, reveals=None):
    """What the nodes agree on; the first node's components count."""

    kernel: str
    gamma: float | None
    degree: float
    coef0: float
    center: bool
    n_components: Annotated[int, NonNegative]  # 0 for all, or as many as explain the share
    share: float | None
    local_rank: int | None
    n_landmarks: Annotated[int, Positive]
    most_samples: Annotated[int, NonNegative]
    standardize: bool
    fill_missing: float | None
    model: str
    seed: int
    n_nodes: Annotated[int, Positive]


class NodeStart(Message, reveals="counts"):
    """What a node holds."""

    n_samples: Annotated[int, SameEverywhere, OwnRows]
    n_columns: Annotated[int, OwnColumns]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]


class DistanceMixture(Mixture, reveals="distances"):
    """A running average of distances."""


class CommonAnswer(Message, reveals="eigenvectors", covers="joint"):
    """The components, and what it takes to score new samples, as `fusion.packed` lays them out."""

    value: Annotated[Floats, Shape("n"), NonEmpty]


class DistancePeer(PassingParty):
    """Holds some columns of all samples; ends with the components of all columns."""

    Setup: ClassVar[type[Message]] = ArgumentPeerSetup

    def __init__(self, site: SiteView, setup: ArgumentPeerSetup) -> None:
        super().__init__(site, setup)
        require_samples(site, kernel_matrix=setup.kernel == "sigmoid")
        self.kernel = Kernel(setup.kernel, setup.gamma, setup.degree, setup.coef0)
        self.preparation, self.columns = prepared_columns(site, setup)
        self.landmarks = landmarks_of(setup, self.columns.shape[0])

    @step(reusable=False)
    def introduce(self) -> NodeStart:
        """Who is there, with what; the columns that count stay in the site's store."""
        X = self.columns
        Y = X if self.landmarks is None else X[self.landmarks]
        share = ArgumentShare(Y, self.setup.kernel, self.preparation)
        self.site.keep(self.setup.model, share_to_tree(share), for_any=True)
        n, m = X.shape
        ids = self.site.sample_ids_hash
        return NodeStart(n_samples=int(n), n_columns=int(m), sample_ids=ids)

    @step(reusable=False)
    def begin(self) -> None:
        """Begin the average of distances or products: of all pairs, or with the landmarks."""
        X = self.columns
        if self.landmarks is None:
            self.start_mixing(upper_triangle(self.kernel, X))
            return
        summed = self.kernel.summed
        own = np.asarray(summed.arguments(X, X[self.landmarks]), np.float64).ravel()
        norms = np.asarray(squared_norms(X) if summed.of == "inner" else [], np.float64)
        self.start_mixing(np.append(own, norms))

    @step(reusable=False)
    def propose(self) -> None:
        """The first node's components, to be passed on."""
        n, agreed = self.columns.shape[0], self.setup
        q = None if self.landmarks is None else len(self.landmarks)
        k = room(agreed.n_components, n, q)
        if self.is_first:
            self.pass_on(self._solved().packed(k))
            return
        self.pass_on(np.zeros(packed_size(self.kernel, n, k, q, agreed.center)))

    @step(reusable=False)
    def take_answer(self) -> CommonAnswer:
        """The common components, if they are those of this node's own average."""
        n = self.columns.shape[0]
        fusion = unpacked(self.passed, self.setup, n, 1)
        A, norms = self._summed()
        own = A if self.landmarks is not None else full_matrix(self.kernel, A, n)
        if self.kernel.of == "cosine":
            norms = np.diagonal(own) if self.landmarks is None else norms
            own = np.column_stack([own, norms])
        common, sizes = fusion.components, np.abs(fusion.components.eigenvalues)
        # K u − λ u of every component, from scores K u / √λ.
        residuals = np.abs(fusion.scores([own]) - common.scores) * np.sqrt(sizes)
        off = float(residuals.max()) / max(fusion.total, float(sizes[0]))
        most = _ANGLES_AGREE if self.kernel.of == "cosine" else _AGREES
        if off > most:
            raise MessageRefused(
                f"the components that were passed on are not those of this node's average: "
                f"residuals are {off:.1e} of the variance, at most {most:.0e} is expected"
            )
        return CommonAnswer(value=self.passed)

    @step(cumulative=True)
    def offer_mixture(self) -> DistanceMixture:
        """The running average of distances, to every neighbour."""
        return DistanceMixture(**self.mixture_fields())

    @step
    def take_mixture(self, received: dict[int, DistanceMixture]) -> None:
        """One mix."""
        self.mix(received)

    # What they do.

    def _summed(self) -> tuple[Doubles, Doubles]:
        """Arguments over all nodes' columns, and squared norms; of distances these are not used."""
        total, n = self.setup.n_nodes * self.mixture, self.columns.shape[0]
        if self.landmarks is None:
            return total, np.zeros(n)
        q = len(self.landmarks)
        norms = total[n * q :] if self.kernel.summed.of == "inner" else np.zeros(n)
        return total[: n * q].reshape(n, q), norms

    def _solved(self) -> ArgumentFusion | LandmarkFusion:
        (A, norms), kernel, agreed = self._summed(), self.kernel, self.setup
        pieces, n = [Piece(arguments=A)], self.columns.shape[0]
        count = agreed.n_components or agreed.share
        if self.landmarks is None:
            return ArgumentFusion.fit(pieces, n, kernel, count, agreed.center)
        return LandmarkFusion.fit(pieces, self.landmarks, norms, kernel, count, agreed.center)


class ProductPeer(DistancePeer):
    """The same, of kernels that are functions of inner products."""

    @step(cumulative=True)
    def offer_mixture(self) -> GramMixture:
        """The running average of products, to every neighbour."""
        return GramMixture(**self.mixture_fields())

    @step
    def take_mixture(self, received: dict[int, GramMixture]) -> None:
        """One mix."""
        self.mix(received)


def peer_role(kernel: str) -> type[DistancePeer]:
    """Who takes part; for `fed.require`."""
    inner = Kernel(kernel, 1.0, degree=1).summed.of == "inner"
    return ProductPeer if inner else DistancePeer


def unpacked(flat: Doubles, setup: Any, n: int, p: int) -> ArgumentFusion | LandmarkFusion:
    """The model that was passed on, for p parties that send arguments of new samples."""
    kernel = Kernel(setup.kernel, setup.gamma, setup.degree, setup.coef0)
    places = landmarks_of(setup, n)
    ranks, q = (0,) * p, None if places is None else len(places)
    k = room(setup.n_components, n, q)
    if places is None:
        return ArgumentFusion.unpacked(flat, kernel, n, k, ranks, setup.center)
    return LandmarkFusion.unpacked(flat, kernel, n, k, ranks, len(places))


def room(n_components: int, n: int, n_landmarks: int | None) -> int:
    """Components that a common answer has room for: those asked for, or all that there can be."""
    return n_components or (n if n_landmarks is None else n_landmarks)


@record
@dataclass(frozen=True)
class PeerFusion:
    """The common model, and every node's eigenvectors, (nodes, n, k)."""

    model: ColumnModel
    node_vectors: Doubles


def schedule(
    scope: Scope, setup: ArgumentSetup, kernel: Kernel, n_components: Wanted, center: bool
) -> Node:
    """One average of all arguments, and the first node's answer to everybody."""
    role = peer_role(kernel.name)
    agreed = _agreed(graph_in(scope), setup, kernel, n_components, center)

    def n_landmarks(own: Own) -> int | None:
        places = landmarks_of(setup, own.rows)
        return None if places is None else len(places)

    def arguments(own: Own) -> int:
        q = n_landmarks(own)
        if q is None:
            return n_pairs(kernel, own.rows)
        return own.rows * (q + (kernel.summed.of == "inner"))

    def answer(own: Own) -> int:
        q = n_landmarks(own)
        k = room(agreed.n_components, own.rows, q)
        return packed_size(kernel, own.rows, k, q, center)

    return restarted(
        scope,
        enlist_left(scope, role, agreed),
        ask(role.introduce),
        ask(role.begin),
        settling(scope, role, arguments),
        ask(role.propose),
        handing_down(scope, role, answer),
        ask(role.take_answer, n=answer),
    )


@protocol("argument-peers", roles=(DistancePeer, ProductPeer), schedule=schedule)
def argument_peers(
    nodes: Federation, setup: ArgumentSetup, kernel: Kernel, n_components: Wanted, center: bool
) -> PeerFusion:
    """Every node's side; anew without a node that leaves."""
    role = peer_role(kernel.name)
    while True:
        covered = nodes.parties
        agreed = _agreed(require_graph(nodes), setup, kernel, n_components, center)
        nodes.enlist(role, agreed)
        starts = nodes.ask(role.introduce)
        nodes.ask(role.begin)
        settled_average(nodes, role)
        if nodes.parties != covered:  # their average has some of what the lost node gave
            continue
        nodes.ask(role.propose)
        hand_down(nodes, role)
        if nodes.parties != covered:
            continue
        ends = nodes.ask(role.take_answer)
        if nodes.parties == covered:
            return _result(starts, ends, agreed)


def _agreed(
    graph: nx.Graph, setup: ArgumentSetup, kernel: Kernel, n_components: Wanted, center: bool
) -> ArgumentPeerSetup:
    of_coordinators = {"compares_units", "spread"}
    shared = {name: own for name, own in vars(setup).items() if name not in of_coordinators}
    return ArgumentPeerSetup(
        **mixing_on(graph),
        **shared,
        gamma=kernel.gamma,
        degree=float(kernel.degree),
        coef0=float(kernel.coef0),
        center=center,
        n_components=n_components if isinstance(n_components, int) else 0,
        share=n_components if isinstance(n_components, float) else None,
        first=root_on(graph),
        n_nodes=len(graph),
    )


def _require_one_size(ends: Replies) -> None:
    """All nodes have been handed down the same numbers."""
    sizes = [end.value.size for end in ends]
    common, holders = Counter(sizes).most_common(1)[0]
    apart = [n for n, size in zip(ends.parties, sizes, strict=True) if size != common]
    if apart:
        is_one = len(apart) == 1 and holders > 1
        raise MessageRefused(
            f"the answers of {in_short(apart)} have another size than those of the others, where "
            f"all were handed down the same {common} numbers",
            party=apart[0] if is_one else None,
        )


def _result(starts: Replies, ends: Replies, agreed: ArgumentPeerSetup) -> PeerFusion:
    n, p = starts[0].n_samples, len(ends)
    _require_one_size(ends)
    fusions = [unpacked(end.value, agreed, n, p) for end in ends]
    if len({len(own.components.eigenvalues) for own in fusions}) > 1:
        raise MessageRefused(
            f"the answers of {in_short(ends.parties)} differ in how many components they have, "
            f"where all have the same sums; nobody can say whose is wrong"
        )
    if agreed.kernel != "sigmoid":  # which has negative eigenvalues of its own
        require_possible_sums(float(fusions[0].components.eigenvalues.sum()), fusions[0].total)
    places = landmarks_of(agreed, n)
    model = ColumnModel(
        fusions[0],
        name=agreed.model,
        parties=ends.parties,
        widths=tuple(start.n_columns for start in starts),
        sent=((n if places is None else len(places)) + (fusions[0].norms is not None),) * p,
        n_samples=n,
        notes=fusion_notes(fusions[0]),
        sampled=sampling_words(fusions[0], n),
        stop_reason="the nodes' averages are equal to rounding",
    )
    return PeerFusion(model, np.array([own.components.eigenvectors for own in fusions]))
