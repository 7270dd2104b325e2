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
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, forecast_stages, stage
from eigenmesh.stages.count import survey

Shapes = Sequence[tuple[int, int]]

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
        estimator = self._components(shapes)
        ledger: Ledger = estimator._forecast(names, shapes)
        parties = Parties(tuple(names), tuple(shapes), estimator._planned_graph(names))
        further = forecast_stages(self._besides(estimator, parties), parties, self.split)
        ledger.entries += further.entries
        ledger.rounds += further.rounds
        return ledger

    def _besides(self, estimator: Any, parties: Parties) -> list[Stage]:
        """The runs before and after those that find components."""
        count = [stage(survey)] if self.params.kernel in RANK_OF_COLUMNS else []
        if self.split == "rows":
            return [*count, _graph_clusters(self.params, estimator, parties)]
        return [*count, *estimator._score_stages(parties)]


def method_of_rows(params: ClusteringParameters, shapes: Shapes) -> str:
    """What a fit to rows at a coordinator runs, in words."""
    if params.method in ("exact", "fed"):
        return params.method
    choice = candidates_for(params, shapes)[0]
    return f"{choice.method}: {choice.n_landmarks} landmarks by {choice.landmarks!r}, {choice.why}"


def _graph_clusters(params: ClusteringParameters, estimator: Any, parties: Parties) -> Stage:
    dim, sizes = int(estimator.n_components), [n for n, _ in parties.shapes]
    span = Span("scores", dim)
    if isinstance(estimator, GossipKPCA):
        features = estimator._features(len(parties.names))
        width = {
            "rows": sizes[0],
            "centroids": estimator._n_centroids(sizes),
            "random": embedded_width(params.kernel, parties.shapes[0][1], estimator.n_features),
        }[features]
        span = Span("features" if features == "random" else "landmarks", width)
    return graph_clustering(params, dim, span)
