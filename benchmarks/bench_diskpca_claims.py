"""How far the centred residual that DisKPCA claims is off, in thousandths of tr K.

The sets and parties of `bench_diskpca_quality`, centred. `missing` is what a claim would be too
large by that counts the mean only inside the landmarks' span, `off` how far the claim is off; both
the worst of some seeds, with the mean of the standard errors. Ends with status 1 if a claim is off
by more than one thousandth of tr K.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from _common import show
from bench_diskpca_quality import (
    N_ROWS,
    PARTIES,
    SIZES,
    K,
    Problem,
    bundled_studies,
    file_studies,
)
from sklearn.metrics.pairwise import pairwise_kernels
from threadpoolctl import threadpool_limits

import eigenmesh as em
from eigenmesh.errors import EigenmeshWarning

CHOICES = ("uniform", "centroids")


def claim(problem: Problem, choice: str, q: int) -> tuple[float, float, float]:
    """What is missing, how far the claim is off, and its standard error, as shares of tr K."""
    kpca = em.DisKPCA(
        K, **problem.kernel, n_landmarks=q, landmarks=choice, random_state=problem.seed
    ).fit(problem.parts)
    n, trace = len(problem.K), float(np.trace(problem.K))
    known = n * known_mean(problem, kpca.landmarks_)
    missing = problem.K.sum() / n - known
    off = kpca.total_variance_ - (trace - problem.K.sum() / n)
    return missing / trace, abs(off) / trace, kpca.residual_error_ / trace


def known_mean(problem: Problem, Y: Any) -> float:
    """‖Pm‖²."""
    options = {name: value for name, value in problem.kernel.items() if name != "kernel"}
    parts = problem.parts.parts
    X = sp.vstack(parts) if sp.issparse(parts[0]) else np.vstack(parts)
    cross = pairwise_kernels(X, Y, metric=problem.kernel["kernel"], **options).mean(axis=0)
    within = pairwise_kernels(Y, metric=problem.kernel["kernel"], **options)
    return float(cross @ np.linalg.pinv(within, rcond=1e-10, hermitian=True) @ cross)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder with the sets of the docs")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=N_ROWS, help="more than 4096 are sampled")
    parser.add_argument("--parties", type=int, default=PARTIES)
    options = parser.parse_args()
    warnings.simplefilter("ignore", EigenmeshWarning)
    table, worst = [], 0.0
    for study in file_studies(options.data) if options.data else bundled_studies():
        X = study.rows()
        found_by: dict[tuple[int, str], list[Any]] = {}
        for seed in range(options.seeds):
            problem = Problem.of(X, study.kernel, seed, options.rows, options.parties)
            for q, choice in itertools.product(SIZES, CHOICES):
                found_by.setdefault((q, choice), []).append(claim(problem, choice, q))
        for q in SIZES:
            row = [study.name, str(q)]
            for choice in CHOICES:
                found = 1e3 * np.array(found_by[q, choice])
                missing, off, error = found[:, 0].max(), found[:, 1].max(), found[:, 2].mean()
                row += [f"{missing:.2f}", f"{off:.3f} ± {error:.3f}"]
                worst = max(worst, off)
            table.append(row)
    title = (
        f"Centred residual, thousandths of tr K, worst of {options.seeds} seeds, at most "
        f"{options.rows:,} rows at {options.parties} parties"
    )
    show(
        title,
        ["data, kernel", "q", *(f"{c}: {w}" for c in CHOICES for w in ("missing", "off"))],
        table,
    )
    return int(worst > 1.0)


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        sys.exit(main())
