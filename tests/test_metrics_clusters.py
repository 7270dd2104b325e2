"""Measures of clusters, against their definitions."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris

import eigenmesh as em
from eigenmesh.metrics import feature_space_inertia, recovery_error


def test_inertia_with_a_linear_kernel_is_that_of_kmeans():
    X = load_iris().data
    kmeans = KMeans(3, n_init=5, random_state=0).fit(X)
    assert feature_space_inertia(X @ X.T, kmeans.labels_) == pytest.approx(kmeans.inertia_)


def test_weights_count_as_copies():
    X = load_iris().data[:40]
    labels = np.arange(40) % 3
    w = np.random.default_rng(0).integers(0, 4, 40)
    copies, copied = np.repeat(X, w, axis=0), np.repeat(labels, w)
    expected = feature_space_inertia(copies @ copies.T, copied)
    assert feature_space_inertia(X @ X.T, labels, w) == pytest.approx(expected)


def test_recovery_error_is_the_squared_distance_of_kernel_matrices():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 5))
    values, vectors = np.linalg.eigh(A @ A.T)
    top = values[::-1][:3], vectors[:, ::-1][:, :3]
    Z = rng.normal(size=(30, 4))
    expected = np.square(Z @ Z.T - (top[1] * top[0]) @ top[1].T).sum() / 30**2
    assert recovery_error(Z, *top) == pytest.approx(expected)
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    assert recovery_error(top[1] * np.sqrt(top[0]) @ rotation, *top) < 1e-25


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(em.EigenmeshError, match="expected"):
        feature_space_inertia(np.eye(3), [0, 1])
    with pytest.raises(em.EigenmeshError, match="expected"):
        recovery_error(np.ones((3, 2)), [1.0], np.ones((3, 2)))
