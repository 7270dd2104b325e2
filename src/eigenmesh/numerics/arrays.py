"""What every numeric module asks of its arrays: dtype, finiteness, blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from eigenmesh.errors import InputError

Floats: TypeAlias = NDArray[np.floating[Any]]
Doubles: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = Any
"""Samples in rows: a dense 2-d array, or any scipy-sparse matrix or array."""

Samples: TypeAlias = ArrayLike | sp.spmatrix | sp.sparray
"""Rows of one place as users have them."""

BLOCK_ROWS = 1024
_USUAL: np.dtype[Any] = np.dtype(np.float64)
_USUAL_NAMES = (None, np.float64)


def is_sparse(X: Rows) -> bool:
    """Whether X is a scipy-sparse matrix or array."""
    return type(X) is not np.ndarray and bool(sp.issparse(X))


def working_dtype(*arrays: Rows) -> np.dtype[Any]:
    """float32 when every input is float32 or float16, else float64.

    >>> working_dtype(np.zeros(1, np.float32), np.zeros(1, int))
    dtype('float64')
    """
    dtypes = tuple(array.dtype for array in arrays)
    if all(dtype is _USUAL for dtype in dtypes):  # most are: many small parties ask often
        return _USUAL
    return _common_dtype(dtypes)


@lru_cache(maxsize=64)
def _common_dtype(dtypes: tuple[np.dtype[Any], ...]) -> np.dtype[Any]:
    strange = [str(dtype) for dtype in dtypes if dtype.kind not in "biuf"]
    if strange:
        raise InputError(
            f"dtype {strange[0]} is not real numeric; convert the data to float64 or float32"
        )
    small = all(dtype.kind == "f" and dtype.itemsize <= 4 for dtype in dtypes)
    return np.dtype(np.float32 if small else np.float64)


def as_rows(X: Rows, dtype: Any = None) -> Rows:
    """X as 2-d array or CSR of the dtype, its working dtype unless told; copied only if need be.

    >>> as_rows([[1, 2]])
    array([[1., 2.]])
    """
    if type(X) is np.ndarray and X.ndim == 2 and X.dtype is _USUAL and dtype in _USUAL_NAMES:
        return X
    X = raw_rows(X)
    return X.astype(working_dtype(X) if dtype is None else dtype, copy=False)


def raw_rows(X: Rows) -> Rows:
    """X as 2-d array or CSR with the dtype it has, so that blocks of it can be converted."""
    X = X.tocsr() if is_sparse(X) else np.asarray(X)
    if X.ndim != 2:
        raise InputError(
            f"an array of shape {X.shape} was given where rows of samples are expected; "
            "reshape to (n_samples, n_features)"
        )
    working_dtype(X)
    return X


def dense(X: Rows) -> NDArray[Any]:
    """X as an array, whether sparse or not; an array is not copied.

    >>> dense(sp.csr_array([[0, 2]]))
    array([[0, 2]])
    """
    return np.asarray(X.toarray() if is_sparse(X) else X)


def require_finite(X: Rows, what: str) -> None:
    """Raise InputError if X holds NaN or infinity."""
    entries = X.data if is_sparse(X) else X
    # The sum is finite for nearly all sound input and needs no array of flags.
    with np.errstate(over="ignore", invalid="ignore"):
        suspect = not np.isfinite(entries.sum())
    if suspect and not np.isfinite(entries).all():
        raise InputError(
            f"{what} contains NaN or infinity; finite numbers are expected: impute or drop such "
            f"rows first, or rescale the columns if powers of them overflow"
        )


def largest_value(dtype: Any) -> float:
    """The largest number of a dtype that is taken: its square, and for float64 that of the square,
    is finite, and so are sums of a million of them.

    >>> f"{largest_value(np.float64):g}, {largest_value(np.float32):g}"
    '1e+75, 1e+15'
    """
    return 1e15 if np.dtype(dtype) == np.float32 else 1e75


def require_moderate(X: Rows, what: str) -> None:
    """Raise InputError if X holds NaN, infinity, or numbers whose squares are infinite."""
    require_finite(X, what)
    entries, largest = X.data if is_sparse(X) else X, largest_value(X.dtype)
    extreme = float(np.abs(entries).max(initial=0))
    if extreme > largest:
        raise InputError(
            f"{what} contains {extreme:g}; numbers up to {largest:g} are expected, whose squares "
            f"can be added up in {X.dtype}: rescale them"
        )


def require_square(K: Floats) -> int:
    """The n of an (n, n) matrix, n ≥ 1; InputError for any other shape."""
    if K.ndim != 2 or K.shape[0] != K.shape[1] or not len(K):
        raise InputError(f"a matrix of shape {K.shape} is not square; pass (n, n) with n ≥ 1")
    return len(K)


def blocks(n: int, size: int = BLOCK_ROWS) -> Iterator[slice]:
    """Consecutive slices that cover range(n).

    >>> list(blocks(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def squared_norms(X: Rows) -> Floats:
    """‖x‖² of every row."""
    if is_sparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    norms: Floats = np.einsum("ij,ij->i", X, X)
    return norms
