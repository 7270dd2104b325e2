"""Weighted draws without replacement: distinct, complete, and by the right chances."""

import numpy as np
import pytest

from eigenmesh.errors import InputError
from eigenmesh.numerics.draws import draw_distinct, draw_repeatedly


@pytest.mark.parametrize("count", [0, 1, 5, 99, 100, 500])
def test_distinct_sorted_and_never_of_weight_zero(count):
    rng = np.random.default_rng(0)
    weights = np.where(np.arange(200) % 2, rng.pareto(0.5, 200), 0.0)
    before = weights.copy()
    draws = draw_distinct(weights, count, np.random.default_rng(count))
    assert len(draws) == min(count, 100)
    assert np.all(np.diff(draws) > 0)
    assert np.all(draws % 2 == 1)
    np.testing.assert_array_equal(weights, before)


def test_chances_are_those_of_one_draw_after_another():
    weights = np.array([5.0, 3.0, 1.0, 1.0])
    total, n = weights.sum(), 8_000
    # P(i is among two draws) = p_i + Σ_j p_j p_i / (1 − p_j).
    p = weights / total
    expected = [p[i] + sum(p[j] * p[i] / (1 - p[j]) for j in range(4) if j != i) for i in range(4)]
    rng = np.random.default_rng(0)
    hits = np.zeros(4)
    for _ in range(n):
        hits[draw_distinct(weights, 2, rng)] += 1
    np.testing.assert_allclose(hits / n, expected, atol=4 * np.sqrt(0.25 / n))


def test_weights_that_vanish_beside_others_are_still_drawn_when_wanted():
    weights = np.array([1e300, 1e-300, 1e300, 1.0, 0.0])
    draws = draw_distinct(weights, 3, np.random.default_rng(0))
    assert {0, 2} < set(draws.tolist())


def test_nothing_to_draw():
    assert draw_distinct(np.zeros(3), 2, np.random.default_rng(0)).tolist() == []


def test_what_is_left_may_be_of_another_order_altogether():
    draws = draw_distinct(np.array([1e300, 1e-300, 1e-300]), 2, np.random.default_rng(0))
    assert draws[0] == 0
    assert len(draws) == 2


def test_many_blocks_are_drawn_from_by_their_weight(monkeypatch):
    monkeypatch.setattr("eigenmesh.numerics.draws._BLOCK", 7)
    weights = np.where(np.arange(60) % 3, np.random.default_rng(1).pareto(1.0, 60), 0.0)
    rng, n = np.random.default_rng(0), 5_000
    hits = np.zeros(60)
    for _ in range(n):
        hits[draw_distinct(weights, 1, rng)] += 1
    p = weights / weights.sum()
    assert np.all(np.abs(hits / n - p) <= 5 * np.sqrt(p * (1 - p) / n))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0])
def test_weights_by_which_nothing_can_be_drawn_are_refused(wrong):
    rng, weights = np.random.default_rng(0), np.array([1.0, wrong, 2.0, 3.0])
    for draw in (draw_distinct, draw_repeatedly):
        with pytest.raises(InputError, match="finite numbers"):
            draw(weights, 2, rng)
