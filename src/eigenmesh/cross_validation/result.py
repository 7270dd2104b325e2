"""What cross-validation gives: candidates by name, their scores, and which is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from eigenmesh.cross_validation.candidates import Comparison, FoldScores, Task
from eigenmesh.estimators.notebook_display import Shown
from eigenmesh.estimators.report import RunReport

Rule = Literal["one-standard-error", "best"]
RULES: tuple[str, ...] = get_args(Rule)
_MEASURES: dict[Task, str] = {
    "components": "share of the variance of unseen rows",
    "regression": "R² on unseen rows",
    "clusters": "gap in the variances of unseen rows",
}
COUNTS: dict[Task, str] = {
    "components": "n_components",
    "regression": "n_components",
    "clusters": "n_clusters",
}


@dataclass(frozen=True)
class Candidate:
    """Parameters, and how they do on rows that were held out; larger scores are better.

    `score` is the mean over the folds, `error` its standard error, and `outside` the share of the
    variance that the landmarks did not reach at this gamma.
    """

    params: Mapping[str, Any]
    fold_scores: tuple[float, ...]
    outside: float

    @property
    def score(self) -> float:
        """Mean over the folds."""
        return float(np.mean(self.fold_scores))

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return float(np.std(self.fold_scores, ddof=1) / np.sqrt(len(self.fold_scores)))


@dataclass(frozen=True)
class CrossValidationResult(Shown):
    """The account of a cross-validation; printed, it is a table.

    Attributes
    ----------
    task : "components", "regression" or "clusters"; `measure` says in words what the scores are.
    candidates : `params`, `score`, `error` and `fold_scores` of each, by gamma.
    best : the candidate that is taken; `best_params` are for `estimator.set_params`.
    rule : by which it is taken.
    fold_rows : rows of each fold, of all parties together.
    n_landmarks : that all folds have in common.
    report : what it cost, and what left each party.
    """

    task: Task
    candidates: tuple[Candidate, ...]
    rule: Rule
    fold_rows: tuple[int, ...]
    n_landmarks: int
    report: RunReport = field(repr=False)

    @classmethod
    def of(
        cls,
        comparison: Comparison,
        gammas: Sequence[float | None],
        outcomes: Sequence[FoldScores],
        rule: Rule,
        report: RunReport,
    ) -> CrossValidationResult:
        """From the runs, one for each gamma."""
        candidates = [
            Candidate(params, tuple(map(float, scores)), outcome.outside)
            for gamma, outcome in zip(gammas, outcomes, strict=True)
            for params, scores in zip(_params(comparison, gamma), outcome.scores, strict=True)
        ]
        first = outcomes[0]
        facts = (first.fold_rows, first.n_landmarks, report)
        return cls(comparison.task, tuple(candidates), rule, *facts)

    @property
    def measure(self) -> str:
        """What the scores are, in words."""
        return _MEASURES[self.task]

    @property
    def best(self) -> Candidate:
        """By the rule: the highest score; or of those within one standard error of it the fewest
        components or clusters, and of these the highest.
        """
        top = max(self.candidates, key=lambda one: one.score)
        if self.rule == "best":
            return top
        near = [one for one in self.candidates if one.score >= top.score - top.error]
        return min(near, key=lambda one: (one.params[COUNTS[self.task]], -one.score))

    @property
    def best_params(self) -> dict[str, Any]:
        """For `estimator.set_params`."""
        return dict(self.best.params)

    @property
    def heading(self) -> tuple[str, ...]:
        """Of the table."""
        return (*self.best.params, self.measure, "±", "")

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The table's, a candidate each."""
        best = self.best
        for one in self.candidates:
            cells = (f"{value:.4g}" for value in one.params.values())
            yield (*cells, f"{one.score:.3f}", f"{one.error:.3f}", "taken" if one is best else "")

    def __str__(self) -> str:
        rows = [self.heading, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self.in_words, str(self.report)])

    @property
    def in_words(self) -> str:
        """Folds, landmarks and rule."""
        folds, n = len(self.fold_rows), sum(self.fold_rows)
        rule = {
            "best": "the highest score is taken",
            "one-standard-error": f"of those within one standard error of the highest score, the "
            f"one with the lowest {COUNTS[self.task]} is taken",
        }[self.rule]
        return (
            f"{folds} folds of {min(self.fold_rows):,} to {max(self.fold_rows):,} of {n:,} rows, "
            f"drawn at each site; {self.n_landmarks:,} landmarks; {rule}"
        )


def _params(comparison: Comparison, gamma: float | None) -> Iterator[dict[str, Any]]:
    """In the order of the scores."""
    for count in comparison.counts:
        for alpha in comparison.alphas:
            own = {} if gamma is None else {"gamma": gamma}
            own[COUNTS[comparison.task]] = count
            yield {**own, "alpha": alpha} if comparison.task == "regression" else own
