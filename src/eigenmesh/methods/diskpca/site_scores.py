"""Scores that stay at their site: who asks for them, and how they lie in its store.

Under the key that a study names a site keeps {"points": scores (n, k)}, with "weights" (n,) if its
rows have any, and the "landmarks" that the scores come from, for whoever works there next.
"""

from __future__ import annotations

from typing import Annotated, Any

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import Rows
from eigenmesh.runtime.message import Floats, Message, Shape
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_messages import KernelSetup, RowBlock, unpack


class LandmarkSetup(KernelSetup, reveals=None):
    """Keys of a site's own store: where scores shall be, and the rows' weights are; or empty."""

    scores: str = ""
    weights: str = ""


class ScoredComponents(Message, reveals="gram"):
    """Scores are k(x, Y) `coefficients` − `offset`; the receiver holds Y."""

    coefficients: Annotated[Floats, Shape("q", "k")]
    offset: Annotated[Floats, Shape("k")]
    eigenvalues: Annotated[Floats, Shape("k")]


def keep_points(site: SiteView, setup: LandmarkSetup, points: Floats, **besides: Any) -> None:
    """Put rows as points into the site's store, with their weights where the site has any."""
    if setup.weights:
        besides["weights"] = weights_of(site, setup.weights)
    site.keep(setup.scores, {"points": points, **besides})


def weights_of(site: SiteView, key: str) -> Any:
    """The weights of the site's rows, one a row."""
    weights = (site.kept(key) or {}).get("weights", ())
    n, n_weights = int(site.data.shape[0]), len(weights)
    if n != n_weights:
        raise InputError(
            f"party {site.name!r} has {n} rows and {n_weights} weights; one a row is expected",
            party=site.name,
        )
    return weights


def kept_landmarks(kept: Any) -> Rows:
    """The landmarks that scores in a store come from."""
    return unpack(RowBlock(**kept["landmarks"]))
