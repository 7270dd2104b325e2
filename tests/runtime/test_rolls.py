"""Between organisations a question is opened for one roll, before and after a site's restart."""

from __future__ import annotations

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.connect import _introduce, sites_of
from eigenmesh.engines.faulty import Fault, with_faults
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import PolicyRefusal
from eigenmesh.runtime import rolls
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.policy import Policy

X = np.random.default_rng(0).normal(size=(40, 3))
ROWS = em.Partitioned(rows=np.split(X, 4), policies=Policy(min_parties=2))


def restarted(folder, faults=()) -> Federation:
    sites = sites_of(ROWS)
    for site in sites:
        site.trust, site.state_dir = "organisations", folder / site.name
    names = [site.name for site in sites]
    engine = InProcess(sites, with_faults(faults, names) if faults else None)
    fed = Federation(engine, split="rows", on_loss="survivors", secure=True)
    _introduce(fed.local_sites())
    return fed


def test_after_a_restart_no_sum_is_opened_without_one_who_was_in_it(tmp_path):
    model = em.MomentPCA(1)
    with restarted(tmp_path) as fed:
        whole = model.fit(fed).eigenvalues_
    with (
        restarted(tmp_path, [Fault("kill", "party-3", round=3)]) as fed,
        pytest.raises(PolicyRefusal),
    ):
        model.fit(fed)
    with restarted(tmp_path) as fed:
        np.testing.assert_array_equal(model.fit(fed).eigenvalues_, whole)


def test_a_file_of_rolls_is_bounded_and_a_torn_line_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(rolls, "_MOST", 20)
    path = tmp_path / "rolls"
    for i in range(100):
        rolls.Rolls(path).note([bytes([i])], "abcd", 3)
    assert len(path.read_text().splitlines()) <= 41
    path.write_text(path.read_text() + '["63", ["a", ')
    with pytest.raises(PolicyRefusal):
        rolls.Rolls(path).note([bytes([99])], "abc", 3)
    assert path.read_text().endswith("]]\n")
    path.write_text("no rolls\n")
    with pytest.raises(em.EigenmeshError, match="restore it"):
        rolls.Rolls(path)


def test_sums_of_a_data_set_are_of_one_circle_but_for_losses_of_the_first_run(tmp_path):
    path = tmp_path / "rosters"
    for names in ("abcdef", "abc"):  # the run itself compares its sums
        rolls.Rolls(path).note_circle([b"data", b"newer"], names, "one")
    for names in ("abcdef", "abc"):
        rolls.Rolls(path).note_circle([b"newer", b"newest"], names, "two")
    for names in ("ab", "abcd", "abcdefghi", "defg"):
        with pytest.raises(PolicyRefusal, match="several circles"):
            rolls.Rolls(path).note_circle([b"newest"], names, "three")
    rolls.Rolls(path).note_circle([b"others"], "defg", "three")
