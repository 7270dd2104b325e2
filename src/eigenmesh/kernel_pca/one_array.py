"""Fitting rows that are in one place: by their whole kernel matrix, or through landmarks."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from numbers import Real
from typing import Any, Self, cast

import numpy as np
from sklearn.utils.metaestimators import available_if

from eigenmesh.data import Partitioned
from eigenmesh.data.table import Table
from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.accuracy import caveats_of
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import components_asked
from eigenmesh.estimators.kernel_gamma import kernel_gamma
from eigenmesh.kernel_pca.choose_landmarks import (
    EXACT_RATHER,
    LANDMARK_KERNELS,
    MOST_LANDMARKS,
    Choice,
    choose_pooled,
    default_landmarks,
    landmarks_for,
)
from eigenmesh.kernel_pca.exact import ExactModel
from eigenmesh.kernel_pca.scoring import FittedKernelPCA
from eigenmesh.kernel_pca.streams import ROWS_A_LANDMARK, LandmarkStream
from eigenmesh.kernel_pca.variance_share import explaining
from eigenmesh.methods.diskpca.estimator import DisKPCA
from eigenmesh.methods.diskpca.landmark_growth import ROUNDING
from eigenmesh.numerics import kernels
from eigenmesh.numerics.arrays import Rows, is_sparse, require_moderate
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.shortfall import Shortfall, unprobed_shortfall
from eigenmesh.stages.coverage import Coverage


def _adds_up(estimator: PooledKernelPCA) -> bool:
    if estimator.kernel in LANDMARK_KERNELS:
        return True
    raise AttributeError(_only_landmarks(estimator.kernel))


def _only_landmarks(kernel: Any) -> str:
    return (
        f"kernel is {kernel!r}; blocks of rows add up over landmarks: method 'auto' or 'diskpca' "
        f"is expected, and one of the kernels {', '.join(LANDMARK_KERNELS)}"
    )


class PooledKernelPCA(FittedKernelPCA):
    """The part of `KernelPCA` that needs no parties."""

    n_components: int | float | None
    gamma: float | str | None
    eigen_solver: str
    tol: float
    max_iter: int | None
    iterated_power: int | str
    remove_zero_eig: bool
    random_state: Any
    copy_X: bool  # noqa: N815 - scikit-learn's name
    method: str
    n_landmarks: int | None
    landmarks: Any
    accuracy: float

    def _check_parameters(self) -> None:
        raise NotImplementedError

    def _fit_pooled(self, X: Rows) -> Self:
        started = time.perf_counter()
        choice = self._pooled_choice(X.shape[0])
        if choice.name == "exact":
            self._fit_exact(X, choice)
        elif self.landmarks_are_given:
            if self._sample_weight is not None:
                raise InputError(
                    "sample_weight is given beside landmarks= as rows; None is expected, or a "
                    "choice of landmarks by name"
                )
            return self._fit_blocks(iter([X]))
        else:
            self._fit_landmarks(X, choice)
            if self._would_rather_be_exact(X):
                why = f"{self.landmarks_.shape[0]:,} landmarks of {X.shape[0]:,} rows miss too much"
                self._fit_exact(X, Choice("exact", why))
        self._fit_preimages(X)
        self._report_alone(time.perf_counter() - started)
        return self

    def _pooled_choice(self, n_rows: int) -> Choice:
        return choose_pooled(
            self.method,
            self.kernel,
            n_rows,
            wants_landmarks=self.n_landmarks is not None or self.landmarks_are_given,
            eigen_solver=self.eigen_solver,
        )

    @property
    def landmarks_are_given(self) -> bool:
        """Whether `landmarks` are rows, and not a way to choose them."""
        return not isinstance(self.landmarks, str)

    def _pooled_gamma(self, X: Rows) -> float:
        """Gamma as a number; where the kernel has none, what scikit-learn would state."""
        if isinstance(self.gamma, str) and self._kernel_uses_gamma:
            with self._opened(one_party(X)) as fed:
                found = kernel_gamma(fed, self.kernel, self.gamma, seed_of(self.random_state))
            return float(found or 0.0)
        return float(self.gamma) if isinstance(self.gamma, Real) else 1 / int(X.shape[1])

    @property
    def _kernel_uses_gamma(self) -> bool:
        return isinstance(self.kernel, str) and (
            self.kernel in kernels.KERNELS and kernels.KERNELS[self.kernel].uses_gamma
        )

    def _kernel_of(self, gamma: float) -> Kernel:
        used = gamma if self._kernel_uses_gamma else None
        return Kernel(self.kernel, used, self.degree, self.coef0)

    def _would_rather_be_exact(self, X: Rows) -> bool:
        """Whether landmarks that were not asked for miss too much, of rows that are not many."""
        unasked = self.method == "auto" and self.n_landmarks is None and self.landmarks == "auto"
        few = X.shape[0] <= EXACT_RATHER and self.n_components is not None
        return unasked and few and bool(self._missing_in_words)

    # The whole kernel matrix.

    def _fit_exact(self, X: Rows, choice: Choice) -> None:
        share, k = components_asked(self.n_components)
        gamma = self._pooled_gamma(X)
        kernel = self._pairwise(gamma)
        rows = X.copy() if self.copy_X and kernel.name != "precomputed" else X
        solver = {
            # A share needs the whole spectrum, which only "dense" gives.
            "eigen_solver": self.eigen_solver if share is None else "dense",
            "tol": self.tol,
            "max_iter": self.max_iter,
            "iterated_power": self.iterated_power,
            "remove_zero_eig": self.remove_zero_eig,
            "random_state": self.random_state,
            "copy_X": self.copy_X,
        }
        weights = self._sample_weight
        model = ExactModel.fit(kernel, rows, k, bool(self.center), solver, weights)
        self._adopt(model if share is None else explaining(model, share), gamma, str(choice))

    # Landmarks.

    def _fit_landmarks(self, X: Rows, choice: Choice) -> None:
        share, k = components_asked(self.n_components)
        fitted, why = self._drawn_from(X, k, bool(self.center), accurate=True)
        model = fitted.model_ if share is None else explaining(fitted.model_, share)
        self._adopt(model, self._stated_gamma(fitted.model_), f"{choice}; {why}")
        self._adopt_facts_of(fitted)

    def _adopt_facts_of(self, fitted: DisKPCA) -> None:
        facts = fitted.landmark_residual_, fitted.residual_error_, fitted.leverage_skew_
        self._adopt_landmark_facts(*facts)
        self._adopt_shortfall(Shortfall(fitted.shortfalls_, fitted._shortfall_errors))
        self._missing_in_words = fitted._missing_in_words

    def _growth(self, q: int) -> dict[str, Any]:
        """How DisKPCA is to see to the accuracy: given numbers, of either kind, stay."""
        grows = self.n_landmarks is None and self.n_components is not None
        return {"accuracy": self.accuracy, "max_landmarks": MOST_LANDMARKS if grows else q}

    def _drawn_from(
        self, X: Rows, k: int | None, center: bool, accurate: bool = False
    ) -> tuple[DisKPCA, str]:
        """DisKPCA fitted to rows in one place, and why with these landmarks."""
        gamma, q = self._pooled_gamma(X), self.n_landmarks
        q = default_landmarks(k, self.kernel, X.shape[1]) if q is None else q
        landmarks, why = self.landmarks, f"the landmarks are {self.landmarks!r}, as asked for"
        if landmarks == "auto":
            seed, kernel = seed_of(self.random_state), self._kernel_of(gamma)
            landmarks, why = landmarks_for(kernel, X, q, k or 10, seed)
        estimator = DisKPCA(
            k,
            kernel=self.kernel,
            gamma=gamma,
            degree=cast(Any, self.degree),
            coef0=self.coef0,
            n_landmarks=q,
            landmarks=landmarks,
            center=center,
            random_state=self.random_state,
            **(self._growth(q) if accurate else {}),
        )
        estimator._variance_share = components_asked(self.n_components)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EigenmeshWarning)  # given again with the report
            weights = self._sample_weight if accurate else None
            return estimator.fit(one_party(X), sample_weight=weights), why

    def _stated_gamma(self, model: LandmarkModel) -> float:
        gamma = model.kernel.gamma
        return 1 / int(model.landmarks.shape[1]) if gamma is None else float(gamma)

    # Blocks.

    @available_if(_adds_up)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Take up a block of rows; the landmarks stay once 20 rows a landmark have been seen.

        Given `landmarks` stay from the start. Gamma by a rule comes from the same first rows.
        """
        self._check_parameters()
        started = time.perf_counter()
        going_on = getattr(self, "_stream", None)
        block = self._checked(X, reset=going_on is None)
        stream = self._new_stream(block) if going_on is None else going_on
        with self._progress_shown():
            stream.add(block)
        self._adopt_stream(stream)
        self._report_alone(time.perf_counter() - started)
        return self

    def _fit_blocks(self, blocks_of_rows: Iterator[Any]) -> Self:
        started = time.perf_counter()
        stream: LandmarkStream | None = None
        for given in blocks_of_rows:
            block = self._checked(given, reset=stream is None)
            stream = stream or self._new_stream(block)
            stream.add(block)
        if stream is None:
            raise InputError("the iterator gave no block of rows; at least one is expected")
        self._adopt_stream(stream)
        self._report_alone(time.perf_counter() - started)
        return self

    def _new_stream(self, block: Rows) -> LandmarkStream:
        if self.kernel not in LANDMARK_KERNELS or self.method not in ("auto", "diskpca"):
            raise InputError(f"method is {self.method!r}; {_only_landmarks(self.kernel)}")
        if self.landmarks_are_given:
            return self._stream_of_given(block)
        q = self.n_landmarks
        if q is None:
            _, k = components_asked(self.n_components)
            q = default_landmarks(k, self.kernel, block.shape[1])
        return LandmarkStream(self._first_landmarks, ROWS_A_LANDMARK * q)

    def _first_landmarks(self, rows: Rows) -> DisKPCA:
        return self._drawn_from(rows, None, False)[0]  # landmarks do not hang on the centre

    def _stream_of_given(self, block: Rows) -> LandmarkStream:
        Y = self.landmarks if is_sparse(self.landmarks) else np.asarray(self.landmarks)
        if Y.ndim != 2 or Y.shape[1] != block.shape[1] or Y.dtype.kind not in "biuf":
            raise InputError(
                f"landmarks have shape {Y.shape}; numbers of shape (q, {block.shape[1]}) are "
                f"expected, a landmark a row"
            )
        require_moderate(Y, "landmarks=")
        kernel = self._kernel_of(self._pooled_gamma(block))
        return LandmarkStream.resumed(kernel, Y.astype(block.dtype), None)

    def _adopt_stream(self, stream: LandmarkStream) -> None:
        share, k = components_asked(self.n_components)
        found = stream.model(k, bool(self.center))
        model = found.model
        whence = "given" if self.landmarks_are_given else "from the first rows"
        words = f"diskpca: rows add up block by block; the landmarks are {whence}"
        self._adopt(
            model if share is None else explaining(model, share), self._stated_gamma(model), words
        )
        self._adopt_landmark_facts(found.outside, found.error, None)
        q, kept = int(model.landmarks.shape[0]), self.eigenvalues_
        every = q >= model.n_rows or found.outside <= ROUNDING * model.total
        missing = unprobed_shortfall(kept, 0.0 if every else found.outside, q)
        self._adopt_shortfall(missing)
        asked = self.n_components is not None
        coverage = Coverage(missing, {}, ())
        self._missing_in_words = caveats_of(coverage, self.accuracy, q, "given", asked)
        self._fit_preimages(model.landmarks)
        self._stream, self.sums_ = stream, stream.sums


def one_party(X: Rows) -> Partitioned:
    """Checked rows as those of a single party."""
    return Partitioned.from_tables("rows", [Table(X)])
