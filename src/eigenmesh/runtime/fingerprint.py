"""What tells one data set from another: a digest of its values, however they are stored.

The same numbers have the same digest in rows or columns order, sparse or dense, in single or double
precision, so that draws which follow from it are the same, too.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WHOLE = 1 << 17  # numbers that take a millisecond
_SAMPLE, _SAMPLE_ROWS = 1 << 15, 256  # numbers of what is larger, in so many rows at least
_BLOCK = 1 << 20  # numbers in memory at a time

Words = NDArray[np.uint64]


def fingerprint(data: Any, *, whole: bool = False) -> str:
    """A digest of shape and values of an array, memory map or CSR matrix, in hex.

    Of a large one, rows that are evenly spaced stand for all unless `whole`: a fit should not take
    longer for it.

    >>> X = np.arange(6.0).reshape(3, 2)
    >>> fingerprint(X) == fingerprint(X.astype(np.float32)) != fingerprint(X + 1)
    True
    """
    n, d = map(int, data.shape)
    is_sample = n * d > _WHOLE and not whole
    stride = max(min(n * d // _SAMPLE, n // _SAMPLE_ROWS), 1) if is_sample else 1
    weights = np.random.default_rng(0).integers(2**64, size=d, dtype=np.uint64)
    digest = hashlib.sha256(f"{n} {d}".encode())
    step = stride * max(_BLOCK // max(d, 1), 1)
    for start in range(0, n, step):
        block = data[start : start + step : stride]
        words = _sparse_words(block, weights) if _is_sparse(block) else _words(block, weights)
        digest.update(words.tobytes())
    return digest.hexdigest()


def _is_sparse(data: Any) -> bool:
    return hasattr(data, "indptr")


def _words(block: Any, weights: Words) -> Words:
    """One of each row: its numbers' bits, weighted by column, modulo 2^64; a zero has none."""
    return np.asarray(_bits(block) @ weights)


def _sparse_words(block: Any, weights: Words) -> Words:
    ends = np.concatenate([[np.uint64(0)], np.cumsum(_bits(block.data) * weights[block.indices])])
    return np.asarray(np.diff(ends[block.indptr]))


def _bits(values: Any) -> Words:
    with np.errstate(over="ignore"):
        single = np.asarray(values).astype(np.float32) + np.float32(0)  # which has no -0
    return single.view(np.uint32).astype(np.uint64)
