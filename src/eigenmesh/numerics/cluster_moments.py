"""What the rows of each cluster add up to in feature space, and the inertia that follows.

The inertia Σ w ‖φ(x) − μ‖², μ the mean of x's cluster, is Σ w k(x, x) − Σ_c W_c ‖μ_c‖².
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Floats, Rows, blocks
from eigenmesh.numerics.explicit_features import ExplicitFeatures
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.kmeans import POINTS_A_BLOCK, Labels, membership, weight_of_each


class ClusterMoments(NamedTuple):
    """Sums over rows; those of several parties add up."""

    sums: Doubles  # (c, q), Σ w k(x, Y) of each cluster
    weights: Doubles  # (c,), Σ w
    trace: float  # Σ w k(x, x)
    inside: float  # Σ w ‖Pφ(x)‖², P on the span of φ(Y)


def cluster_moments(
    kernel: Kernel,
    X: Rows,
    Y: Rows,
    clusters: tuple[Labels, Doubles, int],
    basis: Doubles | None = None,
) -> ClusterMoments:
    """Of rows X with landmarks Y; `clusters` are labels, weights and the number of clusters.

    `basis` B, with BᵀK(Y, Y)B = I, is needed for `inside`, which is 0 without.

    >>> X = np.array([[1.0], [3.0]])
    >>> found = cluster_moments(Kernel("linear"), X, X, (np.array([0, 0]), np.ones(2), 1))
    >>> found.sums, found.trace
    (array([[ 4., 12.]]), 10.0)
    """
    labels, weights, k = clusters
    sums, trace, inside = np.zeros((k, Y.shape[0])), 0.0, 0.0
    for rows in blocks(X.shape[0], POINTS_A_BLOCK):
        A, own = X[rows], weights[rows]
        K = kernel.block(A, Y)
        sums += membership(labels[rows], own, k) @ K
        trace += float(own @ np.asarray(kernel.diagonal(A), dtype=np.float64))
        if basis is not None:
            P = K @ basis
            inside += float(own @ np.einsum("ij,ij->i", P, P))
    return ClusterMoments(sums, weight_of_each(labels, weights, k), max(trace, 0.0), inside)


def clustered_features(
    features: ExplicitFeatures, X: Rows, clusters: tuple[Labels, Doubles, int]
) -> tuple[Doubles, Doubles, float]:
    """Σ w φ(x) and Σ w of each cluster, (k, D) and (k,), and Σ w k(x, x) of all rows.

    >>> features = ExplicitFeatures(Kernel("linear"), 1)
    >>> clusters = (np.array([0, 0]), np.ones(2), 1)
    >>> clustered_features(features, np.array([[1.0], [3.0]]), clusters)
    (array([[4.]]), array([2.]), 10.0)
    """
    labels, weights, k = clusters
    sums, trace = np.zeros((k, features.width)), 0.0
    for rows in blocks(X.shape[0], POINTS_A_BLOCK):
        E, own = features(X[rows]), weights[rows]
        sums += membership(labels[rows], own, k) @ E
        trace += float(own @ np.einsum("ij,ij->i", E, E))
    return sums, weight_of_each(labels, weights, k), trace


def inertia_of(trace: float, sums: Floats, weights: Floats) -> float:
    """From sums (c, r) in orthonormal coordinates; an upper bound if these do not hold all.

    >>> inertia_of(10.0, np.array([[4.0]]), np.array([2.0]))
    2.0
    """
    nonempty = weights > 0
    means = sums[nonempty] / weights[nonempty, None]
    # Coordinates that do not hold all of a mean make it shorter: less is taken off.
    between = float(weights[nonempty] @ np.einsum("ij,ij->i", means, means))
    return max(trace - between, 0.0)


def whole_inertia(kernel: Kernel, X: Rows, clusters: tuple[Labels, Doubles, int]) -> float:
    """The inertia of rows that are all in one place, without their whole kernel matrix.

    >>> X = np.array([[1.0], [3.0]])
    >>> whole_inertia(Kernel("linear"), X, (np.array([0, 0]), np.ones(2), 1))
    2.0
    """
    labels, weights, _ = clusters
    # With every row as a landmark the sums take k n numbers, where the matrix would take n².
    moments = cluster_moments(kernel, X, X, clusters)
    own = weights * moments.sums[labels, np.arange(len(labels))]  # Σ over the row's own cluster
    squares = weight_of_each(labels, own, len(moments.weights))
    nonempty = moments.weights > 0
    return max(moments.trace - float((squares[nonempty] / moments.weights[nonempty]).sum()), 0.0)
