"""How much of each wanted eigenvalue landmarks miss, estimated from sums over rows.

z_i and v_i are eigenvalues and components inside the landmarks' span, P is the projection on it,
u_i(x) the score of row x and k⊥(x) its squared distance to the span. What Σ φφᵀ makes of v_i leaves
the span by r_i = Σ u_i(x) (1 − P)φ(x), so to second order the true eigenvalue is z_i + ‖r_i‖²/z_i.
Nearer is the larger eigenvalue of [[z_i, ‖r_i‖], [‖r_i‖, e]], e being the largest variance of the
rows in a direction outside the span.

‖r_i‖² comes from random features that all who add up draw alike, as in `mean_outside`: their sums,
with scores for weights, have the products of the r_i in the mean over draws. What landmarks miss
is in few features of many, of which a draw has too few as a rule: each party makes its sums as long
as kernel values between its rows say. For e there are lower bounds: the row that is farthest from
the span, by a high power mean; and in the space of the features each party's mean and its largest
variance around it, put together over the parties. What the r_i explain of either is not counted
twice.

To keep the cost low only some components are probed alone: the last, which misses most, the first,
and others between. ‖r_i‖²/z_i of the rest is read off along z, and raised to what one sum of them
all, with signs, has in all: a single one that misses much shows in it. What the rest explain of e
is not known then, and e counts in the error alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Floats, Rows, as_rows, raw_rows
from eigenmesh.numerics.drawn_parties import DrawnParties, noise_of_draw
from eigenmesh.numerics.draws import drawn_power
from eigenmesh.numerics.eigen import largest_eigenpair
from eigenmesh.numerics.embeddings import Embedding
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.mean_outside import (
    FOURIER,
    Inside,
    RowSample,
    RowSampler,
    SampleBounds,
    unbiased_features,
)
from eigenmesh.numerics.rough_features import ROUGH, rough_features
from eigenmesh.threads import one_blas_thread

SAMPLE_ROWS = 512  # looked at in all, or five a landmark: with twice as many the estimates are
_ROWS_A_LANDMARK = 5  # within a factor of two in 98 cases of 100 instead of 96, at twice the time
_CLOSER_ROWS = 8  # times as many, where the first look leaves doubt
PROBE_WIDTH = 64  # with lengths by kernel values twice as many show no more
_PROBES_ALONE = 16  # where nothing is sent
_COST = 0.1  # of a fit's floats
_STREAM = 0x73686F72  # apart from all other draws by the same seed
_POWER = 16  # of distances: the mean of so high a power is near the largest
_KEY = 16  # bytes
_ANY_SIZES = SampleBounds(2)
_MOST = 1e18  # times the mean, that one distance counts for: powers must not overflow
_ROUNDING = 1e-9  # of k(x, x), below which a distance to the span is none
_SURE = 3.0  # standard errors
_SAMPLING = 0.5  # of what a sample adds to a squared length, for its standard error
_SEEN = 0.5  # of Σ k⊥ of all rows, that a sample has unless a few rows have most of it
_UNSEEN = 1.5  # of a share that is read off, at least, for its standard error
_PAIRED_ROWS = 192
_SHORTENING = 0.1  # of squares, at most
_LENGTHENING = 1e4  # beyond which features show no direction
_TINY = 1e-300
_NOTHING = 1e-10  # of the variance: if no more is outside, nothing is
_SPANNED = 1e-6
# Of the last wanted eigenvalue, that all outside may have where no direction there is sought: with
# one that has it all, half as much again is missing as without.
_NO_RIVAL = 1 / 3


class Probes(NamedTuple):
    """Directions, by `probe_directions`, along which k(x, Y) `coefficients` − `offset` are scores.

    Scores of a component count divided by √z.
    """

    coefficients: Doubles  # (q, p)
    offset: Doubles  # (p,)
    scale: float  # the mean of k⊥ over all rows
    share: float  # of the rows, to be looked at
    n_features: int
    seeks_directions: bool = True  # or whether none outside the span can matter by itself

    @property
    def n_numbers(self) -> int:
        """That `ProbeSums` has."""
        p, t = int(self.coefficients.shape[1]), self.n_features
        return (p + 2) * t + p + 2


class ProbeSums(NamedTuple):
    """What a party's rows add up to outside the span, in t features."""

    features: Doubles  # (p, t), weighted with the probes' scores
    noise: Doubles  # (p,) what drawing a sample adds to the squared lengths of these
    mean: Doubles  # (t,), times √n_rows, if directions are sought
    direction: Doubles  # (t,), of the largest variance around the mean, times its root, as well
    peak: float  # Σ (k⊥ / scale)^16, of what the probes do not explain of k⊥, or of a mean of some
    outside: float  # Σ k⊥
    n_rows: float  # each as often as it counts


class SummedProbes(NamedTuple):
    """What rows add up to outside the span, in t features: all of it is sums, which may be masked.

    The scatter has what single parties' directions and farthest rows show elsewhere.
    """

    features: Doubles  # (p, t), weighted with the probes' scores
    noise: Doubles  # (p,) what drawing a sample adds to the squared lengths of these
    whole: Doubles  # (t,), of all rows
    scatter: Doubles  # (t (t + 1) / 2,), the upper triangle of Σ z'z'ᵀ
    outside: float  # Σ k⊥
    n_rows: float  # each as often as it counts
    n_seen: int  # rows that were looked at


class Shortfall(NamedTuple):
    """Shares of the wanted eigenvalues that are missing, and their standard errors."""

    values: Doubles  # (k,)
    errors: Doubles  # (k,)
    is_complete: bool = True  # or whether some are read off others

    @property
    def largest(self) -> float:
        """The largest share."""
        return float(self.values.max(initial=0.0))

    def is_within(self, accuracy: float) -> bool:
        """Whether no more is missing than may be, with two standard errors."""
        return bool((np.minimum(self.values + 2 * self.errors, 1.0) <= accuracy).all())

    def n_within(self, accuracy: float) -> int:
        """How many first ones are, for sure: none if some are read off others."""
        above = np.minimum(self.values + _SURE * self.errors, 1.0) > accuracy
        return int(np.argmax(np.append(above, True))) if self.is_complete else 0

    def is_doubtful(self, accuracy: float) -> bool:
        """Whether its errors leave open if more is missing than may be."""
        surely_within = (np.minimum(self.values + _SURE * self.errors, 1.0) <= accuracy).all()
        surely_not = (self.values - _SURE * self.errors > accuracy).any()
        return not (surely_within or surely_not)

    def is_likely_above(self, accuracy: float, errors: float = 1.0) -> bool:
        """Whether more is missing than may be, but for so many standard errors."""
        return bool((self.values - errors * self.errors > accuracy).any())

    @property
    def error(self) -> float:
        """That of the largest share."""
        return float(self.errors[int(self.values.argmax())]) if len(self.values) else 0.0


def spans_all(outside: float, total: float, n_landmarks: int, n_rows: int) -> bool:
    """Whether landmarks that somebody gave leave no more than rounding outside their span.

    With as many as rows they are likely these, and then as little as float32 makes is rounding.
    """
    return outside <= (_SPANNED if n_landmarks >= n_rows else _NOTHING) * total


def nothing_missing(k: int) -> Shortfall:
    """Of components that are exact."""
    return Shortfall(np.zeros(k), np.zeros(k))


def proven_shortfall(eigenvalues: Doubles, outside: float) -> Shortfall:
    """Of eigenvalues that miss `outside` at most: half of it, give or take as much.

    The kernel matrix is what the landmarks make of it and a positive one, whose trace is Σ k⊥: by
    that much at most an eigenvalue is larger (Weyl, 1912).

    >>> proven_shortfall(np.array([9.0, 1.0]), 1.0).values
    array([0.05, 0.25])
    """
    half = outside / (eigenvalues + outside) / 2
    return Shortfall(half, half)


# Before anything is asked.


def probed(k: int, n_landmarks: int, floats: int | None, is_summed: bool = False) -> int:
    """How many probes of k components, for a tenth of a fit's `floats`.

    None where nothing is sent. At least one component alone, and the rest together. Where sums are
    masked the scatter of the features costs most, and probes may cost as much as it does.

    >>> probed(10, 100, 8000), probed(3, 100, 50_000), probed(5, 100, 100), probed(9, 100, 0, True)
    (4, 3, 2, 9)
    """
    if floats is None:
        return min(k, _PROBES_ALONE)
    # A probe costs q coefficients, an offset, a noise and a row of features; the mean and the
    # direction are two rows more.
    budget = _COST * floats + (PROBE_WIDTH * (PROBE_WIDTH + 1) // 2 if is_summed else 0)
    return min(k, max(2, int(budget - 2 * PROBE_WIDTH) // (n_landmarks + PROBE_WIDTH + 2)))


def probed_alone(k: int, count: int) -> list[int]:
    """Which of k components `count` probes look at alone: all, or one less than there are probes.

    >>> probed_alone(10, 5), probed_alone(5, 2), probed_alone(3, 3)
    ([0, 3, 6, 9], [4], [0, 1, 2])
    """
    alone = count if count >= k else count - 1
    return [k - 1] if alone == 1 else [i * (k - 1) // (alone - 1) for i in range(alone)]


def probe_directions(eigenvalues: Doubles, count: int) -> Doubles:
    """(k, count), orthonormal: some components alone and, if there are more, the rest together.

    The rest weigh 1/√z, so that each counts by the share that it misses.

    >>> probe_directions(np.array([4.0, 4.0, 1.0]), 2).round(2) + 0.0
    array([[ 0.  ,  0.71],
           [ 0.  , -0.71],
           [ 1.  ,  0.  ]])
    """
    k = len(eigenvalues)
    alone = probed_alone(k, count)
    directions = np.eye(k)[:, alone]
    if len(alone) == count:
        return directions
    rest = np.setdiff1d(np.arange(k), alone)
    together = np.zeros(k)
    together[rest] = (-1.0) ** np.arange(len(rest)) / np.sqrt(np.maximum(eigenvalues[rest], _TINY))
    return np.column_stack([directions, together / np.linalg.norm(together)])


def may_have_rivals(eigenvalues: Floats, outside: float) -> bool:
    """Whether a direction outside the span may come near a wanted eigenvalue."""
    return outside > _NO_RIVAL * float(eigenvalues[-1])


def share_to_see(n_landmarks: int, n_rows: int, is_closer: bool = False) -> float:
    """The share of all rows that parties look at, eight times as many if they look closer."""
    few = max(SAMPLE_ROWS, _ROWS_A_LANDMARK * n_landmarks)
    return min(1.0, (_CLOSER_ROWS if is_closer else 1) * few / n_rows)


# Where the rows are.


def probe(
    span: Span,
    A: Rows,
    probes: Probes,
    seed: int,
    rng: np.random.Generator,
    sizes: SampleBounds = _ANY_SIZES,
    n_far: int = 1,
    weights: Doubles | None = None,
) -> ProbeSums:
    """The sums of rows A: `seed` is that of the features, which all know, `rng` draws rows.

    They are of as many rows as `sizes` say, whatever share is asked for; the distance of the
    farthest rows is the mean of `n_far`, to a power of 2. With weights they are those of rows
    √w φ(x), whose squares add up to what as many copies of each as its weight says do.
    """
    with one_blas_thread():
        sampler = RowSampler(span.kernel, raw_rows(A), weights)
        rows = _rows_outside(span, sampler, probes, seed, rng, sizes)
        W, n = rows.scores(probes), sampler.n_counted
        ratios = _farthest(rows, W, probes.scale, n, n_far, rng)
        return _sums(rows, W, probes, n, ratios)


def probe_for_sum(
    span: Span,
    A: Rows,
    probes: Probes,
    seed: int,
    rng: np.random.Generator,
    sizes: SampleBounds = _ANY_SIZES,
    weights: Doubles | None = None,
) -> SummedProbes:
    """`probe`, of which only the sum over parties shall be seen."""
    with one_blas_thread():
        sampler = RowSampler(span.kernel, raw_rows(A), weights)
        rows = _rows_outside(span, sampler, probes, seed, rng, sizes)
    counts, W = rows.sample.counts, rows.scores(probes)
    F, noise = rows.sums(W)
    features = rows.features()
    scatter = (features * counts[:, None]).T @ features
    return SummedProbes(
        rows.at_length(F, W),
        noise,
        (counts * rows.roots) @ features,
        scatter[np.triu_indices(len(scatter))],
        float(counts @ rows.distances),
        sampler.n_counted,
        len(counts),
    )


def _rows_outside(
    span: Span,
    sampler: RowSampler,
    probes: Probes,
    seed: int,
    rng: np.random.Generator,
    sizes: SampleBounds,
) -> _OutsideRows:
    sample = sampler.draw_share(probes.share, sizes, rng)
    return _OutsideRows.of(_view(span, probes.n_features, seed), sample)


@dataclass(frozen=True)
class _View:
    """Random features as seen from outside the span of φ(Y)."""

    span: Span
    inside: Inside
    features: Embedding
    of_landmarks: Doubles  # (q, t), K(Y, Y)⁻¹ z(Y)


def _view(span: Span, width: int, seed: int) -> _View:
    """Made once for many parties in one process: each has landmarks of its own, but the same."""
    return (_shared_view if span.is_shared else _new_view)(span, width, seed)


def _new_view(span: Span, width: int, seed: int) -> _View:
    inside, Y = Inside.of(span), span.landmarks
    features = _features(span, width, seed)
    return _View(span, inside, features, inside.coefficients(features(Y)))


_shared_view = lru_cache(maxsize=1)(_new_view)


class _OutsideRows(NamedTuple):
    """A sample of rows as seen from outside the span, each as long as the root of its weight."""

    values: Doubles  # (m, q), k(X, Y)
    whole: Doubles  # (m, t), z(X)
    distances: Doubles  # (m,), k⊥
    coordinates: Doubles  # (m, r), of Pφ(X)
    sample: RowSample
    view: _View
    roots: Doubles  # (m,), of the weights

    @classmethod
    def of(cls, view: _View, sample: RowSample) -> _OutsideRows:
        X, kernel = as_rows(sample.rows, np.float64), view.span.kernel
        K = view.span.values(X)
        P = view.inside.coordinates(K)
        norms = kernel.diagonal(X)
        distances = norms - np.einsum("ij,ij->i", P, P)
        distances[distances < _ROUNDING * norms] = 0.0
        whole, roots = view.features(X), sample.roots
        if sample.weights is not None:
            distances *= sample.weights
            for part in (K, whole, P):
                part *= roots[:, None]
        return cls(K, whole, distances, P, sample, view, roots)

    def scores(self, probes: Probes) -> Doubles:
        """Along the probes, by which what is outside counts."""
        return np.asarray(self.values @ probes.coefficients - np.outer(self.roots, probes.offset))

    def features(self) -> Doubles:
        """z'(X), (m, t), as long in all as k⊥ says.

        What landmarks miss is in few features of many, of which a draw has too few as a rule.
        """
        # z'(x) = z(x) − Zᵀa(x), with K(Y, Y)⁻¹ already in `of_landmarks`.
        outside = self.whole - self.values @ self.view.of_landmarks
        counts = self.sample.counts
        shown = float(counts @ np.einsum("ij,ij->i", outside, outside))
        there = float(counts @ self.distances)
        if 0 < there < _LENGTHENING * shown:
            outside *= math.sqrt(there / shown)
        return outside

    def at_length(self, F: Doubles, weights: Doubles) -> Doubles:
        """Σ w(x) z'(x) made as long as Σ w(x) (1 − P)φ(x), by kernel values of rows.

        Where features show nothing of it, it is as if all parties' were along one feature: as much
        as it can be, with an error as large.
        """
        step = -(-len(weights) // _PAIRED_ROWS)
        some = slice(None, None, step)
        C = (weights * self.sample.counts[:, None])[some]
        D, X = C * self.roots[some, None], as_rows(self.sample.rows[some], np.float64)
        inside = np.square(C.T @ self.coordinates[some]).sum(axis=1)
        by_values = np.einsum("ip,ip->p", D, self.view.span.kernel.block(X, X) @ D) - inside
        by_features = np.square(F if step == 1 else self._sums(C, some)).sum(axis=1)
        ones = np.ones(len(F))
        ratios = np.divide(by_values, by_features, out=ones, where=by_features > 0)
        at_length = F * np.sqrt(np.maximum(ratios, _SHORTENING))[:, None]
        unseen = by_values > _LENGTHENING * by_features
        at_length[unseen] = 0.0
        at_length[unseen, 0] = step * np.sqrt(by_values[unseen])
        return np.asarray(at_length)

    def sums(self, weights: Doubles) -> tuple[Doubles, Doubles]:
        """Σ w(x) z'(x) for weights (m, p), and what the draw of rows adds to their squares."""
        C = weights * self.sample.counts[:, None]
        F, m = self._sums(C, slice(None)), len(C)
        if not self.sample.noise:
            return F, np.zeros(len(F))
        # As in `mean_outside`: Σ‖v − v̄‖² m/(m − 1), the lengths of v by kernel values.
        variance = np.square(C).T @ self.distances - np.square(F).sum(axis=1) / m
        return F, self.sample.noise * np.maximum(variance, 0.0) * m / (m - 1)

    def _sums(self, C: Doubles, some: slice) -> Doubles:
        return np.asarray(C.T @ self.whole[some] - C.T @ self.values[some] @ self.view.of_landmarks)


def _farthest(
    rows: _OutsideRows, W: Doubles, scale: float, n: float, n_far: int, rng: np.random.Generator
) -> Doubles:
    """Distances that count in the largest one, of rows with scores W, in units of `scale`.

    The mean of the `n_far` farthest is always over the same few rows, by probes and landmarks that
    are somebody else's: by its digits some dozens of questions told each of these rows.
    """
    if not scale > _MOST * np.finfo(float).tiny:
        return np.zeros(1)
    explained = np.square(W).sum(axis=1)
    if rows.sample.weights is not None:  # what the mean has of a heavy row is told with it
        explained += rows.sample.weights / max(n, _TINY)
    ratios = np.minimum(_unexplained(rows.distances, explained, n_far) / scale, _MOST)
    return ratios if n_far == 1 else np.array([drawn_power(float(ratios[0]), rng.bytes(_KEY))])


def _sums(rows: _OutsideRows, W: Doubles, probes: Probes, n: float, ratios: Doubles) -> ProbeSums:
    # The probes' scores and, for the mean, ones: all in one product.
    F, noise = rows.sums(np.column_stack([W, rows.roots]))
    mean = direction = np.zeros(F.shape[1])
    if probes.seeks_directions and n > 0:
        features = rows.features()
        whole = (rows.sample.counts * rows.roots) @ features
        mean = _without_noise(whole, float(noise[-1])) / math.sqrt(n)
        direction = _direction(rows, features, mean)
    return ProbeSums(
        rows.at_length(F[:-1], W),
        noise[:-1],
        mean,
        direction,
        float((ratios**_POWER).sum()),
        float(rows.sample.counts @ rows.distances),
        n,
    )


def _unexplained(distances: Doubles, explained: Doubles, n_far: int) -> Doubles:
    """What the probes do not explain of k⊥: of each row, or of the `n_far` farthest in the mean.

    Scores over √z are orthonormal over the rows: their squares tell how much of a row, and so of
    its k⊥, the probes have. A component that is one far row must not count twice.
    """
    rests = distances * (1 - explained)
    if n_far > 1:
        # Which rows these are hangs on no probe, and none falls out by one: probes are somebody
        # else's, and might leave a single row. One that was drawn twice is no two.
        places = np.unique(distances, return_index=True)[1][-n_far:]
        rests = rests[places].mean(keepdims=True) * (len(places) == n_far)
    return np.asarray(np.maximum(rests, 0.0))


def _without_noise(F: Doubles, noise: float) -> Doubles:
    """The vector less what noise adds to its squared length."""
    squared_length = float(F @ F)
    return F * math.sqrt(max(1 - noise / squared_length, 0.0)) if squared_length > 0 else F


def _direction(rows: _OutsideRows, features: Doubles, mean: Doubles) -> Doubles:
    """The largest variance around the mean, as a vector whose squared length it is.

    As much as the same variance without any direction would show, in so few rows and features, is
    taken off (Marchenko and Pastur, 1967).
    """
    (m, t), counts = features.shape, rows.sample.counts
    # Counts as roots: a row that stands for c others adds c times its square.
    n = max(float(counts @ np.square(rows.roots)), _TINY)
    around = features - np.outer(rows.roots, mean / math.sqrt(n))
    around *= np.sqrt(counts)[:, None]
    trace = float(np.vdot(around, around))
    if not 0 < trace < math.inf:  # what is not finite is in the probes' sums as well, and refused
        return np.zeros(t)
    if rows.view.span.kernel.name in ROUGH:
        return _joint_direction(around.T @ around, m)
    # Both have the same eigenvalues above 0; the smaller is solved.
    scatter = around.T @ around if m >= t else around @ around.T
    value, vector = largest_eigenpair(scatter)
    floor = trace / t * (1 + math.sqrt(t / m)) ** 2
    along = vector if m >= t else (vector @ around) / math.sqrt(value)
    return np.asarray(along * math.sqrt(max(value - floor, 0.0)))


def _joint_direction(scatter: Doubles, m: int) -> Doubles:
    """The largest variance that features of m rows have in common, as `_direction` has it.

    Of a rough kernel few features have most of the variance outside, which is theirs alone, as
    other features that might have been drawn would show. So each one's own does not count; and
    what is taken off is what as large ones without anything in common would show.
    """
    energies = np.maximum(np.diag(scatter), 0.0)
    common = scatter - np.diag(np.diag(scatter))
    if not common.any():
        return np.zeros(len(scatter))
    value, vector = largest_eigenpair(common)
    chance = _nothing_in_common(len(scatter)) * np.sqrt(np.outer(energies, energies) / m)
    floor = float(np.linalg.eigvalsh(chance)[-1])
    return np.asarray(vector * math.sqrt(max(value - floor, 0.0)))


@lru_cache(maxsize=4)  # as wide as features are, and the same for all parties of a process
def _nothing_in_common(width: int) -> Doubles:
    """Normal numbers, symmetric, without a diagonal."""
    numbers = np.triu(np.random.default_rng(_STREAM).standard_normal((width, width)), 1)
    return np.asarray(numbers + numbers.T)


def _features(span: Span, width: int, seed: int) -> Embedding:
    """Random features, drawn alike wherever the seed is known, and the landmarks are."""
    stream = np.random.SeedSequence(seed, spawn_key=(_STREAM,))
    if span.kernel.name in ROUGH:
        return rough_features(span, width, stream)
    return _smooth_features(span.kernel, int(span.landmarks.shape[1]), width, seed)


@lru_cache(maxsize=2)  # parties of one process draw alike
def _smooth_features(kernel: Kernel, n_columns: int, width: int, seed: int) -> Embedding:
    stream = np.random.SeedSequence(seed, spawn_key=(_STREAM,))
    return unbiased_features(kernel, n_columns, width, stream)


# Where the sums are.


def shortfall(
    kernel: str,
    eigenvalues: Doubles,
    parties: Sequence[ProbeSums],
    outside: float,
    centred: bool,
    drawn: DrawnParties | None = None,
    seeks_directions: bool = True,
) -> Shortfall:
    """Of eigenvalues inside the span, from the sums of all parties; `outside` is Σ k⊥ of all rows.

    Or from those of `drawn` parties, which they are in order. Where no directions were sought, the
    error counts what one with all that is outside would make.

    >>> from eigenmesh.numerics.landmark_sums import landmark_sums
    >>> from eigenmesh.numerics.landmarks import LandmarkModel
    >>> rng, linear = np.random.default_rng(0), Kernel("linear")
    >>> X = rng.normal(size=(400, 3)) * [3.0, 2.0, 1.0]
    >>> Y = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0]])
    >>> span, sums = Span.of(linear, Y), landmark_sums(linear, X, Y)
    >>> model = LandmarkModel.fit(linear, Y, sums, 2, False, span)
    >>> roots = np.sqrt(model.eigenvalues)
    >>> probes = Probes(model.coefficients / roots, model.offset / roots, 1.0, 1.0, 128)
    >>> seen = [probe(span, X, probes, 0, rng)]
    >>> missing = shortfall("linear", model.eigenvalues, seen, 400.0, False)
    >>> true = 1 - model.eigenvalues / np.linalg.svd(X)[1][:2] ** 2
    >>> bool(np.abs(missing.values - true).max() < 0.01)
    True
    """
    weights = np.ones(len(parties)) if drawn is None else 1 / drawn.chances_in_order
    F, noise = np.zeros_like(parties[0].features), np.zeros_like(parties[0].noise)
    for weight, party in zip(weights, parties, strict=True):
        F += weight * party.features  # an array of all would be as large as all they have sent
        noise += weight * party.noise
    unseen, within = 0.0, outside
    if drawn is not None:
        noise += noise_of_draw(weights, [party.features for party in parties])
        # No party that was left out has more: that is a bound, and no more than a doubt asks for.
        unseen, within = drawn.largest_left / _SURE, drawn.within
    if seeks_directions:
        level = highest = _level(parties, weights, F, outside, centred)
    else:
        level, highest = min(_peak(parties, weights, outside), outside), outside
    unseen = max(unseen, unseen_distance(sum(p.outside for p in parties), within))
    return missing_shares(kernel, eigenvalues, (F, noise), level, outside, unseen, highest)


def summed_shortfall(
    kernel: str, eigenvalues: Doubles, sums: SummedProbes, outside: float, centred: bool
) -> Shortfall:
    """`shortfall`, from sums over all parties."""
    t, m = len(sums.whole), sums.n_seen
    scatter = np.zeros((t, t))
    scatter[np.triu_indices(t)] = sums.scatter
    scatter = scatter + np.triu(scatter, 1).T
    if centred:
        scatter -= np.outer(sums.whole, sums.whole) / sums.n_rows
    # What as much variance without any direction would show in so few rows and features.
    floor = float(np.trace(scatter)) / t * (1 + np.sqrt(t / m)) ** 2
    scatter -= sums.features.T @ sums.features
    if kernel in ROUGH:
        level = float(np.square(_joint_direction(scatter, m)).sum())
    else:
        level = max(float(np.linalg.eigvalsh(scatter)[-1]) - floor, 0.0)
    # No more directions have what is outside than there are rows, and one of them the mean at
    # least: all there is to see of a kernel matrix that is nearly the identity.
    unexplained = outside - float(np.square(sums.features).sum())
    level = min(max(level, unexplained / max(sums.n_rows, m)), outside)
    unseen = unseen_distance(sums.outside, outside)
    return missing_shares(kernel, eigenvalues, (sums.features, sums.noise), level, outside, unseen)


def missing_shares(
    kernel: str,
    eigenvalues: Doubles,
    sums: tuple[Doubles, Doubles],
    level: float,
    outside: float,
    unseen: float = 0.0,
    highest: float = 0.0,
) -> Shortfall:
    """`shortfall` from what all parties' `features` and `noise` add up to.

    `level` is a lower bound on the largest variance outside the span, of what no probe explains;
    `unseen` is what may be in a single direction that nobody has looked at. Scores over √z are
    orthonormal over the rows, so that rows which are not seen add no more than it to ‖r‖²/z either.
    `highest` is what the level may be, where it is higher.
    """
    z = np.maximum(np.asarray(eigenvalues, dtype=np.float64), 0.0)
    return shares_missing(z, *_squared_lengths(kernel, *sums), level, outside, unseen, highest)


def shares_missing(
    z: Doubles,
    ratios: Doubles,
    errors: Doubles,
    level: float,
    outside: float,
    unseen: float,
    highest: float = 0.0,
) -> Shortfall:
    """`missing_shares` from ‖r‖²/z of the probes and the standard errors of these."""
    outside = max(outside, 0.0)  # which rounding may have made of nothing
    highest = max(highest, level)
    if len(ratios) < len(z):  # components that nobody looked at alone may explain all of it
        level = 0.0
    values = _missing(z, _for_all(z, ratios, outside), level, outside)
    most = ratios + np.maximum(errors, unseen)
    more = _missing(z, _for_all(z, most, outside), max(unseen, highest), outside)
    errors_of_all = np.abs(more - values)
    others = np.setdiff1d(np.arange(len(z)), probed_alone(len(z), len(ratios)))
    errors_of_all[others] = np.maximum(errors_of_all[others], _UNSEEN * values[others])
    return Shortfall(values, errors_of_all, len(ratios) == len(z))


def _squared_lengths(kernel: str, F: Doubles, noise: Doubles) -> tuple[Doubles, Doubles]:
    """‖r_i‖²/z_i, and their standard errors by the draws of features and of rows."""
    energies = np.square(F)
    if kernel in FOURIER:  # a cosine and a sine are one draw
        energies = energies.reshape(len(F), 2, -1).sum(axis=1)
    by_features = energies.shape[1] * energies.var(axis=1, ddof=1)
    errors = np.sqrt(by_features + np.square(_SAMPLING * noise))
    return np.maximum(energies.sum(axis=1) - noise, 0.0), errors


def _level(
    parties: Sequence[ProbeSums], weights: Doubles, F: Doubles, outside: float, centred: bool
) -> float:
    """A lower bound on the largest variance outside the span that no r_i explains."""
    directions = np.array([d for p in parties for d in (p.mean, p.direction)])
    directions *= np.sqrt(np.repeat(weights, 2))[:, None]
    # Rows of F are r_i/√z_i: FᵀF is the part of the scatter outside that goes with the probes.
    scatter = directions.T @ directions - F.T @ F
    if centred:  # Σ n_p m_p m_pᵀ − n m mᵀ, between the parties
        roots = weights * np.sqrt([p.n_rows for p in parties])
        whole = roots @ np.array([p.mean for p in parties])
        scatter -= np.outer(whole, whole) / float(weights @ [p.n_rows for p in parties])
    between = float(np.linalg.eigvalsh(scatter)[-1])
    return float(min(max(_peak(parties, weights, outside), between, 0.0), outside))


def _peak(parties: Sequence[ProbeSums], weights: Doubles, outside: float) -> float:
    """The squared distance of the farthest row."""
    n = float(weights @ [p.n_rows for p in parties])
    return peak_distance(sum(p.peak for p in parties), outside, n)


def unseen_distance(sampled: float, outside: float) -> float:
    """What a sample lacks of Σ k⊥, if that is most of it: a row far away may not be among it.

    >>> unseen_distance(0.7, 1.0), unseen_distance(0.1, 1.0)
    (0.0, 0.9)
    """
    return outside - sampled if sampled < _SEEN * outside else 0.0


def peak_distance(peak: float, outside: float, n_rows: float) -> float:
    """About the largest k⊥ of a row, from the sum of powers over all."""
    return float(max(peak, 0.0) ** (1 / _POWER) * outside / n_rows)


def _for_all(z: Doubles, ratios: Doubles, outside: float) -> Doubles:
    """‖r_i‖² of every component; ‖r_i‖²/z_i add up to no more than is outside."""
    alone = probed_alone(len(z), len(ratios))
    order = np.asarray(alone)[::-1]  # by rising z
    # In logarithms, as both fall by powers of ten along a spectrum.
    place, logs = np.log(np.maximum(z, _TINY)), np.log(np.maximum(ratios[: len(alone)], _TINY))
    each = np.exp(np.interp(place, place[order], logs[::-1]))
    if len(alone) < len(ratios):
        weights = np.square(probe_directions(z, len(ratios))[:, -1])
        shown = float(weights @ each)
        more = max(float(ratios[-1]) / shown, 1.0)
        left = max(outside - float(ratios[:-1].sum()), 0.0)
        rest = weights > 0
        each[rest] *= min(more, left / float(each[rest].sum()))
    return np.asarray(each * z)


def _missing(z: Doubles, squared_lengths: Doubles, level: float, outside: float) -> Doubles:
    """Shares that z lacks of the k largest of: what z grow to, and what is outside alone."""
    # The larger eigenvalue of [[z, ‖r‖], [‖r‖, level]]. To second order it is z + ‖r‖²/z, which has
    # no bound where z is small.
    roots = (z + level) / 2 + np.sqrt(np.square((z - level) / 2) + squared_lengths)
    # Where z is below the level the larger one is the direction outside, and that is one, however
    # many z lie below it; they stay as they are, and the smallest falls out of the first k.
    below = z < level
    values = np.where(below, z, roots)
    if below.any():
        values = np.append(values, roots[below].max())
    # Of nearly nothing rounding may make less than nothing.
    gains = np.clip(np.sort(values)[::-1][: len(z)] - z, 0.0, outside)
    total = float(gains.sum())
    if total > outside:  # all eigenvalues together cannot gain more than what is there
        gains = gains * (outside / total)
    return np.asarray(gains / np.maximum(z + gains, _TINY))


def unprobed_shortfall(eigenvalues: Doubles, outside: float, n_landmarks: int) -> Shortfall:
    """An estimate without another look at the rows, within a factor of two in four cases of five.

    As if ‖r_i‖² were κ z_i, κ the mean variance outside that a landmark more would take up. The
    error is half of it.

    >>> unprobed_shortfall(np.array([90.0, 9.0]), 100.0, 100).values.round(3)
    array([0.011, 0.092])
    """
    z, level = np.maximum(eigenvalues, 0.0), outside / max(n_landmarks, 1)
    gains = np.minimum(np.sqrt(np.square(z / 2) + z * level) - z / 2, outside)
    values = np.asarray(gains / np.maximum(z + gains, _TINY))
    return Shortfall(values, values / 2, is_complete=False)
