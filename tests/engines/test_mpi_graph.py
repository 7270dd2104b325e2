"""Graph methods on MPI: rank to rank, each rank with its own node's model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MPIRUN = Path(sys.executable).parent / "mpirun"
OPTIONS = "--allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1".split()

pytest.importorskip("mpi4py.run", reason="pip install 'eigenmesh[mpi]'")
pytestmark = pytest.mark.skipif(not MPIRUN.exists(), reason="pip install 'eigenmesh[mpi]'")


def test_example_runs_under_mpirun():
    run = [sys.executable, "-m", "mpi4py", str(ROOT / "examples" / "mpi_graph.py")]
    done = subprocess.run(
        [str(MPIRUN), *OPTIONS, "-n", "5", *run], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"rank (\d) has the model of 'party-\1'; .*: (\d\.\d+)", done.stdout)
    assert sorted(rank for rank, _ in found) == list("01234")
    assert all(float(agrees) > 0.99 for _, agrees in found)
    assert done.stdout.count("same scores as in one process: True") == 1
