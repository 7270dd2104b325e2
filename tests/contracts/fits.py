"""One small fit of every method and its main variants, for contracts that hold for all of them.

A fit is a function of an open federation; `parts` is what the federation is opened over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np

import eigenmesh as em

RNG = np.random.default_rng(11)
N, D = 48, 6
X = RNG.normal(size=(N, D)) @ RNG.normal(size=(D, D)) + RNG.normal(size=(1, D))
X[: N // 3] += 3.0
Y = X[:, 0] + np.sin(X[:, 1])
NAMES = ["north", "south", "west"]
CUTS = (20, 34)
RBF: dict[str, Any] = {"kernel": "rbf", "gamma": 0.05}
SPREAD: dict[str, Any] = {"fusion": "distance", "local_rank": 2, "precision": "spread"}


def rows(policies: Any = None) -> em.Partitioned:
    return em.Partitioned(rows=np.split(X, CUTS), names=NAMES, policies=policies)


def rows_of_levels(policies: Any = None) -> em.Partitioned:
    """The same rows; the first column is constant, the last has two levels."""
    Z = X.copy()
    Z[:, 0], Z[:, -1] = 0.1, X[:, -1] > 0
    return em.Partitioned(rows=np.split(Z, CUTS), names=NAMES, policies=policies)


def columns(policies: Any = None) -> em.Partitioned:
    return em.Partitioned(columns=np.split(X, (2, 4), axis=1), names=NAMES, policies=policies)


def uneven_columns(policies: Any = None) -> em.Partitioned:
    """One party with more columns than two numbers of all bits, and two with fewer."""
    return em.Partitioned(columns=np.split(X, (4, 5), axis=1), names=NAMES, policies=policies)


@dataclass(frozen=True)
class Fit:
    """An estimator, and what its federation is opened with."""

    name: str
    parts: Callable[..., em.Partitioned]
    build: Callable[[], Any]
    y: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    skips: bool = False  # whether parties may miss a round and come back

    def run(self, fed: Any) -> Any:
        estimator = self.build()
        return estimator.fit(fed) if self.y is None else estimator.fit(fed, self.y)

    def open(self, **options: Any) -> Any:
        return em.federation(self.parts(), **{**self.options, **options})

    def fitted(self) -> Any:
        """The model when nothing goes wrong; made once, for those who only look at it."""
        if self.name not in _FITTED:
            with self.open() as fed:
                _FITTED[self.name] = self.run(fed)
        return _FITTED[self.name]


_FITTED: dict[str, Any] = {}


RING: dict[str, Any] = {"topology": "ring"}
LINKS = nx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)])
ONE_WAY: dict[str, Any] = {"topology": LINKS, "averaging": "push-sum"}
TARGETS = np.split(Y, CUTS)
FEW: dict[str, Any] = {"n_landmarks": 12, "random_state": 0}

FITS = [
    *(
        Fit(f"diskpca-{name}", rows, lambda name=name: em.DisKPCA(2, **RBF, landmarks=name, **FEW))
        for name in ("diskpca", "uniform", "leverage", "rpcholesky", "centroids", "drawn")
    ),
    Fit("diskpca-median", rows, lambda: em.DisKPCA(2, kernel="rbf", gamma="median", **FEW)),
    Fit(
        "diskpca-small",
        rows,
        lambda: em.DisKPCA(2, **RBF, gram_rank=6, precision=8, accuracy=0.5, **FEW),
    ),
    Fit("diskpca-paper", rows, lambda: em.DisKPCA(2, **RBF, exact=False, **FEW)),
    Fit("diskpca-poly", rows, lambda: em.DisKPCA(2, kernel="poly", degree=2, gamma=0.1, **FEW)),
    Fit("sketching", rows, lambda: em.SketchingPCA(2, **RBF, embedding_dim=20, random_state=0)),
    # Noise that is nothing: contracts hold one fit against another.
    Fit("private-pca", rows, lambda: em.PrivatePCA(2, gamma=0.05, n_features=12, epsilon=1e12)),
    Fit(
        "private-kmeans",
        rows,
        lambda: em.PrivateKMeans(3, gamma=0.05, n_features=12, epsilon=1e12, n_rounds=3),
    ),
    Fit("moments-linear", rows, lambda: em.MomentPCA(2)),
    Fit("moments-poly", rows, lambda: em.MomentPCA(2, kernel="poly", degree=2, gamma=0.1)),
    Fit("kernel-pca-linear", rows, lambda: em.KernelPCA(2, kernel="linear", random_state=0)),
    Fit("kernel-pca-rows", rows, lambda: em.KernelPCA(2, **RBF, n_landmarks=12, random_state=0)),
    Fit(
        "kernel-pca-prepared",
        rows,
        lambda: em.KernelPCA(
            2,
            random_state=0,
            preparation=em.Preparation(standardize=True, fill_missing=0.1),
        ),
    ),
    Fit(
        "kernel-kmeans-prepared",
        rows,
        lambda: em.KernelKMeans(
            2,
            **RBF,
            n_landmarks=12,
            random_state=0,
            preparation=em.Preparation(standardize=True),
            precision=8,
        ),
    ),
    Fit(
        "kernel-pca-levels-ring",
        rows_of_levels,
        lambda: em.KernelPCA(
            2,
            kernel="linear",
            topology="ring",
            random_state=0,
            preparation=em.Preparation(True, fill_with="median", categories=[D - 1]),
        ),
        options=RING,
    ),
    Fit("one-shot-linear", columns, lambda: em.OneShotKPCA(2, local_rank=2)),
    Fit("one-shot-rbf", columns, lambda: em.OneShotKPCA(2, kernel="rbf", gamma="median")),
    Fit("one-shot-16-bits", columns, lambda: em.OneShotKPCA(2, **RBF, precision=16)),
    Fit("one-shot-4-bits", columns, lambda: em.OneShotKPCA(2, local_rank=2, precision=4)),
    Fit("one-shot-poly", columns, lambda: em.OneShotKPCA(2, kernel="poly", degree=2, local_rank=3)),
    Fit("vfed-pca", columns, lambda: em.VFedPCA(2)),
    Fit("vfed-pca-paper", columns, lambda: em.VFedPCA(2, variant="paper", n_rounds=4)),
    Fit("vfed-pca-ring", columns, lambda: em.VFedPCA(2, topology="ring"), options=RING),
    Fit("vfed-akpca", columns, lambda: em.VFedAKPCA(2, **RBF)),
    Fit("vfed-akpca-paper", columns, lambda: em.VFedAKPCA(2, **RBF, variant="paper", n_rounds=4)),
    Fit("vfed-akpca-sum", columns, lambda: em.VFedAKPCA(2, **RBF, variant="sum")),
    Fit("vfed-akpca-ring", columns, lambda: em.VFedAKPCA(2, **RBF, topology="ring"), options=RING),
    Fit("dpca", columns, lambda: em.DPCA(1, n_iterations=4, random_state=0), options=RING),
    Fit("admm", rows, lambda: em.ADMMKPCA(1, **RBF, n_iterations=3, random_state=0), options=RING),
    Fit(
        "gossip", rows, lambda: em.GossipKPCA(2, **RBF, n_features=9, random_state=0), options=RING
    ),
    Fit(
        "gossip-random",
        rows,
        lambda: em.GossipKPCA(2, **RBF, features="random", n_features=12, random_state=0),
        options=RING,
    ),
    Fit(
        "gossip-push-sum",
        rows,
        lambda: em.GossipKPCA(
            2, **RBF, features="random", n_features=12, random_state=0, **ONE_WAY
        ),
        options=ONE_WAY,
    ),
    *(
        Fit(
            f"fed-kmeans-{solver}",
            rows,
            lambda solver=solver: em.FedKernelKMeans(
                3, **RBF, n_features=6, n_iterations=4, solver=solver, random_state=0, n_init=1
            ),
            skips=True,
        )
        for solver in ("nystrom", "gram", "lanczos")
    ),
    Fit("kmeans-rows", rows, lambda: em.KernelKMeans(3, **RBF, random_state=0, n_init=1)),
    Fit(
        "kmeans-features",
        rows,
        lambda: em.KernelKMeans(
            3, **RBF, method="random-features", n_features=6, random_state=0, n_init=1
        ),
    ),
    Fit("kmeans-of-rows", rows, lambda: em.DistributedKMeans(3, random_state=0, n_init=1)),
    Fit("kmeans-columns", columns, lambda: em.KernelKMeans(3, **RBF, random_state=0, n_init=1)),
    Fit(
        "kmeans-ring",
        rows,
        lambda: em.KernelKMeans(3, **RBF, topology="ring", random_state=0, n_init=1),
        options=RING,
    ),
    Fit("ridge-rows", rows, lambda: em.KernelPCRegressor(3, **RBF, **FEW), TARGETS),
    Fit("ridge-columns", columns, lambda: em.KernelPCRegressor(3, **RBF, random_state=0), Y),
    Fit(
        "ridge-ring",
        rows,
        lambda: em.KernelPCRegressor(3, **RBF, topology="ring", random_state=0),
        TARGETS,
        options=RING,
    ),
    # Lies that once passed are known by the number of their fit: new ones come last.
    Fit("one-shot-spread", uneven_columns, lambda: em.OneShotKPCA(2, **RBF, **SPREAD)),
]
