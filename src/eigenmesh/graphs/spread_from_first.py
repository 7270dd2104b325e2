"""Passing on what the first node of a graph has found, so that all nodes have the very same.

Averages over a graph agree to rounding only. Where rounding is then magnified (by eigenvectors of
close eigenvalues, by what is left after nearly all has been subtracted), nodes that each went on
from their own average would part. So would nodes whose machines round differently, though along a
tree their averages are the same to the last bit. So the first node's result is passed on whole,
along the tree whose root it is; by gossip whoever has it gives it to its neighbours, and after as
many exchanges as the graph is wide all have it::

    nodes.ask(MyNode.propose)     # calls self.pass_on(any array), of one size at all nodes
    hand_down(nodes, MyNode)      # self.passed is now the first node's array, at every node

By gossip such protocols need averages that are right to rounding, whatever was lost on the way:
`settled_average` looks at the nodes' weights, which by their shares are all equal when nothing is
under way any more; by push-sum, at whether they move.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np

from eigenmesh.errors import MessageRefused, PartyLost
from eigenmesh.graphs.consensus import (
    MixingParty,
    MixingSetup,
    average,
    largest,
    largest_rounds,
    mixing_rounds,
)
from eigenmesh.graphs.tree_rounds import along_tree, tree_rounds
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, Shape
from eigenmesh.runtime.party import step
from eigenmesh.runtime.schedule import Amount, Node, Scope, Size, ask, loop, sequence
from eigenmesh.runtime.site import SiteView
from eigenmesh.runtime.spanning_tree import DOWN

NOTHING = -float(np.finfo(np.float64).max)  # below whatever is passed on: nothing is here yet


_SETTLED = 100.0  # times as near to rest as averages are to each other: they may settle slowly


class PassingSetup(MixingSetup, reveals=None):
    """Whose results are passed on."""

    first: int


class PassedOn(Message, reveals="eigenvectors", covers="joint"):
    """What the first node has found; or nothing yet."""

    value: Annotated[Floats, Shape("n")]
    number: int  # counts what is passed on: an old message must not mix with a new one


class MixWeight(Message, reveals="counts"):
    """The weight of a node's running sums, by the shares that it divides them in."""

    weight: float


class PassingParty(MixingParty):
    """Base of parties that go on from the first node's results. State: (*PassingParty.state, …)."""

    Setup: ClassVar[type[Message]] = PassingSetup
    state: ClassVar[tuple[str, ...]] = (*MixingParty.state, "passes")

    def __init__(self, site: SiteView, setup: Any) -> None:
        super().__init__(site, setup)
        self.passes = 0

    @property
    def is_first(self) -> bool:
        """Whether this node's results are those that count."""
        return bool(self.site.index == self.setup.first)

    def pass_on(self, values: Floats) -> None:
        """Begin to pass on the first node's array; of the others only its size is taken."""
        flat = np.asarray(values, np.float64).ravel()
        self.passes += 1
        self.peak = flat if self.is_first else np.full(flat.size, NOTHING)

    @property
    def passed(self) -> Doubles:
        """The first node's array, flat."""
        if self.peak.size and self.peak.min() <= NOTHING:
            raise MessageRefused("what the first node has found has not arrived")
        return self.peak

    @step(reusable=False)
    def tell_weight(self) -> MixWeight:
        """Equal at all nodes once their averages have settled, where messages may be lost.

        By push-sum weights end as the graph will have them, and what is told is how they moved.
        """
        if self.setup.push_sum:
            return MixWeight(weight=_SETTLED * float(self.mixing["moved"]))
        return MixWeight(weight=float(self.mixing["weight"]) / (1 + len(self.site.neighbours)))

    @step(cumulative=True)
    def offer_peak(self) -> PassedOn:
        """The first node's array, once it is known here."""
        return PassedOn(value=self.peak, number=self.passes)

    @step
    def take_peaks(self, received: dict[int, PassedOn]) -> None:
        """Whoever has it not yet takes it over."""
        for other in received.values():
            if other.number == self.passes and other.value.shape == self.peak.shape:
                self.peak = np.maximum(self.peak, other.value)


def hand_down(nodes: Federation, role: type[PassingParty]) -> None:
    """What the first node passes on comes to all."""
    if nodes.scope.gossips:
        largest(nodes, role)
    else:
        along_tree(nodes, role.offer_peak, role.take_peaks, (DOWN,))


def handing_down(scope: Scope, role: type[PassingParty], size: Size | Amount) -> Node:
    """`hand_down` of an array of `size` numbers."""
    if scope.gossips:
        return largest_rounds(scope, role, size)
    return tree_rounds(scope, role.offer_peak, role.take_peaks, (DOWN,), n=size)


_MOST_AVERAGES = 20


def settled_average(nodes: Federation, role: type[PassingParty]) -> None:
    """`average`, and anew as long as lost messages have left the nodes with unequal weights.

    A lost message comes with the next one, but has then to be mixed from there.
    """
    covered = nodes.parties
    average(nodes, role)
    if nodes.on_loss == "raise" or not nodes.scope.gossips:
        return
    for _ in range(_MOST_AVERAGES):
        weights = [reply.weight for reply in nodes.ask(role.tell_weight)]
        # Without a node that has left weights are others; its protocol begins anew.
        level = max(weights) - min(weights) <= 10 * nodes.scope.tolerance
        if level or nodes.parties != covered:
            return
        average(nodes, role)
    raise PartyLost(
        f"averages of the nodes have not settled in {_MOST_AVERAGES} attempts; too many messages "
        f"are lost"
    )


def settling(scope: Scope, role: type[PassingParty], size: Size | Amount) -> Node:
    """`settled_average` of arrays of `size` numbers."""
    mixes = mixing_rounds(scope, role, size)
    if not (scope.lossy and scope.gossips):
        return mixes
    weights = ask(role.tell_weight)
    return sequence(mixes, loop(_MOST_AVERAGES, weights, mixes, usual=0), weights)
