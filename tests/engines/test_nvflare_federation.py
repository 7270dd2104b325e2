"""A federation of three sites on the loopback, with mutual TLS, provisioned from nothing.

It takes minutes: `make test-nvflare`. A job takes a quarter of a minute to be up: one a study is
opened for all tests that only use it, and what needs no running processes is in `test_nvflare` and
`test_nvflare_failures`.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import eigenmesh as em
from eigenmesh.connect import federation_on
from eigenmesh.errors import (
    EigenmeshWarning,
    FederationError,
    PartyLost,
    PolicyRefusal,
    StepRefused,
)
from eigenmesh.runtime.site_log import read_log
from eigenmesh.site_folder import SiteFolder, open_site

pytest.importorskip("nvflare", reason="pip install 'eigenmesh[nvflare]'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "three_sites_nvflare.py"
ANALYST, STRANGER = "analyst@hub.org", "stranger@hub.org"
RNG = np.random.default_rng(1)
X = RNG.normal(size=(150, 5)) * [3, 2, 1.5, 1, 1]
ROWS = np.split(X, [60, 110])
COLUMNS = np.split(X, [2, 3], axis=1)
SITES = ("east", "north", "south")
ALL_KINDS = "min_parties = 2\n"


def example():
    spec = importlib.util.spec_from_file_location("three_sites_nvflare", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with example().Federation(
        tmp_path_factory.mktemp("nvflare"), SITES, (ANALYST, STRANGER)
    ) as own:
        own.provision()
        own.add_study("heart", "rows", ROWS, policy=ALL_KINDS)
        own.add_study("genes", "columns", COLUMNS, ids=[f"P{i:03d}" for i in range(len(X))])
        own.add_study("strict", "rows", ROWS, policy='approve = "each"\nmin_parties = 2\n')
        own.start()
        own.wait_for_sites()
        yield own


@pytest.fixture(scope="module")
def jobs(federation):
    """A job a study for all tests, both submitted at once."""
    with ThreadPoolExecutor() as pool:
        how = {"secure": False, "timeout": 300}
        coming = {own: pool.submit(federation.open, own, **how) for own in ("heart", "genes")}
    opened = {study: job.result() for study, job in coming.items()}
    yield opened
    for fed in opened.values():
        fed.close()


def on_job(fed, topology=None, secure=False, **losses):
    """Another federation on the same job."""
    return federation_on(fed._engine, topology, {"timeout": 300, **losses}, secure)


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", em.CostWarning)
        yield


def rehearsal(federation, study, tmp_path, **options):
    """The same sites, with the same keys, in this process."""
    folders = []
    for site in federation.sites:
        own = tmp_path / study / site
        shutil.copytree(federation.site_folder(study, site), own)
        for spent in (own / "private").glob("*.r*"):  # rolls and runs: a site of its own
            spent.unlink()
        folders.append(own)
    return em.federation(sites=folders, **options)


def site_lines(federation, study, site="north"):
    return list(read_log(SiteFolder(federation.site_folder(study, site)).log_file))


def nvflare_log(federation, name):
    return (federation.kit(name) / "log.txt").read_text()


def same_costs(one, other):
    assert (one.rounds, one.bytes) == (other.rounds, other.bytes)
    assert one.by_step == other.by_step
    assert one.reveals == other.reveals


pytestmark = pytest.mark.timeout(240)
running = pytest.mark.nvflare

ROW_FITS = {
    "landmarks": em.DisKPCA(2, n_landmarks=30, gamma=0.1, random_state=0),
    "moments": em.MomentPCA(2),
    "clusters": em.KernelKMeans(2, landmarks="diskpca", gamma=0.1, random_state=0, accuracy=0.9),
}


@running
def test_row_fits_on_one_job_are_those_of_one_process(federation, jobs, tmp_path, quiet):
    fed = jobs["heart"]
    assert (fed.parties, fed.split) == (SITES, "rows")
    with rehearsal(federation, "heart", tmp_path) as here:
        for estimator in ROW_FITS.values():
            there, own = (clone(estimator) for _ in range(2))
            own.fit(here)
            there.fit(fed)
            np.testing.assert_allclose(there.eigenvalues_, own.eigenvalues_, rtol=1e-8)
            same_costs(there.report_, own.report_)
    assert "'north': kept with its rows" in repr(there.labels_[1])


@running
def test_masked_by_default_and_the_same_to_a_millionth(federation, jobs, tmp_path):
    model, own = em.MomentPCA(3), em.MomentPCA(3)
    fed = on_job(jobs["heart"], secure=None)
    assert fed.secure
    model.fit(fed)
    again = model.fit(fed).eigenvalues_
    with rehearsal(federation, "heart", tmp_path, secure=True) as here:
        own.fit(here)
    np.testing.assert_allclose(model.eigenvalues_, own.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(model.eigenvalues_, em.MomentPCA(3).fit(X).eigenvalues_, rtol=1e-6)
    same_costs(model.report_, own.report_)
    assert {kind for kinds in model.report_.reveals.values() for kind in kinds} == {
        "aggregate",
        "counts",
    }
    np.testing.assert_allclose(again, model.eigenvalues_, rtol=1e-6)
    left = [own for line in site_lines(federation, "heart") for own in line["sent"]]
    assert left
    assert {line.get("submitter") for line in site_lines(federation, "heart")} == {ANALYST}


@running
def test_column_fits_are_those_of_one_process(federation, jobs, tmp_path, quiet):
    model, own = em.OneShotKPCA(2, local_rank=1), em.OneShotKPCA(2, local_rank=1)
    scores = model.fit(jobs["genes"]).transform(jobs["genes"])
    with rehearsal(federation, "genes", tmp_path) as here:
        np.testing.assert_allclose(own.fit(here).transform(here), scores, atol=1e-8)
    same_costs(model.report_, own.report_)


@running
def test_neighbours_messages_pass_the_server_under_seal(federation, jobs, tmp_path, quiet):
    model, own = (em.GossipKPCA(1, n_features=20, random_state=0) for _ in range(2))
    fed = on_job(jobs["heart"], "full", secure=None)
    assert not fed.secure
    with fed.recording() as recording:
        model.fit(fed)
    with rehearsal(federation, "heart", tmp_path, topology="full") as here:
        own.fit(here)
    np.testing.assert_allclose(model.eigenvalues_, own.eigenvalues_, rtol=1e-8)
    assert model.report_.by_step == own.report_.by_step
    between = [own for own in recording.ledger.entries if {own.sender, own.receiver} <= {*SITES}]
    assert between
    assert all(own.relayed for own in between)


# What a site refuses.


def submitted(federation, analyst=ANALYST, *, name="eigenmesh heart", spoil=lambda job: None):
    """How a job ends that somebody writes by hand, and which sites took part."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    from eigenmesh.engines.nvflare import write_job

    job = federation.folder / f"job-{time.monotonic_ns()}"
    write_job(job, name.removeprefix("eigenmesh "))
    spoil(job)
    session = new_secure_session(analyst, str(federation.kit(analyst)), timeout=15)
    try:
        job_id = session.submit_job(str(job))
        deadline = time.monotonic() + 150
        while time.monotonic() < deadline:
            status = session.get_job_status(job_id)
            if status.startswith(("FINISHED", "ABANDONED", "FAILED")):
                return status
            time.sleep(0.5)
        session.abort_job(job_id)
        return "RUNNING"
    finally:
        session.close()


def with_code(job):
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "mine.py").write_text("print('hello from the analyst')\n")


def with_class(job):
    path = job / "app" / "config" / "config_fed_client.json"
    side = "eigenmesh.nvflare_jobs.sides.SiteSide"
    path.write_text(path.read_text().replace(side, "subprocess.Popen"))


def with_data(job):
    path = job / "app" / "config" / "config_fed_client.json"
    tree = json.loads(path.read_text())
    tree["components"][0]["args"] = {"folder": "/etc"}
    path.write_text(json.dumps(tree))


def how_it_ends(federation, spoil):
    try:
        return submitted(federation, spoil=spoil)
    except Exception as error:  # the server's own settings refuse it, too
        return str(error)


@running
def test_a_job_that_brings_code_a_class_or_a_path_ends_and_answers_nothing(federation):
    lines = len(site_lines(federation, "heart"))
    with ThreadPoolExecutor() as pool:  # at once: each takes a while to be refused
        ends = list(pool.map(partial(how_it_ends, federation), (with_code, with_class, with_data)))
    for end in ends:
        assert end != "RUNNING"
        assert "FINISHED:COMPLETED" not in end
    assert len(site_lines(federation, "heart")) == lines, "no request has reached the host"
    # That with code does not even reach the site.
    assert nvflare_log(federation, "north").count("finished with RC 1") >= 2


@running
def test_a_study_or_submitter_that_the_owner_has_not_named_gets_no_job(federation):
    for study, analyst in (("lungs", ANALYST), ("heart", STRANGER)):
        with pytest.raises(PartyLost, match=f"no site takes a job of study '{study}'"):
            federation.open(study, analyst=analyst)
    jobs = list(read_log(federation.kit("north") / "local" / "eigenmesh_jobs.jsonl"))
    refused = [(own["job"], own["submitter"]) for own in jobs if "error" in own]
    assert ("eigenmesh lungs", ANALYST) in refused
    assert ("eigenmesh heart", STRANGER) in refused


@running
def test_a_study_that_nobody_approved_and_a_step_outside_it_are_refused_and_logged(federation):
    with pytest.warns(EigenmeshWarning, match="same columns"):
        fed = federation.open("strict")
    with fed:
        with pytest.raises(PolicyRefusal, match="rule 'approve'"):
            em.MomentPCA(1).fit(fed)
        with pytest.raises(StepRefused):
            deviate(fed)
        sizes = {name: own.shape for name, own in zip(SITES, ROWS, strict=True)}
        asked = em.study(em.MomentPCA(1), sizes, secure=True, at_sites=True)
        for site in SITES:
            open_site(federation.site_folder("strict", site)).approve(asked, submitters=[ANALYST])
        with fed.under(asked):
            model = em.MomentPCA(1).fit(fed)
        np.testing.assert_allclose(model.eigenvalues_, em.MomentPCA(1).fit(X).eigenvalues_)
    errors = [own["error"] for own in site_lines(federation, "strict") if "error" in own]
    assert {"PolicyRefusal", "StepRefused"} <= set(errors)


def deviate(fed):
    """Enlist a role without its study."""
    from eigenmesh.methods.moments.protocol import MomentRows
    from eigenmesh.runtime import wire

    request = {"op": "enlist", "run": "mine", "turn": 1, "role": MomentRows.__name__}
    request |= {"steps": ["feature_sums"], "message": np.zeros(0, np.uint8)}
    for i, reply in fed._engine.call(dict.fromkeys(range(3), wire.dumps(request)), 10):
        fed._courier.open(i, reply)


@running
def test_a_wrong_certificate_gets_nowhere(federation, tmp_path):
    other = example().Federation(tmp_path, ("east",), (ANALYST,))
    other.provision()
    kit = tmp_path / "forged"
    shutil.copytree(federation.kit(ANALYST), kit)
    for name in ("client.crt", "client.key"):
        shutil.copy(other.kit(ANALYST) / "startup" / name, kit / "startup" / name)
    with pytest.raises(FederationError, match="does not let"):
        em.federation(engine="nvflare", startup_kit=kit, study="heart")


# Processes that go.


def fits_until_lost(model, fed, seconds=20):
    """Fit again and again while somebody takes a process down."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        model.fit(fed)


@running
def test_a_job_process_killed_in_mid_fit_is_named_and_the_next_fit_has_another_job(
    federation, jobs, quiet
):
    model, fed = em.OneShotKPCA(2, local_rank=1), jobs["genes"]
    expected = model.fit(fed).eigenvalues_
    threading.Timer(0.5, lambda: [p.kill() for p in federation.job_processes("south")]).start()
    begin = time.monotonic()
    # Where only the word that a fit is over was lost, the next one says so once it has another job.
    with pytest.raises((PartyLost, EigenmeshWarning), match="lost 'south'|'south' is lost") as lost:
        fits_until_lost(model, fed)
    if lost.errisinstance(PartyLost):
        assert lost.value.party == "south"
        assert time.monotonic() - begin < 15
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EigenmeshWarning)
        np.testing.assert_allclose(model.fit(fed).eigenvalues_, expected, rtol=1e-9)


@running
def test_a_site_killed_in_mid_fit_is_survived_and_back_in_the_next(federation, jobs, quiet):
    """The example has a site that is killed where a loss ends the fit."""
    model = em.VFedPCA(2, n_rounds=80, variant="paper", random_state=0)
    threading.Timer(1.0, lambda: federation.kill("south")).start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EigenmeshWarning)
        model.fit(on_job(jobs["genes"], on_loss="survivors"))
    assert model.report_.parties == ("east", "north")
    federation.start("south")
    federation.wait_for_sites()


@running
def test_a_server_that_restarts_is_said_and_the_next_fit_has_another_job(federation, jobs, quiet):
    model, fed = em.MomentPCA(2), jobs["heart"]
    expected = em.MomentPCA(2).fit(X).eigenvalues_
    federation.kill("localhost")
    begin = time.monotonic()
    with pytest.raises(PartyLost, match="cannot be reached .*fit again when it is back"):
        model.fit(fed)
    assert time.monotonic() - begin < 15
    federation.start("localhost")
    federation.wait_for_sites()
    with pytest.warns(EigenmeshWarning, match="another one was submitted"):
        np.testing.assert_allclose(model.fit(fed).eigenvalues_, expected, rtol=1e-9)


# The server's job as coordinator, from the command line.


@running
def test_the_command_line_lets_the_server_coordinate(federation, tmp_path, quiet):
    where = ["--engine", "nvflare", "--startup-kit", str(federation.kit(ANALYST))]

    def run(*words, study):
        done = subprocess.run(
            [sys.executable, "-m", "eigenmesh", *words, *where, "--study", study],
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def columns():
        shape = ["--method", "one-shot", "--local-rank", "1"]
        run("fit", "--model", str(tmp_path / "genes.em"), *shape, study="genes")
        # In a later job, from shares at the sites.
        out = ["--out", str(tmp_path / "scores.npy")]
        run("transform", str(tmp_path / "genes.em"), *out, study="genes")

    model = tmp_path / "model.em"
    with ThreadPoolExecutor() as pool:
        of_columns = pool.submit(columns)
        said = json.loads(run("fit", "--model", str(model), "--json", study="heart"))
        of_columns.result()
    expected = em.KernelPCA(2).fit(X).eigenvalues_
    np.testing.assert_allclose(said["eigenvalues"], expected, rtol=1e-6)
    np.testing.assert_allclose(em.load(model).eigenvalues_, expected, rtol=1e-6)
    parts = em.Partitioned(columns=COLUMNS)
    here = em.OneShotKPCA(2, local_rank=1).fit_transform(parts)
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), here, atol=1e-8)
