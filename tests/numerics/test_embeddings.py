"""Embeddings: inner products near the kernel's values, alike at every party, sparse rows sparse."""

import numpy as np
import pytest
import scipy.sparse as sp

from eigenmesh.errors import InputError, RankError
from eigenmesh.numerics.embeddings import (
    embedded_width,
    embedding,
    is_exact,
    leverage_skew,
    whitening_of,
)
from eigenmesh.numerics.kernels import Kernel

KERNELS = [
    Kernel("linear"),
    Kernel("cosine"),
    Kernel("rbf", gamma=0.05),
    Kernel("laplacian", gamma=0.1),
    Kernel("poly", gamma=0.2, degree=2, coef0=0.5),
    Kernel("poly", gamma=0.2, degree=3, coef0=0.0),
    Kernel("arc-cosine", degree=0),
    Kernel("arc-cosine", degree=1),
    Kernel("arc-cosine", degree=2),
]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: f"{k.name}-{k.degree}")


def rows(n=60, d=6, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def error(kernel, X, width):
    """‖EEᵀ − K‖_F / ‖K‖_F, the mean of a few seeds."""
    K = kernel.matrix(X)
    draws = [embedding(kernel, X.shape[1], width, seed)(X) for seed in range(4)]
    return np.mean([np.linalg.norm(E @ E.T - K) for E in draws]) / np.linalg.norm(K)


@every_kernel
def test_inner_products_approach_the_kernel_as_the_width_grows(kernel):
    X = rows()
    narrow, wide = error(kernel, X, 20), error(kernel, X, 800)
    assert wide < 0.2
    assert wide < 0.35 * narrow or wide < 1e-12


@every_kernel
def test_parties_that_share_the_seed_embed_alike(kernel):
    X = rows()
    whole = embedding(kernel, 6, 25, seed=3)(X)
    apart = [embedding(kernel, 6, 25, seed=3)(part) for part in (X[:10], X[10:])]
    np.testing.assert_allclose(np.vstack(apart), whole, atol=1e-12)
    if not is_exact(kernel.name, 6, 25):
        assert np.abs(embedding(kernel, 6, 25, seed=4)(X) - whole).max() > 1e-3


@every_kernel
@pytest.mark.parametrize("width", [1, 4, 7, 40])
def test_the_width_is_the_one_foretold(kernel, width):
    assert embedding(kernel, 6, width, 0)(rows()).shape[1] == embedded_width(kernel.name, 6, width)


@every_kernel
def test_sparse_rows_embed_like_dense_ones(kernel):
    X = sp.random_array((40, 30), density=0.2, format="csr", random_state=np.random.default_rng(0))
    embed = embedding(kernel, 30, 20, seed=0)
    np.testing.assert_allclose(embed(X), embed(X.toarray()), atol=1e-12)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_narrow_data_are_embedded_exactly(name):
    X, kernel = rows(), Kernel(name)
    assert is_exact(name, 6, 6)
    assert not is_exact(name, 6, 5)
    E = embedding(kernel, 6, 6, seed=0)(X)
    np.testing.assert_allclose(E @ E.T, kernel.matrix(X), atol=1e-13)


@pytest.mark.parametrize("kernel", [KERNELS[2], KERNELS[7]], ids=["rbf", "relu"])
def test_orthogonal_features_are_better_than_independent_ones(kernel):
    X = rows(d=30)
    independent = np.random.default_rng(5).standard_normal((30, 60))
    if kernel.name == "rbf":
        angles = np.sqrt(2 * kernel.gamma) * X @ independent
        E = np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(60)
    else:
        E = np.maximum(X @ independent, 0) * np.sqrt(2 / 60)
    K = kernel.matrix(X)
    plain = np.linalg.norm(E @ E.T - K) / np.linalg.norm(K)
    assert error(kernel, X, 2 * 60 if kernel.name == "rbf" else 60) < plain


def test_a_row_of_zeros_keeps_its_kernel_values():
    X = np.vstack([np.zeros(6), rows(5)])
    for order in (0, 1):
        kernel = Kernel("arc-cosine", degree=order)
        E = embedding(kernel, 6, 20_000, seed=0)(X)
        np.testing.assert_allclose(E[0] @ E.T, kernel.matrix(X)[0], atol=0.02)


@pytest.mark.parametrize(
    ("kernel", "match"),
    [
        (Kernel("sigmoid", gamma=1.0), "no feature embedding"),
        (Kernel("poly", gamma=1.0, degree=2.5), "whole degree"),
        (Kernel("poly", gamma=1.0, degree=2, coef0=-1.0), "negative"),
    ],
)
def test_kernels_without_a_feature_space_are_refused(kernel, match):
    with pytest.raises(InputError, match=match):
        embedding(kernel, 3, 10, 0)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 7, 20])
@pytest.mark.parametrize("coef0", [0.0, 0.7])
def test_narrow_rows_without_transforms_are_sketched_as_by_them(degree, width, coef0):
    X = np.random.default_rng(0).normal(size=(600, 5))
    kernel = Kernel("poly", gamma=0.3, degree=degree, coef0=coef0)
    embed = embedding(kernel, 5, width, seed=4)
    np.testing.assert_allclose(embed(X), embed(sp.csr_array(X)), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(embed(X)[300:301], embed(X[300:301]), rtol=1e-12, atol=1e-12)


def test_rows_that_an_embedding_does_not_show_are_level_and_whitening_says_so():
    """Rectified features of rows on one side of all directions, by a quarter of all seeds."""
    X = np.array([3.3, -7.1, 2.2]) + 0.1 * np.random.default_rng(0).normal(size=(50, 3))
    kernel = Kernel("arc-cosine", None, 2)
    unseen = [s for s in range(20) if not embedding(kernel, 3, 2, s)(X).any()]
    assert unseen
    assert all(leverage_skew(kernel, X, 1, s, 100) == 1.0 for s in unseen)
    with pytest.raises(RankError, match="another random_state or landmarks='uniform'"):
        whitening_of(np.zeros((2, 2)))
