"""The runs of `KernelKMeans` of rows at a coordinator: what a fit makes, and a plan counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.estimators.accuracy import growth_notes
from eigenmesh.estimators.base import Shapes
from eigenmesh.estimators.kernel_gamma import gamma_stages
from eigenmesh.estimators.party_values import NONE
from eigenmesh.estimators.small_parties import SURVEY, LeftOut, names_of
from eigenmesh.kernel_kmeans.choose_clustering import (
    REFINE,
    SEARCHES,
    ClusteringChoice,
    ClusteringParameters,
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
)
from eigenmesh.kernel_pca.one_array import MOST_LANDMARKS
from eigenmesh.methods.diskpca.landmark_fits import Accuracy, most_landmarks
from eigenmesh.methods.diskpca.scores import SENT, landmark_scores
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup
from eigenmesh.methods.moments.protocol import MomentSetup, moment_pca
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.numerics.explicit_features import explicit_width
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, floats_besides, forecast_stages, stage
from eigenmesh.stages.distributed_kmeans import distributed_kmeans
from eigenmesh.stages.kmeans_party import KMeansSetup

_HANGS_ON_DATA = "about: how large coresets are, and how soon k-means settles, hangs on the data"


def setup_of(params: ClusteringParameters, kernel: Kernel, weights: str) -> LandmarkSetup:
    """What the parties agree on."""
    s = params.n_eigenvectors
    width = 2 * s if params.embedding_dim is None else params.embedding_dim
    return LandmarkSetup(
        kernel=kernel.name,
        gamma=kernel.gamma,
        degree=float(kernel.degree),
        coef0=float(kernel.coef0),
        leverage_rank=s,
        embedding_dim=params.n_features if params.method == "random-features" else width,
        seed=params.seed,
        scores=SCORES,
        weights=weights,
        bits=params.bits,
    )


def scoring_run(
    params: ClusteringParameters,
    choice: ClusteringChoice,
    setup: LandmarkSetup,
    sizes: Replies | None = None,
) -> Stage:
    """Landmarks and components, whose scores the sites keep; a plan has no `sizes` by then."""
    accuracy = Accuracy(params.accuracy, _most_landmarks(params, choice))
    more, how_many = takes_more(params, choice), (params.n_eigenvectors, choice.n_landmarks)
    how = (choice.landmarks, False, accuracy, more)
    return stage(landmark_scores, setup, *how_many, *how, is_counted=True, sizes=sizes)


def takes_more(params: ClusteringParameters, choice: ClusteringChoice) -> bool:
    """Whether more eigenvectors are clustered than there are clusters; coresets are by name."""
    return params.more_eigenvectors and choice.kmeans != "coreset"


def most_eigenvectors(params: ClusteringParameters, choice: ClusteringChoice) -> int:
    """Between parties."""
    return params.n_eigenvectors * (SENT if takes_more(params, choice) else 1)


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
        "coreset_size": params.coreset_size,
        "searches": SEARCHES if takes_more(params, choice) else 0,
    }


def moment_run(
    params: ClusteringParameters, choice: ClusteringChoice, kernel: Kernel, weights: str
) -> Stage:
    """Components from sums, whose scores the sites keep."""
    parts = (kernel.name, kernel.gamma, float(kernel.degree), float(kernel.coef0))
    keys = (SCORES, weights)
    setup = MomentSetup(*parts, False, *keys, weighted=False)
    return stage(moment_pca, setup, most_eigenvectors(params, choice))


@dataclass(frozen=True)
class PlannedClustering:
    """A fit to rows at a coordinator before it runs, by the choice that parties allow."""

    params: ClusteringParameters
    gamma: Any
    choice: ClusteringChoice
    _left_out: LeftOut | None = None
    _preceding: tuple[Stage, ...] = (SURVEY,)

    def _planned_graph(self, names: Sequence[str]) -> None:
        return None

    def _plan_method(self, shapes: Shapes) -> str:
        choice = self.choice
        if choice.landmarks in ("moments", "none"):
            return str(choice)
        drawn = f"{choice.n_landmarks} landmarks by {choice.landmarks!r}"
        return f"{choice.method}: {drawn}, {choice.why}"

    def _forecast(self, names: Sequence[str], shapes: Shapes) -> Ledger:
        out = names_of(self._left_out)
        parties = Parties(tuple(names), tuple(shapes), left_out=out)
        return forecast_stages([*self._preceding, *self._stages(parties)], parties, "rows")

    def _stages(self, parties: Parties) -> list[Stage]:
        """All runs after the survey, if landmarks need not be doubled."""
        params, choice = self.params, self.choice
        search = gamma_stages(params.kernel, self.gamma, parties, params.seed)
        if choice.landmarks == "moments":
            return [*search, *self._moment_stages(parties)]
        how, setup = how_to_cluster(params, choice), self._setup()
        if choice.landmarks == "none":
            scoring = stage(feature_points, setup)
            dim = embedded_width(params.kernel, parties.shapes[0][1], params.n_features)
        else:
            q = self._landmarks(choice.n_landmarks, parties)
            scoring = scoring_run(params, choice, setup)
            dim = min(q, most_eigenvectors(params, choice))
        if choice.seeding == "landmarks":  # as many as there are, whose scores are known
            how["candidates"] = np.zeros((self._landmarks(choice.n_landmarks, parties), dim))
        points = points_of(setup, choice.kmeans)
        runs = [
            *search,
            scoring,
            stage(distributed_kmeans, points, params.n_clusters, dim=dim, **how),
        ]
        if choice.landmarks == "none" or choice.kmeans == "groups":
            return runs
        return [*runs, self._sums(parties, choice.n_landmarks)]

    def _moment_stages(self, parties: Parties) -> list[Stage]:
        params, how = self.params, how_to_cluster(self.params, self.choice)
        kernel, d = Kernel(params.kernel, 1.0, params.degree, params.coef0), parties.shapes[0][1]
        width = explicit_width(kernel.name, d, kernel.degree, kernel.coef0)
        dim = min(most_eigenvectors(params, self.choice), width)
        scoring = moment_run(params, self.choice, kernel, NONE)
        whole = self.choice.kmeans == "groups"
        points = KMeansSetup(SCORES, LABELS, seed=params.seed, groups=whole)
        if whole:
            how["squares"] = np.zeros(dim)
        clustering = stage(distributed_kmeans, points, params.n_clusters, dim=dim, **how)
        if whole:
            return [scoring, clustering]
        labelled = feature_label_setup(scoring.args[0])
        return [scoring, clustering, stage(feature_moments, labelled, params.n_clusters)]

    def _setup(self) -> LandmarkSetup:
        return setup_of(self.params, Kernel(self.params.kernel, 1.0), NONE)

    def _landmarks(self, most: int, parties: Parties) -> int:
        """So many, or those that the parties can give."""
        most_in_all = sum(most_landmarks(self.choice.landmarks, n) for n, _ in parties.shapes)
        return min(most, most_in_all)

    def _sums(self, parties: Parties, n_landmarks: int) -> Stage:
        q = self._landmarks(n_landmarks, parties)
        return stage(kernel_sums, label_setup(self._setup()), self.params.n_clusters, q)

    def _plan_notes(self, names: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
        """What hangs on the data, and what landmarks cost that double as often as they may."""
        params, choice = self.params, self.choice
        if choice.landmarks in ("moments", "none"):
            return (_HANGS_ON_DATA,)
        parties = Parties(tuple(names), tuple(shapes))
        most = _most_landmarks(params, choice)
        scoring = scoring_run(params, choice, self._setup())
        few, many = ([scoring, self._sums(parties, q)] for q in (choice.n_landmarks, most))
        more = floats_besides(few, parties, "rows", many)
        largest = self._landmarks(most, parties)
        notes = growth_notes(choice.n_landmarks, largest, params.accuracy, more, len(names))
        return (_HANGS_ON_DATA, *notes)


@dataclass(frozen=True)
class PlannedExact:
    """A fit to the whole kernel matrix of rows in one place: at most gamma is asked for."""

    params: ClusteringParameters
    gamma: Any
    _left_out: LeftOut | None = None
    _preceding: tuple[Stage, ...] = ()

    def _planned_graph(self, names: Sequence[str]) -> None:
        return None

    def _plan_method(self, shapes: Shapes) -> str:
        return "exact"

    def _plan_notes(self, names: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
        return ()

    def _stages(self, parties: Parties) -> list[Stage]:
        return gamma_stages(self.params.kernel, self.gamma, parties, self.params.seed)

    def _forecast(self, names: Sequence[str], shapes: Shapes) -> Ledger:
        parties = Parties(tuple(names), tuple(shapes))
        return forecast_stages(self._stages(parties), parties, "rows")
