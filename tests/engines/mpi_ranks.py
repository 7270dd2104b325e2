"""Scripts run in every rank of an MPI job; each rank pays its imports, so let one job do much."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MPIRUN = Path(sys.executable).parent / "mpirun"
OPTIONS = "--allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1".split()


def require_mpi() -> None:
    """Skip the test where the package or its mpirun is missing."""
    if find_spec("mpi4py") is None or not MPIRUN.exists():
        pytest.skip("pip install 'eigenmesh[mpi]'")


def run_ranks(n: int, *script: object, timeout: float = 100.0) -> str:
    """What the ranks of a job print, which must end well."""
    ended = subprocess.run(
        [str(MPIRUN), *OPTIONS, "-n", str(n), sys.executable, "-m", "mpi4py", *map(str, script)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
