"""How rows in one place are fitted: by their whole kernel matrix or through which landmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.estimators.kernel_gamma import PSD_KERNELS
from eigenmesh.numerics.arrays import Rows, blocks
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.embeddings import embedding
from eigenmesh.numerics.kernels import Kernel

EXACT_ROWS = 2000  # up to here the whole kernel matrix takes about a second
EXACT_RATHER = 6000  # and so many, if landmarks miss more than they may
EXACT_MOST = 30_000  # its kernel matrix takes 7 GB
SKEWED = 20.0  # leverage max/mean above which a few rows carry the variance
SKEW_ROWS = 20_000  # rows on which the skew of a plain array is measured
ALIKE_ROWS = 2048  # the same where k(x, x) = 1: a rare row that is missed weighs no more
ROWS_A_CENTROID = 10  # fewer rows have no clusters worth a mean
MOST_LANDMARKS = 2000  # that are taken unasked

LANDMARK_KERNELS = PSD_KERNELS  # the others have no feature space that landmarks could span


@dataclass(frozen=True)
class Choice:
    """A method by name, and why it was chosen."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def choose_pooled(
    method: str, kernel: Any, n_rows: int, *, wants_landmarks: bool, eigen_solver: str
) -> Choice:
    """The whole kernel matrix, or landmarks."""
    only_exact = callable(kernel) or kernel not in LANDMARK_KERNELS
    if method not in ("auto", "exact", "diskpca"):
        raise InputError(
            f"method is {method!r}; for one array 'auto', 'exact', 'diskpca' are there"
        )
    if only_exact:
        return _must_be_exact(method, kernel, n_rows)
    if method == "exact":
        _require_size(n_rows, "pass method='auto', which takes landmarks")
        return Choice("exact", "as asked for")
    if method == "diskpca" or wants_landmarks:
        return Choice("diskpca", "landmarks were asked for")
    if n_rows <= EXACT_ROWS:
        return Choice("exact", f"{n_rows:,} rows are few enough for their whole kernel matrix")
    if eigen_solver != "auto" and n_rows <= EXACT_MOST:
        return Choice("exact", f"eigen_solver={eigen_solver!r} is for the whole kernel matrix")
    return Choice("diskpca", f"{n_rows:,} rows are too many for their whole kernel matrix")


def _must_be_exact(method: str, kernel: Any, n_rows: int) -> Choice:
    shown = "a function" if callable(kernel) else repr(kernel)
    if method == "diskpca":
        raise InputError(
            f"kernel is {shown}, which has no landmarks; {', '.join(LANDMARK_KERNELS)} have: "
            f"choose one of these, or method='exact'"
        )
    if kernel != "precomputed":
        _require_size(n_rows, f"choose a kernel that has: {', '.join(LANDMARK_KERNELS)}")
    return Choice("exact", f"a kernel that is {shown} has no landmarks")


def _require_size(n_rows: int, remedy: str) -> None:
    if n_rows > EXACT_MOST:
        raise InputError(
            f"X has {n_rows:,} rows, whose kernel matrix takes {8e-9 * n_rows**2:.0f} GB; "
            f"{EXACT_MOST:,} rows at most are expected without landmarks: {remedy}"
        )


def landmarks_for(kernel: Kernel, X: Rows, count: int, rank: int, seed: int) -> tuple[str, str]:
    """The best landmarks for rows in one place, and why: their leverage may be looked at.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 4))
    >>> landmarks_for(Kernel("rbf", 0.1), X, 20, 3, seed=0)[0]
    'centroids'
    >>> heavy = X * rng.pareto(1, size=(500, 1))
    >>> landmarks_for(Kernel("poly", 1.0, 2, 0.0), heavy, 20, 3, seed=0)[0]
    'diskpca'
    """
    if X.shape[0] < ROWS_A_CENTROID * count:
        return "diskpca", f"{X.shape[0]:,} rows have no {count} clusters, so landmarks are rows"
    skew = leverage_skew(kernel, X, rank, seed)
    seen = f"leverage max/mean is {skew:.3g}"
    if skew >= SKEWED:
        return "diskpca", f"{seen}: few rows matter most, so they are drawn by it as landmarks"
    return "centroids", f"{seen}: no row stands out, so the landmarks are centroids"


def leverage_skew(kernel: Kernel, X: Rows, rank: int, seed: int) -> float:
    """Largest leverage score / mean with respect to `rank`, on a sample of the rows."""
    most, n = ALIKE_ROWS if kernel.is_level else SKEW_ROWS, X.shape[0]
    if n > most:
        X = X[np.sort(np.random.default_rng(seed).choice(n, most, replace=False))]
    embed = embedding(kernel, X.shape[1], 2 * rank, seed)
    E = np.vstack([embed(X[rows]) for rows in blocks(X.shape[0])])
    whitened = E @ pseudo_inverse_root(E.T @ E)[:, :rank]  # largest directions first
    scores = np.einsum("ij,ij->i", whitened, whitened)
    return float(scores.max() / scores.mean())


def default_landmarks(n_components: int | None, kernel: Any, n_features: int | None) -> int:
    """Landmarks where their number is not given: ten a component, from 100 to MOST_LANDMARKS.

    As many as columns make the linear kernel exact, so they are taken for one array, where
    landmarks cost no traffic.

    >>> default_landmarks(5, "rbf", 784), default_landmarks(30, "rbf", 784)
    (100, 300)
    >>> default_landmarks(5, "linear", 784), default_landmarks(None, "rbf", 784)
    (784, 500)
    """
    wanted = 500 if n_components is None else max(100, 10 * n_components)
    if kernel == "linear" and n_features is not None:
        wanted = max(wanted, n_features)
    return max(min(wanted, MOST_LANDMARKS), 2 * (n_components or 0))
