"""Columns in bits of their own: how far off, always alike, and refused when they are not so."""

from typing import Annotated

import numpy as np
import pytest

from eigenmesh.errors import MessageRefused
from eigenmesh.runtime import column_form, compact, wire
from eigenmesh.runtime.message import (
    Compact,
    Floats,
    Integers,
    Message,
    Reveals,
    Shape,
    decode,
    encode,
    floats_by_kind,
)

EXACT = np.full(3, column_form.EXACT)


class Coordinates(Message, reveals="columns"):
    bits: Annotated[Integers, Reveals("counts"), Shape("r")]
    values: Annotated[Floats, Shape("n", "r"), Compact("bits")]


def drawn_columns(seed, n=27, r=6):
    """Columns of all sizes and tails, one of zeros."""
    rng = np.random.default_rng(seed)
    A = rng.standard_t(2, size=(n, r)) * 10.0 ** rng.integers(-30, 30, size=r)
    A[:, 2] = 0.0
    return A


def coordinates(bits, seed=0, n=27):
    A = drawn_columns(seed, n, len(bits))
    return Coordinates(bits=np.array(bits, np.uint8), values=A)


@pytest.mark.parametrize("bits", range(1, column_form.MOST_BITS + 1))
def test_rounding_twice_is_rounding_once(bits):
    for seed in range(5):
        A, each = drawn_columns(seed), np.full(6, bits)
        B = column_form.rounded(A, each)
        assert np.array_equal(column_form.rounded(B, each), B)
        assert np.array_equal(column_form.from_wire(column_form.to_wire(B, each), each), B)


@pytest.mark.parametrize("bits", [7, 12, 22])
def test_numbers_are_off_by_half_a_step_of_their_column_at_most(bits):
    for seed in range(5):
        A, each = drawn_columns(seed), np.full(6, bits)
        B = column_form.rounded(A, each)
        steps = compact.half_steps(B, each)
        assert np.all(np.abs(A - B) <= steps * (1 + 1e-6))
        assert np.all(steps <= np.abs(A).max(axis=0) / (2.0**bits - 1) * (1 + 1e-6))


def test_few_bits_miss_the_largest_numbers_where_that_makes_the_others_finer():
    A = np.random.default_rng(0).normal(size=(4000, 4))
    # What Max (1960) found to be left of a normal variance by the best even steps.
    for bits, best in ((1, 0.3634), (2, 0.1188), (3, 0.03744), (4, 0.01154)):
        B = column_form.rounded(A, np.full(4, bits))
        assert np.square(A - B).mean() < 1.1 * best * np.square(A).mean()


def test_a_receiver_gets_what_the_sender_can_compute():
    message = coordinates([1, 5, 3, 22, 8, 16])
    rounded = column_form.rounded(message.values, message.bits)
    sent = Coordinates(bits=message.bits, values=rounded)
    received = decode(Coordinates, encode(sent))
    assert np.array_equal(received.values, rounded)
    assert floats_by_kind(received) == {"columns": 27 * 6, "counts": 0}


def test_all_bits_are_the_numbers_themselves():
    A = drawn_columns(1, r=3)
    received = decode(Coordinates, encode(Coordinates(bits=EXACT, values=A)))
    assert np.array_equal(received.values, A)
    assert not compact.half_steps(A, EXACT).any()


def test_bytes_are_those_of_the_bits():
    few, more = ([2, 1, 3, 5, 2, 3], [12, 11, 13, 15, 12, 13])
    sizes = [len(encode(coordinates(bits, n=800))) for bits in (few, more)]
    assert sizes[1] - sizes[0] == 800 * 60 // 8
    assert column_form.code_bytes(800, np.array(few)) == 800 * 16 // 8


def tampered(**changes):
    each = np.array([3, 5, 2], np.uint8)
    form = dict(column_form.to_wire(drawn_columns(0, r=3), each))
    return wire.dumps({"bits": changes.pop("bits", each), "values": {**form, **changes}})


@pytest.mark.parametrize(
    "changes",
    [
        {"bits": np.array([3, 5], np.uint8)},
        {"bits": np.array([3, 5, 23], np.uint8)},
        {"bits": np.array([3, 5, 0], np.uint8)},
        {"bits": np.array([3, 5, -2], np.int8)},
        {"bits": np.array([3, 5, 64], np.uint8)},
        {"bits": np.array([3.0, 5.0, 2.0])},
        {"bits": np.array([[3, 5, 2]], np.uint8)},
        {"bits": EXACT},
        {"bits": 8},
        {"bits": "3, 5, 2"},
        {"scale": np.ones(3)},
        {"scale": np.full(3, np.nan, np.float32)},
        {"scale": np.full(2, 1, np.float32)},
        {"rows": 26},
        {"rows": 10**15},
        {"rows": 0},
        {"rows": True},
        {"codes": np.zeros(3, np.uint8)},
        {"codes": np.zeros(35, np.int8)},
        {"more": 1},
    ],
)
def test_a_malformed_array_is_refused(changes):
    decode(Coordinates, tampered())
    with pytest.raises(MessageRefused):
        decode(Coordinates, tampered(**changes))


def test_what_a_scale_cannot_hold_is_refused():
    with pytest.raises(MessageRefused, match="rescale"):
        column_form.rounded(np.array([[1e60], [-1e60]]), np.array([4]))
