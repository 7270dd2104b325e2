"""Scores that stay at their site (`stages/site_points.py`), and the landmarks they come from."""

from __future__ import annotations

from typing import Annotated, Any

from eigenmesh.numerics.arrays import Rows
from eigenmesh.runtime.message import Floats, Message, Shape
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


def kept_landmarks(share: Any) -> Rows:
    """The landmarks that scores in a store come from."""
    return unpack(RowBlock(**share["landmarks"]))
