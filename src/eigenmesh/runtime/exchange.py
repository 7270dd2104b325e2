"""One round between neighbours: all of it at every party, or none of it at any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eigenmesh.errors import EigenmeshError, MessageRefused
from eigenmesh.runtime.courier import Courier, Requests
from eigenmesh.runtime.message import KINDS
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.protocol import role_name


class Exchange:
    """A round between neighbours. After `run`:

    `receipts` are the parties' own accounts of what they sent and missed; `failures` says what went
    wrong, by the party concerned. If there are failures the round has been undone, and
    `not_undone` says where that failed too.
    """

    def __init__(
        self,
        courier: Courier,
        names: tuple[str, ...],
        neighbours: Mapping[int, list[int]],
        along: Mapping[int, Mapping[str, Any]] | None = None,
        heard: Mapping[int, list[int]] | None = None,
    ) -> None:
        """`along` says, by party, which links of a tree the round is about; None for all links.

        `heard` says from whom each hears, if that is not from its `neighbours`, to whom it sends.
        """
        self._courier = courier
        self._names = names
        self._neighbours = neighbours
        self._along = along
        self._heard = heard
        self.receipts: dict[int, Any] = {}
        self.failures: dict[int, EigenmeshError] = {}
        self.not_undone: dict[int, EigenmeshError] = {}

    def run(
        self,
        send: Step,
        receive: Step,
        on_loss: str,
        max_age: int,
        fields: Mapping[str, Any],
    ) -> None:
        """Send, deliver and receive at every party; undo it everywhere if anything failed."""
        steps = {"role": role_name(send.role), "send": send.name, "receive": receive.name}
        request = {"op": "exchange", **steps, "on_loss": on_loss, "max_age": max_age, **fields}
        requests: dict[int, dict[str, Any]] = {
            i: {**request, "neighbours": near} for i, near in self._neighbours.items()
        }
        if self._heard is not None:
            requests = {i: {**own, "hears": self._heard[i]} for i, own in requests.items()}
        if self._along is not None:
            requests = {i: {**requests[i], "along": own} for i, own in self._along.items()}
        self._swap(requests)
        if self.failures:
            self._undo(self._courier.turn)

    @property
    def _near(self) -> Mapping[int, list[int]]:
        """With whom each party that takes part has to do."""
        if self._along is None:
            return {i: self._around(i) for i in self._neighbours}
        return {i: sorted({*own["to"], *own["hears"]}) for i, own in self._along.items()}

    def _around(self, i: int) -> list[int]:
        """To whom a party sends, and from whom it hears."""
        near = self._neighbours[i]
        return near if self._heard is None else sorted({*near, *self._heard[i]})

    @property
    def missed(self) -> set[tuple[int, int]]:
        """Sender and receiver of what was sent and has not come."""
        return {(m[0], i) for i, receipt in self.receipts.items() for m in receipt["missed"]}

    def _swap(self, requests: Requests) -> None:
        for i, reply in self._courier.swap(requests, self._near):
            near = {self._names[j]: j for j in self._around(i)}
            try:
                self.receipts[i] = self._receipt(i, self._courier.open(i, reply, near))
            except EigenmeshError as error:
                if error.party in near:  # counts less than what the engine says of that party
                    self.failures.setdefault(near[error.party], error)
                else:
                    self.failures[i] = error

    def _receipt(self, i: int, answer: Any) -> Any:
        """A receipt of the form that the ledger relies on."""
        near, heard = self._neighbours[i], (self._heard or self._neighbours)[i]
        match answer:
            case {"sent": list(sent), "missed": list(missed)}:
                if all(_is_sent(s, near) for s in sent) and all(
                    _is_missed(m, heard) for m in missed
                ):
                    return answer
        raise MessageRefused("its receipt of the exchange is malformed", party=self._names[i])

    def _undo(self, turn: int) -> None:
        """At every party that answers, whatever was said of it: none may stay a round ahead."""
        request = {"op": "rollback", "undo": turn}
        requests = {i: request for i in self._near if i not in self._courier.silent}
        for i, reply in self._courier.call(requests):
            try:
                self._courier.open(i, reply)
            except EigenmeshError as error:
                self.not_undone[i] = error


def _is_sent(item: Any, near: list[int]) -> bool:
    match item:
        case [int(receiver), dict(kinds), int(size)]:
            counts = kinds.values()
            is_known = receiver in near and kinds.keys() <= KINDS
            return is_known and all(type(n) is int and n >= 0 for n in [*counts, size])
    return False


def _is_missed(item: Any, near: list[int]) -> bool:
    match item:
        case [int(sender), str(), bool()]:
            return sender in near
    return False
