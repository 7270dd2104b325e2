"""What a fit of `KernelPCRegressor` will send, of one target a row, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import networkx as nx

from eigenmesh.connect import is_dask_collection
from eigenmesh.errors import PolicyRefusal
from eigenmesh.estimators.kernel_gamma import forecast_gamma
from eigenmesh.estimators.party_values import is_plain
from eigenmesh.kernel_pca.choose_method import build_estimator, choose_method
from eigenmesh.methods.diskpca.diskpca_forecast import forecast as diskpca_forecast
from eigenmesh.methods.diskpca.protocol import most_landmarks
from eigenmesh.methods.diskpca.sketching_estimator import SketchingPCA
from eigenmesh.methods.one_shot.estimator import OneShotKPCA
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.regression.component_ridge import TargetRows
from eigenmesh.regression.embedded_ridge import EmbeddedTargets
from eigenmesh.regression.fit import RegressionParameters, ridge_needs, row_methods
from eigenmesh.regression.graph_ridge import forecast_graph_ridge
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Entry, Ledger, forecast_entry, forecast_message
from eigenmesh.runtime.topology import build_graph
from eigenmesh.stages.column_scores import ShareHolder
from eigenmesh.stages.count import SurveyedSite

Names = Sequence[str]
Shapes = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class PlannedRegression:
    """What `em.plan` asks for a ledger; `components` is the estimator that finds them."""

    components: Any
    forecast: Callable[[Names, Shapes], Ledger]

    def _plan_method(self, shapes: Shapes) -> str:
        return f"ridge on the scores of {self.components._plan_method(shapes)}"

    def _plan_notes(self, names: Names, shapes: Shapes) -> tuple[str, ...]:
        notes: tuple[str, ...] = self.components._plan_notes(names, shapes)
        return notes

    def _forecast(self, names: Names, shapes: Shapes) -> Ledger:
        return self.forecast(names, shapes)


def planned(fed: Federation, params: RegressionParameters) -> PlannedRegression:
    """The fit to a federation, by what its parties let out."""
    k, strict = params.n_components, fed.align == "strict"
    if fed.split == "rows" and fed.graph is None:
        return _of_rows(_allowed(fed, params), k)
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
    return _of_rows(build_estimator(door, row_methods(door, is_plain(source))[0]), k)


def _of_rows(estimator: Any, k: int) -> PlannedRegression:
    return PlannedRegression(estimator, lambda *sizes: forecast_rows(estimator, k, *sizes))


def _of_graph(inner: Any, k: int) -> PlannedRegression:
    return PlannedRegression(inner, lambda *sizes: forecast_graph(inner, k, *sizes))


def _allowed(fed: Federation, params: RegressionParameters) -> Any:
    door = params.door
    candidates = row_methods(door, len(fed.parties) == 1)
    try:
        build = partial(build_estimator, door)
        return choose_method(fed, candidates, build, ridge_needs)[2]
    except PolicyRefusal:  # the plan of the first says who refuses what
        return build_estimator(door, candidates[0])


def forecast_rows(estimator: Any, k: int, names: Names, shapes: Shapes) -> Ledger:
    """Components and normal equations at a coordinator."""
    if isinstance(estimator, SketchingPCA):
        ledger = _embedded(estimator, names, shapes)
    else:
        ledger = _landmarks(estimator, k, names, shapes)
    forecast_gamma(ledger, estimator.kernel, estimator.gamma, names, shapes)
    return ledger


def _landmarks(estimator: Any, k: int, names: Names, shapes: Shapes) -> Ledger:
    choice = estimator.landmarks
    q = min(estimator.n_landmarks, sum(most_landmarks(choice, n) for n, _ in shapes))
    agreed = estimator._agreed(1.0)
    found = diskpca_forecast(names, shapes, agreed, k, q, choice, measured=True, centred=True)
    ledger = Ledger(rounds=found.rounds + 3)
    ledger.entries += [
        entry._replace(step=entry.step.replace("RowHolder.", "TargetRows."))
        for entry in found.entries
    ]
    for name in names:
        ledger.entries += [
            forecast_entry(TargetRows.sum_targets, name, 1),
            forecast_message(TargetRows.keep_scores, name, q * k + 2 * k),
            forecast_message(TargetRows.normal_equations, name, 1),
            forecast_entry(TargetRows.normal_equations, name, k * (k + 1) // 2 + 2 * k + 2),
        ]
    return ledger


def _embedded(estimator: Any, names: Names, shapes: Shapes) -> Ledger:
    agreed = estimator._agreed(1.0)
    t = embedded_width(agreed.kernel, shapes[0][1], agreed.embedding_dim)
    role, ledger = EmbeddedTargets, Ledger(rounds=3)
    for name in names:
        ledger.entries += [
            forecast_entry(role.sum_targets, name, 1),
            forecast_entry(role.count_rows, name, 0),
            forecast_message(role.embedded_equations, name, 1),
            _with_moments(
                forecast_entry(role.embedded_equations, name, t * (t + 1) // 2 + t), t + 2
            ),
        ]
    return ledger


def _with_moments(entry: Entry, moments: int) -> Entry:
    """A reply with so many floats besides that are moments."""
    kinds = {**entry.kinds, "moments": moments}
    return entry._replace(kinds=kinds, floats=entry.floats + moments)


def forecast_graph(inner: Any, k: int, names: Names, shapes: Shapes) -> Ledger:
    """Components by `inner`, then normal equations over its graph."""
    ledger: Ledger = inner._forecast(names, shapes)
    graph = build_graph(inner.topology, names)
    forecast_graph_ridge(ledger, names, shapes, graph, k, 1)
    return ledger


def forecast_columns(inner: Any, strict: bool, names: Names, shapes: Shapes) -> Ledger:
    """Components by `inner`; the number of samples before, and their scores if it has none."""
    ledger: Ledger = inner._forecast(names, shapes)
    if strict:
        ledger.rounds += 1
        ledger.entries += [forecast_entry(SurveyedSite.count_columns, name, 0) for name in names]
    if isinstance(inner, OneShotKPCA) and inner._settings().fusion == "arguments":
        ledger.rounds += 1
        for name, (n, m) in zip(names, shapes, strict=True):
            r = min(inner._settings().local_rank, n, m)
            cut = r < min(n, m)  # of an inner product the residual is no coordinate
            ledger.entries.append(forecast_entry(ShareHolder.project_samples, name, n * (r - cut)))
    return ledger
