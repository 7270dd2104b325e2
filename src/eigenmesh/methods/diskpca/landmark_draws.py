"""Landmarks on their way: how many each party draws, and to whom they are new."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np

from eigenmesh.numerics.allocation import allocate
from eigenmesh.numerics.arrays import Rows
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Message, NonNegative, Reveals
from eigenmesh.runtime.party import Step
from eigenmesh.stages.row_messages import RowBlock, by_party, pack, stack, unpack
from eigenmesh.stages.unit_check import compare_units


class LandmarkShare(Message, reveals=None):
    """How many rows a party is to draw."""

    n_rows: Annotated[int, NonNegative]


class NewLandmarks(RowBlock, reveals="rows"):
    """Landmarks of the other parties; `before` of them come before the receiver's own."""

    before: Annotated[int, Reveals("counts"), NonNegative]


class Chosen(NamedTuple):
    """Landmarks, and what each party has not seen of them."""

    Y: Rows
    unseen: dict[str, NewLandmarks]
    skew: float | None
    n_values: int  # that shipping every row would take
    share: float  # of the rows, to be looked at from outside the span; 0 if all are landmarks
    sizes: dict[str, int]  # rows of each party
    most: dict[str, int]  # landmarks that each can give
    left: dict[str, int]  # how many more

    @property
    def unheard(self) -> tuple[str, ...]:
        """Parties that can give none."""
        return tuple(name for name, most in self.most.items() if not most)


def masses_of(replies: Mapping[str, Any], known: Collection[str]) -> dict[str, float]:
    """By party, the mass that it said; a party that missed an earlier round stays out."""
    return {name: reply.mass for name, reply in replies.items() if name in known}


def draw_from(
    rows: Federation,
    draw: Step,
    masses: Mapping[str, float],
    left: Mapping[str, int],
    count: int,
    rng: np.random.Generator,
) -> dict[str, Rows]:
    """Rows from the parties in proportion to their masses, at most as many as each has left."""
    counts = allocate(list(masses.values()), [left[name] for name in masses], count, rng)
    asked = {name: LandmarkShare(n_rows=k) for name, k in zip(masses, counts, strict=True)}
    fresh = {name: unpack(r) for name, r in by_party(rows.ask(draw, each=asked)).items()}
    compare_units(rows, fresh, means=draw.name == "local_centroids")
    return fresh


def new_to_each(fresh: Mapping[str, Rows]) -> dict[str, NewLandmarks]:
    """To each party what the others drew; it holds its own."""
    drawn = stack(list(fresh.values()))
    all_of_them = NewLandmarks(**pack(drawn), before=0)  # one for all who drew none: they are many
    messages, before = {}, 0
    for name, own in fresh.items():
        after = before + own.shape[0]
        if after == before:
            messages[name] = all_of_them
        else:
            others = stack([drawn[:before], drawn[after:]])
            messages[name] = NewLandmarks(**pack(others), before=before)
        before = after
    return messages
