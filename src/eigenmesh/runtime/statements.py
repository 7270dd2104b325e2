"""What parties said of themselves, held against what they say next; and who is blamed for what.

A malformed message is refused by its form (`message.check`). A lie has the right form: it is
noticed where it contradicts what its teller said before, what was asked of it, the study, or
itself; a message type says how (`Message.contradiction`). One that contradicts nothing is not.

Blame needs evidence. What a party says of another is none; nor is its failure, if it had been sent
what came from others.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from eigenmesh.errors import (
    EigenmeshError,
    InputError,
    MessageRefused,
    PartyFailed,
    StepRefused,
)
from eigenmesh.runtime.message import Context, Message, facts_of, reals_of

_LARGEST = 1e150
_LONGEST_TEXT = 2_000
_NAMED = 5
_MAY_BE_CAUSED = (PartyFailed, InputError, MessageRefused)  # by what others have sent


class Statements:
    """What the parties of a recording have said, and who has been sent what others said."""

    def __init__(self) -> None:
        self.facts: dict[str, dict[str, float]] = {}
        self.reached: set[str] = set()  # who has been sent what came from others

    def hear(self, party: str, message: Message, setup: Any, request: Any) -> None:
        """Note what a reply says of its sender; refuse one that cannot be true."""
        facts = self.facts.setdefault(party, {})
        for name in reals_of(type(message)):
            _require_squares(name, getattr(message, name))
        for name, fact in facts_of(type(message)):
            value = getattr(message, name)
            before = facts.setdefault(fact, value)
            if value != before:
                raise MessageRefused(
                    f"its reply is about {value:,} {fact}, an earlier one about {before:,}"
                )
        require_possible(message, Context(setup, request, facts))

    def fair(self, error: EigenmeshError, party: str, parties: Sequence[str]) -> EigenmeshError:
        """An error about a party; if others may have caused it, they are named, too."""
        reached = party in self.reached and error.may_be_caused
        return _shared(error, party, parties, _MAY_BE_CAUSED) if reached else error


def fair_in_a_sum(error: EigenmeshError, party: str, parties: Sequence[str]) -> EigenmeshError:
    """The same of a masked sum, in which a party refuses what others told it of theirs."""
    return _shared(error, party, parties, (*_MAY_BE_CAUSED, StepRefused))


def _shared(
    error: EigenmeshError, party: str, parties: Sequence[str], causes: tuple[type, ...]
) -> EigenmeshError:
    others = [name for name in parties if name != party]
    if error.party != party or not others or not isinstance(error, causes):
        return error
    words = f"it had been sent what came from {in_short(others)}, who may have caused it"
    return type(error)(f"{error.reason}; {words}", party=party)


def require_possible(message: Message, context: Context) -> None:
    """Raise `MessageRefused` if a message contradicts itself, or what is known of its sender."""
    words = message.contradiction(context)
    if words is not None:
        raise MessageRefused(f"its {type(message).__name__} cannot be true: {words}")


def _have_squares(values: Any) -> bool:
    """Whether none is too large, in float64: the limit is beyond what shorter numbers hold."""
    if type(values) is float:
        return abs(values) <= _LARGEST
    numbers = np.asarray(values)
    if not numbers.size or float(np.vdot(numbers, numbers)) <= _LARGEST:
        return True  # nor is any of them that large, as nearly always
    return max(float(numbers.max()), -float(numbers.min())) <= _LARGEST


def _require_squares(name: str, value: Any) -> None:
    """What is finite but has no squares breaks whatever is computed of it, elsewhere."""
    if value is not None and not _have_squares(value):
        refusal = MessageRefused(f"{name} holds values beyond {_LARGEST:.0e}; rescale the columns")
        refusal.may_be_caused = True  # large numbers pass from neighbour to neighbour
        raise refusal


def in_short(names: Sequence[str]) -> str:
    """The first few of some names."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(repr, names[:_NAMED])) + more


def as_text(words: Any) -> str:
    r"""What another process said, fit for a terminal: no control characters, no more than a page.

    >>> as_text("\x1b[2Jgone\n" + "a" * 5000)[:9]
    ' [2Jgone '
    """
    text = str(words)
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}…"
    return "".join(" " if _is_control(character) else character for character in text)


def _is_control(character: str) -> bool:
    """Those that move the cursor, and those that turn the direction of writing."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
