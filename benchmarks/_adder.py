"""The smallest protocol for timing a round: vectors to all parties and back, or to neighbours."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol


class AdderSetup(Message, reveals=None):
    """How many floats."""

    n_floats: int


class Vector(Message, reveals="moments"):
    """Some floats."""

    values: Annotated[Floats, Shape("d")]


class Adder(Party):
    """Doubles what it is sent; on a graph, averages with its neighbours."""

    Setup = AdderSetup
    state = ("value",)

    def __init__(self, site: Any, setup: AdderSetup) -> None:
        super().__init__(site, setup)
        self.value = np.ones(setup.n_floats)

    @step
    def double(self, vector: Vector) -> Vector:
        """As much again."""
        return Vector(vector.values * 2.0)

    @step
    def offer(self) -> Vector:
        """To every neighbour."""
        return Vector(self.value)

    @step
    def take(self, received: dict[int, Vector]) -> None:
        """The mean of the neighbours' vectors and its own."""
        total = self.value + sum(other.values for other in received.values())
        self.value = total / (1 + len(received))


def timed(a_round: Callable[[], Any], n_rounds: int) -> list[float]:
    """Seconds of each round."""
    found = []
    for _ in range(n_rounds):
        started = time.perf_counter()
        a_round()
        found.append(time.perf_counter() - started)
    return found


@protocol("bench-star", roles=(Adder,))
def star_rounds(parties: Federation, n_floats: int, n_rounds: int) -> list[float]:
    """Seconds of each broadcast-and-sum."""
    parties.enlist(Adder, AdderSetup(n_floats))
    vector = Vector(np.ones(n_floats))
    return timed(lambda: parties.total(Adder.double, vector), n_rounds)


@protocol("bench-ring", roles=(Adder,))
def ring_rounds(parties: Federation, n_floats: int, n_rounds: int) -> list[float]:
    """Seconds of each exchange."""
    parties.enlist(Adder, AdderSetup(n_floats))
    return timed(lambda: parties.exchange(Adder.offer, Adder.take), n_rounds)
