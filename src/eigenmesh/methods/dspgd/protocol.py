"""DSPGD: the top eigenvectors of a kernel matrix whose rows stay at their parties.

"A Communication Efficient Federated Kernel k-Means", submitted to ICLR 2021, Algorithm 1 with its
communication-efficient mechanism; `dspgd_direct` is the paper's comparison without it.

===================  ============================================================================
party keeps          its rows, their share B[m] of the iterate, and at the end H[m], the coordinates
                     that are to be clustered
party reveals        products with its own W[m]ᵀW[m] ("lanczos"), that matrix ("gram") or a sketch
                     of it ("nystrom"), its B[m]ᵀB[m], and how many rows it has. Enough of them
                     determine its features up to a rotation of its rows: a party of one row
                     reveals that row
coordinator learns   these, and the eigenvectors of WᵀW, which go to all parties
===================  ============================================================================

Letters as in `methods.dspgd.maths`: A features (n, D), W = [√η A, √(1−η) B], X with B ← W X.

Readings: η = 1/t; square roots that the text has lost are restored; H comes from the eigenvectors
of the last BᵀB, which are the paper's if nobody was missing; the threshold λ is 0 unless the
paper's is asked for, and the rank is capped instead.

**Who was missing catches up.** X is the same for all, so an absent party loses nothing but its say
in one X. What it is sent next are all X's that it has not confirmed; features come from the seed.
X depends on an estimate from those who were there, weighted to stand for all.

Above the usual length: three solvers of one small eigenproblem, and the sizes of messages to who
comes back after any number of iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eigenmesh.errors import InputError, RankError
from eigenmesh.methods.dspgd.maths import (
    ProximalSpectrum,
    compression,
    lanczos_spectrum,
    spectrum_of_gram,
    spectrum_of_sketch,
    step_size,
)
from eigenmesh.methods.dspgd.outcome import DSPGDResult, Goal, Log, require_few
from eigenmesh.methods.dspgd.party_side import (
    Direction,
    DSPGDSetup,
    Ending,
    FeatureHolder,
    Features,
    Updates,
    pack,
)
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.eigen import fix_signs, numerical_rank, top_eigenpairs
from eigenmesh.numerics.landmark_sums import full
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import (
    Node,
    Scope,
    Size,
    ask,
    at_most,
    enlist,
    loop,
    sequence,
    settle,
    total,
)
from eigenmesh.stages.ask_again import Patient
from eigenmesh.stages.row_messages import (
    RowCount,
    by_party,
)

SOLVERS = ("nystrom", "gram", "lanczos")
CHANCES = 3  # for who misses an iteration: nobody else can speak for rows unlike the others
TOLERANCE = 1e-6  # of Lanczos: at 1e-3 eigenvectors are lost for good


@dataclass
class Course:
    """A run so far: every X, and how many of them each party has confirmed."""

    fed: Federation
    features: Features
    sizes: Mapping[str, RowCount]
    steps: list[Doubles] = field(default_factory=list)
    confirmed: dict[str, int] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        """Columns of B."""
        return self.steps[-1].shape[1] if self.steps else 0

    @property
    def n_rows(self) -> int:
        """Rows of all parties that are still in."""
        return sum(self.sizes[name].n_rows for name in self.fed.parties)

    def news(self, name: str) -> tuple[int, list[int], list[Doubles]]:
        """First iteration, ranks and X's of what a party has not confirmed."""
        latest = self.confirmed.get(name, 0)
        ranks = [self.steps[latest - 1].shape[1] if latest else 0]
        return latest + 1, ranks + [X.shape[1] for X in self.steps[latest:]], self.steps[latest:]

    def messages(self, make: Callable[[dict[str, Any]], Updates]) -> dict[str, Updates]:
        """To each party what it lacks; parties that lack the same share one message."""
        updates: dict[int, Updates] = {}
        for name in self.fed.parties:
            latest = self.confirmed.get(name, 0)
            if latest not in updates:
                updates[latest] = make(pack(*self.news(name)))
        return {name: updates[self.confirmed.get(name, 0)] for name in self.fed.parties}

    def total(self, step: Step) -> tuple[Any, float]:
        """The sum over those who answer, and the weight that makes it stand for all rows."""
        total = Patient(self.fed, CHANCES).total(step, each=self.messages(lambda u: Updates(**u)))
        self.confirmed.update(dict.fromkeys(total.parties, len(self.steps)))
        return total.sum, self.n_rows / total.sum.n_rows


# The schedule.


@dataclass(frozen=True)
class _Sizes:
    """How large messages are. The paper's threshold leaves ranks to the data: then at most."""

    features: Features
    goal: Goal
    skips: bool  # whether a party may be told of several iterations at once

    def _rank(self, t: int) -> tuple[int, int]:
        """Columns of B after iteration t: at most, since W has no more, and usually."""
        if t == 0 or self.goal.rank is not None:
            rank = self.goal.rank or 0
            return (rank, rank) if t else (0, 0)
        return t * self.features.width, self.goal.n_clusters + 3

    def rank(self, t: int, beside: int = 0) -> Size:
        """Columns of B after iteration t, and `beside` them so many more."""
        most, usual = self._rank(t)
        return Size(most + beside, self.goal.rank is not None or t == 0, usual + beside)

    def joint(self, t: int) -> Size:
        """Columns of W in iteration t."""
        return self.rank(t - 1, self.features.width)

    def drawn(self, t: int) -> Size:
        """Columns of Ω in iteration t."""
        n_drawn = self.features.n_drawn(t, self._rank(t - 1)[1])
        exact = self.goal.rank is not None or t == 1
        return Size(n_drawn if exact else self.features.width, exact, n_drawn)

    def updates(self, t: int, again: bool = False) -> dict[str, Size]:
        """Of what a party is sent when there are t X's: the last one, or all that it has missed.

        Nothing new, if it may be sent `again`.
        """
        of_each = [self._coefficients(i) for i in range(1, t + 1)]
        unseen = of_each if self.skips else of_each[-1:]
        exact = not (self.skips or again)
        usual = of_each[-1][1] if t else 0
        return {
            "first": at_most(max(t, 1)),
            "m": Size(1 + len(unseen), exact or not t, 1 + min(t, 1)),
            "c": Size(sum(most for most, _ in unseen), exact and self._known, usual),
        }

    @property
    def _known(self) -> bool:
        return self.goal.rank is not None

    def _coefficients(self, t: int) -> tuple[int, int]:
        """Numbers in the X of iteration t, at most and usually."""
        rows, columns = self._rank(t - 1), self._rank(t)
        most, usual = ((self.features.width + r) * k for r, k in zip(rows, columns, strict=True))
        return most, usual

    def products(self, t: int) -> tuple[int, int]:
        """Products that Lanczos takes in iteration t, at most and usually."""
        most, usual = (self.features.width + rank for rank in self._rank(t - 1))
        return most, min(usual, usual_products(self._rank(1)[1]))

    def scores(self, t: int) -> Size:
        """Columns of H."""
        most, usual = (min(self.goal.n_eigenvectors, rank) for rank in self._rank(t))
        return at_most(most, planned=usual)


def usual_products(rank: int) -> int:
    """Products that Lanczos takes for so many eigenvectors, by experience on digits and MNIST."""
    return round(17 + 0.6 * rank)


def schedule(scope: Scope, setup: DSPGDSetup, goal: Goal, n_iterations: int, solver: str) -> Node:
    """A round an iteration, of Lanczos as many as it takes; then everybody's BᵀB, and H."""
    require_few(n_iterations)

    def rest(n_columns: int) -> Node:
        sizes = _Sizes(Features.of(setup, n_columns), goal, scope.on_loss == "skip")
        T = n_iterations
        return sequence(
            *(_iteration(scope, sizes, t, solver) for t in range(1, T + 1)),
            total(FeatureHolder.basis_gram, down=sizes.updates(T), up={"w": sizes.rank(T)}),
            ask(
                FeatureHolder.keep_scores,
                down={"first": T + 1, "m": 1, "c": 0, "r": sizes.rank(T), "s": sizes.scores(T)},
            ),
        )

    return sequence(
        enlist(FeatureHolder, setup),
        ask(FeatureHolder.count_rows),
        settle(
            lambda parties: {"n_columns": parties.shapes[0][1]},
            rest,
            lambda own, n_columns: n_columns == own.columns,
            n_columns=1,
        ),
    )


def _iteration(scope: Scope, sizes: _Sizes, t: int, solver: str) -> Node:
    if solver == "gram":
        return total(FeatureHolder.gram, down=sizes.updates(t - 1), up={"w": sizes.joint(t)})
    if solver == "nystrom":
        D = Size(sizes.features.width)
        sketch = {"D": D, "p": sizes.drawn(t), "r": sizes.rank(t - 1)}
        return total(FeatureHolder.sketch, down=sizes.updates(t - 1), up=sketch)
    # Products of different parties do not add up: when one leaves, the others begin anew.
    most, usual = sizes.products(t)
    return loop(
        1 + scope.restarts,
        total(FeatureHolder.advance, down=sizes.updates(t - 1, again=scope.restarts > 0)),
        loop(most, total(FeatureHolder.multiply, w=sizes.joint(t)), fewest=1, usual=usual),
        fewest=1,
        usual=1,
    )


# The coordinator's side.


@protocol("dspgd", roles=(FeatureHolder,), skips=True, schedule=schedule)
def dspgd(
    fed: Federation, setup: DSPGDSetup, goal: Goal, n_iterations: int, solver: str
) -> DSPGDResult:
    """Algorithm 1 up to the k-means stage; every site ends with its rows of H in its store."""
    _require_fitting_losses(fed, solver)
    fed.enlist(FeatureHolder, setup)
    sizes = by_party(Patient(fed).ask(FeatureHolder.count_rows))
    n_columns = next(iter(sizes.values())).n_columns
    fed.settle(n_columns=n_columns)
    features = Features.of(setup, n_columns)
    require_width(features.width, goal)
    course = Course(fed, features, sizes)
    threshold, log = 0.0, Log(course.features.width)
    for t in range(1, n_iterations + 1):
        eta = step_size(setup.step_rule, t)
        spectrum, share = _SOLVE[solver](course, t, eta, goal, eta * threshold)
        if t == 1 and goal.rank is None:
            threshold = paper_threshold(spectrum.values, goal)
        X = require_columns(compression(spectrum, eta * threshold, goal.rank), t)
        log.note(eta, spectrum, X, share)
        course.steps.append(X)
    return _concluded(course, goal, threshold, log)


def _require_fitting_losses(fed: Federation, solver: str) -> None:
    if fed.on_loss == "reuse":
        raise InputError(
            "on_loss is 'reuse'; 'raise', 'survivors' or 'skip' is expected: an old reply is about "
            "features that nobody uses any more"
        )
    if fed.on_loss == "skip" and solver == "lanczos":
        raise InputError(
            "on_loss is 'skip' and solver 'lanczos'; its products must all come from the same "
            "parties: pass solver='nystrom' or 'gram', or on_loss='survivors'"
        )


def require_width(width: int, goal: Goal) -> None:
    """The paper's threshold is one of the first iteration's eigenvalues: there must be enough."""
    if goal.rank is None and width < goal.first_rank:
        raise InputError(
            f"n_features is {width}; at least {goal.first_rank}, n_clusters + 2, is expected with "
            f"threshold='paper'"
        )


def paper_threshold(values: Doubles, goal: Goal) -> float:
    """λ: eigenvalue n_clusters + 2 of the first iteration, or 0 if there are fewer."""
    return float(values[goal.first_rank - 1]) if len(values) >= goal.first_rank else 0.0


def require_columns(X: Doubles, t: int) -> Doubles:
    """X, if anything is left of it."""
    if not X.any():
        raise RankError(
            f"iteration {t} leaves no eigenvalue above the threshold; pass threshold=None, or more "
            f"features"
        )
    return X


# One iteration, three ways: eigenpairs of WᵀW, and the share of rows that they rest on.


def _by_gram(
    course: Course, t: int, eta: float, goal: Goal, floor: float
) -> tuple[ProximalSpectrum, float]:
    reply, weight = course.total(FeatureHolder.gram)
    gram = weight * full(reply.upper)
    k = len(gram) if goal.rank is None else goal.rank
    return spectrum_of_gram(gram, course.features.width, eta, k), 1 / weight


def _by_sketch(
    course: Course, t: int, eta: float, goal: Goal, floor: float
) -> tuple[ProximalSpectrum, float]:
    omega, rank = course.features.omega(t, course.rank), course.rank
    reply, weight = course.total(FeatureHolder.sketch)
    blocks_of_gram = (weight * reply.drawn, weight * reply.cross, weight * full(reply.basis))
    k = omega.shape[1] + rank if goal.rank is None else goal.rank
    return spectrum_of_sketch(*blocks_of_gram, omega, eta, k), 1 / weight


class _Fewer(Exception):
    """A party was lost between two products: their sums are of different matrices."""


def _by_lanczos(
    course: Course, t: int, eta: float, goal: Goal, floor: float
) -> tuple[ProximalSpectrum, float]:
    fed, rank = course.fed, goal.first_rank if t == 1 else goal.rank
    rng = np.random.default_rng(np.random.SeedSequence(course.features.seed, spawn_key=(t, 2)))
    start = rng.standard_normal(course.features.width + course.rank)
    while True:
        course.total(FeatureHolder.advance)
        there = fed.parties

        def apply(vector: Doubles, there: tuple[str, ...] = there) -> Doubles:
            product = fed.total(FeatureHolder.multiply, Direction(vector))
            if product.parties != there:
                raise _Fewer
            summed: Doubles = product.sum.vector
            return summed

        try:
            return lanczos_spectrum(apply, start, rank=rank, floor=floor, tol=TOLERANCE), 1.0
        except _Fewer:
            continue


_SOLVE: dict[str, Callable[[Course, int, float, Goal, float], tuple[ProximalSpectrum, float]]] = {
    "nystrom": _by_sketch,
    "gram": _by_gram,
    "lanczos": _by_lanczos,
}


# The end.


def _concluded(course: Course, goal: Goal, threshold: float, log: Log) -> DSPGDResult:
    # The last choice of columns must not go by who happened to be there: wait for all.
    everybody = Patient(course.fed)
    news = course.messages(lambda u: Updates(**u))
    basis_gram = full(everybody.total(FeatureHolder.basis_gram, each=news).sum.upper)
    values, rotation, following = last_rotation(basis_gram, goal, threshold)
    course.confirmed.update(dict.fromkeys(course.fed.parties, len(course.steps)))
    endings = course.messages(lambda u: Ending(**u, rotation=rotation))
    everybody.ask(FeatureHolder.keep_scores, each=endings)
    return DSPGDResult(
        model=course.features.model(course.steps, rotation),
        eigenvalues=values,
        next_eigenvalue=following,
        threshold=threshold,
        trace=log.trace(course.n_rows, float(np.sum(basis_gram**2))),
        n_rows=course.n_rows,
        baseline_floats=sum(size.n_values for size in course.sizes.values()),
        stop_reason=f"{len(course.steps)} iterations were made",
    )


def last_rotation(
    basis_gram: Doubles, goal: Goal, threshold: float
) -> tuple[Doubles, Doubles, float]:
    """Eigenvalues of K, what takes B to H, and the first eigenvalue that is left out.

    H has as many columns as were asked for, or as B has that are not nothing.
    """
    values, vectors = top_eigenpairs(basis_gram, len(basis_gram))
    rank = numerical_rank(values)
    if not rank:
        raise RankError("the iterate is nothing but zeros; check that the rows are not")
    s = min(goal.n_eigenvectors, rank)
    eigenvalues = values[:s] + threshold
    signed = np.asarray(fix_signs(vectors[:, :s]), dtype=np.float64)
    rotation: Doubles = signed * np.sqrt(eigenvalues / values[:s])
    following = float(values[s]) + threshold if s < rank else 0.0
    return eigenvalues, rotation, following
