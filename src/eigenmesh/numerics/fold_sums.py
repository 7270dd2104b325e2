"""What the rows of folds add up to, in coordinates of the landmarks' span, and scores from it.

Letters: e(x) = Bᵀ(k(x, Y) − c) coordinates of φ(x) in the span, B (q, r) with BᵀK(Y, Y)B = I, c the
column means of K(Y, Y), which keep the digits in which rows differ; b = Bᵀc, so that e + b are the
coordinates themselves. m is the mean of e over the rows that are fitted, W their components.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.eigen import clip_spectrum, require_rank, top_eigenpairs
from eigenmesh.numerics.landmark_sums import Span


class FoldTotals(NamedTuple):
    """What the rows of a fold add up to, k being kernel values with landmarks less c."""

    gram: Doubles  # (q, q), Σ k kᵀ
    sums: Doubles  # (q,), Σ k
    n_rows: int
    trace: float  # Σ k(x, x)
    cross: Doubles  # (q, m), Σ k yᵀ
    target_sums: Doubles  # (m,), Σ y
    target_squares: Doubles  # (m,), Σ y²

    @classmethod
    def over(cls, folds: Sequence[FoldTotals]) -> Self:
        """Of several folds together."""
        return cls(*(sum(parts[1:], start=parts[0]) for parts in zip(*folds, strict=True)))

    def inside(self, span: Span) -> Self:
        """The same in coordinates e of the span."""
        B = span.basis
        return self._replace(gram=B.T @ self.gram @ B, sums=B.T @ self.sums, cross=B.T @ self.cross)


class Split(NamedTuple):
    """Rows that are fitted and rows that are held out, and the span's b."""

    fitted: FoldTotals
    held_out: FoldTotals
    offset: Doubles  # (r,)

    def mean(self, center: bool) -> Doubles:
        """m; where nothing is centred, e of the origin."""
        return self.fitted.sums / self.fitted.n_rows if center else -self.offset

    def components(self, k: int, center: bool, what: str) -> tuple[Doubles, Doubles]:
        """The k largest eigenvalues of the fitted rows, and W (r, k); an error if they have not."""
        G, n = scatter(self.fitted, self.mean(center)), self.fitted.n_rows
        values, W = top_eigenpairs((G + G.T) / 2, min(k, len(G)))
        values = clip_spectrum(values, n)
        require_rank(values, k, n, what, "or take more landmarks: n_landmarks")
        return values, W


def scatter(totals: FoldTotals, mean: Doubles) -> Doubles:
    """Σ (e − m)(e − m)ᵀ.

    >>> fold = FoldTotals(np.array([[5.0]]), np.array([3.0]), 2, 5.0, *[np.zeros(0)] * 3)
    >>> scatter(fold, np.array([1.5]))
    array([[0.5]])
    """
    # In full: G − n m mᵀ is true of rows about their own mean, and these may be seen from
    # another's.
    crossed = np.outer(mean, totals.sums)
    return np.asarray(totals.gram - crossed - crossed.T + totals.n_rows * np.outer(mean, mean))


def held_out_variances(split: Split, W: Doubles, center: bool) -> Doubles:
    """Σ (wᵀ(φ(x) − m))² over the rows that are held out, for every component w, (k,)."""
    D = scatter(split.held_out, split.mean(center))
    return np.asarray(np.einsum("ik,ij,jk->k", W, D, W))


def held_out_total(split: Split, center: bool) -> float:
    """Σ ‖φ(x) − m‖² over these rows, as far as the mean m lies in the span."""
    held_out = split.held_out
    if not center:
        return held_out.trace
    mean = split.mean(True) + split.offset
    along = mean @ (held_out.sums + held_out.n_rows * split.offset)
    return float(held_out.trace - 2 * along + held_out.n_rows * (mean @ mean))


def r_squared(split: Split, values: Doubles, W: Doubles, alpha: float) -> float:
    """R² on the rows that are held out of ridge on the components W; of several targets the mean.

    As scikit-learn's `r2_score` has it: 0, or 1 if nothing is missed, where a target is constant.
    """
    fitted, held_out, m = split.fitted, split.held_out, split.mean(True)
    y = fitted.target_sums / fitted.n_rows
    cross = W.T @ (fitted.cross - np.outer(m, fitted.target_sums))
    # Components do not correlate on the rows that are fitted: ridge is a division for each of them.
    slope = W @ (cross / (values + alpha)[:, None])  # (r, m): a prediction is e @ slope + start
    start = y - m @ slope
    n, sums = held_out.n_rows, held_out.target_sums
    # Σ (y − start − e slope)² as sums: the rows that are held out are not looked at again.
    errors = (
        held_out.target_squares
        - 2 * start * sums
        - 2 * np.einsum("rm,rm->m", slope, held_out.cross)
        + n * start**2
        + 2 * start * (held_out.sums @ slope)
        + np.einsum("rm,rs,sm->m", slope, held_out.gram, slope)
    )
    whole = held_out.target_squares - sums**2 / n
    missed = np.maximum(errors, 0.0)
    constant = np.where(missed > 0, 0.0, 1.0)
    return float(np.mean(np.where(whole > 0, 1 - missed / np.where(whole > 0, whole, 1), constant)))
