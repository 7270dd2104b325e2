"""Sums along a spanning tree: exact, the same bits everywhere, whatever is lost on the way."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from tests.graph_faults import federation_over
from tests.graphs.test_consensus import TOPOLOGIES, N, largest_row, mix_rows, run, stacked

import eigenmesh as em
from eigenmesh.errors import PartyLost, StepRefused
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.spanning_tree import SpanningTree

GRAPHS = [nx.cycle_graph(20), nx.circulant_graph(80, [1, 2]), nx.path_graph(40), nx.star_graph(19)]
GRAPHS += [nx.random_regular_graph(4, 20, seed=0)]


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(5)
    return em.Partitioned(rows=[rng.normal(loc=i, size=(2, 3)) for i in range(N)])


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_spans_the_graph_and_is_nearly_as_low_as_it_can_be(seed):
    graph = nx.connected_watts_strogatz_graph(30, 4, 0.3, seed=seed)
    tree = SpanningTree.of(graph)
    assert all(graph.has_edge(*link) for link in tree.parents.items())
    assert tree.below[tree.root] == set(graph)
    assert tree.height <= nx.radius(graph) + 1


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_every_node_has_the_average_to_the_last_bit_in_two_messages_a_link(parts, topology):
    values, done, _ = run(parts, mix_rows, None, True, topology=topology, averaging="tree")
    np.testing.assert_allclose(values[0], (stacked(parts) ** 2).mean(axis=0), rtol=1e-14)
    assert all(np.array_equal(own, values[0]) for own in values)
    sent = [e for e in done.recording.ledger if e.step == "RowMixer.offer_mixture"]
    assert len(sent) == 2 * 2 * (N - 1)  # of two averages
    highest, _, _ = run(parts, largest_row, topology=topology, averaging="tree")
    np.testing.assert_array_equal(highest[3, 0], stacked(parts).max(axis=(0, 1)))


def test_what_is_added_on_the_way_is_in_the_next_average(parts):
    followed, _, _ = run(parts, mix_rows, None, False, 1, averaging="tree")
    np.testing.assert_allclose(followed[7], stacked(parts).mean(axis=0) + np.arange(N).mean())


@pytest.mark.parametrize("on_loss", ["survivors", "reuse"])
@pytest.mark.parametrize("topology", ["star", ("lattice", 4)], ids=str)
def test_a_fifth_of_the_messages_lost_and_a_node_gone_is_the_survivors_average(
    parts, on_loss, topology
):
    dies = ("party-4", "offer_mixture", 1)
    with federation_over(parts, topology, on_loss=on_loss, loses=0.2, dies=dies) as fed:
        done = fed.run(mix_rows, None)
    assert set(done.lost) == {"party-4"}
    expected = np.delete(stacked(parts), 4, axis=0).mean(axis=0)
    np.testing.assert_allclose(done.value[0].value, expected, rtol=1e-14)
    assert all(np.array_equal(own.value, done.value[0].value) for own in done.value)


def test_a_damaged_message_is_sent_again(parts):
    faults = [em.Fault("corrupt", to=name, share=0.3, seed=3) for name in parts.names]
    values, _, _ = run(parts, mix_rows, None, averaging="tree", on_loss="survivors", faults=faults)
    np.testing.assert_allclose(values[0], stacked(parts).mean(axis=0), rtol=1e-14)


def test_a_dead_link_is_gone_around_and_the_last_one_is_named(parts):
    lost = {"on_loss": "survivors", "averaging": "tree"}
    dead = [em.Fault("lose", "party-5", to="party-6")]
    values, done, _ = run(parts, mix_rows, None, **lost, faults=dead)
    assert done.parties == parts.names
    np.testing.assert_allclose(values[0], stacked(parts).mean(axis=0), rtol=1e-14)
    with pytest.raises(PartyLost, match="nothing of 'party-5' has come to 'party-6'"):
        run(parts, mix_rows, None, **lost, topology=nx.path_graph(N), faults=dead)


def test_a_host_follows_its_own_tree_and_no_other():
    """Whose sums a node hears is not the coordinator's to say: the study's graph says it."""
    sent, offer = [], Host.offer

    def another_parent(self, request):
        tree = em.runtime.wire.loads(request)
        if "along" in tree and tree["along"]["to"] and not sent:
            sent.append(tree["along"])
            other = next(n for n in tree["neighbours"] if n not in tree["along"]["to"])
            tree["along"] = {**tree["along"], "to": [other], "parent": other}
            request = em.runtime.wire.dumps(tree)
        return offer(self, request)

    rows = em.split(np.random.default_rng(0).normal(size=(60, 3)), 5, random_state=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Host, "offer", another_parent)
        with pytest.raises(StepRefused, match="another tree than the study's graph"):
            em.GossipKPCA(1, kernel="rbf", gamma=0.1, topology="full", n_features=10).fit(rows)
    assert sent


@pytest.mark.parametrize("graph", GRAPHS, ids=["ring", "lattice", "path", "star", "regular"])
def test_fifteen_times_fewer_floats_than_by_gossip(graph):
    rows = em.split(np.zeros((10 * len(graph), 4)), len(graph), random_state=0)
    columns = em.split(np.zeros((20, 2 * len(graph))), len(graph), by="columns")
    fits = {
        em.GossipKPCA(3, kernel="rbf", gamma=0.1, topology=graph): rows,
        em.VFedPCA(2, topology=graph): columns,
        em.VFedAKPCA(2, gamma=0.1, topology=graph): columns,
    }
    for estimator, source in fits.items():
        floats = [
            em.plan(estimator.set_params(averaging=way), source).floats_up
            for way in ("gossip", "tree")
        ]
        assert floats[0] >= 15 * floats[1], type(estimator)


def test_the_answer_is_that_of_gossip_and_of_the_survivors():
    X = np.random.default_rng(2).normal(size=(240, 4)) * [4.0, 2.0, 1.0, 0.5]
    parts = em.split(X, 6, random_state=0)
    options = {"kernel": "rbf", "gamma": 0.05, "n_features": 24, "topology": ("lattice", 4)}
    kpca = em.GossipKPCA(2, n_rounds=60, **options)
    by_gossip = em.GossipKPCA(2, n_rounds=60, averaging="gossip", **options).fit(parts)
    np.testing.assert_allclose(kpca.fit(parts).eigenvalues_, by_gossip.eigenvalues_, rtol=1e-9)
    models = list(kpca.node_models_.values())
    assert all(np.array_equal(m.coefficients, models[0].coefficients) for m in models)

    left = em.Partitioned(rows=[part for i, part in enumerate(parts.parts) if i != 2])
    alone = em.GossipKPCA(2, n_rounds=60, **options).fit(left)
    for dies in (("party-2", "offer_centroids", 1), ("party-2", "offer_mixture", 3)):
        faults = {"on_loss": "survivors", "loses": 0.2, "dies": dies}
        with federation_over(parts, options["topology"], **faults) as fed:
            kpca.fit(fed)
        assert set(kpca.report_.lost) == {"party-2"}
        np.testing.assert_allclose(kpca.eigenvalues_, alone.eigenvalues_, rtol=1e-9)


def test_the_audit_says_who_learns_a_summand():
    parts = em.split(np.zeros((60, 3)), 4, random_state=0)
    for way, words in (("tree", "of a leaf its own summand"), ("gossip", "from the first mix")):
        kpca = em.GossipKPCA(1, kernel="rbf", gamma=0.1, topology="ring", averaging=way)
        assert words in str(em.audit(em.plan(kpca, parts)))
