"""Rows as points in which clusters live: by random features, or in the span of clusters' means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Floats, Rows, blocks
from eigenmesh.numerics.embeddings import Embedding, embedding
from eigenmesh.numerics.kernel_lloyd import KernelClusters, mean_basis
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.runtime.records import record


@record
@dataclass(frozen=True)
class FeatureMap:
    """Random features of a kernel, by their seed."""

    kernel: Kernel
    n_columns: int
    width: int
    seed: int

    @cached_property
    def _embed(self) -> Embedding:
        return embedding(self.kernel, self.n_columns, self.width, self.seed)

    def transform(self, X: Rows) -> Doubles:
        """The features of any rows."""
        return np.vstack([self._embed(X[rows]) for rows in blocks(X.shape[0])])


def model_of_means(
    kernel: Kernel, X: Rows, K: Floats, found: KernelClusters
) -> tuple[LandmarkModel, Doubles]:
    """Coordinates in the span of the clusters' means, and the means in them."""
    coefficients, centres = mean_basis(K, found.members)
    scores = K @ coefficients
    spread = np.einsum("ij,ij->j", scores, scores)
    total, offset = float(np.trace(K)), np.zeros(coefficients.shape[1])
    return LandmarkModel(kernel, X, coefficients, offset, spread, 0.0, total, len(K)), centres
