"""k-means in pieces: against scikit-learn and against the definitions."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris

from eigenmesh.numerics.coresets import coreset, local_solution
from eigenmesh.numerics.kernel_lloyd import kernel_lloyd, mean_basis
from eigenmesh.numerics.kmeans import (
    WeightedPoints,
    cluster_sums,
    distinct,
    draw_far,
    far_sums,
    fitted,
    joined,
    nearest,
    other_grouping,
    score_kmeans,
    shares,
    weighted_kmeans,
)


def some_points(n=9000, dim=5, seed=0):
    rng = np.random.default_rng(seed)
    return WeightedPoints(rng.normal(size=(n, dim)), rng.uniform(0, 3, size=n))


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_nearest_is_by_the_distance_itself(shift):
    points, centres = some_points(5000).points + shift, some_points(7, seed=1).points + shift
    labels, nearest_distances = nearest(points, centres)
    distances = cdist(points, centres, "sqeuclidean")
    np.testing.assert_array_equal(labels, distances.argmin(axis=1))
    np.testing.assert_allclose(nearest_distances, distances.min(axis=1), rtol=1e-12, atol=1e-12)


def test_sums_are_those_of_the_definition():
    data, centres = some_points(), some_points(6, seed=1).points
    sums = cluster_sums(data, centres)
    distances = cdist(data.points, centres, "sqeuclidean")
    for c in range(6):
        own = distances.argmin(axis=1) == c
        expected = data.weights[own] @ data.points[own]
        np.testing.assert_allclose(sums.sums[c], expected, atol=1e-10)
        assert sums.weights[c] == pytest.approx(data.weights[own].sum())
    assert sums.cost == pytest.approx(float(data.weights @ distances.min(axis=1)))


def test_weighted_kmeans_is_as_good_as_scikit_learn_with_as_many_starts():
    X = load_iris().data
    w = np.random.default_rng(0).uniform(0.5, 2, len(X))
    solutions = weighted_kmeans(WeightedPoints(X, w), 3, np.random.default_rng(0), n_best=2)
    best = KMeans(3, n_init=20, random_state=0).fit(X, sample_weight=w).inertia_
    costs = [float(w @ nearest(X, centres)[1]) for centres in solutions]
    assert costs[0] <= best * (1 + 1e-4)
    assert costs == sorted(costs)


def test_fewer_different_points_than_clusters_are_all_centres():
    data = WeightedPoints(np.array([[1.0], [1.0], [4.0], [7.0]]), np.array([1.0, 1.0, 1.0, 0.0]))
    centres = weighted_kmeans(data, 3, np.random.default_rng(0), n_best=2)
    np.testing.assert_array_equal(centres, [[[1.0], [4.0]]] * 2)
    assert distinct(data).weights.tolist() == [2.0, 1.0]


def test_shares_add_up_and_follow_the_masses():
    masses = np.random.default_rng(0).uniform(size=40) ** 3
    counts = shares(masses, 101)
    assert sum(counts) == 101
    assert np.abs(np.array(counts) - 101 * masses / masses.sum()).max() < 1
    assert shares(np.zeros(3), 5) == [0, 0, 0]


def test_points_without_a_chance_are_never_drawn():
    points = np.arange(6.0)[:, None]
    chances = np.array([0, 1.0, 0, 2.0, 0, 0])
    draws = draw_far(points, chances, 5, np.random.default_rng(0))
    assert sorted(draws.ravel().tolist()) == [1.0, 3.0]


# Coresets.


def test_a_coreset_weighs_what_the_points_weigh_and_nothing_weighs_less_than_nothing():
    data = some_points(2000)
    own = local_solution(data, 5, np.random.default_rng(0))
    cost = float(data.weights @ nearest(data.points, own)[1])
    for n_draws in (1, 20, 300):
        part = coreset(data, own, n_draws, cost / n_draws, np.random.default_rng(1))
        assert len(part.points) == n_draws + len(own)
        assert part.weights.min() >= 0
        assert part.weights.sum() == pytest.approx(data.weights.sum())


def test_the_cost_of_any_centres_is_near_that_with_a_coreset():
    data = some_points(4000, dim=3)
    own = local_solution(data, 6, np.random.default_rng(0))
    cost = float(data.weights @ nearest(data.points, own)[1])
    part = coreset(data, own, 1000, cost / 1000, np.random.default_rng(1))
    for seed in range(5):
        centres = np.random.default_rng(seed).normal(size=(6, 3))
        true = float(data.weights @ nearest(data.points, centres)[1])
        estimate = float(part.weights @ nearest(part.points, centres)[1])
        assert estimate == pytest.approx(true, rel=0.08)


def test_few_points_are_their_own_coreset():
    data = some_points(8)
    part = coreset(data, data.points[:3], 6, 1.0, np.random.default_rng(0))
    assert part is data


# The whole kernel matrix.


def rbf(X, gamma):
    return np.exp(-gamma * cdist(X, X, "sqeuclidean"))


def test_linear_kernel_lloyd_is_kmeans():
    X = load_iris().data
    clusters = kernel_lloyd(X @ X.T, np.ones(len(X)), 3, 10, 100, np.random.default_rng(0))
    assert clusters.inertia == pytest.approx(KMeans(3, n_init=20, random_state=0).fit(X).inertia_)


def test_kernel_lloyd_never_loses_to_the_truth_and_its_inertia_is_true():
    X, y = load_iris(return_X_y=True)
    K, w = rbf(X, 0.3), np.random.default_rng(0).uniform(0.5, 2, len(X))

    def inertia(labels):
        inside = 0.0
        for c in np.unique(labels):
            own = labels == c
            inside += w[own] @ K[np.ix_(own, own)] @ w[own] / w[own].sum()
        return w @ np.diag(K) - inside

    clusters = kernel_lloyd(K, w, 3, 5, 100, np.random.default_rng(0))
    assert clusters.inertia == pytest.approx(inertia(clusters.labels))
    assert clusters.inertia <= inertia(y)


def test_kernel_lloyd_with_copies_only_gives_a_cluster_a_point():
    X = np.repeat([[0.0], [3.0]], 4, axis=0)
    clusters = kernel_lloyd(rbf(X, 1.0), np.ones(8), 5, 3, 10, np.random.default_rng(0))
    assert clusters.labels.tolist() == [0] * 4 + [1] * 4
    assert clusters.inertia == pytest.approx(0.0, abs=1e-12)
    assert len(clusters.members) == 2


def test_coordinates_in_the_span_of_the_means_order_the_means_as_feature_space_does():
    X = load_iris().data
    K = rbf(X, 0.3)
    clusters = kernel_lloyd(K, np.ones(len(X)), 4, 2, 100, np.random.default_rng(0))
    coefficients, centres = mean_basis(K, clusters.members)
    labels, _ = nearest(K @ coefficients, centres)
    np.testing.assert_array_equal(labels, clusters.labels)


def test_points_that_do_not_differ_enough_raise_no_warning_in_any_thread():
    few = np.repeat(np.eye(3), 200, axis=0)
    before = warnings.filters[:]
    with warnings.catch_warnings(), ThreadPoolExecutor(8) as pool:
        warnings.simplefilter("error")
        runs = [
            pool.submit(fitted, KMeans(5, n_init=3, random_state=seed), few) for seed in range(40)
        ]
        assert all(len(set(run.result().labels_)) == 3 for run in runs)
    assert warnings.filters == before


@pytest.mark.parametrize("seed", range(8))
def test_clusters_of_scores_in_one_place_are_as_good_as_those_of_many_starts(seed):
    """Whoever has all points pays nothing for more starts: four may stay above."""
    rng = np.random.default_rng(seed)
    k, dim, n = int(rng.integers(8, 14)), int(rng.integers(2, 8)), int(rng.integers(200, 3000))
    points = rng.normal(size=(k, dim))[rng.integers(k, size=n)] * 6
    data = WeightedPoints(points + rng.normal(size=(n, dim)), np.ones(n))
    best = KMeans(k, n_init=30, random_state=seed).fit(data.points).inertia_
    assert score_kmeans(data, k, 4, 300, 1e-4, seed).cost <= 1.01 * best


def grouping(cells, centres):
    """Which cells go together."""
    labels, _ = nearest(cells.points, centres)
    return {frozenset(np.flatnonzero(labels == own)) for own in labels}


@pytest.mark.parametrize("seed", range(12))
def test_cells_are_grouped_otherwise_and_no_dearer_than_by_wards_rule(seed):
    rng = np.random.default_rng(seed)
    k, dim = int(rng.integers(2, 8)), int(rng.integers(1, 6))
    cells = WeightedPoints(rng.standard_t(2, size=(3 * k, dim)), rng.uniform(0.1, 9, size=3 * k))
    before = weighted_kmeans(cells, k, rng)[0]
    after = other_grouping(cells, before, rng)
    assert after.shape == before.shape
    assert grouping(cells, after) != grouping(cells, before)
    ward = joined(cells, before)
    if grouping(cells, ward) != grouping(cells, before):
        assert cluster_sums(cells, after).cost <= cluster_sums(cells, ward).cost * (1 + 1e-9)


def test_empty_cells_and_as_few_as_centres_are_left_as_they_are():
    cells = WeightedPoints(np.array([[0.0], [5.0], [9.0]]), np.array([1.0, 0.0, 2.0]))
    before = np.array([[1.0], [8.0]])
    after = other_grouping(cells, before, np.random.default_rng(0))
    assert sorted(after.ravel().tolist()) == [0.0, 9.0]


@pytest.mark.parametrize("seed", range(6))
def test_far_sums_are_near_the_farthest_point_and_add_up_over_parts(seed):
    rng = np.random.default_rng(seed)
    points, centres = rng.normal(size=(5000, 3)), np.array([[-9.0, 0, 0], [9.0, 0, 0]])
    points += centres[rng.integers(2, size=len(points))]
    far = rng.integers(len(points), size=2)
    points[far] = centres + 40 * rng.normal(size=(2, 3))
    weights = rng.uniform(1, 2, size=len(points))
    labels, squared = nearest(points, centres)
    whole, *parts = (
        far_sums(WeightedPoints(points[rows], weights[rows]), centres, float(squared.mean()))
        for rows in (slice(None), slice(0, 700), slice(700, None))
    )
    for total, own in zip(whole, zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(total, sum(own), rtol=1e-10)
    for c in set(labels[far]):
        farthest = points[np.where(labels == c, squared, 0).argmax()]
        assert (
            np.linalg.norm(whole[0][c] / whole[1][c] - farthest) < 0.5 * squared[far].max() ** 0.5
        )
