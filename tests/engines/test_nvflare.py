"""The engine between organisations, its job's sides in this process: see `nvflare_sides`."""

from __future__ import annotations

import json
import socket
import threading
import time
import warnings

import numpy as np
import pytest
from tests.engines.nvflare_sides import Proxy, Session, open_here

import eigenmesh as em
from eigenmesh.errors import (
    EigenmeshWarning,
    FederationError,
    InputError,
    PartyFailed,
    PartyLost,
    StepRefused,
)
from eigenmesh.runtime import wire
from eigenmesh.runtime.engine import Lost

pytest.importorskip("nvflare", reason="pip install 'eigenmesh[nvflare]'")

import eigenmesh.nvflare_jobs.sides as job_sides
from eigenmesh.engines import nvflare
from eigenmesh.engines.nvflare import Flare, packed, study_of, unpacked, write_job
from eigenmesh.nvflare_jobs.kit import secure_server, secure_site
from eigenmesh.nvflare_jobs.sides import SiteSide, study_folder
from eigenmesh.version import __version__

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)) * [3, 2, 1]
ROWS = em.Partitioned(rows=np.split(X, [20, 40]), names=["east", "north", "south"])


@pytest.fixture
def quick_looks(monkeypatch):
    monkeypatch.setattr(nvflare, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(nvflare, "_BETWEEN_LOOKS", 0.1)


# Processes that are gone.


@pytest.mark.parametrize("on_loss", ["raise", "survivors"])
def test_a_process_that_is_gone_is_named_long_before_the_timeout(quick_looks, on_loss):
    with open_here(ROWS, on_loss=on_loss, timeout=600) as fed:
        job = fed._engine
        job.proxies["north"].silent = True
        # NVFlare waits for the whole time of a call.
        hanging = job._at
        job._at = lambda i, method, *rest: (
            time.sleep(60) if (i, method) == (1, "handle") else hanging(i, method, *rest)
        )
        begin = time.monotonic()
        if on_loss == "raise":
            with pytest.raises(PartyLost, match="'north'.*does not answer any more"):
                em.MomentPCA(1).fit(fed)
        else:
            model = em.MomentPCA(1).fit(fed)
            others = em.MomentPCA(1).fit(np.delete(X, slice(20, 40), axis=0))
            np.testing.assert_allclose(model.eigenvalues_, others.eigenvalues_)
            assert model.report_.parties == ("east", "south")
        assert time.monotonic() - begin < 10


def test_neighbours_do_not_wait_for_one_that_is_gone(quick_looks):
    # Mixing: each has messages from all others. Along a tree only its neighbour there waits.
    fits = em.GossipKPCA(1, n_features=10, averaging="gossip", random_state=0)
    open_mixing = {"topology": "full", "averaging": "gossip", "on_loss": "survivors"}
    with open_here(ROWS, timeout=600, **open_mixing) as fed:
        job, sides = fed._engine, fed._engine.sides
        hanging, calls = job._at, []

        def at(i, method, *rest):
            calls.append((i, method))
            if i == 1 and method == "exchange" and calls.count((1, "exchange")) == 3:
                job.proxies["north"].silent = True
                for side in sides:  # nor does a message of it arrive
                    side._peers["north"].silent = True
            if i == 1 and job.proxies["north"].silent and method != "is_there":
                time.sleep(60)
            return hanging(i, method, *rest)

        job._at = at
        begin = time.monotonic()
        assert fits.fit(fed).report_.parties == ("east", "south")
        assert time.monotonic() - begin < 20
    assert (0, "give_up") in calls
    assert (2, "give_up") in calls


# Who may ask what of a site.


def side_of(job, name):
    return job.sides[job.parties.index(name)]


def test_only_the_server_asks_and_a_neighbour_sends_in_its_own_name_only():
    with open_here(ROWS, topology="full") as fed:
        north = side_of(fed._engine, "north")
        request = wire.dumps({"op": "dismiss", "run": "r", "turn": 1})
        for method, arguments in {
            "handle": {"request": request, "seconds": 1.0},
            "exchange": {"order": wire.dumps({}), "request": request},
            "meet": {"roster": wire.dumps({"parties": ["north"]})},
            "give_up": {"label": wire.dumps({"swap": 1, "sender": 2})},
        }.items():
            assert getattr(Proxy(north, "north", "east"), method)(**arguments) == b""
        label = wire.dumps({"swap": 1, "sender": 2})
        Proxy(north, "north", "east").deliver(label=label, envelope=b"forged")
        assert north._post.end(1) == {}
        Proxy(north, "north", "south").deliver(label=label, envelope=b"own")
        assert north._post.end(2) == {}, "what is over is dropped"


def test_a_site_without_a_folder_for_the_study_refuses_and_says_no_more():
    side = SiteSide()
    side._name, side._site = "north", None
    side._refusal = "its owner has not set this study up; its log says why"
    proxy = Proxy(side, "north", "server")
    reply = wire.loads(proxy.meet(roster=wire.dumps({"parties": ["north"], "version": "1"})))
    assert reply == {"refused": side._refusal}
    answer = wire.loads(proxy.handle(request=b"", seconds=1.0))
    assert (answer["error"], answer["turn"]) == ("StepRefused", -1)


@pytest.mark.parametrize(
    ("study", "submitter", "words"),
    [
        ("heart", "eve@x.org", "may not work"),
        ("lungs", "ada@x.org", "not one of"),
        (None, "", "not one of"),
    ],
)
def test_settings_of_a_site_name_studies_and_submitters(tmp_path, study, submitter, words):
    path = tmp_path / "eigenmesh.json"
    with pytest.raises(StepRefused, match="names no studies"):
        study_folder(path, "heart", "ada@x.org")
    own = {"folder": str(tmp_path), "submitters": ["ada@x.org"]}
    path.write_text(json.dumps({"studies": {"heart": own}}))
    assert study_folder(path, "heart", "ada@x.org") == tmp_path
    with pytest.raises(StepRefused, match=words):
        study_folder(path, study, submitter)


# Opening.


def introduced(**fields):
    return {"split": "rows", "align": "strict", "version": __version__, **fields}


@pytest.mark.parametrize(
    ("other", "error", "words"),
    [
        (introduced(split="columns"), FederationError, "'a' holds rows .*, site 'b' columns"),
        (introduced(align="inner"), FederationError, "align 'strict'.*align 'inner'"),
        (introduced(version="0.0.1"), PartyFailed, r"'b' has eigenmesh 0\.0\.1"),
        ({"refused": "not set up"}, PartyFailed, "'b' refuses study 'heart': not set up"),
        ({"lost": "it is not in the job"}, PartyLost, "'b' is lost"),
        (introduced(split="diagonals"), PartyFailed, "malformed"),
        ({}, PartyFailed, "malformed"),
    ],
)
def test_sites_must_agree_on_what_they_hold(other, error, words):
    assert nvflare._agreed({"a": introduced()}, ["a"], "heart") == ("rows", "strict")
    with pytest.raises(error, match=words):
        nvflare._agreed({"a": introduced(), "b": other}, ["a", "b"], "heart")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"source": ROWS}, "source= with engine='nvflare': sites take data"),
        ({"policies": em.Policy()}, "policies="),
        ({"trust": "domain"}, "trust="),
        ({"faults": [em.Fault("lose")]}, "faults="),
        ({}, "needs startup_kit="),
    ],
)
def test_nothing_of_a_site_comes_from_the_caller(options, words):
    with pytest.raises(InputError, match=words):
        em.federation(engine="nvflare", **options)


def test_other_engines_need_a_source_and_refuse_a_startup_kit():
    with pytest.raises(InputError, match="neither of source and sites="):
        em.federation()
    with pytest.raises(InputError, match="startup_kit= is for engine='nvflare'"):
        em.federation(ROWS, startup_kit="kit")
    with pytest.raises(InputError, match=r"no readable startup/fed_admin\.json"):
        em.federation(engine="nvflare", startup_kit="no kit", study="heart")


# From the analyst's process: the server's side in this one, in place of a session with it.


def opened(**options):
    return em.federation(
        engine="nvflare", startup_kit="kit", study="heart", secure=False, **options
    )


def test_one_job_serves_several_fits_with_the_ledger_of_one_process(monkeypatch):
    session = Session(monkeypatch, ROWS)
    expected = em.MomentPCA(2).fit(ROWS)
    with opened() as fed:
        assert (fed.parties, fed.split) == (ROWS.names, "rows")
        for _ in range(2):
            model = em.MomentPCA(2).fit(fed)
            np.testing.assert_array_equal(model.eigenvalues_, expected.eigenvalues_)
            assert model.report_.by_step == expected.report_.by_step
    assert len(session.jobs) == 1
    assert session.jobs[0]._over.is_set()


def test_a_job_that_has_ended_is_replaced_at_the_next_fit_which_says_so(monkeypatch):
    session = Session(monkeypatch, ROWS)
    with opened() as fed:
        em.MomentPCA(1).fit(fed)
        session.ended.add("job-1")
        with pytest.warns(EigenmeshWarning, match="job-1 is of no more use .*another one"):
            em.MomentPCA(1).fit(fed)
    assert len(session.jobs) == 2


def test_a_job_that_replaced_another_works_where_its_warning_is_an_error(monkeypatch):
    session = Session(monkeypatch, ROWS)
    with opened() as fed, warnings.catch_warnings():
        warnings.simplefilter("error", EigenmeshWarning)
        session.ended.add("job-1")
        with pytest.raises(EigenmeshWarning, match="another one"):
            em.MomentPCA(1).fit(fed)
        em.MomentPCA(1).fit(fed)
    assert len(session.jobs) == 2


def test_no_job_is_submitted_to_a_server_that_cannot_be_reached(monkeypatch):
    from nvflare.fuel.flare_api.api_spec import NoConnection

    session = Session(monkeypatch, ROWS)
    with opened() as fed:
        em.MomentPCA(1).fit(fed)
        reached = session.do_app_command

        def unreachable(*arguments):
            raise NoConnection("down")

        session.do_app_command = unreachable
        with pytest.raises(PartyLost, match="cannot be reached"):
            em.MomentPCA(1).fit(fed)
        session.do_app_command = reached
        em.MomentPCA(1).fit(fed)
    assert len(session.jobs) == 1


def test_a_server_that_dies_over_a_command_is_named_long_before_the_command_ends(monkeypatch):
    """And one that is slow, and still there, is waited for."""
    monkeypatch.setattr(nvflare, "_BETWEEN_KNOCKS", 0.05)
    session, has_died = Session(monkeypatch, ROWS), threading.Event()
    reached = session.do_app_command
    with opened() as fed, socket.create_server(("127.0.0.1", 0)) as door:

        def slow(*arguments):
            time.sleep(0.3)
            return reached(*arguments)

        def dying(*arguments):
            door.close()
            has_died.wait(60)

        fed._engine._job._address = door.getsockname()
        session.do_app_command = slow
        em.MomentPCA(1).fit(fed)
        session.do_app_command, begin = dying, time.monotonic()
        with pytest.raises(PartyLost, match="cannot be reached .nobody listens at 127.0.0.1:"):
            em.MomentPCA(1).fit(fed)
        assert time.monotonic() - begin < 20
        has_died.set()


def test_a_job_that_ends_in_mid_run_is_a_loss_and_no_answer(monkeypatch):
    session = Session(monkeypatch, ROWS)
    with opened() as fed:
        engine, count = fed._engine, []
        relayed = engine._job.work

        def work(operation, fields, *rest):
            count.append(operation)
            if len(count) == 4:
                session.ended.add("job-1")
            return relayed(operation, fields, *rest)

        engine._job.work = work
        with pytest.raises(PartyLost, match="job job-1 has ended; the next fit"):
            em.MomentPCA(1).fit(fed)
        del engine._job.work
        with pytest.warns(EigenmeshWarning, match="another one"):
            em.MomentPCA(1).fit(fed)


def test_when_nvflare_takes_the_job_down_the_silent_process_is_named(monkeypatch):
    session = Session(monkeypatch, ROWS)
    with opened(on_loss="survivors") as fed:
        em.MomentPCA(1).fit(fed)
        job = session.jobs[0]
        began = job._flare.call

        def call(*arguments):
            replies = list(began(*arguments))
            if job._flare.n_waves == 3:  # in mid-fit
                job._flare._silence.update({1: 1})
                job._context.is_aborted = lambda: True
            return replies

        job._flare.n_waves, job._flare.call = 0, call
        with pytest.raises(PartyLost, match="'north' is lost: its process ended.*next fit") as lost:
            em.MomentPCA(1).fit(fed)
        assert lost.value.party == "north"
        with pytest.warns(EigenmeshWarning, match="another one"):
            em.MomentPCA(1).fit(fed)


@pytest.mark.parametrize("at_wave", range(1, 5))
def test_a_job_that_goes_down_once_sites_were_asked_is_not_asked_again_elsewhere(
    monkeypatch, at_wave
):
    """Its first requests, too: sites refuse the same ones from another job, which is a replay."""
    session = Session(monkeypatch, ROWS)
    with opened() as fed:
        job = session.jobs[0]
        began, before = job._flare.call, job._flare.n_waves

        def call(*arguments):
            replies = list(began(*arguments))
            if job._flare.n_waves == before + at_wave:
                job._flare._silence.update({1: 1})
                job._context.is_aborted = lambda: True
            return replies

        job._flare.call = call
        with pytest.raises(PartyLost, match="'north' is lost: its process ended"):
            em.MomentPCA(1).fit(fed)
        with pytest.warns(EigenmeshWarning, match="another one"):
            em.MomentPCA(1).fit(fed)


def test_a_job_that_nvflare_takes_down_can_be_asked_who_was_lost(monkeypatch):
    session = Session(monkeypatch, ROWS)
    with opened():
        job = session.jobs[0]
        job._flare._silence.update({2: 1})
        job._context.is_aborted = lambda: True
        ending = threading.Thread(target=job._wait_for_the_end)
        ending.start()
        ending.join(0.5)
        assert ending.is_alive()
        assert job.command("", {"do": "who"}, None)["silent"] == ["south"]
        ending.join(5)
        assert not ending.is_alive()


def test_a_process_that_dies_while_the_coordinator_computes_is_named(
    monkeypatch, quick_looks, caplog
):
    """However long it computes: the job is over by then, and its log has the name."""
    monkeypatch.setattr(job_sides, "_BETWEEN_LOOKS", 0.1)
    monkeypatch.setattr(job_sides, "_PARTING_SECONDS", 0.1)
    session = Session(monkeypatch, ROWS)
    session.get_job_logs = lambda job_id: {"logs": {"server": caplog.text + "INFO the end\n"}}
    with opened() as fed:
        job, flare = session.jobs[0], session.jobs[0]._flare
        ending = threading.Thread(target=job._wait_for_the_end)
        ending.start()
        called, calls = fed._engine.call, []

        def call(*arguments):
            calls.append(arguments)
            if len(calls) == 3:
                flare._proxies["north"].silent = True
                while not flare.fell_silent():
                    time.sleep(0.01)
                job._context.is_aborted = lambda: True
                ending.join(10)
                session.ended.add("job-1")
            return called(*arguments)

        fed._engine.call = call
        with pytest.raises(PartyLost, match="'north' is lost: its process ended") as lost:
            em.MomentPCA(1).fit(fed)
        assert lost.value.party == "north"


def test_one_that_was_lost_long_before_is_not_who_ended_the_job(quick_looks):
    with open_here(ROWS) as fed:
        flare = fed._engine
        flare.proxies["south"].silent = True
        for _ in range(3):
            flare.look_round()
        assert flare.fell_silent() == ["south"]
        flare._losses[2] -= 60
        flare.proxies["north"].silent = True
        flare.look_round()
        assert flare.fell_silent() == ["north"]


def test_who_was_silent_first_is_named_however_many_fall_silent_later(quick_looks):
    with open_here(ROWS) as fed:
        flare = fed._engine
        gone = ["south"]

        def look(which):
            for name in gone:
                flare.proxies[name].silent = True
            return flare._silent(which)

        assert look([0, 1, 2]) == []
        assert flare.fell_silent() == ["south"]
        gone += ["east", "north"]
        assert look([0, 1, 2]) == [2]
        assert flare.fell_silent() == ["south"]
        flare._silence.clear()  # as the next requests do
        look([0, 1])
        assert flare.fell_silent() == ["south"]
        flare._losses.clear()
        assert flare.fell_silent() == ["east", "north"]
        flare._silence.clear()
        assert flare.fell_silent() == []


def test_a_site_that_has_not_joined_is_named_unless_others_are_asked_for(monkeypatch):
    session = Session(monkeypatch, ROWS)
    session.absent = {"south"}
    with pytest.raises(PartyLost, match="'south' has not joined study 'heart'"):
        opened()
    assert session.jobs[0]._over.is_set(), "no job is left behind"
    session.sites = ROWS.select(["east", "north"])
    with opened(names=["north", "east"]) as fed:
        assert fed.parties == ("north", "east")


def test_sites_are_in_the_order_of_the_study_that_they_approved(monkeypatch):
    session = Session(monkeypatch, ROWS.select(["south", "east", "north"]))
    session.client_names.sort()  # as the server lists them
    sizes = dict.fromkeys(("south", "east", "north"), (20, 3))
    asked = em.study(em.MomentPCA(1), sizes, at_sites=True)
    assert asked.parties == ("south", "east", "north")
    with opened(under=asked) as fed:
        assert fed.parties == asked.parties
        em.MomentPCA(1).fit(fed)


def test_work_that_takes_longer_is_fetched_by_its_ticket(monkeypatch):
    monkeypatch.setattr(job_sides, "_FEW_SECONDS", 0.01)
    Session(monkeypatch, ROWS)
    with opened() as fed:
        handle = Flare.call

        def slow(self, *arguments):
            time.sleep(0.1)
            return handle(self, *arguments)

        monkeypatch.setattr(Flare, "call", slow)
        fitted = em.MomentPCA(1).fit(fed)
    pooled = em.MomentPCA(1).fit(X)
    np.testing.assert_allclose(fitted.eigenvalues_, pooled.eigenvalues_, rtol=1e-9)


def test_values_of_rows_are_the_sites_to_name_and_labels_say_where_they_are(monkeypatch):
    Session(monkeypatch, ROWS)
    with opened() as fed:
        with pytest.raises(InputError, match="sample_weight='sites'"):
            em.MomentPCA(1).fit(fed, sample_weight=[np.ones(20)] * 3)
        with pytest.raises(InputError, match="y='sites'"):
            em.KernelPCRegressor(1, kernel="linear").fit(fed, [np.ones(20)] * 3)
        clusters = em.KernelKMeans(2, landmarks="diskpca", random_state=0).fit(fed)
    assert "'north': kept with its rows" in repr(clusters.labels_[1])


# What travels.


def test_requests_travel_once_if_they_are_the_same():
    requests = {0: b"all", 1: b"all", 4: b"one \x00\xff"}
    tree = json.loads(json.dumps(packed(requests)))
    assert len(tree["requests"]) == 2
    assert unpacked(tree) == requests


@pytest.mark.parametrize("tree", [None, {}, {"reply": 3}, {"reply": "!"}, {"lost": None}])
def test_a_malformed_reply_of_the_server_is_a_loss(tree):
    assert isinstance(nvflare._reply_from_json(tree), Lost)


def test_a_job_ships_no_code_and_names_two_classes_a_side(tmp_path):
    write_job(tmp_path / "job", "heart", ["north"])
    files = {str(p.relative_to(tmp_path / "job")) for p in tmp_path.rglob("*") if p.is_file()}
    assert files == {"meta.json"} | {
        f"app/config/config_fed_{s}.json" for s in ("server", "client")
    }
    text = "".join(path.read_text() for path in tmp_path.rglob("*.json"))
    assert study_of(json.loads((tmp_path / "job/meta.json").read_text())["name"]) == "heart"
    assert text.count('"path"') == 4
    assert study_of("another job") is None


def test_kits_let_nobody_bring_code_or_a_shell(tmp_path):
    defaults = {
        "class_allow_list": ["a.b.C"],
        "allow_log_streaming": True,
        "components": [
            {"id": "job_manager", "args": {"uri_root": "/tmp/x"}},
            {"id": "site_log_streamer", "args": {}},
            {"id": "job_scheduler", "args": {"max_jobs": 4}},
        ],
    }
    (tmp_path / "local").mkdir()
    (tmp_path / "local/resources.json.default").write_text(json.dumps(defaults))
    secure_site(tmp_path, "heart", tmp_path, ["ada@x.org"])
    secure_site(tmp_path, "lungs", tmp_path, [])
    resources = json.loads((tmp_path / "local/resources.json").read_text())
    assert resources["class_allow_list"] == [nvflare.EXECUTOR, nvflare.SITE]
    assert resources["allow_log_streaming"] is False
    ids = [own["id"] for own in resources["components"]]
    assert ids == ["job_manager", "job_scheduler", "eigenmesh_gate"]
    studies = json.loads((tmp_path / "local/eigenmesh.json").read_text())["studies"]
    assert list(studies) == ["heart", "lungs"]
    secure_server(tmp_path)
    resources = json.loads((tmp_path / "local/resources.json").read_text())
    limits = [own["args"].get("max_jobs", 0) for own in resources["components"]]
    assert max(limits) > 10, "each open federation holds a job"
    rights = json.loads((tmp_path / "local/authorization.json").read_text())["permissions"]
    for role in ("project_admin", "org_admin", "lead"):
        assert {rights[role][right] for right in ("byoc", "shell_commands", "operate")} == {"none"}
    assert "submit_job" not in rights["project_admin"]
    with pytest.raises(InputError, match="nvflare package"):
        secure_site(tmp_path / "nowhere", "heart", tmp_path, [])
