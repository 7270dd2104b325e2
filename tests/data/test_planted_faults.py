"""`check` names every fault that was planted, on its lines, and none that is not there."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.data.planted_faults import compare

from eigenmesh.data.check_files import check_files


@pytest.mark.parametrize("seed", range(6))
def test_every_planted_fault_is_named_and_nothing_else(seed, tmp_path):
    missed, alarms = compare(seed, tmp_path)
    assert not missed
    assert not alarms


def test_ids_that_nobody_named_are_compared_where_one_column_looks_like_them(tmp_path):
    rng = np.random.default_rng(3)
    files = []
    for name, start in (("north.csv", 100), ("south.csv", 500)):
        ids = [f"P{start + i}" for i in rng.permutation(40)]
        frame = pd.DataFrame({"Patient_ID": ids, "dose": rng.normal(size=40)})
        files.append((tmp_path / name, frame))
    files[0][1].loc[7, "Patient_ID"] = files[0][1].loc[30, "Patient_ID"]
    files[1][1].loc[4, "Patient_ID"] = files[0][1].loc[12, "Patient_ID"]
    for path, frame in files:
        frame.to_csv(path, index=False)
    found = {(f.file, f.kind, f.lines) for f in check_files([path for path, _ in files])}
    assert found == {
        ("north.csv", "id", (2,)),
        ("north.csv", "duplicate id", (9, 32)),
        ("north.csv", "id in two files", (14,)),
        ("south.csv", "id", (2,)),
        ("south.csv", "id in two files", (6,)),
    }


def test_ids_that_count_up_in_one_file_are_compared_with_those_of_others(tmp_path):
    rng = np.random.default_rng(4)
    counted = {"north.csv": np.arange(7000, 7040), "south.csv": np.arange(7040, 7080)}
    counted["south.csv"][3] = 7012
    for name, ids in counted.items():
        frame = pd.DataFrame({"Aufnahmenummer": ids, "dose": rng.normal(size=40)})
        frame.to_csv(tmp_path / name, index=False)
    found = check_files([tmp_path / name for name in counted])
    two = {(f.file, f.lines) for f in found if f.kind == "id in two files"}
    assert two == {("north.csv", (14,)), ("south.csv", (5,))}


def test_lines_counted_in_each_file_are_no_people_in_two(tmp_path):
    paths = [tmp_path / "north.csv", tmp_path / "south.csv"]
    for seed, path in enumerate(paths):
        x = np.random.default_rng(seed).normal(size=40)
        pd.DataFrame({"nr": np.arange(1, 41), "dose": x}).to_csv(path, index=False)
    assert {finding.kind for finding in check_files(paths)} == {"id"}
