"""From the parties' column pieces to joint components: what the centre computes in a column split.

Each fusion is the centre's share of a model. It estimates the joint kernel matrix K (T, T) by K̂,
keeps its top eigenpairs, and turns what the parties send of new samples into scores:

- `SumFusion`, linear: K̂ = Σ_j V_j Λ_j V_jᵀ, from its factor, so nothing (T, T) is formed;
- `ProductFusion`, RBF: K̂ = ∘_j V_j Λ_j V_jᵀ.

Those that add up what a kernel is a function of are in `argument_fusion`.

`error_bound` is an upper bound of ‖K − K̂‖_F. `total` is the variance of the samples in feature
space, or an upper bound of it. `from_below` says that K − K̂ has no negative eigenvalue, so that no
eigenvalue of K̂ overstates one of K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeAlias

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

# Components asked for: a number, the fewest that explain a share of the variance, or all (None).
Wanted: TypeAlias = int | float | None


def solved(wanted: Wanted, n: int) -> int:
    """Eigenpairs to compute of n, the one after those wanted included.

    >>> solved(3, 10), solved(0.9, 10), solved(None, 10)
    (4, 10, 10)
    """
    return min(wanted + 1, n) if isinstance(wanted, int) else n


def number_of(wanted: Wanted, values: Doubles, total: float, rounding: float = 0.0) -> int:
    """How many components are wanted, of eigenvalues in order; at least one.

    >>> number_of(0.7, np.array([6.0, 3.0, 1.0, 0.0]), 10.0)
    2
    >>> number_of(None, np.array([6.0, 3.0, 1.0, 0.0]), 10.0), number_of(5, np.zeros(2), 1.0)
    (3, 5)
    """
    if isinstance(wanted, int):
        return wanted
    sizes = clip_spectrum(np.abs(values), rounding=rounding)
    rank = max(int(np.count_nonzero(sizes)), 1)
    if wanted is None or not total:
        return rank
    enough = np.flatnonzero(np.cumsum(sizes) >= (wanted - 1e-12) * total)
    return int(enough[0]) + 1 if len(enough) else rank


@dataclass(frozen=True)
class Components:
    """Top eigenpairs of K̂, and the eigenvalue after them (0 if there is none)."""

    eigenvalues: Doubles  # (k,)
    eigenvectors: Doubles  # (T, k)
    next_eigenvalue: float

    @classmethod
    def first(
        cls,
        values: Doubles,
        vectors: Doubles,
        k: int,
        what: str,
        by_size: bool = False,
        rounding: float | None = None,
    ) -> Self:
        """The first k of k pairs or more, in order (`by_size`: of |λ|); refuses k > rank."""
        n = len(vectors)
        sizes = clip_spectrum(np.abs(values) if by_size else values, n, rounding)
        advice = "raise local_rank, lower gamma if there is one, or check that the samples differ"
        require_rank(sizes, k, n, what, advice, rounding)
        values = np.copysign(sizes, values) if by_size else sizes
        after = float(values[k]) if len(values) > k else 0.0
        return cls(values[:k], np.asarray(fix_signs(vectors[:, :k]), np.float64), after)

    @property
    def coefficients(self) -> Doubles:
        """What a centred row of K̂ is multiplied with to give scores."""
        return np.asarray(self.eigenvectors / np.sqrt(np.abs(self.eigenvalues)))

    @property
    def scores(self) -> Doubles:
        """Scores of the samples that the components were made from."""
        return np.asarray(self.eigenvalues * self.coefficients)


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
        wanted: Wanted,
    ) -> Self:
        """Fuse the parties' top eigenpairs; `next_values` are the first that were not sent."""
        n, total = len(vectors[0]), float(sum(traces))
        factor = np.hstack([V * np.sqrt(w) for V, w in zip(vectors, values, strict=True)])
        found = left_singular(factor, solved(wanted, n))
        k = number_of(wanted, found[0], total, EPS * n)
        components = Components.first(*found, k, f"the columns sent, over {n} samples,")
        mixing = tuple(V.T @ components.coefficients for V in vectors)
        dropped = [
            np.sqrt(max(n - len(w), 0)) * nxt for w, nxt in zip(values, next_values, strict=True)
        ]
        bound = len(vectors) * (max(dropped) + _rounding(values, n))
        return cls(components, mixing, total, float(bound))

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
        wanted: Wanted,
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
        typical = typical_off_diagonal(K)
        total, means, components = decompose(K, wanted, centre, trace=float(n))
        # K ⪰ K̂, so the true mean is at least as long, and the true total at most this.
        return cls(components, tuple(vectors), means, total, float(bound), typical)

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples from k_j(new, X_j) V_j of every party, each (m, r_j)."""
        m, n = len(projections[0]), len(self.vectors[0])
        scores = np.empty((m, len(self.components.eigenvalues)))
        for rows in blocks(m):
            K_new = np.empty((len(range(*rows.indices(m))), n))
            _product([P[rows] for P in projections], self.vectors, K_new)
            scores[rows] = centred_scores(K_new, self.means, self.components)
        return scores


class Fusion(Protocol):
    """What all fusions have."""

    @property
    def components(self) -> Components:
        """Top eigenpairs of K̂."""

    @property
    def total(self) -> float:
        """Variance of the samples, or an upper bound of it."""

    @property
    def error_bound(self) -> float:
        """Upper bound of ‖K − K̂‖_F."""

    @property
    def typical_value(self) -> float | None:
        """The median kernel value of two samples, where it tells something."""

    @property
    def from_below(self) -> bool:
        """Whether no eigenvalue of K̂ overstates one of K."""

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples, from what each party sends of them."""


def residual(fusion: Fusion) -> float:
    """Upper bound of the variance that the components leave out: total − Σλ, squared norms."""
    values = np.abs(fusion.components.eigenvalues)
    slack = 0.0 if fusion.from_below else np.sqrt(len(values)) * fusion.error_bound
    return float(np.clip(fusion.total - values.sum() + slack, 0.0, fusion.total))


def eigengap(fusion: Fusion) -> float:
    """A lower bound of Theorem 3's δ = λ_D(K) − λ_{D+1}(K̂), from K̂ alone."""
    last = abs(float(fusion.components.eigenvalues[-1]))
    at_least = last if fusion.from_below else last - fusion.error_bound
    return at_least - abs(fusion.components.next_eigenvalue)


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


def decompose(
    K: Doubles, wanted: Wanted, centre: bool, trace: float, by_size: bool = False
) -> tuple[float, KernelMeans | None, Components]:
    """Total variance, means and components of K, which is used up; `trace` is that of the true one.

    `by_size` is for indefinite kernels: components by |λ|, and Σ|λ| for the total.
    """
    n, largest = len(K), float(np.abs(np.diagonal(K)).max())
    means = centre_in_place(K) if centre else None
    total = trace if means is None else trace - n * means.overall
    values, vectors = top_eigenpairs(K, n if by_size else solved(wanted, n))
    # What centring leaves below this is rounding, not variance.
    values = np.where(np.abs(values) > 10 * n * EPS * largest, values, 0.0)
    if by_size:
        order = np.argsort(-np.abs(values), kind="stable")
        values, vectors = values[order], vectors[:, order]
        total = float(np.abs(values).sum())
    what, k = f"{n} samples", number_of(wanted, values, total, EPS * n)
    return total, means, Components.first(values[: k + 1], vectors, k, what, by_size)


def centred_scores(K_new: Floats, means: KernelMeans | None, components: Components) -> Doubles:
    """Scores of new samples from their kernel values with the training samples, (m, T)."""
    centred = K_new if means is None else centre_rows(K_new, means, out=K_new)
    return np.asarray(centred @ components.coefficients)


def typical_off_diagonal(K: Doubles, n_rows: int = 200) -> float:
    """The median kernel value of two different samples, over evenly spread rows."""
    rows = np.unique(np.linspace(0, len(K) - 1, n_rows).astype(int))
    sample: Any = np.array(K[rows])
    sample[np.arange(len(rows)), rows] = np.nan
    return float(np.nanmedian(sample)) if len(K) > 1 else 1.0


def _rounding(values: Sequence[Doubles], n: int) -> float:
    """How far rounding alone can move an eigenvalue."""
    return EPS * n * max(float(w[0]) for w in values)
