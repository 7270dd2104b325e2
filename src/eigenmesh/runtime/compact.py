"""Arrays in fewer bits: whole numbers times a scale for each column, or float32.

A field that a message marks as `Compact` travels so if the message says fewer than 64 bits; its
receiver gets float64 again, off by half a step at most. Codes are symmetric, −L to L, rounded to
the even one of two that are as near: every engine rounds alike. Scales have 24 bits, so that code
times scale is exact: rounding what was rounded before changes nothing, and a sender can work with
the very numbers that its receiver gets. Where the field has a number a column, `column_form` has
the form.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import MessageRefused
from eigenmesh.runtime import column_form

Doubles = NDArray[np.float64]
Bits = int | column_form.Bits

EXACT = column_form.EXACT
BITS = (4, 8, 16, 32, EXACT)
_CODES: dict[int, Any] = {8: np.int8, 16: np.int16}
_SCALE_BITS = 24
_HALF = 8  # what codes of four bits are moved by, two of which share a byte


def to_wire(array: Any, bits: Bits) -> Any:
    """What travels of an array.

    >>> to_wire(np.array([[3.0], [-7.0], [1.4]]), 4)["codes"]
    array([ 27, 137], dtype=uint8)
    """
    if isinstance(bits, np.ndarray):
        return column_form.to_wire(array, bits)
    if bits == EXACT:
        return array
    if bits == 32:
        return _as_single(array)
    scale = _scale(array, bits)
    codes = _codes(array, scale, bits)
    if bits == 4:
        return {"codes": _paired(codes), "scale": scale, "shape": list(codes.shape)}
    return {"codes": codes.astype(_CODES[bits]), "scale": scale}


def from_wire(value: Any, bits: Bits) -> Any:
    """The array in float64, whatever shape it is said to have; `MessageRefused` if it is none."""
    if isinstance(bits, np.ndarray):
        return column_form.from_wire(value, bits)
    if bits == EXACT:
        return value
    if bits == 32:
        if not isinstance(value, np.ndarray) or value.dtype != np.float32:
            _refuse("is not in 32 bits")
        return value.astype(np.float64)
    names = {"codes", "scale", "shape"} if bits == 4 else {"codes", "scale"}
    if not isinstance(value, dict) or value.keys() != names:
        _refuse(f"is not in {bits} bits")
    codes, scale = value["codes"], value["scale"]
    if not isinstance(codes, np.ndarray) or codes.dtype != _CODES.get(bits, np.uint8):
        _refuse(f"has no codes of {bits} bits")
    if bits == 4:
        codes = _unpaired(codes, value["shape"])
    fits = isinstance(scale, np.ndarray) and scale.dtype == np.float64 and codes.ndim >= 1
    if not fits or scale.shape != codes.shape[1:]:
        _refuse("has no scale for each column")
    if codes.size and int(np.abs(codes.astype(np.int32)).max()) > _largest(bits):
        _refuse("has a code beyond the largest")
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused later
        return codes * scale


def rounded(array: Any, bits: int) -> Doubles:
    """What a receiver gets of an array; the same again if it was rounded so before.

    >>> np.round(rounded(np.array([[1.0, -0.5], [0.25, 3.0]]), 8), 4)
    array([[ 1.    , -0.4961],
           [ 0.252 ,  3.    ]])
    """
    return np.asarray(from_wire(to_wire(np.asarray(array, np.float64), bits), bits))


def half_steps(array: Any, bits: Bits) -> Doubles:
    """For each column of what a receiver got, how far a number of it may be off."""
    if isinstance(bits, np.ndarray):
        return column_form.half_steps(array, bits)
    largest = np.abs(np.asarray(array, np.float64)).max(axis=0, initial=0.0)
    if bits == EXACT:
        return np.zeros_like(largest)
    return np.asarray(largest * 2.0**-24 if bits == 32 else largest / (2 * _largest(bits)))


def is_exact(bits: Bits) -> bool:
    """Whether an array travels as it is."""
    return column_form.is_exact(bits) if isinstance(bits, np.ndarray) else bits == EXACT


def _largest(bits: int) -> int:
    return int(2 ** (bits - 1) - 1)


def _as_single(array: Any) -> Any:
    with np.errstate(over="ignore"):
        single = np.asarray(array, np.float32)
    if not np.isfinite(single).all():
        raise MessageRefused("a number is too large for float32; take 16 bits, which are scaled")
    return single


def _scale(array: Any, bits: int) -> Doubles:
    """Such that the largest of a column is the largest code; columns of zeros have any."""
    largest = np.abs(array).max(axis=0, initial=0.0)
    mantissa, exponent = np.frexp(largest / _largest(bits))
    up = np.ceil(np.ldexp(mantissa, _SCALE_BITS))
    scale = np.ldexp(up, exponent - _SCALE_BITS)
    return np.asarray(np.where(largest > 0, np.maximum(scale, np.finfo(float).tiny), 1.0))


def _codes(array: Any, scale: Doubles, bits: int) -> NDArray[np.int64]:
    codes = np.rint(np.asarray(array, np.float64) / scale)
    return np.clip(codes, -_largest(bits), _largest(bits)).astype(np.int64)


def _paired(codes: NDArray[np.int64]) -> NDArray[np.uint8]:
    flat = (codes.ravel() + _HALF).astype(np.uint8)
    even = np.append(flat, np.uint8(_HALF)) if flat.size % 2 else flat
    return np.asarray(even[0::2] | (even[1::2] << 4), np.uint8)


def _unpaired(pairs: Any, shape: Any) -> NDArray[np.int64]:
    is_shape = isinstance(shape, list) and 1 <= len(shape) <= 2
    if not (is_shape and all(type(size) is int and size >= 0 for size in shape)):
        _refuse("has no shape")
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    if pairs.ndim != 1 or len(pairs) != (count + 1) // 2:
        _refuse("has not as many codes as its shape says")
    flat = np.empty(2 * len(pairs), np.int64)
    flat[0::2], flat[1::2] = pairs & 15, pairs >> 4
    return np.asarray(flat[:count].reshape(shape) - _HALF)


def _refuse(reason: str) -> NoReturn:
    raise MessageRefused(f"an array {reason}")
