"""Rows in arrays of the Array API standard: what they add up to, by array-api-strict and torch."""

from functools import partial

import numpy as np
import pytest

from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.numerics import device_rows
from eigenmesh.numerics.device_rows import DeviceRows, in_main_memory, is_device_array
from eigenmesh.numerics.device_sums import (
    _gather,
    device_landmark_sums,
    device_moments,
    device_scores,
)
from eigenmesh.numerics.gamma_rules import moments_of
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span, landmark_sums, shifted_sums
from eigenmesh.numerics.landmarks import LandmarkModel

strict = pytest.importorskip("array_api_strict", reason="array-api-strict judges conformity")
pytest.importorskip("array_api_compat", reason="the extra array-api is not installed")

ELSEWHERE = strict.Device("device1")  # whose arrays numpy cannot read
NO_DOUBLE = strict.Device("no_float64")


def on_torch(X):
    reason = "torch, of some 200 MB, is not installed"
    return pytest.importorskip("torch", reason=reason).asarray(X)


LIBRARIES = {"strict": partial(strict.asarray, device=ELSEWHERE), "torch": on_torch}
KERNELS = [
    Kernel("linear"),
    Kernel("rbf", gamma=0.1),
    Kernel("rbf", gamma=1e-3),  # flat: float32 must project
    Kernel("poly", gamma=0.1, degree=3),
    Kernel("poly", gamma=0.2, degree=4, coef0=0.0),
    Kernel("cosine"),
]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(20_000, 6)) @ np.diag([3, 2, 1.5, 1, 0.5, 0.2])


def in_span(span, H):
    return span.basis.T @ H @ span.basis


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}-{k.gamma}")
def test_float64_rows_add_up_to_what_numpy_has(rows, kernel, library):
    Y = rows[:40]
    span, own = Span.of(kernel, Y), landmark_sums(kernel, rows, Y)
    sums = device_landmark_sums(DeviceRows.of(LIBRARIES[library](rows)), Y, span)
    scale = np.trace(in_span(span, own.gram))
    error = 1e-8 if kernel.gamma == 1e-3 else 1e-12  # a flat span stretches rounding
    assert np.abs(in_span(span, sums.gram - own.gram)).max() < error * scale
    assert np.abs(sums.sums - own.sums).max() < 1e-12 * np.abs(own.sums).max()
    assert sums.trace == pytest.approx(own.trace, rel=1e-13)
    assert sums.n_rows == own.n_rows


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}-{k.gamma}")
def test_float32_rows_take_numpys_route_and_err_no_more_than_the_rule_allows(rows, kernel, library):
    A, Y = rows.astype(np.float32), rows[:40].astype(np.float32)
    span, true = Span.of(kernel, Y), landmark_sums(kernel, A.astype(float), Y.astype(float))
    there = DeviceRows.of(LIBRARIES[library](A))
    H, _, trace, route = shifted_sums(span, there, Y, gather_from=_gather)
    assert route.name == shifted_sums(span, A, Y)[3].name
    G = in_span(span, H - true.gram)
    assert np.abs(G).max() < 1e-4 * np.trace(in_span(span, true.gram))
    assert trace == pytest.approx(true.trace, rel=1e-6)


def test_far_from_the_origin_no_digit_is_lost(rows):
    kernel, A = Kernel("rbf", gamma=0.1), rows + 1e5
    own = landmark_sums(kernel, A, A[:40])
    span = Span.of(kernel, A[:40])
    sums = device_landmark_sums(DeviceRows.of(LIBRARIES["strict"](A)), A[:40], span)
    scale = np.trace(in_span(span, own.gram))
    assert np.abs(in_span(span, sums.gram - own.gram)).max() < 1e-8 * scale


def test_long_sums_are_not_left_to_the_librarys_order():
    # KᵀK of so many rows of one sign, in float32: in one product torch was off by 6e-6.
    rng = np.random.default_rng(0)
    A = (rng.random((40_000, 6)) + 1).astype(np.float32)
    kernel, Y = Kernel("linear"), np.eye(6, dtype=np.float32)
    span = Span.of(kernel, Y)
    H, _, _, route = shifted_sums(span, DeviceRows.of(on_torch(A)), Y, gather_from=_gather)
    true = landmark_sums(kernel, A.astype(float), Y.astype(float)).gram
    assert route.name != "double"
    assert np.abs(H - true).max() < 5e-7 * np.abs(true).max()


@pytest.mark.parametrize("library", LIBRARIES)
def test_scores_stay_on_the_device_and_are_those_of_main_memory(rows, library):
    kernel, Y = Kernel("rbf", gamma=0.1), rows[:60]
    model = LandmarkModel.fit(kernel, Y, landmark_sums(kernel, rows, Y), 3, True)
    for dtype, error in ((np.float64, 1e-10), (np.float32, 1e-4)):
        X = LIBRARIES[library](rows.astype(dtype))
        scores = device_scores(model, DeviceRows.of(X))
        assert type(scores) is type(X)
        assert (scores.dtype, scores.device) == (X.dtype, X.device)
        own = model.transform(rows)
        assert (np.abs(in_main_memory(scores) - own) < error * own.std(axis=0)).all()


@pytest.mark.parametrize("kernel", [Kernel("laplacian", 0.2), Kernel("arc-cosine", degree=1)])
def test_kernels_without_products_come_to_main_memory_in_blocks_and_it_is_said(
    rows, kernel, monkeypatch
):
    largest = []

    def watched(values):
        largest.append(int(np.prod(values.shape)))
        return in_main_memory(values)

    monkeypatch.setattr(device_rows, "in_main_memory", watched)
    monkeypatch.setattr(device_rows, "_BLOCK_NUMBERS", 6 * 3000)
    own, span = landmark_sums(kernel, rows, rows[:40]), Span.of(kernel, rows[:40])
    there = DeviceRows.of(LIBRARIES["strict"](rows))
    with pytest.warns(EigenmeshWarning, match="no function of products"):
        sums = device_landmark_sums(there, rows[:40], span)
    assert np.abs(sums.gram - own.gram).max() < 1e-10 * np.abs(own.gram).max()
    assert max(largest) == 6 * 3000


def test_a_device_without_float64_adds_up_in_main_memory(rows):
    A, Y = rows.astype(np.float32), rows[:40].astype(np.float32)
    there = DeviceRows.of(strict.asarray(A, device=NO_DOUBLE))
    assert not there.has_double
    kernel = Kernel("rbf", gamma=0.1)
    span = Span.of(kernel, Y)
    H, _, _, route = shifted_sums(span, there, Y, gather_from=_gather)
    true = landmark_sums(kernel, A.astype(float), Y.astype(float)).gram
    assert route.name == "raw"
    assert np.abs(in_span(span, H - true)).max() < 1e-5 * np.trace(in_span(span, true))


def test_where_float32_is_not_safe_and_float64_not_there_blocks_come_and_it_is_said(rows):
    A = rows[:500].astype(np.float32)  # of few rows float64 costs less than a proof
    kernel, Y = Kernel("rbf", gamma=0.1), A[:40]
    own, span = landmark_sums(kernel, A, Y), Span.of(kernel, Y)
    there = DeviceRows.of(strict.asarray(A, device=NO_DOUBLE))
    with pytest.warns(EigenmeshWarning, match="which has no float64"):
        sums = device_landmark_sums(there, Y, span)
    scale = np.trace(in_span(span, own.gram))
    assert np.abs(in_span(span, sums.gram - own.gram)).max() < 1e-8 * scale


def test_products_of_fewer_than_24_bits_are_noticed_and_float64_taken(rows, monkeypatch):
    A = rows.astype(np.float32)
    assert DeviceRows.of(strict.asarray(A)).dtype == np.float32
    multiply = strict.matmul

    def in_few_bits(a, b):
        if a.dtype != strict.float32:
            return multiply(a, b)
        short = [np.frombuffer(np.asarray(x).tobytes(), np.uint32) & 0xFFFFE000 for x in (a, b)]
        shapes = (a.shape, b.shape)
        parts = [x.view(np.float32).reshape(s) for x, s in zip(short, shapes, strict=True)]
        return multiply(*map(strict.asarray, parts))

    monkeypatch.setattr(strict, "matmul", in_few_bits)
    there, kernel, Y = DeviceRows.of(strict.asarray(A)), Kernel("rbf", gamma=0.1), A[:40]
    assert there.dtype == np.float64
    span = Span.of(kernel, Y)
    sums = device_landmark_sums(there, Y, span)
    own = landmark_sums(kernel, A.astype(float), Y)
    scale = np.trace(in_span(span, own.gram))
    assert np.abs(in_span(span, sums.gram - own.gram)).max() < 1e-10 * scale


def test_what_overflows_float32_is_worked_in_float64(rows):
    kernel, A = Kernel("poly", gamma=1.0, degree=8), (1e4 * rows).astype(np.float32)
    Y = A[:20]
    own = landmark_sums(kernel, A, Y)
    sums = device_landmark_sums(DeviceRows.of(LIBRARIES["strict"](A)), Y, Span.of(kernel, Y))
    assert np.isfinite(own.trace)
    assert np.abs(sums.gram - own.gram).max() < 1e-10 * np.abs(own.gram).max()
    assert sums.trace == pytest.approx(own.trace, rel=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_moments_are_those_of_main_memory(rows, library):
    own, moments = (
        moments_of(rows + 1e6),
        device_moments(DeviceRows.of(LIBRARIES[library](rows + 1e6))),
    )
    assert moments.count == own.count
    assert np.allclose(moments.mean, own.mean, rtol=1e-14)
    assert moments.deviation == pytest.approx(own.deviation, rel=1e-12)


def test_rows_at_places_are_these_rows(rows):
    places = np.array([3, 17, 19_999])
    for make in LIBRARIES.values():
        assert np.array_equal(DeviceRows.of(make(rows))[places], rows[places])


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "float32"])
def test_other_numbers_are_widened_as_in_main_memory(dtype):
    own = np.arange(12).reshape(4, 3).astype(dtype)
    block = DeviceRows.of(strict.asarray(own, device=ELSEWHERE)).here(slice(0, 4))
    assert block.dtype == (np.float32 if dtype == "float32" else np.float64)
    assert np.array_equal(block, own)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e80])
def test_a_number_that_no_fit_takes_is_named_where_it_is(rows, value):
    A = rows.copy()
    A[12_345, 4] = value
    for make in LIBRARIES.values():
        with pytest.raises(InputError, match=r"at row 12345, column 4 \(counted from 0\)"):
            DeviceRows.of(make(A))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.zeros(3), "1 dimension"),
        (np.zeros((2, 3, 4)), "3 dimension"),
        (np.zeros((0, 3)), "0 rows"),
        (np.zeros((3, 0)), "0 columns"),
        (np.zeros((3, 2), complex), "complex128; real numbers are expected"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        DeviceRows.of(strict.asarray(wrong, device=ELSEWHERE))


def test_numpys_arrays_are_none_of_these():
    import scipy.sparse as sp

    for X in (np.zeros((2, 2)), np.float64(1), [[1.0]], sp.eye_array(2), None, "rows"):
        assert not is_device_array(X)
    assert is_device_array(strict.zeros((2, 2)))
    assert is_device_array(on_torch(np.zeros((2, 2))))
