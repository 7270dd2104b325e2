"""The pass over rows on one core, as a share of what its two matrix products alone would take.

The limit is X Yᵀ and KᵀK in plain float32 numpy, at the best of several block sizes, in the same
run; the pass is the whole of `landmark_sums`. Seconds are the least of several interleaved repeats,
and of the thread: other work on the machine counts little. Run with `make bench`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from _common import show

from eigenmesh.numerics.arrays import Floats
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span, landmark_sums, shifted_sums
from eigenmesh.threads import one_thread

BARS = {(28, 100): 0.50, (28, 400): 0.70, (784, 100): 0.78, (784, 400): 0.82}
BLOCKS = (512, 1024, 4096)


def two_products(X: Floats, Y: Floats, rows: int) -> Callable[[], None]:
    columns = np.ascontiguousarray(Y.T)
    K, H = np.empty((rows, len(Y)), np.float32), np.empty((len(Y), len(Y)), np.float32)

    def run() -> None:
        for start in range(0, len(X) - rows + 1, rows):
            np.matmul(X[start : start + rows], columns, out=K)
            np.matmul(K.T, K, out=H)

    return run


def naive(X: Floats, Y: Floats, kernel: Kernel) -> Callable[[], None]:
    """Project first, as one would write it down."""
    B = Span.of(kernel, Y).basis.astype(np.float32)

    def run() -> None:
        G = np.zeros((B.shape[1], B.shape[1]))
        for start in range(0, len(X), 1024):
            P = kernel.block(X[start : start + 1024], Y) @ B
            G += P.T @ P

    return run


def best_of_thread(contestants: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats + 1):
        for name, work in contestants.items():
            started = time.thread_time()
            work()
            seconds[name].append(time.thread_time() - started)
    return {name: min(own[1:]) for name, own in seconds.items()}


def main(repeats: int) -> None:
    rows = []
    for (d, q), bar in BARS.items():
        n = 4096 * (128 if d < 100 else 64)
        X = np.random.default_rng(0).random((n, d), dtype=np.float32)
        Y, kernel = X[:q].copy(), Kernel("rbf", gamma=6 / d)  # γ of about 1 / mean distance
        contestants: dict[str, Callable[[], object]] = {
            f"limit {size}": two_products(X, Y, size) for size in BLOCKS
        }
        contestants["ours"] = lambda X=X, Y=Y, kernel=kernel: landmark_sums(kernel, X, Y)
        contestants["naive"] = naive(X, Y, kernel)
        with one_thread():
            seconds = best_of_thread(contestants, repeats)
            route = shifted_sums(Span.of(kernel, Y), X, Y)[3].name
        limit = min(seconds[f"limit {size}"] for size in BLOCKS)
        share = limit / seconds["ours"]
        figures = [f"{1e9 * seconds[name] / n:.0f} ns" for name in ("naive", "ours")]
        shares = [f"{limit / seconds['naive']:.0%}", f"{share:.0%}", f"{bar:.0%}"]
        rows.append([str(d), str(q), route, f"{1e9 * limit / n:.0f} ns", *figures, *shares])
    columns = ["columns", "landmarks", "route", "limit a row", "naive", "ours"]
    title = "One core, float32, RBF: share of the limit of a plain product and syrk"
    show(title, [*columns, "naive share", "our share", "asked for"], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    main(parser.parse_args().repeats)
