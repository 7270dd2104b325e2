"""The runs of `KernelKMeans` of rows at a coordinator: what a fit makes, and a plan counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eigenmesh.estimators.kernel_gamma import gamma_stages
from eigenmesh.estimators.party_values import NONE
from eigenmesh.kernel_kmeans.choose_clustering import REFINE, Choice, Wishes, candidates_for
from eigenmesh.kernel_kmeans.protocol import (
    SCORES,
    feature_points,
    kernel_sums,
    labelled,
    points_of,
)
from eigenmesh.kernel_pca.choose_landmarks import MOST_LANDMARKS
from eigenmesh.methods.diskpca.estimator import growth_notes
from eigenmesh.methods.diskpca.landmark_draws import most_landmarks
from eigenmesh.methods.diskpca.landmark_growth import Accuracy
from eigenmesh.methods.diskpca.scores import landmark_scores
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, floats_besides, stage
from eigenmesh.stages.count import survey
from eigenmesh.stages.kmeans import distributed_kmeans

_HANGS_ON_DATA = "about: how large coresets are, and how soon k-means settles, hangs on the data"


def setup_of(wishes: Wishes, kernel: Kernel, weights: str) -> LandmarkSetup:
    """What the parties agree on."""
    s = wishes.n_eigenvectors
    return LandmarkSetup(
        kernel=kernel.name,
        gamma=kernel.gamma,
        degree=float(kernel.degree),
        coef0=float(kernel.coef0),
        leverage_rank=s,
        embedding_dim=wishes.n_features if wishes.method == "random-features" else 2 * s,
        seed=wishes.seed,
        scores=SCORES,
        weights=weights,
    )


def scoring_run(wishes: Wishes, choice: Choice, setup: LandmarkSetup) -> Stage:
    """Landmarks and components, whose scores the sites keep."""
    accuracy = Accuracy(wishes.accuracy, _most_landmarks(wishes, choice))
    more = wishes.more_eigenvectors and choice.kmeans == "lloyd"
    how_many = (wishes.n_eigenvectors, choice.n_landmarks, choice.landmarks, False)
    return stage(landmark_scores, setup, *how_many, accuracy, more)


def _most_landmarks(wishes: Wishes, choice: Choice) -> int:
    return MOST_LANDMARKS if wishes.n_landmarks is None else choice.n_landmarks


def how_to_cluster(wishes: Wishes, choice: Choice) -> dict[str, Any]:
    """What `distributed_kmeans` takes after its number of clusters."""
    return {
        "method": choice.kmeans,
        "n_init": wishes.n_init,
        "max_iter": wishes.max_iter,
        "tol": wishes.tol,
        "refine": REFINE if choice.kmeans == "coreset" else 0,
    }


def row_stages(wishes: Wishes, gamma: Any, parties: Parties) -> list[Stage]:
    """All runs, if landmarks need not be doubled and every party allows the first choice."""
    search = gamma_stages(wishes.kernel, gamma, parties, wishes.seed)
    if wishes.method == "exact":
        return search
    choice = candidates_for(wishes, parties.shapes)[0]
    setup, how = setup_of(wishes, Kernel(wishes.kernel, 1.0), NONE), how_to_cluster(wishes, choice)
    if choice.landmarks == "none":
        scoring = stage(feature_points, setup)
        dim = embedded_width(wishes.kernel, parties.shapes[0][1], wishes.n_features)
    else:
        scoring, dim = scoring_run(wishes, choice, setup), wishes.n_eigenvectors
    points = stage(distributed_kmeans, points_of(setup), wishes.n_clusters, dim=dim, **how)
    runs = [stage(survey), *search, scoring, points]
    if choice.landmarks == "none":
        return runs
    return [*runs, _moments(wishes, choice, setup, parties, choice.n_landmarks)]


def _moments(
    wishes: Wishes, choice: Choice, setup: LandmarkSetup, parties: Parties, n_landmarks: int
) -> Stage:
    q = min(n_landmarks, _given(choice, parties))
    return stage(kernel_sums, labelled(setup), wishes.n_clusters, q)


def _given(choice: Choice, parties: Parties) -> int:
    """Landmarks that the parties can give."""
    return sum(most_landmarks(choice.landmarks, n) for n, _ in parties.shapes)


def row_notes(
    wishes: Wishes, names: Sequence[str], shapes: Sequence[tuple[int, int]]
) -> tuple[str, ...]:
    """What hangs on the data, and what it would cost if landmarks doubled as often as they may."""
    if wishes.method in ("exact", "fed"):
        return ()
    if wishes.method == "random-features":
        return (_HANGS_ON_DATA,)
    parties = Parties(tuple(names), tuple(shapes))
    choice = candidates_for(wishes, shapes)[0]
    setup = setup_of(wishes, Kernel(wishes.kernel, 1.0), NONE)
    scoring, most = scoring_run(wishes, choice, setup), _most_landmarks(wishes, choice)
    few, many = (
        [scoring, _moments(wishes, choice, setup, parties, q)] for q in (choice.n_landmarks, most)
    )
    more = floats_besides(few, parties, "rows", many)
    largest = min(most, _given(choice, parties))
    notes = growth_notes(choice.n_landmarks, largest, wishes.accuracy, more, len(names))
    return (_HANGS_ON_DATA, *notes)
