"""Columns and parties matched by the names of the columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from eigenmesh.data.table import Table, refuse

Names = tuple[str, ...]
_SHOWN = 5  # names that an error lists


def columns_in_order(
    own: Sequence[str], wanted: Sequence[str], owner: str | None, whose: str
) -> NDArray[np.intp] | None:
    """Where the wanted columns are among the own ones; None if they are in order already.

    `whose` says in an error who has the wanted columns.

    >>> columns_in_order(("b", "a"), ("a", "b"), "north", "the fit").tolist()
    [1, 0]
    """
    if tuple(own) == tuple(wanted):
        return None
    place = {name: i for i, name in enumerate(own)}
    known = set(wanted)
    missing = [name for name in wanted if name not in place]
    new = [name for name in own if name not in known]
    if missing or new:
        raise refuse(owner, f"{_difference(missing, new, whose)}; columns are matched by name")
    if len(place) < len(own) or len(known) < len(wanted):
        name = next(name for name, n in Counter([*own, *wanted]).items() if n > 2)
        raise refuse(
            owner,
            f"has its columns in another order than {whose}, and several are called {name!r}; "
            f"columns are matched by name: give each a name of its own",
        )
    return np.array([place[name] for name in wanted])


def _difference(missing: Sequence[str], new: Sequence[str], whose: str) -> str:
    lacks = f"lacks {_listed(missing)}, which {whose} has" if missing else ""
    extra = f"has {_listed(new)}, which {whose} has not" if new else ""
    return ", and ".join(words for words in (lacks, extra) if words)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"


def in_order(table: Table, wanted: Sequence[str] | None, owner: str | None, whose: str) -> Table:
    """The table with its columns in the wanted order, if both have names."""
    if table.feature_names is None or wanted is None:
        return table
    order = columns_in_order(table.feature_names, wanted, owner, whose)
    if order is None:
        return table
    return Table(table.X[:, order], table.sample_ids, tuple(wanted))


def parties_by_columns(
    own: Mapping[str, Names | None], wanted: Mapping[str, Names | None]
) -> dict[str, str] | None:
    """Which of the own parties has the columns of which wanted one; None if that is not certain.

    >>> parties_by_columns({"x": ("b",), "y": ("a",)}, {"north": ("a",), "south": ("b",)})
    {'y': 'north', 'x': 'south'}
    """
    if len(own) != len(wanted) or None in own.values() or None in wanted.values():
        return None
    holders = {frozenset(names or ()): party for party, names in own.items()}
    sets = {party: frozenset(names or ()) for party, names in wanted.items()}
    if len(holders) < len(own) or set(sets.values()) != set(holders):
        return None
    return {holders[columns]: party for party, columns in sets.items()}
