"""Deterministic faults around the hosts of any engine, on a stated schedule.

An engine wraps each host that it starts; the wrapper loses, delays, repeats, damages or silences
what passes through it. Nothing else in the federation knows that it is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.runtime import wire
from eigenmesh.runtime.requests import MASK_ROUNDS

FAULTS = ("lose", "delay", "duplicate", "stale", "corrupt", "kill")
_ROUNDS = {"step", "sum", *MASK_ROUNDS}
LINK_FAULTS = ("lose", "stale", "corrupt")  # what can befall a message on its way to one neighbour


class GuardedHost(Protocol):
    """A host as an engine sees it. None instead of a reply means that none will come."""

    def handle(self, request: bytes) -> bytes | None:
        """Answer a request of the coordinator."""

    def offer(self, request: bytes) -> tuple[bytes | None, Mapping[int, bytes] | None]:
        """First half of an exchange; no outbox if it failed."""

    def accept(self, request: bytes, inbox: Mapping[int, bytes]) -> bytes | None:
        """Second half of an exchange."""


@dataclass(frozen=True)
class Fault:
    """One line of a schedule of faults, for tests and rehearsals.

    Parameters
    ----------
    kind : "lose" the reply, "delay" it by `seconds`, "duplicate" the request, answer with the
        "stale" reply of the round before, "corrupt" a byte of the reply, or "kill" the party.
        In an exchange the party's messages to its neighbours take the place of the reply.
    party : whom it befalls; None for everybody.
    to : the neighbour on whose link it befalls: "lose", "stale" or "corrupt" the party's messages
        to that neighbour and to no other, in exchanges only; None for all that the party sends.
    round : at which of the party's rounds, from 1; None for each.
    share : the share of such occasions on which it happens, drawn from `seed` for each party, and
        for each link that is named.

    Examples
    --------
    >>> import eigenmesh as em
    >>> parts = em.split([[i / 7] for i in range(20)], n_parties=4, random_state=0)
    >>> cut = [em.Fault("lose", "party-0", to="party-1", share=0.5)]
    >>> with em.federation(parts, topology="full", on_loss="survivors", faults=cut) as fed:
    ...     em.GossipKPCA(1).fit(fed).report_.parties
    ('party-0', 'party-1', 'party-2', 'party-3')
    """

    kind: str
    party: str | None = None
    round: int | None = None
    share: float = 1.0
    seconds: float = 0.0
    seed: int = 0
    to: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in FAULTS:
            raise InputError(f"fault {self.kind!r} is unknown; expected one of {', '.join(FAULTS)}")
        if self.to is not None and self.kind not in LINK_FAULTS:
            raise InputError(
                f"fault {self.kind!r} on the link to {self.to!r}; a link can "
                f"{', '.join(LINK_FAULTS)}: leave `to` out, or lose all that passes"
            )

    def draws(self, party: str) -> np.random.Generator:
        """Whether it happens, occasion by occasion: draws of this party, or of its link."""
        link = () if self.to is None else (len(party), *self.to.encode())
        return np.random.default_rng([self.seed, *party.encode(), *link])


class _NamedHost(GuardedHost, Protocol):
    @property
    def party(self) -> str:
        """Name of the site."""


def with_faults(
    faults: Sequence[Fault], names: Sequence[str] = ()
) -> Callable[[_NamedHost], FaultyHost]:
    """What an engine applies to each of its hosts; `names` are those of all parties, in order."""
    return lambda host: FaultyHost(host, faults, names)


class FaultyHost:
    """A host whose traffic suffers the faults of a schedule."""

    def __init__(
        self, host: _NamedHost, faults: Sequence[Fault], names: Sequence[str] = ()
    ) -> None:
        self._host = host
        self._numbers = {name: i for i, name in enumerate(names)}
        self._faults = [fault for fault in faults if fault.party in (None, host.party)]
        # What is certain draws nothing: a schedule may have thousands of faults, each of one round.
        self._draws = {
            i: fault.draws(host.party) for i, fault in enumerate(self._faults) if fault.share < 1
        }
        self._by_round: dict[int | None, list[int]] = {}
        for i, fault in enumerate(self._faults):
            self._by_round.setdefault(fault.round, []).append(i)
        self._round = 0
        self._dead = False
        self._last_reply: bytes | None = None
        self._last_outbox: Mapping[int, bytes] = {}

    @property
    def party(self) -> str:
        """Name of the site."""
        return self._host.party

    def handle(self, request: bytes) -> bytes | None:
        """A round of the schedule is one that the coordinator counts; the rest passes."""
        due, _ = self._due() if wire.loads(request)["op"] in _ROUNDS else ({}, ())
        if self._dead:
            return None
        reply = self._host.handle(request)
        if "duplicate" in due:
            self._host.handle(request)
        stale, self._last_reply = self._last_reply, reply
        self._sleep(due)
        if "lose" in due:
            return None
        if "stale" in due:
            return stale
        return _damage(reply) if "corrupt" in due else reply

    def offer(self, request: bytes) -> tuple[bytes | None, Mapping[int, bytes] | None]:
        """A round of the schedule; its faults befall the messages to the neighbours."""
        due, on_links = self._due()
        if self._dead:
            return None, None
        reply, outbox = self._host.offer(request)
        if "duplicate" in due:
            self._host.offer(request)
        self._sleep(due)
        if outbox is None:
            return reply, None
        stale, self._last_outbox = self._last_outbox, outbox
        everywhere = [(kind, list(outbox)) for kind in LINK_FAULTS if kind in due][:1]
        on_one = [(fault.kind, [self._numbers[str(fault.to)]]) for fault in on_links]
        for kind, receivers in everywhere + on_one:
            outbox = _befall(outbox, stale, kind, receivers)
        return reply, outbox

    def accept(self, request: bytes, inbox: Mapping[int, bytes]) -> bytes | None:
        """Passes, unless the party is dead."""
        return None if self._dead else self._host.accept(request, inbox)

    def _due(self) -> tuple[dict[str, Fault], Sequence[Fault]]:
        """The faults of this round: by kind those of the party, and those of its links. Every draw
        is made, so that a schedule does not depend on what happened before.
        """
        self._round += 1
        happens = {i: draw.random() < self._faults[i].share for i, draw in self._draws.items()}
        numbers = sorted(self._by_round.get(None, []) + self._by_round.get(self._round, []))
        due = [self._faults[i] for i in numbers if happens.get(i, True)]
        own = {fault.kind: fault for fault in due if fault.to is None}
        self._dead = self._dead or "kill" in own
        return own, [fault for fault in due if fault.to is not None]

    def _sleep(self, due: Mapping[str, Fault]) -> None:
        if "delay" in due:
            time.sleep(due["delay"].seconds)


def _befall(
    outbox: Mapping[int, bytes], stale: Mapping[int, bytes], kind: str, receivers: Sequence[int]
) -> dict[int, bytes]:
    """The outbox after what befell the messages to these receivers."""
    intact = {to: message for to, message in outbox.items() if to not in receivers}
    if kind == "lose":
        return intact
    source = stale if kind == "stale" else outbox
    receipts = {to: source[to] for to in receivers if to in source and to in outbox}
    if kind == "corrupt":
        receipts = {to: _damage(message) or b"" for to, message in receipts.items()}
    return {**intact, **receipts}


def _damage(data: bytes | None) -> bytes | None:
    """One byte in the middle changed."""
    if not data:
        return data
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]
