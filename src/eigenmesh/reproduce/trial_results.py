"""What a figure's trials measured, and how it is read: means and spreads over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Measured:
    """Mean and standard deviation over the seeds.

    >>> print(Measured(0.123456, 0.01), Measured(3.0, 0.0))
    0.123 ± 0.01 3
    """

    mean: float
    spread: float

    def __mul__(self, factor: float) -> Measured:
        return Measured(self.mean * factor, self.spread * factor)

    def __str__(self) -> str:
        spread = f" ± {self.spread:.2g}" if self.spread else ""
        return f"{self.mean:.3g}{spread}"


@dataclass(frozen=True)
class Trial:
    """All methods on one problem: a panel, a swept value, a seed."""

    panel: int
    value: Any
    seed: int
    measures: Mapping[str, Mapping[str, Any]]  # by method


class Results:
    """A figure's trials."""

    def __init__(self, titles: Sequence[str], sweeps: Sequence[str], trials: Sequence[Trial]):
        self.titles, self.sweeps, self.trials = tuple(titles), tuple(sweeps), tuple(trials)
        self._by_point: dict[tuple[int, Any], list[Trial]] = {}
        for trial in trials:
            self._by_point.setdefault((trial.panel, trial.value), []).append(trial)

    def points(self) -> list[tuple[int, Any]]:
        """Panels and swept values, in their order."""
        return list(self._by_point)

    def values(self, panel: int) -> list[Any]:
        """Swept values of a panel."""
        return [value for own, value in self._by_point if own == panel]

    def methods(self, panel: int) -> list[str]:
        """Methods of a panel, in their order."""
        names = [name for t in self.trials if t.panel == panel for name in t.measures]
        return list(dict.fromkeys(names))

    def place(self, panel: int, value: Any) -> str:
        """In words."""
        words = self.sweeps[panel].replace("_", " ").removeprefix("n ")
        return f"{self.titles[panel]}, {words} {value}"

    def has(self, panel: int, value: Any, method: str, measure: str) -> bool:
        """Whether it was measured."""
        trials = self._by_point.get((panel, value), [])
        return bool(trials) and all(measure in t.measures.get(method, {}) for t in trials)

    def draws(self, panel: int, value: Any, method: str, measure: str) -> list[Any]:
        """One entry a seed: a number, or a list of them."""
        return [t.measures[method][measure] for t in self._by_point[panel, value]]

    def measured(self, panel: int, value: Any, method: str, measure: str, at: int = -1) -> Measured:
        """Mean and spread; of lists those of entry `at`, the last if there are fewer."""
        draws = [_entry(draw, at) for draw in self.draws(panel, value, method, measure)]
        return Measured(float(np.mean(draws)), float(np.std(draws)))

    def course(self, panel: int, value: Any, method: str, measure: str) -> tuple[Any, Any]:
        """Means and spreads of a list, entry by entry; shorter lists stay at their last."""
        draws = [np.atleast_1d(d) for d in self.draws(panel, value, method, measure)]
        length = max(len(draw) for draw in draws)
        full = np.array([np.pad(d, (0, length - len(d)), mode="edge") for d in draws])
        return full.mean(axis=0), full.std(axis=0)


def _entry(draw: Any, at: int) -> float:
    if not isinstance(draw, list | tuple | np.ndarray):
        return float(draw)
    return float(draw[at if at < 0 else min(at, len(draw) - 1)])
