"""`KernelKMeans`, the front door: kernel k-means of one array, or of what parties hold."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, Self, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigenmesh.connect import chunk_shapes, chunk_split, is_dask_collection
from eigenmesh.data import Partitioned
from eigenmesh.data.spark_rows import SparkRows, is_spark
from eigenmesh.errors import EigenmeshWarning, InputError, PolicyRefusal
from eigenmesh.estimators.accuracy import SHORTFALL, adopt_missing
from eigenmesh.estimators.base import FrontDoor, require_no_iterator, seed_of
from eigenmesh.estimators.checks import (
    PRIVATE,
    checked_accuracy,
    checked_gamma,
    one_of,
    optional_count,
    require_private,
    restarts,
    whole_number,
)
from eigenmesh.estimators.kernel_gamma import kernel_gamma, psd_kernel
from eigenmesh.estimators.naming import as_array
from eigenmesh.estimators.party_labels import PartyLabels, whole_labels
from eigenmesh.estimators.party_values import (
    at_sites,
    in_order_of_ids,
    is_plain,
    own_rows,
    plain_shapes,
    values_by_party,
    weight_array,
)
from eigenmesh.estimators.precision import landmark_bits, sent_in
from eigenmesh.estimators.preparation import Preparation
from eigenmesh.estimators.report import LESS_ON_A_GRAPH, RunReport, less_of_columns
from eigenmesh.estimators.small_parties import (
    CHOICES,
    LEAVE_OUT,
    REVEAL,
    adopt_left_out,
    some_or_none,
)
from eigenmesh.kernel_kmeans.choose_clustering import (
    ClusteringParameters,
    candidates_for,
    component_methods,
    first_allowed,
    require_row_method,
    row_methods,
)
from eigenmesh.kernel_kmeans.fit_components import (
    PlannedComponents,
    as_policies_want,
    fit_columns,
    fit_graph,
    require_suits,
)
from eigenmesh.kernel_kmeans.fit_rows import (
    ClusterFit,
    fit_at_parties,
    fit_exact,
    parties_taking_part,
    those_in,
)
from eigenmesh.kernel_kmeans.protocol import LABELS
from eigenmesh.kernel_kmeans.row_stages import PlannedClustering, PlannedExact
from eigenmesh.kernel_kmeans.spark_lloyd import fit_spark_clusters
from eigenmesh.kernel_pca.estimator import KernelPCA
from eigenmesh.methods.registry import Method, method_called, methods, names_of
from eigenmesh.numerics.arrays import Floats, Samples, as_rows, dense
from eigenmesh.numerics.cluster_means import squared_distances
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.kmeans import nearest
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.moment_model import MomentModel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.topology import Topology
from eigenmesh.stages.distributed_kmeans import METHODS as KMEANS
from eigenmesh.stages.distributed_kmeans import RESTARTS


class KernelKMeans(FrontDoor, PartyLabels):
    """Kernel k-means of an array of any length, or of rows or columns that stay with their parties.

    The rows' scores in the leading components of the uncentred kernel, found from landmarks, are
    clustered where the rows are; a million rows stream. Components of columns, and of rows on a
    graph, are those of `KernelPCA`. `method_` says what was done, and why.

    Parameters
    ----------
    n_clusters : clusters wanted; where fewer rows differ, or groups of rows where sums are over
        these, there are fewer, and a warning says how many.
    kernel : "rbf", "laplacian", "cosine", "poly", "linear" or "arc-cosine".
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance".
    degree, coef0 : of polynomial kernels; `degree` also of "arc-cosine".
    method : "auto" is "landmarks": components from landmarks, then distributed k-means. "exact":
        Lloyd's iteration on the whole kernel matrix, for one array, from k-means++ seeds and from
        spectral clusters, then moves of single rows. "fed": `FedKernelKMeans`, the
        paper's own method. And what it compares with: "nystrom" (uniform landmarks),
        "diskpca" (disKPCA, coreset), "random-features" (one shot, coreset). For columns "vfed-pca",
        "vfed-akpca" or "one-shot", for rows on a graph "gossip" or "admm", as in `KernelPCA`.
    n_eigenvectors : components that are clustered. None: n_clusters for columns, twice as many for
        rows over parties or on a graph, where clusters are then split and joined while that pays,
        and for one array as many as pay.
    n_landmarks : landmarks in all; None for ten a cluster, 100 at least, more if `accuracy` takes
        more, and for every row of an array of 500 rows or fewer.
    landmarks : "auto", or for rows with a coordinator one of DisKPCA's choices.
    kmeans : "lloyd", exact; "means", a few rounds and a little worse, from means of at least five
        rows' scores; "coreset", from scores of single rows; "groups", Lloyd's iteration on sums
        over groups of at least as many rows as the parties' policies ask for (5); "auto" is "lloyd"
        where rounds cost little, else "means", or "groups" where a policy minds sums over fewer,
        or organisations hold the rows and sums are not masked.
    n_features : of "random-features" and "fed".
    coreset_size : draws of kmeans="coreset"; None for 50 a cluster, at least 200.
    precision : "exact", or in how many bits what leaves may travel where it need not be exact: 32,
        16, 8, 4, or "auto". Over rows landmarks, as in `DisKPCA`; over columns the eigenvectors of
        method="one-shot".
    embedding_dim : dimensions in which the leverage of method="diskpca" is measured; twice
        n_eigenvectors if None.
    n_init : restarts of k-means, the best of which counts; "auto" is 4.
    max_iter, tol : Lloyd ends after so many iterations, or when the squared move of the centres is
        at most `tol` of a row's mean squared distance to its centre (of columns: as in
        scikit-learn's KMeans).
    topology : of parties without a coordinator; None for one.
    averaging : on a graph "tree" or "gossip", as in `GossipKPCA`.
    random_state : seed of all draws.
    small_parties : "leave-out" or "reveal", as in `KernelPCA`; rows that are left out get labels by
        the others' model, at their own site.
    keep_history : for research, on a graph: after every round each node tells what its clusters
        cost, counted as sent. With a coordinator that is known, and kept, as it is.
    preparation : `em.Preparation`, of rows, before all else: standardised, gaps filled, logarithms.
    epsilon, delta : differential privacy of each row: `PrivateKMeans`, for rows and kernels whose
        features have norm 1, with a `gamma` that is a number. None for none.
    accuracy : the largest share that landmarks may miss of the eigenvalues asked for (the
        n_clusters largest, if n_eigenvectors is None), those of the uncentred kernel matrix. It is
        measured; unless `n_landmarks` is given they double while it is more, up to 2000 or to the
        centroids that the parties can give. A warning says if more is missing in the end.

    Attributes
    ----------
    labels_ : the rows' clusters; for split data a list; labels that are at a site and not in this
        process say so in their place. For columns one array, of all samples.
    inertia_ : Σ w ‖φ(x) − μ‖² in feature space, μ the mean of the row's cluster. An upper bound,
        since means are known inside the landmarks' span: at most `inertia_slack_` too large, which
        is 0 where every row is a landmark. With "random-features" and "fed", that of the features.
        Of columns, and on a graph, `report_.notes` says what it is. With "groups" and without masks
        μ is the centre, and groups of rows go whole to one: more than `-score`, and twice as much
        where clusters lie far apart and parties are small.
    inertia_slack_ : see there; None where it is not known (weights, "groups", "random-features",
        "fed").
    cluster_centers_ : in the coordinates that `transform` gives.
    eigenvalues_ : of the uncentred kernel matrix, the n_eigenvectors largest; none with
        "random-features".
    spectrum_ : all of them that the landmarks determine (with "exact" a few more than clusters);
        `em.plot.eigengap` shows where they fall.
    shortfalls_ : the share of each of these eigenvalues that is missing, estimated, (k,), 0 where
        nothing is; `shortfall_` is the largest, `shortfall_error_` its standard error. None with
        "random-features" and "fed", which do not measure it.
    estimator_ : of columns and on a graph, the fitted `KernelPCA`; else None.
    history_ : mean squared distance of a row's scores to their centre before every round's move,
        of the start that was kept and then of what bettered it, (rounds,); on a graph, with
        `keep_history`, every node's, (rounds, nodes). None where no rounds are made at parties.
    n_iter_, gamma_, method_, report_ : as everywhere.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import make_circles
    >>> from sklearn.metrics import adjusted_rand_score
    >>> X, y = make_circles(600, factor=0.3, noise=0.05, random_state=0)
    >>> rings = em.KernelKMeans(2, gamma=5.0, random_state=0).fit(X)
    >>> adjusted_rand_score(y, rings.labels_)
    1.0
    >>> parts = em.split(X, n_parties=3, random_state=0)
    >>> [len(labels) for labels in em.KernelKMeans(2, gamma=5.0, random_state=0).fit_predict(parts)]
    [200, 200, 200]
    >>> nodes = em.KernelKMeans(2, gamma=5.0, topology="ring", random_state=0).fit(parts)
    >>> [adjusted_rand_score(y[rows], own) for rows, own in zip(parts.order, nodes.labels_)]
    [1.0, 1.0, 1.0]
    """

    estimator_: Any  # a `KernelPCA` that scores samples, or None where `model_` does

    method_: str

    # Fewer landmarks or restarts may take more steps until clusters rest, and send more.
    _cheaper = "lower n_eigenvectors"
    _fitted = (
        "cluster_centers_",
        "eigenvalues_",
        "spectrum_",
        "inertia_",
        "inertia_slack_",
        "n_iter_",
        "gamma_",
        "method_",
        "model_",
        "estimator_",
    )

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        kernel: str = "rbf",
        gamma: float | str | None = "mean-distance",
        degree: int = 3,
        coef0: float = 1.0,
        method: str = "auto",
        n_eigenvectors: int | None = None,
        n_landmarks: int | None = None,
        landmarks: str = "auto",
        kmeans: str = "auto",
        n_features: int = 100,
        n_init: int | str = RESTARTS,
        max_iter: int = 300,
        tol: float = 1e-4,
        topology: Topology | None = None,
        averaging: str | tuple[str, float] = "auto",
        random_state: Any = None,
        accuracy: float = 0.01,
        small_parties: str = LEAVE_OUT,
        preparation: Preparation | None = None,
        epsilon: float | None = None,
        delta: float = 1e-6,
        coreset_size: int | None = None,
        embedding_dim: int | None = None,
        keep_history: bool = False,
        precision: int | str = "exact",
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.method = method
        self.n_eigenvectors = n_eigenvectors
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.kmeans = kmeans
        self.n_features = n_features
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.topology = topology
        self.averaging = averaging
        self.random_state = random_state
        self.accuracy = accuracy
        self.small_parties = small_parties
        self.preparation = preparation
        self.epsilon = epsilon
        self.delta = delta
        self.coreset_size = coreset_size
        self.embedding_dim = embedding_dim
        self.keep_history = keep_history
        self.precision = precision

    # Fitting.

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to an array, a Partitioned, a Federation, a Dask collection or a Spark frame.

        Of a Spark frame, or an `em.SparkRows`, `predict` gives the labels, beside the ids.
        `sample_weight` is an array for an array and for columns, and for split rows a list with one
        a party, or a dictionary by party. It counts in the clusters, not in the choice of landmarks
        and components.
        """
        precision = "exact" if is_plain(X) else self.precision  # of one array nothing is sent
        params = self._checked_parameters()._replace(bits=landmark_bits(precision))
        if is_spark(X):
            self._require_none_for_spark(sample_weight)
            return self._fit_spark(params, SparkRows.of(X))
        split, on_graph = self._place(X)
        sample_weight = in_order_of_ids(X, sample_weight)
        if self._is_registered(params) and (split, on_graph) == ("rows", False):
            self._require_own_method()
            return self._fit_by_its_estimator(params.method, X, sample_weight)
        topology = None if is_plain(X) else self.topology
        with (
            self._opened(self._source(X), topology) as fed,
            fed.recording() as recording,
            self._preparing(fed),
        ):
            if is_plain(X) and self.preparation is None:
                fed.own_rows = own_rows(fed)
            outcome = self._fitted_to(fed, params, sample_weight)
            self._adopt(outcome)
            if outcome.labels is None:
                self._labels = self._own_labels(fed, LABELS, X)
            else:
                self._labels = whole_labels(outcome.labels)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=outcome.stop_reason,
            baseline_floats=outcome.baseline_floats,
            bounds=None if outcome.estimator is None else outcome.estimator.report_.bounds,
            notes=(*outcome.caveats, *outcome.facts),
            cheaper=self._less(fed.split, fed.graph is not None),
            **sent_in(precision, outcome.model, outcome.estimator),
        )
        if not is_plain(X) and outcome.estimator is None:
            self.method_ += f"; {self.report_.what_left}"
        if self.preparation is not None:
            self._note_preparation()
        for caveat in outcome.caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        if outcome.left_out is not None:
            outcome.left_out.warn()
        return self

    def _fit_spark(self, params: ClusteringParameters, source: SparkRows) -> Self:
        start = time.perf_counter()
        outcome, names = fit_spark_clusters(self, params, source)
        self._forget_names()
        self.feature_names_in_ = as_array(names)
        self._adopt(outcome)
        self.__dict__.pop("_labels", None)
        report = RunReport.of_rows_in_one_place(
            time.perf_counter() - start,
            outcome.baseline_floats,
            (*self._column_caveats, *outcome.facts),
        )
        self.report_ = replace(report, stop_reason=outcome.stop_reason)
        return self

    def _less(self, split: str, on_graph: bool) -> str:
        if split == "columns":
            return less_of_columns(self, "n_eigenvectors", on_graph)
        if on_graph:
            return f"{self._cheaper}, or {LESS_ON_A_GRAPH}"
        return self._cheaper

    def _place(self, X: Any) -> tuple[str, bool]:
        """What the parties hold, and whether they are on a graph."""
        if isinstance(X, Federation):
            self._require_topology(X, self.topology)
            return X.split, X.graph is not None
        if is_plain(X):
            return "rows", False
        split = X.split if isinstance(X, Partitioned) else chunk_split(X)
        return split, self.topology is not None

    def _fitted_to(
        self, fed: Federation, params: ClusteringParameters, sample_weight: Any
    ) -> ClusterFit:
        on_graph = fed.graph is not None
        if fed.split == "columns":
            require_suits(params, fed.split, on_graph)
            return fit_columns(fed, params, self._components, sample_weight)
        with at_sites(fed, sample_weight, "sample_weight") as weights:
            if on_graph:
                require_suits(params, fed.split, on_graph)
                left_out = self._components(1, None, self.small_parties)._leave_out_small(fed)
                fit_of_nodes = fit_graph(fed, params, self._components, weights)
                return fit_of_nodes._replace(left_out=left_out)
            require_row_method(params)
            fit = fit_exact if params.method == "exact" else fit_at_parties
            return fit(fed, params, self._kernel, weights)

    def _components(
        self, n_components: int, topology: Any = None, small_parties: str = REVEAL
    ) -> KernelPCA:
        """What finds the components of columns, or of rows on a graph, of those who are in."""
        own = self.get_params(deep=False)
        same = ["kernel", "gamma", "degree", "coef0", "method", "n_landmarks", "accuracy"]
        same += ["averaging", "precision"]
        kpca = KernelPCA(
            n_components,
            center=False,
            topology=self.topology if topology is None else topology,
            random_state=seed_of(self.random_state),
            small_parties=small_parties,
            **{name: own[name] for name in same},
        )
        if self.n_eigenvectors is None and n_components > self.n_clusters:
            kpca._n_wanted = self.n_clusters
        return kpca

    def _checked_parameters(self) -> ClusteringParameters:
        k = whole_number(self.n_clusters, "n_clusters")
        s = k if self.n_eigenvectors is None else self.n_eigenvectors
        q = self.n_landmarks
        tol: Any = self.tol
        if not (isinstance(tol, Real) and 0 <= float(tol) < np.inf):
            raise InputError(f"tol is {self.tol!r}; a number from 0 is expected")
        psd_kernel(self.kernel, 1.0, self.degree, self.coef0)
        checked_gamma(self.gamma)
        require_private(self, "KernelKMeans")
        method = PRIVATE if self.epsilon is not None else self.method
        return ClusteringParameters(
            method=one_of(method, "method", ("auto", *row_methods(), *component_methods())),
            kernel=self.kernel,
            n_clusters=k,
            n_eigenvectors=whole_number(s, "n_eigenvectors"),
            landmarks=one_of(
                self.landmarks, "landmarks", ("auto", *method_called("diskpca").landmarks)
            ),
            n_landmarks=None if q is None else whole_number(q, "n_landmarks"),
            kmeans=one_of(self.kmeans, "kmeans", ("auto", *KMEANS)),
            n_features=whole_number(self.n_features, "n_features"),
            n_init=restarts(self.n_init, RESTARTS),
            max_iter=whole_number(self.max_iter, "max_iter"),
            tol=float(self.tol),
            seed=seed_of(self.random_state),
            accuracy=checked_accuracy(self.accuracy),
            more_eigenvectors=self.n_eigenvectors is None,
            degree=float(self.degree),
            coef0=float(self.coef0),
            small_parties=one_of(self.small_parties, "small_parties", CHOICES),
            coreset_size=optional_count(self.coreset_size, "coreset_size"),
            embedding_dim=optional_count(self.embedding_dim, "embedding_dim"),
            keep_history=bool(self.keep_history),
            bits=landmark_bits(self.precision),
        )

    def _kernel(self, fed: Federation, seed: int) -> Kernel:
        """The kernel, with gamma found across the parties."""
        gamma = kernel_gamma(fed, self.kernel, self.gamma, seed)
        return psd_kernel(self.kernel, gamma, self.degree, self.coef0)

    def _adopt(self, outcome: ClusterFit) -> None:
        self.model_ = outcome.model
        self._means = outcome.means
        self.estimator_ = outcome.estimator
        self.cluster_centers_ = outcome.centres
        self.eigenvalues_ = outcome.spectrum[: outcome.n_eigenvectors]
        self.spectrum_ = outcome.spectrum
        self.inertia_ = outcome.inertia
        self.inertia_slack_ = outcome.slack
        self.n_iter_ = outcome.n_iter
        self.history_ = outcome.history
        self.gamma_ = outcome.gamma
        self.method_ = outcome.method
        self.n_features_in_ = outcome.n_columns
        adopt_missing(self, outcome.missing)
        inner = self.estimator_
        if inner is not None:
            self._keep_names_of(inner)
        self._last_transform: list[RunReport] = [] if inner is None else inner._last_transform

    def _is_registered(self, params: ClusteringParameters) -> bool:
        """Whether the method is one with an estimator of its own."""
        return params.method in names_of(methods(task="clusters"))

    def _behind_this(self, method: Method) -> Any:
        """The estimator of a registered method, with all of our parameters that it has."""
        own, names = self.get_params(deep=False), method.estimator._get_param_names()
        return method.estimator(**{name: own[name] for name in names if name in own})

    def _require_own_method(self) -> None:
        self.preparation_ = None
        if self.preparation is not None:
            raise InputError(
                f"preparation is given, and method {self.method!r} takes rows as they are; None is "
                f"expected, or method='landmarks'"
            )

    def _fit_by_its_estimator(self, name: str, X: Any, sample_weight: Any) -> Self:
        if sample_weight is not None:
            raise InputError(
                f"sample_weight is given, and method {name!r} has none; None is expected, "
                f"or method='landmarks'"
            )
        method = method_called(name, task="clusters")
        fed = self._behind_this(method).fit(X)
        self._keep_names_of(fed)
        self._adopt(
            ClusterFit(
                model=fed.model_,
                centres=fed.cluster_centers_,
                n_eigenvectors=len(fed.eigenvalues_),
                spectrum=fed.eigenvalues_,
                inertia=fed.inertia_,
                slack=None,
                n_iter=fed.n_iter_,
                gamma=fed.gamma_,
                method=_in_words(method),
                n_columns=fed.n_features_in_,
                stop_reason=fed.report_.stop_reason,
                baseline_floats=fed.report_.baseline_floats,
                history=getattr(fed, "history_", None),
            )
        )
        self._labels, self.report_ = fed.labels_, fed.report_
        return self

    # Using it.

    @property
    def _over_columns(self) -> bool:
        return self.estimator_ is not None and self.estimator_.over_columns

    @overload
    def transform(self, X: Samples) -> Floats: ...
    @overload
    def transform(self, X: Any) -> Any: ...
    def transform(self, X: Any) -> Any:
        """Scores of rows: an array for an array, a list of arrays for rows split over parties.

        Who has the model can score rows of its own, and nothing is sent. Of samples whose columns
        are split every party sends one message, and the scores are one array.
        """
        check_is_fitted(self)
        require_no_iterator(X)
        if is_spark(X):
            return self._mapped_in_spark(X)
        if self.estimator_ is None:
            return super().transform(X)
        return self.estimator_.transform(self._for_inner(X))

    def _scores(self, X: Any) -> Any:
        if self.estimator_ is None:
            return super()._scores(X)
        return self.estimator_._scores_of(self._as_prepared(X))

    def predict(self, X: Any) -> Any:
        """The nearest cluster: a list for rows split over parties, else an array.

        Of a Spark frame it is a Spark frame, with a column `cluster` and the ids beside it.
        """
        check_is_fitted(self)
        if is_spark(X):
            label = partial(_labels_of, centres=self.cluster_centers_)
            return self._mapped_in_spark(X, label, ["cluster"], "int32")
        return self._nearest(self.transform(X)) if self._over_columns else super().predict(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the inertia of new samples in feature space, as in scikit-learn: larger is better.

        Σ w ‖φ(x) − μ‖², μ being the mean that the fit knows of the cluster which `predict` gives;
        of the fitted rows this is `inertia_`, or on graphs and for columns a little more, since
        their means are known inside the components only. For rows split over parties
        `sample_weight` is a list with one array a party. With "random-features" and "fed" it is
        the inertia of the features, as `inertia_` is.
        """
        scores = self.transform(X)
        if isinstance(scores, list):
            rows: Sequence[Any] = self._rows_in_order(X).parts
            weights = self._party_weights(X, scores, sample_weight)
        else:
            n, scores = len(scores), [scores]
            rows = [X if isinstance(X, Federation) else self._whole(X)]
            weights = [np.ones(n) if sample_weight is None else weight_array(sample_weight, n)]
        each = zip(rows, scores, weights, strict=True)
        return -sum(float(w @ self._distances(self._as_prepared(A), Z)) for A, Z, w in each)

    def _party_weights(self, X: Partitioned, scores: list[Any], sample_weight: Any) -> list[Any]:
        sizes = {name: len(own) for name, own in zip(X.names, scores, strict=True)}
        if sample_weight is None:
            return [np.ones(n) for n in sizes.values()]
        return values_by_party(in_order_of_ids(X, sample_weight), sizes, "sample_weight")

    def _whole(self, X: Any) -> Any:
        """Samples with all their columns."""
        if isinstance(X, Partitioned):
            return np.hstack([dense(part) for part in X.matched().parts])
        return self._checked(X, reset=False)

    def _distances(self, X: Any, scores: Any) -> Any:
        """‖φ(x) − μ‖² of samples, as far as the model knows the means."""
        Z = np.asarray(scores, dtype=np.float64)
        labels, squared = nearest(Z, self.cluster_centers_)
        means = getattr(self, "_means", None)  # files of earlier versions have none
        if means is not None:
            return means.distances_in(self.model_, X, labels)
        spanned = isinstance(self.model_, LandmarkModel | MomentModel)
        if self.estimator_ is None and not spanned:
            return squared
        return squared_distances(self._norms(X, len(Z)), Z, self.cluster_centers_[labels])

    def _norms(self, X: Any, n: int) -> Any:
        """k(x, x)."""
        if not isinstance(X, Federation):
            kernel = Kernel(self.kernel, self.gamma_, self.degree, self.coef0)
            return np.asarray(kernel.diagonal(as_rows(X, np.float64)), dtype=np.float64)
        if self.kernel in ("rbf", "laplacian"):
            return np.ones(n)
        raise InputError(
            f"X is a Federation of columns, of which nobody knows k(x, x) for kernel "
            f"{self.kernel!r}; a Partitioned or an array is expected, of those who may see the "
            f"samples"
        )

    @property
    def node_models_(self) -> Any:
        """The components' model of every node, after a fit to rows on a graph."""
        inner = self.__dict__.get("estimator_")
        if inner is None:
            raise AttributeError("node_models_ are there after a fit on a graph of rows")
        return inner.node_models_

    @property
    def _n_features_out(self) -> int:
        return int(self.cluster_centers_.shape[1])

    # Files.

    def _saved_names(self) -> list[str]:
        own = ["_labels"] if self._over_columns else []  # labels of rows are their parties'
        names = (*own, "_means", *SHORTFALL)
        return [*super()._saved_names(), *(name for name in names if hasattr(self, name))]

    # Before anything runs.

    def _masks_unasked(self, source: Any) -> bool:
        return self._components(1)._masks_unasked(source)

    def _planned(self, source: Any) -> Any:
        """What forecasts a fit to `source`."""
        params, (split, on_graph) = self._checked_parameters(), self._place(source)
        if (split, on_graph) != ("rows", False):
            return self._planned_components(params, source, split, on_graph)
        require_row_method(params)
        if self._is_registered(params):
            method = method_called(params.method, task="clusters")
            estimator = self._behind_this(method)
            estimator._chosen_as = _in_words(method)
            return estimator
        if params.method == "exact":
            return PlannedExact(params, self.gamma)
        return self._planned_rows(params, source)

    def _planned_components(
        self, params: ClusteringParameters, source: Any, split: str, on_graph: bool
    ) -> PlannedComponents:
        require_suits(params, split, on_graph)
        if split == "rows" and isinstance(source, Federation | Partitioned):
            opened = self._opened(source, self.topology)
            # The plan says who refuses what.
            with opened as fed, fed.rehearsing(), suppress(PolicyRefusal):
                params = as_policies_want(fed, params)
        graph = source.graph if isinstance(source, Federation) else None
        chooser = self._components(1, graph, self.small_parties)._planned(source)

        def build(k: int) -> Any:
            return adopt_left_out(self._components(k, graph)._planned(source), chooser._left_out)

        before = chooser._preceding if split == "rows" else ()
        return PlannedComponents(params, split, build, chooser._left_out, before)

    def _planned_rows(self, params: ClusteringParameters, source: Any) -> PlannedClustering:
        if is_plain(source) or is_dask_collection(source):  # which nobody opens for a forecast
            shapes = plain_shapes(source) if is_plain(source) else chunk_shapes(source)
            holders, left_out = those_in(params, shapes, alone=is_plain(source))
            return PlannedClustering(
                params, self.gamma, candidates_for(params, holders)[0], left_out
            )
        with self._opened(source) as fed, fed.rehearsing():
            try:
                _, holders, left_out = parties_taking_part(fed, params)
            except PolicyRefusal:  # the plan says who refuses to tell its size
                if not isinstance(source, Partitioned):
                    raise
                holders, left_out = those_in(params, source.shapes, len(source.names) == 1)
            candidates = candidates_for(params, holders)
            choice = candidates[0]
            with suppress(PolicyRefusal):  # the plan of the first says who refuses what
                choice = first_allowed(fed, candidates)
        return PlannedClustering(params, self.gamma, choice, some_or_none(left_out))


def _labels_of(scores: Floats, centres: Floats) -> Any:
    labels, _ = nearest(np.asarray(scores, dtype=np.float64), centres)
    return whole_labels(labels)


def _in_words(method: Method) -> str:
    return f"{method.name}: {method.why}"
