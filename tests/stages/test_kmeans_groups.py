"""Sums over whole groups: no number, and no difference of numbers, is of fewer rows than may be."""

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.runtime.site import Site, SiteView
from eigenmesh.stages.kmeans_party import Centres, FarCentres, KMeansSetup, PointHolder


def holder(points, min_rows, weights=None):
    site = Site("a", lambda: points, em.Policy(min_rows=min_rows))
    site.store["points"] = {"points": points}
    if weights is not None:
        site.store["points"]["weights"] = weights
    return PointHolder(SiteView(site, 0, ("a",)), KMeansSetup("points", "labels", groups=True))


@pytest.mark.parametrize("seed", range(8))
def test_sums_of_any_rounds_differ_by_whole_groups(seed):
    rng = np.random.default_rng(seed)
    n, dim, min_rows = int(rng.integers(5, 120)), int(rng.integers(1, 5)), int(rng.integers(2, 9))
    points = rng.normal(size=(n, dim)) + 5 * rng.integers(3, size=(n, 1))
    party, least = holder(points, min_rows), max(5, min_rows)
    weights = []
    for _ in range(30):
        k = int(rng.integers(1, 6))
        reply = party.sum_groups(Centres(rng.normal(size=(2, k, dim)) * 6))
        if n >= least:
            np.testing.assert_allclose(reply.sums.sum(axis=1), [points.sum(axis=0)] * 2)
        weights += list(reply.weights.ravel())
    sizes = np.round(weights).astype(int)
    assert np.all((sizes == 0) | (sizes >= least))
    of_groups = {0}
    for weight in np.round(party.groups.means.weights).astype(int):
        of_groups |= {weight + other for other in of_groups}
    assert set(sizes) <= of_groups


def test_rows_without_weight_are_in_no_group():
    rng = np.random.default_rng(0)
    weights = np.r_[np.zeros(20), np.ones(10)]
    party = holder(rng.normal(size=(30, 2)), 5, weights)
    assert party.groups.means.weights.sum() == 10
    assert len(party.groups.means.points) <= 2


@pytest.mark.parametrize("seed", range(6))
def test_what_is_far_is_asked_of_groups_alone(seed):
    """So that a row far from all others counts with the rows that it goes with."""
    rng = np.random.default_rng(seed)
    n, dim = int(rng.integers(20, 120)), int(rng.integers(1, 5))
    party = holder(rng.standard_t(2, size=(n, dim)), 5)
    means = party.groups.means
    centres = 3 * rng.normal(size=(4, dim))
    reply = party.sum_far_groups(FarCentres(centres, 2.0))
    squared = np.square(means.points[:, None] - centres).sum(axis=2)
    masses = means.weights * (squared.min(axis=1) / 2) ** 4
    for c in range(4):
        own = squared.argmin(axis=1) == c
        np.testing.assert_allclose(reply.masses[c], masses[own].sum())
        np.testing.assert_allclose(reply.sums[c], masses[own] @ means.points[own], atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_groups_do_not_follow_from_scores_where_some_rows_count_for_nothing(seed):
    """Of 160 studies with other components 1,676 groups were formed, for 12."""
    rng = np.random.default_rng(seed)
    rows, counting = rng.normal(size=(61, 4)), rng.permutation(61)[:58]
    weights = np.zeros(61)
    weights[counting] = rng.uniform(0.5, 2, size=58)
    site = Site("a", lambda: rows, em.Policy({"counts", "moments", "centroids"}))
    seen = set()
    for _ in range(40):
        W = np.linalg.qr(rng.normal(size=(4, 4)))[0] * np.exp(rng.normal(size=4))
        site.store["points"] = {"points": rows @ W, "weights": weights}
        party = PointHolder(SiteView(site, 0, ("a",)), KMeansSetup("points", "labels"))
        labels = party.groups.labels
        seen |= {frozenset(np.flatnonzero(labels == g).tolist()) for g in range(labels.max() + 1)}
        means = [
            np.average((rows @ W)[weights > 0][labels == g], 0, weights[weights > 0][labels == g])
            for g in range(labels.max() + 1)
        ]
        np.testing.assert_allclose(party.groups.means.points, means)
    assert len(seen) == labels.max() + 1
    assert min(map(len, seen)) >= 5
