"""Paper 001: kernel PCA of rows at parties, then k-means or regression on the scores.

Settings: `kernel` ("poly" without offset, or "rbf"), `degree`, `n_components` k, `n_landmarks` |Y|,
`n_parties`, `n_clusters`. Parties' sizes follow a power law of exponent 2. Kernels are not centred.
Ratios are of squared residuals: that of the subspace over the best of rank k.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import pairwise_kernels

import eigenmesh as em
from eigenmesh.metrics import feature_space_inertia
from eigenmesh.reproduce.datasets import Rows
from eigenmesh.reproduce.declare import Experiment, Measures
from eigenmesh.reproduce.experiments.measuring import leading, shipped, stopwatch, traffic


class RowProblem:
    """Rows at parties whose sizes follow a power law."""

    def __init__(self, rows: Rows, settings: Mapping[str, Any], seed: int) -> None:
        self.seed, self.settings, self.X, self.y = seed, settings, rows.X, rows.y
        self.k = settings.get("n_components", 10)
        self.q = settings.get("n_landmarks", 10 * self.k)
        degree = settings.get("degree", 2)
        self.kernel: dict[str, Any] = {"kernel": settings.get("kernel", "poly")}
        if self.kernel["kernel"] == "poly":
            self.kernel |= {"gamma": 1.0, "degree": degree, "coef0": 0.0}
        else:
            self.kernel |= {"gamma": _mean_distance(self.X)}
        self.parts = em.split(
            self.X, settings["n_parties"], law="power", exponent=2.0, random_state=seed
        )
        self.order = np.concatenate(self.parts.order or ())

    @property
    def n_values(self) -> int:
        """Numbers that shipping every row takes; a value and its place of sparse ones."""
        X: Any = self.X
        return int(2 * X.nnz if hasattr(X, "nnz") else X.size)

    def matrix(self) -> Any:
        """The kernel matrix of all rows."""
        name, options = self.kernel["kernel"], dict(self.kernel)
        del options["kernel"]
        return pairwise_kernels(self.X, metric=name, **options)

    @cached_property
    def K(self) -> Any:  # noqa: N802  (the kernel matrix)
        """The same, kept."""
        return self.matrix()

    @cached_property
    def optimum(self) -> float:
        """The least squared residual of rank k."""
        return float(np.trace(self.K) - leading(self.K, self.k)[0].sum())

    def ratio(self, scores: Any) -> float:
        """Squared residual of the subspace that has these scores, over the least.

        Scores Z = ΦᵀL of an orthonormal L: its residual is tr K − ‖Z‖².
        """
        return (float(np.trace(self.K)) - float(np.square(scores).sum())) / self.optimum

    def pooled_scores(self) -> Any:
        """Of the leading components, made from nothing."""
        values, vectors = leading(self.matrix(), self.k)
        return vectors * np.sqrt(values)

    def door(self, **options: Any) -> dict[str, Any]:
        """Arguments of a front door: its own choices, but for the kernel; small parties count."""
        return {**self.kernel, "random_state": self.seed, "small_parties": "reveal", **options}


def _mean_distance(X: Any) -> float:
    """1 / mean squared distance."""
    return float(1 / (2 * X.var(axis=0).sum()))


# Components.


def components(problem: RowProblem, estimator: Any) -> Measures:
    """Fit, then the ratio of what it found."""
    with stopwatch() as watch:
        estimator.fit(problem.parts)
    scores = np.vstack(estimator.transform(problem.parts))
    ratio = problem.ratio(scores)
    return {"ratio": ratio, **traffic(estimator.report_), "seconds": watch.seconds}


def landmark_components(
    problem: RowProblem, landmarks: str, exact: bool = True, **options: Any
) -> Measures:
    """From |Y| landmarks, by disKPCA or at random; the paper's own sketches if not exact."""
    return components(problem, _landmarks(problem, landmarks, exact, **options))


def _landmarks(problem: RowProblem, landmarks: str, exact: bool = True, **options: Any) -> Any:
    return em.DisKPCA(
        problem.k,
        **problem.kernel,
        n_landmarks=problem.q,
        landmarks=landmarks,
        exact=exact,
        center=False,
        random_state=problem.seed,
        **options,
    )


def default_components(problem: RowProblem) -> Measures:
    """What em.KernelPCA does of its own, with as many landmarks as it finds it needs."""
    kpca = em.KernelPCA(problem.k, **problem.door(center=False))
    return components(problem, kpca)


def pooled_components(problem: RowProblem, ship: bool = False) -> Measures:
    """Lanczos on the whole kernel matrix."""
    with stopwatch() as watch:
        problem.pooled_scores()
    sent = shipped(problem.n_values) if ship else {}
    return {"ratio": 1.0, **sent, "seconds": watch.seconds}


row_components = Experiment(
    "row-components",
    RowProblem,
    {
        "pooled": pooled_components,
        "shipping": partial(pooled_components, ship=True),
        "default": default_components,
        "diskpca": partial(landmark_components, landmarks="diskpca"),
        "diskpca-paper": partial(landmark_components, landmarks="diskpca", exact=False),
        "diskpca-hadamard": partial(
            landmark_components, landmarks="diskpca", exact=False, reduction="hadamard", n_repeats=2
        ),
        "uniform": partial(landmark_components, landmarks="uniform"),
    },
)


# Components, then k-means: costs in feature space, over that of pooled components.


class ClusterProblem(RowProblem):
    """As many clusters as the paper's k, or as the set has classes."""

    @cached_property
    def pooled_cost(self) -> float:
        """Of k-means on the pooled scores, the best of several starts."""
        labels = KMeans(self.k, n_init=10, random_state=0).fit_predict(self.pooled_scores())
        return feature_space_inertia(self.K, labels)

    def cost_ratio(self, labels: Any) -> float:
        """Of labels in the parties' order."""
        K = self.K[np.ix_(self.order, self.order)]
        return feature_space_inertia(K, labels) / self.pooled_cost


def default_clusters(problem: ClusterProblem) -> Measures:
    """What em.KernelKMeans does of its own."""
    model = em.KernelKMeans(problem.k, **problem.door())
    with stopwatch() as watch:
        model.fit(problem.parts)
    ratio = problem.cost_ratio(np.concatenate(model.labels_))
    return {"cost_ratio": ratio, **traffic(model.report_), "seconds": watch.seconds}


def clusters(problem: ClusterProblem, landmarks: str, exact: bool = True) -> Measures:
    """The paper's two steps: components from |Y| landmarks, then k-means of a coreset of scores."""
    kpca = _landmarks(problem, landmarks, exact)
    kmeans = em.DistributedKMeans(
        problem.k, clustering="coreset", refine=0, random_state=problem.seed
    )
    with stopwatch() as watch:
        scores = kpca.fit(problem.parts).transform(problem.parts)
        kmeans.fit(em.Partitioned(rows=scores))
    ratio = problem.cost_ratio(np.concatenate(kmeans.labels_))
    sent = [traffic(model.report_) for model in (kpca, kmeans)]
    floats = {name: sum(own[name] for own in sent) for name in sent[0]}
    return {"cost_ratio": ratio, **floats, "seconds": watch.seconds}


def pooled_clusters(problem: ClusterProblem, ship: bool = False) -> Measures:
    """Lanczos, then k-means, in one place."""
    with stopwatch() as watch:
        KMeans(problem.k, n_init=1, random_state=problem.seed).fit(problem.pooled_scores())
    sent = shipped(problem.n_values) if ship else {}
    return {"cost_ratio": 1.0, **sent, "seconds": watch.seconds}


row_clusters = Experiment(
    "row-clusters",
    ClusterProblem,
    {
        "pooled": pooled_clusters,
        "shipping": partial(pooled_clusters, ship=True),
        "default": default_clusters,
        "diskpca": partial(clusters, landmarks="diskpca"),
        "diskpca-paper": partial(clusters, landmarks="diskpca", exact=False),
        "uniform": partial(clusters, landmarks="uniform"),
    },
)


# Components, then regression.


def regression(problem: RowProblem, **options: Any) -> Measures:
    """‖y − ŷ‖ / ‖y‖ of the training rows, as in the paper."""
    if options:
        options["n_landmarks"] = problem.q
    model = em.KernelPCRegressor(problem.k, alpha=0.0, **problem.door(**options))
    targets = [problem.y[rows] for rows in problem.parts.order or ()]
    with stopwatch() as watch:
        model.fit(problem.parts, targets)
    guess = np.concatenate(model.predict(problem.parts))
    error = _relative(problem.y[problem.order], guess)
    return {"regression_error": error, **traffic(model.report_), "seconds": watch.seconds}


def pooled_regression(problem: RowProblem, ship: bool = False) -> Measures:
    """Lanczos and least squares in one place."""
    with stopwatch() as watch:
        K = problem.matrix()
        K -= K.mean(axis=0)
        K -= K.mean(axis=1)[:, None]
        values, vectors = leading(K, problem.k)
        design = np.hstack([np.ones((len(K), 1)), vectors * np.sqrt(values)])
        guess = design @ np.linalg.lstsq(design, problem.y, rcond=None)[0]
    sent = shipped(problem.n_values) if ship else {}
    error = _relative(problem.y, guess)
    return {"regression_error": error, **sent, "seconds": watch.seconds}


def _relative(y: Any, guess: Any) -> float:
    return float(np.linalg.norm(y - guess) / np.linalg.norm(y))


row_regression = Experiment(
    "row-regression",
    RowProblem,
    {
        "pooled": pooled_regression,
        "shipping": partial(pooled_regression, ship=True),
        "default": regression,
        "diskpca": partial(regression, method="diskpca", landmarks="diskpca"),
        "uniform": partial(regression, method="diskpca", landmarks="uniform"),
        "sketching": partial(regression, method="sketching-pca"),
    },
)


# Leverage scores: sorted, over their mean; the list runs over shares of the rows.

SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def _leverage(scores: Any) -> dict[str, Any]:
    falling = np.sort(scores)[::-1] / scores.mean()
    at = [max(round(share * len(falling)) - 1, 0) for share in SHARES]
    return {"leverage": [float(max(falling[i], 1e-6)) for i in at], "skew": float(falling[0])}


def pooled_leverage(problem: RowProblem, ship: bool = False) -> Measures:
    """Exact scores of rank k, from the eigenvectors of the kernel matrix."""
    with stopwatch() as watch:
        vectors = leading(problem.matrix(), problem.k)[1]
    sent = shipped(problem.n_values) if ship else {}
    return {**_leverage(np.square(vectors).sum(axis=1)), **sent, "seconds": watch.seconds}


def embedded_leverage(problem: RowProblem, embedding_dim: int | None = None) -> Measures:
    """Of rows that stay at their parties, from an embedding: ours, or the paper's 2k dimensions."""
    with stopwatch() as watch:
        outcome = em.leverage_scores(
            problem.parts,
            problem.k,
            **problem.kernel,
            embedding_dim=2 * problem.k if embedding_dim else None,
            random_state=problem.seed,
        )
    scores = np.concatenate(outcome.scores)
    gap = _gap(problem)
    return {**_leverage(scores), **traffic(outcome.report), **gap, "seconds": watch.seconds}


def _gap(problem: RowProblem) -> dict[str, float]:
    """By how much uniform landmarks err more than disKPCA's, at as many landmarks."""
    errors = {
        name: landmark_components(problem, name)["ratio"] - 1 for name in ("uniform", "diskpca")
    }
    return {"gap": errors["uniform"] / max(errors["diskpca"], 1e-9)}


leverage = Experiment(
    "leverage",
    RowProblem,
    {
        "pooled": pooled_leverage,
        "shipping": partial(pooled_leverage, ship=True),
        "default": embedded_leverage,
        "diskpca-paper": partial(embedded_leverage, embedding_dim=1),
    },
)
