"""What is said of numbers in fewer bits, held against the truth in drawn configurations.

    python benchmarks/bench_precision_claims.py --configurations 100 --seed 77
    EIGENMESH_DATA=DIR python benchmarks/bench_precision_claims.py   # real sets among the drawn

Estimator, kernel, split, sizes and data are drawn. The truth is the kernel matrix of the pooled
samples, and the same fit with precision="exact". A claim counts only where a fit makes it.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _common import show
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em
from eigenmesh.metrics import sin_theta
from eigenmesh.numerics.landmark_sums import Span, landmark_sums
from eigenmesh.numerics.landmarks import LandmarkModel

PRECISIONS = (4, 8, 16, 32, "auto")
REAL = ("sonar", "musk1", "college", "vehicle", "ionosphere", "glaucoma_m", "pima", "higgs_26k")
NEAR = 0.002  # of an eigenvalue: estimates within a factor of two, or this, are near
ROUNDING = 1e-9


class DrawnCase(NamedTuple):
    """How to fit with so many bits, and the pooled kernel matrix, centred if the fit is."""

    estimator: str
    fit: Callable[[Any], Any]
    K: np.ndarray
    rows: np.ndarray | None  # in party order, where landmarks are


def drawn_rows(rng: np.random.Generator, n: int) -> np.ndarray:
    """Spectra that fall, tails, counts, repeated rows, clusters, zeros and ones, or a real set."""
    d, what = int(rng.integers(6, 40)), int(rng.integers(8))
    X = rng.normal(size=(n, d))
    folder = os.environ.get("EIGENMESH_DATA")
    if what == 0:
        X = X * np.geomspace(1, rng.uniform(0.02, 1), d) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    elif what == 1:
        X = rng.standard_t(2, size=(n, d))
    elif what == 2:
        X = rng.poisson(2.0, size=(n, d)).astype(float)
    elif what == 3:
        X = X[rng.integers(max(n // 4, 5), size=n)]
    elif what == 4:
        X += 3 * rng.normal(size=(4, d))[rng.integers(4, size=n)]
    elif what == 5:
        X = (rng.random((n, d)) < 0.15).astype(float)
    elif what == 6:
        X = X[:, :3] @ rng.normal(size=(3, d)) + 1e-3 * X
    elif folder:
        whole = np.load(Path(folder) / f"{rng.choice(REAL)}.npz")["X"].astype(float)
        X = whole[rng.permutation(len(whole))[:n]]
        X = (X - X.mean(0))[:, X.std(0) > 0] / X.std(0)[X.std(0) > 0]
    if rng.random() < 0.2:
        X = X * 10.0 ** rng.integers(-5, 6)
    return X + 50 * X.std() * rng.normal() if rng.random() < 0.2 else X


def squared_distance(X: np.ndarray) -> float:
    """The median between samples."""
    d = np.square(X[:200, None] - X[None, :200]).sum(-1)
    return float(np.median(d[d > 0]))


def kernel_matrix(X: np.ndarray, kernel: dict[str, Any], center: bool) -> np.ndarray:
    how = {name: value for name, value in kernel.items() if name != "kernel"}
    K = pairwise_kernels(X, metric=kernel["kernel"], **how)
    return K - K.mean(0) - K.mean(1)[:, None] + K.mean() if center else K


def drawn_kernel(rng: np.random.Generator, X: np.ndarray, names: tuple[str, ...]) -> dict[str, Any]:
    name, d2 = str(rng.choice(names)), squared_distance(X)
    if name in ("linear", "cosine"):
        return {"kernel": name}
    if name == "poly":
        return {"kernel": name, "gamma": 1 / d2, "degree": 2, "coef0": 1.0}
    width = float(rng.uniform(0.2, 2))
    return {"kernel": name, "gamma": width / (d2 if name == "rbf" else np.sqrt(d2 * X.shape[1]))}


def of_columns(rng: np.random.Generator) -> DrawnCase:
    """Eigenvectors of parties, by name or by the front door."""
    X = drawn_rows(rng, int(rng.integers(20, 200)))
    kernel, center = drawn_kernel(rng, X, ("linear", "rbf", "rbf")), bool(rng.random() < 0.7)
    parts = em.split(X, int(rng.integers(2, min(6, X.shape[1]))), by="columns")
    k, how = int(rng.integers(1, 5)), {**kernel, "center": center, "random_state": 0}
    K = kernel_matrix(X, kernel, center)
    if rng.random() < 0.25:
        door = {**how, "method": "one-shot"}
        return DrawnCase("door", lambda b: em.KernelPCA(k, **door, precision=b).fit(parts), K, None)
    rank = int(rng.integers(k + 1, k + 15)) if rng.random() < 0.4 else None
    return DrawnCase(
        "one-shot",
        lambda b: em.OneShotKPCA(k, **how, local_rank=rank, precision=b).fit(parts),
        K,
        None,
    )


def of_rows(rng: np.random.Generator) -> DrawnCase:
    """Landmarks, of all that have them."""
    X = drawn_rows(rng, int(rng.integers(60, 500)))
    names = ("rbf", "rbf", "laplacian", "linear", "poly", "cosine")
    which = str(rng.choice(["DisKPCA"] * 3 + ["KernelPCA", "KernelKMeans", "KernelPCRegressor"]))
    kernel = drawn_kernel(rng, X, names)
    center = which == "KernelPCRegressor" or (which != "KernelKMeans" and rng.random() < 0.7)
    parts = em.split(X, int(rng.integers(2, 7)), random_state=1)
    k, q = int(rng.integers(1, 5)), int(rng.integers(20, 80))
    how = {**kernel, "n_landmarks": q, "random_state": int(rng.integers(1000))}
    more: dict[str, Any] = {"center": bool(center)}
    if which == "DisKPCA":
        more["landmarks"] = str(rng.choice(["uniform", "centroids", "diskpca", "drawn"]))
        if rng.random() < 0.5:
            more["gram_rank"] = "auto" if rng.random() < 0.5 else int(rng.integers(k + 2, 20))
        if rng.random() < 0.6:
            more["accuracy"] = float(10 ** rng.uniform(-2, -0.5))
    elif which != "KernelPCA":
        more, k = {}, 3
    y = [X[rows].sum(axis=1) for rows in parts.order]
    targets = (y,) if which == "KernelPCRegressor" else ()
    estimator = getattr(em, which)

    def fit(bits: Any) -> Any:
        return estimator(k, **how, **more, precision=bits).fit(parts, *targets)

    pooled = np.vstack(parts.parts)
    return DrawnCase(which, fit, kernel_matrix(pooled, kernel, bool(center)), pooled)


def eigenvalues(K: np.ndarray, k: int) -> np.ndarray:
    return np.linalg.eigvalsh((K + K.T) / 2)[::-1][:k]


def claims_of(case: DrawnCase, exact: Any, few: Any) -> dict[str, bool]:
    """What the fit says, and whether it is so."""
    own, trace = np.asarray(few.eigenvalues_), float(np.trace(case.K))
    true = eigenvalues(case.K, len(own))
    claims = of_vectors(case, exact, few, true) if case.rows is None else {}
    if case.rows is not None:
        limit = true * (1 + few.report_.precision_error) + ROUNDING * trace
        claims["no eigenvalue is above the truth"] = bool((own <= limit).all())
        if case.estimator == "DisKPCA":
            claims["eigenvalues are within precision_error"] = is_within(case.rows, few)
    for model, name in ((few, "shortfalls_ are near"), (exact, "(shortfalls_ of exact are near)")):
        said = getattr(model, "shortfalls_", None)
        if said is not None and len(said):
            shown = np.asarray(model.eigenvalues_)[: len(said)]
            missing = 1 - shown / eigenvalues(case.K, len(said))
            claims[name] = bool((np.asarray(said) >= missing / 2 - NEAR).all())
    return claims


def of_vectors(case: DrawnCase, exact: Any, few: Any, true: np.ndarray) -> dict[str, bool]:
    """Of eigenvectors that travelled in fewer bits, also the proven limits."""
    own, trace = few.eigenvalues_, float(np.trace(case.K))
    off, slack = np.abs(exact.eigenvalues_ - own), ROUNDING * trace
    bounds, plain = few.report_.bounds, exact.report_.bounds
    U = np.linalg.eigh(case.K)[1][:, ::-1][:, : len(own)]
    error, moved = bounds["kernel_error"], bounds["kernel_error"] - plain["kernel_error"]
    return {
        "eigenvalues are within precision_error": bool(
            (off / own).max() <= few.report_.precision_error + 1e-12
        ),
        "kernel_error holds": bool(np.abs(true - own).max() <= error + slack),
        "and what precision adds to it": bool(off.max() <= moved + slack),
        "sin_theta holds": sin_theta(few.eigenvectors_, U) <= bounds["sin_theta"] + 1e-6,
        "residual_ is no less than the truth": few.residual_ >= trace - own.sum() - slack,
    }


def is_within(rows: np.ndarray, few: Any) -> bool:
    """Against sums of float64 in the same directions about the same landmarks."""
    kernel, Y = few.model_.kernel, np.asarray(few.landmarks_, float)
    span = Span.of(kernel, few.landmarks_, None if few.gram_rank is None else few.gram_rank_)
    sums = landmark_sums(kernel, rows, Y, span)
    pooled = LandmarkModel.fit(kernel, Y, sums, few.n_components, few.center, span)
    off = np.abs(few.eigenvalues_ / pooled.eigenvalues - 1).max()
    return bool(off <= few.report_.precision_error + 1e-7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configurations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=77)
    options = parser.parse_args()
    counts: Counter[tuple[str, Any, bool]] = Counter()
    refused, estimators = 0, Counter[str]()
    for i in range(options.configurations):
        rng, bits = np.random.default_rng([options.seed, i]), PRECISIONS[i % len(PRECISIONS)]
        case = (of_columns if rng.random() < 0.5 else of_rows)(rng)
        try:
            claims = claims_of(case, case.fit("exact"), case.fit(bits))
        except em.EigenmeshError as error:  # of more components than there are, with all bits, too
            refused += 1
            print(f"{i} {case.estimator}: {error}")
            continue
        estimators[case.estimator] += 1
        counts.update((claim, bits, holds) for claim, holds in claims.items())
        broken = [claim for claim, holds in claims.items() if not holds]
        if broken:
            print(f"{i} {case.estimator}, precision {bits}: not so: {', '.join(broken)}")
    rows = []
    for claim in dict.fromkeys(claim for claim, _, _ in counts):
        held = [(counts[claim, b, True], counts[claim, b, False]) for b in PRECISIONS]
        rows.append([claim, *(f"{yes} of {yes + no}" for yes, no in held)])
    drawn = ", ".join(f"{n} {name}" for name, n in estimators.most_common())
    title = f"Claims that hold, of {sum(estimators.values())} fits ({drawn}; {refused} refused)"
    show(title, ["claim", *map(str, PRECISIONS)], rows)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
