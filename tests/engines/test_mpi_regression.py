"""Regression on MPI: a rank knows its own targets only, and of columns one rank knows all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "mpi_scripts" / "regression.py"
MPIRUN = Path(sys.executable).parent / "mpirun"
OPTIONS = "--allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1".split()

pytest.importorskip("mpi4py.run", reason="pip install 'eigenmesh[mpi]'")
pytestmark = pytest.mark.skipif(not MPIRUN.exists(), reason="pip install 'eigenmesh[mpi]'")


def test_every_rank_ends_with_the_coefficients_of_one_process():
    run = [sys.executable, "-m", "mpi4py", str(SCRIPT)]
    done = subprocess.run(
        [str(MPIRUN), *OPTIONS, "-n", "3", *run], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(3):
        for method in ("diskpca", "sketching-pca", "gossip", "vfed-akpca"):
            assert f"rank {rank}: {method} same as alone: True" in done.stdout
        assert f"rank {rank}: refused: the parties have 120 samples" in done.stdout
