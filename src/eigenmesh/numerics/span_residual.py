"""How much of the rows lies outside the span of the landmarks."""

from __future__ import annotations

import numpy as np

from eigenmesh.numerics.float32_sums import Span
from eigenmesh.numerics.landmarks import LandmarkSums


def span_residual(span: Span, sums: LandmarkSums) -> float:
    """Σ‖φ(a) − Pφ(a)‖² over all rows, P the projection on the span of φ(Y), from their sums.

    It is the trace that a partial Cholesky factor with pivots Y leaves of the kernel matrix.

    >>> from eigenmesh.numerics.kernels import Kernel
    >>> from eigenmesh.numerics.landmarks import landmark_sums
    >>> X, Y, linear = np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]]), Kernel("linear")
    >>> span_residual(Span.of(linear, Y), landmark_sums(linear, X, Y))
    16.0
    """
    B = span.basis
    sum_inside, shift_inside = B.T @ sums.sums, B.T @ span.shift
    inside = np.vdot(B, sums.gram @ B) + 2 * sum_inside @ shift_inside
    inside += sums.n_rows * shift_inside @ shift_inside
    return max(sums.trace - float(inside), 0.0)
