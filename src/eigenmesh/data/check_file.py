"""What one file of a party has in it that a fit would stumble over, with the file's own lines."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenmesh.data import tabular
from eigenmesh.data.odd_columns import (
    CONSECUTIVE,
    FEWEST_ROWS,
    gaps_as_nines,
    id_columns,
    sounds_like_id,
)
from eigenmesh.data.text_format import GAPS, MISSING, Dialect, TextFormat, numbered_records
from eigenmesh.numerics.arrays import largest_value

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"
_WITH_POINT = r"^[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?$"
_NEARLY_NUMBER = r"^[<>≤≥~]? ?[€$£]? ?[+−-]?\d[\d.,' ]*[%‰€$£]?( [%‰€$£])?$"  # 1.234,50 and 50 %
_DAY = r"^(?:\pL{2,10}[.,]* )?"  # of the week
_THEN = r"(?:[T ].*)?$"  # a time
# In English, German, French, Spanish and Italian; where any word and a number may be a code.
_MONTH = (
    r"(?i:jan|feb|fév|mar|mär|apr|avr|abr|may|mai|mag|jun|jui|giu|jul|lug|aug|aoû|ago|sep|set|oct|"
    r"okt|ott|nov|dec|dez|déc|dic|ene|gen)\pL*\.?"
)
_DATE = "|".join(
    (
        rf"^\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}{_THEN}",  # 2024-05-17T08:30
        rf"{_DAY}\d{{1,2}}[-/.] ?\d{{1,2}}[-/.] ?(\d{{4}}|\d{{2}}){_THEN}",  # 17.5.24
        # 17 May 2024, 17-MAY-24, Fri, 17 May 2024 08:30
        rf"{_DAY}\d{{1,2}}(st|nd|rd|th)?[-. ]+\pL{{3,9}}[-., ]+(\d{{4}}|\d{{2}}){_THEN}",
        rf"{_DAY}\pL{{3,9}}\.? \d{{1,2}}(st|nd|rd|th)?,? \d{{4}}{_THEN}",  # May 17, 2024
        rf"{_DAY}{_MONTH} \d{{1,2}} [\d:]+ .*\d{{4}}$",  # Fri May 17 08:30:00 UTC 2024
        rf"^\d{{4}}[-/. ]{_MONTH}[-/. ]\d{{1,2}}{_THEN}",  # 2024-May-17
        rf"^\d{{1,2}}{_MONTH}\d{{4}}(:.*)?$",  # 17MAY2024:08:30
        rf"^{_MONTH}[-/ ](19|20)\d{{2}}$",  # May 2024
        r"^(19|20)\d{2}[-/](0?[1-9]|1[0-2])$|^(0?[1-9]|1[0-2])[-/](19|20)\d{2}$",  # 2024-05, 5/2024
        r"^(19|20)\d{2}-?W[0-5]\d(-?[1-7])?$",  # 2024-W20
        r"^(19|20)\d{2}[- ]?Q[1-4]$|^Q[1-4][-/ ](19|20)\d{2}$",  # 2024-Q2
        r"^([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?( ?[AaPp][Mm])?$",  # 08:30
    )
)
_DATE_AS_NUMBER = r"^(19|20)\d{2}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$"  # 20240517
_FEWEST_UNLIKE = 0.9  # of ids, some of which may be there twice
_MOST_LEVELS = 50  # of a category
_FEWEST_NUMBERS = 10  # unlike, of a column that is no category of <40 and >60
_MOST_ALIKE = 0.05  # of rows that are there twice, beyond which that is how the data are
_FEWEST_FOR_ALIKE = 10  # rows

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Finding:
    """One thing in one file, where it is, and what to do about it."""

    file: str
    kind: str
    column: str | None
    lines: tuple[int, ...]
    words: str
    remedy: str
    is_note: bool = False  # nothing need be done


@dataclass
class FileFacts:
    """One file: its columns of numbers, its ids, and what is wrong with it."""

    name: str
    columns: tuple[str, ...] = ()
    has_names: bool = False
    numbers: dict[str, Numbers] = field(default_factory=dict)  # of features; NaN where missing
    kinds: dict[str, str] = field(default_factory=dict)  # "number", "date", "text" or "category"
    ids: NDArray[Any] | None = None
    suspects: dict[str, NDArray[Any]] = field(default_factory=dict)  # columns that look like ids
    line: Callable[[Any], tuple[int, ...]] = lambda rows: ()
    findings: list[Finding] = field(default_factory=list)
    n_rows: int = 0
    party: int = 0  # whose it is: a folder has several files of one

    def add(
        self, kind: str, column: str | None, rows: Any, words: str, remedy: str, **how: Any
    ) -> None:
        """Take note of a finding at some rows, or at the header if there are none."""
        lines = self.line(rows) if rows is not None else ()
        self.findings.append(Finding(self.name, kind, column, lines, words, remedy, **how))


@dataclass(frozen=True)
class _TextRows:
    """Which line of a text file each of its whole rows stands on, and which lines are ragged."""

    path: Path
    dialect: Dialect

    @cached_property
    def lines(self) -> tuple[list[int], list[int]]:
        whole: list[int] = []
        ragged: list[int] = []
        for line, cells in numbered_records(self.path, self.dialect):
            cells_wanted = self.dialect.n_columns
            (whole if len(cells or [""]) == cells_wanted else ragged).append(line)
        return whole, ragged


def check_file(path: Path, name: str, id_column: str | None, stated: TextFormat) -> FileFacts:
    """All that is wrong with a file of named columns, taken by itself."""
    facts = FileFacts(name)
    table = tabular.open_table(path, stated)
    rows: _TextRows | None = None
    if table.types is None:
        rows = _TextRows(path, table.dialect)
        facts.line = lambda at: tuple(rows.lines[0][int(row)] for row in at)
    else:
        facts.line = lambda at: tuple(table.line(int(row)) for row in at)
    facts.has_names = table.names is not None
    facts.columns = table.names or tuple(str(i) for i in range(table.n_columns))
    written = table.as_written()
    cells = [table.with_points(own) for own in written]
    facts.n_rows = len(cells[0]) if cells else 0
    if rows is not None:
        _look_at_lines(facts, rows)
    if facts.n_rows == 0:
        facts.add("empty", None, None, "has no rows", "write it again")
        return facts
    _look_at_names(facts)
    ids = tabular.id_position(table, id_column)
    numbers = tabular.feature_positions(table, id_column)
    for i, column in enumerate(facts.columns):
        if i == ids:
            _look_at_ids(facts, column, cells[i])
        elif i in numbers:
            _look_at_column(facts, column, cells[i])
            if rows is not None and rows.dialect.decimal == "," and column in facts.numbers:
                _look_for_points(facts, column, written[i])
    _look_for_numbered_ids(facts, dict(zip(facts.columns, cells, strict=True)))
    features = [i for i, name in enumerate(facts.columns) if facts.kinds.get(name) != "id"]
    _look_for_rows_alike(facts, [cells[i] for i in features if i in numbers])
    facts.columns = tuple(facts.columns[i] for i in numbers)
    return facts


def _look_at_lines(facts: FileFacts, rows: _TextRows) -> None:
    _, ragged = rows.lines
    if ragged:
        facts.findings.append(
            Finding(
                facts.name,
                "cells",
                None,
                tuple(ragged),
                f"has {_lines(len(ragged))} with more or fewer than {rows.dialect.n_columns} cells",
                "mend the lines; quote cells that hold a delimiter",
            )
        )


def _look_at_names(facts: FileFacts) -> None:
    for name, n in Counter(facts.columns).items():
        if n > 1:
            words, remedy = f"is the name of {n} columns", "give each column a name of its own"
            facts.findings.append(Finding(facts.name, "name", name, (1,), words, remedy))


def _look_at_ids(facts: FileFacts, column: str, cells: Any) -> None:
    texts = np.asarray(cells.to_pylist(), dtype=object)
    missing = np.flatnonzero([text is None or text.strip() == "" for text in texts])
    if len(missing):
        words = f"{rows_have(len(missing))} no id"
        facts.add("missing id", column, missing, words, "give each row its id, or drop it")
    take_for_ids(facts, column, np.array(["" if own is None else own.strip() for own in texts]))


def take_for_ids(facts: FileFacts, column: str, texts: NDArray[Any]) -> None:
    """Let a column have the file's ids, and look for those that are there twice."""
    repeated = _repeated(texts, ignore=("",))
    if len(repeated):
        words = f"{rows_have(len(repeated))} an id that another row has, too"
        facts.add("duplicate id", column, repeated, words, "drop the rows that are there twice")
    facts.ids = texts


def _repeated(values: NDArray[Any], ignore: Sequence[Any] = ()) -> NDArray[np.intp]:
    """Rows whose value another row has, too."""
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    twice = (counts > 1)[codes] & ~np.isin(values, list(ignore))
    return np.flatnonzero(twice)


def _look_at_column(facts: FileFacts, column: str, cells: Any) -> None:
    cells = pc.utf8_trim_whitespace(pc.fill_null(cells, ""))
    missing, gaps = (_is_one_of(cells, words) for words in (MISSING, GAPS))
    if missing.all():
        facts.kinds[column] = "empty"
        facts.add("constant", column, None, "is empty", "leave it out")
        return
    number = _matches(cells, _NUMBER) & ~missing
    truth = _matches(cells, r"^(?i:true|false)$")
    date = _dates(cells, number) & ~missing
    if date.sum() * 2 > (~missing).sum():
        facts.kinds[column] = "date"
        _note_gaps(facts, column, missing, "leave the column out (--columns)")
        first = np.flatnonzero(date)[:1]
        remedy = "leave it out (--columns), or write a number: days since a day, an age"
        facts.add("date", column, first, "holds dates or times", remedy)
    elif (number | truth).sum() * 2 > (~gaps).sum():
        _note_gaps(facts, column, gaps, "fill them (--fill-missing), or drop the rows")
        _look_at_numbers(facts, column, cells, number, gaps, truth)
    else:
        _note_gaps(facts, column, missing, "nothing, if it is a category: a gap is a level, too")
        _look_at_words(facts, column, cells, missing, number)


def _is_one_of(cells: Any, words: Collection[str]) -> NDArray[np.bool_]:
    are: NDArray[np.bool_] = pc.is_in(cells, pa.array(sorted(words))).to_numpy(zero_copy_only=False)
    return are


def _note_gaps(facts: FileFacts, column: str, gaps: Any, remedy: str) -> None:
    if gaps.any():
        n_gaps = int(gaps.sum())
        words = f"{n_gaps} of {len(gaps)} values {_are(n_gaps)} missing"
        facts.add("missing", column, np.flatnonzero(gaps), words, remedy)


def rows_have(n: int) -> str:
    """The subject of a sentence about so many rows, with its verb."""
    return "1 row has" if n == 1 else f"{n} rows have"


def _lines(n: int) -> str:
    return "1 line" if n == 1 else f"{n} lines"


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _values(n: int) -> str:
    """The subject of a sentence about so many values, with its verb."""
    return "1 value is" if n == 1 else f"{n} values are"


def _matches(cells: Any, pattern: str) -> NDArray[np.bool_]:
    matches = pc.match_substring_regex(cells, pattern)
    return np.array(matches.to_numpy(zero_copy_only=False), dtype=bool)


def _dates(cells: Any, number: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which cells are dates or times.

    Names of months and days in any letters make a hundred times the work of other patterns, which
    plain numbers and words without a digit are spared.
    """
    date = _matches(cells, _DATE_AS_NUMBER)
    likely = np.flatnonzero(~number & _matches(cells, r"\d"))
    date[likely] = _matches(cells.take(pa.array(likely)), _DATE)
    return date


def _look_at_numbers(
    facts: FileFacts, column: str, cells: Any, number: Any, missing: Any, truth: Any
) -> None:
    facts.kinds[column] = "number"
    words_at = np.flatnonzero(~(number | missing | truth))
    if len(words_at):
        words = f"{_values(len(words_at))} no number, among numbers"
        facts.add("not a number", column, words_at, words, "write numbers, or leave them empty")
    values = np.full(len(number), np.nan)
    values[number] = np.asarray(cells.filter(pa.array(number)).to_pylist(), dtype=np.float64)
    lowered = np.array(pc.utf8_lower(cells).to_pylist(), dtype=object)
    values[truth] = lowered[truth] == "true"
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        words = f"{_values(len(infinite))} infinite"
        facts.add("not a number", column, infinite, words, "write numbers, or leave them empty")
        values[infinite] = np.nan
    large = np.flatnonzero(np.abs(values) > largest_value(np.float64))
    if len(large):
        words = (
            f"{_values(len(large))} beyond {largest_value(np.float64):g}, too large to be added up"
        )
        facts.add("too large", column, large, words, "mend them, or write it in larger units")
        values[large] = np.nan
    nines = gaps_as_nines(values)
    if len(nines):
        words = f"{_values(len(nines))} nothing but nines, far from all others: a gap?"
        facts.add("nines", column, nines, words, "leave the cells empty, if they are gaps")
        values[nines] = np.nan
    present = values[~np.isnan(values)]
    if len(present) > 1 and (present == present[0]).all():
        facts.add("constant", column, None, "has one value only", "leave it out: it tells nothing")
    facts.numbers[column] = values


def _look_for_points(facts: FileFacts, column: str, written: Any) -> None:
    """Numbers with a point in a file of decimal commas; what they mean is nobody's to guess."""
    at = np.flatnonzero(_matches(pc.utf8_trim_whitespace(pc.fill_null(written, "")), _WITH_POINT))
    if len(at):
        words = f"{_values(len(at))} written with a point, the file's others with a decimal comma"
        remedy = "write all numbers alike, or state the sign (--decimal)"
        facts.add("not a number", column, at, words, remedy)


def _look_at_words(facts: FileFacts, column: str, cells: Any, missing: Any, number: Any) -> None:
    texts = np.array(cells.to_pylist())[~missing]
    levels = np.unique(texts)
    near = _matches(cells, _NEARLY_NUMBER) & ~missing & ~number
    is_nearly = (near | number).sum() * 2 > len(texts) and len(levels) > _FEWEST_NUMBERS
    if is_nearly and not sounds_like_id(column):
        facts.kinds[column] = "text"
        words = f"{_values(int(near.sum()))} no plain number: a sign between thousands, %, < or €"
        facts.add("not a number", column, np.flatnonzero(near), words, "write plain numbers")
        return
    first = np.flatnonzero(~missing)[:1]
    if len(texts) > 1 and len(levels) >= _FEWEST_UNLIKE * len(texts) and sounds_like_id(column):
        facts.kinds[column] = "id"
        facts.suspects[column] = np.array(cells.to_pylist())
        remedy = f"name it: --id-column {column!r}"
        facts.add("id", column, first, "holds ids, which are no feature", remedy)
    elif len(levels) == 1 and len(texts) > 1:
        facts.kinds[column] = "category"
        facts.add("constant", column, None, "has one value only", "leave it out: it tells nothing")
    elif len(levels) <= min(_MOST_LEVELS, len(texts) / 2):
        facts.kinds[column] = "category"
        remedy = (
            f"name it: --categories {column!r} (a column a level), --label-column {column!r} (to "
            f"colour a page by), or leave it out (--columns)"
        )
        facts.add("category", column, first, f"holds words, {len(levels)} different ones", remedy)
        _look_at_spellings(facts, column, cells, missing)
    else:
        facts.kinds[column] = "text"
        remedy = "leave it out (--columns)"
        facts.add("text", column, first, "holds free text, which is no feature", remedy)


def _look_at_spellings(facts: FileFacts, column: str, cells: Any, missing: Any) -> None:
    """Levels that differ in capitals and blanks alone: one level each for whoever wrote them."""
    usual: dict[str, str] = {}
    texts = np.array(cells.to_pylist(), dtype=object)
    for level, _ in Counter(texts[~missing]).most_common():
        usual.setdefault(_spelling(level), level)
    unusual = [
        not gap and usual[_spelling(own)] != own for own, gap in zip(texts, missing, strict=True)
    ]
    at = np.flatnonzero(unusual)
    if len(at):
        rows = "1 row spells a level" if len(at) == 1 else f"{len(at)} rows spell levels"
        words = f"{rows} otherwise than most (capitals or blanks)"
        facts.add("spelling", column, at, words, "write them alike, if they are one level")


def _spelling(level: str) -> str:
    return "".join(unicodedata.normalize("NFKC", level).split()).casefold()


def _look_for_numbered_ids(facts: FileFacts, cells: Mapping[str, Any]) -> None:
    reasons = {
        name: "whole numbers under such a name"
        for name, own in facts.numbers.items()
        if _is_named_id(name, own)
    }
    whole = {name: own for name, own in facts.numbers.items() if not np.isnan(own).any()}
    X = np.column_stack(list(whole.values())) if whole else np.empty((0, 0))
    for suspect in id_columns({facts.name: X}, "rows", {facts.name: list(whole)}):
        reasons[list(whole)[suspect.column]] = suspect.reason
    for column, reason in reasons.items():
        facts.kinds[column] = "id"
        least = np.nanmin(facts.numbers.pop(column))
        # What counts from 1 in each file may be a line's number, and what is called so no year.
        if reason != CONSECUTIVE or (least > 1 and sounds_like_id(column)):
            facts.suspects[column] = _id_texts(cells[column])
        words = f"looks like ids ({reason}), which are no feature"
        facts.add("id", column, [0], words, f"name it: --id-column {column!r}, or leave it out")


def _is_named_id(column: str, values: Numbers) -> bool:
    """Whether a name says so of whole numbers, some of which may be there twice or be missing."""
    present = values[~np.isnan(values)]
    if len(present) < max(FEWEST_ROWS, _FEWEST_UNLIKE * len(values)) or not sounds_like_id(column):
        return False
    is_whole = bool((present == np.floor(present)).all())
    return is_whole and len(np.unique(present)) >= _FEWEST_UNLIKE * len(present)


def _id_texts(cells: Any) -> NDArray[Any]:
    """Ids as they are written; one that became a float by the way is the whole number again."""
    trimmed = pc.utf8_trim_whitespace(pc.fill_null(cells, ""))
    texts = np.array(pc.replace_substring_regex(trimmed, r"\.0$", "").to_pylist())
    texts[_is_one_of(trimmed, GAPS)] = ""
    return texts


def _look_for_rows_alike(facts: FileFacts, cells: Sequence[Any]) -> None:
    """Rows alike in all features, where that is no wonder of few values."""
    if not cells or facts.n_rows < _FEWEST_FOR_ALIKE:
        return
    texts = [pc.utf8_trim_whitespace(pc.fill_null(own, "")) for own in cells]
    unlike = max(pc.count_distinct(own).as_py() for own in texts)
    joined = pc.binary_join_element_wise(*texts, "\x1f")
    codes = joined.dictionary_encode().indices.to_numpy()
    repeated = _repeated(codes)
    if len(repeated) and unlike > facts.n_rows / 2:
        extra = len(repeated) - len(np.unique(codes[repeated]))
        if extra <= max(1.0, _MOST_ALIKE * facts.n_rows):
            words = f"{len(repeated)} rows are alike in all columns"
            remedy = "drop those that are there twice"
            facts.add("duplicate row", None, repeated, words, remedy)
