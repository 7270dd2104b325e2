"""The ledger: every message once, at its sender. The only place where traffic is counted."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from eigenmesh.runtime.entries import Entries
from eigenmesh.runtime.entries import Entry as Entry
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.records import record

COORDINATOR = "coordinator"


def step_label(step: Step) -> str:
    """The name of a step in the ledger."""
    return f"{step.role.__name__}.{step.name}"


@record
@dataclass
class Ledger:
    """Messages in the order in which they were recorded, and the number of rounds."""

    entries: Entries = field(default_factory=Entries)
    rounds: int = 0

    @classmethod
    def of(cls, entries: Iterable[Entry], rounds: int = 0) -> Self:
        """With these messages."""
        return cls(Entries(entries), rounds)

    def extend(self, later: Ledger) -> None:
        """And what another one has."""
        self.entries += later.entries
        self.rounds += later.rounds

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @property
    def floats_down(self) -> int:
        """Floats that the coordinator sent."""
        return sum(t.floats for t in self.entries.totals() if t.sender == COORDINATOR)

    @property
    def floats_up(self) -> int:
        """Floats that parties sent, to the coordinator or to each other."""
        return sum(t.floats for t in self.entries.totals() if t.sender != COORDINATOR)

    @property
    def bytes(self) -> int:
        """Bytes of all messages in wire form."""
        return self.entries.bytes

    def by_step(self) -> dict[str, int]:
        """Floats by step; messages that tell of nobody's data, such as setups, are no step."""
        sums: dict[str, int] = defaultdict(int)
        for total in self.entries.totals():
            if total.kinds:
                sums[total.step] += total.floats
        return dict(sums)

    def by_party(self, parties: Iterable[str]) -> dict[str, int]:
        """Floats that each party sent, for these parties and all others that sent any."""
        sums = dict.fromkeys(parties, 0)
        for total in self.entries.totals():
            if total.sender != COORDINATOR:
                sums[total.sender] = sums.get(total.sender, 0) + total.floats
        return sums

    def revealed(self) -> dict[str, dict[str, int]]:
        """Per party, the kinds that left it and the floats of each."""
        sums: dict[str, dict[str, int]] = {}
        for total in self.entries.totals():
            if total.sender == COORDINATOR:
                continue
            kinds = sums.setdefault(total.sender, {})
            for kind, floats in total.kinds.items():
                kinds[kind] = kinds.get(kind, 0) + floats * total.messages
        return sums


@record
@dataclass(eq=False)
class Recording:
    """What passed while a recording was on."""

    ledger: Ledger = field(default_factory=Ledger)
    seconds: float = 0.0


class Books:
    """Enters every message into the innermost recording; when that ends, into the one around it."""

    def __init__(self) -> None:
        self.rounds = 0
        self._recordings: list[Recording] = []

    @property
    def idle(self) -> bool:
        """Whether no recording is on."""
        return not self._recordings

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Record the ledger and the seconds of everything inside."""
        recording = Recording()
        self._recordings.append(recording)
        started = time.perf_counter()
        try:
            yield recording
        finally:
            recording.seconds = time.perf_counter() - started
            self._recordings.remove(recording)
            self._put(recording.ledger)

    def absorb(self, ledger: Ledger) -> None:
        """Take over what another process has recorded of the run that both are part of."""
        self.rounds += ledger.rounds
        self._put(ledger)

    def _put(self, ledger: Ledger) -> None:
        """All at once, after what the innermost recording has."""
        if self._recordings:
            own = self._recordings[-1].ledger
            own.entries.extend_later(ledger.entries, own.rounds)
            own.rounds += ledger.rounds

    def new_round(self) -> None:
        """Count a round."""
        self.rounds += 1
        if self._recordings:
            self._recordings[-1].ledger.rounds += 1

    def enter(
        self,
        step: str,
        sender: str,
        receiver: str,
        kinds: Mapping[str, int],
        size: int,
        relayed: bool = False,
    ) -> None:
        """Enter one message of `size` bytes."""
        if self._recordings:
            ledger, way = self._recordings[-1].ledger, (step, sender, receiver)
            floats, key = sum(kinds.values()), tuple(kinds.items())
            ledger.entries.enter(ledger.rounds, *way, key, floats, size, relayed)
