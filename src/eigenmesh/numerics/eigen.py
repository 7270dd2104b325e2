"""Symmetric eigen-solvers with relative cut-offs; never a plain inverse.

Factorisations run in float64 whatever comes in.  Eigenvalues are in descending order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from eigenmesh.errors import InputError, RankError
from eigenmesh.numerics.arrays import (
    Doubles,
    Floats,
    Rows,
    as_rows,
    dense,
    is_sparse,
    require_finite,
    require_square,
)

EPS = float(np.finfo(np.float64).eps)

# Where LAPACK beats Lanczos: small matrices, or a large share of the spectrum.
_LAPACK_SIZE = 500
_TINY_SIZE = 32  # of matrices of which many parties each have one
_LAPACK_SHARE = 0.05
# Up to this many columns (or rows) a factor's Gram matrix is cheaper than Lanczos.
_GRAM_SIZE = 2000
# λ_k / λ_1 below which a Gram matrix, having squared the singular values, costs too many digits.
_GRAM_RANGE = 1e-4
_MAX_RESTARTS = 300
# Share of λ₁ down to which K(Y, Y) is inverted: of landmarks that are nearly alike, rounding of the
# kernel values (10⁻¹⁶) must stay well below what is divided by.
SPAN_CUTOFF = 1e-10

# Share of λ₁ below which an eigenvalue may be rounding: of columns 10⁶ times as far from the origin
# as they spread, centring leaves 10⁻²⁰.
SPECTRUM_ROUNDING = 1e-18


def top_eigenpairs(K: Floats, k: int, *, seed: int = 0) -> tuple[Doubles, Doubles]:
    """The k largest eigenvalues of a symmetric K, and their vectors (n, k); K is left alone.

    >>> values, vectors = top_eigenpairs(np.diag([1.0, 3.0, 2.0]), 2)
    >>> values
    array([3., 2.])
    """
    n = require_square(K)
    if require_count(k, "k") > n:
        raise InputError(f"k is {k}, expected at most {n}, the size of the matrix; lower k")
    require_finite(K, "the matrix")
    return _top(np.asarray(K, dtype=np.float64), k, seed)


def largest_eigenpair(K: Doubles) -> tuple[float, Doubles]:
    """The largest eigenvalue of a symmetric K of finite numbers, and its vector (n,).

    >>> largest_eigenpair(np.diag([1.0, 3.0]))[0]
    3.0
    """
    values, vectors = _top(K, 1, 0)
    return float(values[0]), vectors[:, 0]


def largest_eigenvalues(K: Doubles, k: int, tolerance: float) -> Doubles:
    """The k largest of a symmetric K of finite numbers, as `lanczos` has them where it is cheaper.

    >>> largest_eigenvalues(np.diag([1.0, 3.0, 2.0]), 2, 1e-6)
    array([3., 2.])
    """
    n = len(K)
    if n > _TINY_SIZE and k <= _LAPACK_SHARE * n:
        try:
            return lanczos(lambda v: K @ v, n, k, tolerance=tolerance)[0]
        except ArpackError:
            pass
    values = np.asarray(scipy.linalg.eigvalsh(K, check_finite=False), dtype=np.float64)
    return values[: -k - 1 : -1]


def _top(A: Doubles, k: int, seed: int) -> tuple[Doubles, Doubles]:
    n = len(A)
    if n <= _LAPACK_SIZE or k > _LAPACK_SHARE * n:
        return _lapack_top(A, k)
    try:
        return lanczos(lambda v: A @ v, n, k, seed=seed)
    except ArpackError:
        return _lapack_top(A, k)


def _lapack_top(K: Doubles, k: int) -> tuple[Doubles, Doubles]:
    n = len(K)
    if k < n <= _TINY_SIZE:
        # The routine that scipy takes for some of the eigenvalues, without what is around it there.
        values, vectors, count, _, info = scipy.linalg.lapack.dsyevr(
            K, range="I", lower=1, il=n - k + 1, iu=n
        )
        if not info and count == k:
            return values[k - 1 :: -1], vectors[:, ::-1]
    subset = None if k == n else (n - k, n - 1)
    values, vectors = scipy.linalg.eigh(K, subset_by_index=subset, check_finite=False)
    if len(values) < k:  # LAPACK's bisection may lose eigenvalues of high multiplicity
        values, vectors = scipy.linalg.eigh(K, check_finite=False)
    return values[: -k - 1 : -1], vectors[:, : -k - 1 : -1]


def lanczos(
    apply: Callable[[Doubles], Doubles], n: int, k: int, *, seed: int = 0, tolerance: float = 0.0
) -> tuple[Doubles, Doubles]:
    """Top k < n eigenpairs of a symmetric operator on vectors of length n.

    Each is as exact as floats are, or may miss its equation by a `tolerance` of its eigenvalue.

    Raises scipy's ArpackError where it does not converge.

    >>> diagonal = np.arange(50.0)
    >>> lanczos(lambda v: diagonal * v, 50, 2)[0].round(10)
    array([49., 48.])
    """
    operator = LinearOperator((n, n), matvec=lambda v: apply(v.ravel()), dtype=np.float64)
    rng = np.random.default_rng(seed)
    start = rng.standard_normal(n)
    # tol=0 is machine precision, as LAPACK's is: which of the two has run must not show.
    how: dict[str, Any] = {"which": "LA", "v0": start, "tol": tolerance, "maxiter": _MAX_RESTARTS}
    values, vectors = eigsh(operator, k, **how, **_restarts(rng))
    order = np.argsort(values)[::-1]
    return values[order], vectors[:, order]


def _restarts(rng: np.random.Generator) -> dict[str, Any]:
    # Repeated eigenvalues make ARPACK draw new vectors; newer SciPy draws them unseeded.
    return {"rng": rng} if "rng" in inspect.signature(eigsh).parameters else {}


def left_singular(
    F: Rows, k: int, *, centre: bool = False, seed: int = 0
) -> tuple[Doubles, Doubles]:
    """Top min(k, n, m) eigenpairs of F Fᵀ, for F (n, m), from nothing larger than F.

    `centre` subtracts the column means first; a sparse F stays sparse.

    >>> values, vectors = left_singular(np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), 1)
    >>> values
    array([9.])
    """
    require_count(k, "k")
    factor = _Factor.of(F, centre)
    size = min(factor.F.shape)
    if not size:
        raise InputError(f"a factor of shape {factor.F.shape} is empty; pass at least one entry")
    k = min(k, size)
    if size <= _GRAM_SIZE or k > _LAPACK_SHARE * size:
        return _by_gram(factor, k, seed)
    try:
        values, vectors = lanczos(factor.apply_gram, factor.F.shape[0], k, seed=seed)
    except ArpackError:
        return _by_gram(factor, k, seed)
    return np.maximum(values, 0.0), vectors


@dataclass(frozen=True)
class _Factor:
    """F − 1·meanᵀ, the mean being implicit where F is sparse."""

    F: Rows  # (n, m)
    mean: Doubles  # (m,)

    @classmethod
    def of(cls, F: Rows, centre: bool) -> _Factor:
        F = as_rows(F, np.float64)
        require_finite(F, "the factor")
        nothing = np.zeros(F.shape[1])
        if not centre or not F.shape[0]:
            return cls(F, nothing)
        mean = np.asarray(F.mean(axis=0)).ravel()
        return cls(F, mean) if is_sparse(F) else cls(F - mean, nothing)

    def times(self, V: Doubles) -> Doubles:
        product: Doubles = self.F @ V - self.mean @ V
        return product

    def apply_gram(self, u: Doubles) -> Doubles:
        """F Fᵀ u."""
        return self.times(self.F.T @ u - self.mean * u.sum())

    def inner_gram(self) -> Doubles:
        """Fᵀ F, (m, m)."""
        G: Doubles = dense(self.F.T @ self.F)
        G -= self.F.shape[0] * np.outer(self.mean, self.mean)
        return G

    def outer_gram(self) -> Doubles:
        """F Fᵀ, (n, n)."""
        # F Fᵀ − Fμ1ᵀ − 1(Fμ)ᵀ + ‖μ‖²11ᵀ, half of the last term with each of the two before it.
        G: Doubles = dense(self.F @ self.F.T)
        shift = self.F @ self.mean - self.mean @ self.mean / 2
        G -= shift[:, None] + shift
        return G


def _by_gram(factor: _Factor, k: int, seed: int) -> tuple[Doubles, Doubles]:
    """Through the Gram matrix of the shorter side; through QR where that costs digits."""
    n, m = factor.F.shape
    values, vectors = top_eigenpairs(
        factor.inner_gram() if m < n else factor.outer_gram(), k, seed=seed
    )
    if values[-1] < _GRAM_RANGE * values[0] and not is_sparse(factor.F):
        return _tall_svd(factor.F, k) if m < n else _wide_svd(factor.F, k)
    if m < n:
        # u = Fv/√λ would lose orthogonality where λ is small, and fail where it is 0; a QR of Fv
        # does not.
        return _tall_svd(factor.times(vectors), k)
    return np.maximum(values, 0.0), vectors


def _tall_svd(F: Doubles, k: int) -> tuple[Doubles, Doubles]:
    """Left singular pairs of F (n, m), m ≤ n; only k columns of Q are ever formed."""
    m = F.shape[1]
    (reflectors, tau), R = scipy.linalg.qr(F, mode="raw", check_finite=False)
    U, s, _ = scipy.linalg.svd(R[:m], check_finite=False)
    coordinates = np.zeros((len(F), k), order="F")
    coordinates[:m] = U[:, :k]
    vectors, _, _ = scipy.linalg.lapack.dormqr(
        "L", "N", reflectors, tau, coordinates, 64 * k, overwrite_c=True
    )
    return s[:k] ** 2, vectors


def _wide_svd(F: Doubles, k: int) -> tuple[Doubles, Doubles]:
    """Left singular pairs of F (n, m), n ≤ m."""
    (R,) = scipy.linalg.qr(F.T, mode="r", check_finite=False)
    U, s, _ = scipy.linalg.svd(R[: len(F)].T, check_finite=False)
    return s[:k] ** 2, U[:, :k]


def clip_spectrum(values: Floats, n: int | None = None, rounding: float | None = None) -> Doubles:
    """Values with those below eps·n·max set to zero; n is the size of the matrix they belong to.

    `rounding` is the share of the largest to use instead, where a factor was worked with.

    >>> clip_spectrum(np.array([2.0, 1e-17, -1e-18]))
    array([2., 0., 0.])
    """
    spectrum = np.asarray(values, dtype=np.float64)
    share = EPS * (n or len(spectrum)) if rounding is None else rounding
    return np.where(spectrum > share * spectrum.max(initial=0.0), spectrum, 0.0)


def numerical_rank(values: Floats, n: int | None = None, rounding: float | None = None) -> int:
    """How many eigenvalues of an (n, n) matrix stand above rounding.

    >>> numerical_rank(np.array([2.0, 1.0, 1e-17]), 3)
    2
    """
    return int(np.count_nonzero(clip_spectrum(values, n, rounding)))


def require_rank(
    values: Floats,
    k: int,
    n: int | None = None,
    what: str = "the data",
    advice: str = "check that the samples differ",
    rounding: float | None = None,
) -> None:
    """Raise RankError unless the first k eigenvalues stand above rounding.

    >>> require_rank(np.array([2.0, 1.0]), 2)
    """
    rank = numerical_rank(values, n, rounding)
    if k <= rank:
        return
    remedy = f"set n_components to at most {rank}, or " if rank else ""
    raise RankError(f"{k} components were asked for, {what} determine {rank}; {remedy}{advice}")


def fix_signs(vectors: Floats) -> Floats:
    """Columns with signs such that the first entry of largest magnitude is positive.

    >>> fix_signs(np.array([[1.0, 0.5], [-2.0, 0.1]]))
    array([[-1. ,  0.5],
           [ 2. ,  0.1]])
    """
    sizes = np.abs(vectors)
    # Entries equal but for rounding count as tied, or the sign would hang on the last bit.
    leaders = np.argmax(sizes >= (1 - 1e-8) * sizes.max(axis=0, initial=0), axis=0)
    leading = vectors[leaders, np.arange(vectors.shape[1])]
    signs = np.where(leading < 0, -1, 1).astype(vectors.dtype)
    return np.asarray(vectors * signs)


def pseudo_inverse_root(K: Floats, cutoff: float = SPAN_CUTOFF) -> Doubles:
    """B (n, r) with BᵀKB = I on the r directions above cutoff·λ₁.

    >>> abs(pseudo_inverse_root(np.diag([4.0, 0.0])))
    array([[0.5],
           [0. ]])
    """
    n = require_square(K)
    require_finite(K, "the matrix")
    values, vectors = _lapack_top(np.asarray(K, dtype=np.float64), n)
    # Jitter on the diagonal would keep all directions and bias every claim; small ones are dropped.
    large = values > max(cutoff * values[0], 0.0)
    if not large.any():
        raise RankError(
            f"a matrix whose largest eigenvalue is {values[0]:.3g} has no inverse root, a positive "
            "one is expected; check that not all rows are 0"
        )
    root: Doubles = vectors[:, large] / np.sqrt(values[large])
    return root


def relative_gap(values: Floats, k: int) -> float:
    """(λ_k − λ_{k+1}) / λ_k; near 0 the top-k subspace is not determined.

    A spectrum that ends at k counts λ_{k+1} = 0.

    >>> relative_gap(np.array([4.0, 2.0, 1.0]), 2)
    0.5
    """
    if not 1 <= k <= len(values):
        raise InputError(f"k is {k}, expected 1 ≤ k ≤ {len(values)}, the number of eigenvalues")
    last = float(values[k - 1])
    following = max(float(values[k]), 0.0) if k < len(values) else 0.0
    return (last - following) / last if last > 0 else 0.0


def require_count(k: int, what: str) -> int:
    """Hand back k if it is an integer of at least 1."""
    if not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"{what} is {k!r}, expected an integer of at least 1; ask for one or more")
    return int(k)
