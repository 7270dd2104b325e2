"""Centroids that every node of a graph ends up with: landmarks without a centre and without rows.

=============  =======================================================================
node keeps     its rows
node reveals   to all nodes, passed on from neighbour to neighbour: means of at least
               MIN_CLUSTER of its rows each (centroids); a node with fewer gives none
=============  =======================================================================

Along a tree a node passes on to its parent what it and the nodes below have, then to each child
what that child has not: every centroid comes to every node once, in 2(n − 1) messages.

By gossip a node says whose centroids it has, asks one neighbour for each that it lacks, and gets
them: three exchanges a hop, and every centroid reaches every node once. A question that is not
answered, because a message was lost, is asked again. Where messages may be lost nodes say at the
end whose centroids they have, until all have the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import networkx as nx
import numpy as np

from eigenmesh.errors import MessageRefused, PartyLost, TopologyError
from eigenmesh.graphs.consensus import (
    MixingParty,
    graph_in,
    require_graph,
    rounds_across,
    rounds_in,
)
from eigenmesh.graphs.tree_rounds import along_tree, tree_rounds
from eigenmesh.numerics.arrays import Doubles, Rows
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Integers, Message, NonNegative, Reveals, Shape
from eigenmesh.runtime.party import Step, step
from eigenmesh.runtime.schedule import (
    Amount,
    Node,
    Own,
    Parties,
    Scope,
    ask,
    at_most,
    exchange,
    loop,
    sequence,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.runtime.spanning_tree import DOWN
from eigenmesh.runtime.topology import goes_one_way
from eigenmesh.stages.row_messages import by_party
from eigenmesh.stages.site_centroids import site_centroids
from eigenmesh.stages.unit_check import compare_units_at

ROUNDS_A_HOP = 3  # to say, to ask, to get
_ATTEMPTS = 20  # to spread them, where messages may be lost
_PATIENCE = 2  # exchanges from a question to its answer
Counts = Callable[[Parties], Sequence[int]]  # how many points each node begins with


class SharedCentroids(Message, reveals="centroids", covers="fewest"):
    """Whose centroids the sender has, whose it wants, and those that the receiver wanted."""

    has: Annotated[Integers, Reveals("counts"), Shape("h"), NonNegative]
    wants: Annotated[Integers, Reveals("counts"), Shape("w"), NonNegative]
    owners: Annotated[Integers, Reveals("counts"), Shape("m"), NonNegative]
    points: Annotated[Floats, Shape("m", "d")]


class CentroidsHere(Message, reveals="counts"):
    """Whose centroids a node has, and a digest of them."""

    owners: Annotated[Integers, Shape("h"), NonNegative]
    digest: Annotated[str, Reveals("centroids")]


class CentroidNode(MixingParty):
    """Base of nodes that share centroids, or other points. State: (*CentroidNode.state, ...)."""

    Shared: ClassVar[type[SharedCentroids]] = SharedCentroids

    state = (
        *MixingParty.state,
        "centroids_of",
        "holders",
        "questions",
        "tries",
        "requests",
        "shared",
    )

    def __init__(self, site: SiteView, setup: Any) -> None:
        super().__init__(site, setup)
        self.centroids_of: dict[str, Doubles] = {}  # by owner
        self.holders: dict[str, list[int]] = {}  # by owner, the neighbours that have them
        self.questions: dict[
            str, int
        ] = {}  # by owner, exchanges in which the answer may still come
        self.tries: dict[str, int] = {}  # by owner, questions so far
        self.requests: dict[str, list[int]] = {}  # by neighbour, whose centroids it wants
        self.shared = np.zeros((0, site.data.shape[1]))

    def start_sharing(self, rows: Rows, count: int, before: int = 0) -> None:
        """Begin with centroids of the own rows; they refine those that were shared `before`."""
        own = site_centroids(self.site, rows, count, before) if count else ()
        if len(own):
            self.centroids_of = {str(self.site.index): np.asarray(own, dtype=np.float64)}

    def end_sharing(self) -> None:
        """Everybody's centroids, if any came, join `shared`, in the order of their owners."""
        if not self.centroids_of:
            return
        owners = self._owners()
        self.shared = np.vstack([self.shared, *(self.centroids_of[owner] for owner in owners)])
        compare_units_at(self.site, {int(owner): self.centroids_of[owner] for owner in owners})
        # One array is quickly copied in every later round, hundreds of small ones are not.
        self.centroids_of, self.holders, self.questions, self.tries, self.requests = (
            {},
            {},
            {},
            {},
            {},
        )

    @step(cumulative=True)
    def offer_centroids(self) -> dict[int, SharedCentroids]:
        """Answers to the neighbours' questions, and the own questions."""
        return self.offers()

    def offers(self) -> dict[int, Any]:
        """The messages, of the type `Shared`."""
        if self.site.way:
            return self._along_tree()
        questions = self._questions()
        answers = {n: self.requests.get(str(n), []) for n in self.site.neighbours}
        self.requests = {}
        self.questions = {
            **self.questions,
            **{str(o): _PATIENCE for own in questions.values() for o in own},
        }
        return {n: self._message(questions[n], answers[n]) for n in self.site.neighbours}

    def _along_tree(self) -> dict[int, Any]:
        """To the parent all that came from below, to a child all but what it gave."""
        parent, children = self.site.parent, self.site.children
        near = children if self.site.way == DOWN or parent is None else (parent,)
        from_it = {n: set(self.requests.get(str(n), ())) for n in near}
        owners = list(map(int, self._owners()))
        return {
            n: self._message([], [o for o in owners if o not in own]) for n, own in from_it.items()
        }

    def _owners(self) -> list[str]:
        """Whose centroids are here, in order; without those of nodes that have left."""
        gone = self.site.missing.nodes
        return [own for own in sorted(self.centroids_of, key=int) if int(own) not in gone]

    def _questions(self) -> dict[int, list[int]]:
        """Of each neighbour, what it has and this node lacks; nothing is asked of two."""
        questions: dict[int, list[int]] = {n: [] for n in self.site.neighbours}
        for owner, holders in self.holders.items():
            there = [n for n in holders if n in questions]
            if there and owner not in self.centroids_of and owner not in self.questions:
                # Another each time: a link may be dead.
                tried = self.tries.get(owner, 0)
                questions[there[tried % len(there)]].append(int(owner))
                self.tries = {**self.tries, owner: tried + 1}
        return questions

    def _message(self, wants: list[int], answers: list[int]) -> Any:
        owners = [owner for owner in answers for _ in self.centroids_of[str(owner)]]
        nothing = np.zeros((0, self.shared.shape[1]))
        here = () if self.site.way else sorted(map(int, self.centroids_of))
        return self.Shared(
            has=np.array(here, dtype=np.int64),
            wants=np.array(wants, dtype=np.int64),
            owners=np.array(owners, dtype=np.int64),
            points=np.vstack([nothing, *(self.centroids_of[str(owner)] for owner in answers)]),
        )

    @step
    def take_centroids(self, received: dict[int, SharedCentroids]) -> None:
        """Keep what came; note who has what, and who wants what."""
        self.take(received)

    def take(self, received: Mapping[int, Any]) -> None:
        """The same of messages of the type `Shared`."""
        centroids_of, offered = dict(self.centroids_of), dict(self.holders)
        for sender, message in sorted(received.items()):
            if max(*message.owners, *message.has, -1, -1) >= len(self.site.names):
                raise MessageRefused("what a neighbour passes on is of no party of the federation")
            if message.points.shape[1] != self.shared.shape[1]:
                raise MessageRefused(
                    f"points of {message.points.shape[1]} columns came where "
                    f"{self.shared.shape[1]} are shared",
                    party=self.site.names[sender],
                )
            for owner in np.unique(message.owners).tolist():
                centroids_of.setdefault(str(owner), message.points[message.owners == owner])
            for owner in message.has.tolist():
                offered[str(owner)] = sorted({*offered.get(str(owner), []), sender})
            requests = [o for o in message.wants.tolist() if str(o) in self.centroids_of]
            if self.site.way:  # what it has, it need not be given
                requests = np.unique(message.owners).tolist()
            self.requests = {**self.requests, str(sender): requests}
        waiting = {owner: left - 1 for owner, left in self.questions.items() if left > 1}
        self.questions = {
            owner: left for owner, left in waiting.items() if owner not in centroids_of
        }
        self.centroids_of, self.holders = centroids_of, offered

    @step(reusable=False)
    def tell_centroids(self) -> CentroidsHere:
        """What has come."""
        owners = list(map(int, self._owners()))
        data = b"".join(np.ascontiguousarray(self.centroids_of[str(o)]).tobytes() for o in owners)
        digest = hashlib.sha256(data).hexdigest()
        return CentroidsHere(owners=np.array(owners, dtype=np.int64), digest=digest)


def spread(
    nodes: Federation, role: type[CentroidNode], send: Step | None = None, take: Step | None = None
) -> None:
    """Until everybody has everybody's centroids; or other points, by steps of their own."""
    sends: Any = send or role.offer_centroids
    takes: Any = take or role.take_centroids
    _require_answers(require_graph(nodes))
    for _ in range(_ATTEMPTS):
        if nodes.scope.gossips:
            nodes.exchange(sends, takes, times=ROUNDS_A_HOP * rounds_across(nodes))
        else:
            along_tree(nodes, sends, takes)
        if nodes.on_loss == "raise":
            return
        here = by_party(nodes.ask(role.tell_centroids))
        owners = set().union(*(own.owners.tolist() for own in here.values()))
        missing = {name: len(owners - set(own.owners.tolist())) for name, own in here.items()}
        if not any(missing.values()):
            _require_same({name: own.digest for name, own in here.items()})
            return
    most = sorted((name for name in missing if missing[name]), key=lambda name: -missing[name])
    raise PartyLost(
        f"centroids of {missing[most[0]]} nodes have not come to {most[0]!r}, and of some to "
        f"{len(most) - 1} more, in {_ATTEMPTS} attempts; too many messages are lost: choose a "
        f"graph with more edges"
    )


def spreading(
    scope: Scope,
    role: type[CentroidNode],
    counts: Counts,
    most: int,
    width: Amount,
    send: Step | None = None,
    take: Step | None = None,
) -> Node:
    """`spread` of at most so many points of this width.

    In a plan each node begins with `counts` of them, and gets every other node's once: along the
    tree, or by gossip from its first neighbour that is nearer to them.
    """
    _require_answers(graph_in(scope))
    steps = (send or role.offer_centroids, take or role.take_centroids)
    n = scope.n_taking_part
    sizes: dict[str, Any] = {"h": at_most(n), "w": at_most(n), "d": width}
    if scope.gossips:
        hops = _hops(scope, steps, counts, most, sizes)
    else:
        m = at_most(most, lambda own: _given_on_tree(own, counts))
        hops = tree_rounds(scope, *steps, m=m, **sizes)
    if not scope.lossy:
        return hops
    return loop(_ATTEMPTS, hops, ask(role.tell_centroids, h=at_most(n)), fewest=1, usual=1)


def _require_answers(graph: nx.Graph) -> None:
    """Points are asked for, and come back over the same link."""
    if goes_one_way(graph):
        raise TopologyError(
            "links go one way, over which nodes cannot ask each other for centroids or sketches; "
            "features='random' and a gamma that is a number, 'scale' or 'mean-distance' are "
            "expected, or an nx.Graph"
        )


def _given_on_tree(own: Own, counts: Counts) -> int:
    """Of a plan: how many points are on a node's side of the link that its message goes along."""
    assert own.parties is not None, "who gives what is for plans"
    assert own.receiver is not None, "points go to neighbours"
    numbers, tree, to = counts(own.parties), own.parties.tree, own.receiver.index
    if tree.parents.get(own.index) == to:
        return sum(numbers[owner] for owner in tree.below[own.index])
    return sum(numbers) - sum(numbers[owner] for owner in tree.below[to])


def _hops(
    scope: Scope, steps: tuple[Step, Step], counts: Counts, most: int, sizes: Mapping[str, Any]
) -> Node:
    """By gossip."""
    usual, longest = rounds_in(scope)

    def rounds(at_once: int, all_of_them: int, planned: Amount) -> Node:
        fewest = 0 if scope.lossy else None
        m = at_most(most, planned)
        return exchange(*steps, all_of_them, fewest, at_once, 0, m=m, **sizes)

    first, times = min(usual, 1), ROUNDS_A_HOP * usual
    return sequence(
        rounds(first, first, lambda own: _given(own, counts)),  # a plan has it all in one round
        rounds(times - first, ROUNDS_A_HOP * longest - first, 0),
    )


def _given(own: Own, counts: Counts) -> int:
    """Of a plan: how many points a node gives to the neighbour that its message goes to."""
    assert own.parties is not None, "who gives what is for plans"
    assert own.receiver is not None, "points go to neighbours"
    numbers = counts(own.parties)
    owners = _givers(own.parties)[own.index, own.receiver.index]
    return sum(numbers[owner] for owner in owners)


@lru_cache(maxsize=8)
def _givers(parties: Parties) -> Mapping[tuple[int, int], list[int]]:
    """By giver and receiver, whose points pass between them."""
    graph = parties.graph
    assert graph is not None, "neighbours are those of a graph"
    distances = dict(nx.all_pairs_shortest_path_length(graph))
    owners: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i in parties.numbers:
        for owner, far in distances[i].items():
            if far:
                nearer = distances[owner]
                giver = min(n for n in graph.neighbors(i) if nearer[n] == far - 1)
                owners[giver, i].append(owner)
    return owners


def _require_same(digests: Mapping[str, str]) -> None:
    """A centroid that was damaged on its way would be another landmark at those who got it."""
    common, _ = Counter(digests.values()).most_common(1)[0]
    apart = [name for name, digest in digests.items() if digest != common]
    if apart:
        raise MessageRefused(
            f"the centroids that came to {', '.join(map(repr, apart[:5]))} are not those of the "
            f"other nodes: messages were damaged on their way; fit again"
        )
