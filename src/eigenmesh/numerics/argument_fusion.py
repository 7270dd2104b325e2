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
from eigenmesh.numerics.eigen import EPS, left_singular, pseudo_inverse_root
from eigenmesh.numerics.fusion import (
    Components,
    centred_scores,
    decompose,
    typical_off_diagonal,
)
from eigenmesh.numerics.kernels import Kernel


class Piece(NamedTuple):
    """What one party says of T samples: coordinates, with or without residuals, or arguments.

    `arguments` are those of all pairs, as `upper_triangle` lays them out, or with the landmarks.
    """

    coordinates: Floats | None = None  # (T, s)
    residuals: Floats | None = None  # (T,), norms of what the coordinates leave out
    arguments: Floats | None = None

    @property
    def kept(self) -> int:
        """Coordinates a sample; 0 where arguments were sent instead."""
        return 0 if self.coordinates is None else int(self.coordinates.shape[1])


@dataclass(frozen=True)
class ArgumentFusion:
    """Every pair of samples. Exact where no party cut its coordinates short."""

    components: Components
    kernel: Kernel
    coordinates: Doubles  # (T, Σ s_j), the parties' side by side
    kept: tuple[int, ...]  # s_j, 0 for a party that sends arguments
    residuals: Doubles  # (T,), squared norms of what the coordinates leave out
    means: KernelMeans | None
    total: float
    error_bound: float
    typical_value: float | None
    from_below: ClassVar[bool] = False

    @classmethod
    def fit(cls, pieces: Sequence[Piece], n: int, kernel: Kernel, k: int, centre: bool) -> Self:
        """Add up, apply the kernel, take the leading eigenvectors; of n samples."""
        S = _side_by_side(pieces, n)
        R = _residuals(pieces, len(S))
        K = np.asarray(kernel.arguments(S, S), np.float64)
        for piece in pieces:
            if piece.arguments is not None:
                _add_triangle(K, piece.arguments, diagonal=kernel.of == "inner")
        _add_residuals(K, squared_norms(R), kernel)
        bound = _apply_kernel(K, R, kernel)
        typical = typical_off_diagonal(K) if kernel.name == "rbf" else None
        trace = float(np.trace(K))
        by_size = kernel.name == "sigmoid"
        total, means, components = decompose(K, k, centre, trace, by_size)
        if R.any():
            total = min(total + bound, trace)
        kept, squares = (
            tuple(piece.kept for piece in pieces),
            np.asarray(squared_norms(R), np.float64),
        )
        return cls(components, kernel, S, kept, squares, means, total, bound, typical)

    def packed(self) -> Doubles:
        """All of a model whose parties sent arguments, as one array; see `unpacked`."""
        means = [] if self.means is None else [*self.means.columns, self.means.overall]
        return np.append(_packed(self), means)

    @classmethod
    def unpacked(
        cls, flat: Floats, kernel: Kernel, n: int, k: int, kept: tuple[int, ...], centre: bool
    ) -> Self:
        """The model of n samples and k components that `packed` laid out."""
        components, total, bound, typical, rest = _unpacked(flat, n, k)
        means = KernelMeans(rest[:n], float(rest[n])) if centre else None
        nothing = np.zeros((n, 0))
        return cls(components, kernel, nothing, kept, np.zeros(n), means, total, bound, typical)

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples, from coordinates or arguments of every party."""
        scores = np.empty((len(projections[0]), len(self.components.eigenvalues)))
        for rows in blocks(len(scores)):
            own = [P[rows] for P in projections]
            A = _new_arguments(own, self.kept, self.coordinates, self.kernel)
            if self.kernel.of == "distance":
                A += self.residuals
            K_new = self.kernel.from_arguments(A, out=A)
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
    from_below: ClassVar[bool] = True

    @classmethod
    def fit(
        cls,
        pieces: Sequence[Piece],
        landmarks: NDArray[np.integer[Any]],
        norms: Doubles,
        kernel: Kernel,
        k: int,
        centre: bool,
    ) -> Self:
        """`landmarks` are numbers of samples; `norms`, squared, are of all samples and parties."""
        S, places = _side_by_side(pieces, len(norms)), np.asarray(landmarks, dtype=np.intp)
        C = _landmark_kernel(pieces, S, places, kernel)
        B = pseudo_inverse_root((C[places] + C[places].T) / 2)  # BᵀK(Y, Y)B = I
        E = C @ B  # (T, r): the samples' coordinates in the span
        diagonal = np.asarray(kernel.from_arguments(norms if kernel.of == "inner" else 0 * norms))
        left_out = float(np.maximum(diagonal - squared_norms(E), 0.0).sum())
        mean = E.mean(axis=0) if centre else np.zeros(E.shape[1])
        found = left_singular(E, k + 1, centre=centre)
        components = Components.first(*found, k, f"{len(places)} landmarks")
        W = (E - mean).T @ components.coefficients
        total = float(diagonal.sum()) - len(E) * float(mean @ mean)
        typical = typical_off_diagonal(C[places]) if kernel.name == "rbf" else None
        kept = tuple(piece.kept for piece in pieces)
        # K − K̂ has no negative eigenvalue, so its Frobenius norm is at most its trace.
        exact = (B @ W, mean @ W, total, left_out + len(E) * EPS)
        return cls(components, kernel, S[places], kept, *exact, typical)

    def packed(self) -> Doubles:
        """All of a model whose parties sent arguments, as one array; see `unpacked`."""
        return np.concatenate([_packed(self), self.coefficients.ravel(), self.offset])

    @classmethod
    def unpacked(
        cls, flat: Floats, kernel: Kernel, n: int, k: int, kept: tuple[int, ...], q: int
    ) -> Self:
        """The model of n samples, k components and q landmarks that `packed` laid out."""
        components, total, bound, typical, rest = _unpacked(flat, n, k)
        W, offset = rest[: q * k].reshape(q, k), rest[q * k :]
        nothing = np.zeros((q, 0))
        return cls(components, kernel, nothing, kept, W, offset, total, bound, typical)

    def scores(self, projections: Sequence[Floats]) -> Doubles:
        """Scores of new samples, from coordinates or from arguments with the landmarks."""
        scores = np.empty((len(projections[0]), len(self.offset)))
        for rows in blocks(len(scores)):
            own = [P[rows] for P in projections]
            A = _new_arguments(own, self.kept, self.coordinates, self.kernel)
            scores[rows] = self.kernel.from_arguments(A, out=A) @ self.coefficients
        return scores - self.offset


def packed_size(n: int, k: int, n_landmarks: int | None, centre: bool) -> int:
    """Length of a packed model of n samples and k components.

    >>> packed_size(10, 2, None, centre=True), packed_size(10, 2, 4, centre=True)
    (37, 36)
    """
    own = n + 1 if centre else 0
    return 4 + k + n * k + (own if n_landmarks is None else n_landmarks * k + k)


def _packed(model: ArgumentFusion | LandmarkFusion) -> Doubles:
    """What both kinds have; a typical value that is None is written as −1."""
    found, typical = model.components, model.typical_value
    scalars = [found.next_eigenvalue, model.total, model.error_bound]
    scalars.append(-1.0 if typical is None else typical)
    return np.concatenate([scalars, found.eigenvalues, found.eigenvectors.ravel()])


def _unpacked(
    flat: Floats, n: int, k: int
) -> tuple[Components, float, float, float | None, Doubles]:
    after, total, bound, typical = map(float, flat[:4])
    values, vectors, rest = np.split(np.asarray(flat[4:], np.float64), [k, k + n * k])
    known = None if typical < 0 else typical
    return Components(values, vectors.reshape(n, k), after), total, bound, known, rest


def full_matrix(kernel: Kernel, triangle: Floats, n: int) -> Doubles:
    """The symmetric matrix of which `upper_triangle` gave one half.

    >>> full_matrix(Kernel("rbf", 1.0), np.array([1.0, 9.0, 4.0]), 3)[2]
    array([9., 4., 0.])
    """
    A = np.zeros((n, n))
    _add_triangle(A, triangle, diagonal=kernel.of == "inner")
    return A


def upper_triangle(kernel: Kernel, X: Floats) -> Doubles:
    """Arguments of all pairs of rows, row by row; with those of a row and itself if inner products.

    >>> upper_triangle(Kernel("rbf", 1.0), np.array([[0.0], [1.0], [3.0]]))
    array([1., 9., 4.])
    """
    first = 0 if kernel.of == "inner" else 1
    n = X.shape[0]
    A = np.asarray(kernel.arguments(X, X), np.float64)
    return np.concatenate([A[i, i + first :] for i in range(n)])


def n_pairs(kernel: Kernel, n: int) -> int:
    """How many numbers `upper_triangle` gives.

    >>> n_pairs(Kernel("rbf", 1.0), 4), n_pairs(Kernel("linear"), 4)
    (6, 10)
    """
    return n * (n + 1) // 2 if kernel.of == "inner" else n * (n - 1) // 2


def _add_triangle(A: Doubles, triangle: Floats, diagonal: bool) -> None:
    start, first = 0, 0 if diagonal else 1
    for i in range(len(A)):
        row = triangle[start : start + len(A) - i - first]
        start += len(row)
        A[i, i + first :] += row
        A[i + 1 :, i] = A[i, i + 1 :]


def _side_by_side(pieces: Sequence[Piece], n: int) -> Doubles:
    """All coordinates, (T, Σ s_j); without columns if every party sent arguments."""
    found = [np.asarray(p.coordinates, np.float64) for p in pieces if p.coordinates is not None]
    return np.hstack(found) if found else np.zeros((n, 0))


def _residuals(pieces: Sequence[Piece], n: int) -> Doubles:
    """(T, J); 0 where nothing was left out."""
    norms = [np.zeros(n) if p.residuals is None else np.asarray(p.residuals) for p in pieces]
    return np.column_stack(norms).astype(np.float64)


def _add_residuals(A: Doubles, squares: Floats, kernel: Kernel) -> None:
    """The residuals of two different samples are taken as orthogonal."""
    if kernel.of == "distance":
        for rows in blocks(len(A)):
            A[rows] += squares[rows, None] + squares
        np.fill_diagonal(A, 0.0)
    elif kernel.of == "inner":
        A[np.diag_indices_from(A)] += squares


def _apply_kernel(A: Doubles, R: Doubles, kernel: Kernel) -> float:
    """Arguments become kernel values, in place; returns a bound of ‖K − K̂‖_F.

    Residuals of two samples may have a product of ±Σ_j ρ_jp ρ_jq instead of none.
    """
    squared_error, cut = 0.0, bool(R.any())
    for rows in blocks(len(A)):
        arguments = A[rows].copy() if cut else None
        kernel.from_arguments(A[rows], out=A[rows])
        if arguments is not None:
            off = _largest_change(kernel, arguments, A[rows], R[rows] @ R.T)
            span = np.arange(len(A))[rows]
            off[np.arange(len(span)), span] = 0.0
            squared_error += float(np.einsum("ij,ij->", off, off))
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
    for end in (low, high):
        np.maximum(change, np.abs(kernel.from_arguments(end) - values), out=change)
    if kernel.name == "poly":
        base = [(kernel.gamma or 1.0) * end + kernel.coef0 for end in (low, high)]
        np.maximum(change, np.where(base[0] * base[1] < 0, np.abs(values), 0.0), out=change)
    return change


def _landmark_kernel(
    pieces: Sequence[Piece], S: Doubles, places: NDArray[np.intp], kernel: Kernel
) -> Doubles:
    """Kernel values of all samples with the landmarks, (T, q)."""
    C = np.empty((len(S), len(places)))
    Y = S[places]
    for rows in blocks(len(S)):
        C[rows] = kernel.arguments(S[rows], Y)
        for piece in pieces:
            if piece.arguments is not None:
                C[rows] += piece.arguments[rows]
        kernel.from_arguments(C[rows], out=C[rows])
    return C


def _new_arguments(
    projections: Sequence[Floats], kept: Sequence[int], coordinates: Doubles, kernel: Kernel
) -> Doubles:
    """Arguments of new samples with the model's, from what each party sends of them.

    One number more than the coordinates is the norm of what they leave out of the new sample.
    """
    S_new = [P[:, :s] for P, s in zip(projections, kept, strict=True) if s]
    new = np.hstack(S_new).astype(np.float64) if S_new else np.zeros((len(projections[0]), 0))
    A = np.asarray(kernel.arguments(new, coordinates), np.float64)
    for P, s in zip(projections, kept, strict=True):
        if not s:
            A += P
        elif P.shape[1] > s:
            A += np.square(P[:, -1:])
    return A
