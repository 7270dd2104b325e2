"""`set_output` where scores are those of several parties; scikit-learn's knows one array."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
import sklearn
from sklearn.base import TransformerMixin

from eigenmesh.data import Partitioned
from eigenmesh.data.spark_rows import is_spark
from eigenmesh.errors import InputError


class FramesByParty(TransformerMixin):
    """A transformer whose scores of split rows are a list, of frames if `set_output` says so."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        own = {
            name: vars(cls)[name] for name in ("transform", "fit_transform") if name in vars(cls)
        }
        super().__init_subclass__(**kwargs)  # wraps both for one array
        for name, method in own.items():
            setattr(cls, name, _by_party(method, vars(cls)[name]))


def _by_party(method: Callable[..., Any], of_one_array: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def scored(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        # Of scores, each of which has been through here; or of what Spark has not computed yet.
        if isinstance(X, Iterator) or is_spark(X):
            return method(self, X, *args, **kwargs)
        if isinstance(X, Partitioned):
            scores = method(self, X, *args, **kwargs)
            require_finite_scores(scores)
            return _frames(self, scores, X)
        scores = of_one_array(self, X, *args, **kwargs)
        require_finite_scores(scores)
        return scores

    return scored


def require_finite_scores(scores: Any) -> None:
    """Rows that are finite may have kernel values with others that are not."""
    for own in scores if isinstance(scores, list) else [scores]:
        if isinstance(own, np.ndarray) and not np.isfinite(own).all():
            raise InputError(
                "the scores of some rows are not finite: their kernel values overflow; rescale "
                "the columns before fit and here, or convert float32 to float64"
            )


def _frames(estimator: Any, scores: Any, parts: Partitioned) -> Any:
    library = _library(estimator)
    if library == "default":
        return scores
    ids = parts.matched().sample_ids
    names = list(estimator.get_feature_names_out())
    if not isinstance(scores, list):
        return _frame(library, scores, names, None if ids is None else ids[0])
    each = [None] * len(scores) if ids is None else ids
    return [_frame(library, own, names, index) for own, index in zip(scores, each, strict=True)]


def _library(estimator: Any) -> str:
    own = getattr(estimator, "_sklearn_output_config", {})
    return str(own.get("transform", sklearn.get_config()["transform_output"]))


def _frame(library: str, scores: Any, names: list[str], ids: Any) -> Any:
    frame = importlib.import_module(library).DataFrame
    values = np.asarray(scores)  # an estimator behind this one may have put them into a frame
    return frame(values, names) if library == "polars" else frame(values, ids, names)
