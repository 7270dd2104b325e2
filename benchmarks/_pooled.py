"""Kernel PCA, kernel k-means and regression of pooled rows in float64, without the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from scipy.spatial.distance import cdist, pdist
from sklearn.metrics.pairwise import rbf_kernel

ROUNDING = 2e-14  # of the trace: below this no method in float64 can tell an eigenvalue


def kernel_matrix(X: np.ndarray, kernel: str, gamma: float, degree: int, coef0: float) -> Any:
    """As scikit-learn has them, distances from differences; arc-cosine as Cho and Saul have it."""
    if kernel == "rbf":
        # Of 1e10 and the like rounding makes scikit-learn's distances; then pooled means these.
        if gamma * np.finfo(float).eps * (X**2).sum(axis=1).max() > 1e-4:
            return rbf_kernel(X, gamma=gamma)
        return np.exp(-gamma * cdist(X, X, "sqeuclidean"))
    if kernel == "laplacian":
        return np.exp(-gamma * cdist(X, X, "cityblock"))
    if kernel == "linear":
        return X @ X.T
    if kernel == "poly":
        return (gamma * (X @ X.T) + coef0) ** degree
    norms = np.linalg.norm(X, axis=1)
    unit = X / np.where(norms > 0, norms, 1)[:, None]
    cosines = np.clip(unit @ unit.T, -1, 1)
    if kernel == "cosine":
        return cosines
    angles = np.arccos(cosines)
    return np.outer(norms, norms) * (np.sin(angles) + (np.pi - angles) * cosines) / np.pi


def gamma_by_rule(X: np.ndarray, rule: str, kernel: str) -> float:
    """What the documents say a rule is, of all pairs."""
    if rule == "none":
        return 1 / X.shape[1]
    if rule == "scale":
        gamma = 1 / (X.shape[1] * X.var())
    elif rule == "mean-distance":
        gamma = 1 / (2 * X.var(axis=0).sum())
    else:
        gamma = 0.5 / np.median(pdist(X[:3000], "sqeuclidean"))
    return float(np.sqrt(gamma / X.shape[1]) if kernel == "laplacian" else gamma)


def distance_from_rule(X: np.ndarray, gamma: float, rule: str, kernel: str) -> float:
    """Relative; of the median, which is drawn, how far its rank among all pairs is from a half."""
    if rule != "median":
        return abs(gamma / gamma_by_rule(X, rule, kernel) - 1)
    squared = 0.5 / (gamma**2 * X.shape[1] if kernel == "laplacian" else gamma)
    pairs = pdist(X[:3000], "sqeuclidean")
    below, upto = (pairs < squared * (1 - 1e-9)).mean(), (pairs <= squared * (1 + 1e-9)).mean()
    return float(max(below - 0.5, 0.5 - upto, 0.0))


@dataclass(frozen=True)
class Spectrum:
    """Largest eigenpairs of a kernel matrix, one more than wanted, and its trace."""

    K: np.ndarray
    values: np.ndarray
    vectors: np.ndarray
    trace: float
    floor: float  # what rounding alone may do to an eigenvalue

    @classmethod
    def of(cls, K: np.ndarray, k: int, center: bool) -> Spectrum:
        floor = ROUNDING * float(np.trace(K))
        if center:
            means = K.mean(axis=0)
            K = K - means - means[:, None] + means.mean()
        values, vectors = largest(K, min(k + 1, len(K)))
        return cls(K, values, vectors, float(np.trace(K)), floor)

    def captured(self, scores: np.ndarray) -> np.ndarray:
        """Variance along each score column, made orthonormal from the first to the last."""
        scores = scores - (scores.mean(axis=0) if abs(self.K.sum()) <= self.floor else 0)
        norms = np.linalg.norm(scores, axis=0)
        Q = np.linalg.qr(scores / np.where(norms > 0, norms, 1))[0] * (norms > 0)
        return np.einsum("ij,ij->j", Q, self.K @ Q)


def largest(K: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    n = len(K)
    if n > 1200 and k < n // 4:
        start = np.random.default_rng(0).normal(size=n)
        options = {"ncv": max(50, 4 * k), "tol": 1e-7, "maxiter": 60, "v0": start}
        try:
            values, vectors = scipy.sparse.linalg.eigsh(K, k, which="LA", **options)
            return values[::-1], vectors[:, ::-1]
        except scipy.sparse.linalg.ArpackNoConvergence:
            pass
    values, vectors = scipy.linalg.eigh(K, subset_by_index=[n - k, n - 1])
    if len(values) < k:  # LAPACK's syevr may return none where nearly all are equal
        values, vectors = (part[..., n - k :] for part in np.linalg.eigh(K))
    return values[::-1], vectors[:, ::-1]


def inertia(K: np.ndarray, labels: np.ndarray) -> float:
    """Σ ‖φ(x) − μ‖² over clusters."""
    H = (labels[:, None] == np.unique(labels)).astype(float)
    within = np.einsum("ij,ij->j", H, K @ H) / H.sum(axis=0)
    return float(np.trace(K) - within.sum())


def best_inertia(K: np.ndarray, k: int, restarts: int, rng: np.random.Generator) -> float:
    """The best of some runs of exact kernel k-means, each from k-means++ seeds."""
    return min(inertia(K, lloyd(K, seeds(K, k, rng), k)) for _ in range(restarts))


def seeds(K: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    diagonal = np.diag(K)
    rows = [int(rng.integers(len(K)))]
    far = np.full(len(K), np.inf)
    for _ in range(k):
        last = rows[-1]
        far = np.minimum(far, np.maximum(diagonal - 2 * K[:, last] + K[last, last], 0))
        rows.append(int(rng.choice(len(K), p=far / far.sum())) if far.sum() > 0 else last)
    rows = rows[:k]
    return np.argmin(diagonal[rows][None, :] - 2 * K[:, rows], axis=1)


def lloyd(K: np.ndarray, labels: np.ndarray, k: int, most: int = 200) -> np.ndarray:
    for _ in range(most):
        H = (labels[:, None] == np.arange(k)).astype(float)
        sizes = H.sum(axis=0)
        means = K @ H / np.maximum(sizes, 1)
        own = np.einsum("ij,ij->j", H, means) / np.maximum(sizes, 1)
        away = np.where(sizes > 0, own - 2 * means, np.inf)
        moved = np.argmin(away, axis=1)
        if (moved == labels).all():
            return labels
        labels = moved
    return labels


def ridge_r2(spectrum: Spectrum, k: int, y: np.ndarray, alpha: float) -> float:
    """R² in sample of ridge regression on k kernel components."""
    values = np.maximum(spectrum.values[:k], 0)
    centred = y - y.mean()
    inner = spectrum.vectors[:, :k].T @ centred
    fitted = spectrum.vectors[:, :k] @ (inner * values / (values + alpha))
    return r2(centred, fitted)


def r2(y: np.ndarray, fitted: np.ndarray) -> float:
    return float(1 - ((y - fitted) ** 2).sum() / ((y - y.mean()) ** 2).sum())
