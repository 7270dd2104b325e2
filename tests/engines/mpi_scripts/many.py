"""Many ranks on few cores. main() says OK at every rank; rank 0 compares with one process."""

from __future__ import annotations

import os

import numpy as np

from eigenmesh.connect import federation
from eigenmesh.data import Partitioned
from eigenmesh.graphs.gossip_average import gossip_average
from eigenmesh.stages.count import survey


def main() -> None:
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    rng = np.random.default_rng(0)
    parts = Partitioned(rows=[rng.normal(size=(3, 4)) for _ in range(size)])
    found = runs(parts, "mpi")
    assert all(run.parties == parts.names for run in found)
    assert [reply.n_rows for reply in found[0].value] == [3] * size
    if rank == 0:
        for one, other in zip(found, runs(parts, "in-process"), strict=True):
            assert one.recording.ledger.entries == other.recording.ledger.entries
        means = np.array([reply.value for reply in found[1].value])
        np.testing.assert_allclose(means, [reply.value for reply in other.value], rtol=1e-8)
    seconds = found[1].recording.seconds
    print(f"OK {rank} of {size}, {seconds:.2f} s for 6 rounds", flush=True)


def runs(parts: Partitioned, engine: str) -> list:
    with federation(parts, engine=engine, topology="ring") as fed:
        return [fed.run(survey), fed.run(gossip_average, 5)]
