"""Paper 002: the first component of columns at clients, round by round; images and topologies.

Settings: `n_clients` p, `local_iterations` l, `n_rounds` t, `kernel`. Distances are those of unit
vectors up to sign, to the pooled top vector. Columns are taken as they are, not centred, as the
paper has them. A final image is uᵀX, the samples projected on the merged vector: a row of pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import svds
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.pairwise import rbf_kernel

import eigenmesh as em
from eigenmesh.reproduce.datasets import Rows
from eigenmesh.reproduce.declare import Experiment, Measures
from eigenmesh.reproduce.experiments.measuring import (
    apart,
    leading,
    shipped,
    stopwatch,
    traffic,
)


class VerticalProblem:
    """Samples whose columns are cut into neighbouring blocks, one a client."""

    def __init__(self, rows: Rows, settings: Mapping[str, Any], seed: int) -> None:
        self.X, self.y, self.seed, self.settings = rows.X, rows.y, seed, settings
        self.p = min(settings["n_clients"], rows.X.shape[1])
        self.l, self.t = settings.get("local_iterations", 10), settings.get("n_rounds", 10)
        self.parts = em.split(self.X, self.p, by="columns")
        self.gamma = settings.get("gamma_over_features", 1.0) / self.X.shape[1]

    @cached_property
    def truth(self) -> Any:
        """The top left singular vector of all columns."""
        return self.pooled_vector()

    def pooled_vector(self) -> Any:
        """By Lanczos, without the products of samples."""
        start = np.ones(min(self.X.shape))
        return svds(self.X, k=1, v0=start, return_singular_vectors="u")[0][:, 0]

    def image(self, u: Any) -> Any:
        """uᵀX, of unit length."""
        image = u @ self.X
        return image / np.linalg.norm(image)

    def described(self, history: Any) -> dict[str, Any]:
        """Distances by round, and the image of the last vector beside that of all columns."""
        last = history[-1]
        alike = abs(float(self.image(last) @ self.image(self.truth)))
        distances = [apart(u, self.truth) for u in history]
        return {"distance": distances, "image": alike, "image_error": max(1 - alike, 0.0)}

    def nmi(self, scores: Any) -> float:
        """k-means of the samples' scores, against the labels."""
        k = min(len(np.unique(self.y)), len(self.y) - 1)
        labels = KMeans(k, n_init=4, random_state=0).fit_predict(scores)
        return float(normalized_mutual_info_score(self.y, labels))


def pooled(problem: VerticalProblem, ship: bool = False) -> Measures:
    """All columns in one place."""
    with stopwatch() as watch:
        u = problem.pooled_vector()
    sent = shipped(problem.X.size) if ship else {}
    return {**problem.described([u]), **sent, "seconds": watch.seconds}


def paper(problem: VerticalProblem, **options: Any) -> Measures:
    """VFedPCA as its paper has it; every round's merged vector."""
    pca = em.VFedPCA(
        1,
        variant="paper",
        center=False,
        n_rounds=problem.t,
        local_iterations=problem.l,
        random_state=problem.seed,
        **options,
    )
    with stopwatch() as watch:
        pca.fit(problem.parts)
    described = problem.described(pca.history_)
    return {**described, **traffic(pca.report_), "seconds": watch.seconds}


def default(problem: VerticalProblem) -> Measures:
    """The exact form, which em.KernelPCA chooses, round by round."""
    pca = em.VFedPCA(1, center=False, keep_history=True, random_state=problem.seed)
    with stopwatch() as watch:
        pca.fit(problem.parts)
    history = [V[:, 0] for V in np.asarray(pca.history_)[: problem.t]]
    return {**problem.described(history), **traffic(pca.report_), "seconds": watch.seconds}


def isolated(problem: VerticalProblem) -> Measures:
    """Every client on its own columns, nothing sent: the mean of their distances."""
    vectors = [
        svds(block, k=1, return_singular_vectors="u")[0][:, 0]
        if min(block.shape) > 1
        else block[:, 0]
        for block in problem.parts.parts
    ]
    apart_each = float(np.mean([apart(u, problem.truth) for u in vectors]))
    alike = float(np.mean([problem.described([u])["image"] for u in vectors]))
    return {"distance": [apart_each], "image": alike, "image_error": 1 - alike, **shipped(0)}


def horizontal(problem: VerticalProblem) -> Measures:
    """Rows at the clients and the same merge: vectors over the features, against the pooled one.

    A client's matrix is then X_iᵀX_i: the paper's method on the transpose.
    """
    X = problem.X.T
    parts = em.split(X, problem.p, by="columns")
    pca = em.VFedPCA(
        1, variant="paper", center=False, n_rounds=problem.t, local_iterations=problem.l
    ).fit(parts)
    truth = problem.X.T @ problem.truth
    distances = [apart(u, truth) for u in np.asarray(pca.history_)]
    return {"distance": distances, **traffic(pca.report_)}


def horizontal_default(problem: VerticalProblem) -> Measures:
    """Rows at the clients: sums of products, exact."""
    rows = em.split(problem.X, problem.p, by="rows", random_state=problem.seed)
    pca = em.KernelPCA(1, kernel="linear", center=False, small_parties="reveal").fit(rows)
    loadings = problem.X.T @ np.asarray(pca.transform(problem.X))[:, 0]
    distance = apart(loadings, problem.X.T @ problem.truth)
    return {"distance": [distance], **traffic(pca.report_)}


vertical = Experiment(
    "vertical",
    VerticalProblem,
    {
        "pooled": pooled,
        "shipping": partial(pooled, ship=True),
        "default": default,
        "vfed": paper,
        "vfed-unaligned": partial(paper, align_signs=False),
        "vfed-average": partial(paper, merge="average"),
        "vfed-warm": partial(paper, warm_start=True),
        "vfed-scaled": partial(paper, weight_scaling=True),
        "isolated": isolated,
        "horizontal": horizontal,
    },
)

horizontal_rows = Experiment(
    "horizontal-rows",
    VerticalProblem,
    {
        "pooled": pooled,
        "shipping": partial(pooled, ship=True),
        "default": horizontal_default,
        "horizontal": horizontal,
    },
)


# Topologies: images at every node.


def on_graph(problem: VerticalProblem, exact: bool) -> Measures:
    """The worst node's distance and image; `topology` is the setting, "server" has a centre."""
    name = problem.settings["topology"]
    topology = None if name == "server" else name
    options = {} if exact else {"variant": "paper", "n_rounds": problem.t}
    with stopwatch() as watch:
        pca = em.VFedPCA(1, center=False, topology=topology, **options).fit(problem.parts)
    nodes = np.asarray([pca.eigenvectors_] if topology is None else pca.node_vectors_)
    images = [problem.described([U[:, 0]])["image"] for U in nodes]
    distances = [apart(U[:, 0], problem.truth) for U in nodes]
    spread = max(apart(U[:, 0], nodes[0][:, 0]) for U in nodes)
    alike = min(images)
    worst = {"distance": max(distances), "image": alike, "image_error": max(1 - alike, 0.0)}
    return {**worst, "spread": spread, **traffic(pca.report_), "seconds": watch.seconds}


topologies = Experiment(
    "topologies",
    VerticalProblem,
    {
        "pooled": lambda problem: {**pooled(problem), "distance": 0.0},
        "shipping": lambda problem: {**pooled(problem, ship=True), "distance": 0.0},
        "default": partial(on_graph, exact=True),
        "vfed": partial(on_graph, exact=False),
    },
)


# Kernels over columns.


class KernelProblem(VerticalProblem):
    """The pooled answer is the top vector of the kernel matrix of all columns, not centred."""

    def matrix(self) -> Any:
        """The kernel matrix of all columns."""
        return rbf_kernel(self.X, gamma=self.gamma)

    def pooled_vector(self) -> Any:
        """By Lanczos."""
        return leading(self.matrix(), 1)[1][:, 0]

    @cached_property
    def of_the_sum(self) -> Any:
        """The top vector of the sum of the clients' own kernel matrices."""
        own = [rbf_kernel(block, gamma=self.gamma) for block in self.parts.parts]
        return leading(np.sum(own, axis=0), 1)[1][:, 0]

    def options(self) -> dict[str, Any]:
        """Of all kernel estimators."""
        return {"kernel": "rbf", "gamma": self.gamma, "center": False, "random_state": self.seed}


def kernel_default(problem: KernelProblem) -> Measures:
    """What em.KernelPCA does of its own."""
    kpca = em.KernelPCA(1, **problem.options())
    with stopwatch() as watch:
        kpca.fit(problem.parts)
    described = problem.described([np.asarray(kpca.eigenvectors_)[:, 0]])
    return {**described, **traffic(kpca.report_), "seconds": watch.seconds}


def kernel_paper(problem: KernelProblem, merge: str = "weighted") -> Measures:
    """VFedAKPCA as its paper has it: merged top vectors of the clients' own kernel matrices."""
    kpca = em.VFedAKPCA(1, variant="paper", merge=merge, n_rounds=problem.t, **problem.options())
    with stopwatch() as watch:
        kpca.fit(problem.parts)
    described = problem.described(kpca.history_)
    described["sum_distance"] = apart(np.asarray(kpca.history_)[-1], problem.of_the_sum)
    return {**described, **traffic(kpca.report_), "seconds": watch.seconds}


def kernel_sum(problem: KernelProblem) -> Measures:
    """The exact components of the sum of the clients' own kernel matrices."""
    kpca = em.VFedAKPCA(1, variant="sum", **problem.options())
    with stopwatch() as watch:
        kpca.fit(problem.parts)
    described = problem.described([np.asarray(kpca.eigenvectors_)[:, 0]])
    return {**described, **traffic(kpca.report_), "seconds": watch.seconds}


def kernel_isolated(problem: KernelProblem) -> Measures:
    """Every client on its own columns: the means."""
    own = [rbf_kernel(block, gamma=problem.gamma) for block in problem.parts.parts]
    described = [problem.described([leading(K, 1)[1][:, 0]]) for K in own]
    distance = float(np.mean([entry["distance"][0] for entry in described]))
    image = float(np.mean([entry["image"] for entry in described]))
    return {"distance": [distance], "image": image, "image_error": 1 - image, **shipped(0)}


kernel_vertical = Experiment(
    "kernel-vertical",
    KernelProblem,
    {
        "pooled": pooled,
        "shipping": partial(pooled, ship=True),
        "default": kernel_default,
        "vfed": kernel_paper,
        "vfed-average": partial(kernel_paper, merge="average"),
        "vfed-sum": kernel_sum,
        "isolated": kernel_isolated,
    },
)
