"""Passes over rows, block by block, spread over the cores that are idle.

Rows are cut into stripes, as many as their number says and not the cores': stripes are added up
in their order, so that the answer is the same on every machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.numerics import progress
from eigenmesh.numerics.arrays import Doubles, Floats, Rows
from eigenmesh.numerics.landmark_blocks import ShiftedKernel
from eigenmesh.threads import spread

_STRIPES = 64  # about as many, between these sizes
_FEWEST_ROWS, _MOST_ROWS, _UNIT = 2048, 65536, 1024
_BUFFER_BYTES = 1 << 24  # a thread's kernel values


def stripes(n: int) -> list[slice]:
    """Consecutive slices that cover range(n).

    >>> stripes(5000)
    [slice(0, 2048, None), slice(2048, 4096, None), slice(4096, 5000, None)]
    """
    # Stripes of many rows cost little more than these; of few rows, all cores should get some.
    least = _FEWEST_ROWS if n < 32 * _FEWEST_ROWS else 4 * _FEWEST_ROWS
    rows = -(-n // _STRIPES // _UNIT) * _UNIT
    return list(_cut(slice(0, n), min(max(rows, least), _MOST_ROWS)))


def _cut(rows: slice, size: int) -> Iterator[slice]:
    for start in range(rows.start, rows.stop, size):
        yield slice(start, min(start + size, rows.stop))


@dataclass
class Pieces:
    """Sums over rows, in float64. P = K'B are projections on some directions B (q, p)."""

    raw: Doubles | None  # K'ᵀK' (q, q)
    cross: Doubles | None  # K'ᵀP (q, p), where both are wanted
    projected: Doubles | None  # PᵀP (p, p)
    sums: Doubles  # K'ᵀ1 (q,)
    projected_sums: Doubles  # Pᵀ1 (p,)
    trace: float = 0.0  # Σ k(x, x)

    @classmethod
    def zeros(cls, q: int, p: int, raw: bool) -> Pieces:
        """Of no rows."""
        return cls(
            raw=np.zeros((q, q)) if raw else None,
            cross=np.zeros((q, p)) if raw and p else None,
            projected=np.zeros((p, p)) if p else None,
            sums=np.zeros(q),
            projected_sums=np.zeros(p),
        )

    def clear(self) -> None:
        """Of no rows again, in the same memory."""
        for own in self._arrays():
            if own is not None:
                own.fill(0.0)
        self.trace = 0.0

    def add(self, other: Pieces) -> None:
        """Those of more rows."""
        for own, more in zip(self._arrays(), other._arrays(), strict=True):
            if own is not None and more is not None:
                own += more
        self.trace += other.trace

    def _arrays(self) -> tuple[Doubles | None, ...]:
        return self.raw, self.cross, self.projected, self.sums, self.projected_sums

    def is_finite(self) -> bool:
        """Whether nothing overflowed."""
        return all(a is None or bool(np.isfinite(a).all()) for a in self._arrays())


def gather(A: Rows, kernel: ShiftedKernel, B: Floats | None, raw: bool) -> Pieces:
    """The pieces of all rows: K'ᵀK' if `raw`, and what B asks for."""
    cuts = stripes(A.shape[0])
    # Sums of floats hang on their order: threads finish in any, stripes are added in theirs.
    total = _InOrder(Pieces.zeros(len(kernel.shift), 0 if B is None else B.shape[1], raw))
    with progress.over_rows("kernel sums", A.shape[0]) as advance:

        def worker(tasks: Iterator[int]) -> None:
            desk = _GramDesk(A, kernel, B, raw)
            for i in tasks:
                total.add(i, desk.gather(cuts[i], advance))

        spread(worker, len(cuts))
    return total.sum


class _InOrder:
    """Adds pieces in the order of their numbers, whenever they come; those too early are copied."""

    def __init__(self, zero: Pieces) -> None:
        self.sum = zero
        self._waiting: dict[int, Pieces] = {}
        self._next = 0
        self._lock = threading.Lock()

    def add(self, i: int, pieces: Pieces) -> None:
        with self._lock:
            if i != self._next:
                self._waiting[i] = deepcopy(pieces)
                return
            ready: Pieces | None = pieces
            while ready is not None:
                self.sum.add(ready)
                self._next += 1
                ready = self._waiting.pop(self._next, None)


class _Desk:
    """One thread's buffers: K' of a block, and what is made of it."""

    def __init__(self, A: Rows, kernel: ShiftedKernel, B: Floats | None) -> None:
        q, dtype = len(kernel.shift), kernel.dtype
        affordable = _BUFFER_BYTES // (q * dtype.itemsize) // _UNIT * _UNIT
        self._filler = kernel.filler(A)
        self._rows = min(max(affordable, _UNIT), self._filler.rows, max(A.shape[0], 1))
        self._A = A
        self._B = B
        self._K = np.empty((self._rows, q), dtype)
        self._P = np.empty((self._rows, 0 if B is None else B.shape[1]), dtype)

    def blocks(self, stripe: slice) -> Iterator[tuple[slice, Floats, Floats, Doubles]]:
        """Of every block of the stripe its rows, K', P and k(x, x)."""
        for rows in _cut(stripe, self._rows):
            m = rows.stop - rows.start
            K, P = self._K[:m], self._P[:m]
            # What overflows float32 is found in the sums, and worked again in float64.
            with np.errstate(over="ignore", invalid="ignore"):
                diagonal = self._filler.fill(self._A[rows], K)
                if self._B is not None:
                    np.matmul(K, self._B, out=P)
            yield rows, K, P, diagonal


class _GramDesk(_Desk):
    def __init__(self, A: Rows, kernel: ShiftedKernel, B: Floats | None, raw: bool) -> None:
        super().__init__(A, kernel, B)
        q, p = self._K.shape[1], self._P.shape[1]
        self._ones = np.ones(self._rows, kernel.dtype)
        self._squares = {size: np.empty((size, size), kernel.dtype) for size in {q, p}}
        self._pieces = Pieces.zeros(q, p, raw)

    def gather(self, stripe: slice, advance: Callable[[int], None]) -> Pieces:
        """The pieces of a stripe, good until the next is asked for."""
        pieces = self._pieces
        pieces.clear()
        for rows, K, P, diagonal in self.blocks(stripe):
            with np.errstate(over="ignore", invalid="ignore"):
                self._add(pieces, K, P)
            pieces.trace += float(diagonal.sum())
            advance(rows.stop - rows.start)
        return pieces

    def _add(self, pieces: Pieces, K: Floats, P: Floats) -> None:
        # In float32 within a block only: so its error grows with a block's rows and not with all.
        pieces.sums += self._ones[: len(K)] @ K
        if pieces.raw is not None:
            pieces.raw += self._gram(K)
        if pieces.cross is not None:
            pieces.cross += K.T @ P
        if pieces.projected is not None:
            pieces.projected += self._gram(P)
            pieces.projected_sums += self._ones[: len(P)] @ P

    def _gram(self, K: Floats) -> Any:
        """KᵀK."""
        # numpy sees an array times its own transpose and calls syrk: half the work of a product.
        return np.matmul(K.T, K, out=self._squares[K.shape[1]])


def project(
    A: Rows,
    kernel: ShiftedKernel,
    B: Doubles,
    words: str,
    take: Callable[[slice, Floats, Doubles], None],
) -> None:
    """Hand K(A, Y)B and k(a, a) of every block of rows to `take`, which owns its rows alone."""
    cuts, weights = stripes(A.shape[0]), B.astype(kernel.dtype)
    # KB = K'B + cB: in float32 the long sums are of the smaller numbers, K'.
    back = (kernel.shift @ B).astype(kernel.dtype)
    with progress.over_rows(words, A.shape[0]) as advance:

        def worker(tasks: Iterator[int]) -> None:
            desk = _Desk(A, kernel, weights)
            for i in tasks:
                for rows, _, P, diagonal in desk.blocks(cuts[i]):
                    P += back
                    take(rows, P, diagonal)
                    advance(rows.stop - rows.start)

        spread(worker, len(cuts))
