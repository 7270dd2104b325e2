"""Tests for the ranks of one MPI job: each runs all of them, in step with the others."""

from __future__ import annotations

import os
import re
import runpy
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import networkx as nx
import numpy as np
import pytest
from mpi4py import MPI
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.preprocessing import scale
from tests.engines.contract import (
    NAMES,
    Surveyor,
    SurveySetup,
    by_step,
    run,
    some_rows,
    survey,
)
from threadpoolctl import threadpool_info

import eigenmesh as em
from eigenmesh.engines import _mpi_post, mpi
from eigenmesh.errors import FederationError, InputError, PartitionError, PartyLost
from eigenmesh.estimators.party_values import AtSite
from eigenmesh.graphs.gossip_average import gossip_average
from eigenmesh.runtime.message import Floats, Message, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.stages.count import survey as survey_sites
from eigenmesh.stages.gamma import RULES, bandwidth

COMM = MPI.COMM_WORLD
RANK = COMM.rank
ROOT = Path(__file__).parents[3]
on_mpi = {"engine": "mpi"}


def some_columns(n_samples: int = 40, seed: int = 0) -> em.Partitioned:
    rng = np.random.default_rng(seed)
    widths = [3, 6, 4, 5, 7]
    factors = rng.normal(size=(n_samples, 3))
    columns = [
        factors @ rng.normal(size=(3, d)) + 0.3 * rng.normal(size=(n_samples, d)) for d in widths
    ]
    return em.Partitioned(columns=columns, names=list(NAMES))


def totals(ledger: Any) -> tuple[Any, ...]:
    return ledger.rounds, ledger.bytes, ledger.floats_up, ledger.floats_down, by_step(ledger)


def assert_close(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8 * np.max(np.abs(other)))


# The same model and the same ledger as in process.


def both(source: Any, protocol: Any, *args: Any, **options: Any) -> tuple[Any, Any]:
    """The values of a run on MPI and in process, whose ledgers must be equal."""
    runs = []
    for engine in ("mpi", "in-process"):
        with em.federation(source, engine=engine, **options) as fed:
            runs.append(fed.run(protocol, *args))
    here, there = runs
    assert totals(here.recording.ledger) == totals(there.recording.ledger)
    assert here.recording.ledger.revealed() == there.recording.ledger.revealed()
    assert (here.parties, here.stop_reason) == (there.parties, there.stop_reason)
    return here.value, there.value


@pytest.mark.parametrize("topology", ["ring", "star", "grid", "full", ("lattice", 2)])
def test_gossip_average(topology):
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(1, 5))
    topology = graph if topology == "grid" else topology
    here, there = both(some_rows(), gossip_average, 9, topology=topology)
    for one, other in zip(here, there, strict=True):
        assert_close(one.value, other.value)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("source", [some_rows, some_columns])
def test_bandwidth(source, rule):
    here, there = both(source(), bandwidth, rule, 3)
    assert_close(here.gamma, there.gamma)
    assert here.how == there.how


@pytest.mark.parametrize("source", [some_rows, some_columns])
def test_survey(source):
    here, there = both(source(), survey_sites)
    assert [(r.n_rows, r.n_columns) for r in here] == [(r.n_rows, r.n_columns) for r in there]
    assert here.parties == NAMES


MODELS = {
    "linear": {"kernel": "linear"},
    "rbf product": {"kernel": "rbf", "gamma": "median", "local_rank": 12},
    "rbf distance": {"kernel": "rbf", "gamma": "scale", "fusion": "distance"},
    "not centred": {"kernel": "rbf", "gamma": 0.05, "center": False},
}


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_one_shot_model_and_the_scores_of_new_samples(options):
    columns, new = some_columns(), some_columns(11, seed=1)
    models, scores = [], []
    for engine in ("mpi", "in-process"):
        model = em.OneShotKPCA(n_components=3, **options)
        with em.federation(columns, engine=engine) as fed:
            models.append(model.fit(fed))
        with em.federation(new, engine=engine) as fed:
            scores.append(model.transform(fed))
    here, there = models
    for name in ("eigenvalues_", "eigenvectors_", "total_variance_", "residual_"):
        assert_close(getattr(here, name), getattr(there, name))
    assert_close(*scores)
    assert (here.gamma_ is None) == (there.gamma_ is None)
    for report in ("report_", "transform_report_"):
        one, other = getattr(here, report), getattr(there, report)
        for field in ("floats_up", "floats_down", "bytes", "rounds", "by_step", "by_party"):
            assert getattr(one, field) == getattr(other, field)
        assert one.reveals == other.reveals
    assert list(here._shares) == [NAMES[RANK]]  # the others' never came here


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_diskpca_model(kernel):
    rng = np.random.default_rng(1)
    rows = em.Partitioned(rows=[rng.normal(size=(20 + i, 6)) for i in range(5)], names=list(NAMES))
    models = []
    for engine in ("mpi", "in-process"):
        with em.federation(rows, engine=engine) as fed:
            model = em.DisKPCA(n_components=3, kernel=kernel, n_landmarks=30, random_state=0)
            models.append(model.fit(fed))
    here, there = models
    new = rng.normal(size=(7, 6))
    assert_close(here.eigenvalues_, there.eigenvalues_)
    assert_close(here.transform(new), there.transform(new))
    for field in ("floats_up", "floats_down", "bytes", "rounds", "by_step", "reveals"):
        assert getattr(here.report_, field) == getattr(there.report_, field)


REGRESSIONS = {  # split, topology, options, and the method that is then taken
    "landmarks": ("rows", None, {}, "diskpca"),
    "sketches": ("rows", None, {"method": "sketching-pca"}, "sketching-pca"),
    "graph": ("rows", "full", {}, "gossip"),
    "columns": ("columns", None, {}, "vfed-akpca"),
}


def targets_and_rows(by: str) -> tuple[em.Partitioned, Any, Any]:
    """Parts, the targets that this rank knows, and all of them: of columns rank 0 knows all."""
    X, y = load_diabetes(return_X_y=True)
    X, y = scale(X)[:120], y[:120]
    parts = em.split(X, COMM.size, by=by, random_state=0)
    if by == "columns":
        return parts, y if RANK == 0 else None, y
    targets = [y[own] for own in parts.order]
    return parts, [own if i == RANK else None for i, own in enumerate(targets)], targets


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize(("by", "topology", "options", "method"), REGRESSIONS.values())
def test_regression_with_its_own_targets_only(by, topology, options, method):
    parts, own, known = targets_and_rows(by)
    options = {"gamma": 0.05, "random_state": 0, **options}
    with em.federation(parts, topology=topology, **on_mpi) as fed:
        model = em.KernelPCRegressor(3, **options).fit(fed, own)
    alone = em.KernelPCRegressor(3, topology=topology, **options).fit(parts, known)
    assert model.method_.startswith(method)
    np.testing.assert_allclose(model.coef_, alone.coef_, rtol=1e-8)
    assert model.report_.floats_up == alone.report_.floats_up


def test_targets_of_another_number_are_refused_at_every_rank():
    parts, own, _ = targets_and_rows("columns")
    with em.federation(parts, **on_mpi) as fed:
        with pytest.raises(em.EigenmeshError, match="the parties have 120 samples"):
            em.KernelPCRegressor(3, gamma=0.05).fit(fed, None if own is None else own[:-1])


CLUSTERINGS = {  # an estimator, a topology, and whether rows have weights
    "front door": (em.KernelKMeans(4, accuracy=0.05, random_state=0), None, False),
    "weighted": (em.KernelKMeans(4, accuracy=0.05, random_state=0), None, True),
    "fed": (em.FedKernelKMeans(4, n_features=30, n_iterations=4, random_state=0), None, False),
    "graph": (
        em.KernelKMeans(3, gamma=0.05, n_landmarks=40, random_state=0, n_init=2, max_iter=2),
        "star",  # some nodes are not linked
        True,
    ),
}


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
@pytest.mark.parametrize(("estimator", "topology", "weighted"), CLUSTERINGS.values())
def test_every_rank_has_the_clusters_and_its_own_labels_alone(estimator, topology, weighted):
    digits = load_digits().data[:120] / 16
    parts = em.split(digits, COMM.size, law="power", exponent=0.5, random_state=0)
    weights = {"sample_weight": [np.linspace(0.5, 2, n) for n, _ in parts.shapes]}
    models = []
    for engine in ("mpi", "in-process"):
        with em.federation(parts, engine=engine, topology=topology) as fed:
            models.append(clone(estimator).fit(fed, **weights if weighted else {}))
    here, there = models
    np.testing.assert_allclose(here.cluster_centers_, there.cluster_centers_, atol=1e-8)
    for i, (own, known) in enumerate(zip(here.labels_, there.labels_, strict=True)):
        assert isinstance(own, AtSite) == (i != RANK)
        if i == RANK:
            np.testing.assert_array_equal(own, known)
    one, other = here.report_, there.report_
    if topology is None:
        for labels, known in zip(here.predict(parts), there.labels_, strict=True):
            np.testing.assert_array_equal(labels, known)
        for field in ("floats_up", "floats_down", "bytes", "rounds", "by_step", "reveals"):
            assert getattr(one, field) == getattr(other, field)
    else:  # models of other nodes may do the telling where this process has none
        steps = dict(one.by_step)
        told = [steps.pop(step) for step in list(steps) if step.startswith("ModelHolder")]
        assert steps == other.by_step
        assert one.floats_up - sum(told) == other.floats_up


# The examples, as they stand.


def told_by(example: str, capsys: Any) -> str:
    runpy.run_path(str(ROOT / "examples" / example), run_name="__main__")
    return capsys.readouterr().out


def test_example_of_columns(capsys):
    said = told_by("mpi_columns.py", capsys)
    assert f"rank {RANK} has its own share" in said
    assert said.count("same scores as in one process: True") == (RANK == 0)


def test_example_of_a_graph(capsys):
    """Rank to rank, each rank with its own node's model."""
    said = told_by("mpi_graph.py", capsys)
    agreement = re.search(rf"rank {RANK} has the model of 'party-{RANK}'; .*: (\d\.\d+)", said)
    assert agreement is not None
    assert float(agreement[1]) > 0.99
    assert said.count("same scores as in one process: True") == (RANK == 0)


# Data are opened at their own rank.


def own_folder() -> Path:
    return Path(os.environ["EIGENMESH_TEST_FOLDER"]) / "data"


@pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")
def test_each_rank_opens_only_its_own_file():
    columns = some_columns()
    paths = [own_folder() / f"{name}.npy" for name in NAMES]
    np.save(paths[RANK], columns.part(RANK))
    touched: list[str] = []
    watching = True

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if watching and event in ("open", "os.stat") and str(args[0]).startswith(str(own_folder())):
            touched.append(Path(args[0]).name)

    sys.addaudithook(watch)
    with em.federation(paths, split="columns", **on_mpi) as fed:
        found = em.OneShotKPCA(n_components=2).fit(fed)
    watching = False
    assert set(touched) == {f"{NAMES[RANK]}.npy"}
    central = em.OneShotKPCA(n_components=2).fit(columns)
    assert_close(found.eigenvalues_, central.eigenvalues_)


def test_file_that_is_missing_at_its_rank_names_the_party():
    paths = [own_folder() / f"{name}.npy" for name in NAMES]
    paths[2] = own_folder() / "nowhere.npy"
    np.save(own_folder() / f"{NAMES[RANK]}.npy", some_columns().part(RANK))
    with em.federation(paths, split="columns", **on_mpi) as fed:
        with pytest.raises(PartitionError, match=r"nowhere\.npy") as caught:
            em.OneShotKPCA(n_components=2).fit(fed)
    assert caught.value.party == "party-2"


def test_files_of_rows_must_agree_on_their_columns():
    for order, words in ((["b", "a"], "another order"), (["a", "c"], "other names")):
        folder = own_folder() / words.split()[0]
        folder.mkdir(exist_ok=True)
        paths = [folder / f"{name}.csv" for name in NAMES]
        own = order if RANK == 1 else ["a", "b"]
        lines = [own, *([str(RANK + row), str(row * row)] for row in range(9))]
        paths[RANK].write_text("\n".join(map(",".join, lines)))
        with pytest.raises(PartitionError, match=words) as caught:
            em.federation(paths, split="rows", **on_mpi)
        assert caught.value.party == "party-1"


# A party that hangs, at each round in turn, wherever it is.


SOUTH, NORTH = NAMES[2], NAMES[0]  # rank 0 hosts the latter, and must not hang with it
HANG = {"manner": "sleep", "seconds": 5.0}


@pytest.mark.parametrize(("culprit", "at"), [(SOUTH, 1), (SOUTH, 2), (SOUTH, 3), (NORTH, 2)])
def test_hung_party_is_named_at_every_rank_in_time(culprit, at):
    with em.federation(some_rows(), timeout=1.0, **on_mpi) as fed:
        started = time.monotonic()
        with pytest.raises(PartyLost, match=f"'{culprit}'") as caught:
            fed.run(survey, SurveySetup(culprit, at=at, **HANG))
    assert time.monotonic() - started < 4.0
    assert caught.value.party == culprit


@pytest.mark.parametrize(
    ("culprit", "at", "on_loss"),
    [(SOUTH, 1, "raise"), (SOUTH, 3, "survivors"), (NORTH, 1, "survivors"), (NORTH, 3, "raise")],
)
def test_party_that_hangs_in_an_exchange(culprit, at, on_loss):
    def coordinate(parties):
        parties.enlist(Surveyor, SurveySetup(culprit, at=at, **HANG))
        parties.exchange(Surveyor.offer_count, Surveyor.take_counts, times=4)
        return parties.parties

    options = {"topology": "full", "timeout": 1.0, "on_loss": on_loss}
    with em.federation(some_rows(), **options, **on_mpi) as fed:
        started = time.monotonic()
        if on_loss == "raise":
            with pytest.raises(PartyLost, match=f"'{culprit}'"):
                run(fed, coordinate)
        else:
            found = run(fed, coordinate)
            assert found.value == tuple(name for name in NAMES if name != culprit)
            assert set(found.lost) == {culprit}
        assert time.monotonic() - started < 4.0


def test_every_rank_has_the_survivors_model_also_that_of_the_node_that_left():
    rows = [block + i for i, block in enumerate(np.random.default_rng(0).normal(size=(5, 20, 4)))]
    options = {"topology": "full", "on_loss": "survivors"}

    def fitted(here, **more):
        parts = em.Partitioned(rows=[rows[i] for i in here], names=[NAMES[i] for i in here])
        kpca = em.GossipKPCA(2, kernel="rbf", gamma="median", n_features=20, random_state=0)
        with em.federation(parts, **options, **more) as fed:
            return kpca.fit(fed)

    gone = [em.Fault("kill", SOUTH, round=14)]  # gamma has been found with its rows by then
    model = fitted(range(5), faults=gone, **on_mpi)
    assert set(model.report_.lost) == {SOUTH}
    alone = fitted([i for i in range(5) if NAMES[i] != SOUTH])
    assert_close(model.eigenvalues_, alone.eigenvalues_)
    assert_close(model.transform(rows[0]), alone.transform(rows[0]))


def test_late_reply_of_a_hung_party_is_dropped():
    with em.federation(some_rows(), timeout=0.5, **on_mpi) as fed:
        with pytest.raises(PartyLost):
            fed.run(survey, SurveySetup(NAMES[3], "sleep", 2, seconds=1.0))
        time.sleep(1.2)  # it replies now, to nobody
        found, again = fed.run(survey, SurveySetup()), fed.run(survey, SurveySetup())
    assert found.parties == NAMES
    np.testing.assert_array_equal(found.value.mean, again.value.mean)


# How frames travel.


class Length(Message, reveals=None):
    """How many floats are wanted."""

    n: int


class Echo(Message, reveals="moments"):
    """Some floats."""

    values: Annotated[Floats, Shape("n")]


class Threads(Message, reveals="counts"):
    """Threads that BLAS may use."""

    n: int


class Speaker(Party):
    """Sends as much as it is asked for."""

    Setup = Length
    state = ("heard",)

    def __init__(self, site: Any, setup: Length) -> None:
        super().__init__(site, setup)
        self.heard = np.zeros(0)

    @step
    def speak(self, length: Length) -> Echo:
        """A vector that tells who sent it."""
        return Echo(np.arange(length.n) + float(self.site.index))

    @step
    def offer(self) -> Echo:
        """The same to neighbours."""
        return Echo(np.arange(self.setup.n) + float(self.site.index))

    @step
    def take(self, received: dict[int, Echo]) -> None:
        """Their sum."""
        self.heard = np.asarray(sum(other.values for other in received.values()))

    @step
    def tell(self) -> Echo:
        """What it heard."""
        return Echo(self.heard)

    @step
    def count_threads(self) -> Threads:
        """The most that any BLAS library may use."""
        return Threads(max(p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"))


@protocol("mpi-speech", roles=(Speaker,))
def speech(parties: Any, n: int) -> Any:
    """To the coordinator, then around the ring."""
    parties.enlist(Speaker, Length(n))
    told = parties.ask(Speaker.speak, Length(n))
    parties.exchange(Speaker.offer, Speaker.take, times=2)
    return told, parties.ask(Speaker.tell)


@pytest.mark.parametrize(("n", "longest"), [(0, 1 << 30), (200_000, 1 << 30), (3_000, 999)])
def test_messages_of_any_length_arrive_whole(monkeypatch, n, longest):
    monkeypatch.setattr(_mpi_post, "_LONGEST", longest)
    with em.federation(some_rows(), topology="ring", **on_mpi) as fed:
        told, heard = fed.run(speech, n).value
    for i in range(len(NAMES)):
        near = (i - 1) % 5 + (i + 1) % 5
        np.testing.assert_array_equal(told[i].values, np.arange(n) + i)
        np.testing.assert_array_equal(heard[i].values, 2 * np.arange(n) + near)


def test_envelope_of_an_earlier_turn_is_dropped_and_one_of_a_later_turn_waits():
    frames = [_mpi_post.Frame(_mpi_post.ENVELOPE, 0, turn, b"") for turn in (3, 4, 6)]

    class Post:
        def receive(self, source, tag):
            return frames.pop(0) if frames else None

    station = mpi._Station(None, Post(), None)
    assert station._envelope(1, 4).turn == 4
    assert station._envelope(1, 5) is None
    assert station._envelope(1, 6).turn == 6
    assert frames == []


def test_steps_run_with_one_blas_thread():
    def coordinate(parties):
        parties.enlist(Speaker, Length(1))
        return [reply.n for reply in parties.ask(Speaker.count_threads)]

    with em.federation(some_rows(), **on_mpi) as fed:
        assert list(run(fed, coordinate).value) == [1] * len(NAMES)


def test_messages_of_the_user_are_not_disturbed():
    before, after = (RANK - 1) % COMM.size, (RANK + 1) % COMM.size
    sent = COMM.Isend(np.full(3, float(RANK)), after, tag=1)
    with em.federation(some_rows(), topology="ring", **on_mpi) as fed:
        fed.run(gossip_average, 5)
    received = np.empty(3)
    COMM.Recv(received, MPI.ANY_SOURCE, MPI.ANY_TAG)
    sent.Wait()
    np.testing.assert_array_equal(received, before)


def test_the_suite_would_notice_a_pickle():
    with pytest.raises(AssertionError, match="pickled"):
        COMM.bcast("something", root=RANK)


# Ranks that do not do the same.


def test_as_many_parties_as_ranks_are_needed():
    parts = em.Partitioned(rows=[np.ones((2, 2))] * 4)
    with pytest.raises(InputError, match=r"4 parties and 5 MPI ranks.*mpirun -n 4"):
        em.federation(parts, **on_mpi)


def test_ranks_that_open_different_federations_hear_of_it():
    names = [f"{name}-{RANK % 2}" for name in NAMES]
    parts = em.Partitioned(rows=some_rows().parts, names=names)
    with pytest.raises(InputError, match="different federations"):
        em.federation(parts, **on_mpi)


def test_two_federations_can_be_used_in_turn():
    with (
        em.federation(some_rows(), **on_mpi) as one,
        em.federation(some_columns(), topology="ring", **on_mpi) as other,
    ):
        for _ in range(3):
            assert one.run(survey_sites).parties == other.run(survey_sites).parties == NAMES


def test_followers_hear_that_the_coordinator_has_closed():
    with em.federation(some_rows(), **on_mpi) as fed:
        if RANK > 0:
            with pytest.raises(FederationError, match="rank 0 has closed"):
                fed.run(survey_sites)


def test_party_whose_rank_has_left_is_named_at_once():
    with em.federation(some_rows(), **on_mpi) as fed:
        if RANK == 3:
            return
        started = time.monotonic()
        with pytest.raises(PartyLost, match=f"'{NAMES[3]}'.*has left"):
            fed.run(survey_sites)
        assert time.monotonic() - started < 10.0


def test_result_that_cannot_travel_is_an_error_at_every_rank():
    expected = TypeError if RANK == 0 else FederationError
    with em.federation(some_rows(), **on_mpi) as fed:
        with pytest.raises(expected, match="cannot travel|TypeError"):
            run(fed, lambda parties: object())


def test_closing_twice_is_once():
    fed = em.federation(some_rows(), **on_mpi)
    fed.run(survey_sites)
    fed.close()
    fed.close()
