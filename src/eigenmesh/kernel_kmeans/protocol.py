"""Kernel k-means over row partitions: landmarks, Gram matrices, then k-means of the scores.

Landmarks and components as in disKPCA (Balcan et al., KDD 2016), not centred; the rows' scores in
the leading components are clustered where they are (`distributed_kmeans.py`). With every row a
landmark and as many components as clusters this is the spectral relaxation of kernel k-means
(Zha et al., NeurIPS 2001).

===================  ============================================================================
party keeps          its rows, scores and labels
party reveals        what it reveals in disKPCA and in distributed k-means, and for each cluster
                     the sum of its rows' kernel values with the landmarks (moments)
coordinator learns   these
===================  ============================================================================

The inertia Σ w ‖φ(x) − μ‖², μ the mean of x's cluster, is Σ w k(x, x) − Σ_c W_c ‖μ_c‖². Of a mean
only the part inside the landmarks' span is known, so what is said is an upper bound; it is exact
where every row is a landmark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from eigenmesh.methods.diskpca.landmark_growth import Accuracy
from eigenmesh.methods.diskpca.leverage import ScoredRows
from eigenmesh.methods.diskpca.scores import (
    ScoreSetup,
    ScoringRows,
    find_components,
    first,
    keep_points,
    keep_scores,
    scoring_steps,
)
from eigenmesh.numerics.arrays import Doubles, as_rows
from eigenmesh.numerics.cluster_means import ClusterMeans
from eigenmesh.numerics.cluster_moments import cluster_moments, inertia_of
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, NonNegative, Reveals, Shape
from eigenmesh.runtime.party import Step, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.stages.coverage import Coverage
from eigenmesh.stages.kmeans import KMeansResult, distributed_kmeans
from eigenmesh.stages.kmeans_party import KMeansSetup

record(ClusterMeans)

SCORES, LABELS, WEIGHTS = "kernel-kmeans scores", "kernel-kmeans labels", "kernel-kmeans weights"
# Where nothing is sent: scores in all, the share of the variance that may be left out, and of how
# many of the components, times those asked for, the clusters are starting points for all.
AFFORDABLE, NEGLIGIBLE, LEADING = 2**20, 1e-4, (1, 2, 4)


class ClusterAsk(Message, reveals=None):
    """How many clusters there are."""

    n_clusters: Annotated[int, NonNegative]


class KernelSums(Message, reveals="moments"):
    """Σ w k(x, Y) over the rows of each cluster, their weight, and Σ w k(x, x)."""

    sums: Annotated[Floats, Shape("c", "q")]
    weights: Annotated[Floats, Reveals("counts"), Shape("c"), NonNegative]
    trace: Annotated[float, NonNegative]


class ClusteredRows(ScoringRows):
    """Holds rows, and ends with their scores and labels."""

    @step
    def cluster_moments(self, asked: ClusterAsk) -> KernelSums:
        """What the rows of each cluster add up to in the landmarks' span."""
        clusters = (self._labels(), self._weights(), asked.n_clusters)
        found = cluster_moments(self.kernel, self.site.data, self.all_landmarks(), clusters)
        return KernelSums(sums=found.sums, weights=found.weights, trace=found.trace)

    def _labels(self) -> Any:
        kept = self.site.kept(LABELS)
        assert kept is not None, "clusters are assigned before their moments are asked for"
        return kept["labels"]

    def _weights(self) -> Doubles:
        kept = self.site.kept(self.setup.weights)
        return np.ones(self.n_rows) if kept is None else np.asarray(kept["weights"])


class FeatureRows(ScoredRows):
    """Holds rows, and their random features."""

    Setup = ScoreSetup

    @step
    def keep_features(self) -> None:
        """The embedding that the shared seed gives; nothing is said of it."""
        keep_points(self.site, self.setup, np.vstack(list(self.embedded())))


@record
@dataclass(frozen=True)
class KernelKMeansResult:
    """Centres in the components, or in random features, and what the clusters cost."""

    model: LandmarkModel | None  # None with random features
    spectrum: Doubles  # all eigenvalues that the landmarks determine
    kmeans: KMeansResult
    inertia: float
    outside: float  # squared distance of all rows to the landmarks' span
    coverage: Coverage | None  # what the landmarks miss; None if nobody asked
    baseline_floats: int
    stop_reason: str
    means: ClusterMeans | None = None  # of the clusters, inside the landmarks' span


def clustering_steps(landmarks: str) -> list[Step]:
    """The steps of `ClusteredRows` that a choice of landmarks asks for."""
    return [*scoring_steps(landmarks, ClusteredRows), ClusteredRows.cluster_moments]


@protocol("kernel-kmeans", roles=(ClusteredRows,))
def kernel_kmeans(
    rows: Federation,
    setup: ScoreSetup,
    n_clusters: int,
    n_eigenvectors: int,
    n_landmarks: int,
    landmarks: str,
    *,
    accuracy: Accuracy | None = None,
    more: bool = False,
    seeding: str = "k-means||",
    **how: Any,
) -> KernelKMeansResult:
    """Landmarks, components, k-means, inertia; `how` goes to `distributed_kmeans`.

    With an `accuracy` what landmarks miss of the components asked for is measured, and they may
    become more. With `more` a single party's rows are clustered in as many further components as
    pay. With `seeding` "landmarks" k-means starts from the landmarks' own scores, and no score
    leaves.
    """
    rows.enlist(ClusteredRows, setup, clustering_steps(landmarks))
    wanted = (n_eigenvectors, n_landmarks, landmarks, False, accuracy)
    found = find_components(rows, ClusteredRows, setup, *wanted)
    model = found.result.model
    if more and len(rows.parties) == 1:
        model = first(found.complete, worthwhile(found.spectrum, model.n_rows, n_eigenvectors))
        e = len(model.eigenvalues)
        how["leading"] = [s for s in (t * n_eigenvectors for t in LEADING) if s < e]
    keep_scores(rows, ClusteredRows, model)
    if seeding == "landmarks":
        how["candidates"] = np.asarray(model.transform(model.landmarks), dtype=np.float64)
    points = KMeansSetup(points=setup.scores, labels=LABELS, seed=setup.seed)
    clusters = distributed_kmeans.coordinate(rows, points, n_clusters, **how)
    asked = ClusterAsk(len(clusters.centres))
    told = rows.total(ClusteredRows.cluster_moments, asked).sum
    inertia, means = _means(model, told, clusters.centres)
    known = (found.result.outside, found.result.coverage, found.result.baseline_floats)
    return KernelKMeansResult(
        model, found.spectrum, clusters, inertia, *known, clusters.stop_reason, means
    )


def worthwhile(spectrum: Doubles, n_rows: int, least: int) -> int:
    """Components in which a single party's rows are clustered: until the rest is negligible.

    The fewest of those that matter and that are affordable, but not fewer than `least`.
    """
    left = spectrum.sum() - np.cumsum(spectrum)
    matter = int(np.count_nonzero(left > NEGLIGIBLE * spectrum.sum())) + 1
    return max(least, min(matter, AFFORDABLE // max(n_rows, 1)))


def _means(model: LandmarkModel, told: KernelSums, centres: Doubles) -> tuple[float, ClusterMeans]:
    """Σ w k(x, x) − Σ_c ‖Σ w P φ(x)‖² / W_c, P on the landmarks' span; and the clusters' means."""
    B = pseudo_inverse_root(model.kernel.matrix(as_rows(model.landmarks, np.float64)))
    vacant = (model.coefficients @ centres.T, np.einsum("ij,ij->i", centres, centres))
    means = ClusterMeans.of(B, told.sums, told.weights, vacant)
    return inertia_of(told.trace, told.sums @ B, told.weights), means


@protocol("feature-kmeans", roles=(FeatureRows,))
def feature_kmeans(
    rows: Federation, setup: ScoreSetup, n_clusters: int, **how: Any
) -> KernelKMeansResult:
    """One-shot random features, then k-means of them; the inertia is that of the features."""
    rows.enlist(FeatureRows, setup, [FeatureRows.count_rows, FeatureRows.keep_features])
    sizes = rows.ask(FeatureRows.count_rows)
    rows.ask(FeatureRows.keep_features)
    points = KMeansSetup(points=setup.scores, labels=LABELS, seed=setup.seed)
    clusters = distributed_kmeans.coordinate(rows, points, n_clusters, **how)
    baseline = sum(size.n_values for size in sizes)
    values = (clusters.inertia, 0.0, None, baseline, clusters.stop_reason)
    return KernelKMeansResult(None, np.zeros(0), clusters, *values)
