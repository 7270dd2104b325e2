"""Gamma rules: scikit-learn's or the textbook's value, from pieces that parties can merge."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import pdist
from sklearn.svm import SVC

from eigenmesh.errors import InputError
from eigenmesh.numerics.gamma_rules import (
    EntryMoments,
    Moments,
    entry_moments,
    gamma_default,
    gamma_for_manhattan,
    gamma_mean_distance,
    gamma_median,
    gamma_scale,
    merge,
    merge_entries,
    moments_of,
    pair_squared_distances,
    sample_pairs,
)

OFFSETS = [0.0, 1e6]
# A mean of 1e6 is rounded to 1e-10 when it is written down, so differences of means lose a digit.
MERGED = {0.0: 1e-13, 1e6: 1e-11}


def sample(n=500, d=6, offset=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.linspace(0.5, 3, d) + offset


def exact_moments(X):
    X = X.astype(np.longdouble)
    mean = X.mean(axis=0)
    return mean.astype(float), float(np.square(X - mean).sum())


# --- rules ---


def test_scale_equals_scikit_learn():
    X = sample()
    entries = entry_moments(X)
    model = SVC(gamma="scale").fit(X, np.arange(len(X)) % 2)
    assert gamma_scale(X.shape[1], entries.variance) == pytest.approx(model._gamma, rel=1e-12)
    assert gamma_default(8) == 0.125


@pytest.mark.parametrize("offset", OFFSETS)
def test_mean_distance_equals_the_double_sum(offset):
    X = sample(n=80, offset=offset)
    double_sum = 2 * pdist(X, "sqeuclidean").sum()
    gamma = gamma_mean_distance(80, moments_of(X).deviation)
    assert gamma == pytest.approx(80**2 / double_sum, rel=1e-12)


def test_median_of_all_pairs_equals_the_textbook_rule():
    X = sample(n=62)  # an odd number of pairs: the median is one of them
    d2 = pair_squared_distances(X, *sample_pairs(62, 10**6, np.random.default_rng(0)))
    sigma = np.median(pdist(X))
    assert gamma_median(d2) == pytest.approx(1 / (2 * sigma**2), rel=1e-12)


def test_median_of_a_sample_is_near_that_of_all_pairs():
    X = sample(n=400)
    d2 = pair_squared_distances(X, *sample_pairs(400, 20_000, np.random.default_rng(0)))
    assert gamma_median(d2) == pytest.approx(gamma_median(pdist(X, "sqeuclidean")), rel=0.03)


def test_a_rule_for_l1_distances_does_not_depend_on_the_unit_of_measure():
    X = sample()
    d = X.shape[1]
    gammas = []
    for factor in (1.0, 100.0):
        moments = moments_of(factor * X)
        gammas.append(gamma_for_manhattan(gamma_mean_distance(500, moments.deviation), d) * factor)
    assert gammas[0] == pytest.approx(gammas[1], rel=1e-12)
    mean_l1 = pdist(X, "cityblock").mean()
    assert 0.5 < gammas[0] * mean_l1 <= 1.0


@pytest.mark.parametrize(
    "rule",
    [
        lambda: gamma_scale(3, 0.0),
        lambda: gamma_scale(3, np.nan),
        lambda: gamma_mean_distance(5, 0.0),
        lambda: gamma_median(np.array([0.0, 0.0, 1.0])),
    ],
)
def test_rules_refuse_rows_without_spread(rule):
    with pytest.raises(InputError, match=r"expected a positive number.*pass gamma as a number"):
        rule()


def test_rules_refuse_empty_data():
    with pytest.raises(InputError, match="at least two rows"):
        gamma_median(np.array([]))
    with pytest.raises(InputError, match="n_features is 0"):
        gamma_default(0)


# --- moments ---


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("sizes", [[500], [1, 499], [100, 150, 250], [0, 250, 250]])
def test_merged_moments_equal_pooled(sizes, offset):
    X = sample(offset=offset)
    parts = np.split(X, np.cumsum(sizes)[:-1])
    merged = merge([moments_of(part) for part in parts])
    mean, deviation = exact_moments(X)
    assert merged.count == 500
    np.testing.assert_allclose(merged.mean, mean, rtol=1e-15, atol=1e-14)
    assert merged.deviation == pytest.approx(deviation, rel=MERGED[offset])


@pytest.mark.parametrize("offset", OFFSETS)
def test_moments_by_blocks_equal_pooled(offset):
    X = sample(n=10_000, d=3, offset=offset)
    mean, deviation = exact_moments(X)
    np.testing.assert_allclose(moments_of(X).mean, mean, rtol=1e-15, atol=1e-14)
    assert moments_of(X).deviation == pytest.approx(deviation, rel=1e-12)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("by_columns", [True, False])
def test_merged_entry_moments_equal_the_variance_of_all_entries(offset, by_columns):
    X = sample(offset=offset)
    parts = np.split(X, [1, 4], axis=1) if by_columns else np.split(X, [100, 300])
    merged = merge_entries([entry_moments(part) for part in parts])
    exact = X.astype(np.longdouble)
    assert merged.count == X.size
    assert merged.mean == pytest.approx(float(exact.mean()), rel=1e-14)
    assert merged.variance == pytest.approx(float(exact.var()), rel=MERGED[offset])


@pytest.mark.parametrize("offset", OFFSETS)
def test_sparse_moments_equal_dense(offset):
    S = sp.random_array(
        (6000, 12), density=0.3, format="csr", random_state=np.random.default_rng(0)
    )
    S.data += offset
    mean, deviation = exact_moments(S.toarray())
    moments = moments_of(S)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-13)
    assert moments.deviation == pytest.approx(deviation, rel=1e-12)
    assert entry_moments(S).variance == pytest.approx(S.toarray().var(), rel=1e-12)


def test_sparse_moments_of_a_constant_column_have_no_deviation():
    S = sp.csr_array(np.full((50, 2), 1e8 + 0.5))
    assert moments_of(S).deviation == 0.0


def test_repeated_sparse_entries_count_once_and_stay_as_they_are():
    S = sp.csr_array((np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1]), np.array([0, 2, 3])))
    assert entry_moments(S).mean == pytest.approx(7 / 4)
    assert moments_of(S).deviation == pytest.approx(exact_moments(S.toarray())[1])
    assert S.nnz == 3


def test_float32_and_integers_accumulate_in_float64():
    X = (sample(n=9000, d=2) + 1e3).astype(np.float32)
    assert moments_of(X).deviation == pytest.approx(exact_moments(X)[1], rel=1e-12)
    ints = np.arange(12, dtype=np.uint8).reshape(6, 2)
    assert moments_of(ints).deviation == pytest.approx(exact_moments(ints)[1], rel=1e-14)


def test_merge_refuses_nothing_and_differing_widths():
    with pytest.raises(InputError, match="no rows"):
        merge([moments_of(np.zeros((0, 2)))])
    with pytest.raises(InputError, match=r"widths \[1, 2\]"):
        merge([Moments(1, np.zeros(1), 0.0), Moments(1, np.zeros(2), 0.0)])
    assert entry_moments(np.zeros((0, 2))) == EntryMoments(0, 0.0, 0.0)
    with pytest.raises(InputError, match="no entries"):
        EntryMoments(0, 0.0, 0.0).variance  # noqa: B018


# --- pairs ---


@pytest.mark.parametrize("n", [2, 3, 10, 41])
def test_all_pairs_are_taken_once_when_the_budget_allows(n):
    i, j = sample_pairs(n, n * (n - 1) // 2, np.random.default_rng(0))
    expected = {(a, b) for a in range(n) for b in range(a + 1, n)}
    assert len(i) == len(expected)
    assert set(zip(i.tolist(), j.tolist(), strict=True)) == expected


@pytest.mark.parametrize("n", [50, 10**5, 5 * 10**7])
def test_sampled_pairs_are_distinct_ordered_and_in_range(n):
    i, j = sample_pairs(n, 1000, np.random.default_rng(0))
    assert len(set(zip(i.tolist(), j.tolist(), strict=True))) == 1000
    assert i.min() >= 0
    assert (i < j).all()
    assert j.max() < n


def test_the_last_pairs_of_many_rows_are_numbered_exactly():
    n = 9 * 10**7

    class Last:
        def choice(self, total, size, replace):
            return np.arange(total - size, total)

    i, j = sample_pairs(n, 3, Last())
    assert i.tolist() == [n - 4, n - 3, n - 2]
    assert j.tolist() == [n - 1] * 3


def test_every_pair_is_equally_likely():
    rng = np.random.default_rng(0)
    counts = np.zeros((6, 6))
    for _ in range(3000):
        counts[sample_pairs(6, 5, rng)] += 1
    assert np.abs(counts[np.triu_indices(6, 1)] / 1000 - 1).max() < 0.12


def test_one_row_has_no_pairs():
    i, j = sample_pairs(1, 10, np.random.default_rng(0))
    assert len(i) == len(j) == 0


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize("offset", OFFSETS)
def test_pair_distances_equal_scipy(convert, offset):
    X = sample(n=60, offset=offset)
    i, j = np.triu_indices(60, 1)
    d2 = pair_squared_distances(convert(X), i, j)
    np.testing.assert_allclose(d2, pdist(X, "sqeuclidean"), rtol=1e-12)


def test_pair_distances_of_unsigned_integers_do_not_wrap():
    X = np.array([[0], [255]], dtype=np.uint8)
    assert pair_squared_distances(X, np.array([0]), np.array([1])).tolist() == [255.0**2]
