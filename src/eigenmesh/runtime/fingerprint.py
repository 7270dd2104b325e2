"""What tells one data set from another: a digest of its values, not of how they lie in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

_WHOLE = 1 << 20  # bytes that take a millisecond
_SAMPLE = 1 << 18  # bytes of rows, evenly spaced, of what is larger
_BLOCK = 1 << 22  # bytes in memory at a time


def fingerprint(data: Any, *, whole: bool = False) -> str:
    """A SHA-256 of shape, type and values of an array, memory map or CSR matrix, in hex.

    Of more than a megabyte, rows that are evenly spaced stand for all unless `whole`: a fit should
    not take longer for it.

    >>> X = np.arange(6.0).reshape(3, 2)
    >>> fingerprint(X) == fingerprint(np.asfortranarray(X)) != fingerprint(X + 1)
    True
    """
    n = int(data.shape[0])
    size = _bytes_a_row(data)
    fits = n * size <= _WHOLE
    stride = 1 if whole or fits else -(-n * size // _SAMPLE)
    digest = hashlib.sha256(f"{_form(data)} {tuple(data.shape)} {stride}".encode())
    for piece in _pieces(data, stride, max(_BLOCK // size, 1)):
        digest.update(np.ascontiguousarray(piece).data)
    return digest.hexdigest()


def _form(data: Any) -> str:
    return f"{getattr(data, 'format', 'dense')} {np.dtype(data.dtype).str}"


def _is_sparse(data: Any) -> bool:
    return hasattr(data, "indptr")


def _bytes_a_row(data: Any) -> int:
    """On average, at least one."""
    n, width = int(data.shape[0]), np.dtype(data.dtype).itemsize
    values = data.nnz if _is_sparse(data) else n * int(data.shape[1])
    return -(-values * width // max(n, 1)) or 1


def _pieces(data: Any, stride: int, rows: int) -> Iterator[np.ndarray[Any, Any]]:
    """The values of every `stride`-th row, in blocks; of sparse ones with their places."""
    for start in range(0, int(data.shape[0]), rows * stride):
        block = data[start : start + rows * stride : stride]
        if not _is_sparse(block):
            yield np.asarray(block)
            continue
        if not block.has_sorted_indices:
            block = block.sorted_indices()
        for places in (block.indptr, block.indices):
            yield places.astype(np.int64)
        yield block.data
