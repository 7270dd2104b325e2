"""Ids of rows that are there twice, or missing: a join of scores by them doubles or loses rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from eigenmesh.data.partitioned import Partitioned
from eigenmesh.data.table import Ids
from eigenmesh.errors import EigenmeshWarning, InputError


def warn_of_ids(parts: Partitioned) -> tuple[str, ...]:
    """Of parties that hold rows and whose ids were named; columns are refused for such ids.

    Gives the words, in which ids are counted and never told. An index that nobody named may be a
    count of rows.
    """
    if parts.split != "rows" or not parts.has_stated_ids:
        return ()
    ids: dict[str, Ids] = {}
    faults: list[str] = []
    for party, name in enumerate(parts.names):
        try:
            own = parts.part_ids(party)
        except InputError as error:
            faults.append(error.reason)
            continue
        if own is not None:
            ids[name] = own
            faults += _faults_of(name, own)
    faults += _in_two(ids)
    if not faults:
        return ()
    words = (
        f"scores cannot be joined to rows by their ids alone: {'; '.join(faults)}; drop rows that "
        f"are there twice, and give each its id (`eigenmesh check`)"
    )
    warnings.warn(words, EigenmeshWarning, stacklevel=6)
    return (words,)


def _faults_of(name: str, ids: Ids) -> Iterator[str]:
    empty = np.char.strip(ids) == "" if ids.dtype.kind == "U" else np.zeros(len(ids), dtype=bool)
    _, codes, counts = np.unique(ids, return_inverse=True, return_counts=True)
    n_empty, n_twice = int(empty.sum()), int(((counts > 1)[codes] & ~empty).sum())
    if n_empty:
        yield f"party {name!r} has {n_empty} rows without an id, first at position {empty.argmax()}"
    if n_twice:
        yield f"party {name!r} has {n_twice} rows whose id another of its rows has, too"


def _in_two(ids: dict[str, Ids]) -> Iterator[str]:
    """Whoever has ids of a party before it, whom it shares most with; one sentence a party."""
    sets = {
        name: {own for own in set(values.tolist()) if own != ""} for name, values in ids.items()
    }
    names = list(sets)
    everywhere: set[object] = set()
    for i, name in enumerate(names):
        if sets[name] & everywhere:
            shared = {other: len(sets[name] & sets[other]) for other in names[:i]}
            other = max(shared, key=lambda one: shared[one])
            yield f"parties {other!r} and {name!r} have {shared[other]} ids in common"
        everywhere |= sets[name]
