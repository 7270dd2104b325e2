"""Fits in which a party lies once: whom errors blame, and whether numbers come out that cannot be.

All estimators of the contract tests, any of their replies, nine kinds of lie, about one field or
all. `make bench` draws 1,500; `python benchmarks/bench_lies.py 300 7` draws 300 with seed 7.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.contracts.fits import FITS
from tests.contracts.lies import drawn_lies, outcome_of


def main(count: int = 1500, seed: int = 0) -> int:
    """Exits with the number of lies that got through to somebody honest."""
    started, verdicts, bad = time.perf_counter(), Counter[str](), 0
    for lie in drawn_lies(count, seed):
        outcome = outcome_of(FITS[lie.fit], lie)
        problems = [*outcome.impossible]
        problems += ["blames the honest"] if outcome.blames_the_honest else []
        problems += ["foreign error"] if outcome.is_foreign else []
        verdict = "answer" if outcome.error is None else "nobody named"
        if outcome.error is not None and "south" in str(outcome.error):
            verdict = "the liar named"
        verdicts[verdict] += 1
        if problems:
            bad += 1
            print(FITS[lie.fit].name, lie, "; ".join(problems), repr(outcome.error)[:300])
    print(f"{count} lies in {time.perf_counter() - started:.0f} s: {dict(verdicts)}, {bad} bad")
    return bad


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:])), 100))
