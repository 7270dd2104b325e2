"""What a fitted `KernelPCA` holds and does, whichever way it was fitted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from eigenmesh.connect import is_dask_collection
from eigenmesh.data import Partitioned
from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.checks import missing_gap
from eigenmesh.estimators.front_door import FrontDoor
from eigenmesh.estimators.naming import frame_in_order
from eigenmesh.estimators.report import RunReport
from eigenmesh.kernel_pca.exact import ExactModel, PairwiseKernel
from eigenmesh.kernel_pca.preimage import Preimages
from eigenmesh.kernel_pca.streams import LandmarkStream, StreamSums
from eigenmesh.kernel_pca.variance_share import NO_VARIANCE, Model
from eigenmesh.methods.diskpca.estimator import residual_claim
from eigenmesh.numerics.arrays import Floats, Rows, working_dtype
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.shortfall import Shortfall, nothing_missing
from eigenmesh.progress_bar import rows_shown
from eigenmesh.runtime.federation import Federation

_OF_INNER = (
    "eigenvalues_",
    "explained_variance_ratio_",
    "total_variance_",
    "residual_",
    "gamma_",
    "n_features_in_",
)
_SHORTFALL = ("shortfalls_", "shortfall_", "shortfall_error_")
_OPTIONAL = (
    "landmark_residual_",
    "leverage_skew_",
    "n_samples_seen_",
    "residual_error_",
    *_SHORTFALL,
)


class FittedKernelPCA(FrontDoor):
    """The half of `KernelPCA` that comes after fit."""

    kernel: Any
    degree: float
    coef0: float
    kernel_params: dict[str, Any] | None
    alpha: float
    _sample_weight: Any = None  # while fit runs
    fit_inverse_transform: bool
    center: bool
    verbose: bool
    accuracy: float
    n_jobs: int | None

    shortfalls_: Any
    shortfall_: float | None
    shortfall_error_: float | None
    model_: Any  # an ExactModel, a LandmarkModel, or None where `estimator_` is used
    preimages_: Preimages | None
    sums_: StreamSums | None
    _stream: LandmarkStream | None
    _last_transform: list[RunReport]

    def _progress_shown(self) -> AbstractContextManager[None]:
        return rows_shown("kernel PCA", self.verbose)

    # What was fitted.

    def _adopt(self, model: Model, gamma: float | None, words: str) -> None:
        self._forget()
        self.model_ = model
        self.method_ = words
        self.gamma_ = gamma
        self.eigenvalues_ = model.eigenvalues
        self.total_variance_ = model.total
        self.residual_ = model.residual
        # Rows that do not differ have no variance to explain a share of.
        self.explained_variance_ratio_ = model.eigenvalues / (model.total or 1.0)
        self.n_samples_seen_ = model.n_rows
        self.residual_error_ = 0.0
        self._adopt_shortfall(nothing_missing(len(model.eigenvalues)))
        if isinstance(model, LandmarkModel):
            self.n_features_in_ = int(model.landmarks.shape[1])

    def _adopt_landmark_facts(self, outside: float, error: float, skew: float | None) -> None:
        """What of the rows lies outside the landmarks' span, and how well their mean is known."""
        self.landmark_residual_ = outside
        self.residual_error_ = error
        self.leverage_skew_ = skew

    def _adopt_shortfall(self, missing: Shortfall) -> None:
        self.shortfalls_ = missing.values
        self.shortfall_ = missing.largest
        self.shortfall_error_ = missing.error
        self._missing_in_words: tuple[str, ...] = ()

    def _adopt_estimator(self, estimator: Any, words: str) -> None:
        self._forget()
        for name in _SHORTFALL:
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
        kernel, model, alpha = self._pairwise(self.gamma_), self.model_, float(self.alpha)
        if isinstance(model, ExactModel):
            self.preimages_ = Preimages.exact(kernel, model.fitted_scores, X, alpha)
            return
        # The landmarks alone stand for all rows, n/q each; alpha is weighed against all rows.
        alpha *= X.shape[0] / model.n_rows
        anchors = model.transform(model.landmarks)
        self.preimages_ = Preimages.from_landmarks(kernel, anchors, model.transform, X, alpha)

    def _pairwise(self, gamma: float | None) -> PairwiseKernel:
        params = dict(self.kernel_params or {})
        return PairwiseKernel(self.kernel, gamma, self.degree, self.coef0, params, self.n_jobs)

    @property
    def _claim(self) -> str:
        return residual_claim(self.residual_, self.residual_error_, self._sample_weight is not None)

    def _report_alone(self, seconds: float) -> None:
        """The account of rows in one place: nothing was sent."""
        model = self.model_
        after = model.next_eigenvalue
        known = after is not None and len(model.eigenvalues) and model.eigenvalues[-1] > 0
        caveats = missing_gap(model.eigenvalues, after) if known else ()
        caveats += self._missing_in_words
        if model.total == 0:
            caveats = (NO_VARIANCE,)
        self.report_ = RunReport(
            floats_up=0,
            floats_down=0,
            bytes=0,
            rounds=0,
            seconds=seconds,
            by_step={},
            by_party={"party-0": 0},
            reveals={},
            parties=("party-0",),
            lost={},
            reused={},
            dropped={},
            stop_reason="all rows are accounted for",
            baseline_floats=model.n_rows * self.n_features_in_,
            notes=(*caveats, self._claim),
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=4)

    def _say_what_is_missing(self) -> None:
        """Of methods that measure it and do not judge it, or that cannot measure it."""
        if self.model_ is not None or hasattr(self.estimator_, "max_features"):
            return  # landmarks have said it
        if self.shortfall_ is None:
            if getattr(self.estimator_, "exact_", True):
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
        warnings.warn(f"{words}: {name},{why}{remedy}", EigenmeshWarning, stacklevel=4)

    # Using it.

    def transform(self, X: Any) -> Any:
        """Scores: an array for an array, a list for a Partitioned of rows, lazily for Dask arrays.

        Blocks from an iterator give an iterator. Only columns split over parties take messages.
        """
        check_is_fitted(self)
        if isinstance(X, Iterator):
            return (self.transform(block) for block in X)
        if self.estimator_ is not None:
            return self.estimator_.transform(X)
        if isinstance(X, Partitioned):
            return [_scores(part, self.model_) for part in self._rows_in_order(X).parts]
        if is_dask_collection(X):
            X = frame_in_order(X, self._known_names)
            self._require_width(X, X.shape[1])
            return _lazily(self.model_, X)
        if isinstance(X, Federation):
            raise InputError(
                "transform got a federation of rows; who has the model scores its own rows: give "
                "it to each party, as a file, and pass its rows to transform there"
            )
        rows = self._checked(X, reset=False)
        with self._progress_shown():
            scores = self.model_.transform(rows)
        return scores.astype(rows.dtype, copy=False)

    def _require_width(self, X: Any, width: int) -> None:
        if width != self.n_features_in_:
            raise InputError(
                f"the new data are {X!r}; rows of {self.n_features_in_} features are expected"
            )

    def inverse_transform(self, X: Any, *, party: str | None = None) -> Any:
        """Rows for scores, by kernel ridge regression as scikit-learn does it.

        It is fitted to all rows where they are in one array, and to the landmarks alone where the
        rows are split or come in blocks.
        """
        check_is_fitted(self)
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
        Z = np.asarray(X)
        rows = self.preimages_(Z)
        return rows.astype(Z.dtype, copy=False) if Z.dtype == np.float32 else rows

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
        return [*super()._saved_names(), *(name for name in _OPTIONAL if hasattr(self, name))]

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


def _lazily(model: Any, X: Any) -> Any:
    """Scores of a Dask array or DataFrame, computed where its chunks lie, when asked for."""
    array = X.to_dask_array() if hasattr(X, "to_dask_array") else X
    k, dtype = len(model.eigenvalues), working_dtype(array)
    return array.rechunk({1: -1}).map_blocks(
        _scores, model=model, dtype=dtype, chunks=(array.chunks[0], (k,)), meta=np.empty((0, k))
    )


def _scores(block: Rows, model: Any) -> Floats:
    scores: Floats = model.transform(block).astype(working_dtype(block), copy=False)
    return scores
