"""Messages between neighbours: envelopes out and in, and what stands in for a missing one.

An envelope is an address and, behind it, a message in wire form. The receiver knows the address
that it must find: its own run and turn, the neighbour, itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from eigenmesh.errors import EigenmeshError, PartyLost, StaleRound
from eigenmesh.runtime.message import NO_LIMITS, Limits, Message, decode, encode, floats_by_kind
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.requests import Tree
from eigenmesh.runtime.site import SiteView

_ALIGN = 16  # an address is as long as leaves the buffers of the message where BLAS wants them


def address(tree: Tree, sender: int, receiver: int) -> bytes:
    """Whose message to whom, in which turn of which run."""
    words = f"{tree['run']} {tree['turn']} {sender} {receiver}\n".encode(errors="surrogatepass")
    return words + bytes(-len(words) % _ALIGN)


class Mailbox:
    """The mail of one site in one run.

    `tree` is always the request of the exchange under way.
    """

    def __init__(self, view: SiteView) -> None:
        self._view = view
        self._last_heard: dict[tuple[str, str, int], tuple[int, Message]] = {}
        self.sent: list[Tree] = []  # of the exchange under way: receiver, floats by kind, bytes
        self.sizes: Limits = NO_LIMITS  # of what neighbours send in it, as far as all know

    def pack(self, tree: Tree, messages: Mapping[int, Message]) -> dict[int, bytes]:
        """An envelope for each neighbour."""
        distinct = {id(message): message for message in messages.values()}  # encoded once
        encoded = {key: encode(message) for key, message in distinct.items()}
        kinds = {key: dict(floats_by_kind(message)) for key, message in distinct.items()}
        self.sent = [[to, kinds[id(m)], len(encoded[id(m)])] for to, m in messages.items()]
        own = self._view.index
        return {to: address(tree, own, to) + encoded[id(m)] for to, m in messages.items()}

    def unpack(
        self, tree: Tree, send: Step, receive: Step, inbox: Mapping[int, bytes]
    ) -> tuple[dict[int, Message], list[Tree]]:
        """The neighbours' messages; a missing one is dropped or replaced as the request says.

        Also lists the missing ones: sender, reason, and whether an older message stood in.
        """
        messages: dict[int, Message] = {}
        missed: list[Tree] = []
        on_all_links = tree.get("hears", self._view.neighbours)
        for sender in tree["along"]["hears"] if "along" in tree else on_all_links:
            key = (tree["role"], receive.name, sender)
            try:
                messages[sender] = self._opened(tree, receive, sender, inbox.get(sender))
                if tree["on_loss"] == "reuse":
                    self._last_heard[key] = (tree["turn"], messages[sender])
            except EigenmeshError as error:
                replacement = self._replacement(tree, send, key, error)
                missed.append([sender, error.reason, replacement is not None])
                if replacement is not None:
                    messages[sender] = replacement
        return messages, missed

    def _opened(self, tree: Tree, step: Step, sender: int, data: bytes | None) -> Message:
        name, own = self._view.names[sender], self._view.name
        if data is None:
            raise PartyLost(f"no message came to {own!r}", party=name)
        expected = address(tree, sender, self._view.index)
        try:
            if not data.startswith(expected):
                raise StaleRound("a message of another turn, sender or receiver, or a damaged one")
            assert step.signature.takes is not None
            return decode(step.signature.takes, memoryview(data)[len(expected) :], self.sizes)
        except EigenmeshError as error:
            words = f"its message to {own!r} was refused: {error.reason}"
            raise type(error)(words, party=name) from None

    def _replacement(
        self, tree: Tree, send: Step, key: tuple[str, str, int], error: EigenmeshError
    ) -> Message | None:
        """The sender's last message, None to go on without, or the error."""
        is_repeated = "along" in tree  # nobody goes on along a tree until it has come
        no_other = tree["on_loss"] == "reuse" and not send.reusable
        if tree["on_loss"] == "raise" or (no_other and not is_repeated):
            raise error
        if tree["on_loss"] == "survivors" or is_repeated or key not in self._last_heard:
            return None
        turn, message = self._last_heard[key]
        if tree["turn"] - turn > tree["max_age"]:
            if send.cumulative:
                return None
            age = f"its last message is more than {tree['max_age']} turns old"
            raise PartyLost(f"{error.reason}; {age}", party=error.party)
        return message
