"""Eigenvectors in fewer bits: bytes and error of one-shot kernel PCA, as ratios in one run.

Sets of EIGENMESH_DATA, `name.npz` with an array X, and drawn ones. Error is ‖sin Θ‖ to the
components of the pooled samples. Run with `python benchmarks/bench_precision.py`.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _common import show
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like, paper_linear
from eigenmesh.metrics import sin_theta

SAMPLES, K, RANK = 400, 3, 8
SETS = ("college", "ionosphere", "sonar", "vehicle", "musk1", "glaucoma_m", "yale_faces_32", "pima")


def column_sets() -> dict[str, Any]:
    sets = {
        "drawn genes": gene_like(n_samples=200, n_features=600, random_state=0)[0],
        "drawn linear": paper_linear(n_features=200, n_samples=SAMPLES, random_state=0),
    }
    folder = Path(os.environ.get("EIGENMESH_DATA", "/nowhere"))
    for name in SETS:
        if (path := folder / f"{name}.npz").exists():
            X = np.asarray(np.load(path)["X"], np.float64)[:SAMPLES]
            sets[name] = X[:, X.std(axis=0) > 0]
    return {name: StandardScaler().fit_transform(X) for name, X in sets.items()}


def fitted(parts: Any, rank: int, precision: Any, gamma: float) -> Any:
    how = {"kernel": "rbf", "gamma": gamma, "local_rank": rank, "precision": precision}
    return em.OneShotKPCA(K, **how).fit(parts)


def figures_of(X: Any, n_parties: int) -> list[float]:
    """Bytes and error of 16 bits beside all at one rank, then the error at equal bytes."""
    parts, gamma = em.split(X, n_parties=n_parties, by="columns"), 1 / X.shape[1]
    pooled = em.OneShotKPCA(K, kernel="rbf", gamma=gamma, local_rank=len(X)).fit(X).eigenvectors_
    exact = fitted(parts, RANK, "exact", gamma)
    same_rank = fitted(parts, RANK, 16, gamma)
    rank = RANK
    same_bytes = same_rank
    while rank < len(X):  # the largest rank that sends no more
        more = fitted(parts, rank + 1, 16, gamma)
        if more.report_.bytes > exact.report_.bytes:
            break
        same_bytes, rank = more, rank + 1
    errors = [sin_theta(m.eigenvectors_, pooled) for m in (exact, same_rank, same_bytes)]
    return [
        same_rank.report_.bytes / exact.report_.bytes,
        errors[1] / errors[0],
        rank,
        errors[0] / errors[2],
        same_rank.report_.precision_error,
    ]


def main() -> None:
    rows, gains = [], []
    for name, X in column_sets().items():
        for n_parties in (2, 4):
            own = figures_of(X, n_parties)
            gains.append(own[3])
            figures = [f"{own[0]:.3f}", f"{own[1]:.5f}", f"{own[2]:.0f}", f"{own[3]:.1f}×"]
            rows.append([name, str(n_parties), *figures, f"{own[4]:.0e}"])
    heads = ["set", "parties", "bytes", "error", "rank at equal bytes", "gain", "stated error"]
    show(f"16 bits beside 64, RBF, {K} components, local_rank {RANK}", heads, rows)
    print(f"gain at equal bytes: median {np.median(gains):.1f}×, least {min(gains):.1f}×")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
