"""Faults planted at random are named with their lines, and nothing that is not there."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import eigenmesh as em
from eigenmesh.cli.commands import app
from eigenmesh.data.check_files import check_files
from eigenmesh.errors import InputError, PartitionError

FILES = ("north.csv", "south.csv", "west.csv")
NAMES = ["age", "weight", "glucose", "pressure", "score"]


class Wards:
    """Three clean files of patients, and faults to put into them."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.expected = set()
        self.frames = [self._frame(i) for i in range(3)]
        self.ragged = {}

    def _frame(self, party):
        n = int(self.rng.integers(60, 200))
        middles = np.array([50.0, 75.0, 5.5, 130.0, 0.0])
        spreads = np.array([14.0, 12.0, 1.2, 15.0, 1.0])
        X = middles + spreads * self.rng.normal(size=(n, 5))
        # Numbers for ids are drawn without order: it is their name that tells.
        ids = [f"{party}-{number}" for number in self.rng.permutation(10 * n)[:n]]
        return pd.DataFrame(X.round(3), columns=NAMES).assign(id=ids)

    def expect(self, party, kind, column, rows):
        lines = () if rows is None else tuple(sorted(int(row) + 2 for row in rows))
        self.expected.add((FILES[party], kind, column, lines))

    def party(self):
        return int(self.rng.integers(3))

    def rows(self, party, most=4):
        n = int(self.rng.integers(1, most + 1))
        return self.rng.choice(len(self.frames[party]), n, replace=False)

    def everywhere(self, kind, column, values, rows=(0,)):
        for party, frame in enumerate(self.frames):
            frame[column] = values(len(frame))
            self.expect(party, kind, column, rows)

    # The faults.

    def numbered(self):
        start = int(self.rng.integers(1, 10_000))
        self.everywhere("id", "counter", lambda n: np.arange(start, start + n))

    def dated(self):
        form = self.rng.choice(["%Y-%m-%d", "%d.%m.%Y", "%Y-%m-%d %H:%M", "%m/%d/%y"])
        days = pd.date_range("2021-03-01", periods=300)
        self.everywhere("date", "visit", lambda n: self.rng.choice(days.strftime(str(form)), n))

    def categories(self):
        levels = ["never", "former", "current"]
        self.everywhere("category", "smoker", lambda n: self.rng.choice(levels, n))

    def texts(self):
        self.everywhere(
            "text", "remark", lambda n: [f"seen by {self.rng.random()}" for _ in range(n)]
        )

    def constant(self):
        self.everywhere("constant", "version", lambda n: 3, rows=None)

    def missing(self):
        party, column = self.party(), "weight"
        rows = self.rows(party, 9)
        word = self.rng.choice(["", "NA", "n/a"])
        self._write(party, column, rows, word)
        self.expect(party, "missing", column, rows)

    def words(self):
        party, column = self.party(), "glucose"
        rows = self.rows(party)
        self._write(party, column, rows, self.rng.choice(["<0.5", "high", "5 mg"]))
        self.expect(party, "not a number", column, rows)

    def _write(self, party, column, rows, word):
        cells = self.frames[party][column].astype(object)
        cells.iloc[rows] = word
        self.frames[party][column] = cells

    def renamed(self):
        party = self.party()
        new = self.rng.choice(["Pressure", "PRESSURE", "pres-sure"])
        self.frames[party] = self.frames[party].rename(columns={"pressure": new})
        self.expected.add((FILES[party], "name", new, (1,)))

    def dropped(self):
        party = self.party()
        self.frames[party] = self.frames[party].drop(columns="score")
        self.expected.add((FILES[party], "name", "score", (1,)))

    def units(self):
        party = self.party()
        factor = self.rng.choice([12.0, 365.0, 0.01])
        self.frames[party]["age"] *= factor
        self.expected.add((FILES[party], "units", "age", (1,)))

    def repeated_row(self):
        party = self.party()
        frame = self.frames[party]
        at = int(self.rng.integers(len(frame)))
        copy = frame.iloc[[at]].assign(id="another")
        self.frames[party] = pd.concat([frame, copy], ignore_index=True)
        self.expect(party, "duplicate row", None, [at, len(frame)])

    def repeated_id(self):
        party = self.party()
        one, other = self.rng.choice(len(self.frames[party]) // 2, 2, replace=False)
        self.frames[party].loc[other, "id"] = self.frames[party].loc[one, "id"]
        self.expect(party, "duplicate id", "id", [one, other])

    def shared_id(self):
        one, other = self.rng.choice(3, 2, replace=False)
        for party in (one, other):
            n = len(self.frames[party])
            row = self.rng.integers(n // 2, n)  # `repeated_id` has the others
            self.frames[party].loc[row, "id"] = "in both"
            self.expect(party, "id in two files", None, [row])

    def disordered(self):
        party = self.party()
        columns = list(self.frames[party].columns)
        self.frames[party] = self.frames[party][[*columns[2:], *columns[:2]]]
        self.expected.add((FILES[party], "order", None, (1,)))

    def cut_line(self):
        self.ragged[self.party()] = True

    def write(self, folder):
        paths = [folder / name for name in FILES]
        for party, (frame, path) in enumerate(zip(self.frames, paths, strict=True)):
            lines = frame.to_csv(index=False).splitlines()
            if party in self.ragged:
                lines.append("a,line,cut")
                self.expected.add((FILES[party], "cells", None, (len(lines),)))
            path.write_text("\n".join(lines) + "\n")
        return paths


# Those that write over rows come before those that copy them; `expected` holds final places.
FAULTS = [
    "missing words units numbered dated categories texts constant repeated_id shared_id".split(),
    "renamed dropped disordered repeated_row cut_line".split(),
]


def findings_of(paths):
    return {(own.file, own.kind, own.column, tuple(own.lines)) for own in check_files(paths)}


@pytest.mark.parametrize("seed", range(6))
def test_clean_files_have_nothing_in_them(tmp_path, seed):
    assert findings_of(Wards(seed).write(tmp_path)) == set()


@pytest.mark.parametrize("fault", [name for group in FAULTS for name in group])
def test_each_fault_alone_is_all_that_is_named(tmp_path, fault):
    wards = Wards(7)
    getattr(wards, fault)()
    paths = wards.write(tmp_path)
    assert findings_of(paths) == wards.expected != set()


@pytest.mark.parametrize("seed", range(8))
def test_faults_planted_together_are_all_named_and_nothing_else(tmp_path, seed):
    wards = Wards(seed)
    chosen = [[name for name in group if wards.rng.random() < 0.85] for group in FAULTS]
    for name in chosen[0]:
        getattr(wards, name)()
    for name in chosen[1]:
        if name != "repeated_row" or "missing" not in chosen[0]:  # a copied gap is another gap
            getattr(wards, name)()
    paths = wards.write(tmp_path)
    assert findings_of(paths) == wards.expected


def test_the_command_lists_findings_and_says_what_parties_learn(tmp_path):
    wards = Wards(1)
    wards.missing()
    paths = [str(path) for path in wards.write(tmp_path)]
    plain = CliRunner().invoke(app, ["check", *paths])
    assert plain.exit_code == 1
    assert "missing" in plain.output
    assert "names and kinds of columns" in " ".join(plain.output.split())
    tree = json.loads(CliRunner().invoke(app, ["check", *paths, "--json"]).stdout)
    assert tree["problems"] == 1
    assert tree["findings"][0]["remedy"]
    clean = [str(path) for path in Wards(2).write(tmp_path)]
    assert CliRunner().invoke(app, ["check", *clean]).exit_code == 0


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    wards = Wards(3)
    wards.missing()
    paths = wards.write(tmp_path)
    bad = tmp_path / "bad.csv"
    bad.write_text("a;b\n1,234;5\n2,345;6\n")
    findings = check_files([*paths, bad])
    assert {"missing", "unreadable"} == {own.kind for own in findings}
    assert "decimal" in findings[-1].remedy


def test_values_stay_out_of_findings(tmp_path):
    wards = Wards(4)
    wards.words()
    wards.texts()
    wards.repeated_id()
    for own in check_files(wards.write(tmp_path)):
        assert not any(word in own.words for word in ("<0.5", "high", "mg", "seen by"))


DATES = [
    "2024-05-17T08:30:00Z",
    "Fr 17.05.2024",
    "Friday, 17 May 2024",
    "Fri May 17 08:30:00 UTC 2024",
    "17. März 2024",
    "17MAY2024",
    "2024-May-17",
    "May 2024",
    "05/2024",
    "2024-05",
    "2024-W20",
    "2024-Q2",
    "08:30",
    "8:30:15 pm",
]
NO_DATES = ["12ABC2024", "2024-137", "Ward 2024", "120/80", "1-2", "3 to 5 days", "10:1000"]


def table(path, header, rows):
    lines = [",".join(map(str, row)) for row in [header, *rows]]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_dates_and_times_are_known_in_many_forms_and_codes_are_none(tmp_path):
    columns = {f"d{i}": cell for i, cell in enumerate([*DATES, *NO_DATES])}
    cells = [f'"{cell}"' for cell in columns.values()]
    rows = [[i * 0.7, *cells] for i in range(20)]
    rows[3][1:] = [""] * len(cells)  # one of another value, since constant columns are that
    rows[4][1:] = ['"other"'] * len(cells)
    path = table(tmp_path / "x.csv", ["a", *columns], rows)
    dates = {own.column for own in check_files([path]) if own.kind == "date"}
    assert {columns[name] for name in dates} == set(DATES)


@pytest.mark.parametrize("word", ["<NA>", "na", "Na", "NONE", "Null", "n.a."])
def test_gaps_among_numbers_are_gaps_in_any_case(tmp_path, word):
    path = table(tmp_path / "x.csv", ["a", "b"], [[i, word if i == 3 else i / 7] for i in range(9)])
    assert findings_of([path]) == {("x.csv", "missing", "b", (5,))}
    X = em.Partitioned(rows=[path], allow_missing=True).parts[0]
    assert np.isnan(np.asarray(X)).sum() == 1


def test_ids_are_known_by_name_though_some_are_there_twice_or_missing(tmp_path):
    rng = np.random.default_rng(0)
    ids = [rng.permutation(10**6)[:40].tolist() for _ in range(2)]
    ids[0][7], ids[1][3], ids[1][9], ids[1][10] = ids[0][2], ids[0][5], "", ""
    values = rng.normal(size=(2, 40)).round(3).tolist()
    values[1][20] = values[1][29]  # one row twice, under two ids
    paths = [
        table(tmp_path / f"{party}.csv", ["Patientennummer", "cells", "dose"], rows)
        for party, rows in (
            (party, [[ids[p][i], 7 + i % 3, values[p][i]] for i in range(40)])
            for p, party in enumerate("xy")
        )
    ]
    other = {(own.file, own.kind, own.lines) for own in check_files(paths)}
    assert other == {
        ("x.csv", "id", (2,)),
        ("y.csv", "id", (2,)),
        ("x.csv", "duplicate id", (4, 9)),
        ("x.csv", "id in two files", (7,)),
        ("y.csv", "id in two files", (5,)),
        ("y.csv", "missing", (11, 12)),
        ("y.csv", "duplicate row", (22, 31)),
    }


def test_rows_without_an_id_have_none_in_common(tmp_path):
    rows = [["" if i == 4 else f"{p}{i}", i * 0.3] for p in "xy" for i in range(12)]
    paths = [
        table(tmp_path / f"{p}.csv", ["patient", "dose"], rows[12 * k :][:12])
        for k, p in enumerate("xy")
    ]
    assert {own.kind for own in check_files(paths, "patient")} == {"missing id"}


def test_numbers_that_are_not_written_plainly_are_no_free_text(tmp_path):
    rows = [[i / 7, f"{1 + i % 4}.{200 + i}.{100 + i}", f"{30 + i} %", "<40"] for i in range(30)]
    rows[3][3] = ">60"
    path = table(tmp_path / "x.csv", ["a", "turnover", "share", "age"], rows)
    own = {(one.column, one.kind, len(one.lines)) for one in check_files([path])}
    assert own == {
        ("turnover", "not a number", 30),
        ("share", "not a number", 30),
        ("age", "category", 1),
    }


def test_the_files_of_a_folder_are_looked_at_one_by_one(tmp_path):
    rng = np.random.default_rng(1)
    rows = [[f"p{i}", *rng.normal(size=2).round(3)] for i in range(30)]
    (tmp_path / "north").mkdir()
    table(tmp_path / "north" / "a.csv", ["patient", "dose", "age"], rows[:12])
    table(tmp_path / "north" / "b.csv", ["patient", "dose", "age"], [["q", "x", 1], *rows[12:20]])
    south = table(tmp_path / "south.csv", ["patient", "age", "dose"], rows[19:])
    own = {
        (one.file, one.kind, one.lines)
        for one in check_files([tmp_path / "north", south], "patient")
    }
    assert own == {
        ("north/b.csv", "not a number", (2,)),
        ("north/b.csv", "id in two files", (10,)),
        ("south.csv", "id in two files", (2,)),
        ("south.csv", "order", (1,)),
    }
    # Files of other columns: a folder's ids count together.
    lab = table(tmp_path / "lab.csv", ["patient", "crp"], [[f"p{i}", i] for i in range(19)])
    kinds = [
        (one.file, one.lines)
        for one in check_files([tmp_path / "north", lab], "patient")
        if one.kind == "ids"
    ]
    assert kinds == [("north/b.csv", (2, 10))]


def test_two_columns_of_one_name_are_named(tmp_path):
    path = table(tmp_path / "x.csv", ["a", "b", "b"], [[i, i / 3, i / 7] for i in range(9)])
    assert findings_of([path]) == {("x.csv", "name", "b", (1,))}


def test_levels_in_other_capitals_or_blanks_are_named_and_signs_are_levels(tmp_path):
    rng = np.random.default_rng(0)
    wards = np.array(["icu", "er", "out patient"])[rng.integers(0, 3, 80)].astype(object)
    wards[3], wards[50], wards[51] = "ICU", " Er", "outpatient"
    wards[[4, 52]] = "icu", ""
    rhesus = rng.choice(["A+", "A-", "AB+", "0+"], 80)
    rows = zip(rng.normal(size=80).round(5), wards, rhesus, strict=True)
    path = table(tmp_path / "north.csv", ["hb", "ward", "blood"], rows)
    spelt = [own for own in check_files([path]) if own.kind == "spelling"]
    assert [(own.column, own.lines) for own in spelt] == [("ward", (5, 52, 53))]


@pytest.mark.parametrize("seed", range(3))
def test_what_a_fit_refuses_below_the_first_lines_is_named_at_its_line(seed, tmp_path):
    rng = np.random.default_rng(seed)
    n, at = 180, int(rng.integers(110, 180))
    ages = [f"{age:.1f}".replace(".", ",") for age in rng.normal(50, 10, n)]
    weights = rng.permutation(900)[:n].astype(object)
    ages[at] = ages[at].replace(",", ".")
    large = int(rng.integers(n))
    weights[large] = f"{rng.choice(['', '-'])}{rng.integers(2, 9)}e{rng.integers(80, 300)}"
    lines = [f"p{i};{age};{kg}" for i, (age, kg) in enumerate(zip(ages, weights, strict=True))]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["patient;age;weight", *lines]) + "\n")
    named = {(own.column, own.kind, own.lines) for own in check_files([path], "patient")}
    assert named == {
        ("age", "not a number", (at + 2,)),
        ("weight", "too large", (large + 2,)),
    }
    with pytest.raises(PartitionError, match=f"line {at + 2}, column 'age'"):
        em.Partitioned(rows=[path], id_column="patient", features=["age"]).part(0)
    # Neither a warning of numpy's nor the value.
    with pytest.raises(PartitionError, match=rf"line {large + 2}, column 'weight'") as caught:
        em.Partitioned(rows=[path], id_column="patient", features=["weight"]).part(0)
    assert str(weights[large]) not in str(caught.value)
    with pytest.raises(InputError, match="beyond 1e\\+75 at row 0, column 1") as caught:
        em.KernelPCA(1).fit(np.array([[1.0, 3e200], [2.0, 1.0], [3.0, 2.0]]))
    assert "3e" not in str(caught.value)
