"""What an owner does to its columns at its site, before a protocol sees them."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigenmesh.errors import InputError, PartitionError
from eigenmesh.numerics.arrays import Rows, as_rows, blocks, is_sparse
from eigenmesh.numerics.column_preparation import ColumnPreparation
from eigenmesh.runtime.site import SiteView


def preparation_of(site: SiteView, setup: Any) -> ColumnPreparation | None:
    """As a setup's `standardize` and `fill_missing` say; a column that will not do is an error."""
    if not setup.standardize and setup.fill_missing is None:
        _require_values(site)
        return None
    try:
        return ColumnPreparation.of(site.data, setup.standardize, setup.fill_missing)
    except InputError as error:
        raise PartitionError(f"party {site.name!r}: {error.reason}", party=site.name) from None


def _require_values(site: SiteView) -> None:
    """Data may have been let in with values missing, for an estimator that fills them."""
    X = site.data
    for rows in blocks(X.shape[0]):
        values = X[rows].data if is_sparse(X) else X[rows]
        if np.isnan(values).any():
            raise PartitionError(
                f"party {site.name!r} has missing values (NaN), expected none; pass "
                f"fill_missing=share, the most that a column may lack, or impute them first",
                party=site.name,
            )


def prepared_columns(site: SiteView, setup: Any) -> tuple[ColumnPreparation | None, Rows]:
    """What is done to a site's columns, and the columns after it."""
    preparation = preparation_of(site, setup)
    if preparation is None:
        return None, as_rows(site.data, np.float64)
    return preparation, preparation.apply(site.data)
