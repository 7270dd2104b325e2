"""Kernel PCA by gossip: no centre, no rows, one model at every node."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import KernelPCA
from tests.graph_data import central, central_scores, digits, kernel, nodes

import eigenmesh as em
from eigenmesh.errors import InputError, PolicyRefusal, RankError, TopologyError

LATTICE = ("lattice", 4)
N_NODES = 10


def gossip(k=1, **options):
    common = {"topology": LATTICE, "kernel": "rbf", "gamma": digits()[1], "random_state": 0}
    return em.GossipKPCA(k, **common | options)


@pytest.fixture(scope="module")
def X():
    return digits()[0]


@pytest.fixture(scope="module")
def parts(X):
    return nodes(X, N_NODES)


@pytest.fixture(scope="module")
def fitted(parts):
    return gossip(3).fit(parts)


def correlations(scores, expected):
    return [abs(np.corrcoef(a, b)[0, 1]) for a, b in zip(scores.T, expected.T, strict=True)]


def spread_of(kpca, X):
    scores = np.stack([model.transform(X) for model in kpca.node_models_.values()])
    return np.ptp(scores, axis=0).max()


@pytest.mark.parametrize("name", ["linear", "rbf", "poly"])
def test_a_plain_array_gives_pooled_kernel_pca(X, name):
    ours = em.GossipKPCA(3, kernel=name, gamma=0.05, degree=2).fit(X[:120])
    theirs = KernelPCA(3, kernel=name, gamma=0.05, degree=2, eigen_solver="dense").fit(X[:120])
    np.testing.assert_allclose(ours.transform(X[:150]), theirs.transform(X[:150]), atol=1e-9)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-9)
    assert ours.report_.notes == ("a single node: exact kernel PCA of its rows",)


@pytest.mark.parametrize("features", ["centroids", "random"])
def test_linear_kernel_with_enough_features_is_pooled_pca(X, features):
    """As many dimensions as the rows have: the features are exact, and so is what gossip finds."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 6)) * [9, 6, 4, 1, 1, 1] + rng.normal(size=6)
    kpca = em.GossipKPCA(3, topology="ring", features=features, n_features=40, n_rounds=60)
    kpca.fit(nodes(rows, 5))
    theirs = KernelPCA(3, kernel="linear", eigen_solver="dense").fit(rows)
    np.testing.assert_allclose(kpca.eigenvalues_, theirs.eigenvalues_, rtol=1e-8)
    ours, expected = kpca.transform(rows), theirs.transform(rows)
    np.testing.assert_allclose(np.abs(ours), np.abs(expected), atol=1e-5)
    centred = rows - rows.mean(axis=0)
    np.testing.assert_allclose(kpca.total_variance_, np.sum(centred**2), rtol=1e-9)


def test_scores_are_those_of_central_kernel_pca(X, fitted):
    found = correlations(fitted.transform(X), central_scores(X, digits()[1], 3))
    assert found[0] >= 0.998
    assert min(found) >= 0.98


def test_every_node_ends_with_the_same_model(X, fitted):
    assert len(fitted.node_models_) == N_NODES
    assert spread_of(fitted, X) < 1e-8


def test_no_rows_leave(fitted):
    for kinds in fitted.report_.reveals.values():
        assert set(kinds) == {"centroids", "counts", "moments"}


def test_random_features_send_moments_only_and_improve_with_their_number(X, parts):
    errors = []
    for n_features in (100, 800):
        kpca = gossip(features="random", n_features=n_features, n_rounds=12).fit(parts)
        errors.append(1 - correlations(kpca.transform(X), central_scores(X, digits()[1], 1))[0])
        assert spread_of(kpca, X[:20]) < 1e-8
        assert all(set(k) == {"counts", "moments"} for k in kpca.report_.reveals.values())
    assert errors[1] < errors[0] / 2
    assert errors[1] < 0.01


def test_more_centroids_leave_less_out(X, parts):
    found = [gossip(n_features=n, n_rounds=12).fit(parts) for n in (10, 40)]
    exact = central(X, digits()[1], 1)[0][0]
    errors = [exact - kpca.eigenvalues_[0] for kpca in found]
    assert 0 < errors[1] < errors[0] / 2
    K = kernel(X, X, digits()[1])
    variance = len(X) - K.mean() * len(X)
    assert found[0].total_variance_ >= found[1].total_variance_ >= variance - 1e-9


def test_too_few_mixes_do_not_converge(X, parts):
    """What the tracked average needs: with one mix a round the nodes never agree."""
    expected = central_scores(X, digits()[1], 1)
    ring = {"topology": "ring", "features": "random", "n_features": 400, "n_rounds": 15}
    ring |= {"averaging": "gossip"}
    good = gossip(**ring).fit(parts)
    poor = gossip(**ring, n_mixes=1).fit(parts)
    assert correlations(good.transform(X), expected)[0] > 0.95
    assert correlations(poor.transform(X), expected)[0] < 0.9


def test_nodes_that_hold_one_class_each():
    X, gamma = digits(sorted_by_label=True)
    kpca = gossip(1).fit(nodes(X, N_NODES))
    assert correlations(kpca.transform(X), central_scores(X, gamma, 1))[0] > 0.998


@pytest.mark.parametrize("topology", ["ring", "star", "grid", "random-regular", nx.path_graph(6)])
def test_any_connected_graph(X, topology):
    rows = X[:480]
    kpca = gossip(topology=topology, n_features=30, n_rounds=10).fit(nodes(rows, 6))
    assert spread_of(kpca, rows) < 1e-8
    assert correlations(kpca.transform(rows), central_scores(rows, digits()[1], 1))[0] > 0.998


@pytest.mark.parametrize(
    ("topology", "options"),
    [
        (LATTICE, {"kernel": "rbf", "gamma": 0.05}),
        ("star", {"kernel": "rbf", "gamma": "mean-distance", "n_mixes": 3}),
        ("grid", {"kernel": "rbf", "gamma": 0.05, "features": "random", "n_features": 31}),
        ("ring", {"kernel": "linear", "features": "random", "n_features": 20}),
        ("full", {"kernel": "rbf", "gamma": 0.05, "center": False, "tolerance": 0.0}),
    ],
)
def test_plan_is_the_ledger_to_the_float(X, topology, options):
    uneven = em.split(X[:240], 8, law="power", exponent=0.7, random_state=0)
    kpca = em.GossipKPCA(2, topology=topology, n_rounds=2, **{"n_features": 24} | options)
    forecast = em.plan(kpca, uneven)
    report = kpca.fit(uneven).report_
    assert forecast.by_step == dict(report.by_step)
    assert forecast.by_party == dict(report.by_party)
    assert forecast.reveals == dict(report.reveals)
    assert forecast.rounds == report.rounds
    assert report.baseline_floats == 240 * 64


def test_stops_when_nothing_moves(parts):
    kpca = gossip(tolerance=0.01, n_rounds=50, averaging="gossip").fit(parts)
    assert "no direction moved by more than 0.01" in kpca.report_.stop_reason
    assert kpca.report_.rounds < 400


@pytest.mark.parametrize("kind", ["centroids", "moments"])
def test_a_node_that_forbids_a_kind_refuses_before_anything_leaves(X, kind):
    policies = [None, em.Policy(allow={"centroids", "moments", "counts"} - {kind}), None, None]
    parts = em.Partitioned(rows=np.array_split(X[:80], 4), policies=policies)
    with em.federation(parts, topology="ring") as fed, fed.recording() as recording:
        with pytest.raises(PolicyRefusal, match=f"'party-1'.*'{kind}'"):
            gossip(topology="ring").fit(fed)
        assert recording.ledger.floats_up == 0
    if kind == "centroids":
        gossip(topology="ring", features="random", n_features=20, n_rounds=2).fit(parts)


def test_sparse_rows_and_new_rows(X):
    dense = np.array_split(X[:160], 4)
    options = {"topology": "ring", "n_features": 20, "n_rounds": 3}
    expected = gossip(**options).fit(em.Partitioned(rows=dense))
    sparse = gossip(**options).fit(em.Partitioned(rows=[sp.csr_array(A) for A in dense]))
    np.testing.assert_allclose(sparse.eigenvalues_, expected.eigenvalues_, rtol=1e-6)
    assert [Z.shape for Z in expected.transform(nodes(X[:30], 3))] == [(10, 1)] * 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features": "fourier"}, "features is 'fourier'"),
        ({"n_mixes": 0}, "n_mixes is 0; a whole number from 1"),
        ({"n_rounds": -1}, "n_rounds is -1"),
        ({"n_features": 2.5}, "n_features is 2.5"),
        ({"tolerance": -1}, "tolerance is -1"),
        ({"kernel": "sigmoid"}, "sigmoid"),
        ({"topology": None}, "topology is None; a graph is expected"),
    ],
)
def test_wrong_parameters_are_explained(X, options, words):
    with pytest.raises(InputError, match=words):
        gossip(**options).fit(nodes(X[:60], 6))


def test_nodes_too_small_for_centroids_are_told_what_to_do(X):
    with pytest.raises(InputError, match="no node has the 5 rows.*features='random'"):
        gossip().fit(nodes(X[:24], 8))


def test_more_components_than_features(X):
    with pytest.raises(RankError, match="8 components"):
        gossip(8, n_features=6, topology="ring").fit(nodes(X[:60], 6))


def test_a_disconnected_graph_is_refused(X):
    with pytest.raises(TopologyError, match="add an edge"):
        gossip(topology=nx.Graph([(0, 1), (2, 3)])).fit(nodes(X[:80], 4))


def test_components_that_the_data_do_not_determine_are_reported():
    rng = np.random.default_rng(0)
    quarter, turn = rng.normal(size=(30, 2)), np.array([[0, 1], [-1, 0]])
    turned = np.vstack([quarter, quarter @ turn, -quarter, quarter @ -turn])
    kpca = em.GossipKPCA(1, topology="ring", features="random")
    with pytest.warns(em.EigenmeshWarning, match="not determined by the data"):
        kpca.fit(nodes(turned[rng.permutation(120)], 4))


def test_saved_and_loaded(X, fitted, tmp_path):
    path = tmp_path / "model.em"
    fitted.save(path, parties=True)
    loaded = em.load(path)
    np.testing.assert_array_equal(loaded.transform(X), fitted.transform(X))
    np.testing.assert_array_equal(
        loaded.node_models_["party-4"].transform(X), fitted.node_models_["party-4"].transform(X)
    )


@pytest.mark.parametrize("features", ["centroids", "random"])
def test_same_answer_where_no_site_is_at_hand(X, features):
    parts = nodes(X[:200], 5)
    options = {"topology": "ring", "features": features, "n_features": 20, "n_rounds": 3}
    here = gossip(**options).fit(parts)
    with em.federation(parts, topology="ring") as fed:
        fed.local_sites = dict
        remote = gossip(**options).fit(fed)
    np.testing.assert_array_equal(remote.transform(X), here.transform(X))
