"""Centroids that every node of a graph ends up with: landmarks without a centre and without rows.

=============  =======================================================================
node keeps     its rows
node reveals   to all nodes, passed on from neighbour to neighbour: means of at least
               MIN_CLUSTER of its rows each (centroids); a node with fewer gives none
=============  =======================================================================

A node says whose centroids it has, asks one neighbour for each that it lacks, and gets them: three
exchanges a hop, and every centroid reaches every node once. A question that is not answered,
because a message was lost, is asked again.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from eigenmesh.federation.federation import Federation
from eigenmesh.federation.message import Floats, Integers, Message, NonNegative, Reveals, Shape
from eigenmesh.federation.party import step
from eigenmesh.federation.site import SiteView
from eigenmesh.numerics.arrays import Doubles, Rows
from eigenmesh.numerics.centroids import centroids
from eigenmesh.protocols.consensus import MixingParty, rounds_across
from eigenmesh.protocols.unit_check import compare_units_at

MIN_CLUSTER = 5  # a mean of fewer rows says too much of each
ROUNDS_A_HOP = 3  # to say, to ask, to get
_PATIENCE = 2  # exchanges from a question to its answer


class SharedCentroids(Message, reveals="centroids"):
    """Whose centroids the sender has, whose it wants, and those that the receiver wanted."""

    has: Annotated[Integers, Reveals("counts"), Shape("h"), NonNegative]
    wants: Annotated[Integers, Reveals("counts"), Shape("w"), NonNegative]
    owners: Annotated[Integers, Reveals("counts"), Shape("m"), NonNegative]
    points: Annotated[Floats, Shape("m", "d")]


class CentroidNode(MixingParty):
    """Base of nodes that share centroids. State: (*CentroidNode.state, ...)."""

    state = (*MixingParty.state, "known", "offered", "asked", "wanted", "shared")

    def __init__(self, site: SiteView, setup: Any) -> None:
        super().__init__(site, setup)
        self.known: dict[str, Doubles] = {}  # by owner
        self.offered: dict[str, list[int]] = {}  # by owner, the neighbours that have them
        self.asked: dict[str, int] = {}  # by owner, exchanges in which the answer may still come
        self.wanted: dict[str, list[int]] = {}  # by neighbour, whose centroids it wants
        self.shared = np.zeros((0, site.data.shape[1]))

    def start_sharing(self, rows: Rows, count: int, seed: int) -> None:
        """Begin with the centroids of the own rows."""
        own = centroids(rows, count, MIN_CLUSTER, seed) if count else ()
        if len(own):
            self.known = {str(self.site.index): np.asarray(own, dtype=np.float64)}

    def end_sharing(self) -> None:
        """Everybody's centroids, if any came, join `shared`, in the order of their owners."""
        if not self.known:
            return
        owners = sorted(self.known, key=int)
        self.shared = np.vstack([self.shared, *(self.known[owner] for owner in owners)])
        compare_units_at(self.site, {int(owner): self.known[owner] for owner in owners})
        # One array is quickly copied in every later round, hundreds of small ones are not.
        self.known, self.offered, self.asked, self.wanted = {}, {}, {}, {}

    @step
    def offer_centroids(self) -> dict[int, SharedCentroids]:
        """Answers to the neighbours' questions, and the own questions."""
        questions = self._questions()
        answers = {n: self.wanted.get(str(n), []) for n in self.site.neighbours}
        self.wanted = {}
        self.asked = {
            **self.asked,
            **{str(o): _PATIENCE for own in questions.values() for o in own},
        }
        return {n: self._message(questions[n], answers[n]) for n in self.site.neighbours}

    def _questions(self) -> dict[int, list[int]]:
        """Of each neighbour, what it has and this node lacks; nothing is asked of two."""
        questions: dict[int, list[int]] = {n: [] for n in self.site.neighbours}
        for owner, holders in self.offered.items():
            there = [n for n in holders if n in questions]
            if there and owner not in self.known and owner not in self.asked:
                questions[min(there)].append(int(owner))
        return questions

    def _message(self, wants: list[int], answers: list[int]) -> SharedCentroids:
        owners = [owner for owner in answers for _ in self.known[str(owner)]]
        nothing = np.zeros((0, self.site.data.shape[1]))
        return SharedCentroids(
            has=np.array(sorted(map(int, self.known)), dtype=np.int64),
            wants=np.array(wants, dtype=np.int64),
            owners=np.array(owners, dtype=np.int64),
            points=np.vstack([nothing, *(self.known[str(owner)] for owner in answers)]),
        )

    @step
    def take_centroids(self, received: dict[int, SharedCentroids]) -> None:
        """Keep what came; note who has what, and who wants what."""
        known, offered = dict(self.known), dict(self.offered)
        for sender, message in sorted(received.items()):
            for owner in np.unique(message.owners).tolist():
                known.setdefault(str(owner), message.points[message.owners == owner])
            for owner in message.has.tolist():
                offered[str(owner)] = sorted({*offered.get(str(owner), []), sender})
            wanted = [o for o in message.wants.tolist() if str(o) in self.known]
            self.wanted = {**self.wanted, str(sender): wanted}
        waiting = {owner: left - 1 for owner, left in self.asked.items() if left > 1}
        self.asked = {owner: left for owner, left in waiting.items() if owner not in known}
        self.known, self.offered = known, offered


def spread(nodes: Federation, role: type[CentroidNode]) -> None:
    """Until everybody has everybody's centroids."""
    times = ROUNDS_A_HOP * rounds_across(nodes)
    nodes.exchange(role.offer_centroids, role.take_centroids, times=times)
