"""Checks of constructor arguments that several estimators share."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.protocols.bandwidth import RULES


def whole_number(value: Any, name: str) -> int:
    """A whole number from 1, or `InputError`."""
    if isinstance(value, Integral) and value is not True and int(value) >= 1:
        return int(value)
    raise InputError(f"{name} is {value!r}; a whole number from 1 is expected")


def checked_gamma(gamma: Any) -> float | str | None:
    """A positive number, or one of the rules that find it from the data."""
    if isinstance(gamma, Real) and gamma is not True and gamma is not False:
        if not 0 < float(gamma) < np.inf:
            raise InputError(f"gamma is {gamma}; a positive finite number is expected")
        return float(gamma)
    if gamma is None or (isinstance(gamma, str) and gamma in RULES):
        return gamma
    raise InputError(
        f"gamma is {gamma!r}; a positive number or one of {', '.join(map(repr, RULES))} is expected"
    )


def one_of(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """One of a few words, or `InputError`."""
    if isinstance(value, str) and value in choices:
        return value
    raise InputError(f"{name} is {value!r}; {', '.join(map(repr, choices))} are expected")
