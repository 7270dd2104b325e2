"""Numbers on a grid arrive as they were, in about as many bits as their range takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenmesh.errors import MessageRefused
from eigenmesh.runtime import wire
from eigenmesh.runtime.grid_form import from_wire, to_wire


@given(
    shape=st.tuples(st.integers(1, 60), st.integers(1, 12)),
    bits=st.integers(1, 22),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_they_arrive_as_they_were(shape, bits, seed, dtype):
    rng = np.random.default_rng(seed)
    steps = 2.0 ** rng.integers(-30, 30, size=shape[1])
    offsets = rng.integers(-(2**22), 2**22, size=shape[1]) * rng.integers(0, 2, size=shape[1])
    numbers = ((rng.integers(0, 2**bits, size=shape) + offsets) * steps).astype(dtype)
    if seed % 3 == 0:
        numbers = numbers[:, 0]
    arrived = from_wire(wire.loads(wire.dumps({"x": to_wire(numbers)}))["x"])
    assert arrived.dtype == dtype
    np.testing.assert_array_equal(arrived, numbers)
    if numbers.size > 300:
        size = len(wire.dumps({"x": to_wire(numbers)}))
        assert size <= numbers.size * (max(bits, 4) + 1) / 8 + 12 * shape[1] + 500


@pytest.mark.parametrize("scale", [np.pi, 1e-300, 1e300])
def test_what_is_on_no_grid_travels_as_it_is(scale):
    numbers = scale * np.random.default_rng(0).normal(size=(40, 5))
    assert to_wire(numbers) is numbers
    mixed = np.ones((40, 5))
    mixed[3:5, 2] = 1 + 2.0**-40, 2.0
    assert to_wire(mixed) is mixed


def test_what_is_no_such_form_is_refused():
    form = to_wire(np.arange(400.0).reshape(100, 4))
    wrong = [
        {**form, "shape": [100, 5]},
        {**form, "shape": [10**12, 4]},
        {**form, "shape": [100, 0]},
        {**form, "shape": [100.0, 4]},
        {**form, "planes": form["planes"][:-1]},
        {**form, "planes": form["planes"].astype(np.int64)},
        {**form, "widths": np.zeros(4, np.uint8)},
        {**form, "widths": np.full(4, 60, np.uint8)},
        {**form, "exponents": np.full(4, 1100)},
        {**form, "low": np.full(4, -(2**63))},
        {**form, "low": np.zeros(3, np.int8)},
        {**form, "single": 1},
        {**form, "more": 1},
        {name: own for name, own in form.items() if name != "low"},
    ]
    for value in wrong:
        with pytest.raises(MessageRefused):
            from_wire(value)
