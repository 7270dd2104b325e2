"""Which landmarks and which k-means suit the data, the engine and what the parties let out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.kernel_kmeans.protocol import ClusteredRows, clustering_steps
from eigenmesh.kernel_pca.choose_landmarks import default_landmarks
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.kmeans import distributed_kmeans
from eigenmesh.stages.kmeans_party import KMeansSetup

FEW_ROWS = 500  # up to here every row of one array is a landmark
LEAST_SENT, SENT_EACH = 20, 9  # landmarks between parties: at least, and for each cluster
REFINE = 1  # Lloyd iterations after a coreset: they tell which of its solutions is best for all
UNIT_NORM = ("rbf", "laplacian", "cosine")

Shapes = Sequence[tuple[int, int]]


class Preset(NamedTuple):
    """A method by name: its landmarks and its k-means, "auto" where it leaves them open."""

    landmarks: str
    kmeans: str
    words: str


# The papers' comparisons differ from the default only in these two.
PRESETS = {
    "landmarks": Preset("auto", "auto", "landmarks, Gram matrices and distributed k-means"),
    "nystrom": Preset("uniform", "auto", "Nyström kernel k-means, from uniformly drawn rows"),
    "diskpca": Preset("diskpca", "coreset", "disKPCA, then distributed k-means"),
    "random-features": Preset("none", "coreset", "random features, then distributed k-means"),
}
METHODS = (*PRESETS, "exact", "fed")
# Of `KernelPCA`: how it finds the components of columns, or of rows on a graph.
COMPONENT_METHODS = ("gossip", "admm", "vfed-pca", "vfed-akpca", "one-shot")


class Choice(NamedTuple):
    """What a fit will do, and why."""

    method: str
    landmarks: str
    n_landmarks: int
    kmeans: str
    seeding: str
    why: str

    def __str__(self) -> str:
        return f"{self.method}: {self.why}"


class Wishes(NamedTuple):
    """The estimator's parameters, checked; "auto" and None where it leaves them open."""

    method: str
    kernel: str
    n_clusters: int
    n_eigenvectors: int
    landmarks: str
    n_landmarks: int | None
    kmeans: str
    n_features: int
    n_init: int
    max_iter: int
    tol: float
    seed: int
    accuracy: float
    more_eigenvectors: bool = False  # whether one array may have more, where they pay


def require_row_method(wishes: Wishes) -> None:
    """Refuse a method that is for columns, or for a graph, where rows have a coordinator."""
    if wishes.method in COMPONENT_METHODS:
        on_graph = wishes.method in ("gossip", "admm")
        remedy = "pass topology= for a graph" if on_graph else "it is for Partitioned(columns=...)"
        raise InputError(
            f"method is {wishes.method!r}; for rows with a coordinator it is 'auto' or one of: "
            f"{', '.join(METHODS)}; {remedy}"
        )


def candidates_for(wishes: Wishes, shapes: Shapes) -> list[Choice]:
    """What suits, best first: parties may refuse the first ones."""
    method = "landmarks" if wishes.method == "auto" else wishes.method
    preset = PRESETS[method]
    ways = _kmeans(wishes, preset, len(shapes))
    if method == "random-features":
        kmeans, seeding, why = ways[0]
        return [Choice(method, "none", 0, kmeans, seeding, f"{preset.words}; {why}")]
    q, every = _number(wishes, shapes)
    return [
        Choice(method, landmarks, q, kmeans, seeding, f"{preset.words}; {why}; {how}")
        for landmarks, why in _landmarks(wishes, preset, shapes, q, every)
        for kmeans, seeding, how in ways
    ]


def _kmeans(wishes: Wishes, preset: Preset, n_parties: int) -> list[tuple[str, str, str]]:
    """Ways of k-means, how each is seeded, and why."""
    asked = preset.kmeans if wishes.kmeans == "auto" else wishes.kmeans
    own = "exact Lloyd iterations from the landmarks' own scores, so that no score leaves"
    quiet = ("lloyd", "landmarks", own)
    if asked == "coreset":
        return [("coreset", "k-means||", "k-means of a coreset")]
    if asked == "lloyd":
        return [("lloyd", "k-means||", "exact Lloyd iterations"), quiet]
    if n_parties == 1:
        return [("lloyd", "k-means||", "exact Lloyd iterations, since nothing is sent"), quiet]
    few = "k-means of a coreset, since rounds between parties cost"
    return [("coreset", "k-means||", few), quiet]


def _number(wishes: Wishes, shapes: Shapes) -> tuple[int, bool]:
    """How many landmarks, and whether every row is one."""
    n, d = sum(rows for rows, _ in shapes), shapes[0][1]
    if wishes.n_landmarks is not None:
        return wishes.n_landmarks, wishes.n_landmarks >= n
    if len(shapes) > 1:
        q = max(LEAST_SENT, SENT_EACH * max(wishes.n_clusters, wishes.n_eigenvectors))
        return min(q, n), q >= n
    if n <= FEW_ROWS:
        return n, True
    q = default_landmarks(max(wishes.n_clusters, wishes.n_eigenvectors), wishes.kernel, d)
    return min(q, n), q >= n


def _landmarks(
    wishes: Wishes, preset: Preset, shapes: Shapes, q: int, every: bool
) -> list[tuple[str, str]]:
    asked = preset.landmarks if wishes.landmarks == "auto" else wishes.landmarks
    if asked != "auto":
        return [(asked, f"the landmarks are {asked!r}")]
    if every and len(shapes) == 1:
        return [("uniform", "every row is a landmark")]
    rows = "uniform" if wishes.kernel in UNIT_NORM else "diskpca"
    drawn = (rows, f"the landmarks are rows, drawn as {rows!r}")
    means = ("centroids", "the landmarks are centroids, and no row leaves")
    return [means, drawn] if wishes.kernel in UNIT_NORM else [drawn, means]


def allowed(fed: Federation, choices: list[Choice]) -> Choice:
    """The first choice that every party's policy lets happen."""
    refusals: list[PolicyRefusal] = []
    for choice in choices:
        try:
            _require(fed, choice)
        except PolicyRefusal as refusal:
            refusals.append(refusal)
            continue
        if not refusals:
            return choice
        refused = "; ".join(dict.fromkeys(f"{r.party!r} refuses more" for r in refusals))
        return choice._replace(why=f"{choice.why} ({refused})")
    raise refusals[0]


def _require(fed: Federation, choice: Choice) -> None:
    if choice.landmarks != "none":
        fed.require(ClusteredRows, clustering_steps(choice.landmarks))
    fed.require_stages(clustering_stage(choice))


def clustering_stage(choice: Choice) -> Stage:
    """A run of k-means that asks for what this choice does, of whatever size."""
    candidates = None if choice.seeding == "k-means||" else np.zeros((1, 1))
    how: dict[str, Any] = {"method": choice.kmeans, "refine": REFINE, "candidates": candidates}
    return stage(distributed_kmeans, KMeansSetup("", "", 0), 1, **how)
