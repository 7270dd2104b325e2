"""Files of numbers: .npy, .npz, .csv and .parquet; nothing is ever unpickled."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import scipy.sparse as sp
from numpy.typing import NDArray

from eigenmesh.data.sample_ids import as_sample_ids
from eigenmesh.data.table import Matrix, Table
from eigenmesh.errors import EigenmeshError, InputError

TABLE_SUFFIXES = frozenset({".csv", ".parquet"})  # formats with named columns
_SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
_ID_NAMES = ("id", "sample_id", "__index_level_0__")  # the last is pandas' index in .parquet
_SPARSE_KEYS = {"data", "indices", "indptr", "shape"}
_LONGEST_LINE = 1 << 26  # characters; a longer first line is no table


def open_data(path: str | Path) -> Matrix:
    """The matrix in a file; .npy files are memory-mapped, sparse .npz files become CSR.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "north.npy"
    >>> np.save(file, np.ones((3, 2)))
    >>> type(open_data(file)).__name__, open_data(file).shape
    ('memmap', (3, 2))
    """
    return read_table(path).X


def read_table(path: str | Path, id_column: str | None = None, header: bool | None = None) -> Table:
    r"""The matrix in a file with its sample ids and feature names.

    In .csv and .parquet files the column `id_column`, or else one called "id" or "sample_id"
    (or the unnamed index that pandas writes), gives the ids. `header` says whether the first
    line of a .csv names the columns; None finds out.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "north.csv"
    >>> _ = file.write_text("id,age,height\na7,31,1.8\nb2,25,1.7\n")
    >>> table = read_table(file)
    >>> table.X.tolist(), table.sample_ids.tolist(), table.feature_names
    ([[31.0, 1.8], [25.0, 1.7]], ['a7', 'b2'], ('age', 'height'))
    """
    path = _existing(path)
    suffix = path.suffix.lower()
    if suffix not in TABLE_SUFFIXES and id_column is not None:
        raise _complaint(path, f"has no named columns, so no id column {id_column!r}", "leave it")
    with _reading(path):
        if suffix == ".csv":
            return _read_csv(path, id_column, header)
        if suffix == ".parquet":
            return _read_parquet(path, id_column)
        X = _open_npy(path) if suffix == ".npy" else _open_npz(path)
    if X.ndim != 2:
        raise _complaint(path, f"holds a {X.ndim}-D array, expected 2-D", "save rows by columns")
    return Table(X)


def peek_shape(path: str | Path) -> tuple[int, int] | None:
    """Rows and columns of the matrix in a file, without reading it; None for .csv.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "north.npz"
    >>> np.savez_compressed(file, X=np.ones((3, 2)))
    >>> peek_shape(file)
    (3, 2)
    """
    path = _existing(path)
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return None  # counting its lines means reading it
    with _reading(path):
        if suffix == ".parquet":
            return _peek_parquet(path)
        shape = _open_npy(path).shape if suffix == ".npy" else _peek_npz(path)
    if len(shape) != 2:
        raise _complaint(
            path, f"holds a {len(shape)}-D array, expected 2-D", "save rows by columns"
        )
    return int(shape[0]), int(shape[1])


# Errors: whatever a foreign reader raises on a bad file, the caller gets ours.


def _complaint(path: Path, complaint: str, remedy: str) -> InputError:
    return InputError(f"file {path.name!r} {complaint}; {remedy}")


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        expected = ", ".join(_SUFFIXES)
        raise _complaint(path, f"ends in {path.suffix!r}, expected {expected}", "convert it")
    if not path.exists():
        remedy = "check the path; a relative one starts at the working directory"
        raise _complaint(path, "is missing, expected a file of numbers", remedy)
    if not path.is_file():
        raise _complaint(path, "is no regular file, expected one", "pass a file, not a folder")
    if path.stat().st_size == 0:
        raise _complaint(path, "is empty (0 bytes), expected numbers", "write it again")
    return path


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    kind = path.suffix.lower()
    try:
        yield
    except EigenmeshError:
        raise
    except PermissionError:
        raise _complaint(path, "may not be read", "give this user the right to read it") from None
    except MemoryError:
        remedy = "save it as .npy, which is mapped and not loaded"
        raise _complaint(path, "needs more memory than there is", remedy) from None
    except Exception:
        # Damaged files make numpy, zipfile and Arrow raise nearly anything; their text may
        # quote data, so it stays out of a message that can leave the site.
        complaint = f"cannot be read as {kind}: it is damaged, truncated or in another format"
        raise _complaint(path, complaint, "write it again from its source") from None


# numpy files.


def _open_npy(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise _complaint(path, "has no .npy header (a pickle?)", "write it with np.save")
        file.seek(0)
        _, dtype = _header(file)
    _refuse_objects(path, dtype)
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read = np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _refuse_objects(path: Path, dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        complaint = "holds pickled Python objects, which are never loaded; expected plain numbers"
        raise _complaint(path, complaint, "save X.astype(float) instead")


def _npz_headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    headers = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as file:
                headers[member.removesuffix(".npy")] = _header(file)
    for _, dtype in headers.values():
        _refuse_objects(path, dtype)
    return headers


def _npz_key(path: Path, headers: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> str:
    if "X" in headers:
        return "X"
    matrices = [key for key, (shape, _) in headers.items() if len(shape) == 2]
    if len(matrices) != 1:
        complaint = f"holds {len(matrices)} 2-D arrays and none called 'X', expected one"
        raise _complaint(path, complaint, "write it with np.savez(file, X=...)")
    return matrices[0]


def _peek_npz(path: Path) -> tuple[int, ...]:
    headers = _npz_headers(path)
    if not headers.keys() >= {"data", "shape"}:
        return headers[_npz_key(path, headers)][0]
    with np.load(path, allow_pickle=False) as archive:
        return tuple(archive["shape"].tolist())


def _open_npz(path: Path) -> Any:
    headers = _npz_headers(path)
    if "format" in headers:
        return _checked_csr(sp.load_npz(path))
    with np.load(path, allow_pickle=False) as archive:
        if not headers.keys() >= _SPARSE_KEYS:
            return archive[_npz_key(path, headers)]
        arrays = (archive["data"], archive["indices"], archive["indptr"])
        return _checked_csr(sp.csr_array(arrays, shape=tuple(archive["shape"].tolist())))


def _checked_csr(X: Any) -> Any:
    # Indices out of range would make the compiled routines read foreign memory.
    if hasattr(X, "check_format"):
        X.check_format(full_check=True)
    return sp.csr_array(X)


# Tables.


def _read_csv(path: Path, id_column: str | None, header: bool | None) -> Table:
    cells, delimiter, length = _first_line(path)
    named = _is_header(cells) if header is None else header
    if id_column is not None and not named:
        raise _complaint(path, f"has no header line, so no id column {id_column!r}", "add one")
    names = [cell.strip() for cell in cells] if named else None
    ids = None if names is None else _id_position(path, names, id_column)
    ragged = _RaggedLines()
    table = pyarrow.csv.read_csv(
        path,
        # Columns go by position, since a header may repeat a name; a block must hold a line.
        read_options=pyarrow.csv.ReadOptions(
            column_names=[str(i) for i in range(len(cells))],
            skip_rows=int(named),
            block_size=max(1 << 23, 8 * length),
        ),
        # In a file of one column an empty line is a missing value.
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter,
            ignore_empty_lines=len(cells) > 1,
            invalid_row_handler=ragged,
        ),
        # Read as text, ids such as 007 keep their zeros.
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={} if ids is None else {str(ids): pa.string()}
        ),
    )
    ragged.refuse(path)
    return _table_of(path, table.columns, names, ids)


def _first_line(path: Path) -> tuple[list[str], str, int]:
    """Cells of the first line, the delimiter, and the line's length."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        line = file.readline(_LONGEST_LINE)
    delimiter = max(",;\t", key=line.count)
    cells = next(csv.reader([line], delimiter=delimiter), [])
    if not any(cell.strip() for cell in cells) or "\0" in line:
        raise _complaint(
            path, "begins with a blank line, expected column names or numbers", "cut it"
        )
    return cells, delimiter, len(line)


def _is_header(cells: Sequence[str]) -> bool:
    """Whether a first line names columns: it has words, or pandas' numbering 0, 1, 2, …"""
    body = [cell.strip() for cell in cells]
    indexed = body[0] == ""
    body = body[1:] if indexed else body
    numbered = body == [str(i) for i in range(len(body))]
    return (numbered and (indexed or len(body) > 2)) or not all(map(_is_number, body))


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
            raise _complaint(path, complaint, "mend the line; quote cells that hold a delimiter")


def _id_position(path: Path, names: Sequence[str], id_column: str | None) -> int | None:
    if id_column is None:
        # A blank first name is how pandas and R write an index.
        blank = bool(names) and names[0] == ""
        known = (i for i, name in enumerate(names) if name.lower() in _ID_NAMES)
        return 0 if blank else next(known, None)
    if id_column not in names:
        shown = ", ".join(names[:10])
        raise _complaint(path, f"has no column {id_column!r}, only {shown}", "pass one of them")
    return list(names).index(id_column)


def _read_parquet(path: Path, id_column: str | None) -> Table:
    table = pq.ParquetFile(path).read()
    ids = _id_position(path, table.column_names, id_column)
    return _table_of(path, table.columns, table.column_names, ids)


def _peek_parquet(path: Path) -> tuple[int, int]:
    file = pq.ParquetFile(path)
    names = file.schema_arrow.names
    has_ids = _id_position(path, names, None) is not None
    return file.metadata.num_rows, len(names) - has_ids


def _table_of(
    path: Path, columns: Sequence[Any], names: Sequence[str] | None, ids: int | None
) -> Table:
    kept = [i for i in range(len(columns)) if i != ids]
    labels = [repr(names[i]) if names else str(i) for i in range(len(columns))]
    if not kept or not len(columns[0]):
        complaint = f"holds {len(columns[0])} rows and {len(kept)} columns of numbers"
        raise _complaint(path, complaint + ", expected at least one of each", "write it again")
    for i in range(len(columns)):
        _check_column(path, columns[i], labels[i], is_id=i == ids)
    X = _filled([columns[i] for i in kept])
    sample_ids = None if ids is None else _ids_of(columns[ids])
    return Table(X, sample_ids, tuple(names[i] for i in kept) if names else None)


def _check_column(path: Path, column: Any, label: str, *, is_id: bool) -> None:
    kind = column.type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        complaint = f"has no value at row {row}, column {label} (rows counted from 0)"
        raise _complaint(path, f"{complaint}, expected a number", "drop or impute such rows")
    if is_id and not (pa.types.is_integer(kind) or text):
        remedy = "pass id_column= with another column"
        raise _complaint(path, f"has ids of type {kind}, expected numbers or strings", remedy)
    if not (is_id or numeric):
        remedy = "encode it as numbers, drop it, or name it as id_column="
        raise _complaint(path, f"has a column {label} of type {kind}, expected numbers", remedy)


def _filled(columns: Sequence[Any]) -> NDArray[Any]:
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
