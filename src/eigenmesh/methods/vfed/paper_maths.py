"""Paper 002's pieces: power iterations on a local matrix, and the merge of local vectors.

The paper adds vectors as they come. An eigenvector's sign is arbitrary, so they are turned to
agree first; and the merged vector is brought to unit length.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.eigen import fix_signs


def power_iterations(
    apply: Callable[[Doubles], Doubles], start: Doubles, times: int, floor: float = 0.0
) -> tuple[Doubles, float]:
    """Eqs. (5) and (6): a ← A a / ‖A a‖, and the Rayleigh quotient aᵀA a.

    Where ‖A a‖ is at most `floor`, the rounding of A, there is nothing left to find.

    >>> a, alpha = power_iterations(lambda v: np.array([2.0, 1.0]) * v, np.ones(2), 30)
    >>> a.round(6).tolist(), round(alpha, 6)
    ([1.0, 0.0], 2.0)
    """
    a = start / np.linalg.norm(start)
    for _ in range(times):
        image = apply(a)
        size = float(np.linalg.norm(image))
        if size <= floor:  # a matrix of zeros leaves the start as good as any
            return a, 0.0
        a = image / size
    return a, float(a @ apply(a))


def merge_weights(values: Doubles, equal: bool, scaling: bool) -> Doubles:
    """ω of eq. (13), from |α| since kernels may be indefinite; with `scaling` those of eq. (15).

    η there is the mean of weights that sum to one, hence 1/p: the larger half of the clients
    counts 1 + η times, the others 1 − η times.

    >>> merge_weights(np.array([3.0, 1.0]), equal=False, scaling=True)
    array([1.125, 0.125])
    """
    p, sizes = len(values), np.abs(values)
    total = float(sizes.sum())
    weights = np.full(p, 1.0 / p) if equal or not total else sizes / total
    if scaling:
        order = np.argsort(-sizes, kind="stable")
        factor = np.full(p, 1.0 - 1.0 / p)
        factor[order[: p // 2]] = 1.0 + 1.0 / p
        weights = weights * factor
    return np.asarray(weights)


def merged(vectors: Doubles, weights: Doubles, align: bool) -> Doubles:
    """The weighted sum of unit vectors (p, n), brought to unit length.

    `align` turns each towards the leading direction of all of them first.

    >>> vectors = np.array([[1.0, 0.0], [-1.0, 0.0]])
    >>> float(merged(vectors, np.array([0.75, 0.25]), align=True)[0])
    1.0
    """
    if align:
        overlaps = vectors @ vectors.T * np.sqrt(np.outer(weights, weights))
        leading = np.linalg.eigh(overlaps)[1][:, -1]
        weights = weights * np.where(leading < 0, -1.0, 1.0)
    u = weights @ vectors
    size = float(np.linalg.norm(u))
    u = u / size if size else vectors[int(np.argmax(np.abs(weights)))]
    return np.asarray(fix_signs(u[:, None])[:, 0])


def apart(u: Doubles, v: Doubles) -> float:
    """Distance of two unit vectors, whatever their signs.

    >>> apart(np.array([1.0, 0.0]), np.array([-1.0, 0.0]))
    0.0
    """
    return float(min(np.linalg.norm(u - v), np.linalg.norm(u + v)))
