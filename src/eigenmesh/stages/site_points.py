"""Rows as points in their site's store, for whatever works there next, and the rows' weights.

Under the key that a study names a site keeps {"points": scores (n, k)}, with "weights" (n,) if its
rows have any, and what else the next run needs of those who put them there.
"""

from __future__ import annotations

from typing import Any, Protocol

from eigenmesh.errors import InputError
from eigenmesh.runtime.message import Floats
from eigenmesh.runtime.site import SiteView


class PointKeys(Protocol):
    """Keys of a site's own store: where points shall be, and the rows' weights are; or empty."""

    @property
    def scores(self) -> str:
        """Of the points."""

    @property
    def weights(self) -> str:
        """Of the weights."""


def keep_points(site: SiteView, setup: PointKeys, points: Floats, **besides: Any) -> None:
    """Put rows as points into the site's store, with their weights where the site has any."""
    if setup.weights:
        besides["weights"] = weights_of(site, setup.weights)
    site.keep(setup.scores, {"points": points, **besides})


def weights_of(site: SiteView, key: str) -> Any:
    """The weights of the site's rows, one a row."""
    weights = (site.kept(key, "weights") or {}).get("weights", ())
    n, n_weights = int(site.data.shape[0]), len(weights)
    if n != n_weights:
        raise InputError(
            f"party {site.name!r} has {n} rows and {n_weights} weights; one a row is expected",
            party=site.name,
        )
    return weights
