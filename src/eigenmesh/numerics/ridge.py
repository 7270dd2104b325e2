"""Ridge regression from sums over rows, which add up over whoever holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eigenmesh.numerics.arrays import Doubles


class RidgeSums(NamedTuple):
    """What scores Z (n, k) and targets y (n, m), seen from near their mean, add up to."""

    gram: Doubles  # (k, k), ZᵀZ
    cross: Doubles  # (k, m), Zᵀy
    score_sums: Doubles  # (k,)
    target_sums: Doubles  # (m,)
    target_squares: Doubles  # (m,)
    n_rows: float


@dataclass(frozen=True)
class RidgeFit:
    """prediction = score @ `coefficients` + `intercept`."""

    coefficients: Doubles  # (k, m)
    intercept: Doubles  # (m,)
    r_squared: Doubles  # (m,) of the rows that were fitted


def ridge_sums(Z: Doubles, y: Doubles) -> RidgeSums:
    """The sums of some rows.

    >>> ridge_sums(np.array([[1.0], [2.0]]), np.array([[3.0], [5.0]])).cross
    array([[13.]])
    """
    squares = np.square(y).sum(axis=0)
    return RidgeSums(Z.T @ Z, Z.T @ y, Z.sum(axis=0), y.sum(axis=0), squares, len(y))


def ridge(sums: RidgeSums, centre: Doubles, alpha: float) -> RidgeFit:
    """Ridge with penalty `alpha` and a free intercept; targets were taken less `centre`.

    Scores and targets are centred exactly over whoever the sums cover.

    >>> Z, y = np.array([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]])
    >>> fit = ridge(ridge_sums(Z, y - 3.0), np.array([3.0]), alpha=0.0)
    >>> fit.coefficients.round(9), fit.intercept.round(9)
    (array([[2.]]), array([1.]))
    """
    n = sums.n_rows
    z, y = sums.score_sums / n, sums.target_sums / n
    # This cancels few digits only because both were seen from near their mean.
    G = sums.gram - n * np.outer(z, z)
    C = sums.cross - n * np.outer(z, y)
    # Least squares, where a plain solution fails: without a penalty, of scores that lack a
    # direction, G is singular, and the shortest coefficients are as good as any.
    W = np.asarray(np.linalg.lstsq(G + alpha * np.eye(len(G)), C, rcond=None)[0], dtype=float)
    total = sums.target_squares - n * y**2
    # All three terms: the short form, total − Σ W C, is true without a penalty only.
    residuals = total - 2 * np.einsum("km,km->m", W, C) + np.einsum("km,kl,lm->m", W, G, W)
    return RidgeFit(
        coefficients=W,
        intercept=np.asarray(centre + y - z @ W),
        r_squared=np.asarray(1 - residuals / np.where(total > 0, total, 1.0)),
    )
