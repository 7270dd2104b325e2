"""MPI starts when it is imported, and waits for every rank, in C, with Python's lock held.

If one never comes, nothing in this process could end that wait. So a small process watches over
it, this very file: it ends with the wait, or ends the wait after `timeout`. It says which ranks of
its machine are stopped; `mpirun` then ends the job.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

LEAST_SECONDS = 4.0  # ranks never come at the same instant, however short a step's timeout is
_SIZE, _RANK = "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"  # set by mpirun


@contextmanager
def starting(parties: Sequence[str], timeout: float) -> Iterator[None]:
    """While MPI is imported: end this process if that takes longer than `timeout`."""
    if "mpi4py.MPI" in sys.modules or int(os.environ.get(_SIZE, "1")) < 2:
        yield
        return
    seconds = str(max(timeout, LEAST_SECONDS))
    watch = [sys.executable, "-I", "-S", __file__, seconds, str(os.getpid()), *parties]
    with subprocess.Popen(watch, stdin=subprocess.PIPE):  # its end closes the pipe, and waits
        yield


def main(timeout: str, process: str, *parties: str) -> None:
    """Watch over a process, until the pipe from it is closed."""
    has_started, _, _ = select.select([sys.stdin], [], [], float(timeout))
    if has_started:
        return
    stopped = [rank for rank in _stopped_ranks(int(process)) if rank < len(parties)]
    names = ", ".join(f"{parties[rank]!r} (rank {rank})" for rank in stopped)
    who = f"party {names} is stopped and has" if stopped else "some rank has"
    print(
        f"eigenmesh: {who} not started MPI within {float(timeout):g} s; every rank must run the "
        f"same script, and where one is late em.federation needs a longer timeout=",
        file=sys.stderr,
        flush=True,
    )
    os.kill(int(process), signal.SIGKILL)


def _stopped_ranks(process: int) -> list[int]:
    """Of the processes that have the same parent as this one."""
    ranks: list[int] = []
    own = Path("/proc", str(process))
    if not own.exists():  # a system without that folder, or the process has ended
        return ranks
    _, parent = _state_and_parent(own)
    for other in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            if _state_and_parent(other) == ("T", parent):
                ranks.append(_rank_of(other))
    return sorted(ranks)


def _state_and_parent(process: Path) -> tuple[str, int]:
    state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)


def _rank_of(process: Path) -> int:
    variables = (process / "environ").read_bytes().split(b"\0")
    values = dict(variable.partition(b"=")[::2] for variable in variables)
    return int(values.get(_RANK.encode(), b""))


if __name__ == "__main__":
    main(*sys.argv[1:])
