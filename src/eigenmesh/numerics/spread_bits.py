"""Coordinates of samples in few bits: who gets how many, and what that does to distances.

With z = q + e, where q is what travels of a sample's coordinates z (0 of those that do not), and
all squared lengths |z|² known beside it, |z_i − z_j|² = |z_i|² + |z_j|² − 2 z_i·z_j is off by

    2 (q_i·e_j + e_i·q_j + e_i·e_j),

which has no part that is the same for all pairs of a sample. On an eigenvector of the kernel matrix
that sums up to little over the samples, but for what e does along the coordinates in which they
vary most: errors there matter more than their size, and bits go by the cube of a variance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.numerics.arrays import Doubles, blocks, squared_norms
from eigenmesh.numerics.kernels import Kernel

# At equal bytes the least gains over eigenpairs, of eight real sets and of two drawn ones, were 22
# and .6 times by variances squared, 30 and .9 to the power of 2.5, 29 and 3 cubed, 22 and 3.5 to
# the fourth.
_POWER = 3
# What the best even steps of 0, 1, 2, 3 and 4 bits leave of a normal variance (Max, 1960), and each
# further bit of what was left before it.
_LEFT = (1.0, 0.3634, 0.1188, 0.03744, 0.01154)
_LEFT_BY_ONE_MORE = 0.28
_DEVIATIONS = 3  # with two, what is said did not hold in 1 of 59 drawn fits
_SKETCH = 64  # columns in which a change is followed, if there are more


def spread_bits(
    variances: Doubles, budget: float, column_cost: float, most: int
) -> NDArray[np.int64]:
    """Bits for each coordinate, 0 to `most`, of a budget for one sample.

    A coordinate that gets any costs `column_cost` besides. Bits are given one after the other to
    whom they help most; the first coordinate gets one in any case.

    >>> spread_bits(np.array([100.0, 9.0, 1.0, 0.0]), 20, 0.5, most=16)
    array([12,  7,  0,  0])
    """
    bits = np.zeros(len(variances), np.int64)
    largest = max(float(np.max(variances, initial=0.0)), np.finfo(float).tiny)
    left = (variances / largest) ** _POWER
    gains = left * (_left_after(0) - _left_after(1)) / (1 + column_cost)
    while gains.max(initial=0.0) > 0:
        c = int(gains.argmax())
        cost = 1 if bits[c] else 1 + column_cost
        if cost > budget or bits[c] == most:
            gains[c] = 0.0
            continue
        budget, bits[c] = budget - cost, bits[c] + 1
        gains[c] = left[c] * (_left_after(int(bits[c])) - _left_after(int(bits[c]) + 1))
    bits[:1] = np.maximum(bits[:1], 1)  # also of columns that are constant
    return bits


def _left_after(bits: int) -> float:
    over = max(bits - len(_LEFT) + 1, 0)
    return float(_LEFT[bits - over] * _LEFT_BY_ONE_MORE**over)


def change_of_distances(Z: Doubles, Q: Doubles, off: Doubles, rest: float) -> float:
    """An upper bound of ‖D − D̂‖_F from coordinates Z and what travels of them, Q.

    Squared lengths are rounded by `off` (T,); those of what Z has not add up to `rest`.
    """
    E = Z - Q
    H = Q + E / 2  # q_i·e_j + e_i·q_j + e_i·e_j = h_i·e_j + e_i·h_j
    crossed = H.T @ E
    squares = 2 * float(np.vdot(H.T @ H, E.T @ E)) + 2 * float(np.vdot(crossed, crossed.T))
    lengths = 2 * np.sqrt(len(Z)) * float(np.linalg.norm(off))
    return float(2 * np.sqrt(max(squares, 0.0)) + lengths + 2 * rest)


def likely_changes(
    kernel: Kernel,
    K_rows: Any,
    Q: Doubles,
    deviations: Doubles,
    eigenvalues: Doubles,
    eigenvectors: Doubles,
) -> Doubles:
    """By how much eigenvalues of an RBF kernel matrix are likely off, at most: (k,).

    Coordinates Q are off by chance, with these standard deviations; `K_rows` gives rows of K̂. By
    first order an eigenvalue moves by 4γ Σ_i e_i·(u_i Σ_j K_ij u_j q_j), of which three standard
    deviations are taken, and by second order by ‖ΔK u‖²/λ.
    """
    gamma, U, n = float(kernel.gamma or 0.0), eigenvectors, len(Q)
    spread = Q * deviations
    sketch = spread
    if Q.shape[1] > _SKETCH:
        rng = np.random.default_rng(0)
        sketch = spread @ rng.standard_normal((Q.shape[1], _SKETCH)) / np.sqrt(_SKETCH)
    lengths = np.asarray(squared_norms(spread), np.float64)
    first, second = np.zeros(U.shape[1]), np.zeros(U.shape[1])
    for rows in blocks(n):
        K = K_rows(rows)
        second += lengths[rows] @ (np.square(K) @ np.square(U))
        for k, u in enumerate(U.T):
            moved = np.asarray(squared_norms(K @ (u[:, None] * sketch)), np.float64)
            first[k] += float(np.square(u[rows]) @ moved)
            second[k] += float(moved.sum())
    sizes = np.maximum(np.abs(eigenvalues), np.finfo(float).tiny)
    return np.asarray(_DEVIATIONS * 4 * gamma * np.sqrt(first) + 4 * gamma**2 * second / sizes)
