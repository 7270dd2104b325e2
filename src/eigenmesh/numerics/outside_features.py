"""Random features that show rows from outside the landmarks' span; all who add up draw alike."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from eigenmesh.numerics.arrays import Doubles, as_rows
from eigenmesh.numerics.embeddings import Embedding, embedding, tensor_sketch
from eigenmesh.numerics.kernel_arguments import unit_rows
from eigenmesh.numerics.kernels import Kernel

# Features and their energies, that a party sends: 512 frequencies leave an error of 3 to 4 % of the
# part of the mean that is missing (rbf), before the control variate takes off what it can.
_FLOATS = 1536
_NUMBERS = 2**22  # of a matrix of random directions: wide rows get fewer features
_LEAST = 16  # features
_STREAM = 0x6F757473  # apart from all other draws by the same seed
FOURIER = ("rbf", "laplacian")  # a cosine and a sine of each frequency
_PRODUCTS = ("linear", "cosine")


def outside_floats(kernel: str, n_columns: int) -> int:
    """The length of features and energies together.

    >>> outside_floats("linear", 28), outside_floats("rbf", 28), outside_floats("rbf", 60_000)
    (28, 1536, 207)
    """
    if _is_exact(kernel, n_columns):
        return n_columns
    # A frequency has a cosine, a sine and one energy of both; any other feature has its own.
    return _independent(kernel, n_columns) * (3 if kernel in FOURIER else 2)


def _is_exact(kernel: str, n_columns: int) -> bool:
    return kernel in _PRODUCTS and n_columns <= _FLOATS // 2


def _independent(kernel: str, n_columns: int) -> int:
    """How many features are drawn, a pair counting once."""
    if kernel == "poly" or kernel in _PRODUCTS:  # sketches, that need no matrix
        return _FLOATS // 2
    return max(_LEAST, min(_FLOATS // (3 if kernel in FOURIER else 2), _NUMBERS // n_columns))


def energies_of(kernel: str, n_columns: int, features: Doubles) -> Doubles:
    """The squares of features, those of a pair together; none of exact ones."""
    if not len(features) or _is_exact(kernel, n_columns):
        return np.zeros(0)
    # The cosine and the sine of one frequency are one draw: only their sum varies independently.
    squares = np.square(features)
    return np.asarray(squares.reshape(2, -1).sum(axis=0) if kernel in FOURIER else squares)


@lru_cache(maxsize=1)  # parties of one process draw alike
def features_of(kernel: Kernel, n_columns: int, seed: int) -> Embedding:
    """z: as they are for few columns of a linear kernel, else sketches or random features."""
    stream = np.random.SeedSequence(seed, spawn_key=(_STREAM,))
    width = _independent(kernel.name, n_columns)
    if _is_exact(kernel.name, n_columns):
        return embedding(kernel, n_columns, width, stream)
    return unbiased_features(
        kernel, n_columns, 2 * width if kernel.name in FOURIER else width, stream
    )


def unbiased_features(
    kernel: Kernel, n_columns: int, width: int, stream: np.random.SeedSequence
) -> Embedding:
    """Random features, `width` in all, whose products are the kernel's values in the mean.

    >>> stream = np.random.SeedSequence(0)
    >>> unbiased_features(Kernel("poly", 1.0, 2), 3, 64, stream)(np.eye(3)).shape
    (3, 64)
    """
    if kernel.name == "poly":
        return tensor_sketch(kernel, n_columns, width, np.random.default_rng(stream))
    if kernel.name not in _PRODUCTS:
        return embedding(kernel, n_columns, width, stream)
    # A Gaussian map of very wide rows would be larger than the rows.
    product = Kernel("poly", 1.0, 1, 0.0)
    sketch = tensor_sketch(product, n_columns, width, np.random.default_rng(stream))
    if kernel.name == "linear":
        return sketch
    return lambda X: sketch(unit_rows(as_rows(X, np.float64)))


def unseen_variance(kernel: Kernel) -> float:
    """By what the variance may be above what the features show: a TensorSketch is one draw.

    Relative variances are at most (3^degree − 1)/width (Pham and Pagh, 2013), and show as 2/width.
    """
    return float(3**kernel.degree - 1) / 2 if kernel.name == "poly" else 1.0


def outside_sizes(kernel: str, n_columns: int) -> tuple[int, int]:
    """The lengths of features and of energies.

    >>> outside_sizes("linear", 28), outside_sizes("rbf", 28), outside_sizes("poly", 28)
    ((28, 0), (1024, 512), (768, 768))
    """
    floats = outside_floats(kernel, n_columns)
    if _is_exact(kernel, n_columns):
        return floats, 0
    energies = _independent(kernel, n_columns)
    return floats - energies, energies
