"""Many MPI ranks on few cores: every one takes part, and the answers are those of one process.

Starts tests/engines/mpi_scripts/many.py under `mpirun`: a survey with the coordinator and five
rounds around a ring. The suite starts twenty ranks, this eighty unless another number is given:
`python benchmarks/bench_mpi_ranks.py [RANKS]`.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from _common import show

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.engines.mpi_ranks import ROOT, run_ranks


def main(n_ranks: int) -> None:
    started = time.perf_counter()
    output = run_ranks(n_ranks, ROOT / "tests/engines/mpi_scripts/light.py", "many", timeout=600)
    seconds = time.perf_counter() - started
    rounds = [float(s) for s in re.findall(rf"OK \d+ of {n_ranks}, ([\d.]+) s", output)]
    assert len(rounds) == n_ranks, output
    rows = [[str(n_ranks), f"{seconds:.1f} s", f"{max(rounds):.2f} s"]]
    show("Ranks that share this machine", ["ranks", "whole job", "six rounds"], rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 80)
