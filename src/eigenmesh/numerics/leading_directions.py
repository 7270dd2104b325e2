"""The leading directions of the landmarks' span: a basis that all who know the landmarks agree on.

What rows add up to in r directions takes r (r + 1)/2 numbers in place of q (q + 1)/2, and many
landmarks have few directions that matter. Eigenvectors would not do: where eigenvalues are near
each other, or by a sign, they are others on another processor, and sums over parties would mean
nothing. Subspace iteration from directions that all draw alike, made orthonormal by the nearest
orthonormal matrix, is as smooth a function of K(Y, Y) as can be, and leads to the same space.
"""

from __future__ import annotations

import numpy as np

from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.eigen import SPAN_CUTOFF

_ITERATIONS = 4
_STREAM = 0x6C656164  # apart from all other draws
_TINY = 1e-9  # of the largest direction, below which rounding has made it
_FEWEST = 3  # directions a component
_USUAL = 4
_USUAL_LOSS = 0.02  # of the last wanted eigenvalue, where no accuracy is asked for


def leading_basis(K: Doubles, rank: int) -> Doubles:
    """B (q, r) with BᵀK B = I, of about the r leading eigenvectors' space.

    Of fewer directions than r, BᵀK B is a projection.

    >>> K = np.diag([4.0, 1.0, 0.1])
    >>> B = leading_basis(K, 2)
    >>> bool(np.allclose(B.T @ K @ B, np.eye(2))), bool(abs(np.trace(B.T @ K @ K @ B) - 5) < 1e-3)
    (True, True)
    """
    rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(_STREAM,)))
    Q = _nearest_orthonormal(rng.standard_normal((len(K), rank)))
    for _ in range(_ITERATIONS):
        Q = _nearest_orthonormal(K @ Q)
    inner = Q.T @ K @ Q
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    present = values > SPAN_CUTOFF * values[-1]
    V = vectors[:, present]
    # The symmetric root of the inverse: without Vᵀ at the end the basis would hang on signs and
    # order of eigenvectors, on which parties need not agree.
    return np.asarray(Q @ (V / np.sqrt(values[present])) @ V.T)


def _nearest_orthonormal(A: Doubles) -> Doubles:
    """UVᵀ of UΣVᵀ, without directions that are rounding: it is the only one."""
    U, sizes, Vt = np.linalg.svd(A, full_matrices=False)
    present = sizes > _TINY * max(sizes[0], np.finfo(float).tiny)
    return np.asarray(U[:, present] @ Vt[present])


def usual_rank(k: int, n_landmarks: int) -> int:
    """What a plan counts for `rank_for`."""
    return min(n_landmarks, _USUAL * (k + 1))


def rank_for(K: Doubles, k: int, centred: bool, accuracy: float | None) -> int:
    """How many directions of the landmarks' span matter for k components of rows like them.

    Rows couple a component with a direction at random: of q landmarks that are drawn like the rows,
    with eigenvalues w, what directions beyond the r-th can add to eigenvalue k is about
    Σ_{j>r} w_j / (q w_k) of it. That is to be half of `accuracy`, or 2 % where none is asked for;
    and there are three directions a component and for one more at least, since a tail that is short
    says little.

    >>> rank_for(np.diag(0.5 ** np.arange(20.0)), 2, False, 0.01)
    9
    """
    w = np.linalg.eigvalsh(K)[::-1]
    q, last = len(w), min(k + centred, len(w)) - 1  # the mean takes one
    loss = _USUAL_LOSS if accuracy is None else accuracy / 2
    after = np.append(np.cumsum(np.maximum(w, 0)[::-1])[::-1], 0.0)  # Σ_{j>r} w_j at r
    enough = int(np.argmax(after <= loss * q * w[last]))
    return min(max(enough, _FEWEST * (k + 1)), q)
