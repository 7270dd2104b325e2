"""Values that go with the parties' rows, such as weights and targets: each to its own site only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.data import Partitioned
from eigenmesh.data.column_names import columns_in_order
from eigenmesh.data.sample_ids import as_sample_ids, is_id_like
from eigenmesh.data.table import frame_names, is_frame
from eigenmesh.errors import EigenmeshError, InputError
from eigenmesh.numerics.arrays import Doubles, largest_value, require_moderate
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.site import OWN_TARGETS, OWN_WEIGHTS

NONE = ""  # the key of values that there are not
SITES = "sites"  # in place of values: those that the sites' owners name
_FITS = itertools.count()


def is_plain(X: Any) -> bool:
    """Whether X is one array, and not split over parties."""
    split = isinstance(X, Federation | Partitioned) or hasattr(X, "__dask_keys__")
    return not split


def own_rows(fed: Federation) -> Any:
    """The rows of one array, which may be compared with each other: they are the caller's."""
    (site,) = fed.local_sites().values()
    return site.data


def plain_shapes(X: Any) -> list[tuple[int, int]]:
    """The shape of one array, as that of a single party."""
    n, d = X.shape if hasattr(X, "shape") else np.shape(X)
    return [(int(n), int(d))]


@contextmanager
def at_sites(
    fed: Federation, values: Any, name: str, *, field: str = "weights", signed: bool = False
) -> Iterator[str]:
    """Put each party's values into its own site's store; gives the key, NONE without values.

    A single array is for a single party. In a job of several processes each passes the whole list,
    of which only the entry of its own party is looked at. The values are taken away at the end.
    Sites that own their data name these values themselves: `SITES` asks for them, and any others
    are refused.
    """
    if values is None:
        yield NONE
        return
    if isinstance(values, str) and values == SITES:
        yield OWN_TARGETS if field == "targets" else OWN_WEIGHTS
        return
    if fed.values_stay:
        raise InputError(
            f"{name} is passed to sites that own their data and take none from elsewhere; pass "
            f"{name}={SITES!r} for what each site.toml names as its {field}"
        )
    sites, parties = fed.local_sites(), fed.members
    entries = zip(parties, _one_a_party(values, parties, name), strict=True)
    own = {party: _numbers(v, name, party, signed) for party, v in entries if party in sites}
    # Of those that live elsewhere somebody may have a weight.
    if not signed and len(own) == len(parties) and not any(v.any() for v in own.values()):
        raise InputError(
            f"{name} is 0 everywhere; it must contain at least one non-zero number, or be left out"
        )
    if len(own) == len(parties):  # all are the caller's, and so is a mistake in one
        _require_one_a_row(own, sites, name, field)
    # A new key each time: what a site at a worker keeps is not overwritten. By number, not by
    # chance: all processes of a job fit the same things in the same order, and must agree on it.
    # Of one length, so that the tenth fit's account is that of the ninth, to the byte.
    key = f"{name} of fit {next(_FITS):09d}"
    for party, numbers in own.items():
        sites[party].store.setdefault(key, {field: numbers})
    try:
        yield key
    finally:
        for site in sites.values():
            site.store.pop(key, None)


def _require_one_a_row(
    own: Mapping[str, Doubles], sites: Mapping[str, Any], name: str, field: str
) -> None:
    """Here, before anything is sent: a site that raised it would name who else had sent to it."""
    for party, numbers in own.items():
        n_rows = len(numbers)
        with suppress(EigenmeshError):  # of the data, which the fit will say, or do without
            n_rows = int(sites[party].data.shape[0])
        if len(numbers) != n_rows:
            raise InputError(
                f"party {party!r} has {n_rows} rows and {len(numbers)} {field} in {name}; one a "
                f"row is expected",
                party=party,
            )


def values_by_party(
    values: Any, sizes: dict[str, int], name: str, *, signed: bool = False
) -> list[Doubles]:
    """What the caller has of each party's rows, checked against how many there are.

    >>> values_by_party([[1, 2], [3]], {"north": 2, "south": 1}, "sample_weight")
    [array([1., 2.]), array([3.])]
    """
    entries = zip(sizes, _one_a_party(values, list(sizes), name), strict=True)
    numbers = {party: _numbers(own, name, party, signed) for party, own in entries}
    for party, own in numbers.items():
        if len(own) != sizes[party]:
            raise InputError(
                f"party {party!r} has {sizes[party]} rows and {name} {len(own)} numbers; one a row "
                f"is expected",
                party=party,
            )
    return list(numbers.values())


def in_order_of_ids(X: Any, values: Any) -> Any:
    """Series and frames whose index has the ids of a party's rows, in the order of these rows.

    What has no such index goes by its places, as in scikit-learn.

    >>> import pandas as pd
    >>> parts = Partitioned(rows=[pd.DataFrame({"age": [61.0, 25.0]}, index=["ada", "bob"])])
    >>> in_order_of_ids(parts, [pd.Series([2.0, 6.0], index=["bob", "ada"])])[0].tolist()
    [6.0, 2.0]
    """
    if not isinstance(X, Partitioned) or X.split != "rows":
        return values
    if isinstance(values, Mapping):
        places = {name: i for i, name in enumerate(X.names)}
        return {
            name: _by_ids(X, places[name], own) if name in places else own
            for name, own in values.items()
        }
    if isinstance(values, list | tuple) and len(values) == X.n_parties:
        return [_by_ids(X, party, own) for party, own in enumerate(values)]
    return _by_ids(X, 0, values) if X.n_parties == 1 else values


def _by_ids(X: Partitioned, party: int, values: Any) -> Any:
    index: Any = getattr(values, "index", None)
    # Rows are numbered where nobody gave them an index: that says nothing of ids.
    if not hasattr(values, "iloc") or type(index).__name__ == "RangeIndex":
        return values
    ids = X.part_ids(party)
    if ids is None or not is_id_like(index):
        return values
    own = as_sample_ids(index)
    if len(own) != len(ids) or own.dtype.kind != ids.dtype.kind or np.array_equal(own, ids):
        return values
    order, own_order = np.argsort(ids, kind="stable"), np.argsort(own, kind="stable")
    if not np.array_equal(ids[order], own[own_order]):
        return values
    if len(np.unique(ids)) < len(ids):
        raise InputError(
            f"values of party {X.names[party]!r} have its ids in another order, and some ids stand "
            f"twice; give every row an id of its own, or values in the order of its rows",
            party=X.names[party],
        )
    places = np.empty(len(ids), dtype=np.intp)
    places[order] = own_order
    return values.iloc[places]


def weight_array(sample_weight: Any, n_samples: int | None = None) -> Doubles:
    """The weights of samples that are not split by rows, which whoever asks has.

    >>> weight_array([1, 2], 2)
    array([1., 2.])
    """
    expected = "one number a sample is expected, finite, none negative, some positive"
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"sample_weight is {type(sample_weight).__name__}; {expected}") from None
    if weights.ndim != 1:
        raise InputError(f"sample_weight has shape {weights.shape}; {expected}")
    if n_samples is not None and len(weights) != n_samples:
        raise InputError(
            f"sample_weight has {len(weights)} numbers; {n_samples} are expected, one a sample"
        )
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise InputError(
            f"sample_weight is {weights[wrong[0]]:g} for sample {wrong[0]}; {expected}"
        )
    if not weights.any():
        raise InputError(f"sample_weight is zero everywhere; {expected}")
    require_moderate(weights, "sample_weight")
    return weights


def _one_a_party(values: Any, parties: Sequence[str], name: str) -> list[Any]:
    if isinstance(values, Mapping):
        return _columns_alike(_by_name(values, parties, name), parties, name)
    listed = isinstance(values, list | tuple)
    if len(parties) == 1 and not (listed and len(values) and np.ndim(values[0]) > 0):
        return [values]
    if not listed or len(values) != len(parties):
        raise InputError(
            f"{name} is {_described(values)}; a list of {len(parties)} arrays is expected, one a "
            f"party, in the order of the parties: for the parts of em.split(X, …) "
            f"[values[rows] for rows in parts.order]"
        )
    return _columns_alike(list(values), parties, name)


def _columns_alike(values: list[Any], parties: Sequence[str], name: str) -> list[Any]:
    """Frames with their columns in the order of the first."""
    framed = [i for i, own in enumerate(values) if is_frame(own) and own.ndim == 2]
    for i in framed[1:]:
        whose = f"{name} of {parties[framed[0]]!r}"
        names, own = frame_names(values[framed[0]]), frame_names(values[i])
        if names is not None and own is not None:
            order = columns_in_order(own, names, parties[i], whose)
            values[i] = values[i] if order is None else values[i].iloc[:, order]
    return values


def _by_name(values: Mapping[str, Any], parties: Sequence[str], name: str) -> list[Any]:
    if set(values) != set(parties):
        raise InputError(
            f"{name} has entries for {', '.join(map(repr, values))}; one for each party is "
            f"expected: {', '.join(map(repr, parties))}"
        )
    return [values[party] for party in parties]


def _described(values: Any) -> str:
    if isinstance(values, list | tuple):
        return f"a {type(values).__name__} of {len(values)}"
    shape = getattr(values, "shape", None)
    return f"of type {type(values).__name__}" + (f" and shape {shape}" if shape else "")


def _array(values: Any) -> Any:
    """As an array; what cannot be one of numbers stays one of objects."""
    try:
        raw = np.asarray(values)
        return raw.astype(np.float64) if raw.dtype.kind == "O" else raw
    except (TypeError, ValueError):
        return np.zeros(0, dtype=object)


def _numbers(values: Any, name: str, party: str, signed: bool) -> Doubles:
    whose = f"{name} of party {party!r}"
    raw = _array(values)
    dims = (1, 2) if signed else (1,)  # targets may have several columns
    if raw.dtype.kind not in "biuf" or raw.ndim not in dims or not raw.size:
        sized = raw.ndim and raw.size
        shown = f"an array of {raw.dtype} and shape {raw.shape}" if sized else repr(values)[:60]
        raise InputError(f"{whose} is {shown}; numbers are expected, one a row", party=party)
    numbers: Doubles = raw.astype(np.float64)
    largest = largest_value(np.float64)
    for wrong, expected in (
        (~np.isfinite(numbers), "finite numbers are expected: leave such rows out"),
        (abs(numbers) > largest, f"numbers up to {largest:g} are expected: rescale them"),
        ((numbers < 0) & (not signed), "no negative numbers are expected; 0 ignores a row"),
    ):
        if wrong.any():
            where = np.argwhere(wrong)[0]
            value, row = numbers[tuple(where)], int(where[0])
            raise InputError(f"{whose} is {value:g} at row {row}; {expected}", party=party)
    return numbers


@dataclass(frozen=True)
class AtSite:
    """Stands for values that are not in this process, and says where they are.

    >>> AtSite("north", "labels")
    <labels of 'north': kept with its rows; in a site's folder `eigenmesh site scores` writes them>
    """

    party: str
    values: str

    def __repr__(self) -> str:
        where = "kept with its rows; in a site's folder `eigenmesh site scores` writes them"
        return f"<{self.values} of {self.party!r}: {where}>"


def of_sites(fed: Federation, key: str, field: str) -> dict[str, Any]:
    """What the sites that live in this process keep, by party; of all others where it is.

    Of everybody in order, but for parties that were lost.
    """
    sites, values = fed.local_sites(), {}
    for name in (name for name in fed.members if name not in fed.lost):
        store = sites[name].store if name in sites else {}
        values[name] = store[key][field] if key in store else AtSite(name, field)
    return values
