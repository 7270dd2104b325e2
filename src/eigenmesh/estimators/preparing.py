"""Checks of what estimators over columns let the owners do to their columns first."""

from __future__ import annotations

from numbers import Real
from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.estimators.checks import checked_gamma


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


def prepared_gamma(gamma: Any, estimator: Any) -> float | str | None:
    """A gamma or its rule; rules look at the columns as they are, not as their owners make them."""
    rule = checked_gamma(gamma)
    if isinstance(rule, str) and (estimator.standardize or estimator.fill_missing is not None):
        raise InputError(
            f"gamma is {rule!r}, a rule for the columns as they are; with standardize or "
            f"fill_missing a number is expected, or None for 1 / n_features"
        )
    return rule
