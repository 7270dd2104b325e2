"""Levels counted by sums over a table: nobody's list of levels has to be told.

Every level falls into one of `BUCKETS` places, by a hash that changes from turn to turn. Summed
over the parties, a place has how many rows are in it, and the rows' sums of the two halves of the
level's key and of a check of it. If all rows of a place are of one level, the sums divided by the
count are its key, and the check agrees; if several levels met there, it does not, and they are
dealt anew in the next turn, without those that are known.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BUCKETS = 256
TURNS = 8  # 300 levels come apart in these, 1000 do not
_HALF = 24  # bits of a key of 48
_CHECK_BITS = 31

Keys = NDArray[np.int64]
Whole = NDArray[np.int64]


class LevelSums(NamedTuple):
    """Of every place of a table: rows, and sums of halves of keys and of checks."""

    counts: Whole
    low: Whole
    high: Whole
    checks: Whole


def table_of(keys: Keys, counts: Whole, turn: int) -> LevelSums:
    """One party's table of levels, by their keys, and how many rows each has."""
    places = np.array([_hashed(key, turn) % BUCKETS for key in keys.tolist()], dtype=np.intp)
    checks = np.array([_check(key) for key in keys.tolist()], dtype=np.int64)

    def dealt(numbers: Whole) -> Whole:
        table = np.zeros(BUCKETS, dtype=np.int64)
        np.add.at(table, places, numbers * counts)
        return table

    low, high = keys & ((1 << _HALF) - 1), keys >> _HALF
    return LevelSums(dealt(np.ones_like(keys)), dealt(low), dealt(high), dealt(checks))


def levels_in(sums: LevelSums) -> tuple[Keys, Whole, int]:
    """Keys and counts of the levels that lie alone, and in how many places several do.

    >>> keys = np.array([5, 1 << 40], dtype=np.int64)
    >>> levels_in(table_of(keys, np.array([3, 4]), turn=0))
    (array([            5, 1099511627776]), array([3, 4]), 0)
    """
    rows = np.flatnonzero(sums.counts)
    n = sums.counts[rows]
    keys = (sums.high[rows] // n << _HALF) + sums.low[rows] // n
    whole = (sums.low[rows] % n == 0) & (sums.high[rows] % n == 0) & (sums.checks[rows] % n == 0)
    # Sums of levels that met may divide by their number, too: then the check disagrees.
    expected = np.array([_check(key) for key in keys.tolist()], dtype=np.int64)
    alone = whole & (sums.checks[rows] // n == expected)
    return keys[alone], n[alone], int((~alone).sum())


def _check(key: int) -> int:
    return _hashed(key, -1) >> (64 - _CHECK_BITS)


def _hashed(key: int, turn: int) -> int:
    data = key.to_bytes(8, "little", signed=True) + turn.to_bytes(2, "little", signed=True)
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
