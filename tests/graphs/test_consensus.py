"""Averages over a graph: exact, fast, and right even where messages are lost."""

from __future__ import annotations

from typing import Annotated

import networkx as nx
import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import MessageRefused, PartyLost, TopologyError
from eigenmesh.graphs.consensus import (
    MixingParty,
    MixingSetup,
    average,
    largest,
    mixes_for,
    mixing,
)
from eigenmesh.numerics.mixing import MixingSpectrum, metropolis
from eigenmesh.runtime.message import Floats, Message, Shape
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.topology import build_graph

N = 12
TOPOLOGIES = ["star", "full", "ring", "grid", "random-regular", ("lattice", 4), nx.path_graph(N)]


class Found(Message, reveals="moments"):
    value: Annotated[Floats, Shape("a", "b")]


class RowMixer(MixingParty):
    """Averages its rows, twice if asked, and follows a change."""

    Setup = MixingSetup
    state = (*MixingParty.state,)

    @step
    def begin(self) -> None:
        self.start_mixing(self.site.data)
        self.peak = self.site.data.max(axis=0)

    @step
    def begin_squares(self) -> None:
        self.start_mixing(self.site.data**2)

    @step
    def change(self) -> None:
        self.add_to_mixture(self.site.index * np.ones_like(self.site.data))

    @step
    def tell(self) -> Found:
        return Found(value=self.mixture)

    @step
    def tell_peak(self) -> Found:
        return Found(value=self.peak[None])


@protocol("test-mixing", roles=(RowMixer,))
def mix_rows(nodes, n_mixes, again=False, changed=0):
    nodes.enlist(RowMixer, MixingSetup(**mixing(nodes)))
    nodes.ask(RowMixer.begin)
    average(nodes, RowMixer, n_mixes)
    if again:
        nodes.ask(RowMixer.begin_squares)
        average(nodes, RowMixer, n_mixes)
    if changed:
        nodes.ask(RowMixer.change)
        average(nodes, RowMixer, changed)
    return nodes.ask(RowMixer.tell)


@protocol("test-largest", roles=(RowMixer,))
def largest_row(nodes):
    nodes.enlist(RowMixer, MixingSetup(**mixing(nodes)))
    nodes.ask(RowMixer.begin)
    largest(nodes, RowMixer)
    return nodes.ask(RowMixer.tell_peak)


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(5)
    return em.Partitioned(rows=[rng.normal(loc=i, size=(2, 3)) for i in range(N)])


@pytest.fixture(scope="module")
def few():
    """Half as many: where messages are lost the mixes are many, and each asks every node."""
    rng = np.random.default_rng(6)
    return em.Partitioned(rows=[rng.normal(loc=i, size=(2, 3)) for i in range(N // 2)])


def stacked(parts):
    return np.array([parts.part(i) for i in range(len(parts.names))])


def run(parts, protocol_, *args, topology="ring", averaging="gossip", **options):
    with em.federation(parts, topology=topology, averaging=averaging, **options) as fed:
        n_mixes = mixes_for(fed, 1e-12)
        found = fed.run(protocol_, *(n_mixes if a == "enough" else a for a in args))
    return np.array([reply.value for reply in found.value]), found, n_mixes


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_every_node_ends_with_the_average(parts, topology):
    values, _, _ = run(parts, mix_rows, "enough", topology=topology)
    expected = np.tile(stacked(parts).mean(axis=0), (N, 1, 1))
    np.testing.assert_allclose(values, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_every_mix_keeps_the_average_and_shrinks_the_rest_as_the_spectrum_promises(parts, topology):
    start = stacked(parts)
    spectrum = MixingSpectrum.of(build_graph(topology, parts.names))
    for n_mixes in (1, 2, 3, 7):
        values, _, _ = run(parts, mix_rows, n_mixes, topology=topology)
        np.testing.assert_allclose(values.mean(axis=0), start.mean(axis=0), atol=1e-12)
        left = np.linalg.norm(values - values.mean(axis=0))
        before = np.linalg.norm(start - start.mean(axis=0))
        assert left <= spectrum.shrinks_to(n_mixes) * before + 1e-12


def test_chebyshev_needs_far_fewer_mixes_than_plain_gossip():
    graph = nx.cycle_graph(20)
    slowest = np.sort(np.abs(np.linalg.eigvalsh(metropolis(graph))))[-2]
    plain = np.log(1e-10) / np.log(slowest)
    assert MixingSpectrum.of(graph).mixes(1e-10) < plain / 5


def test_a_second_average_and_a_change_on_the_way(parts):
    squares, _, _ = run(parts, mix_rows, "enough", True)
    np.testing.assert_allclose(squares[3], (stacked(parts) ** 2).mean(axis=0), rtol=1e-9)
    followed, _, _ = run(parts, mix_rows, 4, False, "enough")
    expected = stacked(parts).mean(axis=0) + np.arange(N).mean()
    np.testing.assert_allclose(followed, np.tile(expected, (N, 1, 1)), atol=1e-9)


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
def test_largest_values_reach_everybody(parts, topology):
    values, _, _ = run(parts, largest_row, topology=topology)
    np.testing.assert_array_equal(values, np.tile(stacked(parts).max(axis=(0, 1)), (N, 1, 1)))


def test_ledger_counts_the_array_per_neighbour_and_mix(parts):
    _, found, _ = run(parts, mix_rows, 5, topology=("lattice", 4))
    offered = [e for e in found.recording.ledger if e.step == "RowMixer.offer_mixture"]
    assert sum(e.floats for e in offered) == N * 4 * 6 * 5
    assert found.recording.ledger.revealed()["party-3"] == {"counts": 0, "moments": 4 * 6 * 5 + 6}


@pytest.mark.parametrize(
    ("on_loss", "topology"),
    [
        ("survivors", ("lattice", 4)),
        ("survivors", "grid"),
        ("reuse", "full"),
        ("reuse", "star"),
        ("reuse", "grid"),
    ],
)
def test_a_fifth_of_the_messages_lost_and_still_the_exact_average(few, on_loss, topology):
    """The second of two averages, so that old messages of the first could stand in for lost ones;
    they must not count. Only exchanges are lossy: starts and results are asked for in other rounds.
    """
    options = {"on_loss": on_loss, "topology": topology, "averaging": "gossip"}
    with em.federation(few, **options) as fed:
        n_mixes = mixes_for(fed)
    lost = np.random.default_rng(0).random((2 * n_mixes + 2, len(few.names))) < 0.2
    lost[[0, n_mixes + 1]] = False  # rounds 1 and n_mixes + 2 begin an average
    faults = [Fault("lose", few.names[i], round=int(k) + 1) for k, i in np.argwhere(lost)]
    options |= {"max_age": 50, "faults": faults}
    values, found, _ = run(few, mix_rows, "enough", True, **options)
    assert found.parties == few.names
    assert sum({**found.reused, **found.dropped}.values()) > 100
    expected = (stacked(few) ** 2).mean(axis=0)
    np.testing.assert_allclose(values, np.tile(expected, (len(few.names), 1, 1)), atol=1e-9)


def test_loss_stops_the_run_unless_something_else_was_asked_for(parts):
    with pytest.raises(PartyLost):
        run(parts, mix_rows, 50, faults=[Fault("lose", "party-2", round=9)])


@pytest.mark.parametrize("at", [2, 12])
def test_when_a_node_leaves_the_others_agree(few, at):
    leaving = [Fault("kill", party="party-4", round=at)]
    options = {"topology": ("lattice", 4), "on_loss": "survivors", "faults": leaving}
    values, found, _ = run(few, mix_rows, None, **options)
    assert set(found.lost) == {"party-4"}
    assert np.ptp(values, axis=0).max() < 1e-9
    others = np.delete(stacked(few), 4, axis=0)
    if at == 2:  # it never took part
        np.testing.assert_allclose(values[0], others.mean(axis=0), atol=1e-9)
    assert np.all((values >= stacked(few).min(axis=0)) & (values <= stacked(few).max(axis=0)))


def test_arrays_of_different_shape_name_the_sender():
    odd = [np.ones((2, 3)), np.ones((2, 3)), np.ones((4, 3)), np.ones((2, 3))]
    with pytest.raises(MessageRefused, match="12 values came where 6") as caught:
        run(em.Partitioned(rows=odd), mix_rows, 3)
    assert caught.value.party == "party-2"


def test_a_federation_with_a_coordinator_is_refused(parts):
    with em.federation(parts) as fed, pytest.raises(TopologyError, match="need a graph"):
        fed.run(mix_rows, 3)


def test_one_node_is_its_own_average_and_two_meet_at_once():
    alone, _, _ = run(em.Partitioned(rows=[[[1.0, 2.0]]]), mix_rows, "enough")
    assert alone.tolist() == [[[1.0, 2.0]]]
    pair, _, n_mixes = run(em.Partitioned(rows=[[[1.0]], [[3.0]]]), mix_rows, "enough")
    assert (pair.ravel().tolist(), n_mixes) == ([2.0, 2.0], 1)


def test_mixing_ends_where_a_stated_tolerance_says(parts):
    """By gossip and by push-sum; a tree is exact, and takes none."""
    mean = stacked(parts).mean(axis=0)
    spread = np.abs(stacked(parts) - mean).max() * N
    for averaging in ("gossip", "push-sum"):
        counts = []
        for tolerance in (1e-12, 1e-9, 1e-6):
            values, _, n_mixes = run(parts, mix_rows, None, averaging=(averaging, tolerance))
            assert np.abs(values - mean).max() <= tolerance * spread
            with em.federation(parts, topology="ring", averaging=(averaging, tolerance)) as fed:
                counts.append(mixes_for(fed))
        assert counts[0] > counts[1] > counts[2] > counts[0] / 3
    for wrong in (("tree", 1e-6), ("gossip", 0.1), ("gossip", 0.0), ("gossip", "1e-6"), "mean"):
        with pytest.raises(TopologyError, match="averaging is"):
            em.federation(parts, topology="ring", averaging=wrong)


def test_a_fit_by_gossip_costs_less_with_a_tolerance_and_is_as_near_as_that():
    X = np.random.default_rng(0).normal(size=(120, 4)) * [3, 2, 1, 0.5]
    parts = em.split(X, 6, random_state=0)
    how = {"kernel": "rbf", "gamma": 0.05, "n_features": 20, "random_state": 0, "topology": "ring"}
    exact = em.GossipKPCA(2, averaging="gossip", **how).fit(parts)
    model = em.GossipKPCA(2, averaging=("gossip", 1e-6), **how)
    plan, report = em.plan(model, parts), model.fit(parts).report_
    np.testing.assert_allclose(model.eigenvalues_, exact.eigenvalues_, rtol=1e-5)
    assert (plan.floats_up, plan.rounds) == (report.floats_up, report.rounds)
    assert report.floats_up < 0.9 * exact.report_.floats_up
