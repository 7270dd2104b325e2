"""Kernel k-means over row partitions: landmarks, Gram matrices, then k-means of the scores.

Landmarks and components as in disKPCA (Balcan et al., KDD 2016), not centred; the rows' scores in
the leading components are clustered where they are (`stages/distributed_kmeans.py`). With every
row a landmark and as many components as clusters this is the spectral relaxation of kernel k-means
(Zha et al., NeurIPS 2001).

===================  ============================================================================
party keeps          its rows, scores and labels
party reveals        what it reveals in disKPCA and in distributed k-means, and for each cluster
                     the sum of its rows' kernel values with the landmarks (moments)
coordinator learns   these
===================  ============================================================================

Runs in sequence, each on what those before left in the sites' stores: "survey", by which
landmarks are chosen; "landmark-scores" or, with random features, "feature-points"; then
"distributed-kmeans" and "cluster-moments". Where the kernel's features are few, as those of a
linear kernel are, "moments" gives the components, and "cluster-features" what clusters add up to.

The inertia Σ w ‖φ(x) − μ‖², μ the mean of x's cluster, is Σ w k(x, x) − Σ_c W_c ‖μ_c‖². Of a mean
only the part inside the landmarks' span is known, so what is said is an upper bound; it is exact
where every row is a landmark. Where sums are over whole groups of rows ("groups") the means of
clusters are not asked for, and the inertia is that of the centres, above that of the means.

Above the usual length: three small roles, of which a run has one or two, stand beside the two ways
in which they are put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from eigenmesh.methods.diskpca.protocol import embedded_blocks
from eigenmesh.methods.diskpca.scores import AFFORDABLE, LandmarkScores
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup, kept_landmarks
from eigenmesh.methods.moments.protocol import MomentResult, MomentSetup
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.cluster_means import ClusterMeans, FeatureMeans
from eigenmesh.numerics.cluster_moments import cluster_moments, clustered_features, inertia_of
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.numerics.explicit_features import ExplicitFeatures, explicit_width
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, NonNegative, Reveals, Shape, no_more_than
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import (
    Node,
    Own,
    Scope,
    Sizes,
    ask,
    enlist,
    sequence,
    total,
)
from eigenmesh.runtime.study import Stage
from eigenmesh.stages.coverage import Coverage
from eigenmesh.stages.distributed_kmeans import KMeansResult, distributed_kmeans
from eigenmesh.stages.kmeans_party import KMeansSetup
from eigenmesh.stages.row_messages import kernel_of
from eigenmesh.stages.site_points import keep_points

for kind in (ClusterMeans, FeatureMeans):
    record(kind)

SCORES, LABELS = "kernel-kmeans scores", "kernel-kmeans labels"
# Of how many of a single party's components, times those asked for, the clusters are starting
# points for all.
LEADING = (1, 2, 4)
NEARLY = 0.005  # of the least possible inertia, above which better clusters are looked for


# Rows as random features.


class FeatureRows(Party):
    """Holds rows, and their random features."""

    Setup = LandmarkSetup

    @step
    def keep_features(self) -> None:
        """The embedding that the shared seed gives; nothing is said of it."""
        blocks = list(embedded_blocks(self.setup, self.site.data))
        keep_points(self.site, self.setup, np.vstack(blocks))


def feature_schedule(scope: Scope, setup: LandmarkSetup) -> Node:
    """Every site embeds its rows."""
    return sequence(enlist(FeatureRows, setup), ask(FeatureRows.keep_features))


@protocol("feature-points", roles=(FeatureRows,), schedule=feature_schedule)
def feature_points(rows: Federation, setup: LandmarkSetup) -> None:
    """Random features, kept at the sites."""
    rows.enlist(FeatureRows, setup)
    rows.ask(FeatureRows.keep_features)


# What the rows of each cluster add up to.


class LabelSetup(LandmarkSetup, reveals=None):
    """Under which key of its own store a site keeps its rows' labels."""

    labels: str = ""


class ClusterAsk(Message, reveals=None):
    """How many clusters there are."""

    n_clusters: Annotated[int, NonNegative]


class KernelSums(Message, reveals="moments", covers=1):
    """Σ w k(x, Y) over the rows of each cluster, their weight, and Σ w k(x, x)."""

    sums: Annotated[Floats, Shape("c", "q")]
    weights: Annotated[Floats, Reveals("counts"), Shape("c"), NonNegative]
    trace: Annotated[float, NonNegative]


class LabelledRows(Party):
    """Holds rows; landmarks and labels are in its site's store."""

    Setup = LabelSetup

    @step
    def cluster_moments(self, clusters: ClusterAsk) -> KernelSums:
        """What the rows of each cluster add up to in the landmarks' span."""
        X, of_scores = self.site.data, self.site.kept(self.setup.scores, "points", "landmarks")
        of_clusters = self.site.kept(self.setup.labels, "labels")
        assert of_scores is not None, "scores are kept before they are clustered"
        assert of_clusters is not None, "labels are kept before moments are asked for"
        weights = np.asarray(of_scores.get("weights", np.ones(X.shape[0])))
        rows_of_each = (of_clusters["labels"], weights, clusters.n_clusters)
        Y = kept_landmarks(of_scores)
        moments = cluster_moments(kernel_of(self.setup), X, Y, rows_of_each)
        return KernelSums(sums=moments.sums, weights=moments.weights, trace=moments.trace)


def moment_schedule(scope: Scope, setup: LabelSetup, n_clusters: int, n_landmarks: int) -> Node:
    """One question."""
    sizes = {"c": n_clusters, "q": n_landmarks}
    question = total(LabelledRows.cluster_moments, down={"n_clusters": n_clusters}, up=sizes)
    return sequence(enlist(LabelledRows, setup), question)


@protocol("cluster-moments", roles=(LabelledRows,), schedule=moment_schedule)
def kernel_sums(
    rows: Federation, setup: LabelSetup, n_clusters: int, n_landmarks: int
) -> KernelSums:
    """Those of all parties, with the landmarks of the scores that they keep."""
    rows.enlist(LabelledRows, setup)
    total: KernelSums = rows.total(LabelledRows.cluster_moments, ClusterAsk(n_clusters)).sum
    return total


# The same where features are few enough to be added up themselves.


class FeatureLabelSetup(Message, reveals=None):
    """The kernel, and keys of a site's own store: of its rows' scores and labels."""

    kernel: str
    gamma: float | None
    degree: Annotated[float, no_more_than(100)]
    coef0: float
    scores: str = ""
    labels: str = ""


class FeatureClusterSums(Message, reveals="moments", covers=1):
    """Σ w φ(x) over the rows of each cluster, their weight, and Σ w k(x, x)."""

    sums: Annotated[Floats, Shape("c", "t")]
    weights: Annotated[Floats, Reveals("counts"), Shape("c"), NonNegative]
    trace: Annotated[float, NonNegative]


class LabelledFeatures(Party):
    """Holds rows; their labels are in its site's store."""

    Setup = FeatureLabelSetup

    @step
    def cluster_features(self, clusters: ClusterAsk) -> FeatureClusterSums:
        """What the features of each cluster's rows add up to."""
        X, setup = self.site.data, self.setup
        of_scores = self.site.kept(setup.scores, "points")
        of_clusters = self.site.kept(setup.labels, "labels")
        assert of_scores is not None, "scores are kept before they are clustered"
        assert of_clusters is not None, "labels are kept before moments are asked for"
        weights = np.asarray(of_scores.get("weights", np.ones(X.shape[0])))
        rows_of_each = (of_clusters["labels"], weights, clusters.n_clusters)
        kernel = Kernel(setup.kernel, setup.gamma, setup.degree, setup.coef0)
        features = ExplicitFeatures(kernel, int(X.shape[1]))
        sums, own_weights, trace = clustered_features(features, X, rows_of_each)
        return FeatureClusterSums(sums=sums, weights=own_weights, trace=trace)


def feature_moment_schedule(scope: Scope, setup: FeatureLabelSetup, n_clusters: int) -> Node:
    """One question."""

    def width(own: Own) -> int:
        return explicit_width(setup.kernel, own.columns, setup.degree, setup.coef0)

    sizes: Sizes = {"c": n_clusters, "t": width}
    question = total(LabelledFeatures.cluster_features, down={"n_clusters": n_clusters}, up=sizes)
    return sequence(enlist(LabelledFeatures, setup), question)


@protocol("cluster-features", roles=(LabelledFeatures,), schedule=feature_moment_schedule)
def feature_moments(
    rows: Federation, setup: FeatureLabelSetup, n_clusters: int
) -> FeatureClusterSums:
    """Those of all parties."""
    rows.enlist(LabelledFeatures, setup)
    ask_of_all = ClusterAsk(n_clusters)
    sums: FeatureClusterSums = rows.total(LabelledFeatures.cluster_features, ask_of_all).sum
    return sums


# The clusters.


@record
@dataclass(frozen=True)
class KernelKMeansResult:
    """Centres in the components, or in random features, and what the clusters cost."""

    model: Any  # a LandmarkModel or MomentModel; None with random features
    spectrum: Doubles  # all eigenvalues that the landmarks, or the moments, determine
    kmeans: KMeansResult
    inertia: float
    outside: float  # squared distance of all rows to the landmarks' span
    coverage: Coverage | None  # what the landmarks miss; None if nobody asked
    baseline_floats: int
    stop_reason: str
    means: Any = None  # of the clusters: ClusterMeans in the landmarks' span, or FeatureMeans


def kernel_kmeans(
    fed: Federation,
    scoring: Stage,
    n_clusters: int,
    *,
    seeding: str = "k-means||",
    **how: Any,
) -> KernelKMeansResult:
    """Clusters of the scores that a run of `landmark_scores`, `scoring`, leaves at the sites.

    `how` goes to `distributed_kmeans`. With `seeding` "landmarks" that starts from the landmarks'
    own scores, and no score leaves.
    """
    setup, n_eigenvectors = scoring.args[:2]
    scores: LandmarkScores = scoring.run(fed).value
    model = scores.model
    e = len(model.eigenvalues)
    alone = len(fed.members) == 1
    if alone and e * model.n_rows > AFFORDABLE:
        how["searches"] = 0
    if alone and e > n_eigenvectors:
        how["leading"] = [s for s in (t * n_eigenvectors for t in LEADING) if s < e]
    if seeding == "landmarks":
        how["candidates"] = np.asarray(model.transform(model.landmarks), dtype=np.float64)
    how["enough"] = good_enough(model, n_clusters, setup.weights)
    points = points_of(setup, how["method"])
    clusters: KMeansResult = fed.run(distributed_kmeans, points, n_clusters, dim=e, **how).value
    facts = (scores.result.outside, scores.result.coverage, scores.result.baseline_floats)
    if how["method"] == "groups":
        inertia = _of_centres(clusters, model, setup.weights)
        return KernelKMeansResult(
            model, scores.spectrum, clusters, inertia, *facts, clusters.stop_reason
        )
    sizes = (len(clusters.centres), int(model.landmarks.shape[0]))
    sums: KernelSums = fed.run(kernel_sums, label_setup(setup), *sizes).value
    means = cluster_means(scores, sums, clusters.centres)
    inertia = inertia_of(sums.trace, sums.sums @ scores.basis, sums.weights)
    return KernelKMeansResult(
        model, scores.spectrum, clusters, inertia, *facts, clusters.stop_reason, means
    )


def moment_kmeans(
    fed: Federation, scoring: Stage, n_clusters: int, **how: Any
) -> KernelKMeansResult:
    """Clusters of the scores that a run of `moment_pca`, `scoring`, leaves at the sites."""
    setup = scoring.args[0]
    result: MomentResult = scoring.run(fed).value
    model = result.model
    whole, e = how["method"] == "groups", len(model.eigenvalues)
    points = KMeansSetup(setup.scores, LABELS, seed=how.pop("seed"), groups=whole)
    if whole:
        how["squares"] = model.eigenvalues / model.n_rows
    how["enough"] = good_enough(model, n_clusters, setup.weights)
    clusters: KMeansResult = fed.run(distributed_kmeans, points, n_clusters, dim=e, **how).value
    spectrum, facts = model.eigenvalues, (0.0, None, result.baseline_floats)
    if whole:
        inertia = _of_centres(clusters, model, setup.weights)
        return KernelKMeansResult(model, spectrum, clusters, inertia, *facts, clusters.stop_reason)
    labelled = feature_label_setup(setup)
    sums: FeatureClusterSums = fed.run(feature_moments, labelled, len(clusters.centres)).value
    means = FeatureMeans.of(sums.sums, sums.weights, clusters.centres @ model.components.T)
    inertia = inertia_of(sums.trace, sums.sums, sums.weights)
    return KernelKMeansResult(
        model, spectrum, clusters, inertia, *facts, clusters.stop_reason, means
    )


def good_enough(model: Any, n_clusters: int, weights: str) -> float:
    """A mean squared distance of scores to their centres that no clusters can much better.

    The inertia of k clusters is at least what the first k eigenvalues leave of the trace (Zha et
    al., 2001). Of weighted rows the eigenvalues are not known.
    """
    if weights:
        return 0.0
    further = float(np.sum(model.eigenvalues[n_clusters:]))
    least = further + max(float(model.residual), 0.0)
    return (further + NEARLY * least) / int(model.n_rows)


def _of_centres(clusters: KMeansResult, model: Any, weights: str) -> float:
    """Σ ‖φ(x) − c‖², c the row's centre; of weighted rows the part inside the components."""
    return clusters.inertia + (0.0 if weights else model.residual)


def feature_label_setup(setup: MomentSetup) -> FeatureLabelSetup:
    """Where the labels are that k-means has left of rows with few features."""
    kernel = (setup.kernel, setup.gamma, setup.degree, setup.coef0)
    return FeatureLabelSetup(*kernel, scores=setup.scores, labels=LABELS)


def feature_kmeans(
    fed: Federation, setup: LandmarkSetup, sizes: Replies, n_clusters: int, **how: Any
) -> KernelKMeansResult:
    """One-shot random features, then k-means of them; the inertia is that of the features."""
    fed.run(feature_points, setup)
    dim = embedded_width(setup.kernel, sizes[0].n_columns, setup.embedding_dim)
    run = fed.run(distributed_kmeans, points_of(setup), n_clusters, dim=dim, **how)
    clusters: KMeansResult = run.value
    baseline = sum(size.n_values for size in sizes)
    facts = (clusters.inertia, 0.0, None, baseline, clusters.stop_reason)
    return KernelKMeansResult(None, np.zeros(0), clusters, *facts)


def points_of(setup: LandmarkSetup, method: str = "") -> KMeansSetup:
    """Where k-means finds the scores, and leaves the labels."""
    return KMeansSetup(setup.scores, LABELS, seed=setup.seed, groups=method == "groups")


def label_setup(setup: LandmarkSetup) -> LabelSetup:
    """Where the labels are that k-means has left."""
    return LabelSetup(**vars(setup), labels=LABELS)


def cluster_means(scores: LandmarkScores, sums: KernelSums, centres: Doubles) -> ClusterMeans:
    """The clusters' means in the landmarks' span; an empty cluster stands where its centre does."""
    vacant = (scores.model.coefficients @ centres.T, np.einsum("ij,ij->i", centres, centres))
    return ClusterMeans.of(scores.basis, sums.sums, sums.weights, vacant)
