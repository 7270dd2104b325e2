"""How ranks open a federation together: all of them, the same one, within a time.

Rank 0 waits for the others, compares what they open with what it opens, and tells all of them.
Before that ranks need a communicator of their own, which MPI makes only with all of them; if one
does not come, those that wait call the roll, and say which party is missing.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from typing import Any

from mpi4py import MPI

from eigenmesh.engines._mpi_post import HERE, OPENING, VERDICT, Frame, Pause, Post
from eigenmesh.engines._mpi_start import LEAST_SECONDS
from eigenmesh.errors import FederationError, InputError, PartyLost
from eigenmesh.runtime import wire

_ROLL_CALL = 2.0  # seconds in which ranks that are there say so


class RankOpening:
    """What this rank does to open federations; the first time takes more."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self._duplication: tuple[MPI.Intracomm, MPI.Request] | None = None
        self._seconds = 0.0  # for the federation that is being opened
        self.is_under_way = False
        self.absent: list[int] = []  # who did not come

    def open(self, number: int, parties: tuple[str, ...], timeout: float) -> None:
        """Raise an error, at every rank, unless all open the same federation within `timeout`."""
        self.is_under_way, self.absent = True, []
        self._post.parties, self._post.timeout = parties, timeout
        self._seconds = max(timeout, LEAST_SECONDS)
        deadline = time.monotonic() + self._seconds
        if not self._post.is_open:
            self._duplicate(deadline)
        own = {
            "federation": hashlib.sha256(f"{number} {parties}".encode()).hexdigest(),
            "process": os.getpid(),
            "machine": zlib.crc32(MPI.Get_processor_name().encode()),
        }
        self._post.tell_others(Frame(OPENING, number, 0, wire.dumps(own)))
        if self._post.rank == 0:
            verdict = self._compare(number, own, deadline)
            self._post.tell_others(Frame(VERDICT, number, 0, wire.dumps(verdict)))
        else:
            verdict = self._hear_verdict(number, deadline)
        self._post.forget_notes(number)
        if verdict["absent"]:
            self._give_up([rank for rank in verdict["absent"] if rank != self._post.rank])
        machines, processes = verdict["machines"], verdict["processes"]
        self._post.processes = {
            rank: process
            for rank, process in enumerate(processes)
            if process and machines[rank] == own["machine"]
        }
        self._post.start_pulse()
        self.is_under_way = False
        if not verdict["same"]:
            raise InputError(
                "the ranks have opened different federations; every rank must run the same "
                "script, with the same parties in the same order"
            )

    # The first time: a communicator.

    def _duplicate(self, deadline: float) -> None:
        """The user's own messages on COMM_WORLD must not meet ours."""
        if self._duplication is None:
            self._duplication = MPI.COMM_WORLD.Idup()
        comm, request = self._duplication
        pause = Pause(self._post)
        while not request.Test():
            is_called = MPI.COMM_WORLD.Iprobe(MPI.ANY_SOURCE, HERE)
            if is_called or time.monotonic() > deadline:
                self._give_up(self._call_the_roll())
            pause()
        self._post.start(comm)

    def _call_the_roll(self) -> list[int]:
        """Which ranks do not say that they wait as well."""
        world, pause = MPI.COMM_WORLD, Pause(self._post)
        absent = [rank for rank in range(self._post.size) if rank != self._post.rank]
        for rank in absent:
            world.Isend([b"", MPI.BYTE], rank, HERE)
        end = time.monotonic() + _ROLL_CALL
        while absent and time.monotonic() < end:
            absent = [rank for rank in absent if world.Improbe(rank, HERE) is None]
            pause()
        return absent

    def _give_up(self, absent: list[int]) -> None:
        self.absent = absent
        if not absent:
            raise FederationError(
                "the other ranks have given up waiting for this one to open the federation; pass a "
                "longer timeout= to em.federation"
            )
        raise PartyLost(
            f"party {self._post.named(absent)} has not opened the federation within "
            f"{self._seconds:g} s; every rank must run the same script, and where one is late "
            f"em.federation needs a longer timeout=",
            party=self._post.parties[absent[0]],
        )

    # Every time: are all there, and for the same federation?

    def _compare(self, number: int, own: dict[str, Any], deadline: float) -> dict[str, Any]:
        """At rank 0. One whose process has died is not waited for: it will be a lost party."""
        post, pause = self._post, Pause(self._post)
        arrivals = {0: own}
        while True:
            post.hear_others()
            for rank in post.others:
                if (note := post.note(rank, OPENING, number)) is not None:
                    arrivals[rank] = wire.loads(note)
            absent = [r for r in post.others if r not in arrivals and r not in post.gone]
            if not absent or time.monotonic() > deadline:
                break
            pause()
        blank = {"process": 0, "machine": 0}
        ranks = [arrivals.get(rank, blank) for rank in range(post.size)]
        return {
            "absent": absent,
            "same": all(own["federation"] == other["federation"] for other in arrivals.values()),
            "processes": [rank["process"] for rank in ranks],
            "machines": [rank["machine"] for rank in ranks],
        }

    def _hear_verdict(self, number: int, deadline: float) -> Any:
        """Rank 0 may have come last, and then waits for the others as long as this one did."""
        post, pause = self._post, Pause(self._post)
        is_prolonged = False
        while (note := post.note(0, VERDICT, number)) is None:
            post.hear_others()
            if not is_prolonged and post.note(0, OPENING, number) is not None:
                deadline = time.monotonic() + self._seconds + _ROLL_CALL
                is_prolonged = True
            if time.monotonic() > deadline or 0 in post.gone:
                self._give_up([0])
            pause()
        return wire.loads(note)
