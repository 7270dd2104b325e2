"""What a fitted `KernelKMeans` does, whichever way it was fitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigenmesh.data import Partitioned
from eigenmesh.errors import InputError
from eigenmesh.estimators.accuracy import SHORTFALL
from eigenmesh.estimators.base import require_no_iterator
from eigenmesh.estimators.columns import ColumnEstimator
from eigenmesh.estimators.front_door import FrontDoor
from eigenmesh.estimators.party_labels import PartyLabels
from eigenmesh.estimators.party_values import values_by_party, weight_array
from eigenmesh.numerics.arrays import as_rows, dense
from eigenmesh.numerics.cluster_means import squared_distances
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.kmeans import nearest
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.runtime.federation import Federation


class FittedKernelKMeans(FrontDoor, PartyLabels):
    """The half of `KernelKMeans` that comes after fit."""

    estimator_: Any  # a `KernelPCA` that scores samples, or None where `model_` does

    @property
    def _over_columns(self) -> bool:
        return self.estimator_ is not None and isinstance(
            self.estimator_.estimator_, ColumnEstimator
        )

    def transform(self, X: Any) -> Any:
        """Scores of rows: an array for an array, a list of arrays for rows split over parties.

        Who has the model can score rows of its own, and nothing is sent. Of samples whose columns
        are split every party sends one message, and the scores are one array.
        """
        check_is_fitted(self)
        require_no_iterator(X)
        return super().transform(X) if self.estimator_ is None else self.estimator_.transform(X)

    def predict(self, X: Any) -> Any:
        """The nearest cluster: a list for rows split over parties, else an array."""
        check_is_fitted(self)
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
        return -sum(float(w @ self._distances(A, Z)) for A, Z, w in each)

    def _party_weights(self, X: Partitioned, scores: list[Any], sample_weight: Any) -> list[Any]:
        sizes = {name: len(own) for name, own in zip(X.names, scores, strict=True)}
        if sample_weight is None:
            return [np.ones(n) for n in sizes.values()]
        return list(values_by_party(sample_weight, sizes, "sample_weight"))

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
            kernel, Y = self.model_.kernel, as_rows(self.model_.landmarks, np.float64)
            return means.distances(kernel, as_rows(X, np.float64), Y, labels)
        if self.estimator_ is None and not isinstance(self.model_, LandmarkModel):
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
        kept = [name for name in (*own, "_means", *SHORTFALL) if hasattr(self, name)]
        return [*super()._saved_names(), *kept]
