"""Synthetic sets of the shape of real ones, for where these cannot be had.

They have classes, a falling spectrum and, where the real ones have it, heavy tails, zeros or
smoothness. What is measured on them is said to be so: they show that the code runs at that shape
and what the methods do on data of that kind, not what they do on the set that they stand in for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.ndimage
import scipy.sparse as sp
from sklearn.datasets import load_digits

from eigenmesh.data.synthetic import gene_like

Pair = tuple[Any, Any]


def table_like(n: int, d: int, n_classes: int, rng: np.random.Generator, tail: float = 0.0) -> Pair:
    """Classes in a few latent directions, with noise; `tail` > 0 makes a few rows large.

    >>> X, y = table_like(50, 6, 3, np.random.default_rng(0))
    >>> X.shape, len(set(y.tolist()))
    ((50, 6), 3)
    """
    y = rng.integers(n_classes, size=n)
    rank = min(d, 8)
    latent = rng.normal(scale=2.0, size=(n_classes, rank))[y] + rng.normal(size=(n, rank))
    latent *= 0.7 ** np.arange(rank)
    X = latent @ rng.normal(size=(rank, d)) + 0.5 * rng.normal(size=(n, d))
    if tail:
        X *= np.exp(tail * rng.normal(size=(n, 1)))
    return X, y


def regression_like(n: int, d: int, rng: np.random.Generator) -> Pair:
    """As a table, with a target that is a smooth function of the first latent directions."""
    X, _ = table_like(n, d, 4, rng)
    scores = X @ rng.normal(size=(d, 3)) / np.sqrt(d)
    return X, 10 + 3 * np.tanh(scores[:, 0]) + scores[:, 1] + 0.3 * rng.normal(size=n)


def one_hot_like(n: int, widths: tuple[int, ...], rng: np.random.Generator) -> Pair:
    """Attributes of two classes, one-hot."""
    y = rng.integers(2, size=n)
    blocks = []
    for width in widths:
        chances = rng.dirichlet(np.full(width, 0.6), size=2)
        drawn = np.array([rng.choice(width, p=chances[label]) for label in y])
        blocks.append(np.eye(width)[drawn])
    return np.hstack(blocks), y


def counts_like(n: int, d: int, n_topics: int, rng: np.random.Generator) -> Pair:
    """Documents: sparse counts of words, by Zipf's law, of very different lengths."""
    y = rng.integers(n_topics, size=n)
    common = 1.0 / np.arange(1, d + 1)
    topics = common * rng.gamma(0.3, size=(n_topics, d))
    topics /= topics.sum(axis=1, keepdims=True)
    lengths = np.maximum(rng.lognormal(4.5, 1.2, size=n), 5).astype(int)
    rows = [rng.multinomial(length, topics[t]) for length, t in zip(lengths, y, strict=True)]
    return sp.csr_array(np.array(rows, dtype=np.float64)), y


def digits_like(n: int, rng: np.random.Generator) -> Pair:
    """scikit-learn's 8×8 digits, enlarged to 28×28 and shifted by up to two pixels."""
    small, labels = load_digits(return_X_y=True)
    draw = rng.integers(len(small), size=n)
    X = np.zeros((n, 28, 28))
    for i, image in enumerate(small[draw].reshape(-1, 8, 8) / 16):
        large = np.clip(scipy.ndimage.zoom(image, 2.5, order=1), 0, 1)  # 20×20, as in MNIST
        top, left = 4 + rng.integers(-2, 3, size=2)
        X[i, top : top + 20, left : left + 20] = large
    return X.reshape(n, 784), labels[draw]


def images_like(n: int, side: int, n_classes: int, rng: np.random.Generator) -> Pair:
    """Smooth grey images in [0, 1]: a common scene, one of each class, light and noise."""
    y = np.arange(n) % n_classes
    scene = _smooth(1, side, rng)
    classes = _smooth(n_classes, side, rng)
    own = 0.3 * _smooth(n, side, rng)
    light = rng.uniform(0.6, 1.4, size=(n, 1, 1))
    X = light * (scene + 0.6 * classes[y] + own) + 0.02 * rng.normal(size=(n, side, side))
    X = (X - X.min()) / (X.max() - X.min())
    return X.reshape(n, side * side), y


def _smooth(n: int, side: int, rng: np.random.Generator) -> Any:
    """Random fields, made on a coarse grid: of 512×512 pixels a filter would take minutes."""
    coarse = rng.normal(size=(n, 9, 9))
    grid = np.linspace(0, 8, side)
    at = np.stack(np.meshgrid(grid, grid, indexing="ij"))
    fields = [scipy.ndimage.map_coordinates(field, at, order=1, mode="nearest") for field in coarse]
    return np.array(fields)


def toxicants_like(n: int, d: int, rng: np.random.Generator) -> Pair:
    """Expression levels of four classes in the shares of GSE2187, a few values missing."""
    shares = np.array([107, 93, 156, 181]) / 537
    labels = np.repeat(np.arange(4), np.maximum((shares * n).round().astype(int), 2))[:n]
    labels = np.pad(labels, (0, n - len(labels)), constant_values=3)
    X, classes = gene_like(
        4 * n, d, n_factors=12, n_classes=4, random_state=int(rng.integers(2**31))
    )
    rows = np.concatenate(
        [np.flatnonzero(classes == c)[: int((labels == c).sum())] for c in range(4)]
    )
    X = np.asarray(X[rows])
    X[rng.random(X.shape) < 0.01] = np.nan
    return X, np.sort(labels)
