"""What `KernelKMeans` will cost, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eigenmesh.estimators.graphs import NO_GRAPH
from eigenmesh.estimators.kernel_gamma import forecast_gamma
from eigenmesh.kernel_kmeans.choose_clustering import (
    REFINE,
    ClusteringChoice,
    ClusteringParameters,
    candidates_for,
)
from eigenmesh.kernel_kmeans.fit_components import RANK_OF_COLUMNS, most_components
from eigenmesh.kernel_kmeans.graph import Wanted
from eigenmesh.kernel_kmeans.graph import forecast as graph_forecast
from eigenmesh.kernel_kmeans.protocol import ClusteredRows, FeatureRows
from eigenmesh.kernel_pca.one_array import MOST_LANDMARKS
from eigenmesh.methods.diskpca.diskpca_forecast import forecast as diskpca_forecast
from eigenmesh.methods.diskpca.estimator import DisKPCA
from eigenmesh.methods.gossip.estimator import GossipKPCA
from eigenmesh.methods.one_shot.estimator import OneShotKPCA
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.runtime.ledger import Ledger, forecast_entry, forecast_message
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import forecast_stages, stage
from eigenmesh.stages.column_scores import ShareHolder
from eigenmesh.stages.count import SurveyedSite
from eigenmesh.stages.kmeans import distributed_kmeans
from eigenmesh.stages.kmeans_party import KMeansSetup
from eigenmesh.stages.row_messages import KernelSetup

Shapes = Sequence[tuple[int, int]]

_HANGS_ON_DATA = "about: how large coresets are, and how soon k-means settles, hangs on the data"
_SETTLES = "at most: k-means that settles earlier sends less"


@dataclass(frozen=True)
class PlannedComponents:
    """The forecast of a fit to columns, or to rows on a graph.

    `build` gives the estimator that a fit will run for so many components.
    """

    params: ClusteringParameters
    split: str
    build: Callable[[int], Any]

    def _plan_method(self, shapes: Shapes) -> str:
        return f"k-means of the scores of {self._components(shapes)._plan_method(shapes)}"

    def _plan_notes(self, names: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
        notes: tuple[str, ...] = self._components(shapes)._plan_notes(names, shapes)
        return (*notes, _SETTLES) if self.split == "rows" else notes

    def _components(self, shapes: Shapes) -> Any:
        return self.build(most_components(self.params, self.split, [d for _, d in shapes]))

    def _forecast(self, names: Sequence[str], shapes: Shapes) -> Ledger:
        params, ledger = self.params, Ledger()
        if params.kernel in RANK_OF_COLUMNS:
            by_columns = self.split == "columns"
            asked: Any = SurveyedSite.count_columns if by_columns else SurveyedSite.count_rows
            ledger.rounds += 1
            ledger.entries += [forecast_entry(asked, name, 0) for name in names]
        estimator = self._components(shapes)
        components = estimator._forecast(names, shapes)
        ledger.entries += components.entries
        ledger.rounds += components.rounds
        if self.split == "rows":
            _graph_clusters(ledger, params, estimator, names, shapes)
        elif isinstance(estimator, OneShotKPCA) and params.kernel == "poly":
            _scores_of_columns(ledger, estimator, names, shapes)
        return ledger


def method_of_rows(params: ClusteringParameters, shapes: Shapes) -> str:
    """What a fit to rows at a coordinator runs, in words."""
    if params.method in ("exact", "fed"):
        return params.method
    choice = candidates_for(params, shapes)[0]
    return f"{choice.method}: {choice.n_landmarks} landmarks by {choice.landmarks!r}, {choice.why}"


def _graph_clusters(
    ledger: Ledger,
    params: ClusteringParameters,
    estimator: Any,
    names: Sequence[str],
    shapes: Shapes,
) -> None:
    sizes, dim = [n for n, _ in shapes], int(estimator.n_components)
    span, width = "scores", dim
    if isinstance(estimator, GossipKPCA):
        agreed = estimator._agreed(NO_GRAPH, estimator._kernel(1.0), len(names))
        span = "features" if agreed.features == "random" else "landmarks"
        centroids = estimator._n_centroids(sizes)
        width = {
            "rows": sizes[0],
            "centroids": centroids,
            "random": embedded_width(params.kernel, shapes[0][1], estimator.n_features),
        }[agreed.features]
    wanted = Wanted(params.n_clusters, params.n_init, params.tol, span, "", params.seed)
    graph = estimator._planned_graph(names)
    graph_forecast(ledger, names, sizes, graph, wanted, (dim, width), params.max_iter)


def _scores_of_columns(
    ledger: Ledger, estimator: OneShotKPCA, names: Sequence[str], shapes: Shapes
) -> None:
    """Coordinates were cut short, so that the fitted samples are scored like new ones."""
    rank = estimator._settings().local_rank
    ledger.rounds += 1
    for name, (n, d) in zip(names, shapes, strict=True):
        most = min(n, d)
        sent = rank - 1 if rank < most else most  # without what is left out
        ledger.entries.append(forecast_entry(ShareHolder.project_samples, name, n * sent))


def forecast(
    params: ClusteringParameters, gamma: Any, names: Sequence[str], shapes: Shapes
) -> Ledger:
    """The ledger, if the landmarks need not be doubled and no iteration is saved.

    Lloyd is taken to need 20 iterations, which only the data decide.
    """
    if params.method == "exact":
        ledger = Ledger()
        forecast_gamma(ledger, params.kernel, gamma, names, shapes)
        return ledger
    choice = candidates_for(params, shapes)[0]
    ledger = Ledger(rounds=1)
    ledger.entries += [forecast_entry(SurveyedSite.count_rows, name, 0) for name in names]
    forecast_gamma(ledger, params.kernel, gamma, names, shapes)
    dim = _scoring(ledger, params, choice, names, shapes)
    how: dict[str, Any] = {"method": choice.kmeans, "n_init": params.n_init, "refine": REFINE}
    points, parties = KMeansSetup("", "", 0), Parties(tuple(names), tuple(shapes))
    run = stage(distributed_kmeans, points, params.n_clusters, dim=dim, **how)
    clustering = forecast_stages([run], parties, "rows")
    ledger.entries += clustering.entries
    ledger.rounds += clustering.rounds
    return ledger


def plan_notes(
    params: ClusteringParameters, names: Sequence[str], shapes: Shapes
) -> tuple[str, ...]:
    """What hangs on the data, and what it would cost if landmarks doubled as often as they may."""
    if params.method in ("exact", "fed"):
        return ()
    if params.method == "random-features":
        return (_HANGS_ON_DATA,)
    choice = candidates_for(params, shapes)[0]
    doubling = DisKPCA(
        params.n_eigenvectors,
        kernel=params.kernel,
        center=False,
        n_landmarks=choice.n_landmarks,
        landmarks=choice.landmarks,
        accuracy=params.accuracy,
        max_landmarks=MOST_LANDMARKS if params.n_landmarks is None else None,
    )
    return (_HANGS_ON_DATA, *doubling._plan_notes(names, shapes))


def _scoring(
    ledger: Ledger,
    params: ClusteringParameters,
    choice: ClusteringChoice,
    names: Sequence[str],
    shapes: Shapes,
) -> int:
    """Everything but k-means; gives the dimensions of the points."""
    if choice.landmarks == "none":
        ledger.rounds += 2
        ledger.entries += [forecast_entry(FeatureRows.count_rows, name, 0) for name in names]
        return embedded_width(params.kernel, shapes[0][1], params.n_features)
    s, q = params.n_eigenvectors, min(choice.n_landmarks, sum(n for n, _ in shapes))
    setup = KernelSetup(params.kernel, 1.0, 3.0, 1.0, s, 2 * s, params.seed)
    found = diskpca_forecast(names, shapes, setup, s, q, choice.landmarks, measured=True)
    ledger.entries += [
        entry._replace(step=entry.step.replace("RowHolder.", "ClusteredRows."))
        for entry in found.entries
    ]
    ledger.rounds += found.rounds + 2
    for name in names:
        ledger.entries += [
            forecast_message(ClusteredRows.keep_scores, name, q * s + 2 * s),
            forecast_entry(
                ClusteredRows.cluster_moments, name, params.n_clusters * q + params.n_clusters
            ),
        ]
    return s
