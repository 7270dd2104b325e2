"""Columns that one party keeps in other units than the others, as far as means of its rows tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows, dense

FACTOR = 3.0  # mmol/L beside mg/dL is 18 or more, and people mostly differ by less
FEWEST = 4  # means of a party's rows: the spread of fewer says nothing
FEWEST_ROWS = 8  # or rows
_MOST_ZEROS = 0.05  # a column that is often 0 differs between groups of rows by how often
_QUANTILES = (0.1, 0.5, 0.9)
# By which the factors of median and spread may differ: k-means parts rows by the columns that vary
# most, so that a column in small units has means that are narrower still.
_AGREE = 12.0
_CENTRED = 0.5  # spreads: a median no farther from 0 tells no scale
_FAR = 50.0  # spreads: one so far from 0 tells it alone, as 310 K beside 37 °C
_LEEWAY = 1.0, 0.6  # spreads between quantiles of one shape, and this share of themselves
_SURE = 3.5  # standard errors of a spread from few points


class UnitFactor(NamedTuple):
    """A column whose values at `party` are `factor` times those at `other`."""

    party: str
    other: str
    column: int
    factor: float


class _Column(NamedTuple):
    """One column at one party: its spread, its quantiles in spreads, and how many points it has."""

    spread: float
    shape: Doubles  # (3,)
    n_points: int

    @property
    def middle(self) -> float:
        return float(self.shape[1] * self.spread)

    @property
    def is_centred(self) -> bool:
        return bool(abs(self.shape[1]) < _CENTRED)


def unit_factors(points: Mapping[str, Rows], *, means: bool = True) -> list[UnitFactor]:
    """Which party's columns are FACTOR times those of the party in the middle, or a part of them.

    `points` are `means` of each party's rows. A column counts whose median and spread differ by
    the factor: other units change both, other people mostly one or none. Where the medians are near
    0 the spread alone counts, if the shape is the same; where they are far from it, the median.
    Rows that were drawn for being unlike the others have another spread than these: of them the
    columns count that lie on one side of 0 and do not overlap.

    >>> ages = np.array([[20.0], [35.0], [50.0], [65.0]])
    >>> unit_factors({"years": ages, "too": ages, "months": 12 * ages})
    [UnitFactor(party='months', other='too', column=0, factor=12.0)]
    """
    fewest = FEWEST if means else FEWEST_ROWS
    known = {party: dense(own) for party, own in points.items() if own.shape[0] >= fewest}
    if len(known) < 2:
        return []
    varied = np.all([own.std(axis=0) > 0 for own in known.values()], axis=0)
    rarely_zero = np.all([(own == 0).mean(axis=0) <= _MOST_ZEROS for own in known.values()], axis=0)
    columns = np.flatnonzero(varied & rarely_zero)
    factors = [factor for column in columns for factor in _of_column(known, int(column))]
    return factors if means else [factor for factor in factors if _are_apart(known, factor)]


def _are_apart(known: Mapping[str, Doubles], factor: UnitFactor) -> bool:
    """Whether every value of the one party is larger than all of the other's, with one sign."""
    values = [known[p][:, factor.column] for p in (factor.party, factor.other)]
    one, other = map(np.abs, values)
    signs = np.sign(np.concatenate(values))
    return bool(abs(signs.sum()) == len(signs)) and bool(
        one.min() > other.max() or other.min() > one.max()
    )


def _of_column(known: Mapping[str, Doubles], column: int) -> list[UnitFactor]:
    columns = {party: _described(own[:, column]) for party, own in known.items()}
    by_size = sorted(columns, key=lambda p: columns[p].spread + abs(columns[p].middle))
    other = by_size[(len(by_size) - 1) // 2]
    factors = {party: _factor(own, columns[other]) for party, own in columns.items()}
    return [UnitFactor(party, other, column, f) for party, f in factors.items() if f is not None]


def _described(values: Doubles) -> _Column:
    spread = float(values.std())
    return _Column(spread, np.quantile(values, _QUANTILES) / spread, len(values))


def _factor(own: _Column, other: _Column) -> float | None:
    """By how much the one is larger than the other, if that looks like other units."""
    spreads = own.spread / other.spread
    if own.is_centred and other.is_centred:
        # A column to one side of 0 would have its median elsewhere, unless most of it is near 0.
        both_sides = max(own.shape[0], other.shape[0]) < -_CENTRED
        sure = abs(np.log(spreads)) >= _SURE * _error_of_log(own, other)
        likely = both_sides and sure and _is_large(spreads)
        return spreads if likely and _alike(own, other) else None
    if own.is_centred or other.is_centred or own.middle * other.middle < 0:
        return None
    middles = own.middle / other.middle
    if min(abs(own.shape[1]), abs(other.shape[1])) >= _FAR:
        return middles if _is_large(middles) else None
    apart = max(spreads / middles, middles / spreads)
    same_way = _is_large(spreads) and _is_large(middles) and (spreads > 1) == (middles > 1)
    return middles if same_way and apart <= _AGREE else None


def _error_of_log(own: _Column, other: _Column) -> float:
    """The standard error of the logarithm of the ratio of two spreads, as of normal points."""
    return float(np.sqrt(0.5 / (own.n_points - 1) + 0.5 / (other.n_points - 1)))


def _is_large(factor: float) -> bool:
    return max(factor, 1 / factor) >= FACTOR


def _alike(own: _Column, other: _Column) -> bool:
    """Whether two columns differ in scale alone."""
    base, share = _LEEWAY
    allowed = base + share * np.maximum(np.abs(own.shape), np.abs(other.shape))
    return bool((np.abs(own.shape - other.shape) <= allowed).all())
