"""What decentralised kernel PCA sends, and what a run of it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from eigenmesh.graphs.consensus import MixingSetup
from eigenmesh.runtime.message import Floats, Message, NonNegative, Positive, Reveals, Shape
from eigenmesh.runtime.records import record
from eigenmesh.stages.row_messages import RowBlock

AUTO, PAPER = 0.0, -1.0  # penalties that stand for a rule


class AdmmSetup(MixingSetup, reveals=None):
    """`penalty` is a number, or 0 for "auto" and −1 for the paper's own schedule."""

    n_components: Annotated[int, Positive]
    penalty: float
    corrections: Annotated[int, NonNegative]  # of each z-step
    pooled_start: bool
    center: bool
    root: int


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
    """Of w and of z with the reference, and the most that w can reach."""

    local: float
    consensus: float
    ceiling: float


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
    similarities: tuple[tuple[Similarity, ...], ...]  # by iteration, from the start; then by node
    parties: tuple[str, ...]
    stop_reason: str
