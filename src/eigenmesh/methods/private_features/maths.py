"""Moments of unit features under noise, and what can be known from them.

Features e(x) have norm 1 (cosines and sines of random waves; of a cosine kernel the columns of unit
rows), or 0. So that one matrix has their sum, too, they get a constant: ẽ = (e, c) / √(1 + c²), of
norm 1 again. Σ ẽẽᵀ, each pair of entries off the diagonal once and √2 times, is the vector that
noise is added to: its Euclidean norm is the matrix's Frobenius norm.

One row in place of another moves it by ‖ẽẽᵀ − ẽ'ẽ'ᵀ‖_F = √(2 − 2(ẽ·ẽ')²) ≤ √2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows, blocks
from eigenmesh.numerics.eigen import fix_signs, top_eigenpairs
from eigenmesh.numerics.embeddings import Embedding, embedded_width, embedding
from eigenmesh.numerics.feature_model import FeatureModel
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.plausible import TOLERANCE, is_gram

MOMENTS_SENSITIVITY = float(np.sqrt(2.0))
# Of a cell's sum of scores, whose norm is at most 1, and its count: a row that leaves one cell for
# another moves two of each, and one that stays in its cell moves the sum by 2 at most.
CELLS_SENSITIVITY = 2.0
_CONSTANT = 0.5  # c: the mean is known to about as much as the products then
_CERTAIN = 1.0  # of noise beside the largest gap that k eigenvalues can have
_DOUBTFUL = 0.1  # of the same: spectra fall, and a tenth of it is usual
_NEVER = 8.0  # standard deviations: noise is farther out once in 10¹⁴ times


@dataclass(frozen=True)
class UnitFeatures:
    """The features of rows, the same at every party."""

    kernel: Kernel
    n_columns: int
    n_features: int
    seed: int

    @property
    def width(self) -> int:
        """How many there are: of a cosine kernel as many as columns."""
        return unit_width(self.kernel.name, self.n_columns, self.n_features)

    def __call__(self, X: Rows) -> Doubles:
        """(n, width), of norm 1 or 0."""
        return self._embed(X)

    @property
    def _embed(self) -> Embedding:
        return embedding(self.kernel, self.n_columns, self.width, self.seed)

    def model(self, top: TopOfMoments, k: int, n_rows: int) -> FeatureModel:
        """Components by which any rows are scored."""
        W = np.asarray(fix_signs(top.vectors[:, :k]), dtype=np.float64)
        values = top.values * top.within_total(k)
        after = float(values[k]) if len(values) > k else 0.0
        how = (self.kernel, self.n_columns, self.width, self.seed)
        return FeatureModel(*how, W, top.mean @ W, values[:k], after, top.total, n_rows)


def unit_width(kernel: str, n_columns: int, n_features: int) -> int:
    """The features that rows of so many columns get, where so many are asked for.

    >>> unit_width("rbf", 5, 99), unit_width("cosine", 5, 99)
    (100, 5)
    """
    width = n_columns if kernel == "cosine" else n_features
    return embedded_width(kernel, n_columns, width)


def moment_vector(features: UnitFeatures, X: Rows, centre: bool) -> Doubles:
    """Σ ẽẽᵀ of rows (ẽ = e if not `centre`) as a vector of the same norm."""
    t = features.width
    gram, sums = np.zeros((t, t)), np.zeros(t)
    for rows in blocks(X.shape[0]):
        E = features(X[rows])
        gram += E.T @ E
        sums += E.sum(axis=0)
    return _as_vector(_augmented(gram, sums, X.shape[0]) if centre else gram)


def _augmented(gram: Doubles, sums: Doubles, n_rows: int) -> Doubles:
    c = _CONSTANT
    whole = np.block([[gram, c * sums[:, None]], [c * sums, np.array([[c * c * n_rows]])]])
    return np.asarray(whole / (1 + c * c))


def _as_vector(matrix: Doubles) -> Doubles:
    i, j = np.triu_indices(len(matrix))
    return np.asarray(matrix[i, j] * np.where(i == j, 1.0, np.sqrt(2.0)))


def _as_matrix(vector: Doubles) -> Doubles:
    size = int((np.sqrt(8 * len(vector) + 1) - 1) / 2)
    i, j = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[i, j] = matrix[j, i] = vector / np.where(i == j, 1.0, np.sqrt(2.0))
    return matrix


class TopOfMoments(NamedTuple):
    """The leading part of noised moments, and how much of it is noise.

    `edge` is the largest eigenvalue that noise has by itself; `values` are shrunk by what noise
    adds to them, and `aligned` are the squared cosines between these components and the true ones,
    as random matrices have it (Benaych-Georges and Nadakuditi, 2011): 0 at and below the edge.
    """

    values: Doubles
    vectors: Doubles
    aligned: Doubles
    mean: Doubles
    total: float
    edge: float

    @classmethod
    def of(cls, vector: Doubles, sigma: float, n_rows: int, centre: bool) -> Self:
        """From the vector released for so many rows, with noise `sigma` in every number."""
        matrix = _as_matrix(vector)
        scale = 1 + _CONSTANT**2 if centre else 1.0
        gram = matrix[:-1, :-1] * scale if centre else matrix
        mean = np.zeros(len(gram))
        total = float(n_rows)
        if centre:
            mean = matrix[:-1, -1] * scale / (_CONSTANT * n_rows)
            noise = sigma * scale / (_CONSTANT * np.sqrt(2.0) * n_rows)
            gram = gram - n_rows * np.outer(mean, mean)
            total -= n_rows * max(float(mean @ mean) - len(mean) * noise**2, 0.0)
        edge = noise_edge(sigma * scale, len(gram))
        values, vectors = top_eigenpairs(gram, len(gram))
        shrunk, aligned = _without_noise(values, edge)
        return cls(shrunk, vectors, aligned, mean, max(total, 0.0), edge)

    def within_total(self, k: int) -> float:
        """What k eigenvalues are multiplied by: rows of norm 1 have no more variance than `total`.

        Where noise is all there is, its eigenvalues add up to more.
        """
        return min(1.0, self.total / (float(self.values[:k].sum()) or 1.0))

    def share_of_best(self, k: int) -> float:
        """About how much of the variance that k components can have is in those found."""
        best = float(self.values[:k].sum())
        return float((self.values[:k] * self.aligned[:k]).sum() / best) if best > 0 else 0.0


def noise_edge(sigma: float, width: int) -> float:
    """The largest eigenvalue of noise alone, of variance σ² on the diagonal and σ²/2 beside it.

    >>> round(noise_edge(1.0, 200))
    20
    """
    return float(sigma * np.sqrt(2.0 * width))


def impossible_moments(
    vector: Doubles, sigma: float, n_rows: int, kernel: str, centre: bool
) -> str | None:
    """Why a vector is no moments of so many rows' unit features, whatever the noise; or None."""
    matrix = _as_matrix(vector)
    trace, t = float(np.trace(matrix)), len(matrix)
    far, slack = _NEVER * sigma, TOLERANCE * n_rows
    constant = n_rows * _CONSTANT**2 / (1 + _CONSTANT**2)
    if centre and abs(matrix[-1, -1] - constant) > far + slack:
        return f"the constant of {n_rows} rows adds up to {matrix[-1, -1]:.6g}"
    missing = n_rows - trace
    if kernel == "cosine":  # rows of zeros have no direction, and features of norm 0
        missing = min(missing, 0.0)
    if abs(missing) > far * np.sqrt(t) + slack:
        return f"features of norm 1 over {n_rows} rows have squares that add up to {trace:.6g}"
    if not is_gram(matrix, noise=noise_edge(sigma, t) + far):
        return "a sum of squares is negative, by more than noise can be"
    return None


def impossible_cells(sums: Doubles, sizes: Doubles, sigma: float, n_rows: int) -> str | None:
    """Why cells of rows whose scores have norm 1 at most have no such sums and sizes; or None."""
    far, slack = _NEVER * sigma, TOLERANCE * n_rows
    if abs(float(sizes.sum()) - n_rows) > far * np.sqrt(len(sizes)) + slack:
        return f"cells of {n_rows} rows have {float(sizes.sum()):.6g} rows together"
    if float(sizes.min()) < -(far + slack):
        return f"a cell has {float(sizes.min()):.6g} rows"
    longest = np.linalg.norm(sums, axis=1) - sizes
    if float(longest.max()) > sigma * np.sqrt(sums.shape[1]) + 2 * far + slack:
        return "scores of norm 1 add up to more than there are rows"
    return None


def _without_noise(values: Doubles, edge: float) -> tuple[Doubles, Doubles]:
    """True eigenvalues λ and squared cosines behind λ + (edge/2)²/λ, which noise makes of them."""
    if edge == 0:
        return np.maximum(values, 0.0), np.ones(len(values))
    root = np.sqrt(np.maximum(values**2 - edge**2, 0.0))
    shrunk = np.where(values > edge, (values + root) / 2, np.maximum(values, 0.0) / 2)
    aligned = 1 - (edge / 2) ** 2 / np.maximum(shrunk, edge / 2) ** 2
    return shrunk, np.where(values > edge, aligned, 0.0)


class Outlook(NamedTuple):
    """What can be said of k components before anything is computed."""

    edge: float
    largest_gap: float  # that any n rows can have between eigenvalues k and k + 1: n/k
    rows_needed: int  # from which on it is worth while, by experience

    @classmethod
    def of(cls, sigma: float, width: int, n_rows: int, k: int, centre: bool) -> Self:
        """Of n rows of unit features; `sigma` is the noise in a released sum."""
        edge = noise_edge(sigma * (1 + _CONSTANT**2 if centre else 1.0), width)
        return cls(edge, n_rows / k, int(np.ceil(edge * k / _DOUBTFUL)))

    @property
    def is_useless(self) -> bool:
        """Whether noise is larger than any data's gap."""
        return self.edge > _CERTAIN * self.largest_gap

    @property
    def is_doubtful(self) -> bool:
        """Whether it is larger than usual data's."""
        return self.edge > _DOUBTFUL * self.largest_gap
