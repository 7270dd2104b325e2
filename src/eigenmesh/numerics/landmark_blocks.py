"""Kernel values of blocks of rows with landmarks, less a shift, in as few passes as can be.

Of kernels that are a simple function of products or distances (linear, poly, rbf, sigmoid), the
argument of a dense row x with landmark y is affine in x and ‖x‖²: one matrix product gives it, and
the rest works in place. All other kernels, and sparse rows, take `Kernel.block`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from eigenmesh.numerics.arrays import (
    BLOCK_ROWS,
    Doubles,
    Floats,
    Rows,
    as_rows,
    blocks,
    is_sparse,
    squared_norms,
    working_dtype,
)
from eigenmesh.numerics.kernels import LARGEST_MULTIPLIED_DEGREE, Kernel, multiply_up

# Sizes found by trying.
_USUAL_ROWS, _MANY_ROWS, _NEAR_ROWS = 2048, 8192, 512
_FEW_WEIGHTS = 1 << 17  # that stay in cache beside _NEAR_ROWS
_LONG = 128  # columns
_CACHED = 1 << 17  # values, that stay in cache between two passes over them
_FEWEST_ROWS = 64  # that are worth a matrix product
_NEAR = 4.0  # squared distance of the middle from the origin, in spreads, that costs few digits


class Filler(Protocol):
    """Buffers of one thread."""

    @property
    def rows(self) -> int:
        """How many rows are best filled at a time."""

    def fill(self, x: Rows, out: Floats) -> Doubles:
        """Write k(x, Y) − c of some rows (m, d) into `out` (m, q); gives their k(x, x), (m,)."""


def block_dtype(kernel: Kernel, A: Rows, Y: Rows) -> np.dtype[Any]:
    """float32 where rows and landmarks are, and the kernel keeps its digits in it."""
    is_fused = _is_fused(kernel) and not (is_sparse(A) or is_sparse(Y))
    # The sigmoid kernel is not positive: nothing bounds its projections, so nothing their rounding.
    safe = is_fused and kernel.name != "sigmoid"
    return working_dtype(A, Y) if safe else np.dtype(np.float64)


def _is_fused(kernel: Kernel) -> bool:
    if kernel.name == "poly":
        return kernel.degree == int(kernel.degree) and kernel.degree <= LARGEST_MULTIPLIED_DEGREE
    return kernel.name in ("linear", "rbf", "sigmoid")


@dataclass(frozen=True)
class ShiftedKernel:
    """k(x, Y) − c, in blocks of one dtype; `shift` is the c that is really subtracted."""

    kernel: Kernel
    dtype: np.dtype[Any]
    shift: Doubles  # (q,)
    _landmarks: Rows  # float64
    _affine: _Affine | None

    @classmethod
    def of(cls, kernel: Kernel, Y: Rows, c: Doubles, dtype: np.dtype[Any]) -> ShiftedKernel:
        """For landmarks Y and about the shift c, (q,), or (1,) for an RBF kernel."""
        Y = as_rows(Y, np.float64)
        if is_sparse(Y) or not _is_fused(kernel):
            return cls(kernel, dtype, c, Y, None)
        affine = _affine(kernel, Y, c, dtype)
        return cls(kernel, dtype, affine.applied_shift, Y, affine)

    def filler(self, A: Rows) -> Filler:
        """Buffers for one thread to work on rows of A."""
        if self._affine is None or is_sparse(A):
            return _General(self.kernel, self._landmarks, self.shift)
        affine = self._affine
        in_place = A.dtype == self.dtype and A.dtype.isnative and A.flags.c_contiguous
        # A copy of every row costs more than two more passes over its kernel values.
        if in_place and affine.centre is None and A.shape[1] >= len(self.shift):
            return _InPlace(self.kernel, affine)
        return _Copied(self.kernel, affine)


@dataclass(frozen=True)
class _General:
    kernel: Kernel
    landmarks: Rows
    shift: Doubles
    rows: int = _USUAL_ROWS

    def fill(self, x: Rows, out: Floats) -> Doubles:
        diagonal = np.empty(len(out))
        for rows in blocks(len(out)):
            some = as_rows(x[rows], np.float64)
            self.kernel.block(some, self.landmarks, out=out[rows])
            diagonal[rows] = self.kernel.diagonal(some)
        out -= self.shift
        return diagonal


@dataclass(frozen=True)
class _Affine:
    """Arguments (x − centre)·weights + ‖x − centre‖²·norm_weight + constant, and what follows."""

    weights: Floats  # (d, q)
    constant: Floats  # (q,)
    norm_weight: float
    centre: Floats | None  # (d,)
    shift: Floats | None  # (q,) or (1,), subtracted at the end; None where the constant holds it
    applied_shift: Doubles  # (q,)


def _affine(kernel: Kernel, Y: Doubles, c: Doubles, dtype: np.dtype[Any]) -> _Affine:
    if kernel.of == "inner" and kernel.name != "linear":
        # The power is of the whole argument: rows less their middle would save no digits.
        gamma, shift = float(kernel.gamma or 0), c.astype(dtype)
        constant = np.full(len(Y), kernel.coef0, dtype)
        weights = _columns(gamma * Y, dtype)
        return _Affine(weights, constant, 0.0, None, shift, shift.astype(np.float64))
    centre = Y.mean(axis=0).astype(dtype)
    middle = centre.astype(np.float64)
    near = middle @ middle <= _NEAR * np.mean(squared_norms(Y - middle))
    # Products of rows far from the origin lose the digits in which the rows differ.
    origin, middle = (None, np.zeros_like(middle)) if near else (centre, middle)
    if kernel.name == "linear":
        # x·y − c = (x − m)·y + (m·y − c): nothing large is ever formed.
        constant = (Y @ middle - c).astype(dtype)
        # `constant` was rounded: the sums are told the shift that this makes, not the one meant.
        true_shift = Y @ middle - constant.astype(np.float64)
        return _Affine(_columns(Y, dtype), constant, 0.0, origin, None, true_shift)
    # −γ‖x − y‖² = 2γ x·y − γ‖x‖² − γ‖y‖²: γ goes into the weights, and saves a pass over values.
    gamma, Y = float(kernel.gamma or 0), Y - middle
    constant = (-gamma * squared_norms(Y)).astype(dtype)
    weights = _columns(2 * gamma * Y, dtype)
    shift = c.astype(dtype)
    true_shift = np.zeros(len(Y)) + shift
    return _Affine(weights, constant, -gamma, origin, shift, true_shift)


def _columns(Y: Doubles, dtype: np.dtype[Any]) -> Floats:
    return np.ascontiguousarray(Y.T.astype(dtype))


def _squared_norms(x: Floats) -> Floats:
    """‖x‖² of every row; of long rows by products of single rows, which BLAS does faster."""
    if x.shape[1] < _LONG:
        return squared_norms(x)
    return np.asarray(np.matmul(x[:, None, :], x[:, :, None])[:, 0, 0])


class _Fused:
    """What the two fused fillers share."""

    def __init__(self, kernel: Kernel, affine: _Affine) -> None:
        self._kernel = kernel
        self._affine = affine
        self._base: Floats | None = None  # for odd powers
        self._by_distance = kernel.of == "distance"
        self._cached_rows = max(1, _CACHED // affine.weights.shape[1])
        self._block_rows, self.rows = BLOCK_ROWS, _USUAL_ROWS

    def fill(self, x: Rows, out: Floats) -> Doubles:
        diagonal = np.ones(len(out))
        for rows in blocks(len(out), self._block_rows):
            norms = self._multiply(x[rows], out[rows])
            # Several passes over few values, which stay in the nearest cache.
            for few in blocks(len(norms), self._cached_rows):
                self._add_rest(out[rows][few], norms[few])
                self._finish(out[rows][few])
            if not self._by_distance:
                diagonal[rows] = norms
        return diagonal if self._by_distance else np.asarray(self._kernel.from_arguments(diagonal))

    def _multiply(self, x: Floats, out: Floats) -> Floats:
        """Write the product; gives ‖x‖², or ‖x − centre‖² for a kernel of distances."""
        raise NotImplementedError

    def _add_rest(self, values: Floats, norms: Floats) -> None:
        """Add what makes arguments of the product."""

    def _finish(self, values: Floats) -> None:
        if self._kernel.name == "rbf":
            # Of huge rows that are alike, rounding alone may be above 0 by more than exp can take.
            np.minimum(values, 0, out=values)
            np.exp(values, out=values)
        elif self._kernel.name == "sigmoid":
            np.tanh(values, out=values)
        elif self._kernel.name == "poly":
            self._raise(values, int(self._kernel.degree))
        shift = self._affine.shift
        if shift is not None:
            values -= shift if len(shift) > 1 else shift[0]

    def _raise(self, values: Floats, degree: int) -> None:
        if degree.bit_count() == 1:  # squares alone
            base = values
        else:
            if self._base is None:
                self._base = np.empty((self._cached_rows, values.shape[1]), values.dtype)
            base = self._base[: len(values)]
            np.copyto(base, values)
        multiply_up(values, degree, base)


class _Copied(_Fused):
    """Rows copied into a buffer with ‖x‖² and 1 beside them: one product does all."""

    def __init__(self, kernel: Kernel, affine: _Affine) -> None:
        super().__init__(kernel, affine)
        d, q = affine.weights.shape
        dtype = affine.weights.dtype
        # The product stays in the nearest cache until it is finished.
        fitting = 1 << (self._cached_rows.bit_length() - 1)
        self._block_rows = min(max(fitting, _FEWEST_ROWS), BLOCK_ROWS)
        self._left = np.empty((self._block_rows, d + 2), dtype)
        self._left[:, d + 1] = 1
        self._right = np.vstack([affine.weights, np.full(q, affine.norm_weight), affine.constant])
        self._right = self._right.astype(dtype, copy=False)

    def _multiply(self, x: Floats, out: Floats) -> Floats:
        left = self._left[: len(x)]
        rows, norms = left[:, :-2], left[:, -2]
        centre = self._affine.centre
        if centre is None or not self._by_distance:
            np.copyto(rows, x)
        else:
            np.subtract(x, centre, out=rows)
        # A kernel of products needs ‖x‖² for k(x, x), of distances ‖x − centre‖² for the argument.
        norms[:] = _squared_norms(rows)
        if centre is not None and not self._by_distance:
            rows -= centre
        np.matmul(left, self._right, out=out)
        return norms


class _InPlace(_Fused):
    """Rows multiplied where they lie; norms and constants are added to the product."""

    def __init__(self, kernel: Kernel, affine: _Affine) -> None:
        super().__init__(kernel, affine)
        self._near_rows = _NEAR_ROWS
        # Weights that outgrow the cache are read anew for every product: fewer and larger ones.
        if affine.weights.size > _FEW_WEIGHTS:
            self._near_rows = self._block_rows = self.rows = _MANY_ROWS

    def _multiply(self, x: Floats, out: Floats) -> Floats:
        weights, norms = self._affine.weights, np.empty(len(x), x.dtype)
        for rows in blocks(len(x), self._near_rows):
            np.matmul(x[rows], weights, out=out[rows])
            norms[rows] = _squared_norms(x[rows])  # afterwards: the product has brought x near
        return norms

    def _add_rest(self, values: Floats, norms: Floats) -> None:
        if self._by_distance:
            values += self._affine.norm_weight * norms[:, None]
        values += self._affine.constant
