"""Kinds by content: what numbers are worth, whatever they are called.

Pure functions, for hosts before a reply leaves, for plans and for the audit. A sum over few rows is
`rows`; as many numbers as a party has are its rows, or its columns, in principle; a spectrum,
products or a triangular factor that determine columns up to rotation are `columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

Trust = Literal["domain", "organisations"]
TRUSTS: tuple[str, ...] = get_args(Trust)
# Whether a third party forwards what neighbours send each other, and if so, whether it can read it.
Relays = Literal["no", "sealed", "open"]

# What is computed from rows, so that its worth hangs on how many it covers.
OVER_ROWS = frozenset("centroids scores eigenvectors distances gram moments sketch".split())
_OF_PAIRS = frozenset(("gram", "distances"))  # over columns, of samples
_LOOKED_AT = 256  # samples of which all pairs are compared
_NEAR = 0.1  # distances are given away within a tenth
_INFORMED = 0.5  # of the error of one guess for all of them
_ROUNDING = 1e-9  # where all distances are one number, and the guess is right


class Release(NamedTuple):
    """What a party is about to let out of its data, and of how many.

    `covers` are the fewest rows behind any number of it; `numbers` all that one fit has released so
    far, these included; `trust` and `min_rows` are the party's own.
    """

    covers: int
    numbers: int
    n_rows: int
    n_columns: int
    min_rows: int
    trust: Trust = "domain"
    split: str = "rows"

    @property
    def is_determined(self) -> bool:
        """Whether as many numbers are out as the party has."""
        return is_determined(self.numbers, self.n_rows, self.n_columns)

    @property
    def is_as_declared(self) -> bool:
        """Whether no kind is another than it is declared, which is so of nearly all."""
        few = self.numbers < enough_of_pairs(self.n_rows, self.n_columns)  # and so of its numbers
        return few and self.covers >= self.min_rows

    @property
    def tells_pairs(self) -> bool:
        """Whether as many numbers are out as the samples have pairs, or the party has numbers."""
        return self.numbers >= enough_of_pairs(self.n_rows, self.n_columns)


def is_determined(numbers: int, n_rows: int, n_columns: int) -> bool:
    """Whether so many numbers determine a party's data in principle.

    >>> is_determined(90, n_rows=30, n_columns=3), is_determined(89, n_rows=30, n_columns=3)
    (True, False)
    """
    return numbers >= n_rows * n_columns


def enough_of_pairs(n_samples: int, n_columns: int) -> int:
    """Products or distances of so many determine a party's samples up to rotation.

    >>> enough_of_pairs(100, 4), enough_of_pairs(6, 9)
    (400, 15)
    """
    return min(n_samples * n_columns, n_samples * max(n_samples - 1, 1) // 2)


def kind_of(kind: str, release: Release) -> str:
    """The kind that numbers declared as `kind` are.

    >>> few = Release(covers=4, numbers=10, n_rows=4, n_columns=30, min_rows=5)
    >>> kind_of("gram", few), kind_of("gram", few._replace(covers=5)), kind_of("counts", few)
    ('rows', 'gram', 'counts')
    """
    if kind not in OVER_ROWS:
        return kind
    if release.covers < release.min_rows:
        return "rows"
    if release.split == "columns" and kind in _OF_PAIRS and release.tells_pairs:
        return "columns"
    if release.trust == "organisations" and release.is_determined:
        return "columns" if release.split == "columns" else "rows"
    return kind


def kinds_of_release(kinds: Iterable[str], release: Release) -> frozenset[str]:
    """The kinds that a message of these declared kinds has."""
    return frozenset(kind_of(kind, release) for kind in kinds)


def numbers_over_rows(floats: Mapping[str, int]) -> int:
    """Of floats by kind, those that tell of rows: what is held against a party's own number."""
    telling = OVER_ROWS | {"rows", "columns"}
    return sum(count for kind, count in floats.items() if kind in telling)


def determine_columns(directions: int, n_rows: int, n_columns: int) -> bool:
    """Whether products with so many directions determine columns up to rotation.

    Centred columns span less than the samples, so that few samples need fewer directions.

    >>> determine_columns(6, 100, 7), determine_columns(7, 100, 7), determine_columns(3, 4, 7)
    (False, True, True)
    """
    return directions >= min(n_columns, max(n_rows - 1, 1))


def tells_distances(spectrum_kernel: Any, kernel: Any) -> bool:
    """Whether an RBF kernel matrix rebuilt from a spectrum gives the samples' distances away.

    Both are over the same few samples; gamma drops out of the ratio of −log K̂ and −log K. Half of
    the pairs within a tenth are enough: the others follow from them. Where distances are nearly one
    number, as of many columns, whoever guesses that number is within a tenth and knows nothing:
    what is rebuilt has to err half as much as that at most. (The first eigenvector alone, which
    tells how far each sample is from the middle and of no pair, comes to three quarters of it.)
    """
    pairs = _pairs(len(kernel))
    true = -np.log(np.maximum(np.asarray(kernel)[pairs], 1e-300))
    guess = -np.log(np.maximum(np.asarray(spectrum_kernel)[pairs], 1e-300))
    if not np.all(true > 0):
        guess, true = guess[true > 0], true[true > 0]
    errors = np.abs(guess - true) / true
    if 2 * np.count_nonzero(errors <= _NEAR) < max(len(errors), 1):  # their median is larger
        return False
    blind = np.median(np.abs(np.median(true) - true) / true)
    return bool(np.median(errors) <= min(_NEAR, _INFORMED * blind + _ROUNDING))


@lru_cache(maxsize=4)
def _pairs(n: int) -> NDArray[np.bool_]:
    return np.triu(np.ones((n, n), dtype=bool), 1)


def looked_at(n_samples: int) -> NDArray[np.int64]:
    """The samples on which distances are compared, evenly over all."""
    return np.unique(np.linspace(0, n_samples - 1, min(n_samples, _LOOKED_AT)).astype(np.int64))


def is_square(shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape may be triangular, and no single number."""
    return len(shape) == 2 and shape[0] == shape[1] > 1


def is_triangular_factor(values: Any) -> bool:
    """Whether an array is a triangular matrix, as from a QR or Cholesky factorisation.

    >>> is_triangular_factor(np.triu(np.ones((3, 3)))), is_triangular_factor(np.eye(3))
    (True, False)
    """
    if not is_square(np.shape(values)) or (values[0, -1] and values[-1, 0]):
        return False  # most have both corners, and need no closer look
    above, below = np.any(np.triu(values, 1)), np.any(np.tril(values, -1))
    return bool(above != below)
