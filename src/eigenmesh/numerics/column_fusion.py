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
from numpy.typing import NDArray

from eigenmesh.numerics.arrays import Doubles, Floats, blocks
from eigenmesh.numerics.centring import KernelMeans, centre_in_place, centre_rows
from eigenmesh.numerics.eigen import (
    EPS,
    clip_spectrum,
    fix_signs,
    left_singular,
    pseudo_inverse_root,
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
        advice: str = "lower gamma if there is one, or check that the samples differ",
    ) -> Self:
        """The first k of k pairs or more, in order (`by_size`: of |λ|); refuses k > rank."""
        n = len(vectors)
        sizes = clip_spectrum(np.abs(values) if by_size else values, n, rounding)
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
    shortfalls: Doubles | None = None  # (k,), as estimated; absent from older models
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
        what, advice = f"the columns sent, over {n} samples,", "raise local_rank"
        components = Components.first(*found, k, what, advice=advice)
        mixing = tuple(V.T @ components.coefficients for V in vectors)
        dropped = [
            np.sqrt(max(n - len(w), 0)) * nxt for w, nxt in zip(values, next_values, strict=True)
        ]
        bound = len(vectors) * (max(dropped) + _rounding(values, n))
        missing = _missing_of_sum(components.eigenvectors, vectors, values, traces)
        shortfalls = as_shortfalls(components, *missing, float(sum(next_values)))
        return cls(components, mixing, total, float(bound), shortfalls)

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
    shortfalls: Doubles | None = None  # (k,), as estimated; absent from older models
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
        typical, sent = typical_off_diagonal(K), float(np.trace(K))
        total, means, components = decompose(K, wanted, centre, trace=float(n))
        missing = _missing_of_product(components, vectors, weighted, n - sent)
        shortfalls = as_shortfalls(components, *missing, float(bound))
        # K ⪰ K̂, so the true mean is at least as long, and the true total at most this.
        return cls(components, tuple(vectors), means, total, float(bound), typical, shortfalls)

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples from k_j(new, X_j) V_j of every party, each (m, r_j)."""
        m, n = len(projections[0]), len(self.vectors[0])
        scores = np.empty((m, len(self.components.eigenvalues)))
        for rows in blocks(m):
            K_new = np.empty((len(range(*rows.indices(m))), n))
            _product([P[rows] for P in projections], self.vectors, K_new)
            scores[rows] = centred_scores(K_new, self.means, self.components)
        return scores


@dataclass(frozen=True)
class SampledProductFusion:
    """`ProductFusion` of more samples than K̂ has room for: the best components in the span of some.

    The factors give the columns of K̂ that belong to these samples, and its diagonal.
    """

    components: Components
    vectors: tuple[Doubles, ...]  # (q, r_j) for each party: those of the landmark samples
    coefficients: Doubles  # (q, k)
    offset: Doubles  # (k,)
    total: float
    error_bound: float
    typical_value: float
    shortfalls: Doubles | None = None
    from_below: ClassVar[bool] = True

    @classmethod
    def fit(
        cls,
        vectors: Sequence[Doubles],
        values: Sequence[Doubles],
        next_values: Sequence[float],
        wanted: Wanted,
        centre: bool,
        places: NDArray[np.int64],
    ) -> Self:
        """Fuse the parties' top eigenpairs, at the columns of `places`."""
        n = len(vectors[0])
        weighted = [V * w for V, w in zip(vectors, values, strict=True)]
        C = np.empty((n, len(places)))
        at_places = tuple(V[places] for V in vectors)
        for rows in blocks(n):
            _product([W[rows] for W in weighted], at_places, C[rows])
        diagonal = np.prod(
            [np.einsum("ij,ij->i", W, V) for W, V in zip(weighted, vectors, strict=True)], axis=0
        )
        B = pseudo_inverse_root((C[places] + C[places].T) / 2)
        E = C @ B
        mean = E.mean(axis=0) if centre else np.zeros(E.shape[1])
        total = float(n) - n * float(mean @ mean)
        found = left_singular(E, solved(wanted, min(E.shape)), centre=centre)
        k = number_of(wanted, found[0], total, EPS * n)
        components = Components.first(*found, k, f"{len(places)} landmark samples")
        W = (E - mean).T @ components.coefficients
        outside = max(float(diagonal.sum()) - float(np.vdot(E, E)), 0.0)
        bound = len(vectors) * np.sqrt(n) * (max(next_values) + _rounding(values, n)) + outside
        missing = _missing_of_places(components, weighted, vectors, places, n - diagonal.sum())
        shortfalls = as_shortfalls(components, *missing, float(bound))
        typical = typical_off_diagonal(C[places])
        model = (at_places, B @ W, mean @ W, total, float(bound), typical, shortfalls)
        return cls(components, *model)

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples from k_j(new, X_j) V_j of every party, each (m, r_j)."""
        m, q = len(projections[0]), len(self.coefficients)
        scores = np.empty((m, len(self.offset)))
        for rows in blocks(m):
            K_new = np.empty((len(range(*rows.indices(m))), q))
            _product([P[rows] for P in projections], self.vectors, K_new)
            scores[rows] = K_new @ self.coefficients - self.offset
        return scores


# What is not sent adds about this share of what the last pairs sent add, for the same trace; 0.2 to
# 1.5 on six sets over 2 and 5 parties.
_TAIL = 0.6


def as_shortfalls(
    components: Components,
    added: Doubles,
    trace: float,
    left: float,
    most: float,
    tail: float = _TAIL,
) -> Doubles:
    """Shares of the eigenvalues that are missing, from what the last pairs sent have added.

    `added` is what these gave each component, `trace` theirs, `left` that of what was not sent, and
    `most` a bound of its largest eigenvalue.
    """
    values = np.abs(components.eigenvalues)
    if left <= len(components.eigenvectors) * EPS * float(values.sum()):
        return np.zeros(len(values))
    gains = np.abs(added) * (tail * left / max(trace, np.finfo(float).tiny))
    gains = np.minimum(gains, min(left, most))
    return np.asarray(gains / (values + gains))


def _last(rank: int) -> int:
    """How many of the pairs sent are taken for the last ones: about a fifth, but never all."""
    return min(max(rank // 5, 1), rank - 1)


def _missing_of_sum(
    U: Doubles,
    vectors: Sequence[Doubles],
    values: Sequence[Doubles],
    traces: Sequence[float],
) -> tuple[Doubles, float, float]:
    """What the last pairs added; at least what a party's rest would if it had no direction."""
    added, evenly, trace, left = np.zeros(U.shape[1]), np.zeros(U.shape[1]), 0.0, 0.0
    for V, w, total in zip(vectors, values, traces, strict=True):
        inside, rest = np.square(V.T @ U), max(total - float(w.sum()), 0.0)
        last = slice(len(w) - _last(len(w)), None)
        added += w[last] @ inside[last]
        evenly += (1 - inside.sum(axis=0)) * rest / max(len(V) - len(w), 1)
        trace, left = trace + float(w[last].sum()), left + rest
    if left > 0:
        added = np.maximum(added, evenly * (trace / (_TAIL * left)))
    return added, trace, left


def _missing_of_product(
    components: Components, vectors: Sequence[Doubles], weighted: Sequence[Doubles], left: float
) -> tuple[Doubles, float, float]:
    """The same of products without the last pairs; components that are centred are as they are."""
    U, n = components.eigenvectors, len(components.eigenvectors)
    kept = [V.shape[1] - _last(V.shape[1]) for V in vectors]
    first = [V[:, :r] for V, r in zip(vectors, kept, strict=True)]
    without, trace = np.zeros(U.shape[1]), 0.0
    for rows in blocks(n):
        K = np.empty((len(range(*rows.indices(n))), n))
        _product([W[rows, :r] for W, r in zip(weighted, kept, strict=True)], first, K)
        without += np.einsum("ij,ij->j", U[rows], K @ U)
        trace += float(np.trace(K[:, rows]))
    added = components.eigenvalues - without
    return np.maximum(added, 0.0), max(n - left - trace, 0.0), left


def _missing_of_places(
    components: Components,
    weighted: Sequence[Doubles],
    vectors: Sequence[Doubles],
    places: NDArray[np.int64],
    left: float,
) -> tuple[Doubles, float, float]:
    """The same from landmark samples alone: their part of K̂ stands for the whole."""
    own = [W[places] for W in weighted], [V[places] for V in vectors]
    kept = [V.shape[1] - _last(V.shape[1]) for V in vectors]
    fewer = [[A[:, :r] for A, r in zip(part, kept, strict=True)] for part in own]
    q, n = len(places), len(components.eigenvectors)
    K, without = np.empty((q, q)), np.empty((q, q))
    _product(own[0], own[1], K)
    _product(fewer[0], fewer[1], without)
    U, scale = components.eigenvectors[places], (n / q) ** 2
    added = scale * np.einsum("ij,ij->j", U, (K - without) @ U)
    return np.maximum(added, 0.0), n / q * float(np.trace(K - without)), max(float(left), 0.0)


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

    @property
    def shortfalls(self) -> Doubles | None:
        """Share of each eigenvalue that is missing, as estimated."""

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
