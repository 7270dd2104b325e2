"""Bits go to whom they help, never beyond the budget; what is said of distances is true."""

import numpy as np
import pytest

from eigenmesh.numerics.spread_bits import change_of_distances, spread_bits


def squared_distances(Z):
    return np.square(Z[:, None] - Z[None]).sum(axis=2)


def drawn_variances(seed):
    rng = np.random.default_rng(seed)
    return np.sort(rng.exponential(size=int(rng.integers(1, 40))) * rng.uniform(0.1, 100))[::-1]


@pytest.mark.parametrize("seed", range(20))
def test_the_budget_is_kept_and_nearly_spent(seed):
    variances = drawn_variances(seed)
    budget, column_cost = 30.0 + 9 * seed, 0.37 * (seed % 4)
    bits = spread_bits(variances, budget, column_cost, most=22)
    spent = bits.sum() + column_cost * np.count_nonzero(bits)
    assert spent <= budget
    assert spent > budget - 1 - column_cost or (bits == 22).all()
    assert (np.diff(bits) <= 0).all()  # a larger variance never gets fewer


def test_a_coordinate_without_variance_gets_nothing_unless_none_has_any():
    assert spread_bits(np.zeros(3), 100, 0.1, most=22).tolist() == [1, 0, 0]
    assert spread_bits(np.array([4.0, 0.0]), 100, 0.1, most=22).tolist() == [22, 0]


@pytest.mark.parametrize("seed", range(20))
def test_distances_are_off_by_no_more_than_is_said(seed):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(40, 12)) * np.geomspace(1, 0.1, 12)
    Z -= Z.mean(axis=0)
    kept = int(rng.integers(2, 12))  # the others are not in Z as it is known there
    Q = np.zeros_like(Z)
    step = 10.0 ** -rng.uniform(0, 3)
    Q[:, :kept] = np.round(Z[:, :kept] / step) * step
    off = rng.normal(size=40) * 0.01 * step
    lengths = np.square(Z).sum(axis=1) - np.square(Q).sum(axis=1) - off
    D = squared_distances(Q) + lengths[:, None] + lengths
    np.fill_diagonal(D, 0.0)
    true = np.linalg.norm(squared_distances(Z) - D)
    told = change_of_distances(Z, Q, off, 0.0)
    rest = np.square(Z[:, kept:]).sum()
    cut = change_of_distances(Z[:, :kept], Q[:, :kept], off, rest)
    assert true <= told <= 2 * true
    assert true <= cut
