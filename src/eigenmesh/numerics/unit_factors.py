"""Columns that one party keeps in other units than the others, as far as means of its rows tell.

Means of a few rows each, or the mean and variance of all of a party's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm, t

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
_NEAREST = 0.3  # of the median distance
# Spreads: a mean at least so far from 0 is a size, one that is nearer than _CENTRED is none. As the
# tails of a column are not known by its moments, there is room between the two.
_SIDED = 0.8
_FEWEST_COLUMNS = 3  # beside one, of two parties: fewer do not tell what their spreads differ by
_ABOVE_CHANCE = 4.0  # standard errors of a mean
_OF_ONE_SIGN = 1 - 1e-6  # standard errors, and rounding
_CHANCE = 0.002  # of an alarm in a whole set of columns and parties that differ by chance alone


class UnitFactor(NamedTuple):
    """A column whose values at `party` are `factor` times those at `other`."""

    party: str
    other: str
    column: int
    factor: float


class _Logs(NamedTuple):
    """Means of the logarithms of some values, a column each, and their standard errors."""

    mean: Doubles
    error: Doubles

    @classmethod
    def of(cls, values: Doubles) -> _Logs:
        """Of the rows of `values`; zeros have no logarithm and are left out."""
        logs = np.log(np.abs(np.where(values == 0, np.nan, values)))
        n_values = np.count_nonzero(values, axis=0)
        return cls(np.nanmean(logs, axis=0), np.nanstd(logs, axis=0, ddof=1) / np.sqrt(n_values))

    def are_apart(self, others: _Logs, errors: float) -> Any:
        """Which differ by FACTOR, and by so many standard errors."""
        chance = errors * np.hypot(self.error, others.error)
        return np.abs(self.mean - others.mean) >= np.maximum(np.log(FACTOR), chance)


class _Columns(NamedTuple):
    """Columns at one party, or at one party each. Sizes and spreads are logarithms."""

    sizes: _Logs
    spreads: _Logs
    sides: Doubles  # of 0, on which they lie; 0 if on both, or if that may be chance
    middles: Doubles  # their medians, in spreads

    @classmethod
    def of(cls, values: Doubles, errors: float) -> _Columns:
        """All columns at once: of thousands, one by one would take longer than a fit."""
        medians = np.median(values, axis=0)
        low, high = np.sign(np.quantile(values, _TAILS, axis=0))
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        one_side = (low == high) & (np.abs(values.mean(axis=0)) >= errors * error)
        spreads = _Logs.of(_distances(values, medians))
        middles = medians / np.exp(spreads.mean)
        return cls(_Logs.of(values), spreads, np.where(one_side, low, 0.0), middles)


def _distances(values: Doubles, medians: Doubles) -> Doubles:
    """How far values lie from their median, none of them nearer than a part of what most do."""
    # Of an even number two may nearly meet at their median: one logarithm would be all that counts.
    distances = np.abs(values - medians)
    nearest = _NEAREST * np.median(distances, axis=0)
    return np.where(distances == 0, 0.0, np.maximum(distances, nearest))


class ColumnMoments(NamedTuple):
    """Means and variances of a party's columns, and over how many rows."""

    mean: Doubles
    variance: Doubles
    n_rows: int


def moment_factors(
    parties: Mapping[str, ColumnMoments], *, power: int = 1, unit_rows: bool = False
) -> list[UnitFactor]:
    """The same by moments alone, of the columns or of a `power` of each.

    Of `unit_rows` a factor that most columns share is their norm's.

    >>> years, months = (ColumnMoments(40 * f, 90 * f**2, 200) for f in np.array([[1.0], [12.0]]))
    >>> moment_factors({"years": years, "too": years, "months": months})
    [UnitFactor(party='months', other='too', column=0, factor=12.0...)]
    """
    enough = {party: own for party, own in parties.items() if own.n_rows >= FEWEST_ROWS}
    if len(enough) < 2:
        return []
    columns = np.flatnonzero(np.all([_varies(own) for own in enough.values()], axis=0))
    if not len(columns):
        return []
    spreads = np.array([np.log(own.variance[columns]) / 2 for own in enough.values()])
    from_zero = np.array([_errors_from_zero(own)[columns] for own in enough.values()])
    one_sided = (np.abs(from_zero) >= _ABOVE_CHANCE).any(axis=0)
    # So many values of n make up a column that is mostly 0, and no party knows its spread better.
    n_values = np.maximum(np.abs(from_zero).min(axis=0), _OF_ONE_SIGN) ** 2
    few_values = np.where(one_sided | _may_be_of_one_sign(from_zero), 1 / np.sqrt(n_values), 0.0)
    errors = np.maximum(_spread_errors(spreads, one_sided), few_values)
    own = [
        _by_moments(at_party, columns, log_spread, errors)
        for at_party, log_spread in zip(enough.values(), spreads, strict=True)
    ]
    factors = _compared(list(enough), own, columns, unit_rows)
    roots = [factor._replace(factor=factor.factor ** (1 / power)) for factor in factors]
    return [factor for factor in roots if abs(np.log(factor.factor)) >= np.log(FACTOR)]


def _spread_errors(spreads: Doubles, one_sided: Any) -> Doubles:
    """Of parties' logarithms, for each column, as far as parties and columns beside it tell."""
    # How well a spread is known hangs on the tails, of which moments say nothing: of a column that
    # is nearly always 0 parties differ by factors. It is what the others differ by, in this column
    # and in most.
    n_columns = spreads.shape[1]
    apart = float(np.median(spreads.std(axis=0, ddof=1)))
    if apart > np.log(FACTOR) / 2:
        return np.full(n_columns, np.inf)
    chance = _CHANCE / (2 * n_columns * len(spreads))
    by_columns = np.where(one_sided, np.inf, _by_other_columns(spreads, chance))
    by_parties = _by_other_parties(spreads, chance)
    return np.asarray(np.maximum(apart, np.minimum(by_parties, by_columns)))


def _by_other_parties(spreads: Doubles, chance: float) -> Doubles:
    """What all parties but the farthest differ by, a column each; nothing is known of two."""
    n_others = len(spreads) - 1
    if n_others < 2:
        return np.full(spreads.shape[1], np.inf)
    return _student(chance, n_others - 1) * _others_apart(spreads)


def _by_other_columns(spreads: Doubles, chance: float) -> Doubles:
    """What the farthest party differs by in all columns but the one where it is farthest."""
    # Other columns do not have the tails of this one. One whose mean is above chance, and below
    # what it varies by, has long ones (amounts that are seldom large): the caller leaves it out.
    farthest = np.sort(np.abs(spreads - np.median(spreads, axis=0)).max(axis=0))[:-1]
    if len(farthest) < _FEWEST_COLUMNS:
        return np.full(spreads.shape[1], np.inf)
    typical = _student(chance, len(farthest) - 1) * np.sqrt(np.mean(farthest**2))
    # A median of two is half way between them.
    twice = 2 if len(spreads) == 2 else 1
    return np.asarray(np.maximum(twice * typical, _others_apart(spreads)))


def _others_apart(spreads: Doubles) -> Doubles:
    """Standard deviations over parties without the farthest, a column each; of one party 0."""
    from_middle = np.abs(spreads - np.median(spreads, axis=0))
    others = np.take_along_axis(spreads, from_middle.argsort(axis=0)[:-1], axis=0)
    return np.asarray(others.std(axis=0, ddof=1 if len(others) > 1 else 0))


def _student(chance: float, freedom: int) -> float:
    """By how much Student's law is wider than the normal one, so far out."""
    return float(t.isf(chance, freedom) / norm.isf(chance))


def _varies(own: ColumnMoments) -> Any:
    """Columns whose variance is more than rounding leaves of their squares."""
    return own.variance > _ROUNDING**2 * np.maximum(own.mean**2, np.finfo(float).tiny)


def _errors_from_zero(own: ColumnMoments) -> Doubles:
    """How many of its standard errors each column's mean is from 0."""
    with np.errstate(divide="ignore", invalid="ignore"):  # columns that do not vary are not asked
        return np.asarray(own.mean * np.sqrt(own.n_rows) / np.sqrt(own.variance))


def _may_be_of_one_sign(from_zero: Doubles) -> Any:
    """Columns that may lie on one side of 0 at all parties: amounts that are seldom there."""
    # Values of one sign have (sum x)^2 >= sum x^2, so that their mean is at least one standard
    # error from 0, however few are not 0; of a column about 0 few parties' means all are.
    return (from_zero >= _OF_ONE_SIGN).all(axis=0) | (from_zero <= -_OF_ONE_SIGN).all(axis=0)


def _by_moments(own: ColumnMoments, columns: Any, spreads: Doubles, errors: Doubles) -> _Columns:
    mean, root_n = own.mean[columns], np.sqrt(own.n_rows)
    middles = mean / np.exp(spreads)
    sizes = np.maximum(np.abs(mean), np.finfo(float).tiny)
    errors = np.hypot(errors, 1 / (np.sqrt(2) * root_n))
    return _Columns(
        _Logs(np.log(sizes), np.exp(spreads) / (sizes * root_n)),
        _Logs(spreads, errors),
        np.where(np.abs(middles) >= _SIDED, np.sign(mean), 0.0),
        middles,
    )


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
    factors = _factors(parties, columns) if len(columns) else []
    return factors if means else [factor for factor in factors if _are_apart(parties, factor)]


def _comparable(parties: Mapping[str, Doubles]) -> Any:
    """Columns that vary at every party, and are seldom 0."""
    parts = list(parties.values())
    varies = np.all([_n_unlike(own) > 1 for own in parts], axis=0)
    seldom = np.all([(own == 0).mean(axis=0) <= _MOST_ZEROS for own in parts], axis=0)
    return np.flatnonzero(varies & seldom)


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


def _factors(parties: Mapping[str, Doubles], columns: Any) -> list[UnitFactor]:
    errors = _standard_errors(len(columns), len(parties))
    own = [_Columns.of(rows[:, columns], errors) for rows in parties.values()]
    return _compared(list(parties), own, columns)


def _standard_errors(n_columns: int, n_parties: int) -> float:
    """Beyond which nothing lies by chance."""
    return float(norm.isf(_CHANCE / (2 * n_columns * n_parties)))


def _compared(
    names: list[str], own: list[_Columns], columns: Any, unit_rows: bool = False
) -> list[UnitFactor]:
    """Each party's columns with those of the party in the middle."""
    errors = _standard_errors(len(columns), len(names))
    by_size = np.argsort([at_party.sizes.mean for at_party in own], axis=0, kind="stable")
    others = by_size[(len(names) - 1) // 2]  # for each column the party in the middle
    of_others = _picked(own, others)
    if unit_rows:
        own = [_without_norm(at_party, of_others) for at_party in own]
    logs = np.array([_log_factors(at_party, of_others, errors) for at_party in own])
    return [
        UnitFactor(names[p], names[others[c]], int(columns[c]), float(np.exp(logs[p, c])))
        for c, p in np.argwhere(logs.T)
    ]


def _without_norm(own: _Columns, others: _Columns) -> _Columns:
    """Columns as they would be if most of them were as large as the others'."""
    shared = float(np.median(own.spreads.mean - others.spreads.mean))
    sizes, spreads = (logs._replace(mean=logs.mean - shared) for logs in (own.sizes, own.spreads))
    return own._replace(sizes=sizes, spreads=spreads)


def _picked(several: list[_Columns], which: Any) -> _Columns:
    """Column c as it is at party `which[c]`."""

    def pick(one_of: Callable[[_Columns], Doubles]) -> Doubles:
        values: Doubles = np.array([one_of(own) for own in several])[which, np.arange(len(which))]
        return values

    return _Columns(
        _Logs(pick(lambda own: own.sizes.mean), pick(lambda own: own.sizes.error)),
        _Logs(pick(lambda own: own.spreads.mean), pick(lambda own: own.spreads.error)),
        pick(lambda own: own.sides),
        pick(lambda own: own.middles),
    )


def _log_factors(own: _Columns, others: _Columns, errors: float) -> Doubles:
    """The logarithms of what look like factors between units; 0 where nothing does."""
    size = own.sizes.mean - others.sizes.mean
    spread = own.spreads.mean - others.spreads.mean
    far = np.minimum(np.abs(own.middles), np.abs(others.middles)) >= _FAR
    both = (size * spread > 0) & (np.abs(spread) >= np.log(FACTOR))
    agree = both & (np.abs(size - spread) <= np.log(_AGREE))
    beside = (own.sides * others.sides > 0) & (far | agree)
    centred = np.maximum(np.abs(own.middles), np.abs(others.middles)) <= _CENTRED
    at_zero = (own.sides * others.sides <= 0) & centred & (own.sides == others.sides)
    by_size = beside & own.sizes.are_apart(others.sizes, errors)
    by_spread = at_zero & own.spreads.are_apart(others.spreads, errors)
    # Groups of near rows part the column that is loud at their party, and average the others: where
    # one is 18 times as wide all others look narrower. Only what differs most is not of that kind.
    by_spread &= spread * spread[np.abs(spread).argmax()] > 0
    return np.where(by_size, size, np.where(by_spread, spread, 0.0))
