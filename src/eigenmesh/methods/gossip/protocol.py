"""Kernel PCA on a graph, without a centre and without rows: shared features, averaged by gossip.

Features that every node computes alike: random ones from a common seed (Yu et al., "Orthogonal
random features", 2016), or kernel values with shared centroids. Then Ye and Zhang, "DeEPCA:
Decentralized Exact PCA with Linear SearchCourse Rate", JMLR 22, 2021: subspace iteration with
gradient tracking and accelerated gossip.

=============  ===========================================================================
node keeps     its rows
node reveals   to its neighbours, on their way to averages: sums of its features, and its
               second moments along the common directions (moments); with centroids, to all:
               means of at least MIN_CLUSTER of its rows each (centroids)
=============  ===========================================================================

Letters: E (n, D) a node's features, seen from the mean of all; A = EᵀE; W (D, s) the directions,
s = n_components + 1, so that the first eigenvalue left out is known; S the tracked average of AW.

Along a tree A itself is summed, once, where that is hardly more than the rounds would send
(`sums_scatter`), and the root hands down its components, which are exact inside the features' span.
Else, and by gossip:

Every round S ← mix(S + A(W − W_before)), W ← QR(S). Since mixing keeps the sum, the mean of all S
is the mean of all AW at every moment, and a few mixes a round suffice. At the end the directions
are averaged to rounding and rotated by the variances of all rows: all nodes have one model.

Above the usual length: the node's steps, the schedule that orders them and the coordinator that
asks for them are read side by side, letter by letter.

With an accuracy the nodes average once more, what their rows add up to outside the centroids' span
(`numerics.shortfall`, moments), and share more centroids while too much is missing; of random
features, what rows and scores add up to in others (`numerics.feature_errors`, moments).
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self

import networkx as nx
import numpy as np

from eigenmesh.errors import InputError, MessageRefused, RankError
from eigenmesh.graphs.consensus import (
    MixingSetup,
    NodeTotal,
    average,
    graph_in,
    largest,
    largest_rounds,
    mixes_for,
    mixes_on,
    mixing_rounds,
    node_total,
    require_agreement,
    require_graph,
)
from eigenmesh.graphs.node_models import KEPT, require_few
from eigenmesh.graphs.shared_centroids import CentroidNode, spread, spreading
from eigenmesh.graphs.spread_from_first import NOTHING
from eigenmesh.graphs.tree_rounds import along_tree, tree_rounds
from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, blocks
from eigenmesh.numerics.centroids import MIN_CLUSTER, most_centroids
from eigenmesh.numerics.eigen import fix_signs, pseudo_inverse_root, require_rank
from eigenmesh.numerics.embeddings import embedded_width, embedding
from eigenmesh.numerics.feature_errors import (
    CheckSums,
    check_features,
    check_sums,
    check_width,
    feature_errors,
    n_check_groups,
    squared_residuals,
    unit_scores,
)
from eigenmesh.numerics.feature_model import FeatureModel
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.plausible import require_possible_sums
from eigenmesh.numerics.shortfall import (
    PROBE_WIDTH,
    Probes,
    Shortfall,
    may_have_rivals,
    missing_shares,
    peak_distance,
    probe,
    probe_directions,
    probed,
    share_to_see,
    unseen_distance,
)
from eigenmesh.numerics.tracking import (
    leading_directions,
    orthonormal,
    principal_rotation,
    random_directions,
    still_growing,
)
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, NonNegative, Positive, Shape
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import (
    Amount,
    Node,
    Own,
    Parties,
    Scope,
    Size,
    ask,
    at_most,
    columns,
    enlist,
    loop,
    maybe,
    sequence,
    settle,
    times,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.runtime.spanning_tree import DOWN, UP
from eigenmesh.runtime.topology import TREE, averaging_on
from eigenmesh.stages.row_messages import RowCount, by_party, count
from eigenmesh.stages.site_samples import sample_bounds

for kind in (LandmarkModel, FeatureModel, Kernel):
    record(kind)

FEATURES = ("centroids", "random")
NARROW = ("linear", "cosine")  # kernels of no higher rank than there are columns
EVERYTHING = 10**9  # floats of a fit, of which a tenth is enough to look at every component
PROBED = 1e-3  # of the nodes' differences in what measures the features
_APART = 1e-6  # of a total, between nodes that have agreed
MIXED = 0.25  # of the differences between nodes, left after the mixes of a round
# Of them after `n_rounds`, if an eigenvalue still grows: where nodes are unlike, and eigenvalues
# near each other, directions drift apart by more in a round than a quarter takes back.
MIXED_AGAIN = 0.01
PATIENCE = 10  # times `n_rounds`: with an accuracy, the most while an eigenvalue still grows
_CLEAR = 1e-10  # of the first eigenvalue: all nodes see alike whether one is more
_SETTLED = 0.1  # of the accuracy: no more of an eigenvalue is to be missing in the features' span


class GossipSetup(MixingSetup, reveals=None):
    """Kernel, features and seed, the same for all."""

    kernel: str
    gamma: float | None
    degree: float
    coef0: float
    features: str  # one of FEATURES, or "rows" for a node that is alone
    n_components: Annotated[int, Positive]
    n_wanted: Annotated[int, Positive]  # of these must be there, and be accurate
    center: bool
    seed: int


class Moved(Message, reveals="moments"):
    """How far the directions of any node moved in the last round: the sine of the angle."""

    change: Annotated[float, NonNegative]


class Growing(Message, reveals="moments"):
    """The share that the iteration still lacks of each wanted eigenvalue in the features' span."""

    values: Annotated[Floats, Shape("k"), NonNegative]


class RoundDirections(Message, reveals="eigenvectors", covers="joint"):
    """Coefficients (q, s) of W in φ(Y), or W, and the mean's scores (s,), flat, after a round.

    For whoever keeps a history; coefficients, since W hangs on the signs of a basis.
    """

    value: Annotated[Floats, Shape("n")]


class FeatureCount(Message, reveals=None):
    """Random features in all, or centroids that each node is to give besides those it has given."""

    count: Annotated[int, NonNegative]


class ProbeBudget(Message, reveals=None):
    """Floats of the fit, of which probing may take a tenth: `numerics.shortfall.probed`."""

    floats: Annotated[int, NonNegative]
    seeks_directions: bool  # outside the features' span, that come near an eigenvalue


class Missing(Message, reveals="moments"):
    """`numerics.shortfall.Shortfall`."""

    values: Annotated[Floats, Shape("k"), NonNegative]
    errors: Annotated[Floats, Shape("k"), NonNegative]


class GossipOutcome(Message, reveals="moments", covers="joint"):
    """What all nodes know of the whole."""

    eigenvalues: Annotated[Floats, Shape("k")]
    next_eigenvalue: float
    total: float
    n_rows: int
    n_dimensions: int
    outside: float  # squared distance of all rows to the features' span


class GossipNode(CentroidNode):
    """Holds rows, and ends with the model of all rows."""

    Setup = GossipSetup
    state = (
        *(*CentroidNode.state, "n_features", "n_given", "mean", "W", "product"),
        *("outside", "own_probes", "probes", "growing", "variances", "checks", "whole_checks"),
    )

    def __init__(self, site: SiteView, setup: GossipSetup) -> None:
        super().__init__(site, setup)
        self.kernel = Kernel(setup.kernel, setup.gamma, setup.degree, setup.coef0)
        self.cache: dict[str, Any] = {}  # features: made when first needed, not state
        self.n_features, self.n_given = 0, 0
        self.outside = 0.0  # Σ k⊥ of all rows, their squared distance to the features' span
        self.own_probes, self.probes = np.zeros((2, 0)), np.zeros(0)
        self.mean = self.growing = self.variances = np.zeros(0)
        self.checks, self.whole_checks = np.zeros((0, 0)), np.zeros(0)
        self.W = self.product = np.zeros((0, 0))

    @step
    def count_rows(self) -> RowCount:
        """Rows and columns."""
        return count(self.site)

    # Features.

    @step(reusable=False)
    def begin_features(self, features: FeatureCount) -> None:
        """The own centroids, no more of them in all than there are of the rows."""
        self.cache.clear()
        self.n_features = features.count
        if self.setup.features == "centroids":
            most = centroids_given(self.site.data.shape[0], features.count, self.n_given)
            self.start_sharing(self.site.data, most, self.n_given)
            self.n_given += most

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
        if "basis" not in self.cache:
            self.cache["basis"] = pseudo_inverse_root(self.kernel.matrix(self.landmarks))
        basis: Doubles = self.cache["basis"]
        return basis

    def _embed(self, X: Rows) -> Doubles:
        X = as_rows(X, np.float64)
        if self.setup.features == "random":
            how = (self.kernel, X.shape[1], self.n_features, self.setup.seed)
            return np.asarray(embedding(*how)(X))
        return np.asarray(self.kernel.matrix(X, self.landmarks) @ self.basis)

    @property
    def E(self) -> Doubles:  # noqa: N802
        """The own features as they are."""
        if "E" not in self.cache:
            X = self.site.data
            self.cache["E"] = np.vstack([self._embed(X[rows]) for rows in blocks(X.shape[0])])
        features: Doubles = self.cache["E"]
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
        self._take_mean()
        s = min(self.setup.n_components + 1, len(self.mean))
        self.W = self._first_directions(s)
        self.product = self._seen.T @ (self._seen @ self.W)
        self.start_mixing(self.product)

    def _take_mean(self) -> None:
        mean = self.mixture[:-1] / self.mixture[-1]
        self.mean = mean if self.setup.center else np.zeros_like(mean)
        if self.setup.n_wanted > len(mean):
            raise RankError(
                f"{self.setup.n_wanted} components were asked for, the shared features have "
                f"{len(mean)} dimensions; lower n_components or, unless the kernel has no more, "
                f"raise n_features (of a front door: n_landmarks), or rescale columns that dwarf "
                f"the others"
            )

    def _first_directions(self, s: int) -> Doubles:
        """Of the landmarks themselves, which all nodes know; alone, of the rows.

        The last is random, for what landmarks show nothing of, such as a single row far away.
        """
        drawn = random_directions(len(self.mean), s, self.setup.seed)
        if self.setup.features == "random":
            return drawn
        points = self.E if self.setup.features == "rows" else self._embed(self.shared)
        # Uncentred, the first direction is near the mean, which centred ones would leave out.
        lead = leading_directions(points, s, bool(self.setup.center))
        return orthonormal(np.column_stack([lead[:, :-1], drawn[:, -1]]))

    @step(reusable=False)
    def turn(self) -> None:
        """W ← QR(S), then let S follow AW."""
        W = orthonormal(self.mixture)
        self.growing = still_growing(self.W, self.mixture)[: self.setup.n_wanted]
        product = self._seen.T @ (self._seen @ W)
        cosines = np.linalg.svd(self.W.T @ W, compute_uv=False)
        self.peak = np.sqrt(np.maximum(1 - cosines[-1:] ** 2, 0.0))
        self.add_to_mixture(product - self.product)
        self.W, self.product = W, product

    @step(reusable=False)
    def tell_directions(self) -> RoundDirections:
        """As the last round has left them."""
        C = self.W if self.setup.features == "random" else self.basis @ self.W
        return RoundDirections(value=np.append(C.ravel(), self.mean @ self.W))

    @step(reusable=False)
    def tell_moved(self) -> Moved:
        """The largest of all nodes."""
        return Moved(change=float(self.peak[0]))

    @step(reusable=False)
    def tell_growing(self) -> Growing:
        """By what the last round's products have outside its directions."""
        return Growing(values=self.growing)

    # 3. One model.

    @step(reusable=False)
    def begin_agreement(self) -> None:
        """Average the directions until they are equal everywhere."""
        self.start_mixing(self.W)

    @step(reusable=False)
    def begin_variances(self) -> None:
        """Average what makes up the eigenvalues and the offset."""
        self.W = orthonormal(self.mixture)
        V = self._seen @ self.W
        self.start_mixing(np.concatenate([(V.T @ V).ravel(), self._own_facts()]))

    def _own_facts(self) -> list[float]:
        """Σ ‖features‖², the number of rows, and the trace that is to be explained."""
        features = self._seen
        inside = float(np.einsum("ij,ij->", features, features))
        whole = inside if self.setup.features == "random" else self._kernel_trace()
        own = float(np.einsum("ij,ij->", self.E, self.E))
        return [own, float(len(features)), whole]

    @step(reusable=False)
    def begin_scatter(self) -> None:
        """Sum A, in place of all rounds."""
        self._take_mean()
        features = self._seen
        A = (features.T @ features)[np.triu_indices(len(self.mean))]
        self.start_mixing(np.concatenate([A, self._own_facts()]))

    @step(reusable=False)
    def propose_components(self) -> None:
        """At the root: the components of the sum, with one eigenvalue more, for all to take."""
        D = len(self.mean)
        s = min(self.setup.n_components + 1, D)
        if not self.is_root:
            self.peak = np.full(handed_down(D, s), NOTHING)
            return
        sums = self.total_at_root()
        A = np.zeros((D, D))
        A[np.triu_indices(D)] = sums[:-3]
        values, vectors = principal_rotation(A + np.triu(A, 1).T)
        self.peak = np.concatenate([values[:s], vectors[:, :s].ravel(), sums[-3:]])

    @step(reusable=False)
    def take_components(self) -> GossipOutcome:
        """Keep the model of the root's components in the store."""
        D = len(self.mean)
        s = min(self.setup.n_components + 1, D)
        if self.peak.min() <= NOTHING:
            raise MessageRefused("what the root has found has not arrived")
        values, vectors, facts = np.split(self.peak, [s, s + D * s])
        return self._concluded(values, vectors.reshape(D, s), facts)

    def _kernel_trace(self) -> float:
        """Σ k(x, x)."""
        return float(np.sum(self.kernel.diagonal(as_rows(self.site.data, np.float64))))

    @step(reusable=False)
    def finish(self, whole: NodeTotal) -> GossipOutcome:
        """Rotate to the principal directions; keep the model in the store."""
        s, sums = self.W.shape[1], self.mixture * whole.n_nodes
        values, turn = principal_rotation(sums[:-3].reshape(s, s))
        return self._concluded(values, self.W @ turn, sums[-3:])

    def _concluded(self, values: Doubles, vectors: Doubles, sums: Doubles) -> GossipOutcome:
        s, D = len(values), len(self.mean)
        inside, n, trace = sums
        require_rank(values, self.setup.n_wanted, round(n), f"{D} shared features")
        k = self._n_kept(values)
        components = self._signed(vectors[:, :k])
        self.W, self.variances = vectors, np.maximum(values, 0.0)
        outside = 0.0 if self.setup.features == "random" else n * self.mean @ self.mean
        self.outside = 0.0 if self.setup.features == "random" else max(float(trace - inside), 0.0)
        facts = {
            "eigenvalues": values[:k],
            "next_eigenvalue": float(values[k]) if s > k else 0.0,
            "total": float(trace - outside),
            "n_rows": round(n),
        }
        self.site.keep(KEPT, {"consensus": self._model(components, facts)})
        return GossipOutcome(**facts, n_dimensions=D, outside=self.outside)

    def _n_kept(self, values: Doubles) -> int:
        """All that are wanted, and of the others those well above what rounding makes of none."""
        clear = int(np.count_nonzero(values > _CLEAR * values[0]))
        return int(min(self.setup.n_components, max(self.setup.n_wanted, clear)))

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
            how = (self.kernel, self.site.data.shape[1], self.n_features, self.setup.seed)
            return FeatureModel(*how, components, offset, **facts)
        coefficients = self.basis @ components
        return LandmarkModel(self.kernel, self.landmarks, coefficients, offset, **facts)

    # 4. What random features are off by, by other features (`numerics.feature_errors`).

    @step(reusable=False)
    def begin_check(self) -> None:
        """Average what scores, and rows, add up to in features that were drawn apart."""
        own = check_sums(self._check_features, self._check_scores, bool(self.setup.center))
        self.start_mixing(np.append(own.weighted.ravel(), own.whole))

    @property
    def _check_features(self) -> list[Doubles]:
        X = as_rows(self.site.data, np.float64)
        groups = check_features(self.kernel, int(X.shape[1]), self.setup.seed)
        return [np.vstack([embed(X[rows]) for rows in blocks(X.shape[0])]) for embed in groups]

    @property
    def _check_scores(self) -> Doubles:
        s = min(self.setup.n_wanted + 1, len(self.variances))
        return unit_scores(self._seen @ self.W[:, :s], self.variances[:s])

    @step(reusable=False)
    def begin_residuals(self, whole: NodeTotal) -> None:
        """Average how far the scores are from eigenvectors, by these features."""
        sums, features = self.mixture * whole.n_nodes, self._check_features
        s = min(self.setup.n_wanted + 1, len(self.variances))
        width = len(sums) // (s + 1)
        self.checks, self.whole_checks = sums[:-width].reshape(s, width), sums[-width:]
        own: Any = self.site.kept(KEPT, "consensus")
        n = own["consensus"].n_rows
        self.start_mixing(squared_residuals(features, self._check_scores, self._sums_of_check(), n))

    def _sums_of_check(self) -> CheckSums:
        n_groups = n_check_groups(self.kernel, int(self.site.data.shape[1]))
        return CheckSums(self.checks, self.whole_checks, n_groups)

    @step(reusable=False)
    def tell_errors(self, whole: NodeTotal) -> Missing:
        """By how much the wanted eigenvalues are off."""
        residuals = self.mixture * whole.n_nodes
        lacking = feature_errors(
            self.variances, self._sums_of_check(), residuals, self.setup.n_wanted
        )
        return Missing(values=lacking.values, errors=lacking.errors)

    # 5. What centroids miss.

    @step(reusable=False)
    def begin_probes(self, budget: ProbeBudget) -> None:
        """Average what rows of its own choice add up to outside the centroids' span."""
        own: Any = self.site.kept(KEPT, "consensus")
        model: LandmarkModel = own["consensus"]
        k = self.setup.n_wanted
        z = np.maximum(model.eigenvalues[:k], np.finfo(float).tiny)
        scaled = probe_directions(z, probed(len(z), 0, budget.floats)) / np.sqrt(z)[:, None]
        mean = self.outside / model.n_rows
        share = share_looked_at(len(self.landmarks), model.n_rows, budget.floats)
        directions = (model.coefficients[:, :k] @ scaled, model.offset[:k] @ scaled)
        rng = self.site.private_generator(gossip_kpca.number, self.n_given)
        probes = Probes(*directions, mean, share, PROBE_WIDTH, budget.seeks_directions)
        span = Span.of(self.kernel, self.landmarks)
        sizes = sample_bounds(self.site, probes.n_numbers)
        seed, n_far = self.setup.seed, self.site.rows_of_a_largest
        sums = probe(span, self.site.data, probes, seed, rng, sizes, n_far)
        self.own_probes = np.stack([sums.mean, sums.direction])
        whole = sums.mean * np.sqrt(sums.n_rows)
        facts = [sums.peak, sums.n_rows, sums.outside]
        self.start_mixing(np.concatenate([sums.features.ravel(), whole, sums.noise, facts]))

    @step(reusable=False)
    def begin_level(self, whole: NodeTotal) -> None:
        """Average the variance outside, in the direction of the mean outside."""
        self.probes = self.mixture * whole.n_nodes
        self.start_mixing(self.own_probes.T @ (self.own_probes @ self._direction()))

    @step(reusable=False)
    def tell_missing(self, whole: NodeTotal) -> Missing:
        """How much the wanted eigenvalues lack."""
        F, mean, _, (peak, n, _) = self._probe_sums()
        g = self._direction()
        along = float(g @ self.mixture) * whole.n_nodes - float(np.sum((F @ g) ** 2))
        along -= float(mean @ g) ** 2 / n if self.setup.center else 0.0
        bounds = (peak_distance(peak, self.outside, n), along, self._own_level(F, mean, n), 0.0)
        return self._lacking(max(bounds), 0.0)

    @step(reusable=False)
    def tell_missing_at_root(self) -> Missing:
        """The same of the sums that have come up the tree, where no directions were sought."""
        self.probes = self.total_at_root()
        peak, n, _ = self._probe_sums()[-1]
        return self._lacking(peak_distance(peak, self.outside, n), self.outside)

    def _lacking(self, level: float, highest: float) -> Missing:
        """By the largest variance outside, at least; and at most, where that is more."""
        share: Any = self.site.kept(KEPT, "consensus")
        z = share["consensus"].eigenvalues[: self.setup.n_wanted]
        F, _, noise, (_, _, sampled) = self._probe_sums()
        levels = (min(level, self.outside), self.outside, unseen_distance(sampled, self.outside))
        sums = (F, np.maximum(noise, 0.0))
        lacking = missing_shares(self.kernel.name, z, sums, *levels, highest)
        return Missing(values=lacking.values, errors=lacking.errors)

    def _probe_sums(self) -> tuple[Doubles, Doubles, Doubles, Doubles]:
        """Of all nodes: F (p, t), the mean (t,), noise (p,); peak, the number of rows, and Σ k⊥."""
        t = self.own_probes.shape[1]
        p = (len(self.probes) - t - 3) // (t + 1)
        F, mean, noise, facts = np.split(self.probes, np.cumsum([p * t, t, p]))
        return F.reshape(p, t), mean, noise, facts

    def _own_level(self, F: Doubles, whole: Doubles, n: float) -> float:
        """The largest variance outside that the own rows have, of what no r_i explains."""
        mean, direction = self.own_probes
        if self.setup.center:
            mean = mean - np.sqrt(self.site.data.shape[0]) * whole / n
        scatter = np.outer(mean, mean) + np.outer(direction, direction) - F.T @ F
        return float(np.linalg.eigvalsh(scatter)[-1])

    def _direction(self) -> Doubles:
        """Of the mean outside the span, of unit length."""
        mean = self._probe_sums()[1]
        return np.asarray(mean / max(float(np.linalg.norm(mean)), np.finfo(float).tiny))


def handed_down(D: int, s: int) -> int:
    """Numbers of the root's components: s eigenvalues, s vectors of D features, and facts."""
    return s + D * s + 3


def sums_scatter(setup: GossipSetup, goal: GossipGoal, averaging: str) -> bool:
    """Whether A is summed once: along a tree, where it has at most twice as many numbers.

    It saves the rounds and has nothing left to converge. A node that is alone may have thousands of
    features and sends nothing: it iterates.
    """
    if averaging != TREE or setup.features == "rows":
        return False
    return goal.n_features + 1 <= 4 * goal.n_rounds * (setup.n_components + 1)


def centroids_given(n_rows: int, count: int, before: int = 0) -> int:
    """How many centroids a node gives; of all of them no more than its rows can bear.

    >>> centroids_given(20, 3), centroids_given(20, 3, before=3), centroids_given(4, 3)
    (3, 1, 0)
    """
    return max(min(count, most_centroids(n_rows) - before), 0)


def asked_of_each(n_rows: Sequence[int], total: int, before: Sequence[int] = ()) -> int:
    """The fewest centroids to ask of every node for so many in all, or for all there are.

    >>> asked_of_each([100, 100], 10), asked_of_each([500, 3, 10], 10), asked_of_each([10], 99)
    (5, 8, 2)
    """
    free = [most_centroids(n) for n in n_rows]
    free = [n - own for n, own in zip(free, before, strict=True)] if before else free
    possible = range(max(free, default=0) + 1)
    few = bisect_left(possible, min(total, sum(free)), key=lambda a: sum(min(a, n) for n in free))
    return max(few, 1)


@record
@dataclass(frozen=True)
class GossipResult:
    """What all nodes know; their models, all alike, are in their stores."""

    outcome: GossipOutcome
    parties: tuple[str, ...]
    n_columns: int
    baseline_floats: int
    stop_reason: str
    features: str  # those that were taken
    n_features: int
    missing: Missing | None  # None if it was not measured
    without: tuple[str, ...]  # nodes that can give no centroid
    exhausted: bool  # no node can give more
    growing: Doubles  # (k,), shares that the iteration lacks; empty if nobody was asked
    history: tuple[Doubles, ...] = ()  # by round, (nodes, n), as `RoundDirections` has them


@record
@dataclass(frozen=True)
class GossipGoal:
    """How the nodes are to go about it.

    `n_mixes` of None are as many as the graph needs. With an `accuracy` there may be more than
    `n_features`, up to `most_features`.
    """

    n_features: int
    n_rounds: int
    n_mixes: int | None
    tolerance: float | None
    accuracy: float | None = None
    most_features: int = 0
    or_random: bool = False  # random features where no node has rows enough for a centroid
    keep_history: bool = False


def schedule(scope: Scope, setup: GossipSetup, goal: GossipGoal, is_fullest: bool = False) -> Node:
    """Counts, then a fit; with an accuracy what it misses, and more fits with more centroids.

    A plan counts the fit alone and, if `is_fullest`, all the rounds and looks that it may take.
    """
    if setup.features != "centroids":
        return sequence(_counting(setup), _other_fit(scope, setup, goal, is_fullest))
    return sequence(
        _counting(setup),
        settle(
            lambda parties: _first_numbers(setup, goal, parties),
            lambda **numbers: _centroid_fits(
                scope, setup, goal, FirstFeatures(**numbers), is_fullest
            ),
            lambda own, most_rows, n_columns, each, q, more: (
                own.rows <= most_rows
                and own.columns == n_columns
                and 0 < each <= goal.n_features
                and 0 <= q < goal.n_features + scope.n_taking_part
                and 0 <= more <= goal.most_features
            ),
            most_rows=10**9,
            n_columns=10**9,
            each=1,
            q=goal.n_features,
            more=1,
        ),
    )


class FirstFeatures(NamedTuple):
    """What is known after the count: how many centroids there will be, and what hangs on it."""

    most_rows: int  # of any node
    n_columns: int
    each: int  # centroids that are asked of each node at first
    q: int  # features at first
    more: int  # fits with more of them, at most

    @classmethod
    def of(cls, setup: GossipSetup, goal: GossipGoal, rows: Mapping[str, int], d: int) -> Self:
        """From the sizes of the nodes."""
        taken = features_for(setup, goal, list(rows.values()))
        growth = Growth.of(dataclasses.replace(setup, features=taken), goal, rows)
        each, q, more = growth.each_gives, growth.total, 0
        while goal.accuracy is not None and not growth.is_done:
            growth, more = growth.doubled(), more + 1
        return cls(max(rows.values()), d, each, q, more)


def _first_numbers(setup: GossipSetup, goal: GossipGoal, parties: Parties) -> Mapping[str, int]:
    sizes = [n_rows for n_rows, _ in parties.shapes]
    rows = dict(zip(parties.names, sizes, strict=True))
    return FirstFeatures.of(setup, goal, rows, parties.shapes[0][1])._asdict()


def _counting(setup: GossipSetup) -> Node:
    return sequence(enlist(GossipNode, setup), ask(GossipNode.count_rows))


def _centroid_fits(
    scope: Scope, setup: GossipSetup, goal: GossipGoal, first: FirstFeatures, is_fullest: bool
) -> Node:
    taken = features_for(setup, goal, [first.most_rows])
    if taken != setup.features:
        setup = dataclasses.replace(setup, features=taken)
        return sequence(enlist(GossipNode, setup), _other_fit(scope, setup, goal, is_fullest))
    n, d = scope.n_taking_part, first.n_columns

    def fit(q: int, each: Size | Amount) -> Node:
        width = min(q, d) if setup.kernel in NARROW else q
        measured = goal.accuracy is not None
        probes = _probes(scope, setup, goal, width, is_fullest) if measured else None
        # Centroids may be fewer than as many as there are columns, or dependent on each other.
        if probes is not None and fills_all(setup, width, d):
            probes = maybe(probes, planned=False)
        return sequence(_one_fit(scope, setup, goal, is_fullest, (q, width), each), probes)

    more = fit(goal.most_features + n, at_most(goal.most_features))
    return sequence(
        fit(first.q, first.each),
        loop(first.more, more, usual=0) if first.more else None,
    )


def _other_fit(scope: Scope, setup: GossipSetup, goal: GossipGoal, is_fullest: bool) -> Node:
    """`_one_fit` of random features, or of a node that is alone; with an accuracy a check."""
    fit = _one_fit(scope, setup, goal, is_fullest)
    if setup.features != "random" or goal.accuracy is None:
        return fit
    check = _checking(scope, setup, goal)
    # Whether there are as many features as columns, which are then exact, the count shows.
    return sequence(fit, maybe(check, planned=False) if setup.kernel in NARROW else check)


def _checking(scope: Scope, setup: GossipSetup, goal: GossipGoal) -> Node:
    """`_check`."""
    node, total = GossipNode, node_total(scope)

    def directions(own: Own) -> int:
        return min(setup.n_wanted + 1, embedded_width(setup.kernel, own.columns, goal.n_features))

    def n_sums(own: Own) -> int:
        width = check_width(setup.kernel, own.columns, setup.degree, setup.coef0)
        return (directions(own) + 1) * width

    return sequence(
        ask(node.begin_check),
        mixing_rounds(scope, node, Size(n_sums), PROBED),
        ask(node.begin_residuals, down=total),
        mixing_rounds(scope, node, Size(directions), PROBED),
        ask(node.tell_errors, down=total, up={"k": setup.n_wanted}),
    )


def _one_fit(
    scope: Scope,
    setup: GossipSetup,
    goal: GossipGoal,
    is_fullest: bool,
    centroids: tuple[int, int] | None = None,
    each: Size | Amount | None = None,
) -> Node:
    """`_fit`; of `centroids`, of which each node gives some, how many, and dimensions at most."""
    node, k = GossipNode, setup.n_components
    kept = k if setup.n_wanted == k else at_most(k)
    exact = setup.features == "random"

    def width(own: Own) -> int:
        if centroids is not None:
            return centroids[1]
        if exact:
            return embedded_width(setup.kernel, own.columns, goal.n_features)
        return min(own.rows, own.columns) if setup.kernel in NARROW else own.rows

    def sized(numbers: Callable[[int, int], int]) -> Size:
        return Size(lambda own: numbers(width(own), min(k + 1, width(own))), exact)

    def averaged(begin: Any, numbers: Callable[[int, int], int]) -> list[Node]:
        return [ask(begin), mixing_rounds(scope, node, sized(numbers))]

    features = [
        ask(node.begin_features, count=goal.n_features if each is None else each),
        _shared_centroids(scope, goal, centroids[0]) if centroids is not None else None,
        *averaged(node.begin_mean, lambda D, s: D + 1),
    ]
    if sums_scatter(setup, goal, scope.averaging):
        scatter = sized(lambda D, s: D * (D + 1) // 2 + 3)
        return sequence(*features, *_of_scatter(scope, scatter, sized(handed_down), kept))
    finer = None if goal.accuracy is None else MIXED_AGAIN
    tracked = sized(lambda D, s: D * s)
    mixes = mixing_rounds(scope, node, tracked, MIXED, goal.n_mixes, finer, is_fullest)

    def history_size(own: Own) -> int:
        lines = centroids[0] if centroids is not None else width(own) if exact else own.rows
        return (lines + 1) * min(k + 1, width(own))

    history = ask(node.tell_directions, n=Size(history_size, exact))
    turn = sequence(mixes, ask(node.turn), history if goal.keep_history else None)
    return sequence(
        *features,
        ask(node.begin_tracking),
        _iterations(scope, goal, turn, setup.n_wanted, is_fullest),
        *averaged(node.begin_agreement, lambda D, s: D * s),
        *averaged(node.begin_variances, lambda D, s: s * s + 3),
        ask(node.finish, down=node_total(scope), up={"k": kept}),
    )


def _of_scatter(scope: Scope, scatter: Size, components: Size, kept: Size | Amount) -> list[Node]:
    """Components of the scatter, which goes up a tree; they come down."""
    node = GossipNode
    up, down = (node.offer_mixture, node.take_mixture), (node.offer_peak, node.take_peaks)
    return [
        ask(node.begin_scatter),
        tree_rounds(scope, *up, (UP,), n=scatter),
        ask(node.propose_components),
        tree_rounds(scope, *down, (DOWN,), n=components),
        ask(node.take_components, k=kept),
    ]


def _iterations(scope: Scope, goal: GossipGoal, turn: Node, k: int, is_fullest: bool) -> Node:
    """`_iterate`: with an accuracy all rounds, and all again, while an eigenvalue grows."""
    n = goal.n_rounds
    growing = ask(GossipNode.tell_growing, k=k)
    moved = sequence(largest_rounds(scope, GossipNode, 1), ask(GossipNode.tell_moved))
    watched, is_watched = sequence(turn, moved), goal.tolerance is not None
    if goal.accuracy is None or not n:
        return loop(n, watched, fewest=1) if is_watched else times(n, turn)
    usual = PATIENCE if is_fullest else 1
    if not is_watched:
        return loop(PATIENCE, times(n, turn), growing, fewest=1, usual=usual)
    # The last time it ends after any round: with what grows, or with how far directions moved.
    return sequence(
        loop(PATIENCE - 1, times(n - 1, watched), turn, growing, moved, usual=usual - 1),
        loop(n - 1, watched, fewest=1),
        loop(1, turn, growing, maybe(moved), fewest=int(n == 1)),
    )


def _shared_centroids(scope: Scope, goal: GossipGoal, q: int) -> Node:
    def given(parties: Parties) -> list[int]:
        sizes = [n_rows for n_rows, _ in parties.shapes]
        count = asked_of_each(sizes, goal.n_features)
        return [centroids_given(n_rows, count) for n_rows in sizes]

    return spreading(scope, GossipNode, given, q, columns)


def _probes(
    scope: Scope, setup: GossipSetup, goal: GossipGoal, width: int, is_fullest: bool
) -> Node:
    """`_missing`, where it is measured: one look, and for doubt one at every component."""
    k, budget = setup.n_wanted, probe_budget(graph_in(scope), setup, goal, width)
    p, level = probed(k, 0, budget), Size(PROBE_WIDTH)
    most_p = k if scope.lossy else p
    first = _looking(
        scope,
        k,
        {} if scope.lossy else {"floats": at_most(budget)},
        at_most(_n_sums(most_p), planned=_n_sums(p)),
        level,
    )
    every = _looking(scope, k, {"floats": EVERYTHING}, Size(_n_sums(k)), level)
    return sequence(first, maybe(every, planned=is_fullest))


def _n_sums(p: int) -> int:
    """Numbers that `begin_probes` averages: features of p probes, their mean, and facts."""
    return (p + 1) * PROBE_WIDTH + p + 3


def _looking(
    scope: Scope, k: int, budget: Mapping[str, Size | Amount], sums: Size, level: Size
) -> Node:
    """`_look`."""
    node, total = GossipNode, node_total(scope)
    begin = ask(node.begin_probes, down=budget)
    rest = sequence(
        ask(node.begin_level, down=total),
        mixing_rounds(scope, node, level, PROBED),
        ask(node.tell_missing, down=total, up={"k": k}),
    )
    if not _ends_at_root(scope):
        return sequence(begin, mixing_rounds(scope, node, sums, PROBED), rest)
    up, down = (
        tree_rounds(scope, node.offer_mixture, node.take_mixture, (way,), n=sums)
        for way in (UP, DOWN)
    )
    at_root = ask(node.tell_missing_at_root, up={"k": k})
    return sequence(begin, up, maybe(down, rest), maybe(at_root, planned=False))


def _ends_at_root(scope: Scope) -> bool:
    """Whether sums that came up a tree are all there is to know where no directions are sought."""
    return not (scope.gossips or scope.lossy)


@protocol("gossip-kpca", roles=(GossipNode,), schedule=schedule, version=2, begins_anew=True)
def gossip_kpca(nodes: Federation, setup: GossipSetup, goal: GossipGoal) -> GossipResult:
    """Subspace iteration; once more with twice the features while they miss too much."""
    nodes.enlist(GossipNode, setup)
    sizes = by_party(nodes.ask(GossipNode.count_rows))
    rows = {name: size.n_rows for name, size in sizes.items()}
    n_columns = next(iter(sizes.values())).n_columns
    if setup.features == "centroids":
        nodes.settle(**FirstFeatures.of(setup, goal, rows, n_columns)._asdict())
    features = features_for(setup, goal, list(rows.values()))
    if features != setup.features:
        setup = dataclasses.replace(setup, features=features)
        nodes.enlist(GossipNode, setup)
    growth = Growth.of(setup, goal, rows)
    while True:
        outcomes, course = _fit(nodes, setup, goal, growth.each_gives)
        exact = fills_all(setup, outcomes[0].n_dimensions, n_columns)
        measured = goal.accuracy is not None
        missing = _missing(nodes, setup, goal, outcomes[0], exact) if measured else None
        if missing is None or _is_enough(missing, goal) or growth.is_done:
            break
        growth = growth.doubled()
    totals = {n: own.total for n, own in zip(outcomes.parties, outcomes, strict=True)}
    require_agreement(totals, _APART)
    require_possible_sums(float(np.sum(outcomes[0].eigenvalues)), outcomes[0].total)
    return GossipResult(
        outcomes[0],
        outcomes.parties,
        n_columns,
        sum(size.n_values for size in sizes.values()),
        course.reason,
        setup.features,
        growth.total,
        missing,
        growth.without,
        growth.is_exhausted,
        course.growing,
        course.history,
    )


def features_for(setup: GossipSetup, goal: GossipGoal, n_rows: Sequence[int]) -> str:
    """The features that are taken: none say less than random ones."""
    nobody = setup.features == "centroids" and max(n_rows) < MIN_CLUSTER
    return "random" if nobody and goal.or_random else setup.features


@dataclass(frozen=True)
class Growth:
    """How many features there are, and how many there may be."""

    setup: GossipSetup
    most: int
    rows: Mapping[str, int]
    each_gives: int  # centroids of each node in this step, or random features
    total: int
    n_given: Mapping[str, int]

    @classmethod
    def of(cls, setup: GossipSetup, goal: GossipGoal, rows: Mapping[str, int]) -> Self:
        """The first features."""
        q = goal.n_features
        if setup.features != "centroids":
            return cls(setup, goal.most_features, rows, q, q, {})
        count = asked_of_each(list(rows.values()), q)
        centroids = {name: centroids_given(n, count) for name, n in rows.items()}
        return cls(setup, goal.most_features, rows, count, sum(centroids.values()), centroids)

    def doubled(self) -> Self:
        """As many again, or as many as there may be."""
        more = min(2 * self.total, self.most)
        centroids = [self.n_given[name] for name in self.rows]
        count = asked_of_each(list(self.rows.values()), more - self.total, centroids)
        added = {n: centroids_given(self.rows[n], count, own) for n, own in self.n_given.items()}
        now = {name: own + added[name] for name, own in self.n_given.items()}
        return dataclasses.replace(self, each_gives=count, total=sum(now.values()), n_given=now)

    @property
    def is_exhausted(self) -> bool:
        """Whether no node can give another centroid."""
        most = {name: most_centroids(n) for name, n in self.rows.items()}
        return self.setup.features == "centroids" and dict(self.n_given) == most

    @property
    def is_done(self) -> bool:
        """Whether there can be no more; of random features it would take too many."""
        few = self.setup.features == "centroids" and self.total < self.most
        return self.is_exhausted or not few

    @property
    def without(self) -> tuple[str, ...]:
        """Nodes with too few rows for a centroid."""
        few = tuple(name for name, n in self.rows.items() if n < MIN_CLUSTER)
        return few if self.setup.features == "centroids" else ()


class SearchCourse(NamedTuple):
    """What the iteration lacks of each eigenvalue, why it ended, and what nodes told on the way."""

    growing: Doubles
    reason: str
    history: tuple[Doubles, ...] = ()


def _fit(
    nodes: Federation, setup: GossipSetup, goal: GossipGoal, count: int
) -> tuple[Replies, SearchCourse]:
    """The components inside the features' span, and how the iteration went."""
    nodes.ask(GossipNode.begin_features, FeatureCount(count=count))
    if setup.features == "centroids":
        spread(nodes, GossipNode)
    nodes.ask(GossipNode.begin_mean)
    average(nodes, GossipNode)
    if sums_scatter(setup, goal, nodes.scope.averaging):
        return _from_root(nodes), SearchCourse(np.zeros(0), "sums along a tree are exact")
    nodes.ask(GossipNode.begin_tracking)
    course = _iterate(nodes, goal)
    nodes.ask(GossipNode.begin_agreement)
    average(nodes, GossipNode)
    nodes.ask(GossipNode.begin_variances)
    average(nodes, GossipNode)
    whole = NodeTotal(n_nodes=len(nodes.parties))
    return nodes.ask(GossipNode.finish, whole), course


def _from_root(nodes: Federation) -> Replies:
    """The components of the summed scatter, found at the root and handed down."""
    nodes.ask(GossipNode.begin_scatter)
    along_tree(nodes, GossipNode.offer_mixture, GossipNode.take_mixture, (UP,))
    nodes.ask(GossipNode.propose_components)
    along_tree(nodes, GossipNode.offer_peak, GossipNode.take_peaks, (DOWN,))
    return nodes.ask(GossipNode.take_components)


def _missing(
    nodes: Federation, setup: GossipSetup, goal: GossipGoal, outcome: GossipOutcome, complete: bool
) -> Missing:
    """What the features miss of each eigenvalue; nothing if they are `complete`."""
    if complete:
        return Missing(values=np.zeros(setup.n_wanted), errors=np.zeros(setup.n_wanted))
    if setup.features == "random":
        return _check(nodes)
    k, accuracy = setup.n_wanted, goal.accuracy
    budget = probe_budget(require_graph(nodes), setup, goal, outcome.n_dimensions)
    z = outcome.eigenvalues[:k]
    rivals = not _ends_at_root(nodes.scope) or may_have_rivals(z, outcome.outside)
    first = _look(nodes, budget, rivals)
    missing, doubt = shortfall_of(first), False
    if accuracy is not None:
        doubt = missing.is_doubtful(accuracy) and not missing.is_likely_above(accuracy)
    sizes = (outcome.n_dimensions, outcome.n_rows)
    every_row = share_looked_at(*sizes, budget) == share_looked_at(*sizes, EVERYTHING)
    sees_all = every_row and probed(k, 0, budget) == k
    return first if sees_all or not doubt else _look(nodes, EVERYTHING)


def share_looked_at(n_landmarks: int, n_rows: int, budget: int) -> float:
    """Of all rows: more of them where every component is looked at."""
    return share_to_see(n_landmarks, n_rows, is_closer=budget >= EVERYTHING)


def shortfall_of(missing: Missing) -> Shortfall:
    """As it is judged everywhere."""
    return Shortfall(np.asarray(missing.values, float), np.asarray(missing.errors, float))


def _look(nodes: Federation, budget: int, seeks_directions: bool = True) -> Missing:
    """One look at what is outside the features' span."""
    question = ProbeBudget(floats=budget, seeks_directions=seeks_directions)
    nodes.ask(GossipNode.begin_probes, question)
    if not seeks_directions:
        along_tree(nodes, GossipNode.offer_mixture, GossipNode.take_mixture, (UP,))
        return _of_root(nodes)
    average(nodes, GossipNode, mixes_for(nodes, PROBED))
    whole = NodeTotal(n_nodes=len(nodes.parties))
    nodes.ask(GossipNode.begin_level, whole)
    average(nodes, GossipNode, mixes_for(nodes, PROBED))
    # A direction that one node alone knows of is missing for all.
    return _worst(nodes.ask(GossipNode.tell_missing, whole))


def _worst(replies: Replies) -> Missing:
    worst = int(np.argmax([float(node.values.max(initial=0.0)) for node in replies]))
    most: Missing = replies[worst]
    return most


def _check(nodes: Federation) -> Missing:
    """One look at what other features make of the scores."""
    nodes.ask(GossipNode.begin_check)
    average(nodes, GossipNode, mixes_for(nodes, PROBED))
    whole = NodeTotal(n_nodes=len(nodes.parties))
    nodes.ask(GossipNode.begin_residuals, whole)
    average(nodes, GossipNode, mixes_for(nodes, PROBED))
    return _worst(nodes.ask(GossipNode.tell_errors, whole))


def _of_root(nodes: Federation) -> Missing:
    """What the root of the tree makes of the sums of all."""
    root = nodes.members[nodes.tree.root]
    reply: Missing = nodes.ask(GossipNode.tell_missing_at_root, each={root: None})[0]
    return reply


def probe_budget(graph: nx.Graph, setup: GossipSetup, goal: GossipGoal, width: int) -> int:
    """Floats that a node has sent to a neighbour in the fit, per mix of the probes."""
    if sums_scatter(setup, goal, averaging_on(graph)):
        return width * (width + 1) // 4 + width  # one way
    s, mixes = min(setup.n_components + 1, width), mixes_on(graph)
    tracked = goal.n_rounds * (goal.n_mixes or mixes_on(graph, MIXED)) + mixes
    return (width * s * tracked + (width + s * s) * mixes) // mixes_on(graph, PROBED)


def fills_all(setup: GossipSetup, width: int, n_columns: int) -> bool:
    """Whether the features' span holds every row, whatever the rows are."""
    narrow = setup.kernel in NARROW and width >= n_columns
    return setup.features == "rows" or narrow


def _is_enough(missing: Missing, goal: GossipGoal) -> bool:
    assert goal.accuracy is not None
    return shortfall_of(missing).is_within(goal.accuracy)


def _iterate(nodes: Federation, goal: GossipGoal) -> SearchCourse:
    """`n_rounds` rounds; with an accuracy as many again, while an eigenvalue grows by more."""
    tolerance, growing, history = goal.tolerance, np.zeros(0), list[Doubles]()
    most = goal.n_rounds * (1 if goal.accuracy is None else PATIENCE)
    n_mixes = goal.n_mixes or mixes_for(nodes, MIXED)

    def course(reason: str) -> SearchCourse:
        return SearchCourse(growing, reason, tuple(history))

    for done in range(1, 1 + most):
        if done == goal.n_rounds + 1:
            n_mixes = goal.n_mixes or mixes_for(nodes, MIXED_AGAIN)
        average(nodes, GossipNode, n_mixes)
        nodes.ask(GossipNode.turn)
        if goal.keep_history:
            history.append(np.array([own.value for own in nodes.ask(GossipNode.tell_directions)]))
        if goal.accuracy is not None and done % goal.n_rounds == 0:
            replies = nodes.ask(GossipNode.tell_growing)
            growing = np.max([node.values for node in replies], axis=0)
            if growing.max(initial=0.0) <= _SETTLED * goal.accuracy:
                return course(f"no eigenvalue grows by more after {done} rounds")
        if tolerance is None:
            continue
        largest(nodes, GossipNode)
        if nodes.ask(GossipNode.tell_moved)[0].change <= tolerance:
            return course(f"no direction moved by more than {tolerance:g} in round {done}")
    return course(f"{most} rounds are done")
