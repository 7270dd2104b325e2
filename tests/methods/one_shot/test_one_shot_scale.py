"""Many samples: the linear case never forms T × T, neither at a party nor at the centre."""

import time
import tracemalloc

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.metrics import sin_theta

N_SAMPLES = 20_000


@pytest.fixture(scope="module")
def tall():
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(N_SAMPLES, 4)) * [8.0, 4.0, 2.0, 1.0]
    return latent @ rng.normal(size=(4, 200)) + 0.1 * rng.normal(size=(N_SAMPLES, 200))


@pytest.mark.parametrize("center", [True, False])
def test_twenty_thousand_samples_take_seconds_and_far_less_memory_than_their_kernel_matrix(
    tall, center
):
    parts = em.split(tall, 5, by="columns")
    model = em.OneShotKPCA(3, center=center)
    tracemalloc.start()
    started = time.perf_counter()
    try:
        scores = model.fit(parts).transform(parts)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - started < 20.0
    assert peak < 500e6  # T × T doubles would be 3200e6
    X = tall - tall.mean(axis=0) if center else tall
    exact = np.linalg.svd(X, full_matrices=False)[0][:, :3]
    error = sin_theta(model.eigenvectors_, exact)
    assert error < 1e-3
    assert error <= model.report_.bounds["sin_theta"]
    assert scores.shape == (N_SAMPLES, 3)
    assert model.report_.floats_up == 5 * 8 * (N_SAMPLES + 1)


def test_many_narrow_parties_do_not_multiply_the_memory(tall):
    parts = em.split(tall[:, :100], 100, by="columns")
    tracemalloc.start()
    try:
        with pytest.warns(em.CostWarning):  # one vector a column is as much as the column
            em.OneShotKPCA(2).fit(parts)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 500e6


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_many_columns_are_never_squared(kernel):
    X = np.random.default_rng(0).normal(size=(60, 20_000))
    parts = em.split(X, 2, by="columns")
    tracemalloc.start()
    try:
        em.OneShotKPCA(2, kernel=kernel, gamma=1e-5).fit(parts)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100e6  # 10,000 × 10,000 doubles would be 800e6
