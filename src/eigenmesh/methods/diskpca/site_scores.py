"""What is agreed on beside the kernel; and scores that stay at their site with their landmarks."""

from __future__ import annotations

from typing import Annotated, Any

from eigenmesh.numerics.arrays import Rows
from eigenmesh.runtime.compact import EXACT
from eigenmesh.runtime.message import Floats, InBits, Message, NonNegative, Shape
from eigenmesh.stages.row_messages import KernelSetup, RowBlock, unpack

RANK_BY_RULE = 0


class LandmarkSetup(KernelSetup, reveals=None):
    """How what is sent is made small, and keys of a site's own store; these may be empty.

    `gram_rank` is in how many leading directions of the landmarks' span rows are added up,
    RANK_BY_RULE for as many as matter, None for all. `bits` are those of landmarks.
    """

    scores: str = ""  # where they shall be
    weights: str = ""  # where the rows' are
    gram_rank: Annotated[int | None, NonNegative] = None
    bits: Annotated[int, InBits] = EXACT


class ScoredComponents(Message, reveals="gram"):
    """Scores are k(x, Y) `coefficients` − `offset`; the receiver holds Y."""

    coefficients: Annotated[Floats, Shape("q", "k")]
    offset: Annotated[Floats, Shape("k")]
    eigenvalues: Annotated[Floats, Shape("k")]


def kept_landmarks(share: Any) -> Rows:
    """The landmarks that scores in a store come from."""
    return unpack(RowBlock(**share["landmarks"]))
