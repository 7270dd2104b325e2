"""Subspace iteration by nodes that only ever average: the steps of DeEPCA at one node.

Ye and Zhang, "DeEPCA: Decentralized Exact PCA with Linear Convergence Rate", JMLR 22, 2021.
"""

from __future__ import annotations

import numpy as np

from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.eigen import fix_signs, top_eigenpairs

_ROUNDING = 1e-11


def orthonormal(S: Doubles) -> Doubles:
    """Q of S = QR, with no negative number on the diagonal of R: nodes must not flip apart.

    So Q follows S without a jump. Signs as in the first directions, which the paper takes, are a
    matter of rounding once a column has turned away from its first direction by a right angle.

    >>> orthonormal(np.array([[2.0, 1.0], [0.0, -3.0]])) + 0.0
    array([[ 1.,  0.],
           [ 0., -1.]])
    """
    Q, R = np.linalg.qr(S)
    return np.asarray(Q * np.where(np.diagonal(R) < 0, -1.0, 1.0))


def leading_directions(E: Doubles, k: int, centre: bool = True) -> Doubles:
    """(D, k), orthonormal: the principal directions of features E (n, D), centred or not.

    >>> abs(leading_directions(np.array([[3.0, 0.0], [-3.0, 0.1]]), 1)).round(1).ravel()
    array([1., 0.])
    """
    F = E - E.mean(axis=0) if centre else E
    _, vectors = top_eigenpairs(F.T @ F, k)
    return np.asarray(fix_signs(vectors))


def random_directions(width: int, k: int, seed: int) -> Doubles:
    """(D, k), orthonormal, the same for all who know the seed.

    >>> random_directions(5, 2, seed=0).shape
    (5, 2)
    """
    Q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((width, k)))
    return np.asarray(Q)


def still_growing(W: Doubles, S: Doubles) -> Doubles:
    """About the share of each eigenvalue that directions W (D, s) lack, if S is A W, (s,).

    What A makes of a direction leaves W by its residual ρ; the eigenvalue is then the larger one of
    [[θ, ρ], [ρ, e]], where e, what A has outside W, is taken to be as large as the last θ.

    >>> A, W = np.diag([4.0, 1.0, 0.5]), np.linalg.qr(np.array([[1.0, 0], [0, 1], [0, 0.3]]))[0]
    >>> still_growing(W, A @ W).round(3)
    array([0.   , 0.126])
    """
    inner = W.T @ S
    theta, turn = principal_rotation(inner)
    squared = np.square((S - W @ inner) @ turn).sum(axis=0)
    half = (theta - theta[-1:]) / 2
    # √(h² + ρ²) − h is the larger eigenvalue less θ, h being half of θ − e.
    gains = np.sqrt(np.square(half) + squared) - half
    least = _ROUNDING * theta[0] + np.finfo(float).tiny  # of what is less all is rounding
    return np.asarray(gains / np.maximum(theta + gains, least))


def principal_rotation(inner: Doubles) -> tuple[Doubles, Doubles]:
    """Eigenvalues, none below 0, and eigenvectors of VᵀV (s, s), in descending order.

    >>> principal_rotation(np.diag([1.0, 4.0]))[0]
    array([4., 1.])
    """
    # eigh looks at one triangle only, and of WᵀS, which comes from averages, the two may differ.
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    return np.maximum(values[::-1], 0.0), np.asarray(fix_signs(vectors[:, ::-1]))
