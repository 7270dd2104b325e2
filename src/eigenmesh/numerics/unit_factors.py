"""Columns that one party keeps in other units than the others, as far as means of its rows tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from eigenmesh.numerics.arrays import Doubles, Rows, dense

FACTOR = 3.0  # mmol/L beside mg/dL is 18 or more, and people mostly differ by less
FEWEST = 4  # means of a party's rows: fewer say nothing
FEWEST_ROWS = 8  # or rows
_ROUNDING = 1e-6  # of a mean, float32 ones too
_MOST_ZEROS = 0.05  # a column that is often 0 differs between groups of rows by how often
_TAILS = (0.1, 0.9)  # quantiles: a column between them on one side of 0 has a size
_CENTRED = 0.5  # spreads: a median no farther from 0 tells no size
_FAR = 50.0  # spreads: one so far from 0 tells it alone, as 310 K beside 37 °C
# By which the factors of size and spread may differ: k-means parts rows by the columns that vary
# most, so that a column in small units has means that are narrower still.
_AGREE = 30.0
_CHANCE = 0.002  # of an alarm in a whole set of columns and parties that differ by chance alone


class UnitFactor(NamedTuple):
    """A column whose values at `party` are `factor` times those at `other`."""

    party: str
    other: str
    column: int
    factor: float


class _Log(NamedTuple):
    """The mean of the logarithms of some values, and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Doubles) -> _Log:
        logs = np.log(np.abs(values[values != 0]))
        return cls(float(logs.mean()), float(logs.std(ddof=1) / np.sqrt(len(logs))))

    def above(self, other: _Log) -> float:
        """How much larger it is."""
        return self.mean - other.mean

    def is_apart(self, other: _Log, errors: float) -> bool:
        """Whether they differ by FACTOR, and by so many standard errors."""
        apart = abs(self.above(other))
        chance = errors * np.hypot(self.error, other.error)
        return bool(apart >= max(np.log(FACTOR), chance))


class _Column(NamedTuple):
    """One column at one party. `size` and `spread` are logarithms."""

    size: _Log
    spread: _Log
    side: int  # of 0, on which it lies; 0 if on both, or if that may be chance
    middle: float  # its median, in spreads

    @classmethod
    def of(cls, values: Doubles, errors: float) -> _Column:
        median = float(np.median(values))
        low, high = np.sign(np.quantile(values, _TAILS))
        error = values.std(ddof=1) / np.sqrt(len(values))
        one_side = low == high and abs(values.mean()) >= errors * error
        spread = _Log.of(values - median)
        middle = median / float(np.exp(spread.mean))
        return cls(_Log.of(values), spread, int(low) if one_side else 0, middle)


def unit_factors(points: Mapping[str, Rows], *, means: bool = True) -> list[UnitFactor]:
    """Which party's columns are FACTOR times those of the party in the middle, or a part of them.

    `points` are `means` of each party's rows. A column counts whose size and spread differ by the
    factor: other units change both, other people mostly one or none. Where the medians are near 0
    the spread alone counts; where they are far from it, the size. Rows that were drawn for being
    unlike the others have another spread than these: of them the columns count that lie on one side
    of 0 and do not overlap.

    >>> ages = np.array([[20.0], [35.0], [50.0], [65.0]])
    >>> (found,) = unit_factors({"years": ages, "too": ages, "months": 12 * ages})
    >>> found.party, found.column, round(found.factor, 2)
    ('months', 0, 12.0)
    """
    fewest = FEWEST if means else FEWEST_ROWS
    parties = {party: dense(own) for party, own in points.items() if own.shape[0] >= fewest}
    if len(parties) < 2:
        return []
    columns = _comparable(parties)
    errors = float(norm.isf(_CHANCE / (2 * max(1, len(columns)) * len(parties))))
    factors = [factor for column in columns for factor in _of_column(parties, column, errors)]
    return factors if means else [factor for factor in factors if _are_apart(parties, factor)]


def _comparable(parties: Mapping[str, Doubles]) -> list[int]:
    """Columns that vary at every party, and are seldom 0."""
    parts = list(parties.values())
    varies = np.all([_n_unlike(own) > 1 for own in parts], axis=0)
    seldom = np.all([(own == 0).mean(axis=0) <= _MOST_ZEROS for own in parts], axis=0)
    return [int(column) for column in np.flatnonzero(varies & seldom)]


def _n_unlike(own: Doubles) -> Any:
    """How many values of each column differ from its median by more than a mean is rounded by."""
    middle = np.median(own, axis=0)
    return (np.abs(own - middle) > _ROUNDING * np.abs(middle)).sum(axis=0)


def _are_apart(parties: Mapping[str, Doubles], factor: UnitFactor) -> bool:
    """Whether every value of the one party is larger than all of the other's, with one sign."""
    values = [parties[p][:, factor.column] for p in (factor.party, factor.other)]
    one, other = map(np.abs, values)
    signs = np.sign(np.concatenate(values))
    return bool(abs(signs.sum()) == len(signs)) and bool(
        one.min() > other.max() or other.min() > one.max()
    )


def _of_column(parties: Mapping[str, Doubles], column: int, errors: float) -> list[UnitFactor]:
    columns = {party: _Column.of(own[:, column], errors) for party, own in parties.items()}
    by_size = sorted(columns, key=lambda party: columns[party].size.mean)
    other = by_size[(len(by_size) - 1) // 2]
    factors = {p: _log_factor(own, columns[other], errors) for p, own in columns.items()}
    return [UnitFactor(p, other, column, float(np.exp(f))) for p, f in factors.items() if f]


def _log_factor(own: _Column, other: _Column, errors: float) -> float:
    """The logarithm of what looks like a factor between units, or 0."""
    size, spread = own.size.above(other.size), own.spread.above(other.spread)
    if own.side * other.side > 0:
        far = min(abs(own.middle), abs(other.middle)) >= _FAR
        both = size * spread > 0 and abs(spread) >= np.log(FACTOR)
        agree = both and abs(size - spread) <= np.log(_AGREE)
        return size if (far or agree) and own.size.is_apart(other.size, errors) else 0.0
    at_zero = max(abs(own.middle), abs(other.middle)) <= _CENTRED and own.side == other.side
    return spread if at_zero and own.spread.is_apart(other.spread, errors) else 0.0
