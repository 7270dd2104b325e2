"""Columns that parties seem to keep in different units, by points and sums that travel anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eigenmesh.numerics.arrays import Rows
from eigenmesh.numerics.unit_factors import (
    ColumnMoments,
    UnitFactor,
    moment_factors,
    unit_factors,
)
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.site import SiteView

_SHOWN = 3  # columns that the remark names


def compare_units(rows: Federation, points: Mapping[str, Rows], *, means: bool) -> None:
    """At the coordinator, of rows or their means that each party sent; once for a federation.

    Standardised rows have no units: points are compared as their owners would write them.
    """
    own_units = {name: rows.in_own_units(own) for name, own in points.items()}
    _tell(rows, unit_factors(own_units, means=means))


def compare_moments(
    rows: Federation, moments: Mapping[str, ColumnMoments], *, power: int, unit_rows: bool
) -> None:
    """At the coordinator, of what a power of each party's columns adds up to."""
    _tell(rows, moment_factors(moments, power=power, unit_rows=unit_rows))


def _tell(rows: Federation, factors: Sequence[UnitFactor]) -> None:
    if factors:
        names = (names for names in rows.column_names().values() if names is not None)
        rows.remark("units", _remark(factors, next(names, None)))


def compare_units_at(site: SiteView, points: Mapping[int, Rows]) -> None:
    """At a node, of the points that it got of each party, by number."""
    by_name = {site.names[owner]: own for owner, own in points.items()}
    factors = unit_factors(by_name)
    if factors:
        site.remark("units", _remark(factors, site.column_names))


def _remark(factors: Sequence[UnitFactor], names: Sequence[str] | None) -> str:
    shown = "; ".join(_in_words(factor, names) for factor in factors[:_SHOWN])
    more = f"; and {len(factors) - _SHOWN} more" if len(factors) > _SHOWN else ""
    return (
        f"columns of one name seem to be in different units: {shown}{more}. Convert them at their "
        f"parties, or leave them out; if parties really differ so much, ignore this"
    )


def _in_words(factor: UnitFactor, names: Sequence[str] | None) -> str:
    column = f"{factor.column} (counted from 0)" if names is None else repr(names[factor.column])
    size = f"{factor.factor:.2g} times that of {factor.other!r}"
    return f"column {column} of party {factor.party!r} is {size}"
