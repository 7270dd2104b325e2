"""Means of rows that stay with their owner: of enough rows each, and as good as a tree's."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.metrics import pairwise_distances_argmin_min

from eigenmesh.numerics import own_centroids as module
from eigenmesh.numerics.centroids import centroids
from eigenmesh.numerics.own_centroids import own_centroids

DIGITS = load_digits().data / 16
WIDE = np.hstack([DIGITS, DIGITS[:, ::-1]])
HEAVY = np.random.default_rng(0).standard_cauchy((1500, 5))
FORMS = {"narrow": DIGITS, "wide": WIDE, "sparse": sp.csr_array(WIDE), "heavy": HEAVY}


@pytest.mark.parametrize("count", [1, 2, 37, 150])
@pytest.mark.parametrize("least", [5, 10])
@pytest.mark.parametrize("form", FORMS)
def test_each_is_the_mean_of_at_least_so_many_rows(form, count, least, monkeypatch):
    clusters = []
    halved = module._halved
    monkeypatch.setattr(
        module, "_halved", lambda *args: clusters.append(halved(*args)) or clusters[-1]
    )
    means = own_centroids(FORMS[form], count, least, np.random.default_rng(count))
    sizes = np.bincount(clusters[0])
    assert sizes.min() >= least
    assert len(means) == len(sizes) == count or sizes.max() < 2 * least
    assert np.isfinite(means).all()


@pytest.mark.parametrize("count", [20, 80])
@pytest.mark.parametrize("form", ["narrow", "wide"])
def test_rows_are_as_near_to_them_as_to_those_of_a_tree(form, count):
    rows = FORMS[form]

    def cost(centres):
        return np.square(pairwise_distances_argmin_min(rows, centres)[1]).sum()

    tree = cost(centroids(rows, count, 5, lambda part: np.random.default_rng(part)))
    own = [cost(own_centroids(rows, count, 5, np.random.default_rng(s))) for s in range(4)]
    assert np.mean(own) < 1.02 * tree


def test_rows_that_are_all_alike_have_one_mean_or_several_of_it():
    means = own_centroids(np.ones((100, 3)), 4, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(means, np.ones((len(means), 3)))
