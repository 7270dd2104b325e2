"""Kernel k-means of columns and on graphs, against a coordinator of rows and against exact.

`--data DIR` adds mushrooms and MNIST.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _common import show
from bench_kernel_kmeans import PAPER, data_sets
from threadpoolctl import threadpool_limits

import eigenmesh as em
from eigenmesh.metrics import feature_space_inertia
from eigenmesh.numerics.kernels import Kernel

MOMENTS_ONLY = em.Policy(allow={"moments", "counts"})


def contestants(X: Any, options: dict[str, Any]) -> Iterator[tuple[str, em.KernelKMeans]]:
    nodes = em.split(X, 10, random_state=0)
    quiet = em.split(X, 10, random_state=0, policies=MOMENTS_ONLY)
    columns = em.split(X, 5, by="columns")
    yield "rows, 5 parties, coordinator", em.KernelKMeans(**options).fit(em.split(X, 5))
    for topology in ("ring", "random-regular"):
        yield (
            f"rows, 10 nodes, {topology}",
            em.KernelKMeans(**options, topology=topology).fit(nodes),
        )
    lone = em.KernelKMeans(**options, topology="random-regular", n_landmarks=300)
    yield "the same, moments only, 300 features", lone.fit(quiet)
    for method in ("vfed-akpca", "one-shot"):
        yield (
            f"columns, 5 parties, {method}",
            em.KernelKMeans(**options, method=method).fit(columns),
        )


def compare(folder: Path | None) -> None:
    rows = []
    for name, X, _, k in data_sets(folder):
        exact = em.KernelKMeans(k, method="exact", n_init=10, random_state=0).fit(X)
        K = Kernel("rbf", exact.gamma_).matrix(X)
        sizes = {key: PAPER[name][key] for key in ("n_clusters", "n_eigenvectors")}
        for words, model in contestants(X, {**sizes, "gamma": exact.gamma_, "random_state": 0}):
            true = feature_space_inertia(K, model.predict(X))
            report = model.report_
            ratios = [f"{true / exact.inertia_:.4f}", f"{model.inertia_ / true:.4f}"]
            sent = f"{report.floats_up + report.floats_down:,}"
            rows.append([name, words, *ratios, sent, f"{report.rounds:,}", str(model.n_iter_)])
    columns = ["data", "split", "inertia / exact", "claimed / true", "floats", "rounds", "Lloyd"]
    show("Kernel k-means by split and topology", columns, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    warnings.simplefilter("ignore", em.EigenmeshWarning)
    with threadpool_limits(1, user_api="blas"):
        compare(parser.parse_args().data)
