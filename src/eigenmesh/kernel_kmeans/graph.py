"""k-means on a graph: Lloyd's iteration without a centre, on scores that stay at their nodes.

Forero, Cano and Giannakis, "Distributed clustering using wireless sensor networks", IEEE Journal of
Selected Topics in Signal Processing 5, 2011, ask that all nodes agree on the centres; here they do
after every step, since each step averages the clusters' sums to rounding (`consensus.py`), so that
the iteration is Lloyd's on the pooled scores.

=============  ===========================================================================
node keeps     its rows, scores and labels
node reveals   to its neighbours, on their way to averages: for each cluster the sum of its
               scores and kernel values (moments) and their weight; a node with a single row
               in a cluster so shows that row's scores to its neighbours
               to all, if it is the first: the centres to start from (moments)
=============  ===========================================================================

Every node has a model of its own in its store (`graph_models.py`). Candidates for the centres are
what all nodes know: the scores of the shared landmarks or, where there are none, draws from a
normal distribution with the scores' averaged mean and variances; each is weighed by the rows that
are nearest to it. What hangs on a choice that rounding could turn is made equal bit by bit: the
first node clusters the candidates and passes its starting points on; when a restart ends, and which
is best, is decided by the largest value of all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx

from eigenmesh.errors import PartyLost
from eigenmesh.graphs.consensus import average, largest, mixing, root_of
from eigenmesh.graphs.graph_forecast import GraphForecast
from eigenmesh.graphs.node_models import Question
from eigenmesh.kernel_kmeans.graph_node import (
    MOST_CANDIDATES,
    ClusterNode,
    ClusterOutcome,
    ClusterSetup,
    n_drawn,
)
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record

USUAL_ITERATIONS = 20  # of Lloyd, in forecasts: only the data decide


class Wanted(NamedTuple):
    """What is to be found; `span` is one of `cluster_node.SPANS`."""

    n_clusters: int
    n_init: int
    tol: float
    span: str
    weights: str
    seed: int


@record
@dataclass(frozen=True)
class GraphClusters:
    """What all nodes know; the labels are in their stores."""

    centres: Doubles  # (k', dim)
    weights: Doubles  # (k',)
    cost: float  # Σ w ‖z − nearest centre‖²
    inertia: float  # inside the span, an upper bound of that in feature space
    outside: float  # Σ w ‖φ(x) − Pφ(x)‖², P on the landmarks' span
    apart: float  # between nodes, the largest difference of a centre's coordinate
    parties: tuple[str, ...]
    n_iter: int
    stop_reason: str


class _NodeLeft(Exception):
    """A node has left in the middle of what needs all of them."""


def steps_for(span: str) -> list[Step]:
    """The steps that a run asks for."""
    node = ClusterNode
    drawn = [node.begin_spread, node.draw_candidates]
    steps = [node.score_landmarks] if span == "landmarks" else drawn
    steps += [node.begin_weights, node.propose_starts, node.take_starts]
    steps += [node.begin_sums, node.move, node.tell_moving, node.begin_clusters, node.tell_clusters]
    return [*steps, node.offer_mixture, node.take_mixture, node.offer_peak, node.take_peaks]


@protocol("graph-kmeans", roles=(ClusterNode,))
def graph_kmeans(nodes: Federation, wanted: Wanted, max_iter: int) -> GraphClusters:
    """Every node's side; anew without a node that leaves."""
    while True:
        covered = nodes.parties
        nodes.enlist(ClusterNode, _agreed(nodes, wanted), steps_for(wanted.span))
        try:
            _start(nodes, wanted.span, covered)
            n_iter, reason = _lloyd(nodes, wanted.tol, max_iter, covered)
            outcome = _conclude(nodes, covered)
        except _NodeLeft:
            continue
        return GraphClusters(**vars(outcome), parties=covered, n_iter=n_iter, stop_reason=reason)


def _agreed(nodes: Federation, wanted: Wanted) -> ClusterSetup:
    return ClusterSetup(
        **mixing(nodes),
        **wanted._asdict(),
        first=root_of(nodes),
        n_nodes=len(nodes.parties),
    )


def _start(nodes: Federation, span: str, covered: Sequence[str]) -> None:
    if span == "landmarks":
        nodes.ask(ClusterNode.score_landmarks)
    else:
        _averaged(nodes, ClusterNode.begin_spread, covered)
        nodes.ask(ClusterNode.draw_candidates)
    _averaged(nodes, ClusterNode.begin_weights, covered)
    nodes.ask(ClusterNode.propose_starts)
    _together(nodes, lambda: largest(nodes, ClusterNode), covered)
    nodes.ask(ClusterNode.take_starts)


def _lloyd(nodes: Federation, tol: float, max_iter: int, covered: Sequence[str]) -> tuple[int, str]:
    """All restarts in the same rounds, until the last one stays."""
    for done in range(1, max_iter + 1):
        _averaged(nodes, ClusterNode.begin_sums, covered)
        nodes.ask(ClusterNode.move)
        _together(nodes, lambda: largest(nodes, ClusterNode), covered)
        if not nodes.ask(ClusterNode.tell_moving)[0].n_moving:
            stays = f"moved by no more than {tol:g}" if tol else "stayed"
            return done, f"the centres {stays}"
    return max_iter, f"{max_iter} iterations were made"


def _conclude(nodes: Federation, covered: Sequence[str]) -> ClusterOutcome:
    _averaged(nodes, ClusterNode.begin_clusters, covered)
    _together(nodes, lambda: largest(nodes, ClusterNode), covered)
    for name in covered:  # the first that answers
        told = nodes.ask(ClusterNode.tell_clusters, each={name: Question()})
        if told.parties:
            outcome: ClusterOutcome = told[0]
            return outcome
    raise PartyLost("no node is left to tell the clusters")


def _averaged(nodes: Federation, begin: Step, covered: Sequence[str]) -> None:
    nodes.ask(begin)
    _together(nodes, lambda: average(nodes, ClusterNode), covered)


def _together(nodes: Federation, act: Callable[[], None], covered: Sequence[str]) -> None:
    """Act, and look whether everybody is still there."""
    act()
    if nodes.parties != covered:
        raise _NodeLeft


# What it will cost.


def forecast(
    ledger: Ledger,
    names: Sequence[str],
    sizes: Sequence[int],
    graph: nx.Graph,
    wanted: Wanted,
    dims: tuple[int, int],
    max_iter: int,
) -> None:
    """If no restart ends before `max_iter` or USUAL_ITERATIONS, and no cluster is missing.

    `dims` are those of the scores, and of the span: landmarks, features or scores.
    """
    known = GraphForecast(names, sizes, 0, graph, ledger)
    node, (dim, width), k, r = ClusterNode, dims, wanted.n_clusters, wanted.n_init
    m = n_drawn(k)
    known.asked()  # score_landmarks, or draw_candidates
    if wanted.span == "landmarks":
        m = len(range(0, width, -(-width // MOST_CANDIDATES)))
    else:
        known.asked()
        known.to_neighbours(node.offer_mixture, 2 * dim + 1, known.mixes)
    known.asked(3)
    known.to_neighbours(node.offer_mixture, m, known.mixes)
    known.to_neighbours(node.offer_peak, r * k * dim + 1, known.across)
    n_iter = min(max_iter, USUAL_ITERATIONS)
    known.asked(2 * n_iter)
    known.to_neighbours(node.offer_mixture, r * (k * dim + k + 1), n_iter * known.mixes)
    known.to_neighbours(node.offer_peak, 2 * r, n_iter * known.across)
    known.told(node.tell_moving, [0] * len(names), n_iter)
    known.asked()
    known.to_neighbours(node.offer_mixture, 3 + k + k * width, known.mixes)
    known.to_neighbours(node.offer_peak, 2 * k * dim, known.across)
    known.told(node.tell_clusters, [k * dim + k] + [0] * (len(names) - 1))
