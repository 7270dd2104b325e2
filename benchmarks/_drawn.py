"""Random configurations of front door, split, sizes, kernel, gamma and data, from one seed each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from sklearn import datasets

import eigenmesh as em

DOORS = {"KernelPCA": 0.5, "KernelKMeans": 0.25, "KernelPCRegressor": 0.25}
SPLITS = {"one array": 0.2, "rows": 0.35, "columns": 0.17, "graph": 0.2, "columns on a graph": 0.08}
SIZES = {"equal": 0.3, "power": 0.25, "tiny beside large": 0.3, "one-row": 0.15}
PLACES = {"random": 0.5, "sorted": 0.25, "shifted": 0.25}
KERNELS = {
    ("linear", 1): 0.15,
    ("rbf", 1): 0.35,
    ("laplacian", 1): 0.13,
    ("poly", 2): 0.12,
    ("poly", 3): 0.09,
    ("cosine", 1): 0.09,
    ("arc-cosine", 1): 0.07,
}
GAMMAS = {"none": 0.2, "scale": 0.25, "median": 0.2, "mean-distance": 0.2, "number": 0.15}
REAL = ("digits", "wine", "breast_cancer", "iris", "diabetes")
DRAWN = (
    "low rank",
    "noise",
    "clusters",
    "moons",
    "rings",
    "cubed Cauchy",
    "Pareto",
    "sparse",
    "wide",
)
TWISTS = {
    "wide column": 0.18,
    "scaled": 0.14,
    "offset": 0.1,
    "duplicates": 0.08,
    "constant column": 0.06,
}
TOPOLOGIES = ("ring", "star", "full", "grid", "random", "random with weights")
MOST_NODES = 16


def pick(rng: np.random.Generator, weights: dict[Any, float]) -> Any:
    share = np.array(list(weights.values()))
    return list(weights)[rng.choice(len(share), p=share / share.sum())]


@dataclass(frozen=True)
class Configuration:
    """One drawn case; `source`, `targets` and `model` are made anew from the seed."""

    seed: int
    door: str
    split: str
    sizes: str
    place: str
    kernel: str
    degree: int
    coef0: float
    gamma: str
    factor: float  # of a gamma given as a number: times 1 / mean squared distance
    data: str
    twists: tuple[str, ...]
    n: int
    k: int
    center: bool
    parties: int
    topology: str
    alpha: float

    def __str__(self) -> str:
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name != "seed")
        return ", ".join(shown)

    @cached_property
    def order(self) -> list[np.ndarray]:
        """Each party's rows."""
        rng = np.random.default_rng([self.seed, 2])
        labels = self._drawn[1]
        rows = rng.permutation(len(labels))
        if self.place == "sorted":
            rows = rows[np.argsort(labels[rows], kind="stable")]
        return np.split(rows, np.cumsum(self._sizes(len(rows), rng))[:-1])

    @cached_property
    def rows(self) -> Any:
        """The pooled rows, (n, d)."""
        X = self._drawn[0]
        if self.place != "shifted" or self.split not in ("rows", "graph") or sp.issparse(X):
            return X
        X = X.copy()
        largest = int(np.argmax([len(rows) for rows in self.order]))
        spread = np.median(np.std(X, axis=0)) or 1.0
        for party, rows in enumerate(self.order):
            if party != largest and (len(self.order) > 4 or party % 2):
                X[rows] += 10 * spread
        return X

    @cached_property
    def dense(self) -> np.ndarray:
        return np.asarray(self.rows.toarray() if sp.issparse(self.rows) else self.rows, dtype=float)

    @cached_property
    def y(self) -> np.ndarray:
        """One target a row: the data's own, or a smooth function of the columns' ranks."""
        if self.data == "diabetes":
            return np.asarray(self._drawn[1], dtype=float)
        rng = np.random.default_rng([self.seed, 3])
        ranks = np.argsort(np.argsort(self.dense, axis=0), axis=0) / len(self.dense)
        along = (ranks - 0.5) @ rng.normal(size=(ranks.shape[1], 2)) / np.sqrt(ranks.shape[1])
        return np.sin(6 * along[:, 0]) + along[:, 1] + 0.1 * rng.normal(size=len(ranks))

    @cached_property
    def source(self) -> Any:
        """What `fit` takes."""
        if self.split == "one array":
            return self.rows
        if self.split.startswith("columns"):
            rng = np.random.default_rng([self.seed, 2])
            d = self.rows.shape[1]
            cuts = np.sort(rng.choice(np.arange(1, d), min(self.parties, d) - 1, replace=False))
            bounds = [0, *(int(cut) for cut in cuts), d]
            blocks = [self.rows[:, a:b] for a, b in pairwise(bounds)]
            return em.Partitioned(columns=blocks)
        return em.Partitioned(rows=[self.rows[rows] for rows in self.order])

    @property
    def targets(self) -> Any:
        """What `fit` takes beside it."""
        if self.door != "KernelPCRegressor":
            return None
        return [self.y[rows] for rows in self.order] if self.by_rows else self.y

    @property
    def by_rows(self) -> bool:
        return self.split in ("rows", "graph")

    def pooled(self, own: Any) -> np.ndarray:
        """Parties' lists in the rows' own order."""
        if not self.by_rows:
            return np.asarray(own)
        joint = np.concatenate([np.asarray(part) for part in own])
        return joint[np.argsort(np.concatenate(self.order))]

    def model(self) -> Any:
        options = {
            "kernel": self.kernel,
            "degree": self.degree,
            "coef0": self.coef0,
            "gamma": self._gamma(),
            "topology": self._graph(),
            "random_state": self.seed % 1000,
        }
        if self.door == "KernelPCA":
            options["center"] = self.center
        if self.door == "KernelPCRegressor":
            options["alpha"] = self.alpha
        return getattr(em, self.door)(self.k, **options)

    def _gamma(self) -> Any:
        if self.gamma == "none":
            return None
        if self.gamma != "number":
            return self.gamma
        variance = float(self.dense.var(axis=0).sum()) or 1.0
        gamma = self.factor / (2 * variance)
        return float(np.sqrt(gamma / self.dense.shape[1]) if self.kernel == "laplacian" else gamma)

    def _graph(self) -> Any:
        if "graph" not in self.split:
            return None
        if not self.topology.startswith("random"):
            return self.topology
        nodes = len(self.source.parts)
        rng = np.random.default_rng([self.seed, 4])
        graph = nx.gnp_random_graph(nodes, 0.3, seed=int(rng.integers(1000)))
        graph.add_edges_from(nx.path_graph(nodes).edges)
        if self.topology == "random with weights":
            for a, b in graph.edges:
                graph[a][b]["weight"] = float(rng.integers(1, 8))
        return graph

    @cached_property
    def _drawn(self) -> tuple[Any, np.ndarray]:
        rng = np.random.default_rng([self.seed, 1])
        X, labels = draw_data(self.data, self.n, rng)
        for twist in self.twists if not sp.issparse(X) else ():
            X = twisted(X, twist, rng)
        return X, labels

    def _sizes(self, n: int, rng: np.random.Generator) -> np.ndarray:
        most = MOST_NODES if self.split == "graph" else 120
        if self.sizes == "tiny beside large":
            tiny = rng.integers(1, 5, size=min(most - 1, self.parties * 6, n // 5))
            return np.array([n - tiny.sum(), *tiny])
        if self.sizes == "one-row":
            lone = min(most - 2, self.parties, n // 3)
            rest = n - lone
            return np.array([rest - rest // 2, *[1] * lone, rest // 2])
        weights = np.ones(self.parties)
        if self.sizes == "power":
            weights = np.arange(1.0, self.parties + 1) ** -rng.uniform(1, 2)
        sizes = np.maximum(1, np.floor(n * weights / weights.sum())).astype(int)
        sizes[0] += n - sizes.sum()
        return sizes


def configuration(seed: int) -> Configuration:
    """The case of a seed."""
    rng = np.random.default_rng([seed, 0])
    split = pick(rng, SPLITS)
    # Columns under the linear kernel take an iteration of their own: draw it more often.
    linear = {("linear", 1): 0.4} if split.startswith("columns") else {}
    kernel, degree = pick(rng, KERNELS | linear)
    real = rng.random() < 0.25
    twists = tuple(twist for twist, share in TWISTS.items() if rng.random() < share)
    topology = str(rng.choice(TOPOLOGIES))
    data = str(rng.choice(REAL if real else DRAWN))
    n = draw_number(split, data, rng)
    most = MOST_NODES if "graph" in split else 24
    door = pick(rng, DOORS)
    return Configuration(
        seed=seed,
        door=door,
        split=split,
        sizes=pick(rng, SIZES),
        place=pick(rng, PLACES),
        kernel=kernel,
        degree=degree,
        coef0=float(rng.choice([1.0, 1.0, 0.0])),
        gamma=pick(rng, GAMMAS),
        factor=float(10 ** rng.uniform(-1, 1)),
        data=data,
        twists=twists,
        n=n,
        k=int(rng.integers(2, 9)) if door == "KernelKMeans" else int(rng.integers(1, 11)),
        center=bool(rng.random() < 0.75),
        parties=int(rng.integers(2, max(3, min(most, n // 12)))),
        topology=topology,
        alpha=float(10 ** rng.uniform(-3, 1)),
    )


def draw_number(split: str, data: str, rng: np.random.Generator) -> int:
    """Rows: most below 1500; more than 2000 where that takes another path."""
    if data == "wide":
        return int(rng.integers(60, 200))
    if split == "columns on a graph":
        return int(rng.integers(60, 400))
    if split == "one array" and rng.random() < 0.5:
        return int(rng.integers(2001, 4000))
    if split in ("one array", "rows") and rng.random() < 0.12:
        return int(rng.integers(2001, 6000))
    most = {"columns": 1200, "graph": 1200}.get(split, 2000)
    return int(np.exp(rng.uniform(np.log(60), np.log(most))))


def draw_data(name: str, n: int, rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Rows, and labels (or a target) to sort them by."""
    if name in REAL:
        bunch = getattr(datasets, f"load_{name}")()
        rows = rng.permutation(len(bunch.data))[:n]
        return bunch.data[rows].astype(float), bunch.target[rows]
    d = int(rng.integers(3, 40))
    if name in ("moons", "rings"):
        maker = datasets.make_moons if name == "moons" else datasets.make_circles
        return maker(n, noise=0.08, random_state=int(rng.integers(1000)))
    if name == "clusters":
        centres = int(rng.integers(3, 9))
        return datasets.make_blobs(n, d, centers=centres, random_state=int(rng.integers(1000)))
    if name == "sparse":
        X = sp.random(n, 4 * d, density=0.08, format="csr", random_state=int(rng.integers(1000)))
        return X, np.asarray(X.sum(axis=1)).ravel() > 0.04 * 4 * d
    X = draw_dense(name, n, d, rng)
    return X, (X[:, 0] > np.median(X[:, 0])).astype(int)


def draw_dense(name: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    if name == "noise":
        return rng.normal(size=(n, d))
    if name == "cubed Cauchy":
        return rng.standard_cauchy(size=(n, d)) ** 3
    if name == "Pareto":
        return rng.normal(size=(n, d)) * (1 + rng.pareto(1.5, size=(n, 1)))
    if name == "wide":
        genes = int(rng.integers(500, 2500))
        steps = rng.normal(size=(n, 4)) @ rng.normal(size=(4, genes))
        return np.exp(0.5 * steps + rng.normal(size=(n, genes)))
    rank = int(rng.integers(2, min(7, d)))
    falling = rng.normal(size=(n, rank)) * 2.0 ** -np.arange(rank)
    return falling @ rng.normal(size=(rank, d)) + rng.uniform(0.03, 0.4) * rng.normal(size=(n, d))


def twisted(X: np.ndarray, twist: str, rng: np.random.Generator) -> np.ndarray:
    X = X.copy()
    column = int(rng.integers(X.shape[1]))
    if twist == "wide column":
        X[:, column] *= 10 ** rng.uniform(1, 6)
    if twist == "scaled":
        X *= 10 ** rng.uniform(-3, 5)
    if twist == "offset":
        X += 1e3 * rng.normal(size=X.shape[1]) * (np.median(X.std(axis=0)) or 1.0)
    if twist == "duplicates":
        rows = rng.integers(len(X) // 4 + 1, size=len(X) // 2)
        X[-len(rows) :] = X[rows]
    if twist == "constant column":
        X[:, column] = 3.0
    return X
