"""Rows on a device: its sums follow from all of them there, all else from some of them here.

What comes to main memory are rows drawn uniformly, by which gamma, landmarks and what these miss
are known as of an array, and sums of q × q. Few rows all come, and are fitted as an array.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.estimators.base import seed_of
from eigenmesh.kernel_pca.exact import ExactModel
from eigenmesh.kernel_pca.one_array import ComponentFit, pooled_choice, require_sums_suit
from eigenmesh.kernel_pca.sampled_fit import (
    LandmarkStart,
    landmarks_from,
    sample_size,
    sampled_components,
)
from eigenmesh.kernel_pca.streams import ROWS_A_LANDMARK, LandmarkStream, StreamSums
from eigenmesh.numerics.arrays import Floats
from eigenmesh.numerics.device_rows import TO_MAIN_MEMORY, DeviceRows
from eigenmesh.numerics.device_sums import (
    DeviceSampler,
    device_landmark_sums,
    device_moments,
    device_scores,
)
from eigenmesh.numerics.gamma_rules import Moments
from eigenmesh.numerics.kernels import KERNELS, UNIT_NORM, Kernel
from eigenmesh.numerics.landmark_sums import Span
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import SAMPLE_ROWS, OutsideView, RowSampler

_SEED = 0  # of the random features, as of a stream's


@dataclass(frozen=True)
class DeviceSample:
    """Rows on a device, and some of them, drawn uniformly, in main memory."""

    device_rows: DeviceRows
    rows: Floats  # (m, d)
    n_candidates: int  # rows of which landmarks are made
    seed: int

    @classmethod
    def of(cls, kpca: Any, X: DeviceRows) -> DeviceSample:
        """As many as a `KernelPCA` takes for landmarks; or for gamma alone."""
        seed, weighs_alike = seed_of(kpca.random_state), kpca.kernel in UNIT_NORM
        q = len(kpca.landmarks) if kpca.landmarks_are_given else kpca.n_landmarks
        count = sample_size(q, X.shape[1])
        if weighs_alike and q is not None:
            count = max(ROWS_A_LANDMARK * q, SAMPLE_ROWS)  # landmarks stay so many
        n, few = X.shape[0], count if weighs_alike else min(count, SAMPLE_ROWS)
        if count >= n:
            return cls(X, X.here(slice(0, n)), n, seed)
        places = np.random.default_rng(seed).choice(n, few, replace=False)
        return cls(X, X[places], count, seed)

    def candidates(self, kernel: Kernel) -> Floats:
        """The same rows where all weigh alike, else those that carry most are drawn more often."""
        if kernel.is_level or self.is_all:
            return self.rows
        sampler = DeviceSampler(kernel, self.device_rows)
        return sampler.distinct(self.n_candidates, np.random.default_rng((self.seed, 1)))

    def looks(self, kernel: Kernel) -> RowSampler:
        """Draws of their own: rows that landmarks were made of lie nearer to their span."""
        if self.is_all:
            return RowSampler(kernel, self.rows)
        return DeviceSampler(kernel, self.device_rows)

    @property
    def n_rows(self) -> int:
        """Of all."""
        return self.device_rows.shape[0]

    @property
    def is_all(self) -> bool:
        """Whether every row is here."""
        return len(self.rows) == self.n_rows

    @cached_property
    def moments(self) -> Moments:
        """Of all rows."""
        return device_moments(self.device_rows)


def is_fitted_here(kpca: Any, sample: DeviceSample) -> bool:
    """Whether the rows are so few that the fit is that of an array; what must be is refused."""
    is_exact = pooled_choice(kpca, sample.n_rows).name == "exact"
    if sample.is_all and (is_exact or not kpca.landmarks_are_given):
        return True
    if is_exact:
        raise InputError(
            f"X has {sample.n_rows:,} rows on {sample.device_rows.device}, and method="
            f"{kpca.method!r}, eigen_solver={kpca.eigen_solver!r}, kernel={kpca.kernel!r} take the "
            f"whole kernel matrix, which is solved in main memory; pass the rows there "
            f"({TO_MAIN_MEMORY}), or take landmarks"
        )
    return False


def fit_device(kpca: Any, sample: DeviceSample) -> tuple[ComponentFit, LandmarkStream]:
    """The components, with the parameters of a `KernelPCA`, and what more rows may be added to."""
    require_sums_suit(kpca)
    start = landmarks_from(kpca, sample)
    start.stream.sums = _sums_of(sample, start)
    words = f"{sample.n_rows:,} rows on {sample.device_rows.device}"
    return sampled_components(kpca, sample, start, words), start.stream


def _sums_of(sample: DeviceSample, start: LandmarkStart) -> StreamSums:
    """Inside the landmarks' span of all rows, outside by some of those that are here."""
    kernel, Y = start.stream.kernel, start.stream.landmarks
    assert kernel is not None  # there are landmarks
    span, rng = Span.of(kernel, Y), np.random.default_rng((sample.seed, 2))
    inside = device_landmark_sums(sample.device_rows, Y, span)
    most = min(SAMPLE_ROWS, sample.n_rows)
    return StreamSums(
        inside, OutsideView.of(span, _SEED).sums_alone(sample.looks(kernel), rng, most)
    )


def scores_there(model: Any, X: DeviceRows) -> Any | None:
    """Scores of rows by a model of landmarks or of all rows, on the device; None of others."""
    if isinstance(model, ExactModel):
        model = _by_all_rows(model)
    return device_scores(model, X) if isinstance(model, LandmarkModel) else None


def _by_all_rows(model: ExactModel) -> LandmarkModel | None:
    """The same scores by kernel values with every row; None of kernels that only arrays have."""
    if not isinstance(model.kernel.name, str) or model.kernel.name not in KERNELS:
        return None
    own = model.kernel
    kernel = Kernel(own.name, own.gamma, own.degree, own.coef0)
    W, n = model.score_weights, model.n_rows
    offset = np.zeros(W.shape[1])
    if model.means is not None:
        # A row's own mean is k(x, X) times the rows' shares: it goes into the weights.
        shares = np.full(n, 1 / n) if model.means.weights is None else model.means.weights
        offset = (model.means.columns - model.means.overall) @ W
        W = W - np.outer(shares, W.sum(axis=0))
    after = model.next_eigenvalue or 0.0
    return LandmarkModel(kernel, model.rows, W, offset, model.eigenvalues, after, model.total, n)
