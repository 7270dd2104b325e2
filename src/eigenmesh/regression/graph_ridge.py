"""Ridge regression on kernel components without a centre; the targets stay at their nodes.

Every node scores its own rows with the model that kernel PCA on the graph left in its store
(`graph_models.KEPT`). Means and normal equations are averaged with the neighbours, and every node
solves them. Then every node predicts at the same probe points, and so it is known how far the nodes
are from having one answer: by their models, their coefficients or both.

=============  ============================================================================
node keeps     its rows, their scores Z_i (n_i, k) and targets y_i (n_i, m)
node reveals   to its neighbours, on their way to averages: sums over its rows (moments), of
               its targets, Z_iᵀZ_i and Z_iᵀy_i; on their way to the largest of all: mean
               and standard deviation of its columns (moments), unless it has fewer than
               MIN_CLUSTER rows; to whoever runs the schedule: the coefficients that it
               ends with, and its predictions at probes
=============  ============================================================================

A node of one row so reveals its target to its neighbours, as any sum over one row does. Nodes that
leave on the way are not in the answer: what they had a part in is averaged anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from eigenmesh.errors import FederationError, MissingPartyShare
from eigenmesh.graphs.consensus import (
    MixingParty,
    MixingSetup,
    NodeTotal,
    average,
    largest,
    largest_rounds,
    mixing_rounds,
    node_total,
)
from eigenmesh.graphs.node_models import KEPT
from eigenmesh.numerics.arrays import Doubles, Rows
from eigenmesh.numerics.centroids import MIN_CLUSTER
from eigenmesh.numerics.landmark_sums import full, upper
from eigenmesh.numerics.probes import column_extremes, probe_points, values_apart
from eigenmesh.numerics.ridge import RidgeFit, RidgeSums, ridge, ridge_sums
from eigenmesh.regression.component_ridge import TargetHolder
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, Positive, SameEverywhere, Shape
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import Node, Scope, ask, enlist, loop, sequence
from eigenmesh.runtime.site import SiteView

PROBES = 64
MOST_APART = 0.1  # of the predictions' spread, between any node and the first


class GraphRidgeSetup(MixingSetup, reveals=None):
    """Penalty, seed, and under which key of its own store a site keeps its rows' targets."""

    alpha: float
    seed: int
    targets: str


class TargetWidth(Message, reveals="counts"):
    """How many targets a row has."""

    n_targets: Annotated[int, Positive, SameEverywhere]


class NodeRidge(Message, reveals="moments", covers="joint"):
    """What a node ends with, `numerics.ridge.RidgeFit`, and what it so predicts at the probes."""

    coefficients: Annotated[Floats, Shape("k", "m")]
    intercept: Annotated[Floats, Shape("m")]
    r_squared: Annotated[Floats, Shape("m")]
    predictions: Annotated[Floats, Shape("p", "m")]


class GraphTargets(TargetHolder, MixingParty):
    """Holds rows, their targets and a model of the components."""

    Setup = GraphRidgeSetup
    state = (*MixingParty.state, "centre")

    def __init__(self, site: SiteView, setup: GraphRidgeSetup) -> None:
        super().__init__(site, setup)
        self.centre = np.zeros(0)

    @step
    def tell_width(self) -> TargetWidth:
        """Whether there is a target for every row is found on the way."""
        return TargetWidth(n_targets=self.own_targets().shape[1])

    @step(reusable=False)
    def begin_centre(self) -> None:
        """Average the targets over all rows; find out how wide the columns are."""
        y = self.own_targets()
        X = self.site.data
        few = len(y) < MIN_CLUSTER  # their mean would say too much of each
        self.peak = np.zeros(3 * X.shape[1]) if few else column_extremes(X)
        self.start_mixing(np.append(y.sum(axis=0), len(y)))

    @step(reusable=False)
    def begin_equations(self) -> None:
        """Average what scores and targets add up to; targets less their mean, for their digits."""
        if not self.centre.size:  # begun anew after a loss, any centre that is common will do
            self.centre = self.mixture[:-1] / self.mixture[-1]
        Z = self._scores(self.site.data)
        self.start_mixing(_packed(ridge_sums(Z, self.own_targets() - self.centre)))

    @step(reusable=False)
    def solve(self, whole: NodeTotal) -> NodeRidge:
        """The coefficients, from the sums over all nodes, and predictions of one's own."""
        sums = _unpacked(self.mixture * whole.n_nodes, len(self.centre))
        fit = ridge(sums, self.centre, self.setup.alpha)
        draws = np.random.SeedSequence(self.setup.seed, spawn_key=(graph_ridge.number,))
        probes = probe_points(self.peak, PROBES, np.random.default_rng(draws))
        predictions = self._scores(probes) @ fit.coefficients + fit.intercept
        return NodeRidge(**vars(fit), predictions=predictions)

    def _scores(self, X: Rows) -> Doubles:
        share = self.site.kept(KEPT, "consensus")
        if share is None:
            raise MissingPartyShare("this node has no model", party=self.site.name)
        return np.asarray(share["consensus"].transform(X), dtype=np.float64)


def _packed(sums: RidgeSums) -> Doubles:
    return np.concatenate([upper(sums.gram), *(np.ravel(part) for part in sums[1:])])


def _unpacked(values: Doubles, m: int) -> RidgeSums:
    """The sums of `_packed`, whose k(k+1)/2 + km + k + 2m + 1 entries tell k."""
    b = 3 + 2 * m
    k = round((np.sqrt(b * b + 8 * (values.size - 2 * m - 1)) - b) / 2)
    sizes = [k * (k + 1) // 2, k * m, k, m, m]
    triangle, cross, scores, targets, squares, n = np.split(values, np.cumsum(sizes))
    return RidgeSums(full(triangle), cross.reshape(k, m), scores, targets, squares, float(n[0]))


@record
@dataclass(frozen=True)
class GraphRidgeResult:
    """What the first node ends with, and how far any other's predictions are from its own."""

    fit: RidgeFit
    apart: float  # at the probes, as a share of the predictions' spread
    parties: tuple[str, ...]
    stop_reason: str = "every node has solved the normal equations"


def targets_schedule(scope: Scope, setup: GraphRidgeSetup) -> Node:
    """One question."""
    return sequence(enlist(GraphTargets, setup), ask(GraphTargets.tell_width))


@protocol("graph-targets", roles=(GraphTargets,), schedule=targets_schedule)
def graph_targets(nodes: Federation, setup: GraphRidgeSetup) -> int:
    """Targets a row; a node whose targets do not fit says so before anything leaves."""
    nodes.enlist(GraphTargets, setup)
    return int(nodes.ask(GraphTargets.tell_width)[0].n_targets)


def schedule(scope: Scope, setup: GraphRidgeSetup, n_components: int, n_targets: int) -> Node:
    """The targets' mean, then normal equations; these anew without a node that leaves."""
    node, k, m = GraphTargets, n_components, n_targets
    return sequence(
        enlist(node, setup),
        ask(node.begin_centre),
        mixing_rounds(scope, node, m + 1),
        largest_rounds(scope, node, lambda own: 3 * own.columns),
        loop(
            1 + scope.restarts,
            ask(node.begin_equations),
            mixing_rounds(scope, node, k * (k + 1) // 2 + k * m + k + 2 * m + 1),
            ask(node.solve, down=node_total(scope), up={"k": k, "m": m, "p": PROBES}),
            fewest=1,
            usual=1,
        ),
    )


@protocol("graph-ridge", roles=(GraphTargets,), schedule=schedule, begins_anew=True)
def graph_ridge(
    nodes: Federation, setup: GraphRidgeSetup, n_components: int, n_targets: int
) -> GraphRidgeResult:
    """Ridge with a free intercept on the scores by the models that are in the nodes' stores."""
    nodes.enlist(GraphTargets, setup)
    nodes.ask(GraphTargets.begin_centre)
    average(nodes, GraphTargets)
    largest(nodes, GraphTargets)
    covered, replies = None, Replies((), ())
    while covered != replies.parties:
        covered = nodes.parties
        nodes.ask(GraphTargets.begin_equations)
        average(nodes, GraphTargets)
        replies = nodes.ask(GraphTargets.solve, NodeTotal(n_nodes=len(nodes.parties)))
    first = RidgeFit(replies[0].coefficients, replies[0].intercept, replies[0].r_squared)
    apart = values_apart([one.predictions for one in replies])
    _require_one_answer(apart)
    return GraphRidgeResult(first, apart, replies.parties)


def _require_one_answer(apart: float) -> None:
    if apart > MOST_APART:
        raise FederationError(
            f"predictions of the nodes are up to {apart:.0%} of their spread apart, at most "
            f"{MOST_APART:.0%} is expected: too many messages were lost, or the nodes' components "
            f"do not agree; choose method='gossip', a graph with more edges or fewer components"
        )
