"""A federation of three sites on the loopback, with mutual TLS, provisioned from nothing.

It takes minutes: `make test-nvflare`. A job takes a quarter of a minute to be up: one a study is
opened for all tests that only use it, jobs that nobody attends to run beside these (`meanwhile`),
and what needs no running processes is in `test_nvflare` and `test_nvflare_failures`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
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
from eigenmesh.runtime import wire
from eigenmesh.runtime.logbook import Logbook
from eigenmesh.runtime.site_log import read_log
from eigenmesh.site_folder import SiteFolder, open_site

pytest.importorskip("nvflare", reason="pip install 'eigenmesh[nvflare]'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "three_sites_nvflare.py"
TAP = Path(__file__).parent / "nvflare_tap"
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
        patients = [f"P{i:03d}" for i in range(len(X))]
        for study in ("heart", "ward"):
            own.add_study(study, "rows", ROWS, policy=ALL_KINDS)
        for study in ("genes", "blood"):
            own.add_study(study, "columns", COLUMNS, ids=patients)
        own.add_study("strict", "rows", ROWS, policy='approve = "each"\nmin_parties = 2\n')
        own.add_study("spoilt", "rows", ROWS)
        own.tap = own.folder / "tap"
        own.tap.mkdir()
        with pytest.MonkeyPatch.context() as tapped:  # of the server alone
            tapped.setenv("EIGENMESH_TAP", str(own.tap))
            tapped.setenv("PYTHONPATH", str(TAP), prepend=os.pathsep)
            own.start("localhost")
        own.start(*SITES)
        own.wait_for_sites()
        yield own


@pytest.fixture(scope="module")
def jobs(federation):
    """A job a study for all tests, all submitted at once."""
    with ThreadPoolExecutor() as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", EigenmeshWarning)  # of the one who wants to approve
        how = {"secure": False, "timeout": 300}
        studies = ("heart", "genes", "strict")
        coming = {own: pool.submit(federation.open, own, **how) for own in studies}
        opened = {study: job.result() for study, job in coming.items()}
    yield opened
    for fed in opened.values():
        fed.close()


@pytest.fixture(scope="module")
def meanwhile(federation, jobs, tmp_path_factory):
    """What takes jobs of its own, on studies of its own, while other tests use theirs."""
    folder = tmp_path_factory.mktemp("meanwhile")
    with ThreadPoolExecutor() as pool:
        spoilt = [pool.submit(submitted, federation, how) for how in SPOILT]

        def then(order):  # processes that start all at once keep each other from being up in time
            wait(spoilt)
            return order(federation, folder)

        ordered = [pool.submit(then, order) for order in (order_rows, order_columns)]
        yield {"spoilt": spoilt, "ordered": ordered}


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


def before_call(monkeypatch, fed, n, happens):
    """Let something happen before the coordinator's n-th request from now on."""
    called, calls = fed._engine.call, []

    def call(*arguments):
        calls.append(arguments)
        if len(calls) == n:
            happens()
        return called(*arguments)

    monkeypatch.setattr(fed._engine, "call", call)


pytestmark = pytest.mark.timeout(240)
running = pytest.mark.nvflare

ROW_FITS = {
    "landmarks": em.DisKPCA(2, n_landmarks=30, gamma=0.1, random_state=0),
    "moments": em.MomentPCA(2),
    "clusters": em.KernelKMeans(2, landmarks="diskpca", gamma=0.1, random_state=0, accuracy=0.9),
}


@running
def test_row_fits_on_one_job_are_those_of_one_process(federation, jobs, meanwhile, tmp_path, quiet):
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


@contextmanager
def tapped(federation):
    """Every frame that comes to the server's processes meanwhile."""
    frames = []
    (federation.tap / "on").touch()
    try:
        yield frames
    finally:
        (federation.tap / "on").unlink()
        for file in federation.tap.glob("*.frames"):
            rest = file.read_bytes()
            while rest:
                end = 8 + int.from_bytes(rest[:8], "little")
                frames.append(rest[8:end])
                rest = rest[end:]
            file.unlink()


def headers_of(frame):
    """What NVFlare writes before a payload."""
    import msgpack
    from nvflare.fuel.f3.sfm.prefix import PREFIX_LEN, Prefix

    n = Prefix.from_bytes(frame).header_len
    return msgpack.unpackb(frame[PREFIX_LEN : PREFIX_LEN + n]) if n else {}


def ends_of(frame):
    """From whom it came and to whom it goes; a name has that of its job behind it."""
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey

    ends = (MessageHeaderKey.ORIGIN, MessageHeaderKey.DESTINATION)
    return tuple(headers_of(frame)[own].split(".")[0] for own in ends)


def sent_in_rehearsal(fit, here, monkeypatch):
    """The messages of a fit in this process, encoded, by sender and receiver."""
    messages, note = [], Logbook.note

    def noted(self, to, step, message, encoded):
        messages.append((self._site.name, to, bytes(encoded)))
        note(self, to, step, message, encoded)

    with monkeypatch.context() as once:
        once.setattr(Logbook, "note", noted)
        fit(here)
    return messages


def numbers_in(messages):
    """Floats as they lie in these messages, but those that may be anywhere, as 0 and 1."""
    arrays = [own.ravel() for message in messages for own in arrays_in(wire.loads(message))]
    bits = np.unique(np.concatenate([np.zeros(0), *arrays]).view(np.uint64))
    return bits[bits % 2**32 != 0]


def arrays_in(tree):
    if isinstance(tree, np.ndarray):
        return [tree] if tree.dtype == np.float64 else []
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []
    return [own for value in values for own in arrays_in(value)]


def are_in(numbers, frames):
    """Which of these floats are somewhere in the frames, at any offset."""
    text = b"".join(frames)
    windows = [np.frombuffer(text, "<u8", (len(text) - k) // 8, k) for k in range(8)]
    return np.isin(numbers, np.concatenate(windows))


@running
def test_the_relaying_server_sees_no_number_of_what_neighbours_send_each_other(
    federation, jobs, tmp_path, quiet, monkeypatch
):
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey

    graph = em.ADMMKPCA(2, n_iterations=3, gamma=0.1, random_state=0)
    before = {site: len(site_lines(federation, "heart", site)) for site in SITES}
    with tapped(federation) as frames:
        graph.fit(on_job(jobs["heart"], "full", secure=None))
    with rehearsal(federation, "heart", tmp_path / "graph", topology="full") as here:
        messages = sent_in_rehearsal(graph.fit, here, monkeypatch)
    between = [own for _, to, own in messages if to in SITES]
    told = [own for _, to, own in messages if to not in SITES]  # to the coordinator: the model
    digests = [
        own["digest"]
        for site in SITES
        for line in site_lines(federation, "heart", site)[before[site] :]
        for own in line["sent"]
        if own["to"] in SITES
    ]
    # What is looked for is what the running sites have sent, byte for byte.
    assert sorted(digests) == sorted(hashlib.sha256(own).hexdigest() for own in between)
    numbers = numbers_in(between)
    numbers = numbers[~are_in(numbers, told)]
    assert len(numbers) > 1000
    assert not are_in(numbers, frames).any()

    # Nor is that for want of looking: as many came by, encrypted, ...
    sealed = [own for own in frames if headers_of(own).get(MessageHeaderKey.ENCRYPTED)]
    assert {ends_of(own) for own in sealed} == set(itertools.permutations(SITES, 2))
    assert len(sealed) >= len(between)
    assert sum(map(len, sealed)) > sum(map(len, between))

    # ... and what sites tell a coordinator in the server's job is all there.
    star = em.MomentPCA(2)
    with tapped(federation) as frames:
        star.fit(jobs["heart"])
    with rehearsal(federation, "heart", tmp_path / "star") as here:
        messages = sent_in_rehearsal(star.fit, here, monkeypatch)
    numbers = numbers_in([own for _, _, own in messages])
    assert len(numbers) > 50
    assert are_in(numbers, frames).all()


# What a site refuses.


def submitted(federation, spoil):
    """The job that an analyst has written by hand for the study "spoilt", and how it ends."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    from eigenmesh.engines.nvflare import write_job

    job = federation.folder / f"job-{time.monotonic_ns()}"
    write_job(job, "spoilt")
    spoil(job)
    session = new_secure_session(ANALYST, str(federation.kit(ANALYST)), timeout=60)
    try:
        session.set_timeout(60)
        job_id = session.submit_job(str(job))
        deadline = time.monotonic() + 150
        while time.monotonic() < deadline:
            status = session.get_job_status(job_id)
            if status.startswith(("FINISHED", "ABANDONED", "FAILED")):
                return job_id, status
            time.sleep(0.5)
        session.abort_job(job_id)
        return job_id, "RUNNING"
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


SPOILT = (with_code, with_class, with_data)


@running
def test_a_study_or_submitter_that_the_owner_has_not_named_gets_no_job(federation):
    for study, analyst in (("lungs", ANALYST), ("heart", STRANGER)):
        with pytest.raises(PartyLost, match=f"no site takes a job of study '{study}'"):
            federation.open(study, analyst=analyst)
    jobs = list(read_log(federation.kit("north") / "local" / "eigenmesh_jobs.jsonl"))
    refused = [(own["job"], own["submitter"]) for own in jobs if "error" in own]
    assert ("eigenmesh lungs", ANALYST) in refused
    assert ("eigenmesh heart", STRANGER) in refused


def approved(federation):
    """What the owners of "strict" are asked for, and let happen."""
    sizes = {name: own.shape for name, own in zip(SITES, ROWS, strict=True)}
    asked = em.study(em.MomentPCA(1), sizes, secure=True, at_sites=True)
    for site in SITES:
        open_site(federation.site_folder("strict", site)).approve(asked, submitters=[ANALYST])
    return asked


@running
def test_a_study_that_nobody_approved_and_a_step_outside_it_are_refused_and_logged(
    federation, jobs
):
    with pytest.warns(EigenmeshWarning, match="same columns"):
        fed = on_job(jobs["strict"], secure=None)
    with pytest.raises(PolicyRefusal, match="rule 'approve'"):
        em.MomentPCA(1).fit(fed)
    with pytest.raises(StepRefused):
        deviate(fed)
    with fed.under(approved(federation)):
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
def test_a_wrong_or_missing_certificate_gets_nowhere(federation, tmp_path):
    startup = federation.kit(ANALYST) / "startup"
    forge(startup / "client.crt", tmp_path)
    assert greeting(startup, startup), "the server's first words"
    assert greeting(startup, None) == b""
    assert greeting(startup, tmp_path) == b""
    kit = shutil.copytree(federation.kit(ANALYST), tmp_path / "kit")
    shutil.copytree(tmp_path, kit / "startup", dirs_exist_ok=True, ignore=lambda *_: ["kit"])
    with pytest.raises(FederationError, match="does not let"):
        em.federation(engine="nvflare", startup_kit=kit, study="heart")


def greeting(startup, own):
    """What the server says to whoever has this certificate."""
    speaking = ssl.create_default_context(cafile=startup / "rootCA.pem")
    speaking.set_alpn_protocols(["h2"])
    if own:
        speaking.load_cert_chain(own / "client.crt", own / "client.key")
    port = json.loads((startup / "fed_admin.json").read_text())["admin"]["port"]
    with socket.create_connection(("localhost", int(port)), timeout=30) as bare:
        with speaking.wrap_socket(bare, server_hostname="localhost") as line:
            line.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
            try:
                return line.recv(100)
            except OSError:  # who is not let in may be cut off
                return b""


def forge(original, folder):
    """A certificate with the names of another, which another authority has signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    own, signing = (rsa.generate_private_key(65537, 2048) for _ in range(2))
    true, now = x509.load_pem_x509_certificate(original.read_bytes()), datetime.now(UTC)
    forged = x509.CertificateBuilder(true.issuer, true.subject, own.public_key())
    forged = forged.serial_number(x509.random_serial_number())
    forged = forged.not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    form = serialization.Encoding.PEM
    (folder / "client.crt").write_bytes(forged.sign(signing, hashes.SHA256()).public_bytes(form))
    key = own.private_bytes(form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "client.key").write_bytes(key)


# What ran meanwhile: jobs that must come to nothing, and the server's job as coordinator.


@running
def test_a_job_that_brings_code_a_class_or_a_path_ends_and_answers_nothing(federation, meanwhile):
    (code, end), *others = (job.result() for job in meanwhile["spoilt"])
    for own in (end, *(own for _, own in others)):
        assert own.startswith(("FINISHED", "FAILED"))
        assert own != "FINISHED:COMPLETED"
    logs = [SiteFolder(federation.site_folder("spoilt", own)).log_file for own in SITES]
    assert not any(log.exists() for log in logs), "no request has reached a host"
    # Which process refuses first is a matter of time; the others are then taken down.
    text = "".join(nvflare_log(federation, own) for own in SITES)
    assert f"run ({code})" not in text, "that with code does not even reach a site"
    for job, _ in others:
        assert re.search(rf"run \({job}\): child worker process finished with RC [1-9]", text)


def kill_job_process(federation, fed, site):
    own = fed._engine._job.id
    processes = [p for p in federation.job_processes(site) if own in " ".join(p.cmdline())]
    assert processes
    for process in processes:
        process.kill()


@running
def test_a_job_process_that_is_killed_while_it_is_asked_is_named_and_the_next_fit_has_another(
    federation, jobs, monkeypatch, quiet
):
    fed, begin = jobs["genes"], []

    def kill():
        begin.append(time.monotonic())
        kill_job_process(federation, fed, "south")

    model = em.OneShotKPCA(2, local_rank=1)
    with monkeypatch.context() as once:
        before_call(once, fed, 3, kill)
        with pytest.raises(PartyLost, match="lost 'south'|'south' is lost") as lost:
            model.fit(fed)
    assert lost.value.party == "south"
    assert time.monotonic() - begin[0] < 15
    with pytest.warns(EigenmeshWarning, match="another one was submitted"):
        model.fit(fed)
    here = em.OneShotKPCA(2, local_rank=1).fit(em.Partitioned(columns=COLUMNS))
    np.testing.assert_allclose(model.eigenvalues_, here.eigenvalues_, rtol=1e-8)


def eigenmesh(federation, *words, study):
    where = ["--engine", "nvflare", "--startup-kit", str(federation.kit(ANALYST))]
    done = subprocess.run(
        [sys.executable, "-m", "eigenmesh", *words, *where, "--study", study],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def order_rows(federation, folder):
    said = eigenmesh(federation, "fit", "--model", str(folder / "ward.em"), "--json", study="ward")
    return json.loads(said)["eigenvalues"], em.load(folder / "ward.em").eigenvalues_


def order_columns(federation, folder):
    model, shape = str(folder / "blood.em"), ["--method", "one-shot", "--local-rank", "1"]
    eigenmesh(federation, "fit", "--model", model, *shape, study="blood")
    # In a later job, from shares at the sites.
    eigenmesh(federation, "transform", model, "--out", str(folder / "scores.npy"), study="blood")
    return np.load(folder / "scores.npy")


@running
def test_the_command_line_lets_the_server_coordinate(meanwhile, quiet):
    eigenvalues, scores = (job.result() for job in meanwhile["ordered"])
    expected = em.KernelPCA(2).fit(X).eigenvalues_
    np.testing.assert_allclose(eigenvalues, [expected, expected], rtol=1e-6)
    parts = em.Partitioned(columns=COLUMNS)
    here = em.OneShotKPCA(2, local_rank=1).fit_transform(parts)
    np.testing.assert_allclose(scores, here, atol=1e-8)


# Processes that go.


@pytest.fixture
def alone(meanwhile):
    """No other job is taken down with a site or the server."""
    wait([job for jobs in meanwhile.values() for job in jobs])


@running
def test_a_job_process_that_dies_while_the_coordinator_computes_is_named(
    federation, jobs, alone, monkeypatch
):
    begin = []
    with pytest.warns(EigenmeshWarning, match="same columns"):  # not known to who is not approved
        fed = on_job(jobs["strict"], secure=None)

    def kill_and_compute():
        kill_job_process(federation, fed, "north")
        while fed._engine._job.ended() is None:
            time.sleep(0.2)
        begin.append(time.monotonic())

    before_call(monkeypatch, fed, 3, kill_and_compute)
    # Whom NVFlare takes down before the next look is named beside it; never all of them.
    match = r"'north' is lost: its process|process of ('east' or 'north'|'north' or 'south') ended"
    with fed.under(approved(federation)), pytest.raises(PartyLost, match=match):
        em.MomentPCA(1).fit(fed)
    assert time.monotonic() - begin[0] < 15


@running
def test_a_killed_site_is_survived_or_named_and_with_the_server_back_in_the_next_fit(
    federation, jobs, alone, monkeypatch, quiet
):
    model, fed, begin = em.MomentPCA(2), jobs["heart"], []

    def kill():
        begin.append(time.monotonic())
        federation.kill("south")

    in_mid_fit = threading.Barrier(2, kill, timeout=60)  # of rows, and of columns
    with monkeypatch.context() as once, ThreadPoolExecutor() as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", EigenmeshWarning)
        before_call(once, fed, 5, in_mid_fit.wait)
        before_call(once, jobs["genes"], 4, in_mid_fit.wait)
        columns = pool.submit(em.VFedPCA(1, n_rounds=3).fit, jobs["genes"])
        model.fit(on_job(fed, on_loss="survivors"))
        with pytest.raises(PartyLost, match="'south'.*does not answer any more") as lost:
            columns.result()
    assert lost.value.party == "south"
    assert time.monotonic() - begin[0] < 20
    rest = em.MomentPCA(2).fit(np.vstack(ROWS[:2]))
    assert model.report_.parties == ("east", "north")
    np.testing.assert_allclose(model.eigenvalues_, rest.eigenvalues_, rtol=1e-9)

    federation.kill("localhost")
    begin = time.monotonic()
    with pytest.raises(PartyLost, match="cannot be reached .*fit again when it is back"):
        model.fit(fed)
    assert time.monotonic() - begin < 15
    federation.start("localhost", "south")
    federation.wait_for_sites()
    fits = (model, fed), (em.OneShotKPCA(2, local_rank=1), jobs["genes"])
    with pytest.warns(EigenmeshWarning, match="another one was submitted") as said:
        with ThreadPoolExecutor() as pool:
            for own, again in [(own, pool.submit(own.fit, anew)) for own, anew in fits]:
                again.result()
                assert own.report_.parties == SITES
    assert sum("another one was submitted" in str(own.message) for own in said) == 2
    np.testing.assert_allclose(model.eigenvalues_, em.MomentPCA(2).fit(X).eigenvalues_, rtol=1e-9)
