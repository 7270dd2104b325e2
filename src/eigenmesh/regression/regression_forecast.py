"""What a fit of `KernelPCRegressor` will send, of one target a row, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import networkx as nx

from eigenmesh.connect import is_dask_collection
from eigenmesh.errors import PolicyRefusal
from eigenmesh.estimators.kernel_gamma import gamma_stages
from eigenmesh.estimators.party_values import is_plain
from eigenmesh.kernel_pca.choose_method import build_estimator, choose_method
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
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import floats_besides, forecast_stages, stage
from eigenmesh.runtime.topology import build_graph

Names = Sequence[str]
Shapes = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class PlannedRegression:
    """What `em.plan` asks for a ledger; `components` is the estimator that finds them."""

    components: Any
    forecast: Callable[[Names, Shapes], Ledger]
    notes: Callable[[Names, Shapes], tuple[str, ...]] | None = None  # if not the components'

    def _plan_method(self, shapes: Shapes) -> str:
        return f"ridge on the scores of {self.components._plan_method(shapes)}"

    def _plan_notes(self, names: Names, shapes: Shapes) -> tuple[str, ...]:
        notes: tuple[str, ...] = (self.notes or self.components._plan_notes)(names, shapes)
        return notes

    def _forecast(self, names: Names, shapes: Shapes) -> Ledger:
        return self.forecast(names, shapes)


def planned(fed: Federation, params: RegressionParameters) -> PlannedRegression:
    """The fit to a federation, by what its parties let out."""
    k, strict = params.n_components, fed.align == "strict"
    if fed.split == "rows" and fed.graph is None:
        return _of_rows(*_allowed(fed, params), k)
    inner, graph = params.door._planned(fed), fed.graph
    if graph is not None:
        inner.set_params(topology=nx.Graph(graph))
    if fed.split == "columns":
        return PlannedRegression(
            inner, lambda names, shapes: forecast_columns(inner, strict, names, shapes)
        )
    return _of_graph(inner, k)


def planned_unopened(source: Any, params: RegressionParameters) -> PlannedRegression:
    """The fit to a plain array or a Dask collection, which nobody opens for a forecast."""
    k, door = params.n_components, params.door
    if is_dask_collection(source) and door.topology is not None:
        return _of_graph(door._planned(source), k)
    method = row_methods(door, is_plain(source))[0]
    return _of_rows(method, build_estimator(door, method), k)


def _of_rows(method: Method, estimator: Any, k: int) -> PlannedRegression:
    return PlannedRegression(
        estimator,
        partial(forecast_rows, method, estimator, k),
        partial(row_notes, method, estimator, k),
    )


def _of_graph(inner: Any, k: int) -> PlannedRegression:
    return PlannedRegression(inner, lambda *sizes: forecast_graph(inner, k, *sizes))


def _allowed(fed: Federation, params: RegressionParameters) -> tuple[Method, Any]:
    door = params.door
    candidates = row_methods(door, len(fed.parties) == 1)
    try:
        build = partial(build_estimator, door)
        return choose_method(fed, candidates, build, ridge_needs)[1:]
    except PolicyRefusal:  # the plan of the first says who refuses what
        return candidates[0], build_estimator(door, candidates[0])


def forecast_rows(method: Method, estimator: Any, k: int, names: Names, shapes: Shapes) -> Ledger:
    """Targets, components and normal equations at a coordinator."""
    parties = Parties(tuple(names), tuple(shapes))
    search = gamma_stages(estimator.kernel, estimator.gamma, parties)
    return forecast_stages([*search, *row_runs(method, estimator, k)], parties, "rows")


def row_notes(
    method: Method, estimator: Any, k: int, names: Names, shapes: Shapes
) -> tuple[str, ...]:
    """What it would cost if landmarks doubled as often as they may."""
    if not method.takes_landmarks:
        return ()
    parties = Parties(tuple(names), tuple(shapes))
    more = floats_besides([scoring_run(estimator, 1.0, k)], parties, "rows")
    notes: tuple[str, ...] = estimator._growth_notes(names, shapes, more)
    return notes


def forecast_graph(inner: Any, k: int, names: Names, shapes: Shapes) -> Ledger:
    """Components by `inner`, then normal equations over its graph."""
    ledger: Ledger = inner._forecast(names, shapes)
    parties = Parties(tuple(names), tuple(shapes), build_graph(inner.topology, names))
    ridge = forecast_stages(graph_stages(parties.graph, k, 1), parties, "rows")
    ledger.entries += ridge.entries
    ledger.rounds += ridge.rounds
    return ledger


def forecast_columns(inner: Any, strict: bool, names: Names, shapes: Shapes) -> Ledger:
    """Components by `inner`; the number of samples before, and their scores if it has none."""
    ledger: Ledger = inner._forecast(names, shapes)
    parties = Parties(tuple(names), tuple(shapes), inner._planned_graph(names))
    runs = [stage(column_targets, None, strict), *inner._score_stages(parties)]
    known = forecast_stages(runs, parties, "columns")
    ledger.entries += known.entries
    ledger.rounds += known.rounds
    return ledger
