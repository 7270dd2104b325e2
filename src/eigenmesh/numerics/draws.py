"""Rows drawn by weight, with no further array of their length: there may be many millions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eigenmesh.numerics.arrays import Doubles, blocks

_BLOCK = 1 << 16

Indices = NDArray[np.intp]


def draw_distinct(weights: Doubles, count: int, rng: np.random.Generator) -> Indices:
    """Indices, sorted, drawn one after another by weight without replacement.

    All of positive weight if there are no more than `count`. Weights must be finite and not
    negative.

    >>> draw_distinct(np.array([0.0, 1.0, 2.0]), 5, np.random.default_rng(0))
    array([1, 2])
    """
    if count >= np.count_nonzero(weights):
        return np.flatnonzero(weights)
    found = np.empty(0, np.intp)
    while len(found) < count:
        # Draws that hit an index again do not count: what remains is a draw from the others.
        hits = _draw(weights, found, rng.random(count - len(found)))
        found = np.union1d(found, hits)
    return found


def draw_repeatedly(weights: Doubles, count: int, rng: np.random.Generator) -> Indices:
    """Indices, each drawn by weight from all, so that one may come several times.

    >>> draw_repeatedly(np.array([0.0, 2.0]), 3, np.random.default_rng(0))
    array([1, 1, 1])
    """
    return _draw(weights, np.empty(0, np.intp), rng.random(count))


def _draw(weights: Doubles, taken: Indices, uniform: Doubles) -> Indices:
    """The indices at these shares (m,) of the weight that is not yet taken; some may be equal."""
    cuts = list(blocks(len(weights), _BLOCK))
    # Scaled: the sum of the largest numbers there are would overflow.
    largest = max(_left(weights, rows, taken).max() for rows in cuts)
    masses = np.array([(_left(weights, rows, taken) / largest).sum() for rows in cuts])
    ends = np.cumsum(masses)
    places = uniform * ends[-1]
    chosen = _at(ends, places)
    hits = []
    for i in np.unique(chosen):
        edges = np.cumsum(_left(weights, cuts[i], taken) / largest)
        hits.append(cuts[i].start + _at(edges, places[chosen == i] - (ends[i] - masses[i])))
    return np.concatenate(hits)


def _at(edges: Doubles, places: Doubles) -> Indices:
    """Where the places fall between the edges; never where no weight is, whatever the rounding."""
    last = np.searchsorted(edges, edges[-1])
    return np.asarray(np.minimum(np.searchsorted(edges, np.maximum(places, 0), "right"), last))


def _left(weights: Doubles, rows: slice, taken: Indices) -> Doubles:
    """The weights of a block, 0 where taken."""
    left = np.array(weights[rows], dtype=np.float64)
    left[taken[(taken >= rows.start) & (taken < rows.stop)] - rows.start] = 0.0
    return left
