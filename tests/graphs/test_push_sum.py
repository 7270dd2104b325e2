"""Push-sum: averages over links that go one way, and that come and go."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from tests.graphs.test_consensus import largest_row, mix_rows, run, stacked

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import MessageRefused, StepRefused, TopologyError
from eigenmesh.graphs.consensus import MixingSetup, average, mixes_for, mixing
from eigenmesh.graphs.spread_from_first import PassingParty
from eigenmesh.numerics.mixing import push_sum_mixes
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Scope
from eigenmesh.runtime.topology import PUSH_SUM, build_graph, mark_averaging

N = 8


def directed(seed=0, n=N, more=6):
    """A ring that goes one way, and some chords."""
    rng = np.random.default_rng(seed)
    graph = nx.cycle_graph(n, create_using=nx.DiGraph)
    chords = rng.integers(0, n, (more, 2)).tolist()
    graph.add_edges_from((i, j) for i, j in chords if i != j)
    return graph


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(5)
    return em.Partitioned(rows=[rng.normal(loc=i, size=(2, 3)) for i in range(N)])


@pytest.mark.parametrize("seed", range(3))
def test_the_average_of_all_at_every_node_over_links_that_go_one_way(parts, seed):
    graph = directed(seed)
    values, outcome, n_mixes = run(parts, mix_rows, "enough", topology=graph, averaging="push-sum")
    mean = stacked(parts).mean(axis=0)
    np.testing.assert_allclose(values, np.broadcast_to(mean, values.shape), atol=1e-11)
    ledger = outcome.recording.ledger
    sent = [entry for entry in ledger.entries if "offer_mixture" in entry.step]
    assert len(sent) == n_mixes * graph.number_of_edges()  # nothing against the directions
    names = parts.names
    ways = {(names.index(e.sender), names.index(e.receiver)) for e in sent}
    assert ways == set(graph.edges)
    assert {e.floats for e in sent} == {6}


@pytest.mark.parametrize("topology", ["star", "ring", nx.path_graph(N)], ids=str)
def test_graphs_whose_links_go_both_ways_do_too(parts, topology):
    values, _, _ = run(parts, mix_rows, "enough", topology=topology, averaging="push-sum")
    mean = stacked(parts).mean(axis=0)
    np.testing.assert_allclose(values, np.broadcast_to(mean, values.shape), atol=1e-11)


def test_a_second_average_a_change_and_largest_values_follow_the_directions(parts):
    graph = directed(1)
    squares, _, _ = run(parts, mix_rows, "enough", True, topology=graph, averaging="push-sum")
    np.testing.assert_allclose(squares[3], (stacked(parts) ** 2).mean(axis=0), atol=1e-10)
    args = ("enough", False, 200)
    changed, _, _ = run(parts, mix_rows, *args, topology=graph, averaging="push-sum")
    expected = stacked(parts).mean(axis=0) + np.arange(N).mean()
    np.testing.assert_allclose(changed[5], expected, atol=1e-10)
    peaks, _, _ = run(parts, largest_row, topology=graph, averaging="push-sum")
    np.testing.assert_array_equal(peaks[:, 0], np.tile(stacked(parts).max(axis=(0, 1)), (N, 1)))


@pytest.mark.parametrize("on_loss", ["survivors", "reuse"])
def test_links_that_come_and_go_move_nothing(parts, on_loss):
    """Each link loses a third of its messages, and one is dead for a long while."""
    graph, names = directed(2, more=10), parts.names
    faults = [
        Fault("lose", names[i], to=names[j], share=0.33, seed=10 * i + j) for i, j in graph.edges
    ]
    i, j = next(iter(graph.edges))
    faults += [Fault("lose", names[i], to=names[j], round=r) for r in range(2, 40)]
    with em.federation(
        parts, topology=graph, averaging="push-sum", on_loss=on_loss, faults=faults
    ) as fed:
        outcome = fed.run(mix_rows, 2 * mixes_for(fed))
    values = np.array([reply.value for reply in outcome.value])
    mean = stacked(parts).mean(axis=0)
    np.testing.assert_allclose(values, np.broadcast_to(mean, values.shape), atol=1e-9)


class Weighing(PassingParty):
    """Looks at its weight after every mix."""

    state = (*PassingParty.state, "least")

    def __init__(self, site, setup):
        super().__init__(site, setup)
        self.least = 1.0
        self.start_mixing(site.data[0])

    def mix(self, received):
        super().mix(received)
        self.least = min(self.least, float(self.mixing["weight"]))
        assert self.least > 0


def test_weights_stay_positive_and_add_up_to_the_number_of_nodes(parts):
    graph = directed(3)

    @protocol("test-weighing", roles=(Weighing,))
    def weigh(nodes):
        nodes.enlist(Weighing, Weighing.Setup(**mixing(nodes), first=0))
        average(nodes, Weighing, 50)
        return nodes.ask(Weighing.tell_weight)

    with em.federation(parts, topology=graph, averaging="push-sum") as fed:
        replies = fed.run(weigh).value
    assert max(reply.weight for reply in replies) < 1e-2  # hardly moved in the last mix
    assert MixingSetup in Weighing.Setup.__mro__


def test_fits_equal_those_on_a_tree_and_go_on_without_a_node_that_leaves():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(180, 5)) * [3, 2, 1, 0.5, 0.2]
    parts, graph = em.split(X, 6, random_state=0), directed(0, 6, 8)
    how = {"kernel": "rbf", "gamma": 0.05, "features": "random", "n_features": 24}
    tree = em.GossipKPCA(2, topology="ring", random_state=0, **how).fit(parts)
    model = em.GossipKPCA(2, topology=graph, averaging="push-sum", random_state=0, **how)
    plan, report = em.plan(model, parts), model.fit(parts).report_
    np.testing.assert_allclose(model.eigenvalues_, tree.eigenvalues_, rtol=1e-8)
    for own in model.node_models_.values():
        np.testing.assert_allclose(own.transform(X), model.transform(X), atol=1e-10)
    assert (plan.floats_up, plan.rounds) == (report.floats_up, report.rounds)
    assert report.averaging == "push-sum"
    assert "everybody to whom a node sends" in str(em.audit(report))
    left = nx.DiGraph(graph)
    left.remove_node(4)
    if not nx.is_strongly_connected(left):
        graph.add_edge(3, 5)
    faults = [Fault("kill", parts.names[4], round=9)]
    options = {"topology": graph, "averaging": "push-sum", "on_loss": "survivors"}
    with em.federation(parts, faults=faults, **options) as fed:
        few = em.GossipKPCA(2, random_state=0, topology="auto", **how).fit(fed)
    rest = em.Partitioned(rows=[part for i, part in enumerate(parts.parts) if i != 4])
    alone = em.GossipKPCA(2, topology="full", random_state=0, **how).fit(rest)
    np.testing.assert_allclose(few.eigenvalues_, alone.eigenvalues_, rtol=1e-8)


def test_a_model_file_keeps_the_directions(tmp_path, parts):
    model = em.GossipKPCA(
        1, topology=directed(), averaging="push-sum", features="random", n_features=8
    ).fit(parts)
    model.save(tmp_path / "model.em")
    graph = em.load(tmp_path / "model.em").topology
    assert graph.is_directed()
    assert set(graph.edges) == set(directed().edges)


@pytest.mark.parametrize("seed", range(5))
def test_as_many_mixes_are_enough_and_one_less_is_not(seed):
    graph = directed(seed, 7)
    count = push_sum_mixes(graph, 1e-8)
    shares = np.eye(7) + nx.to_numpy_array(graph, nodelist=range(7)).T
    shares /= shares.sum(axis=0)
    for mixes, is_enough in ((count, True), (count - 1, False)):
        power = np.linalg.matrix_power(shares, mixes)
        off = np.abs(7 * power / power.sum(axis=1, keepdims=True) - 1).max()
        assert (off <= 1e-8) == is_enough


def test_what_cannot_be_done_over_such_links_is_said(parts):
    ring = nx.cycle_graph(N, create_using=nx.DiGraph)
    with pytest.raises(TopologyError, match="averaging='push-sum' is expected"):
        em.federation(parts, topology=ring)
    with pytest.raises(TopologyError, match="averaging='push-sum' is expected"):
        em.GossipKPCA(1, topology=ring, features="random").fit(parts)
    how = {"topology": ring, "averaging": "push-sum", "kernel": "rbf"}
    for model in (em.GossipKPCA(1, gamma=0.1, **how), em.ADMMKPCA(1, gamma=0.1, **how)):
        for act in (model.fit, lambda data, m=model: em.plan(m, data)):
            with pytest.raises(TopologyError, match="answer each other"):
                act(parts)
    median = em.GossipKPCA(1, gamma="median", features="random", n_features=8, **how)
    for act in (median.fit, lambda data: em.plan(median, data)):
        with pytest.raises(TopologyError, match="'scale' or 'mean-distance'"):
            act(parts)
    with pytest.raises(TopologyError, match="'party-1' cannot reach 'party-0'"):
        em.federation(
            em.Partitioned(rows=list(parts.parts)[:2]),
            topology=nx.DiGraph([(0, 1)]),
            averaging="push-sum",
        )
    with pytest.raises(TopologyError, match="cannot be reached from"):
        build_graph(nx.DiGraph([(1, 0), (2, 1), (1, 2)]), ["a", "b", "c"])
    both = build_graph(nx.DiGraph([(0, 1), (1, 0)]), ["a", "b"])
    assert not both.is_directed()
    slow = nx.barbell_graph(20, 10)
    with pytest.raises(TopologyError, match="more than .* exchanges to be level"):
        push_sum_mixes(slow)


def test_a_host_hears_and_tells_nobody_but_the_studys_neighbours(parts):
    ring = mark_averaging(nx.cycle_graph(N, create_using=nx.DiGraph), PUSH_SUM)
    scope = Scope(tuple(parts.names), "rows", edges=tuple(ring.edges), averaging=PUSH_SUM)
    scope.require_sound()
    assert set(scope.graph.edges) == set(ring.edges)
    with pytest.raises(StepRefused):
        Scope(tuple(parts.names), "rows", edges=((1, 0),)).require_sound()
    with em.federation(parts, topology=ring, averaging="push-sum") as fed:
        original = fed._heard
        fed._heard = lambda: {i: sorted({*own, (i + 1) % N}) for i, own in original().items()}
        model = em.GossipKPCA(1, features="random", n_features=6, topology="auto")
        with pytest.raises((StepRefused, MessageRefused), match="not the study's"):
            model.fit(fed)
