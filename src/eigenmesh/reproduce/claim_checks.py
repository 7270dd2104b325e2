"""Checks of claims: a method's measure against another's, a bound, or itself along the sweep.

Their tolerances stand in the declarations. Each gives a case for every
place where it could be looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from eigenmesh.reproduce.claims import Case, Check
from eigenmesh.reproduce.trial_results import Measured, Results

_ROUNDING = 1e-9  # relative: what is equal but for rounding is equal


@dataclass(frozen=True)
class Quantity:
    """A method's measure; of lists the entry `at`.

    `where` keeps some swept values only, `panels` those whose titles begin so.
    """

    method: str
    measure: str
    at: int = -1
    factor: float = 1.0
    where: tuple[Any, ...] | None = None
    panels: str | tuple[str, ...] = ""

    def times(self, factor: float) -> Quantity:
        """So many times as much."""
        return replace(self, factor=self.factor * factor)

    def cases(self, results: Results) -> list[tuple[int, Any]]:
        """Panels and swept values at which the method was measured."""
        return [
            (panel, value)
            for panel, value in results.points()
            if (self.where is None or value in self.where)
            and results.titles[panel].startswith(self.panels)
            and results.has(panel, value, self.method, self.measure)
        ]

    def read(self, results: Results, panel: int, value: Any) -> Measured:
        """Mean and spread over the seeds."""
        return results.measured(panel, value, self.method, self.measure, self.at) * self.factor

    def __str__(self) -> str:
        scale = "" if self.factor == 1 else f"{self.factor:g} × "
        return f"{scale}{self.method}"


def of(
    method: str,
    measure: str,
    *,
    at: int = -1,
    where: Sequence[Any] | None = None,
    panels: str | tuple[str, ...] = "",
) -> Quantity:
    """A method's measure, at some of the swept values if they are named."""
    values = None if where is None else tuple(where)
    return Quantity(method, measure, at, 1.0, values, panels)


def below(left: Quantity, right: Quantity | float, slack: float = _ROUNDING) -> Check:
    """Means: left ≤ right (1 + slack), at every point where both are."""
    return _compared(left, right, slack, lambda a, b: a <= b, "≤", ">")


def above(left: Quantity, right: Quantity | float, slack: float = _ROUNDING) -> Check:
    """Means: left ≥ right (1 − slack), at every point where both are."""
    return _compared(left, right, -slack, lambda a, b: a >= b, "≥", "<")


def _compared(
    left: Quantity,
    right: Quantity | float,
    slack: float,
    holds: Callable[[float, float], bool],
    sign: str,
    opposite: str,
) -> Check:
    def check(results: Results) -> list[Case]:
        cases = []
        for panel, value in left.cases(results):
            bound = _bound(right, results, panel, value)
            if bound is None:
                continue
            own = left.read(results, panel, value)
            true = holds(own.mean, bound.mean * (1 + slack))
            name = f" ({right})" if isinstance(right, Quantity) else ""
            words = f"{left} {own} {sign if true else opposite} {bound}{name}"
            cases.append(Case(results.place(panel, value), true, words))
        return cases

    return check


def _bound(right: Quantity | float, results: Results, panel: int, value: Any) -> Measured | None:
    if not isinstance(right, Quantity):
        return Measured(float(right), 0.0)
    if not results.has(panel, value, right.method, right.measure):
        return None
    return right.read(results, panel, value)


def steady(quantity: Quantity, factor: float) -> Check:
    """Within a panel the largest mean is at most `factor` times the smallest."""
    return _along(quantity, lambda x, y: (_ratio(y.max(), y.min()), factor), falls=False)


def falls(quantity: Quantity, factor: float) -> Check:
    """From the first swept value to the last, by `factor` at least."""
    return _along(quantity, lambda x, y: (_ratio(y[0], y[-1]), factor), falls=True)


def rises(quantity: Quantity, factor: float) -> Check:
    """From the first swept value to the last, by `factor` at least."""
    return _along(quantity, lambda x, y: (_ratio(y[-1], y[0]), factor), falls=True)


def _ratio(a: float, b: float) -> float:
    return float(a / b) if b else math.inf


def _along(
    quantity: Quantity, ratio_of: Callable[[Any, Any], tuple[float, float]], *, falls: bool
) -> Check:
    def check(results: Results) -> list[Case]:
        cases = []
        for panel, values in by_panel(quantity.cases(results)).items():
            own = [quantity.read(results, panel, value) for value in values]
            ratio, factor = ratio_of(values, np.array([entry.mean for entry in own]))
            true = ratio >= factor if falls else ratio <= factor
            words = f"{quantity} {own[0]} → {own[-1]}, a factor of {ratio:.3g} ({factor:g} asked)"
            cases.append(Case(results.titles[panel], true, words))
        return cases

    return check


def grows_as(quantity: Quantity, power: float, slack: float) -> Check:
    """The slope of logarithms over the sweep is within `slack` of `power`."""

    def check(results: Results) -> list[Case]:
        cases = []
        for panel, values in by_panel(quantity.cases(results)).items():
            own = [quantity.read(results, panel, value).mean for value in values]
            if len(own) < 2:
                continue
            slope = float(np.polyfit(np.log(np.array(values, dtype=float)), np.log(own), 1)[0])
            true = abs(slope - power) <= slack
            words = f"{quantity} grows as power {slope:.2f} ({power:g} ± {slack:g} asked)"
            cases.append(Case(results.titles[panel], true, words))
        return cases

    return check


def by_panel(points: Sequence[tuple[int, Any]]) -> dict[int, list[Any]]:
    """Swept values of each panel.

    >>> by_panel([(0, 2), (0, 3), (1, 2)])
    {0: [2, 3], 1: [2]}
    """
    grouped: dict[int, list[Any]] = {}
    for panel, value in points:
        grouped.setdefault(panel, []).append(value)
    return grouped


def within(left: Quantity, right: Quantity, margin: float) -> Check:
    """Means: left is at most `margin` above right, at every point where both are."""

    def check(results: Results) -> list[Case]:
        cases = []
        for panel, value in left.cases(results):
            bound = _bound(right, results, panel, value)
            if bound is not None:
                own = left.read(results, panel, value)
                words = f"{left} {own}, {right} {bound}, {margin:g} allowed"
                true = own.mean <= bound.mean + margin
                cases.append(Case(results.place(panel, value), true, words))
        return cases

    return check


def across_panels(quantity: Quantity, low: str, high: str, factor: float) -> Check:
    """In the panel `low` the mean is smaller than in `high`, by `factor` at least."""

    def check(results: Results) -> list[Case]:
        means = {
            title: [
                quantity.read(results, p, v)
                for p, v in quantity.cases(results)
                if results.titles[p] == title
            ]
            for title in (low, high)
        }
        cases = []
        for small, large in zip(means[low], means[high], strict=True):
            ratio = _ratio(large.mean, small.mean)
            words = (
                f"{quantity} {small} against {large}, a factor of {ratio:.3g} ({factor:g} asked)"
            )
            cases.append(Case(f"{low}, {high}", ratio >= factor, words))
        return cases

    return check


def gain_shrinks(left: Quantity, right: Quantity) -> Check:
    """What left has over right is smaller at the last swept value than at the first, but not lost.

    Less than nothing is no smaller improvement.
    """

    def check(results: Results) -> list[Case]:
        cases = []
        for panel, values in by_panel(left.cases(results)).items():
            first, last = (
                left.read(results, panel, v).mean - right.read(results, panel, v).mean
                for v in (values[0], values[-1])
            )
            words = f"{left} − {right}: {first:.3g} → {last:.3g}"
            cases.append(Case(results.titles[panel], -_ROUNDING <= last < first, words))
        return cases

    return check


def both(*checks: Check) -> Check:
    """The cases of all."""
    return lambda results: [case for check in checks for case in check(results)]


def somewhere(check: Check) -> Check:
    """For words such as "on some sets": one case, which holds if any of the check's does."""

    def any_of(results: Results) -> list[Case]:
        cases = check(results)
        holding = [case for case in cases if case.holds]
        if not cases:
            return []
        words = f"at {len(holding)} of {len(cases)} places; {(holding or cases)[0].words}"
        return [Case((holding or cases)[0].where, bool(holding), words)]

    return any_of


def alike(left: Quantity, right: Quantity, share: float) -> Check:
    """Means differ by at most this share of the right one."""

    def check(results: Results) -> list[Case]:
        cases = []
        for panel, value in left.cases(results):
            other = _bound(right, results, panel, value)
            if other is not None:
                own = left.read(results, panel, value)
                true = abs(own.mean - other.mean) <= share * abs(other.mean)
                words = f"{left} {own}, {right} {other}, {share:.0%} allowed"
                cases.append(Case(results.place(panel, value), true, words))
        return cases

    return check


def still_below(left: Quantity, right: Quantity) -> Check:
    """In a panel left's mean at its last value is below the least that right has at any of its."""

    def check(results: Results) -> list[Case]:
        rivals = by_panel(right.cases(results))
        cases = []
        for panel, values in by_panel(left.cases(results)).items():
            if panel not in rivals:
                continue
            own = left.read(results, panel, values[-1])
            best = min((right.read(results, panel, v) for v in rivals[panel]), key=lambda m: m.mean)
            true = own.mean <= best.mean
            words = f"{left} {own} at {values[-1]}, {right} {best} at best"
            cases.append(Case(results.titles[panel], true, words))
        return cases

    return check


def below_curve(left: Quantity, right: Quantity, over: str) -> Check:
    """Left's mean is below right's curve where right spends as much of `over`; beyond its ends its
    last value counts.
    """

    def check(results: Results) -> list[Case]:
        curves = by_panel(right.cases(results))
        cases = []
        for panel, value in left.cases(results):
            spent = replace(right, measure=over, where=None)
            x = [spent.read(results, panel, v).mean for v in curves.get(panel, [])]
            y = [right.read(results, panel, v).mean for v in curves.get(panel, [])]
            own = left.read(results, panel, value)
            at = replace(left, measure=over).read(results, panel, value).mean
            if not x or at < min(x):
                continue  # the rival cannot spend so little
            rival = float(np.interp(np.log(at), np.log(x), y))
            words = f"{left} {own} against {rival:.3g} ({right}) at {at:,.0f} {over}"
            cases.append(
                Case(results.place(panel, value), own.mean <= rival * (1 + _ROUNDING), words)
            )
        return cases

    return check


def ranked(quantity: Quantity, low: Sequence[str], high: Sequence[str]) -> Check:
    """Every panel of `low` has a smaller mean than every one of `high`."""

    def check(results: Results) -> list[Case]:
        means = {
            results.titles[p]: quantity.read(results, p, v) for p, v in quantity.cases(results)
        }
        return [
            Case(f"{a}, {b}", means[a].mean < means[b].mean, f"{means[a]} against {means[b]}")
            for a in low
            for b in high
        ]

    return check


def correlated(left: Quantity, right: Quantity, least: float) -> Check:
    """The rank correlation of means over the panels is at least so much."""

    def check(results: Results) -> list[Case]:
        points = left.cases(results)
        pairs = [(left.read(results, *p).mean, right.read(results, *p).mean) for p in points]
        rho = float(spearmanr([a for a, _ in pairs], [b for _, b in pairs]).statistic)
        words = f"rank correlation {rho:.2f} over {len(pairs)} sets ({least:g} asked)"
        return [Case("all sets", rho >= least, words)]

    return check


def settled(quantity: Quantity, start: int, share: float) -> Check:
    """From entry `start` of a list on, its mean course stays within this share of its last entry.

    A negative `start` counts from the end, in fourths of the list.
    """

    def check(results: Results) -> list[Case]:
        cases = []
        for panel, value in quantity.cases(results):
            course, _ = results.course(panel, value, quantity.method, quantity.measure)
            begin = start if start >= 0 else len(course) - max(len(course) // -start, 2)
            rest = course[min(begin, len(course) - 1) :]
            off = float(np.abs(rest - rest[-1]).max() / max(abs(rest[-1]), 1e-300))
            words = f"{quantity} moves by {off:.2g} of {rest[-1]:.3g} ({share:g} allowed)"
            cases.append(Case(results.place(panel, value), off <= share, words))
        return cases

    return check


def under_decay(quantity: Quantity, heights: Mapping[str, float] | None) -> Check:
    """A list's entry t stays below height/t, in the panels that have one.

    Without heights, t × entry at the end is at most twice that at entry 5.
    """

    def check(results: Results) -> list[Case]:
        cases = []
        for panel, value in quantity.cases(results):
            course, _ = results.course(panel, value, quantity.method, quantity.measure)
            scaled = course * np.arange(1, len(course) + 1)
            if heights is None:
                first, last = scaled[min(4, len(scaled) // 2)], scaled[-1]
                words = f"{quantity} t × error {first:.3g} → {last:.3g}"
                cases.append(Case(results.place(panel, value), last <= 2 * first, words))
                continue
            height = heights[results.titles[panel]]
            words = f"{quantity} t × error at most {scaled.max():.3g} ({height:g} asked)"
            cases.append(Case(results.place(panel, value), scaled.max() <= height, words))
        return cases

    return check
