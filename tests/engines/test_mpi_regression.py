"""Regression on MPI: a rank knows its own targets only, and of columns one rank knows all."""

from __future__ import annotations

from pathlib import Path

from tests.engines.mpi_ranks import require_mpi, run_ranks

SCRIPT = Path(__file__).parent / "mpi_scripts" / "regression.py"


def test_every_rank_ends_with_the_coefficients_of_one_process():
    require_mpi()
    output = run_ranks(3, SCRIPT)
    for rank in range(3):
        for method in ("diskpca", "sketching-pca", "gossip", "vfed-akpca"):
            assert f"rank {rank}: {method} same as alone: True" in output
        assert f"rank {rank}: refused: the parties have 120 samples" in output
