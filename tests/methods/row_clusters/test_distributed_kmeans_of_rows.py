"""k-means of rows where they are: as good as pooled k-means, and no row leaves unless asked for."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_rand_score

import eigenmesh as em
from eigenmesh.errors import InputError, PolicyRefusal


@pytest.fixture(scope="module")
def X():
    return load_digits().data[:600] / 16


@pytest.mark.parametrize(
    ("clustering", "worse"), [("means", 1.02), ("coreset", 1.06), ("lloyd", 1.02)]
)
def test_costs_little_more_than_pooled_clusters(X, clustering, worse):
    parts = em.split(X, 4, law="power", exponent=1.0, random_state=1)
    kmeans = em.DistributedKMeans(10, clustering=clustering, random_state=0).fit(parts)
    pooled = KMeans(10, n_init=10, random_state=0).fit(X)
    assert kmeans.inertia_ <= worse * pooled.inertia_
    whole = np.concatenate(kmeans.labels_)
    order = np.concatenate(parts.order)
    apart = X[order] - kmeans.cluster_centers_[whole]
    assert kmeans.inertia_ == pytest.approx(np.sum(apart**2))
    np.testing.assert_array_equal(np.concatenate(kmeans.predict(parts)), whole)
    np.testing.assert_array_equal(np.bincount(whole, minlength=10), kmeans.cluster_sizes_)
    # Before every round's move: from above, to what is left after the last one.
    assert len(kmeans.history_) == kmeans.n_iter_ > 0
    assert np.all(np.diff(kmeans.history_) <= 1e-12)
    assert kmeans.inertia_ <= len(X) * kmeans.history_[-1] * (1 + 1e-12)
    assert ("rows" in kmeans.report_.reveals["party-0"]) == (clustering != "means")


def test_transform_gives_distances_as_pooled_kmeans_does(X):
    kmeans = em.DistributedKMeans(4, random_state=0).fit(X)
    theirs = KMeans(4, init=kmeans.cluster_centers_, n_init=1, max_iter=1).fit(X)
    theirs.cluster_centers_ = kmeans.cluster_centers_
    np.testing.assert_allclose(kmeans.transform(X[:9]), theirs.transform(X[:9]), atol=1e-9)
    np.testing.assert_array_equal(kmeans.predict(X), kmeans.labels_)


def test_a_party_that_keeps_its_rows_lets_means_out_and_nothing_else(X):
    allowed = {"centroids", "counts", "moments"}
    parts = em.split(X, 3, random_state=0, policies=em.Policy(allow=allowed))
    for clustering in ("coreset", "lloyd"):
        with pytest.raises(PolicyRefusal, match="'rows'"):
            em.DistributedKMeans(3, clustering=clustering, random_state=0).fit(parts)
    kmeans = em.DistributedKMeans(3, refine=0, random_state=0).fit(parts)
    assert set().union(*kmeans.report_.reveals.values()) <= allowed


def test_scores_of_an_estimator_are_clustered_in_a_second_step():
    X, y = make_blobs(300, centers=[[0, 0], [3, 0], [0, 3]], cluster_std=0.4, random_state=0)
    parts = em.split(X, 3, random_state=0)
    kpca = em.DisKPCA(2, kernel="rbf", gamma=0.3, n_landmarks=30, random_state=0).fit(parts)
    scores = em.Partitioned(rows=kpca.transform(parts))
    kmeans = em.DistributedKMeans(3, clustering="coreset", random_state=0).fit(scores)
    found = np.concatenate(kmeans.labels_)
    assert adjusted_rand_score(y[np.concatenate(parts.order)], found) > 0.99


def test_a_larger_coreset_sends_more(X):
    parts = em.split(X, 3, random_state=0)
    options = {"clustering": "coreset", "refine": 0, "random_state": 0}
    sent = [
        em.DistributedKMeans(3, coreset_size=n, **options).fit(parts).report_.floats_up
        for n in (50, 200)
    ]
    assert 100 * 65 / 2 < sent[1] - sent[0] <= 150 * 65  # rows of 64 values and a weight


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clustering": "ward"}, "clustering is 'ward'"),
        ({"coreset_size": 0}, "coreset_size is 0"),
        ({"refine": -1}, "refine is -1"),
        ({"tol": -1.0}, "tol is -1.0"),
        ({"n_clusters": 0}, "n_clusters is 0"),
    ],
)
def test_wrong_parameters_are_explained(X, options, words):
    with pytest.raises(InputError, match=words):
        em.DistributedKMeans(**options).fit(X)
