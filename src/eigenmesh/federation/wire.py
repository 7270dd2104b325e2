"""The one byte form of everything that travels or is saved: a JSON tree and raw numeric buffers.

A *tree* is made of dicts with string keys, lists, strings, finite numbers, booleans, None and
numpy arrays. Nothing in the form names a class, and nothing is ever unpickled.

::

    b"EMW1" | checksum u32 | header length u32 | header JSON | padding | buffer | padding | ...

Inside the JSON an array stands as ``{"$": k}``; ``"arrays"`` lists dtype and shape of buffer k.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from typing import Any, NoReturn

import numpy as np

from eigenmesh.errors import MessageRefused

Tree = Any  # dict[str, Tree] | list[Tree] | str | int | float | bool | None | ndarray

MAGIC = b"EMW1"
_PREFIX = struct.Struct("<4sII")
_ALIGN = 16  # buffers start on 16 bytes, so that decoded arrays go to BLAS without a copy
_MAX_HEADER = 1 << 26
_MAX_NDIM = 4
_MAX_DEPTH = 32  # deeper trees than ours would exhaust the stack of whoever reads them
_DTYPES = {
    name: np.dtype(name)  # kinds b, i, u, f, c
    for name in "|b1 |u1 |i1 <u2 <u4 <u8 <i2 <i4 <i8 <f4 <f8 <c8 <c16".split()
}
_PLAIN = frozenset({str, int, float, bool, type(None)})
_MAX_INT = 2**63


def dumps(tree: Tree) -> bytes:
    """Encode a tree.

    >>> loads(dumps({"x": np.arange(3.0), "n": 3}))
    {'x': array([0., 1., 2.]), 'n': 3}
    """
    arrays: list[np.ndarray[Any, Any]] = []
    root = _without_arrays(tree, arrays)
    listing = [[a.dtype.str, list(a.shape)] for a in arrays]
    header = _ENCODER.encode({"root": root, "arrays": listing}).encode()
    chunks = [header]
    position = _PREFIX.size + len(header)
    for array in arrays:
        padding = -position % _ALIGN
        chunks += [bytes(padding), array.tobytes()]
        position += padding + array.nbytes
    body = b"".join(chunks)
    return _PREFIX.pack(MAGIC, zlib.crc32(body), len(header)) + body


def loads(data: bytes | memoryview) -> Tree:
    """Decode a tree; arrays are read-only views of `data`. Raises `MessageRefused`."""
    header, body_start = _read_header(data)
    arrays = _read_arrays(data, header["arrays"], body_start)
    used: list[int] = []
    tree = _with_arrays(header["root"], arrays, used)
    if sorted(used) != list(range(len(arrays))):
        _refuse("its buffers and its header do not match")
    return tree


def _without_arrays(node: Tree, arrays: list[np.ndarray[Any, Any]], depth: int = 0) -> Tree:
    """The JSON skeleton of `node`; its arrays are appended to `arrays`."""
    if depth > _MAX_DEPTH:
        raise TypeError(f"a tree of more than {_MAX_DEPTH} levels cannot travel")
    if type(node) in _PLAIN:  # most nodes are
        return node
    if isinstance(node, np.ndarray):
        arrays.append(_portable(node))
        return {"$": len(arrays) - 1}
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, str) or key == "$":
                raise TypeError("keys of a tree are strings other than '$'")
        return {key: _without_arrays(value, arrays, depth + 1) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_without_arrays(value, arrays, depth + 1) for value in node]
    if isinstance(node, np.generic):
        return node.item()
    if isinstance(node, str | int | float):
        return node
    raise TypeError(f"{type(node).__name__} cannot travel; use arrays, numbers and strings")


def _portable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Little-endian, contiguous, of a dtype that the form knows."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if little.dtype.str not in _DTYPES or little.ndim > _MAX_NDIM:
        raise TypeError(f"an array of dtype {array.dtype} and {array.ndim} axes cannot travel")
    return np.ascontiguousarray(little).reshape(little.shape)


def _read_header(data: bytes | memoryview) -> tuple[dict[str, Any], int]:
    if len(data) < _PREFIX.size:
        _refuse(f"it has {len(data)} bytes, fewer than a header needs")
    magic, checksum, length = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        _refuse("it does not start with the mark of the wire form")
    if length > min(_MAX_HEADER, len(data) - _PREFIX.size):
        _refuse(f"its header claims {length} bytes")
    body = memoryview(data)[_PREFIX.size :]
    if zlib.crc32(body) != checksum:
        _refuse("its checksum is wrong; it was damaged on the way")
    header = _strict_json(bytes(body[:length]))
    if not (isinstance(header, dict) and header.keys() == {"root", "arrays"}):
        _refuse("its header lacks 'root' or 'arrays'")
    return header, _PREFIX.size + length


def _strict_json(text: bytes) -> Any:
    try:
        return _DECODER.decode(text.decode())
    except (ValueError, RecursionError) as error:
        if isinstance(error, MessageRefused):
            raise
        _refuse("its header is not valid JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        _refuse("a key of its header stands twice")
    return found


def _read_arrays(data: bytes | memoryview, listing: Any, position: int) -> list[Any]:
    if not isinstance(listing, list):
        _refuse("its list of arrays is malformed")
    arrays = []
    for item in listing:
        dtype, shape = _checked_listing(item)
        position += -position % _ALIGN
        count = math.prod(shape)
        if count * dtype.itemsize > len(data) - position:
            _refuse("an array is longer than the message")
        arrays.append(_buffer(data, dtype, count, position).reshape(shape))
        position += count * dtype.itemsize
    if position != len(data):
        _refuse(f"it has {len(data) - position} bytes too many")
    return arrays


def _buffer(data: Any, dtype: np.dtype[Any], count: int, offset: int) -> np.ndarray[Any, Any]:
    if not count:  # numpy refuses an offset at the very end
        return np.empty(0, dtype)
    array = np.frombuffer(data, dtype, count, offset)
    array.flags.writeable = False
    return array


def _checked_listing(item: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    match item:
        case [str(name), list(shape)] if name in _DTYPES and len(shape) <= _MAX_NDIM:
            if all(type(size) is int and size >= 0 for size in shape) and _fits(shape):
                return _DTYPES[name], tuple(shape)
    return _refuse("an array has a dtype or shape that is not allowed")


def _fits(shape: list[int]) -> bool:
    """Whether numpy can address the shape; an empty array's other axes cost nothing to claim."""
    return math.prod(size or 1 for size in shape) < 2**40


def _with_arrays(node: Tree, arrays: list[Any], used: list[int], depth: int = 0) -> Tree:
    if depth > _MAX_DEPTH:
        _refuse(f"it has more than {_MAX_DEPTH} levels")
    if isinstance(node, dict):
        if "$" in node:
            return arrays[_array_number(node, arrays, used)]
        return {key: _with_arrays(value, arrays, used, depth + 1) for key, value in node.items()}
    if isinstance(node, list):
        return [_with_arrays(value, arrays, used, depth + 1) for value in node]
    if type(node) is int and not -_MAX_INT <= node < _MAX_INT:
        _refuse("an integer exceeds 64 bits")
    if type(node) is float and not math.isfinite(node):
        _refuse("a number is not finite")
    return node


def _array_number(node: dict[str, Any], arrays: list[Any], used: list[int]) -> int:
    number = node["$"]
    if len(node) != 1 or type(number) is not int or not 0 <= number < len(arrays):
        _refuse("it refers to an array that is not there")
    used.append(number)
    return number


def _refuse(reason: str) -> NoReturn:
    raise MessageRefused(f"the message is malformed: {reason}")


# Built once: json.dumps and json.loads would make them anew for every message.
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_constant=lambda name: _refuse(f"it holds {name}"),
)
