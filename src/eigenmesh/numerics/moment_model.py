"""Kernel PCA in a feature space that is written out, from the features' mean and products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import scipy.linalg

from eigenmesh.numerics.arrays import Doubles, Rows, blocks, require_finite
from eigenmesh.numerics.eigen import EPS, fix_signs, require_rank, top_eigenpairs
from eigenmesh.numerics.explicit_features import ExplicitFeatures
from eigenmesh.numerics.kernels import Kernel

_ROUNDING = 8 * EPS  # of a correlation, that each feature may add
_CONSTANT = 16 * EPS  # of its mean, by which a feature that does not vary may seem to


@dataclass(frozen=True)
class MomentModel:
    """Components of features: score(x) = (φ(x) − `mean`) `components`."""

    kernel: Kernel
    mean: Doubles  # (D,), 0 if not centred
    components: Doubles  # (D, k)
    eigenvalues: Doubles  # (k,)
    next_eigenvalue: float
    total: float
    n_rows: int
    n_columns: int

    @classmethod
    def fit(
        cls,
        features: ExplicitFeatures,
        mean: Doubles,
        products: Doubles,
        n_rows: int,
        k: int | None,
        *,
        fewer: bool = False,
    ) -> Self:
        """The best k components, all above rounding if None.

        `fewer` takes what there are where k are asked for and the rows determine fewer.

        >>> features = ExplicitFeatures(Kernel("linear"), 2)
        >>> products = np.diag([2.0, 8.0])
        >>> MomentModel.fit(features, np.zeros(2), products, 4, 1).eigenvalues
        array([8.])
        """
        values, W = graded_eigenpairs(products, mean, n_rows)
        rank = int(np.count_nonzero(values))
        n_components = max(rank, 1) if k is None else k
        n_components = min(n_components, max(rank, 1)) if fewer else n_components
        # Eigenvalues that are rounding are 0 already, each by its own features' scale: one limit
        # for all would take small features for none.
        require_rank(values, n_components, rounding=0.0, what=f"{len(mean)} features of the rows")
        after = float(values[n_components]) if len(values) > n_components else 0.0
        axes = np.asarray(fix_signs(W[:, :n_components]), dtype=np.float64)
        total, d = max(float(np.trace(products)), 0.0), features.n_columns
        return cls(features.kernel, mean, axes, values[:n_components], after, total, n_rows, d)

    @property
    def residual(self) -> float:
        """Variance that the components leave out."""
        return max(self.total - float(self.eigenvalues.sum()), 0.0)

    @property
    def features(self) -> ExplicitFeatures:
        """What rows are in the space of the components."""
        return ExplicitFeatures(self.kernel, self.n_columns)

    def transform(self, X: Rows) -> Doubles:
        """Scores (n, k) of any rows."""
        features, scores = self.features, np.empty((X.shape[0], len(self.eigenvalues)))
        for rows in blocks(X.shape[0]):
            # The mean is taken off first: of features far from 0 a difference of products keeps few
            # digits.
            scores[rows] = (features(X[rows]) - self.mean) @ self.components
        return scores

    @property
    def goes_back(self) -> bool:
        """Whether features are rows."""
        return self.kernel.name == "linear"

    def rows_of(self, scores: Doubles) -> Doubles:
        """The rows that have these scores and nothing else, for linear kernels."""
        assert self.goes_back
        rows: Doubles = scores @ self.components.T + self.mean
        return rows


def graded_eigenpairs(products: Doubles, mean: Doubles, n_rows: int) -> tuple[Doubles, Doubles]:
    """All eigenvalues of a matrix of products, 0 where they are rounding; vectors of the others.

    Features may differ in scale by many orders. The matrix is divided by the roots of its diagonal,
    factored, and the factor scaled back: so an entry errs by what it was rounded by, and a small
    feature's eigenvalue is not lost beside a large one's, as it is in the matrix itself. A feature
    that varies by no more than its `mean`, which was taken off, is rounded by, does not vary.

    >>> values, _ = graded_eigenpairs(np.diag([1e-24, 1.0]), np.zeros(2), 9)
    >>> values
    array([1.e+00, 1.e-24])
    """
    require_finite(products, "the sum of products")
    scales = np.sqrt(np.maximum(np.diag(products), 0.0))
    alive = scales > _CONSTANT * np.sqrt(n_rows) * np.abs(mean)
    values = np.zeros(len(products))
    if not alive.any():
        return values, np.zeros((len(products), 0))
    s = scales[alive]
    correlations = products[np.ix_(alive, alive)] / np.outer(s, s)
    shares, Q = top_eigenpairs(correlations, len(s))
    most = min(int(np.count_nonzero(shares > _ROUNDING * len(s) * shares[0])), n_rows)
    factor = s[:, None] * Q[:, :most] * np.sqrt(shares[:most])
    # Of the factor, since its product with itself would square how far the largest and the least
    # are apart before they are told from each other.
    U, singular, _ = scipy.linalg.svd(factor, full_matrices=False, check_finite=False)
    values[:most] = singular**2
    vectors = np.zeros((len(products), most))
    vectors[alive] = U
    return values, vectors
