"""Paper 003: the first kernel component of rows at the nodes of a graph, without a coordinator.

Settings: `n_nodes` J, `rows_a_node` N, `n_neighbours` |Ω|, `n_iterations`. Similarities are |cos|
in feature space between a node's direction and the pooled component, means over the nodes.
gamma is 0.5 / median squared distance; kernels are centred over all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.metrics.pairwise import rbf_kernel

import eigenmesh as em
from eigenmesh.numerics.centring import centre_in_place
from eigenmesh.reproduce.datasets import Rows
from eigenmesh.reproduce.declare import Experiment, Measures
from eigenmesh.reproduce.experiments.measuring import leading, shipped, stopwatch, traffic

DIGITS = (0, 3, 5, 8)


class GraphProblem:
    """Images of four digits, dealt out evenly; each node's neighbours are those closest to it."""

    def __init__(self, rows: Rows, settings: Mapping[str, Any], seed: int) -> None:
        self.seed, self.settings = seed, settings
        self.J, n = settings["n_nodes"], settings["n_nodes"] * settings["rows_a_node"]
        self.X = rows.X[np.isin(rows.y, DIGITS)][:n]
        self.degree = min(settings["n_neighbours"], 2 * ((self.J - 1) // 2))
        self.topology = ("lattice", self.degree)
        self.gamma = float(0.5 / np.median(pdist(self.X[:500], "sqeuclidean")))
        self.parts = em.Partitioned(rows=np.array_split(self.X, self.J))
        self._fits: dict[str, tuple[Any, Any, float]] = {}

    @cached_property
    def K(self) -> Any:  # noqa: N802  (the kernel matrix)
        """The centred kernel matrix of all rows."""
        K = rbf_kernel(self.X, gamma=self.gamma)
        centre_in_place(K)
        return K

    @cached_property
    def truth(self) -> Any:
        """Its first eigenvector."""
        return leading(self.K, 1)[1][:, 0]

    def iterated(self, **options: Any) -> tuple[Any, Any, float]:
        """History and report of ADMMKPCA with the pooled rows to compare with; the time without.

        One fit serves all that is measured of it; nodes, who hold their neighbours' rows, go.
        """
        name = str(sorted(options.items()))
        if name not in self._fits:
            kpca = em.ADMMKPCA(
                1,
                topology=self.topology,
                kernel="rbf",
                gamma=self.gamma,
                n_iterations=self.settings["n_iterations"],
                random_state=self.seed,
                **options,
            )
            with stopwatch() as watch:
                if self.settings.get("timed"):
                    kpca.fit(self.parts)
            seconds = watch.seconds if self.settings.get("timed") else 0.0
            kpca.set_params(reference=self.X).fit(self.parts)
            self._fits[name] = kpca.history_, kpca.report_, seconds
        return self._fits[name]

    def similarity(self, rows: Any, alpha: Any) -> float:
        """|cos| of φ(X_rows) α with the pooled component."""
        across = float(alpha @ (self.K[rows] @ self.truth))
        own = float(alpha @ self.K[np.ix_(rows, rows)] @ alpha)
        return float(abs(across) / np.sqrt(own * float(self.truth @ self.K @ self.truth)))

    def pooled_at(self, node: int, reach: int) -> float:
        """Similarity of the component of a node's rows and those of `reach` nodes a side."""
        blocks = np.array_split(np.arange(len(self.X)), self.J)
        nodes = sorted({(node + step) % self.J for step in range(-reach, reach + 1)})
        rows = np.concatenate([blocks[i] for i in nodes])
        K = rbf_kernel(self.X[rows], gamma=self.gamma)
        centre_in_place(K)
        return self.similarity(rows, leading(K, 1)[1][:, 0])


def pooled(problem: GraphProblem) -> Measures:
    """Lanczos on the whole kernel matrix, which is timed with making it."""
    with stopwatch() as watch:
        K = rbf_kernel(problem.X, gamma=problem.gamma)
        centre_in_place(K)
        leading(K, 1)
    return {"similarity": 1.0, "seconds": watch.seconds, "node_seconds": watch.seconds}


def shipping(problem: GraphProblem) -> Measures:
    """Every row to one node, there the pooled answer."""
    return {**pooled(problem), **shipped(problem.X.size)}


def alone(problem: GraphProblem, among_neighbours: bool = False) -> Measures:
    """A node's own rows, or those that its neighbours could send it."""
    reach = problem.degree // 2 if among_neighbours else 0
    nodes = range(0, problem.J, max(problem.J // 20, 1))
    similar = float(np.mean([problem.pooled_at(node, reach) for node in nodes]))
    sent = problem.degree * problem.X.size if among_neighbours else 0
    return {"similarity": similar, **shipped(sent)}


def admm(problem: GraphProblem, of_z: bool = False, **options: Any) -> Measures:
    """Every iteration's similarity to the pooled component: of w, the paper's, or of z."""
    history, report, seconds = problem.iterated(**options)
    similar = history[1:, :, 1 if of_z else 0, 0].mean(axis=1)
    # The reference is for research; what it takes is neither the paper's traffic nor its time.
    sent = report.floats_up + report.floats_down
    sent -= report.by_step["AdmmPeer.take_reference"]
    sent -= report.by_step["AdmmPeer.tell_similarity"]
    times = {"seconds": seconds, "node_seconds": seconds / problem.J} if seconds else {}
    return {"similarity": [float(s) for s in similar], **shipped(sent), **times}


def default(problem: GraphProblem) -> Measures:
    """What em.KernelPCA does of its own on that graph."""
    kpca = em.KernelPCA(
        1,
        kernel="rbf",
        gamma=problem.gamma,
        topology=problem.topology,
        random_state=problem.seed,
    )
    with stopwatch() as watch:
        kpca.fit(problem.parts)
    Z = np.asarray(kpca.transform(problem.X))[:, 0]
    # Scores are inner products with a unit direction w: cos = Σ t_i z_i / √λ of centred scores.
    value = float(problem.truth @ problem.K @ problem.truth)
    similar = abs(float(problem.truth @ (Z - Z.mean()))) / np.sqrt(value)
    seconds = {"seconds": watch.seconds, "node_seconds": watch.seconds / problem.J}
    return {"similarity": similar, **traffic(kpca.report_), **seconds}


graph_rows = Experiment(
    "graph-rows",
    GraphProblem,
    {
        "pooled": pooled,
        "shipping": shipping,
        "local": alone,
        "neighbours": partial(alone, among_neighbours=True),
        "admm": admm,
        "admm-z": partial(admm, of_z=True),
        "admm-paper": partial(admm, variant="paper", penalty="paper"),
        "admm-printed": partial(
            admm, variant="paper", penalty="paper", start="random", unit_ball=True
        ),
        "default": default,
    },
)
