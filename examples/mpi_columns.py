"""Ranks of an MPI job, each with a file of columns that no other rank opens.

Run: mpirun -n 3 python -m mpi4py examples/mpi_columns.py
(as root or with fewer cores than ranks add --allow-run-as-root --oversubscribe
--mca mpi_yield_when_idle 1; any number of ranks from 2 will do)
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from mpi4py import MPI

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like


def main() -> None:
    rank, n_ranks = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    X, _ = gene_like(n_samples=120, n_features=900, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        # In real life the file is there already, on a disk that perhaps only this rank can see.
        own = Path(folder) / "columns.npy"
        np.save(own, np.array_split(X, n_ranks, axis=1)[rank])
        paths = [own if r == rank else f"/elsewhere/{r}.npy" for r in range(n_ranks)]

        # Every rank runs the same lines, and every rank ends with the model.
        kpca = em.OneShotKPCA(n_components=3, kernel="rbf", gamma="mean-distance")
        with em.federation(paths, split="columns", engine="mpi") as fed:
            kpca.fit(fed)
            scores = kpca.transform(fed)
        print(f"rank {rank} has its own share of the model and all scores, {scores.shape}")

    if rank == 0:
        print(kpca.report_)
        parts = em.split(X, n_parties=n_ranks, by="columns")
        central = em.OneShotKPCA(n_components=3, kernel="rbf", gamma="mean-distance").fit(parts)
        same = np.allclose(scores, central.transform(parts), rtol=1e-8)
        print("same scores as in one process:", same)


if __name__ == "__main__":
    main()
