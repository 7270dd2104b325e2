"""A job in which the party of rank 1 comes to a bad end, at a given round.

main(HOW, AT, WHERE): HOW is "kill" or "freeze" (its process), "raise" (its script, uncaught) or
"leave" (its script ends early); or it is rank 0 that is killed, "behead", frozen, "stun", or ends
early, "part". WHERE is "run", at step AT, the "script", before the "opening" of a federation, or
before the "start" of MPI; when the error is "caught" the script goes on to its end, and "twice"
opens another federation.
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
from eigenmesh.errors import PartyLost
from eigenmesh.runtime.message import Floats, Message, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol

SIGNALS = {
    "kill": signal.SIGKILL,
    "behead": signal.SIGKILL,
    "freeze": signal.SIGSTOP,
    "stun": signal.SIGSTOP,
}
VICTIMS = {"behead": 0, "stun": 0, "part": 0}  # of all else it is rank 1
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
        mine = self.site.index == VICTIMS.get(self.setup.how, 1)
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


def main(how: str, at: str, where: str = "run", on_loss: str = "raise") -> None:
    if where != "start":  # on a busy machine ranks start at very different times
        from mpi4py import MPI  # noqa: F401
    if where in ("opening", "start"):
        strike(how)
    parts = Partitioned(rows=[np.ones((2, 2))] * 3, names=NAMES)
    options = {"engine": "mpi", "topology": "full", "timeout": 8.0 if where == "start" else 3.0}
    options["on_loss"] = on_loss
    with federation(parts, **options) as fed:
        fed.run(doomed, Doom("", 0))
        if where == "script":
            strike(how)
        try:
            run = fed.run(doomed, Doom(how, int(at)))
        except PartyLost as error:
            if where != "caught":
                raise
            print("CAUGHT", error, flush=True)
        else:
            print("FINISHED", run.value, "without", *run.lost, flush=True)
    if where == "twice":
        with federation(parts, **options) as fed:
            run = fed.run(doomed, Doom("", 0))
        print("AGAIN", run.value, "without", *run.lost, flush=True)


def strike(how: str) -> None:
    """In the script itself."""
    if int(os.environ["OMPI_COMM_WORLD_RANK"]) != VICTIMS.get(how, 1):
        return
    print(f"DOOM {time.time()}", flush=True)
    if how == "raise":
        raise KeyError("no such column")
    if how in SIGNALS:
        os.kill(os.getpid(), SIGNALS[how])
    else:
        sys.exit(0)
