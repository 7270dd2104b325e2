"""Ranks of an MPI job as the nodes of a graph: every rank talks to its neighbours only.

Run: mpirun -n 6 python -m mpi4py examples/mpi_graph.py
(as root or with fewer cores than ranks add --allow-run-as-root --oversubscribe
--mca mpi_yield_when_idle 1; any number of ranks from 3 will do)
"""

from __future__ import annotations

import time

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

import eigenmesh as em

GAMMA = 0.06
ROWS = 60  # a node


def rows_of(n_nodes: int) -> np.ndarray:
    """Digits 0, 3, 5 and 8; in real life a rank has its own and sees no others."""
    digits = load_digits()
    X = digits.data[np.isin(digits.target, [0, 3, 5, 8])] / 16
    rng = np.random.default_rng(0)
    return rng.permutation(X)[rng.integers(len(X), size=n_nodes * ROWS)]


def main() -> None:
    rank, n_nodes = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    X = rows_of(n_nodes)
    parts = em.Partitioned(rows=np.array_split(X, n_nodes))
    topology = ("lattice", 4) if n_nodes > 4 else "ring"

    # Rank 0 says what is done next; rows, coefficients and scores go from rank to rank.
    reference = X if n_nodes <= 10 else None
    admm = em.ADMMKPCA(1, kernel="rbf", gamma=GAMMA, n_iterations=5, reference=reference)
    gossip = em.GossipKPCA(1, kernel="rbf", gamma=GAMMA, n_rounds=8, n_features=40)
    started = time.perf_counter()
    with em.federation(parts, engine="mpi", topology=topology) as fed:
        admm.set_params(topology=topology).fit(fed)
        between = time.perf_counter()
        gossip.set_params(topology=topology).fit(fed)
    (own,) = admm.node_models_
    scores = admm.node_models_[own].transform(X)[:, 0]
    agree = abs(np.corrcoef(scores, gossip.transform(X)[:, 0])[0, 1])
    print(f"rank {rank} has the model of {own!r}; it agrees with gossip's: {agree:.3f}")

    if rank == 0:
        print(admm.report_)
        print(gossip.report_)
        seconds = (between - started, time.perf_counter() - between)
        print(f"{n_nodes} nodes: ADMM {seconds[0]:.1f} s, gossip {seconds[1]:.1f} s")
        here = em.ADMMKPCA(**admm.get_params()).fit(parts)
        same = np.allclose(here.transform(X)[:, 0], scores, atol=1e-8)
        print("same scores as in one process:", same)


if __name__ == "__main__":
    main()
