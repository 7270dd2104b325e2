"""What `KernelKMeans` of columns, or of rows on a graph, will cost, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eigenmesh.kernel_kmeans.choose_clustering import ClusteringParameters, candidates_for
from eigenmesh.kernel_kmeans.fit_components import (
    RANK_OF_COLUMNS,
    Span,
    graph_clustering,
    most_components,
)
from eigenmesh.methods.gossip.estimator import GossipKPCA
from eigenmesh.methods.one_shot.estimator import OneShotKPCA
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.runtime.ledger import Ledger, forecast_entry
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import forecast_stages
from eigenmesh.stages.column_scores import ShareHolder
from eigenmesh.stages.count import SurveyedSite

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

    def _plan_method(self, shapes: Shapes) -> str:
        return f"k-means of the scores of {self._components(shapes)._plan_method(shapes)}"

    def _plan_notes(self, names: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
        notes: tuple[str, ...] = self._components(shapes)._plan_notes(names, shapes)
        if self.split != "rows":
            return notes
        return (*notes, _MAY_SETTLE) if notes else (_SETTLES,)

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
    dim, sizes = int(estimator.n_components), [n for n, _ in shapes]
    span = Span("scores", dim)
    if isinstance(estimator, GossipKPCA):
        features = estimator._features(len(names))
        width = {
            "rows": sizes[0],
            "centroids": estimator._n_centroids(sizes),
            "random": embedded_width(params.kernel, shapes[0][1], estimator.n_features),
        }[features]
        span = Span("features" if features == "random" else "landmarks", width)
    parties = Parties(tuple(names), tuple(shapes), estimator._planned_graph(names))
    clusters = forecast_stages([graph_clustering(params, dim, span)], parties, "rows")
    ledger.entries += clusters.entries
    ledger.rounds += clusters.rounds


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
