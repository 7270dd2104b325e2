"""From scores back to rows: kernel ridge regression, as scikit-learn's KernelPCA does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg

from eigenmesh.errors import InputError
from eigenmesh.kernel_pca.exact import PairwiseKernel
from eigenmesh.numerics.arrays import Doubles, Rows, blocks, is_sparse
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.runtime.records import record


@record
@dataclass(frozen=True)
class Preimages:
    """row(z) = k(z, `anchors`) `dual_coef`, k being the kernel of the model, on scores.

    >>> Z = np.array([[-1.0], [0.0], [1.0]])
    >>> Preimages.exact(PairwiseKernel("rbf", 1.0), Z, 3 * Z + 4, 1e-9)(Z).round(6).ravel()
    array([1., 4., 7.])
    """

    kernel: PairwiseKernel
    anchors: Doubles  # (m, k), scores
    dual_coef: Doubles  # (m, d)

    @classmethod
    def exact(cls, kernel: PairwiseKernel, Z: Doubles, X: Rows, alpha: float) -> Self:
        """Anchored at the scores Z of all rows X, by scikit-learn's own formula."""
        K = kernel(Z)
        K.flat[:: len(Z) + 1] += alpha
        try:
            dual_coef = scipy.linalg.solve(K, require_dense(X), assume_a="pos", overwrite_a=True)
        except np.linalg.LinAlgError:
            raise InputError(
                f"alpha is {alpha}, too small for this kernel on the scores: its matrix plus alpha "
                f"is not positive; raise alpha"
            ) from None
        return cls(kernel, Z, dual_coef)

    @classmethod
    def from_landmarks(
        cls,
        kernel: PairwiseKernel,
        anchors: Doubles,
        scores: Callable[[Rows], Doubles],
        X: Rows,
        alpha: float,
    ) -> Self:
        """Anchored at the landmarks' scores, fitted to rows X and their scores, block by block.

        Minimises Σ‖x − row(z)‖² + alpha·‖row‖² over functions in the span of the anchors'; with
        every row an anchor that is `exact`.
        """
        require_dense(X)
        B = pseudo_inverse_root(kernel(anchors))  # (q, r), BᵀKB = I
        inner, cross = np.zeros((B.shape[1],) * 2), np.zeros((B.shape[1], X.shape[1]))
        for rows in blocks(X.shape[0]):
            F = kernel(scores(X[rows]), anchors) @ B
            inner += F.T @ F
            cross += F.T @ X[rows]
        inner.flat[:: len(inner) + 1] += alpha
        return cls(kernel, anchors, B @ scipy.linalg.solve(inner, cross, assume_a="pos"))

    def __call__(self, Z: Doubles) -> Doubles:
        """Rows (m, d) for scores (m, k)."""
        rows = np.empty((len(Z), self.dual_coef.shape[1]))
        for part in blocks(len(Z)):
            rows[part] = self.kernel(Z[part], self.anchors) @ self.dual_coef
        return rows


def require_dense(X: Rows) -> Any:
    """Preimages of sparse rows would be dense."""
    if is_sparse(X):
        raise InputError(
            "the rows are sparse; inverse_transform would give dense ones: pass X.toarray(), or "
            "fit_inverse_transform=False"
        )
    return X
