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
    own: Sequence[str], order: Sequence[str], owner: str | None, whose: str
) -> NDArray[np.intp] | None:
    """Where the columns of `order` are among the own ones; None if they are in it already.

    `whose` says in an error who has the columns in that order.

    >>> columns_in_order(("b", "a"), ("a", "b"), "north", "the fit").tolist()
    [1, 0]
    """
    if tuple(own) == tuple(order):
        return None
    place = {name: i for i, name in enumerate(own)}
    names = set(order)
    missing = [name for name in order if name not in place]
    new = [name for name in own if name not in names]
    if missing or new:
        raise refuse(owner, f"{_difference(missing, new, whose)}; columns are matched by name")
    if len(place) < len(own) or len(names) < len(order):
        name = next(name for name, n in Counter([*own, *order]).items() if n > 2)
        raise refuse(
            owner,
            f"has its columns in another order than {whose}, and several are called {name!r}; "
            f"columns are matched by name: give each a name of its own",
        )
    return np.array([place[name] for name in order])


def _difference(missing: Sequence[str], new: Sequence[str], whose: str) -> str:
    lacks = f"lacks {_list(missing)}, which {whose} has" if missing else ""
    extra = f"has {_list(new)}, which {whose} has not" if new else ""
    return ", and ".join(words for words in (lacks, extra) if words)


def _list(names: Sequence[str]) -> str:
    few = ", ".join(map(repr, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"column{'s' if len(names) > 1 else ''} {few}{more}"


def in_order(table: Table, names: Sequence[str] | None, owner: str | None, whose: str) -> Table:
    """The table with its columns in the order of these names, if it has any itself."""
    if table.feature_names is None or names is None:
        return table
    order = columns_in_order(table.feature_names, names, owner, whose)
    if order is None:
        return table
    return Table(table.X[:, order], table.sample_ids, tuple(names))


def parties_by_columns(
    own: Mapping[str, Names | None], owners: Mapping[str, Names | None]
) -> dict[str, str] | None:
    """Which of the own parties has the columns of which owner; None if that is not certain.

    >>> parties_by_columns({"x": ("b",), "y": ("a",)}, {"north": ("a",), "south": ("b",)})
    {'y': 'north', 'x': 'south'}
    """
    if len(own) != len(owners) or None in own.values() or None in owners.values():
        return None
    holders = {frozenset(names or ()): party for party, names in own.items()}
    sets = {party: frozenset(names or ()) for party, names in owners.items()}
    if len(holders) < len(own) or set(sets.values()) != set(holders):
        return None
    return {holders[columns]: party for party, columns in sets.items()}
