"""Sketching the number of rows down: TᵀF for F (n, m), with FᵀTTᵀF near FᵀF."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from eigenmesh.numerics.arrays import Doubles

_BUCKETS = 8  # so many times the width are the buckets that rows are first counted into


def right_sketch(parts: Iterable[Doubles], n: int, width: int, rng: np.random.Generator) -> Doubles:
    """TᵀF (width, m) of the n rows of F, which come in blocks: CountSketch, then Gaussian.

    No more rows than `width` are only turned, so that FᵀTTᵀF = FᵀF.

    >>> F = np.arange(12.0).reshape(4, 3)
    >>> S = right_sketch([F[:1], F[1:]], 4, 6, np.random.default_rng(0))
    >>> S.shape, bool(np.allclose(S.T @ S, F.T @ F))
    ((6, 3), True)
    """
    buckets, start = min(n, _BUCKETS * width), 0
    counted: Any = 0.0
    for part in parts:
        own = np.arange(start, start + len(part))
        places = own if n <= buckets else rng.integers(buckets, size=len(part))
        counted = counted + _signed_counts(part, places, buckets, rng)
        start += len(part)
    return np.asarray(_mixing(buckets, width, rng) @ counted)


def _signed_counts(
    F: Doubles, places: NDArray[np.int64], buckets: int, rng: np.random.Generator
) -> Doubles:
    """The rows of F, each with a random sign, added up where their places are the same."""
    signs = rng.choice([-1.0, 1.0], size=len(F))
    S = sp.csr_array((signs, (places, np.arange(len(F)))), shape=(buckets, len(F)))
    return np.asarray(S @ F)


def _mixing(buckets: int, width: int, rng: np.random.Generator) -> Doubles:
    """(width, buckets): columns orthonormal where there is room for them, Gaussian where not."""
    G = rng.standard_normal((width, buckets))
    return np.linalg.qr(G)[0] if buckets <= width else G / np.sqrt(width)
