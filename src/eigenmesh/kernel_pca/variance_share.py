"""As many components as a share of the variance takes."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.kernel_pca.exact import ExactModel
from eigenmesh.numerics.landmarks import LandmarkModel

Model = TypeVar("Model", ExactModel, LandmarkModel)

NO_VARIANCE = (
    "the rows do not differ in feature space: every eigenvalue is 0 but for rounding; check that "
    "the rows differ, and gamma if there is one"
)


def cut(model: Model, k: int) -> Model:
    """The first k components of a model."""
    kept: dict[str, Any] = {"eigenvalues": model.eigenvalues[:k]}
    if len(model.eigenvalues) > k:
        kept["next_eigenvalue"] = float(model.eigenvalues[k])
    if isinstance(model, ExactModel):
        kept["eigenvectors"] = model.eigenvectors[:, :k]
    else:
        kept["coefficients"], kept["offset"] = model.coefficients[:, :k], model.offset[:k]
    return dataclasses.replace(model, **kept)


def explaining(model: Model, share: float) -> Model:
    """The fewest of all components that explain at least `share` of the variance."""
    if model.total == 0:
        raise InputError(f"n_components is {share}, a share of the variance, but {NO_VARIANCE}")
    explained = np.cumsum(model.eigenvalues) / model.total
    enough = np.flatnonzero(explained >= share - 1e-12)
    if not len(enough):
        reached = float(explained[-1]) if len(explained) else 0.0
        raise InputError(
            f"n_components is {share}: all {len(explained)} components that the landmarks span "
            f"explain {reached:.4f} of the variance; ask for less, or raise n_landmarks"
        )
    return cut(model, int(enough[0]) + 1)
