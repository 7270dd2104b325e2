"""One party's data as a checked matrix, with its sample ids and feature names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from eigenmesh.errors import InputError, NotNumbers, PartitionError
from eigenmesh.extras import extra
from eigenmesh.numerics.arrays import largest_value
from eigenmesh.numerics.device_rows import why_unreadable
from eigenmesh.runtime.levels import codes_of
from eigenmesh.threads import spread

Matrix: TypeAlias = Any  # a 2-D float array, a memmap of one, or a CSR array
Ids: TypeAlias = NDArray[Any]

_OF_TABLES = ("shape", "__getitem__", "__array__")  # one of which every table has
_BLOCK = 1 << 20  # values looked at together: the check needs megabytes, never a second n × d


@dataclass(frozen=True)
class Table:
    """A matrix with what came along with it: ids of its rows, names of its columns."""

    X: Matrix
    sample_ids: Ids | None = None
    feature_names: tuple[str, ...] | None = None


def refuse(owner: str | None, complaint: str) -> InputError:
    """The error for data of a party, or of a plain X (owner None)."""
    if owner is None:
        return InputError(f"X {complaint}")
    return PartitionError(f"party {owner!r} {complaint}", party=owner)


def is_sparse(data: object) -> bool:
    """Whether `data` is a scipy sparse matrix or array."""
    return bool(sp.issparse(data))


def is_frame(data: object) -> bool:
    """Whether `data` is a DataFrame; pandas itself is optional and never imported."""
    return hasattr(data, "iloc") and hasattr(data, "columns")


def is_arrow_frame(data: object) -> bool:
    """Whether `data` is a frame without an index that gives Arrow its columns, such as polars'."""
    return hasattr(data, "__arrow_c_stream__") and not hasattr(data, "iloc")


def is_spark_frame(source: object) -> bool:
    """Whether this is a DataFrame of Spark, whose session may be here or behind a server."""
    package = type(source).__module__.split(".")[:2]
    return package == ["pyspark", "sql"] and hasattr(source, "mapInArrow")


def as_table(
    data: Any,
    owner: str | None = None,
    allow_missing: bool = False,
    id_column: str | None = None,
    features: Sequence[str] | None = None,
    categories: Sequence[str] = (),
) -> Table:
    """Check `data` and turn it into a Table; valid float arrays are not copied.

    The column `id_column` of a DataFrame gives the ids of its rows, else an index of its own; a
    polars frame or Arrow table has no index, and its columns count as those of a file. Columns
    among `categories` may hold words: they become codes of their levels (`runtime.levels`).

    >>> as_table([[1, 2], [3, 4]]).X.dtype
    dtype('float64')
    """
    if is_spark_frame(data):  # which would give Arrow all of its rows, here
        complaint = "is a Spark frame, expected one party's rows"
        raise refuse(owner, f"{complaint}; fit the frame itself, or pass frame.toPandas()")
    if is_arrow_frame(data):
        return _table_of_arrow(data, owner, allow_missing, id_column, features, categories)
    if not is_frame(data):
        if categories:
            complaint = f"has no named columns, so no category {categories[0]!r}"
            raise refuse(owner, f"{complaint}; leave categories out: numbers are their own levels")
        if features is not None:
            complaint = f"has no named columns, so no column {features[0]!r}"
            raise refuse(owner, f"{complaint}; leave features out and choose them by number")
        if id_column is not None:
            complaint = f"has no named columns, so no id column {id_column!r}"
            raise refuse(owner, f"{complaint}; leave the ids out and pass them as sample_ids=")
        return Table(as_matrix(data, owner, allow_missing))
    ids = frame_index(data)
    if id_column is not None:
        ids, data = _ids_apart(data, id_column, owner)
    if features is not None:
        data = data.iloc[:, [_place(data, name, owner) for name in features]]
    data = frame_with_codes(numbers_in_order(data), categories, owner)
    X = as_matrix(_frame_values(data, owner), owner, allow_missing)
    return Table(X, ids, frame_names(data))


def frame_with_codes(frame: Any, categories: Sequence[str], owner: str | None = None) -> Any:
    """A DataFrame with codes of levels in these columns; the caller's stays as it is."""
    if not categories:
        return frame
    columns = {name: frame.iloc[:, _place(frame, name, owner)] for name in categories}
    try:
        codes = {name: codes_of(own.astype(object).tolist()) for name, own in columns.items()}
    except InputError as error:
        raise refuse(owner, error.reason) from None
    return frame.assign(**codes)


def _table_of_arrow(
    data: Any,
    owner: str | None,
    allow_missing: bool,
    id_column: str | None,
    features: Sequence[str] | None,
    categories: Sequence[str],
) -> Table:
    with extra("files", "a frame of Arrow's columns", otherwise="X.to_numpy()"):
        import pyarrow as pa  # it takes long, and most parties never need it

        from eigenmesh.data.tabular import gather, table_of_arrow

    def complain(complaint: str, remedy: str) -> InputError:
        return refuse(owner, f"{complaint}; {remedy}")

    frame = table_of_arrow(pa.table(data), complain)
    table = gather([frame], id_column, features, allow_missing, categories)
    X = as_matrix(table.X, owner, allow_missing)
    return Table(X, table.sample_ids, table.feature_names)


def frame_names(frame: Any) -> tuple[str, ...] | None:
    """The names of a DataFrame's columns as text, None if they are numbered as they stand.

    scikit-learn takes text alone for names; years or wavelengths are names, too, where they tell
    which column is which party's.
    """
    names = tuple(frame.columns)
    return None if names == tuple(range(len(names))) else tuple(map(str, names))


def numbers_in_order(frame: Any) -> Any:
    """A DataFrame whose columns are called 0 to d − 1, in this order if they are in another.

    Then they have the places that they are called by, and need no names.
    """
    names = list(frame.columns)
    numbered = list(range(len(names)))
    if names == numbered or set(names) != set(numbered):
        return frame
    return frame.iloc[:, np.argsort(names)]


def _ids_apart(frame: Any, id_column: str, owner: str | None) -> tuple[Ids, Any]:
    place = _place(frame, id_column, owner)
    others = [i for i in range(frame.shape[1]) if i != place]
    return np.asarray(frame.iloc[:, place].to_numpy()), frame.iloc[:, others]


def _place(frame: Any, column: str, owner: str | None) -> int:
    places = [i for i, name in enumerate(frame.columns) if name == column]
    if len(places) != 1:
        names = ", ".join(map(str, list(frame.columns)[:10]))
        count = f"{len(places)} columns" if places else "no column"
        raise refuse(owner, f"has {count} {column!r}, only {names}; pass one of them")
    return places[0]


def as_matrix(data: Any, owner: str | None = None, allow_missing: bool = False) -> Matrix:
    """`data` as a finite, non-empty 2-D float array, memmap or CSR array; or with NaN in it."""
    X = _as_csr(data) if is_sparse(data) else _as_dense(data, owner)
    check_two_dimensional(X.shape, owner)
    X = _as_float(X, owner)
    check_finite(X, owner, allow_missing)
    return X


def check_two_dimensional(shape: tuple[int, ...], owner: str | None = None) -> None:
    """Refuse anything but a non-empty matrix."""
    if len(shape) != 2:
        remedy = "; X.reshape(-1, 1) makes one column of it" if len(shape) == 1 else ""
        raise refuse(owner, f"has {len(shape)} dimension(s), expected 2: rows by columns{remedy}")
    if 0 in shape:
        rows, columns = shape
        complaint = f"is empty ({rows} rows, {columns} columns), expected at least one of each"
        raise refuse(owner, f"{complaint}; leave an empty party out")


def require_no_words(X: Any) -> None:
    """scikit-learn reads "1.5" and dates as numbers; here they are a mistake."""
    if isinstance(X, str | Path):
        raise NotNumbers(
            f"X is {str(X)!r}; an array is expected: a file is opened by em.Partitioned(rows=[...])"
        )
    if is_spark_frame(X):
        raise NotNumbers(
            "X is a Spark frame, which KernelPCA, KernelKMeans and KernelPCRegressor fit where it "
            "is; elsewhere an array is expected: frame.toPandas()"
        )
    if complaint := why_unreadable(X):
        raise NotNumbers(f"X {complaint}")
    if is_frame(X):
        require_numbers(X, None)
    if isinstance(X, Iterable) and not any(hasattr(X, name) for name in _OF_TABLES):
        raise NotNumbers(
            f"X is a {type(X).__name__}; an array (n_samples, n_features) is expected, or what "
            f"takes blocks of rows is given an iterator of arrays: (block for block in X)"
        )
    if X is None or type(X) is dict:
        raise NotNumbers(f"X is {type(X).__name__}; an array (n_samples, n_features) is expected")
    kind = getattr(getattr(X, "dtype", None), "kind", "f")
    if kind in "USmM":
        raise NotNumbers(f"X holds {X.dtype}; real numbers are expected, convert them first")


def check_finite(X: Matrix, owner: str | None = None, allow_missing: bool = False) -> None:
    """Refuse NaN, unless it may be a missing value, infinity, and numbers whose squares are.

    Names where the first one is.
    """
    if is_sparse(X):
        if not _is_sound(X.data, allow_missing):
            entries = X.tocoo()
            at = int(np.flatnonzero(_unsound(entries.data, allow_missing))[0])
            raise _not_usable(entries.data[at], int(entries.row[at]), int(entries.col[at]), owner)
        return
    # Blocks follow the memory order: a strided walk through a memmap would read it many times.
    by_columns = bool(X.flags.f_contiguous and not X.flags.c_contiguous)
    parts = list(_blocks(X.T if by_columns else X))
    sound = np.ones(len(parts), dtype=bool)

    def worker(tasks: Iterator[int]) -> None:
        for i in tasks:
            sound[i] = _has_small_sum(parts[i][1]) or _is_sound(parts[i][1], allow_missing)

    if parts:
        spread(worker, len(parts))
    if not sound.all():
        start, block = parts[int(np.argmin(sound))]
        first, second = map(int, np.argwhere(_unsound(block, allow_missing))[0])
        row, column = (second, first + start) if by_columns else (first + start, second)
        raise _not_usable(X[row, column], row, column, owner)


def _has_small_sum(values: NDArray[Any]) -> bool:
    """Whether squares add up to so little that none can be too large: one look in place of two."""
    if values.dtype.kind != "f" or not values.flags.c_contiguous:
        return False
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite sums are small ones neither
        return bool(np.dot(flat, flat) <= largest_value(values.dtype) ** 2)  # no NaN is


def _is_sound(values: NDArray[Any], allow_missing: bool) -> bool:
    """Whether no value is to be refused; NaN is neither below nor above, so it is found, too."""
    largest = largest_value(values.dtype)
    if values.min(initial=0) >= -largest and values.max(initial=0) <= largest:
        return True
    return allow_missing and not _unsound(values, allow_missing).any()


def _unsound(values: NDArray[Any], allow_missing: bool) -> NDArray[np.bool_]:
    bad = ~(np.abs(values) <= largest_value(values.dtype))
    return np.asarray(bad & ~np.isnan(values) if allow_missing else bad)


def _blocks(X: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    step = max(1, _BLOCK // X.shape[1])
    for start in range(0, len(X), step):
        yield start, X[start : start + step]


def _not_usable(value: Any, row: int, column: int, owner: str | None) -> InputError:
    where = f"at row {row}, column {column} (counted from 0)"
    if np.isfinite(value):  # then it is not told: the error may leave the site
        wider = ", or convert to float64" if value.dtype == np.float32 else ""
        largest = f"{largest_value(value.dtype):g}"
        return refuse(
            owner,
            f"holds a number beyond {largest} {where}, expected numbers whose squares can be "
            f"added up in {value.dtype}; rescale the column, e.g. with "
            f"sklearn.preprocessing.StandardScaler{wider}",
        )
    return refuse(
        owner,
        f"holds {float(value):g} {where}, expected finite numbers; drop or impute rows with NaN or "
        "infinity first, e.g. with sklearn.impute.SimpleImputer",
    )


def _as_csr(data: Any) -> Any:
    if data.ndim != 2:
        return data
    X = sp.csr_array(data)  # shares the buffers of a CSR input
    if not X.has_canonical_format:
        X = X.copy()  # summing duplicates works in place, and the buffers are the caller's
        X.sum_duplicates()
    return X


def _as_dense(data: Any, owner: str | None) -> NDArray[Any]:
    if isinstance(data, np.memmap):
        return data
    if isinstance(data, np.ma.MaskedArray) and np.ma.is_masked(data):
        raise refuse(owner, "has masked values, expected none; fill them or drop their rows")
    if isinstance(data, Iterator):
        kind = type(data).__name__
        raise refuse(owner, f"is a {kind}, expected an array; np.vstack(list(...)) makes one of it")
    if complaint := why_unreadable(data):
        raise refuse(owner, complaint)
    try:
        return np.asarray(data)
    except (ValueError, TypeError):
        complaint = f"is a {type(data).__name__} whose rows differ in length or type"
        raise refuse(owner, f"{complaint}, expected a rectangle of numbers") from None


def _as_float(X: Any, owner: str | None) -> Any:
    """Float32 and float64 stay; smaller numbers widen to what holds them."""
    kind, size = X.dtype.kind, X.dtype.itemsize
    if kind not in "biuf":
        raise refuse(
            owner,
            f"holds {_describe(X)}, expected real numbers; encode categories as numbers, "
            "or convert with X.astype(float)",
        )
    single = kind == "f" and size <= 4
    # astype also turns a foreign byte order into the machine's own.
    return X.astype(np.float32 if single else np.float64, copy=False)


def _describe(X: Any) -> str:
    if X.dtype.kind != "O" or is_sparse(X):
        return f"{X.dtype.name} values"
    for position, value in np.ndenumerate(X):
        if not isinstance(value, int | float | np.number):
            row, column = position
            return f"objects (a {type(value).__name__} at row {row}, column {column})"
    return "objects (numbers kept as Python objects)"


def _frame_values(frame: Any, owner: str | None) -> Any:
    """The numbers of a DataFrame; sparse frames stay sparse, missing values become NaN."""
    require_numbers(frame, owner)
    if frame.shape[1] and all(hasattr(dtype, "fill_value") for dtype in frame.dtypes):
        return frame.sparse.to_coo()
    values = frame.to_numpy()
    # Nullable columns come out as objects; their missing values are reported as NaN below.
    return frame.to_numpy(dtype=np.float64, na_value=np.nan) if values.dtype == object else values


def require_numbers(frame: Any, owner: str | None) -> None:
    """Refuse columns that hold no numbers, by name: scikit-learn reads "1" and dates as such."""
    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        kind = getattr(dtype, "kind", "O")
        if str(dtype) == "category" or kind not in "biuf":
            raise refuse(
                owner,
                f"has a column {name!r} of type {dtype}, expected numbers; encode the column as "
                f"numbers, drop it, or name it among categories= here and of em.Preparation",
            )


def frame_index(frame: Any) -> Ids | None:
    """The index of a DataFrame, None if it is the default 0, 1, 2, …"""
    index = frame.index
    if getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1:
        return None
    return np.asarray(index.to_numpy())
