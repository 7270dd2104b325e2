"""What landmarks miss of a few rows in one place, by their whole kernel matrix.

A sample shows what many rows have in common, and no pair of near rows that are far from all others:
such a pair is an eigenvalue by itself where a kernel matrix is nearly the identity. Nor does
`paired_shortfall` see what directions inside the landmarks' span that are not wanted would become
with what is outside. Where rows are few, their eigenvalues cost less than what they are held
against.
"""

from __future__ import annotations

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows, as_rows
from eigenmesh.numerics.eigen import EPS, largest_eigenvalues
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import Inside, MeanOutside
from eigenmesh.numerics.paired_shortfall import PairedLook
from eigenmesh.numerics.shortfall import Shortfall

_TOLERANCE = 1e-6  # of an eigenvalue, by which what is missing may be wrong at most


def whole_look(
    span: Span,
    model: LandmarkModel,
    k: int,
    rows: Rows,
    outside: float,
    centred: bool,
    weights: Doubles | None = None,
) -> PairedLook:
    """`paired_look` by all pairs of the rows, without an error; `outside` is Σ k⊥ of all.

    A row with a weight counts as so many of it.

    >>> from eigenmesh.numerics.kernels import Kernel
    >>> from eigenmesh.numerics.landmark_sums import landmark_sums
    >>> X, linear = np.diag([3.0, 2.0, 1.0]), Kernel("linear")
    >>> Y = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    >>> span, sums = Span.of(linear, Y), landmark_sums(linear, X, Y)
    >>> model = LandmarkModel.fit(linear, Y, sums, 2, False, span)
    >>> whole_look(span, model, 2, X, 2.5, False).missing.values.round(6)
    array([0.   , 0.375])
    """
    X = as_rows(rows, np.float64)
    w = np.ones(X.shape[0]) if weights is None else weights
    n = float(w.sum())
    K = np.asarray(span.kernel.matrix(X), dtype=np.float64)
    sums, trace = K @ w, float(w @ np.diag(K))
    mean = _mean_outside(span, X, w, float(w @ sums), outside)
    if centred:
        K = K - sums / n - sums[:, None] / n + float(w @ sums) / n**2
    if weights is not None:
        roots = np.sqrt(w)
        K = roots * K * roots[:, None]
    return PairedLook(_shares(model.eigenvalues[:k], K, trace, outside), mean)


def _shares(values: Doubles, K: Doubles, trace: float, outside: float) -> Shortfall:
    z = np.maximum(values, 0.0)
    true = largest_eigenvalues(K, len(z), _TOLERANCE)
    rounding = EPS * len(K) * trace
    gains = np.clip(true - z, 0.0, outside) * (true - z > rounding)
    shares = gains / np.maximum(z + gains, np.finfo(float).tiny)
    return Shortfall(shares, np.zeros(len(z)))


def _mean_outside(
    span: Span, X: Rows, w: Doubles, sum_of_pairs: float, outside: float
) -> MeanOutside:
    """n‖m − Pm‖² of the rows' mean m, whose products in feature space add up to so much."""
    with_landmarks = w @ span.values(X)
    inside = float(with_landmarks @ Inside.of(span).coefficients(with_landmarks))
    return MeanOutside(min(max(sum_of_pairs - inside, 0.0) / float(w.sum()), outside), 0.0)
