"""Sample ids: whole numbers or strings, compared between parties by hash only."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np

from eigenmesh.data.table import Ids, refuse
from eigenmesh.errors import InputError, PartitionError


def as_sample_ids(ids: Iterable[Any], owner: str | None = None) -> Ids:
    """Ids as a 1-D array of int64 or of strings.

    >>> as_sample_ids(["a", "b"]).tolist()
    ['a', 'b']
    """
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise _wrong_ids(f"are one {type(ids).__name__}", owner)
    if getattr(getattr(ids, "dtype", None), "kind", "") in ("m", "M"):
        raise _wrong_ids("are dates", owner)  # those of nanoseconds would come as whole numbers
    # tolist() gives Python numbers and strings, whatever numpy or pandas kept them in.
    values = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if all(isinstance(value, str) for value in values):
        return np.asarray(values, dtype=np.str_)
    for row, value in enumerate(values):
        if _is_missing(value):
            remedy = "give the sample its id, or drop it"
            raise _wrong_ids(f"have a gap at position {row}", owner, remedy)
    is_numbers = all(isinstance(value, float | int | np.number) for value in values)
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            # By str(7.0) a sample would be none of another party's 7.
            remedy = "convert with int(id)" if is_numbers else "convert with str(id)"
            raise _wrong_ids(f"have a {type(value).__name__} at position {row}", owner, remedy)
    try:
        return np.asarray(values, dtype=np.int64)
    except OverflowError:
        raise _wrong_ids("have numbers beyond 64 bits", owner) from None


def _is_missing(value: Any) -> bool:
    """Whether this is None, NaN, or pandas' own word for a gap."""
    of_pandas = type(value).__name__ in ("NAType", "NaTType")
    return value is None or of_pandas or (isinstance(value, float) and value != value)


def is_id_like(ids: Any) -> bool:
    """Whether these are whole numbers or strings."""
    try:
        as_sample_ids(ids)
    except InputError:
        return False
    return True


def check_unique(ids: Ids, owner: str) -> None:
    """Refuse ids that name two samples alike."""
    values, counts = np.unique(ids, return_counts=True)
    if len(values) < len(ids):
        value = values[counts > 1][0].item()
        raise refuse(
            owner,
            f"has sample id {value!r} {counts.max()} times, expected every id once; "
            "drop the duplicate rows",
        )


def hash_sample_ids(ids: Iterable[Any] | None) -> str:
    """Hex digest of ids in their order; "" for None.

    The numbers 1, 2 and the strings "1", "2" differ, as do ["ab", "c"] and ["a", "bc"].

    >>> hash_sample_ids([1, 2]) == hash_sample_ids(np.array([1, 2], dtype=np.int8))
    True
    >>> hash_sample_ids([1, 2]) == hash_sample_ids([2, 1])
    False
    """
    if ids is None:
        return ""
    values = as_sample_ids(ids)
    digest = blake2b(digest_size=32)
    if values.dtype.kind == "i":
        digest.update(b"int" + values.astype("<i8").tobytes())
        return digest.hexdigest()
    words = [word.encode("utf-8", "surrogatepass") for word in values.tolist()]
    # Count and lengths come first, so no two lists of strings share one byte stream.
    lengths = np.array([len(words), *map(len, words)], dtype="<i8")
    digest.update(b"str" + lengths.tobytes() + b"".join(words))
    return digest.hexdigest()


def _wrong_ids(
    complaint: str, owner: str | None, remedy: str = "convert with str(id)"
) -> InputError:
    whose = "sample ids" if owner is None else f"sample ids of party {owner!r}"
    text = f"{whose} {complaint}, expected all whole numbers or all strings; {remedy}"
    return InputError(text) if owner is None else PartitionError(text, party=owner)
