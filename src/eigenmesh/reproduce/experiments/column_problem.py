"""Paper 000: kernel PCA of columns at parties, against the components of the whole kernel matrix.

Settings: `n_components` D, `features_a_party` or `n_parties` J, `kernel`, `gamma_over_features`.
Errors are those of eigenvectors. The pooled answer is that of Lanczos.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import LinearSVC

import eigenmesh as em
from eigenmesh.metrics import projector_distance, sin_theta
from eigenmesh.numerics.centring import centre_in_place
from eigenmesh.reproduce.datasets import Rows
from eigenmesh.reproduce.declare import Experiment, Measures
from eigenmesh.reproduce.experiments.measuring import leading, shipped, stopwatch, traffic


class ColumnProblem:
    """Samples whose columns are cut into neighbouring blocks."""

    def __init__(self, rows: Rows, settings: Mapping[str, Any], seed: int) -> None:
        self.seed, self.settings = seed, settings
        self.X, self.y = rows.X, rows.y
        width = settings.get("features_a_party")
        m = self.X.shape[1]
        self.J = settings.get("n_parties") or max(round(m / width), 1)
        self.k, self.kernel = settings["n_components"], settings.get("kernel", "linear")
        self.center = self.kernel == "rbf"  # the linear simulation is taken as it is
        scale = settings.get("gamma_over_features")
        self.gamma = None if scale is None else scale / m
        self.parts = em.split(self.X, self.J, by="columns")

    def matrix(self) -> Any:
        """The kernel matrix of all columns."""
        if self.kernel == "linear":
            return self.X @ self.X.T
        K = rbf_kernel(self.X, gamma=self.gamma)
        centre_in_place(K)
        return K

    @cached_property
    def truth(self) -> Any:
        """Its leading eigenvectors."""
        return leading(self.matrix(), self.k)[1]

    def errors(self, vectors: Any) -> dict[str, float]:
        """Of estimated eigenvectors."""
        return {
            "error": sin_theta(vectors, self.truth),
            "projector_error": projector_distance(vectors, self.truth),
        }


def pooled(problem: ColumnProblem) -> Measures:
    """Lanczos on the whole kernel matrix, another start than that of the truth."""
    with stopwatch() as watch:
        vectors = leading(problem.matrix(), problem.k, seed=1)[1]
    return {**problem.errors(vectors), "seconds": watch.seconds}


def shipping(problem: ColumnProblem) -> Measures:
    """Every column to one place, there the pooled answer."""
    return {**pooled(problem), **shipped(problem.X.size)}


def _fitted(problem: ColumnProblem, estimator: Any) -> Measures:
    with stopwatch() as watch:
        estimator.fit(problem.parts)
    errors = problem.errors(estimator.eigenvectors_)
    return {**errors, **traffic(estimator.report_), "seconds": watch.seconds}


def one_shot(problem: ColumnProblem, extra: int = 0) -> Measures:
    """The paper's method, each party sending `extra` pairs more than D."""
    rank = min(problem.k + extra, len(problem.X))
    kernel = {"kernel": problem.kernel, "gamma": problem.gamma, "center": problem.center}
    return _fitted(problem, em.OneShotKPCA(problem.k, local_rank=rank, **kernel))


def default(problem: ColumnProblem) -> Measures:
    """What em.KernelPCA does of its own."""
    kernel = {"kernel": problem.kernel, "gamma": problem.gamma, "center": problem.center}
    return _fitted(problem, em.KernelPCA(problem.k, **kernel, random_state=problem.seed))


def decentralised(problem: ColumnProblem, n_neighbours: int) -> Measures:
    """DPCA, after every fit of the loadings; on a full graph where there are no more nodes."""
    J, T = problem.J, problem.settings["n_iterations"]
    everyone = n_neighbours >= J - 1
    # A lattice has as many neighbours a side: of 3 and 5 a random regular graph.
    topology = "full" if everyone else _regular(n_neighbours, J, problem.seed)
    pca = em.DPCA(
        problem.k,
        topology=topology,
        n_iterations=T,
        n_inner=12,
        center=False,
        keep_history=True,
        random_state=problem.seed,
    )
    with stopwatch() as watch:
        pca.fit(problem.parts)
    errors = [
        np.mean([projector_distance(U, problem.truth) for U in nodes]) for nodes in pca.history_
    ]
    return {"projector_error": errors, **traffic(pca.report_), "seconds": watch.seconds}


def _regular(degree: int, n_nodes: int, seed: int) -> Any:
    import networkx as nx

    graph = nx.random_regular_graph(degree, n_nodes, seed=seed)
    while not nx.is_connected(graph):
        seed += 1000
        graph = nx.random_regular_graph(degree, n_nodes, seed=seed)
    return graph


columns = Experiment(
    "columns",
    ColumnProblem,
    {
        "pooled": pooled,
        "shipping": shipping,
        "default": default,
        "one-shot": one_shot,
        "one-shot-wide": partial(one_shot, extra=5),
        "dpca-3": partial(decentralised, n_neighbours=3),
        "dpca-5": partial(decentralised, n_neighbours=5),
        "dpca-10": partial(decentralised, n_neighbours=10),
    },
)


# Table I: a linear support vector machine on the scores.


class ClassProblem(ColumnProblem):
    """Two classes, 200 samples (or half of them) for training, the others for the error."""

    def __init__(self, rows: Rows, settings: Mapping[str, Any], seed: int) -> None:
        first, second = settings["classes"]
        those = np.isin(rows.y, (*first, *second))
        X, y = rows.X[those], np.isin(rows.y[those], first)
        order = np.random.default_rng(seed).permutation(len(X))
        n = min(settings["n_train"], len(X) // 2)
        self.train, self.test = order[:n], order[n:]
        self.all, self.labels = X, y
        k = min(settings["n_components"], n - 2)
        super().__init__(
            Rows(rows.name, X[self.train], y[self.train], rows.origin),
            {**settings, "n_components": k},
            seed,
        )

    def misclassified(self, train: Any, test: Any) -> float:
        """Scores in, share of wrong labels out."""
        scale = np.abs(train).max() or 1.0
        machine = LinearSVC(C=10.0, dual="auto", max_iter=5000)
        machine.fit(train / scale, self.labels[self.train])
        return float(np.mean(machine.predict(test / scale) != self.labels[self.test]))


def classify(problem: ClassProblem, make: Any) -> Measures:
    """Fit, score training and new samples, classify."""
    estimator = make(problem)
    with stopwatch() as watch:
        train = estimator.fit_transform(problem.parts)
    test = estimator.transform(problem.all[problem.test])
    wrong = problem.misclassified(np.asarray(train), np.asarray(test))
    return {"misclassified": wrong, **traffic(estimator.report_), "seconds": watch.seconds}


def classify_pooled(problem: ClassProblem, linear: bool = False) -> Measures:
    """The same of all columns in one place; linear PCA for comparison."""
    from sklearn.decomposition import KernelPCA

    k = problem.k
    solver = {"eigen_solver": "arpack"} if 4 * k < len(problem.X) else {}
    kpca = PCA(k) if linear else KernelPCA(k, kernel="rbf", gamma=problem.gamma, **solver)
    with stopwatch() as watch:
        train = kpca.fit_transform(problem.X)
    wrong = problem.misclassified(train, kpca.transform(problem.all[problem.test]))
    return {"misclassified": wrong, **shipped(problem.X.size), "seconds": watch.seconds}


def classify_by_distances(problem: ClassProblem) -> Measures:
    """The paper's eq. (10): samples by their distances to those of training, which parties add up.

    The eigenvectors of a centred matrix sum to 0, so that centring these values shifts all scores.
    """
    estimator = _one_shot(problem)
    with stopwatch() as watch:
        estimator.fit(problem.parts)
    directions = estimator.eigenvectors_ / np.sqrt(estimator.eigenvalues_)
    train, test = (
        rbf_kernel(X, problem.X, gamma=problem.gamma) @ directions
        for X in (problem.X, problem.all[problem.test])
    )
    wrong = problem.misclassified(train, test)
    return {"misclassified": wrong, **traffic(estimator.report_), "seconds": watch.seconds}


def _one_shot(problem: ClassProblem) -> Any:
    rank = min(problem.k, len(problem.X))
    return em.OneShotKPCA(problem.k, kernel="rbf", gamma=problem.gamma, local_rank=rank)


def _default(problem: ClassProblem) -> Any:
    return em.KernelPCA(problem.k, kernel="rbf", gamma=problem.gamma, random_state=problem.seed)


classification = Experiment(
    "classification",
    ClassProblem,
    {
        "pooled": classify_pooled,
        "shipping": classify_pooled,
        "linear": partial(classify_pooled, linear=True),
        "default": partial(classify, make=_default),
        "one-shot": classify_by_distances,
        "one-shot-projected": partial(classify, make=_one_shot),
    },
)
