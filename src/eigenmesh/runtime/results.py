"""What asking and running give: replies, sums, recordings, runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

import numpy as np

from eigenmesh.errors import PartyLost
from eigenmesh.runtime.ledger import Recording
from eigenmesh.runtime.records import record
from eigenmesh.runtime.statements import in_short

R = TypeVar("R")


@record
@dataclass(frozen=True)
class Replies(Sequence[Any]):
    """Replies in party order, and the names of the parties they came from."""

    messages: tuple[Any, ...]
    parties: tuple[str, ...]

    @overload
    def __getitem__(self, item: int) -> Any: ...
    @overload
    def __getitem__(self, item: slice) -> Sequence[Any]: ...
    def __getitem__(self, item: int | slice) -> Any:
        return self.messages[item]

    def __len__(self) -> int:
        return len(self.messages)


@record
@dataclass(frozen=True)
class Total:
    """A sum of replies, and the names of the parties it covers.

    Where it was masked, `units` are what each party's fields of floats were rounded to.
    """

    sum: Any
    parties: tuple[str, ...]
    units: Mapping[str, float] = field(default_factory=dict)

    def rounding(self, name: str) -> float:
        """The standard deviation that rounding has given a field."""
        return self.units.get(name, 0.0) * float(np.sqrt(len(self.parties) / 12))


def require_all_stayed(before: Total, after: Total, remedy: str) -> None:
    """That two sums are of the same parties, where those of some and of fewer make no answer.

    A protocol that begins anew does so; of masked sums a second would tell who has left.
    """
    still_in = set(after.parties)
    gone = [name for name in before.parties if name not in still_in]
    if gone:
        raise PartyLost(
            f"{in_short(gone)} left between two sums over all parties, which no longer go "
            f"together; {remedy}"
        )


@record
@dataclass(frozen=True)
class Run(Generic[R]):
    """What a protocol gave, what it cost, whom it covers and why it stopped."""

    value: R
    recording: Recording
    parties: tuple[str, ...]
    lost: Mapping[str, str]  # who is out, and why
    reused: Mapping[str, int]  # how often an older message of a party stood in for a missing one
    dropped: Mapping[str, int]  # how often a neighbour went on without a party's message
    stop_reason: str
    facts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by party, of itself
    last_try: Recording | None = None  # what the answer came of, if the run began anew on the way
