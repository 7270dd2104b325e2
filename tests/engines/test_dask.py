"""Dask: the models and ledgers of the in-process engine, rows that stay, and workers that die.

The engine contract itself runs on Dask in test_contract.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from tests.engines import dask_cluster
from tests.engines.contract import SurveySetup, by_step, mix
from tests.engines.contract import survey as toy_survey
from threadpoolctl import threadpool_info, threadpool_limits

import eigenmesh as em
from eigenmesh.data.synthetic import gene_like
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import (
    InputError,
    MissingPartyShare,
    PartitionError,
    PartyLost,
    PolicyRefusal,
)
from eigenmesh.graphs.gossip_average import gossip_average
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import KINDS, Message
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.stages.count import survey
from eigenmesh.stages.gamma import RULES, bandwidth

distributed = pytest.importorskip("distributed", reason="pip install 'eigenmesh[dask]'")
da = pytest.importorskip("dask.array")
dask_engine = pytest.importorskip("eigenmesh.engines.dask")
dask_party = pytest.importorskip("eigenmesh.engines._dask_party")

CUTS = [0, 300, 500, 900]
X, _ = gene_like(n_samples=80, n_features=CUTS[-1], random_state=0)
WIDTHS = tuple(np.diff(CUTS).tolist())


@pytest.fixture(scope="module")
def client():
    return dask_cluster.client()


@pytest.fixture
def workers(client):
    """Addresses of workers that are alive: two, or three if none is being started anew."""
    client.wait_for_workers(2, timeout=30)
    return sorted(client.nthreads())


def columns(rows=slice(60), **options):
    return em.Partitioned(columns=[X[rows, a:b] for a, b in pairwise(CUTS)], **options)


def chunked(rows=slice(60)):
    return da.from_array(X[rows], chunks=(-1, WIDTHS))


def rows(n_parties=5):
    return em.split(X[:, :6], n_parties, by="rows", law="power", exponent=1.0, random_state=0)


def on_both(client, parts, *run, **options):
    """The same run on Dask and in process."""
    found = []
    for engine in ({"engine": "dask", "client": client}, {}):
        with em.federation(parts, **engine, **options) as fed:
            found.append(fed.run(*run))
    return found


def assert_same_ledger(one, other):
    assert (one.rounds, one.bytes) == (other.rounds, other.bytes)
    assert (one.floats_up, one.floats_down) == (other.floats_up, other.floats_down)
    assert by_step(one) == by_step(other)
    assert one.revealed() == other.revealed()


# Every protocol: the same model, the same ledger.


@pytest.mark.parametrize(
    "topology", ["star", "full", "ring", "grid", "random-regular", ("lattice", 2), nx.path_graph(6)]
)
def test_gossip_on_any_graph_is_that_of_the_in_process_engine(client, topology):
    here, there = on_both(client, rows(6), gossip_average, 4, topology=topology)
    for one, other in zip(here.value, there.value, strict=True):
        np.testing.assert_allclose(one.value, other.value, rtol=1e-8)
    assert_same_ledger(here.recording.ledger, there.recording.ledger)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("parts", [rows(), columns()], ids=["rows", "columns"])
def test_bandwidth_is_that_of_the_in_process_engine(client, parts, rule):
    here, there = on_both(client, parts, bandwidth, rule, 3)
    assert here.value.gamma == pytest.approx(there.value.gamma, rel=1e-8)
    assert_same_ledger(here.recording.ledger, there.recording.ledger)


@pytest.mark.parametrize("parts", [rows(), columns()], ids=["rows", "columns"])
def test_survey_is_that_of_the_in_process_engine(client, parts):
    here, there = on_both(client, parts, survey)
    assert repr(here.value) == repr(there.value)
    assert_same_ledger(here.recording.ledger, there.recording.ledger)


SETTINGS = [
    {"kernel": "linear"},
    {"kernel": "rbf", "gamma": "median"},
    {"kernel": "rbf", "gamma": "mean-distance", "fusion": "distance"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=["linear", "product", "distance"])
@pytest.mark.parametrize("source", ["array in chunks of columns", "federation"])
def test_one_shot_is_that_of_the_in_process_engine(client, tmp_path, settings, source):
    estimator = em.OneShotKPCA(3, **settings)
    expected = em.OneShotKPCA(3, **settings).fit(columns())
    if source == "federation":
        with em.federation(columns(), engine="dask", client=client) as fed:
            estimator.fit(fed)
            scores = estimator.transform(fed)
        np.testing.assert_allclose(scores, expected.transform(columns()), atol=1e-8)
    else:
        estimator.fit(chunked())
    np.testing.assert_allclose(estimator.eigenvalues_, expected.eigenvalues_, rtol=1e-8)
    np.testing.assert_allclose(estimator.eigenvectors_, expected.eigenvectors_, atol=1e-8)
    for name in ("floats_up", "floats_down", "bytes", "rounds", "by_step", "by_party", "reveals"):
        assert getattr(estimator.report_, name) == getattr(expected.report_, name)

    new = expected.transform(columns(slice(60, None)))
    estimator.save(tmp_path / "model.em", parties=True)
    for fitted in (estimator, em.load(tmp_path / "model.em")):
        for samples in (chunked(slice(60, None)), X[60:], columns(slice(60, None))):
            np.testing.assert_allclose(fitted.transform(samples), new, atol=1e-8)


@pytest.mark.parametrize("settings", SETTINGS, ids=["linear", "product", "distance"])
def test_fit_transform_of_a_dask_array(client, settings):
    expected = em.OneShotKPCA(3, **settings).fit_transform(columns())
    found = em.OneShotKPCA(3, **settings).fit_transform(chunked())
    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("settings", [{}, {"kernel": "rbf", "gamma": "median"}])
def test_diskpca_is_that_of_the_in_process_engine(client, settings):
    options = {"n_components": 3, "n_landmarks": 30, "random_state": 0, **settings}
    table, sizes = X[:, :30], (20, 35, 25)
    parts = em.Partitioned(rows=np.split(table, np.cumsum(sizes)[:-1]))
    expected = em.DisKPCA(**options).fit(parts)
    with em.federation(parts, engine="dask", client=client) as fed:
        found = [em.DisKPCA(**options).fit(fed)]
    found.append(em.DisKPCA(**options).fit(da.from_array(table, chunks=(sizes, -1))))
    for fitted in found:
        np.testing.assert_allclose(fitted.eigenvalues_, expected.eigenvalues_, rtol=1e-8)
        np.testing.assert_allclose(
            fitted.transform(table), expected.transform(table), rtol=1e-8, atol=1e-8
        )
        for name in ("floats_up", "floats_down", "bytes", "rounds", "by_step", "reveals"):
            assert getattr(fitted.report_, name) == getattr(expected.report_, name)


def test_array_of_one_chunk_is_what_the_estimator_needs(client):
    table = da.from_array(X[:, :30], chunks=-1)
    assert em.OneShotKPCA(3).fit(table).report_.parties == ("party-0",)
    assert em.DisKPCA(3, n_landmarks=30).fit(table).report_.parties == ("party-0",)


def test_plan_of_a_dask_array_computes_nothing(client):
    estimator = em.OneShotKPCA(3)
    plan, expected = em.plan(estimator, chunked()), em.plan(estimator, columns())
    assert plan == expected
    frame = chunked()[:, :300][chunked()[:, 0] > 0]
    with pytest.raises(InputError, match="compute_chunk_sizes"):
        em.plan(estimator, frame)


# Rows stay where they are, and in order.


def transfers(client):
    logs = client.run(
        lambda dask_worker: (
            len(dask_worker.transfer_incoming_log) + len(dask_worker.transfer_outgoing_log)
        )
    )
    return sum(logs.values())


def test_no_row_is_transferred(client, workers):
    held = client.persist(chunked())
    distributed.wait(held)
    homes = client.who_has(held)
    before = transfers(client)
    with em.federation(held, engine="dask", client=client) as fed:
        em.OneShotKPCA(3, kernel="rbf", gamma="median").fit(fed)
        places = dict(zip(sorted(homes), fed._engine._homes, strict=True))
        found = client.run(addresses_of_data)
    assert transfers(client) == before
    assert all(places[key] in homes[key] for key in homes)
    assert sum(map(len, found.values())) == len(WIDTHS)
    for address, pairs in found.items():
        for chunk, own in pairs:
            assert chunk == own, f"a copy was made at {address}"


def addresses_of_data(dask_worker):
    """Of the arrays that actors hold, and of the chunks that Dask holds, at one worker."""
    actors = dask_worker.state.actors.values()
    owned = sorted(actor._site.data.ctypes.data for actor in actors)
    chunks = sorted(v.ctypes.data for v in dask_worker.data.values() if isinstance(v, np.ndarray))
    return [(chunk, own) for chunk, own in zip(chunks, owned, strict=True)]


def test_rows_of_chunks_come_back_in_their_order(client):
    sizes = (7, 30, 3, 40)
    table = X[:, :3]
    chunks = da.from_array(table, chunks=(sizes, -1))
    with em.federation(chunks, engine="dask", client=client) as fed:
        assert fed.split == "rows"
        found = fed.run(toy_survey, SurveySetup()).value
    assert tuple(map(len, found.projections)) == sizes
    np.testing.assert_allclose(np.concatenate(found.projections), table @ table.mean(axis=0))


def test_partitions_of_a_dataframe_are_parties(client):
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    frame = dd.from_pandas(pd.DataFrame(X[:, :3], columns=list("abc")), npartitions=4)
    for source in (frame, frame * 2, client.persist(frame)):
        with em.federation(source, engine="dask", client=client) as fed:
            found = fed.run(toy_survey, SurveySetup()).value
        values = source.compute().to_numpy()
        np.testing.assert_allclose(np.concatenate(found.projections), values @ values.mean(axis=0))


def test_paths_are_opened_at_the_workers(client, workers, tmp_path, monkeypatch):
    paths = [tmp_path / f"{i}.npy" for i in range(3)]
    for path, part in zip(paths, columns().parts, strict=True):
        np.save(path, part)
    monkeypatch.setattr("eigenmesh.data.partitioned.read_table", None)  # in this process only
    place = {"client": client, "workers": workers[:2]}
    with em.federation(paths, engine="dask", split="columns", **place) as fed:
        assert fed._engine._homes == [workers[0], workers[1], workers[0]]
        found = em.OneShotKPCA(3).fit(fed).eigenvalues_
    np.testing.assert_allclose(found, em.OneShotKPCA(3).fit(columns()).eigenvalues_)


def written_rows(tmp_path, *orders):
    pd = pytest.importorskip("pandas")
    paths = [tmp_path / f"{i}.csv" for i in range(len(orders))]
    for path, order, rows in zip(paths, orders, np.array_split(X[:, :3], len(orders)), strict=True):
        pd.DataFrame(rows, columns=list("abc"))[list(order)].to_csv(path, index=False)
    return paths


def test_files_of_rows_at_the_workers_must_agree_on_their_columns(client, tmp_path):
    with em.federation(written_rows(tmp_path, "abc", "abc"), engine="dask", client=client) as fed:
        em.DisKPCA(2).fit(fed)
    for orders, words in ((("abc", "acb"), "order"), (("abc", "abc", "ab"), "other names")):
        with pytest.raises(PartitionError, match=words) as caught:
            em.federation(written_rows(tmp_path, *orders), engine="dask", client=client)
        assert caught.value.party == f"party-{len(orders) - 1}"
    silent = em.Policy(allow={"counts", "rows", "gram", "moments"})
    paths = written_rows(tmp_path, "abc", "acb")
    em.federation(paths, engine="dask", client=client, policies=silent).close()


def test_names_of_a_dask_frame_and_of_data_sent_to_workers_are_kept(client):
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    frame = pd.DataFrame(X[:, :3], columns=list("abc"))
    for source in (dd.from_pandas(frame, npartitions=3), em.split(frame, 3, random_state=0)):
        with em.federation(source, engine="dask", client=client) as fed:
            model = em.KernelPCA(2).fit(fed)
        assert set(model.party_feature_names_.values()) == {("a", "b", "c")}
        np.testing.assert_array_equal(
            model.transform(frame[["c", "a", "b"]]), model.transform(frame)
        )
        lazy = model.transform(dd.from_pandas(frame[["b", "c", "a"]], npartitions=2))
        np.testing.assert_allclose(lazy.compute(), model.transform(frame))


# What cannot be opened.


def test_missing_file_names_its_party_at_set_up(client, tmp_path):
    np.save(tmp_path / "a.npy", X)
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    with pytest.raises(PartitionError, match="'b.npy' is missing") as caught:
        em.federation(paths, engine="dask", client=client)
    assert caught.value.party == "party-1"


def test_unusable_chunk_names_its_party(client):
    bad = X.copy()
    bad[2, CUTS[1]] = np.nan
    with pytest.raises(PartitionError, match="row 2, column 0") as caught:
        em.OneShotKPCA(3).fit(da.from_array(bad, chunks=(-1, WIDTHS)))
    assert caught.value.party == "party-1"


def test_error_of_the_users_own_graph_is_the_users(client):
    broken = chunked().map_blocks(lambda block: block / {}["nothing"], dtype=float)
    with pytest.raises(KeyError, match="nothing"):
        em.OneShotKPCA(3).fit(broken)


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (da.ones((4, 4), chunks=2), {}, "2 × 2 chunks"),
        (da.ones(4, chunks=2), {}, "1 dimensions"),
        (columns(), {"client": "tcp://nowhere"}, "synchronous distributed.Client"),
        (columns(), {"workers": ["tcp://nowhere"]}, "tcp://nowhere"),
        (columns(), {"faults": [Fault("lose", party="nobody")]}, "'nobody'"),
        ("file.npy", {}, "a list of paths"),
        ([], {}, "a list of paths"),
        (columns(), {"engine": "in-process", "workers": ["a"]}, "for engine='dask'"),
        (columns(), {"engine": "flock"}, "'dask'"),
    ],
)
def test_sources_and_options_that_do_not_fit_are_refused(client, source, options, words):
    with pytest.raises(InputError, match=words):
        em.federation(source, **{"engine": "dask", "client": client, **options})


def test_without_a_client_the_remedy_is_told(client, monkeypatch):
    def nobody():
        raise ValueError("No global client found")

    monkeypatch.setattr(dask_engine, "get_client", nobody)
    with pytest.raises(InputError, match="distributed.Client"):
        em.OneShotKPCA(3).fit(chunked())


def test_rows_are_refused_where_columns_are_needed(client):
    with pytest.raises(InputError, match="needs columns"):
        em.OneShotKPCA(3).fit(da.from_array(X, chunks=(40, -1)))


# What parties keep.


def test_policy_of_the_fit_still_holds_when_new_samples_come(client):
    policies = [em.Policy(allow=KINDS - {"scores"}), None, None]
    with em.federation(columns(policies=policies), engine="dask", client=client) as fed:
        kpca = em.OneShotKPCA(3).fit(fed)
        assert "party-0" in em.plan(em.OneShotKPCA(3, kernel="rbf", gamma="median"), fed).parties
    with pytest.raises(PolicyRefusal) as caught:
        kpca.transform(chunked(slice(60, None)))
    assert caught.value.party == "party-0"


def test_policy_of_a_site_is_not_replaced_from_the_client(client):
    strict = em.Policy(allow={"counts"})
    options = {"engine": "dask", "client": client, "policies": [strict, None, None]}
    with em.federation(chunked(), **options) as fed:
        site = fed.local_sites()["party-0"]
        with pytest.raises(InputError, match="'party-0' is its site's own"):
            site.policy = em.Policy()
        site.take_over(em.Policy(allow=KINDS - {"scores"}))
        with pytest.raises(PolicyRefusal) as caught:
            em.OneShotKPCA(3).fit(fed)
    assert caught.value.party == "party-0"


def test_share_that_went_with_its_client_is_missed_by_name(client):
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        with em.federation(chunked(), engine="dask", client=other) as fed:
            kpca = em.OneShotKPCA(3).fit(fed)
    with pytest.raises(MissingPartyShare) as caught:
        kpca.transform(X[60:])
    assert caught.value.party == "party-0"


# Only bytes travel after set-up.


def test_nothing_but_bytes_travels_after_set_up(monkeypatch):
    sent = []

    def recorded(value, *args, **kwargs):
        sent.append(type(value))
        return to_serialize(value, *args, **kwargs)

    to_serialize = distributed.protocol.to_serialize
    quiet = {**dask_cluster.QUIET, "processes": False}
    with distributed.LocalCluster(n_workers=2, **quiet) as cluster:
        with distributed.Client(cluster, set_as_default=False) as client:
            with em.federation(rows(), engine="dask", client=client, topology="ring") as fed:
                for place in ("distributed.actor", "distributed.worker", dask_party.__name__):
                    monkeypatch.setattr(f"{place}.to_serialize", recorded)
                fed.run(gossip_average, 3)
                fed.run(survey)
    assert len(sent) > 50
    assert set(sent) == {bytes}


def test_few_replies_are_outstanding(client, monkeypatch):
    ahead = []
    with em.federation(rows(20), engine="dask", client=client) as fed:
        engine = fed._engine
        start, started, taken = engine._start, [], []
        monkeypatch.setattr(engine, "_start", lambda work: started.append(1) or start(work))
        call = engine.call

        def counted(requests, timeout):
            for reply in call(requests, timeout):
                ahead.append(len(started) - len(taken))
                taken.append(1)
                yield reply

        monkeypatch.setattr(engine, "call", counted)
        fed.run(survey)
    assert max(ahead) <= 8  # of 20 parties


# Workers that die.


class MortalSetup(Message, reveals=None):
    """Whose process is to die at which of its calls of which step."""

    culprit: str = ""
    at: int = 0
    step: str = ""


class Tally(Message, reveals="counts"):
    """Calls so far."""

    calls: int


class Mortal(Party):
    """Counts its calls, until its process is killed."""

    Setup = MortalSetup
    state = ("calls", "rounds")

    def __init__(self, site, setup: MortalSetup) -> None:
        super().__init__(site, setup)
        self.calls = 0
        self.rounds = 0

    def _live(self, name: str, count: int) -> None:
        s = self.setup
        if (s.culprit, s.step, s.at) == (self.site.name, name, count):
            os.kill(os.getpid(), signal.SIGKILL)

    @step
    def tally(self) -> Tally:
        self.calls += 1
        self._live("tally", self.calls)
        return Tally(self.calls)

    @step
    def offer(self) -> Tally:
        self._live("offer", self.rounds + 1)
        return Tally(self.rounds)

    @step
    def take(self, received: dict[int, Tally]) -> None:
        self._live("take", self.rounds + 1)
        assert all(other.calls == self.rounds for other in received.values())
        self.rounds += 1

    @step
    def tell(self) -> Tally:
        return Tally(self.rounds)


@protocol("mortal-star", roles=(Mortal,))
def star(parties: Federation, setup: MortalSetup) -> list[int]:
    parties.enlist(Mortal, setup)
    return [sum(r.calls for r in parties.ask(Mortal.tally)) for _ in range(3)]


@protocol("mortal-graph", roles=())
def graph(parties: Federation, setup: MortalSetup) -> list[int]:
    parties.enlist(Mortal, setup)
    parties.exchange(Mortal.offer, Mortal.take, times=3)
    return [r.calls for r in parties.ask(Mortal.tell)]


VICTIM = "party-1"


def on_two_workers(client, workers, **options):
    """Four parties, the victim alone on its worker."""
    dealt = [workers[0], workers[1], workers[0], workers[0]]
    place = {"engine": "dask", "client": client, "workers": dealt}
    return em.federation(rows(4), timeout=20, **place, **options)


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_worker_killed_in_a_step_is_a_lost_party(client, workers, on_loss, at):
    started = time.monotonic()
    with on_two_workers(client, workers, on_loss=on_loss) as fed:
        if on_loss == "raise":
            with pytest.raises(PartyLost, match=f"'{VICTIM}' is lost: its Dask worker") as caught:
                fed.run(star, MortalSetup(VICTIM, at, "tally"))
            assert caught.value.party == VICTIM
        else:
            found = fed.run(star, MortalSetup(VICTIM, at, "tally"))
            assert found.value == [r * (4 if r < at else 3) for r in (1, 2, 3)]
            assert set(found.lost) == {VICTIM}
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(("where", "at"), [("offer", 1), ("offer", 2), ("offer", 3), ("take", 2)])
@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_worker_killed_in_an_exchange_leaves_nobody_ahead(client, workers, on_loss, where, at):
    started = time.monotonic()
    with on_two_workers(client, workers, on_loss=on_loss, topology="full") as fed:
        if on_loss == "raise":
            with pytest.raises(PartyLost, match=f"'{VICTIM}'") as caught:
                fed.run(graph, MortalSetup(VICTIM, at, where))
            assert caught.value.party == VICTIM
        else:
            found = fed.run(graph, MortalSetup(VICTIM, at, where))
            assert found.value == [3] * 3
            assert set(found.lost) == {VICTIM}
    assert time.monotonic() - started < 10


def kill(client, address, number=signal.SIGKILL):
    os.kill(client.run(os.getpid, workers=[address])[address], number)


def test_worker_that_the_nanny_restarts_does_not_bring_back_its_party(client, workers):
    with on_two_workers(client, workers) as fed:
        assert fed.run(star, MortalSetup()).value == [4, 8, 12]
        kill(client, workers[1])
        client.wait_for_workers(3, timeout=30)
        deadline = time.monotonic() + 30
        while workers[1] in client.nthreads() or len(client.nthreads()) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises(PartyLost, match=VICTIM):
                fed.run(star, MortalSetup())
            assert time.monotonic() - started < 2


def test_fit_goes_on_without_a_killed_worker_and_the_report_tells(client, workers):
    place = {"engine": "dask", "client": client, "workers": workers}
    with em.federation(columns(), on_loss="survivors", timeout=20, **place) as fed:
        kill(client, workers[1])
        kpca = em.OneShotKPCA(3).fit(fed)
    expected = em.OneShotKPCA(3).fit(columns().select(["party-0", "party-2"]))
    np.testing.assert_allclose(kpca.eigenvalues_, expected.eigenvalues_, rtol=1e-8)
    assert kpca.report_.parties == ("party-0", "party-2")
    assert set(kpca.report_.lost) == {VICTIM}
    assert f"without {VICTIM}" in str(kpca.report_)


@contextmanager
def frozen(client, address):
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(("topology", "timeout"), [(None, 1.0), ("ring", 6.0)])
def test_frozen_worker_is_lost_within_the_timeout(client, workers, topology, timeout):
    dealt = [workers[0], workers[1], workers[0]]
    place = {"engine": "dask", "client": client, "workers": dealt, "topology": topology}
    protocol = star if topology is None else graph
    with em.federation(rows(3), timeout=timeout, **place) as fed:
        with frozen(client, workers[1]):
            started = time.monotonic()
            with pytest.raises(PartyLost, match=VICTIM):
                fed.run(protocol, MortalSetup())
            assert time.monotonic() - started < timeout + 8  # an exchange has 2.5 timeouts


def test_many_parties_at_a_frozen_worker_are_waited_for_once(client, workers):
    """More than are asked at once."""
    dealt = [workers[0], *([workers[1]] * 19)]
    place = {"engine": "dask", "client": client, "workers": dealt, "on_loss": "survivors"}
    with em.federation(rows(20), timeout=3.0, **place) as fed:
        with frozen(client, workers[1]):
            started = time.monotonic()
            found = fed.run(star, MortalSetup())
            assert time.monotonic() - started < 20  # one by one, eight at once: three timeouts each
    assert found.parties == ("party-0",)
    assert all("does not answer" in words for words in found.lost.values())


def test_frozen_worker_is_named_when_a_federation_is_opened(client, workers):
    place = {"engine": "dask", "client": client, "workers": workers[:2]}
    with frozen(client, workers[1]):
        with pytest.raises(PartyLost, match="does not answer within 1 s") as caught:
            em.federation(rows(3), timeout=1.0, **place)
    assert caught.value.party == VICTIM


@pytest.mark.parametrize("topology", [None, "ring"])
def test_client_that_is_closed_meanwhile_is_an_error_and_no_hang(client, topology):
    protocol = star if topology is None else graph
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        fed = em.federation(rows(3), engine="dask", client=other, topology=topology, timeout=2)
    started = time.monotonic()
    with pytest.raises(PartyLost):
        fed.run(protocol, MortalSetup())
    assert time.monotonic() - started < 10
    fed.close()


# Late, repeated and early messages between neighbours.


def test_message_of_a_late_neighbour_is_never_taken_for_a_later_round(client):
    """Its round is repeated without it while its message is still on the way."""
    parts = rows(4)
    faults = [Fault("delay", party=VICTIM, round=2, seconds=1.5)]
    place = {"engine": "dask", "client": client, "topology": "full"}
    with em.federation(parts, timeout=1.0, on_loss="survivors", faults=faults, **place) as fed:
        found = fed.run(gossip_average, 3)
    start = np.array([part.mean(axis=0) for part in parts.parts])
    survivors = nx.complete_graph([0, 2, 3])
    survivors.add_node(1)
    expected = mix(mix(start, nx.complete_graph(4), 1), survivors, 2)
    np.testing.assert_allclose([r.value for r in found.value], expected[[0, 2, 3]], rtol=1e-12)
    assert set(found.lost) == {VICTIM}


def test_post_keeps_what_is_early_drops_what_is_late_and_takes_the_first_of_two():
    import asyncio

    async def scenario():
        post = dask_party._NeighbourPost()
        post.take(2, 7, b"early")
        post.take(1, 7, b"first")
        post.take(1, 7, b"second")
        post.take(1, 8, b"")  # says that nothing will come
        deadline = asyncio.get_running_loop().time() + 5
        one = await post.collect(1, {7, 8}, deadline)
        post.take(1, 8, b"late")
        two = await post.collect(2, {7, 8}, asyncio.get_running_loop().time() + 0.05)
        return one, two, post._boxes

    assert asyncio.run(scenario()) == ({7: b"first"}, {7: b"early"}, {})


# The end, and what surrounds the work.


def ours(dask_worker):
    threads = [t.name for t in threading.enumerate() if t.name == "eigenmesh-party"]
    return [*dask_worker.state.actors, *threads]


def keys_of_ours(client):
    """Keys that the scheduler knows; models of other tests may keep their shares alive."""
    keys = client.run_on_scheduler(lambda dask_scheduler: [str(k) for k in dask_scheduler.tasks])
    return {key for key in keys if "eigenmesh" in key}


def left_of(client, mine):
    """Which of these keys the scheduler or a worker still holds, and our idle threads."""
    held = {str(key) for found in client.run(ours).values() for key in found}
    return mine & (keys_of_ours(client) | held) | held & {"eigenmesh-party"}


def test_close_leaves_the_cluster_without_our_actors_and_otherwise_alone(client):
    client.wait_for_workers(3, timeout=30)
    pids, before = client.run(os.getpid), keys_of_ours(client)
    with em.federation(rows(), engine="dask", client=client, topology="ring") as fed:
        fed.run(gossip_average, 2)
        assert sum(map(len, client.run(ours).values())) >= 5
        mine = keys_of_ours(client) - before
    assert len(mine) >= 5
    deadline = time.monotonic() + 10
    while left_of(client, mine) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left_of(client, mine)
    assert client.run(os.getpid) == pids
    with pytest.raises(PartyLost, match="closed"):
        fed.run(gossip_average, 2)
    fed.close()


class Threads(Message, reveals="counts"):
    """Threads that BLAS may use."""

    n: int


class ThreadCounter(Party):
    """Looks at what its worker's BLAS may do."""

    Setup = MortalSetup
    state = ()

    @step
    def count_threads(self) -> Threads:
        """The most that any BLAS library may use."""
        return Threads(_threads_now())


@protocol("dask-threads", roles=(ThreadCounter,))
def count_threads(parties: Federation, setup: MortalSetup) -> list[int]:
    parties.enlist(ThreadCounter, setup)
    return [reply.n for reply in parties.ask(ThreadCounter.count_threads)]


def test_steps_run_with_one_blas_thread(client):
    client.run(_allow_two_threads)
    with em.federation(rows(), engine="dask", client=client) as fed:
        assert fed.run(count_threads, MortalSetup()).value == [1] * 5
    assert set(client.run(_threads_now).values()) == {2}


def _allow_two_threads() -> None:
    threadpool_limits(2, user_api="blas")


def _threads_now() -> int:
    return max(p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas")


EXAMPLE = Path(__file__).parents[2] / "examples" / "dask_columns.py"


def test_example_runs_and_leaves_no_process_behind():
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLE)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "equal to the pooled answer: True" in out
    deadline = time.monotonic() + 10  # init may take a moment to bury what has ended
    while time.monotonic() < deadline and process_group_exists(process.pid):
        time.sleep(0.1)
    assert not process_group_exists(process.pid)


def process_group_exists(number):
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_fit_on_a_cluster_with_tls(tmp_path):
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    subject = ["-subj", "/CN=localhost", "-days", "2", "-keyout", key, "-out", certificate]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject]
    subprocess.run(command, check=True, capture_output=True)
    files = {
        f"tls_{role}_{kind}": path
        for role in ("scheduler", "worker", "client")
        for kind, path in (("key", key), ("cert", certificate))
    }
    security = distributed.Security(tls_ca_file=certificate, require_encryption=True, **files)
    options = {"n_workers": 2, "security": security, "protocol": "tls", **dask_cluster.QUIET}
    with distributed.LocalCluster(**options) as cluster:
        with distributed.Client(cluster, security=security, set_as_default=False) as client:
            assert all(address.startswith("tls://") for address in client.nthreads())
            with em.federation(columns(), engine="dask", client=client) as fed:
                found = em.OneShotKPCA(3).fit(fed).eigenvalues_
            with em.federation(rows(), engine="dask", client=client, topology="ring") as fed:
                assert len(fed.run(gossip_average, 2).value) == 5
    np.testing.assert_allclose(found, em.OneShotKPCA(3).fit(columns()).eigenvalues_)
