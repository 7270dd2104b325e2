"""Sites, coordinators and servers that go at any moment of a fit: named, survived, or begun anew.

The job's sides are in this process (`nvflare_sides`); a process that is gone is one whose calls
hang, as NVFlare's do, until somebody looks.
"""

from __future__ import annotations

import threading
import time
import warnings

import numpy as np
import pytest
from tests.engines.nvflare_sides import FlareHere, Session, open_here

import eigenmesh as em
from eigenmesh.connect import sites_of
from eigenmesh.engines import nvflare
from eigenmesh.errors import EigenmeshWarning, FederationError, PartyLost
from eigenmesh.runtime import wire
from eigenmesh.runtime.federation import Federation

pytest.importorskip("nvflare", reason="pip install 'eigenmesh[nvflare]'")
pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.CostWarning")

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 4)) * [3, 2, 1, 0.5]
NAMES = ["east", "north", "south"]
ROWS = em.Partitioned(rows=np.split(X, [20, 40]), names=NAMES)
COLUMNS = em.Partitioned(columns=np.split(X, [1, 2], axis=1), names=NAMES)
FITS = {"rows": (ROWS, em.MomentPCA(1)), "columns": (COLUMNS, em.OneShotKPCA(1, local_rank=1))}
REQUESTS = {"rows": 6, "columns": 4}  # of one fit to one site, from its consent to the end


@pytest.fixture
def quick_looks(monkeypatch):
    monkeypatch.setattr(nvflare, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(nvflare, "_BETWEEN_LOOKS", 0.05)
    over = threading.Event()
    yield over
    over.set()


def watched(job, place, at_request, happens):
    """Let something happen at one of a site's requests, from 1; gives all that it is sent."""
    original, requests = job._at, []

    def at(i, method, seconds, arguments):
        if i == place and method == "handle":
            requests.append(arguments["request"])
            if len(requests) == at_request:
                happens()
        return original(i, method, seconds, arguments)

    job._at = at
    return requests


def goes(job, place, at_request, over):
    """From that request on the site's process is gone."""
    name = job.parties[place]

    def gone():
        job.proxies[name].silent = True

    requests = watched(job, place, at_request, gone)
    answering = job._at

    def at(i, method, seconds, arguments):
        reply = None if i == place and job.proxies[name].silent else ...
        if reply is None and method != "is_there":
            over.wait(60)
        return answering(i, method, seconds, arguments)

    job._at = at
    return requests


def calls_of(job):
    """Of whom what is asked from now on."""
    original, calls = job._at, []

    def at(i, method, *rest):
        calls.append((i, method))
        return original(i, method, *rest)

    job._at = at
    return calls


@pytest.mark.parametrize("split", ["rows", "columns"])
def test_a_fit_asks_as_often_as_these_tests_let_it(split):
    parts, model = FITS[split]
    with open_here(parts) as fed:
        requests = watched(fed._engine, 1, 0, lambda: None)
        model.fit(fed)
    assert len(requests) == REQUESTS[split]


AT_EVERY_REQUEST = [(split, n) for split, most in REQUESTS.items() for n in range(1, most + 1)]


@pytest.mark.parametrize(("split", "at_request"), AT_EVERY_REQUEST)
def test_a_site_that_goes_at_any_request_is_named(quick_looks, split, at_request):
    parts, model = FITS[split]
    expected = model.fit(parts).eigenvalues_
    with open_here(parts, timeout=600) as fed:
        goes(fed._engine, 1, at_request, quick_looks)
        calls = calls_of(fed._engine)
        begin = time.monotonic()
        if at_request == REQUESTS[split]:  # the answer is complete: nothing is lost with the site
            np.testing.assert_allclose(model.fit(fed).eigenvalues_, expected)
        else:
            with pytest.raises(PartyLost, match="'north'.*does not answer any more"):
                model.fit(fed)
        assert calls.count((1, "handle")) == at_request, "nor is it waited for at the end"
        assert time.monotonic() - begin < 15


@pytest.mark.parametrize(("split", "at_request"), AT_EVERY_REQUEST)
def test_a_site_that_goes_at_any_request_is_survived(quick_looks, split, at_request):
    parts, model = FITS[split]
    whole, rest = (
        model.fit(some).eigenvalues_ for some in (parts, parts.select(["east", "south"]))
    )
    with open_here(parts, timeout=600, on_loss="survivors") as fed:
        goes(fed._engine, 1, at_request, quick_looks)
        model.fit(fed)
    covered = model.report_.parties
    assert covered in (("east", "south"), ("east", "north", "south"))
    np.testing.assert_allclose(model.eigenvalues_, rest if len(covered) == 2 else whole)


def test_of_a_site_that_is_lost_already_one_look_is_enough(quick_looks):
    with open_here(ROWS, timeout=600) as fed:
        job, numbers = fed._engine, []
        goes(job, 1, 0, quick_looks)
        job.proxies["north"].silent = True
        calls = calls_of(job)
        for _ in range(3):
            calls.clear()
            assert dict(job.call({1: b"anything"}, 600))[1].reason.startswith("its process")
            numbers.append(calls.count((1, "is_there")))
        assert numbers == [2, 1, 1]
        job.proxies["north"].silent = False
        job.look_round()
        assert isinstance(dict(job.call({1: b"anything"}, 600))[1], bytes)


SEVERAL_RUNS = 10  # requests of a fit that counts first: two runs, and two questions between


@pytest.mark.parametrize("at_request", range(1, SEVERAL_RUNS + 1))
def test_a_site_that_goes_at_any_request_of_several_runs_is_named_in_the_job_it_left(
    monkeypatch, at_request
):
    session, calls = Session(monkeypatch, ROWS), []
    model, expected = em.KernelPCA(1, kernel="linear"), em.MomentPCA(1).fit(ROWS).eigenvalues_
    with em.federation(engine="nvflare", startup_kit="kit", study="heart", secure=False) as fed:
        reached = session.do_app_command

        def going_down(job_id, topic, data):
            calls.extend([data] if data["do"] == "call" else [])
            if len(calls) == at_request:
                session.absent.add("north")  # nor is it in another job
                session.jobs[-1]._proxies["north"].silent = True
            return reached(job_id, topic, data)

        session.do_app_command = going_down
        if at_request == SEVERAL_RUNS:
            np.testing.assert_allclose(model.fit(fed).eigenvalues_, expected)
        else:
            with pytest.raises(PartyLost, match="'north'.*does not answer any more") as lost:
                model.fit(fed)
            assert lost.value.party == "north"
        assert len(session.jobs) == 1

        session.do_app_command = reached
        session.absent.clear()
        with pytest.warns(EigenmeshWarning, match="another one was submitted"):
            np.testing.assert_allclose(model.fit(fed).eigenvalues_, expected)
        assert len(session.jobs) == 2


# A site that comes back.


def lasting(parts, folder):
    """Sites that keep what they must remember in a folder."""
    sites = sites_of(parts)
    for site in sites:
        site.state_dir = folder / site.name
    return sites


def answers(job, name, requests):
    return [wire.loads(job.proxies[name].handle(request=own, seconds=5.0)) for own in requests]


@pytest.mark.parametrize("ends_early", [False, True])
@pytest.mark.parametrize("split", ["rows", "columns"])
def test_what_a_site_answered_before_its_restart_is_not_answered_again(tmp_path, split, ends_early):
    parts, model = FITS[split]
    job = FlareHere(lasting(parts, tmp_path), None)
    n = REQUESTS[split] - 2 if ends_early else 0
    requests = watched(job, 1, n, lambda: job.proxies.__getitem__("south").__setattr__("silent", 1))
    with Federation(job, split=split) as fed:
        if ends_early:
            with pytest.raises(PartyLost):
                model.fit(fed)
        else:
            model.fit(fed)
    restarted = FlareHere(lasting(parts, tmp_path), None)
    replies = answers(restarted, "north", [own for own in requests if b'"require"' not in own])
    assert all("error" in reply for reply in replies)
    assert {reply["error"] for reply in replies} <= {"StaleRound", "StepRefused", "MessageRefused"}


# A coordinator that goes.


class Crash(BaseException):
    """The coordinator's process ends: nothing after it runs."""


AT_EVERY_WAVE = [(False, n) for n in range(1, 7)] + [(True, n) for n in range(1, 9)]


@pytest.mark.parametrize(("secure", "at_wave"), AT_EVERY_WAVE)
def test_after_a_coordinator_crashed_another_begins_anew_at_the_same_sites(
    tmp_path, secure, at_wave
):
    job = FlareHere(lasting(ROWS, tmp_path), None)
    model = em.MomentPCA(2)
    expected = em.MomentPCA(2).fit(ROWS).eigenvalues_
    waves, called = [], job.call

    def call(requests, timeout):
        waves.append(requests)
        if len(waves) >= at_wave:
            raise Crash
        return called(requests, timeout)

    job.call = call
    with pytest.raises(Crash):
        model.fit(Federation(job, split="rows", secure=secure))
    del job.call
    with Federation(job, split="rows", secure=secure) as fed:
        np.testing.assert_allclose(model.fit(fed).eigenvalues_, expected, rtol=1e-6)


def test_an_approved_fit_that_was_cut_short_begins_anew_under_its_approval(tmp_path):
    sites = lasting(
        em.Partitioned(rows=ROWS.parts, names=NAMES, policies=em.Policy(approve="each")), tmp_path
    )
    asked = em.study(em.MomentPCA(1), ROWS)
    for site in sites:
        site.approve(asked)
    job = FlareHere(sites, None)
    watched(job, 2, 4, lambda: job.proxies["south"].__setattr__("silent", True))
    with Federation(job, split="rows") as fed, fed.under(asked), pytest.raises(PartyLost):
        em.MomentPCA(1).fit(fed)
    job.proxies["south"].silent = False
    with Federation(job, split="rows") as fed, fed.under(asked):
        np.testing.assert_allclose(
            em.MomentPCA(1).fit(fed).eigenvalues_, em.MomentPCA(1).fit(X).eigenvalues_
        )


# A server that goes, and comes back without its jobs.


@pytest.mark.parametrize("at_command", [2, 4, 5])
def test_a_server_that_restarts_in_mid_fit_is_said_and_the_next_fit_has_another_job(
    monkeypatch, at_command
):
    from nvflare.fuel.flare_api.api_spec import JobNotFound, NoConnection

    session, commands = Session(monkeypatch, ROWS), []
    expected = em.MomentPCA(1).fit(ROWS).eigenvalues_
    options = {"startup_kit": "kit", "study": "heart", "secure": False}
    with em.federation(engine="nvflare", **options) as fed:
        reached = session.do_app_command

        def going_down(job_id, topic, data):
            commands.append(job_id)
            if len(commands) >= at_command:
                raise NoConnection("down")
            return reached(job_id, topic, data)

        session.do_app_command = going_down
        with pytest.raises(PartyLost, match="cannot be reached .*fit again when it is back"):
            em.MomentPCA(1).fit(fed)

        def back(job_id, topic, data):
            if job_id == "job-1":
                raise JobNotFound(job_id)
            return reached(job_id, topic, data)

        session.do_app_command = back
        with pytest.warns(EigenmeshWarning, match="another one was submitted"):
            model = em.MomentPCA(1).fit(fed)
    np.testing.assert_allclose(model.eigenvalues_, expected)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("at_command", range(1, 8))
def test_a_job_that_gives_no_answer_has_ended_or_is_too_busy(monkeypatch, at_command, ends):
    from nvflare.fuel.flare_api.api_spec import NoReply

    monkeypatch.setattr(nvflare, "_ENDING_SECONDS", 0.0)
    session, commands = Session(monkeypatch, ROWS), []
    expected = em.MomentPCA(1).fit(ROWS).eigenvalues_
    with em.federation(engine="nvflare", startup_kit="kit", study="heart", secure=False) as fed:
        reached = session.do_app_command

        def silent(job_id, topic, data):
            commands.append(data["do"])
            if len(commands) == at_command:
                if ends:
                    session.ended.add(job_id)
                raise NoReply("no result")
            return reached(job_id, topic, data)

        session.do_app_command = silent
        model, errors = em.MomentPCA(1), []
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(3):
                try:
                    model.fit(fed)
                except (PartyLost, FederationError) as error:
                    errors.append(str(error))
    np.testing.assert_allclose(model.eigenvalues_, expected)
    assert len(commands) > at_command
    assert len(errors) <= 1  # none where only the word that the fit is over is lost
    words = "has ended; the next fit opens another" if ends else "no answer in time"
    assert all(words in error for error in errors)
    assert any("another one was submitted" in str(own.message) for own in said) == ends
