"""From the parties' column pieces to joint components: what the centre computes in a column split.

Each fusion is the centre's share of a model. It estimates the joint kernel matrix K (T, T) by K̂,
keeps its top eigenpairs, and turns what the parties send of new samples into scores:

- `SumFusion`, linear: K̂ = Σ_j V_j Λ_j V_jᵀ, from its factor, so nothing (T, T) is formed;
- `ProductFusion`, RBF: K̂ = ∘_j V_j Λ_j V_jᵀ.

Those that add up what a kernel is a function of are in `kernel_of_sums`.

`error_bound` is an upper bound of ‖K − K̂‖_F. `total` is the variance of the samples in feature
space, or an upper bound of it. `from_below` says that K − K̂ has no negative eigenvalue, so that no
eigenvalue of K̂ overstates one of K, but for what rounding the vectors on their way has added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias

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


def n_eigenpairs(n_components: Wanted, n: int) -> int:
    """Eigenpairs to compute of n, the one after those n_components included.

    >>> n_eigenpairs(3, 10), n_eigenpairs(0.9, 10), n_eigenpairs(None, 10)
    (4, 10, 10)
    """
    return min(n_components + 1, n) if isinstance(n_components, int) else n


def number_of(n_components: Wanted, values: Doubles, total: float, rounding: float = 0.0) -> int:
    """How many components are n_components, of eigenvalues in order; at least one.

    >>> number_of(0.7, np.array([6.0, 3.0, 1.0, 0.0]), 10.0)
    2
    >>> number_of(None, np.array([6.0, 3.0, 1.0, 0.0]), 10.0), number_of(5, np.zeros(2), 1.0)
    (3, 5)
    """
    if isinstance(n_components, int):
        return n_components
    sizes = clip_spectrum(np.abs(values), rounding=rounding)
    rank = max(int(np.count_nonzero(sizes)), 1)
    if n_components is None or not total:
        return rank
    # A share of 1.0 must not ask for one more because the sum is rounded.
    enough = np.flatnonzero(np.cumsum(sizes) >= (n_components - 1e-12) * total)
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
        advice: str = "choose another gamma if there is one, or check that the samples differ",
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


class Rounding(NamedTuple):
    """What fewer bits do to one party's K̂_j = V Λ Vᵀ."""

    proven: float  # its change in Frobenius norm is at most this
    likely: float  # an eigenvalue of the fused matrix moves by less, as if rounding were chance
    largest: float  # entry of the rounded matrix, 1 or more

    @classmethod
    def of(cls, vectors: Doubles, values: Doubles, half_steps: Doubles) -> Self:
        """Of vectors as they came, each number of which is off by half a step at most."""
        # With F = V√Λ and what rounding adds, D: ‖(F + D)(F + D)ᵀ − FFᵀ‖ ≤ 2‖F‖₂‖D‖ + ‖D‖².
        D = np.sqrt(len(vectors) * float(values @ np.square(half_steps)))
        proven = 2 * np.sqrt(float(values[0])) * D + D * D
        # uᵀ(change)u is 2 Σ λ_j (u·v_j)(u·e_j) + Σ λ_j (u·e_j)², where e is uniform in a step. The
        # first has a standard deviation of at most 2 √(Σ λ_j² h_j²/3), for products with matrices
        # of diagonal 1 as for sums. Two of them are taken.
        spread = 2 * np.sqrt(float(np.square(values * half_steps).sum()) / 3)
        likely = 2 * spread + float(values @ np.square(half_steps))
        largest = max(1.0, float(np.einsum("ij,j,ij->i", vectors, values, vectors).max()))
        return cls(float(proven), float(likely), largest)


@dataclass(frozen=True)
class Rounded:
    """What fewer bits of the parties' vectors do to K̂: its change in Frobenius norm, at most, and
    by how much an eigenvalue is likely to be off, at most.
    """

    proven: float = 0.0
    likely: float = 0.0

    @classmethod
    def of_sum(cls, roundings: Sequence[Rounding]) -> Self:
        """Of K̂_j that add up."""
        return cls(sum(own.proven for own in roundings), sum(own.likely for own in roundings))

    @classmethod
    def of_product(cls, roundings: Sequence[Rounding]) -> Self:
        """Of K̂_j that multiply: factors are exchanged one at a time."""
        proven, larger = 0.0, 1.0
        for own in roundings:
            proven, larger = proven + own.proven * larger, larger * own.largest
        return cls(proven, sum(own.likely for own in roundings) * larger)


def with_rounding(shortfalls: Doubles, components: Components, rounding: Rounded) -> Doubles:
    """Shortfalls, with what rounding may have added to an eigenvalue that is not there."""
    added = rounding.likely / np.abs(components.eigenvalues)
    return np.asarray(np.minimum(shortfalls + added, 1.0))


@dataclass(frozen=True)
class SumFusion:
    """The linear kernel: local kernel matrices add up. Parties centre their own columns."""

    components: Components
    mixing: tuple[Doubles, ...]  # (r_j, k) for each party
    total: float
    error_bound: float
    shortfalls: Doubles | None = None  # (k,), as estimated; absent from older models
    rounding: Rounded = Rounded()
    typical_value: ClassVar[float | None] = None
    from_below: ClassVar[bool] = True

    @classmethod
    def fit(
        cls,
        vectors: Sequence[Doubles],
        values: Sequence[Doubles],
        next_values: Sequence[float],
        traces: Sequence[float],
        n_components: Wanted,
        roundings: Sequence[Rounding] = (),
    ) -> Self:
        """Fuse the parties' top eigenpairs; `next_values` are the first that were not sent."""
        n, total = len(vectors[0]), float(sum(traces))
        # K̂ = F Fᵀ with F = (V_j √Λ_j) side by side, (T, Σ r_j): of 2,000 samples 18 times faster
        # than from the (T, T) matrix, and equal to 5e-15.
        factor = np.hstack([V * np.sqrt(w) for V, w in zip(vectors, values, strict=True)])
        pairs = left_singular(factor, n_eigenpairs(n_components, n))
        k = number_of(n_components, pairs[0], total, EPS * n)
        what, advice = f"the columns sent, over {n} samples,", "raise local_rank"
        components = Components.first(*pairs, k, what, advice=advice)
        mixing = tuple(V.T @ components.coefficients for V in vectors)
        # The paper's Lemma 2: a party leaves out T − r_j eigenvalues, none above the first of them.
        rests = [
            np.sqrt(max(n - len(w), 0)) * nxt for w, nxt in zip(values, next_values, strict=True)
        ]
        bound = len(vectors) * (max(rests) + _rounding(values, n))
        missing = _missing_of_sum(components.eigenvectors, vectors, values, traces)
        rounding = Rounded.of_sum(roundings)
        shortfalls = as_shortfalls(components, *missing, float(sum(next_values)))
        shortfalls = with_rounding(shortfalls, components, rounding)
        bound += rounding.proven
        return cls(components, mixing, total, float(bound), shortfalls, rounding)

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
    rounding: Rounded = Rounded()
    from_below: ClassVar[bool] = True

    @classmethod
    def fit(
        cls,
        vectors: Sequence[Doubles],
        values: Sequence[Doubles],
        next_values: Sequence[float],
        n_components: Wanted,
        centre: bool,
        roundings: Sequence[Rounding] = (),
    ) -> Self:
        """Fuse the parties' top eigenpairs; centring comes after the product, never before it."""
        # Products of centred matrices are something else: ‖sin Θ‖ 2.17 of at most 2.24 when tried.
        n = len(vectors[0])
        scaled_vectors = [V * w for V, w in zip(vectors, values, strict=True)]
        K = np.empty((n, n))
        for rows in blocks(n):
            _product([W[rows] for W in scaled_vectors], vectors, K[rows])
        _symmetrise(K)
        # Lemma 2: factors are exchanged one at a time, and an elementwise product with a matrix of
        # diagonal 1 or less makes no eigenvalue larger than the first that was not sent.
        bound = len(vectors) * np.sqrt(n) * (max(next_values) + _rounding(values, n))
        rounding = Rounded.of_product(roundings)
        typical, trace_sent = typical_off_diagonal(K), float(np.trace(K))
        total, means, components = decompose(K, n_components, centre, trace=float(n))
        missing = _missing_of_product(components, vectors, scaled_vectors, n - trace_sent)
        shortfalls = as_shortfalls(components, *missing, float(bound))
        shortfalls = with_rounding(shortfalls, components, rounding)
        # K ⪰ K̂, so the true mean is at least as long, and the true total at most this; n‖m‖² is an
        # average of K's entries times n, and moves by no more than its norm where K̂ was rounded.
        total += rounding.proven if centre else 0.0
        facts = (total, float(bound + rounding.proven), typical, shortfalls, rounding)
        return cls(components, tuple(vectors), means, *facts)

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
    rounding: Rounded = Rounded()
    from_below: ClassVar[bool] = True

    @classmethod
    def fit(
        cls,
        vectors: Sequence[Doubles],
        values: Sequence[Doubles],
        next_values: Sequence[float],
        n_components: Wanted,
        centre: bool,
        places: NDArray[np.int64],
        roundings: Sequence[Rounding] = (),
    ) -> Self:
        """Fuse the parties' top eigenpairs, at the columns of `places`."""
        n = len(vectors[0])
        scaled_vectors = [V * w for V, w in zip(vectors, values, strict=True)]
        C = np.empty((n, len(places)))
        at_places = tuple(V[places] for V in vectors)
        for rows in blocks(n):
            _product([W[rows] for W in scaled_vectors], at_places, C[rows])
        diagonal = np.prod(
            [np.einsum("ij,ij->i", W, V) for W, V in zip(scaled_vectors, vectors, strict=True)],
            axis=0,
        )
        what = f"{len(places)} landmark samples"
        solution = solve_in_span(C, places, float(n), n_components, centre, what)
        E, components = solution.coordinates, solution.components
        # What K̂ has outside the span has no negative eigenvalue: its norm is at most its trace.
        outside = max(float(diagonal.sum()) - float(np.vdot(E, E)), 0.0)
        bound = len(vectors) * np.sqrt(n) * (max(next_values) + _rounding(values, n)) + outside
        rounding = Rounded.of_product(roundings)
        missing = _missing_of_places(
            components, scaled_vectors, vectors, places, n - diagonal.sum()
        )
        return cls(
            components=components,
            vectors=at_places,
            coefficients=solution.coefficients,
            offset=solution.offset,
            total=solution.total + (rounding.proven if centre else 0.0),
            error_bound=float(bound + rounding.proven),
            typical_value=typical_off_diagonal(C[places]),
            shortfalls=with_rounding(
                as_shortfalls(components, *missing, float(bound)), components, rounding
            ),
            rounding=rounding,
        )

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples from k_j(new, X_j) V_j of every party, each (m, r_j)."""
        m, q = len(projections[0]), len(self.coefficients)
        scores = np.empty((m, len(self.offset)))
        for rows in blocks(m):
            K_new = np.empty((len(range(*rows.indices(m))), q))
            _product([P[rows] for P in projections], self.vectors, K_new)
            scores[rows] = K_new @ self.coefficients - self.offset
        return scores


class SpanSolution(NamedTuple):
    """The best components in the span of some samples, and how new samples get their scores."""

    components: Components
    coefficients: Doubles  # (q, k), of kernel values with these samples
    offset: Doubles  # (k,), what centring subtracts
    total: float
    coordinates: Doubles  # (T, r), of all samples in the span


def solve_in_span(
    C: Doubles,
    places: NDArray[Any],
    trace: float,
    n_components: Wanted,
    centre: bool,
    what: str,
) -> SpanSolution:
    """From the columns C (T, q) of a kernel matrix with that trace that belong to `places`."""
    B = pseudo_inverse_root((C[places] + C[places].T) / 2)  # BᵀK(Y, Y)B = I
    E = C @ B
    n = len(E)
    mean = E.mean(axis=0) if centre else np.zeros(E.shape[1])
    total = trace - n * float(mean @ mean)
    pairs = left_singular(E, n_eigenpairs(n_components, min(E.shape)), centre=centre)
    k = number_of(n_components, pairs[0], total, EPS * n)
    components = Components.first(*pairs, k, what)
    # score(x) = (k(x, Y)B − mean) W, with W = (E − mean)ᵀ u/√λ for every component.
    W = (E - mean).T @ components.coefficients
    return SpanSolution(components, B @ W, mean @ W, total, E)


# What is not sent adds about this share of what the last pairs sent add, for the same trace; 0.2 to
# 1.5 on six sets over 2 and 5 parties.
_TAIL = 0.6


def as_shortfalls(
    components: Components,
    last_gains: Doubles,
    last_trace: float,
    rest: float,
    most: float,
    tail: float = _TAIL,
) -> Doubles:
    """Shares of the eigenvalues that are missing, from what the last pairs sent have added.

    `last_gains` is what these gave each component, `last_trace` their trace, `rest` that of what
    was not sent, and `most` a bound of its largest eigenvalue.
    """
    values = np.abs(components.eigenvalues)
    if rest <= len(components.eigenvectors) * EPS * float(values.sum()):
        return np.zeros(len(values))
    if last_trace > 0:
        gains = np.minimum(np.abs(last_gains) * (tail * rest / last_trace), min(rest, most))
    else:  # a single pair has no last ones to judge by: then as much as may be is missing
        gains = np.full(len(values), min(rest, most))
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
    gains, evenly, trace, rest = np.zeros(U.shape[1]), np.zeros(U.shape[1]), 0.0, 0.0
    for V, w, total in zip(vectors, values, traces, strict=True):
        inside, own_rest = np.square(V.T @ U), max(total - float(w.sum()), 0.0)
        last = slice(len(w) - _last(len(w)), None)
        gains += w[last] @ inside[last]
        evenly += (1 - inside.sum(axis=0)) * own_rest / max(len(V) - len(w), 1)
        trace, rest = trace + float(w[last].sum()), rest + own_rest
    if rest > 0:  # such that `as_shortfalls`, by its factor _TAIL rest/trace, gets `evenly` again
        gains = np.maximum(gains, evenly * (trace / (_TAIL * rest)))
    return gains, trace, rest


def _missing_of_product(
    components: Components,
    vectors: Sequence[Doubles],
    scaled_vectors: Sequence[Doubles],
    rest: float,
) -> tuple[Doubles, float, float]:
    """The same of products without the last pairs."""
    # To first order λ changes by uᵀ(change of K̂)u. Eigenvectors of a centred K̂ are orthogonal to 1,
    # so that the product need not be centred again.
    U, n = components.eigenvectors, len(components.eigenvectors)
    ranks = [V.shape[1] - _last(V.shape[1]) for V in vectors]
    first = [V[:, :r] for V, r in zip(vectors, ranks, strict=True)]
    without, trace = np.zeros(U.shape[1]), 0.0
    for rows in blocks(n):
        K = np.empty((len(range(*rows.indices(n))), n))
        _product([W[rows, :r] for W, r in zip(scaled_vectors, ranks, strict=True)], first, K)
        without += np.einsum("ij,ij->j", U[rows], K @ U)
        trace += float(np.trace(K[:, rows]))
    gains = components.eigenvalues - without
    # Rounding below n ε is no trace: where no pair was left out, none is there to judge by.
    last_trace = n - rest - trace
    return np.maximum(gains, 0.0), last_trace if last_trace > n * EPS * len(vectors) else 0.0, rest


def _missing_of_places(
    components: Components,
    scaled_vectors: Sequence[Doubles],
    vectors: Sequence[Doubles],
    places: NDArray[np.int64],
    rest: float,
) -> tuple[Doubles, float, float]:
    """The same from landmark samples alone: their part of K̂ stands for the whole."""
    own = [W[places] for W in scaled_vectors], [V[places] for V in vectors]
    ranks = [V.shape[1] - _last(V.shape[1]) for V in vectors]
    fewer = [[A[:, :r] for A, r in zip(part, ranks, strict=True)] for part in own]
    q, n = len(places), len(components.eigenvectors)
    K, without = np.empty((q, q)), np.empty((q, q))
    _product(own[0], own[1], K)
    _product(fewer[0], fewer[1], without)
    # uᵀKu runs over n² pairs of samples, of which q² are here; the trace over n, of which q.
    U, scale = components.eigenvectors[places], (n / q) ** 2
    gains = scale * np.einsum("ij,ij->j", U, (K - without) @ U)
    return np.maximum(gains, 0.0), n / q * float(np.trace(K - without)), max(float(rest), 0.0)


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
        """Whether no eigenvalue of K̂ overstates one of K, but for rounding."""

    @property
    def rounding(self) -> Rounded:
        """What fewer bits have done."""

    @property
    def shortfalls(self) -> Doubles | None:
        """Share of each eigenvalue that is missing, as estimated."""

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples, from what each party sends of them."""


def overstated(fusion: Fusion) -> float:
    """By how much K̂ may be too large, in Frobenius norm: no more than rounding where it is from
    below.
    """
    return fusion.rounding.proven if fusion.from_below else fusion.error_bound


def residual(fusion: Fusion) -> float:
    """Upper bound of the variance that the components leave out: total − Σλ, squared norms."""
    # Hoffman and Wielandt: the squares of what eigenvalues move by add up to at most ‖K − K̂‖²_F, so
    # that the sum of k of them moves by √k times its root.
    values = np.abs(fusion.components.eigenvalues)
    slack = np.sqrt(len(values)) * overstated(fusion)
    return float(np.clip(fusion.total - values.sum() + slack, 0.0, fusion.total))


def eigengap(fusion: Fusion) -> float:
    """A lower bound of Theorem 3's δ = λ_D(K) − λ_{D+1}(K̂), from K̂ alone."""
    # The δ that the paper prints in (12) is always 0; this is the one that its proof needs.
    last = abs(float(fusion.components.eigenvalues[-1]))
    return last - overstated(fusion) - abs(fusion.components.next_eigenvalue)


def sin_theta_bound(fusion: Fusion) -> float:
    """Theorem 3: ‖sin Θ‖_F of the components is at most this; never above √D, the maximum."""
    largest = float(np.sqrt(len(fusion.components.eigenvalues)))
    gap = eigengap(fusion)
    return min(fusion.error_bound / gap, largest) if gap > 0 else largest


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
    K: Doubles, n_components: Wanted, centre: bool, trace: float, by_size: bool = False
) -> tuple[float, KernelMeans | None, Components]:
    """Total variance, means and components of K, which is used up; `trace` is that of the true one.

    `by_size` is for indefinite kernels: components by |λ|, and Σ|λ| for the total.
    """
    n, largest = len(K), float(np.abs(np.diagonal(K)).max())
    means = centre_in_place(K) if centre else None
    total = trace if means is None else trace - n * means.overall
    values, vectors = top_eigenpairs(K, n if by_size else n_eigenpairs(n_components, n))
    # What centring leaves below this is rounding, not variance.
    values = np.where(np.abs(values) > 10 * n * EPS * largest, values, 0.0)
    if by_size:
        order = np.argsort(-np.abs(values), kind="stable")
        values, vectors = values[order], vectors[:, order]
        total = float(np.abs(values).sum())
    what, k = f"{n} samples", number_of(n_components, values, total, EPS * n)
    return total, means, Components.first(values[: k + 1], vectors, k, what, by_size)


def centred_scores(K_new: Floats, means: KernelMeans | None, components: Components) -> Doubles:
    """Scores of new samples from their kernel values with the training samples, (m, T)."""
    rows = K_new if means is None else centre_rows(K_new, means, out=K_new)
    return np.asarray(rows @ components.coefficients)


def typical_off_diagonal(K: Doubles, n_rows: int = 200) -> float:
    """The median kernel value of two different samples, over evenly spread rows."""
    rows = np.unique(np.linspace(0, len(K) - 1, n_rows).astype(int))
    sample: Any = np.array(K[rows])
    sample[np.arange(len(rows)), rows] = np.nan
    return float(np.nanmedian(sample)) if len(K) > 1 else 1.0


def _rounding(values: Sequence[Doubles], n: int) -> float:
    """How far rounding alone can move an eigenvalue."""
    return EPS * n * max(float(w[0]) for w in values)
