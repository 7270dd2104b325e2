"""Rows of a Spark frame: which of its columns are features, and how an executor reads them.

Spark is optional: nothing of it is imported before there is a frame.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.data.column_names import columns_in_order
from eigenmesh.data.partitioned import checked_features, checked_id_column
from eigenmesh.data.table import is_spark_frame
from eigenmesh.errors import InputError, NotNumbers
from eigenmesh.numerics.arrays import Floats, largest_value

NUMBERS = re.compile(r"(tinyint|smallint|int|bigint|float|double|boolean|decimal\(\d+,\d+\))$")
ARRAYS = re.compile(r"(vector|array<(float|double)>)$")
SINGLE = ("float", "array<float>")


def is_spark(source: object) -> bool:
    """Whether rows are in Spark, as they are or as `SparkRows`."""
    return isinstance(source, SparkRows) or is_spark_frame(source)


@dataclass(frozen=True)
class SparkRows:
    """A Spark frame of rows, and what its columns are; a plain frame is one without ids.

    Parameters
    ----------
    frame : a `pyspark.sql.DataFrame`. Numbers are features, and so are columns of `array<double>`
        and of Spark's own vectors, each of one length throughout.
    id_column : the column of ids. It is no feature, and stands beside scores, labels and
        predictions.
    features : the names of the columns that are features; all but the ids if None.

    Examples
    --------
    ``kpca.fit(em.SparkRows(frame, id_column="patient"))``, of a session's frame; of anything else:

    >>> import eigenmesh as em
    >>> em.SparkRows([[1.0, 2.0]])
    Traceback (most recent call last):
    eigenmesh.errors.InputError: frame is a list; a DataFrame of pyspark.sql is expected
    """

    frame: Any
    id_column: str | None = None
    features: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not is_spark_frame(self.frame):
            kind = type(self.frame).__name__
            raise InputError(f"frame is a {kind}; a DataFrame of pyspark.sql is expected")
        checked_id_column(self.id_column)
        checked_features(self.features, "rows")
        for name in (*(self.features or ()), *filter(None, [self.id_column])):
            self._require_one(name)

    @classmethod
    def of(cls, source: Any) -> SparkRows:
        """What a user may pass: a frame, or one with its ids."""
        return source if isinstance(source, SparkRows) else cls(source)

    def _require_one(self, name: str) -> None:
        count = self.frame.columns.count(name)
        if count != 1:
            few = ", ".join(self.frame.columns[:10])
            how_many = f"{count} columns" if count else "no column"
            raise InputError(f"the Spark frame has {how_many} {name!r}, only {few}; pass one")

    def apart_from(self, *names: str) -> SparkRows:
        """The same without these features, which are targets."""
        for name in names:
            self._require_one(name)
        own = self.features if self.features is not None else self.frame.columns
        left = [name for name in own if name not in (*names, self.id_column)]
        return SparkRows(self.frame, self.id_column, left)

    def layout(self) -> FeatureLayout:
        """The columns of features; where there are arrays, a row is looked at for their lengths."""
        types = {field.name: field.dataType.simpleString() for field in self.frame.schema.fields}
        names = self.features
        if names is None:
            names = [name for name in self.frame.columns if name != self.id_column]
        if not names:
            raise InputError("the Spark frame has no column beside ids; features are expected")
        for name in names:
            self._require_one(name)
            if not (NUMBERS.match(types[name]) or ARRAYS.match(types[name])):
                raise NotNumbers(
                    f"the Spark frame has a column {name!r} of type {types[name]}, expected "
                    f"numbers; cast it, drop it, or say that it has the ids: "
                    f"em.SparkRows(frame, id_column={name!r})"
                )
        arrays = [name for name in names if ARRAYS.match(types[name])]
        lengths = self._lengths_of(arrays, types) if arrays else {}
        columns = tuple(FeatureColumn(name, types[name], lengths.get(name)) for name in names)
        single = all(column.type in SINGLE for column in columns)
        return FeatureLayout(columns, "float32" if single else "float64")

    def _lengths_of(self, arrays: Sequence[str], types: dict[str, str]) -> dict[str, int]:
        from pyspark.sql import functions

        sizes = [functions.size(as_spark_column(name, types[name], "float64")) for name in arrays]
        first = self.frame.select(*sizes).first()
        if first is None:
            raise InputError(NO_ROWS)
        return {name: max(int(size or 0), 0) for name, size in zip(arrays, first, strict=True)}

    def selected(self, layout: FeatureLayout, *others: str) -> Any:
        """A frame of the features alone, in their order, after the other columns as they are."""
        own = [
            as_spark_column(column.name, column.type, layout.dtype).alias(f"feature {i}")
            for i, column in enumerate(layout.columns)
        ]
        # Names of ours: `mapInArrow` fails at dots in names.
        kept = [spark_column(name).alias(f"kept {i}") for i, name in enumerate(others)]
        return self.frame.select(*kept, *own)


NO_ROWS = "the Spark frame has no rows; at least 2 are expected"


def spark_column(name: str) -> Any:
    """A column by its name, whatever that is: dots would look into a struct."""
    from pyspark.sql import functions

    escaped = name.replace("`", "``")
    return functions.col(f"`{escaped}`")


def as_spark_column(name: str, kind: str, dtype: str) -> Any:
    """A column of features as floats, or as arrays of them."""
    floats = "float" if dtype == "float32" else "double"
    column = spark_column(name)
    if kind == "vector":
        from pyspark.ml.functions import vector_to_array

        return vector_to_array(column, dtype)
    return column.cast(f"array<{floats}>" if ARRAYS.match(kind) else floats)


@dataclass(frozen=True)
class FeatureColumn:
    """A column of a Spark frame: a number a row, or an array of some length."""

    name: str
    type: str  # as Spark writes it
    length: int | None = None  # of its arrays

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features.

        >>> FeatureColumn("age", "double").names, FeatureColumn("gene", "vector", 2).names
        (('age',), ('gene[0]', 'gene[1]'))
        """
        if self.length is None:
            return (self.name,)
        return tuple(f"{self.name}[{i}]" for i in range(self.length))


@dataclass(frozen=True)
class FeatureLayout:
    """The columns of features, and how an executor makes a matrix of a batch of Arrow's.

    It goes to the executors, and holds no frame.
    """

    columns: tuple[FeatureColumn, ...]
    dtype: str
    order: tuple[int, ...] | None = None  # in which the features are wanted

    @property
    def names(self) -> tuple[str, ...]:
        """Of all features, in the frame's order."""
        return tuple(name for column in self.columns for name in column.names)

    def in_order(self, names: Sequence[str] | None, whose: str) -> FeatureLayout:
        """The same with its features in the order of these names; other names are refused."""
        if names is None:
            return self
        order = columns_in_order(self.names, tuple(names), "the Spark frame", whose)
        own = None if order is None else tuple(order.tolist())
        return FeatureLayout(self.columns, self.dtype, own)

    def blocks(self, partition: int, batches: Iterator[Any]) -> Iterator[Floats]:
        """Matrices of a partition's batches, which have the features last; empty ones are left out.

        An unusable value is named by its place.
        """
        row = 0
        for batch in batches:
            if batch.num_rows:
                yield self.matrix(batch, partition, row)
            row += batch.num_rows

    def matrix(self, batch: Any, partition: int, first_row: int) -> Floats:
        """The features of one batch, the first of whose rows has this number in its partition."""
        where = f"row {{}} of partition {partition} (counted from 0)"
        X = np.empty((batch.num_rows, len(self.names)), np.dtype(self.dtype))
        begin = 0
        for column, values in zip(self.columns, batch.columns[-len(self.columns) :], strict=True):
            end = begin + len(column.names)
            if column.length is None:
                X[:, begin] = values.to_numpy(zero_copy_only=False)  # null becomes NaN
            else:
                at = _other_length(values, column.length)
                if at is not None:
                    raise InputError(
                        f"the Spark frame's column {column.name!r} holds at "
                        f"{where.format(first_row + at)} no array of {column.length}, as the first "
                        f"row has it; arrays of one length are expected"
                    )
                X[:, begin:end] = _numbers_in(values, column.length)
            begin = end
        self._require_moderate(X, lambda row: where.format(first_row + row))
        return X if self.order is None else X[:, list(self.order)]

    def _require_moderate(self, X: Floats, where: Any) -> None:
        largest = largest_value(X.dtype)
        if X.min(initial=0) >= -largest and X.max(initial=0) <= largest:
            return
        row, column = map(int, np.argwhere(~(np.abs(X) <= largest))[0])
        value, name = float(X[row, column]), self.names[column]
        holds = f"the Spark frame holds {value:g} in column {name!r}, {where(row)}"
        if np.isfinite(value):
            raise InputError(
                f"{holds}, expected numbers up to {largest:g}, whose squares can be added up in "
                f"{X.dtype}; rescale the column, e.g. with pyspark.ml.feature.StandardScaler"
            )
        raise InputError(
            f"{holds}, where NaN may be a null; finite numbers are expected: frame.dropna() leaves "
            f"such rows out, pyspark.ml.feature.Imputer fills them"
        )


def _other_length(values: Any, length: int) -> int | None:
    """The first row whose array has another length, or is none."""
    sizes = values.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(sizes != length)
    return int(wrong[0]) if len(wrong) else None


def _numbers_in(values: Any, length: int) -> Floats:
    numbers = values.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(numbers).reshape(len(values), length)
