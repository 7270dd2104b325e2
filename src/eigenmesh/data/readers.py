"""Files of numbers, and folders of them, by one reader; nothing is ever unpickled."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from eigenmesh.data.file_errors import complaint_about, complaint_about_encoding
from eigenmesh.data.table import Matrix, Table
from eigenmesh.data.text_format import TextFormat, first_line_not_in_utf8
from eigenmesh.errors import EigenmeshError
from eigenmesh.extras import extra

_TEXT = frozenset({".csv", ".tsv"})  # these may be packed: .csv.gz
_TABLES = _TEXT | {".parquet", ".feather", ".xlsx"}  # formats with named columns
_SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".feather", ".xlsx")
_CSR_KEYS = {"data", "indices", "indptr", "shape"}
_Headers: TypeAlias = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


def open_data(path: str | Path) -> Matrix:
    """The matrix in a file; .npy files are memory-mapped, sparse .npz files become CSR.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "north.npy"
    >>> np.save(file, np.ones((3, 2)))
    >>> type(open_data(file)).__name__, open_data(file).shape
    ('memmap', (3, 2))
    """
    return read_table(path).X


def read_table(
    path: str | Path,
    id_column: str | None = None,
    header: bool | None = None,
    columns: Sequence[str] | None = None,
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
    allow_missing: bool = False,
    categories: Sequence[str] = (),
) -> Table:
    r"""The matrix in a file with its sample ids and feature names; of a folder, in its files.

    In files with named columns the column `id_column`, or else one called "id" or "sample_id"
    (or the unnamed index that pandas writes), gives the ids. Of a text file `delimiter` and
    `decimal` are told by its first lines if None, as is by `header` whether the first names the
    columns. Of `columns` by name only these are taken, in their order; what the others hold does
    not matter. Missing values become NaN if `allow_missing`. Columns among `categories` may hold
    words, which become codes (`runtime.levels`). The files of a folder are one table, in the order
    of their names; they have the same columns, matched by name.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "north.csv"
    >>> _ = file.write_text("id;age;height\na7;31;1,8\nb2;25;1,7\n")
    >>> table = read_table(file)
    >>> table.X.tolist(), table.sample_ids.tolist(), table.feature_names
    ([[31.0, 1.8], [25.0, 1.7]], ['a7', 'b2'], ('age', 'height'))
    """
    files = files_of(path)
    if _kind(files[0]) in _TABLES:
        _require_arrow()
        # Arrow takes long to import, and most parties never need it.
        from eigenmesh.data import tabular

        stated = TextFormat(delimiter, decimal, header)
        with _reading(files[0] if len(files) == 1 else Path(path)):
            return tabular.read(files, id_column, stated, columns, allow_missing, categories)
    by_name = (
        ("column", columns),
        ("category", categories),
        ("id column", id_column and [id_column]),
    )
    for what, name in ((what, next(iter(names or ()), None)) for what, names in by_name):
        if name is not None:
            complaint = f"has no named columns, so no {what} {name!r}"
            raise complaint_about(files[0], complaint, f"leave the {what} out")
    return Table(_stacked(files, [_matrix_in(file) for file in files]))


def peek_names(
    path: str | Path,
    id_column: str | None = None,
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
) -> tuple[str, ...] | None:
    r"""Names of the columns of the matrix in a file, without reading it; None if it has none.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "north.csv"
    >>> _ = file.write_text("id,age,height\na7,31,1.8\n")
    >>> peek_names(file)
    ('age', 'height')
    """
    file = files_of(path)[0]
    if _kind(file) not in _TABLES:
        return None
    _require_arrow()
    from eigenmesh.data import tabular

    with _reading(file):
        table = tabular.open_table(file, TextFormat(delimiter, decimal))
        return tabular.peek_names(table, id_column)


def read_words(
    path: str | Path,
    column: str | None,
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
) -> NDArray[Any]:
    r"""One column of a table, whatever it holds, as words; of the ids if None.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "north.csv"
    >>> _ = file.write_text("age,ward\n31,A\n25,B\n")
    >>> read_words(file, "ward").tolist()
    ['A', 'B']
    """
    _require_arrow()
    from eigenmesh.data import tabular

    words: list[str] = []
    for file in files_of(path):
        with checked_table_file(file) as own, _reading(own):
            table = tabular.open_table(own, TextFormat(delimiter, decimal))
            position = tabular.id_position(table, column)
            if position is None:
                raise complaint_about(own, "has no column of ids", "pass id_column=")
            for (block,) in table.blocks((), position):
                words += ["" if value is None else str(value) for value in block.to_pylist()]
    return np.array(words, dtype=str)


def peek_shape(path: str | Path, id_column: str | None = None) -> tuple[int, int] | None:
    """Rows and columns of the matrix in a file, without reading it; None for text.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "north.npz"
    >>> np.savez_compressed(file, X=np.ones((3, 2)))
    >>> peek_shape(file)
    (3, 2)
    """
    shapes = [_shape_in(file, id_column) for file in files_of(path)]
    sizes = [shape for shape in shapes if shape is not None]
    if len(sizes) < len(shapes) or len({columns for _, columns in sizes}) > 1:
        return None
    return sum(rows for rows, _ in sizes), sizes[0][1]


def peek_single(
    path: str | Path,
    id_column: str | None = None,
    columns: Sequence[str] | None = None,
    categories: Sequence[str] = (),
) -> bool:
    """Whether a file's numbers are read as float32, without reading them; text is float64.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "north.npy"
    >>> np.save(file, np.ones((3, 2), np.float32))
    >>> peek_single(file)
    True
    """
    return all(_is_single(file, id_column, columns, categories) for file in files_of(path))


def has_named_columns(path: str | Path) -> bool:
    """Whether the format of a file, or of a folder's, has names of columns, and room for ids."""
    return _kind(files_of(path)[0]) in _TABLES


@contextmanager
def checked_table_file(path: str | Path) -> Iterator[Path]:
    """A file with named columns, for whoever looks at it more closely than `read_table`."""
    files = files_of(path)
    if len(files) > 1 or _kind(files[0]) not in _TABLES:
        complaint = "has no named columns to be looked at, or is a folder; one table is expected"
        raise complaint_about(Path(path), complaint, "pass .csv, .tsv, .parquet, .feather or .xlsx")
    with _reading(files[0]):
        yield files[0]


def _shape_in(file: Path, id_column: str | None) -> tuple[int, int] | None:
    kind = _kind(file)
    if kind in _TEXT:
        return None  # counting its lines means reading it
    with _reading(file):
        if kind in _TABLES:
            _require_arrow()
            from eigenmesh.data import tabular

            return tabular.peek_shape(tabular.open_table(file, TextFormat()), id_column)
        shape = _open_npy(file).shape if kind == ".npy" else _peek_npz(file)
        _check_two_dimensional(file, shape)
    return int(shape[0]), int(shape[1])


def _is_single(
    file: Path, id_column: str | None, columns: Sequence[str] | None, categories: Sequence[str]
) -> bool:
    kind = _kind(file)
    if kind in _TEXT or kind == ".xlsx":  # a sheet has no float32, and opening it is reading it
        return False
    with _reading(file):
        if kind in _TABLES:
            _require_arrow()
            from eigenmesh.data import tabular

            table = tabular.open_table(file, TextFormat())
            return tabular.peek_single(table, id_column, columns, categories)
        dtype = _open_npy(file).dtype if kind == ".npy" else _peek_npz_dtype(file)
    return dtype.kind == "f" and dtype.itemsize <= 4


def _require_arrow() -> None:
    with extra("files", "a table in a file", otherwise="save the numbers as .npy"):
        import pyarrow  # noqa: F401


def _matrix_in(file: Path) -> Any:
    with _reading(file):
        X = _open_npy(file) if _kind(file) == ".npy" else _open_npz(file)
        _check_two_dimensional(file, X.shape)
    return X


def _stacked(files: Sequence[Path], blocks: Sequence[Any]) -> Any:
    if len(blocks) == 1:
        return blocks[0]  # a memory map stays one
    for file, X in zip(files, blocks, strict=True):
        if X.shape[1] != blocks[0].shape[1]:
            complaint = f"has {X.shape[1]} columns, the first of its folder {blocks[0].shape[1]}"
            raise complaint_about(file, complaint, "give all files of a folder the same columns")
    if any(map(sp.issparse, blocks)):
        return sp.csr_array(sp.vstack(blocks))
    return np.concatenate(blocks)


# Which files there are.


def _kind(file: Path) -> str:
    """The format, by the name: .csv.gz is .csv."""
    suffixes = [suffix.lower() for suffix in file.suffixes[-2:]]
    packed = len(suffixes) == 2 and suffixes[1] == ".gz" and suffixes[0] in _TEXT
    return suffixes[0] if packed else file.suffix.lower()


def files_of(path: str | Path) -> list[Path]:
    """The file, or the files of a folder in the order of their names; hidden ones are none."""
    path = Path(path)
    if not path.is_dir():
        return [_existing(path)]
    files = sorted(file for file in path.iterdir() if not file.name.startswith("."))
    if not files:
        raise complaint_about(path, "is an empty folder, expected files of numbers", "fill it")
    kinds = sorted({_kind(file) for file in files})
    if len(kinds) > 1:
        listed = ", ".join(kind or "no suffix" for kind in kinds)
        complaint = f"is a folder of {listed}, expected files of one format"
        raise complaint_about(path, complaint, "move the others elsewhere")
    return [_existing(file) for file in files]


def _existing(path: Path) -> Path:
    if _kind(path) not in {*_TABLES, ".npy", ".npz"}:
        suffixes = ", ".join(_SUFFIXES)
        raise complaint_about(path, f"ends in {path.suffix!r}, expected {suffixes}", "convert it")
    if not path.exists():
        remedy = "check the path; a relative one starts at the working directory"
        raise complaint_about(path, "is missing, expected a file of numbers", remedy)
    if not path.is_file():
        raise complaint_about(path, "is no regular file, expected one", "move it elsewhere")
    if path.stat().st_size == 0:
        raise complaint_about(path, "is empty (0 bytes), expected numbers", "write it again")
    return path


# Errors: whatever a foreign reader raises on a bad file, the caller gets ours.


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    kind = _kind(path)
    try:
        yield
    except EigenmeshError:
        raise
    except PermissionError:
        raise complaint_about(
            path, "may not be read", "give this user the right to read it"
        ) from None
    except MemoryError:
        remedy = "save it as .npy, which is mapped and not loaded"
        raise complaint_about(path, "needs more memory than there is", remedy) from None
    except Exception:
        if kind in _TEXT:
            with suppress(OSError, EOFError):
                line = first_line_not_in_utf8(path)
                if line is not None:
                    raise complaint_about_encoding(path, line) from None
        # Damaged files make numpy, zipfile and Arrow raise nearly anything; their text may
        # quote data, so it stays out of a message that can leave the site.
        complaint = f"cannot be read as {kind}: it is damaged, truncated or in another format"
        raise complaint_about(path, complaint, "write it again from its source") from None


def _check_two_dimensional(path: Path, shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        complaint = f"holds a {len(shape)}-D array, expected 2-D"
        raise complaint_about(path, complaint, "save rows by columns")


# numpy files.

# numpy reads headers with ast.literal_eval, and CPython's parser may fail with a SystemError when
# threads use it at once: a sound file would be taken for a damaged one.
_one_header_at_a_time = threading.RLock()


def _open_npy(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise complaint_about(path, "has no .npy header (a pickle?)", "write it with np.save")
        file.seek(0)
        _, dtype = _header(file)
    _refuse_objects(path, dtype)
    with _one_header_at_a_time:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0
    if version != (1, 0):
        read_header = np.lib.format.read_array_header_2_0
    with _one_header_at_a_time:
        shape, _, dtype = read_header(file)
    return shape, dtype


def _refuse_objects(path: Path, dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        complaint = "holds pickled Python objects, which are never loaded; expected plain numbers"
        raise complaint_about(path, complaint, "save X.astype(float) instead")


def _npz_headers(path: Path) -> _Headers:
    headers = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as file:
                headers[member.removesuffix(".npy")] = _header(file)
    return headers


def _is_sparse(headers: _Headers) -> bool:
    """What scipy.sparse.save_npz writes, or the bare arrays of a CSR matrix."""
    return headers.keys() >= {"format", "shape"} or headers.keys() >= _CSR_KEYS


def _npz_key(path: Path, headers: _Headers) -> str:
    matrices = [key for key, (shape, _) in headers.items() if len(shape) == 2]
    if "X" not in headers and len(matrices) != 1:
        complaint = f"holds {len(matrices)} 2-D arrays and none called 'X', expected one"
        raise complaint_about(path, complaint, "write it with np.savez(file, X=...)")
    key = "X" if "X" in headers else matrices[0]
    _refuse_objects(path, headers[key][1])
    return key


def _peek_npz(path: Path) -> tuple[int, ...]:
    headers = _npz_headers(path)
    if not _is_sparse(headers):
        return headers[_npz_key(path, headers)][0]
    with _one_header_at_a_time, np.load(path, allow_pickle=False) as archive:
        return tuple(archive["shape"].tolist())


def _peek_npz_dtype(path: Path) -> np.dtype[Any]:
    headers = _npz_headers(path)
    return headers["data" if _is_sparse(headers) else _npz_key(path, headers)][1]


def _open_npz(path: Path) -> Any:
    headers = _npz_headers(path)
    if _is_sparse(headers) and "format" in headers:
        with _one_header_at_a_time:
            return _checked_csr(sp.load_npz(path))
    with _one_header_at_a_time, np.load(path, allow_pickle=False) as archive:
        if not _is_sparse(headers):
            return archive[_npz_key(path, headers)]
        arrays = (archive["data"], archive["indices"], archive["indptr"])
        return _checked_csr(sp.csr_array(arrays, shape=tuple(archive["shape"].tolist())))


def _checked_csr(X: Any) -> Any:
    # Indices out of range would make the compiled routines read foreign memory.
    if hasattr(X, "check_format"):
        X.check_format(full_check=True)
    return sp.csr_array(X)
