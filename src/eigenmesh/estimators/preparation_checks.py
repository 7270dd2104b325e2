"""Checks of what estimators over columns let the owners do to their columns first."""

from __future__ import annotations

from numbers import Real
from typing import Any

from eigenmesh.errors import InputError


def is_number(value: Any) -> bool:
    """Whether it is a real number; True and False are none."""
    return isinstance(value, Real) and value is not True and value is not False


def share_of_missing(value: Any) -> float | None:
    """None, or a share from 0 to 1."""
    if value is None:
        return None
    if is_number(value) and 0 <= float(value) <= 1:
        return float(value)
    raise InputError(f"fill_missing is {value!r}; None or a share from 0 to 1 is expected")


def preparation_fields(estimator: Any) -> dict[str, Any]:
    """What owners do to their columns, as setups and gamma rules take it."""
    return {
        "standardize": bool(estimator.standardize),
        "fill_missing": share_of_missing(estimator.fill_missing),
    }
