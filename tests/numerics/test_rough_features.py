"""Random features of rough kernels, drawn at the landmarks' distances, show rows in any units."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.rough_features import rough_features


def drawn(seed, scale):
    """Rows and landmarks in such units, about one row or several; the kernel's values of rows."""
    rng, rough = np.random.default_rng(seed), seed % 3
    kernel = (
        Kernel("laplacian", 0.4),
        Kernel("arc-cosine", None, 0),
        Kernel("arc-cosine", None, 1),
    )
    d = int(rng.integers(2, 6))
    middles = np.eye(d)[rng.integers(int(rng.integers(1, 3)), size=40)]
    X = middles + scale * rng.normal(size=(40, d)) * rng.uniform(0.3, 1, d)
    return kernel[rough], X


def apart(products):
    """Squared distances of rows that have such inner products."""
    lengths = np.diag(products)
    return lengths[:, None] + lengths - 2 * products


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("seed", range(6))
def test_distances_are_the_kernels_in_the_mean(seed, scale):
    kernel, X = drawn(seed, scale)
    span = Span.of(kernel, X[:20])
    draws = []
    for i in range(100):
        E = rough_features(span, 128, np.random.SeedSequence((seed, i)))(X[20:30])
        draws.append(apart(E @ E.T))
    pairs = np.triu_indices(10, 1)
    values = apart(np.asarray(kernel.matrix(X[20:30]), dtype=np.float64))[pairs]
    mean, error = np.mean(draws, axis=0)[pairs], np.std(draws, axis=0)[pairs] / np.sqrt(len(draws))
    assert (np.abs(mean - values) < 5 * error + 1e-6 * values.max()).all()


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("seed", [0, 1, 3, 4])
def test_one_draw_is_near_in_any_units(seed, scale):
    """Without the landmarks' distances it is 0 for most pairs."""
    kernel, X = drawn(seed, scale)
    E = rough_features(Span.of(kernel, X[:20]), 256, np.random.SeedSequence(seed))(X[20:])
    pairs = np.triu_indices(20, 1)
    values = apart(np.asarray(kernel.matrix(X[20:]), dtype=np.float64))[pairs]
    ratios = (apart(E @ E.T)[pairs] / values)[values > 1e-9]
    assert np.mean((ratios > 1 / 3) & (ratios < 3)) >= 0.9


@pytest.mark.parametrize("kernel", [Kernel("laplacian", 0.4), Kernel("arc-cosine", None, 0)])
def test_rounding_on_the_way_moves_no_draw(kernel):
    """Landmarks on a grid have many next to them, of which rounding would choose one."""
    Y = np.stack(np.meshgrid(*[np.arange(1, 4.0)] * 3), axis=-1).reshape(-1, 3) / 10
    X = np.random.default_rng(0).normal(size=(30, 3))
    nudged = Y * (1 + 1e-15 * np.random.default_rng(1).normal(size=Y.shape))
    ours, theirs = (
        rough_features(Span.of(kernel, own), 64, np.random.SeedSequence(0))(X)
        for own in (Y, nudged)
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("kernel", [Kernel("laplacian", 0.4), Kernel("arc-cosine", None, 0)])
@pytest.mark.parametrize(
    "Y", [np.ones((1, 3)), np.ones((4, 3)), np.zeros((2, 3)), np.eye(3)[:2]], ids=str
)
def test_few_landmarks_and_copies_are_landmarks(kernel, Y):
    X = np.random.default_rng(0).normal(size=(5, 3))
    span = Span(kernel, Y, np.asarray(kernel.matrix(Y)))
    E = rough_features(span, 4000, np.random.SeedSequence(0))(X)
    np.testing.assert_allclose(E @ E.T, kernel.matrix(X), atol=0.2)
    sparse = Span(kernel, sp.csr_array(Y), span.K)
    same = rough_features(sparse, 4000, np.random.SeedSequence(0))(X)
    np.testing.assert_allclose(same, E)
