"""Which rows of several parties belong to the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def common_rows(keys: Sequence[NDArray[Any]]) -> list[NDArray[np.int64]]:
    """For every party the rows of the samples that all have, in the first party's order.

    `keys` (n_i, w) tell samples apart; within a party they differ.

    >>> a, b = np.array([[1], [2], [3]]), np.array([[3], [9], [1]])
    >>> [rows.tolist() for rows in common_rows([a, b])]
    [[0, 2], [2, 0]]
    """
    places = [{tuple(key): row for row, key in enumerate(own.tolist())} for own in keys]
    common = [key for key in places[0] if all(key in other for other in places[1:])]
    return [np.array([own[key] for key in common], dtype=np.int64) for own in places]
