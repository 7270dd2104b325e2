"""Linear PCA of embedded rows: kernel PCA of the kernel that the embedding stands for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows, blocks
from eigenmesh.numerics.eigen import (
    clip_spectrum,
    fix_signs,
    numerical_rank,
    require_rank,
    top_eigenpairs,
)
from eigenmesh.numerics.embeddings import embedding
from eigenmesh.numerics.kernels import Kernel


@dataclass(frozen=True)
class FeatureModel:
    """Components of embedded rows: score(x) = E(x) `components` − `offset`.

    `eigenvalues`, `total` and `residual` are of the embedded rows, so of the kernel only as far as
    the embedding is.
    """

    kernel: Kernel
    n_columns: int
    width: int
    seed: int
    components: Doubles  # (t, k)
    offset: Doubles  # (k,)
    eigenvalues: Doubles  # (k,)
    next_eigenvalue: float
    total: float
    n_rows: int

    @classmethod
    def fit(
        cls,
        how: tuple[Kernel, int, int, int],
        gram: Doubles,
        sums: Doubles,
        n_rows: int,
        k: int | None,
        centre: bool,
    ) -> Self:
        """The best k components, all above rounding if None; `how` are the embedding's arguments.

        >>> E = np.array([[0.0, 1.0], [2.0, 1.0]])
        >>> how = (Kernel("linear"), 2, 2, 0)
        >>> FeatureModel.fit(how, E.T @ E, E.sum(axis=0), 2, 1, centre=True).eigenvalues
        array([2.])
        """
        mean = sums / n_rows if centre else np.zeros_like(sums)
        G = gram - n_rows * np.outer(mean, mean)
        # One more than asked for: what comes after the last tells how well that is determined.
        n_pairs = len(G) if k is None else min(k + 1, len(G))
        values, W = top_eigenpairs(G, n_pairs)
        values = clip_spectrum(values, n_rows)
        k = max(numerical_rank(values, n_rows), 1) if k is None else k
        require_rank(values, k, n_rows, f"{len(G)} embedded dimensions")
        W = np.asarray(fix_signs(W[:, :k]))
        after = float(values[k]) if len(values) > k else 0.0
        total = max(float(np.trace(G)), 0.0)
        return cls(*how, W, mean @ W, values[:k], after, total, n_rows)

    @property
    def residual(self) -> float:
        """Variance of the embedded rows that the components leave out."""
        return max(self.total - float(self.eigenvalues.sum()), 0.0)

    def transform(self, X: Rows) -> Doubles:
        """Scores (n, k) of any rows."""
        embed = embedding(self.kernel, self.n_columns, self.width, self.seed)
        scores = np.empty((X.shape[0], len(self.eigenvalues)))
        for rows in blocks(X.shape[0]):
            scores[rows] = embed(X[rows]) @ self.components
        return scores - self.offset
