"""What rows add up to with landmarks where each counts with a weight."""

from __future__ import annotations

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, blocks
from eigenmesh.numerics.landmark_sums import LandmarkSums, Span
from eigenmesh.threads import one_blas_thread

_BLOCK = 1024


def weighted_landmark_sums(span: Span, A: Rows, weights: Doubles) -> LandmarkSums:
    """`landmark_sums` of rows A as if there were as many copies of each as its weight says.

    >>> from eigenmesh.numerics.kernels import Kernel
    >>> span = Span.of(Kernel("linear"), np.array([[1.0], [2.0]]))
    >>> weighted_landmark_sums(span, np.array([[1.0], [4.0]]), np.array([1.0, 2.0])).sums
    array([4.5, 9. ])
    """
    q = len(span.K)
    gram, sums, trace = np.zeros((q, q)), np.zeros(q), 0.0
    with one_blas_thread():
        for rows in blocks(A.shape[0], _BLOCK):
            X, w = as_rows(A[rows], np.float64), weights[rows]
            K = np.asarray(span.kernel.block(X, span.landmarks), dtype=np.float64) - span.shift
            scaled = np.sqrt(w)[:, None] * K
            gram += scaled.T @ scaled
            sums += w @ K
            trace += float(w @ np.asarray(span.kernel.diagonal(X), dtype=np.float64))
    return LandmarkSums(gram, sums, int(A.shape[0]), trace)
