"""Files with named columns, .csv and .parquet, read by Arrow."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from eigenmesh.data.readers import complaint_about
from eigenmesh.data.sample_ids import as_sample_ids
from eigenmesh.data.table import Table

_ID_NAMES = ("id", "sample_id", "__index_level_0__")  # the last is pandas' index in .parquet
_LONGEST_LINE = 1 << 26  # characters; a longer first line is no table


Columns = Sequence[str] | None


def read(path: Path, id_column: str | None, header: bool | None, columns: Columns = None) -> Table:
    """Read a .csv or .parquet file, or some of its columns."""
    if path.suffix.lower() == ".csv":
        return _read_csv(path, id_column, header, columns)
    return _read_parquet(path, id_column, columns)


def _read_csv(path: Path, id_column: str | None, header: bool | None, wanted: Columns) -> Table:
    cells, delimiter, length = _first_line(path)
    names = _names_in(path, cells, id_column, header)
    ids = None if names is None else _id_position(path, names, id_column)
    ragged_lines = _RaggedLines()
    # Columns go by position, since a header may repeat a name; a block must hold a line.
    reading = pyarrow.csv.ReadOptions(
        column_names=[str(i) for i in range(len(cells))],
        skip_rows=int(names is not None),
        block_size=max(1 << 23, 8 * length),
    )
    # In a file of one column an empty line is a missing value.
    parsing = pyarrow.csv.ParseOptions(
        delimiter=delimiter, ignore_empty_lines=len(cells) > 1, invalid_row_handler=ragged_lines
    )
    columns = _arrow_columns(path, reading, parsing, ids)
    ragged_lines.refuse(path)
    return _table_of(path, columns, names, ids, wanted)


def _names_in(
    path: Path, cells: Sequence[str], id_column: str | None, header: bool | None = None
) -> list[str] | None:
    """The columns' names, if a first line has them."""
    has_names = _is_header(cells) if header is None else header
    if id_column is not None and not has_names:
        raise complaint_about(path, f"has no header line, so no id column {id_column!r}", "add one")
    return [cell.strip() for cell in cells] if has_names else None


def _arrow_columns(path: Path, reading: Any, parsing: Any, ids: int | None) -> Sequence[Any]:
    numbers = dict.fromkeys(reading.column_names, pa.float64())
    texts = {} if ids is None else {str(ids): pa.string()}  # ids such as 007 keep their zeros
    try:
        return _parsed(path, reading, parsing, numbers | texts)
    except pa.ArrowInvalid:
        # Guessing types is five times slower, but takes true and false for numbers, and
        # tells which column has none.
        return _parsed(path, reading, parsing, texts)


def _parsed(path: Path, reading: Any, parsing: Any, types: dict[str, Any]) -> Sequence[Any]:
    converting = pyarrow.csv.ConvertOptions(column_types=types)
    return list(pyarrow.csv.read_csv(path, reading, parsing, converting).columns)


def _first_line(path: Path) -> tuple[list[str], str, int]:
    """Cells of the first line, the delimiter, and the line's length."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        line = file.readline(_LONGEST_LINE)
    delimiter = max(",;\t", key=line.count)
    cells = next(csv.reader([line], delimiter=delimiter), [])
    if not any(cell.strip() for cell in cells) or "\0" in line:
        raise complaint_about(
            path, "begins with a blank line, expected column names or numbers", "cut it"
        )
    return cells, delimiter, len(line)


def _is_header(cells: Sequence[str]) -> bool:
    """Whether a first line names columns: it has words, or pandas' numbering 0, 1, 2, …"""
    body = [cell.strip() for cell in cells]
    has_index = body[0] == ""
    body = body[1:] if has_index else body
    has_numbers = body == [str(i) for i in range(len(body))]
    return (has_numbers and (has_index or len(body) > 2)) or not all(map(_is_number, body))


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


@dataclass
class _RaggedLines:
    """Takes note of lines with too few or too many cells; Arrow swallows what a handler raises."""

    first: tuple[int, int] | None = None

    def __call__(self, line: Any) -> str:
        self.first = self.first or (line.actual_columns, line.expected_columns)
        return "skip"

    def refuse(self, path: Path) -> None:
        if self.first is not None:
            complaint = f"has a line of {self.first[0]} cells, expected {self.first[1]}"
            raise complaint_about(
                path, complaint, "mend the line; quote cells that hold a delimiter"
            )


def _id_position(path: Path, names: Sequence[str], id_column: str | None) -> int | None:
    if id_column is None:
        # A blank first name is how pandas and R write an index.
        blank = bool(names) and names[0] == ""
        candidates = (i for i, name in enumerate(names) if name.lower() in _ID_NAMES)
        return 0 if blank else next(candidates, None)
    if id_column not in names:
        few = ", ".join(names[:10])
        raise complaint_about(path, f"has no column {id_column!r}, only {few}", "pass one of them")
    return list(names).index(id_column)


def _read_parquet(path: Path, id_column: str | None, wanted: Columns) -> Table:
    table = pq.ParquetFile(path).read()
    ids = _id_position(path, table.column_names, id_column)
    return _table_of(path, table.columns, table.column_names, ids, wanted)


def peek_names(path: Path, id_column: str | None) -> tuple[str, ...] | None:
    """Names of the columns of numbers, from the first line or the footer alone."""
    if path.suffix.lower() == ".csv":
        names = _names_in(path, _first_line(path)[0], id_column)
    else:
        names = pq.ParquetFile(path).schema_arrow.names
    if names is None:
        return None
    ids = _id_position(path, names, id_column)
    return tuple(name for i, name in enumerate(names) if i != ids)


def peek_parquet(path: Path, id_column: str | None) -> tuple[int, int]:
    """Rows and columns of numbers, from the footer alone."""
    file = pq.ParquetFile(path)
    names = file.schema_arrow.names
    has_ids = _id_position(path, names, id_column) is not None
    return file.metadata.num_rows, len(names) - has_ids


def _table_of(
    path: Path,
    columns: Sequence[Any],
    names: Sequence[str] | None,
    ids: int | None,
    wanted: Columns = None,
) -> Table:
    features = [i for i in range(len(columns)) if i != ids]
    if wanted is not None:
        features = [_position(path, names, name) for name in wanted]
    labels = [repr(names[i]) if names else str(i) for i in range(len(columns))]
    if not features or not len(columns[0]):
        complaint = f"holds {len(columns[0])} rows and {len(features)} columns of numbers"
        raise complaint_about(path, complaint + ", expected at least one of each", "write it again")
    for i in [*features, *([] if ids is None else [ids])]:
        _check_column(path, columns[i], labels[i], is_id=i == ids)
    X = _fill_matrix([columns[i] for i in features])
    sample_ids = None if ids is None else _ids_of(columns[ids])
    return Table(X, sample_ids, tuple(names[i] for i in features) if names else None)


def _position(path: Path, names: Sequence[str] | None, name: str) -> int:
    if names is None or list(names).count(name) != 1:
        few = "no header" if names is None else ", ".join(names[:10])
        count = list(names or ()).count(name) or "no"
        raise complaint_about(path, f"has {count} column {name!r}, only {few}", "name one of them")
    return list(names).index(name)


def _check_column(path: Path, column: Any, label: str, *, is_id: bool) -> None:
    kind = column.type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        complaint = f"has no value at row {row}, column {label} (rows counted from 0)"
        raise complaint_about(path, f"{complaint}, expected a number", "drop or impute such rows")
    if is_id and not (pa.types.is_integer(kind) or text):
        remedy = "pass id_column= with another column"
        raise complaint_about(path, f"has ids of type {kind}, expected numbers or strings", remedy)
    if not (is_id or numeric):
        remedy = "encode it as numbers, drop it, or name it as id_column="
        raise complaint_about(
            path, f"has a column {label} of type {kind}, expected numbers", remedy
        )


def _fill_matrix(columns: Sequence[Any]) -> NDArray[Any]:
    single = all(pa.types.is_float32(c.type) or pa.types.is_float16(c.type) for c in columns)
    X = np.empty((len(columns[0]), len(columns)), dtype=np.float32 if single else np.float64)
    for i, column in enumerate(columns):
        X[:, i] = column.to_numpy()
    return X


def _ids_of(column: Any) -> Any:
    """Ids as whole numbers where that loses nothing, else as strings."""
    if pa.types.is_integer(column.type):
        return as_sample_ids(column.to_numpy())
    texts = column.to_pylist()
    try:
        numbers = [int(text) for text in texts]
    except ValueError:
        return as_sample_ids(texts)
    return as_sample_ids(numbers if list(map(str, numbers)) == texts else texts)
