"""Gram matrices of few rows, as short as that allows: a factor with as many rows.

Σ x xᵀ over m rows of length q has rank m. Its upper triangle is q (q + 1)/2 numbers, and follows
from the m q of a factor R with RᵀR the same, which follows from it: who gets one has the other, and
learns nothing else of the rows. A field that a message marks as `Factored` travels so where that is
shorter; it counts as the triangle that it stands for.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import scipy.linalg

from eigenmesh.errors import MessageRefused

_ROUNDING = 1e-14  # of the largest number, that a factor may be off
_MOST = 4096  # rows of a matrix of which no schedule says how large it may be
_SHARE = 0.75  # of the triangle, that a factor is worth its while with


def to_wire(triangle: Any, n_rows: int) -> Any:
    """What travels of an upper triangle: itself, if a factor is not shorter.

    >>> x = np.arange(1.0, 6.0)
    >>> to_wire(np.outer(x, x)[np.triu_indices(5)], 1)["factor"].shape
    (1, 5)
    """
    is_plain = isinstance(triangle, np.ndarray) and triangle.ndim == 1
    if not is_plain or triangle.dtype != np.float64 or not n_rows > 0:
        return triangle
    q = _size(len(triangle))
    if q is None or n_rows * q > _SHARE * len(triangle) or not np.isfinite(triangle).all():
        return triangle
    upper = np.zeros((q, q))
    upper[np.triu_indices(q)] = triangle
    factor = _factor(upper, n_rows)
    return triangle if factor is None else {"factor": factor}


def from_wire(value: Any, most: int | None) -> Any:
    """The triangle, of at most so many rows; `MessageRefused` if it is none."""
    if not isinstance(value, dict):
        return value
    if value.keys() != {"factor"}:
        _refuse("has no factor")
    factor = value["factor"]
    is_sound = isinstance(factor, np.ndarray) and factor.dtype == np.float64 and factor.ndim == 2
    if not is_sound or not 0 < factor.shape[1] <= (_MOST if most is None else most):
        _refuse("has a factor of no such size")
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused later
        return (factor.T @ factor)[np.triu_indices(factor.shape[1])]


def _size(length: int) -> int | None:
    q = int((np.sqrt(8.0 * length + 1) - 1) / 2)
    return q if q * (q + 1) // 2 == length else None


def _factor(upper: Any, n_rows: int) -> Any:
    """R (m, q), m at most `n_rows`; None where the matrix has no such rank."""
    pivoted, places, rank, _ = scipy.linalg.lapack.dpstrf(upper)
    rank = min(int(rank), n_rows)
    factor = np.empty((rank, len(upper)))
    factor[:, places - 1] = np.triu(pivoted)[:rank]
    largest = float(np.abs(np.diag(upper)).max())
    off = float(np.abs(np.triu(factor.T @ factor) - upper).max())
    return factor if off <= _ROUNDING * largest * len(upper) else None


def _refuse(reason: str) -> NoReturn:
    raise MessageRefused(f"a Gram matrix {reason}")
