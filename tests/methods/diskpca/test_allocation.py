"""Sharing out draws: all of them, in proportion, to nobody more than it has."""

import numpy as np

from eigenmesh.methods.diskpca.landmark_fits import allocate


def test_every_draw_is_given_and_nobody_gets_more_than_it_has():
    rng = np.random.default_rng(0)
    for _ in range(50):
        most = rng.integers(0, 10, size=8)
        masses = rng.random(8)
        count = int(rng.integers(0, most.sum() + 1))
        draws = allocate(masses.tolist(), most.tolist(), count, rng)
        assert sum(draws) == count
        assert all(0 <= g <= m for g, m in zip(draws, most, strict=True))


def test_shares_are_in_proportion_to_the_masses():
    rng = np.random.default_rng(0)
    totals = sum(np.array(allocate([1.0, 3.0], [999, 999], 20, rng)) for _ in range(500))
    assert abs(totals[1] / totals.sum() - 0.75) < 0.02


def test_parties_without_mass_get_nothing_even_if_draws_are_left():
    assert allocate([0.0, 2.0], [5, 3], 10, np.random.default_rng(0)) == [0, 3]
    assert allocate([0.0, 0.0], [5, 3], 4, np.random.default_rng(0)) == [0, 0]
