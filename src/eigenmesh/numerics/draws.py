"""Rows drawn by weight, with few arrays of their length: there may be many millions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eigenmesh.numerics.arrays import Doubles


def draw_distinct(weights: Doubles, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Indices, sorted, drawn one after another by weight without replacement.

    All of positive weight if there are no more than `count`. Weights must be finite and not
    negative.

    >>> draw_distinct(np.array([0.0, 1.0, 2.0]), 5, np.random.default_rng(0))
    array([1, 2])
    """
    if count >= np.count_nonzero(weights):
        return np.flatnonzero(weights)
    left = np.array(weights, dtype=np.float64)
    left /= left.max() or 1.0  # the sum of the largest numbers there are would overflow
    found = np.empty(0, np.intp)
    while len(found) < count:
        # Draws that hit an index again do not count: what remains is a draw from the others.
        edges = np.cumsum(left)
        hits = np.searchsorted(edges, rng.random(count - len(found)) * edges[-1], side="right")
        hits = np.unique(np.minimum(hits, np.searchsorted(edges, edges[-1])))
        left[hits] = 0.0
        found = np.concatenate([found, hits])
    return np.sort(found)
