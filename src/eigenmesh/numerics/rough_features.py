"""Random features of rough kernels, drawn where rows differ, which landmarks show.

The laplacian kernel of rows that are close to each other, in small units or tight groups, is 1 less
a little, and what is outside the landmarks' span is of frequencies above one over the distance of
neighbours: of Cauchy's density so few are there that no draw has any. So do few half-spaces divide
a narrow cone, by which arc-cosine features tell its rows apart.

Features are drawn from a mixture: of their own density p; and for some distances between landmarks,
next to each other and at large, with one coordinate of the frequency on the scale of 1 over that
distance, not of γ. Of a half-space's normal the inner product with one of some landmarks is as
small as the angle to the landmark next to that. A feature counts by p over the mixture's density,
so that products stay the kernel's values in the mean.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, dense
from eigenmesh.numerics.embeddings import Embedding, fourier_features
from eigenmesh.numerics.kernels import unit_rows
from eigenmesh.numerics.landmark_sums import Span

ROUGH = ("laplacian", "arc-cosine")
_LANDMARKS = 64  # that are looked at
_NUMBERS = 1 << 21  # of those that they are beside
_PAIRS = 1 << 24  # numbers of all of these, times who is looked at
_LEVELS = (0.1, 0.5, 0.9)  # quantiles of how far the next landmark is
_BY_P = 5  # one half-space in so many is drawn by p
_WIDER = 2.0  # times the angle to the next landmark: rows are beside landmarks, too
_TINY = float(np.finfo(float).tiny)
_COPY = 1e-14  # of a distance, that rows of the same direction are off by rounding
_FEW = 1e-6  # of the mean, less than which a quantile is as good as 0


def rough_features(span: Span, width: int, stream: np.random.SeedSequence) -> Embedding:
    """Random features, `width` in all, of the kernel that a span is of.

    >>> from eigenmesh.numerics.kernels import Kernel
    >>> X = 1e-6 * np.random.default_rng(0).normal(size=(20, 2))
    >>> span = Span.of(Kernel("laplacian", 0.5), X[:10])
    >>> E = rough_features(span, 4096, np.random.SeedSequence(0))(X)
    >>> apart = np.square(E[10] - E[11]).sum() / (2 - 2 * span.kernel.matrix(X)[10, 11])
    >>> bool(0.9 < apart < 1.1)
    True
    """
    draw = _waves if span.kernel.name == "laplacian" else _half_spaces
    return draw(span, width, np.random.default_rng(stream))


class _Neighbours(NamedTuple):
    """Some landmarks, and how far those next to them are.

    Whoever adds up draws alike though its processor rounds otherwise: nothing jumps where two
    others are next to a landmark, as the nearest of them would.
    """

    rows: Doubles  # (m, d)
    distances: Doubles  # (m,)
    by_column: Doubles  # (m, d), of those that are about as far as the nearest, in the mean

    @classmethod
    def of(cls, Y: Rows, order: int, unit: bool = False) -> Self:
        """By sums of |x − y| or, if `order` is 2, their squares; of rows of length 1 if `unit`."""
        q, d = Y.shape
        n_others = max(2, min(q, _NUMBERS // d))
        others = dense(as_rows(Y[:: -(-q // n_others)], np.float64))
        others = unit_rows(others) if unit else others
        m = max(2, min(_LANDMARKS, _PAIRS // others.size))
        rows, nearest, by_column = [], [], []
        for row in others[:: -(-len(others) // m)]:
            apart = np.abs(others - row)
            far = np.linalg.norm(apart, ord=order, axis=1)
            is_other = far > _COPY
            if is_other.any():
                apart, far = apart[is_other], far[is_other]
                near = np.exp(1 - far / far.min())
                rows.append(row)
                nearest.append(far.min())
                by_column.append(near @ apart / near.sum())
        shape = (len(nearest), d)
        parts = (np.reshape(rows, shape), np.array(nearest), np.reshape(by_column, shape))
        return cls(*parts)


def _waves(span: Span, width: int, rng: np.random.Generator) -> Embedding:
    """Cosines and sines of the laplacian kernel."""
    gamma, n_pairs = float(span.kernel.gamma or 0), max(1, (width + 1) // 2)
    d = int(span.landmarks.shape[1])
    frequencies = gamma * _cauchy(d, n_pairs, rng)
    distances = _distances(span.landmarks)
    scales = [np.maximum(1 / np.maximum(s, _TINY), gamma) for s in distances]
    # As many are from each part of the mixture.
    parts = rng.permutation(np.arange(n_pairs) % (1 + len(distances)))
    for part, (s, scale) in enumerate(zip(distances, scales, strict=True), start=1):
        here = np.flatnonzero(parts == part)
        columns = rng.choice(d, len(here), p=s / s.sum())
        frequencies[columns, here] = scale[columns] * _cauchy(1, len(here), rng)[0]
    density = np.ones(n_pairs)  # the parts' over p, all together
    for s, scale in zip(distances, scales, strict=True):
        # Cauchy's density of that scale, over the one of scale γ; squares of huge ones overflow.
        own, wide = frequencies / gamma, frequencies / scale[:, None]
        ratios = (gamma / scale)[:, None] * np.square(np.hypot(1, own) / np.hypot(1, wide))
        density += s / s.sum() @ ratios
    lengths = np.tile(np.sqrt((1 + len(distances)) / density), 2)
    waves = fourier_features(frequencies)
    return lambda X: waves(X) * lengths


def _cauchy(n_lines: int, count: int, rng: np.random.Generator) -> Doubles:
    """Lines of Cauchy's numbers, in each of which every quantile is there."""
    order = rng.permuted(np.tile(np.arange(count), (n_lines, 1)), axis=1)
    shares = (order + rng.random((n_lines, count))) / max(count, 1)
    return np.asarray(np.tan(np.pi * (shares - 0.5)))


def _distances(Y: Rows) -> list[Doubles]:
    """By column, how far the landmark next to one is, and others are; each in all columns."""
    rows, _, apart = _Neighbours.of(Y, order=1)
    if not len(rows):
        return []
    mean = apart.mean(axis=0)
    levels = [np.quantile(apart, level, axis=0) for level in _LEVELS]
    # Where most have the same number in a column, as in sparse rows.
    levels = [np.where(level > _FEW * mean, level, mean) for level in levels]
    levels.append(np.abs(rows - np.median(rows, axis=0)).mean(axis=0))
    return [level for level in levels if level.any()]


def _half_spaces(span: Span, width: int, rng: np.random.Generator) -> Embedding:
    """Arc-cosine features."""
    d, order = int(span.landmarks.shape[1]), int(span.kernel.degree)
    normals = rng.standard_normal((d, width))
    own, distances, _ = _Neighbours.of(span.landmarks, order=2, unit=True)
    angles = np.minimum(_WIDER * distances, 1.0)
    density = np.ones(width)  # the mixture's over p
    if len(own):
        here = np.flatnonzero(rng.permutation(width) % _BY_P)
        beside = rng.permutation(np.arange(len(here)) % len(own))
        along = angles[beside] * rng.standard_normal(len(here))
        inner = np.einsum("ij,ji->i", own[beside], normals[:, here])
        normals[:, here] += own[beside].T * (along - inner)
        squares = np.square(own @ normals)
        ratios = np.exp(squares * (0.5 - 0.5 / np.square(angles))[:, None]) / angles[:, None]
        share = len(here) / width
        density = 1 - share + share * ratios.mean(axis=0)
    lengths = np.sqrt(2 / (width * density))

    def features(X: Rows) -> Doubles:
        P = np.asarray(as_rows(X, np.float64) @ normals)
        return np.asarray(np.heaviside(P, 0.5) * P**order * lengths)

    return features
