"""`KernelKMeans`, the front door: kernel k-means of one array or of rows that parties hold."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any, Self

import numpy as np

from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import checked_gamma, one_of, whole_number
from eigenmesh.estimators.fed_kernel_kmeans import FedKernelKMeans
from eigenmesh.estimators.kernel_gamma import kernel_gamma, psd_kernel
from eigenmesh.estimators.kernel_kmeans_fits import Outcome, fit_at_parties, fit_exact
from eigenmesh.estimators.kernel_kmeans_forecast import forecast
from eigenmesh.estimators.kernel_kmeans_methods import METHODS, Wishes
from eigenmesh.estimators.party_labels import PartyLabels
from eigenmesh.estimators.party_values import at_sites
from eigenmesh.estimators.run_report import RunReport
from eigenmesh.federation.federation import Federation
from eigenmesh.federation.ledger import Ledger
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.protocols.diskpca import LANDMARKS
from eigenmesh.protocols.distributed_kmeans import METHODS as KMEANS
from eigenmesh.protocols.kernel_kmeans import LABELS


class KernelKMeans(PartyLabels):
    """Kernel k-means of an array of any length, or of rows that stay with their parties.

    The rows' scores in the leading components of the uncentred kernel, found from landmarks, are
    clustered where the rows are; a million rows stream. `method_` says what was done, and why.

    Parameters
    ----------
    n_clusters : clusters wanted; where fewer rows differ there are fewer, and a warning says so.
    kernel : "rbf", "laplacian", "cosine", "poly", "linear" or "arc-cosine".
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance".
    method : "auto" is "landmarks": components from landmarks, then distributed k-means. "exact":
        Lloyd's iteration on the whole kernel matrix, for one array. "fed": `FedKernelKMeans`, the
        paper's own method. And what it compares with: "nystrom" (uniform landmarks),
        "diskpca" (disKPCA, coreset), "random-features" (one shot, coreset).
    n_eigenvectors : components that are clustered; n_clusters if None.
    n_landmarks : landmarks in all; None for ten a cluster, 100 at least, and for every row of an
        array of 500 rows or fewer.
    landmarks : "auto", or one of DisKPCA's choices.
    kmeans : "lloyd", exact; "coreset", three rounds and a little worse; "auto" is "lloyd" where
        rounds cost little.
    n_features : of "random-features" and "fed".
    n_init : restarts of k-means, the best of which counts.
    max_iter, tol : Lloyd ends after so many iterations, or when the squared move of the centres is
        at most `tol` of a row's mean squared distance to its centre.
    random_state : seed of all draws.

    Attributes
    ----------
    labels_ : the rows' clusters; for split data a list, with None for parties whose labels are not
        in this process: they are at the parties' sites.
    inertia_ : Σ w ‖φ(x) − μ‖² in feature space, μ the mean of the row's cluster. An upper bound,
        since means are known inside the landmarks' span: at most `inertia_slack_` too large, which
        is 0 where every row is a landmark. With "random-features" and "fed", that of the features.
    inertia_slack_ : see there; None where it is not known (weights, "random-features", "fed").
    cluster_centers_ : in the coordinates that `transform` gives.
    eigenvalues_ : of the uncentred kernel matrix, the n_eigenvectors largest; none with
        "random-features".
    spectrum_ : all of them that the landmarks determine (with "exact" a few more than clusters);
        `reports.cluster_plots.eigengap_figure` shows where they fall.
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
    """

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
        n_init: int = 4,
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: Any = None,
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
        self.random_state = random_state

    # Fitting.

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to an array, a Partitioned, a Federation or a Dask collection.

        `sample_weight` is an array for an array, and a list with one a party for split rows. It
        counts in the clusters, not in the choice of landmarks and components.
        """
        wishes = self._wishes()
        if wishes.method == "fed":
            return self._fit_fed(X, sample_weight)
        with self._opened(self._source(X)) as fed, fed.recording() as recording:
            self._require_rows(fed)
            with at_sites(fed, sample_weight, "sample_weight") as weights:
                fit = fit_exact if wishes.method == "exact" else fit_at_parties
                outcome = fit(fed, wishes, self._kernel, weights)
            self._labels = self._own_labels(fed, LABELS, X)
        self._adopt(outcome)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=outcome.stop_reason,
            baseline_floats=outcome.baseline_floats,
            notes=(*outcome.caveats, *outcome.facts),
        )
        for caveat in outcome.caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    def _wishes(self) -> Wishes:
        k = whole_number(self.n_clusters, "n_clusters")
        s = k if self.n_eigenvectors is None else self.n_eigenvectors
        q = self.n_landmarks
        tol: Any = self.tol
        if not (isinstance(tol, Real) and 0 <= float(tol) < np.inf):
            raise InputError(f"tol is {self.tol!r}; a number from 0 is expected")
        psd_kernel(self.kernel, 1.0, self.degree, self.coef0)
        checked_gamma(self.gamma)
        return Wishes(
            one_of(self.method, "method", ("auto", *METHODS)),
            self.kernel,
            k,
            whole_number(s, "n_eigenvectors"),
            one_of(self.landmarks, "landmarks", ("auto", *LANDMARKS)),
            None if q is None else whole_number(q, "n_landmarks"),
            one_of(self.kmeans, "kmeans", ("auto", *KMEANS)),
            whole_number(self.n_features, "n_features"),
            whole_number(self.n_init, "n_init"),
            whole_number(self.max_iter, "max_iter"),
            float(self.tol),
            seed_of(self.random_state),
        )

    def _kernel(self, fed: Federation, seed: int) -> Kernel:
        """The kernel, with gamma found across the parties."""
        gamma = kernel_gamma(fed, self.kernel, self.gamma, seed)
        return psd_kernel(self.kernel, gamma, self.degree, self.coef0)

    def _adopt(self, outcome: Outcome) -> None:
        self.model_ = outcome.model
        self.cluster_centers_ = outcome.centres
        self.eigenvalues_ = outcome.spectrum[: outcome.n_eigenvectors]
        self.spectrum_ = outcome.spectrum
        self.inertia_ = outcome.inertia
        self.inertia_slack_ = outcome.slack
        self.n_iter_ = outcome.n_iter
        self.gamma_ = outcome.gamma
        self.method_ = outcome.method
        self.n_features_in_ = outcome.n_columns
        self._last_transform: list[RunReport] = []

    def _fit_fed(self, X: Any, sample_weight: Any) -> Self:
        """The federated method, by its own estimator."""
        if sample_weight is not None:
            raise InputError(
                "sample_weight is given, and method 'fed' has none; None is expected, or "
                "method='landmarks'"
            )
        own = self.get_params(deep=False)
        names = FedKernelKMeans._get_param_names()
        fed = FedKernelKMeans(**{name: own[name] for name in names if name in own}).fit(X)
        if hasattr(fed, "feature_names_in_"):
            self.feature_names_in_ = fed.feature_names_in_
        words = "fed: random features improved in rounds, then distributed k-means"
        self._adopt(
            Outcome(
                fed.model_,
                fed.cluster_centers_,
                len(fed.eigenvalues_),
                fed.eigenvalues_,
                fed.inertia_,
                None,
                fed.n_iter_,
                fed.gamma_,
                words,
                fed.n_features_in_,
                fed.report_.stop_reason,
                fed.report_.baseline_floats,
            )
        )
        self._labels, self.report_ = fed.labels_, fed.report_
        return self

    @property
    def _n_features_out(self) -> int:
        return int(self.cluster_centers_.shape[1])

    # Before anything runs.

    def _forecast(self, names: Sequence[str], shapes: Sequence[tuple[int, int]]) -> Ledger:
        """The ledger that a fit in process to dense rows will have."""
        wishes = self._wishes()
        if wishes.method == "fed":
            own = self.get_params(deep=False)
            params = {n: own[n] for n in FedKernelKMeans._get_param_names() if n in own}
            return FedKernelKMeans(**params)._forecast(names, shapes)
        return forecast(wishes, self.gamma, names, shapes)
