"""Columns that look like ids: whole numbers, no two alike, in a row or named so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigenmesh.data.table import Matrix, is_sparse

FEWEST_ROWS = 20  # fewer may be consecutive numbers by chance, or be an example
_GLANCE = 32  # rows that rule most columns out

_WORDS = frozenset(
    "id ids pid identifier uuid guid mrn ssn key nr no number index idx record patient subject "
    "person sample case row".split()
)
_OWNERS = "patient person subject subj user sample case record customer client visit row".split()
_ENDING = re.compile(rf"({'|'.join(_OWNERS)})_?(id|nr|no|number|key)$")


_BY_NAME = "numbers of which no two are alike, under such a name"


class IdColumn(NamedTuple):
    """A feature that looks like an id."""

    column: int
    parties: tuple[str, ...]
    reason: str

    @property
    def is_named_so(self) -> bool:
        """Whether it is its name that tells, and not that it counts."""
        return self.reason == _BY_NAME


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
    likely = np.flatnonzero((head == np.floor(head)).all(axis=0) & _differ(head))
    columns = {int(j): np.asarray(X[:, j], dtype=np.float64) for j in likely}
    return {j: c for j, c in columns.items() if _is_counted(c)}


def _differ(head: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray((np.diff(np.sort(head, axis=0), axis=0) > 0).all(axis=0))


def _is_counted(column: NDArray[np.float64]) -> bool:
    whole = bool((column == np.floor(column)).all())
    return whole and len(np.unique(column)) == len(column)


def _reason(column: NDArray[np.float64], sounds_so: bool) -> str:
    """Why these look like ids; empty if they do not."""
    if len(column) < FEWEST_ROWS or not _is_counted(column):
        return ""
    if column.max() - column.min() == len(column) - 1:
        return "consecutive numbers"
    return _BY_NAME if sounds_so else ""


def _is_named_so(names: Sequence[str] | None, column: int) -> bool:
    return names is not None and sounds_like_id(names[column])


def sounds_like_id(name: str) -> bool:
    """Whether a column's name is that of an id.

    >>> [sounds_like_id(name) for name in ("patient_id", "PatientID", "Case No.", "acid", "age")]
    [True, True, True, False, False]
    """
    text = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()
    words = re.findall(r"[a-z]+", text)
    return any(word in _WORDS or _ENDING.search(word) for word in words)
