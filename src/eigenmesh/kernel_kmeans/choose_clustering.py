"""Which landmarks and which k-means suit the data, the engine and what the parties let out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.estimators.base import DoorArguments, Needs
from eigenmesh.estimators.small_parties import LEAVE_OUT, NO_ROWS
from eigenmesh.kernel_kmeans.protocol import (
    FeatureLabelSetup,
    LabelSetup,
    feature_moments,
    feature_points,
    kernel_sums,
)
from eigenmesh.kernel_pca.choose_method import nothing_allowed
from eigenmesh.kernel_pca.one_array import default_landmarks
from eigenmesh.methods.diskpca.landmark_fits import Accuracy
from eigenmesh.methods.diskpca.scores import landmark_scores
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup
from eigenmesh.methods.moments.protocol import MomentSetup, moment_pca
from eigenmesh.methods.registry import for_kernel, methods, names_of
from eigenmesh.numerics.kernels import UNIT_NORM
from eigenmesh.runtime.compact import EXACT
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.distributed_kmeans import distributed_kmeans
from eigenmesh.stages.kmeans_party import KMeansSetup

FEW_ROWS = 500  # up to here every row of one array is a landmark
LEAST_SENT, SENT_EACH = 20, 9  # landmarks between parties: at least, and for each cluster
# Lloyd iterations after a coreset: they tell which of its solutions is best for all. Few means are
# coarser than drawn rows: of 178 rows over 4 parties they left 4 % of the inertia after one.
REFINE = {"lloyd": 0, "coreset": 1, "means": 2, "groups": 0}
SEARCHES = 12  # for better clusters by splitting and joining

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


def row_methods() -> tuple[str, ...]:
    """For rows with a coordinator."""
    return (*PRESETS, "exact", *names_of(methods(task="clusters")))


def component_methods() -> tuple[str, ...]:
    """Of `KernelPCA`: how it finds the components of columns, or of rows on a graph."""
    return names_of(method for method in methods() if method.graph or method.split == "columns")


class ClusteringChoice(NamedTuple):
    """What a fit will do, and why."""

    method: str
    landmarks: str  # "none" of random features, "moments" where components come from these
    n_landmarks: int
    kmeans: str
    seeding: str
    why: str

    def __str__(self) -> str:
        return f"{self.method}: {self.why}"


class ClusteringParameters(NamedTuple):
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
    more_eigenvectors: bool = False  # whether rows may have more, where they pay
    degree: float = 3
    coef0: float = 1.0
    small_parties: str = LEAVE_OUT
    coreset_size: int | None = None
    embedding_dim: int | None = None
    keep_history: bool = False  # of a graph's rounds
    bits: int = EXACT  # of landmarks


def require_row_method(params: ClusteringParameters) -> None:
    """Refuse a method that is for columns, or for a graph, where rows have a coordinator."""
    if params.method in component_methods():
        of_rows = params.method in names_of(methods(split="rows", graph=True))
        remedy = "pass topology= for a graph" if of_rows else "it is for Partitioned(columns=...)"
        raise InputError(
            f"method is {params.method!r}; for rows with a coordinator it is 'auto' or one of: "
            f"{', '.join(row_methods())}; {remedy}"
        )


class Holders(NamedTuple):
    """Whose rows are clustered."""

    shapes: Shapes
    alone: bool  # whether all rows are in one place, which nothing leaves
    secure: bool = False  # whether sums are masked
    apart: bool = False  # whether organisations hold them, who do not trust a coordinator

    @property
    def n_rows(self) -> int:
        """Of all."""
        return sum(n for n, _ in self.shapes)


def leaves_out_small(params: ClusteringParameters, holders: Holders) -> bool:
    """Whether a fit goes on without parties of few rows; whoever asks for rows has decided."""
    by_name = params.method not in ("auto", "landmarks") or params.landmarks not in NO_ROWS
    return not (holders.alone or holders.secure or by_name) and params.small_parties == LEAVE_OUT


def candidates_for(params: ClusteringParameters, holders: Holders) -> list[ClusteringChoice]:
    """What suits, best first: parties may refuse the first ones."""
    method = "landmarks" if params.method == "auto" else params.method
    preset = PRESETS[method]
    clusterings = _kmeans(params, preset, holders)
    if method == "random-features":
        kmeans, seeding, why = clusterings[0]
        return [ClusteringChoice(method, "none", 0, kmeans, seeding, f"{preset.words}; {why}")]
    q, every = _number(params, holders)
    return _by_moments(params, clusterings, holders, q) + [
        ClusteringChoice(method, landmarks, q, kmeans, seeding, f"{preset.words}; {why}; {how}")
        for landmarks, why in _landmarks(params, preset, holders, every)
        for kmeans, seeding, how in clusterings
    ]


def _by_moments(
    params: ClusteringParameters,
    clusterings: Sequence[tuple[str, str, str]],
    holders: Holders,
    n_landmarks: int,
) -> list[ClusteringChoice]:
    """Components from sums, where the kernel's features are few and rows are split."""
    unasked = (params.method, params.landmarks) == ("auto", "auto")
    by_sums = [method for method in for_kernel(methods(), params.kernel) if method.sizes_allow]
    if not unasked or holders.alone:
        return []
    arguments = DoorArguments("KernelKMeans", params._asdict(), None, None, n_landmarks, None, None)
    return [
        ClusteringChoice(method.name, "moments", 0, kmeans, seeding, f"{method.why}; then {how}")
        for method in by_sums
        if method.sizes_allow is not None and method.sizes_allow(arguments, holders.shapes)
        for kmeans, seeding, how in clusterings
        if seeding != "landmarks" or kmeans == "groups"  # there are no landmarks to begin with
    ]


def _kmeans(
    params: ClusteringParameters, preset: Preset, holders: Holders
) -> list[tuple[str, str, str]]:
    """Ways of k-means, how each is seeded, and why."""
    kmeans = preset.kmeans if params.kmeans == "auto" else params.kmeans
    own = "exact Lloyd iterations from the landmarks' own scores, so that no score leaves"
    quiet = ("lloyd", "landmarks", own)
    groups = (
        "groups",
        "landmarks",
        "Lloyd iterations on sums over groups of rows' scores, five at least",
    )
    if kmeans == "groups":
        return [groups]
    if kmeans == "coreset":
        return [("coreset", "k-means||", "k-means of a coreset")]
    if kmeans == "lloyd":
        return [("lloyd", "k-means||", "exact Lloyd iterations"), quiet]
    if holders.alone:
        return [("lloyd", "k-means||", "exact Lloyd iterations, since nothing is sent"), quiet]
    if holders.secure:
        return [quiet]
    if params.landmarks not in ("auto", "centroids") or preset.landmarks not in ("auto", "none"):
        # Who lets rows leave lets scores of rows leave.
        few = "k-means of a coreset, since rounds between parties cost"
        return [("coreset", "k-means||", few), quiet, groups]
    if holders.apart and kmeans == "auto":
        # Two sums that differ by one row tell it, whichever cells are withheld.
        return [(*groups[:2], f"{groups[2]}, since organisations keep single rows")]
    few = "k-means of means of rows' scores, five at least, since rounds between parties cost"
    by_means = ("means", "k-means||", few)
    return [by_means, quiet] if kmeans == "means" else [by_means, quiet, groups]


def _number(params: ClusteringParameters, holders: Holders) -> tuple[int, bool]:
    """How many landmarks, and whether every row is one."""
    n, d = holders.n_rows, holders.shapes[0][1]
    if params.n_landmarks is not None:
        return params.n_landmarks, params.n_landmarks >= n
    if not holders.alone:
        q = max(LEAST_SENT, SENT_EACH * max(params.n_clusters, params.n_eigenvectors))
        return min(q, n), q >= n
    if n <= FEW_ROWS:
        return n, True
    q = default_landmarks(max(params.n_clusters, params.n_eigenvectors), params.kernel, d)
    return min(q, n), q >= n


def _landmarks(
    params: ClusteringParameters, preset: Preset, holders: Holders, every: bool
) -> list[tuple[str, str]]:
    landmarks = preset.landmarks if params.landmarks == "auto" else params.landmarks
    if landmarks != "auto":
        return [(landmarks, f"the landmarks are {landmarks!r}")]
    if every and holders.alone:
        return [("uniform", "every row is a landmark")]
    if holders.secure:
        return [("drawn", "the landmarks are drawn from sums, and count parties of any size")]
    rows = "uniform" if params.kernel in UNIT_NORM else "diskpca"
    draws = (rows, f"the landmarks are rows, drawn as {rows!r}")
    means = ("centroids", "the landmarks are centroids, and no row leaves")
    if not holders.alone:  # rows leave only if they are asked for by name
        return [means]
    return [means, draws] if params.kernel in UNIT_NORM else [draws, means]


def first_allowed(fed: Federation, choices: list[ClusteringChoice]) -> ClusteringChoice:
    """The first choice that every party's policy lets happen."""
    refusals: list[PolicyRefusal] = []
    for choice in choices:
        try:
            fed.require_stages(*_needs(choice))
        except PolicyRefusal as refusal:
            refusals.append(refusal)
            continue
        if not refusals:
            return choice
        who = "; ".join(dict.fromkeys(f"{r.party!r} refuses more" for r in refusals))
        return choice._replace(why=f"{choice.why} ({who})")
    needed = [(f"{choice.kmeans!r} of {choice.landmarks}", _needs(choice)) for choice in choices]
    raise nothing_allowed(fed, needed, refusals[0])


def _needs(choice: ClusteringChoice) -> Needs:
    """The runs of a choice, of whatever size: only the kinds matter."""
    setup = ("rbf", 1.0, 3.0, 1.0, 1, 1, 0)
    clustering = clustering_stage(choice)
    whole = choice.kmeans == "groups"  # then nobody asks what single clusters' rows add up to
    if choice.landmarks == "none":
        return [stage(feature_points, LandmarkSetup(*setup)), clustering]
    if choice.landmarks == "moments":
        left_scores = MomentSetup("linear", None, 1.0, 0.0, center=False, scores="scores")
        sums = stage(feature_moments, FeatureLabelSetup("linear", None, 1.0, 0.0), 1)
        return [stage(moment_pca, left_scores, 1), clustering, *([] if whole else [sums])]
    how = (1, 1, choice.landmarks, False, Accuracy(1.0, 2))
    scores = stage(landmark_scores, LandmarkSetup(*setup), *how)
    after = [] if whole else [stage(kernel_sums, LabelSetup(*setup), 1, 1)]
    return [scores, clustering, *after]


def clustering_stage(choice: ClusteringChoice) -> Stage:
    """A run of k-means that asks for what this choice does, of whatever size."""
    how: dict[str, Any] = {"method": choice.kmeans, "refine": REFINE[choice.kmeans]}
    how["searches"] = SEARCHES  # which ask for no other kinds
    if choice.landmarks == "moments" and choice.kmeans == "groups":
        how["squares"] = np.zeros(1)
    elif choice.seeding == "landmarks":
        how["candidates"] = np.zeros((1, 1))
    return stage(distributed_kmeans, KMeansSetup("", "", 0, choice.kmeans == "groups"), 1, **how)
