"""Messages between neighbours: envelopes out and in, and what stands in for a missing one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eigenmesh.errors import EigenmeshError, MessageRefused, PartyLost, StaleRound
from eigenmesh.federation import wire
from eigenmesh.federation.message import Message, decode, encode, floats_by_kind
from eigenmesh.federation.party import Step
from eigenmesh.federation.requests import Tree, as_bytes, equals
from eigenmesh.federation.site import SiteView


class Mailbox:
    """The mail of one site in one run.

    `tree` is always the request of the exchange under way.
    """

    def __init__(self, view: SiteView) -> None:
        self._view = view
        self._last_heard: dict[tuple[str, str, int], tuple[int, Message]] = {}
        self.sent: list[Tree] = []  # of the exchange under way: receiver, floats by kind, bytes

    def pack(self, tree: Tree, messages: Mapping[int, Message]) -> dict[int, bytes]:
        """An envelope for each neighbour."""
        self.sent = []
        distinct = {id(message): message for message in messages.values()}
        encoded = {key: encode(message) for key, message in distinct.items()}
        return {to: self._envelope(tree, to, m, encoded[id(m)]) for to, m in messages.items()}

    def _envelope(self, tree: Tree, receiver: int, message: Message, data: bytes) -> bytes:
        self.sent.append([receiver, dict(floats_by_kind(message)), len(data)])
        address = self._address(tree, self._view.index, receiver)
        return wire.dumps({**address, "message": np.frombuffer(data, np.uint8)})

    def _address(self, tree: Tree, sender: int, receiver: int) -> dict[str, int | str]:
        return {"run": tree["run"], "turn": tree["turn"], "sender": sender, "receiver": receiver}

    def unpack(
        self, tree: Tree, step: Step, inbox: Mapping[int, bytes]
    ) -> tuple[dict[int, Message], list[Tree]]:
        """The neighbours' messages; a missing one is dropped or replaced as the request says.

        Also lists the missing ones: sender, reason, and whether an older message stood in.
        """
        messages: dict[int, Message] = {}
        missed: list[Tree] = []
        for sender in self._view.neighbours:
            key = (tree["role"], step.name, sender)
            try:
                messages[sender] = self._opened(tree, step, sender, inbox.get(sender))
                self._last_heard[key] = (tree["turn"], messages[sender])
            except EigenmeshError as error:
                replacement = self._replacement(tree, key, error)
                missed.append([sender, error.reason, replacement is not None])
                if replacement is not None:
                    messages[sender] = replacement
        return messages, missed

    def _opened(self, tree: Tree, step: Step, sender: int, data: bytes | None) -> Message:
        name, own = self._view.names[sender], self._view.name
        if data is None:
            raise PartyLost(f"no message came to {own!r}", party=name)
        try:
            envelope = wire.loads(data)
            if not isinstance(envelope, dict):
                raise MessageRefused("the message is malformed: it is not an envelope")
            expected = self._address(tree, sender, self._view.index)
            if not all(equals(envelope.get(key), value) for key, value in expected.items()):
                raise StaleRound("a message of another turn, sender or receiver")
            assert step.signature.takes is not None
            return decode(step.signature.takes, as_bytes(envelope, "message"))
        except EigenmeshError as error:
            words = f"its message to {own!r} was refused: {error.reason}"
            raise type(error)(words, party=name) from None

    def _replacement(
        self, tree: Tree, key: tuple[str, str, int], error: EigenmeshError
    ) -> Message | None:
        """The sender's last message, None to go on without, or the error."""
        if tree["on_loss"] == "raise":
            raise error
        if tree["on_loss"] == "survivors" or key not in self._last_heard:
            return None
        turn, message = self._last_heard[key]
        if tree["turn"] - turn > tree["max_age"]:
            age = f"its last message is more than {tree['max_age']} turns old"
            raise PartyLost(f"{error.reason}; {age}", party=error.party)
        return message
