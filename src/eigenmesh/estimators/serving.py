"""Models of landmarks as scikit-learn's own objects, which serve where this library is not.

A score is k(x, Y) `coefficients` − `offset`: a Nystroem map whose components are the landmarks Y
and whose normalization is the coefficients, then a shift. Nothing of the fit's data but the
landmarks is in it. `onnx_graph` makes ONNX of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from eigenmesh.errors import InputError
from eigenmesh.estimators.onnx_graph import as_onnx
from eigenmesh.numerics.landmarks import LandmarkModel


class Served:
    """A mixin of estimators whose model may be one of landmarks."""

    def to_sklearn(self) -> Pipeline:
        """The model as a Pipeline of scikit-learn's classes, with the same scores.

        For models of landmarks (`method="diskpca"`), without a `preparation` and with a kernel that
        scikit-learn has. The landmarks are in it: means of rows, or rows.

        >>> import numpy as np, eigenmesh as em
        >>> X = np.random.default_rng(0).normal(size=(80, 4))
        >>> kpca = em.DisKPCA(2, kernel="rbf", gamma=0.1, random_state=0).fit(X)
        >>> bool(np.allclose(kpca.to_sklearn().transform(X), kpca.transform(X), atol=1e-10))
        True
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        return as_pipeline(
            getattr(self, "model_", None), getattr(self, "preparation_", None), names
        )

    def to_onnx(self) -> bytes:
        """The model as an ONNX file's bytes: input "X", float32 rows; output their scores.

        Of what `to_sklearn` takes, without the Laplacian kernel. Needs
        ``pip install 'eigenmesh[onnx]'``.
        """
        return as_onnx(self.to_sklearn())


SERVED_KERNELS = ("linear", "poly", "rbf", "laplacian", "cosine")  # that scikit-learn has, too


def as_pipeline(model: Any, preparation: Any, names: Any) -> Pipeline:
    """Nystroem and StandardScaler, as if fitted; `names` are the columns', None for none."""
    if not isinstance(model, LandmarkModel):
        kind = "made by another method" if model is None else f"a {type(model).__name__}"
        raise InputError(
            f"to_sklearn is of models of landmarks, and this is {kind}; fit with "
            "method='diskpca', or save the model and load it where it serves"
        )
    if preparation is not None:
        raise InputError(
            "the model has a preparation of its own, which scikit-learn has no class for; prepare "
            "the rows before fit, e.g. by StandardScaler, or save the model"
        )
    if model.kernel.name not in SERVED_KERNELS:
        raise InputError(
            f"scikit-learn has no kernel {model.kernel.name!r}; choose one of "
            f"{', '.join(SERVED_KERNELS)}, or save the model"
        )
    return Pipeline([("kernel", _kernel_map(model, names)), ("shift", _shift(model))])


def _kernel_map(model: LandmarkModel, names: Any) -> Nystroem:
    kernel, (n_landmarks, width) = model.kernel, model.landmarks.shape
    of_products = {"degree": kernel.degree, "coef0": kernel.coef0} if kernel.name == "poly" else {}
    gamma = kernel.gamma if kernel.uses_gamma else None
    mapped = Nystroem(kernel.name, gamma=gamma, n_components=n_landmarks, **of_products)
    mapped.components_ = model.landmarks
    mapped.component_indices_ = np.arange(n_landmarks)
    mapped.normalization_ = model.coefficients.T
    mapped.n_features_in_ = width
    if names is not None:
        mapped.feature_names_in_ = np.asarray(names, dtype=object)
    mapped._n_features_out = model.coefficients.shape[1]
    return mapped


def _shift(model: LandmarkModel) -> StandardScaler:
    shift = StandardScaler(with_std=False)
    shift.mean_, shift.var_, shift.scale_ = model.offset, None, None
    shift.n_features_in_ = len(model.offset)
    shift.n_samples_seen_ = model.n_rows
    return shift
