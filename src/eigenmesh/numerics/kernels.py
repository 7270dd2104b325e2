"""Kernels as scikit-learn means them, computed in blocks into preallocated buffers.

A kernel is a function of an *argument*, the inner product or the squared distance of two rows.
Arguments are what parties sum when the columns are split, so both halves are public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import (
    BLOCK_ROWS,
    Floats,
    Rows,
    as_rows,
    blocks,
    is_sparse,
    raw_rows,
    require_out,
    squared_norms,
    working_dtype,
)

Argument: TypeAlias = Literal["inner", "distance"]

_MAX_MULTIPLIED_DEGREE = 16
_MIRROR_ROWS = 128


@dataclass(frozen=True)
class Kernel:
    """A kernel and its parameters; `gamma` is a number here, rules are in `bandwidth`.

    >>> Kernel("rbf", gamma=0.5).matrix(np.array([[0.0], [2.0]])).round(4)
    array([[1.    , 0.1353],
           [0.1353, 1.    ]])
    """

    name: str
    gamma: float | None = None
    degree: int | float = 3
    coef0: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in KERNELS:
            raise InputError(f"kernel {self.name!r} is unknown; choose from {sorted(KERNELS)}")
        if self.uses_gamma:
            object.__setattr__(self, "gamma", _checked_gamma(self))
        if self.name == "poly" and not (_is_finite_number(self.degree) and self.degree > 0):
            raise InputError(f"degree is {self.degree!r}, expected a positive number such as 3")
        if not _is_finite_number(self.coef0):
            raise InputError(f"coef0 is {self.coef0!r}, expected a finite number such as 1.0")

    @property
    def uses_gamma(self) -> bool:
        """Whether gamma changes the kernel's values."""
        return KERNELS[self.name].uses_gamma

    @property
    def of(self) -> Argument:
        """What the kernel is a function of: "inner" products or squared "distance"s."""
        return KERNELS[self.name].of

    def from_arguments(self, arguments: Floats, out: Floats | None = None) -> Floats:
        """Kernel values from inner products or squared distances; `out` may be `arguments`.

        >>> Kernel("poly", gamma=1.0, degree=2).from_arguments(np.array([1.0, 2.0]))
        array([4., 9.])
        """
        arguments = np.asarray(arguments)
        values = require_out(out, arguments.shape, working_dtype(arguments))
        if values is not arguments:
            np.copyto(values, arguments)
        KERNELS[self.name].apply(self, values)
        return values

    def arguments(self, X: Rows, Y: Rows, out: Floats | None = None) -> Floats:
        """Inner products or squared distances of the rows of X with those of Y.

        >>> Kernel("rbf", gamma=1.0).arguments(np.array([[0.0], [3.0]]), np.array([[1.0]]))
        array([[1.],
               [4.]])
        """
        same = X is Y
        X, Y = _matched(X, Y)
        values = require_out(out, (X.shape[0], Y.shape[0]), X.dtype)
        fill = _fill_inner_products if self.of == "inner" else _fill_distances
        fill(X, Y, values)
        if same:
            _make_symmetric(values, zero_diagonal=self.of == "distance")
        return values

    def block(self, X: Rows, Y: Rows, out: Floats | None = None) -> Floats:
        """Kernel values of the rows of X with those of Y, in `out` if given.

        >>> Kernel("linear").block(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
        array([[11.]])
        """
        values = self.arguments(X, Y, out)
        return self.from_arguments(values, out=values)

    def matrix(self, X: Rows, Y: Rows | None = None, block_rows: int = BLOCK_ROWS) -> Floats:
        """The whole kernel matrix, exactly symmetric when Y is None.

        >>> Kernel("linear").matrix(np.array([[1.0], [2.0]]))
        array([[1., 2.],
               [2., 4.]])
        """
        if Y is None or Y is X:
            return self._symmetric_matrix(as_rows(X), block_rows)
        X, Y = _matched(X, Y)
        K = np.empty((X.shape[0], Y.shape[0]), X.dtype)
        for rows in blocks(X.shape[0], block_rows):
            self.block(X[rows], Y, out=K[rows])
        return K

    def _symmetric_matrix(self, X: Rows, block_rows: int) -> Floats:
        n = X.shape[0]
        K = np.empty((n, n), X.dtype)
        for rows in blocks(n, block_rows):
            after = slice(rows.stop, n)
            here = X[rows]
            self.block(here, here, out=K[rows, rows])
            self.block(here, X[after], out=K[rows, after])
            K[after, rows] = K[rows, after].T
        return K

    def diagonal(self, X: Rows) -> Floats:
        """k(x, x) of every row, without a matrix.

        >>> Kernel("rbf", gamma=1.0).diagonal(np.ones((3, 2)))
        array([1., 1., 1.])
        """
        X = as_rows(X)
        norms = squared_norms(X) if self.of == "inner" else np.zeros(X.shape[0], X.dtype)
        return self.from_arguments(norms, out=norms)


def _fill_distances(X: Rows, Y: Rows, out: Floats) -> None:
    if is_sparse(X) or is_sparse(Y):
        _fill_sparse_distances(X, Y, out)
    else:
        _fill_dense_distances(X, Y, out)
    np.maximum(out, 0, out=out)


def _fill_dense_distances(X: Floats, Y: Floats, out: Floats) -> None:
    # ‖x‖² − 2xᵀy + ‖y‖² cancels digits far from the origin; distances do not feel a common shift.
    shift = Y.mean(axis=0, dtype=np.float64).astype(X.dtype) if len(Y) else 0
    left, right = _with_two_more_columns(X, shift), _with_two_more_columns(Y, shift)
    left[:, -2], left[:, -1] = squared_norms(left[:, :-2]), 1
    right[:, -2], right[:, -1] = 1, squared_norms(right[:, :-2])
    right[:, :-2] *= -2
    # One product adds the norms too and saves passes over the block.
    np.matmul(left, right.T, out=out)


def _with_two_more_columns(X: Floats, shift: Floats | int) -> Floats:
    wide = np.empty((X.shape[0], X.shape[1] + 2), X.dtype)
    np.subtract(X, shift, out=wide[:, :-2])
    return wide


def _fill_sparse_distances(X: Rows, Y: Rows, out: Floats) -> None:
    # No shift: it would fill the zeros.
    _fill_inner_products(X, Y, out)
    out *= -2
    out += squared_norms(X)[:, None]
    out += squared_norms(Y)


def _fill_inner_products(X: Rows, Y: Rows, out: Floats) -> None:
    if not (is_sparse(X) or is_sparse(Y)):
        np.matmul(X, Y.T, out=out)
        return
    product = X @ Y.T if is_sparse(X) else (Y @ X.T).T
    out[...] = product.toarray() if is_sparse(product) else product


def _make_symmetric(K: Floats, zero_diagonal: bool) -> None:
    """Copy the upper triangle onto the lower, in small squares that stay in cache."""
    for rows in blocks(len(K), _MIRROR_ROWS):
        after, square = slice(rows.stop, None), K[rows, rows]
        K[after, rows] = K[rows, after].T
        np.copyto(square, square.T, where=np.tri(len(square), k=-1, dtype=bool))
    if zero_diagonal:
        np.fill_diagonal(K, 0)


def _matched(X: Rows, Y: Rows) -> tuple[Rows, Rows]:
    """Both as rows of one dtype and one width."""
    X, Y = raw_rows(X), raw_rows(Y)
    if X.shape[1] != Y.shape[1]:
        raise InputError(
            f"X has {X.shape[1]} columns, Y has {Y.shape[1]}; pass rows of the same features"
        )
    dtype = working_dtype(X, Y)
    return as_rows(X, dtype), as_rows(Y, dtype)


# --- The table of kernels: a new kernel is one function and one line here. ---


@dataclass(frozen=True)
class Form:
    """How a kernel turns its arguments, in place, into values."""

    of: Argument
    uses_gamma: bool
    apply: Callable[[Kernel, Floats], None]


def _apply_linear(kernel: Kernel, values: Floats) -> None:
    pass


def _apply_rbf(kernel: Kernel, values: Floats) -> None:
    values *= -_gamma(kernel)
    np.exp(values, out=values)


def _apply_sigmoid(kernel: Kernel, values: Floats) -> None:
    values *= _gamma(kernel)
    values += kernel.coef0
    np.tanh(values, out=values)


def _apply_poly(kernel: Kernel, values: Floats) -> None:
    values *= _gamma(kernel)
    values += kernel.coef0
    _raise_to_power(values, kernel.degree)


def _raise_to_power(values: Floats, degree: int | float) -> None:
    whole = degree == int(degree)
    if whole and degree <= _MAX_MULTIPLIED_DEGREE:
        rows = np.atleast_1d(values)
        for part in blocks(len(rows)):
            _multiply_up(rows[part], int(degree))
        return
    if not whole and values.min(initial=0) < 0:
        raise InputError(
            f"degree {degree} of a negative number ({values.min():.3g}) is not real; "
            "use an integer degree or a larger coef0"
        )
    np.power(values, degree, out=values)


def _multiply_up(values: Floats, degree: int) -> None:
    """Square and multiply: several times faster than a general power."""
    base = values.copy()
    for bit in bin(degree)[3:]:
        values *= values
        if bit == "1":
            values *= base


def _gamma(kernel: Kernel) -> float:
    assert kernel.gamma is not None  # checked when the kernel was made
    return kernel.gamma


KERNELS: dict[str, Form] = {
    "linear": Form("inner", False, _apply_linear),
    "poly": Form("inner", True, _apply_poly),
    "rbf": Form("distance", True, _apply_rbf),
    "sigmoid": Form("inner", True, _apply_sigmoid),
}


def _is_finite_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return bool(np.isfinite(value))


def _checked_gamma(kernel: Kernel) -> float:
    gamma, distance = kernel.gamma, kernel.of == "distance"
    if gamma is not None and _is_finite_number(gamma) and (gamma > 0 if distance else gamma != 0):
        return float(gamma)
    expected = "a positive finite number" if distance else "a finite number other than 0"
    raise InputError(
        f"gamma is {gamma!r}, the {kernel.name} kernel expects {expected}; "
        "1 / n_features is a common choice"
    )
