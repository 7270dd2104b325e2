"""How near a low-rank factor comes to the best low-rank part of a kernel matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.floating[Any]]


def recovery_error(scores: Doubles, eigenvalues: Doubles, eigenvectors: Doubles) -> float:
    """‖H Hᵀ − U Λ Uᵀ‖²_F / n² for scores H (n, s), without a matrix of n × n.

    >>> H = np.array([[1.0], [1.0]])
    >>> recovery_error(H, np.array([2.0]), H / np.sqrt(2))
    0.0
    """
    factor = eigenvectors * np.sqrt(eigenvalues)
    own, theirs = scores.T @ scores, factor.T @ factor
    squared = np.sum(own**2) - 2 * np.sum((scores.T @ factor) ** 2) + np.sum(theirs**2)
    return max(float(squared), 0.0) / len(scores) ** 2
