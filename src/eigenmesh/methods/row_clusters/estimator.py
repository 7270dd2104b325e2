"""Distributed k-means of rows, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np

from eigenmesh.errors import EigenmeshWarning
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import one_of, optional_count, restarts, whole_number
from eigenmesh.estimators.graphs import count_from_zero, number_from_zero
from eigenmesh.estimators.party_labels import PartyLabels
from eigenmesh.estimators.report import RunReport
from eigenmesh.methods.registry import Method, register
from eigenmesh.methods.row_clusters.protocol import RowPointSetup, row_points
from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, dense
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.distributed_kmeans import RESTARTS, KMeansResult, distributed_kmeans
from eigenmesh.stages.kmeans_party import KMeansSetup

POINTS, LABELS = "row-clusters points", "row-clusters labels"
CLUSTERINGS = ("means", "coreset", "lloyd")


class DistributedKMeans(PartyLabels):
    """k-means of rows held by several parties, in their own columns: no kernel, no components.

    Rows and labels stay with their parties. It clusters whatever has rows: data, or the scores that
    an estimator's `transform` gave each party. `KernelKMeans` does both steps in one.

    Parameters
    ----------
    n_clusters : clusters wanted.
    clustering : "means", in which means of at least five rows each stand for all; "coreset",
        weighted rows that leave their party (Balcan, Ehrlich and Liang, 2013); "lloyd", Lloyd's
        iteration by sums, from seeds that are rows (k-means‖). The last two let rows out.
    coreset_size : draws of "means" and "coreset" in all; if None 50 a cluster, and at least 200.
    refine : of "means" and "coreset", rounds in which their best solutions move to the means of all
        rows. Sums over a cluster of one row are that row: policies that keep rows take 0 only.
    n_init : starts.
    max_iter, tol : of "lloyd", its rounds, and the squared move of the centres that ends it, as a
        share of the mean squared distance of a row to its centre.
    random_state : seed of all draws.

    Attributes
    ----------
    cluster_centers_ : (n_clusters, n_features), fewer where fewer rows differ.
    labels_ : the rows' clusters; for split data a list; labels that are at a site and not in this
        process say so in their place.
    inertia_ : Σ ‖x − nearest centre‖² over all rows; where policies keep rows a group of rows goes
        whole to the centre that is nearest to its mean.
    cluster_sizes_ : rows of each cluster.
    n_iter_ : rounds of sums.
    history_ : mean squared distance of a row to its centre before every round's move, (rounds,).
    report_ : what it cost, and what left each party.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_iris
    >>> parts = em.split(load_iris().data, n_parties=3, random_state=0)
    >>> kmeans = em.DistributedKMeans(3, random_state=0).fit(parts)
    >>> kmeans.cluster_centers_.shape, "rows" in kmeans.report_.reveals["party-0"]
    ((3, 4), False)
    >>> bool(kmeans.inertia_ < 1.1 * 78.85)
    True
    """

    _cheaper = "lower coreset_size, or refine"
    _fitted = ("cluster_centers_", "cluster_sizes_", "inertia_", "n_iter_")

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        clustering: str = "means",
        coreset_size: int | None = None,
        refine: int = 2,
        n_init: int | str = RESTARTS,
        max_iter: int = 100,
        tol: float = 1e-4,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.clustering = clustering
        self.coreset_size = coreset_size
        self.refine = refine
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows split over parties: a Partitioned, a Federation, or a plain array."""
        before, _ = self._runs(1)
        with self._opened(self._source(X)) as fed, fed.recording() as recording:
            self._require_rows(fed)
            fed.require_stages(before)
            n_columns, baseline = before.run(fed).value
            clusters: KMeansResult = self._runs(n_columns)[1].run(fed).value
            self._adopt(clusters)
            self._labels = self._own_labels(fed, LABELS, X)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=clusters.stop_reason,
            baseline_floats=baseline,
            notes=clusters.notes,
            cheaper=self._less(fed.split, fed.graph is not None),
        )
        for note in clusters.notes:
            warnings.warn(note, EigenmeshWarning, stacklevel=2)
        return self

    def _runs(self, n_columns: int) -> tuple[Stage, Stage]:
        """Rows become points; these are clustered."""
        clustering = one_of(self.clustering, "clustering", CLUSTERINGS)
        refine = count_from_zero(self.refine, "refine")
        how = {
            "method": clustering,
            "n_init": restarts(self.n_init, RESTARTS),
            "max_iter": whole_number(self.max_iter, "max_iter"),
            "tol": number_from_zero(self.tol, "tol"),
            "coreset_size": optional_count(self.coreset_size, "coreset_size"),
            "refine": 0 if clustering == "lloyd" else refine,
            "dim": n_columns,
        }
        k, setup = whole_number(self.n_clusters, "n_clusters"), RowPointSetup(points=POINTS)
        points = KMeansSetup(points=POINTS, labels=LABELS, seed=seed_of(self.random_state))
        clusters = stage(distributed_kmeans, points, k, **how)
        return stage(row_points, setup, clustering != "means"), clusters

    def _stages(self, parties: Parties) -> list[Stage]:
        """What a fit runs."""
        return list(self._runs(parties.shapes[0][1]))

    def _adopt(self, clusters: KMeansResult) -> None:
        self.cluster_centers_ = clusters.centres
        self.cluster_sizes_ = clusters.sizes
        self.inertia_ = float(clusters.inertia)
        self.n_iter_ = clusters.n_iter
        self.history_ = clusters.history
        self.n_features_in_ = int(clusters.centres.shape[1])
        self._last_transform: list[RunReport] = []

    def _scores(self, X: Rows) -> Doubles:
        """Distances to the centres, as scikit-learn's k-means gives them."""
        points, centres = dense(as_rows(X, np.float64)), self.cluster_centers_
        columns = [np.linalg.norm(points - centre, axis=1) for centre in centres]
        return np.column_stack(columns)

    def _nearest(self, scores: Any) -> Any:
        return np.asarray(scores).argmin(axis=1).astype(np.int32)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


register(
    Method(
        "row-clusters",
        "rows",
        ("linear",),
        DistributedKMeans,
        "k-means of rows where they are, for whoever clusters rows or scores in two steps",
        task="comparison",
    )
)
