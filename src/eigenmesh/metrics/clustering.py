"""How good clusters are in feature space."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from eigenmesh.errors import InputError


def feature_space_inertia(
    K: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Σ w ‖φ(x) − μ‖², μ the mean of x's cluster, from the whole kernel matrix.

    What kernel k-means makes small, whatever way the labels were found.

    >>> import numpy as np
    >>> feature_space_inertia(np.eye(3), [0, 0, 1])
    1.0
    """
    K, labels = np.asarray(K, dtype=np.float64), np.asarray(labels)
    w = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not (K.shape == (len(labels),) * 2 and len(w) == len(labels)):
        raise InputError(
            f"a kernel matrix of shape {K.shape}, {len(labels)} labels and {len(w)} weights; one "
            f"of each a row is expected"
        )
    members = _members(labels) * w  # (c, n)
    totals = members.sum(axis=1)
    inside = np.einsum("cn,cn->c", members @ K, members)
    between = float((inside[totals > 0] / totals[totals > 0]).sum())
    return max(float(w @ np.diag(K)) - between, 0.0)


def recovery_error(Z: ArrayLike, eigenvalues: ArrayLike, eigenvectors: ArrayLike) -> float:
    """‖ZZᵀ − K_s‖²_F / n²: how far scores are from the best rank-s kernel matrix, up to a rotation.

    `eigenvalues` (s,) and `eigenvectors` (n, s) are the exact ones of the kernel matrix. Nothing
    n×n is formed.

    >>> import numpy as np
    >>> V = np.eye(4)[:, :2]
    >>> round(recovery_error(V * np.sqrt([3.0, 2.0]), [3.0, 2.0], V), 12)
    0.0
    """
    Z, V = np.asarray(Z, dtype=np.float64), np.asarray(eigenvectors, dtype=np.float64)
    values = np.asarray(eigenvalues, dtype=np.float64)
    if len(Z) != len(V) or V.shape[1:] != values.shape:
        raise InputError(
            f"scores of shape {Z.shape}, eigenvectors {V.shape} and {len(values)} eigenvalues; a "
            f"row a sample and a column an eigenvalue are expected"
        )
    # Both in one basis, so that what is alike cancels before it is squared.
    basis, _ = np.linalg.qr(np.hstack([V, Z]))
    a, b = basis.T @ Z, basis.T @ V
    difference = a @ a.T - (b * values) @ b.T
    return float(np.square(difference).sum()) / len(Z) ** 2


def _members(labels: Any) -> Any:
    return (np.unique(labels)[:, None] == labels).astype(np.float64)
