"""Column-split PCA and kernel PCA: error by round against the paper's method, graphs, traffic.

Run with `make bench`, or `python bench_vfed.py --data DIR` for the paper's own data sets (files
such as sonar.npz with an array X); without, scikit-learn's and the paper's synthetic set serve.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _common import medians, show
from sklearn import datasets
from sklearn.decomposition import PCA, KernelPCA

import eigenmesh as em
from eigenmesh.metrics import aligned_error, sin_theta

PAPER_SETS = ("sonar", "musk1", "college", "vehicle", "ionosphere", "glaucoma_m")
DRAWS = 20  # of the synthetic set, and of the printed method's start vectors
# Figures of an independent prototype: the printed method's round 2 and round 10, 10 parties. Which
# synthetic set it drew is not known.
PROTOTYPE = {
    ("sonar", False): (6.7e-3, 6.7e-3),
    ("sonar", True): (0.132, 0.132),
    ("mixture", False): (7.7e-3, 7.7e-3),
}


def densities(n: int = 200, m: int = 1000, seed: int = 0) -> np.ndarray:
    """The paper's "mixture of Gaussians": densities of uniform draws, column by column."""
    rng = np.random.default_rng(seed)
    mean, scale = rng.integers(0, m + 1, m), rng.integers(1, m + 1, m)
    x = rng.uniform(mean - 3 * scale, mean + 3 * scale, size=(n, m))
    return np.exp(-((x - mean) ** 2) / (2.0 * scale**2)) / (np.sqrt(2 * np.pi) * scale)


def sets(folder: Path | None) -> dict[str, np.ndarray]:
    if folder is None:
        bundled = {
            "wine": datasets.load_wine().data,
            "breast": datasets.load_breast_cancer().data,
            "digits": datasets.load_digits().data[:400],
        }
        return bundled | {"mixture": densities()}
    found = {}
    for name in PAPER_SETS:
        with np.load(folder / f"{name}.npz", allow_pickle=False) as archive:
            found[name] = archive["X"].astype(np.float64)
    return found | {"mixture": densities()}


def quiet(model: Any, data: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", em.EigenmeshWarning)
        return model.fit(data)


def apart(u: np.ndarray, v: np.ndarray) -> float:
    return float(min(np.linalg.norm(u - v), np.linalg.norm(u + v)))


def by_round(data: dict[str, np.ndarray]) -> None:
    """Sign-invariant distance to the pooled top vector, 3, 5 and 10 parties."""
    rows, worse = [], 0
    for name, X in data.items():
        for center in (False, True):
            exact = np.linalg.svd(X - X.mean(0) * center, full_matrices=False)[0][:, 0]
            for p in (3, 5, 10):
                parts = em.split(X, p, by="columns")
                paper = quiet(em.VFedPCA(1, variant="paper", center=center), parts)
                theirs = [apart(u, exact) for u in paper.history_]
                ours = [
                    apart(
                        quiet(em.VFedPCA(1, center=center, n_rounds=r), parts).eigenvectors_[:, 0],
                        exact,
                    )
                    for r in range(1, 11)
                ]
                worse += sum(o > t + 1e-12 for o, t in zip(ours[1:], theirs[1:], strict=True))
                frozen = np.linalg.norm(paper.history_[1] - paper.history_[9])
                rows.append(
                    [name, "centred" if center else "raw", str(p)]
                    + [f"{theirs[1]:.1e}", f"{theirs[9]:.1e}", f"{frozen:.0e}"]
                    + [f"{ours[r]:.1e}" for r in (1, 4, 9)]
                )
    columns = ["data", "", "parties", "paper r2", "paper r10", "|r2−r10|", "r2", "r5", "r10"]
    show(
        f"Distance to the pooled top vector; rounds worse than the paper's: {worse}", columns, rows
    )


def beside_the_prototype(data: dict[str, np.ndarray]) -> None:
    """The printed method against figures of another implementation, over draws."""
    rows = []
    for (name, center), expected in PROTOTYPE.items():
        if name not in data:
            continue
        sets_ = [densities(seed=s) for s in range(DRAWS)] if name == "mixture" else [data[name]]
        found = [paper_errors(X, center) for X in sets_]
        spread = np.quantile(found, (0.0, 0.5, 1.0), axis=0)  # (3, rounds)
        label = f"{name} {'centred' if center else 'raw'}"
        figures = [" / ".join(f"{value:.3g}" for value in spread[:, r]) for r in (0, 1)]
        rows.append([label, str(len(sets_)), *figures, f"{expected[0]:.3g}"])
    columns = ["data", "draws", "r2: least / median / most", "r10", "prototype"]
    show("The printed method, 10 parties, distance to the pooled top vector", columns, rows)


def paper_errors(X: np.ndarray, center: bool) -> list[float]:
    exact = np.linalg.svd(X - X.mean(0) * center, full_matrices=False)[0][:, 0]
    model = quiet(em.VFedPCA(1, variant="paper", center=center), em.split(X, 10, by="columns"))
    return [apart(model.history_[r], exact) for r in (1, 9)]


def no_breakdown(data: dict[str, np.ndarray]) -> None:
    """12 rounds of 5 components: more directions than 57 columns have."""
    rows = []
    for name, X in data.items():
        if X.shape[1] < 57:
            continue
        X = X[:, :57]
        exact = np.linalg.svd(X - X.mean(0), full_matrices=False)[0][:, :5]
        model = quiet(em.VFedPCA(5, n_rounds=12, tolerance=1e-300), em.split(X, 5, by="columns"))
        report = model.report_
        rows.append([name, f"{sin_theta(model.eigenvectors_, exact):.0e}", report.stop_reason])
    show("12 rounds × 5 components on 57 columns", ["data", "‖sin Θ‖", "stopped because"], rows)


def several_components(data: dict[str, np.ndarray]) -> None:
    """k=5, 5 parties, centred: ‖sin Θ‖ by round, and when it stops by itself."""
    rows = []
    for name, X in data.items():
        exact = np.linalg.svd(X - X.mean(0), full_matrices=False)[0][:, :5]
        parts = em.split(X, 5, by="columns")
        errors = [
            sin_theta(quiet(em.VFedPCA(5, n_rounds=r), parts).eigenvectors_, exact)
            for r in (1, 2, 3, 5, 12)
        ]
        printed = [
            sin_theta(
                quiet(em.VFedPCA(5, variant="paper", random_state=seed), parts).eigenvectors_, exact
            )
            for seed in range(DRAWS)
        ]
        model = quiet(em.VFedPCA(5), parts)
        figures = [f"{error:.0e}" for error in errors]
        share = f"{model.report_.share_of_baseline:.1%}"
        rounds = str(model.report_.rounds - 1)
        rows.append([name, f"{min(printed):.2f}–{max(printed):.2f}", *figures, rounds, share])
    columns = ["data", f"printed, {DRAWS} starts", "r1", "r2", "r3", "r5", "r12", "stops at"]
    columns.append("floats / shipping")
    show("k=5, 5 parties, centred: ‖sin Θ‖_F", columns, rows)


def graphs(X: np.ndarray, name: str) -> None:
    """Without a coordinator: error and spread of the nodes, and what it costs."""
    exact = np.linalg.svd(X - X.mean(0), full_matrices=False)[0][:, :3]
    rows = []
    for topology in ("ring", "star", "grid", "full"):
        model = quiet(em.VFedPCA(3, topology=topology), em.split(X, 10, by="columns"))
        nodes = model.node_vectors_
        error = max(sin_theta(vectors, exact) for vectors in nodes)
        spread = max(np.abs(vectors - nodes[0]).max() for vectors in nodes)
        report = model.report_
        rows.append(
            [topology, f"{error:.0e}", f"{spread:.0e}", str(report.rounds), f"{report.floats_up:,}"]
        )
    columns = ["graph", "largest error", "spread of nodes", "exchanges", "floats"]
    show(f"{name}, 10 nodes, k=3", columns, rows)


def kernel_graphs(X: np.ndarray, name: str) -> None:
    """The kernel form without a coordinator, of as many samples as a test of it can bear."""
    X = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1.0)
    rows = []
    for kernel in ("rbf", "poly"):
        gamma = 0.5 / X.shape[1]
        pooled = KernelPCA(3, kernel=kernel, gamma=gamma, eigen_solver="dense").fit(X)
        for topology in ("ring", "star", "grid", "full"):
            model = em.VFedAKPCA(3, kernel=kernel, gamma=gamma, topology=topology)
            nodes = quiet(model, em.split(X, 10, by="columns")).node_vectors_
            error = max(sin_theta(vectors, pooled.eigenvectors_) for vectors in nodes)
            spread = max(np.abs(vectors - nodes[0]).max() for vectors in nodes)
            floats = f"{model.report_.floats_up // 10:,}"
            rows.append([kernel, topology, f"{error:.0e}", f"{spread:.0e}", floats, f"{X.size:,}"])
    columns = ["kernel", "graph", "largest error", "spread of nodes", "floats a node"]
    show(f"{name}, kernel form, 10 nodes, k=3", [*columns, "shipping, in all"], rows)


def kernels(X: np.ndarray, name: str) -> None:
    """The exact kernel form against the pooled answer: scores of new samples."""
    X = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1.0)
    train, new = X[: len(X) * 3 // 4], X[len(X) * 3 // 4 :]
    rows = []
    for kernel, gamma in (("rbf", 0.5 / X.shape[1]), ("poly", 1.0 / X.shape[1])):
        pooled = KernelPCA(4, kernel=kernel, gamma=gamma, eigen_solver="dense").fit(train)
        for p in (2, 5, 16):
            model = quiet(
                em.VFedAKPCA(4, kernel=kernel, gamma=gamma),
                em.split(train, min(p, X.shape[1]), by="columns"),
            )
            error = aligned_error(model.transform(new), pooled.transform(new))
            share = f"{model.report_.share_of_baseline:.1%}"
            rows.append([kernel, str(p), f"{error:.0e}", f"{model.report_.floats_up:,}", share])
    show(
        f"{name}: kernel form against pooled KernelPCA",
        ["kernel", "parties", "error", "floats", "of shipping"],
        rows,
    )


def seconds() -> None:
    """A fit against scikit-learn on the pooled columns."""
    rows = []
    rng = np.random.default_rng(0)
    for n, m, p in ((2000, 2000, 10), (20_000, 400, 10)):
        X = rng.normal(size=(n, 8)) @ rng.normal(size=(8, m)) + rng.normal(size=(n, m))
        parts = em.split(X, p, by="columns")
        model, pooled = em.VFedPCA(5), PCA(5, svd_solver="arpack")
        taken = medians(
            {"ours": lambda m=model, d=parts: m.fit(d), "theirs": lambda m=pooled, X=X: m.fit(X)},
            repeats=2,
        )
        error = aligned_error(model.components_.T, pooled.components_.T)
        figures = [f"{taken['theirs']:.2f} s", f"{taken['ours']:.2f} s"]
        rounds = str(model.report_.rounds - 1)
        share = f"{model.report_.share_of_baseline:.1%}"
        rows.append([f"{n}×{m}", str(p), *figures, rounds, f"{error:.0e}", share])
    columns = ["data", "parties", "pooled", "ours", "rounds", "error", "floats / shipping"]
    show("VFedPCA(5) in process, against PCA(svd_solver='arpack')", columns, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, help="folder with the paper's data sets")
    folder = parser.parse_args().data
    data = sets(folder)
    first = next(iter(data))
    by_round(data)
    beside_the_prototype(data)
    several_components(data)
    no_breakdown(data)
    graphs(data[first], first)
    kernel_graphs(data[first], first)
    kernels(data[first], first)
    seconds()
