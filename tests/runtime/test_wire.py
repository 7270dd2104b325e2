from __future__ import annotations

import ast
import json
import pickle
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

import eigenmesh
from eigenmesh.errors import MessageRefused
from eigenmesh.runtime import wire

DTYPES = "b1 u1 i1 u2 u4 u8 i2 i4 i8 f4 f8 c8 c16".split()
SHAPES = [(), (0,), (1,), (7,), (0, 3), (3, 0), (2, 3), (2, 1, 3), (1, 2, 3, 4)]


def same(one, other):
    """Equal trees, dtypes and shapes included."""
    if isinstance(one, np.ndarray):
        return (
            isinstance(other, np.ndarray)
            and one.dtype.newbyteorder("=") == other.dtype.newbyteorder("=")
            and one.shape == other.shape
            and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def sealed(header: bytes, buffers: bytes = b"") -> bytes:
    """A message around a header of our own making, its checksum right."""
    body = header + buffers
    return struct.pack("<4sII", wire.MAGIC, zlib.crc32(body), len(header)) + body


def an_array(dtype, shape, seed=0):
    bits = np.random.default_rng(seed).integers(0, 100, size=shape)
    return np.asarray(bits).astype(dtype)


# Round trips.


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape_comes_back(dtype, shape):
    array = an_array(dtype, shape)
    assert same(wire.loads(wire.dumps(array)), array)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d[1:] != "1"])
def test_big_endian_arrays_come_back_with_the_same_values(dtype):
    array = an_array(dtype, (2, 3))
    found = wire.loads(wire.dumps(array.astype(array.dtype.newbyteorder(">"))))
    assert same(found, array)
    assert found.dtype.isnative == array.dtype.isnative


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[:, ::2],
        lambda a: a[::-1],
        np.asfortranarray,
        lambda a: np.broadcast_to(a[0], (4, 6)),
    ],
)
def test_arrays_that_are_not_contiguous_come_back(view):
    array = view(np.arange(24.0).reshape(4, 6))
    assert same(wire.loads(wire.dumps({"x": array}))["x"], np.array(array))


def test_float32_stays_float32_and_costs_half():
    wide = np.linspace(0, 1, 1000)
    narrow = wide.astype(np.float32)
    assert wire.loads(wire.dumps(narrow)).dtype == np.float32
    assert len(wire.dumps(wide)) - len(wire.dumps(narrow)) == 4 * 1000


def test_nan_and_infinite_entries_travel_in_arrays_bit_by_bit():
    array = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])
    assert wire.loads(wire.dumps(array)).tobytes() == array.tobytes()


def test_decoded_arrays_are_aligned_views_that_cannot_be_written():
    data = wire.dumps({"a": np.ones(3, np.uint8), "b": np.ones(5), "text": "x" * 7})
    found = wire.loads(data)["b"]
    assert not found.flags.writeable
    assert not found.flags.owndata
    offset = found.__array_interface__["data"][0] - np.frombuffer(data, np.uint8).ctypes.data
    assert offset % 16 == 0
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 2.0


def test_reads_from_a_memoryview():
    tree = {"x": np.arange(4), "n": 3}
    assert same(wire.loads(memoryview(wire.dumps(tree))), tree)


@pytest.mark.parametrize(
    "number", [0, -(2**63), 2**63 - 1, 1.5, -0.0, 5e-324, 1.7976931348623157e308, True, None, ""]
)
def test_scalars_come_back_with_their_type(number):
    found = wire.loads(wire.dumps([number]))[0]
    assert same(found, number)
    assert repr(found) == repr(number)


ALIKE = [
    0,
    False,
    0.0,
    -0.0,
    None,
    "",
    "0",
    1,
    True,
    1.0,
    np.zeros(0),
    np.zeros((0, 1)),
    np.int8(0),
]


@pytest.mark.parametrize("seed", range(5))
def test_trees_that_look_alike_do_not_share_a_header(seed):
    rng = np.random.default_rng(seed)
    trees = [{"a": ALIKE[i], "b": ALIKE[j]} for i, j in rng.integers(len(ALIKE), size=(200, 2))]
    for tree in trees:
        data = wire.dumps(tree)
        expected = {
            key: getattr(value, "tolist", lambda v=value: v)() for key, value in tree.items()
        }
        arrays = {key: value for key, value in tree.items() if isinstance(value, np.ndarray)}
        assert same(wire.loads(data), expected | arrays)
        # As a tree of more levels has it, of which no header is remembered.
        assert same(wire.loads(wire.dumps({"tree": tree, "list": []}))["tree"], wire.loads(data))


def test_headers_that_are_remembered_are_few_and_short():
    for n in range(3 * wire._REMEMBERED):
        wire.dumps({"n": n, "word": "x" * (n % 7 * 1000)})
    assert len(wire._heads) <= wire._REMEMBERED
    assert all(len(head.text) <= wire._MEMORABLE for head in wire._heads.values())


def test_numpy_scalars_travel_as_plain_ones():
    tree = [np.float64(0.1), np.float32(0.5), np.int64(3), np.bool_(True), np.str_("a")]
    assert same(wire.loads(wire.dumps(tree)), [0.1, 0.5, 3, True, "a"])


arrays = st_np.arrays(
    st.sampled_from([np.dtype(d) for d in DTYPES]),
    st_np.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | arrays
)
keys = st.text(max_size=5).filter(lambda key: key != "$")
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(trees)
def test_every_tree_comes_back(tree):
    assert same(wire.loads(wire.dumps(tree)), tree)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data):
    for candidate in (data, wire.MAGIC + data, sealed(data)):
        with pytest.raises(MessageRefused):
            wire.loads(candidate)


# What cannot travel.


class Unpickled:
    """Would say so if anybody unpickled it."""

    def __reduce__(self):
        return (pytest.fail, ("something was unpickled",))


@pytest.mark.parametrize(
    "thing",
    [
        np.array([Unpickled()], dtype=object),
        np.array(["text"]),
        np.array([b"bytes"]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([(1, 2.0)], dtype="i4,f8"),
        np.zeros(3, np.float16),
        np.zeros(3, np.longdouble),
        np.zeros((1,) * 5),
        Unpickled(),
        b"bytes",
        {1, 2},
        1j,
        np.complex128(1j),
        len,
        {1: "a"},
        {"$": 0},
        {"a": [Unpickled()]},
    ],
    ids=lambda thing: f"{type(thing).__name__} {getattr(thing, 'dtype', '')}",
)
def test_what_is_no_tree_of_numbers_is_refused_by_the_sender(thing):
    with pytest.raises(TypeError):
        wire.dumps(thing)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_scalars_that_are_not_finite_do_not_travel(value):
    with pytest.raises(ValueError, match="finite number is expected"):
        wire.dumps({"x": value})


def test_a_tree_as_deep_as_no_message_is_refused_by_either_side():
    deep = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(TypeError, match="levels"):
        wire.dumps(deep)
    for depth in (40, 450, 900, 5000, 100_000):
        header = b'{"root":' + b"[" * depth + b"]" * depth + b',"scalars":0,"arrays":[]}'
        with pytest.raises(MessageRefused):
            wire.loads(sealed(header))


def test_pickles_are_refused():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(MessageRefused):
            wire.loads(pickle.dumps({"x": Unpickled()}, protocol))


def test_no_module_of_the_package_imports_a_pickler():
    picklers = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    package = Path(eigenmesh.__file__).parent
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not picklers & {name.split(".")[0] for name in names}, file.name
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), file.name
                assert node.value.value is False, file.name


# Structure: every part of the header is checked even if the checksum is right.


REF = {"$": 0}


def header(root, listing, scalars=0):
    return json.dumps({"root": root, "arrays": listing, "scalars": scalars}).encode()


def padded(text, buffers):
    return sealed(text, bytes(-(12 + len(text)) % 16) + buffers)


def test_headers_that_fit_are_read():
    assert wire.loads(padded(header([1, "a", None], []), b"")) == [1, "a", None]
    assert wire.loads(padded(header({"x": REF}, [["<f8", [0]]]), b""))["x"].shape == (0,)
    assert wire.loads(padded(header([{"$": -1}], [], 1), struct.pack("<d", 2.5))) == [2.5]


@pytest.mark.parametrize(
    ("root", "scalars", "numbers"),
    [
        ({"$": -1}, 0, []),
        ({"$": -2}, 1, [1.0]),
        ([{"$": -1}, {"$": -1}], 1, [1.0]),
        ([{"$": -1}, {"$": -1}], 2, [1.0, 2.0]),
        ({"$": -1}, 1, []),
        ({"$": -1}, 1, [1.0, 2.0]),
        ({"$": -1}, 1, [float("nan")]),
        ({"$": -1}, 1, [float("inf")]),
        ({"$": -1}, True, [1.0]),
        ({"$": -1}, 1.0, [1.0]),
        ({"$": -1}, "1", [1.0]),
        ({"$": -1}, None, [1.0]),
        (None, -1, []),
        (None, False, []),
        (None, 0.0, []),
        (None, 1, [1.0]),
        ({"$": -1}, 2**39, [1.0]),
        (1.5, 0, []),
        ([0.0], 0, []),
    ],
)
def test_numbers_that_do_not_fit_their_header_are_refused(root, scalars, numbers):
    with pytest.raises(MessageRefused):
        wire.loads(padded(header(root, [], scalars), np.array(numbers, "<f8").tobytes()))


def test_the_length_does_not_hang_on_the_digits_of_numbers():
    lengths = {len(wire.dumps({"gamma": number})) for number in (0.5, 1 / 3, -1e-300, 7.0)}
    assert len(lengths) == 1


@pytest.mark.parametrize(
    ("root", "listing", "buffers"),
    [
        (REF, [["|O", [1]]], bytes(16)),
        (REF, [["<U4", [1]]], bytes(16)),
        (REF, [["<M8[ns]", [1]]], bytes(16)),
        (REF, [[">f8", [1]]], bytes(16)),
        (REF, [["<f2", [1]]], bytes(16)),
        (REF, [["<f8", [-1]]], b""),
        (REF, [["<f8", [True]]], bytes(16)),
        (REF, [["<f8", [1.0]]], bytes(16)),
        (REF, [["<f8", "3"]], bytes(24)),
        (REF, [["<f8", [1] * 5]], bytes(16)),
        (REF, [["<f8", [2**62]]], bytes(16)),
        (REF, [["<f8", [0, 2**39, 2**39]]], b""),
        (REF, [["<f8", [0, 2**62]]], b""),
        (REF, [["<f8", [2**31, 2**31, 4]]], bytes(16)),
        (REF, [["<f8"]], bytes(16)),
        (REF, [7], bytes(16)),
        (REF, {"0": ["<f8", [1]]}, bytes(16)),
        (REF, [["<f8", [1]]], b""),
        (REF, [["<f8", [1]]], bytes(4096)),
        ({"$": 1}, [["<f8", [0]]], b""),
        ({"$": -1}, [["<f8", [0]]], b""),
        ({"$": True}, [["<f8", [0]], ["<f8", [0]]], b""),
        ({"$": "0"}, [["<f8", [0]]], b""),
        ({"$": 0, "x": 1}, [["<f8", [0]]], b""),
        ([REF, REF], [["<f8", [0]]], b""),
        (None, [["<f8", [0]]], b""),
        (2**63, [], b""),
        (-(2**63) - 1, [], b""),
        (10**400, [], b""),
        (float("nan"), [], b""),
        (float("inf"), [], b""),
    ],
)
def test_header_that_does_not_fit_is_refused(root, listing, buffers):
    with pytest.raises(MessageRefused):
        wire.loads(padded(header(root, listing), buffers))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b'{"root":1}',
        b'{"root":1,"scalars":0,"arrays":[],"class":"os.system"}',
        b'{"root":1,"root":2,"scalars":0,"arrays":[]}',
        b'{"root":{"a":1,"a":2},"scalars":0,"arrays":[]}',
        b'{"root":1e999,"scalars":0,"arrays":[]}',
        b'{"root":"\xff","scalars":0,"arrays":[]}',
        b'\xef\xbb\xbf{"root":1,"scalars":0,"arrays":[]}',
        b'{"root":1,"scalars":0,"arrays":[]}trailing',
    ],
)
def test_header_that_is_not_our_json_is_refused(text):
    with pytest.raises(MessageRefused):
        wire.loads(sealed(text))


# Fuzzing.


SAMPLES = [
    wire.dumps({"op": "step", "run": "ab12", "turn": 3, "message": np.arange(20, dtype=np.uint8)}),
    wire.dumps({"x": np.arange(6.0).reshape(2, 3), "n": 3, "y": [np.zeros(0), None, "é", 1.5]}),
    wire.dumps([]),
    wire.dumps({"a": {"b": {"c": [np.ones((2, 2), np.float32), True]}}}),
]


def decoded_or_refused(data):
    try:
        wire.loads(data)
    except MessageRefused:
        return False
    return True


def flipped(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut(rng, data):
    start = rng.choice([0, 0, rng.randrange(len(data))])
    return data[start : rng.randrange(start, len(data))]


def lengthened(rng, data):
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randint(1, 20)) + data[at:]


def test_damaged_messages_are_always_refused():
    rng = random.Random(1)
    for n in range(10_000):
        data = rng.choice(SAMPLES)
        damaged = rng.choice([flipped, cut, lengthened])(rng, data)
        assert damaged == data or not decoded_or_refused(damaged), n


ODD = [
    None, True, -1, 0, 1, 2**31, 2**40, 2**62, 1.5, 1e300, "", "$", "<f8", "|O", "\ud800",
    [], [0], [[]], {}, {"$": 0}, {"$": 99}, {"$": [0]}, ["<f8", [3]], ["<f8", [0, 2**39, 2**39]],
]  # fmt: skip


def edited(rng, node):
    """`node` with one thing in it replaced, dropped, doubled or renamed."""
    if isinstance(node, dict) and node and rng.random() < 0.85:
        key = rng.choice(sorted(node))
        act = rng.randrange(4)
        if act == 0:
            return {k: v for k, v in node.items() if k != key}
        if act == 1:
            return {(rng.choice(["$", "x", ""]) if k == key else k): v for k, v in node.items()}
        return {k: edited(rng, v) if k == key else v for k, v in node.items()}
    if isinstance(node, list) and node and rng.random() < 0.85:
        i = rng.randrange(len(node))
        act = rng.randrange(4)
        middle = {0: [], 1: [node[i], node[i]]}.get(act, [edited(rng, node[i])])
        return node[:i] + middle + node[i + 1 :]
    return rng.choice(ODD)


def with_edited_header(rng, data):
    length = struct.unpack_from("<4sII", data)[2]
    tree = json.loads(data[12 : 12 + length])
    for _ in range(rng.randint(1, 2)):
        tree = edited(rng, tree)
    text = json.dumps(tree).encode()
    buffers = data[12 + length :].lstrip(b"\0") if rng.random() < 0.2 else data[12 + length :]
    return sealed(text, rng.choice([b"", bytes(-(12 + len(text)) % 16)]) + buffers)


def test_edited_headers_with_the_right_checksum_decode_or_are_refused():
    rng = random.Random(2)
    n_decoded = sum(
        decoded_or_refused(with_edited_header(rng, rng.choice(SAMPLES))) for _ in range(10_000)
    )
    assert 0 < n_decoded < 5000  # the edits are neither all harmless nor all fatal


def test_damaged_headers_with_the_right_checksum_decode_or_are_refused():
    rng = random.Random(3)
    for _ in range(10_000):
        data = rng.choice(SAMPLES)
        damaged = rng.choice([flipped, cut, lengthened])(rng, data[12:])
        length = min(struct.unpack_from("<4sII", data)[2] + rng.randint(-2, 2), len(damaged))
        prefix = struct.pack("<4sII", wire.MAGIC, zlib.crc32(damaged), max(0, length))
        decoded_or_refused(prefix + damaged)
