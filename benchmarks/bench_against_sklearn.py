"""Fit and transform against scikit-learn's ways to kernel PCA, in time, memory and error.

MNIST from `--data DIR` (mnist.npz), else a stand-in of the same shape. Each contestant runs in a
process of its own, BLAS at one thread and one worker, so that times are of one core and memory is
its own; the fastest of some repeats counts. The error is the squared residual of 10 components,
centred, from the scores of all rows, divided by that of KernelPCA.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from _common import show
from _cost import anonymous_megabytes, cost_of

K = 10
PINNED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def load(data: str | None, n: int) -> Any:
    if data:
        X = np.load(Path(data) / "mnist.npz")["X"][:60000] / np.float32(255)
        return X[np.random.default_rng(0).permutation(len(X))[:n]].astype(np.float32)
    # Smooth images: strong directions, a long tail, values from 0 to 1.
    rng = np.random.default_rng(0)
    shapes = np.cumsum(rng.normal(size=(300, 784)), axis=1) / 28
    weights = rng.normal(size=(n, 300)) * np.arange(1, 301) ** -0.6
    return np.clip(0.3 + 0.2 * weights @ shapes, 0, 1).astype(np.float32)


def gamma_of(X: Any) -> float:
    return float(1 / (2 * np.square(X - X.mean(axis=0)).sum(axis=1, dtype=np.float64).mean()))


# One contestant, in its own process.


def contestant(name: str, q: int, gamma: float) -> Any:
    from sklearn.decomposition import PCA, KernelPCA
    from sklearn.kernel_approximation import Nystroem, RBFSampler
    from sklearn.pipeline import make_pipeline

    import eigenmesh as em

    rbf = {"kernel": "rbf", "gamma": gamma, "random_state": 0}
    pca = PCA(K, svd_solver="covariance_eigh")
    makers = {
        "ours": lambda: em.DisKPCA(K, n_landmarks=q, landmarks="centroids", **rbf),
        "Nystroem + PCA": lambda: make_pipeline(Nystroem(n_components=q, **rbf), pca),
        "RBFSampler + PCA": lambda: make_pipeline(
            RBFSampler(gamma=gamma, n_components=q, random_state=0), pca
        ),
        "KernelPCA arpack": lambda: KernelPCA(K, eigen_solver="arpack", **rbf),
        "KernelPCA randomized": lambda: KernelPCA(K, eigen_solver="randomized", **rbf),
    }
    return makers[name]()


def run_alone(name: str, q: int, n: int, data: str | None) -> None:
    """Time, memory beyond the data, and what the components capture."""
    from eigenmesh.threads import one_thread

    X = load(data, n)
    gamma = gamma_of(X)
    model = contestant(name, q, gamma)
    warm = contestant(name, min(q, 20), gamma)
    warm.fit(X[:200]).transform(X[:200])  # imports and buffers are not what is compared
    before = anonymous_megabytes()
    with one_thread():
        cost = cost_of(lambda: model.fit(X).transform(X))
    captured = captured_variance(name, X, gamma, np.asarray(model.transform(X), dtype=np.float64))
    memory = cost.megabytes - before
    print(json.dumps({**cost._asdict(), "megabytes": memory, "captured": captured}))


def captured_variance(name: str, X: Any, gamma: float, Z: Any) -> float:
    """Centred variance in feature space along the components.

    Scores on landmarks' or the kernel's own components are projections in feature space: their
    squares add up to it. Random features are none of that space; of theirs, the directions
    Σ z_i φ(x_i) that the scores span are measured by the kernel, which flatters them.
    """
    Z = Z - Z.mean(axis=0)
    if not name.startswith("RBFSampler"):
        return float(np.square(Z).sum())
    U, captured = np.linalg.qr(Z)[0], 0.0
    squares = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    for start in range(0, len(X), 1000):
        rows = slice(start, start + 1000)
        D = squares[rows, None] + squares - 2 * (X[rows] @ X.T)
        captured += float(np.vdot(U[rows], np.exp(-gamma * np.maximum(D, 0)) @ U))
    return captured


# The table.


def measured(name: str, q: int, options: argparse.Namespace, repeats: int = 1) -> dict[str, float]:
    command = [sys.executable, __file__, "--alone", name, "--landmarks", str(q)]
    command += ["--rows", str(options.rows), *(["--data", options.data] if options.data else [])]
    runs = []
    for _ in range(repeats):
        done = subprocess.run(
            command, env={**os.environ, **PINNED}, check=True, capture_output=True, text=True
        )
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    best: dict[str, float] = min(runs, key=lambda run: run["cpu"])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=None)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--landmarks", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--alone", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        run_alone(options.alone, options.landmarks, options.rows, options.data)
        return
    compare(options)


def compare(options: argparse.Namespace) -> None:
    q = options.landmarks
    trials = [("ours", q), ("Nystroem + PCA", q), ("RBFSampler + PCA", q)]
    trials += [("Nystroem + PCA", m) for m in (4 * q, 6 * q, 8 * q)]
    trials += [("RBFSampler + PCA", 20 * q)]
    results = {trial: measured(*trial, options, options.repeats) for trial in trials}
    for solver in ("arpack", "randomized"):
        results[f"KernelPCA {solver}", 0] = measured(f"KernelPCA {solver}", 0, options)
    # Every row's k(x, x) is 1; arpack's components are the optimum.
    X = load(options.data, options.rows)
    total = len(X) * (1 - mean_kernel(X, gamma_of(X)))
    best = total - results["KernelPCA arpack", 0]["captured"]
    ours, rows = results["ours", q], []
    for (name, m), own in results.items():
        figures = [f"{own['seconds']:.2f} s", f"{own['cpu'] / ours['cpu']:.1f}×"]
        memory = f"{own['megabytes']:.0f} MB"
        ratio = f"{(total - own['captured']) / best:.4f}"
        rows.append([name, str(m or "–"), *figures, memory, ratio])
    title = f"{len(X):,} × {X.shape[1]} float32, RBF, {K} components, fit and transform on one core"
    columns = ["method", "landmarks", "time", "CPU / ours", "memory", "error / optimal"]
    show(title, columns, rows)


def mean_kernel(X: Any, gamma: float) -> float:
    squares, total = np.einsum("ij,ij->i", X, X, dtype=np.float64), 0.0
    for start in range(0, len(X), 1000):
        D = squares[start : start + 1000, None] + squares - 2 * (X[start : start + 1000] @ X.T)
        total += float(np.exp(-gamma * np.maximum(D, 0)).sum())
    return total / len(X) ** 2


if __name__ == "__main__":
    main()
