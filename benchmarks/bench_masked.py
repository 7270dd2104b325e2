"""Masked sums: how much of the pooled variance is kept where parties are small, and at what cost.

Every set is split over parties, some of a few rows, all of which let out sizes and masked sums
alone. `captured`: the sum of 3 RBF eigenvalues over that of the pooled rows; `stated`: what the fit
itself says is missing of the worst one; `time`: of the same fit with masks over that without.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from _common import show
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.decomposition import KernelPCA

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like


def groups_of_four(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(500, 8))
    return np.vstack([rng.normal(size=(4, 8)) + centre for centre in centres])


def scaled(X: Any) -> Any:
    return (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-12)


SETS = {
    "gene-like, 72 × 3,000": (lambda: gene_like(72, 3000, random_state=0)[0], 3),
    "gene-like, 60 × 5,000": (lambda: gene_like(60, 5000, random_state=1)[0], 8),
    "wine": (lambda: scaled(load_wine().data), 20),
    "breast cancer": (lambda: scaled(load_breast_cancer().data), 40),
    "digits": (lambda: load_digits().data / 16, 300),
    "groups of four": (lambda: groups_of_four(0), 500),
}


def fitted(parts: Any, gamma: float, secure: bool) -> tuple[Any, float]:
    start = time.perf_counter()
    kpca = em.KernelPCA(3, kernel="rbf", gamma=gamma, random_state=0, landmarks="drawn")
    with em.federation(parts, secure=secure) as fed, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kpca.fit(fed)
    return kpca, time.perf_counter() - start


def study(name: str) -> dict[str, str]:
    load, n_parties = SETS[name]
    X = np.asarray(load())
    gamma = 1 / (2 * X.var(axis=0).sum())
    pooled = KernelPCA(3, kernel="rbf", gamma=gamma).fit(X).eigenvalues_
    policy = em.Policy(allow={"aggregate", "counts"})
    rows = em.split(X, n_parties, law="power", exponent=1.0, random_state=0).parts
    plain, plain_seconds = fitted(em.Partitioned(rows=rows), gamma, False)
    parts = em.Partitioned(rows=rows, policies=[policy] * n_parties)
    masked, masked_seconds = fitted(parts, gamma, True)
    apart = np.abs(masked.eigenvalues_ - plain.eigenvalues_).max() / plain.eigenvalues_[0]
    return {
        "set": name,
        "parties": str(n_parties),
        "landmarks": str(len(masked.landmarks_)),
        "captured": f"{masked.eigenvalues_.sum() / pooled.sum():.4f}",
        "missing": f"{(1 - masked.eigenvalues_ / pooled).max():.4f}",
        "stated": f"{masked.shortfall_:.4f}",
        "masked against plain": f"{apart:.0e}",
        "time": f"{masked_seconds / plain_seconds:.1f}×",
    }


if __name__ == "__main__":
    studies = [study(name) for name in SETS]
    rows = [list(one.values()) for one in studies]
    show("Masked sums of small parties", list(studies[0]), rows)
