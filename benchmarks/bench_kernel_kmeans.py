"""Kernel k-means: a million rows against MiniBatchKMeans, many parties, quality against exact,
and the front door against the method of the paper.

Ratios are measured in one run, BLAS at one thread. `--data DIR` adds mushrooms and MNIST.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _common import medians, show
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score
from threadpoolctl import threadpool_limits

import eigenmesh as em
from eigenmesh.metrics import feature_space_inertia, recovery_error
from eigenmesh.numerics.eigen import top_eigenpairs
from eigenmesh.numerics.kernels import Kernel


def million_rows(n: int = 1_000_000, d: int = 28, k: int = 10) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(k, d)).astype(np.float32)
    X = centres[rng.integers(k, size=n)] + rng.normal(size=(n, d)).astype(np.float32)
    model = em.KernelKMeans(k, random_state=0).fit(X)
    Z = model.transform(X)
    theirs = MiniBatchKMeans(k, random_state=0)
    seconds = medians(
        {"ours": lambda: model.fit(X), "MiniBatchKMeans": lambda: theirs.fit(Z)}, repeats=2
    )
    ours = np.square(Z - model.cluster_centers_[model.labels_]).sum()
    ratio = seconds["ours"] / seconds["MiniBatchKMeans"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    show(
        f"{n:,} × {d} float32 rows, {k} clusters (asked for: under 3×)",
        ["", "seconds", "ratio", "inertia in the features"],
        [
            ["whole fit of KernelKMeans", f"{seconds['ours']:.1f}", f"{ratio:.2f}", f"{ours:.5g}"],
            [
                "MiniBatchKMeans on its features",
                f"{seconds['MiniBatchKMeans']:.1f}",
                "1",
                f"{theirs.inertia_:.5g}",
            ],
        ],
    )
    print(f"peak memory {peak:.2f} GB, of which the rows take {X.nbytes / 1e9:.2f}")


def many_parties() -> None:
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(5, 8))
    X = centres[rng.integers(5, size=60_000)] + rng.normal(size=(60_000, 8))
    rows = []
    for parties in (10, 100, 1000, 10_000):
        parts = em.split(X, parties, law="power", exponent=0.5, random_state=0)
        model = em.KernelKMeans(5, random_state=0)
        started = time.perf_counter()
        with threadpool_limits(1, user_api="blas"):
            model.fit(parts)
        seconds, report = time.perf_counter() - started, model.report_
        rows.append(
            [
                f"{parties:,}",
                f"{seconds:.1f}",
                f"{1e3 * seconds / parties:.1f}",
                f"{report.floats_up / parties:,.0f}",
                str(report.rounds),
            ]
        )
    columns = ["parties", "seconds", "ms a party", "floats up a party", "rounds"]
    show("60,000 rows over parties of power-law sizes, in process", columns, rows)


def data_sets(folder: Path | None) -> Iterator[tuple[str, Any, Any, int]]:
    X, y = load_digits(return_X_y=True)
    yield "digits", X / 16, y, 10
    if folder is None:
        return
    with np.load(folder / "mushrooms.npz", allow_pickle=False) as archive:
        yield "mushrooms", archive["X"].astype(float), archive["y"], 2
    with np.load(folder / "mnist.npz", allow_pickle=False) as archive:
        chosen = np.random.default_rng(0).permutation(60_000)[:5000]
        yield "MNIST, 5000 rows", archive["X"][chosen] / 255.0, archive["y"][chosen], 10


def quality(folder: Path | None) -> None:
    """Inertia of the labels in feature space, from the whole kernel matrix, against "exact"."""
    rows = []
    for name, X, y, k in data_sets(folder):
        exact = em.KernelKMeans(k, method="exact", n_init=10, random_state=0).fit(X)
        kernel = Kernel("rbf", exact.gamma_)
        parts = em.split(X, 5, random_state=0)
        contestants = {
            "exact": exact,
            "default, one array": em.KernelKMeans(k, random_state=0).fit(X),
            **{
                f"{method}, 5 parties": em.KernelKMeans(k, method=method, random_state=0).fit(parts)
                for method in ("auto", "nystrom", "diskpca", "random-features")
            },
        }
        for words, model in contestants.items():
            labels = model.predict(X)
            inertia = feature_space_inertia(kernel.matrix(X), labels)
            nmi = normalized_mutual_info_score(y, labels)
            up = f"{model.report_.floats_up:,}"
            ratio = f"{inertia / exact.inertia_:.4f}"
            rows.append([name, words, ratio, f"{nmi:.3f}", up, str(model.report_.rounds)])
    columns = ["data", "method", "inertia / exact", "NMI", "floats up", "rounds"]
    show("Quality, gamma by mean distance (asked for: at most 1.03 by default)", columns, rows)


PAPER: dict[str, dict[str, Any]] = {
    "digits": {"n_clusters": 10, "n_eigenvectors": 12, "n_features": 100},
    "mushrooms": {"n_clusters": 2, "n_eigenvectors": 2, "n_features": 15},
    "MNIST, 5000 rows": {"n_clusters": 10, "n_eigenvectors": 12, "n_features": 200},
}


def against_the_paper(folder: Path | None, n_seeds: int) -> None:
    """The front door, the paper's method with 50 iterations, and exact kernel k-means.

    The paper's method comes twice, by its solver, Lanczos: with its own threshold and features, and
    with the rank capped and features that complement each other, which has the smaller error.
    """
    rows = []
    for name, X, _, k in data_sets(folder):
        sizes = PAPER[name]
        exact = em.KernelKMeans(k, method="exact", n_init=10, random_state=0).fit(X)
        K = Kernel("rbf", exact.gamma_).matrix(X)
        best = top_eigenpairs(K, sizes["n_eigenvectors"])
        for seed in range(n_seeds):
            parts = em.split(X, 5, random_state=seed)
            few = {key: sizes[key] for key in ("n_clusters", "n_eigenvectors")}
            found = [em.KernelKMeans(**few, random_state=seed).fit(parts)]
            for law in ({"threshold": "paper", "features": "paper"}, {}):
                fed = em.FedKernelKMeans(**sizes, **law, solver="lanczos", random_state=seed)
                found.append(fed.fit(parts))
            errors = [recovery_error(model.transform(X), *best) for model in found]
            inertia = feature_space_inertia(K, found[0].predict(X)) / exact.inertia_
            reports = [model.report_ for model in found]
            first = reports[0]
            rows.append(
                [
                    f"{name}, {seed}",
                    " / ".join(f"{error:.1e}" for error in errors),
                    " / ".join(f"{report.floats_up:,}" for report in reports),
                    f"{min(report.floats_up for report in reports[1:]) / first.floats_up:.0f}",
                    " / ".join(f"{report.rounds:,}" for report in reports),
                    f"{min(report.rounds for report in reports[1:]) / first.rounds:.0f}",
                    f"{inertia:.4f}",
                ]
            )
    columns = ["data, seed", "recovery error", "floats up", "times fewer", "rounds", "times fewer"]
    show(
        "Front door / paper, T = 50 / paper with a capped rank (asked for: no larger error, 10 "
        "times fewer floats, 50 times fewer rounds, inertia at most 1.03 of exact)",
        [*columns, "inertia / exact"],
        rows,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", choices=("million", "parties", "quality", "paper"))
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.only in (None, "million"):
        million_rows()
    if chosen.only in (None, "quality"):
        quality(chosen.data)
    if chosen.only in (None, "paper"):
        warnings.simplefilter("ignore", em.EigenmeshWarning)
        with threadpool_limits(1, user_api="blas"):
            against_the_paper(chosen.data, chosen.seeds)
    if chosen.only in (None, "parties"):
        many_parties()
