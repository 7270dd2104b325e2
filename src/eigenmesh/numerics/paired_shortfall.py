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

from dataclasses import dataclass

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, raw_rows
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import Inside, RowSample, RowSampler
from eigenmesh.numerics.shortfall import Shortfall, shares_missing, unseen_distance

_ROUNDING = 1e-9  # of k(x, x), below which a distance to the span is none
_LANCZOS_STEPS = 12
_BESIDE = 0.05  # of an eigenvalue: less outside moves what it gains by as little


@dataclass(frozen=True)
class PairedRows:
    """A sample of rows, of all `n_rows`, as seen from outside the landmarks' span."""

    sample: RowSample
    n_rows: int
    values: Doubles  # (m, q), k(X, Y)
    pairs: Doubles  # (m, m), k⊥

    @classmethod
    def draw(cls, span: Span, rows: Rows, count: int, rng: np.random.Generator) -> PairedRows:
        """So many of the rows."""
        sample = RowSampler(span.kernel, raw_rows(rows)).draw(count, rng)
        X = as_rows(sample.rows, np.float64)
        K = np.asarray(span.kernel.matrix(X, span.landmarks), dtype=np.float64)
        P = Inside.of(span).coordinates(K)
        pairs = np.asarray(span.kernel.matrix(X), dtype=np.float64)
        norms = pairs.diagonal().copy()
        pairs -= P @ P.T
        distances = np.einsum("ii->i", pairs)
        distances[distances < _ROUNDING * norms] = 0.0
        return cls(sample, int(rows.shape[0]), K, pairs)

    @property
    def distances(self) -> Doubles:
        """k⊥ of every row, (m,)."""
        return np.asarray(self.pairs.diagonal())

    def squared_lengths(self, W: Doubles) -> tuple[Doubles, Doubles]:
        """‖Σ w(x) (1 − P)φ(x)‖² over all rows for weights (m, p), and their standard errors."""
        counts, m = self.sample.counts[:, None], len(W)
        C = W * counts
        own = (np.square(W) * counts).T @ self.distances
        others = C * (
            self.pairs @ C - self.distances[:, None] * C
        )  # by row, over all pairs with it
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
        roots = np.sqrt(self.sample.counts)
        M = self.pairs * roots[:, None] * roots
        if self.sample.noise:
            np.einsum("ii->i", M)[:] = 0.0
        if float(np.vdot(M, M)) < least**2:
            return farthest
        shown = np.column_stack([W, np.ones(m)]) if centred else W
        Q = np.linalg.qr(shown * roots[:, None])[0]
        MQ = M @ Q
        M -= MQ @ Q.T
        M -= Q @ (MQ.T - (Q.T @ MQ) @ Q.T)
        largest = _near_largest(M)
        noise = 4 * max(float(np.vdot(M, M)) - largest**2, 0.0) / m if self.sample.noise else 0.0
        if largest <= 0 or largest**2 <= noise:
            return farthest
        return max(farthest, (largest + float(np.sqrt(largest**2 - noise))) / 2)


def _near_largest(M: Doubles) -> float:
    """A lower bound on the largest eigenvalue, near it, by a few of Lanczos' steps."""
    line = np.random.default_rng(0).standard_normal(len(M))
    basis = line[:, None] / np.linalg.norm(line)
    for _ in range(min(_LANCZOS_STEPS, len(M)) - 1):
        line = M @ basis[:, -1]
        line -= basis @ (basis.T @ line)
        length = float(np.linalg.norm(line))
        if length == 0:
            break
        basis = np.column_stack([basis, line / length])
    return float(np.linalg.eigvalsh(basis.T @ M @ basis)[-1])


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
    paired = PairedRows.draw(span, rows, count, rng)
    scale = np.sqrt(np.maximum(z, np.finfo(float).tiny))
    W = (paired.values @ model.coefficients[:, :k] - model.offset[:k]) / scale
    ratios, errors = paired.squared_lengths(W)
    level = min(paired.largest_variance(W, centred, _BESIDE * float(z[-1])), outside)
    unseen = unseen_distance(float(paired.sample.counts @ paired.distances), outside)
    return shares_missing(z, ratios, errors, level, outside, unseen)
