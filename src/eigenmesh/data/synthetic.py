"""Synthetic data of the papers, and sets shaped like their real ones.

Paper 000: F. He, X. Huang, K. Lv, J. Yang, "A Communication-efficient Distributed Algorithm
for Kernel Principal Component Analysis", section V.
Paper 002: Y. Cheung, J. Jiang, F. Yu, J. Lou, "Vertical Federated Principal Component Analysis and
Its Kernel Extension on Feature-wise Distributed Data", section IV.B.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import InputError

Array = NDArray[np.float64]


def paper_linear(
    n_features: int = 1000,
    n_samples: int = 200,
    rank: int = 50,
    spectrum: Sequence[float] = (5000.0, 2500.0, 1125.0),
    floor: float = 50.0,
    random_state: Any = None,
) -> Array:
    """Paper 000's simulation X = V √Σ Uᵀ, samples by features, with orthonormal U and V.

    The squared singular values are `spectrum`, then `floor` up to `rank`, then zero.

    >>> X = paper_linear(random_state=0)
    >>> X.shape, (np.linalg.svd(X, compute_uv=False)[:4] ** 2).round(6).tolist()
    ((200, 1000), [5000.0, 2500.0, 1125.0, 50.0])
    """
    if not len(spectrum) <= rank <= min(n_features, n_samples):
        raise InputError(
            f"rank is {rank}, expected from {len(spectrum)} (the length of spectrum) to "
            f"{min(n_features, n_samples)} (the smaller side of X); change rank or the sizes"
        )
    squares = np.array([*spectrum, *[floor] * (rank - len(spectrum))], dtype=np.float64)
    if not (squares >= 0).all():
        raise InputError("spectrum or floor has a negative value, expected squares: all ≥ 0")
    rng = np.random.default_rng(random_state)
    U, V = _orthonormal(n_features, rank, rng), _orthonormal(n_samples, rank, rng)
    return (V * np.sqrt(squares)) @ U.T


def density_columns(
    n_samples: int = 200,
    n_features: int = 1000,
    *,
    mixture: bool = False,
    random_state: Any = None,
) -> Array:
    """Paper 002's "single" and "mixture" Gaussian sets: densities at points drawn uniformly.

    Column i holds the density of N(μ_i, σ_i²) at uniform points within 3σ_i of μ_i, which are not
    Gaussian samples. Of a mixture μ and σ are drawn from 0 … n_features, but no σ is 0, which has
    no density; else μ = 0 and σ = 1 in all columns.

    >>> X = density_columns(50, 20, random_state=0)
    >>> X.shape, bool(X.max() <= 1 / np.sqrt(2 * np.pi))
    ((50, 20), True)
    >>> bool(np.ptp(density_columns(50, 20, mixture=True, random_state=0).std(axis=0)) > 0)
    True
    """
    for name, value in {"n_samples": n_samples, "n_features": n_features}.items():
        if value < 1:
            raise InputError(f"{name} is {value}, expected at least 1")
    rng = np.random.default_rng(random_state)
    mean, scale = np.zeros(n_features), np.ones(n_features)
    if mixture:
        mean = rng.integers(0, n_features + 1, n_features).astype(np.float64)
        scale = rng.integers(1, n_features + 1, n_features).astype(np.float64)
    x = rng.uniform(mean - 3 * scale, mean + 3 * scale, size=(n_samples, n_features))
    densities: Array = np.exp(-(((x - mean) / scale) ** 2) / 2) / (np.sqrt(2 * np.pi) * scale)
    return densities


def gene_like(
    n_samples: int = 120,
    n_features: int = 5000,
    n_factors: int = 6,
    n_classes: int = 3,
    noise: float = 0.5,
    random_state: Any = None,
) -> tuple[Array, NDArray[np.intp]]:
    """Log-expression levels of few samples and many genes, with class labels.

    A few latent programmes, each moving a tenth of the genes, differ in level between
    classes; genes have baselines of their own.

    >>> X, labels = gene_like(n_samples=30, n_features=200, random_state=0)
    >>> X.shape, sorted(set(labels.tolist()))
    ((30, 200), [0, 1, 2])
    """
    sizes = {"n_samples": n_samples, "n_features": n_features, "n_factors": n_factors}
    for name, value in (sizes | {"n_classes": n_classes}).items():
        if value < 1:
            raise InputError(f"{name} is {value}, expected at least 1")
    rng = np.random.default_rng(random_state)
    labels = rng.permutation(np.arange(n_samples) % n_classes)
    levels = rng.normal(scale=2.0, size=(n_classes, n_factors))[labels]  # (n, f)
    activity = levels + rng.normal(size=(n_samples, n_factors))
    moves = rng.random((n_factors, n_features)) < 0.1
    loadings = np.where(moves, rng.laplace(scale=0.7, size=moves.shape), 0.0)  # (f, d)
    baseline = rng.gamma(shape=4.0, scale=1.5, size=n_features)
    X: Array = baseline + activity @ loadings + noise * rng.normal(size=(n_samples, n_features))
    return X, labels


def _orthonormal(n: int, rank: int, rng: np.random.Generator) -> Array:
    """Random orthonormal columns; the thin factor alone, never n × n."""
    Q: Array = np.linalg.qr(rng.normal(size=(n, rank)))[0]
    return Q
