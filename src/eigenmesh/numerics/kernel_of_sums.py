"""Joint kernel matrices from what kernels are functions of, which adds up over the columns.

Squared distances, L1 distances and inner products of samples are sums over the parties, so the
joint kernel matrix follows exactly from what each party says of its own: coordinates that keep its
distances (or products), or the distances themselves. Coordinates may be cut short; the norm of what
they leave out then bounds the error.

- `ArgumentFusion`: all pairs of T samples, a (T, T) matrix.
- `LandmarkFusion`: all samples with q of them; components are the best in the span of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from eigenmesh.numerics.arrays import Doubles, Floats, blocks, squared_norms
from eigenmesh.numerics.centring import KernelMeans
from eigenmesh.numerics.column_fusion import (
    Components,
    Rounded,
    Wanted,
    as_shortfalls,
    centred_scores,
    decompose,
    solve_in_span,
    typical_off_diagonal,
    with_rounding,
)
from eigenmesh.numerics.eigen import EPS, left_singular, pseudo_inverse_root
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.spread_bits import likely_changes


class PieceRounding(NamedTuple):
    """What is known of coordinates in few bits."""

    lengths: Floats  # (T,), what they lack of squared lengths, or have too much
    half_steps: Doubles  # (s,), how far a number of a column may be off
    changes: float  # of squared distances, ‖D − D̂‖_F at most


class Piece(NamedTuple):
    """What one party says of T samples: coordinates, with or without residuals, or arguments.

    `arguments` are those of all pairs, as `upper_triangle` lays them out, or with the landmarks.
    """

    coordinates: Floats | None = None  # (T, s)
    residuals: Floats | None = None  # (T,), norms of what the coordinates leave out
    arguments: Floats | None = None
    rounding: PieceRounding | None = None  # of coordinates in few bits

    @property
    def kept(self) -> int:
        """Coordinates a sample; 0 where arguments were sent instead."""
        return 0 if self.coordinates is None else int(self.coordinates.shape[1])

    def left_out(self, n: int) -> Doubles:
        """What coordinates lack of squared lengths, (T,)."""
        if self.rounding is not None:
            return np.asarray(self.rounding.lengths, np.float64)
        return np.zeros(n) if self.residuals is None else np.square(self.residuals)


# What landmarks miss is this share of what the half of them misses more, for the same variance left
# out: 0.36 to 0.5 on six sets with 20 to 80 of them.
_HALF = 0.45
_NOTHING = 1e-9  # of an eigenvalue
_NOT_ROUNDED = Rounded()


@dataclass(frozen=True)
class ArgumentFusion:
    """Every pair of samples. Exact where no party cut its coordinates short."""

    components: Components
    kernel: Kernel
    coordinates: Doubles  # (T, Σ s_j), the parties' side by side
    kept: tuple[int, ...]  # s_j, 0 for a party that sends arguments
    residuals: Doubles  # (T,), what coordinates lack of squared norms
    means: KernelMeans | None
    total: float
    error_bound: float
    typical_value: float | None
    norms: Doubles | None = None  # (T,), squared, over all columns; where angles count
    shortfalls: Doubles | None = None  # (k,), as estimated; absent from older models
    rounding: Rounded = _NOT_ROUNDED
    from_below: ClassVar[bool] = False

    @classmethod
    def fit(
        cls, pieces: Sequence[Piece], n: int, kernel: Kernel, n_components: Wanted, centre: bool
    ) -> Self:
        """Add up, apply the kernel, take the leading eigenvectors; of n samples."""
        S, R = _side_by_side(pieces, n), _residuals(pieces, n)
        left_out = _left_out(pieces, n)
        K = _summed_arguments(pieces, S, left_out, kernel)
        norms = np.diagonal(K).copy() if kernel.of == "cosine" else None
        bound = _apply_kernel(K, R, kernel)
        typical = typical_off_diagonal(K) if kernel.name == "rbf" else None
        trace = float(np.trace(K))
        by_size = kernel.name == "sigmoid"
        total, means, components = decompose(K, n_components, centre, trace, by_size)
        missing, rounding = np.zeros(len(components.eigenvalues)), Rounded()
        if R.any():
            missing = _missing_of_cut(components, pieces, n, kernel)
        if any(piece.rounding for piece in pieces):
            rounding = _of_few_bits(components, pieces, S, left_out, kernel)
            missing = with_rounding(missing, components, rounding)
            bound += rounding.proven
        if R.any() or rounding.proven:
            # The diagonal of K̂ is right; 1ᵀK̂1/T, which centring takes off, by ‖K − K̂‖ at most.
            total = min(total + bound, trace)
        return cls(
            components=components,
            kernel=kernel,
            coordinates=S,
            kept=tuple(piece.kept for piece in pieces),
            residuals=left_out,
            means=means,
            total=total,
            error_bound=bound,
            typical_value=typical,
            norms=norms,
            shortfalls=missing,
            rounding=rounding,
        )

    def packed(self, k: int) -> Doubles:
        """All of a model whose parties sent arguments, as one array; see `unpacked`.

        There is room for k components: zeros in the place of what is not there.
        """
        means = [] if self.means is None else [*self.means.columns, self.means.overall]
        return np.concatenate([_pack(self, k), _no_norms(self.norms), means])

    @classmethod
    def unpacked(
        cls, flat: Floats, kernel: Kernel, n: int, k: int, ranks: tuple[int, ...], centre: bool
    ) -> Self:
        """The model of n samples and at most k components that `packed` laid out."""
        common, rest = _unpack(flat, n, k)
        norms, rest = _first_norms(rest, kernel, n)
        return cls(
            kernel=kernel,
            coordinates=np.zeros((n, 0)),
            kept=ranks,
            residuals=np.zeros(n),
            means=KernelMeans(rest[:n], float(rest[n])) if centre else None,
            norms=norms,
            **common._asdict(),
        )

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples, from coordinates or arguments of every party."""
        scores = np.empty((len(projections[0]), len(self.components.eigenvalues)))
        for rows in blocks(len(scores)):
            own = [P[rows] for P in projections]
            A = _new_arguments(own, self.kept, self.coordinates, self.kernel)
            if self.kernel.of == "distance":
                A += self.residuals
                if (self.residuals < 0).any():  # as when it was fitted
                    np.maximum(A, 0.0, out=A)
            K_new = _new_values(A, own, self.kept, self.norms, self.kernel)
            scores[rows] = centred_scores(K_new, self.means, self.components)
        return scores


@dataclass(frozen=True)
class LandmarkFusion:
    """Kernel values of all samples with q of them: the best components in the span of these."""

    components: Components
    kernel: Kernel
    coordinates: Doubles  # (q, Σ s_j) of the landmarks
    kept: tuple[int, ...]
    coefficients: Doubles  # (q, k)
    offset: Doubles  # (k,)
    total: float
    error_bound: float
    typical_value: float | None
    norms: Doubles | None = None  # (q,), squared, over all columns; where angles count
    residuals: Doubles | None = None  # (q,), squared norms of what coordinates leave out
    shortfalls: Doubles | None = None  # (k,), as estimated; absent from older models
    from_below: ClassVar[bool] = True
    rounding: ClassVar[Rounded] = Rounded()

    @classmethod
    def fit(
        cls,
        pieces: Sequence[Piece],
        landmarks: NDArray[np.integer[Any]],
        norms: Doubles,
        kernel: Kernel,
        n_components: Wanted,
        centre: bool,
    ) -> Self:
        """`landmarks` are numbers of samples; `norms`, squared, are of all samples and parties."""
        S, places = _side_by_side(pieces, len(norms)), np.asarray(landmarks, dtype=np.intp)
        C = _landmark_kernel(pieces, S, places, norms, kernel)
        diagonal = np.asarray(kernel.diagonal_from_sums(norms), np.float64)
        trace, what = float(diagonal.sum()), f"{len(places)} landmarks"
        solution = solve_in_span(C, places, trace, n_components, centre, what)
        E, components = solution.coordinates, solution.components
        left_out = float(np.maximum(diagonal - squared_norms(E), 0.0).sum())
        R = np.asarray(squared_norms(_residuals(pieces, len(S))), np.float64)[places]
        return cls(
            components=components,
            kernel=kernel,
            coordinates=S[places],
            kept=tuple(piece.kept for piece in pieces),
            coefficients=solution.coefficients,
            offset=solution.offset,
            total=solution.total,
            # K − K̂ has no negative eigenvalue, so its Frobenius norm is at most its trace.
            error_bound=left_out + len(E) * EPS,
            typical_value=typical_off_diagonal(C[places]) if kernel.name == "rbf" else None,
            norms=norms[places] if kernel.of == "cosine" else None,
            residuals=R if R.any() else None,
            shortfalls=_missing_of_landmarks(components, C, places, diagonal, left_out, centre),
        )

    def packed(self, k: int) -> Doubles:
        """As `ArgumentFusion.packed`."""
        own = (_no_norms(self.norms), _widened(self.coefficients, k), _widened(self.offset, k))
        return np.concatenate([_pack(self, k), *own])

    @classmethod
    def unpacked(
        cls, flat: Floats, kernel: Kernel, n: int, k: int, ranks: tuple[int, ...], q: int
    ) -> Self:
        """The model of n samples, at most k components and q landmarks that `packed` laid out."""
        common, rest = _unpack(flat, n, k)
        norms, rest = _first_norms(rest, kernel, q)
        r = len(common.components.eigenvalues)
        return cls(
            kernel=kernel,
            coordinates=np.zeros((q, 0)),
            kept=ranks,
            coefficients=rest[: q * k].reshape(q, k)[:, :r],
            offset=rest[q * k :][:r],
            norms=norms,
            **common._asdict(),
        )

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples, from coordinates or from arguments with the landmarks."""
        scores = np.empty((len(projections[0]), len(self.offset)))
        for rows in blocks(len(scores)):
            own = [P[rows] for P in projections]
            A = _new_arguments(own, self.kept, self.coordinates, self.kernel)
            if self.residuals is not None and self.kernel.of == "distance":
                A += self.residuals
            K_new = _new_values(A, own, self.kept, self.norms, self.kernel)
            scores[rows] = K_new @ self.coefficients
        return scores - self.offset


def packed_size(kernel: Kernel, n: int, k: int, n_landmarks: int | None, centre: bool) -> int:
    """Length of a packed model of n samples and k components.

    >>> rbf = Kernel("rbf", 1.0)
    >>> packed_size(rbf, 10, 2, None, centre=True), packed_size(rbf, 10, 2, 4, centre=True)
    (39, 38)
    """
    own = n + 1 if centre else 0
    norms = (n if n_landmarks is None else n_landmarks) if kernel.of == "cosine" else 0
    return 4 + 2 * k + n * k + norms + (own if n_landmarks is None else n_landmarks * k + k)


def _no_norms(norms: Doubles | None) -> Doubles:
    return np.zeros(0) if norms is None else norms


def _first_norms(rest: Doubles, kernel: Kernel, n: int) -> tuple[Doubles | None, Doubles]:
    """Norms, where the kernel needs them, and what comes after."""
    return (rest[:n], rest[n:]) if kernel.of == "cosine" else (None, rest)


def _widened(A: Doubles, k: int) -> Doubles:
    """K columns, zeros the last, flat."""
    return np.pad(np.atleast_2d(A), ((0, 0), (0, k - A.shape[-1]))).ravel()


class _Common(NamedTuple):
    """What both kinds of model have."""

    components: Components
    shortfalls: Doubles
    total: float
    error_bound: float
    typical_value: float | None


def _pack(model: ArgumentFusion | LandmarkFusion, k: int) -> Doubles:
    """What both kinds have; a typical value that is None is written as −1."""
    components, typical = model.components, model.typical_value
    scalars = [components.next_eigenvalue, model.total, model.error_bound]
    scalars.append(-1.0 if typical is None else typical)
    missing = np.zeros(0) if model.shortfalls is None else model.shortfalls
    each = (components.eigenvalues, missing, components.eigenvectors)
    return np.concatenate([scalars, *(_widened(part, k) for part in each)])


def _unpack(flat: Floats, n: int, k: int) -> tuple[_Common, Doubles]:
    """What `_pack` laid out, and the numbers after it."""
    after, total, bound, typical = map(float, flat[:4])
    ends = np.cumsum([k, k, n * k])
    values, missing, vectors, rest = np.split(np.asarray(flat[4:], np.float64), ends)
    r = int(np.count_nonzero(values))  # eigenvalues of components are never 0
    components = Components(values[:r], vectors.reshape(n, k)[:, :r], after)
    typical_value = None if typical < 0 else typical
    return _Common(components, missing[:r], total, bound, typical_value), rest


def full_matrix(kernel: Kernel, triangle: Floats, n: int) -> Doubles:
    """The symmetric matrix of which `upper_triangle` gave one half.

    >>> full_matrix(Kernel("rbf", 1.0), np.array([1.0, 9.0, 4.0]), 3)[2]
    array([9., 4., 0.])
    """
    A = np.zeros((n, n))
    _add_triangle(A, triangle, diagonal=kernel.summed.of == "inner")
    return A


def upper_triangle(kernel: Kernel, X: Floats) -> Doubles:
    """Arguments of all pairs of rows, row by row; with those of a row and itself if inner products.

    >>> upper_triangle(Kernel("rbf", 1.0), np.array([[0.0], [1.0], [3.0]]))
    array([1., 9., 4.])
    """
    first = 0 if kernel.summed.of == "inner" else 1
    n = X.shape[0]
    A = np.asarray(kernel.summed.arguments(X, X), np.float64)
    return np.concatenate([A[i, i + first :] for i in range(n)])


def n_pairs(kernel: Kernel, n: int) -> int:
    """How many numbers `upper_triangle` gives.

    >>> n_pairs(Kernel("rbf", 1.0), 4), n_pairs(Kernel("linear"), 4)
    (6, 10)
    """
    return n * (n + 1) // 2 if kernel.summed.of == "inner" else n * (n - 1) // 2


def rounded_shares(
    kernel: Kernel, A: Doubles, norms: Doubles, U: Doubles, z: Doubles, deviation: float
) -> Doubles:
    """By which share each eigenvalue may be off whose arguments were rounded: (k,).

    `A` (m, m) are the arguments, `norms` squared; `U` (m, k) and `z` the eigenvectors and -values
    of what the kernel makes of them. Rounded once more by as much, kernel values move by E, and
    eigenvalues by uᵀEu and ‖Eu‖²/λ.

    >>> A, one = np.array([[1.0, 0.0], [0.0, 1e-6]]), np.ones(2)
    >>> U, z = np.eye(2), np.ones(2)
    >>> sure = rounded_shares(Kernel("cosine"), A, np.diagonal(A), U, z, 1e-12)
    >>> lost = rounded_shares(Kernel("cosine"), A, np.diagonal(A), U, z, 1e-3)
    >>> bool(sure.max() < 1e-5), bool(lost.max() > 0.1)
    (True, True)
    """
    sizes = np.maximum(np.abs(z), np.finfo(float).tiny)
    if _no_eigenvalue_moves(kernel, A, norms, float(sizes.min()), deviation):
        return np.zeros(len(z))
    rng, weights = np.random.default_rng(0), np.square(U)
    # Zeros are rounded to zeros: samples of no length have no angle.
    some = np.asarray(norms != 0) if kernel.of == "cosine" else np.ones(len(A), bool)
    rounded_norms = norms + deviation * some * rng.standard_normal(len(norms))
    moved, spread = np.empty_like(U), np.empty_like(U)
    for rows in blocks(len(A)):
        values = A[rows].copy()
        rounded = values + deviation * rng.standard_normal(values.shape) * some[rows, None] * some
        if kernel.summed.of != "inner":
            np.maximum(rounded, 0.0, out=rounded)
        kernel.from_sums(values, norms[rows], norms)
        kernel.from_sums(rounded, rounded_norms[rows], rounded_norms)
        rounded -= values
        moved[rows] = rounded @ U
        spread[rows] = np.square(rounded) @ weights
    # Of two samples the kernel value is rounded once and counts twice.
    first = np.sqrt(2 * (weights * spread).sum(axis=0))
    # Of samples whose own length is rounding nothing is known at all.
    lost, own = 0.0, kernel.diagonal_from_sums(np.maximum(norms, np.finfo(float).tiny))
    if kernel.of == "cosine" and deviation:
        lost = float(own[some & (norms <= 2 * deviation)].sum() / own.sum())
    return np.asarray(lost + (first + np.square(moved).sum(axis=0) / sizes) / sizes)


def _no_eigenvalue_moves(
    kernel: Kernel, A: Doubles, norms: Doubles, smallest: float, deviation: float
) -> bool:
    """Whether rounding is so fine that the largest move of a kernel value tells enough."""
    if kernel.of == "cosine":
        return bool(deviation <= _NOTHING * float(norms[norms != 0].min(initial=np.inf)))
    ends = [float(A.min()), float(A.max())] if kernel.of == "inner" else [0.0]
    at = np.array([[end, end + deviation] for end in ends])
    move = float(np.abs(np.diff(kernel.from_arguments(at))).max())
    return (2 + len(A) * move / smallest) * move <= _NOTHING * smallest


def _add_triangle(A: Doubles, triangle: Floats, diagonal: bool) -> None:
    start, first = 0, 0 if diagonal else 1
    for i in range(len(A)):
        row = triangle[start : start + len(A) - i - first]
        start += len(row)
        A[i, i + first :] += row
        A[i + 1 :, i] = A[i, i + 1 :]


def _side_by_side(pieces: Sequence[Piece], n: int) -> Doubles:
    """All coordinates, (T, Σ s_j); without columns if every party sent arguments."""
    parts = [np.asarray(p.coordinates, np.float64) for p in pieces if p.coordinates is not None]
    return np.hstack(parts) if parts else np.zeros((n, 0))


def _residuals(pieces: Sequence[Piece], n: int) -> Doubles:
    """(T, J); 0 where nothing was left out."""
    norms = [np.zeros(n) if p.residuals is None else np.asarray(p.residuals) for p in pieces]
    return np.column_stack(norms).astype(np.float64)


def _left_out(pieces: Sequence[Piece], n: int) -> Doubles:
    """What all coordinates lack of squared norms, (T,)."""
    return np.asarray(np.sum([piece.left_out(n) for piece in pieces], axis=0), np.float64)


def _summed_arguments(
    pieces: Sequence[Piece], S: Doubles, left_out: Doubles, kernel: Kernel
) -> Doubles:
    """What the kernel, or the one that it is made of, is a function of: (T, T)."""
    base = kernel.summed
    A = np.asarray(base.arguments(S, S), np.float64)
    for piece in pieces:
        if piece.arguments is not None:
            _add_triangle(A, piece.arguments, diagonal=base.of == "inner")
    _add_residuals(A, left_out, base)
    return A


def _of_few_bits(
    components: Components,
    pieces: Sequence[Piece],
    S: Doubles,
    left_out: Doubles,
    kernel: Kernel,
) -> Rounded:
    """What few bits of coordinates do to the matrix of an RBF kernel.

    A kernel value moves by no more than γ times what its distance does.
    """
    n, gamma = len(S), float(kernel.gamma or 0.0)
    proven = gamma * sum(piece.rounding.changes for piece in pieces if piece.rounding)

    def rows_of(rows: slice) -> Doubles:
        A = np.asarray(kernel.arguments(S[rows], S), np.float64)
        A += left_out[rows, None] + left_out
        A[np.arange(len(A)), np.arange(n)[rows]] = 0.0
        return np.asarray(kernel.from_arguments(np.maximum(A, 0.0)))

    deviations = np.concatenate([_deviations(piece, n) for piece in pieces if piece.kept])
    values, U = components.eigenvalues, components.eigenvectors
    likely = likely_changes(kernel, rows_of, S, deviations, values, U)
    return Rounded(proven, float(likely.max()))


def _deviations(piece: Piece, n: int) -> Doubles:
    """How far numbers of each coordinate are off as a rule, by how far distances are."""
    if piece.rounding is None or piece.coordinates is None:
        return np.zeros(piece.kept)
    # A number is anywhere within its step. Distances are off by −2(q_i·e_j + e_i·q_j), the norm of
    # which is 2√(2n Σ v‖q‖²) over columns q with errors of variance v; what has no bits is in it.
    deviations = piece.rounding.half_steps / np.sqrt(3)
    squares = np.square(deviations) @ np.square(piece.coordinates).sum(axis=0)
    norm = 2 * np.sqrt(2 * n * float(squares))
    return np.asarray(deviations * (piece.rounding.changes / norm if norm else 0.0))


def _missing_of_cut(
    components: Components, pieces: Sequence[Piece], n: int, kernel: Kernel
) -> Doubles:
    """Shortfalls, or excesses, of cut coordinates: from what the last of each party has changed."""
    shorter = [_shorten(piece) for piece in pieces]
    S, R = _side_by_side(shorter, n), _residuals(shorter, n)
    left_out, U = _left_out(shorter, n), components.eigenvectors
    K = _summed_arguments(shorter, S, left_out, kernel)
    kernel.from_arguments(K, out=K)
    # To first order, with the same eigenvectors: no second decomposition of a (T, T) matrix.
    changes = components.eigenvalues - np.einsum("ij,ij->j", U, K @ U)
    rest = float(np.square(_residuals(pieces, n)).sum())
    last = float(np.square(R).sum()) - rest
    # Only the ratio of the two counts; what is missing is bounded by the eigenvalues themselves.
    return as_shortfalls(components, changes, last / max(rest, EPS), 1.0, np.inf, tail=1.0)


def _shorten(piece: Piece) -> Piece:
    """With the last coordinate among what is left out."""
    if piece.coordinates is None or piece.residuals is None or piece.kept < 2:
        return piece
    # Coordinates are orthogonal to what they leave out, so that squared norms add up.
    last = np.asarray(piece.coordinates[:, -1], np.float64)
    return Piece(piece.coordinates[:, :-1], np.hypot(piece.residuals, last))


def _missing_of_landmarks(
    components: Components,
    C: Doubles,
    places: NDArray[np.intp],
    diagonal: Doubles,
    left_out: float,
    centre: bool,
) -> Doubles:
    """Shortfalls of landmarks, from what half of them capture less and leave out more."""
    # Every second one: chosen like the whole, and its kernel values are columns of C already.
    half, values = np.arange(0, len(places), 2), components.eigenvalues
    K = C[places[half]][:, half]
    E = C[:, half] @ pseudo_inverse_root((K + K.T) / 2)
    more = float(np.maximum(diagonal - squared_norms(E), 0.0).sum()) - left_out
    less = np.zeros(len(values))
    of_half = left_singular(E, len(values), centre=centre)[0]
    less[: len(of_half)] = of_half
    if left_out <= len(E) * EPS or more <= 0:
        return np.zeros(len(values))
    gains = np.minimum(_HALF * np.maximum(values - less, 0.0) * left_out / more, left_out)
    return np.asarray(gains / (values + gains))


def _add_residuals(A: Doubles, squares: Floats, kernel: Kernel) -> None:
    """The residuals of two different samples are taken as orthogonal."""
    # ‖x − y‖² is that of the coordinates + ρ_x² + ρ_y² − 2 times the residuals' product, of which
    # nobody knows the sign. Without the ρ² all samples would seem nearer than they are.
    if kernel.of == "distance":
        # What few bits have made too long is taken off, and that may be more than a distance. Where
        # nothing was rounded a distance below 0 is a lie, and stays one to be noticed.
        may_be_short = bool((squares < 0).any())
        for rows in blocks(len(A)):
            A[rows] += squares[rows, None] + squares
            if may_be_short:
                np.maximum(A[rows], 0.0, out=A[rows])
        np.fill_diagonal(A, 0.0)
    elif kernel.of == "inner":
        A[np.diag_indices_from(A)] += squares


def _apply_kernel(A: Doubles, R: Doubles, kernel: Kernel) -> float:
    """Arguments become kernel values, in place; returns a bound of ‖K − K̂‖_F.

    Residuals of two samples may have a product of ±Σ_j ρ_jp ρ_jq instead of none, by the inequality
    of Cauchy and Schwarz at every party.
    """
    squared_error, is_cut = 0.0, bool(R.any())
    norms = np.diagonal(A).copy()
    for rows in blocks(len(A)):
        arguments = A[rows].copy() if is_cut else None
        kernel.from_sums(A[rows], norms[rows], norms)
        if arguments is not None:
            off = _largest_change(kernel, arguments, A[rows], R[rows] @ R.T)
            span = np.arange(len(A))[rows]  # the diagonal is exact
            off[np.arange(len(span)), span] = 0.0
            squared_error += float(np.einsum("ij,ij->", off, off))
    if kernel.of == "cosine":  # the root of a square, rounded, is not the number
        np.fill_diagonal(A, kernel.diagonal_from_sums(norms))
    rounding = len(A) * EPS * float(np.abs(np.diagonal(A)).max())
    return float(np.sqrt(squared_error)) + rounding


def _largest_change(kernel: Kernel, A: Doubles, values: Doubles, spread: Doubles) -> Doubles:
    """How far the kernel value can move if its argument moves by the spread (twice, if a distance).

    Kernels are monotone, but for even powers, which have their least value where the base is 0.
    """
    distance = kernel.of == "distance"
    low = np.maximum(A - 2 * spread, 0.0) if distance else A - spread
    high = A + (2 if distance else 1) * spread
    change = np.zeros_like(A)
    # A monotone function changes most at an end of the interval.
    for end in (low, high):
        np.maximum(change, np.abs(kernel.from_arguments(end) - values), out=change)
    if kernel.name == "poly":
        base = [(kernel.gamma or 1.0) * end + kernel.coef0 for end in (low, high)]
        np.maximum(change, np.where(base[0] * base[1] < 0, np.abs(values), 0.0), out=change)
    return change


def _landmark_kernel(
    pieces: Sequence[Piece],
    S: Doubles,
    places: NDArray[np.intp],
    norms: Doubles,
    kernel: Kernel,
) -> Doubles:
    """Kernel values of all samples with the landmarks, (T, q)."""
    C = np.empty((len(S), len(places)))
    Y, R = S[places], np.asarray(squared_norms(_residuals(pieces, len(S))), np.float64)
    for rows in blocks(len(S)):
        C[rows] = kernel.summed.arguments(S[rows], Y)
        for piece in pieces:
            if piece.arguments is not None:
                C[rows] += piece.arguments[rows]
        if kernel.of == "distance":
            C[rows] += R[rows, None] + R[places]
    # The residuals of two different samples are taken as orthogonal.
    own = (places, np.arange(len(places)))
    if kernel.of == "distance":
        C[own] = 0.0
    elif kernel.of == "inner":
        C[own] += R[places]
    for rows in blocks(len(S)):
        kernel.from_sums(C[rows], norms[rows], norms[places])
    return C


def _new_arguments(
    projections: Sequence[Floats], ranks: Sequence[int], coordinates: Doubles, kernel: Kernel
) -> Doubles:
    """Arguments of new samples with the model's, from what each party sends of them.

    One number more than the coordinates is the norm of what they leave out of the new sample; and
    one more than the arguments is its squared norm in that party's columns.
    """
    S_new = [P[:, :s] for P, s in zip(projections, ranks, strict=True) if s]
    new = np.hstack(S_new).astype(np.float64) if S_new else np.zeros((len(projections[0]), 0))
    A = np.asarray(kernel.summed.arguments(new, coordinates), np.float64)
    for P, s in zip(projections, ranks, strict=True):
        if not s:
            A += P[:, : A.shape[1]]
        elif P.shape[1] > s and kernel.of == "distance":
            A += np.square(P[:, -1:])
    return A


def _new_values(
    A: Doubles,
    projections: Sequence[Floats],
    ranks: Sequence[int],
    norms: Doubles | None,
    kernel: Kernel,
) -> Floats:
    """Kernel values of new samples with the model's, from arguments, which are used up."""
    if norms is None:
        return kernel.from_arguments(A, out=A)
    new = np.zeros(len(A))
    for P, s in zip(projections, ranks, strict=True):
        new += np.asarray(squared_norms(P) if s else P[:, -1], np.float64)
    return kernel.from_sums(A, new, norms)
