"""Rows as a study before has prepared them: one rule, at the sites and wherever rows are scored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import InputError

FIELDS = ("log", "fill", "mean", "scale")  # of what a site keeps
_BLOCK = 1 << 16  # rows at a time


def store_key(name: str) -> str:
    """Where a site keeps what rows are prepared by."""
    return f"rows prepared: {name}"


def digest_of(share: Mapping[str, Any]) -> str:
    """Of the numbers that rows are prepared by."""
    parts = [np.ascontiguousarray(share[name]).tobytes() for name in FIELDS]
    return hashlib.sha256(b"|".join(parts)).hexdigest()


def prepared_rows(
    X: Any, log: Sequence[int], fill: NDArray[Any], mean: NDArray[Any], scale: NDArray[Any]
) -> NDArray[np.float64]:
    """(x − mean) / scale of rows whose columns `log` are logarithms and whose gaps are filled.

    >>> X = np.array([[1.0, 4.0], [np.nan, 6.0]])
    >>> prepared_rows(X, [0], np.array([0.5, 0]), np.array([0.0, 5]), np.array([1.0, 2])).tolist()
    [[0.0, -0.5], [0.5, 0.5]]
    """
    if hasattr(X, "tocsr"):
        raise InputError(
            "rows are sparse, and preparing them would fill the matrix; pass dense rows, or scale "
            "the columns first, e.g. with sklearn's MaxAbsScaler"
        )
    prepared = np.empty(X.shape, dtype=np.float64)
    for start in range(0, X.shape[0], _BLOCK):
        block = logarithms(X[start : start + _BLOCK], log)
        block = np.where(np.isnan(block), fill, block)
        prepared[start : start + _BLOCK] = (block - mean) / scale
    return prepared


def logarithms(X: Any, log: Sequence[int]) -> NDArray[np.float64]:
    """A copy of the rows, with the logarithms of some columns."""
    block = np.array(X, dtype=np.float64)
    for column in log:
        values = block[:, column]
        if (values <= 0).any():
            raise InputError(
                f"column {column} (counted from 0) holds numbers that are not above 0, which have "
                f"no logarithm; leave it out of log="
            )
        block[:, column] = np.log(values)
    return block
