"""Arrays whose columns travel in bits of their own: many for a column that matters, few for others.

The form of an array marked `Compact` where the field that says how many bits has a number a column,
1 to 22, or 64 for all of them. Values of b bits are odd multiples of a scale, −(2^b − 1) to 2^b − 1
times it, so that one bit is a sign. Codes are packed column by column, each to a whole byte. Scales
have 24 bits and are of float32: a code times its scale is exact, and rounding what was rounded
before changes nothing, as of the other forms.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import MessageRefused

Doubles = NDArray[np.float64]
Bits = NDArray[np.integer[Any]]

EXACT = 64
MOST_BITS = 22  # code times scale are 46 bits; with 24 the largest code might not be reached
SCALE_BYTES = 4
_SCALE_BITS = 24
# In few bits it is better to miss the largest numbers and have the others finer.
_COARSE = 6
_CLIPS = np.linspace(1.0, 0.1, 19)


def is_exact(bits: Bits) -> bool:
    """Whether all columns travel as they are."""
    return bool(np.all(bits == EXACT))


def code_bytes(n: int, bits: Bits) -> int:
    """Bytes of the codes of n rows.

    >>> code_bytes(10, np.array([12, 3, 1]))
    21
    """
    return int((-(-n * np.asarray(bits, np.int64) // 8)).sum())


def rounded(array: Any, bits: Bits) -> Doubles:
    """What a receiver gets, with the scales that err least; the same again if it was rounded so.

    >>> np.round(rounded(np.array([[1.0, -0.5], [0.25, 3.0], [-0.75, -3.0]]), np.array([2, 1])), 2)
    array([[ 0.85, -2.1 ],
           [ 0.28,  2.1 ],
           [-0.85, -2.1 ]])
    """
    A = np.array(array, np.float64)
    if is_exact(bits):
        return A
    for column, own_bits in zip(A.T, bits.tolist(), strict=True):
        column[:] = _rounded_column(column, own_bits)
    return A


def half_steps(array: Any, bits: Bits) -> Doubles:
    """For each column of what a receiver got, how far a number of it may be off, unless clipped."""
    largest = np.abs(np.asarray(array, np.float64)).max(axis=0, initial=0.0)
    return np.zeros_like(largest) if is_exact(bits) else largest / _largest(bits)


def to_wire(array: Any, bits: Bits) -> Any:
    """What travels; `bits` travel beside it."""
    if is_exact(bits):
        return array
    A = np.asarray(array, np.float64)
    scale = _scale(A, bits)
    parts = zip(A.T, scale.tolist(), bits.tolist(), strict=True)
    codes = [_packed(_codes(column, s, b), b) for column, s, b in parts]
    return {"rows": len(A), "scale": scale.astype(np.float32), "codes": np.concatenate(codes)}


def from_wire(value: Any, bits: Any) -> Any:
    """The array in float64; `MessageRefused` if it is none."""
    if not isinstance(bits, np.ndarray) or bits.dtype.kind not in "iu" or bits.ndim != 1:
        _refuse("has no number of bits for each column")
    bits = bits.astype(np.int64)
    if is_exact(bits):
        return value
    if not ((bits >= 1) & (bits <= MOST_BITS)).all():
        _refuse(f"has columns of other than 1 to {MOST_BITS} bits")
    if not isinstance(value, dict) or value.keys() != {"rows", "scale", "codes"}:
        _refuse("is not packed by columns")
    n, scale, codes = value["rows"], value["scale"], value["codes"]
    if not isinstance(scale, np.ndarray) or scale.dtype != np.float32 or scale.shape != bits.shape:
        _refuse("has no scale for each column")
    is_packed = isinstance(codes, np.ndarray) and codes.dtype == np.uint8 and codes.ndim == 1
    if type(n) is not int or n < 1 or not is_packed or len(codes) != code_bytes(n, bits):
        _refuse("has not as many codes as its columns have bits")
    ends = np.cumsum(-(-n * bits // 8))[:-1]
    A = np.empty((n, len(bits)))
    parts = zip(np.split(codes, ends), scale.astype(np.float64), bits.tolist(), strict=True)
    for column, (packed, s, b) in zip(A.T, parts, strict=True):
        with np.errstate(invalid="ignore"):  # what is not finite is refused later
            column[:] = _values(_unpacked(packed, n, b), s, b)
    return A


def _largest(bits: Any) -> Any:
    return 2.0 ** np.asarray(bits) - 1


def _rounded_column(column: Doubles, bits: int) -> Doubles:
    best, least = column, np.inf
    for share in _CLIPS if bits <= _COARSE else (1.0,):
        most = share * np.abs(column).max(initial=0.0)
        clipped = np.clip(column, -most, most)[:, None]
        s = float(_scale(clipped, np.array([bits]))[0])
        values = _values(_codes(clipped[:, 0], s, bits), s, bits)
        error = float(np.square(values - column).sum())
        if error < least:
            best, least = values, error
    return best


def _scale(A: Doubles, bits: Bits) -> Doubles:
    """Such that the largest of a column is the largest code; 0 of columns that have nothing."""
    largest = np.abs(A).max(axis=0, initial=0.0)
    mantissa, exponent = np.frexp(largest / _largest(bits))
    scale = np.ldexp(np.ceil(np.ldexp(mantissa, _SCALE_BITS)), exponent - _SCALE_BITS)
    if not (scale <= np.finfo(np.float32).max).all():
        raise MessageRefused("a number is too large for few bits; rescale the columns")
    return np.asarray(np.where(scale >= np.finfo(np.float32).tiny, scale, 0.0), np.float64)


def _codes(column: Doubles, scale: float, bits: int) -> NDArray[np.int64]:
    """Of odd multiples 2c + 1 − 2^bits, which c it is."""
    half = 2 ** (bits - 1)
    places = np.floor(column / (2 * scale)) if scale else np.zeros_like(column)
    return np.asarray(np.clip(places, -half, half - 1) + half, np.int64)


def _values(codes: NDArray[np.int64], scale: float, bits: int) -> Doubles:
    return np.asarray((2 * codes + 1 - 2**bits) * scale, np.float64)


def _packed(codes: NDArray[np.int64], bits: int) -> NDArray[np.uint8]:
    digits = (codes[:, None] >> np.arange(bits - 1, -1, -1)) & 1
    return np.asarray(np.packbits(digits.astype(np.uint8)), np.uint8)


def _unpacked(packed: NDArray[np.uint8], n: int, bits: int) -> NDArray[np.int64]:
    digits = np.unpackbits(packed, count=n * bits).reshape(n, bits)
    return np.asarray(digits @ (1 << np.arange(bits - 1, -1, -1)), np.int64)


def _refuse(reason: str) -> NoReturn:
    raise MessageRefused(f"an array {reason}")
