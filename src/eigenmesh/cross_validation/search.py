"""`cross_validate`, and the study that it is: gamma, and numbers of components or clusters."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from eigenmesh.connect import chunk_shapes, is_dask_collection
from eigenmesh.cross_validation.candidates import Comparison, FoldScores, Task
from eigenmesh.cross_validation.folds import MOST_FOLDS, FoldSetup, cross_validation
from eigenmesh.cross_validation.result import COUNTS, RULES, CrossValidationResult, Rule
from eigenmesh.data import Partitioned
from eigenmesh.errors import EigenmeshWarning, InputError, PolicyRefusal
from eigenmesh.estimators.base import FederatedEstimator, FrontDoor, seed_of
from eigenmesh.estimators.checks import checked_gamma, finite_number, one_of, whole_number
from eigenmesh.estimators.kernel_gamma import agreed_fields, gamma_stages, kernel_gamma, psd_kernel
from eigenmesh.estimators.party_values import NONE, at_sites, is_plain
from eigenmesh.estimators.report import RunReport
from eigenmesh.estimators.small_parties import (
    LEAVE_OUT,
    NO_ROWS,
    SURVEY,
    LeftOut,
    leave_out,
    left_out_of,
    names_of,
    numbered,
    sizes_in,
    some_or_none,
)
from eigenmesh.kernel_kmeans.estimator import KernelKMeans
from eigenmesh.kernel_pca.estimator import KernelPCA
from eigenmesh.kernel_pca.one_array import default_landmarks
from eigenmesh.methods.diskpca.protocol import LANDMARKS
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.kernels import KERNELS
from eigenmesh.regression.column_ridge import require_targets
from eigenmesh.regression.component_ridge import TargetSetup, mean_target
from eigenmesh.regression.estimator import KernelPCRegressor
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.schedule import Parties, masks_are_planned
from eigenmesh.runtime.study import Stage, forecast_stages, stage

AROUND = "around"
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the estimator's own gamma
_TASKS: dict[type[FrontDoor], Task] = {
    KernelPCA: "components",
    KernelPCRegressor: "regression",
    KernelKMeans: "clusters",
}
_BY_LANDMARKS = ("auto", "diskpca", "landmarks")  # methods that folds can stand for


def cross_validate(
    estimator: Any,
    source: Any,
    y: Any = None,
    *,
    gamma: Any = None,
    n_components: Any = None,
    n_clusters: Any = None,
    alpha: Any = None,
    n_folds: int = 5,
    rule: Rule = "one-standard-error",
) -> CrossValidationResult:
    """Compare values of gamma, and numbers of components or clusters, on rows that are held out.

    Each party draws its own folds, of at least as many rows as its policy lets a sum be over, and
    tells what each adds up to with landmarks; all candidates of one gamma follow from one question.
    What it would cost, and what leaves whom, says `em.plan(em.CrossValidation(...), source)`.

    Parameters
    ----------
    estimator : a `KernelPCA`, `KernelKMeans` or `KernelPCRegressor`; what is not compared is taken
        from it. It is not fitted and not changed.
    source : rows: a Partitioned, a Federation with a coordinator, or one array.
    y : the targets of a regression, as `KernelPCRegressor.fit` takes them.
    gamma, n_components, n_clusters, alpha, n_folds, rule : as of `CrossValidation`.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(600, 2, centers=4, cluster_std=0.4, random_state=3)
    >>> parts = em.split(X, 3, random_state=0)
    >>> result = em.cross_validate(em.KernelKMeans(), parts, n_clusters=range(2, 9), gamma=[0.5, 2])
    >>> result.best_params
    {'gamma': 0.5, 'n_clusters': 4}
    >>> labels = em.KernelKMeans().set_params(**result.best_params).fit_predict(parts)
    """
    if isinstance(y, Mapping):
        raise InputError(
            f"y is a mapping with {', '.join(map(str, y))}, expected targets or None; "
            f"pass what is compared by name, as gamma=[0.1, 1]"
        )
    grid = {"gamma": gamma, "n_components": n_components, "n_clusters": n_clusters, "alpha": alpha}
    search = CrossValidation(estimator, **grid, n_folds=n_folds, rule=rule)
    return search.fit(source, y).result_


class CrossValidation(FederatedEstimator):
    """The study that `cross_validate` runs, for `em.plan` and `em.study`.

    A score is, on rows that are held out and with landmarks that all folds share: of `KernelPCA`
    the share of their variance along the components of the others; of `KernelPCRegressor` R², as
    scikit-learn's `cross_val_score` has it; of `KernelKMeans`, with c clusters, by which share the
    variance falls from the c-th to the next component of the uncentred kernel, times the share of
    the variance that is around the mean. With every row a landmark these are the scores of pooled
    cross-validation with the same folds.

    Shares of different gammas are of different feature spaces: of a `KernelPCA` they say where
    few components are enough, not what they are good for.

    Parameters
    ----------
    estimator : a `KernelPCA`, `KernelKMeans` or `KernelPCRegressor`, whose kernel, landmarks,
        preparation, seed and all else count.
    gamma : values to compare; "around" for ¼, ½, 1, 2 and 4 times the estimator's own, which may be
        a rule; None for its own alone.
    n_components, n_clusters : whole numbers to compare, whichever the estimator has; None for its
        own.
    alpha : penalties of a regression to compare; None for its own.
    n_folds : folds, from 2. A party with too few rows has some in fewer folds.
    rule : "one-standard-error" takes, of those within one standard error of the best score, the
        fewest components or clusters, and of these the highest score; "best" the highest score.

    Attributes
    ----------
    result_ : the `CrossValidationResult`.
    report_ : what it cost, and what left each party.

    Examples
    --------
    >>> import eigenmesh as em, numpy as np
    >>> parts = em.split(np.random.default_rng(0).normal(size=(300, 4)), 3, random_state=0)
    >>> search = em.CrossValidation(em.KernelPCA(kernel="rbf", gamma=0.2), n_components=[1, 2, 3])
    >>> em.plan(search, parts).rounds
    4
    >>> search.fit(parts).report_.rounds
    4
    """

    _fitted = ("result_",)
    _split = "rows"
    _cheaper = "compare fewer values of gamma, or lower n_landmarks or n_folds"
    result_: CrossValidationResult

    def __init__(
        self,
        estimator: Any,
        *,
        gamma: Any = None,
        n_components: Any = None,
        n_clusters: Any = None,
        alpha: Any = None,
        n_folds: int = 5,
        rule: str = "one-standard-error",
    ) -> None:
        self.estimator = estimator
        self.gamma = gamma
        self.n_components = n_components
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.n_folds = n_folds
        self.rule = rule

    def fit(self, X: Any, y: Any = None) -> Self:
        """Run the study; the estimator itself is not fitted. See `cross_validate`."""
        grid = self._grid()
        if grid.comparison.task == "regression":
            require_targets(y)
        door = clone(self.estimator)
        source = Partitioned(rows=[X]) if is_plain(X) else X
        door._take_names(source)
        with (
            door._opened(source, None) as fed,
            fed.recording() as recording,
            door._preparing(fed),
        ):
            _require_rows_at_a_coordinator(fed)
            left_out = self._leave_out_small(fed)
            shared = grid.sharing(len(fed.members) == 1, fed.secure)
            fed.require_stages(*shared.stages([], "targets", np.zeros(grid.n_targets)))
            gammas, outcomes = self._run(fed, shared, y)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=outcomes[0].stop_reason,
            baseline_floats=outcomes[0].baseline_floats,
            notes=shared.notes(),
            cheaper=self._cheaper,
        )
        self.result_ = CrossValidationResult.of(
            grid.comparison, gammas, outcomes, grid.rule, self.report_
        )
        if len(self.result_.fold_rows) < grid.n_folds:
            warnings.warn(
                f"{grid.n_folds} folds were asked for, the parties' rows fill "
                f"{len(self.result_.fold_rows)}: a fold takes as many rows of a party as its "
                f"policy lets a sum be over",
                EigenmeshWarning,
                stacklevel=2,
            )
        if left_out is not None:
            left_out.warn()
        return self

    def _run(
        self, fed: Federation, shared: SharedLandmarks, y: Any
    ) -> tuple[list[float | None], list[FoldScores]]:
        grid, centre = shared.grid, np.zeros(0)
        targets = y if grid.n_targets else None
        with at_sites(fed, targets, "y", field="targets", signed=True) as key:
            if grid.n_targets:
                mean = fed.run(mean_target, TargetSetup(key)).value.mean
                centre = np.asarray(mean, dtype=np.float64)
            own = grid.own_gamma
            base = None if own is None else kernel_gamma(fed, grid.kernel, own.rule, grid.seed)
            gammas = grid.gammas(base)
            runs = [shared.stage(gamma, key, centre) for gamma in gammas]
            return gammas, [run.run(fed).value for run in runs]

    def _grid(self) -> Grid:
        """All that is compared, checked: wrong values are told before anybody is asked."""
        return Grid.of(self)

    def _leave_out_small(self, fed: Federation) -> LeftOut | None:
        """Small parties, whose sums would tell their rows."""
        secure = fed.secure or masks_are_planned()
        if not self._leaves_out(len(fed.members), secure):
            return None
        return leave_out(fed, sizes_in(SURVEY.run(fed).value))

    def _leaves_out(self, n_parties: int, secure: bool) -> bool:
        own = self.estimator
        by_name = own.landmarks not in NO_ROWS
        return n_parties > 1 and not (secure or by_name) and own.small_parties == LEAVE_OUT

    # Forecasts.

    @property
    def preparation(self) -> Any:
        """The estimator's."""
        return self.estimator.preparation

    def _require_rows_to_prepare(self, split: str) -> None:
        self.estimator._require_rows_to_prepare(split)

    def _preparing_stages(self, names: Sequence[str] | None, on_graph: bool = False) -> Any:
        return self.estimator._preparing_stages(names, on_graph)

    def _planned(self, source: Any) -> PlannedSearch:
        """The study as it will run."""
        grid = self._grid()
        if is_plain(source):
            return PlannedSearch(grid.sharing(True, False))
        if is_dask_collection(source):
            return self._planned_unopened(grid, chunk_shapes(source))
        with self.estimator._opened(source, None) as fed, fed.rehearsing():
            _require_rows_at_a_coordinator(fed)
            secure, left_out = fed.secure or masks_are_planned(), None
            surveys = self._leaves_out(len(fed.members), secure)
            with suppress(PolicyRefusal):  # the plan says who refuses to tell its size
                left_out = some_or_none(self._leave_out_small(fed))
            shared = grid.sharing(len(fed.members) == 1, secure)
        return PlannedSearch(shared, left_out, (SURVEY,) if surveys else ())

    def _stages(self, parties: Parties) -> list[Stage]:
        """The runs for parties who are all in, without masks."""
        return PlannedSearch(self._grid().sharing(len(parties.names) == 1, False))._stages(parties)

    def _planned_unopened(self, grid: Grid, shapes: Sequence[tuple[int, int]]) -> PlannedSearch:
        secure, alone = masks_are_planned(), len(shapes) == 1
        surveys = self._leaves_out(len(shapes), secure)
        left_out = some_or_none(left_out_of(numbered(shapes))) if surveys else None
        return PlannedSearch(grid.sharing(alone, secure), left_out, (SURVEY,) if surveys else ())

    def _tree(self) -> dict[str, Any]:
        raise InputError(
            "a cross-validation is no model; save the estimator that is fitted with best_params"
        )


def _require_rows_at_a_coordinator(fed: Federation) -> None:
    if fed.split == "columns":
        raise InputError(
            "the parties hold columns; cross-validation is of rows, which its folds are made of: "
            "for columns choose n_components by explained_variance_ratio_ of one fit with many, "
            "and of a regression by its R² on samples that were left out of the fit"
        )
    if fed.graph is not None:
        raise InputError(
            "the federation has a graph and no coordinator, who compares the folds; open it "
            "without topology, or take one that all nodes trust with sums (secure=True hides each "
            "node's own)"
        )


@dataclass(frozen=True)
class OwnGamma:
    """The estimator's: a rule, or a number."""

    rule: Any


@dataclass(frozen=True)
class Grid:
    """What is compared, checked."""

    comparison: Comparison
    kernel: str
    own_gamma: OwnGamma | None  # None where gammas are given, or the kernel has none
    factors: tuple[float, ...]  # of the estimator's own gamma; or the values of gamma
    n_folds: int
    rule: Rule
    seed: int
    estimator: Any

    @classmethod
    def of(cls, search: CrossValidation) -> Grid:
        """The parameters of a search, or an error that says which is wrong."""
        own = search.estimator
        task = next((task for kind, task in _TASKS.items() if isinstance(own, kind)), None)
        if task is None:
            raise InputError(
                f"estimator is a {type(own).__name__}; a KernelPCA, KernelKMeans or "
                f"KernelPCRegressor is expected"
            )
        _require_landmarks(own)
        psd_kernel(own.kernel, 1.0, own.degree, own.coef0)
        rule: Any = one_of(search.rule, "rule", RULES)
        folds = whole_number(search.n_folds, "n_folds")
        if not 2 <= folds <= MOST_FOLDS:
            raise InputError(f"n_folds is {folds}; a whole number from 2 to {MOST_FOLDS} expected")
        comparison = _comparison(search, task)
        own_gamma, factors = _gammas(search, own)
        how = (folds, rule, seed_of(own.random_state), own)
        return cls(comparison, own.kernel, own_gamma, factors, *how)

    @property
    def n_targets(self) -> int:
        """A row, as far as is known before the parties are asked."""
        return int(self.comparison.task == "regression")

    def gammas(self, base: float | None) -> list[float | None]:
        """The values, once the estimator's own is a number."""
        if not KERNELS[self.kernel].uses_gamma:
            return [None]
        return [factor * (1.0 if base is None else base) for factor in self.factors]

    def sharing(self, alone: bool, secure: bool) -> SharedLandmarks:
        """With the landmarks that suit: rows where they are in one place."""
        own = self.estimator
        unasked = "diskpca" if alone else "drawn" if secure else "centroids"
        landmarks = unasked if own.landmarks == "auto" else own.landmarks
        q = own.n_landmarks
        if q is None:
            q = default_landmarks(self.comparison.most, self.kernel, None)
        return SharedLandmarks(self, landmarks, whole_number(q, "n_landmarks"))


@dataclass(frozen=True)
class SharedLandmarks:
    """A grid, and the landmarks that all folds have in common."""

    grid: Grid
    landmarks: str
    n_landmarks: int

    def stages(self, search: list[Stage], key: str, centre: Doubles) -> list[Stage]:
        """All runs, with stand-ins for what is found on the way; `search` is for gamma."""
        grid = self.grid
        targets = [stage(mean_target, TargetSetup(key))] if grid.n_targets else []
        base = None if grid.own_gamma is None else 1.0
        runs = [self.stage(gamma, key, centre) for gamma in grid.gammas(base)]
        return [*targets, *search, *runs]

    def stage(self, gamma: float | None, key: str, centre: Doubles) -> Stage:
        """The run of one gamma."""
        grid, own = self.grid, self.grid.estimator
        kernel = psd_kernel(own.kernel, gamma, own.degree, own.coef0)
        rank = grid.comparison.most
        agreed = agreed_fields(kernel, rank, 2 * rank, own.random_state)
        setup = FoldSetup(**agreed, n_folds=grid.n_folds, targets=key if len(centre) else NONE)
        how = (self.n_landmarks, self.landmarks, centre, grid.comparison)
        return stage(cross_validation, setup, *how)

    def notes(self) -> tuple[str, ...]:
        """What holds of all folds."""
        prepared = self.grid.estimator.preparation is not None
        notes = f"all folds have the same landmarks ({self.landmarks!r}), drawn from all rows"
        return (f"{notes}, and are prepared by what all rows tell" if prepared else notes,)


@dataclass(frozen=True)
class PlannedSearch:
    """The study before it runs: what plans and studies ask of it."""

    shared: SharedLandmarks
    _left_out: LeftOut | None = None
    _preceding: tuple[Stage, ...] = ()

    def _planned_graph(self, names: Sequence[str]) -> None:
        return None

    def _plan_method(self, shapes: Any) -> str:
        grid = self.shared.grid
        count = f"{len(grid.comparison.counts)} values of {COUNTS[grid.comparison.task]}"
        gammas = len(grid.gammas(None))
        return (
            f"cross-validation: {grid.n_folds} folds; {count}, {gammas} of gamma; "
            f"{self.shared.n_landmarks} landmarks by {self.shared.landmarks!r}"
        )

    def _plan_notes(self, names: Sequence[str], shapes: Any) -> tuple[str, ...]:
        return self.shared.notes()

    def _stages(self, parties: Parties) -> list[Stage]:
        grid = self.shared.grid
        own, search = grid.own_gamma, list[Stage]()
        if own is not None:
            search = gamma_stages(grid.kernel, own.rule, parties, grid.seed)
        return self.shared.stages(search, "targets", np.zeros(grid.n_targets))

    def _forecast(self, names: Sequence[str], shapes: Any) -> Ledger:
        parties = Parties(tuple(names), tuple(shapes), left_out=names_of(self._left_out))
        return forecast_stages([*self._preceding, *self._stages(parties)], parties, "rows")


def _require_landmarks(own: Any) -> None:
    """Folds stand for methods with landmarks alone."""
    if own.method not in _BY_LANDMARKS:
        raise InputError(
            f"the estimator's method is {own.method!r}; cross-validation has landmarks: 'auto' is "
            f"expected"
        )
    if getattr(own, "epsilon", None) is not None:
        raise InputError(
            f"the estimator's epsilon is {own.epsilon}, and sums over folds have no noise; None "
            f"is expected, with parameters that hang on nobody's rows where epsilon is wanted"
        )
    if not isinstance(own.landmarks, str) or own.landmarks not in ("auto", *LANDMARKS):
        raise InputError("the estimator's landmarks are rows; 'auto' or another word is expected")
    if own.topology is not None:
        raise InputError(
            f"the estimator's topology is {own.topology!r}; cross-validation has a coordinator who "
            f"compares the folds: None is expected"
        )


def _comparison(search: CrossValidation, task: Task) -> Comparison:
    own, name = search.estimator, COUNTS[task]
    named = {name, "alpha"} if task == "regression" else {name}
    for other in sorted({"n_components", "n_clusters", "alpha"} - named):
        if getattr(search, other) is not None:
            raise InputError(
                f"{other} is given, which a {type(own).__name__} has not; leave it out"
            )
    own_grid = getattr(search, name)
    values = [getattr(own, name)] if own_grid is None else _several(own_grid, name)
    counts = tuple(dict.fromkeys(_count(value, name) for value in values))
    alphas: tuple[float, ...] = (0.0,)
    if task == "regression":
        penalties = [own.alpha] if search.alpha is None else _several(search.alpha, "alpha")
        alphas = tuple(dict.fromkeys(finite_number(value, "alpha") for value in penalties))
        if min(alphas) < 0:
            raise InputError(f"alpha is {min(alphas)}; numbers from 0 are expected")
    center = bool(getattr(own, "center", True)) and task != "clusters"
    return Comparison(task, counts, alphas, center)


def _count(value: Any, name: str) -> int:
    if value is None or isinstance(value, float):
        raise InputError(f"{name} is {value!r}; whole numbers are compared: pass {name}=[2, 5, 10]")
    return whole_number(value, name)


def _several(values: Any, name: str) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{name} is {values!r}; a list of values to compare is expected")
    several = list(values)
    if not several:
        raise InputError(f"{name} is empty; at least one value is expected")
    return several


def _gammas(search: CrossValidation, own: Any) -> tuple[OwnGamma | None, tuple[float, ...]]:
    """The estimator's own gamma, if it counts, and its factors; or all values."""
    own_grid = search.gamma
    if not KERNELS[own.kernel].uses_gamma:
        if own_grid is not None:
            raise InputError(f"gamma is given, which the {own.kernel!r} kernel has not")
        return None, (1.0,)
    if own_grid is None:
        return OwnGamma(checked_gamma(own.gamma)), (1.0,)
    if isinstance(own_grid, str) and own_grid == AROUND:
        return OwnGamma(checked_gamma(own.gamma)), _FACTORS
    values = [checked_gamma(value) for value in _several(own_grid, "gamma")]
    numbers = [value for value in values if isinstance(value, float)]
    if len(numbers) < len(values):
        raise InputError(
            f"gamma is {own_grid!r}; numbers to compare are expected, or {AROUND!r} for several "
            f"times the estimator's own, which may be a rule"
        )
    return None, tuple(dict.fromkeys(numbers))
