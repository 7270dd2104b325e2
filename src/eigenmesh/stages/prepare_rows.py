"""Rows prepared as the pooled rows would be: logarithms, gaps filled by means, standardised.

===================  =========================================================================
party keeps          its rows
party reveals        how many rows it has (counts); of every column the sum of the values that
                     are there and how many these are, and, to standardise, the sum of squared
                     differences from the mean of all (moments); masked, only totals are seen
coordinator learns   these; each party learns the columns' means and deviations over all rows
===================  =========================================================================

Each is as in scikit-learn's pipeline of SimpleImputer and StandardScaler on the pooled rows: the
mean of the values that are there fills the gaps, and the deviation is that of the filled columns.
Runs of the same fit then see the prepared rows at each site (`Scope.prepared`); the site's own data
stay as they are. A column of a party that has few values counts as that many rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from eigenmesh.errors import InputError, PartitionError
from eigenmesh.numerics.arrays import Doubles, Rows
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, NonNegative, Positive, Reveals, Shape
from eigenmesh.runtime.party import Party, Worth, step
from eigenmesh.runtime.prepared import logarithms, prepared_rows, store_key
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import Node, Scope, ask, columns, enlist, sequence, total
from eigenmesh.runtime.site import SiteView

_CONSTANT = 10 * np.finfo(np.float64).eps  # of a mean: a deviation that is rounding


@record
@dataclass(frozen=True)
class RowPreparation:
    """What rows are prepared by, column by column, and the name of it at the sites."""

    name: str
    log: tuple[int, ...]
    fill: Doubles
    mean: Doubles
    scale: Doubles
    n_missing: Doubles
    n_rows: int

    def apply(self, X: Rows) -> Doubles:
        """Rows as the model sees them."""
        return prepared_rows(X, self.log, self.fill, self.mean, self.scale)

    def in_words(self, standardized: bool, names: Sequence[str] | None = None) -> str:
        """What was done, for a report."""

        def listed(columns: Any) -> str:
            return ", ".join(str(i) if names is None else repr(str(names[i])) for i in columns)

        deeds = [f"logarithms of {listed(self.log)}"] if self.log else []
        if self.n_missing.any():
            filled = f"{int(self.n_missing.sum()):,} gaps filled by means"
            deeds.append(f"{filled} ({listed(np.flatnonzero(self.n_missing))})")
        deeds += ["standardised"] if standardized else []
        constant = np.flatnonzero((self.scale == 1.0) & standardized)
        also = f"; constant, and so without weight: {listed(constant)}" if len(constant) else ""
        return f"rows were prepared over all parties: {', '.join(deeds) or 'as they are'}{also}"

    def undo(self, X: Doubles) -> Doubles:
        """Rows in their owners' units."""
        rows = np.asarray(X * self.scale + self.mean)
        rows[:, self.log] = np.exp(rows[:, self.log])
        return rows


# What travels.


class PrepareSetup(Message, reveals=None):
    """What is to be done: the columns whose logarithms are taken, as "0,3", and the rest."""

    log: str
    standardize: bool
    fill_missing: float | None


class ColumnSums(Message, reveals="moments"):
    """Of every column, the sum of the values that are there, and how many these are."""

    n_rows: Annotated[int, Reveals("counts"), Positive]
    n_present: Annotated[Floats, Shape("d"), NonNegative]
    sums: Annotated[Floats, Shape("d")]


class ColumnMeans(Message, reveals="moments"):
    """The columns' means over all rows."""

    means: Annotated[Floats, Shape("d")]


class ColumnSquares(Message, reveals="moments"):
    """Of every column, the sum of squared differences from the mean of all."""

    squares: Annotated[Floats, Shape("d"), NonNegative]


class ColumnScales(Message, reveals="moments"):
    """What fills the gaps, what is subtracted, and what is divided by."""

    fill: Annotated[Floats, Shape("d")]
    mean: Annotated[Floats, Shape("d")]
    scale: Annotated[Floats, Shape("d"), NonNegative]


# The party's side.


def _values_behind(party: Any, reply: Any) -> Worth:
    """The fewest values behind a sum; a column without any tells nothing."""
    present = party.n_present
    return Worth(covers=int(present[present > 0].min(initial=len(party.site.data))))


class RowPreparer(Party):
    """Holds rows that are to be prepared."""

    Setup: ClassVar[type[Message]] = PrepareSetup

    def __init__(self, site: SiteView, setup: PrepareSetup) -> None:
        super().__init__(site, setup)
        self._log = _positions(setup.log)

    @property
    def n_present(self) -> Doubles:
        """Values of every column that are there."""
        n_values: Doubles = np.count_nonzero(~np.isnan(self.site.data), axis=0).astype(np.float64)
        return n_values

    @step(reusable=False, worth=_values_behind)
    def column_sums(self) -> ColumnSums:
        """Sums over the own rows."""
        X = self._rows()
        n, n_present = X.shape[0], self.n_present
        if self.setup.fill_missing is None and (n_present < n).any():
            column = int(np.argmax(n_present < n))
            raise self._refuse(
                f"lacks {n - int(n_present[column])} values in column {column} (counted from 0), "
                f"expected none; pass fill_missing=share, the most that a column may lack"
            )
        return ColumnSums(n_rows=n, n_present=n_present, sums=np.nansum(X, axis=0))

    @step(reusable=False, worth=_values_behind)
    def column_squares(self, common: ColumnMeans) -> ColumnSquares:
        """Squared differences from the mean of all; a filled gap has none."""
        return ColumnSquares(squares=np.nansum(np.square(self._rows() - common.means), axis=0))

    @step(reusable=False)
    def take_scales(self, scales: ColumnScales) -> None:
        """From here on runs of this fit see the rows prepared."""
        name = name_of(self._log, self.setup.standardize, self.setup.fill_missing)
        own = {"fill": scales.fill, "mean": scales.mean, "scale": scales.scale}
        if (scales.scale <= 0).any():
            raise InputError("a scale is not above 0, which no deviation is")
        log = np.array(self._log, dtype=np.int64)
        self.site.keep(store_key(name), {"log": log, **own})

    def _rows(self) -> Doubles:
        X = self.site.data
        if hasattr(X, "tocsr"):
            raise self._refuse("has sparse rows, which preparing would fill; pass dense ones")
        if any(column >= X.shape[1] for column in self._log):
            raise self._refuse(f"has {X.shape[1]} columns, and log= names one beyond")
        try:
            return logarithms(X, self._log)
        except InputError as error:
            raise self._refuse(f"has bad rows: {error.reason}") from None

    def _refuse(self, complaint: str) -> PartitionError:
        party = self.site.name
        return PartitionError(f"party {party!r} {complaint}", party=party)


def _positions(log: str) -> tuple[int, ...]:
    return tuple(int(column) for column in log.split(",") if column)


def name_of(log: Sequence[int], standardize: bool, fill_missing: float | None) -> str:
    """The name of a preparation at the sites: the same for all fits that prepare alike."""
    words = repr((tuple(log), bool(standardize), fill_missing)).encode()
    return hashlib.sha256(words).hexdigest()[:16]


# The coordinator's side.


def schedule(
    scope: Scope, log: tuple[int, ...], standardize: bool, fill_missing: float | None
) -> Node:
    """Two sums, and what came of them goes down."""
    party = RowPreparer
    squares = [total(party.column_squares, d=columns)] if standardize else []
    return sequence(
        enlist(party, _setup(log, standardize, fill_missing)),
        total(party.column_sums, d=columns),
        *squares,
        ask(party.take_scales, d=columns),
    )


def _setup(log: Sequence[int], standardize: bool, fill_missing: float | None) -> PrepareSetup:
    words = ",".join(map(str, log))
    return PrepareSetup(log=words, standardize=standardize, fill_missing=fill_missing)


@protocol("prepare-rows", roles=(RowPreparer,), schedule=schedule)
def prepare_rows(
    rows: Federation, log: tuple[int, ...], standardize: bool, fill_missing: float | None
) -> RowPreparation:
    """Learn from all rows how each is prepared, and tell every party."""
    rows.enlist(RowPreparer, _setup(log, standardize, fill_missing))
    sums = rows.total(RowPreparer.column_sums).sum
    n, missing = sums.n_rows, np.maximum(sums.n_rows - np.round(sums.n_present), 0.0)
    _require_share(missing / n, fill_missing)
    means = sums.sums / np.round(sums.n_present)
    mean, scale = np.zeros_like(means), np.ones_like(means)
    if standardize:
        squares = rows.total(RowPreparer.column_squares, ColumnMeans(means=means)).sum.squares
        deviation = np.sqrt(np.maximum(squares, 0.0) / n)
        # A constant column has nothing but rounding to scale up.
        constant = deviation <= _CONSTANT * np.abs(means)
        mean, scale = means, np.where(constant, 1.0, deviation)
    rows.ask(RowPreparer.take_scales, ColumnScales(fill=means, mean=mean, scale=scale))
    name = name_of(log, standardize, fill_missing)
    return RowPreparation(name, tuple(log), means, mean, scale, missing, int(n))


def _require_share(missing: Doubles, most: float | None) -> None:
    worst = int(np.argmax(missing))
    if missing[worst] <= (most or 0.0) and missing[worst] < 1.0:
        return
    remedy = "drop the column" if missing[worst] == 1.0 else "raise fill_missing or drop the column"
    raise InputError(
        f"column {worst} (counted from 0) lacks {missing[worst]:.1%} of its values over all "
        f"parties, at most {most or 0.0:.1%} are expected; {remedy}"
    )
