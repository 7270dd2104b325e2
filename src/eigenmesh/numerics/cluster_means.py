"""Means of clusters as functions of kernel values with landmarks, and distances to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Floats, Rows, as_rows, blocks
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.kmeans import POINTS_A_BLOCK, Labels


@dataclass(frozen=True)
class ClusterMeans:
    """Means μ_c inside the span of φ(Y): ⟨μ_c, φ(x)⟩ is k(x, Y) `coefficients`."""

    coefficients: Doubles  # (q, c)
    squared: Doubles  # (c,), ‖μ_c‖²

    @classmethod
    def of(
        cls, basis: Doubles, sums: Floats, weights: Floats, vacant: tuple[Doubles, Doubles]
    ) -> Self:
        """From the sums (c, q) of the rows' kernel values; `basis` B has BᵀK(Y, Y)B = I.

        Clusters without rows stand where `vacant` says: coefficients (q, c) and squared norms.

        >>> X, kernel = np.array([[1.0], [3.0]]), Kernel("linear")
        >>> sums, weights, Y = np.array([[4.0]]), np.array([2.0]), np.ones((1, 1))
        >>> means = ClusterMeans.of(np.ones((1, 1)), sums, weights, (np.zeros((1, 1)), np.zeros(1)))
        >>> means.distances(kernel, X, Y, np.array([0, 0]))
        array([1., 1.])
        """
        nonempty = weights > 0
        # In an orthonormal basis ‖μ‖² is a sum of squares. From coefficients it would take K(Y, Y),
        # whose small eigenvalues make them large, and their products would cancel.
        inside = (sums[nonempty] / weights[nonempty, None]) @ basis  # (c', r)
        coefficients, squares = vacant[0].copy(), vacant[1].copy()
        coefficients[:, nonempty] = basis @ inside.T
        squares[nonempty] = np.einsum("ij,ij->i", inside, inside)
        return cls(coefficients, squares)

    def distances_in(self, model: Any, X: Rows, labels: Labels) -> Doubles:
        """The same, of a model that has the landmarks."""
        Y = as_rows(model.landmarks, np.float64)
        return self.distances(model.kernel, as_rows(X, np.float64), Y, labels)

    def distances(self, kernel: Kernel, X: Rows, Y: Rows, labels: Labels) -> Doubles:
        """‖φ(x) − μ‖² of every row with the mean of its cluster, (n,)."""
        distances = np.empty(X.shape[0])
        for rows in blocks(X.shape[0], POINTS_A_BLOCK):
            A, own = X[rows], labels[rows]
            inner = (kernel.block(A, Y) @ self.coefficients)[np.arange(len(own)), own]
            # By products, not differences inside the span: what φ(x) has outside only k(x, x)
            # knows.
            distances[rows] = kernel.diagonal(A) - 2.0 * inner + self.squared[own]
        return np.maximum(distances, 0.0, out=distances)


@dataclass(frozen=True)
class FeatureMeans:
    """Means of clusters in a feature space that is written out."""

    means: Doubles  # (c, D)

    @classmethod
    def of(cls, sums: Floats, weights: Floats, vacant: Doubles) -> Self:
        """From sums (c, D) of features; clusters without rows stand where `vacant` (c, D) says.

        >>> FeatureMeans.of(np.array([[4.0], [0.0]]), np.array([2.0, 0.0]), np.ones((2, 1))).means
        array([[2.],
               [1.]])
        """
        means = np.array(vacant, dtype=np.float64)
        nonempty = weights > 0
        means[nonempty] = sums[nonempty] / weights[nonempty, None]
        return cls(means)

    def distances_in(self, model: Any, X: Rows, labels: Labels) -> Doubles:
        """‖φ(x) − μ‖² of every row with the mean of its cluster, (n,)."""
        features, distances = model.features, np.empty(X.shape[0])
        for rows in blocks(X.shape[0], POINTS_A_BLOCK):
            offsets = features(X[rows]) - self.means[labels[rows]]
            distances[rows] = np.einsum("ij,ij->i", offsets, offsets)
        return distances


def squared_distances(norms: Doubles, scores: Floats, centres: Floats) -> Doubles:
    """‖φ(x) − μ‖², `norms` being k(x, x), `centres` each row's μ in the scores' coordinates.

    >>> squared_distances(np.array([5.0]), np.array([[1.0]]), np.array([[3.0]]))
    array([8.])
    """
    # What a row has outside lies across every mean inside, so that both parts add up; inside, by
    # differences, a row at its mean keeps its digits.
    outside = np.maximum(norms - np.einsum("ij,ij->i", scores, scores), 0.0)
    offsets = scores - centres
    return np.asarray(outside + np.einsum("ij,ij->i", offsets, offsets), dtype=np.float64)
