"""Rows in an array of the Array API standard: torch's, cupy's and others', on whatever device.

They stay on it. What comes from it to main memory comes through `in_main_memory`, and nothing else
moves numbers: neither numpy's conversions, which would take all rows at once, nor Python's. Which
functions an array has is array-api-compat's to know, which is not imported before such an array
comes; torch and cupy are never imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.extras import extra
from eigenmesh.numerics.arrays import Floats, blocks, is_sparse, largest_value

_OLDER = ("torch", "cupy")  # whose arrays do not, or did not, name their functions themselves
_BLOCK_NUMBERS = 1 << 22  # of a block's rows, and of its kernel values, as in main memory
_MOST_ROWS = 1 << 16  # of a block: float32 sums within it err by these
_PROBE = 128  # rows and columns of a product that shows how many digits products have


def is_device_array(X: object) -> bool:
    """Whether X is an array of the standard that is not numpy's; where it is does not matter."""
    if isinstance(X, np.ndarray | np.generic) or not hasattr(X, "dtype") or is_sparse(X):
        return False
    package = type(X).__module__.partition(".")[0]
    return hasattr(X, "__array_namespace__") or (
        package in _OLDER and package in sys.modules and hasattr(X, "device")
    )


def in_main_memory(values: Any) -> Any:
    """An array of a device as numpy has it: the only way off a device."""
    compat = _compat()
    if compat.is_torch_array(values) or compat.is_cupy_array(values):
        return np.asarray(compat.to_device(values, "cpu"))
    try:
        return np.from_dlpack(values, device="cpu", copy=True)
    except TypeError:  # numpy before 2.1, which reads what is in main memory
        return np.asarray(values)


@dataclass(frozen=True)
class DeviceRows:
    """Rows (n, d) on a device, with what a pass over them needs of their library.

    `single` says whether they have no more digits than float32, which scores then have, too.
    """

    array: Any
    xp: Any  # the functions of their library
    device: Any
    single: bool

    @classmethod
    def of(cls, X: Any, fewest: int = 1) -> DeviceRows:
        """The rows of X, where they are; refused if they are none that a fit takes."""
        compat = _compat()
        xp = compat.array_namespace(X)
        _require_table(X, xp, fewest)
        small = xp.isdtype(X.dtype, "real floating") and X.dtype != xp.float64
        rows = cls(X, xp, compat.device(X), bool(small))
        rows._require_moderate()
        return rows

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self.array.shape
        return int(n), int(d)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """That blocks are worked in where nothing asks for more: float32 only if it is whole."""
        return np.dtype(np.float32 if self.single and self._multiplies_whole else np.float64)

    @property
    def own_dtype(self) -> np.dtype[Any]:
        """That of scores."""
        return np.dtype(np.float32 if self.single or not self.has_double else np.float64)

    @cached_property
    def has_double(self) -> bool:
        """Whether the device has float64, as some have not."""
        try:
            zero = self.xp.zeros((1,), dtype=self.xp.float64, device=self.device)
        except Exception:  # of every library another one
            return False
        return bool(zero.dtype == self.xp.float64)  # or what it took instead

    @property
    def widest(self) -> np.dtype[Any]:
        """Of the device."""
        return np.dtype(np.float64 if self.has_double else np.float32)

    @cached_property
    def _multiplies_whole(self) -> bool:
        """Whether float32 products have all 24 bits: libraries may be set to fewer, for speed."""
        size, xp = _PROBE, self.xp
        # 1 + 2⁻²⁰ times the identity: TF32 and bfloat16 make 1 of it.
        fine = self.put(np.full((size, size), 1 + 2.0**-20), np.float32)
        product = xp.matmul(fine, self.put(np.eye(size), np.float32))
        return bool(xp.all(product == fine))

    def blocks(self, width: int) -> Iterator[slice]:
        """Consecutive rows, as many as are worked at a time where each has `width` numbers."""
        rows = _BLOCK_NUMBERS // max(width, self.shape[1])
        return blocks(self.shape[0], min(max(rows, 1), _MOST_ROWS))

    def block(self, rows: slice, dtype: Any) -> Any:
        """Some rows, on the device."""
        return self.xp.astype(self.array[rows, :], self.name(dtype), copy=False)

    def here(self, rows: slice) -> Floats:
        """Some rows in main memory."""
        return np.asarray(in_main_memory(self.block(rows, self.own_dtype)))

    def __getitem__(self, places: Any) -> Floats:
        """The rows at some places, in main memory."""
        xp = self.xp
        where = xp.asarray(np.asarray(places, np.int32), device=self.device)  # all have these
        rows = xp.take(self.array, where, axis=0)
        return np.asarray(in_main_memory(xp.astype(rows, self.name(self.own_dtype))))

    def put(self, values: Any, dtype: Any) -> Any:
        """An array of main memory on the device."""
        own = np.array(values, dtype)  # a copy: libraries warn of what nobody may write to
        return self.xp.asarray(own, dtype=self.name(dtype), device=self.device)

    def name(self, dtype: Any) -> Any:
        """What the library calls it."""
        return self.xp.float32 if np.dtype(dtype) == np.float32 else self.xp.float64

    def widened(self, sums: Any) -> Any:
        """A block's sums in float64: on the device where it has that, else in main memory."""
        if self.has_double:
            return self.xp.astype(sums, self.xp.float64)
        return in_main_memory(sums).astype(np.float64)

    def through_main_memory(self, work: Callable[[Floats], Any]) -> Any:
        """What `work` makes of the rows block by block in main memory, on the device again."""
        parts = [np.asarray(work(self.here(rows))) for rows in self.blocks(1)]
        return self.xp.concat([self.put(part, self.own_dtype) for part in parts], axis=0)

    def _require_moderate(self) -> None:
        """NaN, infinity, and numbers whose squares are: looked for where the rows are."""
        xp, largest = self.xp, largest_value(np.float32 if self.single else np.float64)
        if not xp.isdtype(self.array.dtype, "real floating"):
            return
        blocks_of_rows = list(self.blocks(1))
        peaks = [xp.max(xp.abs(self.array[rows, :])) for rows in blocks_of_rows]
        # NaN is not below any bound. One look at the device for all blocks.
        if bool(xp.all(xp.astype(xp.stack(peaks), self.name(self.own_dtype)) <= largest)):
            return
        for rows in blocks_of_rows:
            block = self.here(rows)
            places = np.argwhere(~(np.abs(block) <= largest))
            if len(places):
                row, column = map(int, places[0])
                raise InputError(
                    f"X holds {block[row, column]:g} at row {rows.start + row}, column {column} "
                    f"(counted from 0), expected finite numbers up to {largest:g}, whose squares "
                    f"can be added up; drop or impute such rows first, or rescale the column"
                )


TO_MAIN_MEMORY = "X.cpu().numpy() of torch, X.get() of cupy"


def why_unreadable(X: Any) -> str:
    """Why numpy cannot read an array where it is, and what to do; "" if it can.

    No more than its first row is tried.
    """
    if not is_device_array(X):
        return ""
    try:
        np.asarray(X[:1, ...])
    except Exception as error:  # of every library another one
        return (
            f"is of type {type(X).__name__}, which numpy cannot read ({error}); an array in main "
            f"memory is expected, without gradients: {TO_MAIN_MEMORY}. KernelPCA alone fits arrays "
            f"where they are"
        )
    return ""


def _compat() -> Any:
    with extra("array-api", "an array of another library", otherwise=f"pass {TO_MAIN_MEMORY}"):
        import array_api_compat
    return array_api_compat


def _require_table(X: Any, xp: Any, fewest: int) -> None:
    if X.ndim != 2:
        raise InputError(
            f"X has {X.ndim} dimension(s), expected 2: rows by columns; reshape it to "
            f"(n_samples, n_features)"
        )
    if "sparse" in str(getattr(X, "layout", "")):
        raise InputError(
            f"X is a sparse {type(X).__name__}, whose library has no products of its blocks; pass "
            f"X.to_dense(), or a matrix of scipy.sparse in main memory"
        )
    if xp.isdtype(X.dtype, "complex floating"):
        raise InputError(f"X holds {X.dtype}; real numbers are expected: convert it first")
    if X.shape[0] < fewest or X.shape[1] < 1:
        raise InputError(
            f"X has {X.shape[0]} rows and {X.shape[1]} columns; at least {fewest} row(s) and a "
            f"column are expected"
        )
    if getattr(X, "requires_grad", False):
        raise InputError(
            "X requires gradients, and a fit hands none on; pass X.detach(), whose numbers are the "
            "same"
        )
