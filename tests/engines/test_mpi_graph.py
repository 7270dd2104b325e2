"""Graph methods on MPI: rank to rank, each rank with its own node's model."""

from __future__ import annotations

import re

from tests.engines.mpi_ranks import ROOT, require_mpi, run_ranks


def test_example_runs_under_mpirun():
    require_mpi()
    output = run_ranks(5, ROOT / "examples" / "mpi_graph.py")
    agreements = re.findall(r"rank (\d) has the model of 'party-\1'; .*: (\d\.\d+)", output)
    assert sorted(rank for rank, _ in agreements) == list("01234")
    assert all(float(agreement) > 0.99 for _, agreement in agreements)
    assert output.count("same scores as in one process: True") == 1
