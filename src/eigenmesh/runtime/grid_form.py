"""Numbers that lie on a grid, as short as that allows: nothing is lost on the way.

Points that their owner has rounded (`numerics.rounded_points`) are whole multiples of a power of
two, another in each column, and so are pixels and counts. A field that a message marks as `OnGrid`
travels then as how many multiples each number is above the least of its column, in as many bits as
the column takes. Whoever stacks rows of several owners, or leaves some out, sends the same numbers.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import MessageRefused

Codes = NDArray[np.int64]

_FEWEST, _MOST = 4, 24  # bits a column: fewer would let a short message unfold to a huge array
_EXPONENTS = 127
_LOOKED_AT = 64  # numbers: where one of them takes more bits, nothing is looked at any more
_OVERHEAD = 200  # bytes of a header with these names
_NAMES = {"planes", "low", "exponents", "widths", "shape", "single"}
_SIGNED = (np.int8, np.int16, np.int32, np.int64)


def to_wire(array: Any) -> Any:
    """What travels of an array of one axis or two: itself, if that is no longer.

    >>> short = to_wire(np.arange(4000.0).reshape(2000, 2) / 4)
    >>> short["widths"].tolist(), short["planes"].nbytes
    ([11, 12], 5750)
    """
    is_small = not isinstance(array, np.ndarray) or array.nbytes <= _OVERHEAD
    if is_small or array.dtype not in (np.float32, np.float64) or array.ndim not in (1, 2):
        return array
    columns = np.asarray(array, np.float64).reshape(len(array), -1)
    exponents = _exponents(columns)
    if exponents is None:
        return array
    multiples = np.ldexp(columns, -exponents).astype(np.int64)
    low = multiples.min(axis=0)
    codes = multiples - low
    widths = np.maximum(np.frexp(codes.max(axis=0).astype(float))[1], _FEWEST).astype(np.uint8)
    if widths.max() > _MOST:
        return array
    form = {
        "planes": _planes(codes, widths),
        "low": _shortest(low),
        "exponents": exponents.astype(np.int8),
        "widths": widths,
        "shape": list(array.shape),
        "single": array.dtype == np.float32,
    }
    size = sum(own.nbytes for own in form.values() if isinstance(own, np.ndarray))
    return form if size + _OVERHEAD < array.nbytes else array


def from_wire(value: Any) -> Any:
    """The array, whatever shape it is said to have; `MessageRefused` if it is none."""
    if not isinstance(value, dict):
        return value
    if value.keys() != _NAMES:
        _refuse("has no codes on a grid")
    shape, single = value["shape"], value["single"]
    sizes = isinstance(shape, list) and len(shape) in (1, 2) and type(single) is bool
    if not sizes or not all(type(size) is int and size > 0 for size in shape):
        _refuse("has no shape")
    n, d = shape[0], shape[1] if len(shape) > 1 else 1
    low, exponents, widths = (
        _whole(value[name], d, kinds)
        for name, kinds in (("low", "i"), ("exponents", "i"), ("widths", "u"))
    )
    planes = value["planes"]
    if not (isinstance(planes, np.ndarray) and planes.dtype == np.uint8 and planes.ndim == 1):
        _refuse("has no codes on a grid")
    is_sound = (
        np.all((widths >= _FEWEST) & (widths <= _MOST))
        and np.all(np.abs(exponents) <= _EXPONENTS)
        and np.all((low > -(2**53)) & (low < 2**53))
    )
    if not is_sound or len(planes) != _n_bytes(n, widths):
        _refuse("has codes that are none")
    numbers = np.ldexp((_codes(planes, widths, n) + low).astype(float), exponents)
    return numbers.reshape(shape).astype(np.float32 if single else np.float64, copy=False)


def _exponents(columns: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Of the largest power of two of which each column has whole multiples; None if too many."""
    if not columns.size:
        return None
    stride = -(-columns.size // _LOOKED_AT)
    if _span_of_bits(columns.ravel()[::stride][:, None]).max() > _MOST + 8:
        return None
    if not np.isfinite(columns).all():
        return None
    highest, lowest = _bits(columns)
    empty = lowest == _NONE
    exponents = np.where(empty, 0, lowest)
    most = np.where(empty, 0, highest - lowest)
    few = most.max() <= 52 and np.abs(exponents).max() <= _EXPONENTS
    return exponents if few else None


_NONE = 1 << 20


def _bits(columns: NDArray[np.float64]) -> tuple[Codes, Codes]:
    """The highest and the lowest bit that any number of a column has; `_NONE` of zeros."""
    mantissas, tops = np.frexp(columns)
    whole = (np.abs(mantissas) * 2.0**53).astype(np.int64)
    last = np.frexp((whole & -whole).astype(float))[1] - 1
    lowest = np.where(whole > 0, tops - 53 + last, _NONE).min(axis=0)
    highest = np.where(whole > 0, tops, -_NONE).max(axis=0)
    return highest.astype(np.int64), lowest.astype(np.int64)


def _span_of_bits(numbers: NDArray[np.float64]) -> Codes:
    """From the highest to the lowest bit of each number; 0 of what is not finite, or nothing."""
    finite = np.where(np.isfinite(numbers), numbers, 0.0)
    highest, lowest = _bits(finite.reshape(1, -1))
    return np.where(lowest == _NONE, 0, highest - lowest)


def _groups(widths: Any) -> list[tuple[int, Codes]]:
    """The columns of each width."""
    return [(int(width), np.flatnonzero(widths == width)) for width in np.unique(widths)]


def _n_bytes(n: int, widths: Any) -> int:
    """Of all planes: whole bytes of a number first, then its other bits."""
    sizes = 0
    for width, columns in _groups(widths):
        count = n * len(columns)
        sizes += width // 8 * count + width % 8 * -(-count // 8)
    return sizes


def _planes(codes: Codes, widths: Any) -> NDArray[np.uint8]:
    planes = []
    for width, columns in _groups(widths):
        block = codes[:, columns].ravel()
        planes += [(block >> 8 * i).astype(np.uint8) for i in range(width // 8)]
        rest = range(8 * (width // 8), width)
        planes += [np.packbits(((block >> bit) & 1).astype(np.uint8)) for bit in rest]
    return np.concatenate(planes)


def _codes(planes: Any, widths: Any, n: int) -> Codes:
    codes, start = np.empty((n, len(widths)), np.int64), 0
    for width, columns in _groups(widths):
        count = n * len(columns)
        block = np.zeros(count, np.int64)
        for i in range(width // 8):
            block |= planes[start : start + count].astype(np.int64) << 8 * i
            start += count
        for bit in range(8 * (width // 8), width):
            size = -(-count // 8)
            bits = np.unpackbits(planes[start : start + size], count=count)
            block |= bits.astype(np.int64) << bit
            start += size
        codes[:, columns] = block.reshape(n, len(columns))
    return codes


def _shortest(numbers: Codes) -> Any:
    least, most = int(numbers.min()), int(numbers.max())
    fits = (
        dtype for dtype in _SIGNED if np.iinfo(dtype).min <= least <= most <= np.iinfo(dtype).max
    )
    return numbers.astype(next(fits))


def _whole(values: Any, d: int, kinds: str) -> Codes:
    if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds:
        _refuse("has no grid")
    if values.shape != (d,):
        _refuse("has no grid of as many columns")
    return np.asarray(values.astype(np.int64))


def _refuse(reason: str) -> NoReturn:
    raise MessageRefused(f"an array {reason}")
