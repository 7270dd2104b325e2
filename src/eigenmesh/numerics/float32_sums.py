"""The sums of rows in float32 where that is safe, and how it is known to be.

K' = K(A, Y) − 1cᵀ, H = K'ᵀK'. In the span of φ(Y), with BᵀK(Y, Y)B = I, H counts as G = BᵀHB: an
error in H is divided by the eigenvalue w_j of K(Y, Y) in direction j. A float32 product H is off by
some 2⁻²⁴ of its size, and is good where that is far below w_j times the rows' variance in the span.
Projections P = K'B lose only 2⁻²⁴ of *their* size, and are good nearly always, at more work.

========  =========================================================================================
double    all in float64: float64 rows, kernels without a fused form, or few rows
raw       H in float32, blocks added up in float64: every direction is safe
hybrid    H, and P for the unsafe directions, at most a quarter of all
project   P for all directions, or where these are few; G goes back as H = C G Cᵀ with C = K(Y, Y)B,
          so that messages are alike
========  =========================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg

from eigenmesh.numerics.arrays import Doubles, Floats, Rows, as_rows
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_blocks import ShiftedKernel, block_dtype
from eigenmesh.numerics.row_passes import Pieces, gather

ROUTES = ("raw", "hybrid", "project", "double")  # each is safe wherever those before are

_EPS = 2.0**-24  # of float32
_MARGIN = 1000.0  # by which rounding is to stay below the variance in every direction
_HYBRID_SHARE = 1 / 4
_PROOF_ROWS = 16  # a landmark: with fewer rows, float64 costs less than the proof that float32 does
_PROJECTION_ERROR = 1e-4  # of the variance, that float32 projections may be off


@dataclass(frozen=True)
class Span:
    """What depends on the landmarks alone, in float64 whatever the rows are."""

    kernel: Kernel
    landmarks: Rows  # (q, d)
    K: Doubles  # K(Y, Y)

    @classmethod
    def of(cls, kernel: Kernel, Y: Rows) -> Self:
        """The span of φ(Y)."""
        Y = as_rows(Y, np.float64)
        return cls(kernel, Y, np.asarray(kernel.matrix(Y), dtype=np.float64))

    @cached_property
    def shift(self) -> Doubles:
        """c, the column means of K(Y, Y)."""
        return np.asarray(self.K.mean(axis=0))

    @cached_property
    def basis(self) -> Doubles:
        """B (q, r) with BᵀK(Y, Y)B = I."""
        return pseudo_inverse_root(self.K)

    @cached_property
    def weights(self) -> Doubles:
        """Eigenvalues w (r,) of K(Y, Y) in the directions of B."""
        return np.asarray(1 / np.einsum("ij,ij->j", self.basis, self.basis))

    def blocks(self, dtype: Any, level: bool = False) -> ShiftedKernel:
        """Kernel values less the shift; if `level`, less its mean where columns are alike.

        One number is subtracted faster. But a constant is no function in the span: its projections
        would be large, and cost digits.
        """
        return ShiftedKernel.of(self.kernel, self.landmarks, self._shift(level), np.dtype(dtype))

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
        # Cholesky fails where an eigenvalue is not positive; eigenvectors take ten times as long.
        try:
            np.linalg.cholesky(self.K - floor * np.eye(len(self.K)))
        except np.linalg.LinAlgError:
            return False
        return True

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


@dataclass(frozen=True)
class Route:
    """How sums are made.

    `unsafe` marks the directions (r,) that H alone does not give; None where none had to be looked
    at.
    """

    name: str
    unsafe: Any = None

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


def _safe_route(span: Span, energy: float, variance: float) -> Route:
    """Given the mean square of an entry of K' and the variance of the rows inside the span."""
    if not (np.isfinite(energy) and variance > 0):
        return Route("double")
    # In direction j the error 2⁻²⁴ tr H / w_j, with tr H = n q energy, is to be at most a share
    # 1/_MARGIN of the rows' n variance: that is a floor for w_j.
    q = len(span.K)
    floor = _MARGIN * _EPS * q * energy / variance
    if span.exceeds(floor):
        return Route("raw")
    unsafe, r = span.weights < floor, len(span.weights)
    # K'B takes q r products a row and PᵀP half of r², by symmetry; H half of q².
    few = r * (2 * q + r) <= q * q
    if not (unsafe.any() or few):
        return Route("raw", unsafe)
    if not span.holds_single(variance):
        return Route("double" if unsafe.any() else "raw", unsafe)
    return Route("project" if few or unsafe.sum() > _HYBRID_SHARE * q else "hybrid", unsafe)


def shifted_sums(span: Span, A: Rows, Y: Rows) -> tuple[Doubles, Doubles, float, Route]:
    """H and K'ᵀ1 for the shift `span.shift`, tr K, and the route that was taken in the end.

    H counts inside the span: what rounding put outside may be left out.
    """
    route = first_route(span, A, Y)
    while True:
        kernel, pieces = _run(route, span, A)
        # The landmarks only stand for the rows: what these add up to has the last word.
        verdict = _check(route, span, pieces, A.shape[0])
        if not verdict.is_stricter_than(route):  # ever stricter, so that this ends
            break
        route = verdict
    H, s = _whole(route, span, pieces)
    # The blocks had the shift c + e, rounded or one number for all: K − 1cᵀ = K' + 1eᵀ.
    e = kernel.shift - span.shift
    cross = np.outer(e, s)
    H += cross + cross.T + A.shape[0] * np.outer(e, e)
    return H, s + A.shape[0] * e, pieces.trace, route


def _run(route: Route, span: Span, A: Rows) -> tuple[ShiftedKernel, Pieces]:
    dtype = np.float64 if route.name == "double" else np.float32
    kernel = span.blocks(dtype, level=route.name == "raw")
    B: Floats | None = None
    if route.name in ("hybrid", "project"):
        directions = span.basis[:, route.unsafe] if route.name == "hybrid" else span.basis
        B = np.ascontiguousarray(directions, np.float32)
    return kernel, gather(A, kernel, B, raw=route.name != "project")


def _check(route: Route, span: Span, pieces: Pieces, n: int) -> Route:
    if route.name == "double":
        return route
    if not (pieces.is_finite() and np.isfinite(pieces.trace)):
        return Route("double")
    if pieces.raw is None:  # projections alone, whose rounding is of their own size
        return route
    energy = float(np.trace(pieces.raw)) / (n * len(span.K))
    scatter = pieces.raw - np.outer(pieces.sums, pieces.sums) / n
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
