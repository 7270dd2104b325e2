"""What a paper claims, and whether measurements bear it out.

A claim has one check for each reading of the paper's words. A check compares quantities wherever
the figure measured them, and gives a case for each: all cases hold, some, or none. The verdict is
that of the first reading, which is as near to what the paper prints as can be run; what the others
give is told beside it, better or worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eigenmesh.reproduce.trial_results import Results

HELD, IN_PART, NOT_HELD = "held", "held in part", "not held"


@dataclass(frozen=True)
class Case:
    """One comparison: where, whether it bears the claim out, and the numbers."""

    where: str
    holds: bool
    words: str


Check = Callable[[Results], list[Case]]


@dataclass(frozen=True)
class Claim:
    """A paper's words in short, and a check for each reading of them, the paper's own first."""

    words: str
    readings: Mapping[str, Check]


def claim(words: str, *readings: str | Check) -> Claim:
    """A paper's words; then each reading of them, in words and as a check, the paper's own first.

    >>> list(claim("small", "as printed", lambda r: [], "squared", lambda r: []).readings)
    ['as printed', 'squared']
    """
    pairs = zip(readings[::2], readings[1::2], strict=True)
    return Claim(words, {str(reading): check for reading, check in pairs if callable(check)})


@dataclass(frozen=True)
class Verdict:
    """Of one claim."""

    claim: str
    verdict: str
    reading: str
    measured: str
    cases: tuple[Case, ...]
    other_readings: Mapping[str, str]


def judged(claim: Claim, results: Results) -> Verdict:
    """The verdict of the paper's own reading, and those of the others by name."""
    cases = {reading: tuple(check(results)) for reading, check in claim.readings.items()}
    first, *rest = cases
    others = {reading: verdict_of(cases[reading]) for reading in rest}
    own = cases[first]
    return Verdict(claim.words, verdict_of(own), first, in_words(own), own, others)


def share_held(cases: Sequence[Case]) -> float:
    """Of the cases."""
    return sum(case.holds for case in cases) / len(cases) if cases else 0.0


def verdict_of(cases: Sequence[Case]) -> str:
    """Held if all cases hold, in part if some do.

    >>> verdict_of([Case("a", True, ""), Case("b", False, "")])
    'held in part'
    """
    share = share_held(cases)
    return HELD if share == 1 else NOT_HELD if share == 0 else IN_PART


def in_words(cases: Sequence[Case], most: int = 3) -> str:
    """How many cases hold, and the numbers of some: those first that speak against the claim."""
    ordered = sorted(cases, key=lambda case: case.holds)
    shown = [f"{case.where}: {case.words}" for case in ordered[:most]]
    more = f"; and {len(cases) - most} more" if len(cases) > most else ""
    return f"{sum(case.holds for case in cases)} of {len(cases)}; " + "; ".join(shown) + more
