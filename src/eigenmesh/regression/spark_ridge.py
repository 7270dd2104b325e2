"""Ridge regression on components of a Spark frame: three passes for these, and one for the sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from eigenmesh.data.spark_passes import over_partitions
from eigenmesh.data.spark_rows import FeatureLayout, SparkRows, spark_column
from eigenmesh.errors import InputError
from eigenmesh.estimators.accuracy import MissingShares
from eigenmesh.kernel_pca.spark_rounds import require_same_rows
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.ridge import RidgeSums, ridge, ridge_sums
from eigenmesh.regression.fit import Regression, RegressionParameters
from eigenmesh.runtime.records import record

record(RidgeSums)


def fit_spark_ridge(params: RegressionParameters, source: SparkRows, y: Any) -> Regression:
    """On the components of a frame's features; `y` names the columns of targets."""
    targets = [y] if isinstance(y, str) else y
    if not (isinstance(targets, list | tuple) and targets and all(map(_is_name, targets))):
        raise InputError(
            f"y is {y!r}; of a Spark frame the name of its column of targets is expected, or a "
            f"list of names"
        )
    rows = source.apart_from(*targets)
    kpca = params.door.fit(rows)
    sums, centre = _ridge_sums(rows, kpca, targets)
    return Regression(
        fit=ridge(sums, centre, params.alpha),
        flat=isinstance(y, str),
        method=kpca.method_,
        model=kpca.model_,
        estimator=None,
        gamma=kpca.gamma_,
        eigenvalues=kpca.eigenvalues_,
        n_features=kpca.n_features_in_,
        baseline_floats=kpca.n_samples_seen_ * kpca.n_features_in_,
        stop_reason="all rows are accounted for",
        notes=kpca.report_.notes,
        missing=MissingShares.of_estimator(kpca),
    )


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


def _ridge_sums(rows: SparkRows, kpca: Any, targets: Sequence[str]) -> tuple[RidgeSums, Doubles]:
    """The sums of all rows, and what targets were taken less: near their mean digits last."""
    from pyspark.sql import functions

    means = rows.frame.select(*(functions.avg(spark_column(name)) for name in targets)).first()
    centre = np.nan_to_num([0.0 if mean is None else float(mean) for mean in means])
    both = SparkRows(rows.frame, features=(*(rows.features or ()), *targets))
    layout, n = both.layout(), kpca.n_samples_seen_
    work = partial(_summed_targets, layout, kpca.model_, centre)
    passed = over_partitions(both.selected(layout), work, "ridge", n)
    parts = [sums for sums in passed.values() if sums is not None]
    require_same_rows(n, sum(int(sums.n_rows) for sums in parts))
    return RidgeSums(*(sum(own) for own in zip(*parts, strict=True))), centre


def _summed_targets(
    layout: FeatureLayout,
    model: LandmarkModel,
    centre: Doubles,
    number: int,
    batches: Iterator[Any],
) -> RidgeSums | None:
    parts = []
    for block in layout.blocks(number, batches):
        X, y = np.hsplit(block, [-len(centre)])
        parts.append(ridge_sums(np.asarray(model.transform(X), dtype=np.float64), y - centre))
    return RidgeSums(*(sum(own) for own in zip(*parts, strict=True))) if parts else None
