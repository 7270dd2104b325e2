"""In how many bits numbers travel, in words."""

from __future__ import annotations

from eigenmesh.estimators.checks import AUTO
from eigenmesh.runtime.compact import EXACT

AUTO_BITS = 16


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
