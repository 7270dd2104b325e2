from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from tests.engines.contract import mix

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import PartyLost
from eigenmesh.graphs.gossip_average import gossip_average
from eigenmesh.runtime.topology import build_graph

TOPOLOGIES = ["star", "full", "ring", "grid", "random-regular", ("lattice", 4)]
N, D = 6, 3


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(3)
    return em.Partitioned(rows=[rng.normal(loc=3 * i, size=(2 + i, D)) for i in range(N)])


@pytest.fixture(scope="module")
def mean(parts):
    return np.mean([X.mean(axis=0) for X in parts.parts], axis=0)


def gossip(parts, n_rounds, **options):
    with em.federation(parts, **options) as fed:
        found = fed.run(gossip_average, n_rounds)
    return np.array([reply.value for reply in found.value]), found, fed


def rounds_to(accuracy, topology):
    """How many rounds the second eigenvalue of the mixing matrix promises to need."""
    W = mix(np.eye(N), build_graph(topology, [f"party-{i}" for i in range(N)]), 1)
    slowest = np.sort(np.abs(np.linalg.eigvalsh(W)))[-2]
    return 2 if slowest < accuracy else int(np.ceil(np.log(accuracy) / np.log(slowest)))


@pytest.mark.parametrize("topology", [*TOPOLOGIES, nx.path_graph(N)], ids=str)
def test_every_node_ends_with_the_mean_of_the_node_means(parts, mean, topology):
    values, _, _ = gossip(parts, rounds_to(1e-13, topology), topology=topology)
    np.testing.assert_allclose(values, np.tile(mean, (N, 1)), atol=1e-10, rtol=0)


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_each_round_keeps_the_mean_and_brings_the_nodes_closer(parts, mean, topology):
    spreads = []
    for n_rounds in (0, 2, 8):
        values, _, _ = gossip(parts, n_rounds, topology=topology)
        np.testing.assert_allclose(values.mean(axis=0), mean, rtol=1e-12)
        spreads.append(np.linalg.norm(values - mean))
    assert spreads[0] > spreads[1] >= spreads[2] - 1e-12  # a full graph is done in one round


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_ledger_counts_d_floats_per_neighbour_and_round(parts, topology):
    n_rounds = 5
    _, found, _ = gossip(parts, n_rounds, topology=topology)
    ledger = found.recording.ledger
    graph = build_graph(topology, parts.names)
    offered = [e for e in ledger if e.step == "AveragingNode.offer_mean"]
    assert sum(e.floats for e in offered) == 2 * graph.number_of_edges() * D * n_rounds
    for i, name in enumerate(parts.names):
        own = [e for e in offered if e.sender == name]
        assert sum(e.floats for e in own) == graph.degree(i) * D * n_rounds
        assert {e.receiver for e in own} == {parts.names[j] for j in graph.neighbors(i)}
    assert ledger.by_step()["AveragingNode.tell_mean"] == N * D
    assert (ledger.floats_down, ledger.rounds) == (0, n_rounds + 1)


def test_reveals_moments_and_the_degree_only(parts):
    _, found, _ = gossip(parts, 2, topology="ring")
    for kinds in found.recording.ledger.revealed().values():
        assert kinds == {"counts": 0, "moments": 2 * 2 * D + D}


def test_one_node_keeps_its_own_mean_and_two_meet_in_the_middle():
    alone, found, _ = gossip(em.Partitioned(rows=[[[1.0], [3.0]]]), 3, topology="ring")
    assert alone.tolist() == [[2.0]]
    assert found.recording.ledger.floats_up == 1  # what it tells at the end
    pair, _, _ = gossip(em.Partitioned(rows=[[[1.0]], [[3.0], [5.0]]]), 60, topology="ring")
    np.testing.assert_allclose(pair, [[2.5], [2.5]], rtol=1e-12)


def test_sparse_and_single_precision_rows_give_the_same_mean():
    rng = np.random.default_rng(0)
    dense = [rng.integers(0, 3, size=(6, 4)).astype(float) for _ in range(3)]
    expected, _, _ = gossip(em.Partitioned(rows=dense), 4, topology="full")
    sparse, _, _ = gossip(em.Partitioned(rows=[sp.csr_array(X) for X in dense]), 4, topology="full")
    narrow = em.Partitioned(rows=[X.astype(np.float32) for X in dense])
    single, _, _ = gossip(narrow, 4, topology="full")
    np.testing.assert_allclose(sparse, expected, rtol=1e-12)
    np.testing.assert_allclose(single, expected, rtol=1e-6)


def replayed(start, graph, lost):
    """The same gossip done centrally: a lost message is replaced by the last one that came."""
    values, heard = start.copy(), {}
    for silent in lost:
        heard |= {j: values[j].copy() for j in graph if not silent[j]}
        pulls = np.zeros_like(values)
        for i in graph:
            for j in set(graph.neighbors(i)) & heard.keys():
                weight = 1 / (1 + max(graph.degree(i), graph.degree(j)))
                pulls[i] += weight * (heard[j] - values[i])
        values += pulls
    return values


@pytest.mark.parametrize("seed", range(3))
def test_a_fifth_of_the_messages_lost_with_reuse_still_ends_in_consensus(parts, seed):
    lost = np.random.default_rng(seed).random((100, N)) < 0.2
    faults = [Fault("lose", parts.names[i], round=k + 1) for k, i in np.argwhere(lost)]
    lossy = {"faults": faults, "on_loss": "reuse", "max_age": 50}
    values, found, fed = gossip(parts, len(lost), topology="random-regular", **lossy)
    start = np.array([X.mean(axis=0) for X in parts.parts])
    graph = build_graph("random-regular", parts.names)
    np.testing.assert_allclose(values, replayed(start, graph, lost), rtol=1e-11)
    assert np.ptp(values, axis=0).max() < 1e-8
    # An old value pulls one way only, so the limit is some mean of the nodes, not the plain one.
    assert np.all((values > start.min(axis=0)) & (values < start.max(axis=0)))
    assert found.parties == parts.names
    assert sum((fed.reused + fed.dropped).values()) == 4 * lost.sum()


def test_lost_messages_stop_the_run_if_nothing_else_was_asked_for(parts):
    with pytest.raises(PartyLost, match=r"no message came to 'party-\d'") as caught:
        gossip(parts, 50, topology="ring", faults=[Fault("lose", share=0.2)])
    assert caught.value.party in parts.names


@pytest.mark.parametrize("at", [1, 2, 10])
def test_when_a_node_leaves_the_others_agree_and_the_result_says_so(parts, at):
    leaving = [Fault("kill", party="party-4", round=at)]
    values, found, _ = gossip(parts, 180, topology="ring", on_loss="survivors", faults=leaving)
    others = tuple(name for name in parts.names if name != "party-4")
    assert found.parties == found.value.parties == others
    assert set(found.lost) == {"party-4"}
    assert np.ptp(values, axis=0).max() < 1e-8
    if at == 1:  # it never took part: the limit is the others' mean
        start = np.array([X.mean(axis=0) for X in parts.parts])
        np.testing.assert_allclose(values[0], np.delete(start, 4, axis=0).mean(axis=0), rtol=1e-9)


def test_same_answer_with_every_run(parts):
    runs = [gossip(parts, 20, topology="grid")[0] for _ in range(2)]
    np.testing.assert_array_equal(*runs)
