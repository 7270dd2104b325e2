"""Sharing out a number of draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def allocate(
    masses: Sequence[float], most: Sequence[int], count: int, rng: np.random.Generator
) -> list[int]:
    """How many of `count` draws fall to each party; none gets more than its `most`.

    >>> allocate([1.0, 0.0, 3.0], [5, 5, 2], 4, np.random.default_rng(0))
    [2, 0, 2]
    """
    room = np.array(most)
    draws = np.zeros(len(room), dtype=int)
    weights = np.asarray(masses, dtype=float)
    while count and (weights * room).any():
        chances = np.where(room > 0, weights, 0.0)
        share = np.minimum(rng.multinomial(count, chances / chances.sum()), room)
        draws, room, count = draws + share, room - share, count - int(share.sum())
    return draws.tolist()
