"""Three files of drawn tables with faults planted in them, and what `check` must say of each.

``python -m tests.data.planted_faults 200`` counts misses and false alarms over so many draws.
"""

from __future__ import annotations

import csv
import io
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FILES = ("north", "south", "west")
DATES = (
    *("%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y-%m-%d %H:%M", "%d %b %Y", "%Y%m%d", "%d-%b-%y"),
    *("%B %d, %Y", "%d/%m/%y", "%Y/%m/%d", "%Y-%m-%dT%H:%M:%SZ"),
)
GAPS = ("", "NA", "null", "n/a", "NaN", "-", "?", "k.A.")
KINDS = (
    "missing nines word infinite date text category id-column duplicate-id duplicate-row constant "
    "empty units renamed lacking extra order id-in-two cells"
).split()


@dataclass
class Sheet:
    """One file before it is written: cells as text with points, by column."""

    name: str
    header: list[str]
    rows: list[list[str]]
    decimal: str = "."
    delimiter: str = ","
    line_end: str = "\n"
    mixed: bool = False  # some lines end otherwise
    bom: bool = False
    ragged: dict[int, int] = field(default_factory=dict)  # cells more or fewer, by row

    def column(self, name: str) -> int:
        return self.header.index(name)

    def write(self, folder: Path, rng: Any) -> tuple[Path, list[int]]:
        """The file, and the line on which each row stands."""
        text, lines, line = io.StringIO(), [], 1
        out = csv.writer(text, delimiter=self.delimiter, lineterminator="\n")
        for i, cells in enumerate([self.header, *self.rows]):
            lines.append(line)
            own = [self._cell(cell) for cell in cells] if i else list(cells)
            extra = self.ragged.get(i - 1, 0)
            own = own[:extra] if extra < 0 else [*own, *["1"] * extra]
            start = text.tell()
            out.writerow(own)
            line += text.getvalue()[start:].count("\n")
        body = text.getvalue()
        if self.line_end != "\n" or self.mixed:
            ends = rng.choice([self.line_end, "\r\n" if self.mixed else self.line_end], len(body))
            # A break inside quotes is text, and stays as it is.
            parts, quoted = [], False
            for i, letter in enumerate(body):
                quoted ^= letter == '"'
                parts.append(ends[i] if letter == "\n" and not quoted else letter)
            body = "".join(parts)
        path = folder / f"{self.name}.csv"
        path.write_bytes((b"\xef\xbb\xbf" if self.bom else b"") + body.encode())
        return path, lines[1:]

    def _cell(self, cell: str) -> str:
        is_number = cell.replace(".", "", 1).replace("-", "", 1).isdigit()
        return cell.replace(".", self.decimal) if is_number else cell


Expected = tuple[str, str, str | None]  # file, kind, column


def draw(seed: int) -> tuple[list[Sheet], dict[Expected, set[int] | None], Any]:
    """Sheets with faults, and by file, kind and column the rows that must be named."""
    rng = np.random.default_rng([seed, 77])
    names = [str(n) for n in rng.permutation(["age", "weight", "dose", "hb", "crp", "pulse"])]
    names = names[: int(rng.integers(4, 7))]
    sheets = []
    means = {name: 10.0 ** rng.uniform(0.5, 2.5) for name in names}
    spreads = {name: rng.uniform(0.1, 0.5) for name in names}
    skewed = {name: rng.random() < 0.4 for name in names}
    for file in FILES:
        n = int(rng.integers(40, 120))
        columns = [[f"{file[0]}{rng.integers(10**7):07d}-{i}" for i in range(n)]]
        for name in names:
            noise = rng.normal(size=n) * spreads[name]
            x = means[name] * (np.exp(noise) if skewed[name] else 1 + 0.6 * noise)
            columns.append([f"{v:.{int(rng.integers(2, 5))}f}" for v in x])
        sheet = Sheet(file, ["patient", *names], [list(r) for r in zip(*columns, strict=True)])
        european = rng.random() < 0.4
        sheet.delimiter = ";" if european else str(rng.choice([",", ";", "\t"]))
        sheet.decimal = "," if european else "."
        sheet.line_end = str(rng.choice(["\n", "\r\n"]))
        sheet.mixed, sheet.bom = rng.random() < 0.2, bool(rng.random() < 0.3)
        sheets.append(sheet)
    expected: dict[Expected, set[int] | None] = {}
    touched: set[tuple[str, str]] = set()
    for kind in rng.choice(KINDS, int(rng.integers(3, 9)), replace=False):
        _plant(str(kind), sheets, names, expected, touched, rng)
    if rng.random() < 0.3:
        _add_notes(sheets, expected, rng)
    return sheets, expected, rng


def _free_column(sheet: Sheet, names: list[str], touched: Any, rng: Any) -> str | None:
    free = [n for n in names if (sheet.name, n) not in touched and ("*", n) not in touched]
    free = [n for n in free if n in sheet.header]
    if not free:
        return None
    name = str(rng.choice(free))
    touched.add((sheet.name, name))
    return name


def _some_rows(sheet: Sheet, rng: Any, most: int = 4) -> list[int]:
    n = int(rng.integers(1, most + 1))
    return sorted(int(i) for i in rng.choice(len(sheet.rows), n, replace=False))


def _plant(kind: str, sheets: Any, names: Any, expected: Any, touched: Any, rng: Any) -> None:
    sheet = sheets[int(rng.integers(3))]
    if kind in ("missing", "nines", "word", "infinite"):
        name = _free_column(sheet, names, touched, rng)
        if name is None:
            return
        words = {"missing": GAPS, "word": ("n.d.", "<5", "see note", "12 mg"), "infinite": ("inf",)}
        words["nines"] = (str(rng.choice(["-9", "-99", "-999", "99999"])),)
        rows = _some_rows(sheet, rng)
        for row in rows:
            sheet.rows[row][sheet.column(name)] = str(rng.choice(words[kind]))
        said = kind if kind in ("missing", "nines") else "not a number"
        expected[(sheet.name, said, name)] = set(rows)
    elif kind in ("date", "text", "category", "id-column"):
        _plant_column(kind, sheets, expected, rng)
    elif kind == "duplicate-id":
        one, other = (int(i) for i in rng.choice(len(sheet.rows), 2, replace=False))
        if ("id", sheet.name) in touched:
            return
        touched.add(("id", sheet.name))
        sheet.rows[other][0] = sheet.rows[one][0]
        expected[(sheet.name, "duplicate id", "patient")] = {one, other}
    elif kind == "id-in-two":
        other = sheets[(sheets.index(sheet) + 1) % 3]
        if ("id", sheet.name) in touched or ("id", other.name) in touched:
            return
        touched |= {("id", sheet.name), ("id", other.name)}
        i, j = int(rng.integers(len(sheet.rows))), int(rng.integers(len(other.rows)))
        other.rows[j][0] = sheet.rows[i][0]
        expected[(sheet.name, "id in two files", None)] = {i}
        expected[(other.name, "id in two files", None)] = {j}
    elif kind == "duplicate-row":
        row = int(rng.integers(len(sheet.rows)))
        twin = [f"{sheet.rows[row][0]}b", *sheet.rows[row][1:]]
        if any(key[0] == sheet.name for key in expected) or ("*", "columns") in touched:
            return  # rows that other faults name must stay where they are, and twins twins
        touched.add((sheet.name, "twin"))
        sheet.rows.append(twin)
        expected[(sheet.name, "duplicate row", None)] = {row, len(sheet.rows) - 1}
        touched |= {(sheet.name, name) for name in names}
        touched.add(("*", "columns"))
    elif kind in ("constant", "empty"):
        name = _free_column(sheet, names, touched, rng)
        if name is None:
            return
        value = "" if kind == "empty" else "7.5"
        for row in sheet.rows:
            row[sheet.column(name)] = value
        expected[(sheet.name, "constant", name)] = None
    elif kind == "units":
        name = _free_column(sheet, names, touched, rng)
        if name is None:
            return
        touched.add(("*", name))
        factor = float(rng.choice([18.0, 1000.0, 0.01, 2.2046**3]))
        for row in sheet.rows:
            cell = row[sheet.column(name)]
            if cell.replace(".", "", 1).replace("-", "", 1).isdigit():
                row[sheet.column(name)] = f"{float(cell) * factor:.6g}"
        if any((s.name, n) in touched for s in sheets for n in (name,) if s is not sheet):
            expected[("?", "units", name)] = None  # others of this column are odd, too: no verdict
        else:
            expected[(sheet.name, "units", name)] = None
    elif kind in ("renamed", "lacking", "extra"):
        _plant_name(kind, sheet, sheets, names, expected, touched, rng)
    elif kind == "order":
        order = [0, *(1 + rng.permutation(len(sheet.header) - 1))]
        if list(order) == list(range(len(order))) or ("*", "order") in touched:
            return
        touched.add(("*", "order"))
        sheet.header = [sheet.header[i] for i in order]
        sheet.rows = [[row[i] for i in order] for row in sheet.rows]
        expected[(sheet.name, "order", None)] = None
    elif kind == "cells":
        row = int(rng.integers(1, len(sheet.rows)))
        if any(key[0] == sheet.name for key in expected):
            return  # a ragged line is left out, and a fault in it would be no fault
        sheet.ragged[row] = int(rng.choice([-1, 1]))
        expected[(sheet.name, "cells", None)] = {row}
        touched |= {(sheet.name, name) for name in names} | {("id", sheet.name)}
        touched.add(("*", "columns"))


def _plant_column(kind: str, sheets: Any, expected: Any, rng: Any) -> None:
    """A column in all files that is no feature."""
    title = {"date": "seen", "text": "remarks", "category": "ward", "id-column": "record_no"}[kind]
    if any(sheet.ragged for sheet in sheets) or any(key[1] == "duplicate row" for key in expected):
        return
    form, start = str(rng.choice(DATES)), int(rng.integers(1000, 9000))
    for sheet in sheets:
        n = len(sheet.rows)
        if kind == "date":
            days = rng.integers(0, 4000, n)
            day0 = np.datetime64("2012-01-01")
            forms = [form, str(rng.choice(DATES))] if rng.random() < 0.3 else [form]
            dates = [(day0 + np.timedelta64(int(d), "D")).item() for d in days]
            values = [date.strftime(str(rng.choice(forms))) for date in dates]
        elif kind == "text":
            words = rng.choice(["well", "seen", "pain; 2x", 'said "no"'], n)
            values = [f"{word}, note {rng.integers(10**6)}" for word in words]
        elif kind == "category":
            values = [str(v) for v in rng.choice(["icu", "surgery", "er"], n)]
        else:
            values = [str(start + i) for i in range(n)]
            start += n
        sheet.header.append(title)
        sheet.rows = [[*row, value] for row, value in zip(sheet.rows, values, strict=True)]
        said = {"id-column": "id"}.get(kind, kind)
        expected[(sheet.name, said, title)] = None


def _plant_name(
    kind: str, sheet: Any, sheets: Any, names: Any, expected: Any, touched: Any, rng: Any
) -> None:
    if ("*", "names") in touched or any(s.ragged for s in sheets):
        return
    if any(key[1] in ("duplicate row", "order") for key in expected):
        return
    touched |= {("*", "names"), ("*", "order")}
    if kind == "extra":
        sheet.header.append("shoe")
        sheet.rows = [[*row, f"{rng.normal(40, 3):.1f}"] for row in sheet.rows]
        expected[(sheet.name, "name", "shoe")] = None
        return
    name = _free_column(sheet, names, touched, rng)
    if name is None:
        return
    touched.add(("*", name))
    at = sheet.column(name)
    if kind == "renamed":
        sheet.header[at] = name.upper() if rng.random() < 0.5 else f"{name}_"
        expected[(sheet.name, "name", sheet.header[at])] = None
    else:
        del sheet.header[at]
        for row in sheet.rows:
            del row[at]
        expected[(sheet.name, "name", name)] = None


def _add_notes(sheets: Any, expected: Any, rng: Any) -> None:
    """A quoted note with line breaks, so that lines are no rows."""
    if any(sheet.ragged for sheet in sheets) or any(key[1] == "duplicate row" for key in expected):
        return
    for sheet in sheets:
        sheet.header.append("note")
        breaks = ["fine", "see\nbelow", "a\n\nb"]
        sheet.rows = [[*row, f"{rng.choice(breaks)} {rng.integers(10**6)}"] for row in sheet.rows]
        expected[(sheet.name, "text", "note")] = None


def compare(
    seed: int, folder: Path, id_column: str | None = "patient"
) -> tuple[list[Any], list[Any]]:
    """What was missed, and what is not there."""
    from eigenmesh.data.check_files import check_files

    sheets, expected, rng = draw(seed)
    written = {sheet.name: sheet.write(folder, rng) for sheet in sheets}
    # A column that is called so has the ids, whether it is named or not.
    findings = check_files([path for path, _ in written.values()], id_column)
    found = {(f.file.removesuffix(".csv"), f.kind, f.column): f for f in findings}
    doubtful = {key[2] for key in expected if key[0] == "?"}
    missed: list[Any] = []
    for key, rows in expected.items():
        if key[0] == "?":
            continue
        if key not in found:
            missed.append((seed, key, "not named"))
        elif rows is not None:
            lines = {written[key[0]][1][row] for row in rows}
            if set(found[key].lines) != lines:
                missed.append((seed, key, f"lines {sorted(lines)} named {found[key].lines}"))
    alarms = [
        (seed, key, finding.words)
        for key, finding in found.items()
        if key not in expected and not (key[1] == "units" and key[2] in doubtful)
    ]
    return missed, alarms


def main(n: int, first: int = 1000) -> None:
    """Count over n draws."""
    missed: list[Any] = []
    alarms: list[Any] = []
    n_planted = 0
    for seed in range(first, first + n):
        with tempfile.TemporaryDirectory() as folder:
            own_missed, own_alarms = compare(seed, Path(folder))
        n_planted += len(draw(seed)[1])
        missed += own_missed
        alarms += own_alarms
    for line in (*missed[:25], "--- false alarms", *alarms[:25]):
        print(line)
    print(f"{n} draws, {n_planted} faults: {len(missed)} missed, {len(alarms)} false alarms")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
