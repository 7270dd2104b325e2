"""Kernels as scikit-learn means them, computed in blocks into preallocated buffers.

A kernel is a function of an *argument* of two rows: their inner product, squared distance,
L1 distance, or the cosine of their angle. All but the cosine, which follows from inner products,
are what parties sum when the columns are split, so both halves are public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import (
    BLOCK_ROWS,
    Doubles,
    Floats,
    Rows,
    as_rows,
    blocks,
    dense,
    is_sparse,
    raw_rows,
    squared_norms,
    working_dtype,
)

LARGEST_MULTIPLIED_DEGREE = 16
_ARC_COSINE_ORDERS = (0, 1, 2)
UNIT_NORM = ("rbf", "laplacian", "cosine")  # k(x, x) = 1, but for rows of zeros and "cosine"


@dataclass(frozen=True)
class Kernel:
    """A kernel and its parameters; `gamma` is a number here, rules are in `gamma_rules`.

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
        if self.name == "arc-cosine" and self.degree not in _ARC_COSINE_ORDERS:
            raise InputError(
                f"degree is {self.degree!r}; the arc-cosine kernel has orders 0, 1 and 2, expected "
                "one of these: pass degree=1 for that of ReLU features"
            )
        if not _is_finite_number(self.coef0):
            raise InputError(f"coef0 is {self.coef0!r}, expected a finite number such as 1.0")

    @property
    def uses_gamma(self) -> bool:
        """Whether gamma changes the kernel's values."""
        return KERNELS[self.name].uses_gamma

    @property
    def of(self) -> Argument:
        """What the kernel is a function of.

        "inner" products, squared "distance"s, "manhattan" (L1) distances, or the "cosine" of the
        angle.
        """
        return KERNELS[self.name].of

    def from_arguments(self, arguments: Floats, out: Floats | None = None) -> Floats:
        """Kernel values from arguments; `out` may be `arguments`.

        Those of "arc-cosine" are of unit rows: what the rows' lengths add, only `block` knows.

        >>> Kernel("poly", gamma=1.0, degree=2).from_arguments(np.array([1.0, 2.0]))
        array([4., 9.])
        """
        arguments = np.asarray(arguments)
        values = require_out(out, arguments.shape, working_dtype(arguments))
        if values is not arguments:
            np.copyto(values, arguments)
        KERNELS[self.name].apply(self, values)
        return values

    @property
    def summed(self) -> Kernel:
        """A kernel whose arguments add up over columns, and tell this one's: see `from_sums`."""
        return Kernel("linear") if self.of == "cosine" else self

    def from_sums(self, sums: Floats, left: Floats, right: Floats) -> Floats:
        """Kernel values, in place, from arguments that were summed over all columns.

        `left` and `right` are squared norms of the rows and columns of `sums`, for cosines.

        >>> inner = np.array([[2.0, 0.0]])
        >>> Kernel("cosine").from_sums(inner, np.array([4.0]), np.array([1.0, 9.0]))
        array([[1., 0.]])
        """
        if self.of == "cosine":
            make_cosines(sums, left, right)
        self.from_arguments(sums, out=sums)
        if (power := self._norm_power) > 0:
            sums *= np.sqrt(np.maximum(left, 0)[:, None] * np.maximum(right, 0)) ** power
        return sums

    def diagonal_from_sums(self, norms: Floats) -> Floats:
        """k(x, x) from squared norms over all columns.

        >>> Kernel("poly", gamma=1.0, degree=2).diagonal_from_sums(np.array([1.0]))
        array([4.])
        """
        own = {"inner": norms, "cosine": (norms > 0).astype(norms.dtype)}.get(self.of, 0 * norms)
        return self.from_arguments(own) * norms**self._norm_power

    def arguments(self, X: Rows, Y: Rows, out: Floats | None = None) -> Floats:
        """Inner products, distances or cosines of the rows of X with those of Y.

        >>> Kernel("rbf", gamma=1.0).arguments(np.array([[0.0], [3.0]]), np.array([[1.0]]))
        array([[1.],
               [4.]])
        """
        same = X is Y
        X, Y = matched(X, Y)
        values = require_out(out, (X.shape[0], Y.shape[0]), X.dtype)
        if self.of == "distance":
            _fill_distances(X, Y, values, _gamma(self))
        else:
            FILL[self.of](X, Y, values)
        if same:
            # BLAS may round (i, j) and (j, i) apart, and a row's distance to itself off 0.
            make_symmetric(values)
            if self.of != "inner":
                np.fill_diagonal(values, self._own_arguments(X))
        return values

    def _own_arguments(self, X: Rows) -> Floats:
        """The argument of every row with itself, exactly."""
        if self.of in ("distance", "manhattan"):
            return np.zeros(X.shape[0], X.dtype)
        norms = squared_norms(X)
        return norms if self.of == "inner" else (norms > 0).astype(X.dtype)

    def block(self, X: Rows, Y: Rows, out: Floats | None = None) -> Floats:
        """Kernel values of the rows of X with those of Y, in `out` if given.

        >>> Kernel("linear").block(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
        array([[11.]])
        """
        values = self.arguments(X, Y, out)
        self.from_arguments(values, out=values)
        if (power := self._norm_power) > 0:
            lengths = norms_of(X, values.dtype)[:, None] * norms_of(Y, values.dtype)
            values *= lengths**power
        return values

    @property
    def _norm_power(self) -> int:
        """k(sx, y) = s^power k(x, y), where the arguments do not see lengths."""
        return int(self.degree) if self.name == "arc-cosine" else 0

    def matrix(self, X: Rows, Y: Rows | None = None, block_rows: int = BLOCK_ROWS) -> Floats:
        """The whole kernel matrix, exactly symmetric when Y is None.

        >>> Kernel("linear").matrix(np.array([[1.0], [2.0]]))
        array([[1., 2.],
               [2., 4.]])
        """
        if Y is None or Y is X:
            return self._symmetric_matrix(as_rows(X), block_rows)
        X, Y = matched(X, Y)
        K = np.empty((X.shape[0], Y.shape[0]), X.dtype)
        for rows in blocks(X.shape[0], block_rows):
            self.block(X[rows], Y, out=K[rows])
        return K

    def _symmetric_matrix(self, X: Rows, block_rows: int) -> Floats:
        n = X.shape[0]
        K = np.empty((n, n), X.dtype)
        # The upper half is computed and mirrored: half the work, and BLAS cannot round it apart.
        for rows in blocks(n, block_rows):
            after = slice(rows.stop, n)
            here = X[rows]
            self.block(here, here, out=K[rows, rows])
            if rows.stop < n:
                self.block(here, X[after], out=K[rows, after])
                K[after, rows] = K[rows, after].T
        return K

    @property
    def is_level(self) -> bool:
        """Whether k(x, x) is the same for all rows, but for rows of zeros where angles count."""
        return self.of != "inner" and self._norm_power == 0

    def diagonal(self, X: Rows) -> Floats:
        """k(x, x) of every row, without a matrix.

        >>> Kernel("rbf", gamma=1.0).diagonal(np.ones((3, 2)))
        array([1., 1., 1.])
        """
        X = as_rows(X)
        if self.of in ("distance", "manhattan"):
            return np.ones(X.shape[0], X.dtype)
        own = self._own_arguments(X)
        values = self.from_arguments(own, out=own)
        if self._norm_power > 0:
            values *= squared_norms(X) ** self._norm_power
        return values


@dataclass(frozen=True, eq=False)
class KernelWith:
    """k(X, Y) of some rows X after others: what hangs on Y alone is worked out once.

    >>> KernelWith(Kernel("rbf", 0.5), np.array([[2.0]]))(np.array([[0.0]])).round(4)
    array([[0.1353]])
    """

    kernel: Kernel
    rows: Rows  # Y (q, d), float64

    def __call__(self, X: Rows) -> Doubles:
        """(m, q) of float64 rows, to the last digit what `Kernel.matrix` has."""
        if self._fill is None or is_sparse(X):
            return np.asarray(self.kernel.matrix(X, self.rows), dtype=np.float64)
        values, apply = np.empty((len(X), len(self.rows))), KERNELS[self.kernel.name].apply
        for part in blocks(len(X)):
            self._fill(X[part], values[part])
            apply(self.kernel, values[part])
        return values

    @cached_property
    def _fill(self) -> Callable[[Doubles, Doubles], None] | None:
        """What writes arguments; none where nothing of them hangs on Y alone, or Y is sparse."""
        if is_sparse(self.rows) or self.kernel.of == "cosine":
            return None
        if self.kernel.of != "distance":
            fill = FILL[self.kernel.of]
            return lambda X, out: fill(X, self.rows, out)
        shifted, gamma = _Shifted.of(self.rows), _gamma(self.kernel)

        def distances(X: Doubles, out: Doubles) -> None:
            norms = _fill_distances_to(X, shifted, out)
            _finish_distances(X, self.rows, out, gamma, norms)

        return distances


# --- The table of kernels: a new kernel is one function and one line here. ---


@dataclass(frozen=True)
class Form:
    """How a kernel turns its arguments, in place, into values."""

    of: Argument
    uses_gamma: bool
    apply: Callable[[Kernel, Floats], None]


def _apply_linear(kernel: Kernel, values: Floats) -> None:
    pass


def _apply_exponential(kernel: Kernel, values: Floats) -> None:
    values *= -_gamma(kernel)
    np.exp(values, out=values)


def _apply_arc_cosine(kernel: Kernel, values: Floats) -> None:
    """Cho and Saul (2009): J_n(θ) / π from cos θ, order n by `degree`."""
    rows = np.atleast_1d(values)
    for part in blocks(len(rows)):
        cosine = rows[part]
        theta = np.arccos(cosine)
        if kernel.degree == 0:
            np.subtract(np.pi, theta, out=cosine)
        else:
            _arc_cosine_higher(int(kernel.degree), cosine, theta)
    values /= np.pi


def _arc_cosine_higher(order: int, cosine: Floats, theta: Floats) -> None:
    # J₁ = sin θ + (π − θ) cos θ; J₂ = 3 sin θ cos θ + (π − θ)(1 + 2 cos² θ).
    sine = np.sin(theta)
    if order == 1:
        cosine *= np.pi - theta
        cosine += sine
        return
    bend = 3 * sine * cosine
    np.square(cosine, out=cosine)
    cosine *= 2
    cosine += 1
    cosine *= np.pi - theta
    cosine += bend


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
    if whole and degree <= LARGEST_MULTIPLIED_DEGREE:
        rows = np.atleast_1d(values)
        for part in blocks(len(rows)):
            multiply_up(rows[part], int(degree), rows[part].copy())
        return
    if not whole and values.min(initial=0) < 0:
        raise InputError(
            f"degree {degree} of a negative number ({values.min():.3g}) is not real; "
            "use an integer degree or a larger coef0"
        )
    np.power(values, degree, out=values)


def multiply_up(values: Floats, degree: int, base: Floats) -> None:
    """Raise to a power in place by squaring and multiplying with `base`, a copy of the values.

    Several times faster than a general power.

    >>> values = np.array([2.0, 3.0])
    >>> multiply_up(values, 5, values.copy())
    >>> values
    array([ 32., 243.])
    """
    for bit in bin(degree)[3:]:
        values *= values
        if bit == "1":
            values *= base


def _gamma(kernel: Kernel) -> float:
    assert kernel.gamma is not None  # checked when the kernel was made
    return kernel.gamma


KERNELS: dict[str, Form] = {
    "arc-cosine": Form("cosine", False, _apply_arc_cosine),
    "cosine": Form("cosine", False, _apply_linear),
    "laplacian": Form("manhattan", True, _apply_exponential),
    "linear": Form("inner", False, _apply_linear),
    "poly": Form("inner", True, _apply_poly),
    "rbf": Form("distance", True, _apply_exponential),
    "sigmoid": Form("inner", True, _apply_sigmoid),
}


def _is_finite_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return bool(np.isfinite(value))


def _checked_gamma(kernel: Kernel) -> float:
    gamma, distance = kernel.gamma, kernel.of != "inner"
    if gamma is not None and _is_finite_number(gamma) and (gamma > 0 if distance else gamma != 0):
        return float(gamma)
    expectation = "a positive finite number" if distance else "a finite number other than 0"
    raise InputError(
        f"gamma is {gamma!r}, the {kernel.name} kernel expects {expectation}; "
        "1 / n_features is a common choice"
    )


# What kernels are functions of: inner products, distances and cosines of rows, block by block.


Argument: TypeAlias = Literal["inner", "distance", "manhattan", "cosine"]

_MIRROR_ROWS = 128
_ROUNDED = 1e-4  # of gamma ‖x − y‖²: more than this is not left to rounding


def _fill_distances(X: Rows, Y: Rows, out: Floats, gamma: float) -> None:
    if not out.size:
        return
    fill = _fill_sparse_distances if is_sparse(X) or is_sparse(Y) else _fill_dense_distances
    _finish_distances(X, Y, out, gamma, fill(X, Y, out))


def _finish_distances(
    X: Rows, Y: Rows, out: Floats, gamma: float, norms: tuple[Floats, Floats]
) -> None:
    np.maximum(out, 0, out=out)
    _mend_distances(X, Y, out, gamma, norms)


def _mend_distances(
    X: Rows, Y: Rows, out: Floats, gamma: float, norms: tuple[Floats, Floats]
) -> None:
    """Take near pairs of far rows from differences, where rounding would decide their kernel value.

    Of rows of 1e10 the sum ‖x‖² − 2xᵀy + ‖y‖², of these `norms`, knows distances to 1e4: near and
    far were one.
    """
    eps, (left, right) = np.finfo(out.dtype).eps, norms
    # The most that rounding can do to any pair: most data end here, without a look at the block.
    if 4 * gamma * eps * (left.max() + right.max()) <= _ROUNDED:
        return
    for rows in blocks(X.shape[0]):
        # Where more than half of the digits have cancelled.
        near = out[rows] < np.sqrt(eps) * (left[rows, None] + right)
        i, j = np.nonzero(near)
        for pairs in blocks(len(i)):
            difference = X[rows.start + i[pairs]] - Y[j[pairs]]
            out[rows.start + i[pairs], j[pairs]] = squared_norms(difference)


def _fill_dense_distances(X: Floats, Y: Floats, out: Floats) -> tuple[Floats, Floats]:
    return _fill_distances_to(X, _Shifted.of(Y), out)


class _Shifted(NamedTuple):
    """The rows that distances are to."""

    # ‖x‖² − 2xᵀy + ‖y‖² cancels digits far from the origin; distances do not feel a common shift.
    shift: Floats  # (d,)
    right: Floats  # (q, d + 2): −2 times the rows less the shift, 1, ‖y‖²

    @classmethod
    def of(cls, Y: Floats) -> _Shifted:
        shift = Y.mean(axis=0, dtype=np.float64).astype(Y.dtype)
        right = _with_two_more_columns(Y, shift)
        right[:, -2], right[:, -1] = 1, squared_norms(right[:, :-2])
        right[:, :-2] *= -2
        return cls(shift, right)


def _fill_distances_to(X: Floats, Y: _Shifted, out: Floats) -> tuple[Floats, Floats]:
    """One product adds the norms too and saves passes over the block."""
    left = _with_two_more_columns(X, Y.shift)
    left[:, -2], left[:, -1] = squared_norms(left[:, :-2]), 1
    np.matmul(left, Y.right.T, out=out)
    return left[:, -2], Y.right[:, -1]


def _with_two_more_columns(X: Floats, shift: Floats) -> Floats:
    wide = np.empty((X.shape[0], X.shape[1] + 2), X.dtype)
    np.subtract(X, shift, out=wide[:, :-2])
    return wide


def _fill_sparse_distances(X: Rows, Y: Rows, out: Floats) -> tuple[Floats, Floats]:
    # No shift: it would fill the zeros.
    left, right = squared_norms(X), squared_norms(Y)
    _fill_inner_products(X, Y, out)
    out *= -2
    out += left[:, None]
    out += right
    return left, right


def _fill_inner_products(X: Rows, Y: Rows, out: Floats) -> None:
    if not (is_sparse(X) or is_sparse(Y)):
        np.matmul(X, Y.T, out=out)
        return
    out[...] = dense(X @ Y.T if is_sparse(X) else (Y @ X.T).T)


def _fill_manhattan(X: Rows, Y: Rows, out: Floats) -> None:
    if not out.size:
        return
    if is_sparse(X) or is_sparse(Y):
        out[...] = manhattan_distances(_merge_ready(X), _merge_ready(Y))
    else:
        # In blocks, since cdist gives float64 whatever it is given, in an array of its own.
        for rows in blocks(len(X)):
            out[rows] = cdist(X[rows], Y, "cityblock")


def _merge_ready(X: Rows) -> Rows:
    """Sorted sparse rows with 32-bit indices, as scikit-learn merges them; X is left alone."""
    X = sp.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    short = (X.data, X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int32, copy=False))
    return sp.csr_array(short, shape=X.shape)


def _fill_cosines(X: Rows, Y: Rows, out: Floats) -> None:
    _fill_inner_products(unit_rows(X), unit_rows(Y), out)
    # An angle below the rounding of its cosine is none: duplicates must be told as such.
    out[out > 1 - 4 * np.finfo(out.dtype).eps] = 1
    np.maximum(out, -1, out=out)


def make_cosines(inner: Floats, left: Floats, right: Floats) -> None:
    """Inner products become cosines, in place; `left` and `right` are squared norms.

    >>> inner = np.array([[2.0]])
    >>> make_cosines(inner, np.array([1.0]), np.array([16.0]))
    >>> inner
    array([[0.5]])
    """
    for norms, shape in ((left, (-1, 1)), (right, (1, -1))):
        sizes = np.sqrt(np.maximum(norms, 0))  # which masked sums may round below 0
        shrink = np.divide(1, sizes, out=np.zeros_like(sizes), where=sizes > 0)
        inner *= shrink.reshape(shape)
    # Sums over parties round a little more than products of unit rows.
    inner[inner > 1 - 64 * np.finfo(inner.dtype).eps] = 1
    np.maximum(inner, -1, out=inner)


def unit_rows(X: Rows) -> Rows:
    """Rows scaled to length 1; rows of zeros stay as they are.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    X = as_rows(X)
    norms = np.sqrt(squared_norms(X))
    shrink = np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)
    if is_sparse(X):
        return sp.csr_array(sp.diags_array(shrink) @ X)
    return X * shrink[:, None]


def norms_of(X: Rows, dtype: np.dtype[Any]) -> Floats:
    """‖x‖ of every row."""
    norms: Floats = np.sqrt(squared_norms(as_rows(X, dtype)))
    return norms


def make_symmetric(K: Floats) -> None:
    """Copy the upper triangle onto the lower, in small squares that stay in cache."""
    for rows in blocks(len(K), _MIRROR_ROWS):
        after, square = slice(rows.stop, None), K[rows, rows]
        K[after, rows] = K[rows, after].T
        np.copyto(square, square.T, where=np.tri(len(square), k=-1, dtype=bool))


def require_out(out: Floats | None, shape: tuple[int, ...], dtype: Any) -> Floats:
    """The buffer to write into: `out` if it fits, a new one if None."""
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype:
        raise InputError(
            f"out has shape {out.shape} and dtype {out.dtype}, the result needs {shape} and "
            f"{np.dtype(dtype)}; pass a fitting buffer or out=None"
        )
    return out


def matched(X: Rows, Y: Rows) -> tuple[Rows, Rows]:
    """Both as rows of one dtype and one width."""
    X, Y = raw_rows(X), raw_rows(Y)
    if X.shape[1] != Y.shape[1]:
        raise InputError(
            f"X has {X.shape[1]} columns, Y has {Y.shape[1]}; pass rows of the same features"
        )
    dtype = working_dtype(X, Y)
    return as_rows(X, dtype), as_rows(Y, dtype)


FILL: dict[Argument, Callable[[Rows, Rows, Floats], None]] = {
    "inner": _fill_inner_products,
    "manhattan": _fill_manhattan,
    "cosine": _fill_cosines,
}
