"""The accountant and the noise: what a promise takes, what a party adds, what a sum has."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import chi2, kstest

from eigenmesh.errors import InputError
from eigenmesh.runtime.privacy import (
    GaussianMechanism,
    epsilon_of,
    honest_fewest,
    loss_of,
    require_promise,
    standard_normals,
)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_the_noise_of_a_promise_is_the_least_that_keeps_it(epsilon, delta):
    z = loss_of(epsilon, delta) ** -0.5
    # Balle and Wang (2018), Theorem 8, for sensitivity 1.
    reached = ndtr(0.5 / z - epsilon * z) - np.exp(epsilon) * ndtr(-0.5 / z - epsilon * z)
    assert reached == pytest.approx(delta, rel=1e-5)


def test_losses_of_several_releases_add_up_to_one_promise():
    halves = 2 * (loss_of(1.0, 1e-6) / 2)
    assert epsilon_of(halves, 1e-6) == pytest.approx(1.0, abs=1e-6)
    assert 1.0 < epsilon_of(2 * loss_of(1.0, 1e-6), 1e-6) < 2.0  # less than the epsilons' sum
    assert epsilon_of(0.0, 1e-6) == 0.0


@pytest.mark.parametrize("n_summed", [1, 2, 3, 7])
def test_a_share_of_the_noise_is_what_the_accountant_says(n_summed):
    size = 40_000
    mechanism = GaussianMechanism(loss_of(1.0, 1e-6), 1.5, size)
    values = np.linspace(-1e4, 1e4, size)
    noise = mechanism.read(mechanism.release(values, n_summed)) - values
    variance = mechanism.sigma**2 / honest_fewest(n_summed)
    low, high = chi2.ppf([1e-6, 1 - 1e-6], size) / size
    assert low < np.mean(noise**2) / variance < high
    assert kstest(noise / np.sqrt(variance), "norm").pvalue > 1e-6


def test_half_of_the_parties_have_noise_enough_whichever_they_are():
    mechanism = GaussianMechanism(0.25, 1.0, 10)
    for n in range(2, 30):
        fewest = honest_fewest(n)
        share = mechanism.sum_sigma(n, masked=True) ** 2 / n
        assert fewest * share >= mechanism.sigma**2 * (1 - 1e-12)
        assert n <= 2 * fewest <= n + 1
        assert mechanism.sum_sigma(n, masked=True) <= np.sqrt(2) * mechanism.sigma
        assert mechanism.sum_sigma(n, masked=False) == pytest.approx(np.sqrt(n) * mechanism.sigma)


def test_what_is_released_are_whole_numbers_of_one_grid_whatever_the_values():
    mechanism = GaussianMechanism(0.1, np.sqrt(2.0), 5)
    released = mechanism.release(np.array([0.1, 1e-30, 1e6 / 3, -7.0, 0.0]), 1)
    assert released.dtype == np.int64
    assert np.log2(mechanism.grid) == np.rint(np.log2(mechanism.grid))
    # Rounding moves neighbours apart by a grid in every number: sigma is for that, too.
    apart = mechanism.sensitivity + mechanism.grid * np.sqrt(mechanism.size)
    assert mechanism.sigma == pytest.approx(apart / np.sqrt(0.1))


def test_noise_is_never_drawn_twice():
    draws = [standard_normals(100) for _ in range(20)]
    assert len({draw.tobytes() for draw in draws}) == 20
    tails = standard_normals(200_000)
    assert 3.5 < min(-tails.min(), tails.max()) <= max(-tails.min(), tails.max()) < 7


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-6), (-1, 1e-6), (np.inf, 1e-6), (None, 1e-6), (1, 0), (1, 1)]
)
def test_what_is_no_promise_is_refused(epsilon, delta):
    with pytest.raises(InputError, match="epsilon is|delta is"):
        require_promise(epsilon, delta)
