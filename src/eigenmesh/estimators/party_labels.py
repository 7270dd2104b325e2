"""Clusters of rows that parties hold: their labels stay with them, and new rows get theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from eigenmesh.data import Partitioned
from eigenmesh.errors import InputError, MissingPartyShare
from eigenmesh.estimators.party_values import AtSite, is_plain, of_sites
from eigenmesh.estimators.rows import RowEstimator
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.kmeans import nearest
from eigenmesh.runtime.federation import Federation


class PartyLabels(ClusterMixin, RowEstimator):
    """Base of k-means estimators: centres in the coordinates that `transform` gives."""

    cluster_centers_: Doubles

    def _own_labels(self, fed: Federation, key: str, X: Any) -> Any:
        """The labels that this process can see, of X or by party; they were not sent."""
        labels = of_sites(fed, key, "labels")
        for name in fed.left_out.keys() & labels.keys():  # at their own site, by the others' model
            site = fed.local_sites().get(name)
            own = None if site is None else self._nearest(self._scores(site.data))
            labels[name] = AtSite(name, "labels") if own is None else own
        shown = [own if isinstance(own, AtSite) else whole_labels(own) for own in labels.values()]
        return shown[0] if is_plain(X) else shown

    @property
    def labels_(self) -> Any:
        """Clusters of the rows that were fitted."""
        check_is_fitted(self)
        if not hasattr(self, "_labels"):
            raise MissingPartyShare(
                "labels are the parties' own and are not saved with the model; predict gives them"
            )
        return self._labels

    def predict(self, X: Any) -> Any:
        """The nearest cluster of each row; a list for rows split over parties. Nothing is sent."""
        if isinstance(X, Federation):
            raise InputError(
                "X is a Federation; rows are expected: of those that its parties hold, the "
                "clusters are in labels_ after fit"
            )
        scores = self.transform(X)
        if isinstance(X, Partitioned):
            return [self._nearest(own) for own in scores]
        return self._nearest(scores)

    def _nearest(self, scores: Any) -> Any:
        labels, _ = nearest(np.asarray(scores, dtype=np.float64), self.cluster_centers_)
        return whole_labels(labels)


def whole_labels(labels: Any) -> Any:
    """Labels in the type that scikit-learn's k-means gives them."""
    return np.asarray(labels).astype(np.int32)
