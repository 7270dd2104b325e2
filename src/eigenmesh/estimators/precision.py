"""In how many bits numbers travel: what `precision` may be, and the words for it."""

from __future__ import annotations

from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.estimators.checks import one_of, whole_number
from eigenmesh.runtime.compact import BITS, EXACT

AUTO = "auto"
AUTO_BITS = 16
LANDMARK_BITS = 8  # of "auto": with fewer, landmarks are not where they should be


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


def landmark_bits(precision: Any) -> int:
    """Bits of landmarks.

    >>> landmark_bits("exact"), landmark_bits("auto"), landmark_bits(4)
    (64, 8, 4)
    """
    checked = checked_precision(precision)
    return LANDMARK_BITS if isinstance(checked, str) else checked


def checked_gram_rank(gram_rank: Any) -> int | str | None:
    """A whole number, "auto" or None."""
    if isinstance(gram_rank, str):
        one_of(gram_rank, "gram_rank", (AUTO,))
        return AUTO
    return None if gram_rank is None else whole_number(gram_rank, "gram_rank")


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
