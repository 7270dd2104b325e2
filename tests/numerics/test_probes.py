"""Probe points cover what several nodes hold, and tell by how much functions differ."""

import numpy as np
import pytest
import scipy.sparse as sp

from eigenmesh.numerics.probes import column_extremes, probe_points, values_apart

RNG = np.random.default_rng(0)


def test_sparse_columns_are_measured_like_dense_ones():
    X = np.where(RNG.random((50, 6)) < 0.3, RNG.normal(loc=2.0, size=(50, 6)), 0.0)
    np.testing.assert_allclose(column_extremes(sp.csr_array(X)), column_extremes(X), atol=1e-12)


def test_probes_are_as_wide_as_all_nodes_together():
    far_apart = [RNG.normal(loc=at, size=(400, 3)) for at in (-20.0, 0.0, 30.0)]
    extremes = np.max([column_extremes(X) for X in far_apart], axis=0)
    probes = probe_points(extremes, 5000, np.random.default_rng(1))
    np.testing.assert_allclose(probes.mean(axis=0), 5.0, atol=1.5)
    np.testing.assert_allclose(probes.std(axis=0), 26.0, rtol=0.05)


def test_probes_are_the_same_wherever_they_are_made():
    extremes = column_extremes(RNG.normal(size=(9, 2)))
    points = [probe_points(extremes, 5, np.random.default_rng(3)) for _ in range(2)]
    np.testing.assert_array_equal(*points)


def test_nothing_known_of_the_columns_leaves_standard_normal_probes():
    probes = probe_points(np.zeros(6), 2000, np.random.default_rng(0))
    np.testing.assert_allclose(probes.std(axis=0), 1.0, rtol=0.1)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_difference_is_a_share_of_the_spread(scale):
    f = scale * RNG.normal(size=(64, 2))
    g = f + 0.2 * f.std(axis=0) * [0.0, 1.0]
    assert values_apart([f, f, g]) == pytest.approx(0.2)
    assert values_apart([f, f]) == 0.0


def test_rounding_of_constants_is_no_difference():
    constant = np.full((64, 1), 1e5)
    assert values_apart([constant, constant * (1 + 1e-15)]) < 1e-5
    assert values_apart([np.zeros((64, 1)), np.zeros((64, 1))]) == 0.0
