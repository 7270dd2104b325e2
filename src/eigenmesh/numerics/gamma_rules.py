"""Rules for gamma, in pieces that parties can compute alone and a coordinator can merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import Doubles, Floats, Rows, blocks, is_sparse, raw_rows

_MOMENT_ROWS = 4096


@dataclass(frozen=True)
class EntryMoments:
    """Count, mean and squared deviation Σ(x − mean)² over single entries."""

    count: int
    mean: float
    deviation: float

    @property
    def variance(self) -> float:
        """Population variance over all entries."""
        if not self.count:
            raise InputError("no entries to take a variance of; pass at least one row")
        return self.deviation / self.count


@dataclass(frozen=True)
class Moments:
    """Count, mean row (d,) and squared deviation Σ‖x − mean‖² over rows."""

    count: int
    mean: Doubles
    deviation: float

    def entries(self) -> EntryMoments:
        """The same rows taken entry by entry."""
        n, d = self.count, len(self.mean)
        if not n * d:
            return EntryMoments(0, 0.0, 0.0)
        grand, between = _merge_means(np.full(d, float(n)), self.mean[:, None])
        return EntryMoments(n * d, float(grand[0]), self.deviation + between)


def gamma_default(n_features: int) -> float:
    """1 / n_features, scikit-learn's default.

    >>> gamma_default(4)
    0.25
    """
    if n_features < 1:
        raise InputError(f"n_features is {n_features}, expected at least 1; pass data with columns")
    return 1.0 / n_features


def gamma_scale(n_features: int, variance: float) -> float:
    """1 / (n_features · variance over all entries), scikit-learn's "scale".

    >>> gamma_scale(4, 0.5)
    0.5
    """
    _require_spread(variance, "the variance over all entries")
    return gamma_default(n_features) / variance


def gamma_mean_distance(n: int, sum_sq_deviation: float) -> float:
    """One over the mean squared distance: n² / ΣΣ‖x_i − x_j‖² = n / (2 Σ‖x_i − x̄‖²).

    >>> gamma_mean_distance(2, 2.0)
    0.5
    """
    _require_spread(sum_sq_deviation, "the squared deviation of the rows from their mean")
    return n / (2.0 * sum_sq_deviation)


def gamma_median(squared_distances: Floats) -> float:
    """1 / (2 · median squared distance): σ is the median distance.

    >>> gamma_median(np.array([1.0, 2.0, 9.0]))
    0.25
    """
    if not len(squared_distances):
        raise InputError("no distances to take a median of; pass data with at least two rows")
    return 1.0 / (2.0 * require_median(float(np.median(squared_distances))))


def require_median(squared: float) -> float:
    """A median squared distance that is not 0."""
    _require_spread(squared, "the median squared distance")
    return squared


def gamma_for_manhattan(gamma: float, n_features: int) -> float:
    """A rule's gamma of squared distances, turned into one of L1 distances: √(gamma / n_features).

    An L1 distance is at most √n_features times the Euclidean one, so exp(−gamma ‖x−y‖₁) is as wide
    as that of the rule. "scale" becomes 1 / (n_features · standard deviation).

    >>> gamma_for_manhattan(gamma_scale(4, 0.25), 4)
    0.5
    """
    return float(np.sqrt(gamma * gamma_default(n_features)))


def _require_spread(value: float, what: str) -> None:
    if not (np.isfinite(value) and value > 0):
        raise InputError(
            f"{what} is {value}, expected a positive number: gamma cannot be derived from rows "
            "that are (mostly) equal; pass gamma as a number"
        )


def moments_of(X: Rows) -> Moments:
    """Moments of the rows, in float64, block by block.

    >>> moments_of(np.array([[0.0, 0.0], [2.0, 0.0]]))
    Moments(count=2, mean=array([1., 0.]), deviation=2.0)
    """
    X = raw_rows(X)
    if not X.shape[0]:
        return Moments(0, np.zeros(X.shape[1]), 0.0)
    part = _sparse_moments if is_sparse(X) else _dense_moments
    return merge([part(X[rows]) for rows in blocks(X.shape[0], _MOMENT_ROWS)])


def _dense_moments(X: Floats) -> Moments:
    X = X.astype(np.float64)
    # Sums of differences to one row keep their digits far from the origin.
    first = X[0].copy()
    X -= first
    mean = X.mean(axis=0)
    X -= mean
    return Moments(len(X), first + mean, float(np.vdot(X, X)))


def _sparse_moments(X: Rows) -> Moments:
    X = X.astype(np.float64)
    X.sum_duplicates()
    n = X.shape[0]
    mean = np.asarray(X.sum(axis=0)).ravel() / n
    # Stored entries and implied zeros apart: Σx² − n·mean² would cancel.
    deviation = np.square(X.data - mean[X.indices]).sum()
    zeros = n - np.bincount(X.indices, minlength=X.shape[1])
    return Moments(n, mean, float(deviation + zeros @ np.square(mean)))


def merge(parts: Sequence[Moments]) -> Moments:
    """Moments of all rows from those of disjoint sets of rows.

    >>> a, b = Moments(1, np.array([0.0]), 0.0), Moments(1, np.array([2.0]), 0.0)
    >>> merge([a, b])
    Moments(count=2, mean=array([1.]), deviation=2.0)
    """
    parts = [part for part in parts if part.count]
    if not parts:
        raise InputError("no rows in any of the moments to merge; pass at least one row")
    if len({len(part.mean) for part in parts}) > 1:
        widths = [len(part.mean) for part in parts]
        raise InputError(f"moments of differing widths {widths}; merge moments of the same columns")
    counts = np.array([part.count for part in parts], dtype=np.float64)
    means = np.stack([part.mean for part in parts])
    mean, between = _merge_means(counts, means)
    within = sum(part.deviation for part in parts)
    return Moments(sum(part.count for part in parts), mean, float(within + between))


def _merge_means(counts: Doubles, means: Doubles) -> tuple[Doubles, float]:
    # Relative to the first mean: far from the origin the differences keep their digits.
    mean = means[0] + counts @ (means - means[0]) / counts.sum()
    return mean, float(counts @ np.square(means - mean).sum(axis=1))


def entry_moments(X: Rows) -> EntryMoments:
    """Moments over all entries, zeros of sparse rows included.

    >>> entry_moments(np.array([[0.0, 2.0]]))
    EntryMoments(count=2, mean=1.0, deviation=2.0)
    """
    return moments_of(X).entries()


def merge_entries(parts: Sequence[EntryMoments]) -> EntryMoments:
    """Moments over all entries from those of disjoint sets of entries.

    >>> merge_entries([EntryMoments(1, 0.0, 0.0), EntryMoments(1, 2.0, 0.0)])
    EntryMoments(count=2, mean=1.0, deviation=2.0)
    """
    total = merge([Moments(part.count, np.array([part.mean]), part.deviation) for part in parts])
    return EntryMoments(total.count, float(total.mean[0]), total.deviation)


def sample_pairs(
    n: int, n_pairs: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct pairs i < j of range(n), drawn without replacement; all of them if n_pairs allows.

    >>> sample_pairs(3, 10, np.random.default_rng(0))
    (array([0, 0, 1]), array([1, 2, 2]))
    """
    total = n * (n - 1) // 2
    number = np.arange(total) if total <= n_pairs else rng.choice(total, n_pairs, replace=False)
    # Pair t is (t − j(j−1)/2, j); the square root may be off by one for large t.
    j = ((1 + np.sqrt(1 + 8 * number.astype(np.float64))) / 2).astype(np.int64)
    j -= j * (j - 1) // 2 > number
    j += j * (j + 1) // 2 <= number
    return number - j * (j - 1) // 2, j


def pair_squared_distances(X: Rows, i: NDArray[np.int64], j: NDArray[np.int64]) -> Doubles:
    """‖x_i − x_j‖² of the given pairs, in float64.

    >>> pair_squared_distances(np.array([[0.0], [3.0]]), np.array([0]), np.array([1]))
    array([9.])
    """
    X = raw_rows(X)
    distances = np.empty(len(i))
    for pairs in blocks(len(i)):
        distances[pairs] = _row_differences(X, i[pairs], j[pairs])
    return distances


def _row_differences(X: Rows, i: NDArray[np.int64], j: NDArray[np.int64]) -> Doubles:
    difference = X[i].astype(np.float64) - X[j].astype(np.float64)
    if is_sparse(X):
        return np.asarray(difference.multiply(difference).sum(axis=1)).ravel()
    squares: Doubles = np.einsum("ij,ij->i", difference, difference)
    return squares
