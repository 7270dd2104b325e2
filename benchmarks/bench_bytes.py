"""Error against bytes: what is sent now, what was sent before, and what the papers' methods send.

Rows: 2000 over 20 parties by a power law, RBF, 10 components, uncentred; *excess* is the squared
residual over the optimal one, less 1. A paper's method is given its landmarks, and ours the fewest
bytes at which its error is no larger. Columns: ‖sin Θ‖ of 3 components, ours at no more bytes than
Algorithm 1 of the one-shot paper: more eigenpairs in fewer bits, and coordinates in spread bits.
Sets are those of `bench_diskpca_quality` and `bench_precision`; without `--data`, those that need
no files. Clusters: 1000 rows over 5 parties, the fewest of our bytes at which the inertia in the
kernel's own space is no larger than that of paper 004.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _common import show
from _pooled import inertia
from bench_diskpca_quality import RBF, K, Problem, bundled_studies, file_studies
from bench_precision import column_sets
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_limits

import eigenmesh as em
from eigenmesh.metrics import sin_theta

LADDER = [
    {"n_landmarks": q, "gram_rank": r, "precision": 8}
    for q, r in ((25, 12), (35, 16), (50, 20), (70, 25), (100, 30), (140, 40), (200, 60))
]
SMALL: dict[str, Any] = {"n_landmarks": 200, "gram_rank": 40, "precision": 8}


class Sent:
    """A fit's excess and bytes."""

    def __init__(self, problem: Problem, n_components: int = K, **options: Any) -> None:
        how = {"center": False, "random_state": problem.seed, **problem.kernel, **options}
        model = em.DisKPCA(n_components, **how).fit(problem.parts)
        captured = sum(float(np.square(Z).sum()) for Z in model.transform(problem.parts))
        self.excess = (np.trace(problem.K) - captured) / problem.optimal - 1
        self.bytes = model.report_.bytes
        self.rank = model.gram_rank_

    def __str__(self) -> str:
        return f"{self.excess:.4f} {self.bytes / 1e3:,.0f}k"


def mean_of(sent: list[Sent]) -> str:
    excess, size = np.mean([one.excess for one in sent]), np.mean([one.bytes for one in sent])
    return f"{excess:.4f} {size / 1e3:,.0f}k"


def of_rows(folder: Path | None, seeds: int) -> None:
    studies = file_studies(folder) if folder else bundled_studies()
    now, against = [], []
    for study in (s for s in studies if s.kernel == RBF):
        X = study.rows()
        problems = [Problem.of(X, study.kernel, seed) for seed in range(seeds)]
        means: dict[str, Any] = {"landmarks": "centroids"}
        ways = {
            "100": {**means},
            "200": {**means, "n_landmarks": 200},
            "200, r 40, 8 bits": {**means, **SMALL},
            "200, by rule": {**means, **SMALL, "gram_rank": "auto"},
            "200, r 40, 4 bits": {**means, **SMALL, "precision": 4},
        }
        sent = {name: [Sent(p, **how) for p in problems] for name, how in ways.items()}
        ratio = np.mean(
            [a.bytes / b.bytes for a, b in zip(sent["100"], sent["200, r 40, 8 bits"], strict=True)]
        )
        now.append([study.name, *(mean_of(own) for own in sent.values()), f"{ratio:.1f}×"])
        for q in (50, 100):
            fits, ratios = [], []
            for problem in problems:
                paper = Sent(problem, n_landmarks=q, exact=False)
                ours = next(
                    own
                    for own in (Sent(problem, **means, **how) for how in LADDER)
                    if own.excess <= paper.excess
                )
                fits.append((paper, ours))
                ratios.append(paper.bytes / ours.bytes)
            one, other = (mean_of([pair[i] for pair in fits]) for i in (0, 1))
            against.append([study.name, str(q), one, other, f"{np.mean(ratios):.0f}×"])
    ways_in_words = list(ways)
    show(f"Rows: excess and bytes, mean of {seeds} seeds", ["set", *ways_in_words, "fewer"], now)
    heads = ["set", "paper's q", "paper 001", "ours", "fewer bytes"]
    show("Rows: the paper's method, and ours at no larger error", heads, against)


class Clustered:
    """A fit's inertia, of its labels by the kernel matrix, and its bytes."""

    def __init__(self, model: Any, parts: Any, K: Any) -> None:
        model.fit(parts)
        labels = np.empty(len(K), int)
        for places, own in zip(parts.order, model.labels_, strict=True):
            labels[places] = own
        self.inertia = inertia(K, labels)
        self.report = model.report_

    def __str__(self) -> str:
        size = f"{self.report.bytes / 1e3:,.0f}k"
        return f"{self.inertia:.3f} {size} in {self.report.rounds}"


def cluster_sets(folder: Path | None) -> Iterator[tuple[str, Any, int, int, int]]:
    """Rows, and the numbers of clusters, eigenvectors and features that the paper has for them."""
    yield "digits", load_digits().data[:1000] / 16, 10, 12, 100
    if folder is None:
        return
    for name, divisor, *sizes in (("mushrooms", 1, 2, 2, 15), ("mnist", 255, 10, 12, 200)):
        X = np.load(folder / f"{name}.npz")["X"]
        some = np.random.default_rng(0).permutation(len(X))[:1000]
        yield name, X[some] / divisor, sizes[0], sizes[1], sizes[2]


def of_clusters(folder: Path | None) -> None:
    rows = []
    for name, X, k, s, n_features in cluster_sets(folder):
        gamma = 1 / (2 * float(np.square(X - X.mean(axis=0)).sum(axis=1).mean()))
        K, parts = rbf_kernel(X, gamma=gamma), em.split(X, 5, random_state=0)
        how: dict[str, Any] = {"n_eigenvectors": s, "gamma": gamma, "random_state": 0}
        printed = {"solver": "lanczos", "threshold": "paper", "features": "paper"}
        model = em.FedKernelKMeans(k, n_features=n_features, n_iterations=50, **printed, **how)
        paper = Clustered(model, parts, K)
        ours = next(
            own
            for q in (12, 20, 40, 90, 200)
            if (
                own := Clustered(em.KernelKMeans(k, n_landmarks=q, precision=8, **how), parts, K)
            ).inertia
            <= paper.inertia
        )
        ratio = paper.report.bytes / ours.report.bytes
        rows.append([name, str(paper), str(ours), f"{ratio:.0f}×"])
    heads = ["set", "paper 004: inertia, bytes, rounds", "ours", "fewer bytes"]
    show("Clusters: the paper's method, and ours at no larger inertia", heads, rows)


RANKS = (4, 8, 16)
ROUNDING = 1e-12  # errors below are those of the solver


def of_columns() -> None:
    """At each rank of the paper's algorithm, what is closest at no more bytes."""
    rows, gains = [], []
    for name, X in column_sets().items():
        pooled = one_shot(X, len(X)).eigenvectors_
        for n_parties in (2, 4):
            own = [compared(X, n_parties, rank, pooled) for rank in RANKS]
            gains.append([paper / max(spread, ROUNDING) for paper, _, spread in own])
            rows.append([name, str(n_parties), *(in_words(*errors) for errors in own)])
    heads = ["set", "parties", *(f"rank {rank}: paper, fewer bits, spread" for rank in RANKS)]
    show("Columns: ‖sin Θ‖ at no more bytes than Algorithm 1", heads, rows)
    summary = [
        [str(rank), f"{np.median(own):,.0f}×", f"{min(own):,.1f}×"]
        for rank, own in zip(RANKS, zip(*gains, strict=True), strict=True)
    ]
    show("Columns: gains of spread bits over all sets", ["rank", "median", "least"], summary)


def one_shot(parts: Any, rank: int, n_columns: int | None = None, **how: Any) -> Any:
    gamma = 1 / (parts.shape[1] if n_columns is None else n_columns)
    return em.OneShotKPCA(3, kernel="rbf", gamma=gamma, local_rank=rank, **how).fit(parts)


def compared(X: Any, n_parties: int, rank: int, pooled: Any) -> tuple[float, float, float]:
    """Errors of the paper's algorithm, of eigenvectors in 16 or 8 bits, and of spread bits."""
    parts = em.split(X, n_parties=n_parties, by="columns")

    def sent(rank: int, precision: Any, fusion: str = "product") -> tuple[float, int]:
        model = one_shot(parts, rank, X.shape[1], precision=precision, fusion=fusion)
        return sin_theta(model.eigenvectors_, pooled), model.report_.bytes

    error, most = sent(rank, "exact")
    few = min(_largest(sent, len(X), rank, bits, most) for bits in (16, 8))
    spread, size = sent(rank, "spread", "distance")
    assert size <= most, f"{size} bytes where {most} are the paper's"
    return error, few, spread


def in_words(paper: float, few: float, spread: float) -> str:
    ours = f"{spread:.1e} ({paper / spread:,.0f}×)" if spread > ROUNDING else "exact"
    return f"{paper:.1e}: {few:.1e} ({paper / few:.0f}×) {ours}"


def _largest(sent: Any, n: int, rank: int, bits: int, most: int) -> float:
    """The error at the largest rank that sends no more."""
    low, high = rank, n
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sent(middle, bits)[1] <= most else (low, middle - 1)
    return float(sent(low, bits)[0])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, help="folder of the data sets")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--only", choices=("rows", "columns", "clusters"), help="one of these")
    asked = options.parse_args()
    if asked.data:
        os.environ["EIGENMESH_DATA"] = str(asked.data)
    if asked.only in (None, "rows"):
        of_rows(asked.data, asked.seeds)
    if asked.only in (None, "columns"):
        of_columns()
    if asked.only in (None, "clusters"):
        of_clusters(asked.data)


if __name__ == "__main__":
    with warnings.catch_warnings(), threadpool_limits(1, user_api="blas"):
        warnings.simplefilter("ignore")
        main()
