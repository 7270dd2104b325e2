"""Stochastic proximal gradient descent for the top of a kernel matrix, as arrays.

Letters: K kernel matrix, Z_t = B_t B_tᵀ its estimate, A_t fresh random features with E[A Aᵀ] = K,
η the step, λ the threshold, W = [√η A, √(1−η) B], so that W Wᵀ = (1−η) Z + η A Aᵀ. One iteration
is B ← W X: X = V diag √((θ − ηλ)/θ) from the eigenpairs (θ, V) of the small matrix WᵀW. Whoever
knows the X's can so map any row, a new one too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from eigenmesh.methods.dspgd.features import LAWS, fresh_features
from eigenmesh.numerics.arrays import Doubles, Rows, blocks, is_sparse
from eigenmesh.numerics.eigen import fix_signs, top_eigenpairs
from eigenmesh.numerics.kernels import Kernel

STEP_SIZES = ("1/t", "2/t")
_CUTOFF = 1e-10  # of a sketch's directions, relative


def step_size(rule: str, t: int) -> float:
    """η_t; 2/t is cut at 1, beyond which √(1−η) would not be real.

    >>> [step_size("2/t", t) for t in (1, 2, 4)]
    [1.0, 1.0, 0.5]
    """
    return min(1.0, {"1/t": 1.0, "2/t": 2.0}[rule] / t)


def sketch_draw(width: int, n_drawn: int, seed: int, t: int) -> Doubles:
    """The random combinations of features, (width, n_drawn), that a sketch of iteration t tries."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(t, 1)))
    return rng.standard_normal((width, n_drawn))


def advance(A: Doubles, B: Doubles, X: Doubles, eta: float) -> Doubles:
    """W X, without forming W.

    >>> advance(np.ones((1, 1)), np.ones((1, 1)), np.ones((2, 1)), 0.5).round(3)
    array([[1.414]])
    """
    width = A.shape[1]
    moved: Doubles = np.sqrt(eta) * (A @ X[:width]) + np.sqrt(1 - eta) * (B @ X[width:])
    return moved


# The small eigenproblem, three ways.


@dataclass(frozen=True)
class ProximalSpectrum:
    """Largest eigenvalues of WᵀW, their vectors (w, k), and the products that it took.

    `energy` is ‖BᵀB‖²_F where it is known; `exact` whether the pairs are, up to a tolerance.
    """

    values: Doubles
    vectors: Doubles
    n_products: int = 1
    energy: float | None = None
    exact: bool = True


def weigh(gram: Doubles, width: int, eta: float) -> Doubles:
    """WᵀW from [A B]ᵀ[A B].

    >>> weigh(np.ones((2, 2)), 1, 0.5)
    array([[0.5, 0.5],
           [0.5, 0.5]])
    """
    scale = np.sqrt(np.where(np.arange(len(gram)) < width, eta, 1 - eta))
    weighed: Doubles = gram * scale * scale[:, None]
    return weighed


def spectrum_of_gram(gram: Doubles, width: int, eta: float, k: int) -> ProximalSpectrum:
    """From [A B]ᵀ[A B] itself.

    >>> spectrum_of_gram(np.diag([1.0, 3.0]), 2, 1.0, 1).values
    array([3.])
    """
    values, vectors = top_eigenpairs(weigh(gram, width, eta), min(k, len(gram)))
    return ProximalSpectrum(values, vectors, energy=float(np.sum(gram[width:, width:] ** 2)))


def spectrum_of_sketch(
    drawn: Doubles, cross: Doubles, basis: Doubles, omega: Doubles, eta: float, k: int
) -> ProximalSpectrum:
    """From AᵀAΩ (w, p), AᵀB (w, r) and BᵀB (r, r): Nyström's approximation of WᵀW.

    Its range is that of W applied to Ω and to all of B: what earlier iterations have found is
    looked at again for nothing, and only what A adds is sampled.

    >>> A = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 2)))[0] * [2.0, 1.0]
    >>> nothing = np.zeros((2, 0)), np.zeros((0, 0))
    >>> spectrum_of_sketch(A.T @ A, *nothing, np.eye(2), 1.0, 2).values.round(6)
    array([4., 1.])
    """
    top = np.hstack([eta * drawn, np.sqrt(eta * (1 - eta)) * cross])
    bottom = np.hstack([np.sqrt(eta * (1 - eta)) * cross.T @ omega, (1 - eta) * basis])
    sketch = np.vstack([top, bottom])  # WᵀW T with T = diag(Ω, I)
    core = np.vstack([omega.T @ top, bottom])  # TᵀWᵀW T
    factor = sketch @ _inverse_root((core + core.T) / 2)
    vectors, singular, _ = scipy.linalg.svd(factor, full_matrices=False)
    energy = float(np.sum(basis**2))
    return ProximalSpectrum(singular[:k] ** 2, vectors[:, :k], energy=energy, exact=False)


def _inverse_root(core: Doubles) -> Doubles:
    """Columns are scaled to one length first: those of Ω weigh η times less than those of B."""
    lengths = np.sqrt(np.maximum(np.diag(core), 0.0))
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    values, vectors = scipy.linalg.eigh(core * scale * scale[:, None])
    large = values > _CUTOFF * max(values[-1], 1e-300)
    root: Doubles = scale[:, None] * vectors[:, large] / np.sqrt(values[large])
    return root


def lanczos_spectrum(
    apply: Callable[[Doubles], Doubles],
    start: Doubles,
    *,
    rank: int | None = None,
    floor: float = 0.0,
    tol: float = 1e-6,
) -> ProximalSpectrum:
    """Lanczos with full re-orthogonalisation, twice, from products alone.

    Stops when the `rank` largest Ritz values, or if None all above `floor`, have residuals of at
    most tol times the largest.

    >>> diagonal = np.arange(30.0) ** 3
    >>> found = lanczos_spectrum(lambda v: diagonal * v, np.ones(30), rank=2)
    >>> found.values.round(2), found.n_products < 30
    (array([24389., 21952.]), True)
    """
    n = len(start)
    basis = [start / np.linalg.norm(start)]
    alphas: list[float] = []
    betas: list[float] = []
    while True:
        product = apply(basis[-1])
        alphas.append(float(basis[-1] @ product))
        C = np.column_stack(basis)
        for _ in range(2):
            product = product - C @ (C.T @ product)
        betas.append(float(np.linalg.norm(product)))
        values, small = scipy.linalg.eigh_tridiagonal(np.array(alphas), np.array(betas[:-1]))
        values, small = values[::-1], small[:, ::-1]
        residuals = betas[-1] * np.abs(small[-1])
        count = np.count_nonzero(values > floor) if rank is None else min(rank, n)
        exhausted = len(basis) == n or betas[-1] <= 1e-14 * abs(values[0])
        if exhausted or (
            len(values) >= max(count, 2) and np.all(residuals[:count] <= tol * values[0])
        ):
            k = min(count, len(values))
            top: Doubles = np.asarray(values[:k], dtype=np.float64)
            return ProximalSpectrum(top, C @ small[:, :k], len(basis))
        basis.append(product / betas[-1])


# From eigenpairs to the next iterate.


def compression(spectrum: ProximalSpectrum, shift: float, rank: int | None) -> Doubles:
    """X (w, rank) with B ← W X; `shift` is ηλ.

    With a rank, columns of zeros make up for missing ones, so that sizes are known beforehand;
    without, every eigenvalue above the shift is kept.

    >>> compression(ProximalSpectrum(np.array([4.0, 1.0]), np.eye(2)), 1.0, None).round(3)
    array([[0.866],
           [0.   ]])
    """
    large = spectrum.values > max(shift, 0.0)
    values, vectors = spectrum.values[large], spectrum.vectors[:, large]
    # Signs by rule: H must not depend on which solver, or whose LAPACK, chose them.
    signed = np.asarray(fix_signs(vectors), dtype=np.float64)
    X: Doubles = signed * np.sqrt((values - shift) / values)
    if rank is None:
        return X
    return np.hstack([X[:, :rank], np.zeros((len(X), max(0, rank - X.shape[1])))])


def common_energy(spectrum: ProximalSpectrum, X: Doubles, width: int, eta: float) -> float:
    """‖B'ᵀB‖²_F of the next iterate B' = W X with this one, without either.

    >>> found = ProximalSpectrum(np.array([2.0]), np.array([[0.0], [1.0]]))
    >>> common_energy(found, found.vectors, 1, 0.5)
    8.0
    """
    if eta == 1.0:
        return 0.0  # then B has no part in W
    k = min(X.shape[1], len(spectrum.values))
    return float(np.sum((X[width:, :k] * spectrum.values[:k]) ** 2)) / (1 - eta)


def next_energy(spectrum: ProximalSpectrum, X: Doubles) -> float:
    """‖B'ᵀB'‖²_F of the next iterate, if the eigenpairs are exact.

    >>> next_energy(ProximalSpectrum(np.array([2.0]), np.eye(2, 1)), np.eye(2, 1))
    4.0
    """
    k = min(X.shape[1], len(spectrum.values))
    values = np.einsum("ij,ij->j", X[:, :k], X[:, :k]) * spectrum.values[:k]
    return float(values @ values)


def variance_of_mean(rule: str, n_steps: int) -> Doubles:
    """Variance of Z before each iteration, and after the last, where that of one draw is 1.

    >>> variance_of_mean("1/t", 4)[1:].round(3)
    array([1.   , 0.5  , 0.333, 0.25 ])
    """
    shares = [0.0]
    for t in range(1, n_steps + 1):
        eta = step_size(rule, t)
        shares.append((1 - eta) ** 2 * shares[-1] + eta**2)
    return np.array(shares)


@dataclass(frozen=True)
class SpectralFeatures:
    """Maps a row x to its coordinates h(x), with h(x)·h(y) near the best rank-s part of K.

    `steps` are the X's of all iterations; `rotation` takes the last B to H.

    >>> model = SpectralFeatures(Kernel("rbf", 1.0), 2, 4, 0, "1/t", (np.eye(4),), np.eye(4))
    >>> model.transform(np.ones((3, 2))).shape
    (3, 4)
    """

    kernel: Kernel
    n_columns: int
    width: int
    seed: int
    step_rule: str
    steps: Sequence[Doubles]
    rotation: Doubles
    law: str = LAWS[0]

    def transform(self, X: Rows) -> Doubles:
        """Coordinates of every row: all iterations again, block by block."""
        scores = np.empty((X.shape[0], self.rotation.shape[1]))
        for rows in blocks(X.shape[0], 4096):
            scores[rows] = self._replay(X[rows]) @ self.rotation
        return scores

    def _replay(self, X: Rows) -> Doubles:
        B = np.zeros((X.shape[0], 0))
        for B in self.iterates(X):  # noqa: B007  (the last is wanted)
            pass
        return B

    def iterates(self, X: Rows) -> Iterator[Doubles]:
        """The rows of B after each iteration, (n, rank)."""
        X = X if is_sparse(X) else np.asarray(X, dtype=np.float64)
        B = np.zeros((X.shape[0], 0))
        for t, step in enumerate(self.steps, start=1):
            A = fresh_features(self.kernel, self.n_columns, self.width, self.seed, t, self.law)(X)
            B = advance(A, B, step, step_size(self.step_rule, t))
            yield B
