"""The ledger: every message once, at its sender. The only place where traffic is counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

COORDINATOR = "coordinator"


class Entry(NamedTuple):
    """One message. `kinds` maps what it revealed to the floats that revealed it."""

    round: int
    step: str
    sender: str
    receiver: str
    kinds: Mapping[str, int]
    floats: int
    bytes: int
    relayed: bool = False

    @property
    def kind(self) -> str:
        """What it revealed, as one word."""
        return "+".join(self.kinds)


@dataclass
class Ledger:
    """Messages in the order in which they were recorded, and the number of rounds."""

    entries: list[Entry] = field(default_factory=list)
    rounds: int = 0

    def record(self, entry: Entry) -> None:
        """Add a message."""
        self.entries.append(entry)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    @property
    def floats_down(self) -> int:
        """Floats that the coordinator sent."""
        return sum(e.floats for e in self.entries if e.sender == COORDINATOR)

    @property
    def floats_up(self) -> int:
        """Floats that parties sent, to the coordinator or to each other."""
        return sum(e.floats for e in self.entries if e.sender != COORDINATOR)

    @property
    def bytes(self) -> int:
        """Bytes of all messages in wire form."""
        return sum(e.bytes for e in self.entries)

    def floats_by(self, key: Callable[[Entry], str]) -> dict[str, int]:
        """Floats of all messages, grouped."""
        sums: dict[str, int] = defaultdict(int)
        for entry in self.entries:
            sums[key(entry)] += entry.floats
        return dict(sums)

    def revealed(self) -> dict[str, dict[str, int]]:
        """Per party, the kinds that left it and the floats of each."""
        return revealed(self.entries)


def revealed(entries: Iterable[Entry]) -> dict[str, dict[str, int]]:
    """Per sender other than the coordinator, the kinds that left it and the floats of each."""
    sums: dict[str, dict[str, int]] = {}
    for entry in entries:
        if entry.sender == COORDINATOR:
            continue
        kinds = sums.setdefault(entry.sender, {})
        for kind, floats in entry.kinds.items():
            kinds[kind] = kinds.get(kind, 0) + floats
    return sums
