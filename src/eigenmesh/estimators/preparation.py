"""How rows are prepared before a fit, and at every transform after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.estimators.checks import share_of_missing
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.prepare_rows import prepare_rows


@dataclass(frozen=True)
class Preparation:
    """What is done to rows first, as if they were pooled; for `preparation=` of the front doors.

    Logarithms are taken, then gaps are filled, then columns are standardised; by sums over the
    parties, masked where sums are. It is part of the model, and applied by `transform`.

    Parameters
    ----------
    standardize : subtract each column's mean and divide by its standard deviation, over all rows.
    fill_missing : the largest share of a column that may be missing (NaN) over all parties; gaps
        get the mean of the values that are there. None lets none be missing. A `Partitioned` takes
        NaN with ``allow_missing=True``.
    log : columns whose natural logarithm is taken, by name or number; they must be above 0.

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

    def __post_init__(self) -> None:
        if not isinstance(self.standardize, bool):
            raise InputError(f"standardize is {self.standardize!r}; True or False is expected")
        share_of_missing(self.fill_missing)
        if isinstance(self.log, str):
            raise InputError(f"log is {self.log!r}; a list of columns is expected")
        object.__setattr__(self, "log", tuple(self.log))

    def stage(self, names: Sequence[str] | None) -> Stage:
        """The run that learns it from parties whose columns have these names."""
        log = tuple(sorted({self._position(column, names) for column in self.log}))
        return stage(prepare_rows, log, self.standardize, self.fill_missing)

    @staticmethod
    def _position(column: str | int, names: Sequence[str] | None) -> int:
        if isinstance(column, int) and not isinstance(column, bool) and column >= 0:
            return column
        if names is None or list(names).count(str(column)) != 1:
            few = "have no names here" if names is None else f"are {', '.join(list(names)[:10])}"
            raise InputError(
                f"log names the column {column!r}, and the columns {few}; name one of them, or "
                f"pass its number, from 0"
            )
        return list(names).index(str(column))

    def to_tree(self) -> dict[str, Any]:
        """For files."""
        own = {"standardize": self.standardize, "fill_missing": self.fill_missing}
        return {**own, "log": list(self.log)}


def checked_preparation(value: Any) -> Preparation | None:
    """The preparation of a front door, or `InputError`."""
    if value is None or isinstance(value, Preparation):
        return value
    raise InputError(f"preparation is {value!r}; em.Preparation(...) or None is expected")
