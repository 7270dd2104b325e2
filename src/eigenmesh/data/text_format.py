"""How a text file of numbers is written: its delimiter, its decimal sign, its header.

The rules, in this order, by the first lines of the file:

1. The delimiter is the comma, semicolon or tab that cuts the lines into equally many cells, more
   than one; of several the one that leaves more columns of numbers.
2. The decimal sign is a comma if numbers have one and none has a point.
3. The first line names the columns if a cell of it is no number.

What can be read in two ways is an error that states both, and what to pass.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from eigenmesh.data.file_errors import complaint_about, complaint_about_encoding
from eigenmesh.errors import InputError

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
MISSING = frozenset(  # Arrow's words for a missing number, and that of pandas
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
        *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
    )
)
_GAPS = MISSING | {"-", "--", "–", "—", "?", ".", "None", "N.A.", "k.A."}
# What among numbers can only be a gap, in any case; a level may be called so, as are a rhesus
# factor and sodium.
GAPS = frozenset(
    form for word in _GAPS for form in (word, word.lower(), word.upper(), word.capitalize())
)
_LONGEST_LINE = 1 << 26  # characters; a longer line is no table's
_LINES = 100  # looked at
_CHARACTERS = 1 << 22  # looked at, beyond the first line

_PLAIN = r"[+-]?(\d+|\d+\{0}\d*|\{0}\d+)([eE][+-]?\d+)?|[+-]?(inf|infinity)"
_NUMBER = {sign: re.compile(_PLAIN.format(sign), re.IGNORECASE) for sign in ".,"}
_WITH = {sign: re.compile(rf"[+-]?\d*\{sign}\d+([eE][+-]?\d+)?") for sign in ".,"}
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")


@dataclass(frozen=True)
class TextFormat:
    """What the owner of text files says about them; None is told from the file."""

    delimiter: str | None = None
    decimal: str | None = None
    header: bool | None = None

    def __post_init__(self) -> None:
        if self.delimiter not in (None, *DELIMITERS):
            choices = "',', ';' or '\\t' (tab)"
            raise InputError(f"delimiter is {self.delimiter!r}; {choices} is expected")
        if self.decimal not in (None, ".", ","):
            raise InputError(f"decimal is {self.decimal!r}; '.' or ',' is expected")


@dataclass(frozen=True)
class Dialect:
    """How one text file is written."""

    delimiter: str
    decimal: str
    names: tuple[str, ...] | None  # of the columns, where the first line has them
    n_columns: int
    line_length: int
    has_quotes: bool

    def is_number(self, cell: str) -> bool:
        """Whether a cell is a number, or missing."""
        cell = cell.strip()
        return cell in GAPS or _NUMBER[self.decimal].fullmatch(cell) is not None


def dialect_of(path: Path, stated: TextFormat) -> Dialect:
    """How a file is written, as stated or by its first lines."""
    lines = _first_lines(path)
    delimiter = stated.delimiter or _delimiter(path, lines)
    records = _records(lines, delimiter)
    if not lines[0].strip(f" \r\n{delimiter}") or "\0" in lines[0]:
        complaint = "begins with a blank line, expected column names or numbers"
        raise complaint_about(path, complaint, "cut it")
    decimal = stated.decimal or _decimal(path, lines, delimiter)
    names = _header(records[0], decimal) if stated.header is None else stated.header
    return Dialect(
        delimiter,
        decimal,
        tuple(cell.strip() for cell in records[0]) if names else None,
        len(records[0]),
        max(map(len, lines)),
        any('"' in line for line in lines),
    )


def open_text(path: Path) -> IO[str]:
    """The text of a file, packed or not, without its byte order mark."""
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def first_line_not_in_utf8(path: Path) -> int | None:
    """Its number in the file, from 1; None if all text is in UTF-8."""
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return None


def numbered_records(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The lines of cells below the header, each with its number in the file, from 1.

    A blank line is none, but in a file of one column it is a missing value.
    """
    with open_text(path) as file:
        reader = csv.reader(file, delimiter=dialect.delimiter)
        first = 1
        for number, cells in enumerate(reader):
            line, first = first, reader.line_num + 1
            if number == 0 and dialect.names is not None:
                continue
            if cells or dialect.n_columns == 1:
                yield line, cells


def line_of(path: Path, dialect: Dialect, row: int) -> int:
    """The line on which a row stands, counted from 1; rows are counted from 0."""
    return next(islice(numbered_records(path, dialect), row, None))[0]


def _first_lines(path: Path) -> list[str]:
    lines: list[str] = []
    try:
        with open_text(path) as file:
            lines.append(file.readline(_LONGEST_LINE))
            while len(lines) < _LINES and sum(map(len, lines[1:])) < _CHARACTERS:
                line = file.readline(_LONGEST_LINE)
                if not line:
                    break
                lines.append(line)
    except UnicodeDecodeError:
        raise complaint_about_encoding(path, first_line_not_in_utf8(path) or 1) from None
    return lines


def _records(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    return [cells for cells in csv.reader(lines, delimiter=delimiter) if cells]


def _delimiter(path: Path, lines: Sequence[str]) -> str:
    merits = {}
    for delimiter in DELIMITERS:
        # A line that is one long cell is more than Python's reader takes.
        records = _records(lines, delimiter) if delimiter in lines[0] else []
        width = len(records[0]) if records else 0
        if width > 1:
            alike = sum(len(cells) == width for cells in records) / len(records)
            merits[delimiter] = (alike, _share_of_numbers(records))
    if not merits:
        return ";" if any("," in line for line in lines) else ","  # one column
    best = max(merits.values())
    several = [delimiter for delimiter, merit in merits.items() if merit == best]
    if len(several) > 1:
        readings = " or ".join(
            f"{len(_records(lines, delimiter)[0])} columns by {DELIMITERS[delimiter]}"
            for delimiter in several
        )
        remedy = "pass delimiter= (--delimiter) with the one that is meant"
        raise complaint_about(path, f"can be read in two ways: {readings}", remedy)
    return several[0]


def _share_of_numbers(records: Sequence[Sequence[str]]) -> float:
    """Of the columns; the first line may name them."""
    width, body = len(records[0]), records[1:] or records
    whole = [cells for cells in body if len(cells) == width]
    return sum(all(_is_any_number(cells[i]) for cells in whole) for i in range(width)) / width


def _is_any_number(cell: str) -> bool:
    cell = cell.strip()
    return cell in GAPS or any(form.fullmatch(cell) for form in _NUMBER.values())


def _decimal(path: Path, lines: Sequence[str], delimiter: str) -> str:
    cells = [cell.strip() for record in _records(lines, delimiter) for cell in record]
    commas = [cell for cell in cells if _has_comma(cell)]
    if not commas:
        return "."
    if any(_has_point(cell) for cell in cells):
        comma, point = (_first_line(lines, delimiter, sign) for sign in (_has_comma, _has_point))
        complaint = f"has numbers with a comma (line {comma}) and with a point (line {point})"
        remedy = "pass decimal=',' or decimal='.' (--decimal) and mend the others"
        raise complaint_about(path, complaint, remedy)
    if all(_THOUSANDS.fullmatch(cell) for cell in commas):
        complaint = (
            "can be read in two ways: every comma in its numbers has three digits behind it, as in "
            "1,234, which is 1.234 by a decimal comma, or 1234 by a sign between thousands"
        )
        remedy = "pass decimal=',' (--decimal ,) for the first, cut the signs for the second"
        raise complaint_about(path, complaint, remedy)
    return ","


def _has_comma(cell: str) -> bool:
    return bool(_WITH[","].fullmatch(cell) or _THOUSANDS.fullmatch(cell))


def _has_point(cell: str) -> bool:
    return _WITH["."].fullmatch(cell) is not None


def _first_line(lines: Sequence[str], delimiter: str, is_such: Callable[[str], bool]) -> int:
    """The line, counted from 1, on which the first record with such a cell begins."""
    reader, first = csv.reader(lines, delimiter=delimiter), 1
    for cells in reader:
        if any(is_such(cell.strip()) for cell in cells):
            break
        first = reader.line_num + 1
    return first


def _header(cells: Sequence[str], decimal: str) -> bool:
    """Whether a first line names columns: it has words, or pandas' numbering 0, 1, 2, …"""
    body = [cell.strip() for cell in cells]
    has_index = body[0] == ""
    body = body[1:] if has_index else body
    has_numbers = body == [str(i) for i in range(len(body))]
    numbers = all(cell in GAPS or _NUMBER[decimal].fullmatch(cell) for cell in body)
    return (has_numbers and (has_index or len(body) > 2)) or not numbers
