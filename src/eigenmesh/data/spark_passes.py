"""Passes over the partitions of a Spark frame, by `mapInArrow`; rows stay with the executors.

What an executor answers is a record of our wire form, in a column of bytes: the driver unpickles
nothing of it. What the driver sends is Spark's own closure, which Spark pickles: a Spark cluster is
one trust domain. The executors' Python must have this package.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from itertools import count
from math import ceil, sqrt
from typing import Any

from eigenmesh.errors import EigenmeshError, InputError
from eigenmesh.numerics import progress
from eigenmesh.runtime import records

Work = Callable[[int, Iterator[Any]], Any]  # a partition's number and batches, to a record
Add = Callable[[Any, Any], Any]

AT_ONCE = 16  # partitions whose answers the driver adds up itself
_SCHEMA = "number long, answer binary"
_LOOK_SECONDS = 0.2  # between two looks at how far a pass is
_passes = count()


def over_partitions(frame: Any, work: Work, words: str, n_rows: int = 0) -> dict[int, Any]:
    """What `work` makes of every partition, by their numbers; `n_rows` is for who watches."""
    answers = frame.mapInArrow(partial(_answered, work), _SCHEMA)
    return _collected(answers, words, n_rows)


def sum_over_partitions(
    frame: Any, work: Work, add: Add, n_partitions: int, words: str, n_rows: int = 0
) -> Any:
    """What these add up to, in the partitions' order.

    Of many, executors add up √n groups first: else the driver had to hold them all.
    """
    answers = frame.mapInArrow(partial(_answered, work), _SCHEMA)
    if n_partitions > AT_ONCE:
        from pyspark.sql import functions

        size = ceil(sqrt(n_partitions))
        group = functions.floor(functions.col("number") / size)
        grouped = answers.withColumn("group", group).repartition(ceil(n_partitions / size), "group")
        answers = grouped.mapInArrow(partial(_added_up, add), _SCHEMA)
    return reduce(add, _collected(answers, words, n_rows).values())


# At the executors.


def _answered(work: Work, batches: Iterator[Any]) -> Iterator[Any]:
    from pyspark import TaskContext

    number = TaskContext.get().partitionId()
    try:
        answer = {"value": work(number, batches)}
    except EigenmeshError as error:  # Spark would try again, and bury it in a traceback
        answer = {"complaint": error.reason}
    yield _batch([number], [records.dumps(answer)])


def _added_up(add: Add, batches: Iterator[Any]) -> Iterator[Any]:
    """The sums of some groups, each in the order of its partitions."""
    groups: dict[int, dict[int, bytes]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            groups.setdefault(row["group"], {})[row["number"]] = row["answer"]
    for group, answers in groups.items():
        ordered = [records.loads(answers[number]) for number in sorted(answers)]
        complaints = [answer for answer in ordered if "complaint" in answer]
        values = (answer["value"] for answer in ordered)
        total = complaints[0] if complaints else {"value": reduce(add, values)}
        yield _batch([group], [records.dumps(total)])


def _batch(numbers: list[int], answers: list[bytes]) -> Any:
    import pyarrow as pa

    columns = [pa.array(numbers, pa.int64()), pa.array(answers, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["number", "answer"])


# At the driver.


def _collected(answers: Any, words: str, n_rows: int) -> dict[int, Any]:
    with _shown(answers.sparkSession, words, n_rows):
        try:
            rows = answers.collect()
        except Exception as error:
            if "No module named 'eigenmesh'" in str(error):
                raise InputError(
                    "the Spark executors cannot import eigenmesh; install it there, in the Python "
                    "that PYSPARK_PYTHON names"
                ) from None
            raise
    by_number = {row.number: records.loads(bytes(row.answer)) for row in rows}
    ordered = [(number, by_number[number]) for number in sorted(by_number)]
    for _, answer in ordered:
        if "complaint" in answer:
            raise InputError(answer["complaint"])
    return {number: answer["value"] for number, answer in ordered}


@contextmanager
def _shown(session: Any, words: str, n_rows: int) -> Iterator[None]:
    """Tell whoever watches how far the pass is, by its tasks, where Spark can say."""
    context = getattr(session, "_sc", None)  # a session behind a server has none
    if context is None or not progress.is_watched():
        yield
        return
    group, is_over = f"eigenmesh {next(_passes)}", threading.Event()
    context.setJobGroup(group, words)
    arguments = (context, group, words, n_rows, is_over)
    watch = threading.Thread(target=_watch, args=arguments, daemon=True)
    watch.start()
    try:
        yield
    finally:
        is_over.set()
        watch.join()
        context.setLocalProperty("spark.jobGroup.id", None)


def _watch(context: Any, group: str, words: str, n_rows: int, is_over: threading.Event) -> None:
    before = 0
    with progress.over_rows(words, n_rows) as advance:
        while not is_over.wait(_LOOK_SECONDS):
            now = int(n_rows * _share_done(context, group))
            advance(max(now - before, 0))
            before = max(now, before)


def _share_done(context: Any, group: str) -> float:
    """Of the pass's tasks, as far as Spark has planned them."""
    tracker = context.statusTracker()
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
    stages = [tracker.getStageInfo(i) for job in jobs for i in job.stageIds]
    counts = [(stage.numTasks, stage.numCompletedTasks) for stage in stages if stage is not None]
    n_tasks = sum(n for n, _ in counts)
    return sum(n for _, n in counts) / n_tasks if n_tasks else 0.0
