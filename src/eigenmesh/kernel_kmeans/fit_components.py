"""`KernelKMeans` of columns, and of rows on a graph: components by `KernelPCA`, then k-means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.errors import InputError, RankError
from eigenmesh.estimators.accuracy import Missing
from eigenmesh.estimators.party_values import weight_array
from eigenmesh.kernel_kmeans.choose_clustering import UNIT_NORM, Wishes
from eigenmesh.kernel_kmeans.fit_rows import Outcome
from eigenmesh.kernel_kmeans.graph import ClusterGoal, GraphClusters, graph_kmeans
from eigenmesh.kernel_pca.choose_method import ways_for
from eigenmesh.kernel_pca.estimator import KernelPCA
from eigenmesh.methods.admm.estimator import ADMMKPCA
from eigenmesh.numerics.cluster_moments import inertia_of, whole_inertia
from eigenmesh.numerics.feature_model import FeatureModel
from eigenmesh.numerics.kernel_of_sums import ArgumentFusion
from eigenmesh.numerics.kmeans import WeightedPoints, membership, weight_of_each
from eigenmesh.numerics.score_kmeans import ScoreClusters, score_kmeans
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.count import survey
from eigenmesh.stages.kmeans import shortfall

AGREES = 1e-6  # of a score's root mean square, by which the nodes' centres may differ
RANK_OF_COLUMNS = ("linear", "cosine")  # kernels of no higher rank than there are columns

Build = Callable[[int], KernelPCA]  # from the number of components


def require_suits(wishes: Wishes, split: str, on_graph: bool) -> None:
    """Refuse what columns, or rows on a graph, cannot have."""
    ways_for(wishes.method, split, wishes.kernel, "auto", on_graph)
    where = "rows on a graph" if split == "rows" else "columns split over parties"
    if wishes.landmarks != "auto":
        raise InputError(
            f"landmarks is {wishes.landmarks!r}; for {where} 'auto' is expected: n_landmarks says "
            f"how many, and method which"
        )
    if wishes.kmeans == "coreset":
        raise InputError(f"kmeans is 'coreset'; for {where} 'auto' or 'lloyd' is expected")


def most_components(wishes: Wishes, split: str, widths: list[int]) -> int:
    """How many of the components asked for there can be, from the numbers of columns alone."""
    if wishes.kernel not in RANK_OF_COLUMNS:
        return wishes.n_eigenvectors
    return min(wishes.n_eigenvectors, sum(widths) if split == "columns" else widths[0])


def _components(fed: Federation, wishes: Wishes, build: Build) -> tuple[KernelPCA, Any]:
    """The fitted `KernelPCA`, and over columns the samples' scores.

    Of as many components as the data determine, up to those asked for: where these are too many
    the number is found by halving, each time with a run of its own.
    """
    widths = []
    if wishes.kernel in RANK_OF_COLUMNS:
        widths = [size.n_columns for size in fed.run(survey).value]
    few, many = 0, most_components(wishes, fed.split, widths) + 1
    found, k = None, many - 1
    while many - few > 1:
        kpca = build(k)
        try:
            scores = kpca.fit_transform(fed) if fed.split == "columns" else kpca.fit(fed)
            found, few = (kpca, scores), k
        except RankError:
            if k == 1:
                raise
            many = k
        k = (few + many) // 2
    assert found is not None, "one component either fits or raises"
    return found


def _rank_fact(kpca: KernelPCA, wishes: Wishes) -> tuple[str, ...]:
    rank, asked = len(kpca.eigenvalues_), wishes.n_eigenvectors
    if rank == asked:
        return ()
    return (f"{asked} eigenvectors were asked for, the data determine {rank}",)


class Claim(NamedTuple):
    """An inertia, how much it may be too large (None: not known), and in words what it is."""

    inertia: float
    slack: float | None
    words: str


def _outcome(
    kpca: KernelPCA,
    found: ScoreClusters | GraphClusters,
    claim: Claim,
    then: str,
    facts: tuple[str, ...],
    **more: Any,
) -> Outcome:
    """What components and clusters amount to."""
    return Outcome(
        model=None,
        centres=found.centres,
        n_eigenvectors=len(kpca.eigenvalues_),
        spectrum=kpca.eigenvalues_,
        inertia=claim.inertia,
        slack=claim.slack,
        n_iter=found.n_iter,
        gamma=kpca.gamma_,
        method=f"{kpca.method_}; then {then}",
        n_columns=kpca.n_features_in_,
        baseline_floats=kpca.report_.baseline_floats,
        facts=(*kpca.report_.notes, *facts),
        estimator=kpca,
        missing=Missing.of_estimator(kpca),
        **more,
    )


# Columns.


def fit_columns(fed: Federation, wishes: Wishes, build: Build, sample_weight: Any) -> Outcome:
    """Components by `KernelPCA`; then k-means of the scores, by whoever has them all."""
    weights = None if sample_weight is None else weight_array(sample_weight)
    kpca, scores = _components(fed, wishes, build)
    Z = np.asarray(scores, dtype=np.float64)
    w = np.ones(len(Z)) if weights is None else weight_array(weights, len(Z))
    run = (wishes.n_clusters, wishes.n_init, wishes.max_iter, wishes.tol, wishes.seed)
    found = score_kmeans(WeightedPoints(Z, w), *run)
    claim = _column_inertia(kpca, WeightedPoints(Z, w), found, wishes, weights is None)
    filled = int(np.count_nonzero(weight_of_each(found.labels, w, len(found.centres))))
    return _outcome(
        kpca,
        found,
        claim,
        "k-means of the scores, where they are known",
        stop_reason=kpca.report_.stop_reason,
        caveats=shortfall(wishes.n_clusters, len(found.centres), filled),
        facts=(claim.words, *_rank_fact(kpca, wishes)),
        labels=found.labels,
    )


def _bounded(inertia: float, slack: float) -> Claim:
    """An inertia in feature space that is an upper bound."""
    slack = max(min(slack, inertia), 0.0)
    return Claim(inertia, slack, f"inertia {inertia:.4g} is at most {slack:.3g} too large")


def _column_inertia(
    kpca: KernelPCA, data: WeightedPoints, found: ScoreClusters, wishes: Wishes, unweighted: bool
) -> Claim:
    """In feature space, as far as it is known where the scores are."""
    fusion, (Z, w), k = kpca.estimator_.model_.fusion, data, len(found.centres)
    if isinstance(fusion, ArgumentFusion) and all(fusion.kept) and not fusion.residuals.any():
        # These coordinates have all samples' distances or products: so the whole kernel matrix.
        clusters = (found.labels, w, k)
        return _bounded(whole_inertia(fusion.kernel, fusion.coordinates, clusters), 0.0)
    if not unweighted and wishes.kernel not in UNIT_NORM:
        return Claim(found.cost, None, f"inertia {found.cost:.4g} is that of the scores")
    trace = fusion.total if unweighted else float(w.sum())
    # Σ_c u_cᵀ(K̂ − K)u_c over k orthonormal u_c is at most this, and 0 where K̂ is below K.
    error = 0.0 if fusion.from_below else float(np.sqrt(k)) * fusion.error_bound
    sums = membership(found.labels, w, k) @ Z
    inertia = inertia_of(trace, sums, weight_of_each(found.labels, w, k)) + error
    # A mean is longer than inside the components by no more than its samples are on average.
    left_out = trace - float(w @ np.einsum("ij,ij->i", Z, Z))
    return _bounded(inertia, left_out + 2 * error)


# Rows on a graph.


def fit_graph(fed: Federation, wishes: Wishes, build: Build, weights: str) -> Outcome:
    """Components by `KernelPCA`; then Lloyd's iteration at the nodes, by averages."""
    fed.require_stages(graph_clustering(wishes, wishes.n_eigenvectors, Span("landmarks", 1)))
    kpca, _ = _components(fed, wishes, build)
    span = span_of(kpca.estimator_)
    run = graph_clustering(wishes, len(kpca.eigenvalues_), span, weights)
    clusters = run.run(fed).value
    claim = _graph_inertia(clusters, span.name)
    filled = int(np.count_nonzero(clusters.weights))
    agreement = f"the nodes' centres differ by at most {clusters.apart:.1e}"
    too_few = shortfall(wishes.n_clusters, len(clusters.centres), filled)
    return _outcome(
        kpca,
        clusters,
        claim,
        "Lloyd's iteration, its sums averaged by neighbours",
        stop_reason=clusters.stop_reason,
        caveats=(*_apart(kpca, clusters), *too_few),
        facts=(agreement, claim.words, *_rank_fact(kpca, wishes)),
    )


class Span(NamedTuple):
    """What of the rows all nodes describe alike, in which the inertia is known, and its width."""

    name: str  # one of `graph_node.SPANS`
    width: int


def graph_clustering(wishes: Wishes, dim: int, span: Span, weights: str = "") -> Stage:
    """Lloyd's iteration on scores of `dim` components."""
    run = (wishes.n_clusters, wishes.n_init, wishes.tol, span.name, weights, wishes.seed)
    return stage(graph_kmeans, ClusterGoal(*run), wishes.max_iter, dim, span.width)


def span_of(estimator: Any) -> Span:
    """Of a fitted estimator on a graph."""
    model = estimator.model_
    if isinstance(estimator, ADMMKPCA):
        return Span("scores", len(model.eigenvalues))
    if isinstance(model, FeatureModel):
        return Span("features", len(model.components))
    return Span("landmarks", int(model.landmarks.shape[0]))


def _graph_inertia(found: GraphClusters, span: str) -> Claim:
    if span == "landmarks":
        return _bounded(found.inertia, found.outside)
    if span == "features":
        words = "is that of the random features"
    else:
        words = "is that of the scores, by each node's own model; predict has the first node's"
    return Claim(found.inertia, None, f"inertia {found.inertia:.4g} {words}")


def _apart(kpca: KernelPCA, found: GraphClusters) -> tuple[str, ...]:
    model = kpca.estimator_.model_
    typical = float(np.sqrt(model.eigenvalues.sum() / model.n_rows))
    if found.apart <= AGREES * typical:
        return ()
    return (
        f"the nodes do not agree: their centres are up to {found.apart:.2g} apart, where a row's "
        f"scores have a norm of {typical:.2g}; fit again, with fewer lost messages",
    )
