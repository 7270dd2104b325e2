"""What was learnt of rows that are to be prepared: part of the model, and of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows
from eigenmesh.runtime.levels import word_of
from eigenmesh.runtime.prepared import OTHER, RowRule
from eigenmesh.runtime.records import record


@record
@dataclass(frozen=True)
class RowPreparation:
    """How rows are prepared, under which name sites keep it, and what it was learnt from."""

    name: str
    rule: RowRule
    usual: Doubles  # what every column is on average, in its owners' units; 0 for categories
    n_rows: int
    n_missing: Doubles  # of every column
    fill_with: str
    standardized: bool
    centred: bool  # whether means were subtracted, which would fill sparse rows
    constant: tuple[int, ...]  # columns that are left out
    levels: tuple[str, ...]  # of the columns behind the numbers, as far as they are known here
    withheld: tuple[int, ...]  # categories of which parties kept levels of few rows to themselves
    n_withheld: int  # rows of such levels

    @property
    def n_columns(self) -> int:
        """Of rows as their owners have them."""
        return len(self.usual)

    @property
    def width(self) -> int:
        """Columns of prepared rows."""
        return self.rule.width

    def apply(self, X: Rows) -> Any:
        """Rows as the model sees them."""
        return self.rule.apply(X)

    def undo(self, X: Doubles) -> Doubles:
        """Rows in their owners' units and columns; categories are 0."""
        return self.rule.undo(X, self.usual)

    def restore(self, X: Doubles) -> Any:
        """The same, with the level of each category whose column is largest, words or numbers."""
        rows: Any = self.undo(X)
        for column in dict.fromkeys(self.rule.level_columns.tolist()):
            own = np.flatnonzero(self.rule.level_columns == column)
            levels = np.array([self.levels[i] for i in own], dtype=object)
            rows = rows.astype(object)
            rows[:, column] = levels[X[:, len(self.rule.kept) + own].argmax(axis=1)]
        return rows

    def names_out(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        """Names of the prepared columns: "age", "ward = A", "ward = other"."""
        every = [str(i) for i in range(self.n_columns)] if names is None else list(map(str, names))
        columns = [every[i] for i in self.rule.kept.tolist()]
        pairs = zip(self.rule.level_columns.tolist(), self.levels, strict=True)
        return (*columns, *(f"{every[i]} = {level}" for i, level in pairs))

    def in_words(self, names: Sequence[str] | None = None) -> str:
        """What was done, for a report."""

        def listed(columns: Any) -> str:
            return ", ".join(str(i) if names is None else repr(str(names[i])) for i in columns)

        log = self.rule.log.tolist()
        deeds = [f"logarithms of {listed(log)}"] if log else []
        if self.n_missing.any():
            filled = f"{int(self.n_missing.sum()):,} gaps filled by {self.fill_with}s"
            deeds.append(f"{filled} ({listed(np.flatnonzero(self.n_missing))})")
        if self.standardized:
            deeds.append("standardised" if self.centred else _NOT_CENTRED)
        deeds += [
            f"{listed([column])} in {int((self.rule.level_columns == column).sum())} columns of "
            f"levels ({self._levels_in_words(column)})"
            for column in dict.fromkeys(self.rule.level_columns.tolist())
        ]
        also = f"; constant, and so left out: {listed(self.constant)}" if self.constant else ""
        if self.withheld:
            also += (
                f"; {self.n_withheld:,} rows of {listed(self.withheld)} have levels that their "
                f"parties do not tell, having few of them, and count as other: pooled, some of "
                f"these levels might have had a column of their own"
            )
        return f"rows were prepared over all parties: {', '.join(deeds) or 'as they are'}{also}"

    def _levels_in_words(self, column: int) -> str:
        pairs = zip(self.rule.level_columns.tolist(), self.levels, strict=True)
        own = [level for i, level in pairs if i == column]
        more = f" and {len(own) - _SHOWN} more" if len(own) > _SHOWN else ""
        return ", ".join(own[:_SHOWN]) + more


_SHOWN = 8  # levels of a category that a report lists
_NOT_CENTRED = "divided by deviations (means are not subtracted: rows are sparse)"


def level_words(keys: Sequence[int]) -> tuple[str, ...]:
    """Levels as this process knows them, else by their keys."""
    return tuple("other" if key == OTHER else word_of(key) for key in keys)
