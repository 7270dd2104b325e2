"""Arrays in fewer bits: how far off, always alike, and refused when they are not what they say."""

from typing import Annotated

import numpy as np
import pytest

from eigenmesh.errors import MessageRefused
from eigenmesh.runtime import compact, wire
from eigenmesh.runtime.message import (
    Compact,
    Floats,
    InBits,
    Limit,
    Message,
    Orthonormal,
    Shape,
    decode,
    encode,
    floats_by_kind,
)

FEWER = [bits for bits in compact.BITS if bits != compact.EXACT]


class Directions(Message, reveals="eigenvectors"):
    bits: Annotated[int, InBits]
    vectors: Annotated[Floats, Shape("n", "r"), Orthonormal, Compact("bits")]


def directions(bits, n=61, r=3, seed=0):
    V = np.linalg.qr(np.random.default_rng(seed).normal(size=(n, r)))[0]
    return Directions(bits=bits, vectors=V)


def drawn_columns(seed):
    """Columns of all sizes, one of zeros, an odd number of entries."""
    rng = np.random.default_rng(seed)
    A = rng.standard_t(2, size=(27, 5)) * 10.0 ** rng.integers(-200, 200, size=5)
    A[:, 2] = 0.0
    return A


@pytest.mark.parametrize("bits", [4, 8, 16])
@pytest.mark.parametrize("seed", range(5))
def test_numbers_are_off_by_half_a_step_of_their_column_at_most(bits, seed):
    A = drawn_columns(seed)
    B = compact.rounded(A, bits)
    steps = compact.half_steps(B, bits)
    assert np.all(np.abs(A - B) <= steps * (1 + 1e-6))
    assert np.all(steps <= np.abs(A).max(axis=0) * 1.001 / 2**bits * (1 + 2.0 ** (2 - bits)))


@pytest.mark.parametrize("bits", FEWER)
def test_rounding_twice_is_rounding_once(bits):
    A = np.clip(drawn_columns(3), -1e30, 1e30)
    B = compact.rounded(A, bits)
    assert np.array_equal(compact.rounded(B, bits), B)
    assert np.array_equal(compact.rounded(-A, bits), -B)


@pytest.mark.parametrize("bits", compact.BITS)
def test_a_receiver_gets_what_the_sender_can_compute(bits):
    message = directions(bits)
    received = decode(Directions, encode(message), {"bits": Limit(bits, exact=True)})
    assert received.vectors.dtype == np.float64
    assert np.array_equal(received.vectors, compact.rounded(message.vectors, bits))
    assert floats_by_kind(received) == {"eigenvectors": 61 * 3}


def test_fewer_bits_are_fewer_bytes():
    sizes = {bits: len(encode(directions(bits, n=4001))) for bits in compact.BITS}
    for bits, size in sizes.items():
        assert size / sizes[64] == pytest.approx(bits / 64, rel=0.04)


@pytest.mark.parametrize("bits", FEWER)
def test_columns_that_are_not_orthonormal_are_refused_in_any_precision(bits):
    V = directions(bits).vectors.copy()
    V[:, 1] += V[:, 0]
    with pytest.raises(MessageRefused, match="orthonormal"):
        decode(Directions, wire.dumps({"bits": bits, "vectors": compact.to_wire(V, bits)}))


def test_bits_that_the_schedule_does_not_say_are_refused():
    with pytest.raises(MessageRefused, match="bits=8"):
        decode(Directions, encode(directions(8)), {"bits": Limit(64, exact=True)})


def tampered(bits, **changes):
    form = dict(compact.to_wire(directions(bits).vectors, bits))
    return wire.dumps({"bits": bits, "vectors": {**form, **changes}})


@pytest.mark.parametrize(
    ("bits", "changes"),
    [
        (8, {"scale": np.ones(2)}),
        (8, {"scale": np.full(3, np.nan)}),
        (8, {"scale": np.full(3, 1e308)}),
        (8, {"codes": np.full((61, 3), -128, np.int8)}),
        (8, {"codes": np.zeros((61, 3), np.int16)}),
        (8, {"more": 1}),
        (4, {"shape": [61, 4]}),
        (4, {"shape": [10**12, 3]}),
        (4, {"shape": [-61, -3]}),
        (4, {"shape": "61"}),
        (4, {"codes": np.zeros(92, np.uint8)}),
    ],
)
def test_a_malformed_array_is_refused(bits, changes):
    with pytest.raises(MessageRefused):
        decode(Directions, tampered(bits, **changes))


def test_other_numbers_of_bits_are_refused():
    for bits in (0, 7, -8, True, 16.0, "16"):
        with pytest.raises(MessageRefused):
            decode(Directions, wire.dumps({"bits": bits, "vectors": np.eye(3)}))


def test_what_float32_cannot_hold_is_refused():
    with pytest.raises(MessageRefused, match="float32"):
        compact.to_wire(np.array([[1e300]]), 32)
