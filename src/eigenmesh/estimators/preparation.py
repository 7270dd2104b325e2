"""How rows are prepared before a fit, and at every transform after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eigenmesh.connect import is_dask_collection
from eigenmesh.data.table import frame_with_codes, is_frame
from eigenmesh.errors import InputError
from eigenmesh.estimators.checks import one_of, share_of_missing, whole_number
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.prepare_rows import PrepareSetup, prepare_rows
from eigenmesh.stages.prepare_rows_on_graph import prepare_rows_on_graph

_PLANNED_LEVELS = 4  # of a category


@dataclass(frozen=True)
class Preparation:
    """What is done to rows first, as if they were pooled; for `preparation=` of the front doors.

    Logarithms are taken, gaps are filled, columns of numbers are standardised, and each level of a
    category becomes a column of ones and zeros; by sums over the parties, masked where sums are.
    Constant columns are left out. It is part of the model, and applied by `transform`. On a graph
    medians and categories need sums along a tree, ``averaging="tree"``, which is the default.

    Parameters
    ----------
    standardize : subtract each column's mean and divide by its standard deviation, over all rows.
        Sparse rows are divided only, as by scikit-learn's StandardScaler(with_mean=False).
    fill_missing : the largest share of a column that may be missing (NaN) over all parties; gaps
        get the mean of the values that are there. None lets none be missing. A `Partitioned` takes
        NaN with ``allow_missing=True``.
    log : columns whose natural logarithm is taken, by name or number; they must be above 0.
    fill_with : "mean" or "median"; a median takes 16 more rounds, and tells a value that is there.
    categories : columns whose values are levels, by name or number; a `Partitioned` takes words
        with ``categories=[...]``, too. A gap is a level. As scikit-learn's OneHotEncoder with
        ``min_frequency=min_rows, handle_unknown="infrequent_if_exist"``.
    min_rows : levels of fewer rows over all parties share one column, "other"; as do, after the
        fit, levels that are new, if there is such a column.

    Examples
    --------
    >>> import numpy as np, eigenmesh as em
    >>> X = np.random.default_rng(0).lognormal(size=(60, 3)) * [1, 100, 1e4]
    >>> parts = em.Partitioned(rows=[X[:40], X[40:]])
    >>> prepared = em.KernelPCA(2, preparation=em.Preparation(standardize=True, log=[0])).fit(parts)
    >>> Z = X.copy()
    >>> Z[:, 0] = np.log(Z[:, 0])
    >>> pooled = em.KernelPCA(2).fit((Z - Z.mean(axis=0)) / Z.std(axis=0))
    >>> bool(np.allclose(prepared.eigenvalues_, pooled.eigenvalues_, rtol=1e-10))
    True
    """

    standardize: bool = False
    fill_missing: float | None = None
    log: Sequence[str | int] = ()
    fill_with: str = "mean"
    categories: Sequence[str | int] = ()
    min_rows: int = 5

    def __post_init__(self) -> None:
        if not isinstance(self.standardize, bool):
            raise InputError(f"standardize is {self.standardize!r}; True or False is expected")
        share_of_missing(self.fill_missing)
        one_of(self.fill_with, "fill_with", ("mean", "median"))
        whole_number(self.min_rows, "min_rows")
        for name in ("log", "categories"):
            columns = getattr(self, name)
            if isinstance(columns, str):
                raise InputError(f"{name} is {columns!r}; a list of columns is expected")
            object.__setattr__(self, name, tuple(columns))

    def setup(self, names: Sequence[str] | None) -> PrepareSetup:
        """What parties whose columns have these names are asked to do."""
        log, levels = self._positions("log", names), self._positions("categories", names)
        if set(log) & set(levels):
            raise InputError("a column is among log= and categories=; levels have no logarithm")
        return PrepareSetup(
            log=",".join(map(str, log)),
            categories=",".join(map(str, levels)),
            standardize=self.standardize,
            fill_missing=self.fill_missing,
            fill_with=self.fill_with,
            min_rows=self.min_rows,
        )

    def stage(self, names: Sequence[str] | None, on_graph: bool = False) -> Stage:
        """The run that learns it from parties whose columns have these names."""
        setup = self.setup(names)
        return stage(prepare_rows_on_graph if on_graph else prepare_rows, setup)

    def planned_width(self, n_columns: int) -> int:
        """Columns of prepared rows, as a plan counts them: of levels nothing is known yet."""
        return n_columns + (_PLANNED_LEVELS - 1) * len(self.categories)

    def plan_notes(self) -> tuple[str, ...]:
        """What a plan does not know."""
        if self.categories:
            words = (
                f"as if every category had {_PLANNED_LEVELS} levels, and no column were constant"
            )
            return (f"about: {words}",)
        return (
            "as if no column were constant: such are left out, and nobody knows of them before",
        )

    def with_codes(self, X: Any) -> Any:
        """A DataFrame whose categories are codes of their levels; anything else as it is."""
        words = [name for name in self.categories if isinstance(name, str)]
        if not words or not is_frame(X) or is_dask_collection(X):
            return X
        return frame_with_codes(X, words)

    def _positions(self, what: str, names: Sequence[str] | None) -> list[int]:
        return sorted({self._position(column, names, what) for column in getattr(self, what)})

    @staticmethod
    def _position(column: str | int, names: Sequence[str] | None, what: str) -> int:
        if isinstance(column, int) and not isinstance(column, bool) and column >= 0:
            return column
        if names is None and isinstance(column, str) and column.isdecimal():
            return int(column)  # as a command line writes it
        if names is None or list(names).count(str(column)) != 1:
            few = "have no names here" if names is None else f"are {', '.join(list(names)[:10])}"
            raise InputError(
                f"{what} names the column {column!r}, and the columns {few}; name one of them, or "
                f"pass its number, from 0"
            )
        return list(names).index(str(column))

    def to_tree(self) -> dict[str, Any]:
        """For files."""
        return {
            "standardize": self.standardize,
            "fill_missing": self.fill_missing,
            "log": list(self.log),
            "fill_with": self.fill_with,
            "categories": list(self.categories),
            "min_rows": self.min_rows,
        }
