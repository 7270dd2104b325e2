"""Kernel PCA inside the span of landmarks: the best subspace in it, and scores of any rows.

`landmark_sums` has what rows add up to, which is all that a fit needs of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Floats, Rows, as_rows, is_sparse, raw_rows
from eigenmesh.numerics.eigen import (
    clip_spectrum,
    fix_signs,
    numerical_rank,
    require_rank,
    top_eigenpairs,
)
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import (
    InsideSums,
    KernelValues,
    LandmarkSums,
    ShiftedKernel,
    Span,
    block_dtype,
    project,
    stripes,
)
from eigenmesh.threads import one_blas_thread, spread

_SHIFT_ROWS = 16  # any shift will do where it is added again
_SCORE_ERROR = 1e-5  # of a score's standard deviation, that float32 blocks may be off
_NOTHING = 1e-9  # of Σ k(x, x): what is left of equal rows by rounding
_ALIKE = 0.5  # a kernel value of rows that differ little, to the kernel


@dataclass(frozen=True)
class LandmarkModel:
    """Components inside the span of φ(Y): score(x) = k(x, Y) `coefficients` − `offset`."""

    kernel: Kernel
    landmarks: Rows  # (q, d)
    coefficients: Doubles  # (q, k)
    offset: Doubles  # (k,)
    eigenvalues: Doubles  # (k,)
    next_eigenvalue: float
    total: float  # variance in feature space; with that of the mean outside the span, if any
    n_rows: int

    @classmethod
    def fit(
        cls,
        kernel: Kernel,
        Y: Rows,
        sums: LandmarkSums,
        k: int | None,
        centre: bool,
        span: Span | None = None,
    ) -> Self:
        """The best k components of the rows that `sums` covers; if None, all above rounding.

        `span` is that of Y, where it is there already.
        If centred, the total is an upper bound: `mean_outside.corrected` has what is known of it.
        """
        span = span or Span.of(kernel, Y)
        n, c, B = sums.n_rows, span.shift, span.basis
        mean = B.T @ (sums.sums / n + c) if centre else np.zeros(B.shape[1])
        # E = K(A, Y)B are orthonormal coordinates of Pφ(A); EᵀE (r, r) has the eigenvalues of the
        # (n, n) kernel matrix of the projected rows, which nobody needs to form.
        G = span.coordinates(_scatter(sums, c, centre))
        return cls._of(span, Y, G, mean, n, sums.trace, k)

    @classmethod
    def of_inside(cls, sums: InsideSums, k: int | None, centre: bool, span: Span, Y: Rows) -> Self:
        """The same from sums in coordinates of the span."""
        mean, n = sums.mean, sums.n_rows
        if not centre:
            mean = np.zeros_like(mean)
        G = sums.scatter if centre else sums.scatter + n * np.outer(sums.mean, sums.mean)
        return cls._of(span, Y, G, mean, n, sums.trace, k)

    @classmethod
    def _of(
        cls, span: Span, Y: Rows, G: Doubles, mean: Doubles, n: int, trace: float, k: int | None
    ) -> Self:
        c, B, kernel = span.shift, span.basis, span.kernel
        # n‖Pm‖² is all that the sums know of the mean; with n‖m‖² the total would be less.
        total = trace - n * float(mean @ mean)
        more_may_help = len(c) < n and total > _NOTHING * trace
        advice = _advice(kernel, more_may_help, float(np.mean(c)))
        n_pairs = B.shape[1] if k is None else min(k + 1, B.shape[1])
        values, W = top_eigenpairs((G + G.T) / 2, n_pairs)
        # Where rounding is all that is left of the variance, so it is of its eigenvalues.
        values = clip_spectrum(values, n) if total > 0 else np.zeros_like(values)
        k = max(numerical_rank(values, n), 1) if k is None else k
        require_rank(values, k, n, f"{len(c)} landmarks", advice)
        W = np.asarray(fix_signs(W[:, :k]))
        after = float(values[k]) if len(values) > k else 0.0
        return cls(kernel, Y, B @ W, mean @ W, values[:k], after, total, n)

    def signed_by(self, span: Span) -> Self:
        """The same with signs by which the landmark farthest along a component scores above 0."""
        # The signs of B are the eigen-solver's, so those of W are a processor's rounding; copies of
        # a landmark share its coefficient, but its score K(Y, Y)BW each of them has.
        scores = span.K @ self.coefficients
        signs = np.sign(np.einsum("ij,ij->j", fix_signs(scores), scores))
        return replace(self, coefficients=self.coefficients * signs, offset=self.offset * signs)

    @property
    def residual(self) -> float:
        """Variance that the components leave out, of the total."""
        return max(self.total - float(self.eigenvalues.sum()), 0.0)

    def transform(self, X: Rows) -> Floats:
        """Scores (n, k) of any rows, block by block; float32 if the rows are."""
        X = raw_rows(X)
        dtype = self.safe_dtype(block_dtype(self.kernel, X, self.landmarks))
        scores = np.empty((X.shape[0], len(self.eigenvalues)), as_rows(X[:0]).dtype)
        with one_blas_thread():
            blocks = self.shifted_kernel(dtype)

            def take(rows: slice, P: Floats, diagonal: Doubles) -> None:
                np.subtract(P, self.offset, out=scores[rows], casting="same_kind")

            project(X, blocks, self.coefficients, "scores", take)
        return scores

    def shifted_kernel(self, dtype: np.dtype[Any]) -> ShiftedKernel:
        """Kernel values with the landmarks, as scores are made of."""
        Y = as_rows(self.landmarks, np.float64)
        shift = self.kernel.block(Y[:_SHIFT_ROWS], Y).mean(axis=0)
        return ShiftedKernel.of(self.kernel, Y, shift, dtype)

    def scores_from(self, kept: KernelValues, dtype: np.dtype[Any]) -> Floats | None:
        """Scores of the fitted rows, as `transform` has them, from their kernel values.

        None where these are not there, are of other landmarks, or have too few digits.
        """
        K, shift = kept.values, kept.shift
        if K is None or shift is None or not _are_equal(kept.landmarks, self.landmarks):
            return None
        if K.dtype != np.float64 and self.safe_dtype(K.dtype) != K.dtype:
            return None
        weights = self.coefficients.astype(K.dtype)
        shifts = (shift @ self.coefficients - self.offset).astype(K.dtype)
        scores, cuts = np.empty((len(K), len(shifts)), dtype), stripes(len(K))

        def worker(tasks: Iterator[int]) -> None:
            for rows in (cuts[i] for i in tasks):
                np.add(K[rows] @ weights, shifts, out=scores[rows], casting="same_kind")

        spread(worker, len(cuts))
        return scores

    def safe_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """float64 where the rounding of float32 kernel values would show in the scores."""
        largest = float(np.max(self.kernel.diagonal(self.landmarks)))
        rounding = 2.0**-24 * largest * np.linalg.norm(self.coefficients, axis=0)
        # A score is k(x, Y)w, so each rounded value counts with its weight; its spread is √(λ/n).
        safe = rounding <= _SCORE_ERROR * np.sqrt(self.eigenvalues / self.n_rows)
        return dtype if safe.all() else np.dtype(np.float64)


def _are_equal(some: Rows | None, others: Rows) -> bool:
    if some is None or is_sparse(some) or is_sparse(others):
        return False
    return np.array_equal(some, others)


def _advice(kernel: Kernel, more_rows: bool, typical: float) -> str:
    """What helps against too low a rank; `typical` is a kernel value of two landmarks."""
    ways = []
    if more_rows:
        ways.append("take more landmarks: n_landmarks, or landmarks='diskpca' if rows may leave; ")
    if kernel.gamma and kernel.is_level:  # near 1 rows are alike to the kernel, near 0 all strange
        way = "raise" if typical > _ALIKE else "lower"
        ways.append(f"{way} gamma, which is {kernel.gamma:.3g}; ")
    check = "check that the samples differ, and that no column dwarfs the others"
    return f"{''.join(ways)}{'or ' if ways else ''}{check}"


def _scatter(sums: LandmarkSums, c: Doubles, centre: bool) -> Any:
    """KᵀK of all rows, centred or as it is, from the shifted sums."""
    if centre:  # whatever the shift is: it cancels, and has kept the digits
        return sums.gram - np.outer(sums.sums, sums.sums) / sums.n_rows
    cross = np.outer(sums.sums, c)
    return sums.gram + cross + cross.T + sums.n_rows * np.outer(c, c)
