"""What the front doors share: the work may be that of an estimator behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from eigenmesh.estimators.base import FederatedEstimator, estimator_from_tree


class FrontDoor(FederatedEstimator):
    """Saves and loads `estimator_` with itself: the fitted one behind the door, or None."""

    estimator_: Any

    def _tree(self) -> dict[str, Any]:
        tree = super()._tree()
        if self.estimator_ is not None:
            tree["fitted"]["estimator_"] = self.estimator_._tree()
        return tree

    @classmethod
    def _from_tree(cls, tree: dict[str, Any]) -> Self:
        loaded = super()._from_tree(tree)
        if loaded.estimator_ is not None:
            loaded.estimator_ = estimator_from_tree(loaded.estimator_)
            loaded._last_transform = loaded.estimator_._last_transform
        return loaded

    def _save_shares(self, path: str | Path) -> None:
        if self.estimator_ is None:
            super()._save_shares(path)  # which says that there are none
        self.estimator_._save_shares(path)

    def _load_shares(self, path: str | Path) -> None:
        if self.estimator_ is not None:
            self.estimator_._load_shares(path)
