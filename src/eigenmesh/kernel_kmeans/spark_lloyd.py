"""Kernel k-means of a Spark frame: three passes for components, and one for each of Lloyd's steps.

The rows that have come to the driver for the landmarks are clustered there as an array is; their
clusters' means, in the components of all rows, are where Lloyd's iteration over all rows begins.
From so many rows it has not far to go.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.data.spark_passes import sum_over_partitions
from eigenmesh.data.spark_rows import FeatureLayout, SparkRows
from eigenmesh.errors import InputError
from eigenmesh.estimators.accuracy import MissingShares
from eigenmesh.kernel_kmeans.choose_clustering import ClusteringParameters
from eigenmesh.kernel_kmeans.fit_rows import ClusterFit
from eigenmesh.kernel_pca.one_array import first_components
from eigenmesh.kernel_pca.sampled_fit import gamma_of_all
from eigenmesh.kernel_pca.spark_rounds import (
    SparkSample,
    require_same_rows,
    sampled,
    summed_in_spark,
)
from eigenmesh.numerics.arrays import Doubles, Floats
from eigenmesh.numerics.cluster_moments import inertia_of
from eigenmesh.numerics.kmeans import ClusterSums, WeightedPoints, cluster_sums, membership
from eigenmesh.numerics.landmark_sums import Span, span_residual
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.runtime.records import record

record(ClusterSums)


def fit_spark_clusters(
    door: Any, params: ClusteringParameters, source: SparkRows
) -> tuple[ClusterFit, tuple[str, ...]]:
    """The clusters, and the features' names."""
    if params.method not in ("auto", "landmarks"):
        raise InputError(
            f"method is {params.method!r}; for a Spark frame 'auto' or 'landmarks' is expected"
        )
    layout = source.layout()
    sample = sampled(source, layout, params.n_landmarks, params.seed)
    door._look_at_columns(sample.rows, layout.names)
    gamma = gamma_of_all(door.kernel, door.gamma, sample)
    few = type(door)(**{**door.get_params(deep=False), "random_state": params.seed})
    few._has_looked = True  # at the same columns, by their names
    few = few.set_params(gamma=few.gamma if gamma is None else gamma).fit(sample.rows)
    sums = summed_in_spark(sample, few.model_.kernel, few.model_.landmarks)
    span = Span.of(few.model_.kernel, few.model_.landmarks)
    whole = LandmarkModel.fit(span.kernel, few.model_.landmarks, sums.inside, None, False, span)
    model = first_components(whole, min(few.cluster_centers_.shape[1], len(whole.eigenvalues)))
    end = _lloyd(sample, model, _means(model.transform(sample.rows), few.labels_), params)
    inertia = inertia_of(sums.inside.trace, end.sums.sums, end.sums.weights)
    slack = max(min(span_residual(span, sums.inside), inertia), 0.0)
    why = few.method_.partition(": ")[2]
    fit = ClusterFit(
        model=model,
        centres=end.centres,
        n_eigenvectors=len(model.eigenvalues),
        spectrum=whole.eigenvalues,
        inertia=inertia,
        slack=slack,
        n_iter=len(end.course),
        gamma=few.gamma_,
        method=f"landmarks: rows of {sample.n_partitions} Spark partitions; {why}",
        n_columns=len(layout.names),
        stop_reason=end.reason,
        baseline_floats=sample.n_rows * len(layout.names),
        facts=(f"inertia {inertia:.4g} is at most {slack:.3g} too large",),
        missing=MissingShares.of_estimator(few),
        history=end.course,
    )
    return fit, layout.names


class _End(NamedTuple):
    centres: Doubles
    sums: ClusterSums  # of the last step
    reason: str
    course: Doubles  # mean squared distance of a row's scores to their centre, pass by pass


def _lloyd(
    sample: SparkSample, model: LandmarkModel, centres: Doubles, params: ClusteringParameters
) -> _End:
    """A pass a step; an empty cluster stays where it is."""
    frame = sample.source.selected(sample.layout)
    passing = (sample.n_partitions, "kernel k-means", sample.n_rows)
    course, reason = [], f"{params.max_iter} rounds were made"
    for _ in range(params.max_iter):
        work = partial(_clustered, sample.layout, model, centres)
        sums: ClusterSums = sum_over_partitions(frame, work, _added, *passing)
        require_same_rows(sample.n_rows, int(sums.weights.sum()))
        means = np.array(centres)
        filled = sums.weights > 0
        means[filled] = sums.sums[filled] / sums.weights[filled, None]
        shift = float(np.square(means - centres).sum())
        centres = means
        course.append(sums.cost / sample.n_rows)
        if shift <= params.tol * course[-1]:
            reason = f"the centres moved by no more than {params.tol:g}"
            break
    return _End(centres, sums, reason, np.array(course))


def _means(scores: Floats, labels: Any) -> Doubles:
    labels = np.asarray(labels, dtype=np.intp)
    k = int(labels.max()) + 1
    members = membership(labels, np.ones(len(labels)), k)
    return np.asarray(members @ scores / members.sum(axis=1)[:, None], dtype=np.float64)


def _clustered(
    layout: FeatureLayout,
    model: LandmarkModel,
    centres: Doubles,
    number: int,
    batches: Iterator[Any],
) -> ClusterSums:
    total = ClusterSums(np.zeros(centres.shape), np.zeros(len(centres)), 0.0)
    for X in layout.blocks(number, batches):
        points = np.asarray(model.transform(X), dtype=np.float64)
        total = _added(total, cluster_sums(WeightedPoints(points, np.ones(len(X))), centres))
    return total


def _added(one: ClusterSums, other: ClusterSums) -> ClusterSums:
    return ClusterSums(one.sums + other.sums, one.weights + other.weights, one.cost + other.cost)
