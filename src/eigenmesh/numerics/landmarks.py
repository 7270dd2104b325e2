"""Kernel PCA inside the span of landmarks: what rows add up to, and the best subspace in it.

Y are q landmarks, K' = K(A, Y) − 1cᵀ the kernel values of rows A, shifted by c, the column means of
K(Y, Y). Without the shift the sums lose the digits in which samples differ when all kernel values
are alike (gamma small): relative error 1e-8 where the shifted sums give 3e-13.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans

from eigenmesh.numerics.arrays import Doubles, Rows, blocks, is_sparse
from eigenmesh.numerics.eigen import (
    clip_spectrum,
    fix_signs,
    pseudo_inverse_root,
    require_rank,
    top_eigenpairs,
)
from eigenmesh.numerics.kernels import Kernel


class LandmarkSums(NamedTuple):
    """What rows add up to; sums of these over parties are those of all rows."""

    gram: Doubles  # (q, q), K'ᵀK'
    sums: Doubles  # (q,), K'ᵀ1
    n_rows: int
    trace: float  # Σ k(x, x)


def landmark_sums(kernel: Kernel, A: Rows, Y: Rows) -> LandmarkSums:
    """The sums of rows A, block by block."""
    shift = _shift(kernel, Y)
    gram, sums, trace = np.zeros((len(shift), len(shift))), np.zeros(len(shift)), 0.0
    for rows in blocks(A.shape[0]):
        block = kernel.block(A[rows], Y).astype(np.float64, copy=False) - shift
        gram += block.T @ block
        sums += block.sum(axis=0)
        trace += float(kernel.diagonal(A[rows]).sum(dtype=np.float64))
    return LandmarkSums(gram, sums, A.shape[0], trace)


def _shift(kernel: Kernel, Y: Rows) -> Doubles:
    return np.asarray(kernel.matrix(Y).mean(axis=0, dtype=np.float64))


def residuals(kernel: Kernel, A: Rows, Y: Rows) -> Doubles:
    """Squared distance of every φ(a) to the span of φ(Y), (n,)."""
    B = pseudo_inverse_root(kernel.matrix(Y))
    left = np.empty(A.shape[0])
    for rows in blocks(A.shape[0]):
        projected = kernel.block(A[rows], Y) @ B
        inside = np.einsum("ij,ij->i", projected, projected)
        left[rows] = kernel.diagonal(A[rows]) - inside
    return np.maximum(left, 0.0)


@dataclass(frozen=True)
class LandmarkModel:
    """Components inside the span of φ(Y): score(x) = k(x, Y) `coefficients` − `offset`."""

    kernel: Kernel
    landmarks: Rows  # (q, d)
    coefficients: Doubles  # (q, k)
    offset: Doubles  # (k,)
    eigenvalues: Doubles  # (k,)
    next_eigenvalue: float
    total: float  # upper bound of the variance in feature space; exact if not centred
    n_rows: int

    @classmethod
    def fit(cls, kernel: Kernel, Y: Rows, sums: LandmarkSums, k: int, centre: bool) -> Self:
        """The best k components of the rows that `sums` covers."""
        n, c = sums.n_rows, _shift(kernel, Y)
        B = pseudo_inverse_root(kernel.matrix(Y))  # (q, r), BᵀK(Y, Y)B = I
        mean = B.T @ (sums.sums / n + c) if centre else np.zeros(B.shape[1])
        G = B.T @ _uncorrected(sums, c, centre) @ B
        values, W = top_eigenpairs((G + G.T) / 2, min(k + 1, B.shape[1]))
        values = clip_spectrum(values, n)
        require_rank(values, k, n, f"{len(c)} landmarks")
        W = np.asarray(fix_signs(W[:, :k]))
        after = float(values[k]) if len(values) > k else 0.0
        total = sums.trace - n * float(mean @ mean)
        return cls(kernel, Y, B @ W, mean @ W, values[:k], after, total, n)

    @property
    def residual(self) -> float:
        """Variance that the components leave out, or an upper bound of it."""
        return max(self.total - float(self.eigenvalues.sum()), 0.0)

    def transform(self, X: Rows) -> Doubles:
        """Scores (n, k) of any rows."""
        scores = np.empty((X.shape[0], len(self.eigenvalues)))
        for rows in blocks(X.shape[0]):
            scores[rows] = self.kernel.block(X[rows], self.landmarks) @ self.coefficients
        return scores - self.offset


def _uncorrected(sums: LandmarkSums, c: Doubles, centre: bool) -> Any:
    """KᵀK of all rows, centred or as it is, from the shifted sums."""
    if centre:
        return sums.gram - np.outer(sums.sums, sums.sums) / sums.n_rows
    cross = np.outer(sums.sums, c)
    return sums.gram + cross + cross.T + sums.n_rows * np.outer(c, c)


def centroids(A: Rows, count: int, least: int, seed: int) -> Doubles:
    """Means of at most `count` clusters of rows, of at least `least` rows each.

    A few Lloyd steps on a sample are enough; clusters that are too small are left out. Fewer than
    `least` rows in all have no cluster, and give none.

    >>> centroids(np.array([[0.0], [0.2], [9.0], [9.2]]), 2, 2, seed=0).ravel().round(1).tolist()
    [0.1, 9.1]
    """
    A, n = _with_short_indices(A), A.shape[0]
    clusters = min(count, n // least)
    if clusters < 1:
        return np.zeros((0, A.shape[1]))
    sample = np.random.default_rng(seed).permutation(n)[: max(20 * count, 2 * least)]
    kmeans = KMeans(clusters, init="random", n_init=1, max_iter=5, tol=0, random_state=seed)
    kmeans.fit(A[np.sort(sample)])
    labels = kmeans.predict(A)
    # All rows of a cluster count, not only those of the sample: the mean is of at least `least`.
    large = np.flatnonzero(np.bincount(labels, minlength=clusters) >= least)
    means = [np.asarray(A[np.flatnonzero(labels == j)].mean(axis=0)).ravel() for j in large]
    return np.asarray(sorted(map(tuple, means)), dtype=np.float64).reshape(-1, A.shape[1])


def _with_short_indices(A: Rows) -> Rows:
    """scikit-learn's k-means takes sparse rows with 32-bit indices only."""
    if is_sparse(A) and A.indices.dtype != np.int32 and A.nnz < 2**31:
        parts = (A.data, A.indices.astype(np.int32), A.indptr.astype(np.int32))
        return sp.csr_array(parts, shape=A.shape)
    return A
