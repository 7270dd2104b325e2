"""From the parties' column pieces to joint components: what the centre computes in a column split.

Each fusion is the centre's share of a model. It estimates the joint kernel matrix K (T, T) by K̂,
keeps its top eigenpairs, and turns what the parties send of new samples into scores:

- `SumFusion`, linear: K̂ = Σ_j V_j Λ_j V_jᵀ, from its factor, so nothing (T, T) is formed;
- `ProductFusion`, RBF: K̂ = ∘_j V_j Λ_j V_jᵀ;
- `DistanceFusion`, RBF: K̂ = exp(−γ Σ_j D̂_j), D̂_j from local coordinates and residual norms.

`error_bound` is an upper bound of ‖K − K̂‖_F. `total` is the variance of the samples in feature
space, or an upper bound of it. `from_below` says that K − K̂ has no negative eigenvalue, so that no
eigenvalue of K̂ overstates one of K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Floats, blocks
from eigenmesh.numerics.centring import KernelMeans, centre_in_place, centre_rows
from eigenmesh.numerics.eigen import (
    EPS,
    clip_spectrum,
    fix_signs,
    left_singular,
    require_rank,
    top_eigenpairs,
)
from eigenmesh.numerics.kernels import Kernel


@dataclass(frozen=True)
class Components:
    """Top eigenpairs of K̂, and the eigenvalue after them (0 if there is none)."""

    eigenvalues: Doubles  # (k,)
    eigenvectors: Doubles  # (T, k)
    next_eigenvalue: float

    @classmethod
    def first(cls, values: Doubles, vectors: Doubles, k: int, what: str) -> Self:
        """The first k of at least k pairs in descending order; refuses more than the rank."""
        values = clip_spectrum(values, len(vectors))
        advice = "raise local_rank, lower gamma if there is one, or check that the samples differ"
        require_rank(values, k, len(vectors), what, advice)
        after = float(values[k]) if len(values) > k else 0.0
        return cls(values[:k], np.asarray(fix_signs(vectors[:, :k]), np.float64), after)

    @property
    def coefficients(self) -> Doubles:
        """What a centred row of K̂ is multiplied with to give scores."""
        return np.asarray(self.eigenvectors / np.sqrt(self.eigenvalues))


@dataclass(frozen=True)
class SumFusion:
    """The linear kernel: local kernel matrices add up. Parties centre their own columns."""

    components: Components
    mixing: tuple[Doubles, ...]  # (r_j, k) for each party
    total: float
    error_bound: float
    typical_value: ClassVar[float | None] = None
    from_below: ClassVar[bool] = True

    @classmethod
    def fit(
        cls,
        vectors: Sequence[Doubles],
        values: Sequence[Doubles],
        next_values: Sequence[float],
        traces: Sequence[float],
        k: int,
    ) -> Self:
        """Fuse the parties' top eigenpairs; `next_values` are the first that were not sent."""
        n = len(vectors[0])
        factor = np.hstack([V * np.sqrt(w) for V, w in zip(vectors, values, strict=True)])
        found = left_singular(factor, min(k + 1, n))
        components = Components.first(*found, k, _what(n, "columns"))
        mixing = tuple(V.T @ components.coefficients for V in vectors)
        dropped = [
            np.sqrt(max(n - len(w), 0)) * nxt for w, nxt in zip(values, next_values, strict=True)
        ]
        bound = len(vectors) * (max(dropped) + _rounding(values, n))
        return cls(components, mixing, float(sum(traces)), float(bound))

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples from k_j(new, X_j) V_j of every party, each (m, r_j)."""
        return np.asarray(sum(P @ M for P, M in zip(projections, self.mixing, strict=True)))


@dataclass(frozen=True)
class ProductFusion:
    """The RBF kernel: local kernel matrices multiply, element by element."""

    components: Components
    vectors: tuple[Doubles, ...]  # (T, r_j) for each party
    means: KernelMeans | None
    total: float
    error_bound: float
    typical_value: float
    from_below: ClassVar[bool] = True

    @classmethod
    def fit(
        cls,
        vectors: Sequence[Doubles],
        values: Sequence[Doubles],
        next_values: Sequence[float],
        k: int,
        centre: bool,
    ) -> Self:
        """Fuse the parties' top eigenpairs; centring comes after the product, never before it."""
        n = len(vectors[0])
        weighted = [V * w for V, w in zip(vectors, values, strict=True)]
        K = np.empty((n, n))
        for rows in blocks(n):
            _product([W[rows] for W in weighted], vectors, K[rows])
        _symmetrise(K)
        bound = len(vectors) * np.sqrt(n) * (max(next_values) + _rounding(values, n))
        typical, total, means, components = _decompose(K, k, centre)
        # K ⪰ K̂, so the true mean is at least as long, and the true total at most this.
        return cls(components, tuple(vectors), means, total, float(bound), typical)

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples from k_j(new, X_j) V_j of every party, each (m, r_j)."""
        m, n = len(projections[0]), len(self.vectors[0])
        scores = np.empty((m, len(self.components.eigenvalues)))
        for rows in blocks(m):
            K_new = np.empty((len(range(*rows.indices(m))), n))
            _product([P[rows] for P in projections], self.vectors, K_new)
            scores[rows] = _scores(K_new, self.means, self.components)
        return scores


@dataclass(frozen=True)
class DistanceFusion:
    """The RBF kernel: squared distances add up. Exact where no party dropped a direction."""

    components: Components
    coordinates: Doubles  # (T, Σ s_j), all parties side by side
    residuals: Doubles  # (T,), squared norms of what the coordinates leave out
    gamma: float
    means: KernelMeans | None
    total: float
    error_bound: float
    typical_value: float
    from_below: ClassVar[bool] = False

    @classmethod
    def fit(
        cls,
        coordinates: Sequence[Floats],
        residual_norms: Sequence[Floats],
        gamma: float,
        k: int,
        centre: bool,
    ) -> Self:
        """Fuse local principal coordinates (T, s_j) and residual norms (T,) of every party."""
        S = np.hstack(coordinates).astype(np.float64)
        R = np.column_stack(residual_norms).astype(np.float64)
        residuals = np.einsum("ij,ij->i", R, R)
        K: Doubles = np.asarray(Kernel("rbf", gamma).matrix(S), np.float64)
        bound = _apply_residuals(K, R, residuals, gamma) + len(S) * EPS
        typical, total, means, components = _decompose(K, k, centre)
        total = min(total + bound, float(len(S)))
        return cls(components, S, residuals, gamma, means, total, bound, typical)

    def scores(self, coordinates: Sequence[Floats], residual_norms: Sequence[Floats]) -> Doubles:
        """Scores of new samples from their coordinates (m, s_j) and residual norms (m,)."""
        S_new = np.hstack(coordinates)
        left_out = np.sum([np.square(r) for r in residual_norms], axis=0)
        kernel = Kernel("rbf", self.gamma)
        scores = np.empty((len(S_new), len(self.components.eigenvalues)))
        for rows in blocks(len(S_new)):
            D = kernel.arguments(S_new[rows], self.coordinates)
            D += left_out[rows, None] + self.residuals
            K_new = kernel.from_arguments(D, out=D)
            scores[rows] = _scores(K_new, self.means, self.components)
        return scores


Fusion = SumFusion | ProductFusion | DistanceFusion


def residual(fusion: Fusion) -> float:
    """Upper bound of the variance that the components leave out: total − Σλ, squared norms."""
    values = fusion.components.eigenvalues
    slack = 0.0 if fusion.from_below else np.sqrt(len(values)) * fusion.error_bound
    return float(np.clip(fusion.total - values.sum() + slack, 0.0, fusion.total))


def eigengap(fusion: Fusion) -> float:
    """A lower bound of Theorem 3's δ = λ_D(K) − λ_{D+1}(K̂), from K̂ alone."""
    last = float(fusion.components.eigenvalues[-1])
    at_least = last if fusion.from_below else last - fusion.error_bound
    return at_least - fusion.components.next_eigenvalue


def sin_theta_bound(fusion: Fusion) -> float:
    """Theorem 3: ‖sin Θ‖_F of the components is at most this; √D, the maximum, if δ ≤ 0."""
    largest = float(np.sqrt(len(fusion.components.eigenvalues)))
    gap = eigengap(fusion)
    return fusion.error_bound / gap if gap > 0 else largest


def _product(left: Sequence[Floats], right: Sequence[Floats], out: Doubles) -> None:
    """∘_j left_j right_jᵀ into `out`."""
    np.matmul(left[0], right[0].T, out=out)
    factor = np.empty_like(out)
    for L, R in zip(left[1:], right[1:], strict=True):
        np.matmul(L, R.T, out=factor)
        out *= factor


def _symmetrise(K: Doubles) -> None:
    """BLAS rounds K[p, q] and K[q, p] apart; the eigen-solver reads only one of them."""
    for rows in blocks(len(K)):
        K[rows, : rows.stop] = (K[rows, : rows.stop] + K[: rows.stop, rows].T) / 2
        K[: rows.stop, rows] = K[rows, : rows.stop].T


def _apply_residuals(K: Doubles, R: Doubles, residuals: Doubles, gamma: float) -> float:
    """Multiply the residuals' part into K, in place; returns a bound of ‖K − K̂‖_F.

    The residuals of two samples are taken as orthogonal. Their true product lies within
    ±Σ_j ρ_jp ρ_jq, so the true kernel value lies within exp(±2γ Σ_j ρ_jp ρ_jq) of the estimate;
    and no two kernel values differ by more than 1.
    """
    shrink = np.exp(-gamma * residuals)
    squared_error = 0.0
    for rows in blocks(len(K)):
        K[rows] *= shrink[rows, None] * shrink
        span = np.arange(len(K))[rows]
        K[span, span] = 1.0
        spread = np.minimum(2 * gamma * (R[rows] @ R.T), 700.0)  # e^709 overflows
        off = np.minimum(K[rows] * np.expm1(spread), 1.0)
        off[np.arange(len(span)), span] = 0.0
        squared_error += float(np.einsum("ij,ij->", off, off))
    return float(np.sqrt(squared_error))


def _decompose(
    K: Doubles, k: int, centre: bool
) -> tuple[float, float, KernelMeans | None, Components]:
    """Typical off-diagonal value, total variance, means and components of K, which is used up."""
    n = len(K)
    typical = _typical_off_diagonal(K)
    means = centre_in_place(K) if centre else None
    total = float(n if means is None else n - n * means.overall)
    values, vectors = top_eigenpairs(K, min(k + 1, n))
    # K had a diagonal of ones: what centring leaves below this is rounding, not variance.
    values = np.where(values > 10 * n * EPS, values, 0.0)
    return typical, total, means, Components.first(values, vectors, k, _what(n, "samples"))


def _scores(K_new: Floats, means: KernelMeans | None, components: Components) -> Doubles:
    centred = K_new if means is None else centre_rows(K_new, means, out=K_new)
    return np.asarray(centred @ components.coefficients)


def _typical_off_diagonal(K: Doubles, n_rows: int = 200) -> float:
    """The median kernel value of two different samples, over evenly spread rows."""
    rows = np.unique(np.linspace(0, len(K) - 1, n_rows).astype(int))
    sample: Any = np.array(K[rows])
    sample[np.arange(len(rows)), rows] = np.nan
    return float(np.nanmedian(sample)) if len(K) > 1 else 1.0


def _rounding(values: Sequence[Doubles], n: int) -> float:
    """How far rounding alone can move an eigenvalue."""
    return EPS * n * max(float(w[0]) for w in values)


def _what(n: int, noun: str) -> str:
    return f"the {noun} sent, over {n} samples,"
