"""How `KernelPCRegressor` is fitted: to rows at a coordinator, rows on a graph, or columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from eigenmesh.errors import PolicyRefusal
from eigenmesh.estimators.accuracy import Missing, caveats_of
from eigenmesh.estimators.kernel_gamma import kernel_gamma
from eigenmesh.estimators.party_values import NONE, at_sites
from eigenmesh.graphs.consensus import mixing, mixing_on, require_graph
from eigenmesh.kernel_pca.choose_method import Needs, Way, choose_way
from eigenmesh.kernel_pca.estimator import KernelPCA
from eigenmesh.methods.diskpca.estimator import DisKPCA
from eigenmesh.methods.diskpca.sketching_estimator import SketchingPCA
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.ridge import RidgeFit
from eigenmesh.regression.column_ridge import column_ridge, column_targets, require_targets
from eigenmesh.regression.component_ridge import (
    RidgeResult,
    RidgeSetup,
    TargetRows,
    component_ridge,
    regression_steps,
)
from eigenmesh.regression.embedded_ridge import (
    EmbeddedRidgeSetup,
    EmbeddedTargets,
    embedded_ridge,
    embedded_steps,
)
from eigenmesh.regression.graph_ridge import (
    PROBES,
    GraphRidgeSetup,
    graph_ridge,
    graph_targets,
)
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.study import Stage, stage

SCORES = "kernel-pc-regressor scores"
APART_UNSAID = 1e-3  # nodes whose predictions are further apart, of their spread, deserve a warning


class Wishes(NamedTuple):
    """The regressor's parameters, checked; `door` finds components with its arguments."""

    door: KernelPCA
    n_components: int
    alpha: float


@dataclass(frozen=True)
class Regression:
    """What a fit found: rows are scored by `model`, or anything by `estimator` if there is one."""

    fit: RidgeFit
    flat: bool  # one target a row, and not a matrix of them
    method: str
    model: Any
    estimator: KernelPCA | None
    gamma: float | None
    eigenvalues: Doubles
    n_features: int
    baseline_floats: int
    stop_reason: str
    notes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()  # notes that are warnings too
    missing: Missing | None = None  # of the eigenvalues; None if not known


def fit_split(fed: Federation, wishes: Wishes, y: Any) -> Regression:
    """By where the data are; what does not suit them is told before anybody is asked."""
    wishes.door._ways(fed.split, fed.graph is not None)
    if fed.split == "columns":
        return fit_columns(fed, wishes, y)
    require_targets(y)
    return fit_rows(fed, wishes, y) if fed.graph is None else fit_graph(fed, wishes, y)


# Rows, and a coordinator.


def row_ways(door: KernelPCA, alone: bool) -> list[Way]:
    """Kernel PCA's ways for rows, each with what its regression asks of the parties.

    `alone` says that there is one party only.
    """
    found = door._ways("rows", False)
    if alone and door.n_landmarks is not None and door.landmarks == "auto":
        # Who asks for a number may ask for every row, which centroids never are; nothing leaves.
        found = sorted(found, key=lambda way: way.options.get("landmarks") != "diskpca")
    return [dataclasses.replace(way, needs=_ridge_steps) for way in found]


def _ridge_steps(estimator: Any, fed: Federation) -> Needs:
    if isinstance(estimator, SketchingPCA):
        return EmbeddedTargets, embedded_steps()
    return TargetRows, regression_steps(estimator.landmarks)


def fit_rows(fed: Federation, wishes: Wishes, y: Any) -> Regression:
    """Components and normal equations in one run."""
    door = wishes.door
    choice, estimator = choose_way(fed, row_ways(door, len(fed.parties) == 1), door._built)
    with at_sites(fed, y, "y", field="targets", signed=True) as targets:
        gamma = kernel_gamma(fed, door.kernel, door.gamma, door.random_state)
        found = _run_rows(fed, wishes, estimator, gamma, targets)
        rather = _rows_instead(fed, door, estimator, found)
        if rather is not None:
            few = int(found.model.landmarks.shape[0])
            why = f"{choice.why}; the landmarks are rows, since {few} centroids miss too much"
            choice = dataclasses.replace(choice, why=why)
            estimator, found = rather, _run_rows(fed, wishes, rather, gamma, targets)
    k, rank = wishes.n_components, len(found.model.eigenvalues)
    short = (f"{k} components were asked for, the {found.source} determine {rank}",)
    return Regression(
        found.fit,
        is_flat(y),
        str(choice),
        found.model,
        None,
        gamma,
        found.model.eigenvalues,
        found.n_columns,
        found.baseline_floats,
        found.stop_reason,
        (found.worth,),
        (*(short if rank < k else ()), *_missing_in_words(found, estimator)),
        None if found.coverage is None else Missing.of(found.coverage.shortfall),
    )


def _missing_in_words(found: RidgeResult, estimator: Any) -> tuple[str, ...]:
    if found.coverage is None:
        return ()
    q, accuracy = int(found.model.landmarks.shape[0]), estimator.accuracy
    missing = caveats_of(found.coverage, accuracy, q, estimator.landmarks, True)
    if missing or not found.coverage.shortfall.largest:
        return missing
    return _hardly_apart(found.model, accuracy)


def _hardly_apart(model: Any, accuracy: float) -> tuple[str, ...]:
    """The caveat that another component could be the last one within what may be missing."""
    after, k = getattr(model, "next_eigenvalue", None), len(model.eigenvalues)
    if after is None or not k or not model.eigenvalues[-1] > 0:
        return ()
    gap = 1 - float(after) / float(model.eigenvalues[-1])
    if gap >= accuracy:
        return ()
    return (
        f"eigenvalues {k} and {k + 1} differ by {gap:.1%} of their size, less than "
        f"accuracy={accuracy:g}: which component is the last regressed on hangs on what is "
        f"missing; ask for another number of components",
    )


def _rows_instead(
    fed: Federation, door: KernelPCA, estimator: Any, found: RidgeResult
) -> DisKPCA | None:
    """Rows as landmarks where a single party's centroids, unasked, are too few: nothing leaves."""
    unasked = door.landmarks == "auto" and door.n_landmarks is None
    if found.coverage is None or not unasked or len(fed.parties) > 1:
        return None
    if estimator.landmarks != "centroids" or found.coverage.shortfall.is_within(door.accuracy):
        return None
    q = 2 * int(found.model.landmarks.shape[0])
    rows: DisKPCA = clone(estimator).set_params(landmarks="diskpca", n_landmarks=q)
    try:
        fed.require(*_ridge_steps(rows, fed))
    except PolicyRefusal:
        return None
    return rows


def _run_rows(
    fed: Federation, wishes: Wishes, estimator: Any, gamma: float | None, targets: str
) -> RidgeResult:
    k, alpha = wishes.n_components, wishes.alpha
    agreed = vars(estimator._agreed(gamma))
    if isinstance(estimator, SketchingPCA):
        setup = EmbeddedRidgeSetup(**agreed, targets=targets)
        return fed.run(embedded_ridge, setup, k, alpha).value
    assert isinstance(estimator, DisKPCA), "rows at a coordinator have these two ways"
    kept = RidgeSetup(**agreed, scores=SCORES, weights=NONE, targets=targets)
    q = estimator.n_landmarks
    wanted = (k, q, estimator.landmarks, alpha, estimator._accuracy(q))
    return fed.run(component_ridge, kept, *wanted).value


def is_flat(y: Any) -> bool:
    """Whether there is one target a row, and not a matrix of them."""
    entries = list(y.values()) if isinstance(y, Mapping) else y
    if isinstance(entries, list | tuple):
        entries = next((own for own in entries if own is not None), 0.0)
    return np.ndim(entries) == 1


# Rows on a graph.


def fit_graph(fed: Federation, wishes: Wishes, y: Any) -> Regression:
    """Components without a centre; then normal equations, by the models that the nodes keep."""
    door = wishes.door
    fed.require_stages(*graph_stages(require_graph(fed), wishes.n_components, 1))
    with at_sites(fed, y, "y", field="targets", signed=True) as targets:
        agreed: dict[str, Any] = {"alpha": wishes.alpha, "targets": targets}
        agreed["seed"] = door.random_state
        n_targets = fed.run(graph_targets, GraphRidgeSetup(**mixing(fed), **agreed)).value
        door.fit(fed)
        setup, k = GraphRidgeSetup(**mixing(fed), **agreed), len(door.eigenvalues_)
        result = fed.run(graph_ridge, setup, k, n_targets).value
    agreement = (
        f"predictions of the nodes at {PROBES} probe points are at most {result.apart:.1e} of "
        f"their spread apart",
    )
    warned = result.apart > APART_UNSAID
    notes, caveats = ((), agreement) if warned else (agreement, ())
    close = _hardly_apart(getattr(door.estimator_, "model_", None) or door, door.accuracy)
    return _of_door(door, result.fit, is_flat(y), result.stop_reason, notes, (*caveats, *close))


def graph_stages(graph: Any, n_components: int, n_targets: int) -> list[Stage]:
    """What the regression runs besides kernel PCA, with a stand-in for what is found on the way."""
    setup = GraphRidgeSetup(**mixing_on(graph), alpha=1.0, seed=0, targets="")
    return [stage(graph_targets, setup), stage(graph_ridge, setup, n_components, n_targets)]


# Columns.


def fit_columns(fed: Federation, wishes: Wishes, y: Any) -> Regression:
    """Components of the columns; the targets are, and stay, where the scores arrive."""
    door = wishes.door
    fed.run(column_targets, y)
    scores = np.asarray(door.fit_transform(fed))
    found = fed.run(column_ridge, scores, y, wishes.alpha).value
    reason = "the samples' scores and targets are in one place"
    return _of_door(door, found.fit, found.flat, reason)


def _of_door(
    door: KernelPCA,
    fit: RidgeFit,
    flat: bool,
    reason: str,
    notes: tuple[str, ...] = (),
    caveats: tuple[str, ...] = (),
) -> Regression:
    return Regression(
        fit,
        flat,
        door.method_,
        None,
        door,
        door.gamma_,
        door.eigenvalues_,
        door.n_features_in_,
        door.report_.baseline_floats,
        f"{door.report_.stop_reason}; {reason}",
        (*door.report_.notes, *notes),
        caveats,
        Missing.of_estimator(door),
    )
