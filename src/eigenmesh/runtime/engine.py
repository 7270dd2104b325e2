"""What an engine must do: carry bytes between a federation and its hosts. No arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, NamedTuple

from eigenmesh.runtime.content import Relays
from eigenmesh.runtime.site import Site


class Lost(NamedTuple):
    """Stands where a reply should be: the party gave none, and why."""

    reason: str


Reply = bytes | Lost


class Engine(ABC):
    """Carries requests to the parties' hosts, and messages between neighbours' hosts."""

    name: ClassVar[str]
    relays: ClassVar[Relays] = "no"
    values_stay: ClassVar[bool] = False  # whether weights and targets are the sites' to name
    survives_loss: ClassVar[bool] = True  # whether a run can go on after a party is gone
    coordinates: bool = True  # whether this process runs the coordinator's side of a protocol
    followers: bool = False  # whether other processes run the same script and await the outcome
    default_timeout: ClassVar[float] = 60.0  # seconds that a party has for one step
    parties: tuple[str, ...]

    @abstractmethod
    def call(self, requests: Mapping[int, bytes], timeout: float) -> Iterator[tuple[int, Reply]]:
        """Send each request to its party; yield replies in the order of `requests`.

        No reply within `timeout` seconds of its start yields `Lost`. Only a few replies are
        held at a time, so that memory does not grow with the number of parties.
        """

    @abstractmethod
    def swap(
        self, requests: Mapping[int, bytes], neighbours: Mapping[int, Sequence[int]], timeout: float
    ) -> Iterator[tuple[int, Reply]]:
        """At each party `offer`, deliver between neighbours, then `accept`; yield its receipt."""

    def local_sites(self) -> Mapping[int, Site]:
        """Sites whose stores this process can reach: those that live in it, or stand-ins.

        All, one or none of them; what a stand-in keeps stays where its party is.
        """
        return {}

    def session(self) -> AbstractContextManager[object]:
        """Held while a protocol runs; an engine may pin threads in it."""
        return nullcontext()

    def begin_anew(self) -> None:  # noqa: B027 - few engines have anything to do then
        """What follows does not go on with what was: whoever was lost may be there again."""

    def publish(self, outcome: bytes) -> None:
        """Tell the followers how a run has ended; they are all in `serve` until then."""
        raise NotImplementedError(f"{self.name} has no followers")

    def serve(self) -> bytes:
        """In a follower: answer the coordinator's requests until it publishes the outcome."""
        raise NotImplementedError(f"{self.name} has no followers")

    @abstractmethod
    def close(self) -> None:
        """Let go of every process, thread and connection."""
