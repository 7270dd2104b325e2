"""Sums over parties of which some may lie: the geometric median of what they have a row.

A sum goes as far as its largest summand likes. The geometric median of the parties' sums a row, in
which a party counts by its rows up to the median number, stays within a few times the honest
parties' spread as long as liars count for less than half (Lopuhaä and Rousseeuw, 1991). It is a
combination of the parties' sums with weights that are not negative, so that Gram matrices stay
positive semidefinite, and every field is combined alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eigenmesh.numerics.arrays import Doubles

FEWEST = 3  # parties: of two nobody can say which is off
_LARGEST = 4  # times the median number of rows, which no party's number exceeds
_TURNS = 200
_STILL = 1e-10  # of a weight: if none moves by more, none will


def bounded_sizes(sizes: Sequence[float]) -> Doubles:
    """Rows of each party, as far as one may count: what it says of itself may be a lie.

    >>> bounded_sizes([30, 40, 50, 10**9]).tolist()
    [30.0, 40.0, 50.0, 180.0]
    """
    return np.asarray(np.minimum(sizes, _LARGEST * np.median(sizes)), dtype=float)


def median_weights(blocks: Sequence[Doubles], sizes: Sequence[float]) -> Doubles:
    """How often each party's sums count, so that together they are n times the median a row.

    A block has one kind of sums, a party a row (s, …). Kinds are made alike by their median norms.
    n are the bounded sizes' sum.

    >>> sums = np.array([[30.0], [41.0], [49.0], [9e9]])
    >>> weights = median_weights([sums], [30, 40, 50, 60])
    >>> bool(weights @ sums[:, 0] < 200), bool(weights[3] < 1e-6)
    (True, True)
    """
    n = np.asarray(sizes, dtype=float)
    kinds = []
    for block in blocks:
        a_row = block / n[:, None]
        typical = np.median(np.linalg.norm(a_row, axis=1))
        kinds.append(a_row / (typical or 1.0))
    shares = _shares_of_median(np.hstack(kinds), np.minimum(n, np.median(n)))
    return np.asarray(shares * bounded_sizes(sizes).sum() / n)


def _shares_of_median(points: Doubles, masses: Doubles) -> Doubles:
    """The geometric median as shares of the points (Weiszfeld's iteration)."""
    shares = masses / masses.sum()
    middle = np.median(points, axis=0)  # a start that no lie moves far
    spread = float(np.median(np.linalg.norm(points - middle, axis=1)))
    nearest = max(1e-9 * spread, 1e-12)  # of points whose norms are about 1
    for _ in range(_TURNS):
        # A median that falls onto a point would divide by 0.
        pulls = masses / np.maximum(np.linalg.norm(points - middle, axis=1), nearest)
        before, shares = shares, pulls / pulls.sum()
        middle = shares @ points
        if np.max(np.abs(shares - before)) <= _STILL:
            break
    return np.asarray(shares)
