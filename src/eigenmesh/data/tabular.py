"""Files with named columns, read by Arrow block by block: text, .parquet, .feather and .xlsx."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
from numpy.typing import NDArray

from eigenmesh.data.column_names import columns_in_order
from eigenmesh.data.file_errors import complaint_about
from eigenmesh.data.sample_ids import as_sample_ids
from eigenmesh.data.table import Table
from eigenmesh.data.text_format import (
    GAPS,
    MISSING,
    Dialect,
    TextFormat,
    dialect_of,
    line_of,
    numbered_records,
)
from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import largest_value
from eigenmesh.runtime.levels import codes_of

ID_NAMES = ("id", "sample_id", "__index_level_0__")  # the last is pandas' index in .parquet
_INDEX = re.compile(r"__index_level_\d+__")
_BLOCK_ROWS = 1 << 16
_MOST_IN_MEMORY = 1 << 26  # bytes of numbers; what is more lies in an unnamed file

_COMMA_TO_POINT = (r"^([+-]?\d*),(\d+([eE][+-]?\d+)?)$", r"\1.\2")

Columns = Sequence[str] | None
Complain = Callable[[str, str], InputError]


# What the formats have in common: names, and columns in blocks of rows.


@dataclass(frozen=True)
class TableFile:
    """One table: its columns' names, and a way to its values."""

    names: tuple[str, ...] | None
    n_columns: int
    n_rows: int | None  # None where they must be read to be counted
    blocks: Callable[[Sequence[int], int | None], Iterator[list[Any]]]
    place: Callable[[int], str]  # where in the file a row is
    complain: Complain
    types: tuple[Any, ...] | None = None  # of the columns, where the file states them
    line: Callable[[int], int] = lambda row: row + 1  # of binary files: a row's number, from 1
    text: _TextFile | None = None

    @property
    def dialect(self) -> Dialect:
        """How a text file is written."""
        assert self.text is not None, "a text file has a dialect"
        return self.text.dialect

    def as_written(self) -> list[Any]:
        """All columns as text, one array of Arrow's each; for looking at."""
        everything = range(self.n_columns)
        blocks = self.text.cells() if self.text else self.blocks(everything, None)
        columns = list(zip(*blocks, strict=True)) or [()] * self.n_columns
        return [
            pa.concat_arrays([_text(block) for block in own]) if own else pa.array([], pa.string())
            for own in columns
        ]

    def with_points(self, cells: Any) -> Any:
        """Numbers in a column of text with decimal points, whatever the file has."""
        if self.text is None or self.dialect.decimal == ".":
            return cells
        return pc.replace_substring_regex(cells, *_COMMA_TO_POINT)


def open_table(path: Path, stated: TextFormat) -> TableFile:
    """The table in a file; a text file's first lines are looked at."""
    complain: Complain = lambda complaint, remedy: complaint_about(path, complaint, remedy)  # noqa: E731
    kind = path.suffix.lower()
    if kind == ".parquet":
        return _parquet(path, complain)
    if kind == ".feather":
        return table_of_arrow(pyarrow.feather.read_table(path, memory_map=True), complain)
    if kind == ".xlsx":
        from eigenmesh.data.excel import read_sheet

        sheet, first_row = read_sheet(path)
        of_sheet = table_of_arrow(sheet, complain)
        return replace(
            of_sheet,
            place=lambda row: f"row {row + first_row} of the sheet",
            line=lambda row: row + first_row,
        )
    if ".tsv" in path.suffixes and stated.delimiter is None:
        stated = replace(stated, delimiter="\t")
    return _TextFile(path, dialect_of(path, stated), complain).table()


def table_of_arrow(table: Any, complain: Complain) -> TableFile:
    """A table of Arrow's, as frames of other libraries give it."""

    def blocks(features: Sequence[int], ids: int | None) -> Iterator[list[Any]]:
        for batch in table.to_batches(max_chunksize=_BLOCK_ROWS):
            yield [_without_views(batch.column(i)) for i in _with_ids(features, ids)]

    names, types = tuple(table.schema.names), tuple(table.schema.types)
    return TableFile(names, len(names), table.num_rows, blocks, _row, complain, types)


def _without_views(column: Any) -> Any:
    """Text of polars comes as views, also below categories; Arrow has few functions for these."""
    if pa.types.is_dictionary(column.type):
        levels = _without_views(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, levels)
    if not pa.types.is_string_view(column.type):
        return column
    try:
        return column.cast(pa.large_string())
    except pa.ArrowNotImplementedError:  # before pyarrow 18
        return pa.array(column.to_pylist(), pa.large_string())


def _parquet(path: Path, complain: Complain) -> TableFile:
    schema = pq.ParquetFile(path).schema_arrow
    names = tuple(schema.names)
    unique = len(set(names)) == len(names)

    def blocks(features: Sequence[int], ids: int | None) -> Iterator[list[Any]]:
        columns = _with_ids(features, ids)
        # Arrow chooses columns by name alone, and gives them in the file's order.
        in_file = sorted(columns) if unique else list(range(len(names)))
        places = [in_file.index(i) for i in columns]
        file = pq.ParquetFile(path)
        for batch in file.iter_batches(_BLOCK_ROWS, columns=[names[i] for i in in_file]):
            yield [batch.column(place) for place in places]

    n_rows = pq.ParquetFile(path).metadata.num_rows
    return TableFile(names, len(names), n_rows, blocks, _row, complain, tuple(schema.types))


def _row(row: int) -> str:
    return f"row {row} (rows counted from 0)"


def _with_ids(features: Sequence[int], ids: int | None) -> list[int]:
    return [*features] if ids is None else [*features, ids]


def _text(column: Any) -> Any:
    """A column as text; whole numbers and fractions as Python writes them."""
    if pa.types.is_floating(column.type):  # Arrow writes 1e+20 and 1 as 100000000000000000000, 1
        return pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())
    if is_text(column.type) or pa.types.is_dictionary(column.type):
        return column.cast(pa.string())
    return pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())


# Text.


@dataclass(frozen=True)
class _TextFile:
    path: Path
    dialect: Dialect
    complain: Complain
    truths: frozenset[int] = field(default=frozenset())  # columns of true and false
    words: frozenset[int] = field(default=frozenset())  # columns that are read as text

    def table(self) -> TableFile:
        n = self.dialect.n_columns
        return TableFile(
            self.dialect.names, n, None, self.blocks, self.place, self.complain, text=self
        )

    def place(self, row: int) -> str:
        return f"line {line_of(self.path, self.dialect, row)}"

    def blocks(self, features: Sequence[int], ids: int | None) -> Iterator[list[Any]]:
        """Columns of floats, and ids as text, which keeps the zeros of 007."""
        n_blocks = 0
        try:
            for block in self._parsed(features, ids):
                n_blocks += 1
                yield block
        except pa.ArrowInvalid:
            # True and false are numbers, too, unless numbers have come before.
            truths = self._refuse_words(features, () if n_blocks else ("true", "false"))
            self._refuse_ragged_lines()
            yield from replace(self, truths=truths)._parsed(features, ids)

    def cells(self) -> Iterator[list[Any]]:
        """All columns as they are written; lines of too few or too many cells are left out."""
        everything = [str(i) for i in range(self.dialect.n_columns)]
        yield from self._arrow_blocks(dict.fromkeys(everything, pa.string()), _skip)

    def _parsed(self, features: Sequence[int], ids: int | None) -> Iterator[list[Any]]:
        types = dict.fromkeys(map(str, features), pa.float64())
        types |= {str(i): pa.bool_() for i in self.truths}
        text = {*self.words, *([] if ids is None else [ids])}
        yield from self._arrow_blocks({**types, **dict.fromkeys(map(str, text), pa.string())})

    def _arrow_blocks(self, types: dict[str, Any], on_ragged: Any = None) -> Iterator[list[Any]]:
        # A function of Python's that Arrow holds is let go by Arrow's own threads, which read
        # ahead: a command that ended with an error meanwhile was aborted, one time in eight on a
        # busy machine. So only who reads to the end passes one.
        dialect = self.dialect
        reading = pyarrow.csv.ReadOptions(
            # Columns go by position, since a header may repeat a name; a block must hold a line.
            column_names=[str(i) for i in range(dialect.n_columns)],
            skip_rows=int(dialect.names is not None),
            block_size=max(1 << 22, 8 * dialect.line_length),
        )
        parsing = pyarrow.csv.ParseOptions(
            delimiter=dialect.delimiter,
            # In a file of one column an empty line is a missing value.
            ignore_empty_lines=dialect.n_columns > 1,
            invalid_row_handler=on_ragged,
            newlines_in_values=dialect.has_quotes,
        )
        names = list(types)
        converting = pyarrow.csv.ConvertOptions(
            column_types=types,
            include_columns=names,
            decimal_point=dialect.decimal,
            null_values=sorted(GAPS),  # of numbers; text is never missing here
        )
        with pyarrow.csv.open_csv(self.path, reading, parsing, converting) as batches:
            for batch in batches:
                yield [batch.column(name) for name in names]

    def _refuse_words(self, features: Sequence[int], truth: Sequence[str]) -> frozenset[int]:
        """The columns that hold words for truth; the first other word is refused with its line."""
        truths: set[int] = set()
        for line, cells in numbered_records(self.path, self.dialect):
            if len(cells) != self.dialect.n_columns:
                continue
            for i in features:
                if i in self.words or self.dialect.is_number(cells[i]):
                    continue
                if cells[i].strip().lower() not in truth:
                    raise self._word_at(line, i, cells[i])
                truths.add(i)
        return frozenset(truths)

    def _word_at(self, line: int, column: int, cell: str) -> InputError:
        label = _label(self.dialect.names, column)
        where = f"at line {line}, column {label}, expected a number"
        other, sign = (",", "comma") if self.dialect.decimal == "." else (".", "point")
        if replace(self.dialect, decimal=other).is_number(cell):
            return self.complain(
                f"has a number with a {sign} {where} with a {self.dialect.decimal!r}",
                "write all numbers alike, or pass decimal= (--decimal)",
            )
        return self.complain(
            f"has text {where}",
            "encode it as numbers, drop the column, name it as id_column= (--id-column) or among "
            "categories= (--categories), or name the others (--columns)",
        )

    def _refuse_ragged_lines(self) -> None:
        expected = self.dialect.n_columns
        for line, cells in numbered_records(self.path, self.dialect):
            if len(cells or [""]) != expected:
                raise self.complain(
                    f"has a line of {len(cells)} cells, expected {expected} (line {line})",
                    "mend the line; quote cells that hold a delimiter",
                )


def _skip(line: Any) -> str:
    """What Arrow does with a line of too few or too many cells."""
    return "skip"


# From blocks of columns to one matrix.


def read(
    paths: Sequence[Path],
    id_column: str | None,
    stated: TextFormat,
    columns: Columns = None,
    allow_missing: bool = False,
    categories: Sequence[str] = (),
) -> Table:
    """The rows of one or more files, or some of their columns."""
    files = [open_table(path, stated) for path in paths]
    return gather(files, id_column, columns, allow_missing, categories)


def gather(
    files: Sequence[TableFile],
    id_column: str | None,
    columns: Columns,
    allow_missing: bool,
    categories: Sequence[str] = (),
) -> Table:
    """The rows of tables, one after the other, in the columns' order of the first."""
    choices = [_Choice.of(file, id_column, columns, categories) for file in files]
    first = choices[0]
    if len({choice.ids is None for choice in choices}) > 1:
        raise files[1].complain("has ids or the first file of its folder has, not both", "mend it")
    single = all(choice.is_single for choice in choices)
    rows, ids = _Rows(np.dtype(np.float32 if single else np.float64)), []
    for choice in (first, *(choice.like(first) for choice in choices[1:])):
        for block in choice.blocks(allow_missing, largest_value(rows.dtype)):
            rows.add(block[: len(choice.features)])
            ids += block[len(choice.features) :]
    if not rows.n_rows or not first.features:
        complaint = f"holds {rows.n_rows} rows and {len(first.features)} columns of numbers"
        raise files[0].complain(f"{complaint}, expected at least one of each", "write it again")
    sample_ids = None if first.ids is None else _ids_of(ids)
    return Table(rows.matrix(), sample_ids, first.names)


@dataclass(frozen=True)
class _Choice:
    """Which columns of a table are features, and which has the ids."""

    file: TableFile
    features: tuple[int, ...]
    ids: int | None
    categories: frozenset[int] = frozenset()  # features that hold levels, words or not

    @classmethod
    def of(
        cls, file: TableFile, id_column: str | None, columns: Columns, categories: Sequence[str]
    ) -> _Choice:
        ids = id_position(file, id_column)
        features = feature_positions(file, id_column)
        if columns is not None:
            features = tuple(_position(file, name) for name in columns)
        if ids in features:
            complaint = f"has its ids in {_label(file.names, ids)}, which is no feature"
            remedy = "leave it out of features= (--columns), or name others as id_column="
            raise file.complain(complaint, f"{remedy} (--id-column)")
        levels = frozenset(_position(file, name) for name in categories)
        if file.text is not None:
            file = replace(file.text, words=levels).table()
        choice = cls(file, features, ids, levels)
        choice._check_types()
        return choice

    @property
    def names(self) -> tuple[str, ...] | None:
        names = self.file.names
        return None if names is None else tuple(names[i] for i in self.features)

    @property
    def is_single(self) -> bool:
        types = self.file.types
        return (
            types is not None
            and not self.categories
            and all(
                pa.types.is_float32(types[i]) or pa.types.is_float16(types[i])
                for i in self.features
            )
        )

    def like(self, first: _Choice) -> _Choice:
        """With its columns in the order of the first file's."""
        if len(self.features) != len(first.features) or (self.names is None) != (
            first.names is None
        ):
            complaint = f"has {len(self.features)} columns of numbers"
            expected = f"the first file of its folder has {len(first.features)}"
            remedy = "give all files of a folder the same columns, all with names or none"
            raise self.file.complain(f"{complaint}, {expected}", remedy)
        if self.names is None or first.names is None:
            return self
        try:
            order = columns_in_order(self.names, first.names, None, "the first file")
        except InputError as error:
            words = error.reason.removeprefix("X ")
            raise self.file.complain(words, "give all files of a folder the same") from None
        return (
            self
            if order is None
            else replace(self, features=tuple(self.features[i] for i in order))
        )

    def blocks(self, allow_missing: bool, largest: float) -> Iterator[list[Any]]:
        start = 0
        positions = _with_ids(self.features, self.ids)
        for block in self.file.blocks(self.features, self.ids):
            for i, column in zip(positions, block, strict=True):
                may_lack = allow_missing or i in self.categories
                if column.null_count and (i == self.ids or not may_lack):
                    raise self._no_value(start, i, column)
                if i != self.ids and i not in self.categories:
                    self._refuse_large(start, i, column, largest)
            yield [
                self._codes(column) if i in self.categories else column
                for i, column in zip(positions, block, strict=True)
            ]
            start += len(block[0]) if block else 0

    def _codes(self, column: Any) -> Any:
        """The codes of a column's levels."""
        cells = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        if is_text(cells.type):
            cells = pc.utf8_trim_whitespace(self.file.with_points(cells))
            gaps = pc.is_in(cells, pa.array(sorted(MISSING)))
            cells = pc.if_else(gaps, pa.scalar("", cells.type), cells)
        try:
            return pa.array(codes_of(cells.to_pylist()))
        except InputError as error:
            raise self.file.complain(f"has bad levels: {error.reason}", "mend them") from None

    def _refuse_large(self, start: int, position: int, column: Any, largest: float) -> None:
        """Here, where the line is known; no value is told, since the error may leave the site."""
        if not pa.types.is_floating(column.type):
            return
        values = column.to_numpy(zero_copy_only=False)
        at = np.flatnonzero(np.abs(values) > largest)
        if not len(at):
            return
        where = f"{self.file.place(start + int(at[0]))}, column"
        label = _label(self.file.names, position)
        if np.isinf(values[at[0]]):
            raise self.file.complain(
                f"has an infinite number at {where} {label}, expected finite ones",
                "leave the cell empty and fill it (--fill-missing), or drop the row",
            )
        raise self.file.complain(
            f"has a number beyond {largest:g} at {where} {label}, whose square is too large to be "
            "added up",
            "mend it, or write the column in larger units",
        )

    def _no_value(self, start: int, position: int, column: Any) -> InputError:
        row = start + pc.index(pc.is_null(column), True).as_py()
        expected = "an id" if position == self.ids else "a number"
        where = f"{self.file.place(row)}, column {_label(self.file.names, position)}"
        remedy = "drop or impute such rows, or fit with fill_missing"
        return self.file.complain(f"has no value at {where}, expected {expected}", remedy)

    def _check_types(self) -> None:
        types, complain = self.file.types, self.file.complain
        if types is None:
            return
        for i in self.features:
            if not is_numeric(types[i]) and i not in self.categories:
                label = _label(self.file.names, i)
                complaint = f"has a column {label} of type {types[i]}, expected numbers"
                remedy = (
                    "encode it as numbers, drop it, or name it as id_column= (--id-column) or "
                    "among categories= (--categories)"
                )
                raise complain(complaint, remedy)
        if self.ids is not None and not is_id_type(types[self.ids]):
            complaint = f"has ids of type {types[self.ids]}, expected numbers or strings"
            raise complain(complaint, "pass id_column= with another column")


class _Rows:
    """Rows that come in blocks, in memory or, where they are many, in a file without a name."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype, self.n_rows, self._width = dtype, 0, 0
        self._blocks: list[NDArray[Any]] = []
        self._file: Any = None

    def add(self, columns: Sequence[Any]) -> None:
        n = len(columns[0]) if columns else 0
        block = np.empty((n, len(columns)), dtype=self.dtype)
        for i, column in enumerate(columns):
            block[:, i] = column.to_numpy(zero_copy_only=False)
        self.n_rows, self._width = self.n_rows + n, len(columns)
        self._blocks.append(block)
        if self.n_rows * self._width * self.dtype.itemsize > _MOST_IN_MEMORY:
            self._spill()

    def _spill(self) -> None:
        self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 - the map outlives this
        for block in self._blocks:
            self._file.write(block.tobytes())
        self._blocks.clear()

    def matrix(self) -> NDArray[Any]:
        if self._file is None:
            return np.concatenate(self._blocks)
        self._spill()
        self._file.flush()
        shape = (self.n_rows, self._width)
        return np.memmap(self._file, dtype=self.dtype, mode="r", shape=shape)


# Names, types and ids.


def id_position(file: TableFile, id_column: str | None) -> int | None:
    """Which column has the ids: the one that is named, else one called so."""
    names = file.names
    if names is None:
        if id_column is not None:
            raise file.complain(f"has no header line, so no id column {id_column!r}", "add one")
        return None
    if id_column is None:
        # A blank first name is how pandas and R write an index.
        blank = bool(names) and names[0] == ""
        candidates = (i for i, name in enumerate(names) if name.lower() in ID_NAMES)
        return 0 if blank else next(candidates, None)
    if id_column not in names:
        few = ", ".join(names[:10])
        raise file.complain(f"has no column {id_column!r}, only {few}", "pass one of them")
    return names.index(id_column)


def feature_positions(file: TableFile, id_column: str | None) -> tuple[int, ...]:
    """Columns that are no ids, nor the index that pandas writes beside a column of ids."""
    ids = id_position(file, id_column)
    names = file.names or ("",) * file.n_columns
    return tuple(i for i, name in enumerate(names) if i != ids and not _INDEX.fullmatch(name))


def peek_names(file: TableFile, id_column: str | None) -> tuple[str, ...] | None:
    """Names of the columns of numbers, without reading them."""
    places = feature_positions(file, id_column)
    return None if file.names is None else tuple(file.names[i] for i in places)


def peek_single(
    file: TableFile, id_column: str | None, columns: Columns, categories: Sequence[str]
) -> bool:
    """Whether all numbers are float32 or narrower floats, by what the file states."""
    return _Choice.of(file, id_column, columns, categories).is_single


def peek_shape(file: TableFile, id_column: str | None) -> tuple[int, int] | None:
    """Rows and columns of numbers, where rows need not be counted."""
    if file.n_rows is None:
        return None
    return file.n_rows, len(feature_positions(file, id_column))


def _position(file: TableFile, name: str) -> int:
    names = file.names
    if names is None or names.count(name) != 1:
        few = "no header" if names is None else ", ".join(names[:10])
        count = (names or ()).count(name) or "no"
        raise file.complain(f"has {count} column {name!r}, only {few}", "name one of them")
    return names.index(name)


def _label(names: Sequence[str] | None, column: int) -> str:
    return repr(names[column]) if names else str(column)


def is_numeric(kind: Any) -> bool:
    """Whether a column of Arrow's holds numbers."""
    of = pa.types
    return bool(of.is_integer(kind) or of.is_floating(kind) or of.is_boolean(kind))


def is_text(kind: Any) -> bool:
    """Whether a column of Arrow's holds text."""
    of = pa.types
    return bool(of.is_string(kind) or of.is_large_string(kind) or of.is_string_view(kind))


def is_id_type(kind: Any) -> bool:
    """Whether a column of Arrow's may hold ids."""
    return bool(pa.types.is_integer(kind)) or is_text(kind)


def _ids_of(columns: Sequence[Any]) -> Any:
    """Ids as whole numbers where that loses nothing, else as strings."""
    if all(pa.types.is_integer(column.type) for column in columns):
        return as_sample_ids(np.concatenate([column.to_numpy() for column in columns]))
    texts = [str(own) for column in columns for own in column.to_pylist()]
    try:
        numbers = [int(text) for text in texts]
    except ValueError:
        return as_sample_ids(texts)
    return as_sample_ids(numbers if list(map(str, numbers)) == texts else texts)
