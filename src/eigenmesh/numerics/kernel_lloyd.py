"""Kernel k-means on a whole kernel matrix: Lloyd's iteration in feature space."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Floats
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.kmeans import Labels, membership

_SAME = 1e-12  # squared distance, as a share of the largest norm, below which points are one


class KernelClusters(NamedTuple):
    """Clusters of the rows of a kernel matrix."""

    labels: Labels  # (n,)
    members: Doubles  # (k', n), in row c the share of each row in the mean of cluster c
    inertia: float  # Σ w ‖φ(x) − μ‖²
    n_iter: int


def kernel_lloyd(
    K: Floats, weights: Doubles, k: int, n_init: int, max_iter: int, rng: np.random.Generator
) -> KernelClusters:
    """The best of `n_init` runs of kernel k-means from k-means++ seeds.

    Fewer different rows than k give that many clusters.

    >>> x = np.array([0.0, 0.1, 5.0, 5.2])
    >>> K = np.exp(-np.subtract.outer(x, x) ** 2)
    >>> kernel_lloyd(K, np.ones(4), 2, 3, 20, np.random.default_rng(0)).labels
    array([0, 0, 1, 1])
    """
    runs = [_lloyd(K, weights, _seeds(K, weights, k, rng), max_iter) for _ in range(n_init)]
    return _in_order(min(runs, key=lambda run: run.inertia))


def _seeds(K: Floats, weights: Doubles, k: int, rng: np.random.Generator) -> list[int]:
    """Greedy k-means++: of a few draws by squared distance, the one that lowers the cost most."""
    norms = np.diag(K).astype(np.float64)
    chosen = [int(rng.choice(len(K), p=weights / weights.sum()))]
    squared = _distances(K, norms, chosen)[0]
    while len(chosen) < k:
        chances = weights * np.where(squared > _SAME * norms.max(), squared, 0.0)
        if not chances.sum() > 0:
            break
        drawn = rng.choice(len(K), size=2 + int(np.log(k)), p=chances / chances.sum())
        left = np.minimum(squared, _distances(K, norms, drawn))
        best = int(np.argmin(left @ weights))
        chosen.append(int(drawn[best]))
        squared = left[best]
    return chosen


def _distances(K: Floats, norms: Doubles, rows: list[int] | Labels) -> Doubles:
    """‖φ(x) − φ(y)‖² of the rows y with all x, (len(rows), n)."""
    return np.maximum(norms - 2.0 * K[rows] + norms[rows][:, None], 0.0)


def _lloyd(K: Floats, weights: Doubles, seeds: list[int], max_iter: int) -> KernelClusters:
    norms, k = np.diag(K).astype(np.float64), len(seeds)
    labels = np.argmin(_distances(K, norms, seeds), axis=0)
    for n_iter in range(1, max_iter + 1):  # noqa: B007
        members = _means(labels, weights, k)
        inner = members @ K  # (k, n), ⟨μ_c, φ(x)⟩
        squared = np.einsum("cn,cn->c", inner, members)[:, None] - 2.0 * inner + norms
        before, labels = labels, np.argmin(squared, axis=0)
        _fill_empty(labels, squared, weights, k)
        if np.array_equal(before, labels):
            break
    members = _means(labels, weights, k)
    between = float(weights @ norms) - _captured(K, members, labels, weights)
    return KernelClusters(labels, members, max(between, 0.0), n_iter)


def _means(labels: Labels, weights: Doubles, k: int) -> Doubles:
    members = membership(labels, weights, k)
    totals = members.sum(axis=1, keepdims=True)
    return np.asarray(members / np.where(totals > 0, totals, 1.0))


def _captured(K: Floats, members: Doubles, labels: Labels, weights: Doubles) -> float:
    """Σ_c W_c ‖μ_c‖²."""
    lengths = np.einsum("cn,cn->c", members @ K, members)
    return float(np.bincount(labels, weights=weights, minlength=len(members)) @ lengths)


def _fill_empty(labels: Labels, squared: Doubles, weights: Doubles, k: int) -> None:
    """An empty cluster takes the row that is farthest from its own mean."""
    for cluster in np.flatnonzero(np.bincount(labels, weights=weights, minlength=k) <= 0):
        own = squared[labels, np.arange(len(labels))]
        crowded = np.bincount(labels, weights=weights > 0, minlength=k)[labels] > 1
        far = np.where(crowded & (weights > 0), own, -np.inf)
        if np.isfinite(far.max()):
            labels[int(np.argmax(far))] = cluster


def _in_order(found: KernelClusters) -> KernelClusters:
    """Clusters numbered by their first row, and none of them empty."""
    used, first = np.unique(found.labels, return_index=True)
    order = used[np.argsort(first)]
    number = np.zeros(len(found.members), dtype=np.int64)
    number[order] = np.arange(len(order))
    return found._replace(labels=number[found.labels], members=found.members[order])


def mean_basis(K: Floats, members: Doubles) -> tuple[Doubles, Doubles]:
    """Coordinates in the span of the means: coefficients (n, r) of k(x, ·), and the means (k', r).

    Distances to the means differ from those in feature space by what is the same for all means.

    >>> coefficients, centres = mean_basis(np.eye(3), np.array([[0.5, 0.5, 0.0], [0, 0, 1.0]]))
    >>> np.allclose(np.array([[0.5, 0.5, 0.0], [0, 0, 1.0]]) @ coefficients, centres)
    True
    """
    gram = members @ K @ members.T
    R = pseudo_inverse_root((gram + gram.T) / 2)
    return members.T @ R, gram @ R
