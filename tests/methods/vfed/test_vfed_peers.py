"""VFedPCA without a coordinator: every node ends with the pooled answer, and the same one."""

import networkx as nx
import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import PolicyRefusal, RankError, TopologyError
from eigenmesh.metrics import aligned_error, sin_theta

WINE = StandardScaler().fit_transform(load_wine().data)


def slow(n=80, m=36, seed=0):
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, 6)) * np.geomspace(3, 1, 6)
    return latent @ rng.normal(size=(6, m)) + rng.normal(size=(n, m))


@pytest.mark.parametrize(
    ("topology", "k"),
    [("ring", 1), ("star", 3), ("grid", 1), ("full", 3), (nx.path_graph(6), 3)],
    ids=str,
)
def test_all_nodes_have_the_pooled_answer(topology, k):
    X = slow()
    model = em.VFedPCA(k, topology=topology).fit(em.split(X, 6, by="columns"))
    exact = np.linalg.svd(X - X.mean(0), full_matrices=False)[0][:, :k]
    pooled = PCA(k, svd_solver="full").fit(X)
    assert len(model.node_vectors_) == 6
    for vectors in model.node_vectors_:
        assert sin_theta(vectors, exact) < 1e-8
        assert np.abs(vectors - model.node_vectors_[0]).max() < 1e-8
    assert aligned_error(model.components_.T, pooled.components_.T) < 1e-8
    assert aligned_error(model.transform(X), pooled.transform(X)) < 1e-8
    np.testing.assert_allclose(
        model.explained_variance_ratio_, pooled.explained_variance_ratio_, rtol=1e-8
    )


def test_equals_the_form_with_a_coordinator():
    parts = em.split(WINE, 4, by="columns")
    centre = em.VFedPCA(2).fit(parts)
    peers = em.VFedPCA(2, topology="ring").fit(parts)
    np.testing.assert_allclose(peers.eigenvectors_, centre.eigenvectors_, atol=1e-8)
    np.testing.assert_allclose(peers.transform(WINE), centre.transform(WINE), atol=1e-7)


@pytest.mark.parametrize(
    ("topology", "k", "products"),
    [("ring", 1, 1), ("star", 2, 3), ("full", 1, 1), (nx.path_graph(4), 2, 3)],
    ids=str,
)
def test_traffic_is_planned_to_the_float_and_a_bound_if_it_stops_early(topology, k, products):
    X = slow()
    parts = em.split(X, 4, by="columns")
    bound = em.plan(em.VFedPCA(k, topology=topology), parts)
    model = em.VFedPCA(k, topology=topology, n_rounds=products, tolerance=1e-300)
    forecast = em.plan(model, parts)
    with em.federation(parts, topology=topology) as fed:
        of_federation = em.plan(em.VFedPCA(k, n_rounds=products), fed)
        with pytest.warns(em.EigenmeshWarning, match="not converged"):
            report = model.fit(fed).report_
    for field in ("floats_up", "floats_down", "rounds", "by_party", "by_step", "reveals"):
        assert getattr(forecast, field) == getattr(report, field), field
        assert getattr(of_federation, field) == getattr(report, field), field
    stopped = em.VFedPCA(k, topology=topology).fit(parts)
    assert stopped.report_.floats_up < bound.floats_up
    exact = em.plan(em.VFedPCA(k, topology=topology, n_rounds=len(stopped.convergence_)), parts)
    assert stopped.report_.floats_up == exact.floats_up


def test_no_columns_leave_a_node_and_what_leaves_is_told():
    parts = em.split(WINE, 4, by="columns")
    report = em.VFedPCA(2, topology="ring").fit(parts).report_
    kinds = {"counts", "eigenvectors", "gram", "hashes", "moments", "scores"}
    assert set(report.reveals["party-0"]) == kinds
    assert report.floats_down == 0


def test_a_node_that_forbids_products_refuses():
    allowed = {"counts", "eigenvectors", "hashes", "moments", "scores"}
    policies = [None, em.Policy(allow=allowed), None]
    parts = em.split(WINE, 3, by="columns", policies=policies)
    with pytest.raises(PolicyRefusal, match="party-1.*gram"):
        em.VFedPCA(2, topology="ring").fit(parts)


def test_disconnected_graphs_are_refused():
    graph = nx.Graph([(0, 1), (2, 3)])
    with pytest.raises(TopologyError, match="cannot reach the rest"):
        em.VFedPCA(2, topology=graph).fit(em.split(WINE, 4, by="columns"))


# The first node's directions are those passed on, in rounds 3 to 5.
@pytest.mark.parametrize(("round_", "lost"), [(1, 0), (2, 3), (3, 0), (6, 3), (30, 0)])
def test_a_node_that_leaves_gives_the_components_of_the_remaining_columns(round_, lost):
    blocks = np.array_split(slow(), 4, axis=1)
    parts = em.Partitioned(columns=blocks)
    faults = [Fault("kill", f"party-{lost}", round_)]
    options = {"topology": "full", "on_loss": "survivors"}
    with em.federation(parts, faults=faults, **options) as fed:
        with pytest.warns(em.EigenmeshWarning, match=f"'party-{lost}' has left"):
            model = em.VFedPCA(2, topology="full").fit(fed)
    rest = np.hstack([B for i, B in enumerate(blocks) if i != lost])
    exact = np.linalg.svd(rest - rest.mean(0), full_matrices=False)[0][:, :2]
    assert model.model_.parties == tuple(f"party-{i}" for i in range(4) if i != lost)
    assert sin_theta(model.eigenvectors_, exact) < 1e-8
    for vectors in model.node_vectors_:
        np.testing.assert_allclose(vectors, model.node_vectors_[0], atol=1e-14)


def test_a_loss_that_cuts_the_graph_is_an_error():
    parts = em.split(slow(), 4, by="columns")
    faults = [Fault("kill", "party-0", 6)]
    with em.federation(parts, topology="star", on_loss="survivors", faults=faults) as fed:
        with pytest.raises(TopologyError, match="party-0"):
            em.VFedPCA(2, topology="star").fit(fed)


def test_messages_that_get_lost_do_not_move_the_answer():
    """Averages of running sums: what one mix misses the next one brings."""
    X = slow(n=40, m=16)
    parts = em.split(X, 4, by="columns")
    # introduce, propose, 3 × 2 passes and multiply come before the mixes.
    faults = [Fault("lose", "party-2", round=r) for r in (10, 12, 15)]
    options = {"topology": "ring", "averaging": "gossip", "on_loss": "reuse"}
    with em.federation(parts, **options, faults=faults) as fed:
        model = em.VFedPCA(1, topology="ring").fit(fed)
    exact = np.linalg.svd(X - X.mean(0), full_matrices=False)[0][:, :1]
    assert sin_theta(model.eigenvectors_, exact) < 1e-8
    report = model.report_
    missed = sum(report.reused.values()) + sum(report.dropped.values())
    assert missed == 3 * 2  # by either neighbour


def test_more_components_than_the_rank_is_an_error():
    with pytest.raises(RankError):
        em.VFedPCA(2, topology="ring").fit(em.split(np.ones((10, 6)), 3, by="columns"))
