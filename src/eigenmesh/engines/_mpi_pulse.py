"""Signs of life between rank 0 and the others, from a thread of their own.

A rank that computes for an hour is not a rank that hangs, and MPI cannot tell them apart. So each
rank says twice a second that it is there. One that is stopped (a debugger, a full machine, a
batch system) says nothing; one whose process was killed makes MPI raise an error, where `mpirun`
lets the others live.

Python's lock can keep the thread from speaking as long as one call into a library takes: SciPy
holds it through a whole eigendecomposition. Of ranks on its own machine a rank can see whether they
compute; of others, silence is all that it knows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from mpi4py import MPI

_SECONDS = 0.5  # between two signs
_LEAST_SILENCE = 3.0  # seconds that are no silence yet: processes wait for their turn on a core
_DEATHS = {
    getattr(MPI, name)
    for name in ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
    if hasattr(MPI, name)
}


class Pulse:
    """Signs to `others` and from them; `gone` gathers ranks whose process has died."""

    def __init__(
        self, comm: MPI.Intracomm, tag: int, others: Iterable[int], gone: set[int]
    ) -> None:
        self._comm = comm
        self._tag = tag
        self._gone = gone
        # What was silent while this rank was stopped itself does not count: it could not hear.
        self._silence = dict.fromkeys(others, 0.0)
        self._sent: dict[int, MPI.Request] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eigenmesh-pulse", daemon=True)
        self._thread.start()

    def is_silent(self, rank: int, seconds: float, process: int) -> bool:
        """Whether a rank has been silent for so long, and does not seem to compute either.

        `process` is that of the rank, 0 if it is on another machine.
        """
        if self._silence.get(rank, 0.0) <= max(seconds, _LEAST_SILENCE):
            return False
        if is_computing(process):
            self._silence[rank] = 0.0  # that is a sign of life, too
            return False
        return True

    def stop(self) -> None:
        """MPI must not be called once it is finalised."""
        self._end.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        before = time.monotonic()
        while not self._end.wait(_SECONDS):
            now = time.monotonic()
            awake, before = min(now - before, 2 * _SECONDS), now
            for rank in self._silence.keys() - self._gone:
                try:
                    self._silence[rank] = 0.0 if self._hear(rank) else self._silence[rank] + awake
                    self._speak(rank)
                except MPI.Exception as error:
                    note_death(error, rank, self._gone)

    def _hear(self, rank: int) -> bool:
        heard = False
        while (message := self._comm.Improbe(rank, self._tag)) is not None:
            message.Recv([bytearray(), MPI.BYTE])
            heard = True
        return heard

    def _speak(self, rank: int) -> None:
        if rank not in self._sent or self._sent[rank].Test():
            self._sent[rank] = self._comm.Isend([b"", MPI.BYTE], rank, self._tag)


def note_death(error: MPI.Exception, rank: int, gone: set[int]) -> None:
    """A process that has died is known by its error; any other error is raised."""
    if error.Get_error_class() not in _DEATHS:
        raise error
    gone.add(rank)


def is_computing(process: int) -> bool:
    """Whether a thread of this process runs, or would if it had its turn; False if none is seen."""
    if not process:
        return False
    for thread in Path(f"/proc/{process}/task").glob("*/stat"):
        with suppress(OSError, IndexError):
            if thread.read_text().rpartition(")")[2].split()[0] == "R":
                return True
    return False
