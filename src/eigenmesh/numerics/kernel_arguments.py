"""What kernels are functions of: inner products, distances and cosines of rows, block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import (
    Floats,
    Rows,
    as_rows,
    blocks,
    dense,
    is_sparse,
    raw_rows,
    squared_norms,
    working_dtype,
)

Argument: TypeAlias = Literal["inner", "distance", "manhattan", "cosine"]

_MIRROR_ROWS = 128


def _fill_distances(X: Rows, Y: Rows, out: Floats) -> None:
    if is_sparse(X) or is_sparse(Y):
        _fill_sparse_distances(X, Y, out)
    else:
        _fill_dense_distances(X, Y, out)
    np.maximum(out, 0, out=out)


def _fill_dense_distances(X: Floats, Y: Floats, out: Floats) -> None:
    # ‖x‖² − 2xᵀy + ‖y‖² cancels digits far from the origin; distances do not feel a common shift.
    shift = Y.mean(axis=0, dtype=np.float64).astype(X.dtype) if len(Y) else 0
    left, right = _with_two_more_columns(X, shift), _with_two_more_columns(Y, shift)
    left[:, -2], left[:, -1] = squared_norms(left[:, :-2]), 1
    right[:, -2], right[:, -1] = 1, squared_norms(right[:, :-2])
    right[:, :-2] *= -2
    # One product adds the norms too and saves passes over the block.
    np.matmul(left, right.T, out=out)


def _with_two_more_columns(X: Floats, shift: Floats | int) -> Floats:
    wide = np.empty((X.shape[0], X.shape[1] + 2), X.dtype)
    np.subtract(X, shift, out=wide[:, :-2])
    return wide


def _fill_sparse_distances(X: Rows, Y: Rows, out: Floats) -> None:
    # No shift: it would fill the zeros.
    _fill_inner_products(X, Y, out)
    out *= -2
    out += squared_norms(X)[:, None]
    out += squared_norms(Y)


def _fill_inner_products(X: Rows, Y: Rows, out: Floats) -> None:
    if not (is_sparse(X) or is_sparse(Y)):
        np.matmul(X, Y.T, out=out)
        return
    out[...] = dense(X @ Y.T if is_sparse(X) else (Y @ X.T).T)


def _fill_manhattan(X: Rows, Y: Rows, out: Floats) -> None:
    if not out.size:
        return
    if is_sparse(X) or is_sparse(Y):
        out[...] = manhattan_distances(_merge_ready(X), _merge_ready(Y))
    else:
        for rows in blocks(len(X)):
            out[rows] = cdist(X[rows], Y, "cityblock")


def _merge_ready(X: Rows) -> Rows:
    """Sorted sparse rows with 32-bit indices, as scikit-learn merges them; X is left alone."""
    X = sp.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    short = (X.data, X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int32, copy=False))
    return sp.csr_array(short, shape=X.shape)


def _fill_cosines(X: Rows, Y: Rows, out: Floats) -> None:
    _fill_inner_products(unit_rows(X), unit_rows(Y), out)
    # An angle below the rounding of its cosine is none: duplicates must be told as such.
    out[out > 1 - 4 * np.finfo(out.dtype).eps] = 1
    np.maximum(out, -1, out=out)


def make_cosines(inner: Floats, left: Floats, right: Floats) -> None:
    """Inner products become cosines, in place; `left` and `right` are squared norms.

    >>> inner = np.array([[2.0]])
    >>> make_cosines(inner, np.array([1.0]), np.array([16.0]))
    >>> inner
    array([[0.5]])
    """
    for norms, shape in ((left, (-1, 1)), (right, (1, -1))):
        sizes = np.sqrt(norms)
        shrink = np.divide(1, sizes, out=np.zeros_like(sizes), where=sizes > 0)
        inner *= shrink.reshape(shape)
    # Sums over parties round a little more than products of unit rows.
    inner[inner > 1 - 64 * np.finfo(inner.dtype).eps] = 1
    np.maximum(inner, -1, out=inner)


def unit_rows(X: Rows) -> Rows:
    """Rows scaled to length 1; rows of zeros stay as they are.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    X = as_rows(X)
    norms = np.sqrt(squared_norms(X))
    shrink = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    if is_sparse(X):
        return sp.csr_array(sp.diags_array(shrink) @ X)
    return X * shrink[:, None]


def norms_of(X: Rows, dtype: np.dtype[Any]) -> Floats:
    """‖x‖ of every row."""
    norms: Floats = np.sqrt(squared_norms(as_rows(X, dtype)))
    return norms


def make_symmetric(K: Floats) -> None:
    """Copy the upper triangle onto the lower, in small squares that stay in cache."""
    for rows in blocks(len(K), _MIRROR_ROWS):
        after, square = slice(rows.stop, None), K[rows, rows]
        K[after, rows] = K[rows, after].T
        np.copyto(square, square.T, where=np.tri(len(square), k=-1, dtype=bool))


def matched(X: Rows, Y: Rows) -> tuple[Rows, Rows]:
    """Both as rows of one dtype and one width."""
    X, Y = raw_rows(X), raw_rows(Y)
    if X.shape[1] != Y.shape[1]:
        raise InputError(
            f"X has {X.shape[1]} columns, Y has {Y.shape[1]}; pass rows of the same features"
        )
    dtype = working_dtype(X, Y)
    return as_rows(X, dtype), as_rows(Y, dtype)


FILL: dict[Argument, Callable[[Rows, Rows, Floats], None]] = {
    "inner": _fill_inner_products,
    "distance": _fill_distances,
    "manhattan": _fill_manhattan,
    "cosine": _fill_cosines,
}
