"""Whether the parties' data fit together; each check names the party that does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from eigenmesh.data.sample_ids import check_unique
from eigenmesh.data.table import Ids, refuse

Shape = tuple[int, int]


def check_shapes(split: str, names: Sequence[str], shapes: Sequence[Shape | None]) -> None:
    """A row split shares its width, a column split its samples; unread shapes are skipped."""
    axis = 1 if split == "rows" else 0
    odd = odd_one_out(names, [None if shape is None else shape[axis] for shape in shapes])
    if odd is None:
        return
    party, value, others = odd
    if split == "rows":
        complaint = f"has {value} columns, {others}; pass Partitioned(columns=...) for"
        raise refuse(party, f"{complaint} column-split data")
    complaint = f"has {value} samples, {others}; a column split needs the same samples in the"
    remedy = "(row-split data: rows=...); align='inner' matches samples by their ids"
    raise refuse(party, f"{complaint} same order at every party {remedy}")


def check_ids(
    split: str, names: Sequence[str], shapes: Sequence[Shape | None], ids: Sequence[Ids]
) -> None:
    """One id a sample; in a column split no id twice."""
    for party, shape, own in zip(names, shapes, ids, strict=True):
        if shape is not None and len(own) != shape[0]:
            complaint = f"has {len(own)} sample ids for {shape[0]} samples"
            raise refuse(party, f"{complaint}, expected one each; pass as many ids as rows")
        if split == "columns":
            check_unique(own, party)


def odd_one_out(
    names: Sequence[str], values: Sequence[Hashable | None]
) -> tuple[str, Hashable, str] | None:
    """The first party off the most common value, its value, and what the others have."""
    pairs = [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
    counts = Counter(value for _, value in pairs)
    if len(counts) < 2:
        return None
    usual = counts.most_common(1)[0][0]
    party, value = next(pair for pair in pairs if pair[1] != usual)
    if len(counts) == 2 and counts[usual] > 1:
        return party, value, f"the others {usual}"
    holder = next(name for name, other in pairs if other == usual)
    return party, value, f"party {holder!r} has {usual}"
