"""In how many bits numbers travel, in words."""

from __future__ import annotations

from typing import Any

from eigenmesh.estimators.checks import AUTO, checked_precision
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.runtime.compact import EXACT

AUTO_BITS = 16
SPREAD = "spread"  # of coordinates: all share the bits of a few numbers a sample
_AUTO_LANDMARK_BITS = 8  # with fewer, landmarks are not where they should be


def precision_in_words(precision: int | str) -> str:
    """As a report has it; nothing where numbers travel as they are."""
    if precision == EXACT:
        return ""
    if precision == AUTO:
        return f"{AUTO_BITS} bits, and all of them where nothing is left out"
    if precision == SPREAD:
        return "bits that coordinates share, most to those in which samples vary most"
    return f"{precision} bits"


def landmark_bits(precision: Any) -> int:
    """Bits in which landmarks travel.

    >>> landmark_bits("exact"), landmark_bits("auto"), landmark_bits(4)
    (64, 8, 4)
    """
    checked = checked_precision(precision)
    return _AUTO_LANDMARK_BITS if isinstance(checked, str) else checked


def landmarks_in_words(precision: Any) -> str:
    """The same as a report has it; nothing where they travel as they are."""
    bits = landmark_bits(precision)
    return "" if bits == EXACT else f"{bits} bits of landmarks"


def sent_in(precision: Any, model: Any, estimator: Any) -> dict[str, Any]:
    """What a report says of it: as that of the `estimator` inside does, else of landmarks."""
    if estimator is not None:
        own = estimator.report_
        return {"precision": own.precision, "precision_error": own.precision_error}
    return {"precision": landmarks_in_words(precision) if isinstance(model, LandmarkModel) else ""}


def precision_notes(precision: int | str) -> tuple[str, ...]:
    """What a plan says of it."""
    words = precision_in_words(precision)
    numbers = "coordinates" if precision == SPREAD else "eigenvectors"
    return (f"{numbers} travel in {words}; floats count as ever",) if words else ()
