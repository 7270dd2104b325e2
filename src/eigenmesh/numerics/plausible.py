"""What sums over rows cannot be, whatever the rows are: for what others say that theirs add up to.

Tolerances leave room for sums in float32, whose rounding is 1e-7 of their size; a lie that is
smaller does little harm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf

from eigenmesh.errors import MessageRefused
from eigenmesh.numerics.arrays import Doubles

TOLERANCE = 1e-4
_ROUGH = 0.01  # of averages on a graph, which end before they are exact
_FACTORED = 160  # columns: beyond, a factor costs more than the sums that it is to judge
_DIRECTIONS = 8


def is_gram(gram: Any, sums: Any = None, weight: float = 0.0, noise: float = 0.0) -> bool:
    """Whether a matrix can be Σ w x xᵀ of rows with Σ w x = `sums` and Σ w = `weight`.

    Σ w (x − m)(x − m)ᵀ, m being the mean, is positive semidefinite; that contains the inequality of
    Cauchy and Schwarz, sums² ≤ weight · diagonal. Of large matrices some columns and directions
    are looked at. `noise` is how far below 0 an eigenvalue may be.

    >>> X = np.random.default_rng(0).normal(size=(9, 3))
    >>> is_gram(X.T @ X, X.sum(axis=0), 9), is_gram(-X.T @ X), is_gram(X.T @ X, 9 * X[0], 9)
    (True, False, False)
    """
    G = np.asarray(gram, dtype=np.float64)
    size = float(G.trace())
    if size < -noise * len(G) or weight < 0 or not np.isfinite(size):
        return False
    s = np.zeros(len(G)) if sums is None else np.asarray(sums, dtype=np.float64)
    if sums is not None and not weight:
        return not (s.any() or G.any())
    slack, weight = TOLERANCE * abs(size) + noise, weight or 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        if len(G) > _FACTORED:
            # Directions at random see all of the matrix, a principal part of it sees all that is
            # wrong there: either is positive if the whole is, so that nobody honest is refused.
            rng = np.random.default_rng(len(G))
            x = rng.normal(size=(len(G), _DIRECTIONS))
            along = np.einsum("ij,ij->j", x, G @ x) - (s @ x) ** 2 / weight
            if np.any(along < -slack * (x * x).sum(axis=0)):
                return False
            some = rng.choice(len(G), _FACTORED, replace=False)
            G, s = G[np.ix_(some, some)], s[some]
        lifted = np.multiply.outer(s, -s / weight)
        lifted += G
        return _is_positive(lifted, slack)


def _is_positive(matrix: Doubles, slack: float) -> bool:
    """Whether no eigenvalue is below −slack; the matrix, by rows, is written over."""
    if not slack:
        # Without a trace there is no room: of positive matrices only zeros have none.
        return not matrix.any()
    if matrix.diagonal().min() < -slack:
        return False
    # A factor exists just where no eigenvalue is below, and costs far less than the eigenvalues.
    matrix.reshape(-1)[:: len(matrix) + 1] += slack
    _, info = dpotrf(matrix.T, lower=0, clean=0, overwrite_a=1)  # by columns it needs no copy
    return bool(info == 0)


def exceeds(part: float, whole: float) -> bool:
    """Whether a part is larger than the whole, by more than rounding."""
    return part > whole + TOLERANCE * abs(whole)


def differs(value: float, expected: float) -> bool:
    """Whether a number is not the expected one, by more than rounding."""
    return abs(value - expected) > TOLERANCE * abs(expected)


def require_possible_sums(captured: float, total: float) -> None:
    """Raise `MessageRefused` if components capture more than there is: somebody's sums are wrong.

    Each party's may be possible by themselves; then nobody can say whose they are.
    """
    if total < 0 or captured > (1 + _ROUGH) * total:
        raise MessageRefused(
            f"components capture {captured:.6g} of a variance of {total:.6g}: what the parties say "
            f"cannot be true of any data, and whose words are wrong cannot be told"
        )
