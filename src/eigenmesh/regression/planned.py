"""A fit of `KernelPCRegressor` before it runs, of one target a row: what it will run and send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import networkx as nx

from eigenmesh.connect import chunk_shapes
from eigenmesh.errors import PolicyRefusal
from eigenmesh.estimators.kernel_gamma import gamma_stages
from eigenmesh.estimators.party_values import is_plain, plain_shapes
from eigenmesh.estimators.small_parties import names_of
from eigenmesh.kernel_pca.choose_method import (
    build_estimator,
    choose_method,
    hangs_on_sizes,
    of_these_sizes,
    preceded,
    those_in,
)
from eigenmesh.methods.registry import Method
from eigenmesh.regression.column_ridge import column_targets
from eigenmesh.regression.fit import (
    RegressionParameters,
    graph_stages,
    ridge_needs,
    row_methods,
    row_runs,
    scoring_run,
)
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.schedule import Parties, masks_are_planned
from eigenmesh.runtime.study import Stage, floats_besides, forecast_stages, stage

Names = Sequence[str]
Shapes = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class PlannedRegression:
    """A fit before it runs: what plans and studies ask of it.

    `components` is the estimator that finds them, `runs` gives all runs of the fit.
    """

    components: Any
    split: str
    runs: Callable[[Parties], list[Stage]]
    notes: Callable[[Names, Shapes], tuple[str, ...]] | None = None  # if not the components'

    @property
    def _left_out(self) -> Any:
        return self.components._left_out

    @property
    def _preceding(self) -> tuple[Stage, ...]:
        preceding: tuple[Stage, ...] = self.components._preceding
        return preceding

    def _plan_method(self, shapes: Shapes) -> str:
        return f"ridge on the scores of {self.components._plan_method(shapes)}"

    def _plan_notes(self, names: Names, shapes: Shapes) -> tuple[str, ...]:
        notes: tuple[str, ...] = (self.notes or self.components._plan_notes)(names, shapes)
        return notes

    def _planned_graph(self, names: Names) -> Any:
        return self.components._planned_graph(names)

    def _stages(self, parties: Parties) -> list[Stage]:
        return self.runs(parties)

    def _forecast(self, names: Names, shapes: Shapes) -> Ledger:
        who = (tuple(names), tuple(shapes), self._planned_graph(names))
        parties = Parties(*who, left_out=names_of(self._left_out))
        return forecast_stages([*self._preceding, *self._stages(parties)], parties, self.split)


def planned(fed: Federation, params: RegressionParameters) -> PlannedRegression:
    """The fit to a federation, by what its parties let out."""
    k, strict = params.n_components, fed.align == "strict"
    if fed.split == "rows" and fed.graph is None:
        return _of_rows(*_allowed(fed, params), k)
    inner, graph = params.door._planned(fed), fed.graph
    if graph is not None and inner._left_out is None:
        inner.set_params(topology=nx.Graph(graph))
    if fed.split == "columns":
        return PlannedRegression(inner, "columns", partial(column_runs, inner, strict))
    return _of_graph(inner, k)


def planned_unopened(source: Any, params: RegressionParameters) -> PlannedRegression:
    """The fit to a plain array or a Dask collection, which nobody opens for a forecast."""
    k, door, alone = params.n_components, params.door, is_plain(source)
    if not alone and door.topology is not None:
        return _of_graph(door._planned(source), k)
    candidates = row_methods(door, alone, masks_are_planned())
    whole = plain_shapes(source) if alone else chunk_shapes(source)
    shapes, left_out = those_in(door, candidates, whole, "rows", None)
    method = of_these_sizes(door, candidates, shapes)[0]
    surveys = left_out is not None or hangs_on_sizes(door, candidates)
    return _of_rows(method, preceded(build_estimator(door, method), surveys, left_out), k)


def _of_rows(method: Method, estimator: Any, k: int) -> PlannedRegression:
    runs = partial(planned_row_runs, method, estimator, k)
    return PlannedRegression(estimator, "rows", runs, partial(row_notes, method, estimator, k))


def _of_graph(inner: Any, k: int) -> PlannedRegression:
    return PlannedRegression(inner, "rows", partial(graph_runs, inner, k))


def _allowed(fed: Federation, params: RegressionParameters) -> tuple[Method, Any]:
    door = params.door
    candidates = row_methods(door, len(fed.members) == 1, fed.secure or masks_are_planned())
    build, left_out = partial(build_estimator, door), None
    with fed.rehearsing():
        surveys = hangs_on_sizes(door, candidates)
        try:
            candidates, left_out = door._of_sizes_at(fed, candidates)
            method, estimator = choose_method(fed, candidates, build, ridge_needs)[1:]
        except PolicyRefusal:  # the plan of the first says who refuses what
            method, estimator = candidates[0], build(candidates[0])
    return method, preceded(estimator, surveys or left_out is not None, left_out)


def planned_row_runs(method: Method, estimator: Any, k: int, parties: Parties) -> list[Stage]:
    """Targets, components and normal equations at a coordinator."""
    targets, *components = row_runs(method, estimator, k)
    search = gamma_stages(estimator.kernel, estimator.gamma, parties)
    return [targets, *search, *components]


def row_notes(
    method: Method, estimator: Any, k: int, names: Names, shapes: Shapes
) -> tuple[str, ...]:
    """What it would cost if landmarks doubled as often as they may."""
    if not method.takes_landmarks:
        return ()
    parties = Parties(tuple(names), tuple(shapes))
    more = floats_besides([scoring_run(method, estimator, 1.0, k)], parties, "rows")
    notes: tuple[str, ...] = estimator._growth_notes(names, shapes, more)
    return notes


def graph_runs(inner: Any, k: int, parties: Parties) -> list[Stage]:
    """Components by `inner`, then normal equations over its graph."""
    targets, ridge = graph_stages(parties.graph, k, 1)
    return [targets, *inner._stages(parties), ridge]


def column_runs(inner: Any, strict: bool, parties: Parties) -> list[Stage]:
    """Components by `inner`; the number of samples before, and their scores if it has none."""
    count = stage(column_targets, None, strict)
    return [count, *inner._stages(parties), *inner._score_stages(parties)]
