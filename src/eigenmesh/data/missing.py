"""Columns with too many gaps, left out by their owner before anything is fitted."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigenmesh.data.table import is_frame
from eigenmesh.errors import InputError


def drop_missing(X: Any, most: float) -> Any:
    """X without the columns of which more than the share `most` is missing (NaN).

    For columns that parties hold, each owner does it to its own; fill the gaps that are left with
    `fill_missing=`. An array comes back as an array, a DataFrame of pandas as one. Of rows that
    parties hold, all must drop the same columns: `em.Preparation` names those that lack too much.

    >>> X = np.array([[1.0, np.nan], [2.0, np.nan], [np.nan, 3.0]])
    >>> drop_missing(X, 0.5)
    array([[ 1.],
           [ 2.],
           [nan]])
    """
    if isinstance(most, bool) or not 0 <= float(most) <= 1:
        raise InputError(f"most is {most!r}; a share from 0 to 1 is expected")
    if is_frame(X):
        present = X.isna().mean(axis=0).to_numpy() <= most
        return X.loc[:, present]
    values = np.asarray(X)
    if values.ndim != 2:
        raise InputError(f"X has {values.ndim} dimensions, 2 are expected")
    return values[:, np.isnan(values).mean(axis=0) <= most]
