"""Which columns move a component most, whatever the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.numerics.arrays import Doubles

Scorer = Callable[[Any], Any]  # rows (n, d) to scores (n, k)

_AT_ONCE = 2_000_000  # numbers of moved rows that are scored together


class Influence(NamedTuple):
    """How far each column moves each component, (d, k) both.

    `size` is never negative; `lean` is from -1, every row's score falls as the column rises, to 1.
    """

    size: Doubles
    lean: Doubles


def loadings(score: Scorer, n_columns: int) -> Influence:
    """Of a linear model: by how much a score rises where a column alone rises by 1.

    >>> w = np.array([[3.0], [-4.0]])
    >>> loadings(lambda X: X @ w - 7.0, 2).size.ravel()
    array([3., 4.])
    """
    origin = _scores(score, np.zeros((1, n_columns)))
    steps = [
        _scores(score, np.eye(len(some), n_columns, some[0])) - origin
        for some in _chunks(n_columns, n_columns)
    ]
    V = np.vstack(steps)
    return Influence(np.abs(V), np.sign(V))


def moved_scores(score: Scorer, points: Doubles, spreads: Doubles) -> Influence:
    """By how much scores move at these points where a column alone moves by its own spread.

    Half the way from one spread below to one above, root mean square over the points: for a linear
    model this is a loading times the column's spread.

    >>> score = lambda X: X**2
    >>> influence = moved_scores(score, np.array([[1.0], [-1.0]]), np.array([0.5]))
    >>> influence.size.item(), influence.lean.item()
    (1.0, 0.0)
    """
    (m, d), sizes, leans = points.shape, [], []
    for some in _chunks(d, m * d):
        shifts = np.zeros((len(some), 1, d))
        shifts[np.arange(len(some)), 0, some] = spreads[some]
        above, below = (
            _scores(score, (points + way * shifts).reshape(-1, d)) for way in (1.0, -1.0)
        )
        moves = ((above - below) / 2).reshape(len(some), m, -1)
        size = np.sqrt(np.mean(moves**2, axis=1))
        sizes.append(size)
        leans.append(np.mean(moves, axis=1) / np.where(size > 0, size, 1.0))
    return Influence(np.vstack(sizes), np.vstack(leans))


def correlations(columns: Doubles, scores: Doubles) -> Influence:
    """How far columns go with scores of the same samples, from 0 to 1.

    >>> X = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    >>> correlations(X, -X[:, :1]).size.round(6).ravel()
    array([1., 0.])
    """
    A, Z = (_unit_columns(values) for values in (columns, scores))
    R = A.T @ Z
    return Influence(np.abs(R), np.sign(R))


def _unit_columns(values: Doubles) -> Doubles:
    centred = values - values.mean(axis=0)
    norms = np.linalg.norm(centred, axis=0)
    # A column that does not vary goes with nothing; what is left of it is rounding.
    alive = norms > 1e-12 * np.abs(values).max(axis=0, initial=0.0) * np.sqrt(len(values))
    return np.asarray(np.where(alive, centred / np.where(alive, norms, 1.0), 0.0))


def _scores(score: Scorer, rows: Doubles) -> Doubles:
    return np.asarray(score(rows), dtype=np.float64)


def _chunks(d: int, numbers_a_column: int) -> Iterator[Any]:
    width = max(1, _AT_ONCE // max(numbers_a_column, 1))
    for start in range(0, d, width):
        yield np.arange(start, min(start + width, d))
