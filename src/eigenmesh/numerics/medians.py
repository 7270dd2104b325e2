"""The value of a rank among numbers that nobody lists: by counts below thresholds.

Floats in their order are whole numbers in theirs, 2^64 of them; sixteen parts a turn, so many turns
leave one. What is found is a value that is there, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.numerics.arrays import Doubles

PARTS = 16
TURNS = 16  # 16^16 = 2^64
THRESHOLDS = PARTS - 1

_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)


class RankSearch:
    """Values of ranks, one a column; `ranks` count from 1.

    >>> X = np.array([3.0, -1.0, 7.0])
    >>> search = RankSearch([2])
    >>> for _ in range(TURNS):
    ...     search.narrow(np.searchsorted(np.sort(X), search.thresholds(), side="right"))
    >>> search.values().tolist()
    [3.0]
    """

    def __init__(self, ranks: Sequence[int], bounds: NDArray[np.int64] | None = None) -> None:
        self._ranks = [int(rank) for rank in ranks]
        largest = int(_places(np.array([np.finfo(np.float64).max]))[0])
        lowest = int(_places(np.array([np.finfo(np.float64).min]))[0])
        # Python's whole numbers: the range is wider than 63 bits.
        self._below = [lowest - 1] * len(self._ranks)  # a place that is too low
        self._at_most = [largest] * len(self._ranks)
        if bounds is not None:
            self._below, self._at_most = bounds.tolist()

    @property
    def bounds(self) -> NDArray[np.int64]:
        """Between which places (2, columns) the values are by now; a search goes on from there."""
        return np.array([self._below, self._at_most], dtype=np.int64)

    def thresholds(self) -> Doubles:
        """Numbers (columns, THRESHOLDS) of which it is asked how many values are no larger."""
        return _floats(np.array([self._cuts(i) for i in range(len(self._ranks))], dtype=np.int64))

    def narrow(self, counts: NDArray[np.int64]) -> None:
        """Take up how many values of each column are no larger than its thresholds."""
        for i, rank in enumerate(self._ranks):
            cuts = self._cuts(i)
            enough = [cut for cut, n in zip(cuts, counts[i].tolist(), strict=True) if n >= rank]
            few = [cut for cut, n in zip(cuts, counts[i].tolist(), strict=True) if n < rank]
            self._at_most[i] = min([self._at_most[i], *enough])
            self._below[i] = max([self._below[i], *few])

    def values(self) -> Doubles:
        """What was found."""
        return _floats(np.array(self._at_most, dtype=np.int64))

    def _cuts(self, i: int) -> list[int]:
        low, high = self._below[i], self._at_most[i]
        return [low + max(1, (high - low) * part // PARTS) for part in range(1, PARTS)]


class MedianSearch:
    """The middle value of every column, or the mean of the two that are in the middle.

    >>> X = np.array([3.0, -1.0, 7.0, 4.0])
    >>> search = MedianSearch([4])
    >>> for _ in range(TURNS):
    ...     search.narrow(np.array([counts_below(X, search.thresholds()[0])]))
    >>> search.values().tolist()
    [3.5]
    """

    def __init__(self, n_values: Any, bounds: NDArray[np.int64] | None = None) -> None:
        n = np.asarray(n_values).astype(int)
        self._d = len(n)
        self._ranks = RankSearch([*((n + 1) // 2), *(n // 2 + 1)], bounds)

    @property
    def bounds(self) -> NDArray[np.int64]:
        """As of a `RankSearch`."""
        return self._ranks.bounds

    def thresholds(self) -> Doubles:
        """Numbers (columns, 2 THRESHOLDS) of which it is asked how many values are no larger."""
        cuts = self._ranks.thresholds()
        return np.hstack([cuts[: self._d], cuts[self._d :]])

    def narrow(self, n_below: NDArray[np.int64]) -> None:
        """Take up how many there are."""
        self._ranks.narrow(np.vstack([n_below[:, :THRESHOLDS], n_below[:, THRESHOLDS:]]))

    def values(self) -> Doubles:
        """What was found."""
        values = self._ranks.values()
        return np.asarray((values[: self._d] + values[self._d :]) / 2)


def counts_below(values: Doubles, thresholds: Doubles) -> NDArray[np.int64]:
    """How many values are no larger than each threshold; NaN is larger than any.

    >>> counts_below(np.array([3.0, np.nan, -1.0, 7.0]), np.array([5.0, -1.0])).tolist()
    [2, 1]
    """
    order = np.argsort(thresholds)
    # From the left: a value that equals a threshold counts as no larger. NaN comes after the last.
    places = np.searchsorted(thresholds[order], values, side="left")
    counts = np.empty(len(order), dtype=np.int64)
    counts[order] = np.cumsum(np.bincount(places, minlength=len(order) + 1))[:-1]
    return counts


def _places(values: Doubles) -> NDArray[np.int64]:
    """Where floats stand in their order."""
    # A sign bit and a magnitude: below 0 more bits mean a smaller number, and all but the sign are
    # turned over, so that whole numbers follow each other as the floats do.
    bits = values.view(np.int64)
    return np.where(bits < 0, bits ^ _SIGN, bits)


def _floats(places: NDArray[np.int64]) -> Doubles:
    return np.where(places < 0, places ^ _SIGN, places).view(np.float64)
