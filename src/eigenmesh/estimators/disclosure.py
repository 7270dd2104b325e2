"""What left whom for whom, by step and kind: the facts that an audit is made of.

Plans and reports carry them. They follow from the ledger, which has the floats of every message,
and from what the messages' types say of the rows behind a number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from eigenmesh.runtime.entries import Flow
from eigenmesh.runtime.ledger import COORDINATOR, Ledger
from eigenmesh.runtime.message import Covered, Message, covered_by, usually_covered
from eigenmesh.runtime.party import steps_of
from eigenmesh.runtime.protocol import known_roles

NEIGHBOURS = "neighbours"


@dataclass(frozen=True)
class Disclosure:
    """Numbers of one kind that left in one step, from each of some parties as many.

    Attributes
    ----------
    parties : who sent them; the coordinator where it passed on what others had sent.
    receiver : "coordinator", "neighbours", or "parties" for what a coordinator passed on.
    n_receivers : how many of these each party sent them to.
    floats : that one receiver got from one party, in all rounds.
    rows : behind one number, the fewest; "all" of the sender's, or "joint": what all parties
        together have found.
    noised : whether noise hides what any one row holds.
    """

    parties: tuple[str, ...]
    receiver: str
    n_receivers: int
    step: str
    kind: str
    floats: int
    rows: Covered
    noised: bool = False

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Disclosure:
        """One that was written to a file."""
        return cls(**{**tree, "parties": tuple(tree["parties"])})


class _Facts(NamedTuple):
    """What disclosures of several parties may have in common."""

    receiver: str
    n_receivers: int
    step: str
    kind: str
    floats: int
    rows: Covered
    noised: bool


def disclosures_in(ledger: Ledger) -> tuple[Disclosure, ...]:
    """The facts of a ledger, parties that sent alike together."""
    together: dict[_Facts, list[str]] = defaultdict(list)
    rows, noised = (
        cache(rows_behind),
        cache(is_noised),
    )  # for this ledger: other packages may register roles later
    for (step, sender, kind), by_receiver in _by_sender(ledger.entries.flows()).items():
        facts = _Facts(
            receiver=_receiver_in_words(sender, by_receiver),
            n_receivers=len(by_receiver),
            step=step,
            kind=kind,
            floats=max(by_receiver.values()),
            rows=rows(step, kind),
            noised=noised(step),
        )
        together[facts].append(sender)
    return tuple(Disclosure(tuple(parties), *facts) for facts, parties in together.items())


def _by_sender(flows: Iterable[Flow]) -> dict[tuple[str, str, str], dict[str, int]]:
    """By step, sender and kind, the floats that each receiver got."""
    sums: dict[tuple[str, str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for flow in flows:
        for kind, floats in flow.kinds.items():
            if floats or flow.sender != COORDINATOR:
                sums[flow.step, flow.sender, kind][flow.receiver] += floats * flow.messages
    return sums


def _receiver_in_words(sender: str, receivers: Mapping[str, int]) -> str:
    if sender == COORDINATOR:
        return "parties"
    return COORDINATOR if COORDINATOR in receivers else NEIGHBOURS


def rows_behind(step: str, kind: str) -> Covered:
    """The rows behind one number of a kind that leaves by a step of the ledger."""
    gives = _given_by(step)
    return usually_covered(kind) if gives is None else covered_by(gives, kind)


def is_noised(step: str) -> bool:
    """Whether what leaves by a step of the ledger is differentially private."""
    gives = _given_by(step)
    return gives is not None and gives.noised


def _given_by(step: str) -> type[Message] | None:
    role_name, _, name = step.rpartition(".")
    role = known_roles().get(role_name)
    offered = {} if role is None else steps_of(role)
    return offered[name].signature.gives if name in offered else None


def of_party(disclosures: Sequence[Disclosure]) -> dict[str, list[Disclosure]]:
    """The same by party; what a coordinator passed on goes by its own name."""
    own: dict[str, list[Disclosure]] = defaultdict(list)
    for disclosure in disclosures:
        for party in disclosure.parties:
            own[party].append(disclosure)
    return own
