"""Histories of iterative methods: every round from one fit, equal to fits that stop there."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine

import eigenmesh as em
from eigenmesh.errors import InputError
from eigenmesh.metrics import projector_distance, recovery_error


@pytest.fixture(scope="module")
def columns():
    return em.split(load_wine().data[:60], 4, by="columns")


def test_rounds_of_the_exact_form_are_those_of_shorter_fits(columns, oracle):
    whole = em.VFedPCA(2, standardize=True, keep_history=True).fit(columns)
    assert whole.history_.shape[1:] == (60, 2)
    for rounds in (1, 2):
        short = oracle.quiet_fit(em.VFedPCA(2, standardize=True, n_rounds=rounds), columns)
        assert projector_distance(whole.history_[rounds - 1], short.eigenvectors_) < 1e-16
    plain = em.VFedPCA(2, standardize=True).fit(columns)
    assert plain.history_ is None
    assert plain.report_.floats_up == whole.report_.floats_up  # nothing more is sent


def test_every_node_tells_its_scores_after_every_fit_of_loadings(columns, oracle):
    model = em.DPCA(1, topology="ring", standardize=True, n_iterations=4, keep_history=True)
    pca = oracle.quiet_fit(model, columns)
    assert [nodes.shape for nodes in pca.history_] == [(4, 60, 1)] * 4
    short = oracle.quiet_fit(em.DPCA(1, topology="ring", standardize=True, n_iterations=2), columns)
    for told, own in zip(pca.history_[1], short.node_vectors_, strict=True):
        assert projector_distance(told, own) < 1e-16
    assert "scores" in pca.report_.reveals["party-0"]
    sent = pca.report_.by_step["DpcaNode.tell_basis"]
    assert sent == 4 * 4 * 60  # iterations × nodes × samples, counted like all that is sent
    assert em.plan(model, columns).floats_up == pca.report_.floats_up


def test_scores_of_every_iteration_without_refits():
    X = load_digits().data[:200] / 16
    parts = em.split(X, 3, random_state=0)
    options = {"n_eigenvectors": 4, "n_features": 40, "gamma": 0.05, "random_state": 0}
    model = em.FedKernelKMeans(3, n_iterations=6, **options).fit(parts)
    history = list(model.transform_history(X))
    assert len(history) == 6
    K = np.exp(-0.05 * np.square(X[:, None] - X).sum(axis=2))
    values, vectors = np.linalg.eigh(K)
    truth = values[::-1][:4], vectors[:, ::-1][:, :4]
    errors = [recovery_error(H, *truth) for H in history]
    assert errors[-1] < errors[0]
    short = em.FedKernelKMeans(3, n_iterations=3, **options).fit(parts)
    assert recovery_error(short.transform(X), *truth) == pytest.approx(errors[2], rel=1e-6)


@pytest.mark.parametrize("make", [em.FedKernelKMeans, em.KernelKMeans])
def test_a_larger_coreset_sends_more(make):
    parts = em.split(load_digits().data[:300] / 16, 3, random_state=0)
    options = {"n_eigenvectors": 3, "gamma": 0.05, "random_state": 0}
    if make is em.KernelKMeans:
        options |= {"method": "diskpca", "n_landmarks": 30, "embedding_dim": 12, "accuracy": 0.9}
    else:
        options |= {"n_iterations": 2, "n_features": 20}
    sent = [make(3, coreset_size=n, **options).fit(parts).report_.floats_up for n in (30, 120)]
    assert sent[1] - sent[0] > 90 * 3 / 2  # draws of 3 coordinates and a weight, some twice
    with pytest.raises(InputError, match="coreset_size is 0; a whole number from 1"):
        make(3, coreset_size=0, **options).fit(parts)


def test_every_node_tells_its_vectors_after_every_product_on_a_graph(columns, oracle):
    options = {"standardize": True, "topology": "ring"}
    model = em.VFedPCA(2, keep_history=True, **options)
    whole = model.fit(columns)
    assert whole.history_.shape[1:] == (4, 60, 2)
    for rounds in (1, 2):
        short = oracle.quiet_fit(em.VFedPCA(2, n_rounds=rounds, **options), columns)
        for told, own in zip(whole.history_[rounds - 1], short.node_vectors_, strict=True):
            assert projector_distance(told, own) < 1e-16
    assert whole.report_.by_step["PeerHolder.tell_vectors"] == whole.history_.size
    plain = em.VFedPCA(2, **options).fit(columns)
    assert plain.history_ is None
    assert whole.report_.floats_up == plain.report_.floats_up + whole.history_.size


@pytest.mark.parametrize("topology", [None, "ring"])
@pytest.mark.parametrize("make", [em.VFedPCA, em.VFedAKPCA])
def test_the_papers_rounds_are_kept_for_every_component_and_node(columns, oracle, make, topology):
    own = {"kernel": "rbf", "gamma": 0.05} if make is em.VFedAKPCA else {}
    own |= {"variant": "paper", "standardize": True, "topology": topology, "random_state": 3}
    model = make(2, n_rounds=3, keep_history=True, **own)
    whole = oracle.quiet_fit(model, columns)
    assert whole.history_.shape == ((3, 60, 2) if topology is None else (3, 4, 60, 2))
    short = oracle.quiet_fit(make(1, n_rounds=2, keep_history=True, **own), columns)
    firsts = short.history_ if topology is None else short.history_[..., 0]
    np.testing.assert_array_equal(whole.history_[:2, ..., 0], firsts)
    assert em.plan(model, columns).floats_up == whole.report_.floats_up
    if topology is not None:  # the last round is what nodes end with, but for order and sign
        for told, vectors in zip(whole.history_[-1], whole.node_vectors_, strict=True):
            np.testing.assert_allclose(np.abs(np.sum(told * vectors, axis=0)), 1.0)


@pytest.mark.parametrize("features", ["centroids", "random"])
def test_gossip_keeps_every_nodes_directions_after_every_round(features):
    X = load_digits().data[:150] / 16
    parts = em.split(X, 4, random_state=0)
    options = {"kernel": "rbf", "gamma": 0.05, "features": features, "n_features": 20}
    options |= {"averaging": "gossip", "topology": "ring", "n_rounds": 8, "random_state": 0}
    model = em.GossipKPCA(2, keep_history=True, **options)
    kpca = model.fit(parts)
    assert kpca.history_.shape == (8, 4, 20, 3)
    assert em.plan(model, parts).floats_up == kpca.report_.floats_up
    scores = list(kpca.transform_history(X))
    truth = kpca.transform(X)
    Q = np.linalg.qr(truth)[0]
    off = [np.mean([np.linalg.norm(Z - Q @ (Q.T @ Z)) for Z in nodes]) for nodes in scores]
    assert off[-1] < off[0] / 2  # the rounds approach what they end with
    # All end with components inside the span of the nodes' mean after the last round.
    model = kpca.model_
    C = model.components if features == "random" else model.coefficients
    W = kpca.history_[-1].mean(axis=0)
    weights = np.linalg.lstsq(W, C, rcond=None)[0]
    assert np.linalg.norm(C - W @ weights) < 1e-8 * np.linalg.norm(C)
    np.testing.assert_allclose(scores[-1].mean(axis=1), 0.0, atol=1e-9)  # centred over all rows
    plain = em.GossipKPCA(2, **options).fit(parts)
    assert plain.history_ is None
    np.testing.assert_array_equal(plain.transform(X), truth)
    with pytest.raises(InputError, match="no history was kept"):
        list(plain.transform_history(X))


def test_sums_along_a_tree_leave_no_rounds_to_keep():
    parts = em.split(load_digits().data[:150] / 16, 4, random_state=0)
    how = {"kernel": "rbf", "gamma": 0.05, "n_features": 8, "averaging": "tree"}
    assert em.GossipKPCA(2, topology="ring", keep_history=True, **how).fit(parts).history_ is None
