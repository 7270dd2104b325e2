"""What really leaves parties in a run: every reply that the coordinator decodes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.runtime.federation import Federation


class Overheard(NamedTuple):
    """A reply."""

    party: str
    step: str
    message: Any


@contextmanager
def overheard(replies: list[Overheard]) -> Iterator[None]:
    """Note all replies of the runs inside."""
    received = Federation._received

    def noting(self: Federation, i: int, answer: Any, step: Any) -> Any:
        message = received(self, i, answer, step)
        if message is not None:
            replies.append(Overheard(self._names[i], step.name, message))
        return message

    Federation._received = noting  # type: ignore[method-assign]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        Federation._received = received  # type: ignore[method-assign]


def messages_of(replies: list[Overheard], party: str, step: str) -> list[Any]:
    """What a party answered to a step."""
    return [reply.message for reply in replies if (reply.party, reply.step) == (party, step)]


def moved_onto(points: Any, known: Any, targets: Any) -> Any:
    """All points by the rigid motion that takes the known ones onto their targets (Procrustes)."""
    width = max(points.shape[1], targets.shape[1])
    P = np.pad(points, ((0, 0), (0, width - points.shape[1])))
    T = np.pad(targets, ((0, 0), (0, width - targets.shape[1])))
    centre, target_centre = P[known].mean(axis=0), T.mean(axis=0)
    U, _, Vt = np.linalg.svd((P[known] - centre).T @ (T - target_centre))
    return ((P - centre) @ U @ Vt + target_centre)[:, : targets.shape[1]]


def relative_error(guess: Any, truth: Any) -> float:
    """Of guesses, in the spread of what they guess."""
    spread = np.linalg.norm(truth - truth.mean(axis=0))
    return float(np.linalg.norm(guess - truth) / spread)
