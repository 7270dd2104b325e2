"""Which of many parties look at what landmarks miss, and what their sums say of all."""

from types import SimpleNamespace

import numpy as np
import pytest

from eigenmesh.numerics.drawn_parties import FEWEST_DRAWN, drawn_parties, noise_of_draw
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span, landmark_sums, residual_of, span_residual

DRAWS = 400


def outside_of(sizes):
    return {f"party-{i}": float(size) for i, size in enumerate(sizes)}


def draws(outside, may_miss):
    whole = sum(outside.values())
    rngs = map(np.random.default_rng, range(DRAWS))
    return [drawn_parties(outside, whole, may_miss, rng) for rng in rngs]


def test_each_is_asked_as_often_as_its_chance_says():
    outside = outside_of(np.random.default_rng(0).gamma(1.0, size=80))
    times, chances = dict.fromkeys(outside, 0), {}
    for drawn in draws(outside, may_miss=20.0):
        chances.update(drawn.chances)
        for name in drawn.chances:
            times[name] += 1
    shares = np.array([times[name] / DRAWS for name in chances])
    expected = np.array(list(chances.values()))
    assert np.abs(shares - expected).max() < 4 * 0.5 / np.sqrt(DRAWS)


def test_who_has_half_of_what_may_be_missing_is_asked_alone_always_and_as_a_group_nearly_always():
    alone = outside_of([5.0, *[0.1] * 99])
    assert all("party-0" in drawn.chances for drawn in draws(alone, may_miss=10.0))
    group = outside_of([0.5] * 10 + [0.1] * 200)  # ten that have half of it together
    seen_by_nobody = [
        not any(f"party-{i}" in drawn.chances for i in range(10))
        for drawn in draws(group, may_miss=10.0)
    ]
    assert np.mean(seen_by_nobody) < 0.05


def test_few_parties_are_all_asked_and_many_too_where_much_is_outside():
    rng = np.random.default_rng(0)
    assert drawn_parties(outside_of([0.1] * FEWEST_DRAWN), 0.1 * FEWEST_DRAWN, 9.0, rng) is None
    assert drawn_parties(outside_of([1.0] * 100), 100.0, 1.0, rng) is None


def test_what_rounding_may_have_made_is_no_ground_to_leave_a_party_out():
    rng = np.random.default_rng(0)
    assert drawn_parties(outside_of([0.1] * 100), 12.0, 5.0, rng) is None
    assert drawn_parties(outside_of([0.1] * 100), 10.0, 5.0, rng) is not None


def test_parties_with_nothing_outside_are_not_asked():
    drawn = drawn_parties(outside_of([1.0] * 10 + [0.0] * 90), 10.0, 60.0, np.random.default_rng(0))
    assert set(drawn.chances) == {f"party-{i}" for i in range(10)}
    assert drawn.largest_left == 0.0


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "not alike"])
def test_weighted_sums_less_their_noise_have_the_length_of_the_sum_of_all(alike):
    rng = np.random.default_rng(1)
    outside = outside_of(rng.gamma(2.0, size=60))
    names, sizes = list(outside), np.array(list(outside.values()))
    vectors = rng.normal(size=(60, 2, 8)) * np.sqrt(sizes)[:, None, None]
    if alike:
        vectors = 0.2 * vectors + sizes[:, None, None] * rng.normal(size=(2, 8))
    lengths = []
    for drawn in draws(outside, may_miss=float(sizes.sum()) / 3):
        sums = [vectors[names.index(name)] for name in drawn.chances]
        weights = 1 / drawn.chances_in_order
        total = sum(w * own for w, own in zip(weights, sums, strict=True))
        lengths.append(np.square(total).sum(axis=1) - noise_of_draw(weights, sums))
    true = np.square(vectors.sum(axis=0)).sum(axis=1)
    error = np.std(lengths, axis=0) / np.sqrt(DRAWS)
    assert (np.abs(np.mean(lengths, axis=0) - true) < 4 * error + 0.03 * true).all()


def test_of_all_parties_there_is_no_noise():
    sums = list(np.random.default_rng(0).normal(size=(5, 2, 3)))
    assert (noise_of_draw(np.ones(5), sums) == 0).all()


@pytest.mark.parametrize("rank", [None, 7])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", [Kernel("rbf", 0.1), Kernel("poly", 0.2, 2, 1.0)], ids=str)
def test_what_single_parties_have_outside_is_what_their_sums_as_matrices_say(kernel, rank, dtype):
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(20, 6))  # fewer than a polynomial of six columns has directions
    span = Span.of(kernel, Y, rank)
    measured, in_all = residual_of(span), 0.0
    for _ in range(5):
        X = rng.normal(size=(30, 6))
        sums = landmark_sums(kernel, X, Y, span)
        message = SimpleNamespace(**sums.packed(span, dtype))
        expected = span_residual(span, sums)
        rounding = (1e-5 if dtype is np.float32 else 1e-9) * sums.trace
        assert measured(message) == pytest.approx(expected, abs=rounding)
        in_all += expected
    assert in_all > 0
