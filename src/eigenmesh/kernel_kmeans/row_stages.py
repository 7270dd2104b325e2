"""The runs of `KernelKMeans` of rows at a coordinator: what a fit makes, and a plan counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eigenmesh.estimators.accuracy import growth_notes
from eigenmesh.estimators.base import Shapes
from eigenmesh.estimators.kernel_gamma import gamma_stages
from eigenmesh.estimators.party_values import NONE
from eigenmesh.kernel_kmeans.choose_clustering import (
    REFINE,
    ClusteringChoice,
    ClusteringParameters,
    candidates_for,
)
from eigenmesh.kernel_kmeans.protocol import (
    LABELS,
    SCORES,
    feature_label_setup,
    feature_moments,
    feature_points,
    kernel_sums,
    label_setup,
    points_of,
    row_sizes,
)
from eigenmesh.kernel_pca.one_array import MOST_LANDMARKS
from eigenmesh.methods.diskpca.protocol import Accuracy, most_landmarks
from eigenmesh.methods.diskpca.scores import landmark_scores
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup
from eigenmesh.methods.moments.protocol import MomentSetup, moment_pca
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.numerics.explicit_features import explicit_width
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import Parties, masks_are_planned
from eigenmesh.runtime.study import Stage, floats_besides, stage
from eigenmesh.stages.kmeans import distributed_kmeans
from eigenmesh.stages.kmeans_party import KMeansSetup

_HANGS_ON_DATA = "about: how large coresets are, and how soon k-means settles, hangs on the data"


def setup_of(params: ClusteringParameters, kernel: Kernel, weights: str) -> LandmarkSetup:
    """What the parties agree on."""
    s = params.n_eigenvectors
    return LandmarkSetup(
        kernel=kernel.name,
        gamma=kernel.gamma,
        degree=float(kernel.degree),
        coef0=float(kernel.coef0),
        leverage_rank=s,
        embedding_dim=params.n_features if params.method == "random-features" else 2 * s,
        seed=params.seed,
        scores=SCORES,
        weights=weights,
    )


def scoring_run(
    params: ClusteringParameters,
    choice: ClusteringChoice,
    setup: LandmarkSetup,
    sizes: Replies | None = None,
) -> Stage:
    """Landmarks and components, whose scores the sites keep; a plan has no `sizes` by then."""
    accuracy = Accuracy(params.accuracy, _most_landmarks(params, choice))
    more = params.more_eigenvectors and choice.kmeans == "lloyd"
    how_many = (params.n_eigenvectors, choice.n_landmarks, choice.landmarks, False)
    return stage(landmark_scores, setup, *how_many, accuracy, more, is_counted=True, sizes=sizes)


def _most_landmarks(params: ClusteringParameters, choice: ClusteringChoice) -> int:
    return MOST_LANDMARKS if params.n_landmarks is None else choice.n_landmarks


def how_to_cluster(params: ClusteringParameters, choice: ClusteringChoice) -> dict[str, Any]:
    """What `distributed_kmeans` takes after its number of clusters."""
    return {
        "method": choice.kmeans,
        "n_init": params.n_init,
        "max_iter": params.max_iter,
        "tol": params.tol,
        "refine": REFINE[choice.kmeans],
    }


def row_stages(params: ClusteringParameters, gamma: Any, parties: Parties) -> list[Stage]:
    """All runs, if landmarks need not be doubled and every party allows the first choice."""
    search = gamma_stages(params.kernel, gamma, parties, params.seed)
    if params.method == "exact":
        return search
    choice = candidates_for(params, parties.shapes, masks_are_planned())[0]
    setup, how = setup_of(params, Kernel(params.kernel, 1.0), NONE), how_to_cluster(params, choice)
    if choice.landmarks == "moments":
        return [stage(row_sizes), *search, *_moment_stages(params, parties, how)]
    if choice.landmarks == "none":
        scoring = stage(feature_points, setup)
        dim = embedded_width(params.kernel, parties.shapes[0][1], params.n_features)
    else:
        scoring, dim = scoring_run(params, choice, setup), params.n_eigenvectors
    if choice.seeding == "landmarks":
        how["candidates"] = np.zeros((min(choice.n_landmarks, _given(choice, parties)), dim))
    points = stage(distributed_kmeans, points_of(setup), params.n_clusters, dim=dim, **how)
    runs = [stage(row_sizes), *search, scoring, points]
    if choice.landmarks == "none":
        return runs
    return [*runs, _moments(params, choice, setup, parties, choice.n_landmarks)]


def moment_run(params: ClusteringParameters, kernel: Kernel, weights: str) -> Stage:
    """Components from sums, whose scores the sites keep."""
    parts = (kernel.name, kernel.gamma, float(kernel.degree), float(kernel.coef0))
    keys = (SCORES, weights)
    setup = MomentSetup(*parts, False, *keys, weighted=False)
    return stage(moment_pca, setup, params.n_eigenvectors)


def _moment_stages(
    params: ClusteringParameters, parties: Parties, how: dict[str, Any]
) -> list[Stage]:
    kernel = Kernel(params.kernel, 1.0, params.degree, params.coef0)
    scoring, d = moment_run(params, kernel, NONE), parties.shapes[0][1]
    dim = min(params.n_eigenvectors, explicit_width(kernel.name, d, kernel.degree, kernel.coef0))
    points = KMeansSetup(points=SCORES, labels=LABELS, seed=params.seed)
    clustering = stage(distributed_kmeans, points, params.n_clusters, dim=dim, **how)
    labelled = feature_label_setup(scoring.args[0])
    return [scoring, clustering, stage(feature_moments, labelled, params.n_clusters)]


def _moments(
    params: ClusteringParameters,
    choice: ClusteringChoice,
    setup: LandmarkSetup,
    parties: Parties,
    n_landmarks: int,
) -> Stage:
    q = min(n_landmarks, _given(choice, parties))
    return stage(kernel_sums, label_setup(setup), params.n_clusters, q)


def _given(choice: ClusteringChoice, parties: Parties) -> int:
    """Landmarks that the parties can give."""
    return sum(most_landmarks(choice.landmarks, n) for n, _ in parties.shapes)


def row_notes(
    params: ClusteringParameters, names: Sequence[str], shapes: Sequence[tuple[int, int]]
) -> tuple[str, ...]:
    """What hangs on the data, and what it would cost if landmarks doubled as often as they may."""
    if params.method in ("exact", "fed"):
        return ()
    if params.method == "random-features":
        return (_HANGS_ON_DATA,)
    parties = Parties(tuple(names), tuple(shapes))
    choice = candidates_for(params, shapes, masks_are_planned())[0]
    if choice.landmarks == "moments":
        return (_HANGS_ON_DATA,)
    setup = setup_of(params, Kernel(params.kernel, 1.0), NONE)
    scoring, most = scoring_run(params, choice, setup), _most_landmarks(params, choice)
    few, many = (
        [scoring, _moments(params, choice, setup, parties, q)] for q in (choice.n_landmarks, most)
    )
    more = floats_besides(few, parties, "rows", many)
    largest = min(most, _given(choice, parties))
    notes = growth_notes(choice.n_landmarks, largest, params.accuracy, more, len(names))
    return (_HANGS_ON_DATA, *notes)


def method_of_rows(params: ClusteringParameters, shapes: Shapes) -> str:
    """What a fit to rows at a coordinator runs, in words."""
    if params.method in ("exact", "fed"):
        return params.method
    choice = candidates_for(params, shapes, masks_are_planned())[0]
    if choice.landmarks == "moments":
        return str(choice)
    return f"{choice.method}: {choice.n_landmarks} landmarks by {choice.landmarks!r}, {choice.why}"
