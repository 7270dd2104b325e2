"""The default engine with many parties: seconds to open, and milliseconds a party and round.

A party holds 3 rows of 2 floats; a message carries 10. A round with a coordinator sends a vector to
each party and adds up what comes back; a round on a ring sends one to both neighbours. What a party
costs must not grow with the number of parties. Given are the best round and, since a busy machine
stretches that, the mean CPU time. Run with `python benchmarks/bench_in_process.py`.
"""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np
from _adder import ring_rounds, star_rounds
from _common import show

import eigenmesh as em

SIZES, FLOATS, ROUNDS = (100, 1000, 10_000), 10, 5


def main() -> None:
    rows = [measured(n) for n in SIZES]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    columns = ["parties", "open", "star", "its CPU", "ring", "its CPU"]
    title = f"Seconds to open; ms a party and round of {FLOATS} floats (peak memory {peak:.0f} MB)"
    show(title, columns, rows)


def measured(n_parties: int) -> list[str]:
    started = time.perf_counter()
    parts = em.Partitioned(rows=[np.ones((3, 2))] * n_parties)
    with em.federation(parts, topology="ring") as fed:
        opened = time.perf_counter() - started
        found = [figure for study in (star_rounds, ring_rounds) for figure in costs(fed, study)]
    return [str(n_parties), f"{opened:.2f} s", *(f"{1e3 * f / n_parties:.3f}" for f in found)]


def costs(fed: Any, study: Any) -> tuple[float, float]:
    """Seconds of the best round, and CPU seconds of a round, enlisting not counted."""
    fed.run(study, FLOATS, 1)
    before = time.process_time()
    seconds = fed.run(study, FLOATS, ROUNDS).value
    between = time.process_time()
    fed.run(study, FLOATS, 0)
    enlisting = time.process_time() - between
    return min(seconds), (between - before - enlisting) / ROUNDS


if __name__ == "__main__":
    main()
