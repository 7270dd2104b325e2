"""What `KernelKMeans` of columns, or of rows on a graph, will cost, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eigenmesh.kernel_kmeans.choose_clustering import ClusteringParameters
from eigenmesh.kernel_kmeans.fit_components import (
    RANK_OF_COLUMNS,
    ClusterSpan,
    graph_clustering,
    most_components,
)
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, forecast_stages, stage
from eigenmesh.stages.count import survey

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

    def _planned_graph(self, names: Sequence[str]) -> Any:
        return self.build(1)._planned_graph(names)

    def _forecast(self, names: Sequence[str], shapes: Shapes) -> Ledger:
        parties = Parties(tuple(names), tuple(shapes), self._planned_graph(names))
        return forecast_stages(self._stages(parties), parties, self.split)

    def _stages(self, parties: Parties) -> list[Stage]:
        estimator = self._components(parties.shapes)
        count = [stage(survey)] if self.params.kernel in RANK_OF_COLUMNS else []
        components = [*count, *estimator._stages(parties)]
        if self.split == "rows":
            span = ClusterSpan(*estimator._planned_span(parties))
            return [*components, graph_clustering(self.params, int(estimator.n_components), span)]
        return [*components, *estimator._score_stages(parties)]
