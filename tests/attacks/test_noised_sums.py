"""Who knows all rows but one, and both things that it may be, asks which of the two it is."""

from __future__ import annotations

import numpy as np
import pytest

from eigenmesh.methods.private_features.maths import UnitFeatures, moment_vector
from eigenmesh.methods.private_features.protocol import PrivateSetup, moments_mechanism
from eigenmesh.numerics.kernels import Kernel

RNG = np.random.default_rng(9)
WIDTH, DRAWS = 6, 4000


def neighbours():
    """Sums of two data sets that differ in one row, as far apart as rows make them."""
    features = UnitFeatures(Kernel("rbf", 0.5, 3.0, 1.0), 2, WIDTH, 0)
    rows = RNG.normal(size=(30, 2))
    one = moment_vector(features, rows, centre=True)
    others = []
    for candidate in RNG.normal(size=(200, 2)) * 3:
        other = rows.copy()
        other[0] = candidate
        others.append(moment_vector(features, other, centre=True))
    return one, max(others, key=lambda other: float(np.linalg.norm(other - one)))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_best_test_there_is_does_no_better_than_the_promise(epsilon):
    delta = 1e-3
    setup = PrivateSetup("rbf", 0.5, WIDTH, 0, True, epsilon, delta)
    one, other = neighbours()
    mechanism = moments_mechanism(setup, len(one))
    direction = (other - one) / np.linalg.norm(other - one)
    seen = [
        np.sort([mechanism.read(mechanism.release(truth, 1)) @ direction for _ in range(DRAWS)])
        for truth in (one, other)
    ]
    for threshold in np.quantile(np.concatenate(seen), np.linspace(0.02, 0.98, 49)):
        alarms, hits = (float(np.mean(own > threshold)) for own in seen)
        chance = 4 * np.sqrt((hits * (1 - hits) + np.exp(2 * epsilon) * alarms) / DRAWS)
        assert hits <= np.exp(epsilon) * alarms + delta + chance
    # It is a test that would tell: with a tenth of the noise it finds out nearly always.
    apart = np.linalg.norm(other - one) / mechanism.sigma
    means = [float(np.mean(own)) for own in seen]
    assert (means[1] - means[0]) / mechanism.sigma == pytest.approx(apart, abs=5 / np.sqrt(DRAWS))
    assert apart * 10 > 2
