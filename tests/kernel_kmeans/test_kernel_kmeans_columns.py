"""KernelKMeans over columns: clusters of the pooled columns, and what is known of their cost."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.preprocessing import scale

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import EigenmeshWarning, MissingPartyShare, PartyLost, PolicyRefusal
from eigenmesh.metrics import feature_space_inertia

# Traffic above that of shipping the columns is worth a warning; here it is expected.
pytestmark = pytest.mark.filterwarnings("ignore:.*floats were sent where shipping.*")

WINE = scale(load_wine().data)
PARTS = em.split(WINE, 3, by="columns", names=["north", "east", "south"])
N, GAMMA = len(WINE), 0.05
WAYS = [
    ("rbf", "auto", "vfed-akpca"),
    ("laplacian", "auto", "vfed-akpca"),
    ("poly", "auto", "vfed-akpca"),
    ("linear", "auto", "vfed-pca"),
    ("rbf", "vfed-akpca", "vfed-akpca"),
    ("poly", "vfed-akpca", "vfed-akpca"),
    ("rbf", "one-shot", "one-shot"),
    ("poly", "one-shot", "one-shot"),
]


def kmeans(k=3, **options):
    return em.KernelKMeans(k, **{"gamma": GAMMA, "random_state": 0} | options)


def whole_kernel(kernel="rbf", X=WINE):
    options = {} if kernel == "linear" else {"gamma": GAMMA}
    return pairwise_kernels(X, metric=kernel, **options)


def pooled_components(kernel, k=3):
    """Scores in the components of the uncentred kernel matrix, from its definition."""
    values, vectors = np.linalg.eigh(whole_kernel(kernel))
    return vectors[:, ::-1][:, :k] * np.sqrt(values[::-1][:k])


# The central oracle.


@pytest.mark.parametrize(("kernel", "method", "chosen"), WAYS[:4])
@pytest.mark.parametrize("topology", [None, "ring"])
def test_the_clusters_of_the_pooled_components(kernel, method, chosen, topology):
    found = kmeans(kernel=kernel, method=method, topology=topology, n_init=20, tol=0).fit(PARTS)
    Z = pooled_components(kernel)
    pooled = KMeans(3, n_init=20, random_state=0, tol=0).fit(Z)
    assert found.method_.startswith(chosen)
    assert found.labels_.shape == (N,)
    assert adjusted_rand_score(found.labels_, pooled.labels_) == 1.0
    spread = np.square(found.transform(PARTS) - found.cluster_centers_[found.labels_]).sum()
    assert spread == pytest.approx(pooled.inertia_, rel=1e-8)
    values = np.linalg.eigvalsh(whole_kernel(kernel))[::-1][:3]
    np.testing.assert_allclose(found.eigenvalues_, values, rtol=1e-8)


def test_the_clusters_and_inertia_of_pooled_rows():
    found = kmeans(method="vfed-akpca").fit(PARTS)
    pooled = kmeans(n_landmarks=N, n_eigenvectors=3).fit(WINE)
    assert adjusted_rand_score(found.labels_, pooled.labels_) == 1.0
    assert found.inertia_ == pytest.approx(pooled.inertia_, rel=1e-9)
    assert found.inertia_slack_ == 0
    assert pooled.inertia_slack_ < 1e-9


@pytest.mark.parametrize(("kernel", "method", "chosen"), WAYS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_inertia_is_as_good_as_is_said(kernel, method, chosen, weighted):
    weights = np.linspace(0.2, 3, N) if weighted else None
    found = kmeans(kernel=kernel, method=method).fit(PARTS, sample_weight=weights)
    true = feature_space_inertia(whole_kernel(kernel), found.labels_, weights)
    words = [note for note in found.report_.notes if note.startswith("inertia")]
    if found.inertia_slack_ is None:
        Z = found.transform(PARTS) - found.cluster_centers_[found.labels_]
        assert words == [f"inertia {found.inertia_:.4g} is that of the scores"]
        assert found.inertia_ == pytest.approx(weights @ np.square(Z).sum(axis=1))
        assert weighted
        assert (kernel, method) in {("linear", "auto"), ("poly", "auto")}
    else:
        rounding = 1e-9 * true
        assert true - rounding <= found.inertia_ <= true + found.inertia_slack_ + rounding
        assert "too large" in words[0]
    if method == "vfed-akpca":  # the coordinates are known, not only the sums of distances
        assert found.inertia_ == pytest.approx(true, rel=1e-9)
        assert found.inertia_slack_ == 0


@pytest.mark.filterwarnings("ignore:eigenvalue .* lacks")
def test_more_landmark_samples_are_nearer():
    slacks = []
    for q in (5, 20, 80):
        with pytest.warns(EigenmeshWarning, match="best in the span"):
            slacks.append(kmeans(n_eigenvectors=5, n_landmarks=q).fit(PARTS).inertia_slack_)
    assert slacks[0] > slacks[1] > slacks[2]


# New samples.


@pytest.mark.parametrize(("kernel", "method", "chosen"), WAYS)
def test_predict_on_the_fitted_columns_is_fit_predict(kernel, method, chosen):
    found = kmeans(kernel=kernel, method=method)
    labels = found.fit_predict(PARTS)
    np.testing.assert_array_equal(labels, found.predict(PARTS))
    np.testing.assert_array_equal(labels, found.predict(WINE))
    assert found.transform(WINE).shape == (N, 3)
    assert found.transform_report_.floats_up > 0


def test_new_samples_go_to_the_nearest_pooled_centre():
    found = kmeans(n_init=20).fit(em.split(WINE[:150], 3, by="columns"))
    values, vectors = np.linalg.eigh(whole_kernel(X=WINE[:150]))
    top = slice(None, -4, -1)
    project = vectors[:, top] / np.sqrt(values[top])
    K_new = pairwise_kernels(WINE[150:], WINE[:150], metric="rbf", gamma=GAMMA)
    pooled = KMeans(3, n_init=20, random_state=0).fit(vectors[:, top] * np.sqrt(values[top]))
    assert adjusted_rand_score(found.predict(WINE[150:]), pooled.predict(K_new @ project)) == 1.0


def test_a_federation_is_fitted_and_predicted():
    with em.federation(PARTS) as fed:
        found = kmeans().fit(fed)
        np.testing.assert_array_equal(found.predict(fed), found.labels_)
    np.testing.assert_array_equal(kmeans().fit_predict(PARTS), found.labels_)


@pytest.mark.parametrize("parties", [True, False])
def test_a_model_goes_to_a_file_and_back(tmp_path, parties):
    found = kmeans(topology=None).fit(PARTS)
    found.save(tmp_path / "m.em", parties=parties)
    again = em.load(tmp_path / "m.em")
    np.testing.assert_array_equal(again.labels_, found.labels_)
    assert again.inertia_ == found.inertia_
    assert again.method_ == found.method_
    assert str(again.report_) == str(found.report_)
    if parties:
        np.testing.assert_array_equal(again.predict(WINE), found.labels_)
    else:
        with pytest.raises(MissingPartyShare, match="north"):
            again.predict(WINE)


# Weights.


def test_weights_count_in_the_clusters():
    weights = np.where(load_wine().target == 2, 0.0, np.linspace(0.5, 4, N))
    found = kmeans(2, n_eigenvectors=3, n_init=20).fit(PARTS, sample_weight=weights)
    pooled = KMeans(2, n_init=20, random_state=0)
    pooled.fit(pooled_components("rbf"), sample_weight=weights)
    assert adjusted_rand_score(found.labels_, pooled.labels_) == 1.0


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones(N - 1), f"has {N - 1} numbers; {N} are expected"),
        ([np.ones(N)] * 3, "shape \\(3, 178\\); one number a sample"),
        (["a"] * N, "is list; one number"),
        (np.r_[np.ones(N - 1), np.nan], "is nan for sample 177"),
        (np.r_[-1.0, np.ones(N - 1)], "is -1 for sample 0"),
        (np.zeros(N), "is zero everywhere"),
    ],
)
def test_weights_that_do_not_fit(weights, words):
    with pytest.raises(em.EigenmeshError, match=words):
        kmeans().fit(PARTS, sample_weight=weights)


# The account.


@pytest.mark.parametrize(("kernel", "method", "chosen"), WAYS)
def test_the_forecast_is_the_ledger(kernel, method, chosen):
    planned = em.plan(kmeans(kernel=kernel, method=method), PARTS)
    report = kmeans(kernel=kernel, method=method).fit(PARTS).report_
    if chosen == "vfed-pca":  # ends when it has converged
        assert report.floats_up <= planned.floats_up
        assert set(report.by_step) == set(planned.by_step)
        return
    assert planned.floats_up == report.floats_up
    assert planned.rounds == report.rounds
    assert planned.by_step == report.by_step
    assert planned.reveals == report.reveals


@pytest.mark.parametrize("gamma", ["mean-distance", "median", None])
def test_the_forecast_on_a_ring_is_the_ledger(gamma):
    few = em.split(WINE[:40], 3, by="columns")
    model = kmeans(gamma=gamma, topology="ring")
    planned, report = em.plan(model, few), model.fit(few).report_
    assert (planned.floats_up, planned.rounds) == (report.floats_up, report.rounds)
    with em.federation(few, topology="ring") as fed:
        assert em.plan(kmeans(gamma=gamma), fed).floats_up == report.floats_up


def test_k_means_sends_nothing_beyond_the_components():
    components = em.KernelPCA(3, kernel="rbf", gamma=GAMMA, center=False).fit(PARTS)
    assert kmeans().fit(PARTS).report_.by_step == components.report_.by_step


def test_bounds_of_the_components_are_passed_on():
    assert "kernel_error" in kmeans(method="one-shot").fit(PARTS).report_.bounds


# What the parties let out.


def test_a_party_that_keeps_distances_is_served_by_one_shot():
    quiet = em.Policy(allow={"eigenvectors", "counts", "hashes", "scores", "moments", "columns"})
    parts = em.split(WINE, 3, by="columns", policies=[None, quiet, None])
    with pytest.warns(em.EigenmeshWarning, match=r"lacks about .*vfed-akpca"):
        found = kmeans().fit(parts)
    assert found.method_.startswith("one-shot")
    assert set(found.report_.reveals["party-1"]) == {"eigenvectors", "counts", "hashes"}
    assert em.plan(kmeans(), parts).refusals == {}


def test_a_party_that_lets_nothing_out_is_named():
    parts = em.split(WINE, 3, by="columns", policies=[None, em.Policy(allow={"counts"}), None])
    with pytest.raises(PolicyRefusal, match=r"aggregate, .*; or .*eigenvectors") as caught:
        kmeans().fit(parts)
    assert caught.value.party == "party-1"
    assert "party-1" in em.plan(kmeans(), parts).refusals


# Faults.


def test_a_lost_party_is_named():
    with em.federation(PARTS, faults=[Fault("kill", "east", 1)]) as fed:
        with pytest.raises(PartyLost) as caught:
            kmeans().fit(fed)
    assert caught.value.party == "east"


def test_survivors_are_clustered_and_it_is_said():
    faults = [Fault("kill", "east", 1)]
    with em.federation(PARTS, faults=faults, on_loss="survivors") as fed:
        with pytest.warns(EigenmeshWarning, match="'east' has left"):
            found = kmeans().fit(fed)
    assert set(found.report_.lost) == {"east"}
    others = PARTS.select(["north", "south"])
    assert adjusted_rand_score(found.labels_, kmeans().fit(others).labels_) == 1.0
    assert any("'east' has left" in note for note in found.report_.notes)


# Too few of everything.


def test_fewer_columns_than_clusters():
    X = load_iris().data
    parts = em.split(X, 2, by="columns")
    found = kmeans(6, kernel="linear").fit(parts)
    assert found.transform(X).shape == (150, 4)
    assert "6 eigenvectors were asked for, the data determine 4" in found.report_.notes
    pooled = KMeans(6, n_init=4, random_state=0).fit(X)
    assert found.inertia_ == pytest.approx(pooled.inertia_, rel=0.02)
    assert len(np.unique(found.labels_)) == 6
    assert em.plan(kmeans(6, kernel="linear"), parts).by_step.keys() > found.report_.by_step.keys()


def test_fewer_different_samples_than_clusters():
    X = np.repeat([[0.0, 1.0], [3.0, 5.0]], 10, axis=0)
    with pytest.warns(
        EigenmeshWarning, match="4 clusters.*2 came out: no more rows differ.*n_clusters=2"
    ):
        found = kmeans(4).fit(em.split(X, 2, by="columns"))
    assert found.eigenvalues_.shape == (2,)
    np.testing.assert_array_equal(found.labels_ == found.labels_[0], np.arange(20) < 10)
    assert found.inertia_ == pytest.approx(0, abs=1e-9)


# What cannot work.


@pytest.mark.parametrize("method", ["landmarks", "exact", "fed", "nystrom", "gossip", "diskpca"])
def test_methods_for_rows_are_refused(method):
    words = f"method is '{method}'; for columns split over parties it is 'auto' or one of: vfed"
    for act in (lambda m: m.fit(PARTS), lambda m: em.plan(m, PARTS)):
        with pytest.raises(em.EigenmeshError, match=words):
            act(kmeans(method=method))


@pytest.mark.parametrize("method", ["vfed-pca", "vfed-akpca", "one-shot", "gossip", "admm"])
def test_methods_for_columns_and_graphs_are_refused_for_rows(method):
    words = f"method is '{method}'; for rows with a coordinator it is 'auto' or one of: landmarks"
    for source in (WINE, em.split(WINE, 2, random_state=0)):
        with pytest.raises(em.EigenmeshError, match=words):
            kmeans(method=method).fit(source)
        with pytest.raises(em.EigenmeshError, match=words):
            em.plan(kmeans(method=method), source)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"kmeans": "coreset"}, "'coreset'; for columns.*'auto' or 'lloyd'"),
        ({"landmarks": "uniform"}, "'uniform'; for columns.*'auto' is expected"),
        ({"kernel": "cosine", "method": "one-shot"}, "'cosine'; for columns.*choose one of these"),
        ({"topology": "circle"}, "'circle' is unknown"),
    ],
)
def test_what_columns_cannot_have(wrong, words):
    with pytest.raises(em.EigenmeshError, match=words):
        kmeans(**wrong).fit(PARTS)


def test_a_topology_does_not_contradict_an_open_federation():
    with em.federation(PARTS) as fed:
        with pytest.raises(em.EigenmeshError, match="opened with a coordinator"):
            kmeans(topology="ring").fit(fed)


# Other engines.


def test_chunks_of_columns_on_dask():
    da = pytest.importorskip("dask.array")
    from tests.engines.dask_cluster import client

    with client().as_current():
        X = da.from_array(WINE, chunks=(N, 5))
        planned, found = em.plan(kmeans(), X), kmeans().fit(X)
    assert planned.by_step == found.report_.by_step
    here = kmeans().fit(em.Partitioned(columns=[WINE[:, :5], WINE[:, 5:10], WINE[:, 10:]]))
    np.testing.assert_array_equal(found.labels_, here.labels_)
