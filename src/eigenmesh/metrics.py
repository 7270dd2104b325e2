"""How close an answer is to the one from pooled data: subspaces, scores, clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenmesh.errors import InputError, RankError


def principal_angles(U: NDArray[Any], V: NDArray[Any]) -> NDArray[np.float64]:
    """Principal angles between the column spans of U and V, smallest first, in radians.

    >>> U, V = np.array([[1.0], [0.0]]), np.array([[2.0], [2.0]])
    >>> principal_angles(U, V).round(6)
    array([0.785398])
    """
    U, V = _ordered(_orthonormal(U), _orthonormal(V))
    overlap = U.T @ V
    cosines = np.linalg.svd(overlap, compute_uv=False)
    # arccos loses half the digits near 0, where the sines keep them all.
    sines = np.linalg.svd(V - U @ overlap, compute_uv=False)[::-1]
    by_sine = np.arcsin(np.minimum(sines, 1.0))
    by_cosine = np.arccos(np.minimum(cosines, 1.0))
    angles: NDArray[np.float64] = np.where(cosines**2 > 0.5, by_sine, by_cosine)
    return angles


def sin_theta(U: NDArray[Any], V: NDArray[Any]) -> float:
    """‖sin Θ‖_F: root of the summed squared sines of the principal angles.

    >>> sin_theta(np.eye(3)[:, :2], np.eye(3)[:, 1:])
    1.0
    """
    return float(np.linalg.norm(np.sin(principal_angles(U, V))))


def projector_distance(U: NDArray[Any], V: NDArray[Any]) -> float:
    """‖P_U − P_V‖²_F of the orthogonal projectors on the column spans.

    >>> projector_distance(np.eye(3)[:, :2], np.eye(3)[:, 1:])
    2.0
    """
    # 2 Σ sin² needs no (n, n) projector; each surplus dimension adds 1.
    surplus = float(abs(U.shape[1] - V.shape[1]))
    return surplus + 2.0 * sin_theta(U, V) ** 2


def aligned_error(Z: NDArray[Any], Z_ref: NDArray[Any]) -> float:
    """Largest absolute difference after each column's sign is aligned, relative to max |Z_ref|.

    >>> aligned_error(np.array([[-1.0], [-2.0]]), np.array([[1.0], [2.0]]))
    0.0
    """
    if Z.shape != Z_ref.shape:
        raise InputError(f"scores of shape {Z.shape} against {Z_ref.shape}; compare equal shapes")
    signs = np.where(np.einsum("ij,ij->j", Z, Z_ref) < 0, -1.0, 1.0)
    scale = float(np.abs(Z_ref).max(initial=0.0))
    error = float(np.abs(Z * signs - Z_ref).max(initial=0.0))
    return error / scale if scale else error


def _orthonormal(U: NDArray[Any]) -> NDArray[np.float64]:
    if U.ndim != 2 or U.shape[0] < U.shape[1] or not U.shape[1]:
        raise InputError(f"a basis of shape {U.shape}; expected (n, k) with 1 ≤ k ≤ n")
    # Unit columns first: the rank must not depend on how scores are scaled.
    U = np.asarray(U, dtype=np.float64)
    norms = np.linalg.norm(U, axis=0)
    Q, R = np.linalg.qr(U / np.where(norms > 0, norms, 1.0))
    rank = int(np.sum(np.abs(np.diag(R)) > 1e-13 * len(U)))
    if rank < U.shape[1]:
        raise RankError(
            f"{U.shape[1]} columns span only {rank} dimensions; pass independent columns"
        )
    return Q


def _ordered(
    U: NDArray[np.float64], V: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if U.shape[0] != V.shape[0]:
        raise InputError(
            f"bases of {U.shape[0]} and {V.shape[0]} rows; compare subspaces of the same space"
        )
    return (U, V) if U.shape[1] >= V.shape[1] else (V, U)


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
