"""Whether landmarks are enough, as far as the landmarks themselves can tell."""

from __future__ import annotations

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_route import Span
from eigenmesh.numerics.landmarks import LandmarkSums

_HALVES = 16  # one alone is off by a hundredth or two
_FEW = 256  # landmarks; of more, one half is as good as another


def half_coverage(kernel: Kernel, Y: Rows, sums: LandmarkSums, k: int) -> float:
    """What k components inside the span of half the landmarks hold, as a share of what k of all do.

    The mean over some halves. Near 1, twice as many landmarks would add little, either; it costs no
    message. Uncentred.

    >>> from eigenmesh.numerics.landmarks import landmark_sums
    >>> rng = np.random.default_rng(0)
    >>> X, wide, narrow = rng.normal(size=(300, 2)), Kernel("rbf", 0.05), Kernel("rbf", 50.0)
    >>> half_coverage(wide, X[:20], landmark_sums(wide, X, X[:20]), 2) > 0.99
    True
    >>> half_coverage(narrow, X[:20], landmark_sums(narrow, X, X[:20]), 2) < 0.9
    True
    """
    span = Span.of(kernel, Y)
    cross = np.outer(sums.sums, span.shift)
    gram = sums.gram + cross + cross.T + sums.n_rows * np.outer(span.shift, span.shift)
    whole = _held(gram, span.basis, k)
    rng, q = np.random.default_rng(0), len(span.shift)
    held = []
    for _ in range(_HALVES if q <= _FEW else 1):
        half = np.sort(rng.permutation(q)[: max(1, q // 2)])
        part = np.ix_(half, half)
        held.append(_held(gram[part], pseudo_inverse_root(span.K[part]), k))
    return float(np.mean(held) / whole) if whole > 0 else 1.0


def _held(gram: Doubles, basis: Doubles, k: int) -> float:
    inside = basis.T @ gram @ basis
    return float(np.linalg.eigvalsh((inside + inside.T) / 2)[::-1][:k].sum())
