"""What landmarks miss of rows that are in one place: from kernel values between some of the rows.

`shortfall` says what is measured and why. Parties cannot compare their rows with each other and
take random features instead, whose own draw is an error, and a large one where few features carry
most. Here the squared length of r_i/√z_i = Σ w_i(x) (1 − P)φ(x) is a sum over pairs of rows,

    Σ w_i(x) w_i(y) k⊥(x, y),  k⊥(x, y) = k(x, y) − Pφ(x)·Pφ(y),

of which a sample of rows has some: pairs of different rows count by the chance that both are in it,
and the rows themselves by theirs, so that nothing is added by the draw.

The largest variance outside that no component explains is the top of the same matrix, weighted and
projected off the scores. Without its diagonal, which only shows that each row is its own, what no
direction has would still show as twice the root mean square of a row (Wigner's semicircle): that
is taken off as it adds up with a direction that is really there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Floats, Rows, as_rows
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import Inside, RowSample, RowSampler
from eigenmesh.numerics.shortfall import Shortfall, shares_missing, unseen_distance

_ROUNDING = 1e-9  # of k(x, x), below which a distance to the span is none
_LANCZOS_STEPS = 12
_SINGLE = 1e-3  # of k(x, x): where rows are as far outside, float32 knows pairs well enough
_BESIDE = 0.05  # of an eigenvalue: less outside moves what it gains by as little


@dataclass(frozen=True)
class PairedRows:
    """A sample of rows, of all `n_rows`, as seen from outside the landmarks' span."""

    sample: RowSample
    n_rows: int
    values: Doubles  # (m, q), k(X, Y)
    distances: Doubles  # (m,), k⊥ of every row
    pairs: Floats  # (m, m), k⊥ of different rows; 0 of a row with itself

    @classmethod
    def draw(
        cls, span: Span, rows: Rows, outside: float, count: int, rng: np.random.Generator
    ) -> PairedRows:
        """So many of the rows, of which all have Σ k⊥(x, x) = `outside`."""
        sample = RowSampler.of(span.kernel, rows).draw(count, rng)
        X = as_rows(sample.rows, np.float64)
        K = np.asarray(span.kernel.matrix(X, span.landmarks), dtype=np.float64)
        P = Inside.of(span).coordinates(K)
        norms = span.kernel.diagonal(X)
        distances = norms - np.einsum("ij,ij->i", P, P)
        distances[distances < _ROUNDING * norms] = 0.0
        dtype = _pair_dtype(span.kernel, sample.rows, outside / rows.shape[0])
        P = P.astype(dtype, copy=False)
        pairs = np.asarray(span.kernel.matrix(as_rows(sample.rows, dtype)), dtype=dtype)
        pairs -= P @ P.T
        np.fill_diagonal(pairs, 0.0)
        return cls(sample, int(rows.shape[0]), K, distances, pairs)

    def squared_lengths(self, W: Doubles) -> tuple[Doubles, Doubles]:
        """‖Σ w(x) (1 − P)φ(x)‖² over all rows for weights (m, p), and their standard errors."""
        counts, m = self.sample.counts[:, None], len(W)
        C = W * counts
        own = (np.square(W) * counts).T @ self.distances
        # By row, over all pairs with it.
        others = C * (self.pairs @ C.astype(self.pairs.dtype, copy=False))
        if not self.sample.noise:
            return others.sum(axis=0) + own, np.zeros(W.shape[1])
        among = m / (m - 1) * (1 - 1 / self.n_rows if self.sample.noise < 1 else 1.0)
        squares = among * others.sum(axis=0) + own
        # A row moves the sum by twice what it has with all others.
        spread = 4 * np.square(others - others.mean(axis=0)).sum(axis=0)
        return np.maximum(squares, 0.0), np.sqrt(self.sample.noise * spread)

    def largest_variance(self, W: Doubles, centred: bool, least: float) -> float:
        """A lower bound on the largest variance outside that goes with none of the scores W.

        Directions of less than `least` are not looked for.
        """
        m = len(W)
        # A component that is one far row must not count twice.
        rests = self.distances * np.maximum(1 - np.square(W).sum(axis=1), 0.0)
        farthest = float(rests.max(initial=0.0))
        whole = self._squares()
        if whole < least**2:
            return farthest
        roots = np.sqrt(self.sample.counts)
        shown = np.column_stack([W, np.ones(m)]) if centred else W
        Q = np.linalg.qr(shown * roots[:, None])[0]
        MQ = self._weighted(Q)

        def off_scores(v: Doubles) -> Doubles:
            image = self._weighted(v - Q @ (Q.T @ v))
            return np.asarray(image - Q @ (Q.T @ image))

        largest = _near_largest(off_scores, m)
        # ‖(1 − QQᵀ)M(1 − QQᵀ)‖², without that matrix.
        squares = whole - 2 * float(np.vdot(MQ, MQ)) + float(np.square(Q.T @ MQ).sum())
        noise = 4 * max(squares - largest**2, 0.0) / m if self.sample.noise else 0.0
        if largest <= 0 or largest**2 <= noise:
            return farthest
        return max(farthest, (largest + float(np.sqrt(largest**2 - noise))) / 2)

    def _weighted(self, V: Doubles) -> Doubles:
        """M V, M being k⊥ with each row as often as it counts; of all rows with its diagonal."""
        counts = self.sample.counts.reshape(-1, *[1] * (V.ndim - 1))
        roots = np.sqrt(counts)
        image = roots * (self.pairs @ (roots * V).astype(self.pairs.dtype, copy=False))
        if self.sample.noise:
            return np.asarray(image)
        return np.asarray(image + counts * self.distances.reshape(counts.shape) * V)

    def _squares(self) -> float:
        """‖M‖²."""
        counts = self.sample.counts
        squares = float(counts @ (np.square(self.pairs) @ counts.astype(self.pairs.dtype)))
        own = 0.0 if self.sample.noise else float(np.square(counts * self.distances).sum())
        return squares + own


def _pair_dtype(kernel: Kernel, sampled: Rows, distance: float) -> np.dtype[Any]:
    """float32 of rows that have it, where what is left of a kernel value has digits enough."""
    single = sampled.dtype == np.float32 and kernel.is_level and distance >= _SINGLE
    return np.dtype(np.float32 if single else np.float64)


def _near_largest(apply: Callable[[Doubles], Doubles], size: int) -> float:
    """A lower bound on the largest eigenvalue, near it, by a few of Lanczos' steps."""
    line = np.random.default_rng(0).standard_normal(size)
    basis = [line / np.linalg.norm(line)]
    images = [apply(basis[0])]
    while len(basis) < min(_LANCZOS_STEPS, size):
        before = np.array(basis)
        # Off all before, where Lanczos takes the last two: in floats these drift together again,
        # and without orthogonal lines the value would be no bound.
        line = images[-1] - before.T @ (before @ images[-1])
        length = float(np.linalg.norm(line))
        if length == 0:
            break
        basis.append(line / length)
        images.append(apply(basis[-1]))
    T = np.array(basis) @ np.array(images).T
    return float(np.linalg.eigvalsh((T + T.T) / 2)[-1])


def paired_shortfall(
    span: Span,
    model: LandmarkModel,
    k: int,
    rows: Rows,
    outside: float,
    count: int,
    centred: bool,
    rng: np.random.Generator,
) -> Shortfall:
    """Of the first k eigenvalues of a model, from `count` of its rows; `outside` is Σ k⊥ of all.

    >>> from eigenmesh.numerics.kernels import Kernel
    >>> from eigenmesh.numerics.landmark_sums import landmark_sums
    >>> rng, linear = np.random.default_rng(0), Kernel("linear")
    >>> X = rng.normal(size=(400, 3)) * [3.0, 2.0, 1.0]
    >>> Y = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0]])
    >>> span = Span.of(linear, Y)
    >>> model = LandmarkModel.fit(linear, Y, landmark_sums(linear, X, Y), 2, False, span)
    >>> missing = paired_shortfall(span, model, 2, X, 400.0, 400, False, rng)
    >>> true = 1 - model.eigenvalues / np.linalg.svd(X)[1][:2] ** 2
    >>> bool(np.abs(missing.values - true).max() < 0.01)
    True
    """
    z = np.maximum(model.eigenvalues[:k], 0.0)
    paired = PairedRows.draw(span, rows, outside, count, rng)
    scale = np.sqrt(np.maximum(z, np.finfo(float).tiny))
    W = (paired.values @ model.coefficients[:, :k] - model.offset[:k]) / scale
    ratios, errors = paired.squared_lengths(W)
    level = min(paired.largest_variance(W, centred, _BESIDE * float(z[-1])), outside)
    unseen = unseen_distance(float(paired.sample.counts @ paired.distances), outside)
    return shares_missing(z, ratios, errors, level, outside, unseen)
