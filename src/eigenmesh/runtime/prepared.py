"""Rows as a study before has prepared them: one rule, at the sites and wherever rows are scored."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import InputError
from eigenmesh.runtime.levels import keys_of
from eigenmesh.runtime.records import record

OTHER = -1  # stands for all levels of a category that have no column of their own
_BLOCK = 1 << 21  # values at a time
_MOST_IN_MEMORY = 1 << 26  # bytes of prepared rows; what is more lies in an unnamed file

Doubles = NDArray[np.float64]
Whole = NDArray[np.int64]


def store_key(name: str) -> str:
    """Where a site keeps what rows are prepared by."""
    return f"rows prepared: {name}"


@record
@dataclass(frozen=True)
class RowRule:
    """What is done to rows; positions are of columns as the owners have them.

    Of the columns `kept`, logarithms are taken where they are in `log`, gaps become `fill`, and the
    rest is (x - mean) / scale. Behind them is a column for each entry of `level_keys`: 1 where the
    column `level_columns` has that level, or for `OTHER` one that is not listed. Columns that are
    in neither are left out.

    >>> rule = RowRule.of([0], [0, 1], fill=[0.5, 0], mean=[0, 5], scale=[1, 2])
    >>> rule.apply(np.array([[1.0, 4.0], [np.nan, 6.0]])).tolist()
    [[0.0, -0.5], [0.5, 0.5]]
    """

    log: Whole
    kept: Whole
    fill: Doubles  # of the kept columns, as are the next two
    mean: Doubles
    scale: Doubles
    level_columns: Whole
    level_keys: Whole

    @classmethod
    def of(
        cls,
        log: Any,
        kept: Any,
        fill: Any,
        mean: Any,
        scale: Any,
        level_columns: Any = (),
        level_keys: Any = (),
    ) -> Self:
        """From plain lists."""
        whole = {"log": log, "kept": kept, "level_columns": level_columns, "level_keys": level_keys}
        own: dict[str, Any] = {name: np.asarray(x, dtype=np.int64) for name, x in whole.items()}
        numbers = {"fill": fill, "mean": mean, "scale": scale}
        own |= {name: np.asarray(x, dtype=np.float64) for name, x in numbers.items()}
        return cls(**own)

    @classmethod
    def kept_as(cls, share: Mapping[str, Any]) -> Self:
        """The rule that a site keeps."""
        return cls(**{name: share[name] for name in FIELDS})

    @property
    def width(self) -> int:
        """Columns of prepared rows."""
        return len(self.kept) + len(self.level_keys)

    @property
    def digest(self) -> str:
        """Of all its numbers."""
        parts = [np.ascontiguousarray(getattr(self, name)).tobytes() for name in FIELDS]
        return hashlib.sha256(b"|".join(parts)).hexdigest()

    def apply(self, X: Any) -> Any:
        """Prepared rows; sparse ones stay sparse, and many lie in a file without a name."""
        if hasattr(X, "tocsr"):
            return self._apply_to_sparse(X)
        prepared = _room((X.shape[0], self.width))
        for start, block in row_blocks(X):
            prepared[start : start + len(block)] = self._apply_to_block(block)
        return prepared

    def _apply_to_block(self, X: Any) -> Doubles:
        rows = logarithms(X, self.log)[:, self.kept]
        rows = (np.where(np.isnan(rows), self.fill, rows) - self.mean) / self.scale
        return np.hstack([rows, self._levels_of(X)]) if len(self.level_keys) else rows

    def _levels_of(self, X: Any) -> Doubles:
        columns = np.zeros((len(X), len(self.level_keys)))
        for column in np.unique(self.level_columns):
            own = np.flatnonzero(self.level_columns == column)
            keys, listed = keys_of(X[:, column]), self.level_keys[own]
            columns[:, own] = keys[:, None] == listed
            columns[np.ix_(~np.isin(keys, listed), own[listed == OTHER])] = 1.0
        return columns

    def _apply_to_sparse(self, X: Any) -> Any:
        if self.mean.any() or len(self.log) or len(self.level_keys):
            raise InputError(
                "the rows are sparse, and the model was fitted to dense ones, whose means are "
                "subtracted: this would fill them; pass dense rows"
            )
        rows = X.tocsr()[:, self.kept].astype(np.float64)
        gaps = np.isnan(rows.data)
        rows.data[gaps] = self.fill[rows.indices[gaps]]
        rows.data /= self.scale[rows.indices]
        return rows

    def undo(self, X: Doubles, usual: Doubles) -> Doubles:
        """Rows in their owners' units and columns; those that are not kept are as usual."""
        rows = np.tile(usual, (X.shape[0], 1))
        rows[:, self.kept] = X[:, : len(self.kept)] * self.scale + self.mean
        logs = np.intersect1d(self.log, self.kept)
        rows[:, logs] = np.exp(rows[:, logs])
        return rows


FIELDS = tuple(own.name for own in fields(RowRule))  # of what a site keeps


def row_blocks(X: Any) -> Iterator[tuple[int, Any]]:
    """Some rows at a time, with the number of the first."""
    step = max(1, _BLOCK // max(1, X.shape[1]))
    for start in range(0, X.shape[0], step):
        yield start, X[start : start + step]


def sum_over_blocks(X: Any, of_block: Callable[[Any], Any]) -> Any:
    """The sum of what blocks of rows give."""
    parts = (of_block(block) for _, block in row_blocks(X))
    total = next(parts)
    for part in parts:
        total = total + part
    return total


def logarithms(X: Any, log: Any) -> Doubles:
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


def _room(shape: tuple[int, int]) -> Doubles:
    if 8 * shape[0] * shape[1] <= _MOST_IN_MEMORY:
        return np.empty(shape)
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the map outlives this
    file.truncate(8 * shape[0] * shape[1])
    return np.memmap(file, dtype=np.float64, mode="r+", shape=shape)
