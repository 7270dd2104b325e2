"""Gaps that are written as numbers of nines: -9, -99, 999 and the like."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_NINES = np.array([float(sign * (10**digits - 1)) for digits in range(1, 7) for sign in (1, -1)])
_FEWEST_LEVELS = 3  # among the others: of two values either may be the odd one


def gaps_as_nines(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Where a column has nines that are none of its values: no other is near them.

    Nines count as a gap if they are farther from the others than these are from each other, or
    are the only numbers below 0.

    >>> gaps_as_nines(np.array([61.0, 55.0, -999.0, 70.0, 99.0, 48.0])).tolist()
    [2]
    """
    is_nine = np.isin(values, _NINES)
    others = values[~is_nine & ~np.isnan(values)]
    if not is_nine.any() or len(np.unique(others)) < _FEWEST_LEVELS:
        return np.empty(0, dtype=np.intp)
    low, high = others.min(), others.max()
    spread = high - low
    far = (values < low - spread) | (values > high + spread)
    alone_below = (values < 0) & (low >= 0)
    return np.flatnonzero(is_nine & (far | alone_below))
