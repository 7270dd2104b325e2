"""What estimators over row partitions share: taking rows in any form, and scoring new ones."""

from __future__ import annotations

from typing import Any, overload

from sklearn.utils.validation import check_is_fitted

from eigenmesh.connect import is_dask_collection
from eigenmesh.data import Partitioned
from eigenmesh.data.table import Table
from eigenmesh.errors import InputError
from eigenmesh.estimators.base import FederatedEstimator
from eigenmesh.estimators.checks import whole_number
from eigenmesh.numerics.arrays import Doubles, Floats, Rows, Samples
from eigenmesh.runtime.federation import Federation


class RowEstimator(FederatedEstimator):
    """Base of estimators over rows: who has the model can score any rows; nothing is sent."""

    _split = "rows"

    def _source(self, X: Any) -> Any:
        """What a federation opens: split data as they are, a plain array as one checked party."""
        if isinstance(X, Federation | Partitioned) or is_dask_collection(X):
            self._take_names(X)
            return X
        table = Table(self._checked(X, reset=True, min_samples=2))
        return Partitioned.from_tables("rows", [table])

    def _require_rows(self, fed: Federation) -> None:
        if fed.split != "rows":
            name = type(self).__name__
            raise InputError(f"the parties hold columns; {name} needs rows: Partitioned(rows=)")

    def _wanted(self) -> int | None:
        """How many components are wanted; None for as many as there are."""
        k = self.n_components
        return None if k is None else whole_number(k, "n_components")

    def _scores(self, X: Rows) -> Doubles:
        """Scores (n, k) of checked rows."""
        scores: Doubles = self.model_.transform(X)
        return scores

    @overload
    def transform(self, X: Samples) -> Floats: ...
    @overload
    def transform(self, X: Any) -> Any: ...
    def transform(self, X: Any) -> Any:
        """Scores of rows: an array for an array, a list of arrays for rows split over parties.

        Who has the model can score rows of its own; nothing is sent.
        """
        check_is_fitted(self)
        if isinstance(X, Partitioned):
            return [self._scores(part) for part in self._rows_in_order(X).parts]
        rows = self._checked(X, reset=False)
        return self._scores(rows).astype(rows.dtype, copy=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
