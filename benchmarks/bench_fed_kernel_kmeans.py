"""Federated kernel k-means: the paper's comparison, its baselines, lost replies, many parties.

`--data DIR` adds MNIST (its first 5000 rows) and Mushrooms from DIR/mnist.npz and
DIR/mushrooms.npz, with X and y; `--parties N` sets the number of devices in the last part, 0 leaves
it out; `--picture FILE` draws the clusters of the digits.
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
from _cluster_quality import cluster_figure, cluster_quality, quality_table
from _common import show
from rich.console import Console
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import eigenmesh as em
from eigenmesh.engines.faulty import Fault

T = 50
FITS: dict[str, dict[str, Any]] = {
    "nystrom": {"solver": "nystrom"},
    "gram": {"solver": "gram"},
    "lanczos": {"solver": "lanczos"},
    "lanczos, independent features": {"solver": "lanczos", "features": "independent"},
    "lanczos, paper's features": {"solver": "lanczos", "features": "paper"},
    "lanczos, paper's threshold": {"solver": "lanczos", "threshold": "paper"},
    "paper": {"solver": "lanczos", "threshold": "paper", "features": "paper"},
    "lanczos, step 2/t": {"solver": "lanczos", "step_size": "2/t"},
    "lanczos, no mechanism": {"solver": "lanczos", "mechanism": "direct"},
}
BASELINES = ("landmarks", "nystrom", "diskpca", "random-features")


def data_sets(folder: Path | None) -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    X, y = load_digits(return_X_y=True)
    yield "digits", X / 16, y, {"n_clusters": 10, "n_eigenvectors": 12, "n_features": 100}
    if folder is None:
        return
    mnist = np.load(folder / "mnist.npz")
    wide = {"n_clusters": 10, "n_eigenvectors": 12, "n_features": 200}
    yield "MNIST-5k", mnist["X"][:5000] / 255, mnist["y"][:5000], wide
    mushrooms = np.load(folder / "mushrooms.npz")
    narrow = {"n_clusters": 2, "n_eigenvectors": 2, "n_features": 15}
    yield "Mushrooms", mushrooms["X"].astype(float), mushrooms["y"], narrow


def methods(name: str, X: Any, y: Any, sizes: dict[str, Any]) -> None:
    """Cost and worth of every method on one split."""
    parts = em.split(X, 5, random_state=0)
    found = {}
    for label, options in FITS.items():
        model = em.FedKernelKMeans(**sizes, **options, n_iterations=T, random_state=0)
        found[label] = cluster_quality(model.fit(parts), parts, y)
    clusters = {key: sizes[key] for key in ("n_clusters", "n_eigenvectors")}
    for method in BASELINES:
        other = em.KernelKMeans(**clusters, gamma="mean-distance", method=method, random_state=0)
        found[f"KernelKMeans, {method}"] = cluster_quality(other.fit(parts), parts, y)
    Console(width=110).print(quality_table(found, f"{name}, five parties, {T} iterations"))


def convergence(name: str, X: Any, y: Any, sizes: dict[str, Any]) -> None:
    """t·err, which stays level where the error falls as 1/t."""
    parts, rows = em.split(X, 5, random_state=0), []
    for label in ("nystrom", "gram"):
        for threshold in (None, "paper"):
            for seed in range(3):
                options = {"solver": label, "threshold": threshold, "random_state": seed}
                scaled = []
                for t in (5, 20, T):
                    model = em.FedKernelKMeans(**sizes, **options, n_iterations=t).fit(parts)
                    scaled.append(t * (cluster_quality(model, parts).recovery_error or 0.0))
                words = [f"{value:.1e}" for value in scaled]
                ratio = f"{scaled[-1] / scaled[0]:.2f}"
                rows.append([label, str(threshold), str(seed), *words, ratio])
    columns = ["solver", "threshold", "seed", "t=5", "t=20", f"t={T}", f"t={T} over t=5"]
    show(f"{name}: t·err", columns, rows)


def churn(name: str, X: Any, y: Any, sizes: dict[str, Any]) -> None:
    """A fifth of all replies lost; a third of the parties gone half-way."""
    order = np.argsort(y, kind="stable")
    splits = {
        "at random": em.split(X, 10, random_state=0),
        "by label": em.Partitioned(rows=np.array_split(X[order], 10)),
    }
    gone = [Fault("kill", party=f"party-{i}", round=T // 2) for i in (1, 4, 8)]
    faults = {"none": [], "20 % of replies": [Fault("lose", share=0.2)], "3 of 10 leave": gone}
    rows = []
    for split, parts in splits.items():
        for label, schedule in faults.items():
            with em.federation(parts, on_loss="skip", max_age=8, faults=schedule) as fed:
                model = em.FedKernelKMeans(**sizes, n_iterations=T, random_state=0).fit(fed)
            left = em.Partitioned(
                rows=[parts.part(i) for i in range(10) if parts.names[i] in model.report_.parties]
            )
            error = cluster_quality(model, left).recovery_error or 0.0
            missed = str(sum(model.report_.dropped.values()))
            rounds, lost = str(model.report_.rounds), ", ".join(model.report_.lost)
            rows.append([split, label, f"{error:.2e}", missed, rounds, lost])
    columns = ["rows split", "lost", "recovery error", "replies missed", "rounds", "out"]
    show(f"{name}: devices that come and go", columns, rows)


def many_parties(n_parties: int) -> None:
    """Devices of power-law sizes in one process."""
    rng = np.random.default_rng(0)
    centres, rows = 2 * rng.normal(size=(8, 20)), []
    for parties in (n_parties // 10, n_parties):
        X = centres[rng.integers(8, size=20 * n_parties)] + rng.normal(size=(20 * n_parties, 20))
        parts = em.split(X, parties, law="power", exponent=1.0, random_state=0)
        model = em.FedKernelKMeans(
            8, n_features=30, n_iterations=5, clustering="lloyd", n_init=1, random_state=0
        )
        started = time.perf_counter()
        report = model.fit(parts).report_
        seconds = time.perf_counter() - started
        each = f"{1e3 * seconds / parties / report.rounds:.2f}"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        per_party = f"{report.floats_up / parties:,.0f}"
        cost = [f"{seconds:.1f}", each, per_party, f"{peak:.2f}"]
        rows.append([f"{parties:,}", f"{len(X):,}", *cost])
    columns = ["parties", "rows", "seconds", "ms a party and round", "floats a party", "peak GB"]
    show("Many devices", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--parties", type=int, default=1000)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", em.EigenmeshWarning)
    with threadpool_limits(1, user_api="blas"):
        for data in data_sets(options.data):
            methods(*data)
            convergence(*data)
            churn(*data)
        if options.parties:
            many_parties(options.parties)
    if options.picture:
        X = load_digits().data / 16
        parts = em.split(X, 5, random_state=0)
        model = em.FedKernelKMeans(10, n_eigenvectors=12, random_state=0).fit(parts)
        cluster_figure(model, parts, options.picture)


if __name__ == "__main__":
    main()
