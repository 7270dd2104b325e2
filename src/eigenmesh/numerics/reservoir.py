"""A few of the rows that pass by, drawn from all of them, however many come and in which blocks.

Every row draws a number, and the rows of the smallest numbers stay: at any moment these are drawn
uniformly from all rows so far, without replacement (Vitter, 1985, does it in place). Where k(x, x)
differs from row to row another draw divides the numbers by its root: a row of weight w stays with
probability min(1, wτ), τ being the smallest number that has not stayed (Duffield, Lund and Thorup,
2007).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, is_sparse
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.mean_outside import RowSample, RowSampler

_FEWEST, _MOST = 256, 1024  # rows that are kept
_NUMBERS = 1 << 23  # that they have at most, but for the fewest rows


@dataclass
class _Lot:
    """Rows of the smallest numbers so far, in the order of these; one more is kept than is used."""

    size: int
    numbers: Doubles = field(default_factory=lambda: np.zeros(0))
    places: Any = field(default_factory=lambda: np.zeros(0, np.intp))  # among all rows
    rows: Rows | None = None

    def offer(self, block: Rows, numbers: Doubles, before: int) -> None:
        """Rows that come after so many others."""
        last = self.numbers[-1] if len(self.numbers) > self.size else np.inf
        new = np.flatnonzero(numbers < last)
        if not len(new):
            return
        numbers = np.concatenate([self.numbers, numbers[new]])
        places = np.concatenate([self.places, new + before])
        stay = np.argsort(numbers, kind="stable")[: self.size + 1]
        self.numbers, self.places = numbers[stay], places[stay]
        rows = block[new] if self.rows is None else _below(self.rows, block[new])
        self.rows = rows[stay]

    @property
    def kept(self) -> Rows:
        """The rows that are used."""
        assert self.rows is not None  # some have been offered
        return self.rows[: self.size]

    def chances_of(self, weights: Doubles) -> Doubles:
        """That rows of these weights stay."""
        if len(self.numbers) <= self.size:
            return np.asarray(weights > 0, dtype=np.float64)
        return np.asarray(np.minimum(weights * self.numbers[-1], 1.0))


class Reservoir:
    """Keeps some of the rows that are added.

    >>> reservoir = Reservoir(Kernel("rbf", 1.0), 1, seed=0)
    >>> for start in range(0, 5000, 100):
    ...     reservoir.add(np.arange(start, start + 100.0)[:, None])
    >>> sample = reservoir.sampler(5000).draw(1024, np.random.default_rng(0))
    >>> len(sample.rows), round(float(sample.counts.sum()))
    (1024, 5000)
    """

    def __init__(self, kernel: Kernel, n_columns: int, seed: int) -> None:
        self.kernel, self.seed = kernel, seed
        self.size = max(_FEWEST, min(_MOST, _NUMBERS // n_columns))
        self.n_rows = 0
        shares = (self.size,) if kernel.is_level else (self.size // 2, self.size // 2)
        self._lots = [_Lot(size) for size in shares]
        # A generator for each draw: numbers are the same whatever the blocks are.
        self._draws = [np.random.default_rng((seed, i)) for i in range(len(shares))]

    def add(self, block: Rows) -> None:
        """Take up some rows."""
        n = int(block.shape[0])
        block = block.tocsr() if is_sparse(block) else block
        for i, (lot, rng) in enumerate(zip(self._lots, self._draws, strict=True)):
            numbers = rng.random(n)
            if i:
                with np.errstate(divide="ignore", over="ignore"):
                    numbers = numbers / self._roots(block)
            lot.offer(block, numbers, self.n_rows)
        self.n_rows += n

    def _roots(self, block: Rows) -> Doubles:
        values = np.asarray(self.kernel.diagonal(as_rows(block, np.float64)), dtype=np.float64)
        return np.sqrt(np.maximum(values, 0.0))

    def sampler(self, n_rows: int) -> RowSampler:
        """Who gives these rows as a sample of all, which are `n_rows` with those never added."""
        sample = self.sample()
        return _KeptRows(self.kernel, sample.rows, sample=sample, n_rows=n_rows)

    @property
    def has_all(self) -> bool:
        """Whether no row was left out."""
        return self.n_rows <= self._lots[0].size

    def sample(self) -> RowSample:
        """The rows, each for as many as its chance says."""
        uniform, n = self._lots[0], self.n_rows
        rows, m = uniform.kept, uniform.size
        if self.has_all:
            return RowSample(as_rows(rows), np.ones(n), 0.0)
        if len(self._lots) == 1:
            return RowSample(as_rows(rows), np.full(m, n / m), 1 - m / n)
        heavy = self._lots[1]
        # A row is here if either draw has it.
        rows = _below(rows, heavy.kept)
        chances = 1 - (1 - m / n) * (1 - heavy.chances_of(self._roots(rows)))
        places = np.concatenate([uniform.places[:m], heavy.places[: heavy.size]])
        each = np.unique(places, return_index=True)[1]
        return RowSample(as_rows(rows[each]), 1 / chances[each], 1.0)


@dataclass(frozen=True, kw_only=True)
class _KeptRows(RowSampler):
    """Draws the rows that have been drawn before."""

    sample: RowSample
    n_rows: int

    @property
    def shape(self) -> tuple[int, int]:
        """Of all rows."""
        return self.n_rows, int(self.rows.shape[1])

    @property
    def n_counted(self) -> float:
        """Of all rows."""
        return self.n_rows

    def draw(self, most: int, rng: np.random.Generator) -> RowSample:
        """All that are kept."""
        return self.sample


def _below(one: Rows, other: Rows) -> Rows:
    if is_sparse(one) or is_sparse(other):
        return sp.csr_array(sp.vstack([sp.csr_array(one), sp.csr_array(other)]))
    return np.concatenate([one, other])
