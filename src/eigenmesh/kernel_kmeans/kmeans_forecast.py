"""What `KernelKMeans` will cost, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eigenmesh.estimators.kernel_gamma import forecast_gamma
from eigenmesh.kernel_kmeans.choose_clustering import REFINE, Choice, Wishes, candidates_for
from eigenmesh.kernel_kmeans.fit_components import (
    RANK_OF_COLUMNS,
    Span,
    graph_clustering,
    most_components,
)
from eigenmesh.kernel_kmeans.protocol import ClusteredRows, FeatureRows
from eigenmesh.kernel_pca.choose_landmarks import MOST_LANDMARKS
from eigenmesh.methods.diskpca.diskpca_forecast import forecast as diskpca_forecast
from eigenmesh.methods.diskpca.estimator import DisKPCA
from eigenmesh.methods.gossip.estimator import GossipKPCA
from eigenmesh.methods.one_shot.estimator import OneShotKPCA
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.runtime.ledger import Ledger, forecast_entry, forecast_message
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import forecast_stages, stage
from eigenmesh.stages.column_scores import ShareHolder
from eigenmesh.stages.count import SurveyedSite
from eigenmesh.stages.kmeans import distributed_kmeans
from eigenmesh.stages.kmeans_party import KMeansSetup
from eigenmesh.stages.row_messages import KernelSetup

Shapes = Sequence[tuple[int, int]]

_HANGS_ON_DATA = "about: how large coresets are, and how soon k-means settles, hangs on the data"
_SETTLES = "at most: k-means that settles earlier sends less"


@dataclass(frozen=True)
class PlannedComponents:
    """The forecast of a fit to columns, or to rows on a graph.

    `build` gives the estimator that a fit will run for so many components.
    """

    wishes: Wishes
    split: str
    build: Callable[[int], Any]

    def _plan_method(self, shapes: Shapes) -> str:
        return f"k-means of the scores of {self._components(shapes)._plan_method(shapes)}"

    def _plan_notes(self, names: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
        notes: tuple[str, ...] = self._components(shapes)._plan_notes(names, shapes)
        return (*notes, _SETTLES) if self.split == "rows" else notes

    def _components(self, shapes: Shapes) -> Any:
        return self.build(most_components(self.wishes, self.split, [d for _, d in shapes]))

    def _forecast(self, names: Sequence[str], shapes: Shapes) -> Ledger:
        wishes, ledger = self.wishes, Ledger()
        if wishes.kernel in RANK_OF_COLUMNS:
            by_columns = self.split == "columns"
            asked: Any = SurveyedSite.count_columns if by_columns else SurveyedSite.count_rows
            ledger.rounds += 1
            ledger.entries += [forecast_entry(asked, name, 0) for name in names]
        estimator = self._components(shapes)
        components = estimator._forecast(names, shapes)
        ledger.entries += components.entries
        ledger.rounds += components.rounds
        if self.split == "rows":
            _graph_clusters(ledger, wishes, estimator, names, shapes)
        elif isinstance(estimator, OneShotKPCA) and wishes.kernel == "poly":
            _scores_of_columns(ledger, estimator, names, shapes)
        return ledger


def method_of_rows(wishes: Wishes, shapes: Shapes) -> str:
    """What a fit to rows at a coordinator runs, in words."""
    if wishes.method in ("exact", "fed"):
        return wishes.method
    choice = candidates_for(wishes, shapes)[0]
    return f"{choice.method}: {choice.n_landmarks} landmarks by {choice.landmarks!r}, {choice.why}"


def _graph_clusters(
    ledger: Ledger, wishes: Wishes, estimator: Any, names: Sequence[str], shapes: Shapes
) -> None:
    dim, sizes = int(estimator.n_components), [n for n, _ in shapes]
    span = Span("scores", dim)
    if isinstance(estimator, GossipKPCA):
        features = estimator._features(len(names))
        width = {
            "rows": sizes[0],
            "centroids": estimator._n_centroids(sizes),
            "random": embedded_width(wishes.kernel, shapes[0][1], estimator.n_features),
        }[features]
        span = Span("features" if features == "random" else "landmarks", width)
    parties = Parties(tuple(names), tuple(shapes), estimator._planned_graph(names))
    clusters = forecast_stages([graph_clustering(wishes, dim, span)], parties, "rows")
    ledger.entries += clusters.entries
    ledger.rounds += clusters.rounds


def _scores_of_columns(
    ledger: Ledger, estimator: OneShotKPCA, names: Sequence[str], shapes: Shapes
) -> None:
    """Coordinates were cut short, so that the fitted samples are scored like new ones."""
    rank = estimator._settings().local_rank
    ledger.rounds += 1
    for name, (n, d) in zip(names, shapes, strict=True):
        most = min(n, d)
        sent = rank - 1 if rank < most else most  # without what is left out
        ledger.entries.append(forecast_entry(ShareHolder.project_samples, name, n * sent))


def forecast(wishes: Wishes, gamma: Any, names: Sequence[str], shapes: Shapes) -> Ledger:
    """The ledger, if the landmarks need not be doubled and no iteration is saved.

    Lloyd is taken to need 20 iterations, which only the data decide.
    """
    if wishes.method == "exact":
        ledger = Ledger()
        forecast_gamma(ledger, wishes.kernel, gamma, names, shapes)
        return ledger
    choice = candidates_for(wishes, shapes)[0]
    ledger = Ledger(rounds=1)
    ledger.entries += [forecast_entry(SurveyedSite.count_rows, name, 0) for name in names]
    forecast_gamma(ledger, wishes.kernel, gamma, names, shapes)
    dim = _scoring(ledger, wishes, choice, names, shapes)
    how: dict[str, Any] = {"method": choice.kmeans, "n_init": wishes.n_init, "refine": REFINE}
    points, parties = KMeansSetup("", "", 0), Parties(tuple(names), tuple(shapes))
    run = stage(distributed_kmeans, points, wishes.n_clusters, dim=dim, **how)
    clustering = forecast_stages([run], parties, "rows")
    ledger.entries += clustering.entries
    ledger.rounds += clustering.rounds
    return ledger


def plan_notes(wishes: Wishes, names: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
    """What hangs on the data, and what it would cost if landmarks doubled as often as they may."""
    if wishes.method in ("exact", "fed"):
        return ()
    if wishes.method == "random-features":
        return (_HANGS_ON_DATA,)
    choice = candidates_for(wishes, shapes)[0]
    doubling = DisKPCA(
        wishes.n_eigenvectors,
        kernel=wishes.kernel,
        center=False,
        n_landmarks=choice.n_landmarks,
        landmarks=choice.landmarks,
        accuracy=wishes.accuracy,
        max_landmarks=MOST_LANDMARKS if wishes.n_landmarks is None else None,
    )
    return (_HANGS_ON_DATA, *doubling._plan_notes(names, shapes))


def _scoring(
    ledger: Ledger, wishes: Wishes, choice: Choice, names: Sequence[str], shapes: Shapes
) -> int:
    """Everything but k-means; gives the dimensions of the points."""
    if choice.landmarks == "none":
        ledger.rounds += 2
        ledger.entries += [forecast_entry(FeatureRows.count_rows, name, 0) for name in names]
        return embedded_width(wishes.kernel, shapes[0][1], wishes.n_features)
    s, q = wishes.n_eigenvectors, min(choice.n_landmarks, sum(n for n, _ in shapes))
    setup = KernelSetup(wishes.kernel, 1.0, 3.0, 1.0, s, 2 * s, wishes.seed)
    found = diskpca_forecast(names, shapes, setup, s, q, choice.landmarks, measured=True)
    ledger.entries += [
        entry._replace(step=entry.step.replace("RowHolder.", "ClusteredRows."))
        for entry in found.entries
    ]
    ledger.rounds += found.rounds + 2
    for name in names:
        ledger.entries += [
            forecast_message(ClusteredRows.keep_scores, name, q * s + 2 * s),
            forecast_entry(
                ClusteredRows.cluster_moments, name, wishes.n_clusters * q + wishes.n_clusters
            ),
        ]
    return s
