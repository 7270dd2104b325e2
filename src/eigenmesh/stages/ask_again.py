"""Asking again: a federation with `on_loss="skip"` that waits for who missed a round.

For steps that bear repetition: a party whose reply was lost has run the step already, and runs it
once more. With any other `on_loss` nothing is asked twice.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from eigenmesh.errors import MessageRefused, PartyLost
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Message, add, fields_of
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.protocol import Protocol
from eigenmesh.runtime.results import Replies, Run, Total

R = TypeVar("R")
Each = Sequence[Message] | Mapping[str, Message] | None


class Patient:
    """Asks a party up to `chances` times for each reply, and goes on once somebody has answered.

    Who is silent too often in a row is out of the run, so that waiting always ends.
    """

    def __init__(self, fed: Federation, chances: float = math.inf) -> None:
        self._fed = fed
        self._chances = chances

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fed, name)

    def ask(self, step: Step, message: Message | None = None, *, each: Each = None) -> Replies:
        """`Federation.ask`, in as many rounds as it takes."""
        if self._fed.on_loss != "skip":
            return self._fed.ask(step, message, each=each)
        answers: dict[str, Any] = {}

        def note(waiting: Mapping[str, Message]) -> None:
            replies = self._fed.ask(step, each=waiting)
            answers.update(zip(replies.parties, replies, strict=True))

        addressed = self._repeat(note, answers, message, each)
        names = tuple(name for name in addressed if name in answers)
        _require_same(step, {name: answers[name] for name in names})
        return Replies(tuple(answers[name] for name in names), names)

    def total(self, step: Step, message: Message | None = None, *, each: Each = None) -> Total:
        """`Federation.total`, in as many rounds as it takes."""
        if self._fed.on_loss != "skip":
            return self._fed.total(step, message, each=each)
        sums: list[Any] = []
        answers: dict[str, Any] = {}

        def note(waiting: Mapping[str, Message]) -> None:
            total = self._fed.total(step, each=waiting)
            sums[:] = [add(sums[0], total.sum) if sums else total.sum]
            answers.update(dict.fromkeys(total.parties))

        addressed = self._repeat(note, answers, message, each)
        return Total(sums[0], tuple(name for name in addressed if name in answers))

    def run(self, protocol: Protocol[R], *args: Any, **kwargs: Any) -> Run[R]:
        """`Federation.run` of a protocol all of whose steps bear repetition."""

        @functools.wraps(protocol.coordinate)
        def coordinate(fed: Federation, *args: Any, **kwargs: Any) -> R:
            return protocol.coordinate(patient(fed), *args, **kwargs)

        waiting = dataclasses.replace(protocol, coordinate=coordinate, skips=True)
        return self._fed.run(waiting, *args, **kwargs)

    def _repeat(
        self,
        note: Callable[[Mapping[str, Message]], None],
        answers: Mapping[str, Any],
        message: Message | None,
        each: Each,
    ) -> tuple[str, ...]:
        """Ask those who have not answered; gives all who were to be asked."""
        parties = self._fed.parties
        addressed: Any = dict.fromkeys(parties, message)
        if each is not None:
            own = each if isinstance(each, Mapping) else dict(zip(parties, each, strict=True))
            addressed = {name: own[name] for name in parties if name in own}
        attempts = 0
        while attempts < self._chances or not answers:
            still_in = set(self._fed.parties)
            names = [name for name in addressed if name in still_in and name not in answers]
            if not names:
                break
            attempts += 1
            with _unless_all_are_lost(self._fed):
                note({name: addressed[name] for name in names})
        if addressed and not answers:
            raise PartyLost(f"none of {', '.join(map(repr, addressed))} has answered")
        return tuple(addressed)


def _require_same(step: Step, answers: Mapping[str, Any]) -> None:
    """A federation compares the replies of one round; here they may come from several."""
    declared = fields_of(step.signature.gives) if step.signature.gives else ()
    for name in (field.name for field in declared if field.same):
        values = {party: getattr(reply, name) for party, reply in answers.items()}
        common, _ = Counter(values.values()).most_common(1)[0]
        for party, value in values.items():
            if value != common:
                raise MessageRefused(
                    f"party {party!r} has {name} {value}, the others {common}; it must be the same "
                    f"everywhere: check what this party holds",
                    party=party,
                )


@contextmanager
def _unless_all_are_lost(fed: Federation) -> Iterator[None]:
    try:
        yield
    except PartyLost:
        if not fed.parties:
            raise


def patient(fed: Federation) -> Federation:
    """The same federation, but one that waits for everybody."""
    return cast(Federation, Patient(fed))
