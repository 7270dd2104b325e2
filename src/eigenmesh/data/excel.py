"""Sheets of .xlsx files, by openpyxl, which is optional."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from eigenmesh.data.file_errors import complaint_about
from eigenmesh.data.text_format import GAPS


def read_sheet(path: Path) -> tuple[Any, int]:
    """The one sheet that has cells, as a table of Arrow's, and the number of its first row.

    The first row names the columns; formulas count by the values that were saved with them.
    """
    try:
        import openpyxl
    except ImportError:
        remedy = "pip install 'eigenmesh[excel]', or save it as .csv"
        raise complaint_about(path, "is .xlsx, which needs openpyxl", remedy) from None
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        sheets = [(sheet.title, _rows(sheet)) for sheet in book.worksheets]
    finally:
        book.close()
    full = [(title, rows) for title, rows in sheets if rows]
    if len(full) != 1:
        titles = ", ".join(repr(title) for title, _ in full) or "none"
        complaint = f"has {len(full)} sheets with cells ({titles}), expected one"
        raise complaint_about(path, complaint, "save the sheet that is meant as a file of its own")
    return _table(path, full[0][1])


def _rows(sheet: Any) -> list[tuple[int, tuple[Any, ...]]]:
    """Rows with a cell that is not empty, each with its number."""
    numbered = enumerate(sheet.iter_rows(values_only=True), start=1)
    return [(number, row) for number, row in numbered if any(cell is not None for cell in row)]


def _table(path: Path, rows: list[tuple[int, tuple[Any, ...]]]) -> tuple[Any, int]:
    (_, header), *body = rows
    width = max(i for _, row in rows for i, cell in enumerate(row) if cell is not None) + 1
    names = [_name(header, i) for i in range(width)]
    if not any(isinstance(cell, str) for cell in header):
        complaint = "begins with a row without words, expected the columns' names"
        raise complaint_about(path, complaint, "add them as the first row")
    first = body[0][0] if body else 2
    if body and body[-1][0] != first + len(body) - 1:
        complaint = "has an empty row between its rows, expected none"
        raise complaint_about(path, complaint, "delete it, or cut what is below")
    columns = [_column([row[i] if i < len(row) else None for _, row in body]) for i in range(width)]
    return pa.Table.from_arrays(columns, names=names), first


def _name(header: tuple[Any, ...], i: int) -> str:
    return "" if i >= len(header) or header[i] is None else str(header[i]).strip()


def _column(cells: list[Any]) -> Any:
    """Numbers, truths or dates where all cells are such, or gaps; else text."""
    values = [None if isinstance(cell, str) and cell.strip() in GAPS else cell for cell in cells]
    present = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in present) and present:
        return pa.array(values, pa.bool_())
    if all(isinstance(value, int) and not isinstance(value, bool) for value in present) and present:
        return pa.array(values, pa.int64())
    if all(isinstance(value, int | float) for value in present):
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    if all(isinstance(value, datetime.datetime) for value in present):
        return pa.array(values, pa.timestamp("us"))
    return pa.array([None if cell in (None, "") else str(cell) for cell in cells], pa.string())
