"""Kernel PCA on a graph, without a centre and without rows: shared features, averaged by gossip.

Features that every node computes alike: random ones from a common seed (Yu et al., "Orthogonal
random features", 2016), or kernel values with shared centroids. Then Ye and Zhang, "DeEPCA:
Decentralized Exact PCA with Linear Convergence Rate", JMLR 22, 2021: subspace iteration with
gradient tracking and accelerated gossip.

=============  ===========================================================================
node keeps     its rows
node reveals   to its neighbours, on their way to averages: sums of its features, and its
               second moments along the common directions (moments); with centroids, to all:
               means of at least MIN_CLUSTER of its rows each (centroids)
=============  ===========================================================================

Letters: E (n, D) a node's features, seen from the mean of all; A = EᵀE; W (D, s) the directions,
s = n_components + 1, so that the first eigenvalue left out is known; S the tracked average of AW.

Every round S ← mix(S + A(W − W_before)), W ← QR(S). Since mixing keeps the sum, the mean of all S
is the mean of all AW at every moment, and a few mixes a round suffice. At the end the directions
are averaged to rounding and rotated by the variances of all rows: all nodes have one model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import InputError, RankError
from eigenmesh.federation.federation import Federation
from eigenmesh.federation.message import Floats, Message, NonNegative, Positive, Shape
from eigenmesh.federation.party import Step, step
from eigenmesh.federation.protocol import protocol
from eigenmesh.federation.records import record
from eigenmesh.federation.site import SiteView
from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, blocks
from eigenmesh.numerics.eigen import fix_signs, pseudo_inverse_root, require_rank
from eigenmesh.numerics.embeddings import embedding
from eigenmesh.numerics.feature_model import FeatureModel
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.tracking import (
    leading_directions,
    orthonormal_like,
    principal_rotation,
    random_directions,
)
from eigenmesh.protocols.consensus import MixingSetup, average, largest, mixes_for
from eigenmesh.protocols.graph_models import KEPT, require_few
from eigenmesh.protocols.row_messages import RowCount, count
from eigenmesh.protocols.shared_centroids import MIN_CLUSTER, CentroidNode, spread

for kind in (LandmarkModel, FeatureModel, Kernel):
    record(kind)

FEATURES = ("centroids", "random")
MIXED = 0.25  # of the differences between nodes, left after the mixes of a round


class GossipSetup(MixingSetup, reveals=None):
    """Kernel, features and seed, the same for all."""

    kernel: str
    gamma: float | None
    degree: float
    coef0: float
    features: str  # one of FEATURES, or "rows" for a node that is alone
    n_features: Annotated[int, Positive]
    n_centroids: Annotated[int, NonNegative]  # of each node
    n_components: Annotated[int, Positive]
    center: bool
    seed: int


class Moved(Message, reveals="moments"):
    """How far the directions of any node moved in the last round: the sine of the angle."""

    change: Annotated[float, NonNegative]


class NodeTotal(Message, reveals=None):
    """How many nodes there are."""

    n_nodes: Annotated[int, Positive]


class GossipOutcome(Message, reveals="moments"):
    """What all nodes know of the whole."""

    eigenvalues: Annotated[Floats, Shape("k")]
    next_eigenvalue: float
    total: float
    n_rows: int
    n_dimensions: int


class GossipNode(CentroidNode):
    """Holds rows, and ends with the model of all rows."""

    Setup = GossipSetup
    state = (*CentroidNode.state, "mean", "start", "W", "product")

    def __init__(self, site: SiteView, setup: GossipSetup) -> None:
        super().__init__(site, setup)
        self.kernel = Kernel(setup.kernel, setup.gamma, setup.degree, setup.coef0)
        self.made: dict[str, Any] = {}  # features: made when first needed, not state
        self.mean = np.zeros(0)
        self.start = self.W = self.product = np.zeros((0, 0))

    @step
    def count_rows(self) -> RowCount:
        """Rows and columns."""
        return count(self.site.data)

    @step(reusable=False)
    def begin_centroids(self) -> None:
        """The own centroids."""
        self.start_sharing(self.site.data, self.setup.n_centroids, self.setup.seed)

    # Features.

    @property
    def landmarks(self) -> Rows:
        """What the features are kernel values with."""
        if self.setup.features == "rows":
            require_few(self.site.data.shape[0], self.site.name)
            return as_rows(self.site.data, np.float64)
        if not len(self.shared):
            raise InputError(
                f"no node has the {MIN_CLUSTER} rows that a centroid needs at least; use "
                f"features='random', or nodes with more rows"
            )
        return self.shared

    @property
    def basis(self) -> Doubles:
        """B (q, r) with which k(x, Y)B has the inner products of φ(x) inside the span of φ(Y)."""
        if "basis" not in self.made:
            self.made["basis"] = pseudo_inverse_root(self.kernel.matrix(self.landmarks))
        basis: Doubles = self.made["basis"]
        return basis

    def _embed(self, X: Rows) -> Doubles:
        X = as_rows(X, np.float64)
        if self.setup.features == "random":
            agreed = self.setup
            how = (self.kernel, X.shape[1], agreed.n_features, agreed.seed)
            return np.asarray(embedding(*how)(X))
        return np.asarray(self.kernel.matrix(X, self.landmarks) @ self.basis)

    @property
    def E(self) -> Doubles:  # noqa: N802
        """The own features as they are."""
        if "E" not in self.made:
            X = self.site.data
            self.made["E"] = np.vstack([self._embed(X[rows]) for rows in blocks(X.shape[0])])
        features: Doubles = self.made["E"]
        return features

    @property
    def _seen(self) -> Doubles:
        """Features as seen from the mean of all."""
        return self.E - self.mean

    # 1. The mean.

    @step(reusable=False)
    def begin_mean(self) -> None:
        """Average the features over all rows."""
        self.end_sharing()
        self.start_mixing(np.append(self.E.sum(axis=0), len(self.E)))

    # 2. The common directions.

    @step(reusable=False)
    def begin_tracking(self) -> None:
        """Start from the same directions everywhere."""
        centre = self.setup.center
        mean = self.mixture[:-1] / self.mixture[-1]
        self.mean = mean if centre else np.zeros_like(mean)
        s = min(self.setup.n_components + 1, len(self.mean))
        if self.setup.n_components > s:
            raise RankError(
                f"{self.setup.n_components} components were asked for, the shared features have "
                f"{s} dimensions; raise n_features or lower n_components"
            )
        self.start = self.W = self._first_directions(s)
        self.product = self._seen.T @ (self._seen @ self.W)
        self.start_mixing(self.product)

    def _first_directions(self, s: int) -> Doubles:
        """Of the landmarks themselves, which all nodes know; alone, of the rows."""
        if self.setup.features == "random":
            return random_directions(len(self.mean), s, self.setup.seed)
        points = self.E if self.setup.features == "rows" else self._embed(self.shared)
        return leading_directions(points, s)

    @step(reusable=False)
    def turn(self) -> None:
        """W ← QR(S), then let S follow AW."""
        W = orthonormal_like(self.mixture, self.start)
        product = self._seen.T @ (self._seen @ W)
        cosines = np.linalg.svd(self.W.T @ W, compute_uv=False)
        self.peak = np.sqrt(np.maximum(1 - cosines[-1:] ** 2, 0.0))
        self.add_to_mixture(product - self.product)
        self.W, self.product = W, product

    @step(reusable=False)
    def tell_moved(self) -> Moved:
        """The largest of all nodes."""
        return Moved(change=float(self.peak[0]))

    # 3. One model.

    @step(reusable=False)
    def begin_agreement(self) -> None:
        """Average the directions until they are equal everywhere."""
        self.start_mixing(self.W)

    @step(reusable=False)
    def begin_variances(self) -> None:
        """Average what makes up the eigenvalues and the offset."""
        self.W = orthonormal_like(self.mixture, self.start)
        V, seen = self._seen @ self.W, self._seen
        inside = float(np.einsum("ij,ij->", seen, seen))
        whole = inside if self.setup.features == "random" else self._kernel_trace()
        self.start_mixing(np.concatenate([(V.T @ V).ravel(), [len(V), whole]]))

    def _kernel_trace(self) -> float:
        """Σ k(x, x)."""
        return float(np.sum(self.kernel.diagonal(as_rows(self.site.data, np.float64))))

    @step(reusable=False)
    def finish(self, whole: NodeTotal) -> GossipOutcome:
        """Rotate to the principal directions; keep the model in the store."""
        s, k = self.W.shape[1], self.setup.n_components
        sums = self.mixture * whole.n_nodes
        n, trace = sums[-2:]
        values, turn = principal_rotation(sums[:-2].reshape(s, s))
        require_rank(values, k, round(n), f"{len(self.mean)} shared features")
        components = self._signed(self.W @ turn[:, :k])
        outside = 0.0 if self.setup.features == "random" else n * self.mean @ self.mean
        facts = {
            "eigenvalues": values[:k],
            "next_eigenvalue": float(values[k]) if s > k else 0.0,
            "total": float(trace - outside),
            "n_rows": round(n),
        }
        self.site.keep(KEPT, {"consensus": self._model(components, facts)})
        return GossipOutcome(**facts, n_dimensions=len(self.mean))

    def _signed(self, components: Doubles) -> Doubles:
        """A node that is alone knows all scores, and gives them the signs that pooled data have."""
        if self.setup.features != "rows":
            return components
        scores = self._seen @ components
        signs = np.sign(np.einsum("ij,ij->j", fix_signs(scores), scores))
        return np.asarray(components * signs)

    def _model(self, components: Doubles, facts: dict[str, Any]) -> Any:
        offset = self.mean @ components
        if self.setup.features == "random":
            how = (self.kernel, self.site.data.shape[1], self.setup.n_features, self.setup.seed)
            return FeatureModel(*how, components, offset, **facts)
        coefficients = self.basis @ components
        return LandmarkModel(self.kernel, self.landmarks, coefficients, offset, **facts)


@record
@dataclass(frozen=True)
class GossipResult:
    """What all nodes know; their models, all alike, are in their stores."""

    outcome: GossipOutcome
    parties: tuple[str, ...]
    n_columns: int
    baseline_floats: int
    stop_reason: str


def steps_for(setup: GossipSetup, watched: bool) -> list[Step]:
    """The steps that a run asks for."""
    node = GossipNode
    steps = [node.count_rows, node.offer_mixture, node.take_mixture, node.begin_mean]
    steps += [node.begin_tracking, node.turn, node.begin_agreement, node.begin_variances]
    steps += [node.finish]
    if setup.features == "centroids":
        steps += [node.begin_centroids, node.offer_centroids, node.take_centroids]
    return steps + ([node.offer_peak, node.take_peaks, node.tell_moved] if watched else [])


@protocol("gossip-kpca", roles=(GossipNode,))
def gossip_kpca(
    nodes: Federation,
    setup: GossipSetup,
    n_rounds: int,
    n_mixes: int | None,
    tolerance: float | None,
) -> GossipResult:
    """`n_rounds` of subspace iteration, each of `n_mixes`, as many as the graph needs if None."""
    nodes.enlist(GossipNode, setup, steps_for(setup, tolerance is not None))
    sizes = nodes.ask(GossipNode.count_rows)
    if setup.features == "centroids":
        nodes.ask(GossipNode.begin_centroids)
        spread(nodes, GossipNode)
    nodes.ask(GossipNode.begin_mean)
    average(nodes, GossipNode)
    nodes.ask(GossipNode.begin_tracking)
    reason = _iterate(nodes, n_rounds, n_mixes or mixes_for(nodes, MIXED), tolerance)
    nodes.ask(GossipNode.begin_agreement)
    average(nodes, GossipNode)
    nodes.ask(GossipNode.begin_variances)
    average(nodes, GossipNode)
    told = nodes.ask(GossipNode.finish, NodeTotal(n_nodes=len(nodes.parties)))
    baseline = sum(size.n_values for size in sizes)
    return GossipResult(told[0], told.parties, sizes[0].n_columns, baseline, reason)


def _iterate(nodes: Federation, n_rounds: int, n_mixes: int, tolerance: float | None) -> str:
    for done in range(n_rounds):
        average(nodes, GossipNode, n_mixes)
        nodes.ask(GossipNode.turn)
        if tolerance is None:
            continue
        largest(nodes, GossipNode)
        if nodes.ask(GossipNode.tell_moved)[0].change <= tolerance:
            return f"no direction moved by more than {tolerance:g} in round {done + 1}"
    return f"{n_rounds} rounds are done"
