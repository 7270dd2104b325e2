"""The one byte form of everything that travels or is saved: a JSON tree and raw numeric buffers.

A *tree* is made of dicts with string keys, lists, strings, finite numbers, booleans, None and
numpy arrays. Nothing in the form names a class, and nothing is ever unpickled.

::

    b"EMW1" | checksum u32 | header length u32 | header JSON | padding | buffer | padding | ...

Inside the JSON an array stands as ``{"$": k}``; ``"arrays"`` lists dtype and shape of buffer k. A
number with a point stands as ``{"$": -k}``, k from 1, and is the k-th of ``"scalars"`` float64
numbers in a last buffer: as a decimal its length would hang on its last digit, and so would the
bytes that are counted.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

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
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_SHORT = frozenset({str, bool, type(None)})
_PLAIN = _SHORT | {int}
_MAX_INT = 2**63
_REMEMBERED, _MEMORABLE = 512, 1024  # headers that are remembered as read or written; the longest


def dumps(tree: Tree) -> bytes:
    """Encode a tree.

    >>> loads(dumps({"x": np.arange(3.0), "n": 3}))
    {'x': array([0., 1., 2.]), 'n': 3}
    """
    buffers = _Buffers([], [])
    arrays: list[Any] = buffers.arrays
    form = _form(tree, buffers)
    head = _written(tree, buffers) if form is None else _remembered_head(form)
    if buffers.scalars:
        arrays.append(np.array(buffers.scalars, "<f8"))
    chunks: list[Any] = [b"", head.text]
    checksum = head.checksum
    for pad, array in zip(head.pads, arrays, strict=True):
        if pad:
            chunks.append(pad)
            checksum = zlib.crc32(pad, checksum)
        chunks.append(array)
        checksum = zlib.crc32(array, checksum)
    chunks[0] = _PREFIX.pack(MAGIC, checksum, len(head.text))
    return b"".join(chunks)


def loads(data: bytes | memoryview) -> Tree:
    """Decode a tree; arrays are read-only views of `data`. Raises `MessageRefused`."""
    text = _checked_header(data)
    plan = _remembered_plan(text) if len(text) <= _MEMORABLE else _plan(text)
    if plan.end != len(data):
        _refuse(f"it has {len(data)} bytes where its header speaks of {plan.end}")
    arrays = [_buffer(data, place) for place in plan.places]
    scalars: list[float] = []
    if plan.n_scalars:
        scalars = arrays.pop().tolist()
        if not all(map(math.isfinite, scalars)):
            _refuse("a number is not finite")
    if plan.references is None:
        return _filled(plan.root, _Buffers(arrays, scalars))
    tree = plan.root.copy()
    for key, k in plan.references:
        tree[key] = arrays[k] if k >= 0 else scalars[-k - 1]
    return tree


class _Buffers(NamedTuple):
    """What a skeleton refers to."""

    arrays: list[np.ndarray[Any, Any]]
    scalars: list[float]


class _Head(NamedTuple):
    """What stands before the buffers and between them."""

    text: bytes  # the header
    checksum: int  # of it
    pads: tuple[bytes, ...]  # before each buffer


def _head(root: Tree, listing: Sequence[Any], n_scalars: int) -> _Head:
    header = {"root": root, "arrays": listing, "scalars": n_scalars}
    text = _ENCODER.encode(header).encode()
    end, pads = _PREFIX.size + len(text), []
    for name, shape in [*listing, *([("<f8", (n_scalars,))] if n_scalars else [])]:
        pads.append(_ZEROS[-end % _ALIGN])
        end += -end % _ALIGN + math.prod(shape) * _DTYPES[name].itemsize
    return _Head(text, zlib.crc32(text), tuple(pads))


def _written(tree: Tree, buffers: _Buffers) -> _Head:
    """The head of any tree, whose arrays and floats are put into `buffers`."""
    root = _skeleton(tree, buffers)
    listing = [(array.dtype.str, array.shape) for array in buffers.arrays]
    return _head(root, listing, len(buffers.scalars))


# Most messages are one dict of arrays and numbers, and of many that differ in their numbers alone
# the header is written once.

_Form = tuple[tuple[str, Any, Any], ...]  # of each item its key, and dtype and shape or its value


def _form(tree: Tree, buffers: _Buffers) -> _Form | None:
    """All of a tree but its numbers, which are put into `buffers`; None of one of more levels."""
    if type(tree) is not dict:
        return None
    form: list[tuple[str, Any, Any]] = []
    for key, value in tree.items():
        kind = type(value)
        if kind is np.ndarray:
            array = _portable(value)
            buffers.arrays.append(array)
            form.append((key, _NAMES[array.dtype], array.shape))
        elif kind is float:
            _scalar(value, buffers.scalars)
            form.append((key, float, None))
        elif kind in _PLAIN:
            form.append((key, kind, value))
        else:
            buffers.arrays.clear()
            buffers.scalars.clear()
            return None
    return tuple(form)


_heads: dict[_Form, _Head] = {}


def _remembered_head(form: _Form) -> _Head:
    head = _heads.get(form)
    if head is None:
        head = _head_of(form)
        if len(head.text) <= _MEMORABLE:
            if len(_heads) >= _REMEMBERED:
                _heads.clear()
            _heads[form] = head
    return head


def _head_of(form: _Form) -> _Head:
    root: dict[str, Any] = {}
    listing: list[Any] = []
    n_scalars = 0
    for key, kind, value in form:
        if type(kind) is str:
            root[key] = {"$": len(listing)}
            listing.append((kind, value))
        elif kind is float:
            n_scalars += 1
            root[key] = {"$": -n_scalars}
        else:
            root[key] = value
    _check_keys(root)
    return _head(root, listing, n_scalars)


def _skeleton(node: Tree, buffers: _Buffers, depth: int = 0) -> Tree:
    """`node` as JSON without arrays and floats, which are put into `buffers`."""
    if depth > _MAX_DEPTH:
        raise TypeError(f"a tree of more than {_MAX_DEPTH} levels cannot travel")
    if isinstance(node, np.generic):
        node = node.item()
    if type(node) in _PLAIN:  # most nodes are
        return node
    if isinstance(node, float):
        return _scalar(float(node), buffers.scalars)
    if isinstance(node, np.ndarray):
        buffers.arrays.append(_portable(node))
        return {"$": len(buffers.arrays) - 1}
    if isinstance(node, dict):
        _check_keys(node)
        return {
            key: value if type(value) in _PLAIN else _skeleton(value, buffers, depth + 1)
            for key, value in node.items()
        }
    if isinstance(node, list | tuple):
        return [_skeleton(value, buffers, depth + 1) for value in node]
    if isinstance(node, str | int):
        return node
    raise TypeError(f"{type(node).__name__} cannot travel; use arrays, numbers and strings")


def _scalar(number: float, scalars: list[float]) -> dict[str, int]:
    if not math.isfinite(number):
        raise ValueError(f"{number} cannot travel as a scalar; a finite number is expected")
    scalars.append(number)
    return {"$": -len(scalars)}


def _check_keys(node: dict[Any, Tree]) -> None:
    for key in node:
        if not isinstance(key, str) or key == "$":
            raise TypeError("keys of a tree are strings other than '$'")


def _portable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Little-endian, contiguous, of a dtype that the form knows."""
    if array.dtype not in _NAMES:
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype not in _NAMES or array.ndim > _MAX_NDIM:
        raise TypeError(f"an array of dtype {array.dtype} and {array.ndim} axes cannot travel")
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def copied(node: Tree) -> Tree:
    """A tree with arrays of its own; refuses what cannot travel, as `dumps` does."""
    if type(node) in _PLAIN or type(node) is float:
        return node
    if isinstance(node, np.ndarray):
        return _portable(node).copy()
    if isinstance(node, dict):
        _check_keys(node)
        return {key: copied(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [copied(value) for value in node]
    node = node.item() if isinstance(node, np.generic) else node
    return node if isinstance(node, float) else _skeleton(node, _Buffers([], []))


# Reading. What a header says is worked out once for all messages that have the very same one, as
# those of a broadcast do, and those of successive rounds.


class _Place(NamedTuple):
    """Where the buffer of an array is."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    is_empty: bool


class _Plan(NamedTuple):
    """A header that is in order: the JSON skeleton, the buffers, and the length of the message."""

    root: Tree
    places: tuple[_Place, ...]  # of the arrays, then of the scalars if there are any
    n_scalars: int
    end: int
    references: tuple[tuple[str, int], ...] | None  # of a root of one level, what is a buffer's


def _checked_header(data: bytes | memoryview) -> bytes:
    """The text of the header of a message whose checksum is right."""
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
    return bytes(body[:length])


def _plan(text: bytes) -> _Plan:
    """What the header says; refuses one that is not in order."""
    header = _strict_json(text)
    if not (isinstance(header, dict) and header.keys() == {"root", "arrays", "scalars"}):
        _refuse("its header lacks 'root', 'arrays' or 'scalars'")
    if not isinstance(header["arrays"], list):
        _refuse("its list of arrays is malformed")
    n_arrays, n_scalars = len(header["arrays"]), header["scalars"]
    if type(n_scalars) is not int:
        _refuse("its number of scalars is malformed")
    places = []
    end = _PREFIX.size + len(text)
    for item in [*header["arrays"], *([["<f8", [n_scalars]]] if n_scalars else [])]:
        dtype, shape = _checked_listing(item)
        end += -end % _ALIGN
        count = math.prod(shape)
        places.append(_Place(dtype, shape, end, not count))
        end += count * dtype.itemsize
    used: list[int] = []
    _check_tree(header["root"], n_arrays, n_scalars, used)
    # Their number first: a list of all that a header may claim could exhaust the memory.
    if len(used) != n_scalars + n_arrays or sorted(used) != list(range(-n_scalars, n_arrays)):
        _refuse("its buffers and its header do not match")
    return _Plan(header["root"], tuple(places), n_scalars, end, _references(header["root"]))


def _references(root: Tree) -> tuple[tuple[str, int], ...] | None:
    """Keys and buffers of a checked root of one level; None of another."""
    if type(root) is not dict or "$" in root:
        return None
    items = {key: value for key, value in root.items() if type(value) not in _PLAIN}
    if not all(type(value) is dict and "$" in value for value in items.values()):
        return None
    return tuple((key, value["$"]) for key, value in items.items())


_remembered_plan = lru_cache(_REMEMBERED)(_plan)


def _strict_json(text: bytes) -> Any:
    try:
        return _DECODER.decode(text.decode())
    except (ValueError, RecursionError) as error:
        if isinstance(error, MessageRefused):
            raise
        _refuse("its header is not valid JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        _refuse("a key of its header stands twice")
    return tree


def _checked_listing(item: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    match item:
        case [str(name), list(shape)] if name in _DTYPES and len(shape) <= _MAX_NDIM:
            if all(type(size) is int and size >= 0 for size in shape) and _fits(shape):
                return _DTYPES[name], tuple(shape)
    return _refuse("an array has a dtype or shape that is not allowed")


def _fits(shape: list[int]) -> bool:
    """Whether numpy can address the shape; an empty array's other axes cost nothing to claim."""
    return math.prod(size or 1 for size in shape) < 2**40


def _check_tree(node: Tree, n_arrays: int, n_scalars: int, used: list[int], depth: int = 0) -> None:
    """Refuse what `dumps` would not have written; note what is referred to."""
    if depth > _MAX_DEPTH:
        _refuse(f"it has more than {_MAX_DEPTH} levels")
    if isinstance(node, dict) and "$" in node:
        number = node["$"]
        if len(node) != 1 or type(number) is not int or not -n_scalars <= number < n_arrays:
            _refuse("it refers to an array or a number that is not there")
        used.append(number)
    elif isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else node:
            if type(value) not in _SHORT:  # most values are names and flags
                _check_tree(value, n_arrays, n_scalars, used, depth + 1)
    elif type(node) is int and not -_MAX_INT <= node < _MAX_INT:
        _refuse("an integer exceeds 64 bits")
    elif type(node) is float:
        _refuse("a number with a point stands in its header")


def _buffer(data: Any, place: _Place) -> np.ndarray[Any, Any]:
    dtype, shape, offset, is_empty = place
    if is_empty:  # numpy refuses an offset at the very end
        return np.empty(shape, dtype)
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, data, offset)
    array.flags.writeable = False
    return array


def _filled(node: Tree, buffers: _Buffers) -> Tree:
    """The tree of a checked skeleton, in containers of its own."""
    if type(node) is dict:
        if "$" in node:
            k = node["$"]
            return buffers.arrays[k] if k >= 0 else buffers.scalars[-k - 1]
        return {
            key: value if type(value) in _PLAIN else _filled(value, buffers)
            for key, value in node.items()
        }
    if type(node) is list:
        return [_filled(value, buffers) for value in node]
    return node


def _refuse(reason: str) -> NoReturn:
    raise MessageRefused(f"the message is malformed: {reason}")


_ZEROS = [bytes(n) for n in range(_ALIGN)]
# Built once: json.dumps and json.loads would make them anew for every message.
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False)
_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_constant=lambda name: _refuse(f"it holds {name}"),
)
