"""What hosts were sent in a legal run, and hosts that live through it once more.

`follows` is an oracle of its own: it takes derivatives of the schedule's tree, where hosts keep
positions in a compiled program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from eigenmesh.runtime import wire
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.mailbox import address
from eigenmesh.runtime.schedule import Ask, CutShort, Enlist, InOrder, Loop, Settle
from eigenmesh.runtime.site import Site


@dataclass(frozen=True)
class Received:
    """A request as a host got it; of an exchange also what the neighbours sent."""

    request: bytes
    inbox: Mapping[int, bytes] | None = None

    @property
    def tree(self) -> Any:
        return wire.loads(self.request)


@contextmanager
def recorded(calls: dict[str, list[Received]], stores: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Note what hosts are sent and all that their sites ever keep, by party."""
    handle, accept = Host.handle, Host.accept

    def noting_handle(self: Host, request: bytes) -> bytes:
        calls.setdefault(self.party, []).append(Received(request))
        answer = handle(self, request)
        stores.setdefault(self.party, {}).update(self.site.store)
        return answer

    def noting_accept(self: Host, request: bytes, inbox: Mapping[int, bytes]) -> bytes:
        calls.setdefault(self.party, []).append(Received(request, dict(inbox)))
        return accept(self, request, inbox)

    Host.handle, Host.accept = noting_handle, noting_accept  # type: ignore[method-assign]
    try:
        yield
    finally:
        Host.handle, Host.accept = handle, accept  # type: ignore[method-assign]


class Replayed:
    """A host that is sent requests of a recorded run, under turns of its own count."""

    def __init__(self, site: Site, index: int, names: tuple[str, ...]) -> None:
        self.host = Host(site, index, names)
        self.index = index
        self.turn = 0

    def send(self, received: Received, **changes: Any) -> dict[str, Any]:
        """The host's reply to the request, with some fields changed."""
        self.turn += 1
        before = received.tree
        tree = {**before, "turn": self.turn, **changes}
        request = wire.dumps(tree)
        if tree["op"] != "exchange":
            return wire.loads(self.host.handle(request))
        reply, outbox = self.host.offer(request)
        if outbox is None:
            return wire.loads(reply)
        inbox = {
            sender: address(tree, sender, self.index)
            + data[len(address(before, sender, self.index)) :]
            for sender, data in (received.inbox or {}).items()
        }
        return wire.loads(self.host.accept(request, inbox))


def key_of(tree: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What a request asks for, as a schedule names it; None for what it has no name for.

    These are questions, dismissals, and the rounds of a masked sum after the first.
    """
    match tree["op"]:
        case "enlist":
            return ("enlist", tree["role"])
        case "step" | "sum" as op:
            return (op, tree["role"], tree["step"])
        case "exchange":
            return ("exchange", tree["role"], tree["send"], tree["receive"])
    return None


# The oracle: what is left of a schedule after a request, as trees.


@dataclass(frozen=True, eq=False)
class Turns:
    """A loop that has been gone through `done` times."""

    loop: Loop
    done: int = 0


def nullable(node: Any) -> bool:
    """Whether nothing of it need come."""
    match node:
        case CutShort():
            return True
        case Turns():
            return node.done >= node.loop.fewest or nullable(node.loop.body)
        case Loop():
            return nullable(Turns(node))
        case InOrder():
            return all(nullable(part) for part in node.parts)
        case Ask():
            return node.missable
    return False


def follows(
    node: Any, key: tuple[str, ...] | None, told: Mapping[str, int], masked: bool
) -> list[Any]:
    """What may come after a request of this key; empty if it cannot come now.

    Where sums are `masked`, they are asked for as sums, and nothing else is.
    """
    match node:
        case Ask():
            op = "sum" if masked and node.summed else node.key[0]
            return [InOrder(())] if (op, *node.key[1:]) == key else []
        case Enlist():
            return [InOrder(())] if node.key == key else []
        case Loop():
            return follows(Turns(node), key, told, masked)
        case CutShort():
            return [CutShort(rest) for rest in follows(node.body, key, told, masked)]
        case Turns():
            if node.done >= node.loop.most:
                return []
            again = replace(node, done=node.done + 1)
            rests = follows(node.loop.body, key, told, masked)
            return [InOrder((rest, again)) for rest in rests]
        case Settle():
            if not set(node.names) <= told.keys():
                return []
            settled = node.rest(**{name: told[name] for name in node.names})
            return follows(settled, key, told, masked)
        case InOrder():
            rests = []
            for i, part in enumerate(node.parts):
                own = follows(part, key, told, masked)
                rests += [InOrder((rest, *node.parts[i + 1 :])) for rest in own]
                if not nullable(part):
                    break
            return rests
    return []


def different(nodes: list[Any]) -> list[Any]:
    """Each of them once, without what is over: many ways through a schedule lead to one place."""
    return list({_place(node): node for node in map(simplified, nodes)}.values())


def _place(node: Any) -> Any:
    match node:
        case InOrder():
            return tuple(_place(part) for part in node.parts)
        case CutShort():
            return ("cut short", _place(node.body))
        case Turns():
            return (id(node.loop), node.done)
    return id(node)


def simplified(node: Any) -> Any:
    """Without what is over, so that trees stay small."""
    if isinstance(node, InOrder):
        parts = [simplified(part) for part in node.parts]
        flat = [p for part in parts for p in (part.parts if isinstance(part, InOrder) else [part])]
        live = [p for p in flat if not (isinstance(p, Turns) and p.done >= p.loop.most)]
        return InOrder(tuple(live))
    return node
