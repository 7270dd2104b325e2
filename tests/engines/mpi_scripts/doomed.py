"""A job in which the party of rank 1 comes to a bad end, at a given round.

main(HOW, AT): HOW is "kill" or "freeze" (its process), "raise" (its script, uncaught) or "leave"
(its script ends early); or it is rank 0 that is killed, "behead", or ends early, "part".
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Annotated, Any

import numpy as np

from eigenmesh.connect import federation
from eigenmesh.data import Partitioned
from eigenmesh.runtime.message import Floats, Message, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol

SIGNALS = {"kill": signal.SIGKILL, "behead": signal.SIGKILL, "freeze": signal.SIGSTOP}
NAMES = ["north", "east", "south"]


class Doom(Message, reveals=None):
    """How, and at which of its steps."""

    how: str
    at: int


class Value(Message, reveals="moments"):
    """A vector."""

    vector: Annotated[Floats, Shape("d")]


class Doomed(Party):
    """Ends when its time has come."""

    Setup = Doom
    state = ("steps",)

    def __init__(self, site: Any, setup: Doom) -> None:
        super().__init__(site, setup)
        self.steps = 0

    @step
    def tell(self) -> Value:
        """A vector, to coordinator or neighbours."""
        self.steps += 1
        mine = self.site.index == (0 if self.setup.how == "behead" else 1)
        if mine and self.steps == self.setup.at and self.setup.how in SIGNALS:
            print(f"DOOM {time.time()}", flush=True)
            os.kill(os.getpid(), SIGNALS[self.setup.how])
        return Value(np.ones(3))

    @step
    def take(self, received: dict[int, Value]) -> None:
        """Nothing."""


@protocol("doomed", roles=(Doomed,))
def doomed(parties: Any, doom: Doom) -> int:
    """Three rounds of asking, then three between neighbours."""
    parties.enlist(Doomed, doom)
    for _ in range(3):
        parties.ask(Doomed.tell)
    parties.exchange(Doomed.tell, Doomed.take, times=3)
    return len(parties.parties)


def main(how: str, at: str) -> None:
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    parts = Partitioned(rows=[np.ones((2, 2))] * 3, names=NAMES)
    with federation(parts, engine="mpi", topology="full", timeout=3.0) as fed:
        fed.run(doomed, Doom("", 0))
        if rank == {"raise": 1, "leave": 1, "part": 0}.get(how):
            print(f"DOOM {time.time()}", flush=True)
            if how == "raise":
                raise KeyError("no such column")
            sys.exit(0)
        fed.run(doomed, Doom(how, int(at)))
    print("FINISHED", flush=True)
