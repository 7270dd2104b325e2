"""What rows add up to with landmarks: fast, in float32 where that is safe, over all idle cores.

Y are q landmarks, K' = K(A, Y) − 1cᵀ the kernel values of rows A, shifted by c, the column means of
K(Y, Y). Without the shift the sums lose the digits in which samples differ when all kernel values
are alike (gamma small).

H = K'ᵀK'. In the span of φ(Y), with BᵀK(Y, Y)B = I, H counts as G = BᵀHB: an error in H is divided
by the eigenvalue w_j of K(Y, Y) in direction j. A float32 product H is off by some 2⁻²⁴ of its
size, and is good where that is far below w_j times the rows' variance in the span. Projections
P = K'B lose only 2⁻²⁴ of *their* size, and are good nearly always, at more work.

========  =========================================================================================
double    all in float64: float64 rows, kernels without a fused form, or few rows
raw       H in float32, blocks added up in float64: every direction is safe
hybrid    H, and P for the unsafe directions, at most a quarter of all
project   P for all directions, or where these are few; G goes back as H = C G Cᵀ with C = K(Y, Y)B,
          so that all routes give one form
========  =========================================================================================

From the sums down to the block: a route is chosen, a pass goes over the rows, blocks are filled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.linalg

from eigenmesh.numerics import progress
from eigenmesh.numerics.arrays import (
    BLOCK_ROWS,
    Doubles,
    Floats,
    Rows,
    as_rows,
    blocks,
    is_sparse,
    raw_rows,
    squared_norms,
    working_dtype,
)
from eigenmesh.numerics.eigen import SPAN_CUTOFF, pseudo_inverse_root
from eigenmesh.numerics.kernels import (
    LARGEST_MULTIPLIED_DEGREE,
    Kernel,
    KernelWith,
    multiply_up,
)
from eigenmesh.numerics.leading_directions import leading_basis
from eigenmesh.threads import one_blas_thread, spread


class LandmarkSums(NamedTuple):
    """What rows add up to; sums of these over parties are those of all rows."""

    gram: Doubles  # (q, q), K'ᵀK' inside the span of the landmarks
    sums: Doubles  # (q,), K'ᵀ1
    n_rows: int
    trace: float  # Σ k(x, x)

    def packed(self, span: Span | None = None, dtype: Any = np.float64) -> dict[str, Any]:
        """The fields of a message with them: of the Gram matrix its upper triangle.

        In a span of a certain rank they are those of the rows' coordinates in it.
        """
        gram, sums = self.gram, self.sums
        if span is not None and span.rank is not None:
            gram, sums = span.basis.T @ gram @ span.basis, span.basis.T @ sums
        return {
            "upper": upper(gram).astype(dtype, copy=False),
            "sums": sums.astype(dtype, copy=False),
            "n_rows": self.n_rows,
            "trace": self.trace,
        }

    @classmethod
    def unpacked(cls, message: Any, span: Span | None = None) -> LandmarkSums:
        """Those of a message with such fields."""
        gram, sums = full(message.upper), np.asarray(message.sums, np.float64)
        if span is not None and span.rank is not None:
            C = span.K @ span.basis  # CᵀB = I: whoever takes BᵀHB has what was sent
            gram, sums = C @ gram @ C.T, C @ sums
        return cls(gram, sums, message.n_rows, message.trace)


@dataclass
class KernelValues:
    """Room for the K' of a pass: scores of the same rows are then one small product.

    It stays empty where K' would take more than `_KEPT_BYTES`.
    """

    values: Floats | None = None  # (n, q), K'
    shift: Doubles | None = None  # (q,), what was subtracted
    landmarks: Rows | None = None  # (q, d)

    def make_room(self, n_rows: int, span: Span, kernel: ShiftedKernel) -> None:
        """For one pass; what another has left is gone."""
        q = len(kernel.shift)
        self.values = None
        if n_rows * q * kernel.dtype.itemsize <= _KEPT_BYTES:
            self.values = np.empty((n_rows, q), kernel.dtype)
        self.shift, self.landmarks = kernel.shift, span.landmarks


def landmark_sums(
    kernel: Kernel,
    A: Rows,
    Y: Rows,
    span: Span | None = None,
    kept: KernelValues | None = None,
) -> LandmarkSums:
    """The sums of rows A in float64, from float32 blocks if the rows are so and it is safe.

    `span` is that of Y, where it is there already; `kept` is filled with the rows' kernel values.

    >>> landmark_sums(Kernel("linear"), np.array([[1.0], [4.0]]), np.array([[1.0], [2.0]])).sums
    array([2., 4.])
    """
    A = raw_rows(A)
    with one_blas_thread():
        gram, sums, trace, _ = shifted_sums(span or Span.of(kernel, Y), A, Y, kept)
    return LandmarkSums(gram, sums, A.shape[0], trace)


def residuals(kernel: Kernel, A: Rows, Y: Rows) -> Doubles:
    """Squared distance of every φ(a) to the span of φ(Y), (n,).

    >>> residuals(Kernel("linear"), np.array([[3.0, 4.0]]), np.array([[2.0, 0.0]]))
    array([16.])
    """
    A = raw_rows(A)
    distances = np.empty(A.shape[0])
    with one_blas_thread():
        span = Span.of(kernel, Y)
        dtype = block_dtype(kernel, A, Y) if span.holds_single() else np.dtype(np.float64)

        def take(rows: slice, P: Floats, diagonal: Doubles) -> None:
            distances[rows] = diagonal - np.einsum("ij,ij->i", P, P)

        project(A, span.blocks(dtype), span.basis, "distances", take)
    return np.maximum(distances, 0.0, out=distances)


def span_residual(span: Span, sums: LandmarkSums) -> float:
    """Σ‖φ(a) − Pφ(a)‖² over all rows, P the projection on the span of φ(Y), from their sums.

    It is the trace that a partial Cholesky factor with pivots Y leaves of the kernel matrix.

    >>> X, Y, linear = np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]]), Kernel("linear")
    >>> span_residual(Span.of(linear, Y), landmark_sums(linear, X, Y))
    16.0
    """
    B = span.basis
    sum_inside, shift_inside = B.T @ sums.sums, B.T @ span.shift
    inside = np.vdot(B, sums.gram @ B) + 2 * sum_inside @ shift_inside
    inside += sums.n_rows * shift_inside @ shift_inside
    return max(sums.trace - float(inside), 0.0)


def residual_of(span: Span) -> Callable[[Any], float]:
    """`span_residual` of messages, as `LandmarkSums.packed` fills them, with no matrix for each.

    >>> X, Y, linear = np.array([[3.0, 4.0]]), np.array([[1.0, 0.0]]), Kernel("linear")
    >>> span, sums = Span.of(linear, Y), landmark_sums(linear, X, Y)
    >>> from types import SimpleNamespace
    >>> residual_of(span)(SimpleNamespace(**sums.packed()))
    16.0
    """
    B = span.basis
    if span.rank is None:
        inverse = B @ B.T
        weights, shift = upper(2 * inverse - np.diag(np.diag(inverse))), inverse @ span.shift
        constant = float(span.shift @ shift)
    else:
        weights, shift = upper(np.eye(span.rank)), B.T @ span.shift
        constant = float(shift @ shift)

    def residual(sums: Any) -> float:
        inside = weights @ sums.upper + 2 * (shift @ sums.sums) + sums.n_rows * constant
        return max(float(sums.trace - inside), 0.0)

    return residual


# Gram matrices travel as triangles.


def upper(matrix: Doubles) -> Doubles:
    """The upper triangle of a symmetric matrix, row by row."""
    size = len(matrix)
    if size <= _LISTED:
        return np.asarray(matrix.take(_triangle_places(size)))
    return np.asarray(matrix[np.triu_indices(size)])


def full(triangle: Floats) -> Doubles:
    """The symmetric matrix of an upper triangle.

    >>> full(np.array([1.0, 2.0, 3.0]))
    array([[1., 2.],
           [2., 3.]])
    """
    size = int((np.sqrt(8 * len(triangle) + 1) - 1) / 2)
    if size <= _LISTED:
        return np.asarray(triangle.take(_square_places(size)), np.float64)
    matrix, end = np.empty((size, size)), 0
    for i in range(size):  # by slices: indices of all entries cost more than the entries
        begin, end = end, end + size - i
        matrix[i, i:] = matrix[i:, i] = triangle[begin:end]
    return matrix


# Where entries are is listed once for matrices of one size: of many parties all have the same.
_LISTED = 512  # rows of the largest


@lru_cache(maxsize=4)
def _triangle_places(size: int) -> Any:
    """Of a triangle's numbers, in the matrix."""
    i, j = np.triu_indices(size)
    return i * size + j


@lru_cache(maxsize=4)
def _square_places(size: int) -> Any:
    """Of a matrix's numbers, in the triangle."""
    places = np.empty((size, size), np.intp)
    i, j = np.triu_indices(size)
    places[i, j] = places[j, i] = np.arange(len(i))
    return places


# The span, and the route: which sums float32 may carry.


ROUTES = ("raw", "hybrid", "project", "double")  # each is safe wherever those before are

_SHARED_LANDMARKS, _SHARED_NUMBERS = 1000, 1 << 20  # that are kept for others of the process
_last_span: list[Any] = [None]  # of such landmarks, with what it was made of
_EPS = 2.0**-24  # of float32
_MARGIN = 1000.0  # by which rounding is to stay below the variance in every direction
_RANDOM = 1 / 12  # of 2⁻²⁴ tr H: products were off by .03 to .1 of it where it mattered
_SLACK = 3 / 4  # rows that are a little less even than landmarks are no reason to begin anew
_SURELY = 5 / 4  # and who chooses landmarks does not choose them so
_ROUGHLY = 0.01  # of the variance: of less outside, what is then off would be more than 2 %
# Of the last wanted eigenvalue, what landmarks left out may have beside the others.
_LITTLE, _SPANNED = 2e-6, 1e-5
_NOTHING = 1e-5  # of one landmark's share of it: so little that nobody has to look for it
_HYBRID_SHARE = 1 / 4
_PROOF_ROWS = 16  # a landmark: with fewer rows, float64 costs less than the proof that float32 does
_PROJECTION_ERROR = 1e-4  # of the variance, that float32 projections may be off


@dataclass(frozen=True, eq=False)
class Span:
    """What depends on the landmarks alone, in float64 whatever the rows are.

    It is made once for all of one process who have the same landmarks, if these are not very many.
    With a `rank` it is the space of so many leading directions, and all else is outside.
    """

    kernel: Kernel
    landmarks: Rows  # (q, d)
    K: Doubles  # K(Y, Y)
    is_shared: bool = False
    rank: int | None = None
    is_triangular: bool = False  # the basis, where K(Y, Y) allows it: see `by_factor`

    @classmethod
    def of(cls, kernel: Kernel, Y: Rows, rank: int | None = None) -> Self:
        """The span of φ(Y), or its leading directions."""
        Y = as_rows(Y, np.float64)
        rank = None if rank is None or rank >= Y.shape[0] else rank
        if is_sparse(Y) or not 0 < Y.size <= _SHARED_NUMBERS or len(Y) > _SHARED_LANDMARKS:
            return cls._new(kernel, Y, False, rank)
        # By their bytes: every party has an array of its own. They are compared with the last ones,
        # which costs less than a hash of them.
        key = (kernel, rank, int(Y.shape[1]), np.ascontiguousarray(Y).tobytes())
        last = _last_span[0]
        if last is not None and last[0] == key:
            span: Self = last[1]
            return span
        span = cls._new(kernel, np.frombuffer(key[-1]).reshape(-1, key[-2]), True, rank)
        _last_span[0] = (key, span)
        return span

    @classmethod
    def _new(cls, kernel: Kernel, Y: Rows, is_shared: bool, rank: int | None) -> Self:
        K = np.asarray(kernel.matrix(Y), dtype=np.float64)
        if not np.isfinite(K).all():
            raise OverflowError("kernel values of the landmarks are not finite")
        K.flags.writeable = False
        return cls(kernel, Y, K, is_shared, rank)

    @cached_property
    def values(self) -> KernelWith:
        """k(X, Y) of a few rows at a time."""
        return KernelWith(self.kernel, self.landmarks)

    @cached_property
    def shift(self) -> Doubles:
        """c, the column means of K(Y, Y)."""
        return np.asarray(self.K.mean(axis=0))

    @cached_property
    def basis(self) -> Doubles:
        """B (q, r) with BᵀK(Y, Y)B = I."""
        if self.rank is not None:
            return self._leading_basis
        return self._inverse_factor if self.is_triangular else pseudo_inverse_root(self.K)

    def by_factor(self) -> Self:
        """The same span with the inverse of a Cholesky factor for its basis.

        Far from singular it does as well as eigenvectors, which take ten times as long.
        """
        is_far = self.rank is None and self.exceeds(SPAN_CUTOFF * float(np.trace(self.K)))
        return replace(self, is_triangular=True) if is_far else self

    @cached_property
    def _inverse_factor(self) -> Doubles:
        lower = np.linalg.cholesky(self.K)
        return np.asarray(scipy.linalg.lapack.dtrtri(lower, lower=1)[0].T)

    def coordinates(self, H: Doubles) -> Doubles:
        """BᵀHB of a symmetric H."""
        B = self.basis
        if not self.is_triangular:
            return np.asarray(B.T @ H @ B)
        half = scipy.linalg.blas.dtrmm(1.0, B.T, H.T, lower=1)  # half the work of a product
        return np.asarray(scipy.linalg.blas.dtrmm(1.0, B.T, half, side=1, lower=1, trans_a=1))

    @cached_property
    def _leading_basis(self) -> Doubles:
        assert self.rank is not None
        return leading_basis(self.K, self.rank)

    @cached_property
    def weights(self) -> Doubles:
        """Eigenvalues w (r,) of K(Y, Y) in the directions of B, if these are eigenvectors."""
        return np.asarray(1 / np.einsum("ij,ij->j", self.basis, self.basis))

    def blocks(self, dtype: Any, level: bool = False) -> ShiftedKernel:
        """Kernel values less the shift; if `level`, less its mean where columns are alike.

        One number is subtracted faster. But a constant is no function in the span: its projections
        would be large, and cost digits.
        """
        make = self._shared_blocks if self.is_shared else self._blocks
        return make(np.dtype(dtype), level)

    def _blocks(self, dtype: np.dtype[Any], level: bool) -> ShiftedKernel:
        return ShiftedKernel.of(self.kernel, self.landmarks, self._shift(level), dtype)

    _shared_blocks = lru_cache(maxsize=2)(_blocks)

    def _shift(self, level: bool) -> Doubles:
        return self.shift.mean(keepdims=True) if level and self.kernel.name == "rbf" else self.shift

    def energy(self, level: bool) -> float:
        """Mean square of an entry of K'(Y, Y)."""
        return float(np.mean((self.K - self._shift(level)) ** 2))

    @property
    def variance(self) -> float:
        """Of the landmarks in feature space."""
        return float(np.mean(np.diag(self.K)) - np.mean(self.K))

    def exceeds(self, floor: float) -> bool:
        """Whether all eigenvalues of K(Y, Y) are above `floor`; no eigenvectors needed."""
        if self.is_triangular and floor * float(np.vdot(self.basis, self.basis)) < 1:
            return True  # tr K⁻¹ is above the inverse of the smallest
        return _exceeds(self.K, floor)

    def captured(self, H: Doubles, regular: bool) -> float:
        """The trace of BᵀHB; where K(Y, Y) is far from singular, by a triangular factor alone."""
        if regular:
            # tr K⁻¹H: far from singular, an inverse (its lower half, by dpotri) is good for the few
            # digits of a check.
            factor, _ = scipy.linalg.cho_factor(self.K, lower=True, check_finite=False)
            lower = np.tril(scipy.linalg.lapack.dpotri(factor, lower=True)[0])  # of the inverse
            return float(2 * np.vdot(lower, H) - np.vdot(np.diag(lower), np.diag(H)))
        return float(np.einsum("ij,ij->", self.basis, H @ self.basis))

    def holds_single(self, variance: float | None = None) -> bool:
        """Whether float32 projections on B are good enough.

        Rounding of K and of its product with B counts as 2⁻⁴⁸/w_j in direction j.
        """
        entries = float(np.max(np.diag(self.K))) ** 2
        product = len(self.K) * self.energy(level=False)
        error = _EPS**2 * (entries + product) * float(np.sum(1 / self.weights))
        return error <= _PROJECTION_ERROR * (self.variance if variance is None else variance)


def _exceeds(K: Doubles, floor: float) -> bool:
    # Cholesky fails where an eigenvalue is not positive; eigenvectors take ten times as long.
    try:
        np.linalg.cholesky(K - floor * np.eye(len(K)))
    except np.linalg.LinAlgError:
        return False
    return True


@dataclass(frozen=True)
class Route:
    """How sums are made.

    `unsafe` marks the directions (r,) that H alone does not give; None where none had to be looked
    at.
    """

    name: str
    unsafe: Any = None
    is_rough: bool = False  # safe since rounding is random, unless little is outside the span

    def is_stricter_than(self, other: Route) -> bool:
        """Whether it is safe where the other may not be."""
        own, others = ROUTES.index(self.name), ROUTES.index(other.name)
        if own == others == ROUTES.index("hybrid"):
            return bool((self.unsafe & ~other.unsafe).any())
        return own > others


def first_route(span: Span, A: Rows, Y: Rows) -> Route:
    """From the precision of the rows, their number, and the landmarks."""
    single = block_dtype(span.kernel, A, Y) == np.float32
    if not single or A.shape[0] < _PROOF_ROWS * len(span.K):
        return Route("double")
    return _safe_route(span, span.energy(level=True), span.variance)


def spanning(span: Span, A: Rows, k: int) -> Span:
    """Of fewer landmarks, where these have of the others all but what k components do not miss.

    That is where float32 would not carry sums over all: what few more directions hold would be
    rounding, or cost twice as many products as all the others.
    """
    if A.shape[0] < _PROOF_ROWS * len(span.K) or block_dtype(span.kernel, A, A) != np.float32:
        return span
    energy, variance = span.energy(level=True), span.variance
    if not (np.isfinite(energy) and variance > 0):
        return span
    if span.is_triangular and _safe_route(span, energy, variance).name == "raw":
        return span
    few = _spanning_rows(span.K, k, _SURELY * _RANDOM * _floor(1, energy, variance))
    if len(few) == len(span.K):
        return span
    return type(span)._new(span.kernel, span.landmarks[few], span.is_shared, None).by_factor()


def _spanning_rows(K: Doubles, k: int, floor: float) -> Any:
    """The numbers, sorted, of the rows that a Cholesky factor with pivots takes first.

    Where few are enough they are so many that nothing is left. Else a little is, or a little more
    if all eigenvalues are then above the floor, times their number.
    """
    q = len(K)
    triangle, order, rank, _ = scipy.linalg.lapack.dpstrf(K, lower=1)
    order = order - 1
    factor = np.tril(triangle)[:, :rank]
    left = np.append(np.trace(K) - np.cumsum(np.square(factor).sum(axis=0)), 0.0)
    # Of a subspace, so that it is no more than the (k + 1)th eigenvalue.
    Q = K[:, order[: 2 * (k + 1)]]
    for _ in range(2):
        Q = K @ np.linalg.qr(Q)[0]
    Q = np.linalg.qr(Q)[0]
    last = float(np.linalg.eigvalsh(Q.T @ K @ Q)[-min(k + 1, Q.shape[1])])

    def count(share: float) -> int:
        return int(min(max(1 + int(np.argmax(left <= share * last)), k + 1), rank))

    few, more, fewer = count(_NOTHING), count(_LITTLE * q), count(_SPANNED * q)
    if few <= q / 2:
        return np.sort(order[:few])
    for first in (order[:more], order[:fewer]):
        if _exceeds(K[np.ix_(first, first)], floor * len(first)):
            return np.sort(first)
    return np.sort(order[:more])


def _safe_route(span: Span, energy: float, variance: float, slack: float = 1.0) -> Route:
    """Given the mean square of an entry of K' and the variance of the rows inside the span."""
    if not (np.isfinite(energy) and variance > 0):
        return Route("double")
    # In direction j the error 2⁻²⁴ tr H / w_j, with tr H = n q energy, is to be at most a share
    # 1/_MARGIN of the rows' n variance: that is a floor for w_j.
    if span.rank is not None:
        return Route("project" if span.holds_single(variance) else "double")
    q = len(span.K)
    floor = _floor(q, energy, variance)
    if span.exceeds(floor):
        return Route("raw")
    if span.is_triangular:  # whose columns are no eigenvectors: none is safe by itself
        if span.exceeds(slack * _RANDOM * floor):
            return Route("raw", is_rough=True)
        return Route("project" if span.holds_single(variance) else "double")
    unsafe, r = span.weights < floor, len(span.weights)
    # K'B takes q r products a row and PᵀP half of r², by symmetry; H half of q².
    few = r * (2 * q + r) <= q * q
    if not (unsafe.any() or few):
        return Route("raw", unsafe)
    if not span.holds_single(variance):
        return Route("double" if unsafe.any() else "raw", unsafe)
    return Route("project" if few or unsafe.sum() > _HYBRID_SHARE * q else "hybrid", unsafe)


def shifted_sums(
    span: Span,
    A: Rows,
    Y: Rows,
    kept: KernelValues | None = None,
    gather_from: Callable[..., Pieces] | None = None,
) -> tuple[Doubles, Doubles, float, Route]:
    """H and K'ᵀ1 for the shift `span.shift`, tr K, and the route that was taken in the end.

    H counts inside the span: what rounding put outside may be left out. `gather_from` takes the
    place of `gather` where rows are not in main memory.
    """
    route, kernel, pieces = _settled(span, A, Y, kept, gather_from or gather)
    H, s = _whole(route, span, pieces)
    # The blocks had the shift c + e, rounded or one number for all: K − 1cᵀ = K' + 1eᵀ.
    e = kernel.shift - span.shift
    if e.any():
        cross = np.outer(e, s)
        H += cross + cross.T + A.shape[0] * np.outer(e, e)
        s = s + A.shape[0] * e
    return H, s, pieces.trace, route


class InsideSums(NamedTuple):
    """What rows add up to in orthonormal coordinates of a span."""

    scatter: Doubles  # (r, r), about their mean
    mean: Doubles  # (r,)
    n_rows: int
    trace: float  # Σ k(x, x)

    @property
    def outside(self) -> float:
        """Σ‖φ(a) − Pφ(a)‖² over all rows."""
        inside = float(np.trace(self.scatter)) + self.n_rows * float(self.mean @ self.mean)
        return max(self.trace - inside, 0.0)


def inside_sums(span: Span, A: Rows, kept: KernelValues | None = None) -> InsideSums:
    """The sums of rows for whoever has no use for H: coordinates need no way back from them.

    >>> X, Y = np.array([[3.0, 4.0], [5.0, 4.0]]), np.array([[1.0, 0.0]])
    >>> sums = inside_sums(Span.of(Kernel("linear"), Y), X)
    >>> sums.scatter, sums.mean, sums.outside
    (array([[2.]]), array([4.]), 32.0)
    """
    A, n = raw_rows(A), int(A.shape[0])
    with one_blas_thread():
        route, kernel, pieces = _settled(span, A, A, kept, gather)
        return pieces.inside or _inside(route, span, kernel, pieces, n)


def _inside(route: Route, span: Span, kernel: ShiftedKernel, pieces: Pieces, n: int) -> InsideSums:
    B, G, u = span.basis, pieces.projected, pieces.projected_sums
    if G is None:
        assert pieces.raw is not None
        scatter = span.coordinates(_about_mean(pieces.raw, pieces.sums, n))
        u = B.T @ pieces.sums
    else:
        if pieces.raw is not None and pieces.cross is not None:
            G, u = _joined(route, B, pieces.raw, pieces.cross, pieces)
        scatter = _about_mean(G, u, n)
    return InsideSums(scatter, u / n + B.T @ kernel.shift, n, pieces.trace)


def _about_mean(gram: Doubles, sums: Doubles, n: int) -> Doubles:
    return np.asarray(gram - np.outer(sums, sums) / n)


def _floor(q: int, energy: float, variance: float) -> float:
    return _MARGIN * _EPS * q * energy / variance


def _settled(
    span: Span, A: Rows, Y: Rows, kept: KernelValues | None, gather_from: Callable[..., Pieces]
) -> tuple[Route, ShiftedKernel, Pieces]:
    """A route that is safe, and what blocks have added up to on it."""
    route = first_route(span, A, Y)
    while True:
        kernel, pieces = _run(route, span, A, kept, gather_from)
        # The landmarks only stand for the rows: what these add up to has the last word.
        verdict = _check(route, span, kernel, pieces, A.shape[0])
        if not verdict.is_stricter_than(route):  # ever stricter, so that this ends
            return route, kernel, pieces
        route = verdict


def _run(
    route: Route,
    span: Span,
    A: Rows,
    kept: KernelValues | None,
    gather_from: Callable[..., Pieces],
) -> tuple[ShiftedKernel, Pieces]:
    dtype = np.float64 if route.name == "double" else np.float32
    kernel = span.blocks(dtype, level=route.name == "raw")
    B: Floats | None = None
    projects = route.name == "project" or span.rank is not None
    if route.name == "hybrid" or projects:
        directions = span.basis[:, route.unsafe] if route.name == "hybrid" else span.basis
        B = np.ascontiguousarray(directions, dtype)
    if kept is not None:
        kept.make_room(A.shape[0], span, kernel)
    room = None if kept is None else kept.values
    return kernel, gather_from(A, kernel, B, not projects, room)


def _check(route: Route, span: Span, kernel: ShiftedKernel, pieces: Pieces, n: int) -> Route:
    if route.name == "double":
        return route
    if not (pieces.is_finite() and np.isfinite(pieces.trace)):
        return Route("double")
    if pieces.raw is None:  # projections alone, whose rounding is of their own size
        return route
    energy = float(np.trace(pieces.raw)) / (n * len(span.K))
    if span.is_triangular:
        pieces.inside = _inside(route, span, kernel, pieces, n)
        inside = float(np.trace(pieces.inside.scatter))
        verdict = _safe_route(span, energy, inside / n, _SLACK)
        if not verdict.is_rough or pieces.inside.outside >= _ROUGHLY * inside:
            return verdict
        return Route("project" if span.holds_single(inside / n) else "double")
    scatter = _about_mean(pieces.raw, pieces.sums, n)
    regular = route.unsafe is None
    return _safe_route(span, energy, span.captured(scatter, regular) / n)


def _whole(route: Route, span: Span, pieces: Pieces) -> tuple[Doubles, Doubles]:
    """H and K'ᵀ1 from their pieces."""
    if pieces.projected is None:
        assert pieces.raw is not None
        return pieces.raw, pieces.sums
    G, u = pieces.projected, pieces.projected_sums
    if pieces.raw is not None and pieces.cross is not None:
        G, u = _joined(route, span.basis, pieces.raw, pieces.cross, pieces)
    # CᵀB = I: whoever takes BᵀHB gets G, and what float32 put outside the span is gone.
    C = span.K @ span.basis
    return np.asarray(C @ G @ C.T), np.asarray(C @ u)


def _joined(
    route: Route, B: Doubles, raw: Doubles, cross: Doubles, pieces: Pieces
) -> tuple[Doubles, Doubles]:
    """G and Pᵀ1 of all directions, the safe ones from H."""
    safe, unsafe = np.flatnonzero(~route.unsafe), np.flatnonzero(route.unsafe)
    B_safe, r = B[:, safe], B.shape[1]
    G, u = np.empty((r, r)), np.empty(r)
    G[np.ix_(safe, safe)] = B_safe.T @ raw @ B_safe
    G[np.ix_(safe, unsafe)] = B_safe.T @ cross
    G[np.ix_(unsafe, safe)] = G[np.ix_(safe, unsafe)].T
    G[np.ix_(unsafe, unsafe)] = pieces.projected
    u[safe], u[unsafe] = B_safe.T @ pieces.sums, pieces.projected_sums
    return G, u


# Passes over rows, block by block, spread over the cores that are idle.
#
# Rows are cut into stripes, as many as their number says and not the cores': stripes are added up
# in their order, so that the answer is the same on every machine.


_STRIPES = 64  # about as many, between these sizes
_FEWEST_ROWS, _MOST_ROWS, _UNIT = 2048, 65536, 1024
_BUFFER_BYTES = 1 << 24  # a thread's kernel values
_KEPT_BYTES = 1 << 27  # kernel values of all rows, at most


def stripes(n: int) -> list[slice]:
    """Consecutive slices that cover range(n).

    >>> [stripe.stop for stripe in stripes(5000)]
    [1250, 2500, 3750, 5000]
    """
    # Stripes of many rows cost little more than these; of few rows, all cores get as many.
    if _FEWEST_ROWS < n < 32 * _FEWEST_ROWS:
        pairs = -(-n // (2 * _FEWEST_ROWS))
        return list(_cut(slice(0, n), -(-n // (2 * pairs))))
    least = _FEWEST_ROWS if n <= _FEWEST_ROWS else 4 * _FEWEST_ROWS
    rows = -(-n // _STRIPES // _UNIT) * _UNIT
    return list(_cut(slice(0, n), min(max(rows, least), _MOST_ROWS)))


def _cut(rows: slice, size: int) -> Iterator[slice]:
    for start in range(rows.start, rows.stop, size):
        yield slice(start, min(start + size, rows.stop))


@dataclass
class Pieces:
    """Sums over rows, in float64. P = K'B are projections on some directions B (q, p)."""

    raw: Doubles | None  # K'ᵀK' (q, q)
    cross: Doubles | None  # K'ᵀP (q, p), where both are wanted
    projected: Doubles | None  # PᵀP (p, p)
    sums: Doubles  # K'ᵀ1 (q,)
    projected_sums: Doubles  # Pᵀ1 (p,)
    trace: float = 0.0  # Σ k(x, x)
    inside: InsideSums | None = None  # once they are worked out

    @classmethod
    def zeros(cls, q: int, p: int, raw: bool) -> Pieces:
        """Of no rows."""
        return cls(
            raw=np.zeros((q, q)) if raw else None,
            cross=np.zeros((q, p)) if raw and p else None,
            projected=np.zeros((p, p)) if p else None,
            sums=np.zeros(q),
            projected_sums=np.zeros(p),
        )

    def clear(self) -> None:
        """Of no rows again, in the same memory."""
        for own in self._arrays():
            if own is not None:
                own.fill(0.0)
        self.trace = 0.0

    def add(self, other: Pieces) -> None:
        """Those of more rows."""
        for own, more in zip(self._arrays(), other._arrays(), strict=True):
            if own is not None and more is not None:
                own += more
        self.trace += other.trace

    def _arrays(self) -> tuple[Doubles | None, ...]:
        return self.raw, self.cross, self.projected, self.sums, self.projected_sums

    def is_finite(self) -> bool:
        """Whether nothing overflowed."""
        return all(a is None or bool(np.isfinite(a).all()) for a in self._arrays())


def gather(
    A: Rows, kernel: ShiftedKernel, B: Floats | None, raw: bool, room: Floats | None = None
) -> Pieces:
    """The pieces of all rows: K'ᵀK' if `raw`, and what B asks for; K' goes to `room` (n, q)."""
    cuts = stripes(A.shape[0])
    # Sums of floats hang on their order: threads finish in any, stripes are added in theirs.
    total = _InOrder(len(cuts))
    with progress.over_rows("kernel sums", A.shape[0]) as advance:

        def worker(tasks: Iterator[int]) -> None:
            desk = _GramDesk(A, kernel, B, raw, room)
            for i in tasks:
                total.add(i, desk.gather(cuts[i], advance))

        spread(worker, len(cuts))
    return total.sum or Pieces.zeros(len(kernel.shift), 0 if B is None else B.shape[1], raw)


class _InOrder:
    """Adds pieces in the order of their numbers, whenever they come; those too early are copied."""

    def __init__(self, count: int) -> None:
        self.sum: Pieces | None = None
        self._is_single = count == 1  # nobody writes where it is again
        self._waiting: dict[int, Pieces] = {}
        self._next = 0
        self._lock = threading.Lock()

    def add(self, i: int, pieces: Pieces) -> None:
        with self._lock:
            if i != self._next:
                self._waiting[i] = deepcopy(pieces)
                return
            ready: Pieces | None = pieces
            while ready is not None:
                if self.sum is None:
                    self.sum = ready if self._is_single else deepcopy(ready)
                else:
                    self.sum.add(ready)
                self._next += 1
                ready = self._waiting.pop(self._next, None)


def _column_parts(B: Floats) -> list[tuple[slice, Floats]]:
    """Columns of B that are multiplied together, without rows of zeros below them."""
    q, r = B.shape
    middle = q // 2
    if q != r or middle < _FEWEST_COLUMNS or B[middle:, :middle].any():
        return [(slice(0, r), B)]
    left = np.ascontiguousarray(B[:middle, :middle])
    return [(slice(0, middle), left), (slice(middle, r), np.ascontiguousarray(B[:, middle:]))]


class _Desk:
    """One thread's buffers: K' of a block, and what is made of it."""

    def __init__(
        self, A: Rows, kernel: ShiftedKernel, B: Floats | None, room: Floats | None = None
    ) -> None:
        q, dtype = len(kernel.shift), kernel.dtype
        affordable = _BUFFER_BYTES // (q * dtype.itemsize) // _UNIT * _UNIT
        self._filler = kernel.filler(A)
        self._rows = min(max(affordable, _UNIT), self._filler.rows, max(A.shape[0], 1))
        self._A = A
        self._B = B
        self._room = room
        self._K = np.empty((0 if room is not None else self._rows, q), dtype)
        self._P = np.empty((self._rows, 0 if B is None else B.shape[1]), dtype)
        self._parts = [] if B is None else _column_parts(B)

    def blocks(self, stripe: slice) -> Iterator[tuple[slice, Floats, Floats, Doubles]]:
        """Of every block of the stripe its rows, K', P and k(x, x)."""
        for rows in _cut(stripe, self._rows):
            m = rows.stop - rows.start
            K, P = self._K[:m] if self._room is None else self._room[rows], self._P[:m]
            # What overflows float32 is found in the sums, and worked again in float64.
            with np.errstate(over="ignore", invalid="ignore"):
                diagonal = self._filler.fill(self._A[rows], K)
                for columns, part in self._parts:
                    np.matmul(K[:, : len(part)], part, out=P[:, columns])
            yield rows, K, P, diagonal


class _GramDesk(_Desk):
    def __init__(
        self,
        A: Rows,
        kernel: ShiftedKernel,
        B: Floats | None,
        raw: bool,
        room: Floats | None,
    ) -> None:
        super().__init__(A, kernel, B, room)
        self._ones = np.ones(self._rows, kernel.dtype)
        self._squares: dict[int, Floats] = {}
        self._pieces = Pieces.zeros(self._K.shape[1], self._P.shape[1], raw)

    def gather(self, stripe: slice, advance: Callable[[int], object]) -> Pieces:
        """The pieces of a stripe, good until the next is asked for."""
        pieces = self._pieces
        for rows, K, P, diagonal in self.blocks(stripe):
            is_first = rows.start == stripe.start
            if is_first:
                pieces.clear()
            with np.errstate(over="ignore", invalid="ignore"):
                self._add(pieces, K, P, is_first)
            pieces.trace += float(diagonal.sum())
            advance(rows.stop - rows.start)
        return pieces

    def _add(self, pieces: Pieces, K: Floats, P: Floats, is_first: bool) -> None:
        # In float32 within a block only: so its error grows with a block's rows and not with all.
        pieces.sums += self._ones[: len(K)] @ K
        if pieces.raw is not None:
            self._add_gram(K, pieces.raw, is_first)
        if pieces.cross is not None:
            pieces.cross += K.T @ P
        if pieces.projected is not None:
            self._add_gram(P, pieces.projected, is_first)
            pieces.projected_sums += self._ones[: len(P)] @ P

    def _add_gram(self, K: Floats, total: Doubles, is_first: bool) -> None:
        """Add KᵀK."""
        # numpy sees an array times its own transpose and calls syrk: half the work of a product.
        if is_first and K.dtype == total.dtype:
            np.matmul(K.T, K, out=total)
            return
        q = K.shape[1]
        if q not in self._squares:
            self._squares[q] = np.empty((q, q), K.dtype)
        total += np.matmul(K.T, K, out=self._squares[q])


def project(
    A: Rows,
    kernel: ShiftedKernel,
    B: Doubles,
    words: str,
    take: Callable[[slice, Floats, Doubles], None],
) -> None:
    """Hand K(A, Y)B and k(a, a) of every block of rows to `take`, which owns its rows alone."""
    cuts, weights = stripes(A.shape[0]), B.astype(kernel.dtype)
    # KB = K'B + cB: in float32 the long sums are of the smaller numbers, K'.
    back = (kernel.shift @ B).astype(kernel.dtype)
    with progress.over_rows(words, A.shape[0]) as advance:

        def worker(tasks: Iterator[int]) -> None:
            desk = _Desk(A, kernel, weights)
            for i in tasks:
                for rows, _, P, diagonal in desk.blocks(cuts[i]):
                    P += back
                    take(rows, P, diagonal)
                    advance(rows.stop - rows.start)

        spread(worker, len(cuts))


# Blocks: kernel values of rows with landmarks, less a shift, in as few passes as can be.
#
# Of kernels that are a simple function of products or distances (linear, poly, rbf, sigmoid), the
# argument of a dense row x with landmark y is affine in x and ‖x‖²: one matrix product gives it,
# and the rest works in place. All other kernels, and sparse rows, take `Kernel.block`.


# Sizes found by trying.
_USUAL_ROWS, _MANY_ROWS, _NEAR_ROWS = 2048, 8192, 512
_FEW_WEIGHTS = 1 << 17  # that stay in cache beside _NEAR_ROWS
_LONG = 128  # columns
_CACHED = 1 << 17  # values, that stay in cache between two passes over them
_LEAST_ROWS = 64  # that are worth a matrix product
_FEWEST_COLUMNS = 32  # the same of a triangle's half
_HUGE = 64.0  # γ(‖x‖² + ‖y‖²), of which rounding is far below 1
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

    @property
    def terms(self) -> _Affine | None:
        """What arguments are made of, for whoever works elsewhere; None without such a form."""
        return self._affine

    @property
    def landmarks(self) -> Rows:
        """Y, in float64."""
        return self._landmarks

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

    @cached_property
    def extended(self) -> Floats:
        """(d + 2, q): what rows with ‖x − centre‖² and 1 beside them are multiplied with."""
        norm_weights = np.full(len(self.constant), self.norm_weight)
        rows = np.vstack([self.weights, norm_weights, self.constant])
        return rows.astype(self.weights.dtype, copy=False)


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
        self._least = -_HUGE - float(affine.constant.min(initial=0.0))
        self._cached_rows = max(1, _CACHED // affine.weights.shape[1])
        self._block_rows, self.rows = BLOCK_ROWS, _USUAL_ROWS

    def fill(self, x: Rows, out: Floats) -> Doubles:
        diagonal = np.ones(len(out))
        for rows in blocks(len(out), self._block_rows):
            norms = self._multiply(x[rows], out[rows])
            # Several passes over few values, which stay in the nearest cache.
            for few in blocks(len(norms), self._cached_rows):
                self._add_rest(out[rows][few], norms[few])
                self._finish(out[rows][few], norms[few])
            if not self._by_distance:
                diagonal[rows] = norms
        return diagonal if self._by_distance else np.asarray(self._kernel.from_arguments(diagonal))

    def _multiply(self, x: Floats, out: Floats) -> Floats:
        """Write the product; gives ‖x‖², or ‖x − centre‖² for a kernel of distances."""
        raise NotImplementedError

    def _add_rest(self, values: Floats, norms: Floats) -> None:
        """Add what makes arguments of the product."""

    def _finish(self, values: Floats, norms: Floats) -> None:
        if self._kernel.name == "rbf":
            # Of huge rows that are alike, rounding alone may be above 0 by more than exp can take.
            if not self._affine.norm_weight * norms.max() > self._least:
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
        d, dtype = affine.weights.shape[0], affine.weights.dtype
        # The product stays in the nearest cache until it is finished.
        fitting = 1 << (self._cached_rows.bit_length() - 1)
        self._block_rows = min(max(fitting, _LEAST_ROWS), BLOCK_ROWS)
        self._left = np.empty((self._block_rows, d + 2), dtype)
        self._left[:, d + 1] = 1
        self._right = affine.extended

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
