"""Values that go with the parties' rows, such as weights and targets: each to its own site only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from eigenmesh.data import Partitioned
from eigenmesh.errors import InputError
from eigenmesh.federation.federation import Federation
from eigenmesh.numerics.arrays import Doubles

NONE = ""  # the key of values that there are not
_FITS = itertools.count()


def is_plain(X: Any) -> bool:
    """Whether X is one array, and not split over parties."""
    split = isinstance(X, Federation | Partitioned) or hasattr(X, "__dask_keys__")
    return not split


@contextmanager
def at_sites(
    fed: Federation, values: Any, name: str, *, field: str = "weights", signed: bool = False
) -> Iterator[str]:
    """Put each party's values into its own site's store; gives the key, NONE without values.

    A single array is for a single party. In a job of several processes each passes the whole list,
    of which only the entry of its own party is looked at. The values are taken away at the end.
    """
    if values is None:
        yield NONE
        return
    sites = fed.local_sites()
    own = _one_a_party(values, fed.parties, name)
    if not (signed or any(v is None or np.asarray(v).any() for v in own)):
        raise InputError(f"{name} is 0 everywhere; it must contain at least one non-zero number")
    # A new key each time: what a site at a worker keeps is not overwritten. By number, not by
    # chance: all processes of a job fit the same things in the same order, and must agree on it.
    key = f"{name} of fit {next(_FITS)}"
    for party, entry in zip(fed.parties, own, strict=True):
        if party in sites:
            share = {field: _numbers(entry, name, party, signed)}
            sites[party].store.setdefault(key, share)
    try:
        yield key
    finally:
        for site in sites.values():
            site.store.pop(key, None)


def _one_a_party(values: Any, parties: Sequence[str], name: str) -> list[Any]:
    if len(parties) == 1 and not (isinstance(values, list | tuple) and np.ndim(values[0]) > 0):
        return [values]
    if isinstance(values, np.ndarray) or len(values) != len(parties):
        raise InputError(
            f"{name} has {len(values)} entries; a list of {len(parties)} arrays is expected, one a "
            f"party, in the order of the parties"
        )
    return list(values)


def _numbers(values: Any, name: str, party: str, signed: bool) -> Doubles:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim not in (1, 2) or not np.isfinite(found).all():
        raise InputError(
            f"{name} of party {party!r} must be finite numbers, one a row", party=party
        )
    if not signed and (found < 0).any():
        raise InputError(f"{name} of party {party!r} must not be negative", party=party)
    return found


def of_sites(fed: Federation, key: str, field: str) -> list[Any]:
    """What the sites that live in this process keep, by party; None for all others."""
    sites = fed.local_sites()
    stores = [sites[name].store if name in sites else {} for name in fed.parties]
    return [store[key][field] if key in store else None for store in stores]
