"""What rows on a device add up to with landmarks, and their scores, where the rows are.

The pass of `landmark_sums` with its routes and their rule, in the functions of the Array API
standard: of a block kernel values K', their column sums and K'ᵀK', and with directions B what
P = K'B adds up to. Blocks are as large as in main memory, so that float32 errs by no more rows, and
add up in float64: on the device, or here, where it has none. Only sums of q × q come here.

Kernels that are no function of products have no such form, and some devices no float64: where that
matters blocks of rows come here, one after the other, and a warning says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.numerics import progress
from eigenmesh.numerics.arrays import Doubles, Floats, Rows
from eigenmesh.numerics.device_rows import TO_MAIN_MEMORY, DeviceRows, in_main_memory
from eigenmesh.numerics.draws import draw_repeatedly
from eigenmesh.numerics.gamma_rules import Moments, merge
from eigenmesh.numerics.kernels import unit_rows
from eigenmesh.numerics.landmark_sums import (
    LandmarkSums,
    Pieces,
    ShiftedKernel,
    Span,
    block_dtype,
    gather,
    shifted_sums,
)
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import RowSampler

_SHORT_ROWS = 512  # that float32 adds up by itself, or as many as landmarks


def device_landmark_sums(A: DeviceRows, Y: Rows, span: Span) -> LandmarkSums:
    """`landmark_sums` of rows on a device; `span` is that of Y."""
    gram, sums, trace, _ = shifted_sums(span, A, Y, gather_from=_gather)
    return LandmarkSums(gram, sums, A.shape[0], trace)


def device_scores(model: LandmarkModel, X: DeviceRows) -> Any:
    """`LandmarkModel.transform` of rows on a device: their scores (n, k), on it."""
    dtype = model.safe_dtype(block_dtype(model.kernel, X, model.landmarks))
    kernel = model.shifted_kernel(dtype)
    on_device = _DeviceKernel.of(X, kernel)
    if on_device is None:
        return X.through_main_memory(model.transform)
    weights = X.put(model.coefficients, dtype)
    # As in main memory: long sums are of the smaller numbers, K'.
    back = X.put(kernel.shift @ model.coefficients - model.offset, dtype)
    parts = []
    with progress.over_rows("scores", X.shape[0]) as advance:
        for K, _, n_rows in on_device.blocks():
            scores = X.xp.matmul(K, weights) + back
            parts.append(X.xp.astype(scores, X.name(X.own_dtype), copy=False))
            advance(n_rows)
    return _finite(X, X.xp.concat(parts, axis=0))


def _finite(X: DeviceRows, scores: Any) -> Any:
    if bool(X.xp.all(X.xp.isfinite(scores))):
        return scores
    raise InputError(
        "the scores of some rows are not finite: their kernel values overflow; rescale the columns "
        "before fit and here, or convert float32 to float64"
    )


def device_moments(A: DeviceRows) -> Moments:
    """`moments_of` rows on a device."""
    xp, parts = A.xp, []
    for rows in A.blocks(1):
        # Sums of differences to one row keep their digits far from the origin.
        x = A.block(rows, A.widest)
        rest = x - x[:1, :]
        mean = xp.mean(rest, axis=0)
        rest = rest - mean
        first, mean, squares = map(in_main_memory, (x[0, :], mean, xp.sum(rest * rest)))
        parts.append(
            Moments(rows.stop - rows.start, first.astype(np.float64) + mean, float(squares))
        )
    return merge(parts)


class DeviceSampler(RowSampler):
    """Draws rows of a device into main memory; where they do not weigh alike, ‖x‖² of all come."""

    def distinct(self, most: int, rng: np.random.Generator) -> Floats:
        """At most so many different rows, drawn as where k(x, x) differs from row to row."""
        chances, _ = self._weights
        return np.asarray(self.rows[np.unique(draw_repeatedly(chances, most, rng))])

    def _diagonal(self) -> Doubles:
        A = self.rows
        blocks_of_rows = (A.block(rows, A.widest) for rows in A.blocks(1))
        norms = [in_main_memory(A.xp.vecdot(x, x)) for x in blocks_of_rows]
        return np.asarray(self.kernel.diagonal_from_sums(np.concatenate(norms).astype(np.float64)))


# The pass.


def _gather(
    A: DeviceRows, kernel: ShiftedKernel, B: Floats | None, raw: bool, room: Floats | None
) -> Pieces:
    """`landmark_sums.gather` of rows on a device, which keep no room."""
    on_device = _DeviceKernel.of(A, kernel)
    if on_device is None:
        return _gather_here(A, kernel, B, raw)
    directions = None if B is None else A.put(B, kernel.dtype)
    total = _BlockSums(A)
    # What overflows float32 is found in the sums, and worked again in float64: of libraries that
    # are numpy beneath nobody needs to hear of it.
    quiet = np.errstate(over="ignore", invalid="ignore")
    with progress.over_rows("kernel sums", A.shape[0]) as advance, quiet:
        for K, trace, n_rows in on_device.blocks():
            total.add_block(K, directions, raw)
            total.add("trace", trace)
            advance(n_rows)
    return total.pieces(len(kernel.shift))


def _gather_here(A: DeviceRows, kernel: ShiftedKernel, B: Floats | None, raw: bool) -> Pieces:
    """The same, of blocks that come to main memory one after the other."""
    total = Pieces.zeros(len(kernel.shift), 0 if B is None else B.shape[1], raw)
    for rows in A.blocks(1):
        total.add(gather(A.here(rows), kernel, B, raw))
    return total


class _BlockSums:
    """Sums of blocks, in float64, by the names that `Pieces` has for them."""

    def __init__(self, rows: DeviceRows) -> None:
        self._rows = rows
        self._sums: dict[str, Any] = {}

    def add(self, name: str, sums: Any) -> None:
        """Those of one more block."""
        own = self._rows.widened(sums)
        self._sums[name] = self._sums[name] + own if name in self._sums else own

    def add_block(self, K: Any, B: Any, raw: bool) -> None:
        """Of a block its K' and, where there are directions, P = K'B."""
        for some in _short(self._rows.xp, K):
            self._add_sums("sums", some)
            if raw:
                self._add_products("raw", some, some)
            if B is None:
                continue
            P = self._rows.xp.matmul(some, B)
            self._add_sums("projected_sums", P)
            self._add_products("projected", P, P)
            if raw:
                self._add_products("cross", some, P)

    def _add_sums(self, name: str, K: Any) -> None:
        self.add(name, self._wide_sum(self._rows.xp.sum(K, axis=1)))

    def _add_products(self, name: str, K: Any, P: Any) -> None:
        xp = self._rows.xp
        self.add(name, self._wide_sum(xp.matmul(xp.matrix_transpose(K), P)))

    def _wide_sum(self, parts: Any) -> Any:
        """Over the first axis, in the device's widest floats."""
        widest = self._rows.name(self._rows.widest)
        return self._rows.xp.sum(parts, axis=0, dtype=widest)

    def pieces(self, q: int) -> Pieces:
        """All of them, in main memory."""
        sums: dict[str, Any] = {
            name: own if isinstance(own, np.ndarray) else in_main_memory(own)
            for name, own in self._sums.items()
        }
        whole = Pieces.zeros(q, 0, raw=False)
        for name, own in sums.items():
            setattr(whole, name, float(own) if name == "trace" else own)
        return whole


def _short(xp: Any, K: Any) -> Iterator[Any]:
    """The rows of K (m, q) in short pieces of one length (pieces, length, q), then what is left.

    Libraries add up in orders of their own: of 41,000 rows and six landmarks KᵀK was 13 times as
    far off in torch on a processor as in numpy, and the rule for float32 counts on numpy's. So what
    is added up in float32 are few rows, in any order; the sums of all pieces take no more than K.
    """
    m, q = K.shape
    length = max(_SHORT_ROWS, q)
    whole = m - m % length
    if whole:
        yield xp.reshape(K[:whole, :], (-1, length, q))
    if whole < m:
        yield K[None, whole:, :]


# Kernel values.


@dataclass(frozen=True)
class _DeviceKernel:
    """k(x, Y) − c of blocks of rows: the numbers of a `ShiftedKernel`, on the device.

    Arguments are (x − centre)·weights + ‖x − centre‖²·norm_weight + constant.
    """

    A: DeviceRows
    kernel: ShiftedKernel
    weights: Any  # (d, q)
    constant: Any  # (q,)
    norm_weight: float = 0.0
    centre: Any = None  # (d,)
    shift: Any = None  # (q,) or (1,), where the constant does not hold it

    @classmethod
    def of(cls, A: DeviceRows, kernel: ShiftedKernel) -> _DeviceKernel | None:
        """None, with a warning, where blocks have to come to main memory."""
        dtype, terms = kernel.dtype, kernel.terms
        if dtype == np.float64 and not A.has_double:
            _warn_of_passage(A, "which has no float64, where float32 has too few digits")
            return None
        if kernel.kernel.name == "cosine":  # inner products of unit rows
            weights = unit_rows(kernel.landmarks).T
            return cls(A, kernel, A.put(weights, dtype), A.put(-kernel.shift, dtype))
        if terms is None:
            _warn_of_passage(A, f"and kernel={kernel.kernel.name!r} is no function of products")
            return None
        numbers = [
            None if own is None else A.put(own, dtype) for own in (terms.centre, terms.shift)
        ]
        weights, constant = A.put(terms.weights, dtype), A.put(terms.constant, dtype)
        return cls(A, kernel, weights, constant, terms.norm_weight, *numbers)

    def blocks(self) -> Iterator[tuple[Any, Any, int]]:
        """Of every block of rows K', Σ k(x, x), and how many rows it has."""
        for rows in self.A.blocks(len(self.kernel.shift)):
            x = self.A.block(rows, self.kernel.dtype)
            yield *self._values(x), rows.stop - rows.start

    def _values(self, x: Any) -> tuple[Any, Any]:
        xp, kernel = self.A.xp, self.kernel.kernel
        norms = xp.vecdot(x, x)
        trace = self._trace(norms)
        if kernel.name == "cosine":
            lengths = xp.sqrt(norms)
            x = x / xp.where(lengths > 0, lengths, xp.ones_like(lengths))[:, None]
        if self.centre is not None:
            x = x - self.centre
            norms = xp.vecdot(x, x)
        K = xp.matmul(x, self.weights) + self.constant
        if self.norm_weight:
            K = K + self.norm_weight * norms[:, None]
        K = self._finished(K)
        return (K if self.shift is None else K - self.shift), trace

    def _finished(self, arguments: Any) -> Any:
        kernel, xp = self.kernel.kernel, self.A.xp
        if kernel.name == "rbf":
            # Of huge rows that are alike, rounding alone may be above 0 by more than exp can take.
            return xp.exp(xp.clip(arguments, max=0.0))
        if kernel.name == "sigmoid":
            return xp.tanh(arguments)
        return _power(arguments, int(kernel.degree)) if kernel.name == "poly" else arguments

    def _trace(self, norms: Any) -> Any:
        """Σ k(x, x), from ‖x‖²."""
        xp, kernel = self.A.xp, self.kernel.kernel
        norms = xp.astype(norms, self.A.name(self.A.widest))
        if kernel.of != "inner":
            is_one = norms >= 0 if kernel.of == "distance" else norms > 0
            return xp.sum(xp.astype(is_one, norms.dtype))
        if kernel.uses_gamma:
            norms = float(kernel.gamma or 0) * norms + float(kernel.coef0)
        return xp.sum(self._finished(norms))


def _warn_of_passage(A: DeviceRows, why: str) -> None:
    warnings.warn(
        f"rows on {A.device}, {why}, come to main memory block by block; the answer is the same, "
        f"and rows that are there are fitted sooner: {TO_MAIN_MEMORY}",
        EigenmeshWarning,
        stacklevel=6,
    )


def _power(values: Any, degree: int) -> Any:
    """By squaring and multiplying, as in main memory, but in arrays of their own."""
    power = values
    for bit in bin(degree)[3:]:
        power = power * power
        if bit == "1":
            power = power * values
    return power
