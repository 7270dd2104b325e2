"""Kernel k-means over row partitions with differential privacy: noised moments, then noised cells.

The leading components come from the noised moments of `protocol`; in their space the rows' scores
have norm 1 at most. Some candidates are drawn there from what the moments tell, and a few rounds of
Lloyd's iteration move them: of each candidate's cell the parties tell the noised sum and the noised
number of its rows. The candidates, weighted by these numbers, stand for the rows: k-means of them
costs no privacy, however often it starts. Two more rounds are for its centres.
After Su, Cao, Li, Bertino and Jin, "Differentially Private K-Means Clustering", CODASPY 2016.

===================  ============================================================================
party keeps          its rows A_i (n_i, d), their scores and labels
party reveals        how many rows it has (counts); under noise sums of products of features, and of
                     scores and their numbers by cell (moments)
coordinator learns   these, or with masked sums their totals alone: (ε, δ)-private together
===================  ============================================================================

Half of the loss goes to the moments, half to the rounds, each of which has as much as any other.
Letters: z scores (n, s), m cells; `maths` has the sensitivities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from eigenmesh.methods.private_features.maths import (
    CELLS_SENSITIVITY,
    TopOfMoments,
    UnitFeatures,
    impossible_cells,
)
from eigenmesh.methods.private_features.protocol import (
    PrivateRows,
    PrivateSetup,
    SummedMoments,
    features_of,
    require_components,
    sigma_in_sum,
)
from eigenmesh.numerics.arrays import Doubles, Rows, blocks
from eigenmesh.numerics.feature_model import FeatureModel
from eigenmesh.numerics.kmeans import WeightedPoints, cluster_sums, nearest, weighted_kmeans
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Context,
    Floats,
    Message,
    Numbers,
    Orthonormal,
    Positive,
    Shape,
    Whole,
    no_more_than,
)
from eigenmesh.runtime.party import step
from eigenmesh.runtime.privacy import GaussianMechanism, loss_of
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import (
    Node,
    Own,
    Scope,
    ask,
    at_most,
    enlist,
    sequence,
    times,
    total,
)
from eigenmesh.stages.row_messages import by_party

FINAL_ROUNDS = 2  # for the k centres; those before are for candidates
CANDIDATES = 8  # a cluster
_DRAWS = 0x70726976  # apart from all other draws by the same seed
_FAINT = 3.0  # standard deviations of the noise, below which a cell is taken for empty


class PrivateKMeansSetup(PrivateSetup, reveals=None):
    """And how many rounds share the loss, and where a site keeps scores and labels."""

    n_rounds: Annotated[int, Positive, no_more_than(100)]
    n_cells: Annotated[int, Positive, no_more_than(20_000)]
    scores: str
    labels: str

    moments_share: ClassVar[float] = 0.5


class NoisedComponents(Message, reveals="moments"):
    """What noised moments gave: z = e `components`."""

    components: Annotated[Floats, Shape("t", "s"), Orthonormal]


class Cells(Message, reveals="moments"):
    """Candidates or centres: a row is in the cell of the nearest."""

    centres: Annotated[Floats, Shape("m", "s")]


class NoisedCells(Message, reveals="moments", noised=True):
    """Σ z of each cell and the number of its rows, under noise, in whole numbers of its grid."""

    sums: Annotated[Numbers, Shape("m", "s"), Whole]
    sizes: Annotated[Numbers, Shape("m"), Whole]

    def contradiction(self, context: Context) -> str | None:
        """Each row is in one cell, and its score has norm 1 at most."""
        n_rows = context.facts.get("rows")
        if n_rows is None:  # its own host knows of nothing that was said before
            return None
        mechanism = cells_mechanism(context.setup, *self.sums.shape)
        cells = mechanism.read(self.sums), mechanism.read(self.sizes)
        return impossible_cells(*cells, mechanism.sigma, int(n_rows))


class PrivateClusterRows(PrivateRows):
    """Holds some rows of all columns, and their scores."""

    Setup = PrivateKMeansSetup

    @step(reusable=False)
    def keep_scores(self, top: NoisedComponents) -> None:
        """The rows' scores, in the site's store."""
        scores = scores_of(self.features, self.site.data, np.asarray(top.components))
        self.site.keep(self.setup.scores, {"points": scores})

    @step(reusable=False)
    def noised_cells(self, cells: Cells) -> NoisedCells:
        """Sums and sizes of cells, under noise."""
        points = self._points()
        own = cluster_sums(WeightedPoints(points, np.ones(len(points))), cells.centres)
        mechanism = cells_mechanism(self.setup, *cells.centres.shape)
        self.site.loss += mechanism.loss
        both = np.column_stack([own.sums, own.weights])
        noised = mechanism.release(both, self.site.n_summed)
        return NoisedCells(sums=noised[:, :-1], sizes=noised[:, -1])

    @step(reusable=False)
    def keep_labels(self, cells: Cells) -> None:
        """The rows' clusters, in the site's store."""
        labels, _ = nearest(self._points(), cells.centres)
        self.site.keep(self.setup.labels, {"labels": labels})

    def _points(self) -> Doubles:
        share = self.site.kept(self.setup.scores, "points")
        assert share is not None  # the schedule has it before
        return np.asarray(share["points"], dtype=np.float64)


def scores_of(features: UnitFeatures, X: Rows, components: Doubles) -> Doubles:
    """Z = e V, whose norm is at most 1: noise is for no more, whatever V was sent."""
    scores = np.empty((X.shape[0], components.shape[1]))
    for rows in blocks(X.shape[0]):
        scores[rows] = features(X[rows]) @ components
    norms = np.linalg.norm(scores, axis=1, keepdims=True)
    return np.asarray(scores / np.maximum(norms, 1.0))


def cells_mechanism(setup: PrivateKMeansSetup, n_cells: int, dim: int) -> GaussianMechanism:
    """The noise of one round."""
    loss = (1 - setup.moments_share) / setup.n_rounds * loss_of(setup.epsilon, setup.delta)
    return GaussianMechanism(loss, CELLS_SENSITIVITY, n_cells * (dim + 1))


@record
@dataclass(frozen=True)
class PrivateClusters:
    """Centres in the space of the components, and what is known of them under noise."""

    model: FeatureModel
    centres: Doubles
    inertia: float
    sizes: Doubles  # of the clusters, about
    sigma: float  # of the noise in every sum of a cell
    share_of_best: float
    n_told_apart: int
    baseline_floats: int
    stop_reason: str = "all rounds that share the loss are over"


def schedule(scope: Scope, setup: PrivateKMeansSetup, n_clusters: int, n_eigenvectors: int) -> Node:
    """Sizes and noised moments; then rounds of noised cells, and the labels."""

    def t(own: Own) -> int:
        return features_of(setup, own.columns).width

    role, s, early = PrivateClusterRows, n_eigenvectors, setup.n_rounds - FINAL_ROUNDS
    return sequence(
        enlist(role, setup),
        ask(role.count_rows),
        total(role.noised_moments, t=t),
        ask(role.keep_scores, t=t, s=s),
        times(early, total(role.noised_cells, m=setup.n_cells, s=s)),
        times(FINAL_ROUNDS, total(role.noised_cells, m=at_most(n_clusters), s=s)),
        ask(role.keep_labels, m=at_most(n_clusters), s=s),
    )


@protocol("private-kmeans", roles=(PrivateClusterRows,), schedule=schedule)
def private_kmeans(
    rows: Federation, setup: PrivateKMeansSetup, n_clusters: int, n_eigenvectors: int
) -> PrivateClusters:
    """NoisedComponents, candidates, centres."""
    role = PrivateClusterRows
    rows.enlist(role, setup)
    sizes = by_party(rows.ask(role.count_rows))
    features = features_of(setup, next(iter(sizes.values())).n_columns)
    require_components(n_eigenvectors, features.width)

    # 1. NoisedComponents of the uncentred features.
    released = rows.total(role.noised_moments)
    moments = SummedMoments.of(rows, setup, released)
    n_rows = moments.n_rows
    top = TopOfMoments.of(*moments, centre=False)
    model = features.model(top, n_eigenvectors, n_rows)
    rows.ask(role.keep_scores, NoisedComponents(components=model.components))

    # 2. Candidates, moved where rows are; then k-means of these, and its centres.
    rng = np.random.default_rng(np.random.SeedSequence(setup.seed, spawn_key=(_DRAWS,)))
    spread = np.sqrt(np.maximum(model.eigenvalues, top.edge / 2) / n_rows)
    centres = drawn_candidates(setup.n_cells, spread, rng)
    cells, noise = noised_means(rows, setup, centres, rng)
    for left in range(setup.n_rounds - 1, 0, -1):
        centres = cells.points
        if left == FINAL_ROUNDS:
            solid = cells.weights.any()  # else everything is noise, and some centres will do
            centres = weighted_kmeans(cells, n_clusters, rng)[0] if solid else centres[:n_clusters]
        cells, noise = noised_means(rows, setup, centres, rng)
    centres = cells.points
    rows.ask(role.keep_labels, Cells(centres=centres))
    return PrivateClusters(
        model,
        centres,
        inertia_of(cells, noise, n_rows),
        cells.weights,
        noise,
        top.share_of_best(n_eigenvectors),
        int(np.count_nonzero(top.aligned[:n_eigenvectors])),
        sum(size.n_values for size in sizes.values()),
    )


def drawn_candidates(count: int, spread: Doubles, rng: np.random.Generator) -> Doubles:
    """Points where scores may be: as wide as they are in each direction, of norm 1 at most."""
    points = rng.standard_normal((count, len(spread))) * spread
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return np.asarray(points / np.maximum(norms, 1.0))


def noised_means(
    rows: Federation, setup: PrivateKMeansSetup, centres: Doubles, rng: np.random.Generator
) -> tuple[WeightedPoints, float]:
    """Where cells' rows are, how many, and the noise in each number.

    A cell that cannot be told from an empty one is of no weight. It goes to where the most rows are
    for the next round, a little off.
    """
    released = rows.total(PrivateClusterRows.noised_cells, Cells(centres=centres))
    mechanism = cells_mechanism(setup, *centres.shape)
    noise = sigma_in_sum(rows, mechanism, len(released.parties))
    sums, sizes = mechanism.read(released.sum.sums), mechanism.read(released.sum.sizes)
    full = sizes > _FAINT * noise
    points = centres.copy()
    points[full] = sums[full] / sizes[full, None]
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    points /= np.maximum(norms, 1.0)
    if full.any():
        crowded = np.flatnonzero(full)[np.argsort(-sizes[full])]
        empty = np.flatnonzero(~full)
        near = points[crowded[np.arange(len(empty)) % len(crowded)]]
        width = 0.3 * float(np.median(np.linalg.norm(points[full] - points[full].mean(0), axis=1)))
        points[empty] = near + width / np.sqrt(centres.shape[1]) * rng.standard_normal(near.shape)
    return WeightedPoints(points, np.where(full, sizes, 0.0)), noise


def inertia_of(cells: WeightedPoints, noise: float, n_rows: int) -> float:
    """Σ ‖e − μ‖² = n − Σ n_c ‖μ_c‖², without what noise adds to the squares."""
    full = cells.weights > 0
    means, sizes = cells.points[full], cells.weights[full]
    squares = (means**2).sum(axis=1) - means.shape[1] * (noise / sizes) ** 2
    return max(n_rows - float(sizes @ np.maximum(squares, 0.0)), 0.0)
