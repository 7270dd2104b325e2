"""The ways of `KernelKMeans`: at the parties, or on the whole kernel matrix of one array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.estimators.accuracy import Missing, caveats_of
from eigenmesh.estimators.party_values import NONE
from eigenmesh.kernel_kmeans.choose_clustering import Choice, Wishes, allowed, candidates_for
from eigenmesh.kernel_kmeans.cluster_maps import FeatureMap, model_of_means
from eigenmesh.kernel_kmeans.protocol import (
    LABELS,
    KernelKMeansResult,
    feature_kmeans,
    kernel_kmeans,
)
from eigenmesh.kernel_kmeans.row_stages import how_to_cluster, scoring_run, setup_of
from eigenmesh.kernel_pca.choose_landmarks import MOST_LANDMARKS
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup
from eigenmesh.numerics.arrays import Doubles, is_sparse
from eigenmesh.numerics.eigen import clip_spectrum, top_eigenpairs
from eigenmesh.numerics.kernel_lloyd import kernel_lloyd
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.shortfall import nothing_missing
from eigenmesh.runtime.federation import Federation
from eigenmesh.stages.count import survey

EXACT_MOST = 20_000  # rows; their kernel matrix takes 3 GB
_MORE = 10  # eigenvalues of the whole kernel matrix beyond those asked for, to see them fall

FindKernel = Callable[[Federation, int], Kernel]


class Outcome(NamedTuple):
    """What a fit found."""

    model: Any  # rows to points; None where `estimator` does it
    centres: Doubles
    n_eigenvectors: int
    spectrum: Doubles
    inertia: float
    slack: float | None
    n_iter: int
    gamma: float | None
    method: str
    n_columns: int
    stop_reason: str
    baseline_floats: int
    caveats: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    estimator: Any = None  # that finds the components, where they have parties' shares or nodes
    means: Any = None  # of the clusters inside the landmarks' span, `numerics.ClusterMeans`
    missing: Missing | None = None  # of the eigenvalues asked for; None if not measured
    labels: Any = None  # of samples whose columns are split; rows keep theirs at their sites


def fit_at_parties(
    fed: Federation, wishes: Wishes, find_kernel: FindKernel, weights: str
) -> Outcome:
    """Landmarks or random features, then distributed k-means."""
    sizes = fed.run(survey).value
    shapes = [(size.n_rows, size.n_columns) for size in sizes]
    choice = allowed(fed, candidates_for(wishes, shapes))
    kernel = find_kernel(fed, wishes.seed)
    setup = setup_of(wishes, kernel, weights)
    found = _run(fed, wishes, choice, setup)
    rather = _rows_instead(fed, wishes, choice, found)
    if rather is not None:
        choice, found = rather, _run(fed, wishes, rather, setup)
    return _concluded(found, wishes, choice, setup, kernel, shapes[0][1], weights == NONE)


def _run(
    fed: Federation, wishes: Wishes, choice: Choice, setup: LandmarkSetup
) -> KernelKMeansResult:
    how = how_to_cluster(wishes, choice)
    if choice.landmarks == "none":
        return feature_kmeans(fed, setup, wishes.n_clusters, **how)
    scoring = scoring_run(wishes, choice, setup)
    return kernel_kmeans(fed, scoring, wishes.n_clusters, seeding=choice.seeding, **how)


def _rows_instead(
    fed: Federation, wishes: Wishes, choice: Choice, found: KernelKMeansResult
) -> Choice | None:
    """Rows as landmarks where a single party's centroids, unasked, are too few: nothing leaves."""
    unasked = wishes.landmarks == "auto" and wishes.n_landmarks is None
    if not (unasked and choice.landmarks == "centroids" and len(fed.parties) == 1):
        return None
    if found.coverage is None or found.coverage.shortfall.is_within(wishes.accuracy):
        return None
    assert found.model is not None
    q = int(found.model.landmarks.shape[0])
    why = f"the landmarks are rows, since {q} centroids miss too much"
    more = min(2 * q, MOST_LANDMARKS)
    rows = choice._replace(landmarks="diskpca", n_landmarks=more, why=f"{choice.why}; {why}")
    try:
        return allowed(fed, [rows])
    except PolicyRefusal:
        return None


def _concluded(
    found: KernelKMeansResult,
    wishes: Wishes,
    choice: Choice,
    setup: LandmarkSetup,
    kernel: Kernel,
    n_columns: int,
    unweighted: bool,
) -> Outcome:
    model: Any = found.model
    slack = None
    if model is None:
        model = FeatureMap(kernel, n_columns, setup.embedding_dim, setup.seed)
    elif unweighted:
        # ‖μ − Pμ‖² of a cluster's mean is at most the mean of its rows' ‖φ(x) − Pφ(x)‖².
        slack = max(min(found.outside, found.inertia), 0.0)
    return Outcome(
        model,
        found.kmeans.centres,
        found.kmeans.centres.shape[1],
        found.spectrum,
        found.inertia,
        slack,
        max(found.kmeans.n_iter, 1),
        kernel.gamma,
        str(choice),
        n_columns,
        found.stop_reason,
        found.baseline_floats,
        (*found.kmeans.notes, *_missing(found, wishes, choice)),
        _facts(found, wishes, slack),
        means=found.means,
        missing=None if found.coverage is None else Missing.of(found.coverage.shortfall),
    )


def _missing(found: KernelKMeansResult, wishes: Wishes, choice: Choice) -> tuple[str, ...]:
    """The caveat that the landmarks miss too much, if they do."""
    if found.model is None or found.coverage is None:
        return ()
    facts = (wishes.accuracy, int(found.model.landmarks.shape[0]), choice.landmarks, True)
    return caveats_of(found.coverage, *facts)


def _facts(found: KernelKMeansResult, wishes: Wishes, slack: float | None) -> tuple[str, ...]:
    if found.model is None:
        return (f"inertia {found.inertia:.4g} is that of the random features",)
    bound = "an upper bound" if slack is None else f"at most {slack:.3g} too large"
    claim = f"inertia {found.inertia:.4g} is {bound}"
    rank, asked = len(found.model.eigenvalues), wishes.n_eigenvectors
    if rank >= asked:
        return (claim,)
    return (claim, f"{asked} eigenvectors were asked for, the landmarks determine {rank}")


def fit_exact(fed: Federation, wishes: Wishes, find_kernel: FindKernel, weights: str) -> Outcome:
    """Lloyd's iteration on the whole kernel matrix, where all rows are in one place."""
    sites = fed.local_sites()
    if len(fed.parties) > 1 or not sites:
        raise InputError(
            f"method is 'exact', which needs all rows in one place, and {len(fed.parties)} parties "
            f"hold them; pass one array, or method='landmarks' with as many landmarks as may leave"
        )
    site = next(iter(sites.values()))
    X = site.data
    if X.shape[0] > EXACT_MOST:
        raise InputError(
            f"X has {X.shape[0]:,} rows; at most {EXACT_MOST:,} are expected with method 'exact', "
            f"whose kernel matrix has their square: pass method='landmarks'"
        )
    kernel = find_kernel(fed, wishes.seed)
    K = np.asarray(kernel.matrix(X), dtype=np.float64)
    w = np.ones(len(K)) if weights == NONE else site.store[weights]["weights"]
    if len(w) != len(K):
        raise InputError(f"X has {len(K)} rows and sample_weight {len(w)}; one a row is expected")
    rng = np.random.default_rng(wishes.seed)
    found = kernel_lloyd(K, w, wishes.n_clusters, wishes.n_init, wishes.max_iter, rng)
    model, centres = model_of_means(kernel, X, K, found)
    site.store[LABELS] = {"labels": found.labels}
    few = f"{wishes.n_clusters} clusters were asked for, but only {len(centres)} rows differ"
    return Outcome(
        model,
        centres,
        wishes.n_eigenvectors,
        _spectrum(K, wishes.n_eigenvectors),
        found.inertia,
        0.0,
        found.n_iter,
        kernel.gamma,
        "exact: Lloyd's iteration on the whole kernel matrix, as asked for",
        X.shape[1],
        "the best of the restarts is taken",
        int(X.nnz if is_sparse(X) else X.size),
        (few,) if len(centres) < wishes.n_clusters else (),
        missing=Missing.of(nothing_missing(wishes.n_eigenvectors)),
    )


def _spectrum(K: Doubles, n_eigenvectors: int) -> Doubles:
    values, _ = top_eigenpairs(K, min(len(K), n_eigenvectors + _MORE))
    return clip_spectrum(values, len(K))
