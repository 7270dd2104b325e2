"""How much of the rows' mean lies outside the landmarks' span, estimated from sums.

m is the mean of φ(x) over n rows, P the projection on the span of φ(Y). Kernel values with the
landmarks give Pm; what is missing for the centred variance is n‖m − Pm‖² = ‖f‖²/n, with f the sum
of φ(x) − Pφ(x) over all rows. These are in blocks, at parties or one after the other: f = Σf_i.

‖f_i‖² is known where block i is, from kernel values of its rows with each other. For the products
of blocks there are random features z of the kernel, drawn alike by all. With z'(x) = z(x) − Zᵀa(x),
where Pφ(x) = Σ a_j(x) φ(y_j) and Z has the rows z(y_j), the sums F_i of z' over blocks have the
products of the f_i in the mean over draws. So ‖ΣF_i‖² gives ‖f‖², up to some per cent. The error
shows in Σ‖F_i‖², whose true value is known, and what shows is taken off, as much as the single
features suggest (a control variate). A block that is alone needs no features.

A sample of rows stands for a block (`RowSampler`). That adds to ‖f_i‖², in the mean, the variance
of the sampled sum; it is measured on the sample and subtracted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.linalg

from eigenmesh.numerics.arrays import Doubles, Floats, Rows, as_rows, blocks, raw_rows
from eigenmesh.numerics.draws import Indices, draw_repeatedly
from eigenmesh.numerics.eigen import SPAN_CUTOFF
from eigenmesh.numerics.embeddings import Embedding, embedding, tensor_sketch
from eigenmesh.numerics.kernels import Kernel, KernelWith, unit_rows
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.threads import one_blas_thread

SAMPLE_ROWS = 4096  # in all; more rows cost no more
_ALL_ROWS = 2048  # up to which a block that is alone looks at all
_FEW_ROWS = 256  # and with how many it begins if there are more
_FINE = 2e-4  # of the trace: an error with which fewer rows are enough
MARGIN = 1.5  # standard errors by which a claim is above its estimate
_BLOCK_ROWS = 256
_PAIRED_ROWS = 128  # how rows differ outside the span is seen from so many
_ROUNDING = 1e-12  # of the total, below which an error is none


class OutsideSums(NamedTuple):
    """What rows add up to outside the span; sums of these over blocks are those of all rows."""

    features: Doubles  # (t,), F; without elements where there is one block only
    energies: Doubles  # (t,) squares of F, of Fourier features (t/2,); none where z is exact
    own: float  # ‖f_i‖² of the sample, scaled up
    noise: float  # what sampling adds to it, in the mean
    along: float  # variance of the sampled f_i in the direction of f_i
    spread: float  # and in all directions: the covariance in Frobenius norm

    def error(self, squared_length: float) -> float:
        """Of ‖f‖², by the draw of rows: with noise of covariance C, 4fᵀCf + 2 tr C², and its root.

        Blocks know C in the direction of their own sum.
        """
        # fᵀCf = ‖f‖² `along`. The norms of the blocks' C add up to no less than that of their sum.
        return float(np.sqrt(4 * max(squared_length, 0.0) * self.along + 2 * self.spread**2))


class MeanOutside(NamedTuple):
    """n‖m − Pm‖² and its standard error."""

    variance: float
    error: float

    def is_fine(self, total: float, n_rows: int) -> bool:
        """Whether more rows would add little to what is known of the total; of few all are seen."""
        return self.error <= (_FINE * total if n_rows > _ALL_ROWS else 0.0)


@dataclasses.dataclass(frozen=True)
class OutsideView:
    """Rows as random features see them from outside the landmarks' span."""

    span: Span
    inside: Inside
    embed: Embedding | None  # z; None where there are no other blocks

    @classmethod
    def of(cls, span: Span, seed: int | None) -> Self:
        """`seed` is that of all who add up, None if nobody else does."""
        return cls._shared(span, seed) if span.is_shared else cls._new(span, seed)

    @classmethod
    @lru_cache(maxsize=1)
    def _shared(cls, span: Span, seed: int | None) -> Self:
        """Made once for many parties of one process."""
        return cls._new(span, seed)

    @classmethod
    def _new(cls, span: Span, seed: int | None) -> Self:
        d = int(span.landmarks.shape[1])
        with one_blas_thread():
            embed = None if seed is None else features_of(span.kernel, d, seed)
            return cls(span, Inside.of(span), embed)

    def sums_alone(self, A: Rows, rng: np.random.Generator, most: int) -> OutsideSums:
        """Those of a block that is alone, from few rows if they are enough."""
        sampler, n = RowSampler.of(self.span.kernel, A), A.shape[0]
        size = most if n <= _ALL_ROWS else min(most, _FEW_ROWS)
        while True:
            sums = self._sums_of(sampler.draw(size, rng))
            # The error is of ‖f‖², n times the variance that is asked for.
            if size == most or sums.error(sums.own - sums.noise) <= _FINE * sampler.trace * n:
                return sums
            size = min(2 * size, most)

    def sums(self, A: Rows, rng: np.random.Generator, most: int = SAMPLE_ROWS) -> OutsideSums:
        """The sums of rows A, from at most `most` of them, that `rng` draws.

        >>> view = OutsideView.of(Span.of(Kernel("linear"), np.array([[1.0, 0.0]])), seed=0)
        >>> sums = view.sums(np.array([[3.0, 4.0], [5.0, 6.0]]), np.random.default_rng(0))
        >>> sums.features, sums.own
        (array([ 0., 10.]), 100.0)
        """
        return self._sums_of(RowSampler(self.span.kernel, raw_rows(A)).draw(most, rng))

    def sums_of_share(
        self, A: Rows, rng: np.random.Generator, share: float, sizes: SampleBounds
    ) -> OutsideSums:
        """The same from a share that somebody else names: see `RowSampler.draw_share`."""
        sampler = RowSampler(self.span.kernel, raw_rows(A))
        return self._sums_of(sampler.draw_share(share, sizes, rng))

    def _sums_of(self, sample: RowSample) -> OutsideSums:
        with one_blas_thread():
            moments, by_draw = self._moments(sample), [0.0, 0.0, 0.0]
            features = self._features(sample, moments.kernel_sums)
            energies = energies_of(self.span.kernel.name, self._n_columns, features)
            if sample.noise:
                m = len(sample.counts)
                # m/(m − 1) Σ‖v − v̄‖², v = c(φ(x) − Pφ(x)): the variance of a sum of m draws,
                # without bias, so that ‖f_i‖² has none either once it is taken off.
                variance = (moments.squares - moments.squared_length / m) * m / (m - 1)
                of_draw = (variance, m * moments.along, m * moments.covariance)
                by_draw = [sample.noise * own for own in of_draw]
        return OutsideSums(features, energies, moments.squared_length, *by_draw)

    @property
    def _n_columns(self) -> int:
        return int(self.span.landmarks.shape[1])

    def _moments(self, sample: RowSample) -> _SampleMoments:
        """By kernel values of the rows with the landmarks and with each other."""
        few = len(sample.counts) <= _PAIRED_ROWS
        return (self._moments_of_few if few else self._moments_of_many)(sample)

    def _moments_of_few(self, sample: RowSample) -> _SampleMoments:
        counts, X = sample.counts, as_rows(sample.rows, np.float64)
        K = self.span.values(X)
        pairs = self._pairs(X, K)
        squares = float(np.maximum(np.diagonal(pairs), 0.0) @ np.square(counts))
        shares = counts * (pairs @ counts)
        covariance = _covariance(pairs, counts) if sample.noise else 0.0
        return _SampleMoments(counts @ K, squares, *_length_and_along(shares), covariance)

    def _moments_of_many(self, sample: RowSample) -> _SampleMoments:
        kernel, values, counts = self.span.kernel, self.span.values, sample.counts
        K, squares = np.empty((len(counts), len(self.span.K))), 0.0
        for rows in _parts(sample.rows):
            X = as_rows(sample.rows[rows], np.float64)
            K[rows] = values(X)
            distances = kernel.diagonal(X) - np.square(self.inside.coordinates(K[rows])).sum(axis=1)
            squares += float(np.maximum(distances, 0.0) @ np.square(counts[rows]))
        kernel_sums = counts @ K
        # c⟨φ(x) − Pφ(x), f⟩ of every row, which add up to ‖f‖². ⟨φ(x), Pf⟩ is k(x, Y) times the
        # coefficients of Pf: no matrix of all pairs is projected.
        shares = _row_sums(kernel, sample) - K @ self.inside.coefficients(kernel_sums)
        shares *= counts
        covariance = 0.0
        if sample.noise:
            some = slice(None, None, -(-len(K) // _PAIRED_ROWS))
            pairs = self._pairs(as_rows(sample.rows[some], np.float64), K[some])
            covariance = _covariance(pairs, counts[some])
        return _SampleMoments(kernel_sums, squares, *_length_and_along(shares), covariance)

    def _pairs(self, X: Rows, K: Doubles) -> Doubles:
        """⟨φ(x) − Pφ(x), φ(x') − Pφ(x')⟩ of all pairs of rows, whose k(x, Y) are K."""
        P = self.inside.coordinates(K)
        return np.asarray(KernelWith(self.span.kernel, X)(X) - P @ P.T)

    def _features(self, sample: RowSample, kernel_sums: Doubles) -> Doubles:
        """Σ c z'(x)."""
        if self.embed is None:
            return np.zeros(0)
        features: Any = sum(
            sample.counts[rows] @ self.embed(sample.rows[rows]) for rows in _parts(sample.rows)
        )
        # Projected once, as a sum: z'(x) of single rows would take a product with Z for each.
        return np.asarray(
            features - self.inside.coefficients(kernel_sums) @ self._landmark_features
        )

    @cached_property
    def _landmark_features(self) -> Doubles:
        """Z, (q, t)."""
        assert self.embed is not None
        Y = self.span.landmarks
        return np.vstack([self.embed(Y[rows]) for rows in _parts(Y)])


class _SampleMoments(NamedTuple):
    kernel_sums: Doubles  # Σ c k(x, Y), c being the counts
    squares: float  # Σ c²‖φ(x) − Pφ(x)‖²
    squared_length: float  # ‖Σ c(φ(x) − Pφ(x))‖²
    along: float  # variance of c(φ(x) − Pφ(x)) in the direction of their sum
    covariance: float  # of these, its Frobenius norm; 0 where it is not needed


def _length_and_along(shares: Doubles) -> tuple[float, float]:
    """‖f‖² and the variance along f, from what every row has of f."""
    sum_of_shares = float(shares.sum())
    if sum_of_shares <= 0:
        return 0.0, 0.0
    around = shares - sum_of_shares / len(shares)
    return sum_of_shares, float(around @ around) / len(shares) / sum_of_shares


def _covariance(pairs: Doubles, counts: Doubles) -> float:
    """Frobenius norm of the rows' covariance outside the span, from the products of pairs."""
    # tr C² is the mean of ⟨v, v'⟩² over pairs of different rows; a row with itself is no pair.
    # C is taken about 0, not about the mean, which can only make it larger.
    products = np.square(counts[:, None] * pairs * counts)
    n_pairs = len(products) * (len(products) - 1)
    return float(np.sqrt((products.sum() - products.trace()) / n_pairs))


def _row_sums(kernel: Kernel, sample: RowSample) -> Doubles:
    """K(X, X)c. What float32 rows lose here is far below the error that is left."""
    X, counts = sample.rows, sample.counts
    sums = np.zeros(len(counts))
    for rows in _parts(X):
        # Every pair once: what later rows have with these is the transpose.
        later = slice(rows.stop, None)
        K = kernel.block(X[rows], X[rows.start :]).astype(np.float64, copy=False)
        sums[rows] += K @ counts[rows.start :]
        sums[later] += counts[rows] @ K[:, rows.stop - rows.start :]
    return sums


def rows_to_see(n_rows: int, n_before: int) -> int:
    """How many of a block's rows are enough, after others: the sample grows as their logarithm.

    >>> rows_to_see(5000, 0), rows_to_see(5000, 5000), rows_to_see(5000, 995_000)
    (4096, 2048, 21)
    """
    return -(-SAMPLE_ROWS * n_rows // (n_before + n_rows))


def corrected(
    model: LandmarkModel, sums: OutsideSums, outside: float
) -> tuple[LandmarkModel, float]:
    """A centred model whose total counts all of the mean, and the standard error of that total.

    The total is above its estimate by MARGIN errors: an upper bound, but for one case in fifteen.
    `outside` is Σ‖φ(x) − Pφ(x)‖².
    """
    d = int(model.landmarks.shape[1])
    return corrected_by(mean_outside(model.kernel, d, sums, model.n_rows, outside), model)


def corrected_by(estimate: MeanOutside, model: LandmarkModel) -> tuple[LandmarkModel, float]:
    """The same by an estimate that is there already."""
    error = estimate.error if estimate.error > _ROUNDING * model.total else 0.0
    surely = max(estimate.variance - MARGIN * error, 0.0)
    return dataclasses.replace(model, total=model.total - surely), error


def mean_outside(
    kernel: Kernel, n_columns: int, sums: OutsideSums, n_rows: int, most: float
) -> MeanOutside:
    """The estimate from the sums of all rows; it cannot be above `most`.

    The error counts the draw of features, by how they differ, and that of rows.

    >>> sums = OutsideSums(np.array([0.0, 10.0]), np.zeros(0), 60.0, 0.0, 0.0, 0.0)
    >>> mean_outside(Kernel("linear"), 2, sums, n_rows=2, most=60.0)
    MeanOutside(variance=50.0, error=0.0)
    """
    squared_length, by_features = sums.own, 0.0
    if len(sums.energies):
        energies = energies_of(kernel.name, n_columns, sums.features)
        squared_length, by_features = _with_control(energies, sums.energies, sums.own)
        by_features *= unseen_variance(kernel)
    elif len(sums.features):  # exact ones
        squared_length = float(np.square(sums.features).sum())
    squared_length = max(squared_length - sums.noise, 0.0)
    error = float(np.hypot(np.sqrt(by_features), sums.error(squared_length))) / n_rows
    # n‖m − Pm‖² ≤ Σ‖φ(x) − Pφ(x)‖²: a mean is no longer than the root mean square.
    return MeanOutside(min(squared_length / n_rows, most), min(error, most))


def _with_control(energies: Doubles, control: Doubles, true_sum: float) -> tuple[float, float]:
    """Σ`energies` less what they share with a control whose mean sum is known; its variance.

    Over draws of the features, which are independent.
    """
    # The slope of least variance is that of the regression over features: about 1 where blocks have
    # little in common, and J for J blocks that are alike.
    spread = control - control.mean()
    scale = float(spread @ spread)
    slope = float(spread @ energies) / scale if scale > 0 else 0.0
    rest = energies - slope * control
    squared_length = float(energies.sum()) - slope * (float(control.sum()) - true_sum)
    # A slope that is measured has a bias, of the order of the others' share in one feature.
    bias = (squared_length - true_sum) / len(rest)
    # Two degrees of freedom went into the slope and the mean.
    return squared_length, len(rest) * float(np.var(rest, ddof=2)) + bias**2


# Projections.


def _parts(X: Rows) -> Iterator[slice]:
    return blocks(X.shape[0], _BLOCK_ROWS)


@dataclasses.dataclass(frozen=True)
class Inside:
    """Projections on the span: by a triangular factor where K(Y, Y) is far from singular.

    Eigenvectors take ten times as long.
    """

    coordinates: Callable[[Floats], Doubles]  # k(X, Y) to orthonormal coordinates of Pφ(X)
    coefficients: Callable[[Floats], Doubles]  # k(x, Y) to those of Pφ(x) in φ(Y)

    @classmethod
    def of(cls, span: Span) -> Self:
        """Projections on the span of some landmarks."""
        return cls._shared(span) if span.is_shared else cls._new(span)

    @classmethod
    @lru_cache(maxsize=1)
    def _shared(cls, span: Span) -> Self:
        """Made once for many parties of one process, and for one who projects again."""
        return cls._new(span)

    @classmethod
    def _new(cls, span: Span) -> Self:
        if span.is_triangular:
            Bt, dtrmm = span.basis.T, scipy.linalg.blas.dtrmm
            return cls(
                lambda K: np.asarray(dtrmm(1.0, Bt, K.T, lower=1).T),
                lambda k: np.asarray(Bt.T @ (Bt @ k)),
            )
        # The trace is at least λ₁: what passes has no direction that B would drop, so both ways
        # project on the same span.
        if span.rank is not None or not span.exceeds(SPAN_CUTOFF * float(np.trace(span.K))):
            B = span.basis
            return cls(lambda K: np.asarray(K @ B), lambda k: np.asarray(B @ (B.T @ k)))
        L = np.asfortranarray(scipy.linalg.cholesky(span.K, lower=True))
        # By LAPACK's own names: of a few rows, what is around them in scipy takes longer than they.
        dtrtrs, dpotrs = scipy.linalg.lapack.dtrtrs, scipy.linalg.lapack.dpotrs
        return cls(
            lambda K: np.asarray(dtrtrs(L, K.T, lower=1)[0].T),
            lambda k: np.asarray(dpotrs(L, k, lower=1)[0]),
        )


# A few rows that stand for many in sums over φ(x).


_BLOCK = 1 << 14


class RowSample(NamedTuple):
    """Σ `counts` h(x) over the sample is, in the mean over draws, Σ h(x) over all rows."""

    rows: Rows  # (m, d)
    counts: Doubles  # (m,)
    noise: float  # share of the variance of draws with replacement that is left; 0 if all are here
    places: Any = None  # of these among all rows, where whoever draws says so
    weights: Doubles | None = None  # (m,), where rows do not all count the same

    @property
    def roots(self) -> Doubles:
        """By what φ(x) of a row is longer, so that its square counts by its weight."""
        return np.ones(len(self.counts)) if self.weights is None else np.sqrt(self.weights)


class SampleBounds(NamedTuple):
    """How large samples are of which somebody else asks for a share.

    All samples of a site are beginnings of one order of its rows. Two that differ by few would tell
    of these, whatever else the questions are that they answer. Where `fewest` is the same for every
    question its multiples differ by enough, and as many rows are left out. Where it hangs on the
    question, sizes are the `smallest` of any question, doubled: two then differ by as many rows as
    the smaller has, and so do one and all rows.

    >>> [SampleBounds(5).rows_seen(share, 100) for share in (1e-9, 0.05, 0.061, 0.949, 0.951)]
    [5, 5, 10, 95, 100]
    >>> [SampleBounds(12, smallest=5).rows_seen(share, 100) for share in (1e-9, 0.21, 0.41)]
    [20, 40, 100]
    """

    fewest: int
    smallest: int | None = None

    def rows_seen(self, share: float, n: int) -> int:
        """How many of n rows a share is."""
        if self.smallest is None:
            m = self.fewest * max(1, math.ceil(share * n / self.fewest))
            return m if m <= n - self.fewest else n
        m = self.smallest
        while m < max(self.fewest, share * n):
            m *= 2
        return m if m <= n - m else n

    def have_enough(self, places: Indices) -> bool:
        """Whether draws with replacement are of so many rows, and those of no smaller sample."""
        own = places if self.smallest is None else places[len(places) // 2 :]
        return len(np.unique(own)) >= self.fewest


@dataclass(frozen=True)
class RowSampler:
    """Draws samples of the rows, by weight where they do not all count the same."""

    kernel: Kernel
    rows: Rows
    weights: Doubles | None = None  # (n,)

    @classmethod
    def of(cls, kernel: Kernel, rows: Rows) -> RowSampler:
        """Of rows, or who draws them already, from where they are."""
        return rows if isinstance(rows, RowSampler) else cls(kernel, raw_rows(rows))

    @property
    def shape(self) -> tuple[int, int]:
        """Of all rows."""
        n, d = self.rows.shape
        return int(n), int(d)

    @property
    def n_counted(self) -> float:
        """How many rows there are, each as often as it counts."""
        return int(self.rows.shape[0]) if self.weights is None else float(self.weights.sum())

    def draw(self, most: int, rng: np.random.Generator) -> RowSample:
        """All rows, or `most` draws of them: two at least, for one row shows no variance.

        Where k(x, x) differs from row to row, half of the draws are by its root: few rows may make
        up most of the sum, and would be missed.

        >>> sampler = RowSampler(Kernel("rbf", 1.0), np.eye(4))
        >>> sampler.draw(2, np.random.default_rng(0)).counts
        array([2., 2.])
        """
        A = self.rows
        n, m = A.shape[0], min(A.shape[0], max(most, 2))
        if m == n:
            return RowSample(as_rows(A), np.ones(n), 0.0, slice(None), self.weights)
        if self._are_alike:
            # Without replacement: the variance has the factor 1 − m/n of a finite population.
            places = np.sort(rng.choice(n, m, replace=False))
            return RowSample(as_rows(A[places]), np.full(m, n / m), 1 - m / n, places)
        # With replacement: only then 1/(m p) is the count that leaves the sum without bias.
        return self._drawn(np.sort(draw_repeatedly(self._chances, m, rng)))

    def draw_share(self, share: float, sizes: SampleBounds, rng: np.random.Generator) -> RowSample:
        """As `draw`, of a share of the rows that is somebody else's choice.

        By one generator a smaller sample is part of a larger one.
        """
        A, n = self.rows, self.rows.shape[0]
        m = sizes.rows_seen(share, n)
        if m < n and self._are_alike:
            places = rng.permutation(n)[:m]
            places.sort()
            counts = np.empty(m)
            counts.fill(n / m)
            return RowSample(as_rows(A[places]), counts, 1 - m / n)
        places = np.empty(0, np.intp)
        while m < n:
            places = np.append(places, draw_repeatedly(self._chances, m - len(places), rng))
            if sizes.have_enough(places):
                return self._drawn(np.sort(places))
            m *= 2
        return RowSample(as_rows(A), np.ones(n), 0.0, slice(None), self.weights)

    def _drawn(self, places: Indices) -> RowSample:
        """Rows that were drawn with replacement."""
        counts = 1 / (len(places) * self._chances[places])
        weights = None if self.weights is None else self.weights[places]
        return RowSample(as_rows(self.rows[places]), counts, 1.0, places, weights)

    @property
    def _are_alike(self) -> bool:
        return self.kernel.is_level and self.weights is None

    @cached_property
    def _chances(self) -> Doubles:
        """The chance of every row to be drawn; rows without weight have none."""
        chances, w = self._weights[0], self.weights
        if w is None or not w.any():
            return chances
        by_length = w / w.max() * chances
        return np.asarray(by_length / by_length.sum())

    @property
    def trace(self) -> float:
        """Σ k(x, x), or an upper bound that rows of zeros do not reach."""
        return float(self.rows.shape[0]) if self.kernel.is_level else self._weights[1]

    @cached_property
    def _weights(self) -> tuple[Doubles, float]:
        """The chance of every row to be drawn, in the one array of their number, and Σ k(x, x)."""
        n = self.rows.shape[0]
        with np.errstate(over="ignore"):
            values = self._diagonal()
            trace = float(values.sum())
        np.sqrt(np.maximum(values, 0, out=values), out=values)
        largest = values.max()
        if not (np.isfinite(largest) and largest > 0):
            return np.full(n, 1 / n), trace
        values /= largest  # so that their sum does not overflow
        values *= 0.5 / values.sum()
        values += 0.5 / n
        return values, trace

    def _diagonal(self) -> Doubles:
        """k(x, x) of all rows."""
        values = np.empty(self.rows.shape[0])
        for rows in blocks(len(values), _BLOCK):
            values[rows] = self.kernel.diagonal(as_rows(self.rows[rows], np.float64))
        return values


# Random features that show rows from outside the landmarks' span; all who add up draw alike.


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
