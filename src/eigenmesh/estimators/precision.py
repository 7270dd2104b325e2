"""In how many bits numbers travel: what `precision` may be, and the words for it."""

from __future__ import annotations

from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.runtime.compact import BITS, EXACT

AUTO = "auto"
AUTO_BITS = 16


def checked_precision(precision: Any) -> int | str:
    """Bits, or "auto".

    >>> checked_precision("exact"), checked_precision(8), checked_precision("auto")
    (64, 8, 'auto')
    """
    if isinstance(precision, str) and precision in ("exact", AUTO):
        return EXACT if precision == "exact" else AUTO
    if isinstance(precision, bool) or precision not in BITS:
        fewer = ", ".join(str(bits) for bits in BITS if bits != EXACT)
        raise InputError(f"precision is {precision!r}; 'exact', 'auto' or {fewer} is expected")
    return int(precision)


def precision_in_words(precision: int | str) -> str:
    """As a report has it; nothing where numbers travel as they are."""
    if precision == EXACT:
        return ""
    if precision == AUTO:
        return f"{AUTO_BITS} bits, and all of them where nothing is left out"
    return f"{precision} bits"


def precision_notes(precision: int | str) -> tuple[str, ...]:
    """What a plan says of it."""
    words = precision_in_words(precision)
    return (f"eigenvectors travel in {words}; floats count as ever",) if words else ()
