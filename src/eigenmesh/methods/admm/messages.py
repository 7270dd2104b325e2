"""What decentralised kernel PCA sends, and what a run of it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from eigenmesh.graphs.consensus import MixingSetup
from eigenmesh.runtime.message import Floats, Message, NonNegative, Positive, Reveals, Shape
from eigenmesh.runtime.records import record
from eigenmesh.stages.row_messages import RowBlock

AUTO = 0.0  # the penalty that stands for the largest that any node needs
STARTS = ("neighbours", "own", "random")


class AdmmSetup(MixingSetup, reveals=None):
    """`penalty` is a number, or 0 for "auto"; `penalties`, if not empty, take its place."""

    n_components: Annotated[int, Positive]
    penalty: Annotated[float, NonNegative]
    penalties: str  # as `maths.in_words` writes a schedule
    corrections: Annotated[int, NonNegative]  # of each z-step
    start: str  # one of STARTS
    unit_ball: bool
    center: bool
    root: int
    seed: int


class Coefficients(Message, reveals="eigenvectors"):
    """α and, for the constraint that ties sender and receiver, K⁺B; empty if there is none."""

    alpha: Annotated[Floats, Shape("n", "k")]
    multiplier: Annotated[Floats, Shape("n", "k")]


class Projections(Message, reveals="scores"):
    """φ(X_l)ᵀz of the receiver's rows X_l; empty if there is nothing to say."""

    values: Annotated[Floats, Shape("n", "k")]


class Reference(RowBlock, reveals="rows"):
    """The components of the pooled rows, for comparison: rows and coefficients."""

    coefficients: Annotated[Floats, Shape("m", "k"), Reveals("eigenvectors")]


class NodeCount(Message, reveals=None):
    """How many nodes there are."""

    n_nodes: Annotated[int, Positive]


class Change(Message, reveals="moments"):
    """How far any node's z has moved in this iteration: the sine of the angle."""

    change: Annotated[float, NonNegative]


class Similarity(Message, reveals="moments"):
    """Cosines of the principal angles of w and of z with the reference, and the most for w."""

    local: Annotated[Floats, Shape("k")]
    consensus: Annotated[Floats, Shape("k")]
    ceiling: Annotated[Floats, Shape("k")]


class Outcome(Message, reveals="moments", covers="joint"):
    """What a node knows of the whole."""

    eigenvalues: Annotated[Floats, Shape("k")]
    next_eigenvalue: float
    total: float
    n_rows: int
    penalty: float
    gap: float
    pooled_rows: float
    aligned: bool
    off_centre: Annotated[Floats, Shape("k")]  # share of each variance that was the origin's
    change: Annotated[float, NonNegative]  # of the node's own z, in its last iteration
    least_change: Annotated[float, NonNegative]  # in any iteration


@record
@dataclass(frozen=True)
class AdmmResult:
    """What all nodes know; their models stay in their stores."""

    outcome: Outcome
    changes: tuple[tuple[float, float], ...]  # by node, of z in the last iteration, and the least
    similarities: tuple[Mapping[str, Similarity], ...]  # by iteration, from the start; then by node
    parties: tuple[str, ...]
    stop_reason: str
