"""Files of numbers: .npy, .npz, .csv and .parquet; nothing is ever unpickled."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from eigenmesh.data.table import Matrix, Table
from eigenmesh.errors import EigenmeshError, InputError

TABLE_SUFFIXES = frozenset({".csv", ".parquet"})  # formats with named columns
_SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
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
) -> Table:
    r"""The matrix in a file with its sample ids and feature names.

    In .csv and .parquet files the column `id_column`, or else one called "id" or "sample_id"
    (or the unnamed index that pandas writes), gives the ids. `header` says whether the first
    line of a .csv names the columns; None finds out. Of `columns` by name only these are taken, in
    their order; what the others hold does not matter.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "north.csv"
    >>> _ = file.write_text("id,age,height\na7,31,1.8\nb2,25,1.7\n")
    >>> table = read_table(file)
    >>> table.X.tolist(), table.sample_ids.tolist(), table.feature_names
    ([[31.0, 1.8], [25.0, 1.7]], ['a7', 'b2'], ('age', 'height'))
    """
    path = _existing(path)
    suffix = path.suffix.lower()
    if suffix in TABLE_SUFFIXES:
        # Arrow takes long to import, and most parties never need it.
        from eigenmesh.data import tabular

        with _reading(path):
            return tabular.read(path, id_column, header, columns)
    if columns is not None:
        complaint = f"has no named columns, so no column {next(iter(columns), '')!r}"
        raise complaint_about(path, complaint, "leave columns out")
    if id_column is not None:
        complaint = f"has no named columns, so no id column {id_column!r}"
        raise complaint_about(path, complaint, "leave id_column out")
    with _reading(path):
        X = _open_npy(path) if suffix == ".npy" else _open_npz(path)
        _check_two_dimensional(path, X.shape)
    return Table(X)


def peek_names(path: str | Path, id_column: str | None = None) -> tuple[str, ...] | None:
    r"""Names of the columns of the matrix in a file, without reading it; None if it has none.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "north.csv"
    >>> _ = file.write_text("id,age,height\na7,31,1.8\n")
    >>> peek_names(file)
    ('age', 'height')
    """
    path = _existing(path)
    if path.suffix.lower() not in TABLE_SUFFIXES:
        return None
    from eigenmesh.data import tabular

    with _reading(path):
        return tabular.peek_names(path, id_column)


def peek_shape(path: str | Path, id_column: str | None = None) -> tuple[int, int] | None:
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
    if suffix == ".parquet":
        from eigenmesh.data import tabular

        with _reading(path):
            return tabular.peek_parquet(path, id_column)
    with _reading(path):
        shape = _open_npy(path).shape if suffix == ".npy" else _peek_npz(path)
        _check_two_dimensional(path, shape)
    return int(shape[0]), int(shape[1])


# Errors: whatever a foreign reader raises on a bad file, the caller gets ours.


def complaint_about(path: Path, complaint: str, remedy: str) -> InputError:
    """The error for a file; its folder is nobody's business but the party's."""
    return InputError(f"file {path.name!r} {complaint}; {remedy}")


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        suffixes = ", ".join(_SUFFIXES)
        raise complaint_about(path, f"ends in {path.suffix!r}, expected {suffixes}", "convert it")
    if not path.exists():
        remedy = "check the path; a relative one starts at the working directory"
        raise complaint_about(path, "is missing, expected a file of numbers", remedy)
    if not path.is_file():
        raise complaint_about(path, "is no regular file, expected one", "pass a file, not a folder")
    if path.stat().st_size == 0:
        raise complaint_about(path, "is empty (0 bytes), expected numbers", "write it again")
    return path


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    kind = path.suffix.lower()
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
