"""Average consensus: every node of a graph ends with the mean of all nodes' values.

Xiao and Boyd, "Fast linear iterations for distributed averaging", Systems & Control Letters 53,
2004, with the Metropolis weights of Xiao, Boyd and Lall, 2005.

=============  ==========================================================================
node keeps     its rows
node reveals   to its neighbours: the running mean of its columns (moments) and its degree
=============  ==========================================================================

The smallest protocol on a graph, and the one to copy. Each node starts from the mean of its own
rows; x_i ← x_i + Σ_j w_ij (x_j − x_i), w_ij = 1 / (1 + max(deg_i, deg_j)), keeps the sum of all
values, so the common limit is their plain mean: each node counts once, whatever its rows.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, Reveals, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import Node, Scope, ask, columns, enlist, exchange, sequence
from eigenmesh.runtime.site import SiteView


class AverageSetup(Message, reveals=None):
    """Nothing to agree on."""


class RunningMean(Message, reveals="moments"):
    """A node's estimate of the mean."""

    value: Annotated[Floats, Shape("d")]
    degree: Annotated[int, Reveals("counts")]


class AveragingNode(Party):
    """Holds rows; ends with the mean over all nodes."""

    Setup = AverageSetup
    state = ("value",)

    def __init__(self, site: SiteView, setup: AverageSetup) -> None:
        super().__init__(site, setup)
        self.value = np.asarray(site.data.mean(axis=0), dtype=float).ravel()

    @step
    def offer_mean(self) -> RunningMean:
        """The running mean, to every neighbour."""
        return RunningMean(value=self.value, degree=len(self.site.neighbours))

    @step
    def mix(self, received: dict[int, RunningMean]) -> None:
        """Move towards the neighbours; one that is silent simply does not pull."""
        own_degree = len(self.site.neighbours)
        pull = np.zeros_like(self.value)
        for other in received.values():
            pull += (other.value - self.value) / (1 + max(own_degree, other.degree))
        self.value = self.value + pull

    @step
    def tell_mean(self) -> RunningMean:
        """The result, to whoever runs the protocol."""
        return RunningMean(value=self.value, degree=len(self.site.neighbours))


def schedule(scope: Scope, n_rounds: int) -> Node:
    """`n_rounds` exchanges, then everybody tells."""
    return sequence(
        enlist(AveragingNode, AverageSetup()),
        exchange(AveragingNode.offer_mean, AveragingNode.mix, n_rounds, d=columns),
        ask(AveragingNode.tell_mean, d=columns),
    )


@protocol("gossip-average", roles=(AveragingNode,), schedule=schedule)
def gossip_average(nodes: Federation, n_rounds: int) -> Replies:
    """Every node's estimate after `n_rounds` exchanges."""
    nodes.enlist(AveragingNode, AverageSetup())
    nodes.exchange(AveragingNode.offer_mean, AveragingNode.mix, times=n_rounds)
    return nodes.ask(AveragingNode.tell_mean)
