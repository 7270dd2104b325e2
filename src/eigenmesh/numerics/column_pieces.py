"""What a party computes from its own columns, and the share of the model that it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from eigenmesh.numerics.arrays import (
    Doubles,
    Floats,
    Rows,
    as_rows,
    blocks,
    dense,
    is_sparse,
    squared_norms,
)
from eigenmesh.numerics.column_preparation import ColumnPreparation
from eigenmesh.numerics.eigen import (
    EPS,
    left_singular,
    numerical_rank,
    pseudo_inverse_root,
    top_eigenpairs,
)
from eigenmesh.numerics.kernels import Kernel


class PartySpectrum(NamedTuple):
    """Top eigenpairs of a local kernel matrix, the eigenvalue after them, and the trace."""

    values: Doubles  # (r,)
    vectors: Doubles  # (T, r)
    next_value: float
    trace: float


@dataclass(frozen=True)
class Loadings:
    """Linear projections of centred columns; with `residual` also the norm of what they miss."""

    mean: Doubles  # (m,)
    loadings: Doubles  # (m, r)
    residual: bool
    preparation: ColumnPreparation | None = None  # of the columns, before all else

    @property
    def n_columns(self) -> int:
        """Columns that it was made from."""
        return len(self.mean)

    def project(self, X: Rows) -> Doubles:
        """Coordinates (n, r), and the residual norm as a last column where it is kept."""
        X = as_rows(X, np.float64) if self.preparation is None else self.preparation.apply(X)
        # The mean is taken off the product: off the columns it would fill sparse ones.
        S = np.asarray(X @ self.loadings - self.mean @ self.loadings)
        if not self.residual:
            return S
        norms = np.empty(len(S))
        for rows in blocks(len(S)):
            # By differences: ‖x‖² − ‖s‖² would lose what is small beside x.
            rest = dense(X[rows]) - self.mean - S[rows] @ self.loadings.T
            norms[rows] = np.sqrt(squared_norms(rest))
        return np.column_stack([S, norms])

    def restore(self, scores: Floats) -> Doubles:
        """Columns from joint scores (n, r), in their owner's units."""
        X = np.asarray(scores @ self.loadings.T + self.mean, dtype=np.float64)
        return X if self.preparation is None else self.preparation.undo(X)


@dataclass(frozen=True)
class ArgumentShare:
    """Inner products or distances to columns that the party keeps, of all samples or some."""

    columns: Rows  # (q, m)
    kernel: str
    preparation: ColumnPreparation | None = None

    @property
    def n_columns(self) -> int:
        """Columns that it was made from."""
        return int(self.columns.shape[1])

    def project(self, X: Rows) -> Doubles:
        """(n, q); where angles count also the squared norm, as a last column."""
        X = as_rows(X, np.float64) if self.preparation is None else self.preparation.apply(X)
        kernel = Kernel(self.kernel, 1.0, degree=1)
        A = np.asarray(kernel.summed.arguments(X, self.columns), np.float64)
        return np.column_stack([A, squared_norms(X)]) if kernel.of == "cosine" else A


@dataclass(frozen=True)
class KernelShare:
    """Projections of kernel values with the training columns on vectors over the samples."""

    columns: Rows  # (T, m)
    vectors: Doubles  # (T, r)
    gamma: float | None
    kernel: str = "rbf"
    degree: float = 3
    coef0: float = 1.0
    offset: Doubles | None = None  # (r,), what centring subtracts
    preparation: ColumnPreparation | None = None

    @property
    def n_columns(self) -> int:
        """Columns that it was made from."""
        return int(self.columns.shape[1])

    def project(self, X: Rows) -> Doubles:
        """k(X, columns) V, (n, r)."""
        if self.preparation is not None:
            X = self.preparation.apply(X)
        kernel = Kernel(self.kernel, self.gamma, self.degree, self.coef0)
        projections = np.empty((X.shape[0], self.vectors.shape[1]))
        for rows in blocks(X.shape[0]):
            projections[rows] = kernel.block(X[rows], self.columns) @ self.vectors
        return projections if self.offset is None else projections - self.offset


Share = Loadings | KernelShare | ArgumentShare
_FORMS: dict[str, Any] = {
    "loadings": Loadings,
    "kernel": KernelShare,
    "arguments": ArgumentShare,
}


def share_to_tree(share: Share) -> dict[str, Any]:
    """A share as plain arrays and numbers, for a site's store."""
    form = next(name for name, kind in _FORMS.items() if isinstance(share, kind))
    return {"form": form, **vars(share)}


def share_from_tree(tree: Any) -> Share:
    """The share that `share_to_tree` gave."""
    fields = dict(tree)
    share: Share = _FORMS[fields.pop("form")](**fields)
    return share


@dataclass(frozen=True)
class ColumnBlock:
    """A party's columns, prepared and centred: F − 1·hiddenᵀ; only a sparse F hides its mean."""

    F: Rows  # (n, m)
    hidden: Doubles  # (m,)
    mean: Doubles  # (m,), all that was subtracted after the preparation
    preparation: ColumnPreparation | None

    @classmethod
    def of(cls, X: Rows, centre: bool, preparation: ColumnPreparation | None = None) -> Self:
        """Columns as they enter a linear model."""
        X = as_rows(X, np.float64) if preparation is None else preparation.apply(X)
        nothing = np.zeros(X.shape[1])
        if not centre:
            return cls(X, nothing, nothing, preparation)
        mean = np.asarray(X.mean(axis=0)).ravel()
        if is_sparse(X):
            return cls(X, mean, mean, preparation)
        F = X - mean
        # What centring leaves of a constant column is rounding, not variance.
        sizes = np.sqrt(np.einsum("ij,ij->j", F, F))
        F[:, sizes <= 4 * EPS * np.sqrt(len(F)) * np.abs(X).max(axis=0)] = 0.0
        return cls(F, nothing, mean, preparation)

    @property
    def shape(self) -> tuple[int, int]:
        """Samples and columns."""
        n, m = self.F.shape
        return int(n), int(m)

    @property
    def total(self) -> float:
        """Sum of squares."""
        return _centred_square_sum(self.F, self.hidden)

    def times(self, V: Doubles) -> Doubles:
        """X V."""
        return np.asarray(self.F @ V - self.hidden @ V)

    def transposed_times(self, U: Floats) -> Doubles:
        """Xᵀ U."""
        return np.asarray(self.F.T @ U - np.outer(self.hidden, U.sum(axis=0)), dtype=np.float64)

    def top_vectors(self, k: int, seed: int) -> Doubles:
        """Top left singular vectors times singular values, (n, k); zeros where there are fewer."""
        values, vectors = left_singular(self.F, k, centre=bool(self.hidden.any()), seed=seed)
        scaled_vectors = np.zeros((len(vectors), k))
        scaled_vectors[:, : len(values)] = vectors * np.sqrt(values)
        return scaled_vectors

    def share_of(self, scores: Floats) -> Loadings:
        """Loadings Xᵀu / √λ for joint scores u √λ, (n, k)."""
        return Loadings(
            self.mean,
            self.transposed_times(scores) / np.einsum("ij,ij->j", scores, scores),
            residual=False,
            preparation=self.preparation,
        )


def linear_spectrum(X: Rows, rank: int, centre: bool, seed: int) -> tuple[PartySpectrum, Loadings]:
    """Top eigenpairs of X Xᵀ, of centred columns if asked for; r = min(rank, T, m)."""
    X = as_rows(X, np.float64)
    r = min(rank, *X.shape)
    mean = np.asarray(X.mean(axis=0)).ravel() if centre else np.zeros(X.shape[1])
    values, vectors = left_singular(X, r + 1, centre=centre, seed=seed)
    square_sum = float(squared_norms(X).sum())
    # Centring constant columns leaves rounding, not variance.
    values = np.where(values > EPS**2 * len(vectors) * square_sum, values, 0.0)
    trace = _centred_square_sum(X, mean) if values.any() else 0.0
    V = vectors[:, :r]
    loadings = Loadings(mean, np.asarray(X.T @ V) - np.outer(mean, V.sum(axis=0)), residual=False)
    return PartySpectrum(
        values[:r], V, float(values[r]) if len(values) > r else 0.0, trace
    ), loadings


def rbf_spectrum(X: Rows, gamma: float, rank: int, seed: int) -> tuple[PartySpectrum, KernelShare]:
    """Top r = min(rank, T) eigenpairs of the RBF kernel matrix of the rows of X, not centred."""
    n = X.shape[0]
    r = min(rank, n)
    K = Kernel("rbf", gamma).matrix(X)
    values, vectors = top_eigenpairs(K, min(r + 1, n), seed=seed)
    values = np.maximum(values, 0.0)
    after = float(values[r]) if r < n else 0.0
    spectrum = PartySpectrum(values[:r], vectors[:, :r], after, float(n))
    return spectrum, KernelShare(X, vectors[:, :r], gamma)


def sampled_rbf_spectrum(
    X: Rows, gamma: float, rank: int, places: NDArray[np.int64]
) -> tuple[PartySpectrum, KernelShare]:
    """`rbf_spectrum` of more rows than a matrix of all pairs can hold: inside the span of some.

    The eigenpairs are those of the best approximation in that span, which no eigenvalue overstates.
    """
    n, kernel, Y = X.shape[0], Kernel("rbf", gamma), X[places]
    B = pseudo_inverse_root(kernel.matrix(Y))
    E = np.empty((n, B.shape[1]))  # coordinates in the span
    for rows in blocks(n):
        E[rows] = kernel.block(X[rows], Y) @ B
    values, vectors = left_singular(E, min(rank + 1, B.shape[1]))
    r = min(rank, len(values))
    left_out = max(n - float(np.vdot(E, E)), 0.0)
    # By Weyl: what lies outside the span may add all of its trace to one eigenvalue.
    after = (float(values[r]) if len(values) > r else 0.0) + left_out
    V = vectors[:, :r]
    # k(Y, x) B Eᵀ V, which of the rows themselves gives V λ.
    share = KernelShare(Y, B @ (E.T @ V), gamma)
    return PartySpectrum(values[:r], V, after, float(n)), share


_UNSEEN = 1e-7  # of a row's length: what is left out of it moves no cosine by more than its square


def principal_coordinates(
    X: Rows, width: int | None, seed: int, centre: bool = True, angles: bool = False
) -> tuple[Doubles, Loadings]:
    """At most `width` ≥ 2 columns that keep distances between rows as well as linear maps can.

    If fewer than the rank fit, the last column is the norm of what the others leave out. Without a
    `width` there are as many as the rank, and nothing is left out of these rows. Not centred, they
    keep inner products instead; and `angles`, too, of rows that are small beside the largest.
    """
    X = as_rows(X, np.float64)
    full = min(X.shape)
    is_cut = width is not None and width < full
    r = width - 1 if width is not None and is_cut else full
    mean = np.asarray(X.mean(axis=0)).ravel() if centre else np.zeros(X.shape[1])
    values, vectors = left_singular(X, r, centre=centre, seed=seed)
    rank = max(numerical_rank(values, max(X.shape)), 1)
    if width is None and not angles:
        vectors = vectors[:, :rank]
    raw = np.asarray(X.T @ vectors) - np.outer(mean, vectors.sum(axis=0))
    # Xᵀu = σv: by QR and not by division with σ, which may be 0.
    basis = _orthonormal_columns(raw)
    if width is None and angles:
        basis = basis[:, : _rank_of_all_rows(np.asarray(X @ basis), rank)]
    share = Loadings(mean, basis, is_cut)
    return share.project(X), share


def _rank_of_all_rows(S: Doubles, rank: int) -> int:
    """From `rank` on, the first number of columns beyond which no row has anything to speak of."""
    squares = np.square(S)
    left = np.maximum(np.cumsum(squares[:, ::-1], axis=1)[:, ::-1], 0.0)  # (n, r), from here on
    is_needed = (left > _UNSEEN**2 * left[:, :1]).any(axis=0)
    return max(rank, int(np.flatnonzero(is_needed)[-1]) + 1 if is_needed.any() else 1)


def _orthonormal_columns(A: Floats) -> Doubles:
    """An orthonormal basis that spans A's columns; directions without variance are harmless."""
    Q, _ = np.linalg.qr(np.asarray(A, dtype=np.float64))
    return Q


def _centred_square_sum(X: Rows, mean: Doubles) -> float:
    if is_sparse(X):  # a dense X − mean may not fit
        return max(0.0, float(squared_norms(X).sum()) - float(X.shape[0]) * float(mean @ mean))
    return float(sum(float(squared_norms(X[rows] - mean).sum()) for rows in blocks(X.shape[0])))
