"""What an owner does to its own columns before anything is computed from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, is_sparse


@dataclass(frozen=True)
class ColumnPreparation:
    """Missing values become `fill`; then `mean` is subtracted and the rest divided by `scale`.

    >>> X = np.array([[1.0], [np.nan], [3.0]])
    >>> ColumnPreparation.of(X, standardize=True, fill_missing=0.5).apply(X).ravel().round(3)
    array([-1.225,  0.   ,  1.225])
    """

    fill: Doubles | None  # (m,); None where nothing may be missing
    mean: Doubles  # (m,)
    scale: Doubles  # (m,)

    @classmethod
    def of(cls, X: Rows, standardize: bool, fill_missing: float | None) -> Self:
        """Learnt from training columns; of a column at most a share `fill_missing` may be NaN."""
        X = as_rows(X, np.float64)
        present = _present(X)
        _require_share(1.0 - present / X.shape[0], fill_missing)
        m, means = X.shape[1], _column_sums(X) / present
        fill = None if fill_missing is None else means
        if not standardize:
            return cls(fill, np.zeros(m), np.ones(m))
        if is_sparse(X):
            raise InputError(
                "standardize=True subtracts means, which would fill a sparse matrix; pass a dense "
                "array, or scale the columns first, e.g. with sklearn's MaxAbsScaler"
            )
        # Of the columns as the model sees them: by the spread of what is there alone, a column
        # would count the less the more of it is filled.
        scale = _fill_gaps(X, fill).std(axis=0)
        # A constant column has nothing but rounding to scale up.
        scale[scale <= 10 * np.finfo(np.float64).eps * np.abs(means)] = 1.0
        return cls(fill, means, scale)

    def apply(self, X: Rows) -> Rows:
        """Columns as the model sees them; sparse ones stay sparse."""
        X = _fill_gaps(as_rows(X, np.float64), self.fill)
        return X if is_sparse(X) else (X - self.mean) / self.scale

    def undo(self, X: Doubles) -> Doubles:
        """Columns in their owner's units."""
        return np.asarray(X * self.scale + self.mean)


def _present(X: Rows) -> Doubles:
    """Values of every column that are there."""
    if is_sparse(X):
        missing = np.bincount(X.indices[np.isnan(X.data)], minlength=X.shape[1])
        return np.asarray(X.shape[0] - missing, dtype=np.float64)
    return np.asarray(np.count_nonzero(~np.isnan(X), axis=0), dtype=np.float64)


def _column_sums(X: Rows) -> Doubles:
    if is_sparse(X):
        sums = np.bincount(X.indices, np.nan_to_num(X.data), minlength=X.shape[1])
        return np.asarray(sums, dtype=np.float64)
    return np.asarray(np.nansum(X, axis=0))


def _fill_gaps(X: Rows, fill: Doubles | None) -> Rows:
    missing = np.isnan(X.data if is_sparse(X) else X)
    if not missing.any():
        return X
    if fill is None:
        raise InputError(
            "values are missing (NaN), expected none; fit with fill_missing=share, or impute first"
        )
    if is_sparse(X):
        X = X.copy()
        X.data[missing] = fill[X.indices[missing]]
        return X
    return np.where(missing, fill, X)


def _require_share(missing: Doubles, most: float | None) -> None:
    worst = int(np.argmax(missing))
    if missing[worst] <= (most or 0.0) and missing[worst] < 1.0:
        return
    remedy = "drop the column" if missing[worst] == 1.0 else "raise fill_missing or drop the column"
    raise InputError(
        f"column {worst} (counted from 0) lacks {missing[worst]:.1%} of its values, at most "
        f"{most or 0.0:.1%} are expected; {remedy}"
    )
