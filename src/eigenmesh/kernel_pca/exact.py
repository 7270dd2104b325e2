"""Kernel PCA of pooled rows from their whole kernel matrix, solved by scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy.sparse.linalg import ArpackError
from sklearn.decomposition import KernelPCA as WholeMatrixKPCA
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import Doubles, Rows, blocks, dense, require_square
from eigenmesh.numerics.centring import KernelMeans, centre_rows, kernel_means
from eigenmesh.numerics.eigen import clip_spectrum, fix_signs, top_eigenpairs
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.records import record

record(KernelMeans)

_ROUNDING = 16 * np.finfo(np.float64).eps
_ARPACK_SHARE = 25  # rows a component from which on ARPACK is quicker than LAPACK


@record
@dataclass(frozen=True)
class PairwiseKernel:
    """A kernel as scikit-learn's KernelPCA takes it: by name, precomputed, or a function.

    >>> PairwiseKernel("rbf", gamma=0.5)(np.array([[0.0], [2.0]])).round(4)
    array([[1.    , 0.1353],
           [0.1353, 1.    ]])
    """

    name: Any
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1
    params: Mapping[str, Any] = field(default_factory=dict)  # of a function
    n_jobs: int | None = None

    def __call__(self, X: Rows, Y: Rows | None = None) -> Doubles:
        """Kernel values of the rows of X with those of Y; a precomputed X is given back.

        In float64: what float32 products lose may be more than a wanted eigenvalue.
        """
        if self.name == "precomputed":
            return dense(X).astype(np.float64, copy=False)
        if not callable(self.name):
            X, Y = (None if A is None else A.astype(np.float64, copy=False) for A in (X, Y))
        if not callable(self.name) and self.name not in PAIRWISE_KERNEL_FUNCTIONS:
            own = Kernel(self.name, self.gamma, self.degree, self.coef0)
            return np.asarray(own.matrix(X, Y), dtype=np.float64)
        parameters = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        values = pairwise_kernels(
            X,
            Y,
            metric=self.name,
            filter_params=True,
            n_jobs=self.n_jobs,
            **(self.params if callable(self.name) else parameters),
        )
        return np.asarray(values, dtype=np.float64)


@record
@dataclass(frozen=True)
class ExactModel:
    """Components from the kernel matrix of all rows: what scikit-learn's KernelPCA keeps."""

    kernel: PairwiseKernel
    rows: Rows  # (n, d), or the kernel matrix itself
    eigenvalues: Doubles  # (k,)
    eigenvectors: Doubles  # (n, k)
    next_eigenvalue: float | None  # None where it is not known
    means: KernelMeans | None  # None if not centred
    total: float
    roots: Doubles | None = None  # of the rows' weights, where they have any

    @classmethod
    def fit(
        cls,
        kernel: PairwiseKernel,
        X: Rows,
        k: int | None,
        centre: bool,
        solver: Mapping[str, Any],
        weights: Doubles | None = None,
    ) -> Self:
        """The k largest components, all positive ones if None; `solver` as scikit-learn's.

        With weights those of W^½ K W^½, whose eigenvalues are those of as many copies of each row.
        """
        K = kernel(X)
        require_square(K)
        _require_values(K, kernel.name)
        if kernel.name == "precomputed" and solver["copy_X"]:
            K = K.copy()
        if weights is not None:
            return cls._weighted(kernel, X, K, (k, centre, weights), solver)
        n, trace = len(K), float(np.trace(K))
        means = kernel_means(K) if centre else None
        total = trace - (n * means.overall if means else 0.0)
        if abs(total) <= _ROUNDING * abs(trace):  # rows that do not differ, but for the last digits
            total = 0.0
        solve = _centred_pairs if centre else _uncentred_pairs
        values, vectors, after = solve(K, k, solver)
        return cls(kernel, X, values, vectors, after, means, total)

    @classmethod
    def _weighted(
        cls,
        kernel: PairwiseKernel,
        X: Rows,
        K: Doubles,
        problem: tuple[int | None, bool, Doubles],
        solver: Mapping[str, Any],
    ) -> Self:
        k, centre, weights = problem
        means = kernel_means(K, weights) if centre else None
        if means is not None:
            K = np.asarray(centre_rows(K, means), dtype=np.float64)
        total, roots = float(weights @ np.diag(K)), np.sqrt(weights)
        values, vectors, after = _uncentred_pairs(K * roots * roots[:, None], k, solver)
        vectors = _signed_as_copies(vectors, roots)
        return cls(kernel, X, values, vectors, after, means, total, roots)

    @property
    def residual(self) -> float:
        """Variance that the components leave out."""
        return max(self.total - float(self.eigenvalues.sum()), 0.0)

    @property
    def n_rows(self) -> int:
        """Rows fitted."""
        return len(self.eigenvectors)

    @property
    def fitted_scores(self) -> Doubles:
        """Scores (n, k) of the fitted rows."""
        if self.roots is not None:
            return self.transform(self.rows)
        return np.asarray(self.eigenvectors * np.sqrt(self.eigenvalues))

    @property
    def score_weights(self) -> Doubles:
        """Of centred kernel values with the rows, (n, k)."""
        varies = self.eigenvalues > 0  # a direction without variance has no scores
        weights = np.zeros_like(self.eigenvectors)
        weights[:, varies] = self.eigenvectors[:, varies] / np.sqrt(self.eigenvalues[varies])
        if self.roots is not None:
            weights *= self.roots[:, None]
        return np.asarray(weights)

    def transform(self, X: Rows) -> Doubles:
        """Scores (m, k) of any rows, a block at a time."""
        weights = self.score_weights
        scores, fitted = np.empty((X.shape[0], weights.shape[1])), self.rows
        if not callable(self.kernel.name):  # once, not block by block
            fitted = fitted.astype(np.float64, copy=False)
        for rows in blocks(X.shape[0]):
            K = self.kernel(X[rows], fitted)
            scores[rows] = (K if self.means is None else centre_rows(K, self.means)) @ weights
        return scores


def _signed_as_copies(vectors: Doubles, roots: Doubles) -> Doubles:
    """Signs that the copies of each row would give: √w times their entry is that of the row."""
    some = roots > 0
    copies = vectors[some] / roots[some, None]
    opposite = np.einsum("ij,ij->j", fix_signs(copies), copies) < 0
    return np.where(opposite, -vectors, vectors)


def _require_values(K: Doubles, kernel: Any) -> None:
    """Every row was finite, but a power of it may not be."""
    with np.errstate(over="ignore", invalid="ignore"):
        sound = np.isfinite(K.sum())
    if not sound and not np.isfinite(K).all():
        raise InputError(
            f"the kernel matrix of kernel={kernel!r} has values that are not finite; finite ones "
            f"are expected: rescale the columns, lower degree or gamma, or convert float32 to "
            f"float64"
        )


def _centred_pairs(
    K: Doubles, k: int | None, solver: Mapping[str, Any]
) -> tuple[Doubles, Doubles, float | None]:
    """Eigenpairs by scikit-learn, and the next eigenvalue if it comes at no cost; K is used up."""
    n, options = len(K), dict(solver, copy_X=False)
    automatic = options["eigen_solver"] == "auto"
    if automatic:
        # scikit-learn takes ARPACK for k < 10 only; five times as fast at k = 10 and n = 2000, it
        # is faster up to about n / 10 components.
        few = k is not None and k <= max(9, n // _ARPACK_SHARE)
        options["eigen_solver"] = "arpack" if n > 200 and few else "dense"
    one_more = k is not None and k + 1 < n and options["eigen_solver"] != "randomized"
    whole = WholeMatrixKPCA(k + 1 if one_more and k else k, kernel="precomputed", **options)
    try:
        try:
            whole.fit(K)
        except ArpackError:  # centring K again changes nothing
            if not automatic:
                raise
            whole.set_params(eigen_solver="dense").fit(K)
    except ValueError as error:
        remedy = "choose another eigen_solver, or a kernel that is positive semi-definite"
        raise InputError(f"{str(error).rstrip('.')}; {remedy}") from None
    values, vectors = whole.eigenvalues_, whole.eigenvectors_
    if not one_more:
        return values, vectors, None
    after = float(values[k]) if len(values) > (k or 0) else 0.0
    return values[:k], vectors[:, :k], after


def _uncentred_pairs(
    K: Doubles, k: int | None, solver: Mapping[str, Any]
) -> tuple[Doubles, Doubles, float | None]:
    """scikit-learn always centres; here nothing is."""
    n = len(K)
    values, vectors = top_eigenpairs(K, min(n, n if k is None else k + 1))
    values = clip_spectrum(values, n)
    places = np.flatnonzero(values) if k is None or solver["remove_zero_eig"] else np.arange(n)
    places = places[:k]
    after = float(values[len(places)]) if len(values) > len(places) else 0.0
    return values[places], np.asarray(fix_signs(vectors[:, places])), after
