"""By how much eigenvalues of random features are off, seen by other features of the same kernel.

z_i and v_i are eigenvalues and unit scores of rows embedded in D random features. They err by the
draw of these features twice over: to first order by what the draw makes of v_i, either way, and to
second order upwards, since v_i was chosen for it. Of other features E', drawn apart, everybody's
rows add up to F = VᵀE', and F Fᵀ is VᵀKV without the first choice. Its eigenvalues ρ_i (Ritz
values, as of a step of Rayleigh and Ritz) are below the true ones by what is outside of V: the
residual r_i = Kv_i − ρ_i v_i, whose squared length rows show by E'F, less what the draw of E' adds.
So the true eigenvalue is about ρ_i/2 + √(ρ_i²/4 + ‖r_i‖²), the larger one of [[ρ, ‖r‖], [‖r‖, 0]].

E' comes in groups drawn apart, which differ by as much as all err. Of few columns, frequencies are
Sobol's points instead of independent ones: they err less by several times (Niederreiter, 1992).
Kernels of few dimensions are written out, and err by nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from eigenmesh.numerics.arrays import Doubles, Rows, as_rows
from eigenmesh.numerics.eigen import top_eigenpairs
from eigenmesh.numerics.embeddings import Embedding
from eigenmesh.numerics.explicit_features import ExplicitFeatures, explicit_width
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.mean_outside import FOURIER, unbiased_features
from eigenmesh.numerics.shortfall import Shortfall

_WIDTH = 256  # of all groups together: of 299 drawn cases 278 were near, with twice as many 285
_GROUPS = 4
_WRITTEN_OUT = 512  # dimensions of a kernel's own space, up to which it is written out
_FEW_COLUMNS = 4  # of which Sobol's points are better than directions at right angles
_SECOND = 0.3  # of what is added for the residual, for its standard error
_EDGE = 1e-12  # a point of Sobol's may be 0
_STREAM = 0x63686563  # apart from all other draws by the same seed
_NO_DIRECTION = 1e-10  # of the first eigenvalue


def check_width(kernel: str, n_columns: int, degree: float, coef0: float) -> int:
    """How many features there are in all.

    >>> check_width("linear", 8, 1, 0.0), check_width("rbf", 8, 1, 0.0)
    (8, 256)
    """
    dimensions = explicit_width(kernel, n_columns, degree, coef0)
    return dimensions if 0 < dimensions <= _WRITTEN_OUT else _WIDTH


def n_check_groups(kernel: Kernel, n_columns: int) -> int:
    """In how many groups they were drawn."""
    return 1 if _is_written_out(kernel, n_columns) else _GROUPS


def _is_written_out(kernel: Kernel, n_columns: int) -> bool:
    width = explicit_width(kernel.name, n_columns, kernel.degree, kernel.coef0)
    return 0 < width <= _WRITTEN_OUT


@lru_cache(maxsize=1)  # parties of one process draw alike
def check_features(kernel: Kernel, n_columns: int, seed: int) -> tuple[Embedding, ...]:
    """Groups of features; products of each have the kernel's values in the mean over draws."""
    if _is_written_out(kernel, n_columns):
        return (ExplicitFeatures(kernel, n_columns),)
    streams = np.random.SeedSequence(seed, spawn_key=(_STREAM,)).spawn(_GROUPS)
    width = _WIDTH // _GROUPS
    if n_columns <= _FEW_COLUMNS and kernel.name in FOURIER:
        return tuple(_evenly(kernel, n_columns, width // 2, stream) for stream in streams)
    return tuple(unbiased_features(kernel, n_columns, width, stream) for stream in streams)


def _evenly(kernel: Kernel, d: int, n_pairs: int, stream: np.random.SeedSequence) -> Embedding:
    """Cosines and sines of frequencies that fill their distribution evenly."""
    points = qmc.Sobol(d, seed=np.random.default_rng(stream)).random(n_pairs).T
    points = np.clip(points, _EDGE, 1 - _EDGE)
    gamma = float(kernel.gamma or 0.0)
    if kernel.name == "rbf":
        omega = np.sqrt(2 * gamma) * ndtri(points)
    else:
        omega = gamma * np.tan(np.pi * (points - 0.5))  # Cauchy's distribution

    def features(X: Rows) -> Doubles:
        angles = np.asarray(as_rows(X, np.float64) @ omega)
        return np.asarray(np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(n_pairs))

    return features


class CheckSums(NamedTuple):
    """What rows add up to in the groups of features, side by side."""

    weighted: Doubles  # (s, w), VᵀE'
    whole: Doubles  # (w,), the sum of E'; 0 where nothing is centred
    n_groups: int

    @property
    def groups(self) -> list[Doubles]:
        """F of every group."""
        return np.split(self.weighted, self.n_groups, axis=1)

    def ritz(self) -> tuple[Doubles, Doubles]:
        """ρ (s,), and how V turns (s, s)."""
        gram = sum((F @ F.T for F in self.groups), np.zeros((len(self.weighted),) * 2))
        return top_eigenpairs(gram / self.n_groups, len(gram))


def check_sums(groups: Sequence[Doubles], V: Doubles, centred: bool) -> CheckSums:
    """Those of rows with features (n, w/groups) and scores V (n, s)."""
    weighted = np.hstack([V.T @ E for E in groups])
    whole = np.hstack([E.sum(axis=0) for E in groups])
    return CheckSums(weighted, whole if centred else np.zeros_like(whole), len(groups))


def squared_residuals(
    groups: Sequence[Doubles], V: Doubles, sums: CheckSums, n_rows: float
) -> Doubles:
    """Σ r_i(x)² of some of the rows (s,), by the sums of all; less what the draw of E' adds."""
    values, T = sums.ritz()
    means = np.split(sums.whole / n_rows, sums.n_groups)
    each = [(E - m) @ (F.T @ T) for E, m, F in zip(groups, means, sums.groups, strict=True)]
    Kv = np.mean(each, axis=0)  # (n, s)
    squares = np.square(Kv - V @ T * values).sum(axis=0)
    if len(each) == 1:
        return np.asarray(squares)
    return np.asarray(squares - np.var(each, axis=0, ddof=1).sum(axis=0) / len(each))


def feature_errors(z: Doubles, sums: CheckSums, residuals: Doubles, k: int) -> Shortfall:
    """Differences of the first k of z from the true eigenvalues, over the larger of the two.

    >>> rng, kernel = np.random.default_rng(0), Kernel("rbf", 0.3)
    >>> X = rng.normal(size=(200, 2))
    >>> K = kernel.matrix(X)
    >>> values, V = top_eigenpairs(K, 3)
    >>> E = [embed(X) for embed in check_features(kernel, 2, seed=0)]
    >>> sums = check_sums(E, V, centred=False)
    >>> rest = squared_residuals(E, V, sums, 200)
    >>> off = feature_errors(1.2 * values, sums, rest, 2).values  # a sixth
    >>> bool((off > 1 / 12).all() and (off < 1 / 3).all())
    True
    """
    values, T = sums.ritz()
    values = np.maximum(values, 0.0)
    true = values / 2 + np.sqrt(np.square(values) / 4 + np.maximum(residuals, 0.0))
    errors = _SECOND * (true - values)
    if sums.n_groups > 1:
        each = [np.square(F.T @ T).sum(axis=0) for F in sums.groups]
        errors = np.hypot(errors, np.std(each, axis=0, ddof=1) / np.sqrt(sums.n_groups))
    order = np.argsort(true)[::-1][:k]
    larger = np.maximum(np.maximum(true[order], z[:k]), np.finfo(float).tiny)
    return Shortfall(np.abs(z[:k] - true[order]) / larger, errors[order] / larger)


def unit_scores(scores: Doubles, z: Doubles) -> Doubles:
    """V of the rows; 0 of directions that are rounding."""
    roots = np.sqrt(np.maximum(z, np.finfo(float).tiny))
    return np.asarray(scores / roots * (z > _NO_DIRECTION * z[0]))
