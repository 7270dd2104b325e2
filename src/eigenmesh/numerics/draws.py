"""Rows drawn by weight, with no further array of their length: there may be many millions."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import Doubles, blocks

_BLOCK = 1 << 16

Indices = NDArray[np.intp]


def draw_distinct(weights: Doubles, count: int, rng: np.random.Generator) -> Indices:
    """Indices, sorted, drawn one after another by weight without replacement.

    All of positive weight if there are no more than `count`.

    >>> draw_distinct(np.array([0.0, 1.0, 2.0]), 5, np.random.default_rng(0))
    array([1, 2])
    """
    _require_weights(weights)
    if count >= np.count_nonzero(weights):
        return np.flatnonzero(weights)
    indices = np.empty(0, np.intp)
    while len(indices) < count:
        # Draws that hit an index again do not count: what remains is a draw from the others.
        hits = _draw(weights, indices, rng.random(count - len(indices)))
        indices = np.union1d(indices, hits)
    return indices


def draw_repeatedly(weights: Doubles, count: int, rng: np.random.Generator) -> Indices:
    """Indices, each drawn by weight from all, so that one may come several times.

    >>> draw_repeatedly(np.array([0.0, 2.0]), 3, np.random.default_rng(0))
    array([1, 1, 1])
    """
    _require_weights(weights)
    return _draw(weights, np.empty(0, np.intp), rng.random(count))


def drawn_power(value: float, key: bytes) -> float:
    """The power of 2 below or above a number, by chances that make logarithms right in the mean.

    The draw hangs on the number and a key. The same question has the same answer; whoever scales it
    does not find where powers move, which alone would tell the number to as many digits as there
    are questions.

    >>> values = [drawn_power(3.0 + i / 1000, b"key") for i in range(1000)]
    >>> sorted(set(values)), round(float(np.log2(values).mean()), 1)
    ([2.0, 4.0], 1.8)
    """
    if not value > 0:
        return 0.0
    digest = hashlib.blake2b(np.float64(value).tobytes(), digest_size=8, key=key).digest()
    return 2.0 ** math.floor(math.log2(value) + int.from_bytes(digest) / 2**64)


def _require_weights(weights: Doubles) -> None:
    """By NaN nothing is ever drawn, and draws until there are enough would not end."""
    least, largest = float(weights.min(initial=0.0)), float(weights.max(initial=0.0))
    if not (least >= 0 and largest < np.inf):
        raise InputError(
            f"weights of draws are between {least:g} and {largest:g}; finite numbers from 0 are "
            f"expected: check the rows for NaN, infinity, and numbers whose squares overflow"
        )


def _draw(weights: Doubles, earlier: Indices, uniform: Doubles) -> Indices:
    """The indices at these shares (m,) of the weight that `earlier` leaves; some may be equal."""
    cuts = list(blocks(len(weights), _BLOCK))
    # Scaled: the sum of the largest numbers there are would overflow.
    largest = max(_rest_of(weights, rows, earlier).max() for rows in cuts)
    masses = np.array([(_rest_of(weights, rows, earlier) / largest).sum() for rows in cuts])
    ends = np.cumsum(masses)
    places = uniform * ends[-1]
    numbers = _at(ends, places)
    hits = []
    for i in np.unique(numbers):
        edges = np.cumsum(_rest_of(weights, cuts[i], earlier) / largest)
        hits.append(cuts[i].start + _at(edges, places[numbers == i] - (ends[i] - masses[i])))
    return np.concatenate(hits)


def _at(edges: Doubles, places: Doubles) -> Indices:
    """Where the places fall between the edges; never where no weight is, whatever the rounding."""
    last = np.searchsorted(edges, edges[-1])
    return np.asarray(np.minimum(np.searchsorted(edges, np.maximum(places, 0), "right"), last))


def _rest_of(weights: Doubles, rows: slice, earlier: Indices) -> Doubles:
    """The weights of a block, 0 where drawn earlier."""
    rest = np.array(weights[rows], dtype=np.float64)
    rest[earlier[(earlier >= rows.start) & (earlier < rows.stop)] - rows.start] = 0.0
    return rest
