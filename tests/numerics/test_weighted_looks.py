"""Looks at rows that count by weight show what looks at as many copies of them show."""

from __future__ import annotations

import numpy as np
import pytest

from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span, landmark_sums, span_residual
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import RowSampler, SampleBounds
from eigenmesh.numerics.paired_shortfall import PairedRows
from eigenmesh.numerics.shortfall import Probes, probe, probe_for_sum

KERNELS = (
    Kernel("rbf", 0.1),
    Kernel("laplacian", 0.1),
    Kernel("poly", 0.2, 2, 1.0),
    Kernel("arc-cosine", None, 1),
)


def drawn(seed, n=70):
    """Rows, whole weights, their copies, a span, and scaled components of the copies."""
    rng, kernel = np.random.default_rng(seed), KERNELS[seed % len(KERNELS)]
    X = rng.normal(size=(n, 4)) * rng.uniform(0.3, 2, 4)
    w = rng.choice([0, 1, 1, 3, 20], n)
    copies = np.repeat(X, w, axis=0)
    Y = X[rng.choice(n, 12, replace=False)]
    span, sums = Span.of(kernel, Y), landmark_sums(kernel, copies, Y)
    model = LandmarkModel.fit(kernel, Y, sums, 2, bool(rng.integers(2)), span)
    roots = np.sqrt(model.eigenvalues)
    scaled = (model.coefficients / roots, model.offset / roots)
    return X, w.astype(float), copies, span, scaled, span_residual(span, sums)


@pytest.mark.parametrize("seed", range(8))
def test_sums_of_all_rows_are_those_of_their_copies(seed):
    X, w, copies, span, scaled, outside = drawn(seed, 24)
    probes = Probes(*scaled, outside / len(copies), 1.0, 64)
    for look in (probe, probe_for_sum):
        ours = look(span, X, probes, seed, np.random.default_rng(0), weights=w)
        theirs = look(span, copies, probes, seed, np.random.default_rng(0))
        for name in {"features", "noise", "mean", "whole", "scatter", "outside", "n_rows"}:
            if name in ours._fields:
                own, of_copies = np.asarray(getattr(ours, name)), getattr(theirs, name)
                size = np.abs(of_copies).max(initial=1e-12)
                np.testing.assert_allclose(own, of_copies, atol=1e-7 * size, err_msg=name)


@pytest.mark.parametrize("seed", range(4))
def test_a_sample_shows_in_the_mean_what_all_rows_do(seed):
    X, w, _, span, scaled, outside = drawn(seed)
    whole, some = (Probes(*scaled, outside / w.sum(), share, 64) for share in (1.0, 0.5))
    all_rows = probe(span, X, whole, seed, np.random.default_rng(0), weights=w)
    looks = [probe(span, X, some, seed, np.random.default_rng(i), weights=w) for i in range(600)]
    squares = [np.square(look.features).sum(axis=1) - look.noise for look in looks]
    true = np.square(all_rows.features).sum(axis=1)
    error = np.std(squares, axis=0) / np.sqrt(len(looks))
    # The noise is by kernel values, the squares by features: these differ a little in the mean.
    by_features = 0.15 * np.mean([look.noise for look in looks], axis=0)
    assert (np.abs(np.mean(squares, axis=0) - true) < 4 * error + by_features).all()
    sampled = [look.outside for look in looks]
    error = np.std(sampled) / np.sqrt(len(looks))
    assert abs(np.mean(sampled) - all_rows.outside) < 4 * error + 1e-9 * outside


@pytest.mark.parametrize("seed", range(4))
def test_pairs_of_rows_show_what_those_of_copies_do(seed):
    X, w, copies, span, scaled, outside = drawn(seed)

    def squares(rows, count, i):
        paired = PairedRows.draw(span, rows, outside, count, np.random.default_rng(i))
        W = np.column_stack([paired.scores(*scaled), paired.sample.roots])
        return paired.squared_lengths(W, paired.sums_with(W))[0]

    sampler = RowSampler(span.kernel, X, w)
    true = squares(copies, len(copies), 0)
    np.testing.assert_allclose(squares(sampler, len(X), 0), true, rtol=1e-6, atol=1e-9 * outside)
    of_samples = np.array([squares(sampler, 50, i) for i in range(400)])
    error = of_samples.std(axis=0) / np.sqrt(len(of_samples))
    unclipped = (of_samples > 0).all(axis=0)  # what is below 0 is taken for 0
    assert unclipped.any()
    assert (np.abs(of_samples.mean(axis=0) - true) < 4 * error)[unclipped].all()


def test_rows_without_weight_are_not_looked_at():
    X, w, *_ = drawn(0)
    sampler = RowSampler(Kernel("rbf", 0.1), X, w)
    for sample in (
        sampler.draw(30, np.random.default_rng(0)),
        sampler.draw_share(0.4, SampleBounds(5), np.random.default_rng(0)),
    ):
        assert (sample.weights > 0).all()
        assert len(np.unique(sample.places)) >= 5
