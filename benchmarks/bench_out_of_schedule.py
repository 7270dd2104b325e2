"""Random requests outside a study's schedule, for every method: how many are answered?

A host lives through a legal run and is sent, at random moments, requests that cannot come then:
requests of the run at another time, of other roles and steps, with larger messages, other
neighbours and other numbers. Whether one can come is decided by an oracle of its own, in
tests/contracts. None may be answered, and the legal run must still go through.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from _common import show

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.contracts.fits import FITS
from tests.contracts.intrusions import runs_at, sequence_with_intrusions


def intrude(number: int, attempts: int) -> tuple[int, int]:
    """How many requests were made, and in how many legal runs; one that is answered raises."""
    runs, made, seed = runs_at(number, "south"), 0, 0
    while made < attempts:
        rng = np.random.default_rng((number, seed, 7))
        made += sequence_with_intrusions(number, runs, rng)
        seed += 1
    return made, seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=10_000)
    parser.add_argument("--only", default="", help="a part of the method's name")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    table = []
    for number, fit in enumerate(FITS):
        if options.only in fit.name:
            started = time.perf_counter()
            made, runs = intrude(number, options.attempts)
            seconds = time.perf_counter() - started
            table.append([fit.name, f"{made:,}", str(runs), "0", f"{seconds:.0f}"])
    show("Out of schedule", ["fit", "requests", "legal runs", "answered", "s"], table)


if __name__ == "__main__":
    main()
