"""Points rounded to few bits by who has them: any points will do as landmarks.

Each column has a step, a power of two that goes by how far the rows spread. What spreads far less
than the others is not told apart any finer: kernels take distances and products over all columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, is_sparse

_SPREADS = 4.0  # of a column, that so many bits reach from end to end
_LEAST = 1 / 16  # of the columns' usual spread, that a column counts as
_ROWS = 4096  # that show how far all spread
_MOST = 22  # bits: with a few more for what lies far out, these are as good as float32


def rounded_points(points: Rows, rows: Rows, bits: int) -> Rows:
    """`points` that stand for some of `rows`, in about so many bits a number.

    >>> rows = np.array([[0.0, 10.0], [1.0, 30.0], [2.0, 20.0]])
    >>> rounded_points(np.array([[0.4, 19.0], [1.37, 20.6]]), rows, 4)
    array([[ 0.5 , 20.  ],
           [ 1.25, 20.  ]])
    """
    if is_sparse(points):
        values = np.asarray(points.data, np.float64)
        steps = _steps(np.sqrt(np.mean(np.square(values), keepdims=True)), bits)
        data = on_steps(values, steps).astype(_float_type(points))
        return sp.csr_array((data, points.indices, points.indptr), shape=points.shape)
    nearest = on_steps(np.asarray(points, np.float64), column_steps(rows, bits))
    return np.asarray(nearest.astype(_float_type(points)))


def on_steps(points: Doubles, steps: Doubles) -> Doubles:
    """The nearest whole multiples."""
    return np.asarray(np.rint(points / steps) * steps)


def column_steps(rows: Rows, bits: int) -> Doubles:
    """Of each column, by how rows spread in it: powers of two."""
    some = as_rows(rows[:: -(-rows.shape[0] // _ROWS)], np.float64)
    if is_sparse(some):
        squares = np.asarray(some.multiply(some).mean(axis=0)).ravel()
        variances = squares - np.square(np.asarray(some.mean(axis=0)).ravel())
    else:
        variances = some.var(axis=0)
    return steps_of_spreads(np.sqrt(np.maximum(variances, 0.0)), bits)


def steps_of_spreads(spreads: Doubles, bits: int) -> Doubles:
    """Powers of two, for columns with these standard deviations.

    >>> steps_of_spreads(np.array([1.0, 2.0, 0.0]), 8)
    array([0.015625  , 0.03125   , 0.00195312])
    """
    usual = float(np.sqrt(np.mean(np.square(spreads))))
    return _steps(np.maximum(spreads, _LEAST * usual), bits)


def _steps(spreads: Doubles, bits: int) -> Doubles:
    """Where nothing spreads, rows are all alike, and 1 is fine enough for 0 and no other number."""
    reached = np.where(spreads > 0, spreads, np.finfo(float).tiny)
    return np.asarray(2.0 ** np.ceil(np.log2(_SPREADS * reached / 2.0 ** min(bits, _MOST))))


def _float_type(points: Any) -> Any:
    return np.float32 if points.dtype == np.float32 else np.float64
