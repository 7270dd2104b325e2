"""The ways of `KernelKMeans`: at the parties, or on the whole kernel matrix of one array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.estimators.accuracy import MissingShares, caveats_of, lost_in_rounding, rows_are_kept
from eigenmesh.estimators.party_values import NONE
from eigenmesh.estimators.small_parties import (
    SURVEY,
    LeftOut,
    leave_out,
    left_out_of,
    numbered,
    sizes_in,
    some_or_none,
)
from eigenmesh.kernel_kmeans.choose_clustering import (
    ClusteringChoice,
    ClusteringParameters,
    Holders,
    Shapes,
    candidates_for,
    first_allowed,
    leaves_out_small,
)
from eigenmesh.kernel_kmeans.protocol import (
    LABELS,
    KernelKMeansResult,
    feature_kmeans,
    kernel_kmeans,
    moment_kmeans,
)
from eigenmesh.kernel_kmeans.row_stages import (
    how_to_cluster,
    moment_run,
    scoring_run,
    setup_of,
)
from eigenmesh.kernel_pca.one_array import MOST_LANDMARKS
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup
from eigenmesh.numerics.arrays import Doubles, Floats, Rows, blocks, is_sparse
from eigenmesh.numerics.eigen import clip_spectrum, top_eigenpairs
from eigenmesh.numerics.embeddings import Embedding, embedding
from eigenmesh.numerics.kernel_lloyd import KernelClusters, kernel_lloyd, mean_basis
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.moment_model import MomentModel
from eigenmesh.numerics.shortfall import nothing_missing
from eigenmesh.runtime.disk_store import Origin
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import masks_are_planned
from eigenmesh.stages.more_centres import few_groups, shortfall

EXACT_MOST = 20_000  # rows; their kernel matrix takes 3 GB
_MORE = 10  # eigenvalues of the whole kernel matrix beyond those asked for, to see them fall

FindKernel = Callable[[Federation, int], Kernel]


class ClusterFit(NamedTuple):
    """What a fit gave."""

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
    missing: MissingShares | None = None  # of the eigenvalues asked for; None if not measured
    labels: Any = None  # of samples whose columns are split; rows keep theirs at their sites
    left_out: LeftOut | None = None  # who takes no part
    history: Any = None  # what clusters cost, round by round


def fit_at_parties(
    fed: Federation, params: ClusteringParameters, find_kernel: FindKernel, weights: str
) -> ClusterFit:
    """Landmarks or random features, then distributed k-means."""
    sizes, holders, left_out = parties_taking_part(fed, params)
    choice = first_allowed(fed, candidates_for(params, holders))
    sizes = _as_prepared(fed, sizes)
    kernel = find_kernel(fed, params.seed)
    setup = setup_of(params, kernel, weights)
    if choice.landmarks == "moments":
        how, run = how_to_cluster(params, choice), moment_run(params, choice, kernel, weights)
        result = moment_kmeans(fed, run, params.n_clusters, seed=params.seed, **how)
    else:
        result = _run(fed, params, choice, setup, sizes)
    rows = _rows_instead(fed, params, choice, result)
    if rows is not None:
        choice, result = rows, _run(fed, params, rows, setup, sizes)
    facts = (sizes[0].n_columns, weights == NONE, rows_are_kept(fed))
    fit = _concluded(result, params, choice, setup, kernel, *facts)
    if left_out is not None and result.model is not None and weights == NONE:
        outside = result.outside if isinstance(result.model, LandmarkModel) else None
        eigenvalues = result.model.eigenvalues[: params.n_clusters]
        left_out = left_out.beside(eigenvalues, params.kernel, False, outside)
    return fit._replace(left_out=left_out)


def _as_prepared(fed: Federation, sizes: Replies) -> Replies:
    """The sizes of the rows that are clustered, which preparing gives other columns."""
    preparation = fed.prepare_now()
    if preparation is None:
        return sizes
    messages = tuple(replace(own, n_columns=preparation.width) for own in sizes)
    return Replies(messages, sizes.parties)


def parties_taking_part(
    fed: Federation, params: ClusteringParameters
) -> tuple[Replies, Holders, LeftOut | None]:
    """The sizes of those who take part, and who does not: small parties are left out."""
    replies: Replies = SURVEY.run(fed).value
    sizes, left_out = sizes_in(replies), None
    secure = fed.secure or masks_are_planned()
    alone, apart = len(fed.members) == 1, fed.between_organisations
    holders = Holders([own.shape for own in sizes.values()], alone, secure, apart)
    if leaves_out_small(params, holders):
        left_out = leave_out(fed, sizes)
        holders = holders._replace(shapes=[sizes[name].shape for name in fed.parties])
    return replies, holders, left_out


def those_in(
    params: ClusteringParameters, shapes: Shapes, alone: bool
) -> tuple[Holders, LeftOut | None]:
    """The same of data that nobody opens: of parties without names, under the usual policy."""
    holders = Holders(shapes, alone, masks_are_planned())
    if not leaves_out_small(params, holders):
        return holders, None
    left_out = left_out_of(numbered(shapes))
    shapes_in = [shapes[i] for i in left_out.numbers_in]
    return holders._replace(shapes=shapes_in), some_or_none(left_out)


def _run(
    fed: Federation,
    params: ClusteringParameters,
    choice: ClusteringChoice,
    setup: LandmarkSetup,
    sizes: Replies,
) -> KernelKMeansResult:
    how = how_to_cluster(params, choice)
    if choice.landmarks == "none":
        return feature_kmeans(fed, setup, sizes, params.n_clusters, **how)
    scoring = scoring_run(params, choice, setup, sizes)
    return kernel_kmeans(fed, scoring, params.n_clusters, seeding=choice.seeding, **how)


def _rows_instead(
    fed: Federation,
    params: ClusteringParameters,
    choice: ClusteringChoice,
    result: KernelKMeansResult,
) -> ClusteringChoice | None:
    """Rows as landmarks where a single party's centroids, unasked, are too few: nothing leaves."""
    unasked = params.landmarks == "auto" and params.n_landmarks is None
    if not (unasked and choice.landmarks == "centroids" and len(fed.members) == 1):
        return None
    if result.coverage is None or result.coverage.shortfall.is_within(params.accuracy):
        return None
    assert result.model is not None
    q = int(result.model.landmarks.shape[0])
    why = f"the landmarks are rows, since {q} centroids miss too much"
    more = min(2 * q, MOST_LANDMARKS)
    rows = choice._replace(landmarks="diskpca", n_landmarks=more, why=f"{choice.why}; {why}")
    try:
        return first_allowed(fed, [rows])
    except PolicyRefusal:
        return None


def _concluded(
    result: KernelKMeansResult,
    params: ClusteringParameters,
    choice: ClusteringChoice,
    setup: LandmarkSetup,
    kernel: Kernel,
    n_columns: int,
    unweighted: bool,
    rows_kept: bool,
) -> ClusterFit:
    model: Any = result.model
    slack = None
    if model is None:
        model = FeatureMap(kernel, n_columns, setup.embedding_dim, setup.seed)
    elif choice.kmeans == "groups":
        slack = None  # the clusters' means are not known
    elif isinstance(model, MomentModel):
        slack = 0.0
    elif unweighted:
        # ‖μ − Pμ‖² of a cluster's mean is at most the mean of its rows' ‖φ(x) − Pφ(x)‖².
        slack = max(min(result.outside, result.inertia), 0.0)
    few: tuple[str, ...] = ()
    if choice.kmeans == "groups":
        few = few_groups(params.n_clusters, int(result.model.n_rows))
    return ClusterFit(
        model=model,
        centres=result.kmeans.centres,
        n_eigenvectors=result.kmeans.centres.shape[1],
        spectrum=result.spectrum,
        inertia=result.inertia,
        slack=slack,
        n_iter=max(result.kmeans.n_iter, 1),
        gamma=kernel.gamma,
        method=str(choice),
        n_columns=n_columns,
        stop_reason=result.stop_reason,
        baseline_floats=result.baseline_floats,
        caveats=(*result.kmeans.notes, *_missing(result, params, choice, rows_kept), *few),
        facts=_facts(result, params, _worth(choice, slack, unweighted)),
        means=result.means,
        missing=_missing_shares(result),
        history=result.kmeans.history,
    )


def _missing_shares(result: KernelKMeansResult) -> MissingShares | None:
    if isinstance(result.model, MomentModel):
        return MissingShares.of(nothing_missing(len(result.model.eigenvalues)))
    return None if result.coverage is None else MissingShares.of(result.coverage.shortfall)


def _missing(
    result: KernelKMeansResult,
    params: ClusteringParameters,
    choice: ClusteringChoice,
    rows_kept: bool,
) -> tuple[str, ...]:
    """The caveat that the landmarks miss too much, if they do."""
    if result.model is None or result.coverage is None:
        return ()
    facts = (
        params.accuracy,
        int(result.model.landmarks.shape[0]),
        choice.landmarks,
        True,
        rows_kept,
    )
    rounded = lost_in_rounding(result.model, len(result.coverage.shortfall.values))
    return (*caveats_of(result.coverage, *facts), *rounded)


def _worth(choice: ClusteringChoice, slack: float | None, unweighted: bool) -> str:
    """What the inertia is."""
    if choice.kmeans == "groups":
        whose = "the centres" if unweighted else "the scores and the centres"
        return f"that of {whose}; unmasked groups of rows go whole to one, above that of the labels"
    return "an upper bound" if slack is None else f"at most {slack:.3g} too large"


def _facts(result: KernelKMeansResult, params: ClusteringParameters, worth: str) -> tuple[str, ...]:
    if result.model is None:
        return (f"inertia {result.inertia:.4g} is that of the random features",)
    claim = f"inertia {result.inertia:.4g} is {worth}"
    rank, s = len(result.model.eigenvalues), params.n_eigenvectors
    if rank >= s:
        return (claim,)
    source = "rows" if isinstance(result.model, MomentModel) else "landmarks"
    return (claim, f"{s} eigenvectors were asked for, the {source} determine {rank}")


def fit_exact(
    fed: Federation, params: ClusteringParameters, find_kernel: FindKernel, weights: str
) -> ClusterFit:
    """Lloyd's iteration on the whole kernel matrix, where all rows are in one place."""
    sites = fed.local_sites()
    if len(fed.members) > 1 or not sites:
        raise InputError(
            f"method is 'exact', which needs all rows in one place, and {len(fed.members)} parties "
            f"hold them; pass one array, or method='landmarks' with as many landmarks as may leave"
        )
    site, preparation = next(iter(sites.values())), fed.prepare_now()
    X = site.data if preparation is None else preparation.apply(site.data)
    if X.shape[0] > EXACT_MOST:
        raise InputError(
            f"X has {X.shape[0]:,} rows; at most {EXACT_MOST:,} are expected with method 'exact', "
            f"whose kernel matrix has their square: pass method='landmarks'"
        )
    kernel = find_kernel(fed, params.seed)
    # In float64: what float32 products lose may be more than what tells clusters apart.
    K = np.asarray(kernel.matrix(X.astype(np.float64, copy=False)), dtype=np.float64)
    w = np.ones(len(K)) if weights == NONE else site.store[weights]["weights"]
    if len(w) != len(K):
        raise InputError(f"X has {len(K)} rows and sample_weight {len(w)}; one a row is expected")
    rng = np.random.default_rng(params.seed)
    clusters = kernel_lloyd(K, w, params.n_clusters, params.n_init, params.max_iter, rng)
    model, centres = model_of_means(kernel, X, K, clusters)
    site.store[LABELS] = {"labels": clusters.labels}
    site.left_by_studies[LABELS] = Origin()
    sizes = (params.n_clusters, len(centres), len(centres))
    return ClusterFit(
        model=model,
        centres=centres,
        n_eigenvectors=params.n_eigenvectors,
        spectrum=_spectrum(K, params.n_eigenvectors),
        inertia=clusters.inertia,
        slack=0.0,
        n_iter=clusters.n_iter,
        gamma=kernel.gamma,
        method="exact: Lloyd's iteration on the whole kernel matrix, as asked for",
        n_columns=X.shape[1],
        stop_reason="the best of the restarts is taken",
        baseline_floats=int(X.nnz if is_sparse(X) else X.size),
        caveats=shortfall(*sizes),
        missing=MissingShares.of(nothing_missing(params.n_eigenvectors)),
    )


def _spectrum(K: Doubles, n_eigenvectors: int) -> Doubles:
    values, _ = top_eigenpairs(K, min(len(K), n_eigenvectors + _MORE))
    return clip_spectrum(values, len(K))


# Rows as points in which clusters live.


@record
@dataclass(frozen=True)
class FeatureMap:
    """Random features of a kernel, by their seed."""

    kernel: Kernel
    n_columns: int
    width: int
    seed: int

    @cached_property
    def _embed(self) -> Embedding:
        return embedding(self.kernel, self.n_columns, self.width, self.seed)

    def transform(self, X: Rows) -> Doubles:
        """The features of any rows."""
        return np.vstack([self._embed(X[rows]) for rows in blocks(X.shape[0])])


def model_of_means(
    kernel: Kernel, X: Rows, K: Floats, clusters: KernelClusters
) -> tuple[LandmarkModel, Doubles]:
    """Coordinates in the span of the clusters' means, and the means in them."""
    coefficients, centres = mean_basis(K, clusters.members)
    scores = K @ coefficients
    spread = np.einsum("ij,ij->j", scores, scores)
    total, offset = float(np.trace(K)), np.zeros(coefficients.shape[1])
    return LandmarkModel(kernel, X, coefficients, offset, spread, 0.0, total, len(K)), centres
