"""Columns that are not what a fit takes them for: ids, and numbers that stand for gaps.

Ids are whole numbers, no two alike, in a row or named so. Gaps are nines (-9, -99, 999 and the
like) where no other value is near.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigenmesh.data.partitioned import Partitioned
from eigenmesh.data.table import Matrix, is_sparse
from eigenmesh.errors import EigenmeshError, EigenmeshWarning
from eigenmesh.runtime.federation import Federation

FEWEST_ROWS = 20  # fewer may be consecutive numbers by chance, or be an example
_GLANCE = 32  # rows that rule most columns out

_WORDS = frozenset(
    "id ids pid identifier uuid guid mrn ssn key nr no number index idx record patient subject "
    "person sample case row".split()
)
_OWNERS = (
    "patient person subject subj user sample case record customer client visit row admission "
    "encounter episode specimen patienten personen probanden kunden fall aufnahme"
).split()
_ENDING = re.compile(rf"({'|'.join(_OWNERS)})_?(id|nr|no|number|nummer|key)$|nummer$")


_NINES = np.array([float(sign * (10**digits - 1)) for digits in range(1, 7) for sign in (1, -1)])
_FEWEST_LEVELS = 3  # among the others: of two values either may be the odd one
_LOOKED_AT = 2048  # rows, evenly spaced, in which a fit looks for gaps
CONSECUTIVE = "consecutive numbers"
_BY_NAME = "numbers of which no two are alike, under such a name"
_SHOWN = 3  # parties that a warning names
_GAPS = "write such cells as NaN, and have them filled (fill_missing)"


class IdColumn(NamedTuple):
    """A feature that looks like an id."""

    column: int
    parties: tuple[str, ...]
    reason: str

    @property
    def words(self) -> str:
        """What is odd about it."""
        return f"looks like an id, and is used as a feature: {self.reason}"


class GapColumn(NamedTuple):
    """A feature some of whose numbers look like gaps."""

    column: int
    parties: tuple[str, ...]
    nines: tuple[float, ...]

    @property
    def words(self) -> str:
        """What is odd about it."""
        values = " and ".join(f"{value:g}" for value in self.nines)
        return f"has {values} where no other value is near, used as a number: a gap, mostly"


def odd_columns(
    parts: Mapping[str, Matrix], split: str, names: Mapping[str, Sequence[str] | None]
) -> list[IdColumn | GapColumn]:
    """All of them, of parties' data."""
    return [*id_columns(parts, split, names), *gap_columns(parts)]


def id_columns(
    parts: Mapping[str, Matrix], split: str, names: Mapping[str, Sequence[str] | None]
) -> list[IdColumn]:
    """The columns of parties' data that look like ids; of rows also where all parties share them.

    >>> X = np.column_stack([np.arange(100, 130), np.linspace(0, 1, 30)])
    >>> id_columns({"north": X}, "rows", {"north": ("patient", "dose")})
    [IdColumn(column=0, parties=('north',), reason='consecutive numbers')]
    """
    candidates = {party: _counting_columns(X) for party, X in parts.items() if not is_sparse(X)}
    suspects = []
    for column in sorted({column for own in candidates.values() for column in own}):
        holders = {party: own[column] for party, own in candidates.items() if column in own}
        sounds_so = {party: _is_named_so(names.get(party), column) for party in holders}
        reasons = {party: _reason(holders[party], sounds_so[party]) for party in holders}
        if split == "rows":  # it is one column, which no single party may tell
            whole = _reason(np.concatenate(list(holders.values())), any(sounds_so.values()))
            fallback = whole if len(holders) == len(parts) else ""
            reasons = dict.fromkeys(holders, next(filter(None, reasons.values()), fallback))
        suspects += [
            IdColumn(column, tuple(p for p, own in reasons.items() if own == reason), reason)
            for reason in dict.fromkeys(filter(None, reasons.values()))
        ]
    return suspects


def _counting_columns(X: Matrix) -> dict[int, NDArray[np.float64]]:
    """The columns that hold whole numbers, no two alike."""
    head = np.asarray(X[:_GLANCE], dtype=np.float64)
    whole = np.flatnonzero(_is_whole(head).all(axis=0))
    if not len(whole):  # of measurements, none: many small parties end here
        return {}
    likely = whole[_differ(head[:, whole])]
    columns = {int(j): np.asarray(X[:, j], dtype=np.float64) for j in likely}
    return {j: c for j, c in columns.items() if _is_counted(c)}


def _is_whole(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray(values == np.floor(values))


def _differ(head: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray((np.diff(np.sort(head, axis=0), axis=0) > 0).all(axis=0))


def _is_counted(column: NDArray[np.float64]) -> bool:
    return bool(_is_whole(column).all()) and len(np.unique(column)) == len(column)


def _reason(column: NDArray[np.float64], sounds_so: bool) -> str:
    """Why these look like ids; empty if they do not."""
    if len(column) < FEWEST_ROWS or not _is_counted(column):
        return ""
    if column.max() - column.min() == len(column) - 1:
        return CONSECUTIVE
    return _BY_NAME if sounds_so else ""


def _is_named_so(names: Sequence[str] | None, column: int) -> bool:
    return names is not None and sounds_like_id(names[column])


def sounds_like_id(name: str) -> bool:
    """Whether a column's name is that of an id.

    >>> [sounds_like_id(name) for name in ("patient_id", "PatientID", "Case No.", "acid", "age")]
    [True, True, True, False, False]
    >>> sounds_like_id("number_of_cells")
    False
    """
    text = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()
    words = re.findall(r"[a-z]+", text)
    if words[1:2] == ["of"]:  # the number of something is no id
        return False
    return any(word in _WORDS or _ENDING.search(word) for word in words)


def gap_columns(parts: Mapping[str, Matrix]) -> list[GapColumn]:
    """The columns of parties' data in which nines look like gaps, by some of the rows.

    9 is not taken for one: among small counts it may be a count.

    >>> X = np.column_stack([np.arange(30.0), np.r_[-999.0, np.linspace(60, 90, 29)]])
    >>> gap_columns({"north": X})
    [GapColumn(column=1, parties=('north',), nines=(-999.0,))]
    """
    nines: dict[int, dict[str, set[float]]] = {}
    for party, X in parts.items():
        if is_sparse(X) or not min(X.shape):
            continue
        sample = np.asarray(X[:: -(-X.shape[0] // _LOOKED_AT)])
        ends = _ends(sample)
        if not _is_whole(ends).any():  # as nines are
            continue
        for column in np.flatnonzero(np.isin(ends, _NINES).any(axis=0)):
            values = sample[:, column].astype(np.float64)
            gaps = values[gaps_as_nines(values)]
            if len(gaps := gaps[gaps != 9]):
                nines.setdefault(int(column), {})[party] = set(gaps.tolist())
    return [
        GapColumn(column, tuple(holders), tuple(sorted(set().union(*holders.values()))))
        for column, holders in sorted(nines.items())
    ]


def _ends(sample: NDArray[Any]) -> NDArray[Any]:
    """The least and the largest of each column: nines far from all others are among them."""
    least, largest = np.minimum.reduce(sample), np.maximum.reduce(sample)
    if np.isnan(least).any():  # those that leave NaN out take several times as long
        least, largest = np.fmin.reduce(sample), np.fmax.reduce(sample)
    return np.stack([least, largest])


def gaps_as_nines(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Where a column has nines that are none of its values: no other is near them.

    Nines count as a gap if they are farther from the others than these are from each other, or
    are the only numbers below 0.

    >>> gaps_as_nines(np.array([61.0, 25.0, -999.0, 70.0, 99.0, 48.0])).tolist()
    [2]
    """
    is_nine = np.isin(values, _NINES)
    others = values[~is_nine & ~np.isnan(values)]
    if not is_nine.any() or len(np.unique(others)) < _FEWEST_LEVELS:
        return np.empty(0, dtype=np.intp)
    low, high = others.min(), others.max()
    spread = high - low
    far = (values < low - spread) | (values > high + spread)
    alone_below = (values < 0) & (low >= 0)
    return np.flatnonzero(is_nine & (far | alone_below))


# Warnings of them.


def warn_of_columns(X: Matrix, names: Sequence[str] | None) -> tuple[str, ...]:
    """Of one array's columns; gives the words."""
    caveats = []
    for odd in odd_columns({"": X}, "rows", {"": names}):
        label = _label(names, odd.column)
        index = "" if names is None else f", or make it the index: X.set_index({label})"
        caveats.append(_warn(f"column {label}", odd, f"leave it out{index}"))
    return tuple(caveats)


def warn_of_columns_of_parties(
    source: Any, names: Mapping[str, Sequence[str] | None]
) -> tuple[str, ...]:
    """Of the columns of parties whose data are in this process; once for a federation.

    Gives the words.
    """
    caveats, data, split = [], _held(source), getattr(source, "split", "rows")
    nameless = [name for name in data if names.get(name) is None]
    if split == "rows" and 0 < len(nameless) < len(data):
        caveats.append(_by_places(data, nameless))
        warnings.warn(caveats[-1], EigenmeshWarning, stacklevel=4)
    for odd in odd_columns(data, split, names):
        own = names.get(odd.parties[0])
        label = _label(own, odd.column)
        remedy = "leave it out and pass it as sample_ids="
        if own is not None:
            remedy = f"pass id_column={label} with the data, or leave it out"
        caveats.append(_warn(f"column {label} of {_listed(odd.parties)}", odd, remedy))
    return tuple(caveats)


def _by_places(data: Mapping[str, Matrix], nameless: Sequence[str]) -> str:
    named = [name for name in data if name not in nameless]
    has, its = ("have", "their") if len(nameless) > 1 else ("has", "its")
    return (
        f"{_listed(nameless)} {has} no names of columns, which {_listed(named)} "
        f"{'have' if len(named) > 1 else 'has'}: {its} columns are taken by their places, and in "
        f"another order the answer is wrong; name them (a DataFrame, a first line of names)"
    )


def _held(source: Any) -> dict[str, Matrix]:
    opens: dict[str, Callable[[], Matrix]] = {}
    if isinstance(source, Partitioned):
        opens = {name: partial(source.part, i) for i, name in enumerate(source.names)}
    elif isinstance(source, Federation) and "ids" not in source.remarks:
        source.remarks["ids"] = ""
        opens = {
            name: partial(getattr, site, "data") for name, site in source.local_sites().items()
        }
    data = {}
    for name, open_data in opens.items():
        with suppress(EigenmeshError):  # the fit will say what is wrong, or do without the party
            data[name] = open_data()
    return data


def _label(names: Sequence[str] | None, column: int) -> str:
    return f"{column} (counted from 0)" if names is None else repr(str(names[column]))


def _listed(parties: Sequence[str]) -> str:
    shown = ", ".join(map(repr, parties[:_SHOWN]))
    more = f" and {len(parties) - _SHOWN} more" if len(parties) > _SHOWN else ""
    return f"part{'ies' if len(parties) > 1 else 'y'} {shown}{more}"


def _warn(where: str, odd: IdColumn | GapColumn, remedy_of_ids: str) -> str:
    remedy = remedy_of_ids if isinstance(odd, IdColumn) else _GAPS
    words = f"{where} {odd.words}; {remedy}"
    warnings.warn(words, EigenmeshWarning, stacklevel=5)
    return words
