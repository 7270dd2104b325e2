"""`KernelKMeans` of columns, and of rows on a graph: components by `KernelPCA`, then k-means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.errors import InputError, PolicyRefusal, RankError
from eigenmesh.estimators.accuracy import MissingShares
from eigenmesh.estimators.party_values import weight_array
from eigenmesh.estimators.small_parties import names_of
from eigenmesh.kernel_kmeans.choose_clustering import SEARCHES, ClusteringParameters
from eigenmesh.kernel_kmeans.fit_rows import ClusterFit
from eigenmesh.kernel_kmeans.graph import ClusterGoal, GraphClusters, graph_kmeans
from eigenmesh.kernel_pca.choose_method import suitable_methods
from eigenmesh.kernel_pca.estimator import KernelPCA
from eigenmesh.methods.diskpca.looks import ABSENT
from eigenmesh.methods.diskpca.scores import SENT
from eigenmesh.numerics.cluster_moments import inertia_of, whole_inertia
from eigenmesh.numerics.column_fusion import overstated
from eigenmesh.numerics.kernel_of_sums import ArgumentFusion
from eigenmesh.numerics.kernels import UNIT_NORM
from eigenmesh.numerics.kmeans import (
    ScoreClusters,
    WeightedPoints,
    membership,
    score_kmeans,
    weight_of_each,
)
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, forecast_stages, stage
from eigenmesh.stages.count import survey
from eigenmesh.stages.more_centres import few_groups, shortfall

AGREES = 1e-6  # of a score's root mean square, by which the nodes' centres may differ
RANK_OF_COLUMNS = ("linear", "cosine")  # kernels of no higher rank than there are columns

Build = Callable[[int], KernelPCA]  # from the number of components


def require_suits(params: ClusteringParameters, split: str, on_graph: bool) -> None:
    """Refuse what columns, or rows on a graph, cannot have."""
    suitable_methods(params.method, split, params.kernel, "auto", on_graph)
    where = "rows on a graph" if split == "rows" else "columns split over parties"
    if params.landmarks != "auto":
        raise InputError(
            f"landmarks is {params.landmarks!r}; for {where} 'auto' is expected: n_landmarks says "
            f"how many, and method which"
        )
    ways = ("auto", "lloyd", "groups") if split == "rows" else ("auto", "lloyd")
    if params.kmeans not in ways:
        raise InputError(
            f"kmeans is {params.kmeans!r}; for {where} {' or '.join(map(repr, ways))} is expected"
        )


def most_components(params: ClusteringParameters, split: str, widths: list[int]) -> int:
    """How many of the components asked for there can be, from the numbers of columns alone."""
    asked_for = params.n_eigenvectors * (SENT if takes_more(params, split) else 1)
    if params.kernel not in RANK_OF_COLUMNS:
        return asked_for
    return min(asked_for, sum(widths) if split == "columns" else widths[0])


def takes_more(params: ClusteringParameters, split: str) -> bool:
    """Whether rows on a graph are clustered in more components; "admm" has rows sent for each."""
    return split == "rows" and params.more_eigenvectors and params.method != "admm"


def _components(
    fed: Federation, params: ClusteringParameters, build: Build
) -> tuple[KernelPCA, Any]:
    """The fitted `KernelPCA`, and over columns the samples' scores.

    Of as many components as the data determine, up to those asked for: where these are too many
    the number is found by halving, each time with a run of its own.
    """
    widths = []
    if params.kernel in RANK_OF_COLUMNS:
        fed.prepare_now()
        widths = [size.n_columns for size in fed.run(survey).value]
    few, many = 0, most_components(params, fed.split, widths) + 1
    best, k = None, many - 1
    while many - few > 1:
        kpca = build(k)
        try:
            scores = kpca.fit_transform(fed) if fed.split == "columns" else kpca.fit(fed)
            best, few = (kpca, scores), k
        except RankError:
            if k == 1:
                raise
            many = min(k, params.n_eigenvectors)  # those beyond need not be there
        k = (few + many) // 2
    assert best is not None, "one component either fits or raises"
    return best


def _rank_fact(kpca: KernelPCA, params: ClusteringParameters) -> tuple[str, ...]:
    rank, s = len(kpca.eigenvalues_), params.n_eigenvectors
    if rank >= s:
        return ()
    return (f"{s} eigenvectors were asked for, the data determine {rank}",)


class InertiaClaim(NamedTuple):
    """An inertia, how much it may be too large (None: not known), and in words what it is."""

    inertia: float
    slack: float | None
    words: str


def _outcome(
    kpca: KernelPCA,
    clusters: ScoreClusters | GraphClusters,
    claim: InertiaClaim,
    then: str,
    facts: tuple[str, ...],
    **more: Any,
) -> ClusterFit:
    """What components and clusters amount to."""
    return ClusterFit(
        model=None,
        centres=clusters.centres,
        n_eigenvectors=len(kpca.eigenvalues_),
        spectrum=kpca.eigenvalues_,
        inertia=claim.inertia,
        slack=claim.slack,
        n_iter=clusters.n_iter,
        gamma=kpca.gamma_,
        method=f"{kpca.method_}; then {then}",
        n_columns=kpca.n_features_in_,
        baseline_floats=kpca.report_.baseline_floats,
        facts=(*kpca.report_.notes, *facts),
        estimator=kpca,
        missing=MissingShares.of_estimator(kpca),
        **more,
    )


# Columns.


def fit_columns(
    fed: Federation, params: ClusteringParameters, build: Build, sample_weight: Any
) -> ClusterFit:
    """Components by `KernelPCA`; then k-means of the scores, by whoever has them all."""
    weights = None if sample_weight is None else weight_array(sample_weight)
    kpca, scores = _components(fed, params, build)
    Z = np.asarray(scores, dtype=np.float64)
    w = np.ones(len(Z)) if weights is None else weight_array(weights, len(Z))
    run = (params.n_clusters, params.n_init, params.max_iter, params.tol, params.seed)
    clusters = score_kmeans(WeightedPoints(Z, w), *run)
    claim = _column_inertia(kpca, WeightedPoints(Z, w), clusters, params, weights is None)
    n_filled = int(np.count_nonzero(weight_of_each(clusters.labels, w, len(clusters.centres))))
    return _outcome(
        kpca,
        clusters,
        claim,
        "k-means of the scores, where they are known",
        stop_reason=kpca.report_.stop_reason,
        caveats=shortfall(params.n_clusters, len(clusters.centres), n_filled),
        facts=(claim.words, *_rank_fact(kpca, params)),
        labels=clusters.labels,
    )


def _bounded(inertia: float, slack: float) -> InertiaClaim:
    """An inertia in feature space that is an upper bound."""
    slack = max(min(slack, inertia), 0.0)
    return InertiaClaim(inertia, slack, f"inertia {inertia:.4g} is at most {slack:.3g} too large")


def _column_inertia(
    kpca: KernelPCA,
    data: WeightedPoints,
    clusters: ScoreClusters,
    params: ClusteringParameters,
    unweighted: bool,
) -> InertiaClaim:
    """In feature space, as far as it is known where the scores are."""
    fusion, (Z, w), k = kpca.estimator_.model_.fusion, data, len(clusters.centres)
    if isinstance(fusion, ArgumentFusion) and all(fusion.kept) and not fusion.residuals.any():
        # These coordinates have all samples' distances or products: so the whole kernel matrix.
        parts = (clusters.labels, w, k)
        return _bounded(whole_inertia(fusion.kernel, fusion.coordinates, parts), 0.0)
    if not unweighted and params.kernel not in UNIT_NORM:
        return InertiaClaim(
            clusters.cost, None, f"inertia {clusters.cost:.4g} is that of the scores"
        )
    trace = fusion.total if unweighted else float(w.sum())
    # Σ_c u_cᵀ(K̂ − K)u_c over k orthonormal u_c is at most this, and 0 where K̂ is below K.
    error = float(np.sqrt(k)) * overstated(fusion)
    sums = membership(clusters.labels, w, k) @ Z
    inertia = inertia_of(trace, sums, weight_of_each(clusters.labels, w, k)) + error
    # A mean is longer than inside the components by no more than its samples are on average.
    left_out = trace - float(w @ np.einsum("ij,ij->i", Z, Z))
    return _bounded(inertia, left_out + 2 * error)


# Rows on a graph.


def fit_graph(
    fed: Federation, params: ClusteringParameters, build: Build, weights: str
) -> ClusterFit:
    """Components by `KernelPCA`; then Lloyd's iteration at the nodes, by averages."""
    params = as_policies_want(fed, params)

    def clustered(kpca: KernelPCA) -> tuple[KernelPCA, ClusterSpan, GraphClusters]:
        span = span_of(kpca.estimator_)
        run = graph_clustering(params, len(kpca.eigenvalues_), span, weights)
        return kpca, span, run.run(fed).value

    kpca, span, clusters = fed.in_turn(lambda: _components(fed, params, build)[0], clustered)
    claim = _graph_inertia(clusters, span.name)
    filled = int(np.count_nonzero(clusters.weights))
    agreement = f"the nodes' centres differ by at most {clusters.apart:.1e}"
    of_groups = params.kmeans == "groups"
    too_few = shortfall(params.n_clusters, len(clusters.centres), filled, of_groups)
    n_rows = int(kpca.estimator_.model_.n_rows)
    few = few_groups(params.n_clusters, n_rows) if of_groups else ()
    groups = " over whole groups of rows" if of_groups else ""
    outcome = _outcome(
        kpca,
        clusters,
        claim,
        f"Lloyd's iteration, its sums{groups} added up by neighbours",
        stop_reason=clusters.stop_reason,
        history=clusters.history if len(clusters.history) else None,
        caveats=(*_apart(kpca, clusters), *too_few, *few),
        facts=(agreement, claim.words, *_rank_fact(kpca, params)),
    )
    return _with_absent(outcome, params, clusters.outside if span.name == "landmarks" else 0.0)


def _with_absent(fit: ClusterFit, params: ClusteringParameters, outside: float) -> ClusterFit:
    """The next eigenvalue as missing whole, where clusters are more than components and rows are
    outside their span.
    """
    rank, total = fit.n_eigenvectors, float(fit.estimator.total_variance_)
    if rank >= min(params.n_clusters, params.n_eigenvectors) or outside <= ABSENT * total:
        return fit
    assert fit.missing is not None
    missing = MissingShares(np.append(fit.missing.shortfalls, 1.0), 1.0, 0.0)
    components = f"{rank} component{'s' if rank > 1 else ''}"
    caveat = (
        f"the centroids determine {components}, and {outside / total:.1%} of the variance is "
        f"outside their span: eigenvalue {rank + 1} is missing whole, and clusters there are not "
        f"told apart; pass landmarks by name to a coordinator, or nodes that join their rows"
    )
    return fit._replace(missing=missing, caveats=(*fit.caveats, caveat))


def as_policies_want(fed: Federation, params: ClusteringParameters) -> ClusteringParameters:
    """Sums over whole groups where organisations, or a policy, keep single rows."""
    dim = most_components(params, "rows", [params.n_eigenvectors])
    unasked = params.kmeans == "auto"
    if unasked and fed.between_organisations:
        params = params._replace(kmeans="groups")
    try:
        fed.require_stages(graph_clustering(params, dim, ClusterSpan("landmarks", 1)))
    except PolicyRefusal:
        if not unasked or params.kmeans == "groups":
            raise
        params = params._replace(kmeans="groups")
        fed.require_stages(graph_clustering(params, dim, ClusterSpan("landmarks", 1)))
    return params


class ClusterSpan(NamedTuple):
    """What of the rows all nodes describe alike, in which the inertia is known, and its width."""

    name: str  # one of `graph_node.SPANS`
    width: int


def graph_clustering(
    params: ClusteringParameters, dim: int, span: ClusterSpan, weights: str = ""
) -> Stage:
    """Lloyd's iteration on scores of `dim` components."""
    run = (params.n_clusters, params.n_init, params.tol, span.name, weights, params.seed)
    searches = SEARCHES if params.more_eigenvectors else 0
    goal = ClusterGoal(*run, searches, params.kmeans == "groups", params.keep_history)
    return stage(graph_kmeans, goal, params.max_iter, dim, span.width)


def span_of(estimator: Any) -> ClusterSpan:
    """Of a fitted estimator on a graph."""
    name, model = estimator._common_span(), estimator.model_
    if name == "scores":
        return ClusterSpan(name, len(model.eigenvalues))
    points = model.components if name == "features" else model.landmarks
    return ClusterSpan(name, int(points.shape[0]))


def _graph_inertia(clusters: GraphClusters, span: str) -> InertiaClaim:
    if span == "landmarks":
        return _bounded(clusters.inertia, clusters.outside)
    if span == "features":
        words = "is that of the random features"
    else:
        words = "is that of the scores, by each node's own model; predict has the first node's"
    return InertiaClaim(clusters.inertia, None, f"inertia {clusters.inertia:.4g} {words}")


def _apart(kpca: KernelPCA, clusters: GraphClusters) -> tuple[str, ...]:
    model = kpca.estimator_.model_
    typical = float(np.sqrt(model.eigenvalues.sum() / model.n_rows))
    if clusters.apart <= AGREES * typical:
        return ()
    return (
        f"the nodes do not agree: their centres are up to {clusters.apart:.2g} apart, where a "
        f"row's scores have a norm of {typical:.2g}; fit again, with fewer lost messages",
    )


Shapes = Sequence[tuple[int, int]]

_SETTLES = "at most: k-means that settles earlier sends less"
_MAY_SETTLE = "about: how soon k-means settles hangs on the data"


@dataclass(frozen=True)
class PlannedComponents:
    """The forecast of a fit to columns, or to rows on a graph.

    `build` gives the estimator that a fit will run for so many components.
    """

    params: ClusteringParameters
    split: str
    build: Callable[[int], Any]
    _left_out: Any = None
    _preceding: tuple[Stage, ...] = ()

    def _plan_method(self, shapes: Shapes) -> str:
        return f"k-means of the scores of {self._components(shapes)._plan_method(shapes)}"

    def _plan_notes(self, names: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
        notes: tuple[str, ...] = self._components(shapes)._plan_notes(names, shapes)
        if self.split != "rows":
            return notes
        return (*notes, _MAY_SETTLE) if notes or self.params.more_eigenvectors else (_SETTLES,)

    def _components(self, shapes: Shapes) -> Any:
        return self.build(most_components(self.params, self.split, [d for _, d in shapes]))

    def _planned_graph(self, names: Sequence[str]) -> Any:
        return self.build(1)._planned_graph(names)

    def _forecast(self, names: Sequence[str], shapes: Shapes) -> Ledger:
        who = (tuple(names), tuple(shapes), self._planned_graph(names))
        parties = Parties(*who, left_out=names_of(self._left_out))
        return forecast_stages([*self._preceding, *self._stages(parties)], parties, self.split)

    def _stages(self, parties: Parties) -> list[Stage]:
        estimator = self._components(parties.shapes)
        count = [stage(survey)] if self.params.kernel in RANK_OF_COLUMNS else []
        components = [*count, *estimator._stages(parties)]
        if self.split == "rows":
            span = ClusterSpan(*estimator._planned_span(parties))
            return [*components, graph_clustering(self.params, int(estimator.n_components), span)]
        return [*components, *estimator._score_stages(parties)]
