"""Which of many parties are looked at: all who may matter by themselves, and some of the others.

R_p is what the rows of party p have outside the landmarks' span, which its sums tell exactly. An
eigenvalue misses no more by what some parties have outside than the sum of their R_p (Weyl, 1912).
With a tolerance τ a party is asked with chance π_p = 1 − e^(−R_p/τ), from 3τ on surely. What it
shows counts 1/π_p times (Horvitz and Thompson, 1952): sums are right in the mean over draws.
Parties that together have s outside are all left out with a chance of about e^(−s/τ), or less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from eigenmesh.numerics.arrays import Doubles

FEWEST_DRAWN = 24  # of so many, how sums differ from party to party is known well enough
_WORTHWHILE = 0.5  # of the parties: if more would be asked, all are, and leave less doubt
_AGREE = 0.01  # of what all have outside, by which the sum of what each has may be off
_SURELY = 3.0  # tolerances, of which a party is left out in one draw of twenty
_TOLERATED = 0.5 / _SURELY  # of what an eigenvalue may miss: half of it is in 19 draws of 20


class DrawnParties(NamedTuple):
    """Those that are asked, and what is known of the others."""

    chances: dict[str, float]  # of those that are asked, to be asked
    within: float  # Σ k⊥ of their rows
    largest_left: float  # Σ k⊥ of the rows of one party that is not asked

    @property
    def chances_in_order(self) -> Doubles:
        """An array."""
        return np.fromiter(self.chances.values(), float, len(self.chances))

    def of(self, names: Collection[str]) -> Self:
        """With those alone who answered."""
        return self._replace(chances={n: c for n, c in self.chances.items() if n in names})


def drawn_parties(
    outside: Mapping[str, float], whole: float, may_miss: float, rng: np.random.Generator
) -> DrawnParties | None:
    """By what each has `outside`, `whole` in all; None if all are to be asked.

    An eigenvalue may miss so much.

    >>> outside = {f"site {i}": 1.0 for i in range(100)}
    >>> few = drawn_parties(outside, 100.0, 20.0, np.random.default_rng(0))
    >>> len(few.chances), few.largest_left
    (26, 1.0)
    >>> drawn_parties(outside, 100.0, 1.0, np.random.default_rng(0)) is None
    True
    """
    squares = np.maximum(np.fromiter(outside.values(), float, len(outside)), 0.0)
    in_all = float(squares.sum())
    # Where rounding is as large as what it is of, nothing is known of single parties.
    if len(squares) <= FEWEST_DRAWN or not abs(in_all - whole) <= _AGREE * whole:
        return None
    in_tolerances = squares / max(_TOLERATED * may_miss, np.finfo(float).tiny)
    chances = np.where(in_tolerances < _SURELY, -np.expm1(-in_tolerances), 1.0)
    if chances.sum() < FEWEST_DRAWN:
        chances = _chances_of(squares, FEWEST_DRAWN)
    if chances.sum() > _WORTHWHILE * len(squares):
        return None
    places = _drawn(chances, rng)
    names, is_asked = list(outside), np.zeros(len(squares), dtype=bool)
    is_asked[places] = True
    return DrawnParties(
        {names[i]: float(chances[i]) for i in np.flatnonzero(is_asked)},
        float(squares[is_asked].sum()),
        float(squares[~is_asked].max(initial=0.0)),
    )


def _chances_of(sizes: Doubles, count: int) -> Doubles:
    """In proportion to sizes, none above 1, adding up to `count`, or all that have a size."""
    chances = np.zeros(len(sizes))
    is_sure = sizes <= 0  # to be left out
    count = min(count, int(np.count_nonzero(~is_sure)))
    while True:
        rest = ~is_sure
        chances[rest] = sizes[rest] * ((count - int((chances == 1).sum())) / sizes[rest].sum())
        above = rest & (chances >= 1)
        if not above.any():
            return chances
        chances[above], is_sure = 1.0, is_sure | above
        if is_sure.all():
            return chances


def _drawn(chances: Doubles, rng: np.random.Generator) -> Doubles:
    """Places, each with its own chance: one in every unit of the sum of chances, in any order."""
    order = rng.permutation(len(chances))
    ends = np.cumsum(chances[order])
    ticks = np.arange(rng.random(), ends[-1], 1.0)
    return np.asarray(order[np.searchsorted(ends, ticks, side="right").clip(max=len(order) - 1)])


def noise_of_draw(weights: Doubles, sums: Sequence[Doubles]) -> Doubles:
    """What a draw of parties adds to squared lengths of p `weights`-ed sums, in the mean.

    `sums` (p, t) are those of the parties that were drawn; by Hájek's estimate.
    """
    loose = 1 - 1 / weights
    m = np.count_nonzero(loose)
    if m < 2:
        return np.zeros(len(sums[0]))
    weighted = weights[:, None, None] * np.array(sums)
    weighted -= np.tensordot(loose / loose.sum(), weighted, axes=1)
    np.square(weighted, out=weighted)
    return np.asarray(loose @ weighted.sum(axis=2) * m / (m - 1))
