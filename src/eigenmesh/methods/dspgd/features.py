"""Random features of successive iterations that complement each other.

Directions are orthogonal to one another not only within an iteration, as in `embeddings`, but on
through the iterations until a basis is complete; then a new one begins. Every single direction is
distributed as before, so that features stay unbiased; their mean over iterations varies less than
that of independent ones (Yu et al., "Orthogonal random features", NeurIPS 2016, say how much).
What federated kernel k-means was printed with is simpler: √2 cos(ωᵀx + b), every ω and b drawn on
its own (Rahimi and Recht, NeurIPS 2007).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.stats import chi2

from eigenmesh.numerics.arrays import Doubles, Rows, as_rows
from eigenmesh.numerics.embeddings import Embedding, embedded_width, embedding
from eigenmesh.numerics.kernels import Kernel

_BASES = 256  # columns drawn together: bases of few columns by the dozen
_LARGEST = 2**20  # numbers in a basis; with more columns it is left incomplete


LAWS = ("complementary", "independent", "paper")
PAPER_KERNELS = ("rbf", "laplacian")  # shift-invariant: those that the paper's law is of


def feature_width(kernel: str, n_columns: int, width: int, law: str) -> int:
    """How many features there really are: pairs of cosine and sine are even in number.

    >>> [feature_width("rbf", 8, 15, law) for law in LAWS]
    [16, 16, 15]
    """
    return width if law == "paper" else embedded_width(kernel, n_columns, width)


@lru_cache(maxsize=4)  # thousands of parties in one process need not draw the same again
def fresh_features(
    kernel: Kernel, n_columns: int, width: int, seed: int, t: int, law: str = LAWS[0]
) -> Embedding:
    """The features of iteration t = 1, 2, …: x ↦ a row of A_t, E[A_t A_tᵀ] being the kernel's.

    Those of an RBF kernel complement each other. With the law "independent", and for all other
    kernels, iterations are independent, and within one the directions of an RBF kernel are
    orthogonal. With "paper" every feature is independent of all others.

    >>> X = np.random.default_rng(0).normal(size=(30, 4))
    >>> kernel = Kernel("rbf", 0.1)
    >>> A = [fresh_features(kernel, 4, 20, 0, t)(X) for t in range(1, 101)]
    >>> K = np.mean([a @ a.T for a in A], axis=0)
    >>> bool(np.abs(K - kernel.matrix(X)).max() < 0.05)
    True
    """
    if law == "paper":
        return _cosines(kernel, n_columns, width, seed, t)
    if kernel.name != "rbf" or law == "independent":
        drawn = np.random.SeedSequence(seed, spawn_key=(t,)).generate_state(1, np.uint64)[0]
        return embedding(kernel, n_columns, width, int(drawn))
    pairs = width // 2
    directions = successive_directions(n_columns, pairs, seed, t)
    omega = np.sqrt(2 * float(kernel.gamma or 0)) * directions

    def features(X: Rows) -> Doubles:
        angles = np.asarray(as_rows(X, np.float64) @ omega)
        return np.asarray(np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(pairs))

    return features


def _cosines(kernel: Kernel, n_columns: int, width: int, seed: int, t: int) -> Embedding:
    """√2 cos(ωᵀx + b) / √D, ω from the kernel's Fourier transform, b uniform on a circle."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(t,)))
    gamma = float(kernel.gamma or 0)
    if kernel.name == "rbf":
        omega = np.sqrt(2 * gamma) * rng.standard_normal((n_columns, width))
    else:
        omega = gamma * rng.standard_cauchy((n_columns, width))
    phases = rng.uniform(0, 2 * np.pi, width)

    def features(X: Rows) -> Doubles:
        angles = np.asarray(as_rows(X, np.float64) @ omega) + phases
        return np.asarray(np.cos(angles) * np.sqrt(2 / width))

    return features


def successive_directions(d: int, m: int, seed: int, t: int) -> Doubles:
    """(d, m) columns distributed as N(0, I): numbers (t − 1)m to tm of an endless sequence.

    >>> first, second = (successive_directions(8, 4, 0, t) for t in (1, 2))
    >>> bool(np.allclose(first.T @ second, 0))
    True
    """
    size = _basis_size(d, m) * _bases(d, m)
    columns, start, end = [], (t - 1) * m, t * m
    while start < end:
        block, skipped = divmod(start, size)
        taken = min(end - start, size - skipped)
        columns.append(_block(d, m, seed, block)[:, skipped : skipped + taken])
        start += taken
    return np.hstack(columns)


def _basis_size(d: int, m: int) -> int:
    """Columns that are orthogonal to each other: as many as there can be, and as are affordable."""
    return min(d, max(m, _LARGEST // d))


def _bases(d: int, m: int) -> int:
    return max(1, _BASES // _basis_size(d, m))


@lru_cache(maxsize=4)  # thousands of parties in one process need not draw the same again
def _block(d: int, m: int, seed: int, number: int) -> Doubles:
    """Some whole bases, side by side."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number, 0)))
    bases, size = _bases(d, m), _basis_size(d, m)
    Q, R = np.linalg.qr(rng.standard_normal((bases, d, size)))
    # LAPACK favours one sign; without it the directions are uniform (Mezzadri, 2007).
    Q *= np.sign(np.diagonal(R, axis1=1, axis2=2))[:, None, :]
    n = bases * size
    # One length from each n-th part of their distribution, in random order.
    lengths = np.sqrt(chi2.ppf((rng.permutation(n) + rng.random(n)) / n, d))
    directions: Doubles = Q.transpose(1, 0, 2).reshape(d, n) * lengths
    return directions
