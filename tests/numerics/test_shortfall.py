"""What landmarks miss of one component among many shows, however few probes there are."""

from __future__ import annotations

import numpy as np
import pytest

from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span, landmark_sums
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.shortfall import Probes, probe, probe_directions, shortfall

LINEAR = Kernel("linear")


def tilted(rng):
    """Rows, and landmarks that hold all main directions but one, which is tilted outwards."""
    k = int(rng.integers(3, 9))
    X = rng.normal(size=(600, k + 1)) * [*(2.0 ** -np.arange(k)), 1e-3]
    Y, j, angle = np.eye(k + 1)[:k], int(rng.integers(k - 1)), rng.uniform(0.15, 0.4)
    Y[j] = np.cos(angle) * Y[j] + np.sin(angle) * np.eye(k + 1)[-1]
    return X, Y, k, j


def estimated(X, Y, k, count, seed):
    model = LandmarkModel.fit(LINEAR, Y, landmark_sums(LINEAR, X, Y), k, False, Span.of(LINEAR, Y))
    z = model.eigenvalues
    scaled = probe_directions(z, count) / np.sqrt(z)[:, None]
    outside = float(np.square(X).sum() - z.sum())
    how = (model.coefficients @ scaled, model.offset @ scaled, outside / len(X), 1.0, 128)
    seen = [probe(LINEAR, Y, X, Probes(*how), seed, np.random.default_rng(seed))]
    true = 1 - z / np.linalg.svd(X, compute_uv=False)[:k] ** 2
    return shortfall("linear", z, seen, outside, False), true


@pytest.mark.parametrize("seed", range(12))
def test_one_component_that_misses_much_is_noticed_by_two_probes(seed):
    rng = np.random.default_rng(seed)
    X, Y, k, j = tilted(rng)
    few, true = estimated(X, Y, k, 2, seed)
    whole, _ = estimated(X, Y, k, k, seed)
    assert true[j] > 0.01
    assert (few.values + 2 * few.errors)[:-1].max() > 0.01, "though not which one it is"
    assert true[j] / 2 <= whole.values[j] <= 2 * true[j]


@pytest.mark.parametrize("count", range(2, 7))
def test_probes_are_orthonormal_and_look_at_every_component(count):
    z = np.random.default_rng(count).uniform(0.1, 9.0, size=6)
    directions = probe_directions(z, count)
    np.testing.assert_allclose(directions.T @ directions, np.eye(count), atol=1e-14)
    assert (np.square(directions).sum(axis=1) > 0).all()
