"""What a fitted `KernelKMeans` does, whichever way it was fitted."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from eigenmesh.estimators.base import require_no_iterator
from eigenmesh.estimators.column_estimator import ColumnEstimator
from eigenmesh.estimators.front_door import FrontDoor
from eigenmesh.estimators.party_labels import PartyLabels


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
        own = ["_labels"] if self._over_columns and hasattr(self, "_labels") else []
        return [*super()._saved_names(), *own]  # labels of rows are their parties'
