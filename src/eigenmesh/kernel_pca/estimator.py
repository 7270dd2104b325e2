"""`KernelPCA`, the front door: scikit-learn's KernelPCA for rows of any number, split or not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Self

from eigenmesh.connect import chunk_split, is_dask_collection
from eigenmesh.data import Partitioned
from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.estimators.accuracy import checked_accuracy
from eigenmesh.estimators.checks import checked_gamma, components_asked, one_of, whole_number
from eigenmesh.estimators.columns import ColumnEstimator
from eigenmesh.estimators.party_values import weight_array
from eigenmesh.estimators.preparation_checks import share_of_missing
from eigenmesh.kernel_pca.choose_landmarks import LANDMARK_KERNELS, default_landmarks
from eigenmesh.kernel_pca.choose_method import METHODS, Needs, Way, choose_way, ways_for
from eigenmesh.kernel_pca.exact import ExactModel
from eigenmesh.kernel_pca.one_array import PooledKernelPCA
from eigenmesh.kernel_pca.variance_share import explaining
from eigenmesh.methods.diskpca.estimator import DisKPCA
from eigenmesh.methods.diskpca.landmark_draws import LANDMARKS
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.topology import Topology


class KernelPCA(PooledKernelPCA):
    """Kernel PCA with scikit-learn's interface, of an array of any length or of split data.

    A few rows are solved exactly, by scikit-learn's own solver; many stream through landmarks; rows
    or columns that parties hold stay where they are. `method_` says what was done, and why.

    Parameters
    ----------
    n_components : components wanted; a number between 0 and 1 for the fewest that explain so much
        of the variance; None for all that have any (with landmarks: that these determine).
    kernel : "linear", "poly", "rbf", "laplacian", "cosine", "arc-cosine"; for one array also
        "sigmoid", "precomputed" or a function of two rows.
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance".
    degree, coef0, kernel_params, alpha, fit_inverse_transform, eigen_solver, tol, max_iter,
    iterated_power, remove_zero_eig, copy_X, n_jobs : as in scikit-learn's KernelPCA; solvers
        matter where the whole kernel matrix is solved.
    random_state : seed of all draws.
    method : "auto", or by name: "exact" (the whole kernel matrix of one array), "diskpca"
        (landmarks; rows), "sketching-pca" (an embedding; rows), "vfed-pca", "vfed-akpca",
        "one-shot" (columns), "gossip", "admm" (rows on a graph).
    accuracy : the largest share of a wanted eigenvalue that may be missing. What landmarks miss is
        measured; unless `n_landmarks` is given they double while it is more, up to 2000, or to the
        centroids that the parties can give. A warning says if more is missing in the end.
    n_landmarks : landmarks in all; None for ten a component, from 100, and more if `accuracy` takes
        more.
    landmarks : "auto", one of DisKPCA's choices, or the landmarks themselves (q, n_features).
    center : centre in feature space.
    standardize, fill_missing : of columns that parties hold, done by each owner to its own: divide
        by the standard deviation; fill missing values (NaN) with the column's mean, of a column at
        most this share. For rows use scikit-learn's StandardScaler and SimpleImputer.
    local_rank, fusion : of OneShotKPCA.
    topology : of parties without a coordinator; None for one.
    verbose : show the progress of long work.

    Attributes
    ----------
    method_ : the method's name, a colon, and why it was chosen.
    eigenvalues_ : of the centred kernel matrix.
    explained_variance_ratio_, total_variance_, residual_ : the variance in feature space; as good
        as the method that was taken says.
    residual_error_ : with landmarks, the standard error of the estimate that total_variance_ and
        residual_ are 1.5 such errors above; 0 where they are exact.
    shortfalls_ : the share of each eigenvalue that is missing, estimated, (k,), 0 where nothing is;
        `shortfall_` is the largest and `shortfall_error_` its standard error. None where they are
        not known, of which a warning is given.
    gamma_, n_features_in_, feature_names_in_, n_samples_seen_ : as everywhere.
    eigenvectors_, X_fit_ : scikit-learn's, where the whole kernel matrix was solved.
    dual_coef_, X_transformed_fit_ : scikit-learn's, with fit_inverse_transform.
    landmarks_ : the landmarks, where there are any.
    estimator_ : the fitted estimator of a method with parties' shares or nodes, else None.
    report_ : what it cost, and what left each party.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data / 16
    >>> kpca = em.KernelPCA(3, kernel="rbf", gamma="median", random_state=0)
    >>> kpca.fit(X).method_
    'exact: 1,797 rows are few enough for their whole kernel matrix'
    >>> parts = em.split(X, n_parties=5, random_state=0)
    >>> kpca.fit(parts).method_
    'diskpca: 5 parties hold rows; centroids are the best landmarks where every row weighs ...'
    >>> [Z.shape for Z in kpca.transform(parts)][:2]
    [(360, 3), (360, 3)]
    """

    _split = "rows"
    _fitted = (
        "eigenvalues_",
        "explained_variance_ratio_",
        "total_variance_",
        "residual_",
        "gamma_",
        "method_",
        "model_",
        "estimator_",
        "preimages_",
        "sums_",
    )

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        kernel: Any = "linear",
        gamma: float | str | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        alpha: float = 1.0,
        fit_inverse_transform: bool = False,
        eigen_solver: str = "auto",
        tol: float = 0,
        max_iter: int | None = None,
        iterated_power: int | str = "auto",
        remove_zero_eig: bool = False,
        random_state: Any = None,
        copy_X: bool = True,
        n_jobs: int | None = None,
        method: str = "auto",
        n_landmarks: int | None = None,
        landmarks: Any = "auto",
        center: bool = True,
        standardize: bool = False,
        fill_missing: float | None = None,
        local_rank: int | None = None,
        fusion: str = "product",
        topology: Topology | None = None,
        verbose: bool = False,
        accuracy: float = 0.01,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.alpha = alpha
        self.fit_inverse_transform = fit_inverse_transform
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.max_iter = max_iter
        self.iterated_power = iterated_power
        self.remove_zero_eig = remove_zero_eig
        self.random_state = random_state
        self.copy_X = copy_X
        self.n_jobs = n_jobs
        self.method = method
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.center = center
        self.standardize = standardize
        self.fill_missing = fill_missing
        self.local_rank = local_rank
        self.fusion = fusion
        self.topology = topology
        self.verbose = verbose
        self.accuracy = accuracy

    # Fitting.

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to an array, a Partitioned, a Federation, a Dask collection or blocks of rows.

        Blocks are an iterator of arrays, each looked at once. `sample_weight` says as how many
        copies a row counts: an array for an array, for rows of parties with a coordinator a list
        with one each, which stays with them. It counts in the components, not in the choice of
        landmarks; with landmarks `total_variance_` is then an upper bound. Columns, graphs and
        blocks take none.
        """
        self._check_parameters()
        self._sample_weight = sample_weight
        try:
            return self._fit(X)
        finally:
            self.__dict__.pop("_sample_weight", None)

    def _fit(self, X: Any) -> Self:
        with self._progress_shown():
            if isinstance(X, Iterator):
                self._require_columns_for_preparing("rows")
                self._require_no_weights("blocks of rows", "one array")
                return self._fit_blocks(X)
            if _is_split(X):
                self._take_names(X)
                return self._fit_split(X)
            self._require_columns_for_preparing("rows")
            rows = self._checked(X, reset=True, min_samples=2)
            if self._sample_weight is not None:
                self._sample_weight = weight_array(self._sample_weight, rows.shape[0])
            return self._fit_pooled(rows)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit, and the scores of the fitted rows; equal to `fit(X).transform(X)`."""
        if isinstance(X, Iterator):
            raise InputError(
                "blocks from an iterator are gone after fit; pass fresh ones to transform"
            )
        self.fit(X, y, **fit_params)
        if isinstance(self.model_, ExactModel):
            return self.model_.fitted_scores.astype(self.model_.rows.dtype, copy=False)
        if isinstance(self.estimator_, ColumnEstimator):
            return self.estimator_._fitted_scores(X)
        return self.transform(X)

    def _require_columns_for_preparing(self, split: str) -> None:
        if split != "columns" and (self.standardize or self.fill_missing is not None):
            raise InputError(
                "standardize and fill_missing are for columns that parties hold; for rows put "
                "sklearn's StandardScaler or SimpleImputer before KernelPCA"
            )

    def _check_parameters(self) -> None:
        self._check_switches()
        components_asked(self.n_components)
        share_of_missing(self.fill_missing)
        checked_gamma(self.gamma)
        checked_accuracy(self.accuracy)
        one_of(self.method, "method", ("auto", *METHODS))
        if isinstance(self.landmarks, str):
            one_of(self.landmarks, "landmarks", ("auto", *LANDMARKS))
        if self.n_landmarks is not None:
            whole_number(self.n_landmarks, "n_landmarks")
        known = (*LANDMARK_KERNELS, "sigmoid", "precomputed")
        if not callable(self.kernel):
            one_of(self.kernel, "kernel", known)
        if self.fit_inverse_transform and self.kernel == "precomputed":
            raise InputError(
                "kernel is 'precomputed', so there are no rows to go back to; set "
                "fit_inverse_transform=False, or pass the rows and a kernel by name"
            )

    # Split data.

    def _fit_split(self, X: Any) -> Self:
        with self._opened(X, self.topology) as fed:
            ways = self._ways(fed.split, fed.graph is not None)
            if self._sample_weight is not None:
                ways = self._weighted_ways(ways, fed.split)
            choice, estimator = choose_way(fed, ways, self._built)
            if self._sample_weight is None:
                estimator.fit(fed)
            else:
                estimator.fit(fed, sample_weight=self._sample_weight)
        if isinstance(estimator, DisKPCA):
            self._adopt_landmarks(estimator, str(choice))
        else:
            self._adopt_estimator(estimator, str(choice))
        self.report_ = estimator.report_
        self._say_what_is_missing()
        return self

    def _weighted_ways(self, ways: list[Way], split: str) -> list[Way]:
        """Those that take weights, with the steps that they then ask for."""
        able = [way for way in ways if way.estimator is DisKPCA]
        if not able:
            held = "columns" if split == "columns" else "rows without a coordinator or landmarks"
            self._require_no_weights(held, "rows of parties with a coordinator")
        return [dataclasses.replace(way, needs=_weighted_needs) for way in able]

    def _require_no_weights(self, held: str, instead: str) -> None:
        if self._sample_weight is not None:
            raise InputError(
                f"sample_weight is given for {held}, which take none; None is expected, or "
                f"{instead}"
            )

    def _adopt_landmarks(self, estimator: DisKPCA, words: str) -> None:
        share, _ = components_asked(self.n_components)
        model = estimator.model_
        found = model if share is None else explaining(model, share)
        self._adopt(found, estimator.gamma_, words)
        self._adopt_facts_of(estimator)
        self._fit_preimages(model.landmarks)

    def _ways(self, split: str, on_graph: bool) -> list[Way]:
        self._require_columns_for_preparing(split)
        if self.landmarks_are_given:
            raise InputError(
                "landmarks are given as rows, which is for one array or a stream of blocks; for "
                "split data name a choice such as 'centroids'"
            )
        return ways_for(self.method, split, self.kernel, self.landmarks, on_graph)

    def _built(self, way: Way) -> Any:
        """The estimator of a way, with all of our arguments that it has."""
        own = self.get_params(deep=False)
        names = way.estimator._get_param_names()
        params = {name: own[name] for name in names if name in own}
        params.pop("accuracy", None)
        if self.topology is None:  # an open federation may have a graph all the same
            params.pop("topology", None)
        share, k = components_asked(self.n_components)
        q = self.n_landmarks
        q = default_landmarks(k, self.kernel, None) if q is None else q
        if "landmarks" in names:
            return self._built_with_landmarks(way, params, q)
        if not way.any_number and (share or (k is None and not way.all_components)):
            raise InputError(
                f"n_components is {self.n_components}; {way.name} needs a whole number from 1"
            )
        params.update(way.options)
        if "n_features" in names:  # the landmarks of methods on a graph
            params["n_features"] = q
        if "max_features" in names:
            growth = self._growth(q)
            params.update(accuracy=growth["accuracy"], max_features=growth["max_landmarks"])
        if self.fit_inverse_transform and not hasattr(way.estimator, "inverse_transform"):
            raise InputError(
                f"fit_inverse_transform is True; {way.name} keeps no rows to go back to: set it to "
                f"False, or choose method='diskpca' for rows"
            )
        estimator: Any = way.estimator(**params)
        if "max_features" in names:
            estimator._or_random = True
        if way.cheaper:
            estimator._cheaper = way.cheaper
        if isinstance(estimator, ColumnEstimator):
            estimator._behind = type(self).__name__  # whose parameters its advice must be about
        return estimator

    def _built_with_landmarks(self, way: Way, params: dict[str, Any], q: int) -> DisKPCA:
        share, k = components_asked(self.n_components)
        params.update(n_landmarks=q, n_components=k, **self._growth(q))
        if self.landmarks == "auto":
            params.update(way.options)
        estimator = DisKPCA(**params)
        estimator._variance_share = share
        return estimator

    # Forecasts.

    def _planned(self, source: Any) -> Any:
        """The estimator that a fit to `source` will run."""
        self._check_parameters()
        if not _is_split(source):
            return self
        if is_dask_collection(source):  # opening it would place parties
            return self._built(self._ways(chunk_split(source), self.topology is not None)[0])
        with self._opened(source, self.topology) as fed:
            ways = self._ways(fed.split, fed.graph is not None)
            try:
                choice, estimator = choose_way(fed, ways, self._built)
                estimator._chosen_as = str(choice)
                return estimator
            except PolicyRefusal:  # the plan of the first says who refuses what
                return self._built(ways[0])

    def _plan_method(self, shapes: Sequence[tuple[int, int]]) -> str:
        return str(self._pooled_choice(shapes[0][0]))

    def _forecast(self, names: Sequence[str], shapes: Sequence[tuple[int, int]]) -> Ledger:
        """Rows in one place send nothing."""
        return Ledger()


def _is_split(X: Any) -> bool:
    return isinstance(X, Federation | Partitioned) or is_dask_collection(X)


def _weighted_needs(estimator: Any, fed: Federation) -> Needs:
    return [estimator._stage(1.0, "sample_weight")]
