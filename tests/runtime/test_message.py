from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np
import pytest

from eigenmesh.errors import MessageRefused
from eigenmesh.runtime import message as messages
from eigenmesh.runtime import wire
from eigenmesh.runtime.message import (
    Descending,
    Floats,
    Integers,
    Limit,
    Message,
    NonNegative,
    Orthonormal,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
    add,
    check,
    check_sizes,
    decode,
    encode,
    fields_of,
    floats_by_kind,
    form_of,
    kinds_of,
    require_summable,
)


class Spectrum(Message, reveals="eigenvectors"):
    """Eigenpairs; the arrays stand before the number that fixes their size."""

    vectors: Annotated[Floats, Shape("n_samples", "r"), Orthonormal]
    values: Annotated[Floats, Shape("r"), Descending, NonNegative]
    n_samples: Annotated[int, Reveals("counts"), SameEverywhere]


class Gram(Message, reveals="gram"):
    """A square matrix."""

    matrix: Annotated[Floats, Shape("d", "d")]


class Mixed(Message, reveals="moments"):
    """One field of every type."""

    n: int
    x: float
    name: str
    flag: bool
    counts: Annotated[Integers, Reveals("counts")]
    maybe: Annotated[Floats | None, Shape(3)] = None


class Loose(Message, reveals="moments"):
    """Checks without a shape."""

    ordered: Annotated[Floats, Descending]
    vectors: Annotated[Floats, Orthonormal]


class Widths(Message, reveals=None):
    """Scalars with conditions."""

    width: Annotated[float, Positive]
    limit: Annotated[int | None, NonNegative] = None


def spectrum(**changes):
    good = {"vectors": np.eye(4)[:, :2], "values": np.array([2.0, 1.0]), "n_samples": 4}
    return Spectrum(**good | changes)


def mixed(**changes):
    good = {"n": 1, "x": 0.5, "name": "a", "flag": True, "counts": np.arange(3)}
    return Mixed(**good | changes)


def sent(message_type, **fields):
    return decode(message_type, wire.dumps(fields))


# Round trips.


def test_message_comes_back_as_declared():
    found = decode(Mixed, encode(mixed(maybe=np.ones(3))))
    assert (found.n, found.x, found.name, found.flag) == (1, 0.5, "a", True)
    np.testing.assert_array_equal(found.counts, [0, 1, 2])
    np.testing.assert_array_equal(found.maybe, np.ones(3))
    assert decode(Mixed, encode(mixed())).maybe is None


def test_whole_number_in_a_float_field_comes_back_as_float():
    assert type(decode(Mixed, encode(mixed(x=2))).x) is float


def test_message_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        mixed().n = 2


def test_the_receiver_chooses_the_type_and_the_wire_does_not():
    with pytest.raises(MessageRefused, match="a Gram has the fields matrix"):
        decode(Gram, encode(spectrum()))


@pytest.mark.parametrize(
    "tree", [None, 3, "matrix", ["matrix"], {}, {"matrix": np.eye(2), "x": 1}, np.eye(2)]
)
def test_what_is_not_the_message_is_refused(tree):
    with pytest.raises(MessageRefused, match="Gram"):
        decode(Gram, wire.dumps(tree))


# Values.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"values": np.array([1.0, 2.0])}, "must not increase"),
        ({"values": np.array([1.0, -2.0])}, "must not be negative"),
        ({"values": np.array([np.nan, 1.0])}, "not finite"),
        ({"values": np.array([np.inf, 1.0])}, "not finite"),
        ({"values": np.array([[2.0, 1.0]])}, r"shape \(1, 2\)"),
        ({"values": np.array([2.0])}, r"shape \(1,\); \(r=2\)"),
        ({"values": np.array(2.0)}, r"shape \(\)"),
        ({"values": np.array([2, 1])}, "int64; an array of floats"),
        ({"values": np.array([True, False])}, "bool; an array of floats"),
        ({"values": np.array([2j, 1j])}, "complex128; an array of floats"),
        ({"values": 2.0}, "float; an array of floats"),
        ({"values": None}, "NoneType; an array of floats"),
        ({"vectors": 2 * np.eye(4)[:, :2]}, "orthonormal"),
        ({"vectors": np.eye(2)}, r"shape \(2, 2\); \(n_samples=4, r\)"),
        ({"n_samples": 5}, r"n_samples=5"),
        ({"n_samples": 4.0}, "float; int is expected"),
        ({"n_samples": True}, "bool; int is expected"),
        ({"n_samples": "4"}, "str; int is expected"),
        ({"n_samples": None}, "NoneType; int is expected"),
        ({"n_samples": np.array([4, 4])}, "ndarray; int is expected"),
    ],
)
def test_wrong_value_is_refused_where_it_leaves_and_where_it_arrives(changes, words):
    bad = spectrum(**changes)
    with pytest.raises(MessageRefused, match=words):
        encode(bad)
    with pytest.raises(MessageRefused, match=words):
        sent(Spectrum, **vars(bad))


def test_objects_are_refused_where_they_leave():
    with pytest.raises(MessageRefused, match="object"):
        encode(spectrum(values=np.array([2.0, 1.0], dtype=object)))


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (4,), (1, 2, 2)])
def test_one_letter_is_one_size_within_a_shape(shape):
    with pytest.raises(MessageRefused, match="shape"):
        encode(Gram(np.ones(shape)))
    encode(Gram(np.ones((3, 3))))


@pytest.mark.parametrize("shape", [(), (3,), (0, 2**39), (2, 2, 2)])
def test_conditions_refuse_arrays_of_any_shape_without_breaking(shape):
    vectors = np.empty(shape) if 0 in shape else np.ones(shape)
    with pytest.raises(MessageRefused):
        check(Loose(ordered=np.ones(2), vectors=vectors))
    with pytest.raises(MessageRefused):
        check(Loose(ordered=np.array(1.0), vectors=np.eye(2)))


def test_number_beyond_the_declared_axes_is_refused():
    with pytest.raises(MessageRefused, match=r"\(3\)"):
        encode(mixed(maybe=np.ones(4)))


@pytest.mark.parametrize(
    "changes",
    [
        {"x": float("nan")},
        {"x": float("inf")},
        {"x": "1"},
        {"x": True},
        {"x": None},
        {"n": 1.0},
        {"name": 3},
        {"flag": 1},
        {"counts": np.ones(3)},
        {"counts": [1, 2]},
    ],
)
def test_scalars_are_held_to_their_type(changes):
    with pytest.raises(MessageRefused, match=next(iter(changes))):
        encode(mixed(**changes))


def test_conditions_hold_for_scalars_too():
    encode(Widths(0.5))
    encode(Widths(0.5, limit=0))
    with pytest.raises(MessageRefused, match=r"Widths.width must be positive"):
        encode(Widths(0.0))
    with pytest.raises(MessageRefused, match=r"Widths.limit must not be negative"):
        encode(Widths(1.0, limit=-1))


def test_float32_is_a_float_and_stays_one():
    narrow = spectrum(values=np.array([2, 1], np.float32))
    assert decode(Spectrum, encode(narrow)).values.dtype == np.float32


# Declarations.


def test_kind_outside_the_closed_list_is_a_programming_error():
    with pytest.raises(TypeError, match="gossip"):

        class Hearsay(Message, reveals="gossip"):
            pass

    with pytest.raises(TypeError, match="gossip"):
        Reveals("gossip")


def test_array_must_say_what_it_reveals():
    class Silent(Message, reveals=None):
        values: Floats

    with pytest.raises(TypeError, match="say what it reveals"):
        fields_of(Silent)


def test_array_cannot_be_the_same_everywhere():
    class Compared(Message, reveals="hashes"):
        values: Annotated[Floats, SameEverywhere]

    with pytest.raises(TypeError, match="same everywhere"):
        fields_of(Compared)


@pytest.mark.parametrize("hint", [dict, list, object, bytes, np.ndarray])
def test_type_that_cannot_travel_is_a_programming_error(hint):
    Odd = type("Odd", (Message,), {"__annotations__": {"x": hint}}, reveals="moments")
    with pytest.raises(TypeError, match="cannot travel"):
        fields_of(Odd)


def test_kinds_of_a_message_are_those_of_its_fields():
    assert kinds_of(Spectrum) == {"eigenvectors", "counts"}
    assert kinds_of(Widths) == frozenset()


def test_floats_are_the_elements_of_float_arrays_by_kind():
    assert floats_by_kind(spectrum()) == {"counts": 0, "eigenvectors": 4 * 2 + 2}
    assert floats_by_kind(mixed(maybe=np.ones(3))) == {"counts": 0, "moments": 3}
    assert floats_by_kind(mixed()) == {"counts": 0, "moments": 0}
    assert floats_by_kind(Widths(1.0)) == {}


# Sums.


class Part(Message, reveals="moments"):
    """A summand."""

    n: int
    weight: float
    total: Annotated[Floats, Shape("d")]
    counts: Integers


def test_sum_is_field_by_field():
    one = Part(1, 0.5, np.array([1.0, 2.0]), np.array([1, 2]))
    both = add(one, one)
    assert (both.n, both.weight) == (2, 1.0)
    np.testing.assert_array_equal(both.total, [2.0, 4.0])
    np.testing.assert_array_equal(both.counts, [2, 4])


@pytest.mark.parametrize("shape", [(1,), (3,), (1, 2), ()])
def test_sum_of_other_shapes_is_refused_rather_than_broadcast(shape):
    one = Part(1, 0.5, np.ones(2), np.ones(2, int))
    other = Part(1, 0.5, np.ones(shape), np.ones(2, int))
    with pytest.raises(MessageRefused, match="one shape"):
        add(one, other)


def test_words_flags_and_absent_values_have_no_sum():
    require_summable(Part)
    with pytest.raises(TypeError, match=r"Mixed.name"):
        require_summable(Mixed)
    with pytest.raises(TypeError, match=r"Widths.limit"):
        require_summable(Widths)


# What is remembered.


@pytest.mark.parametrize("is_first", [True, False])
def test_sizes_that_fitted_once_are_refused_within_other_limits(is_first):
    few, many = {"r": Limit(1, True)}, {"r": Limit(2, True)}
    for limits in (many, few) if is_first else (few, many):
        if limits is many:
            check(spectrum(), limits)
            check_sizes(form_of(spectrum()), limits)
        else:
            with pytest.raises(MessageRefused, match="r=2; exactly 1"):
                check(spectrum(), limits)
            with pytest.raises(MessageRefused, match="r=2; exactly 1"):
                check_sizes(form_of(spectrum()), limits)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"vectors": np.eye(4)[:, :2] * 2},
        {"vectors": np.full((4, 2), np.nan)},
        {"vectors": np.eye(4, dtype=int)[:, :2]},
        {"vectors": np.eye(5)[:, :2]},
        {"values": np.array([1.0, 2.0])},
        {"values": np.array([1.0, -np.inf])},
        {"values": np.array([2.0, 1.0, 0.0])},
        {"n_samples": 5},
        {"n_samples": True},
        {"n_samples": 4.0},
    ],
    ids=str,
)
def test_values_are_looked_at_however_often_their_sizes_were(spoilt):
    for _ in range(3):
        encode(spectrum())
        with pytest.raises(MessageRefused):
            encode(spectrum(**spoilt))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_without_a_square_are_finite_and_nothing_else_passes_for_it(dtype):
    largest = np.finfo(dtype).max
    check(Gram(matrix=np.full((3, 3), largest, dtype)))
    for spoilt in (np.nan, np.inf, -np.inf):
        for place in range(9):
            matrix = np.full((3, 3), largest, dtype)
            matrix.flat[place] = spoilt
            with pytest.raises(MessageRefused, match="not finite"):
                check(Gram(matrix=matrix))


def test_forms_that_are_remembered_are_bounded():
    for n in range(2 * messages._FORMS + 10):
        check(Widths(1.0, limit=n))
    assert len(messages._known_to_fit) <= messages._FORMS
