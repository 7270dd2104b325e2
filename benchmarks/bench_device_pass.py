"""The pass over rows in torch on a processor, beside the same pass in numpy.

No GPU is measured here: what this shows is what the form costs that the Array API standard allows,
whole arrays and nothing in place, and KᵀK as a product where numpy has syrk. Processor time of one
core, the least of several interleaved repeats in one run; the error is the largest difference of
BᵀHB from that of float64 rows, over its trace. Without torch, and `eigenmesh[array-api]`, nothing
is measured.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from _common import show
from bench_landmarks_limit import best_of_thread

from eigenmesh.numerics.arrays import Doubles, Floats
from eigenmesh.numerics.device_rows import DeviceRows
from eigenmesh.numerics.device_sums import device_landmark_sums, device_scores
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span, landmark_sums
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.threads import one_thread

ROWS = 20_000


def data_sets(folder: Path | None) -> dict[str, Floats]:
    rng = np.random.default_rng(0)
    sets = {"drawn": rng.normal(size=(ROWS, 10)).astype(np.float32)}
    for name, file in (("HIGGS", "higgs_26k.npz"), ("MNIST", "mnist.npz")):
        if folder is not None and (folder / file).exists():
            X = np.load(folder / file)["X"][:ROWS].astype(np.float32)
            X = X.reshape(len(X), -1)
            X -= X.mean(axis=0)
            sets[name] = X / (X.std(axis=0).max() or 1.0)
    return sets


def error_of(gram: Doubles, true: Doubles, span: Span) -> float:
    B = span.basis
    return float(np.abs(B.T @ (gram - true) @ B).max() / np.trace(B.T @ true @ B))


def main(folder: Path | None, repeats: int, only: str | None) -> None:
    try:
        import torch
    except ImportError:
        print("torch is not installed: nothing is measured")
        return
    torch.set_num_threads(1)
    rows = []
    for name, X in data_sets(folder).items():
        if only not in (None, name):
            continue
        kernel = Kernel("rbf", gamma=float(0.5 / np.square(X - X.mean(axis=0)).sum(axis=1).mean()))
        for dtype in (np.float32, np.float64):
            A = X.astype(dtype)
            there = DeviceRows.of(torch.asarray(A))
            for q in (100, 400):
                Y = A[:: len(A) // q][:q].copy()
                span = Span.of(kernel, Y)
                own = landmark_sums(kernel, A, Y, span)
                true = landmark_sums(kernel, A.astype(float), Y.astype(float), span).gram
                model = LandmarkModel.fit(kernel, Y, own, 10, True, span)
                contestants = {
                    "numpy": partial(landmark_sums, kernel, A, Y, span),
                    "torch": partial(device_landmark_sums, there, Y, span),
                    "numpy scores": partial(model.transform, A),
                    "torch scores": partial(device_scores, model, there),
                }
                with one_thread():
                    took = best_of_thread(contestants, repeats)
                grams = own.gram, device_landmark_sums(there, Y, span).gram
                rows.append(
                    [
                        f"{name}, {A.shape[1]}",
                        A.dtype.name,
                        str(q),
                        f"{1e3 * took['numpy']:.0f} ms",
                        f"{took['torch'] / took['numpy']:.2f}",
                        f"{took['torch scores'] / took['numpy scores']:.2f}",
                        *(f"{error_of(gram, true, span):.0e}" for gram in grams),
                    ]
                )
    columns = ["set, columns", "rows in", "landmarks", "numpy", "torch / numpy", "scores"]
    title = f"{ROWS:,} rows, RBF, one core: the pass in torch beside that in numpy"
    show(title, [*columns, "error in numpy", "in torch"], rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["drawn", "HIGGS", "MNIST"])
    arguments = parser.parse_args()
    main(arguments.data, arguments.repeats, arguments.only)
