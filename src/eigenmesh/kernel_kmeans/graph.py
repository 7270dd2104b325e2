"""k-means on a graph: Lloyd's iteration without a centre, on scores that stay at their nodes.

Forero, Cano and Giannakis, "Distributed clustering using wireless sensor networks", IEEE Journal of
Selected Topics in Signal Processing 5, 2011, ask that all nodes agree on the centres; here they do
after every step, since each step averages the clusters' sums to rounding (`consensus.py`), so that
the iteration is Lloyd's on the pooled scores.

=============  ===========================================================================
node keeps     its rows, scores and labels
node reveals   to its neighbours, on their way to averages: for each cluster the sum of its
               scores and kernel values (moments) and their weight; a node with a single row
               in a cluster so shows that row's scores to its neighbours; and four times, for
               each cluster, the sum of its scores weighed by the fourth power of their
               squared distances, which where a row is far from all others is about that
               row's scores; of whole groups (`GroupNode`) the same, no row alone
               to all, if it is the first: the centres to start from (moments)
               to whoever runs the fit: what clusters cost on average (moments)
=============  ===========================================================================

Every node has a model of its own in its store (`graph_models.py`). Candidates for the centres are
what all nodes know: the scores of the shared landmarks or, where there are none, draws from a
normal distribution with the scores' averaged mean and variances; each is weighed by the rows that
are nearest to it. A few rows far from all others are near no candidate, and may be clusters of
their own: where they are is averaged, and counts as candidates too.

Then clusters may be split and joined (`searches`), as with a coordinator
(`stages/distributed_kmeans.py`): each in some parts, two of Lloyd's rounds, Ward's rule until there
are k again, and Lloyd to the end. What is better stays.

Above the usual length: every act of a run stands twice, as rounds of the schedule and as what the
coordinator asks, and restarts, starts and searches are three such acts.

What hangs on a choice that rounding could turn is made equal bit by bit: the first node clusters
the candidates and passes its starting points on, and what becomes of parts that it joins; when a
restart ends, and which is best, is decided by the largest value of all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import numpy as np

from eigenmesh.errors import PartyLost
from eigenmesh.graphs.consensus import (
    average,
    enlist_left,
    graph_in,
    largest,
    largest_rounds,
    mixing_on,
    mixing_rounds,
    require_graph,
    root_on,
)
from eigenmesh.graphs.node_models import Question
from eigenmesh.graphs.spread_from_first import hand_down, handing_down
from eigenmesh.kernel_kmeans.graph_node import (
    LOOKS,
    ClusterCost,
    ClusterNode,
    ClusterOutcome,
    ClusterSetup,
    GroupNode,
    n_drawn,
    n_scored,
)
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import (
    Amount,
    Node,
    Scope,
    Size,
    ask,
    at_most,
    loop,
    maybe,
    restarted,
    sequence,
    times,
)
from eigenmesh.stages.distributed_kmeans import (
    FAR,
    LEAST_GAIN,
    SPLIT_ROUNDS,
    TRIAL_ROUNDS,
    USUAL_ITERATIONS,
    USUAL_TRIAL,
    parts_in_turn,
    patience,
)
from eigenmesh.stages.more_centres import IN_VAIN


@record
@dataclass(frozen=True)
class ClusterGoal:
    """What is to be found; `span` is one of `graph_node.SPANS`."""

    n_clusters: int
    n_init: int
    tol: float
    span: str
    weights: str
    seed: int
    searches: int = 0  # for better clusters, by splitting and joining
    groups: bool = False  # whether sums are over whole groups of rows
    keep_history: bool = False  # whether nodes tell what clusters cost after every step


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
    history: Doubles  # mean squared distance to the nearest centre: rounds, nodes


Role = type[ClusterNode]


def role_of(goal: ClusterGoal) -> Role:
    """Whoever sums single rows, or whole groups."""
    return GroupNode if goal.groups else ClusterNode


class _NodeLeft(Exception):
    """A node has left in the middle of what needs all of them."""


def schedule(scope: Scope, goal: ClusterGoal, max_iter: int, dim: int, width: int) -> Node:
    """Candidates, starts, Lloyd's iteration and what comes of it; anew without who leaves."""
    node, k = role_of(goal), goal.n_clusters
    landmarks = goal.span == "landmarks"
    m = n_scored(width) if landmarks else n_drawn(k)
    candidates: list[Node] = [ask(node.score_landmarks)]
    if not landmarks:
        spread = mixing_rounds(scope, node, 2 * dim + 1)
        candidates = [ask(node.begin_spread), spread, ask(node.draw_candidates)]
    return restarted(
        scope,
        enlist_left(scope, node, _agreed(graph_in(scope), goal)),
        *candidates,
        _proposing(scope, goal, dim, m),
        *(_looking(scope, goal, dim, m + look * k) for look in range(1, 1 + LOOKS)),
        _growing(scope, goal, dim),
        _iterations(scope, goal, max_iter, dim, goal.n_init),
        ask(node.keep_best),
        _searching(scope, goal, max_iter, dim),
        ask(node.begin_clusters),
        mixing_rounds(scope, node, at_most(3 + k + k * width)),
        largest_rounds(scope, node, at_most(2 * k * dim)),
        loop(scope.n_taking_part, _telling(node, k, dim), fewest=1, usual=1),
    )


def _proposing(scope: Scope, goal: ClusterGoal, dim: int, m: Size | Amount) -> Node:
    """Starts of m candidates."""
    node = role_of(goal)
    return sequence(
        ask(node.begin_weights),
        mixing_rounds(scope, node, m),
        ask(node.propose_starts),
        handing_down(scope, node, goal.n_init * goal.n_clusters * dim + 1),
        ask(node.take_starts),
    )


def _looking(scope: Scope, goal: ClusterGoal, dim: int, m: int) -> Node:
    """Far rows, and the starts of then m candidates; less where a start has fewer centres."""
    node = role_of(goal)
    return sequence(
        ask(node.begin_far),
        mixing_rounds(scope, node, at_most(goal.n_clusters * (dim + 1))),
        ask(node.add_far),
        _proposing(scope, goal, dim, at_most(m)),
    )


def _growing(scope: Scope, goal: ClusterGoal, dim: int) -> Node:
    """Centres in two parts, where candidates have given fewer than clusters."""
    node, k = role_of(goal), goal.n_clusters
    one = sequence(
        ask(node.split_starts),
        times(SPLIT_ROUNDS, _moving(scope, goal, 1, 2 * k, dim)),
        ask(node.propose_more),
        handing_down(scope, node, goal.n_init * k * dim + 1),
        ask(node.take_starts),
    )
    return loop(IN_VAIN * k, one, usual=0)


def _iterations(
    scope: Scope,
    goal: ClusterGoal,
    max_iter: int,
    dim: int,
    restarts: int,
    usual: int = USUAL_ITERATIONS,
) -> Node:
    """Of restarts that have stayed nothing is sent, and of clusters that are missing."""
    node = role_of(goal)
    return loop(
        max_iter,
        _moving(scope, goal, restarts, goal.n_clusters, dim),
        largest_rounds(scope, node, 2 * restarts),
        ask(node.tell_moving),
        ask(node.tell_costs, r=restarts) if goal.keep_history else None,
        fewest=1,
        usual=usual,
    )


def _moving(scope: Scope, goal: ClusterGoal, restarts: int, k: int, dim: int) -> Node:
    """One step of Lloyd's."""
    node = role_of(goal)
    return sequence(
        ask(node.begin_sums),
        mixing_rounds(scope, node, at_most(restarts * (k * dim + k + 1))),
        ask(node.move),
    )


def _searching(scope: Scope, goal: ClusterGoal, max_iter: int, dim: int) -> Node | None:
    """Clusters in parts, joined ones on trial, and what is better to its end."""
    if not goal.searches:
        return None
    node = role_of(goal)
    cost = ask(node.tell_cost)
    trial, to_the_end = (
        _iterations(scope, goal, most, dim, 1, USUAL_TRIAL) for most in (TRIAL_ROUNDS, max_iter)
    )

    def one(parts: int) -> Node:
        return sequence(
            *_beginning_parts(scope, goal, parts, dim),
            times(SPLIT_ROUNDS, _moving(scope, goal, 1, (parts or 2) * goal.n_clusters, dim)),
            ask(node.propose_joined),
            handing_down(scope, node, at_most(goal.n_clusters * dim)),
            ask(node.take_joined),
            trial,
            cost,
            maybe(maybe(to_the_end), cost, ask(node.keep_best), planned=False),
        )

    size = (goal.n_clusters, dim)
    tries = parts_in_turn(goal.searches, *size)
    return maybe(cost, *(maybe(one(parts), planned=n < patience(*size)) for n, parts in tries))


def _beginning_parts(scope: Scope, goal: ClusterGoal, parts: int, dim: int) -> list[Node]:
    """Beside the centres, or where rows are far from them."""
    node = role_of(goal)
    if parts != FAR:
        return [ask(node.split)]
    far = mixing_rounds(scope, node, at_most(goal.n_clusters * (dim + 1)))
    return [ask(node.return_to_best), ask(node.begin_far), far, ask(node.split_far)]


def _telling(node: Role, k: int, dim: int) -> Node:
    """The first node that answers tells."""
    first = at_most(k, planned=lambda own: 0 if own.index else k)
    return ask(node.tell_clusters, k=first, dim=dim, missable=True)


@protocol("graph-kmeans", roles=(ClusterNode, GroupNode), schedule=schedule)
def graph_kmeans(
    nodes: Federation, goal: ClusterGoal, max_iter: int, dim: int, width: int
) -> GraphClusters:
    """Every node's side; anew without a node that leaves.

    Scores have `dim` coordinates, the span `width`: as many as landmarks, features or scores.
    """
    node = role_of(goal)
    while True:
        covered = nodes.parties
        nodes.enlist(node, _agreed(require_graph(nodes), goal))
        try:
            _start(nodes, goal, covered)
            first = _lloyd(nodes, goal, max_iter, covered)
            nodes.ask(node.keep_best)
            n_more, courses = _search(nodes, goal, max_iter, dim, covered)
            outcome = _conclude(nodes, node, covered)
        except _NodeLeft:
            continue
        return GraphClusters(
            **vars(outcome),
            parties=covered,
            n_iter=first.n_iter + n_more,
            stop_reason=_why_it_ended(goal.tol, first),
            history=np.concatenate([first.course, *courses]),
        )


def _agreed(graph: nx.Graph, goal: ClusterGoal) -> ClusterSetup:
    mixed, terms = mixing_on(graph), {**vars(goal)}
    for name in ("searches", "groups", "keep_history"):  # of which schedule and role speak
        terms.pop(name)
    return ClusterSetup(**mixed, **terms, first=root_on(graph), n_nodes=len(graph))


def _start(nodes: Federation, goal: ClusterGoal, covered: Sequence[str]) -> None:
    node = role_of(goal)
    if goal.span == "landmarks":
        nodes.ask(node.score_landmarks)
    else:
        _averaged(nodes, node, node.begin_spread, covered)
        nodes.ask(node.draw_candidates)
    n_centres = _propose(nodes, node, covered)
    for _ in range(LOOKS):
        _averaged(nodes, node, node.begin_far, covered)
        nodes.ask(node.add_far)
        n_centres = _propose(nodes, node, covered)
    _grow(nodes, goal, n_centres, covered)


def _propose(nodes: Federation, node: Role, covered: Sequence[str]) -> int:
    _averaged(nodes, node, node.begin_weights, covered)
    nodes.ask(node.propose_starts)
    return _begun(nodes, node, covered)


def _begun(nodes: Federation, node: Role, covered: Sequence[str]) -> int:
    """How many centres the starts have that the first node passes on."""
    _together(nodes, lambda: hand_down(nodes, node), covered)
    return int(nodes.ask(node.take_starts)[0].n_centres)


def _grow(nodes: Federation, goal: ClusterGoal, n_centres: int, covered: Sequence[str]) -> None:
    """As `more_centres.grown` with a coordinator."""
    node, in_vain = role_of(goal), 0
    while n_centres < goal.n_clusters and in_vain < IN_VAIN:
        nodes.ask(node.split_starts)
        for _ in range(SPLIT_ROUNDS):
            _averaged(nodes, node, node.begin_sums, covered)
            nodes.ask(node.move)
        nodes.ask(node.propose_more)
        before, n_centres = n_centres, _begun(nodes, node, covered)
        in_vain = 0 if n_centres > before else in_vain + 1


class _End(NamedTuple):
    n_iter: int
    stayed: bool
    course: Doubles  # (n_iter, nodes) what the best restart cost; nothing where nodes do not tell


def _lloyd(nodes: Federation, goal: ClusterGoal, max_iter: int, covered: Sequence[str]) -> _End:
    """All restarts in the same rounds, until the last one stays."""
    node, costs = role_of(goal), list[Doubles]()
    n_iter, n_moving = 0, goal.n_init
    while n_moving and n_iter < max_iter:
        n_iter += 1
        _averaged(nodes, node, node.begin_sums, covered)
        nodes.ask(node.move)
        _together(nodes, lambda: largest(nodes, node), covered)
        n_moving = nodes.ask(node.tell_moving)[0].n_moving
        if goal.keep_history:
            costs.append(np.stack([own.costs for own in nodes.ask(node.tell_costs)]))
    course = np.zeros((0, len(covered)))
    if costs:
        course = np.stack(costs)[:, :, costs[-1][0].argmin()]
    return _End(n_iter, not n_moving, course)


def _why_it_ended(tol: float, end: _End) -> str:
    if not end.stayed:
        return f"{end.n_iter} iterations were made"
    return f"the centres moved by no more than {tol:g}" if tol else "the centres stayed"


def _search(
    nodes: Federation, goal: ClusterGoal, max_iter: int, dim: int, covered: Sequence[str]
) -> tuple[int, list[Doubles]]:
    """Split and join while that pays; how many rounds it took, and the course of those that did."""
    courses = list[Doubles]()
    if not goal.searches or goal.n_clusters < 2:
        return 0, courses
    node = role_of(goal)
    best, rounds, in_vain = nodes.ask(node.tell_cost)[0], 0, 0
    size = (goal.n_clusters, dim)
    for _, parts in parts_in_turn(goal.searches, *size):
        if best.cost <= best.enough or in_vain == patience(*size):
            break
        _split_and_join(nodes, node, parts, covered)
        trial = _lloyd(nodes, goal, TRIAL_ROUNDS, covered)
        rounds, in_vain = rounds + SPLIT_ROUNDS + trial.n_iter, in_vain + 1
        if _finds_better(nodes.ask(node.tell_cost)[0], best):
            courses.append(trial.course)
            if not trial.stayed:
                further = _lloyd(nodes, goal, max_iter, covered)
                rounds += further.n_iter
                courses.append(further.course)
            end = nodes.ask(node.tell_cost)[0]
            nodes.ask(node.keep_best)
            in_vain = 0 if end.cost < (1 - LEAST_GAIN) * best.cost else in_vain
            best = end
    return rounds, courses


def _finds_better(trial: ClusterCost, best: ClusterCost) -> bool:
    return trial.cost < best.cost


def _split_and_join(nodes: Federation, node: Role, parts: int, covered: Sequence[str]) -> None:
    if parts == FAR:
        nodes.ask(node.return_to_best)
        _averaged(nodes, node, node.begin_far, covered)
        nodes.ask(node.split_far)
    else:
        nodes.ask(node.split)
    for _ in range(SPLIT_ROUNDS):
        _averaged(nodes, node, node.begin_sums, covered)
        nodes.ask(node.move)
    nodes.ask(node.propose_joined)
    _together(nodes, lambda: hand_down(nodes, node), covered)
    nodes.ask(node.take_joined)


def _conclude(nodes: Federation, node: Role, covered: Sequence[str]) -> ClusterOutcome:
    _averaged(nodes, node, node.begin_clusters, covered)
    _together(nodes, lambda: largest(nodes, node), covered)
    for name in covered:  # the first that answers
        replies = nodes.ask(node.tell_clusters, each={name: Question()})
        if replies.parties:
            outcome: ClusterOutcome = replies[0]
            return outcome
    raise PartyLost("no node is left to tell the clusters")


def _averaged(nodes: Federation, node: Role, begin: Step, covered: Sequence[str]) -> None:
    nodes.ask(begin)
    _together(nodes, lambda: average(nodes, node), covered)


def _together(nodes: Federation, act: Callable[[], None], covered: Sequence[str]) -> None:
    """Act, and look whether everybody is still there."""
    act()
    if nodes.parties != covered:
        raise _NodeLeft
