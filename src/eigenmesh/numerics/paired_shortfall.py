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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Floats, Rows, as_rows, blocks
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import KernelValues, Span
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import Inside, MeanOutside, RowSample, RowSampler
from eigenmesh.numerics.shortfall import Shortfall, shares_missing, unseen_distance
from eigenmesh.threads import spread

_ROUNDING = 1e-9  # of k(x, x), below which a distance to the span is none
_LANCZOS_STEPS = 12
_SINGLE = 1e-3  # of k(x, x): where rows are as far outside, float32 knows pairs well enough
_ROUNDED = 2.0**-22  # of a kernel value in float32: that of its argument, a few times over
_OFF = 0.01  # of the rows' mean distance to the span, that rounding may move one of them by
_BLOCK_ROWS = 128  # at least, of pairs that are worth a task of their own
_SQUARED_ROWS = 256  # that show how large pairs are
_DEPENDENT = 1e-6  # share of the largest direction of the scores, below which there is none
_BESIDE = 0.05  # of an eigenvalue: less outside moves what it gains by as little


@dataclass(frozen=True)
class PairedRows:
    """A sample of rows, of all `n_rows`, as seen from outside the landmarks' span."""

    sample: RowSample
    n_rows: float  # each as often as it counts
    values: Doubles  # (m, q), k(X, Y)
    distances: Doubles  # (m,), k⊥ of every row, times its weight
    pairs: PairsOutside

    @classmethod
    def draw(
        cls,
        span: Span,
        rows: Rows,
        outside: float,
        count: int,
        rng: np.random.Generator,
        kept: KernelValues | None = None,
    ) -> PairedRows:
        """So many of the rows, of which all have Σ k⊥(x, x) = `outside`."""
        sampler = RowSampler.of(span.kernel, rows)
        sample, n = sampler.draw(count, rng), sampler.n_counted
        distance = outside / n
        K = _values_with_landmarks(span, sample, distance, kept)
        P = Inside.of(span).coordinates(K)
        exact = None if span.kernel.is_level else np.float64  # ones are so in any floats
        norms = np.asarray(span.kernel.diagonal(as_rows(sample.rows, exact)), dtype=np.float64)
        distances = norms - np.einsum("ij,ij->i", P, P)
        distances[distances < _ROUNDING * norms] = 0.0
        dtype = _pair_dtype(span.kernel, sample.rows, distance)
        pairs = PairsOutside.of(span.kernel, as_rows(sample.rows, dtype), P.astype(dtype))
        if (
            sample.noise == 1 and sample.places is not None
        ):  # what was drawn twice is no pair either: `distances` have it
            pairs = pairs.without(np.equal.outer(sample.places, sample.places))
        if sample.weights is not None:
            distances *= sample.weights
            pairs = pairs.weighted(sample.roots)
        return cls(sample, n, K, distances, pairs)

    def scores(self, coefficients: Doubles, offset: Doubles) -> Doubles:
        """Those of the rows, each as long as the root of its weight."""
        scores = self.values @ coefficients - offset
        return np.asarray(scores * self.sample.roots[:, None])

    def sums_with(self, W: Doubles) -> Doubles:
        """Σ w(y) k⊥(x, y) over all other rows y, for every row of the sample, (m, p)."""
        return np.asarray(self.pairs.times(W * self.sample.counts[:, None]), dtype=np.float64)

    def squared_lengths(self, W: Doubles, sums: Doubles) -> tuple[Doubles, Doubles]:
        """‖Σ w(x) (1 − P)φ(x)‖² over all rows for weights (m, p), and their standard errors."""
        counts, m = self.sample.counts[:, None], len(W)
        own = np.square(W) * (counts * self.distances[:, None])
        # By row, over all pairs with it.
        others = W * counts * sums
        if not self.sample.noise:
            return (others + own).sum(axis=0), np.zeros(W.shape[1])
        among = m / (m - 1) * (1 - 1 / self.n_rows if self.sample.noise < 1 else 1.0)
        squares = (among * others + own).sum(axis=0)
        # A row moves the sum by twice what it has with all others, and by itself.
        moves = 2 * others + own
        spread = np.square(moves - moves.mean(axis=0)).sum(axis=0)
        return np.maximum(squares, 0.0), np.sqrt(self.sample.noise * spread)

    def largest_variance(self, scores: Doubles, W: Doubles, sums: Doubles, least: float) -> float:
        """A lower bound on the largest variance outside that goes with none of the weights W.

        These are the scores, and 1 if the variance is about the mean. Directions of less than
        `least` are not looked for.
        """
        m = len(W)
        # A component that is one far row must not count twice.
        explained = np.square(scores).sum(axis=1)
        if self.sample.weights is not None and W.shape[1] > scores.shape[1]:
            explained += self.sample.weights / self.n_rows  # a heavy row has much of the mean
        rests = self.distances * np.maximum(1 - explained, 0.0)
        farthest = float(rests.max(initial=0.0))
        whole = self._squares()
        if whole < least**2:
            return farthest
        roots = np.sqrt(self.sample.counts)[:, None]
        Q, R = np.linalg.qr(W * roots)
        MQ = self._with_own(roots * sums @ np.linalg.pinv(R, rcond=_DEPENDENT), Q)

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

    def _weighted(self, v: Doubles) -> Doubles:
        """M v, M being k⊥ with each row as often as it counts."""
        roots = np.sqrt(self.sample.counts)
        return self._with_own(roots * self.pairs.times(roots * v), v)

    def _with_own(self, image: Doubles, V: Doubles) -> Doubles:
        """M V from what M has without its diagonal; of all rows it counts, of a sample not."""
        if self.sample.noise:
            return image
        own = self.sample.counts * self.distances
        return np.asarray(image + (V.T * own).T)

    def _squares(self) -> float:
        """‖M‖², estimated where the rows are a sample."""
        if not self.sample.noise:
            own = float(np.square(self.sample.counts * self.distances).sum())
            return self.pairs.squares(self.sample.counts, len(self.distances)) + own
        return self.pairs.squares(self.sample.counts, _SQUARED_ROWS)


@dataclass(frozen=True)
class PairsOutside:
    """k⊥ of different rows, k(x, y) − Pφ(x)·Pφ(y), and 0 of a row with itself.

    The products are never formed as a whole: what asks for pairs asks for sums over few weights.
    """

    values: Floats  # (m, m), k(x, y), and ‖Pφ(x)‖² of a row with itself
    inside: Floats  # (m, r), Pφ(x)

    @classmethod
    def of(cls, kernel: Kernel, X: Rows, P: Floats) -> PairsOutside:
        """Of some rows; each pair's kernel value is computed once, on all idle cores."""
        m = len(P)
        values, cuts = np.empty((m, m), P.dtype), list(blocks(m, max(m // 4, _BLOCK_ROWS)))
        tasks = [(left, right) for i, left in enumerate(cuts) for right in cuts[i:]]

        def worker(numbers: Iterator[int]) -> None:
            for left, right in (tasks[i] for i in numbers):
                here = X[left]
                block = kernel.block(here, here if left == right else X[right])
                values[left, right] = block
                if left != right:
                    values[right, left] = block.T

        spread(worker, len(tasks))
        np.fill_diagonal(values, np.einsum("ij,ij->i", P, P))
        return cls(values, P)

    def without(self, alike: Any) -> PairsOutside:
        """With 0 of pairs that are alike, (m, m), too."""
        values = np.where(alike, self.inside @ self.inside.T, self.values)
        return PairsOutside(values, self.inside)

    def weighted(self, roots: Doubles) -> PairsOutside:
        """Of rows that are so many times as long."""
        longer = roots.astype(self.values.dtype)[:, None]
        return PairsOutside(longer * self.values * longer.T, longer * self.inside)

    def times(self, V: Doubles) -> Floats:
        """Sums over pairs with weights V, (m,) or (m, p)."""
        V = V.astype(self.values.dtype, copy=False)
        return np.asarray(self.values @ V - self.inside @ (V.T @ self.inside).T)

    def squares(self, counts: Doubles, most: int) -> float:
        """Σ c(x) c(y) k⊥(x, y)², from every so manieth of the rows if they are more than `most`."""
        m = len(counts)
        some = slice(None, None, -(-m // most))
        counts, P = counts[some], self.inside[some]
        pairs, s = self.values[some, some] - P @ P.T, len(counts)
        np.fill_diagonal(pairs, 0.0)
        np.square(pairs, out=pairs)
        scale = m * (m - 1) / max(s * (s - 1), 1)
        return float(counts @ (pairs @ counts.astype(pairs.dtype))) * scale


def _values_with_landmarks(
    span: Span, sample: RowSample, distance: float, kept: KernelValues | None
) -> Doubles:
    """k(X, Y), from those of all rows where these are there and have digits enough."""
    if kept is None or kept.values is None or kept.landmarks is not span.landmarks:
        X = as_rows(sample.rows, np.float64)
        return np.asarray(span.kernel.matrix(X, span.landmarks), dtype=np.float64)
    # Rounding of k(x, Y) counts as its square over w_j in direction j of the span.
    floor = len(span.K) * (_ROUNDED / (_OFF * distance)) ** 2 if distance else np.inf
    if kept.values.dtype != np.float64 and not (span.kernel.is_level and span.exceeds(floor)):
        return _values_with_landmarks(span, sample, distance, None)
    return np.asarray(kept.values[sample.places] + kept.shift)


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


class PairedLook(NamedTuple):
    """What a sample of rows shows outside the span: of wanted eigenvalues, and of the mean."""

    missing: Shortfall
    mean: MeanOutside


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
    return paired_look(span, model, k, rows, outside, count, centred, rng).missing


def paired_look(
    span: Span,
    model: LandmarkModel,
    k: int,
    rows: Rows,
    outside: float,
    count: int,
    centred: bool,
    rng: np.random.Generator,
    kept: KernelValues | None = None,
) -> PairedLook:
    """The same, and n‖m − Pm‖² of the rows' mean m; `kept` may have their kernel values."""
    z = np.maximum(model.eigenvalues[:k], 0.0)
    paired = PairedRows.draw(span, rows, outside, count, rng, kept)
    scale = np.sqrt(np.maximum(z, np.finfo(float).tiny))
    W = paired.scores(model.coefficients[:, :k], model.offset[:k]) / scale
    # With weights 1 the sum is that of all rows.
    weights = np.column_stack([W, paired.sample.roots])
    sums = paired.sums_with(weights)
    squares, deviations = paired.squared_lengths(weights, sums)
    shown = slice(None) if centred else slice(-1)
    how = (weights[:, shown], sums[:, shown], _BESIDE * float(z[-1]))
    level = min(paired.largest_variance(W, *how), outside)
    unseen = unseen_distance(float(paired.sample.counts @ paired.distances), outside)
    missing = shares_missing(z, squares[:-1], deviations[:-1], level, outside, unseen)
    n = paired.n_rows
    mean = MeanOutside(min(float(squares[-1]) / n, outside), float(deviations[-1]) / n)
    return PairedLook(missing, mean)
