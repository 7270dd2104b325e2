"""A few rows that stand for many in sums over φ(x)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, blocks
from eigenmesh.numerics.draws import draw_repeatedly
from eigenmesh.numerics.kernels import Kernel

_BLOCK = 1 << 14


class RowSample(NamedTuple):
    """Σ `counts` h(x) over the sample is, in the mean over draws, Σ h(x) over all rows."""

    rows: Rows  # (m, d)
    counts: Doubles  # (m,)
    noise: float  # share of the variance of draws with replacement that is left; 0 if all are here


@dataclass(frozen=True)
class RowSampler:
    """Draws samples of the rows."""

    kernel: Kernel
    rows: Rows

    def draw(self, most: int, rng: np.random.Generator) -> RowSample:
        """All rows, or `most` draws of them: two at least, for one row shows no variance.

        Where k(x, x) differs from row to row, half of the draws are by its root: few rows may make
        up most of the sum, and would be missed.

        >>> sampler = RowSampler(Kernel("rbf", 1.0), np.eye(4))
        >>> sampler.draw(2, np.random.default_rng(0)).counts
        array([2., 2.])
        """
        A = self.rows
        n, m = A.shape[0], min(A.shape[0], max(most, 2))
        if m == n:
            return RowSample(as_rows(A), np.ones(n), 0.0)
        if self.kernel.is_level:
            # Without replacement: the variance has the factor 1 − m/n of a finite population.
            places = np.sort(rng.choice(n, m, replace=False))
            return RowSample(as_rows(A[places]), np.full(m, n / m), 1 - m / n)
        # With replacement: only then 1/(m p) is the count that leaves the sum without bias.
        chances, _ = self._weights
        places = np.sort(draw_repeatedly(chances, m, rng))
        return RowSample(as_rows(A[places]), 1 / (m * chances[places]), 1.0)

    @property
    def trace(self) -> float:
        """Σ k(x, x), or an upper bound that rows of zeros do not reach."""
        return float(self.rows.shape[0]) if self.kernel.is_level else self._weights[1]

    @cached_property
    def _weights(self) -> tuple[Doubles, float]:
        """The chance of every row to be drawn, in the one array of their number, and Σ k(x, x)."""
        n = self.rows.shape[0]
        values = np.empty(n)
        with np.errstate(over="ignore"):
            for rows in blocks(n, _BLOCK):
                values[rows] = self.kernel.diagonal(as_rows(self.rows[rows], np.float64))
            trace = float(values.sum())
        np.sqrt(np.maximum(values, 0, out=values), out=values)
        largest = values.max()
        if not (np.isfinite(largest) and largest > 0):
            return np.full(n, 1 / n), trace
        values /= largest  # so that their sum does not overflow
        values *= 0.5 / values.sum()
        values += 0.5 / n
        return values, trace
