"""`KernelPCA`, the front door: scikit-learn's KernelPCA for rows of any number, split or not."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Self, overload

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from eigenmesh.connect import chunk_shapes, chunk_split, federation, is_dask_collection
from eigenmesh.data import Partitioned
from eigenmesh.data.spark_rows import SparkRows, is_spark
from eigenmesh.data.table import Table
from eigenmesh.errors import EigenmeshWarning, InputError, PolicyRefusal
from eigenmesh.estimators.accuracy import SHORTFALL, missing_gap, residual_claim
from eigenmesh.estimators.base import FrontDoor, require_no_iterator
from eigenmesh.estimators.block_scores import block_scores
from eigenmesh.estimators.checks import (
    checked_accuracy,
    checked_gamma,
    checked_gram_rank,
    checked_precision,
    checked_scores,
    components_asked,
    one_of,
    require_private,
    require_switches,
    share_of_missing,
    whole_number,
)
from eigenmesh.estimators.naming import as_array, frame_in_order
from eigenmesh.estimators.party_values import in_order_of_ids, weight_array
from eigenmesh.estimators.preparation import Preparation
from eigenmesh.estimators.progress_bar import rows_shown
from eigenmesh.estimators.report import RunReport
from eigenmesh.estimators.serving import Served
from eigenmesh.estimators.small_parties import (
    CHOICES,
    LEAVE_OUT,
    LeftOut,
)
from eigenmesh.kernel_pca.choose_method import (
    build_estimator,
    choose_method,
    goes_back,
    hangs_on_sizes,
    masks_unasked,
    of_these_sizes,
    parties_taking_part,
    preceded,
    suitable_methods,
    those_in,
)
from eigenmesh.kernel_pca.device_fit import (
    DeviceSample,
    fit_device,
    is_fitted_here,
    scores_there,
)
from eigenmesh.kernel_pca.exact import ExactModel
from eigenmesh.kernel_pca.one_array import (
    LANDMARK_KERNELS,
    NO_VARIANCE,
    ComponentFit,
    fit_rows,
    new_stream,
    only_landmarks,
    pairwise_kernel,
    pooled_choice,
    stream_components,
)
from eigenmesh.kernel_pca.preimage import Preimages
from eigenmesh.kernel_pca.spark_rounds import fit_spark
from eigenmesh.kernel_pca.streams import LandmarkStream, StreamSums
from eigenmesh.methods.registry import Method, method_called, methods, names_of
from eigenmesh.numerics.arrays import Floats, Rows, Samples, working_dtype
from eigenmesh.numerics.device_rows import DeviceRows, is_device_array
from eigenmesh.numerics.landmark_sums import KernelValues
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.moment_model import MomentModel
from eigenmesh.runtime.federation import MASKABLE_LOSSES, Federation
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.schedule import masks_are_planned
from eigenmesh.runtime.topology import Topology
from eigenmesh.stages.row_preparation import RowPreparation

_OF_INNER = (
    "eigenvalues_",
    "explained_variance_ratio_",
    "total_variance_",
    "residual_",
    "gamma_",
    "n_features_in_",
)
_OPTIONAL = (
    "landmark_residual_",
    "leverage_skew_",
    "n_samples_seen_",
    "residual_error_",
    *SHORTFALL,
)


def _adds_up(kpca: KernelPCA) -> bool:
    if kpca.kernel in LANDMARK_KERNELS:
        return True
    raise AttributeError(only_landmarks(kpca.kernel))


_AS_THEY_ARE = (np.float32, np.float64)  # arrays of these are not converted


class KernelPCA(Served, FrontDoor):
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
        more. Of one array in float32 those are left out that add next to nothing to the others.
    landmarks : "auto", one of DisKPCA's choices, or the landmarks themselves (q, n_features).
    center : centre in feature space.
    preparation : `em.Preparation`, of rows, before all else: standardised, gaps filled, logarithms.
    standardize, fill_missing : of columns that parties hold, done by each owner to its own: divide
        by the standard deviation; fill missing values (NaN) with the column's mean, of a column at
        most this share. For rows there is `preparation`.
    local_rank, fusion : of OneShotKPCA.
    gram_rank, precision : how parties send less: of `DisKPCA`, precision of `OneShotKPCA`, too.
    topology : of parties without a coordinator; None for one.
    averaging : on a graph "tree" or "gossip", as in `GossipKPCA`.
    small_parties : what becomes of parties with fewer rows than their policies let a sum be over
        (5), where sums are not masked: "leave-out" goes on without them and a warning names them,
        unless they can move no wanted eigenvalue by more than `accuracy`;
        "reveal" takes them, though their rows can be told from what they send. Where rows are asked
        for by name, everybody is in.
    epsilon, delta : differential privacy of each row: `PrivatePCA`, for rows and kernels whose
        features have norm 1, with a `gamma` that is a number. None for none.
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

    shortfalls_: Any
    shortfall_: float | None
    shortfall_error_: float | None
    model_: Any  # an ExactModel, LandmarkModel, MomentModel, or None where `estimator_` is used
    preimages_: Preimages | None
    sums_: StreamSums | None
    _stream: LandmarkStream | None
    _last_transform: list[RunReport]

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
        averaging: str | tuple[str, float] = "auto",
        verbose: bool = False,
        accuracy: float = 0.01,
        small_parties: str = LEAVE_OUT,
        preparation: Preparation | None = None,
        epsilon: float | None = None,
        delta: float = 1e-6,
        gram_rank: int | str | None = None,
        precision: int | str = "exact",
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
        self.averaging = averaging
        self.verbose = verbose
        self.accuracy = accuracy
        self.small_parties = small_parties
        self.preparation = preparation
        self.epsilon = epsilon
        self.delta = delta
        self.gram_rank = gram_rank
        self.precision = precision

    # Fitting.

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to an array, a Partitioned, a Federation, a Dask or Spark frame, or blocks of rows.

        A Spark frame, or an `em.SparkRows` that says which column has ids, is passed over three
        times where it is; at most 20,000 of its rows come here, or 20 a landmark. Blocks are an
        iterator of arrays, each looked at once. A tensor, or another array of the Array API
        standard, stays on its device: samples of its rows, and sums, come to main memory.

        `sample_weight` says as how many copies a row counts: an array for an array, for rows of
        parties with a coordinator a list with one each, which stays with them. It counts in the
        components, not in the choice of landmarks; with landmarks `total_variance_` is then an
        upper bound. Columns, graphs, blocks, Spark frames and tensors take none.
        """
        return self._fit(X, sample_weight, None)

    def _fit(self, X: Any, sample_weight: Any, kept: KernelValues | None) -> Self:
        is_split = _is_split(X)
        self._column_caveats = ()
        self._check_parameters()
        if not is_split:
            self._require_columns_for_preparing("rows")
        with rows_shown("kernel PCA", self.verbose):
            if is_split or self.epsilon is not None:
                source = X if is_split else self._as_one_party(X)
                self._take_names(source)
                if not is_split:
                    del self._taken_in  # its columns have been looked at
                self._fit_split(source, in_order_of_ids(X, sample_weight))
            elif is_spark(X):
                self._require_none_for_spark(sample_weight)
                self._fit_spark(SparkRows.of(X))
            elif is_device_array(X):
                self._require_plain_rows(sample_weight)
                self._fit_device(DeviceRows.of(X, fewest=2))
            elif isinstance(X, Iterator):
                self._require_no_preparation("blocks of rows")
                _require_no_weights(sample_weight, "blocks of rows", "one array")
                self._fit_blocks(self._checked_blocks(X))
            else:
                rows = self._checked(X, reset=True, min_samples=2)
                self._fit_array(rows, sample_weight, kept)
        if self.preparation is not None:
            self._note_preparation()
        return self

    def _as_one_party(self, X: Any) -> Partitioned:
        """Rows in one place, whose model is to keep a promise all the same."""
        require_no_iterator(X)
        checked = Table(self._checked(X, reset=True, min_samples=2))
        return Partitioned.from_tables("rows", [checked])

    def fit_transform(  # type: ignore[override]  # scikit-learn's takes any parameters of fit
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> Any:
        """Fit, and the scores of the fitted rows; equal to `fit(X).transform(X)` but for rounding.

        Kernel values of a plain array with its landmarks are computed once, for both.
        """
        if isinstance(X, Iterator):
            raise InputError(
                "blocks from an iterator are gone after fit; pass fresh ones to transform"
            )
        kept = KernelValues()
        self._fit(X, sample_weight, kept)
        if is_device_array(X):
            return self.transform(X)
        if isinstance(self.model_, ExactModel):
            return self.model_.fitted_scores.astype(self.model_.rows.dtype, copy=False)
        if self.estimator_ is not None and self.preparation_ is None:
            return self.estimator_._fitted_scores(X)
        if self.estimator_ is None and type(X) is np.ndarray and X.dtype in _AS_THEY_ARE:
            scores = None if kept.values is None else self.model_.scores_from(kept, X.dtype)
            return self._scores_of_checked(X) if scores is None else scores  # checked by fit
        return self.transform(X)

    @available_if(_adds_up)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Take up a block of rows; the landmarks stay once 20 rows a landmark have been seen.

        Given `landmarks` stay from the start. Gamma by a rule comes from the same first rows. It
        goes on from `partial_fit` and from a fit to blocks or a Spark frame. Columns must have the
        names of the first block, in their order, as scikit-learn asks for.
        """
        self._check_parameters()
        self._require_no_preparation("partial_fit")
        stream = getattr(self, "_stream", None)
        self._require_one_place(X, stream)
        with rows_shown("kernel PCA", self.verbose):
            self._fit_blocks(iter([self._checked(X, reset=stream is None)]), stream)
        return self

    def _require_one_place(self, X: Any, stream: LandmarkStream | None) -> None:
        """Refuse split data, and say where all of an earlier fit is forgotten.

        scikit-learn's checks take up blocks after a fit, so that this is no error.
        """
        if _is_split(X):
            raise InputError(
                f"partial_fit takes rows of one place, block after block, and X is a "
                f"{type(X).__name__}; an array or DataFrame is expected, or fit for split data"
            )
        if stream is None and hasattr(self, "model_"):
            warnings.warn(
                "this model was fitted to all rows at once, which partial_fit forgets: it begins "
                "anew with this block. To go on begin with partial_fit, or with fit of an iterator "
                "of blocks",
                EigenmeshWarning,
                stacklevel=3,
            )

    @property
    def landmarks_are_given(self) -> bool:
        """Whether `landmarks` are rows, and not a way to choose them."""
        return not isinstance(self.landmarks, str)

    def _require_no_preparation(self, what: str) -> None:
        self.preparation_ = None
        if self.preparation is not None:
            raise InputError(
                f"preparation takes all rows to learn from, and {what} come one after the other; "
                f"None is expected, or one array"
            )

    def _require_columns_for_preparing(self, split: str) -> None:
        if split != "columns" and (self.standardize or self.fill_missing is not None):
            raise InputError(
                "standardize and fill_missing are for columns that parties hold; for rows pass "
                "preparation=em.Preparation(standardize=, fill_missing=)"
            )

    def _check_parameters(self) -> None:
        names, landmarks = names_of(methods()), method_called("diskpca").landmarks
        require_switches(self)
        components_asked(self.n_components)
        share_of_missing(self.fill_missing)
        checked_gamma(self.gamma)
        checked_accuracy(self.accuracy)
        checked_precision(self.precision)
        checked_gram_rank(self.gram_rank)
        one_of(self.small_parties, "small_parties", CHOICES)
        require_private(self, "KernelPCA")
        one_of(self.method, "method", ("auto", "exact", *names))
        if isinstance(self.landmarks, str):
            one_of(self.landmarks, "landmarks", ("auto", *landmarks))
        if self.n_landmarks is not None:
            whole_number(self.n_landmarks, "n_landmarks")
        if not callable(self.kernel):
            one_of(self.kernel, "kernel", (*LANDMARK_KERNELS, "sigmoid", "precomputed"))
        if self.fit_inverse_transform and self.kernel == "precomputed":
            raise InputError(
                "kernel is 'precomputed', so there are no rows to go back to; set "
                "fit_inverse_transform=False, or pass the rows and a kernel by name"
            )

    # Rows in one place.

    def _fit_array(self, X: Rows, sample_weight: Any, kept: KernelValues | None) -> None:
        weights = None if sample_weight is None else weight_array(sample_weight, X.shape[0])
        start = time.perf_counter()
        X = self._prepared_alone(X)
        if self.landmarks_are_given and pooled_choice(self, X.shape[0]).name != "exact":
            if weights is not None:
                raise InputError(
                    "sample_weight is given beside landmarks= as rows; None is expected, or a "
                    "choice of landmarks by name"
                )
            self._fit_blocks(iter([X]))
            return
        components = fit_rows(self, X, weights, kept)
        self._adopt(components)
        self._fit_preimages(X)
        self._report_alone(components, time.perf_counter() - start, weights is not None)

    def _prepared_alone(self, X: Rows) -> Rows:
        """Rows in one place, prepared as those of parties are."""
        if self.preparation is None:
            self.preparation_ = None
            return X
        if self.kernel == "precomputed":
            self._require_no_preparation("rows of a kernel matrix")
        alone = Partitioned.from_tables("rows", [Table(X)])
        with federation(alone) as fed:
            self.preparation_ = self._preparing_stages(self._known_names)[0].run(fed).value
        return self._as_prepared(X)

    def _checked_blocks(self, blocks_of_rows: Iterator[Any]) -> Iterator[Rows]:
        for i, block in enumerate(blocks_of_rows):
            yield self._checked(block, reset=i == 0)

    def _fit_blocks(self, blocks: Iterator[Rows], stream: LandmarkStream | None = None) -> None:
        """Checked blocks, added to those that `stream` has taken up before."""
        start = time.perf_counter()
        for block in blocks:
            stream = stream or new_stream(self, block)
            stream.add(block)
        if stream is None:
            raise InputError("the iterator gave no block of rows; at least one is expected")
        self._adopt_stream(stream_components(self, stream), stream, start)

    def _fit_spark(self, source: SparkRows) -> None:
        start = time.perf_counter()
        components, stream, names = fit_spark(self, source)
        self._forget_names()
        self.feature_names_in_ = as_array(names)
        self._adopt_stream(components, stream, start)

    def _require_plain_rows(self, sample_weight: Any) -> None:
        """Refuse what is not done to rows on a device."""
        _require_no_weights(sample_weight, "rows on a device", "one array in main memory")
        self.preparation_ = None
        if self.preparation is not None:
            raise InputError(
                "preparation is given, and rows on a device are taken as they are; None is "
                "expected: prepare them there"
            )

    def _fit_device(self, X: DeviceRows) -> None:
        start = time.perf_counter()
        self._forget_names()
        self.n_features_in_ = X.shape[1]
        sample = DeviceSample.of(self, X)
        self._look_at_columns(sample.rows, None)
        if is_fitted_here(self, sample):
            self._fit_array(sample.rows, None, None)
            self.method_ += f"; they came to main memory from {X.device}"
            return
        self._adopt_stream(*fit_device(self, sample), start)

    def _adopt_stream(self, components: ComponentFit, stream: LandmarkStream, start: float) -> None:
        """What added up over landmarks since `start`, and may go on."""
        self._adopt(components)
        self._fit_preimages(components.model.landmarks)
        self._stream, self.sums_ = stream, stream.sums
        self._report_alone(components, time.perf_counter() - start)

    def _report_alone(
        self, components: ComponentFit, seconds: float, weighted: bool = False
    ) -> None:
        """The account of rows in one place: nothing was sent."""
        model = components.model
        after = model.next_eigenvalue
        has_gap = after is not None and len(model.eigenvalues) and model.eigenvalues[-1] > 0
        caveats = missing_gap(model.eigenvalues, after) if has_gap else ()
        caveats += components.caveats
        if model.total == 0:
            caveats = (NO_VARIANCE,)
        claim = residual_claim(self.residual_, self.residual_error_, weighted)
        notes = (*self._column_caveats, *caveats, claim)
        self.report_ = RunReport.of_rows_in_one_place(
            seconds, model.n_rows * self.n_features_in_, notes
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=4)

    # Split data.

    def _fit_split(self, X: Any, sample_weight: Any) -> None:
        weighted = sample_weight is not None
        with (
            self._opened(X, self.topology) as fed,
            fed.recording() as recording,
            self._preparing(fed),
            self._masked(fed),
        ):
            candidates = self._candidates(fed.split, fed.graph is not None, fed.secure)
            if weighted:
                candidates = _those_with_weights(candidates, fed.split, sample_weight)
            suitable, left_out = self._of_sizes_at(fed, candidates)
            choice, method, estimator = choose_method(
                fed,
                suitable,
                partial(build_estimator, self),
                lambda _, candidate: candidate._needs(fed, weighted=weighted),
            )
            own = {"sample_weight": sample_weight} if weighted else {}
            estimator.fit(fed, **own)
            if left_out is not None and weighted:
                left_out.warn()
            elif left_out is not None and not self._is_within_without(left_out, estimator):
                how = (self.kernel, self.center, getattr(estimator, "landmark_residual_", None))
                left_out.beside(_wanted_of(estimator), *how).warn()
        self.report_ = estimator.report_.over(recording, fed)
        self._adopt_fitted(method, estimator, f"{choice}; {self.report_.what_left}")
        self._say_what_is_missing()

    def _is_within_without(self, left_out: LeftOut, estimator: Any) -> bool:
        """Whether whom a fit leaves out can move no wanted eigenvalue by more than may be missing.

        Then `report_.left_out` has them, and nobody needs to be warned. A gamma by a rule, and how
        rows are prepared, hangs on everybody's rows, too.
        """
        missing, eigenvalues = getattr(estimator, "shortfalls_", None), _wanted_of(estimator)
        is_shared = isinstance(self.gamma, str) or self.preparation is not None
        if missing is None or is_shared:
            return False
        may_add = left_out.may_add(self.kernel, self.center) / eigenvalues
        surely = np.asarray(missing) + 2 * estimator.shortfall_error_
        return bool((surely + may_add <= self.accuracy).all())

    def _masked(self, fed: Federation) -> AbstractContextManager[None]:
        """Masks sums, where all that is seen without masks are columns and nobody said so."""
        if not self._masks_unasked(fed):
            return nullcontext()
        if fed.on_loss not in MASKABLE_LOSSES:
            raise InputError(
                f"on_loss is {fed.on_loss!r}, by which sums cannot be masked, and without masks "
                f"the {self.kernel} kernel tells each party's columns up to rotation; 'raise' or "
                f"'survivors' is expected, or method='vfed-akpca' if that may be told"
            )
        return fed.masking()

    def _masks_unasked(self, source: Any) -> bool:
        if not _is_split(source):
            return False
        on_graph, secure = self.topology is not None, False
        if isinstance(source, Federation):
            on_graph, secure = source.graph is not None, source.secure
            split, n_parties = source.split, len(source.members)
        elif isinstance(source, Partitioned):
            split, n_parties = source.split, len(source.names)
        else:
            split, n_parties = chunk_split(source), len(chunk_shapes(source))
        return masks_unasked(self, split, on_graph, n_parties, secure)

    def _adopt_fitted(self, method: Method, estimator: Any, words: str) -> None:
        share, _ = components_asked(self.n_components)
        if method.takes_landmarks:
            self._adopt(ComponentFit.by_landmarks(estimator, estimator.gamma_, words, share))
            self._fit_preimages(estimator.model_.landmarks)
        elif method.span == "features":
            self._adopt(ComponentFit.by_moments(estimator, words, share))
        else:
            self._adopt_estimator(estimator, words)

    def _of_sizes_at(
        self, fed: Federation, candidates: list[Method]
    ) -> tuple[list[Method], LeftOut | None]:
        """The candidates that suit the parties' sizes, for which they are asked if need be.

        Small parties are left out then, where they have to be.
        """
        shapes, left_out = parties_taking_part(self, candidates, fed)
        return of_these_sizes(self, candidates, shapes), left_out

    def _leave_out_small(self, fed: Federation) -> LeftOut | None:
        """Before another front door's runs: who takes no part in them."""
        candidates = self._candidates(fed.split, fed.graph is not None, fed.secure)
        return parties_taking_part(self, candidates, fed)[1]

    def _candidates(
        self, split: str, on_graph: bool, secure: bool = False, alone: bool = False
    ) -> list[Method]:
        """The methods that suit such data, best first."""
        self._require_columns_for_preparing(split)
        if self.landmarks_are_given:
            raise InputError(
                "landmarks are given as rows, which is for one array or a stream of blocks; for "
                "split data name a choice such as 'centroids'"
            )
        how = (self.method, split, self.kernel, self.landmarks, on_graph, secure, alone)
        suitable = suitable_methods(*how, private=self.epsilon is not None)
        if not (self.fit_inverse_transform and self.method == "auto"):
            return suitable
        return [method for method in suitable if goes_back(method, self.kernel)] or suitable

    def _say_what_is_missing(self) -> None:
        """Of methods that measure it and do not judge it, or that cannot measure it."""
        if self.model_ is not None or self.estimator_._judges_shortfall:
            return  # landmarks have said it
        if self.shortfall_ is None:
            if getattr(self.estimator_, "exact_", self.estimator_._is_exact):
                return
            words = "what is missing of the eigenvalues is not known with this method"
        elif self.shortfall_ > self.accuracy:
            worst = 1 + int(np.argmax(self.shortfalls_))
            words = (
                f"eigenvalue {worst} lacks about {self.shortfall_:.1%}, more than "
                f"accuracy={self.accuracy:g} lets it"
            )
        else:
            return
        name, _, why = self.method_.partition(":")
        remedy = getattr(self.estimator_, "_closer", "")
        caveat = f"{words}: {name},{why}{remedy}"
        warnings.warn(caveat, EigenmeshWarning, stacklevel=4)
        self.report_ = replace(self.report_, notes=(*self.report_.notes, caveat))

    # What was fitted.

    def _adopt(self, components: ComponentFit) -> None:
        model, missing, facts = components.model, components.missing, components.facts
        self._forget()
        self.model_ = model
        self.method_ = components.words
        self.gamma_ = components.gamma
        self.eigenvalues_ = model.eigenvalues
        self.total_variance_ = model.total
        self.residual_ = model.residual
        # Rows that do not differ have no variance to explain a share of.
        self.explained_variance_ratio_ = model.eigenvalues / (model.total or 1.0)
        self.n_samples_seen_ = model.n_rows
        self.residual_error_ = 0.0
        self.shortfalls_ = missing.values
        self.shortfall_ = missing.largest
        self.shortfall_error_ = missing.error
        if facts is not None:
            self.landmark_residual_ = facts.outside
            self.residual_error_ = facts.residual_error
            self.leverage_skew_ = facts.leverage_skew
            self.n_features_in_ = int(model.landmarks.shape[1])
        elif isinstance(model, MomentModel):
            self.n_features_in_ = model.n_columns

    def _adopt_estimator(self, estimator: Any, words: str) -> None:
        self._forget()
        for name in SHORTFALL:
            setattr(self, name, None)
        self.model_ = None
        self.method_ = words
        self.estimator_ = estimator
        for name in (*_OF_INNER, *_OPTIONAL):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))
        self._keep_names_of(estimator)
        self._last_transform = estimator._last_transform

    def _forget(self) -> None:
        for name in _OPTIONAL:
            self.__dict__.pop(name, None)
        self.estimator_ = None
        self.preimages_ = None
        self.sums_ = None
        self._stream = None
        self._last_transform = []

    def _fit_preimages(self, X: Rows) -> None:
        """From scores to rows: of all rows of one array, else of the landmarks."""
        if not self.fit_inverse_transform:
            return
        kernel, model, alpha = pairwise_kernel(self, self.gamma_), self.model_, float(self.alpha)
        if isinstance(model, ExactModel):
            self.preimages_ = Preimages.exact(kernel, model.fitted_scores, X, alpha)
            return
        # The landmarks alone stand for all rows, n/q each; alpha is weighed against all rows.
        alpha *= X.shape[0] / model.n_rows
        anchors = model.transform(model.landmarks)
        self.preimages_ = Preimages.from_landmarks(kernel, anchors, model.transform, X, alpha)

    # Using it.

    @overload
    def transform(self, X: Samples) -> Floats: ...
    @overload
    def transform(self, X: Iterator[Samples]) -> Iterator[Floats]: ...
    @overload
    def transform(self, X: Any) -> Any: ...
    def transform(self, X: Any) -> Any:
        """Scores: an array for an array, a list for a Partitioned of rows, lazily for Dask arrays.

        Of a tensor, or another array of the Array API standard, they are one on its device. Of a
        Spark frame they are a Spark frame, with the ids of `em.SparkRows` beside them. Blocks from
        an iterator give an iterator. Only columns split over parties take messages.
        """
        check_is_fitted(self)
        if isinstance(X, Iterator):
            return (self.transform(block) for block in X)
        if is_spark(X):
            return self._mapped_in_spark(X)
        if is_device_array(X) and not self.over_columns:
            return self._device_scores(DeviceRows.of(X))
        if self.estimator_ is not None:
            return self.estimator_.transform(self._for_inner(X))
        if isinstance(X, Partitioned):
            parts = self._rows_in_order(X).parts
            return [block_scores(part, self.model_, self.preparation_) for part in parts]
        if is_dask_collection(X):
            X = frame_in_order(X, self._known_names)
            self._require_width(X, X.shape[1])
            return _lazily(self.model_, X, self.preparation_)
        if isinstance(X, Federation):
            raise InputError(
                "transform got a federation of rows; who has the model scores its own rows: give "
                "it to each party, as a file, and pass its rows to transform there"
            )
        return self._scores_of_checked(self._checked(X, reset=False))

    def _scores_of_checked(self, rows: Rows) -> Floats:
        with rows_shown("kernel PCA", self.verbose):
            scores = self.model_.transform(self._as_prepared(rows))
        return np.asarray(scores.astype(rows.dtype, copy=False))

    def _device_scores(self, X: DeviceRows) -> Any:
        """Where the rows are; of models that are no sums of kernel values block by block here."""
        if X.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        with rows_shown("kernel PCA", self.verbose):
            own = self.estimator_ is None and self.preparation_ is None
            scores = scores_there(self.model_, X) if own else None
            return X.through_main_memory(self._scores_of) if scores is None else scores

    def _scores_of(self, rows: Rows) -> Floats:
        """Of rows as a site has them, in the fit's order of columns."""
        if self.estimator_ is not None:
            scores: Floats = self.estimator_._scores(self._as_prepared(rows))
            return scores
        return block_scores(rows, self.model_, self.preparation_)

    def _require_width(self, X: Any, width: int) -> None:
        if width != self.n_features_in_:
            raise InputError(
                f"the new data are {X!r}; rows of {self.n_features_in_} features are expected"
            )

    def inverse_transform(self, X: Any, *, party: str | None = None) -> Any:
        """Rows for scores, by kernel ridge regression as scikit-learn does it.

        It is fitted to all rows where they are in one array, and to the landmarks alone where the
        rows are split or come in blocks. Of a list with scores a party, as `transform` gives it, it
        is a list of rows a party.
        """
        check_is_fitted(self)
        if isinstance(X, list) and X and np.ndim(X[0]) == 2:
            return [self.inverse_transform(own, party=party) for own in X]
        if is_device_array(X):
            return DeviceRows.of(X).through_main_memory(
                partial(self.inverse_transform, party=party)
            )
        if isinstance(self.model_, MomentModel) and self.model_.goes_back and party is None:
            Z = checked_scores(X, len(self.eigenvalues_))
            return self._unprepared(self._rows_of(self.model_, Z))
        if self.preimages_ is None and hasattr(self.estimator_, "inverse_transform"):
            own = {} if party is None else {"party": party}
            return self.estimator_.inverse_transform(X, **own)
        if party is not None:
            raise InputError(
                f"party is {party!r}; columns of one party come from a linear model over columns"
            )
        if self.preimages_ is None:
            raise NotFittedError(
                "inverse_transform needs fit_inverse_transform=True, set before fit"
            )
        Z = checked_scores(X, len(self.eigenvalues_))
        rows = self._unprepared(self.preimages_(Z))
        return rows.astype(Z.dtype, copy=False) if Z.dtype == np.float32 else rows

    @staticmethod
    def _rows_of(model: MomentModel, scores: Any) -> Any:
        rows = model.rows_of(scores.astype(np.float64, copy=False))
        return rows.astype(scores.dtype, copy=False) if scores.dtype == np.float32 else rows

    @property
    def over_columns(self) -> bool:
        """Whether samples are scored by parties that hold their columns."""
        return self.estimator_ is not None and self.estimator_._split == "columns"

    @property
    def eigenvectors_(self) -> Any:
        """Unit eigenvectors of the kernel matrix, (n, k), where it was solved."""
        return self._of_exact("eigenvectors")

    @property
    def X_fit_(self) -> Any:  # noqa: N802 - scikit-learn's name
        """The fitted rows, where the whole kernel matrix was solved."""
        return self._of_exact("rows")

    def _of_exact(self, name: str) -> Any:
        model = self.__dict__.get("model_")
        if isinstance(model, ExactModel):
            return getattr(model, name)
        inner = self.__dict__.get("estimator_")
        if inner is not None and name == "eigenvectors":
            return inner.eigenvectors_
        raise AttributeError(
            f"{name} of all rows are there after an exact fit; with landmarks, eigenvectors are "
            f"transform(X) / sqrt(eigenvalues_)"
        )

    @property
    def landmarks_(self) -> Any:
        """The landmarks, where there are any."""
        model = self.__dict__.get("model_")
        if not isinstance(model, LandmarkModel):
            raise AttributeError("landmarks_ are there after a fit with landmarks")
        return model.landmarks

    @property
    def node_models_(self) -> Any:
        """One model a node, of methods on a graph."""
        inner: Any = self.__dict__.get("estimator_")
        if not hasattr(inner, "node_models_"):
            raise AttributeError("node_models_ are there after a fit on a graph of rows")
        return inner.node_models_

    @property
    def dual_coef_(self) -> Any:
        """Coefficients of the way back, with fit_inverse_transform."""
        return self._of_preimages("dual_coef")

    @property
    def X_transformed_fit_(self) -> Any:  # noqa: N802 - scikit-learn's name
        """Scores at which the way back is anchored, with fit_inverse_transform."""
        return self._of_preimages("anchors")

    def _of_preimages(self, name: str) -> Any:
        preimages = self.__dict__.get("preimages_")
        if preimages is None:
            raise AttributeError(f"{name} is there after a fit with fit_inverse_transform=True")
        return getattr(preimages, name)

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.fit_inverse_transform
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _saved_names(self) -> list[str]:
        own = [name for name in _OPTIONAL if hasattr(self, name)]
        if self._column_caveats:  # a stream that goes on has them in its next report
            own.append("_column_caveats")
        return [*super()._saved_names(), *own]

    def _tree(self) -> dict[str, Any]:
        if callable(self.kernel):
            raise InputError(
                "kernel is a function, which no safe file can hold; choose a kernel by name, or "
                "save eigenvalues_, eigenvectors_ and X_fit_ yourself"
            )
        return super()._tree()

    @classmethod
    def _from_tree(cls, tree: dict[str, Any]) -> Self:
        loaded = super()._from_tree(tree)
        loaded._stream = None
        if loaded.sums_ is not None:
            model = loaded.model_
            loaded._stream = LandmarkStream.resumed(model.kernel, model.landmarks, loaded.sums_)
        return loaded

    # Forecasts.

    def _planned(self, source: Any) -> Any:
        """The estimator that a fit to `source` will run."""
        self._check_parameters()
        if not _is_split(source):
            return self
        if is_dask_collection(source):  # opening it would place parties
            return self._planned_unopened(source)
        with (
            self._opened(source, self.topology) as fed,
            fed.rehearsing(),
            self._masked(fed),
        ):
            secure = fed.secure or masks_are_planned()
            candidates = self._candidates(fed.split, fed.graph is not None, secure)
            suitable, left_out = candidates, None
            with suppress(PolicyRefusal):  # the plan says who refuses to tell its size
                suitable, left_out = self._of_sizes_at(fed, candidates)
            estimator = self._planned_among(fed, suitable)
        surveys = left_out is not None or hangs_on_sizes(self, candidates)
        return preceded(estimator, surveys, left_out)

    def _planned_unopened(self, collection: Any) -> Any:
        split, topology = chunk_split(collection), self.topology
        candidates = self._candidates(split, topology is not None, masks_are_planned())
        shapes, left_out = those_in(self, candidates, chunk_shapes(collection), split, topology)
        suitable = of_these_sizes(self, candidates, shapes)
        surveys = left_out is not None or hangs_on_sizes(self, candidates)
        return preceded(build_estimator(self, suitable[0]), surveys, left_out)

    def _planned_among(self, fed: Federation, candidates: list[Method]) -> Any:
        try:
            choice, _, estimator = choose_method(fed, candidates, partial(build_estimator, self))
            estimator._chosen_as = str(choice)
            return estimator
        except PolicyRefusal:  # the plan of the first says who refuses what
            return build_estimator(self, candidates[0])

    def _plan_method(self, shapes: Sequence[tuple[int, int]]) -> str:
        return str(pooled_choice(self, shapes[0][0]))

    def _forecast(self, names: Sequence[str], shapes: Sequence[tuple[int, int]]) -> Ledger:
        """Rows in one place send nothing."""
        return Ledger()


def _is_split(X: Any) -> bool:
    return type(X) is not np.ndarray and (
        isinstance(X, Federation | Partitioned) or is_dask_collection(X)
    )


def _those_with_weights(candidates: list[Method], split: str, sample_weight: Any) -> list[Method]:
    able = [method for method in candidates if method.takes_weights]
    if not able:
        data = "columns" if split == "columns" else "rows without a coordinator or landmarks"
        _require_no_weights(sample_weight, data, "rows of parties with a coordinator")
    return able


def _require_no_weights(sample_weight: Any, data: str, instead: str) -> None:
    if sample_weight is not None:
        raise InputError(
            f"sample_weight is given for {data}, which take none; None is expected, or {instead}"
        )


def _wanted_of(estimator: Any) -> Any:
    """Eigenvalues that were asked for: of a share of the variance the first of all there are."""
    missing = getattr(estimator, "shortfalls_", None)
    return estimator.eigenvalues_[: None if missing is None else len(missing)]


def _lazily(model: Any, X: Any, preparation: RowPreparation | None) -> Any:
    """Scores of a Dask array or DataFrame, computed where its chunks lie, when asked for."""
    array = X.to_dask_array() if hasattr(X, "to_dask_array") else X
    k, dtype = len(model.eigenvalues), working_dtype(array)
    return array.rechunk({1: -1}).map_blocks(
        block_scores,
        model=model,
        preparation=preparation,
        dtype=dtype,
        chunks=(array.chunks[0], (k,)),
        meta=np.empty((0, k)),
    )
