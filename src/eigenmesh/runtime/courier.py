"""The courier stamps requests, hands them to the engine, and opens what comes back."""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from eigenmesh.errors import (
    EigenmeshError,
    MessageRefused,
    PartyLost,
    PolicyRefusal,
    StaleRound,
)
from eigenmesh.runtime import wire
from eigenmesh.runtime.engine import Engine, Lost, Reply
from eigenmesh.runtime.requests import error_from
from eigenmesh.runtime.site_log import Head

Requests = Mapping[int, Mapping[str, Any]]


class Courier:
    """Every request carries its run and its turn; a reply that carries others is refused."""

    def __init__(self, engine: Engine, timeout: float) -> None:
        self.turn = 0
        self.log_heads: dict[str, Head] = {}  # of the parties' own logs, by party
        self.silent: set[int] = set()  # who gave no reply to the last request that was for it
        self._engine = engine
        self._timeout = timeout
        self.begin_run()

    def begin_run(self) -> None:
        """A new name for what follows, so that nothing of an earlier run is taken for it."""
        self.run = secrets.token_hex(8)
        self.vouchers: list[list[Any]] = []  # who signed which rows that go to others

    def call(self, requests: Requests, timeout: float | None = None) -> Iterator[tuple[int, Reply]]:
        """Requests to the hosts; replies in party order."""
        replies = self._engine.call(self._stamped(requests), timeout or self._timeout)
        return self._noting_silence(replies)

    def swap(
        self, requests: Requests, neighbours: Mapping[int, Sequence[int]]
    ) -> Iterator[tuple[int, Reply]]:
        """One exchange between neighbours; receipts in party order."""
        replies = self._engine.swap(self._stamped(requests), neighbours, self._timeout)
        return self._noting_silence(replies)

    def _noting_silence(self, replies: Iterator[tuple[int, Reply]]) -> Iterator[tuple[int, Reply]]:
        for i, reply in replies:
            self.silent.discard(i)
            if isinstance(reply, Lost):
                self.silent.add(i)
            yield i, reply

    def _stamped(self, requests: Requests) -> dict[int, bytes]:
        self.turn += 1
        stamp = {"run": self.run, "turn": self.turn}
        # A broadcast is one request for all: its bytes are made, and held, once.
        distinct = {id(request): request for request in requests.values()}
        stamped = {key: wire.dumps({**request, **stamp}) for key, request in distinct.items()}
        return {i: stamped[id(request)] for i, request in requests.items()}

    def open(self, i: int, reply: Reply, near: Container[str] = ()) -> Any:
        """The host's answer; raises what the host reports, or what is wrong with the reply.

        In an exchange a host may report a failure of its neighbours `near`.
        """
        name = self._engine.parties[i]
        if isinstance(reply, Lost):
            raise PartyLost(f"party {name!r} is lost: {reply.reason}", party=name)
        with naming(name):
            tree = wire.loads(reply)
            if not isinstance(tree, dict):
                raise MessageRefused("its reply is malformed")
        turn = tree.get("turn")
        is_current = type(turn) is int and turn == self.turn
        if is_current and ("log" in tree or (name in self.log_heads and "error" not in tree)):
            self._note_head(name, Head.read(tree.get("log")))
        if "error" in tree:
            raise error_from(tree, name, near)
        if not is_current:
            raise StaleRound("its reply belongs to another turn", party=name)
        answer = tree.get("ok")
        if isinstance(answer, dict) and answer.keys() == {"message", "voucher"}:
            self.vouchers.append([i, answer["voucher"]])
            return answer["message"]
        return answer

    def _note_head(self, party: str, head: Head | None) -> None:
        """The last line of a party's own log; one that does not follow on the last is refused."""
        before = self.log_heads.get(party, Head())
        if head is None:
            if before.number:
                raise MessageRefused("its replies no longer tell the head of its log", party=party)
            return
        if head.number <= before.number:
            raise MessageRefused(
                f"its log ends with line {head.number}, and had {before.number} before: lines are "
                f"missing",
                party=party,
            )
        self.log_heads[party] = head


class naming:  # noqa: N801
    """Errors about a message get the name of its sender."""

    __slots__ = ("_party",)

    def __init__(self, party: str) -> None:
        self._party = party

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, EigenmeshError) or error.party is not None:
            return
        named = type(error)(error.reason, party=self._party)
        named.may_be_caused = error.may_be_caused
        if isinstance(error, PolicyRefusal):
            assert isinstance(named, PolicyRefusal)
            named.rule, named.digest = error.rule, error.digest
        raise named from None
