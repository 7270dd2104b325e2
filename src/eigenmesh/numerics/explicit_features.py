"""Feature spaces of few dimensions, written out: φ with φ(x)·φ(y) = k(x, y), to the last digit.

Linear kernels have the columns themselves, the cosine kernel those of unit rows, polynomial kernels
all products of up to `degree` columns. Sums over features are sums over rows, which add up over
whoever holds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb, factorial
from typing import Any

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, blocks, dense
from eigenmesh.numerics.kernels import Kernel, unit_rows

EXPLICIT = ("linear", "cosine", "poly")  # kernels that have such features
_BLOCK = 1024


def explicit_width(kernel: str, n_columns: int, degree: float = 1, coef0: float = 0.0) -> int:
    """How many features there are; none for kernels that have no end of them.

    >>> explicit_width("linear", 8), explicit_width("poly", 8, 2, 1.0), explicit_width("rbf", 8)
    (8, 45, 0)
    """
    if kernel in ("linear", "cosine"):
        return n_columns
    if kernel != "poly":
        return 0
    p = int(degree)
    # Products of up to p of n columns are those of p of n + 1, one of which is 1 throughout.
    return comb(n_columns + p, p) if coef0 else comb(n_columns + p - 1, p)


@dataclass(frozen=True)
class ExplicitFeatures:
    """φ of a kernel for rows of so many columns.

    >>> X = np.array([[1.0, 2.0], [0.5, -1.0]])
    >>> kernel = Kernel("poly", gamma=0.5, degree=2)
    >>> E = ExplicitFeatures(kernel, 2)(X)
    >>> bool(np.allclose(E @ E.T, kernel.matrix(X)))
    True
    """

    kernel: Kernel
    n_columns: int

    @property
    def width(self) -> int:
        """The number of features."""
        kernel = self.kernel
        return explicit_width(kernel.name, self.n_columns, kernel.degree, kernel.coef0)

    @property
    def of_one_column(self) -> tuple[Any, Doubles, int]:
        """Where each column stands by itself, by which factor, and to which power.

        >>> ExplicitFeatures(Kernel("poly", gamma=1.0, degree=2, coef0=0.0), 3).of_one_column
        (array([0, 3, 5]), array([1., 1., 1.]), 2)
        """
        if self.kernel.name != "poly":
            return np.arange(self.n_columns), np.ones(self.n_columns), 1
        below, (columns, factors) = (
            (1, self._terms[1]) if self.kernel.coef0 else (0, self._terms[0])
        )
        alone = np.flatnonzero((columns == columns[:, :1]).all(axis=1))
        return below + alone, factors[alone], int(columns.shape[1])

    def __call__(self, X: Rows) -> Doubles:
        """Features (n, width) of a block of rows; sparse rows become dense here."""
        A = np.asarray(dense(as_rows(X, np.float64)), dtype=np.float64)
        if self.kernel.name == "cosine":
            return np.asarray(unit_rows(A), dtype=np.float64)
        return A if self.kernel.name == "linear" else self._products(A)

    def _products(self, A: Doubles) -> Doubles:
        E = np.empty((len(A), self.width))
        start = 0
        for columns, factors in self._terms:
            end = start + len(factors)
            E[:, start:end] = factors
            for j in range(columns.shape[1]):
                E[:, start:end] *= A[:, columns[:, j]]
            start = end
        return E

    @cached_property
    def _terms(self) -> list[tuple[Any, Doubles]]:
        """For each order the columns that are multiplied, (m, order), and the root of their factor.

        (γ x·y + c)^p has p! / (α! (p − |α|)!) γ^|α| c^(p − |α|) copies of x^α y^α.
        """
        kernel, p = self.kernel, int(self.kernel.degree)
        gamma = float(kernel.gamma or 0.0)
        terms = []
        for order in range(0 if kernel.coef0 else p, p + 1):
            of_order = list(combinations_with_replacement(range(self.n_columns), order))
            columns = np.array(of_order, dtype=int).reshape(len(of_order), order)
            scale = factorial(p) / factorial(p - order) * gamma**order * kernel.coef0 ** (p - order)
            repeated = np.array([_repetitions(c) for c in of_order], dtype=np.float64)
            terms.append((columns, np.sqrt(scale / repeated)))
        return terms


def _repetitions(columns: tuple[int, ...]) -> int:
    """α! of the columns that are multiplied."""
    counts = np.unique(columns, return_counts=True)[1]
    return int(np.prod([factorial(int(count)) for count in counts])) if columns else 1


# What rows add up to.


def feature_sums(features: ExplicitFeatures, X: Rows, weights: Doubles | None = None) -> Doubles:
    """Σ w φ(x).

    >>> feature_sums(ExplicitFeatures(Kernel("linear"), 1), np.array([[1.0], [3.0]]))
    array([4.])
    """
    # Relative to the first row: a feature that does not vary then has its mean to the last digit.
    first = features(X[:1])[0]
    sums = np.zeros(features.width)
    for rows in blocks(X.shape[0], _BLOCK):
        E = features(X[rows]) - first
        sums += E.sum(axis=0) if weights is None else weights[rows] @ E
    weight = X.shape[0] if weights is None else float(weights.sum())
    return np.asarray(sums + weight * first)


def centred_products(
    features: ExplicitFeatures, X: Rows, mean: Doubles, weights: Doubles | None = None
) -> Doubles:
    """Σ w (φ(x) − mean)(φ(x) − mean)ᵀ, by rows less the mean, which keeps their digits.

    >>> features = ExplicitFeatures(Kernel("linear"), 1)
    >>> centred_products(features, np.array([[1.0], [3.0]]), np.array([2.0]))
    array([[2.]])
    """
    products = np.zeros((len(mean), len(mean)))
    for rows in blocks(X.shape[0], _BLOCK):
        E = features(X[rows]) - mean
        if weights is not None:
            # Roots on both sides: a matrix times its own transpose is symmetric to the last bit.
            E *= np.sqrt(weights[rows])[:, None]
        products += E.T @ E
    return products
