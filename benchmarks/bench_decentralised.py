"""Kernel PCA without a centre: how near each node comes, what it sends, and what it costs a node.

Run: python benchmarks/bench_decentralised.py [--data DIR] [--seeds 5] [--only similarity ...]

With DIR, the folder of mnist.npz (X, y), MNIST's digits 0, 3, 5, 8 as the paper has them; else
scikit-learn's small digits.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _common import show
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA
from threadpoolctl import threadpool_limits

import eigenmesh as em

LATTICE = ("lattice", 4)


class Setting(NamedTuple):
    """Who holds what."""

    name: str
    n_nodes: int = 20
    n_rows: int = 100
    topology: Any = LATTICE
    sorted_by_label: bool = False
    k: int = 1
    options: dict[str, Any] = {}  # noqa: RUF012


SETTINGS = [
    Setting("base"),
    Setting("40 rows a node", n_rows=40),
    Setting("80 nodes", n_nodes=80),
    Setting("2 neighbours", topology="ring"),
    Setting("a class a node", sorted_by_label=True),
    Setting("5 components", k=5),
    Setting("the paper's variant", options={"variant": "paper"}),
    Setting("and its penalties", options={"variant": "paper", "penalty": "paper"}),
    Setting("row noise 0.1", options={"row_noise": 0.1}),
]


class Rows:
    """The rows of digits 0, 3, 5 and 8, scaled to [0, 1]."""

    def __init__(self, folder: Path | None) -> None:
        if folder is None:
            digits = load_digits()
            X, y, largest = digits.data, digits.target, 16.0
        else:
            with np.load(folder / "mnist.npz", allow_pickle=False) as archive:
                X, y, largest = archive["X"], archive["y"], 255.0
        keep = np.isin(y, [0, 3, 5, 8])
        self.X, self.y = X[keep] / largest, y[keep]

    def draw(self, setting: Setting, seed: int) -> tuple[np.ndarray, float, em.Partitioned]:
        """Pooled rows, gamma = 0.5 / median d², and the rows at their nodes."""
        rng = np.random.default_rng(seed)
        n = setting.n_nodes * setting.n_rows
        chosen = rng.permutation(len(self.X))[:n]
        if setting.sorted_by_label:
            chosen = chosen[np.argsort(self.y[chosen], kind="stable")]
        X = self.X[chosen]
        sample = X[rng.permutation(len(X))[:500]]
        gamma = 0.5 / np.median(pdist(sample, "sqeuclidean"))
        return X, float(gamma), em.Partitioned(rows=np.array_split(X, setting.n_nodes))


def measured(rows: Rows, setting: Setting, seed: int) -> tuple[np.ndarray, float, float]:
    """The trace of 30 iterations, the ceiling, and by how much any node exceeds its own."""
    X, gamma, parts = rows.draw(setting, seed)
    known = {"topology": setting.topology, "kernel": "rbf", "gamma": gamma, "random_state": seed}
    kpca = em.ADMMKPCA(setting.k, n_iterations=30, reference=X, **known | setting.options).fit(
        parts
    )
    above = float(np.max(kpca.similarity_ - kpca.ceiling_))
    return kpca.trace_, float(kpca.ceiling_.mean()), above


def similarity(rows: Rows, seeds: int) -> None:
    """Means over nodes and seeds; smallest over the seeds where it says so."""
    table = []
    for setting in SETTINGS:
        if setting.n_nodes * setting.n_rows > len(rows.X):  # the small digits
            setting = setting._replace(n_nodes=12, n_rows=len(rows.X) // 12)
        found = [measured(rows, setting, seed) for seed in range(seeds)]
        traces = np.array([trace for trace, _, _ in found])  # (seeds, iterations, w or z)
        ceilings = np.array([ceiling for _, ceiling, _ in found])
        ratio = traces[:, 10, 0] / ceilings
        excess = max(above for _, _, above in found)
        w, z = traces.mean(axis=0).T
        table.append(
            [setting.name, f"{w[0]:.3f} {z[0]:.3f}", f"{ceilings.mean():.4f}"]
            + [f"{w[t]:.4f} {z[t]:.4f}" for t in (4, 10, 20, 30)]
            + [f"{traces[:, 4, 0].min():.4f}", f"{ratio.min():.4f}", f"{excess:.0e}"]
        )
    columns = "setting|start w z|ceiling|it 4|it 10|it 20|it 30|w it 4 min|w/ceil it 10 min|excess"
    show("ADMM: similarity of w and z with pooled kernel PCA", columns.split("|"), table)


def gossip(rows: Rows, seeds: int) -> None:
    table = []
    cases: list[tuple[int, dict[str, Any]]] = [
        (1, {}),
        (5, {}),
        (1, {"n_features": 60}),
        (1, {"features": "random", "n_features": 1000}),
    ]
    for k, options in cases:
        n_rows = 100 if len(rows.X) > 2000 else 35
        setting = Setting("", k=k, n_rows=n_rows)
        results = [_gossip_once(rows, setting, seed, options) for seed in range(seeds)]
        first, worst, apart, floats = np.array(results).T
        words = ", ".join(f"{key}={value}" for key, value in options.items()) or "default"
        row = [words, str(k), f"{first.min():.5f}", f"{worst.min():.5f}"]
        table.append([*row, f"{apart.max():.0e}", f"{floats.max():,.0f}"])
    columns = ["", "k", "r of 1st, min", "r of worst, min", "nodes apart", "floats a node, max"]
    show("Gossip: correlation of scores with pooled kernel PCA, no rows sent", columns, table)


def _gossip_once(rows: Rows, setting: Setting, seed: int, options: dict[str, Any]) -> list[float]:
    X, gamma, parts = rows.draw(setting, seed)
    kernel = {"kernel": "rbf", "gamma": gamma}
    kpca = em.GossipKPCA(setting.k, topology=LATTICE, random_state=seed, **kernel, **options).fit(
        parts
    )
    pooled = KernelPCA(setting.k, **kernel, random_state=0).fit_transform(X)
    scores = kpca.transform(X)
    pairs = zip(scores.T, pooled.T, strict=True)
    r = [abs(np.corrcoef(a, b)[0, 1]) for a, b in pairs]
    apart = max(np.abs(m.transform(X[:50]) - scores[:50]).max() for m in kpca.node_models_.values())
    return [r[0], min(r), apart, max(kpca.report_.by_party.values())]


def time_per_node(rows: Rows, seeds: int) -> None:
    """CPU seconds divided by the nodes, and of pooled kernel PCA.

    An iteration costs a node the same on any graph. What comes before and after, the centre and the
    variances, takes as many exchanges as it takes news to cross the graph: on a lattice more for
    more nodes, on a random graph hardly.
    """
    table = []
    n_rows = 100 if len(rows.X) > 2000 else 8
    for n_nodes in (10, 20, 40, 80):
        X, gamma, parts = rows.draw(Setting("", n_nodes=n_nodes, n_rows=n_rows), 0)
        kernel = {"kernel": "rbf", "gamma": gamma}
        row = [str(n_nodes)]
        with threadpool_limits(1):
            for topology in (LATTICE, "random-regular"):
                few, more = (
                    _cpu(em.ADMMKPCA(1, topology=topology, n_iterations=n, **kernel), parts)
                    for n in (10, 50)
                )
                row += [f"{few / n_nodes:.3f}", f"{(more - few) / 40 / n_nodes:.4f}"]
            row.append(f"{_cpu(KernelPCA(1, eigen_solver='dense', **kernel), X):.3f}")
        table.append(row)
    columns = ["nodes", "lattice, whole", "an iteration", "random, whole", "an iteration", "pooled"]
    show(f"CPU seconds a node, {n_rows} rows a node, 10 iterations", columns, table)


def _cpu(estimator: Any, data: Any) -> float:
    started = time.process_time()
    estimator.fit(data)
    return time.process_time() - started


PARTS = {"similarity": similarity, "gossip": gossip, "time": time_per_node}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--settings", nargs="+", default=None, help="names of settings")
    arguments = parser.parse_args()
    if arguments.settings:
        SETTINGS[:] = [s for s in SETTINGS if s.name in arguments.settings]
    warnings.simplefilter("ignore", em.EigenmeshWarning)
    rows = Rows(arguments.data)
    for name in arguments.only:
        PARTS[name](rows, arguments.seeds)


if __name__ == "__main__":
    main()
