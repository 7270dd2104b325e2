"""What a fit sends along a tree and by gossip: floats, bytes and rounds, at the same answer.

    python benchmarks/bench_traffic.py            # drawn rows and columns
    EIGENMESH_DATA=DIR python benchmarks/bench_traffic.py --sets mnist higgs_26k

Each figure is gossip's over the tree's. "apart" is the largest relative difference of an eigenvalue
between both, "bits" whether all nodes have the very same model along the tree.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from _common import show

import eigenmesh as em

GRAPHS: dict[str, tuple[int, Any]] = {
    "ring": (20, "ring"),
    "lattice": (40, ("lattice", 4)),
    "path": (20, nx.path_graph(20)),
    "star": (20, "star"),
    "random-regular": (20, "random-regular"),
}
N_ROWS, N_SAMPLES = 1000, 80


def data_sets(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Drawn rows of decaying spread, and sets from the folder of data."""
    rng = np.random.default_rng(0)
    yield "drawn", rng.normal(size=(N_ROWS, 40)) * np.arange(1, 41) ** -0.7
    folder = os.environ.get("EIGENMESH_DATA")
    for name in names if folder else ():
        with np.load(Path(str(folder)) / f"{name}.npz", allow_pickle=False) as file:
            X = np.asarray(max((file[key] for key in file.files), key=np.size), float)
        X = X[rng.permutation(len(X))[:N_ROWS]].reshape(-1, X[0].size)
        yield name, (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)


def fits(X: Any, n: int, topology: Any) -> Iterator[tuple[Any, Any]]:
    """Estimators and the data that they are fitted to."""
    gamma = 1.0 / X.shape[1]
    rows = em.split(X, n, random_state=0)
    yield em.GossipKPCA(3, kernel="rbf", gamma=gamma, topology=topology, n_rounds=40), rows
    if X.shape[1] >= n:
        columns = em.split(X[:N_SAMPLES], n, by="columns")
        yield em.VFedPCA(2, topology=topology), columns
        yield em.VFedAKPCA(2, gamma=gamma, topology=topology), columns


def compared(estimator: Any, source: Any) -> list[str]:
    """Ratios of the reports of both ways, and whether they agree."""
    tree, gossip = (
        type(estimator)(**{**estimator.get_params(), "averaging": way}).fit(source)
        for way in ("tree", "gossip")
    )
    a, b = tree.report_, gossip.report_
    ratios = [b.floats_up / a.floats_up, b.bytes / a.bytes, b.rounds / a.rounds]
    apart = np.max(np.abs(tree.eigenvalues_ / gossip.eigenvalues_ - 1))
    models = list(getattr(tree, "node_models_", {}).values())
    same = all(np.array_equal(m.coefficients, models[0].coefficients) for m in models)
    bits = "" if not models else "same" if same else "DIFFER"
    return [f"{a.floats_up:,}", *(f"{ratio:.1f}×" for ratio in ratios), f"{apart:.1e}", bits]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=[])
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for data, X in data_sets(arguments.sets):
        for graph in arguments.graphs:
            n, topology = GRAPHS[graph]
            for estimator, source in fits(X, n, topology):
                name = [data, f"{graph} {n}", type(estimator).__name__]
                rows.append([*name, *compared(estimator, source)])
    columns = ["data", "graph", "estimator", "floats on the tree", "floats", "bytes", "rounds"]
    show("gossip over tree", [*columns, "apart", "bits"], rows)


if __name__ == "__main__":
    main()
