"""Explicit features whose inner products approximate a kernel: subspace embeddings of φ(x).

An embedding is a function of the kernel, the number of columns and a seed, so every party that
knows these maps its rows alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from eigenmesh.errors import InputError, RankError
from eigenmesh.numerics.arrays import Doubles, Floats, Rows, as_rows, blocks, dense, is_sparse
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.kernels import Kernel, unit_rows

Float = TypeVar("Float", bound=np.floating[Any])
Embedding = Callable[[Rows], Doubles]  # (n, d) -> (n, t)

_SKETCH_SHARE = 8  # a tensor sketch is this much wider than the Gaussian map that follows it
_NARROW = 128  # columns up to which a matrix product costs less than a Fourier transform
_CACHED = 1 << 15  # angles, that stay in the nearest cache between passes over them
_PIECE = 256  # rows whose sketches need no memory from the system


def embedding(
    kernel: Kernel,
    n_columns: int,
    width: int,
    seed: int | np.random.SeedSequence,
    reduction: str = "gaussian",
) -> Embedding:
    """The embedding of a kernel's feature space into `width` dimensions (or a few more).

    TensorSketch then Gaussian for "poly" (Pham and Pagh, 2013); orthogonal random features for
    "rbf" (Yu et al., 2016), Cauchy ones for "laplacian" (Rahimi and Recht, 2007); orthogonal
    rectified features for "arc-cosine" (Cho and Saul, 2009); a Gaussian map for "linear", and for
    "cosine" after scaling. Where the columns are no more than `width`, these two are exact. With
    `reduction` "hadamard" a subsampled Hadamard map follows the tensor sketch of "poly".

    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> E = embedding(Kernel("rbf", 0.1), 4, 2000, seed=0)(X)
    >>> bool(np.abs(E @ E.T - Kernel("rbf", 0.1).matrix(X)).max() < 0.05)
    True
    """
    if isinstance(seed, np.random.SeedSequence):
        return _draw(kernel, n_columns, width, seed, reduction)
    return _draw_once(kernel, n_columns, width, int(seed), reduction)


def whitening_of(gram: Floats) -> Doubles:
    """B (t, r) with BᵀGB = I, of the Gram matrix of all rows in an embedding of t dimensions.

    >>> whitening_of(np.array([[4.0]]))
    array([[0.5]])
    """
    if gram.any():
        return pseudo_inverse_root(gram)
    raise RankError(
        f"all rows are 0 in the {len(gram)} dimensions in which their leverage is measured; pass "
        f"another random_state or landmarks='uniform', or check that not all rows are 0"
    )


def leverage_skew(kernel: Kernel, X: Rows, rank: int, seed: int, most_rows: int) -> float:
    """Largest leverage score / mean with respect to `rank`, on a sample of the embedded rows.

    >>> X = np.vstack([np.ones((99, 1)), [[50.0]]])
    >>> round(leverage_skew(Kernel("linear"), X, 1, seed=0, most_rows=1000))
    96
    """
    n = X.shape[0]
    if n > most_rows:
        X = X[np.sort(np.random.default_rng(seed).choice(n, most_rows, replace=False))]
    embed = embedding(kernel, X.shape[1], 2 * rank, seed)
    roughly: Callable[[Rows], Floats] = embed.roughly if isinstance(embed, _Fourier) else embed
    E = np.vstack([roughly(X[rows]) for rows in blocks(X.shape[0])]).astype(np.float64, copy=False)
    if not E.any():  # rectified features of rows on one side of all directions
        return 1.0
    whitened = E @ pseudo_inverse_root(E.T @ E)[:, :rank]  # largest directions first
    scores = np.einsum("ij,ij->i", whitened, whitened)
    return float(scores.max() / scores.mean())


def _draw(kernel: Kernel, n_columns: int, width: int, seed: Any, reduction: str) -> Embedding:
    if reduction == "hadamard":
        require_tensor_sketch(kernel)
        return _poly(kernel, n_columns, width, np.random.default_rng(seed), hadamard_map)
    if kernel.name not in _EMBEDDINGS:
        raise InputError(
            f"kernel {kernel.name!r} has no feature embedding; {', '.join(_EMBEDDINGS)} have one"
        )
    return _EMBEDDINGS[kernel.name](kernel, n_columns, width, np.random.default_rng(seed))


# Parties of one process embed alike, step after step: a sketch of 200 dimensions takes longer to
# draw than to apply to 40 rows. One is kept, of no more numbers than as many landmarks have, or
# 8 · width² for a polynomial kernel.
_draw_once = lru_cache(maxsize=1)(_draw)


def embedded_width(kernel: str, n_columns: int, width: int) -> int:
    """The dimensions that `embedding` really gives.

    >>> embedded_width("linear", 8, 20), embedded_width("rbf", 8, 19), embedded_width("poly", 8, 9)
    (8, 20, 9)
    """
    if kernel in _EXACT_IF_NARROW:
        return min(n_columns, width)
    return 2 * _pairs(width) if kernel in ("rbf", "laplacian") else width


def is_exact(kernel: str, n_columns: int, width: int) -> bool:
    """Whether inner products of embedded rows are the kernel's values themselves.

    >>> is_exact("cosine", 8, 20), is_exact("rbf", 8, 20)
    (True, False)
    """
    return kernel in _EXACT_IF_NARROW and n_columns <= width


def _linear(kernel: Kernel, d: int, width: int, rng: np.random.Generator) -> Embedding:
    if d <= width:
        return lambda X: dense(as_rows(X, np.float64))
    G = rng.standard_normal((d, width)) / np.sqrt(width)
    return lambda X: np.asarray(as_rows(X, np.float64) @ G)


def _cosine(kernel: Kernel, d: int, width: int, rng: np.random.Generator) -> Embedding:
    linear = _linear(kernel, d, width, rng)
    return lambda X: linear(unit_rows(as_rows(X, np.float64)))


def require_tensor_sketch(kernel: Kernel) -> None:
    """Only a tensor sketch is brought down in a second step."""
    if kernel.name != "poly":
        raise InputError(
            f"reduction is 'hadamard' and kernel is {kernel.name!r}, whose embedding has no tensor "
            f"sketch to reduce; kernel='poly' is expected, or reduction='gaussian'"
        )


def gaussian_map(wide: int, width: int, rng: np.random.Generator) -> Doubles:
    """(wide, width) of independent normal numbers; keeps lengths on average."""
    return np.asarray(rng.standard_normal((wide, width)) / np.sqrt(width))


def hadamard_map(wide: int, width: int, rng: np.random.Generator) -> Doubles:
    """(wide, width) columns of a Hadamard matrix whose rows have random signs, drawn.

    As a matrix: at the widths of an embedding a product with it takes less time than the fast
    transform, which has to be of all columns.

    >>> G = hadamard_map(6, 8, np.random.default_rng(0))
    >>> bool(np.allclose(G @ G.T, np.eye(6)))
    True
    """
    size = 1 << (max(wide, width) - 1).bit_length()
    columns = rng.permutation(size)[:width]
    common = np.arange(wide)[:, None] & columns
    # Sylvester's matrix: an entry is −1 to the number of bits that its row and its column share.
    parity = np.zeros(common.shape, dtype=np.int64)
    while common.any():
        parity, common = parity ^ (common & 1), common >> 1
    signs = rng.choice([-1.0, 1.0], size=(wide, 1))
    return np.asarray(signs * (1.0 - 2.0 * parity) / np.sqrt(width))


def _poly(
    kernel: Kernel,
    d: int,
    width: int,
    rng: np.random.Generator,
    reduce: Callable[[int, int, np.random.Generator], Doubles] = gaussian_map,
) -> Embedding:
    wide = _SKETCH_SHARE * width
    sketch = _TensorSketch.drawn(kernel, d, wide, rng)
    embed = sketch.then(reduce(wide, width, rng))

    def in_pieces(X: Rows) -> Doubles:
        if X.shape[0] <= _PIECE:
            return embed(X)
        return np.vstack([embed(X[rows]) for rows in blocks(X.shape[0], _PIECE)])

    return in_pieces


def tensor_sketch(kernel: Kernel, d: int, width: int, rng: np.random.Generator) -> Embedding:
    """TensorSketch of a polynomial kernel, exactly `width` dimensions; of degree 1, CountSketch.

    >>> sketch = tensor_sketch(Kernel("poly", 1.0, 2, 0.0), 3, 64, np.random.default_rng(0))
    >>> sketch(np.eye(3)).shape
    (3, 64)
    """
    return _TensorSketch.drawn(kernel, d, width, rng)


@dataclass(frozen=True)
class _TensorSketch:
    """(gamma x·y + coef0)^degree = (x'·y')^degree with x' = (√gamma x, √coef0)."""

    hashes: tuple[Any, ...]  # for each factor a CountSketch (d + 1, width) of x'
    width: int

    @classmethod
    def drawn(cls, kernel: Kernel, d: int, width: int, rng: np.random.Generator) -> Self:
        degree, gamma = int(kernel.degree), float(kernel.gamma or 1.0)
        if degree != kernel.degree or kernel.coef0 < 0 or gamma < 0:
            raise InputError(
                f"a polynomial kernel of degree {kernel.degree}, gamma {gamma} and coef0 "
                f"{kernel.coef0} has no sketch; a whole degree and no negative numbers are expected"
            )
        scales = np.append(np.full(d, np.sqrt(gamma)), np.sqrt(kernel.coef0))
        hashes = [count_sketch(d + 1, width, rng) for _ in range(degree)]
        return cls(tuple(sp.csr_array(H * scales[:, None]) for H in hashes), width)

    def __call__(self, X: Rows) -> Doubles:
        X = as_rows(X, np.float64)
        product: Any = 1.0
        for H, constant in self._factors:
            # A tensor product of sketches is a product of Fourier transforms.
            product = product * np.fft.rfft(dense(X @ H) + constant)
        return np.asarray(np.fft.irfft(product, self.width))

    @cached_property
    def _factors(self) -> list[tuple[Any, Doubles]]:
        """What multiplies the columns, and what is added for √coef0; dense for narrow rows."""
        is_narrow = self.hashes[0].shape[0] <= _NARROW
        return [(dense(H[:-1]) if is_narrow else H[:-1], dense(H[[-1]])) for H in self.hashes]

    def then(self, G: Doubles) -> Embedding:
        """Sketches times G. Narrow rows need no transforms of their own: these are linear maps."""
        if self.hashes[0].shape[0] > _NARROW:
            return lambda X: np.asarray(self(X) @ G)
        into = [_parts_of(np.fft.rfft(dense(H))) for H in self.hashes]
        back = _times_inverse_transform(G)

        def embed(X: Rows) -> Doubles:
            if is_sparse(X):
                return np.asarray(self(X) @ G)
            X = as_rows(X, np.float64)
            product = X @ into[0][:-1] + into[0][-1]
            for F in into[1:]:
                product = _times(product, X @ F[:-1] + F[-1])
            return np.asarray(product @ back)

        return embed


def _parts_of(F: Any) -> Doubles:
    """Complex numbers (n, m) as real and imaginary parts (n, 2m)."""
    return np.hstack([F.real, F.imag])


def _times_inverse_transform(G: Doubles) -> Doubles:
    """B with irfft(F) @ G = `_parts_of`(F) @ B.

    The inverse transform weighs cosines and sines by 2/n, those that stand once by 1/n: B is the
    transform of G with these weights, and no matrix of the transform is formed.
    """
    n, F = len(G), np.fft.rfft(G, axis=0)
    weights = np.full((len(F), 1), 2.0 / n)
    weights[0] = 1.0 / n
    if n % 2 == 0:
        weights[-1] = 1.0 / n
    return np.vstack([F.real * weights, F.imag * weights])


def _times(one: Doubles, other: Doubles) -> Doubles:
    """Products of complex numbers in the form of `_parts_of`."""
    (a, b), (c, d) = np.hsplit(one, 2), np.hsplit(other, 2)
    return np.hstack([a * c - b * d, a * d + b * c])


def count_sketch(d: int, width: int, rng: np.random.Generator) -> Any:
    """A CountSketch (d, width): sparse, in each row one entry of ±1, so quick on sparse rows.

    >>> abs(count_sketch(5, 3, np.random.default_rng(0))).sum(axis=1)
    array([1., 1., 1., 1., 1.])
    """
    columns, signs = rng.integers(width, size=d), rng.choice([-1.0, 1.0], size=d)
    return sp.csr_array((signs, (np.arange(d), columns)), shape=(d, width))


def _rbf(kernel: Kernel, d: int, width: int, rng: np.random.Generator) -> Embedding:
    G = _orthogonal_gaussian(d, _pairs(width), rng)
    # exp(−γ‖x − y‖²) is the mean of cos(ω·(x − y)) over normal ω of variance 2γ (Bochner).
    return _Fourier(np.sqrt(2 * float(kernel.gamma or 0)) * G)


def _laplacian(kernel: Kernel, d: int, width: int, rng: np.random.Generator) -> Embedding:
    # The same of exp(−γ|t|), whose Fourier transform is Cauchy's density, for each column.
    return _Fourier(float(kernel.gamma or 0) * rng.standard_cauchy((d, _pairs(width))))


def _pairs(width: int) -> int:
    return max(1, (width + 1) // 2)  # a cosine and a sine each


def fourier_features(frequencies: Doubles) -> Embedding:
    """Cosines, then sines, of frequencies (d, pairs), of length 1 together."""
    return _Fourier(frequencies)


@dataclass(frozen=True)
class _Fourier:
    """Cosine and sine of ω·x.

    Both, where one cosine with a drawn phase would do: E(x)·E(x) is then 1, as k(x, x) is.
    """

    omega: Doubles  # (d, pairs)

    def __call__(self, X: Rows) -> Doubles:
        features: Doubles = _cosines_and_sines(as_rows(X, np.float64) @ self._halves)
        return features

    def roughly(self, X: Rows) -> Floats:
        """In float32 where rows are, for what needs few digits."""
        X = as_rows(X)
        return _cosines_and_sines(X @ self._halves.astype(X.dtype))

    @cached_property
    def _halves(self) -> Doubles:
        return self.omega / 2


def _cosines_and_sines(half_angles: NDArray[Float]) -> NDArray[Float]:
    """Of the whole angles, over the root of their number: ‖E(x)‖ is 1."""
    # Both follow from the tangent t of half the angle, to the last digit, as 2/(1 + t²) − 1 and
    # 2t/(1 + t²): numpy has it many times faster than either of them.
    t = np.asarray(half_angles)
    n, pairs = t.shape
    length = t.dtype.type(1 / np.sqrt(pairs))
    E = np.empty((n, 2 * pairs), t.dtype)
    cosines, sines = E[:, :pairs], E[:, pairs:]
    for rows in blocks(n, max(1, _CACHED // pairs)):
        tangents, few = t[rows], cosines[rows]
        np.tan(tangents, out=tangents)
        np.multiply(tangents, tangents, out=few)
        few += 1
        np.divide(2 * length, few, out=few)
        np.multiply(tangents, few, out=sines[rows])
        few -= length
    return E


def _arc_cosine(kernel: Kernel, d: int, width: int, rng: np.random.Generator) -> Embedding:
    W, order = _orthogonal_gaussian(d, width, rng), int(kernel.degree)

    def features(X: Rows) -> Doubles:
        P = np.asarray(as_rows(X, np.float64) @ W)
        # A row of zeros is on neither side: the step function's mean, 1/2, is the kernel's too.
        R = np.heaviside(P, 0.5) * P**order
        return np.asarray(R * np.sqrt(2 / width))

    return features


def _orthogonal_gaussian(d: int, m: int, rng: np.random.Generator) -> Doubles:
    """(d, m) columns distributed as N(0, I), orthogonal to each other in groups of d."""
    groups = []
    for start in range(0, m, d):
        size = min(d, m - start)
        Q, R = np.linalg.qr(rng.standard_normal((d, size)))
        # LAPACK favours one sign; without it the directions are uniform (Mezzadri, 2007).
        lengths = np.sqrt(rng.chisquare(d, size))
        groups.append(Q * np.sign(np.diagonal(R)) * lengths)
    return np.hstack(groups)


_EXACT_IF_NARROW = ("linear", "cosine")
_EMBEDDINGS: dict[str, Callable[[Kernel, int, int, np.random.Generator], Embedding]] = {
    "arc-cosine": _arc_cosine,
    "cosine": _cosine,
    "laplacian": _laplacian,
    "linear": _linear,
    "poly": _poly,
    "rbf": _rbf,
}
