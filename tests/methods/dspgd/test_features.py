"""Features of successive iterations: each distributed as one alone, together better."""

import numpy as np
import pytest
from scipy.stats import kstest

from eigenmesh.methods.dspgd.features import fresh_features, successive_directions
from eigenmesh.numerics.kernels import Kernel


@pytest.mark.parametrize(("d", "m"), [(64, 50), (2, 50), (7, 3), (300, 20), (5000, 30)])
def test_every_direction_is_a_normal_one(d, m):
    drawn = np.hstack(
        [successive_directions(d, m, seed, t) for seed in range(6) for t in range(1, 9)]
    )
    assert kstest(drawn[0], "norm").pvalue > 1e-3
    np.testing.assert_allclose(np.square(drawn).sum(axis=0).mean(), d, rtol=0.15)


def test_directions_stay_orthogonal_until_a_basis_is_complete():
    d, m = 300, 40
    first = np.hstack([successive_directions(d, m, 0, t) for t in range(1, 8)])  # 280 of 300
    gram = first.T @ first
    np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-9)
    later = successive_directions(d, m, 0, 8)
    assert np.abs(first.T @ later[:, 20:]).max() > 0.1  # of the next basis


@pytest.mark.parametrize("d", [3, 40])
def test_the_mean_of_complementary_features_is_nearer_to_the_kernel(d):
    X = np.random.default_rng(0).normal(size=(40, d))
    kernel = Kernel("rbf", 1 / (2 * d))
    K = kernel.matrix(X)

    def error(law, seed):
        A = [fresh_features(kernel, d, 20, seed, t, law)(X) for t in range(1, 21)]
        return np.square(np.mean([a @ a.T for a in A], axis=0) - K).mean()

    ours, theirs = (
        np.mean([error(law, seed) for seed in range(8)]) for law in ("complementary", "independent")
    )
    assert ours < 0.7 * theirs


@pytest.mark.parametrize("name", ["rbf", "laplacian"])
@pytest.mark.parametrize("seed", range(3))
def test_the_papers_features_are_independent_cosines(name, seed):
    """Unbiased; each √2 cos, so that squares reach 2; variance of a product as the law says."""
    rng = np.random.default_rng(seed)
    x, z = rng.normal(size=(2, 1, 3))
    kernel = Kernel(name, float(rng.uniform(0.1, 0.4)))
    D, k = 20_001, float(kernel.block(x, z)[0, 0])
    embed = fresh_features(kernel, 3, D, seed, 1, "paper")
    a, b = embed(x)[0], embed(z)[0]
    assert len(a) == D
    assert 1.99 < (a**2).max() * D <= 2
    products = a * b * D
    assert products.mean() == pytest.approx(k, abs=4 * products.std() / np.sqrt(D))
    doubled = float(kernel.block(2 * x, 2 * z)[0, 0])  # E cos(2ω(x − z)); 2 cos·cos + its square
    assert products.var() == pytest.approx(1 - k**2 + doubled / 2, abs=0.05)
    order = rng.permutation(D)  # orthogonal or paired features would be correlated
    assert abs(np.corrcoef(products[order[: D // 2]], products[order[D // 2 : -1]])[0, 1]) < 0.04
    assert abs(np.corrcoef(products[:-1], products[1:])[0, 1]) < 0.04


def test_the_papers_features_have_the_largest_error():
    """The order in which the documentation puts the three laws."""
    X, kernel = np.random.default_rng(0).normal(size=(40, 16)), Kernel("rbf", 1 / 32)
    K = kernel.matrix(X)

    def error(law, seed):
        A = [fresh_features(kernel, 16, 20, seed, t, law)(X) for t in range(1, 6)]
        return np.square(np.mean([a @ a.T for a in A], axis=0) - K).mean()

    laws = ("complementary", "independent", "paper")
    ours, within, theirs = (np.mean([error(law, s) for s in range(8)]) for law in laws)
    assert ours < within < theirs


def test_iterations_and_seeds_differ():
    kernel, X = Kernel("rbf", 1.0), np.ones((1, 2))
    drawn = [fresh_features(kernel, 2, 4, seed, t)(X) for seed in (0, 1) for t in (1, 2)]
    assert len({tuple(a.ravel()) for a in drawn}) == 4


def test_other_kernels_have_independent_features():
    X = np.random.default_rng(0).normal(size=(5, 3))
    one, other = (
        fresh_features(Kernel("laplacian", 0.3), 3, 8, 0, 1, law)(X)
        for law in ("complementary", "independent")
    )
    np.testing.assert_array_equal(one, other)
