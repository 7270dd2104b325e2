"""How the cost of a fit grows: with rows from a memory map, with parties, and with landmarks.

Rows are 28 columns of float32 in a file that this benchmark writes to a temporary folder and
removes; memory is what the process holds for itself (RssAnon), so pages of the file do not count.
Run with `make bench`; `--rows` sets the most rows.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _common import show
from _cost import Cost, cost_of

import eigenmesh as em

COLUMNS, MOST_MEGABYTES, LINEAR_WITHIN = 28, 500, 0.15
OPTIONS: dict[str, Any] = {"kernel": "rbf", "gamma": 0.02, "random_state": 0}
POLY: dict[str, Any] = {
    "kernel": "poly",
    "degree": 2,
    "gamma": 1.0,
    "coef0": 0.0,
    "random_state": 0,
}


def write_rows(path: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    mix = rng.standard_normal((COLUMNS, COLUMNS), dtype=np.float32) / 5
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, COLUMNS))
    for start in range(0, n, 1 << 17):
        block = rows[start : start + (1 << 17)]
        block[:] = rng.standard_normal(block.shape, dtype=np.float32) @ mix
    rows.flush()


def mapped(path: Path, n: int) -> Any:
    return np.load(path, mmap_mode="r")[:n]


def with_rows(path: Path, most: int, q: int, choices: list[str], kernel: str) -> bool:
    """Whether the largest fit keeps within memory, and time within 15 % of linear."""
    figures, sound, kernel_options = [], True, POLY if kernel == "poly" else OPTIONS
    sizes = [n for n in (10**4, 10**5, 10**6, 10**7, 10**8) if n <= most]
    for choice in choices:
        costs: dict[int, Cost] = {}
        for n in sizes:
            model = em.DisKPCA(10, n_landmarks=q, landmarks=choice, **kernel_options)
            rows = mapped(path, n)
            costs[n] = cost_of(lambda m=model, r=rows: m.fit(r), 3 if n < 10**7 else 2)
            before = costs.get(n // 10)
            growth = cpu_growth = float("nan")
            if before:
                growth, cpu_growth = costs[n].seconds / before.seconds, costs[n].cpu / before.cpu
            speed = f"{n / costs[n].seconds / 1e6:.2f} M"
            grown = [f"{growth:.1f}×" if before else "–", f"{cpu_growth:.1f}×" if before else "–"]
            memory = f"{costs[n].megabytes:.0f} MB"
            figures.append([choice, f"{n:,}", str(costs[n]), speed, *grown, memory])
        if most >= 10**7:
            sound = sound and costs[most].megabytes < MOST_MEGABYTES
            sound = sound and growth <= 10 * (1 + LINEAR_WITHIN)
    columns = ["landmarks", "rows", "fit", "rows/s", "time", "CPU", "memory"]
    title = f"Rows, {kernel}, {q} landmarks, memory map of float32 (growth for ten times the rows)"
    bars = f"asked for: < {MOST_MEGABYTES} MB, at most {10 * (1 + LINEAR_WITHIN):g}×"
    show(f"{title}; {bars}", columns, figures)
    return sound


def with_parties(path: Path, n: int) -> None:
    figures, rows = [], np.array(mapped(path, n))
    for parties in (1, 10, 100, 1000):
        parts = em.Partitioned(rows=np.array_split(rows, parties))
        model = em.DisKPCA(10, n_landmarks=100, landmarks="uniform", **OPTIONS)
        cost = cost_of(lambda m=model, p=parts: m.fit(p), 3)
        figures.append([str(parties), str(cost), f"{model.report_.floats_up / parties:,.0f}"])
    title = f"Parties, {n:,} rows in all, 100 landmarks, in process"
    show(title, ["parties", "fit", "floats up a party"], figures)


def with_landmarks(path: Path, n: int) -> None:
    figures = []
    for q in (25, 50, 100, 200, 400, 800):
        model = em.DisKPCA(10, n_landmarks=q, landmarks="centroids", **OPTIONS)
        cost = cost_of(lambda m=model: m.fit(mapped(path, n)), 2)
        share = f"{model.explained_variance_ratio_.sum():.1%}"
        figures.append([str(q), str(cost), f"{1e9 * cost.seconds / n:.0f} ns", share])
    title = f"Landmarks, {n:,} rows of {COLUMNS} columns"
    show(title, ["landmarks", "fit", "a row", "variance in 10 components"], figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10**7)
    parser.add_argument("--landmarks", type=int, default=100)
    parser.add_argument("--choices", nargs="+", default=["centroids", "uniform"])
    parser.add_argument("--kernel", choices=["rbf", "poly"], default="rbf")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write_rows(path, options.rows)
        sound = with_rows(path, options.rows, options.landmarks, options.choices, options.kernel)
        with_landmarks(path, min(options.rows, 10**6))
        with_parties(path, min(options.rows, 10**5))
    if not sound:
        print("a bar was missed: memory, or time beyond linear")


if __name__ == "__main__":
    main()
