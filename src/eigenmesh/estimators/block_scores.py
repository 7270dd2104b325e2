"""Scores of rows, block by block; and of a Spark frame, where it is, when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from eigenmesh.data.spark_rows import FeatureLayout, SparkRows
from eigenmesh.errors import InputError
from eigenmesh.estimators.naming import FIT
from eigenmesh.estimators.score_frames import require_finite_scores
from eigenmesh.numerics.arrays import Floats, Rows, working_dtype
from eigenmesh.stages.row_preparation import RowPreparation


def block_scores(block: Rows, model: Any, preparation: RowPreparation | None = None) -> Floats:
    """Scores of rows as their owner has them, in their own dtype."""
    rows = block if preparation is None else preparation.apply(block)
    scores: Floats = model.transform(rows).astype(working_dtype(block), copy=False)
    return scores


def mapped_in_spark(
    door: Any,
    X: Any,
    score: Callable[[Rows], Floats],
    names: Sequence[str],
    then: Callable[[Floats], Any] | None = None,
    dtype: str = "",
) -> Any:
    """A Spark frame of scores, or of what `then` makes of them; computed when asked for.

    The features are those of a fitted front door, by their names. `names` are those of the new
    columns, and `dtype` theirs if it is not that of the features; ids stand before them.
    """
    from pyspark.sql import types

    source = SparkRows.of(X)
    layout = source.layout().in_order(door._known_names, FIT)
    if len(layout.names) != door.n_features_in_:
        raise InputError(
            f"the Spark frame has {len(layout.names)} features; {door.n_features_in_} are expected"
        )
    by_name = {"float32": types.FloatType, "float64": types.DoubleType, "int32": types.IntegerType}
    new = [types.StructField(str(name), by_name[dtype or layout.dtype]()) for name in names]
    ids = [] if source.id_column is None else [source.id_column]
    own = [field for field in source.frame.schema.fields if field.name in ids]
    task = partial(_mapped, layout, score, then, [*ids, *map(str, names)])
    return source.selected(layout, *ids).mapInArrow(task, types.StructType([*own, *new]))


def _mapped(
    layout: FeatureLayout, score: Any, then: Any, names: list[str], batches: Iterator[Any]
) -> Iterator[Any]:
    import pyarrow as pa
    from pyspark import TaskContext

    number, row = TaskContext.get().partitionId(), 0
    for batch in batches:
        if not batch.num_rows:
            continue
        scores = score(layout.matrix(batch, number, row))
        require_finite_scores(scores)
        answers = np.asarray(scores if then is None else then(scores))
        columns = np.ascontiguousarray(answers.reshape(batch.num_rows, -1).T)
        ids = batch.columns[: len(names) - len(columns)]
        yield pa.RecordBatch.from_arrays([*ids, *map(pa.array, columns)], names)
        row += batch.num_rows
