"""How `KernelPCRegressor` is fitted: to rows at a coordinator, rows on a graph, or columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.estimators.accuracy import MissingShares, caveats_of, lost_in_rounding, rows_are_kept
from eigenmesh.estimators.base import Needs
from eigenmesh.estimators.kernel_gamma import kernel_gamma
from eigenmesh.estimators.party_values import at_sites
from eigenmesh.estimators.small_parties import REVEAL, LeftOut
from eigenmesh.graphs.consensus import mixing, mixing_on, require_graph
from eigenmesh.kernel_pca.choose_method import build_estimator, choose_method
from eigenmesh.kernel_pca.estimator import KernelPCA
from eigenmesh.methods.diskpca.scores import landmark_scores
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup
from eigenmesh.methods.registry import Method, methods, names_of
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.ridge import RidgeFit
from eigenmesh.numerics.shortfall import nothing_missing
from eigenmesh.regression.column_ridge import column_ridge, column_targets, require_targets
from eigenmesh.regression.component_ridge import (
    RidgeResult,
    RidgeSetup,
    TargetSetup,
    component_ridge,
    landmark_ridge,
    mean_target,
    moment_ridge,
)
from eigenmesh.regression.embedded_ridge import EmbeddedRidgeSetup, embedded_ridge
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


class RegressionParameters(NamedTuple):
    """The regressor's parameters, checked; `door` finds components with its arguments."""

    door: KernelPCA
    n_components: int
    alpha: float


@dataclass(frozen=True)
class Regression:
    """What a fit gave: rows are scored by `model`, or anything by `estimator` if there is one."""

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
    missing: MissingShares | None = None  # of the eigenvalues; None if not known
    left_out: LeftOut | None = None  # who takes no part


def fit_split(fed: Federation, params: RegressionParameters, y: Any) -> Regression:
    """By where the data are; what does not suit them is agreement before anybody is asked."""
    params.door._candidates(fed.split, fed.graph is not None, fed.secure)
    if fed.split == "columns":
        return fit_columns(fed, params, y)
    require_targets(y)
    return fit_rows(fed, params, y) if fed.graph is None else fit_graph(fed, params, y)


# Rows, and a coordinator.


def row_methods(door: KernelPCA, alone: bool, secure: bool = False) -> list[Method]:
    """Kernel PCA's methods for rows whose scores a regression can be on.

    `alone` says that there is one party only, `secure` that sums are masked.
    """
    candidates = [
        method for method in door._candidates("rows", False, secure, alone) if method.span
    ]
    if not candidates:
        raise InputError(
            f"method is {door.method!r}, which leaves no scores to regress on; 'auto' is expected, "
            f"or one of: {', '.join(names_of(m for m in methods(split='rows') if m.span))}"
        )
    if alone and door.n_landmarks is not None and door.landmarks == "auto":
        # Who asks for a number may ask for every row, which centroids never are; nothing leaves.
        candidates.sort(key=lambda method: method.options.get("landmarks") != "diskpca")
    return candidates


def ridge_needs(method: Method, estimator: Any) -> Needs:
    """What components and normal equations ask of the parties."""
    return row_runs(method, estimator, 1)


def row_runs(method: Method, estimator: Any, k: int) -> list[Stage]:
    """The runs of `fit_rows` once gamma is known, of one target a row."""
    mean, key = np.zeros(1), "targets"
    if method.span == "embedding":
        setup = EmbeddedRidgeSetup(**vars(estimator._agreed(1.0)), targets=key)
        components = [stage(embedded_ridge, setup, mean, k, 0.0)]
    else:
        ridge = stage(component_ridge, RidgeSetup(key, SCORES), mean, k, 0.0)
        components = [scoring_run(method, estimator, 1.0, k), ridge]
    return [stage(mean_target, TargetSetup(key)), *components]


def scoring_run(method: Method, estimator: Any, gamma: float | None, k: int) -> Stage:
    """Components, from landmarks or from moments, whose scores the sites keep."""
    if method.span == "features":
        run: Stage = estimator._scoring(gamma, k, SCORES)
        return run
    setup = LandmarkSetup(**{**vars(estimator._agreed(gamma)), "scores": SCORES})
    q = estimator.n_landmarks
    how_many = (k, q, estimator.landmarks, True)
    return stage(landmark_scores, setup, *how_many, estimator._accuracy(q))


def fit_rows(fed: Federation, params: RegressionParameters, y: Any) -> Regression:
    """Targets, components, then normal equations from the scores that these leave at the sites."""
    door = params.door
    candidates = row_methods(door, len(fed.members) == 1, fed.secure)
    suitable, left_out = door._of_sizes_at(fed, candidates)
    build = partial(build_estimator, door)
    choice, method, estimator = choose_method(fed, suitable, build, ridge_needs)
    with at_sites(fed, y, "y", field="targets", signed=True) as targets:
        mean = np.asarray(fed.run(mean_target, TargetSetup(targets)).value.mean, dtype=float)
        gamma = kernel_gamma(fed, door.kernel, door.gamma, door.random_state)
        ridge = _run_rows(fed, params, method, estimator, gamma, targets, mean)
        with_rows = _rows_instead(fed, door, method, estimator, ridge)
        if with_rows is not None:
            few = int(ridge.model.landmarks.shape[0])
            why = f"{choice.why}; the landmarks are rows, since {few} centroids miss too much"
            choice = dataclasses.replace(choice, why=why)
            estimator = with_rows
            ridge = _run_rows(fed, params, method, with_rows, gamma, targets, mean)
    if left_out is not None:
        left_out = left_out.beside(ridge.model.eigenvalues, door.kernel, True, ridge.outside)
    k, rank = params.n_components, len(ridge.model.eigenvalues)
    short = (f"{k} components were asked for, the {ridge.source} determine {rank}",)
    return Regression(
        fit=ridge.fit,
        flat=is_flat(y, ridge.fit),
        method=str(choice),
        model=ridge.model,
        estimator=None,
        gamma=gamma,
        eigenvalues=ridge.model.eigenvalues,
        n_features=ridge.n_columns,
        baseline_floats=ridge.baseline_floats,
        stop_reason=ridge.stop_reason,
        notes=(ridge.worth,),
        caveats=(
            *(short if rank < k else ()),
            *_missing_in_words(ridge, estimator, rows_are_kept(fed)),
        ),
        missing=_missing_shares(ridge),
        left_out=left_out,
    )


def _missing_shares(ridge: RidgeResult) -> MissingShares | None:
    if ridge.exact:
        return MissingShares.of(nothing_missing(len(ridge.model.eigenvalues)))
    return None if ridge.coverage is None else MissingShares.of(ridge.coverage.shortfall)


def _missing_in_words(ridge: RidgeResult, estimator: Any, rows_kept: bool) -> tuple[str, ...]:
    if ridge.coverage is None:
        return ()
    q, accuracy = int(ridge.model.landmarks.shape[0]), estimator.accuracy
    missing = caveats_of(ridge.coverage, accuracy, q, estimator.landmarks, True, rows_kept)
    missing += lost_in_rounding(ridge.model)
    if missing or not ridge.coverage.shortfall.largest:
        return missing
    return _hardly_apart(ridge.model, accuracy)


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
    fed: Federation, door: KernelPCA, method: Method, estimator: Any, ridge: RidgeResult
) -> Any:
    """Rows as landmarks where a single party's centroids, unasked, are too few: nothing leaves."""
    unasked = door.landmarks == "auto" and door.n_landmarks is None
    if ridge.coverage is None or not unasked or len(fed.members) > 1:
        return None
    if estimator.landmarks != "centroids" or ridge.coverage.shortfall.is_within(door.accuracy):
        return None
    q = 2 * int(ridge.model.landmarks.shape[0])
    rows = clone(estimator).set_params(landmarks="diskpca", n_landmarks=q)
    try:
        fed.require_stages(*row_runs(method, rows, 1))
    except PolicyRefusal:
        return None
    return rows


def _run_rows(
    fed: Federation,
    params: RegressionParameters,
    method: Method,
    estimator: Any,
    gamma: float | None,
    targets: str,
    mean: Doubles,
) -> RidgeResult:
    k, alpha = params.n_components, params.alpha
    if method.span == "embedding":
        embedded = EmbeddedRidgeSetup(**vars(estimator._agreed(gamma)), targets=targets)
        return fed.run(embedded_ridge, embedded, mean, k, alpha).value
    ridge = moment_ridge if method.span == "features" else landmark_ridge
    return ridge(fed, scoring_run(method, estimator, gamma, k), targets, mean, alpha)


def is_flat(y: Any, fit: RidgeFit) -> bool:
    """Whether there is one target a row, and not a matrix of them."""
    if isinstance(y, str):  # the sites' own, of which only the fit tells how many there are
        return bool(fit.coefficients.shape[1] == 1)
    entries = list(y.values()) if isinstance(y, Mapping) else y
    if isinstance(entries, list | tuple):
        entries = next((own for own in entries if own is not None), 0.0)
    return np.ndim(entries) == 1


# Rows on a graph.


def fit_graph(fed: Federation, params: RegressionParameters, y: Any) -> Regression:
    """Components without a centre; then normal equations, by the models that the nodes keep."""
    fed.require_stages(*graph_stages(require_graph(fed), params.n_components, 1))
    left_out = params.door._leave_out_small(fed)
    door = clone(params.door).set_params(small_parties=REVEAL)  # all who are in, are
    with at_sites(fed, y, "y", field="targets", signed=True) as targets:
        agreed: dict[str, Any] = {"alpha": params.alpha, "targets": targets}
        agreed["seed"] = door.random_state

        def components() -> int:
            setup = GraphRidgeSetup(**mixing(fed), **agreed)
            n_targets: int = fed.run(graph_targets, setup).value
            door.fit(fed)
            return n_targets

        def ridge(n_targets: int) -> Any:
            setup, k = GraphRidgeSetup(**mixing(fed), **agreed), len(door.eigenvalues_)
            return fed.run(graph_ridge, setup, k, n_targets).value

        result = fed.in_turn(components, ridge)
    agreement = (
        f"predictions of the nodes at {PROBES} probe points are at most {result.apart:.1e} of "
        f"their spread apart",
    )
    warned = result.apart > APART_UNSAID
    notes, caveats = ((), agreement) if warned else (agreement, ())
    close = _hardly_apart(getattr(door.estimator_, "model_", None) or door, door.accuracy)
    words = (notes, (*caveats, *close))
    regression = _of_door(door, result.fit, is_flat(y, result.fit), result.stop_reason, *words)
    return dataclasses.replace(regression, left_out=left_out)


def graph_stages(graph: Any, n_components: int, n_targets: int) -> list[Stage]:
    """What the regression runs besides kernel PCA, with a stand-in for what is found on the way."""
    setup = GraphRidgeSetup(**mixing_on(graph), alpha=1.0, seed=0, targets="")
    return [stage(graph_targets, setup), stage(graph_ridge, setup, n_components, n_targets)]


# Columns.


def fit_columns(fed: Federation, params: RegressionParameters, y: Any) -> Regression:
    """Components of the columns; the targets are, and stay, where the scores arrive."""
    door = params.door
    with door._masked(fed):  # all runs of the fit, as its study has them
        fed.run(column_targets, y, fed.align == "strict")
        scores = np.asarray(door.fit_transform(fed))
        ridge = fed.run(column_ridge, scores, y, params.alpha).value
    reason = "the samples' scores and targets are in one place"
    return _of_door(door, ridge.fit, ridge.flat, reason)


def _of_door(
    door: KernelPCA,
    fit: RidgeFit,
    flat: bool,
    reason: str,
    notes: tuple[str, ...] = (),
    caveats: tuple[str, ...] = (),
) -> Regression:
    return Regression(
        fit=fit,
        flat=flat,
        method=door.method_,
        model=None,
        estimator=door,
        gamma=door.gamma_,
        eigenvalues=door.eigenvalues_,
        n_features=door.n_features_in_,
        baseline_floats=door.report_.baseline_floats,
        stop_reason=f"{door.report_.stop_reason}; {reason}",
        notes=(*door.report_.notes, *notes),
        caveats=caveats,
        missing=MissingShares.of_estimator(door),
    )
