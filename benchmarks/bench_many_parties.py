"""Many parties of one process: what they take beside one party with all rows, and how that grows.

    python benchmarks/bench_many_parties.py                        # 1,000 parties of 100 rows
    python benchmarks/bench_many_parties.py --data DIR             # and of MNIST, which is wide
    python benchmarks/bench_many_parties.py --parties 10000 100000 # by a power law of sizes

Processor time of all threads, the least of some repeats; memory is the most that the process ever
had, in a process of its own for each number of parties.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _common import show

import eigenmesh as em

ROWS_EACH, COMPONENTS = 100, 10
MEAN_ROWS, COLUMNS = 20, 28  # of the power law


def narrow(n_rows: int) -> Any:
    """Rows of falling spread, float32."""
    rng = np.random.default_rng(0)
    spread = np.arange(1, COLUMNS + 1) ** -0.5
    return (rng.normal(size=(n_rows, COLUMNS)) * spread).astype(np.float32)


def fits(gamma: float) -> dict[str, Callable[[], Any]]:
    """What is fitted: as few landmarks as are usual, the same with a look at what they miss, and
    as many as that asks for.
    """
    how: dict[str, Any] = {"kernel": "rbf", "gamma": gamma, "random_state": 0}
    return {
        "DisKPCA, 100 centroids": lambda: em.DisKPCA(
            COMPONENTS, n_landmarks=100, landmarks="centroids", **how
        ),
        "KernelPCA, 100 landmarks": lambda: em.KernelPCA(COMPONENTS, n_landmarks=100, **how),
        "KernelPCA": lambda: em.KernelPCA(COMPONENTS, **how),
    }


def least(fit: Callable[[], Any], parts: Any, repeats: int) -> tuple[float, Any]:
    """Processor time, and the fitted estimator."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        estimator = fit().fit(parts)
        times.append(time.process_time() - begin)
    return min(times), estimator


def against_one(data: Path | None, n_parties: int, repeats: int) -> None:
    """The same rows at one party and at many."""
    sets = {f"{COLUMNS} columns": narrow(n_parties * ROWS_EACH)}
    if data is not None:
        images = np.load(data / "mnist.npz")["X"].astype(np.float32) / 255
        sets["MNIST, 784"] = images[: len(images) // ROWS_EACH * ROWS_EACH]
    lines = []
    for name, X in sets.items():
        gamma = 1 / X.shape[1]
        one = em.Partitioned(rows=[X])
        many = em.Partitioned(rows=np.split(X, len(X) // ROWS_EACH))
        for what, fit in fits(gamma).items():
            alone, single = least(fit, one, repeats)
            split, several = least(fit, many, repeats)
            landmarks = [str(len(fitted.model_.landmarks)) for fitted in (single, several)]
            figures = [f"{alone:.3f} s", f"{split:.2f} s", f"{split / alone:.1f}×"]
            each = f"{1e3 * split / len(many.parts):.2f} ms"
            lines.append([name, f"{len(X):,}", what, *figures, each, " and ".join(landmarks)])
    columns = ["columns", "rows", "fit", "one party", "many", "ratio", "a party", "landmarks"]
    show(f"Parties of {ROWS_EACH} rows beside one of all", columns, lines)


def by_power_law(n_parties: int) -> None:
    """One fit, its processor time and its memory, as a line."""
    X = narrow(MEAN_ROWS * n_parties)
    parts = em.split(X, n_parties, law="power", exponent=1.0, random_state=0)
    sizes = np.array([len(part) for part in parts.parts])
    begin = time.process_time()
    kpca = em.KernelPCA(
        COMPONENTS, kernel="rbf", gamma=1 / COLUMNS, n_landmarks=100, random_state=0
    )
    report = kpca.fit(parts).report_
    seconds = time.process_time() - begin
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took_part = len(report.parties)
    figures = [f"{n_parties:,}", f"{sizes.max():,}", f"{took_part:,}", f"{seconds:.0f} s"]
    print(*figures, f"{1e3 * seconds / took_part:.2f} ms", f"{megabytes:,.0f} MB", sep=";")


def growth(numbers: list[int]) -> None:
    """Each in a process of its own: memory is never given back."""
    lines = []
    for number in numbers:
        command = [sys.executable, __file__, "--one", str(number)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        lines.append(done.stdout.strip().splitlines()[-1].split(";"))
    columns = ["parties", "largest", "took part", "processor time", "each of these", "most memory"]
    show(f"Sizes by a power law, {MEAN_ROWS} rows in the mean", columns, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with mnist.npz")
    parser.add_argument("--parties", type=int, nargs="*", help="numbers of parties by a power law")
    parser.add_argument("--equal", type=int, default=1000, help="parties of 100 rows")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        by_power_law(options.one)
    elif options.parties:
        growth(options.parties)
    else:
        against_one(options.data, options.equal, options.repeats)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
