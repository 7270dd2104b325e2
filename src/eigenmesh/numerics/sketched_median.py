"""The median squared distance of rows of which only some coordinates are seen.

The sketches give ρ = median / mean of the squared distances, and the moments the exact mean M;
the median is ρ·M. Seen in q dimensions, distances scatter more than in d, and ρ is too small.
For a chi-square of p degrees ∛ρ = 1 − 2/(9p) (Wilson and Hilferty, 1931): linear in 1/p. The slope
is measured between q and q/2 dimensions, and the line followed to d.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import Doubles

MAX_SKETCH_WIDTH = 64
_BASIS_KEY = 2315900271  # one draw for each d, everywhere and for ever
_N_HALVINGS = 4


def sketch_width(n_columns: int) -> int:
    """Dimensions of a sketch: at most half, so that rows are not determined by it.

    >>> sketch_width(5), sketch_width(784)
    (2, 64)
    """
    if n_columns < 2:
        raise InputError(
            f"gamma='median' over several parties with rows needs at least 2 columns, there is "
            f"{n_columns}: a sketch of it would be the row itself; pass gamma='mean-distance'"
        )
    return min(MAX_SKETCH_WIDTH, n_columns // 2)


def sketch_basis(d: int) -> Doubles:
    """Orthonormal, since distances scatter less in it than under a plain Gaussian map: (d, q)."""
    # Never from a run's seed: two bases would give all coordinates of a row away.
    rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(_BASIS_KEY,)))
    normal = rng.standard_normal((d, sketch_width(d)))
    return np.linalg.qr(normal)[0]


def median_over_mean(Z: Doubles, d: int) -> float:
    """ρ of the squared distances in d dimensions, from the q of Z."""
    q = Z.shape[1]
    root = _cube_root_of_ratio(Z)
    if q == 1:  # nothing to halve: the slope of a chi-square
        lift = 2 / 9 * (1 - 1 / d)
    else:
        h = q // 2
        lift = (root - _root_in_half(Z, h)) * (1 / q - 1 / d) / (1 / h - 1 / q)
    # A median of zero comes from equal rows, not from scatter.
    return (root + max(lift, 0.0)) ** 3 if root > 0 else 0.0


def _root_in_half(Z: Doubles, h: int) -> float:
    """∛ρ in h of the q dimensions, on average over random halves."""
    rng, q = np.random.default_rng(0), Z.shape[1]
    rotations = [Z @ np.linalg.qr(rng.standard_normal((q, q)))[0] for _ in range(_N_HALVINGS)]
    halves = [half for Y in rotations for half in (Y[:, :h], Y[:, -h:])]
    return float(np.mean([_cube_root_of_ratio(half) for half in halves]))


def _cube_root_of_ratio(Z: Doubles) -> float:
    """∛(median / mean) of the squared distances between rows."""
    distances = pdist(Z, "sqeuclidean")
    return float(np.cbrt(np.median(distances) / distances.mean())) if distances.any() else 0.0
