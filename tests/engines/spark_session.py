"""One Spark session on the loopback for all tests of a process, started when first needed."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "FATAL",
}


@cache
def session() -> Any:
    """Two threads of this machine; skips where there is no Spark, or no Java to run it."""
    pytest.importorskip("pyspark", reason="pip install 'eigenmesh[spark]'")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("Spark runs in Java, and there is none; e.g. apt-get install openjdk-17-jre")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # or executors take whatever python3 is
    logging.getLogger("py4j").setLevel(logging.ERROR)
    builder = SparkSession.builder.master("local[2]").config(map=QUIET)
    opened = builder.getOrCreate()
    atexit.register(opened.stop)
    return opened


def frame_of(columns: dict[str, Any], cuts: tuple[int, ...] = ()) -> Any:
    """A Spark frame with these columns, cut before these rows: a partition a piece, in order.

    A cut that stands twice has an empty partition between. Executors are sent the pieces: Spark
    would make one partition of local rows, and a shuffle would promise no order.
    """
    opened = session()
    import pyarrow as pa

    whole = pa.table(columns)
    pieces = [whole.slice(a, b - a) for a, b in pairwise([0, *cuts, len(whole)])]

    def own_piece(batches: Any) -> Any:
        for batch in batches:
            for i in batch.column(0).to_pylist():
                yield from pieces[i].to_batches()

    schema = opened.createDataFrame(whole.slice(0, 1)).schema
    numbers = opened.range(0, len(pieces), 1, len(pieces))
    return numbers.mapInArrow(own_piece, schema).cache()  # later passes need no Python for it
