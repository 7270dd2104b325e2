"""Paper 004: federated kernel k-means by stochastic proximal gradient descent, and its rivals.

Settings: `n_clusters` k, `n_eigenvectors` s, `n_features` D, `n_iterations` T, `coreset_size` C,
`n_parties`. gamma is N² / ΣΣ ‖x_i − x_j‖². Recovery is ‖K̂ − K_s‖²_F / n², after every iteration.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.pairwise import rbf_kernel

import eigenmesh as em
from eigenmesh.metrics import recovery_error
from eigenmesh.reproduce.datasets import Rows
from eigenmesh.reproduce.declare import Experiment, Measures
from eigenmesh.reproduce.experiments.measuring import leading, shipped, stopwatch, traffic

PAPER_ROWS = {"mushrooms": 8124, "mnist": 60_000, "covtype": 581_012, "smartphone": 177_029}
PAPER: dict[str, Any] = {"solver": "lanczos", "threshold": "paper", "features": "paper"}


class FederatedProblem:
    """Rows at five clients of equal size."""

    def __init__(self, rows: Rows, settings: Mapping[str, Any], seed: int) -> None:
        self.X, self.y, self.seed, self.settings = rows.X, rows.y, seed, settings
        self.k, self.s = settings["n_clusters"], settings["n_eigenvectors"]
        self.T = settings["n_iterations"]
        self.n_more = PAPER_ROWS.get(rows.name, len(rows.X)) - len(rows.X)
        self.gamma = float(1 / (2 * self.X.var(axis=0).sum()))
        self.parts = em.split(self.X, settings.get("n_parties", 5), random_state=seed)
        self.order = np.concatenate(self.parts.order or ())

    @cached_property
    def truth(self) -> tuple[Any, Any]:
        """The s leading eigenpairs of the kernel matrix."""
        return self.pooled_pairs()

    def pooled_pairs(self) -> tuple[Any, Any]:
        """By Lanczos."""
        return leading(self.matrix(), self.s)

    def matrix(self) -> Any:
        """The kernel matrix of all rows."""
        return rbf_kernel(self.X, gamma=self.gamma)

    @cached_property
    def pooled_products(self) -> float:
        """With the whole kernel matrix, that Lanczos takes for the truth."""
        K, counts = self.matrix(), itertools.count()
        operator = LinearOperator(K.shape, lambda v: (next(counts), K @ v)[1], dtype=K.dtype)
        leading(operator, self.s)
        return float(next(counts))

    def nmi(self, labels: Any) -> float:
        """Labels in the parties' order, against those of the rows."""
        return float(normalized_mutual_info_score(self.y[self.order], np.concatenate(labels)))

    def model(self, **options: Any) -> Any:
        """The paper's method in one of its forms."""
        return em.FedKernelKMeans(
            self.k,
            n_eigenvectors=self.s,
            n_features=self.settings["n_features"],
            n_iterations=self.T,
            coreset_size=self.settings.get("coreset_size"),
            gamma=self.gamma,
            random_state=self.seed,
            **options,
        )


def federated(problem: FederatedProblem, **options: Any) -> Measures:
    """A fit: recovery, Lanczos products, rank and floats of every iteration, and the clusters."""
    model = problem.model(**options)
    with stopwatch() as watch:
        model.fit(problem.parts)
    measures: dict[str, Any] = {
        "products": [float(entry.n_products) for entry in model.trace_],
        "rank": [float(entry.rank) for entry in model.trace_],
        "rank_bound": 4.0 * problem.s,
        "nmi": problem.nmi(model.labels_),
    }
    if problem.settings.get("recovery"):
        measures["recovery"] = [
            recovery_error(H, *problem.truth) for H in model.transform_history(problem.X)
        ]
    each = descent_floats(model.report_) / problem.T
    # Without the mechanism every Lanczos product takes a number a row more.
    a_row = float(np.mean(measures["products"])) if options.get("mechanism") == "direct" else 0.0
    return {
        **measures,
        **traffic(model.report_),
        "floats_an_iteration": each,
        "floats_at_paper_rows": each + a_row * problem.n_more,
        "seconds": watch.seconds,
    }


def descent_floats(report: Any) -> float:
    """Sent up by the clients while they descend, without the clusters' coreset."""
    steps = [name for name in report.by_step if name.startswith(("FeatureHolder", "SampleHolder"))]
    share = sum(report.by_step[name] for name in steps) / max(sum(report.by_step.values()), 1)
    return float(share * report.floats_up)


def pooled(problem: FederatedProblem, ship: bool = False) -> Measures:
    """Lanczos, then k-means, in one place: the paper's "cloud"."""
    with stopwatch() as watch:
        values, vectors = problem.pooled_pairs()
        scores = vectors * np.sqrt(values)
        labels = KMeans(problem.k, n_init=10, random_state=problem.seed).fit_predict(scores)
    nmi = float(normalized_mutual_info_score(problem.y, labels))
    sent = shipped(problem.X.size) if ship else {}
    each = {"floats_an_iteration": float(problem.X.size)} if ship else {}
    own = {"rank": [float(problem.s)], "recovery": [0.0], "products": [problem.pooled_products]}
    return {"nmi": nmi, **own, **sent, **each, "seconds": watch.seconds}


def rival(problem: FederatedProblem, method: str, **options: Any) -> Measures:
    """Kernel k-means by landmarks, random features or disKPCA."""
    model = em.KernelKMeans(
        problem.k,
        method=method,
        n_eigenvectors=None if method == "random-features" else problem.s,
        gamma=problem.gamma,
        random_state=problem.seed,
        **options,
    )
    with stopwatch() as watch:
        model.fit(problem.parts)
    report = model.report_
    measures: dict[str, Any] = {"nmi": problem.nmi(model.labels_), **traffic(report)}
    if method == "auto":
        H = np.asarray(model.transform(problem.X))
        measures["recovery"] = [recovery_error(H, *problem.truth)]
        measures["floats_an_iteration"] = float(report.floats_up)
    return {**measures, "seconds": watch.seconds}


def _sized(problem: FederatedProblem, method: str, **options: Any) -> Measures:
    """With the coreset of the setting."""
    return rival(problem, method, coreset_size=problem.settings.get("coreset_size"), **options)


def random_features(problem: FederatedProblem) -> Measures:
    """One shot of many features, then a coreset of rows of them."""
    return _sized(problem, "random-features", n_features=problem.settings["rival_features"])


federated_clusters = Experiment(
    "federated-clusters",
    FederatedProblem,
    {
        "pooled": pooled,
        "shipping": partial(pooled, ship=True),
        "default": partial(rival, method="auto"),
        "fk": partial(federated, solver="lanczos", features="paper"),
        "fk-paper": partial(federated, **PAPER),
        "fk-direct": partial(federated, **PAPER, mechanism="direct"),
        "random-features": random_features,
        "diskpca": partial(_sized, method="diskpca"),
        "nystrom": partial(_sized, method="nystrom"),
    },
)
