"""What `KernelKMeans` will cost, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eigenmesh.estimators.kernel_gamma import forecast_gamma
from eigenmesh.estimators.kernel_kmeans_methods import REFINE, Choice, Wishes, candidates_for
from eigenmesh.federation.ledger import Ledger, forecast_entry, forecast_message
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.protocols.diskpca_forecast import forecast as diskpca_forecast
from eigenmesh.protocols.distributed_kmeans import forecast as kmeans_forecast
from eigenmesh.protocols.kernel_kmeans import ClusteredRows, FeatureRows
from eigenmesh.protocols.row_messages import KernelSetup
from eigenmesh.protocols.survey import SurveyedSite

Shapes = Sequence[tuple[int, int]]


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
    sizes = [n for n, _ in shapes]
    how: dict[str, Any] = {"method": choice.kmeans, "n_init": wishes.n_init, "refine": REFINE}
    clustering = kmeans_forecast(names, sizes, dim, wishes.n_clusters, **how)
    ledger.entries += clustering.entries
    ledger.rounds += clustering.rounds
    return ledger


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
    found = diskpca_forecast(names, shapes, setup, s, q, choice.landmarks)
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
