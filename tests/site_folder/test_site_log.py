import json
import threading
from collections import Counter

import numpy as np
import pytest
from tests.site_folder.folders import three_folders

import eigenmesh as em
from eigenmesh.errors import LogDamage, MessageRefused, PartyFailed, PolicyRefusal
from eigenmesh.runtime.site_log import Head, SiteLog, read_log, verify_log

FITS = {
    "moments": (em.MomentPCA(2), {}),
    "clusters": (em.KernelKMeans(2, kernel="linear", random_state=0), {}),
    "masked": (em.MomentPCA(1), {"secure": True}),
    "masked, survivors": (em.MomentPCA(1), {"secure": True, "on_loss": "survivors"}),
    "graph": (em.GossipKPCA(1, n_features=10, random_state=0), {"topology": "full"}),
}


def sums(messages):
    """Messages, floats and bytes by sender, receiver, step and kind."""
    total = Counter()
    for sender, receiver, step, kinds, floats, size in messages:
        total[sender, receiver, step, tuple(kinds.items()), floats] += size
    return total


@pytest.mark.parametrize("name", FITS)
def test_sums_over_the_logs_are_the_ledger(name, tmp_path):
    estimator, options = FITS[name]
    folders = three_folders(tmp_path, seed=len(name))
    with em.federation(sites=[f.path for f in folders], **options) as fed:
        lines = {f.settings.name: verify_log(f.log_file).number for f in folders}
        with fed.recording() as recording:
            estimator.fit(fed)
        heads = fed.log_heads()
    logged = [
        (f.settings.name, sent["to"], sent["step"], sent["kinds"], sent["floats"], sent["bytes"])
        for f in folders
        for line in read_log(f.log_file)
        if line["n"] > lines[f.settings.name]
        for sent in line["sent"]
    ]
    ledger = [
        (entry.sender, entry.receiver, entry.step, entry.kinds, entry.floats, entry.bytes)
        for entry in recording.ledger
        if entry.sender != "coordinator"
    ]
    assert sums(logged) == sums(ledger)
    assert len(logged) == len(ledger) > 0
    assert estimator.report_.log_heads.keys() == heads.keys() == lines.keys()
    for folder in folders:
        verify_log(folder.log_file, Head.read(heads[folder.settings.name]))


@pytest.mark.parametrize("name", FITS)
def test_a_cut_of_the_last_line_shows_against_the_head_in_the_report(name, tmp_path):
    estimator, options = FITS[name]
    folders = three_folders(tmp_path)
    with em.federation(sites=[f.path for f in folders], **options) as fed:
        heads = estimator.fit(fed).report_.log_heads
    for folder in folders:
        head, lines = Head.read(heads[folder.settings.name]), list(read_log(folder.log_file))
        assert lines[-1]["op"] == "dismiss"
        assert verify_log(folder.log_file, head) == head
        whole = folder.log_file.read_bytes().splitlines(keepends=True)
        folder.log_file.write_bytes(b"".join(whole[:-1]))
        with pytest.raises(LogDamage, match="cut off"):
            verify_log(folder.log_file, head)


def test_a_head_that_goes_back_at_a_dismissal_is_refused_in_the_next_run(tmp_path, monkeypatch):
    folders = three_folders(tmp_path)
    add = SiteLog.add

    def cut_first(self, facts, **options):
        if facts.get("op") == "dismiss":
            self.path.write_bytes(b"")
        return add(self, facts, **options)

    with em.federation(sites=[f.path for f in folders]) as fed:
        with monkeypatch.context() as once:
            once.setattr(SiteLog, "add", cut_first)
            em.MomentPCA(1).fit(fed)  # its answer is whole
        with pytest.raises(MessageRefused, match="lines are missing"):
            em.MomentPCA(1).fit(fed)


@pytest.fixture
def written(tmp_path):
    """A log of some lines as hosts write them."""
    folders = three_folders(tmp_path)
    with em.federation(sites=[f.path for f in folders]) as fed:
        em.MomentPCA(1).fit(fed)
    return folders[0].log_file


def test_one_changed_byte_is_found_wherever_it_is(written):
    whole, rng = written.read_bytes(), np.random.default_rng(5)
    ends = np.flatnonzero(np.frombuffer(whole, np.uint8) == ord("\n"))
    for place in [0, *ends, *rng.integers(len(whole), size=150)]:
        changed = bytearray(whole)
        changed[place] ^= 1 << rng.integers(8)
        written.write_bytes(changed)
        with pytest.raises(LogDamage) as caught:
            verify_log(written)
        line = whole[:place].count(b"\n") + 1
        assert caught.value.line in (line, line + 1)


def test_lines_taken_out_put_in_or_swapped_are_found(written):
    lines = written.read_bytes().splitlines(keepends=True)
    rng = np.random.default_rng(6)
    for _ in range(20):
        i, j = sorted(rng.choice(len(lines) - 1, 2, replace=False))
        for changed in (
            lines[:i] + lines[j:],
            lines[:j] + lines[i:],
            [*lines[:i], lines[j], *lines[i + 1 : j], lines[i], *lines[j + 1 :]],
        ):
            written.write_bytes(b"".join(changed))
            with pytest.raises(LogDamage):
                verify_log(written)


def test_a_cut_tail_shows_against_a_head_and_without_one_does_not(written):
    head, lines = verify_log(written), written.read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        written.write_bytes(b"".join(lines[:kept]))
        assert verify_log(written).number == kept
        with pytest.raises(LogDamage, match="cut off"):
            verify_log(written, head)
    written.unlink()
    with pytest.raises(LogDamage, match="cut off"):
        verify_log(written, head)


def test_another_history_of_the_same_length_shows_against_a_head(written):
    head = verify_log(written)
    written.unlink()
    log = SiteLog(written)
    for _ in range(head.number):
        log.add({"op": "step"})
    assert verify_log(written).number == head.number
    with pytest.raises(LogDamage, match="another than was told"):
        verify_log(written, head)


def test_a_restarted_site_goes_on_with_its_chain(tmp_path):
    folders = three_folders(tmp_path)
    numbers = []
    for _ in range(2):
        with em.federation(sites=[f.path for f in folders]) as fed:
            em.MomentPCA(1).fit(fed)
            numbers.append(Head.read(fed.log_heads()["south"]).number)
    last = verify_log(folders[1].log_file).number
    assert last == numbers[1] == 2 * numbers[0]


def test_several_writers_make_one_chain(tmp_path):
    logs = [SiteLog(tmp_path / "log") for _ in range(3)]

    def write(log):
        for i in range(30):
            log.add({"i": i})

    threads = [threading.Thread(target=write, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert verify_log(tmp_path / "log") == logs[0].head == Head(90, logs[2].head.digest)


def test_a_line_that_a_power_cut_tore_is_cut_and_the_chain_goes_on(tmp_path):
    log = SiteLog(tmp_path / "log")
    log.add({"op": "enlist"})
    with open(tmp_path / "log", "ab") as file:
        file.write(b'{"n":2,"at":17')
    assert SiteLog(tmp_path / "log").add({"op": "step"}).number == 2
    assert verify_log(tmp_path / "log").number == 2


def test_refusals_are_in_the_log_with_the_rule_and_the_words_that_did_not_leave(tmp_path):
    folders = three_folders(tmp_path, policy='allow = ["counts", "hashes"]\nmin_rows = 7')
    with em.federation(sites=[f.path for f in folders]) as fed:
        with pytest.raises(PolicyRefusal) as caught:
            em.MomentPCA(1).fit(fed)
    assert "moments" not in str(caught.value)
    refusals = [line for line in read_log(folders[0].log_file) if "error" in line]
    assert refusals
    assert {line["rule"] for line in refusals} == {"allow"}
    assert "'moments'" in refusals[0]["words"]
    assert not any(line["sent"] for line in refusals)


def test_what_cannot_be_logged_does_not_leave(tmp_path, monkeypatch):
    folders = three_folders(tmp_path)
    add = SiteLog.add

    def full(self, facts, **options):
        if facts.get("sent"):
            raise OSError(28, "No space left on device")
        return add(self, facts, **options)

    with em.federation(sites=[f.path for f in folders]) as fed:
        monkeypatch.setattr(SiteLog, "add", full)
        with pytest.raises(PartyFailed), fed.recording() as recording:
            em.MomentPCA(1).fit(fed)
    assert not [entry for entry in recording.ledger if entry.sender != "coordinator"]


def test_a_log_that_goes_back_is_noticed_while_a_federation_is_open(tmp_path):
    folders = three_folders(tmp_path)
    with em.federation(sites=[f.path for f in folders]) as fed:
        em.MomentPCA(1).fit(fed)
        lines = folders[0].log_file.read_bytes().splitlines(keepends=True)
        folders[0].log_file.write_bytes(b"".join(lines[:2]))
        with pytest.raises(MessageRefused, match="'north'.*lines are missing"):
            em.MomentPCA(1).fit(fed)


def test_rows_behind_numbers_are_told(tmp_path):
    folders = three_folders(tmp_path)
    with em.federation(sites=[f.path for f in folders]) as fed:
        em.DisKPCA(1, landmarks="centroids", n_landmarks=6, random_state=0).fit(fed)
    text = folders[0].log_file.read_text()
    sent = [own for line in map(json.loads, text.splitlines()) for own in line["sent"]]
    rows = {kind: own["rows"] for own in sent for kind in own["kinds"]}
    assert rows["gram"] == 40
    assert 5 <= rows["centroids"] < 40
