"""Exact centring in feature space, without a second matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import (
    Doubles,
    Floats,
    blocks,
    require_square,
    working_dtype,
)
from eigenmesh.numerics.kernels import require_out


@dataclass(frozen=True)
class KernelMeans:
    """Means of a training kernel matrix: of each column, and of all entries."""

    columns: Doubles
    overall: float
    weights: Doubles | None = None  # of the training samples, 1 in all, where they differ


def centre_in_place(K: Floats) -> KernelMeans:
    """Centre a symmetric kernel matrix in place; returns the means that centre new rows.

    >>> K = np.array([[2.0, 0.0], [0.0, 2.0]])
    >>> centre_in_place(K).overall
    1.0
    >>> K
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    require_square(K)
    if K.dtype.kind != "f":
        raise InputError(f"dtype {K.dtype} cannot be centred in place; convert to float64 first")
    means = kernel_means(K)
    # Halving the overall mean keeps an exactly symmetric matrix exactly symmetric.
    half = means.columns - means.overall / 2
    for rows in blocks(len(K)):
        K[rows] -= half[rows, None] + half
    return means


def kernel_means(K: Floats, weights: Doubles | None = None) -> KernelMeans:
    """Column means and overall mean of a kernel matrix, accumulated in float64.

    >>> kernel_means(np.array([[2.0, 0.0], [0.0, 2.0]])).columns
    array([1., 1.])
    >>> kernel_means(np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([3.0, 1.0])).columns
    array([1.5, 0.5])
    """
    if weights is not None:
        shares = weights / weights.sum()
        columns = np.asarray(shares @ K, dtype=np.float64)
        return KernelMeans(columns, float(columns @ shares), shares)
    sums = [K[rows].sum(axis=0, dtype=np.float64) for rows in blocks(len(K))]
    columns = np.sum(sums, axis=0) / len(K)
    return KernelMeans(columns, float(columns.mean()))


def centre_rows(K_new: Floats, means: KernelMeans, out: Floats | None = None) -> Floats:
    """Centre kernel values of new rows (m, n_train) with the TRAINING means.

    >>> means = KernelMeans(np.array([1.0, 1.0]), 1.0)
    >>> centre_rows(np.array([[2.0, 0.0]]), means)
    array([[ 1., -1.]])
    """
    if K_new.ndim != 2 or K_new.shape[1] != len(means.columns):
        raise InputError(
            f"new kernel rows have shape {K_new.shape}, expected (m, {len(means.columns)}): "
            "one column for each training sample"
        )
    # Their own means would centre them somewhere else: scores were off by 8 % when it was tried.
    out = require_out(out, K_new.shape, working_dtype(K_new))
    if means.weights is None:
        own = K_new.mean(axis=1, dtype=np.float64) - means.overall
    else:
        own = K_new @ means.weights - means.overall
    for rows in blocks(len(K_new)):
        out[rows] = K_new[rows] - (own[rows, None] + means.columns)
    return out
