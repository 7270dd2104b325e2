"""Names that a fit keeps, of parties and of their columns, and new data put in their order."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from eigenmesh.data import Partitioned
from eigenmesh.data.column_names import columns_in_order, parties_by_columns
from eigenmesh.data.partitioned import checked_names
from eigenmesh.data.table import frame_names, is_arrow_frame, is_frame, numbers_in_order
from eigenmesh.runtime.federation import Federation

Names = tuple[str, ...]
FIT = "the fit"  # whose names new data are held against, in errors


def columns_of(source: Any) -> dict[str, Names | None]:
    """The columns' names of each party, as far as this process knows them without asking."""
    if isinstance(source, Partitioned):
        return dict(zip(source.names, source.feature_names, strict=True))
    if isinstance(source, Federation):
        columns = source.column_names()
        return {party: columns.get(party) for party in source.parties}
    names = frame_names(source) if is_frame(source) else None  # a Dask collection
    return {f"party-{i}": names for i in range(getattr(source, "npartitions", 1))}


def whole_names(split: str, columns: Mapping[str, Names | None]) -> Names | None:
    """The names of all columns: one party's of rows, all parties' in their order of columns."""
    named = [names for names in columns.values() if names is not None]
    if split == "rows":
        return named[0] if named else None
    if not named or len(named) < len(columns):
        return None
    return tuple(name for names in named for name in names)


def frame_in_order(X: Any, names: Any) -> Any:
    """A DataFrame with its columns in the order of these names; other names are refused."""
    own: Names | None = None
    if is_arrow_frame(X):  # of polars, or a table of Arrow's
        own = tuple(X.column_names if hasattr(X, "column_names") else X.columns)
    elif is_frame(X):
        X = numbers_in_order(X)
        own = frame_names(X)
    if own is None or names is None:
        return X
    order = columns_in_order(own, tuple(names), None, FIT)
    if not is_arrow_frame(X) and not all(isinstance(name, str) for name in X.columns):
        X = X.set_axis(list(own), axis=1)  # scikit-learn would find no names
    if order is None:
        return X
    return X.select([own[i] for i in order]) if is_arrow_frame(X) else X.iloc[:, order]


def rows_in_order(parts: Partitioned, names: Any) -> Partitioned:
    """Rows of parties with their columns in the order of these names, if both have names."""
    if names is None:
        return parts
    return parts.arrange(dict.fromkeys(parts.names, tuple(names)), FIT)


def renamed_by_columns(parts: Partitioned, names: Mapping[str, Names | None]) -> Partitioned:
    """Parties without names of their own, under the names of those whose columns they have."""
    if parts.names != checked_names(None, parts.n_parties):
        return parts
    own = dict(zip(parts.names, parts.feature_names, strict=True))
    matches = parties_by_columns(own, names)
    return parts if matches is None else parts.rename(matches)


def columns_of_parties_in_order(
    parts: Partitioned, names: Mapping[str, Names | None], estimator: str
) -> Partitioned:
    """Columns of parties, each in the order of its names in the fit."""
    nameless = (n for n, own in zip(parts.names, parts.feature_names, strict=True) if own is None)
    if any(names.get(name) is not None for name in nameless):
        warn_nameless(estimator)
    return parts.arrange(names, FIT)


def warn_nameless(estimator: str) -> None:
    """scikit-learn's own words, for data that it does not see."""
    warnings.warn(
        f"X does not have valid feature names, but {estimator} was fitted with feature names",
        UserWarning,
        stacklevel=4,
    )


def as_array(names: Names | None) -> Any:
    """The form that scikit-learn keeps names in."""
    return None if names is None else np.asarray(names, dtype=object)
