"""MPI: seconds to start, and the median round, for bare mpi4py and through our layer.

Starts itself under `mpirun` with 5 ranks. A round with a coordinator sends 1000 floats to each
party and adds up 1000 from each; a ring round sends 1000 floats to both neighbours. Bare mpi4py
does the same on raw buffers, without checks, ledger, timeouts or names; rounds of all contestants
are interleaved in one run. Run with `python benchmarks/bench_mpi.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

RANKS, FLOATS, ROUNDS, REPEATS = 5, 1000, 60, 7
STARTED = "EIGENMESH_BENCH_STARTED"


def launch() -> None:
    mpirun = Path(sys.executable).parent / "mpirun"
    options = "--allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1".split()
    script = [sys.executable, "-m", "mpi4py", __file__]
    environment = {**os.environ, STARTED: str(time.time())}
    subprocess.run(
        [str(mpirun), *options, "-n", str(RANKS), *script], env=environment, check=True, timeout=600
    )


def main() -> None:
    from mpi4py import MPI

    clock = {"mpirun until mpi4py is imported": time.time()}
    from _adder import ring_rounds, star_rounds, timed

    import eigenmesh as em

    clock["import eigenmesh"] = time.time()
    comm = MPI.COMM_WORLD
    parts = em.Partitioned(rows=[np.ones((2, 2))] * RANKS)
    seconds: dict[str, list[float]] = {}
    with em.federation(parts, engine="mpi", topology="ring") as fed:
        clock["open the federation"] = time.time()
        bare = {
            "star, bare": bare_star,
            "star, bare, polled": polled_star,
            "star, bare, collective": bare_collective,
            "ring, bare": bare_ring,
            "ring, bare, told": told_ring,
        }
        ours = {"star, ours": star_rounds, "ring, ours": ring_rounds}
        for _ in range(REPEATS):
            for name, a_round in bare.items():
                seconds.setdefault(name, []).extend(timed(lambda r=a_round: r(comm), ROUNDS))
            for name, protocol in ours.items():
                seconds.setdefault(name, []).extend(fed.run(protocol, FLOATS, ROUNDS).value)
    if comm.rank == 0:
        show_all(seconds, clock)


def show_all(seconds: dict[str, list[float]], clock: dict[str, float]) -> None:
    from _common import show

    before = [float(os.environ[STARTED]), *clock.values()]
    rows = [[name, f"{clock[name] - t:.3f} s"] for name, t in zip(clock, before, strict=False)]
    show(f"Start-up, {RANKS} ranks", ["", "seconds"], rows)
    rows = []
    for name, own in seconds.items():
        ours = np.median(seconds[name.split(",")[0] + ", ours"])
        median = float(np.median(own))
        spread = f"{1e3 * np.quantile(own, 0.25):.2f}–{1e3 * np.quantile(own, 0.75):.2f}"
        rows.append([name, f"{1e3 * median:.3f}", spread, f"{ours / median:.2f}×"])
    title = f"Median round, {FLOATS} floats, {RANKS} ranks on {os.cpu_count()} cores (ms)"
    show(title, ["round", "median", "quartiles", "ours against it"], rows)


# Bare mpi4py.


def bare_star(comm: Any) -> np.ndarray:
    """Blocking sends and receives."""
    message = np.ones(FLOATS)
    if comm.rank:
        comm.Recv(message, 0, 11)
        comm.Send(message * 2.0, 0, 12)
        return message
    total, reply = message * 2.0, np.empty(FLOATS)
    for other in range(1, comm.size):
        comm.Send(message, other, 11)
    for other in range(1, comm.size):
        comm.Recv(reply, other, 12)
        total += reply
    return total


def polled_star(comm: Any) -> np.ndarray:
    """The same, waiting as a rank must that leaves the cores to others: sleeping between looks."""
    message = np.ones(FLOATS)
    if comm.rank:
        polled(comm, message, 0, 13)
        comm.Isend(message * 2.0, 0, 14).Wait()
        return message
    total, reply = message * 2.0, np.empty(FLOATS)
    sent = [comm.Isend(message, other, 13) for other in range(1, comm.size)]
    for other in range(1, comm.size):
        polled(comm, reply, other, 14)
        total += reply
    for request in sent:
        request.Wait()
    return total


def polled(comm: Any, buffer: np.ndarray, source: int, tag: int) -> None:
    request = comm.Irecv(buffer, source, tag)
    started = time.perf_counter()
    while not request.Test():
        if time.perf_counter() - started < 2e-4:
            os.sched_yield()
        else:
            time.sleep(1e-4)


def bare_collective(comm: Any) -> np.ndarray:
    from mpi4py import MPI

    message, total = np.ones(FLOATS), np.empty(FLOATS)
    comm.Bcast(message, 0)
    comm.Reduce(message * 2.0, total, MPI.SUM, 0)
    return total


def bare_ring(comm: Any) -> np.ndarray:
    """Both neighbours, with nobody who says when a round begins or hears that it is over."""
    message, left, right = np.ones(FLOATS), np.empty(FLOATS), np.empty(FLOATS)
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    comm.Sendrecv(message, after, 21, left, before, 21)
    comm.Sendrecv(message, before, 22, right, after, 22)
    return message + left + right


def told_ring(comm: Any) -> np.ndarray:
    """The same, with a word from rank 0 to begin and one back at the end, as in our layer."""
    word = np.zeros(8)
    if comm.rank:
        comm.Recv(word, 0, 23)
        result = bare_ring(comm)
        comm.Send(word, 0, 24)
        return result
    for other in range(1, comm.size):
        comm.Send(word, other, 23)
    result = bare_ring(comm)
    for other in range(1, comm.size):
        comm.Recv(word, other, 24)
    return result


if __name__ == "__main__":
    main() if STARTED in os.environ else launch()
