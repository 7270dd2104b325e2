"""Where the traffic of a run went: by round, and by link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from eigenmesh.estimators.disclosure import NEIGHBOURS
from eigenmesh.runtime.entries import LinkTotal
from eigenmesh.runtime.ledger import COORDINATOR, Ledger

PARTIES = "parties"
MOST_LINKS = 5000  # by name; a model file must not grow with the square of the parties


@dataclass(frozen=True)
class Link:
    """What went one way between two: `sender` and `receiver` are parties, or the coordinator."""

    sender: str
    receiver: str
    floats: int
    bytes: int


@dataclass(frozen=True)
class Traffic:
    """Floats and bytes of a run.

    Attributes
    ----------
    floats_by_round, bytes_by_round : the first entry is what was sent before the first question.
    links : all that carried a message; beyond 5,000 only how much went each way: "parties" to
        "coordinator" or "neighbours", "coordinator" to "parties".
    """

    floats_by_round: tuple[int, ...] = ()
    bytes_by_round: tuple[int, ...] = ()
    links: tuple[Link, ...] = ()

    @classmethod
    def of(cls, ledger: Ledger) -> Self:
        """Of all that a ledger has."""
        floats, sizes = ledger.entries.by_round(ledger.rounds)
        return cls(floats, sizes, _links(ledger.entries.by_link()))

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Self:
        """One that was written to a file."""
        numbers = {name: tuple(tree[name]) for name in ("floats_by_round", "bytes_by_round")}
        return cls(**numbers, links=tuple(Link(**link) for link in tree["links"]))


def _links(totals: Iterable[LinkTotal]) -> tuple[Link, ...]:
    links = tuple(Link(*total) for total in totals)
    if len(links) <= MOST_LINKS:
        return links
    ways: dict[tuple[str, str], list[Link]] = {}
    for link in links:
        ways.setdefault(_way(link), []).append(link)
    return tuple(
        Link(*way, sum(link.floats for link in some), sum(link.bytes for link in some))
        for way, some in ways.items()
    )


def _way(link: Link) -> tuple[str, str]:
    if link.sender == COORDINATOR:
        return COORDINATOR, PARTIES
    return PARTIES, COORDINATOR if link.receiver == COORDINATOR else NEIGHBOURS
