"""Digits at the nodes of a graph, and pooled kernel PCA straight from its definition."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.spatial.distance import cdist, pdist
from sklearn.datasets import load_digits

import eigenmesh as em


@cache
def digits(sorted_by_label=False):
    """Rows of the digits 0, 3, 5, 8, shuffled or sorted, and gamma = 0.5 / median d²."""
    data = load_digits()
    keep = np.isin(data.target, [0, 3, 5, 8])
    X, y = data.data[keep] / 16, data.target[keep]
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    if sorted_by_label:
        X = X[np.argsort(y, kind="stable")]
    return X, 0.5 / np.median(pdist(X, "sqeuclidean"))


def nodes(X, n_nodes):
    return em.Partitioned(rows=np.array_split(X, n_nodes))


def kernel(A, B, gamma):
    return np.exp(-gamma * cdist(A, B, "sqeuclidean"))


def central(X, gamma, k):
    """Eigenvalues, and coefficients a with w* = Σ a φ(x), of centred kernel PCA."""
    K = kernel(X, X, gamma)
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    values, vectors = np.linalg.eigh(K)
    values, vectors = values[::-1][:k], vectors[:, ::-1][:, :k]
    return values, vectors / np.sqrt(values)


def central_scores(X, gamma, k):
    values, coefficients = central(X, gamma, k)
    return coefficients * values


def cosine(model, X, gamma):
    """|cos| of a model's single direction Σ c φ(y) with the pooled component, from kernels only."""
    _, a = central(X, gamma, 1)
    Y, c = model.landmarks, model.coefficients
    length = np.sqrt(c.T @ kernel(Y, Y, gamma) @ c)
    return float(np.abs(a.T @ kernel(X, Y, gamma) @ c / length)[0, 0])
