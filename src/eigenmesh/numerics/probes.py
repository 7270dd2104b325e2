"""Points at which functions that several nodes hold can be compared without showing a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.utils.sparsefuncs import mean_variance_axis

from eigenmesh.numerics.arrays import Doubles, Rows, is_sparse

_CONSTANT = 1e-9  # of its size: a smaller spread of a function counts as none


def column_extremes(X: Rows) -> Doubles:
    """Mean, its negative and standard deviation of every column, (3d,).

    The largest of each over several nodes is what `probe_points` takes.

    >>> column_extremes(np.array([[1.0], [3.0]]))
    array([ 2., -2.,  1.])
    """
    if is_sparse(X):
        mean, variance = mean_variance_axis(X, axis=0)
    else:
        mean, variance = X.mean(axis=0, dtype=np.float64), X.var(axis=0, dtype=np.float64)
    return np.concatenate([mean, -mean, np.sqrt(variance)])


def probe_points(extremes: Doubles, count: int, rng: np.random.Generator) -> Doubles:
    """Normal points, (count, d), as wide as the columns of all nodes together.

    Where nothing is known of any column they are standard normal.

    >>> rng = np.random.default_rng(0)
    >>> probe_points(np.array([2.0, -2.0, 0.0]), 3, rng).ravel()
    array([2., 2., 2.])
    """
    # Nodes agree on maxima alone, so the lowest mean comes as the largest of the negative ones.
    highest, minus_lowest, spread = np.split(np.asarray(extremes), 3)
    centre, reach = (highest - minus_lowest) / 2, (highest + minus_lowest) / 2
    width = spread + reach if np.any(extremes) else np.ones_like(spread)
    return centre + width * rng.standard_normal((count, len(centre)))


def values_apart(values: Sequence[Doubles]) -> float:
    """How far any function's values (p, m) are from the first's, as a share of their spread.

    Root mean square over the points; the worst of m columns counts.

    >>> f = np.array([[1.0], [-1.0]])
    >>> round(values_apart([f, f + 0.1]), 9)
    0.1
    """
    first = np.asarray(values[0])
    unit = np.maximum(first.std(axis=0), _CONSTANT * np.abs(first).max(axis=0))
    unit = np.where(unit > 0, unit, 1.0)
    squares = [np.square(other - first).mean(axis=0) for other in values]
    return float(np.max(np.sqrt(squares) / unit))
