"""What three policies without rows let the front doors over rows do, on drawn sizes and kernels.

    python benchmarks/bench_policies.py          # 30 draws
    python benchmarks/bench_policies.py 100 7    # 100, seed 7

"sums" allows centroids, Gram sums, moments and counts; "means" masked sums, centroids and counts;
"masks" masked sums and counts alone. A line a policy, estimator and kernel: how many of the fits
ran, and how far they were from the pooled answer at most: shares of eigenvalues that are missing,
inertia over that of the best of twenty starts, R² less than the pooled one's. Then, of one draw
each, masked sums beside plain ones, and a party that is lost at every request it is sent.
"""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
from _common import show
from sklearn.datasets import make_blobs

import eigenmesh as em

POLICIES = {
    "sums": ({"centroids", "gram", "moments", "counts"}, False),
    "means": ({"aggregate", "centroids", "counts"}, True),
    "masks": ({"aggregate", "counts"}, True),
}
KERNELS = ("linear", "rbf", "poly", "cosine", "laplacian", "arc-cosine")
MASKED_EQUALS = 1e-6


def drawn_rows(rng: np.random.Generator) -> list[Any]:
    """Rows of 3 to 12 parties, most of them different in size, some tiny."""
    n, d = int(rng.integers(120, 900)), int(rng.integers(2, 20))
    X, _ = make_blobs(n, d, centers=int(rng.integers(2, 6)), random_state=int(rng.integers(1e6)))
    X = (X - X.mean(axis=0)) / X.std(axis=0) * np.exp(0.3 * rng.normal(size=d))
    cuts = np.sort(rng.choice(np.arange(1, n), int(rng.integers(2, 12)), replace=False))
    return np.split(X, cuts)


def gain(kernel: str, policy: str, rows: list[Any], seed: int, trust: str) -> dict[str, float]:
    """Of each estimator how far it is from the pooled answer."""
    allow, secure = POLICIES[policy]
    parts = em.Partitioned(rows=rows, policies=[em.Policy(allow=allow)] * len(rows))
    how = {"kernel": kernel, "gamma": 1 / rows[0].shape[1], "random_state": seed}
    how["degree"] = 1 if kernel == "arc-cosine" else 2
    k = min(3, rows[0].shape[1] - 1) if kernel in ("linear", "cosine") else 3
    with em.federation(parts, secure=secure, trust=trust) as fed:
        model = em.KernelPCA(k, **how).fit(fed)
        left = model.report_.left_out
        X = np.vstack(
            [own for name, own in zip(parts.names, rows, strict=True) if name not in left]
        )
        targets = [np.sin(own[:, 0]) + 0.1 * own[:, 1] for own in rows]
        clusters = em.KernelKMeans(3, **how).fit(fed)
        regression = em.KernelPCRegressor(10, **how).fit(fed, targets)
    pooled = em.KernelPCA(k, method="exact", **how).fit(X)
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    best = em.KernelKMeans(3, method="exact", **how).fit(X)
    one = em.KernelPCRegressor(10, **how).fit(X, y)
    return {
        "KernelPCA": 1 - float(np.min(model.eigenvalues_ / pooled.eigenvalues_)),
        "KernelKMeans": clusters.inertia_ / best.inertia_ - 1,
        "KernelPCRegressor": one.score(X, y) - regression.score(X, y),
    }


def masked_beside_plain(rows: list[Any]) -> float:
    """The largest relative difference of an eigenvalue, at the same landmarks."""
    parts, worst = em.Partitioned(rows=rows), 0.0
    for make in (
        lambda: em.KernelPCA(2, kernel="linear"),
        lambda: em.DisKPCA(2, kernel="rbf", gamma=0.1, n_landmarks=20, landmarks="centroids"),
        lambda: em.KernelPCA(2, kernel="poly", degree=2, gamma=0.1),
    ):
        values = []
        for secure in (False, True):
            with em.federation(parts, secure=secure) as fed:
                values.append(make().fit(fed).eigenvalues_)
        worst = max(worst, float(np.max(np.abs(values[1] / values[0] - 1))))
    return worst


def lost_at_every_request(rows: list[Any]) -> tuple[int, float]:
    """How many fits, and the largest relative error of an eigenvalue of whoever is left."""
    worst, at = 0.0, 0
    while True:
        at += 1
        fault = em.Fault("kill", "party-1", round=at)
        parts = em.Partitioned(rows=rows)
        how = {"on_loss": "survivors", "faults": [fault], "secure": True}
        with em.federation(parts, **how) as fed:
            model = em.MomentPCA(2).fit(fed)
        if "party-1" in model.report_.parties:
            return at - 1, worst
        rest = np.vstack([own for i, own in enumerate(rows) if i != 1])
        exact = em.MomentPCA(2).fit(rest).eigenvalues_
        worst = max(worst, float(np.max(np.abs(model.eigenvalues_ / exact - 1))))


def main(count: int = 30, seed: int = 0) -> None:
    """A line a policy, estimator and kernel; exits with 1 if a fit was refused."""
    rng, errors = np.random.default_rng(seed), []
    far: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    warnings.simplefilter("ignore")
    for number in range(count):
        rows, kernel = drawn_rows(rng), KERNELS[number % len(KERNELS)]
        trust = ("domain", "organisations")[number // len(KERNELS) % 2]
        for policy in POLICIES:
            if policy == "sums" and trust == "organisations":
                continue  # there as many numbers as a party has are rows
            try:
                outcome = gain(kernel, policy, rows, number, trust)
            except em.EigenmeshError as error:
                sizes = [own.shape for own in rows]
                errors.append(f"{policy}, {kernel}, {trust}, {sizes}: {error}")
                continue
            for estimator, share in outcome.items():
                far[policy, estimator, kernel].append(share)
    lines = [
        [*key, str(len(own)), f"{np.median(own):.4f}", f"{max(own):.4f}"]
        for key, own in sorted(far.items())
    ]
    show("Far from pooled", ["policy", "estimator", "kernel", "fits", "median", "most"], lines)
    rows = [own for own in drawn_rows(rng) if len(own) >= 5]
    print(f"masked beside plain: {masked_beside_plain(rows):.1e}, bar {MASKED_EQUALS:.0e}")
    fits, error = lost_at_every_request(rows[:1] * 2 + rows)
    print(f"a party lost at each of {fits} requests: the rest's eigenvalues within {error:.1e}")
    print("\n".join(errors) or "none was refused")
    sys.exit(bool(errors))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
