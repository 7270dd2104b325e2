"""Forecasts on graphs: what nodes will send to their neighbours, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from eigenmesh.graphs.consensus import mixes_on, rounds_over
from eigenmesh.graphs.shared_centroids import ROUNDS_A_HOP
from eigenmesh.graphs.spread_from_first import PassingParty
from eigenmesh.runtime.ledger import Ledger, forecast_entry, forecast_message
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.topology import is_lossy


@dataclass
class GraphForecast:
    """A ledger under construction.

    Where messages may be lost, more rounds are made; that any will be lost is not foreseen.
    """

    names: Sequence[str]
    sizes: Sequence[int]  # rows of each node
    width: int
    graph: nx.Graph
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self.distances = dict(nx.all_pairs_shortest_path_length(self.graph))
        self.lossy = is_lossy(self.graph)
        self.mixes = mixes_on(self.graph)
        self.across = rounds_over(self.graph)

    def told(self, step: Step, floats: Sequence[int], rounds: int = 1) -> None:
        """`floats` of each node, in so many rounds, once."""
        self.ledger.rounds += rounds
        for name, own in zip(self.names, floats, strict=True):
            self.ledger.entries.append(forecast_entry(step, name, own))

    def asked(self, rounds: int = 1) -> None:
        """Rounds in which nothing of size passes."""
        self.ledger.rounds += rounds

    def broadcast(self, step: Step, floats: int) -> None:
        """The same to every node."""
        for name in self.names:
            self.ledger.entries.append(forecast_message(step, name, floats))

    def to_neighbours(self, step: Step, size: int, rounds: int = 1) -> None:
        """The same array from each node to each neighbour, in every round."""
        if any(degree for _, degree in self.graph.degree):
            self.told(step, [self.graph.degree(i) * size * rounds for i in self.nodes], rounds)
        else:
            self.asked(rounds)

    def settled(self, role: type[PassingParty], size: int, times: int = 1) -> None:
        """`passing_on.settled_average`, so many times."""
        self.to_neighbours(a_step(role.offer_mixture), size, times * self.mixes)
        if self.lossy:
            self.told(a_step(role.tell_weight), [0] * len(self.names), times)

    @property
    def nodes(self) -> range:
        """The nodes by number."""
        return range(len(self.names))

    def around(self, i: int) -> int:
        """Rows of the neighbours of i."""
        return sum(self.sizes[j] for j in self.graph.neighbors(i))

    def spread(self, step: Step, counts: Sequence[int]) -> None:
        """Centroids: every node gets each once, from the first neighbour that is nearer to it."""
        totals = [0] * len(self.names)
        for i in self.nodes:
            for owner, far in self.distances[i].items():
                if far:
                    nearer = self.distances[owner]
                    giver = min(n for n in self.graph.neighbors(i) if nearer[n] == far - 1)
                    totals[giver] += counts[owner] * self.width
        self.told(step, totals, ROUNDS_A_HOP * self.across)
        if self.lossy:  # each node says what has come
            role: Any = step.role
            self.told(a_step(role.tell_centroids), [0] * len(self.names))


def a_step(declared: Any) -> Step:
    """A step of a role that is known only as a variable."""
    assert isinstance(declared, Step)
    return declared
