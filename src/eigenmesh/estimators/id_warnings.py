"""Warnings of columns that look like ids, where they are used as features."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from eigenmesh.data import Partitioned
from eigenmesh.data.id_columns import IdColumn, id_columns
from eigenmesh.data.table import Matrix
from eigenmesh.errors import EigenmeshError, EigenmeshWarning
from eigenmesh.runtime.federation import Federation

_SHOWN = 3  # parties that a warning names


def warn_of_ids(X: Matrix, names: Sequence[str] | None) -> None:
    """Of one array's columns."""
    for suspect in id_columns({"": X}, "rows", {"": names}):
        label = _label(names, suspect.column)
        index = "" if names is None else f", or make it the index: X.set_index({label})"
        _warn(f"column {label}", suspect, f"leave it out{index}")


def warn_of_ids_of_parties(source: Any, names: Mapping[str, Sequence[str] | None]) -> None:
    """Of the columns of parties whose data are in this process; once for a federation."""
    for suspect in id_columns(_held(source), getattr(source, "split", "rows"), names):
        own = names.get(suspect.parties[0])
        label = _label(own, suspect.column)
        remedy = "leave it out and pass it as sample_ids="
        if own is not None:
            remedy = f"pass id_column={label} with the data, or leave it out"
        _warn(f"column {label} of {_listed(suspect.parties)}", suspect, remedy)


def _held(source: Any) -> dict[str, Matrix]:
    opens: dict[str, Callable[[], Matrix]] = {}
    if isinstance(source, Partitioned):
        opens = {name: partial(source.part, i) for i, name in enumerate(source.names)}
    elif isinstance(source, Federation) and "ids" not in source.remarks:
        source.remarks["ids"] = ""
        opens = {
            name: partial(getattr, site, "data") for name, site in source.local_sites().items()
        }
    held = {}
    for name, open_data in opens.items():
        with suppress(EigenmeshError):  # the fit will say what is wrong, or do without the party
            held[name] = open_data()
    return held


def _label(names: Sequence[str] | None, column: int) -> str:
    return f"{column} (counted from 0)" if names is None else repr(str(names[column]))


def _listed(parties: Sequence[str]) -> str:
    shown = ", ".join(map(repr, parties[:_SHOWN]))
    more = f" and {len(parties) - _SHOWN} more" if len(parties) > _SHOWN else ""
    return f"part{'ies' if len(parties) > 1 else 'y'} {shown}{more}"


def _warn(where: str, suspect: IdColumn, remedy: str) -> None:
    warnings.warn(
        f"{where} looks like an id, and is used as a feature: {suspect.reason}; {remedy}",
        EigenmeshWarning,
        stacklevel=5,
    )
