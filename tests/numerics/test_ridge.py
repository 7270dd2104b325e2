"""Ridge from sums is scikit-learn's, however the sums were put together."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from eigenmesh.numerics.ridge import RidgeSums, ridge, ridge_sums

RNG = np.random.default_rng(0)
Z = RNG.normal(loc=0.3, size=(60, 4))
Y = Z @ RNG.normal(size=(4, 2)) + [5.0, 1e6] + 0.1 * RNG.normal(size=(60, 2))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 50.0])
@pytest.mark.parametrize("off", [0.0, 3.0], ids=["at the mean", "near the mean"])
def test_parts_that_add_up_give_scikit_learns_ridge(alpha, off):
    centre = Y.mean(axis=0) + off
    parts = [ridge_sums(Z[own], Y[own] - centre) for own in (slice(7), slice(7, None))]
    fit = ridge(RidgeSums(*map(sum, zip(*parts, strict=True))), centre, alpha)
    theirs = Ridge(alpha, solver="svd").fit(Z, Y)
    np.testing.assert_allclose(fit.coefficients.T, theirs.coef_, rtol=1e-8)
    np.testing.assert_allclose(fit.intercept, theirs.intercept_, rtol=1e-9)
    residuals = np.square(Y - theirs.predict(Z)).sum(axis=0)
    total = np.square(Y - Y.mean(axis=0)).sum(axis=0)
    np.testing.assert_allclose(fit.r_squared, 1 - residuals / total, rtol=1e-9)


def test_constant_targets_are_predicted_by_the_intercept():
    fit = ridge(ridge_sums(Z, np.zeros((60, 1))), np.array([7.0]), alpha=1.0)
    np.testing.assert_array_equal(fit.coefficients, 0.0)
    np.testing.assert_array_equal(fit.intercept, 7.0)
