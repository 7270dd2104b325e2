"""The federation: the only handle that a protocol has on its parties."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

import networkx as nx
import numpy as np

from eigenmesh.errors import (
    EigenmeshError,
    InputError,
    MessageRefused,
    PartyFailed,
    PartyLost,
    StaleRound,
    TopologyError,
)
from eigenmesh.federation import wire
from eigenmesh.federation.engine import Engine, Lost, Reply
from eigenmesh.federation.host import error_from
from eigenmesh.federation.ledger import COORDINATOR, Entry, Ledger
from eigenmesh.federation.message import (
    Message,
    add,
    decode,
    encode,
    fields_of,
    floats_by_kind,
    require_summable,
)
from eigenmesh.federation.party import Party, Step, steps_of
from eigenmesh.federation.protocol import Protocol, role_name
from eigenmesh.federation.site import Site
from eigenmesh.federation.topology import Topology, build_graph, require_connected

R = TypeVar("R")
M = TypeVar("M", bound=Message)

ON_LOSS = ("raise", "survivors", "reuse")


@dataclass(frozen=True)
class Replies(Sequence[Any]):
    """Replies in party order, and the names of the parties they came from."""

    messages: tuple[Any, ...]
    parties: tuple[str, ...]

    @overload
    def __getitem__(self, item: int) -> Any: ...
    @overload
    def __getitem__(self, item: slice) -> Sequence[Any]: ...
    def __getitem__(self, item: int | slice) -> Any:
        return self.messages[item]

    def __len__(self) -> int:
        return len(self.messages)


@dataclass(frozen=True)
class Total:
    """A sum of replies, and the names of the parties it covers."""

    sum: Any
    parties: tuple[str, ...]


@dataclass
class Recording:
    """What passed while a recording was on."""

    ledger: Ledger = field(default_factory=Ledger)
    seconds: float = 0.0


@dataclass(frozen=True)
class Run(Generic[R]):
    """What a protocol gave, what it cost, whom it covers and why it stopped."""

    value: R
    recording: Recording
    parties: tuple[str, ...]
    lost: Mapping[str, str]
    stop_reason: str


class Federation:
    """Parties on an engine, with a coordinator or on a graph.

    Parameters
    ----------
    engine : carries the bytes.
    split : "rows" or "columns", how the parties' data make up the whole.
    topology : None for a coordinator, else the graph on which `exchange` runs.
    timeout : seconds that a party has for one step; the engine's own default if None.
    on_loss : "raise" stops at the first lost party; "survivors" goes on without it and says so;
        "reuse" takes its last reply, up to `max_age` rounds old, and asks it again.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        split: str,
        topology: Topology | None = None,
        timeout: float | None = None,
        on_loss: str = "raise",
        max_age: int = 3,
    ) -> None:
        if on_loss not in ON_LOSS:
            raise InputError(f"on_loss is {on_loss!r}; expected one of {', '.join(ON_LOSS)}")
        if timeout is not None and not timeout > 0:
            raise InputError(f"timeout is {timeout}; a positive number of seconds is expected")
        self.split = split
        self.timeout = engine.default_timeout if timeout is None else timeout
        self.on_loss = on_loss
        self.max_age = max_age
        self.lost: dict[str, str] = {}
        self.reused: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._engine = engine
        self._names = engine.parties
        self._graph = None if topology is None else build_graph(topology, self._names)
        self._turn = 0
        self._run_id = ""
        self._recordings: list[Recording] = []
        self._last_reply: dict[tuple[str, int], tuple[int, Any]] = {}

    # Who is there.

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties that are still in, in order."""
        return tuple(self._names[i] for i in self._active())

    @property
    def graph(self) -> nx.Graph | None:
        """The graph of the parties that are still in, by number; None with a coordinator."""
        return None if self._graph is None else self._graph.subgraph(self._active())

    def local_sites(self) -> Mapping[str, Site]:
        """The sites that live in this process, by name. Their stores are theirs, not messages."""
        return {self._names[i]: site for i, site in self._engine.local_sites().items()}

    def _active(self) -> list[int]:
        return [i for i, name in enumerate(self._names) if name not in self.lost]

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the engine's processes and threads."""
        self._engine.close()

    # Running protocols.

    def require(self, role: type[Party], steps: Iterable[Step] | None = None) -> None:
        """Ask every party, before anything runs, whether its policy lets these replies out."""
        self._broadcast("require", role=role_name(role), steps=_step_names(role, steps))

    def run(self, protocol: Protocol[R], *args: Any, **kwargs: Any) -> Run[R]:
        """Run a protocol from enlisting to dismissal."""
        self._run_id = secrets.token_hex(8)
        self._last_reply.clear()
        with self.recording() as recording, self._engine.session():
            try:
                value = protocol.coordinate(self, *args, **kwargs)
            finally:
                self._dismiss()
        reason = getattr(value, "stop_reason", "finished")
        return Run(value, recording, self.parties, dict(self.lost), reason)

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Record the ledger and the seconds of everything inside."""
        recording = Recording()
        self._recordings.append(recording)
        started = time.perf_counter()
        try:
            yield recording
        finally:
            recording.seconds = time.perf_counter() - started
            self._recordings.remove(recording)

    def enlist(
        self, role: type[Party], setup: Message, steps: Iterable[Step] | None = None
    ) -> None:
        """Build a party of this role at every site; only the listed steps may then be asked for."""
        data = encode(setup)
        label = _step_label(role, "enlist")
        for i in self._active():
            self._record(label, COORDINATOR, self._names[i], setup, len(data))
        self._broadcast(
            "enlist",
            role=role_name(role),
            steps=_step_names(role, steps),
            message=np.frombuffer(data, np.uint8),
        )

    def _broadcast(self, operation: str, **fields: Any) -> None:
        requests = {i: {"op": operation, **fields} for i in self._active()}
        self._wave(requests, None, lambda i, _: None)

    def _dismiss(self) -> None:
        # The run is over either way: a party that does not hear of it learns from the next run.
        requests = self._stamped({i: {"op": "dismiss"} for i in self._active()})
        for _ in self._engine.call(requests, min(self.timeout, 2.0)):
            pass

    # Asking.

    def ask(
        self,
        step: Step,
        message: Message | None = None,
        *,
        each: Sequence[Message] | Mapping[str, Message] | None = None,
    ) -> Replies:
        """One round: every party runs `step`. `each` gives each party a message of its own."""
        received: list[tuple[int, Any]] = []
        self._round_of(step, self._addressed(message, each), lambda i, r: received.append((i, r)))
        self._compare(step, received)
        return Replies(
            tuple(reply for _, reply in received), tuple(self._names[i] for i, _ in received)
        )

    def total(self, step: Step, message: Message | None = None) -> Total:
        """One round: the sum of the parties' replies, added in party order as they come."""
        assert step.signature.gives is not None, f"{step!r} gives nothing to add up"
        require_summable(step.signature.gives)
        sums: list[Any] = []
        covered: list[str] = []

        def fold(i: int, reply: Any) -> None:
            sums[:] = [add(sums[0], reply) if sums else reply]
            covered.append(self._names[i])

        self._round_of(step, self._addressed(message, None), fold)
        return Total(sums[0], tuple(covered))

    def _round_of(
        self, step: Step, messages: Mapping[int, Message | None], take: Callable[[int, Any], None]
    ) -> None:
        self._new_round()
        label = _step_label(step.role, step.name)
        request = {"op": "step", "role": role_name(step.role), "step": step.name}
        requests = {}
        for i, message in messages.items():
            data = None if message is None else np.frombuffer(encode(message), np.uint8)
            requests[i] = {**request, "message": data}
            if message is not None and data is not None:
                self._record(label, COORDINATOR, self._names[i], message, data.size)
        self._wave(requests, step, take)
        if not self._active():
            raise PartyLost(f"no party is left to run {step.name!r}")

    def _addressed(
        self,
        message: Message | None,
        each: Sequence[Message] | Mapping[str, Message] | None,
    ) -> dict[int, Message | None]:
        active = self._active()
        if each is None:
            return dict.fromkeys(active, message)
        if isinstance(each, Mapping):
            return {i: each[self._names[i]] for i in active if self._names[i] in each}
        if len(each) != len(active):
            raise InputError(
                f"{len(each)} messages for {len(active)} parties; one each is expected"
            )
        return dict(zip(active, each, strict=True))

    def _compare(self, step: Step, received: list[tuple[int, Any]]) -> None:
        """Fields declared the same everywhere: name the party that differs from most."""
        if step.signature.gives is None:
            return
        for declared in fields_of(step.signature.gives):
            if not declared.same:
                continue
            values = [getattr(reply, declared.name) for _, reply in received]
            common, _ = Counter(values).most_common(1)[0]
            for (i, _), value in zip(received, values, strict=True):
                if value != common:
                    raise MessageRefused(
                        f"party {self._names[i]!r} has {declared.name} {value!r}, the others "
                        f"{common!r}; every party must hold the same samples in the same order",
                        party=self._names[i],
                    )

    # Neighbour rounds on a graph.

    def exchange(self, send: Step, receive: Step, times: int = 1) -> None:
        """`times` rounds: each party sends to its neighbours, then takes what they sent.

        A round in which a party is lost is undone at every party before the error is raised, or
        before it is repeated on the graph of the survivors: no party is ever a round ahead.
        """
        if self._graph is None:
            raise TopologyError("exchange needs a graph; pass topology= to the federation")
        for _ in range(times):
            self._new_round()
            while not self._exchange_once(send, receive):
                require_connected(self.graph, self._names)

    def _exchange_once(self, send: Step, receive: Step) -> bool:
        """Whether the round was complete; if not, it has been undone and a party is out."""
        neighbours = {i: sorted(self.graph.neighbors(i)) for i in self._active()}  # type: ignore[union-attr]
        request = {
            "op": "exchange",
            "role": role_name(send.role),
            "send": send.name,
            "receive": receive.name,
            "on_loss": self.on_loss,
            "max_age": self.max_age,
        }
        requests = self._stamped(
            {i: {**request, "neighbours": near} for i, near in neighbours.items()}
        )
        turn = self._turn
        receipts, failures = self._swap(requests, neighbours)
        if not failures:
            self._book(send, receipts)
            return True
        self._undo(turn, failures)
        for i, error in failures.items():
            if self.on_loss == "raise" or not isinstance(error, PartyLost | PartyFailed):
                raise error
            self.lost[self._names[i]] = error.reason
        return False

    def _swap(
        self, requests: dict[int, bytes], neighbours: dict[int, list[int]]
    ) -> tuple[dict[int, Any], dict[int, EigenmeshError]]:
        receipts: dict[int, Any] = {}
        failures: dict[int, EigenmeshError] = {}
        for i, reply in self._engine.swap(requests, neighbours, self.timeout):
            try:
                receipts[i] = self._opened(i, reply)
            except EigenmeshError as error:
                if error.party in (None, self._names[i]):
                    failures[i] = error
                else:  # what a neighbour says of a party counts less than what the engine says
                    failures.setdefault(self._names.index(error.party), error)
        return receipts, failures

    def _undo(self, turn: int, failures: Mapping[int, EigenmeshError]) -> None:
        live = [i for i in self._active() if not isinstance(failures.get(i), PartyLost)]
        requests = self._stamped({i: {"op": "rollback", "undo": turn} for i in live})
        for i, reply in self._engine.call(requests, self.timeout):
            if isinstance(reply, Lost):
                self.lost[self._names[i]] = reply.reason

    def _book(self, step: Step, receipts: Mapping[int, Any]) -> None:
        for i, receipt in receipts.items():
            for receiver, kinds, size in receipt["sent"]:
                self._enter(
                    _step_label(step.role, step.name),
                    self._names[i],
                    self._names[receiver],
                    kinds,
                    size,
                    relayed=self._engine.relays,
                )
            for sender, _reason, replaced in receipt["missed"]:
                (self.reused if replaced else self.dropped)[self._names[sender]] += 1

    # One wave of requests, and what becomes of its replies.

    def _wave(
        self,
        requests: Mapping[int, Mapping[str, Any]],
        step: Step | None,
        take: Callable[[int, Any], None],
    ) -> None:
        """Send, and hand decoded replies to `take` in party order. The first error is raised at
        the end, so that no party is still at work on this wave when the caller hears of it.
        """
        first_error: EigenmeshError | None = None
        for i, reply in self._engine.call(self._stamped(requests), self.timeout):
            if first_error is None:
                first_error = self._take(i, reply, step, take)
        if first_error is not None:
            raise first_error

    def _take(
        self, i: int, reply: Reply, step: Step | None, take: Callable[[int, Any], None]
    ) -> EigenmeshError | None:
        """The error that ends the run, if there is one; else the reply, if any, was taken."""
        try:
            with _naming(self._names[i]):
                take(i, self._received(i, self._opened(i, reply), step))
        except EigenmeshError as error:
            if not isinstance(error, PartyLost | PartyFailed | MessageRefused):
                return error
            if self.on_loss == "survivors":
                self.lost[self._names[i]] = error.reason
            elif self.on_loss == "reuse" and step is not None and self._can_reuse(step, i):
                self.reused[self._names[i]] += 1
                take(i, self._last_reply[_step_label(step.role, step.name), i][1])
            else:
                return error
        return None

    def _can_reuse(self, step: Step, i: int) -> bool:
        last = self._last_reply.get((_step_label(step.role, step.name), i))
        return last is not None and self._round - last[0] <= self.max_age

    def _stamped(self, requests: Mapping[int, Mapping[str, Any]]) -> dict[int, bytes]:
        self._turn += 1
        stamp = {"run": self._run_id, "turn": self._turn}
        return {i: wire.dumps({**request, **stamp}) for i, request in requests.items()}

    def _opened(self, i: int, reply: Reply) -> Any:
        """The host's answer; raises what the host reports, or what is wrong with the reply."""
        name = self._names[i]
        if isinstance(reply, Lost):
            raise PartyLost(f"party {name!r} is lost: {reply.reason}", party=name)
        with _naming(name):
            tree = wire.loads(reply)
            if not isinstance(tree, dict):
                raise MessageRefused("its reply is malformed")
        if "error" in tree:
            raise error_from(tree, name)
        if tree.get("turn") != self._turn:
            raise StaleRound("its reply belongs to another turn", party=name)
        return tree.get("ok")

    def _received(self, i: int, answer: Any, step: Step | None) -> Any:
        if step is None or step.signature.gives is None:
            return None
        if not isinstance(answer, np.ndarray) or answer.dtype != np.uint8:
            raise MessageRefused("its reply holds no message")
        data = answer.tobytes()
        message = decode(step.signature.gives, data)
        label = _step_label(step.role, step.name)
        self._record(label, self._names[i], COORDINATOR, message, len(data))
        if self.on_loss == "reuse":
            self._last_reply[label, i] = (self._round, message)
        return message

    # The ledger.

    def _new_round(self) -> None:
        for recording in self._recordings:
            recording.ledger.rounds += 1

    @property
    def _round(self) -> int:
        return self._recordings[-1].ledger.rounds if self._recordings else 0

    def _record(self, step: str, sender: str, receiver: str, message: Message, size: int) -> None:
        self._enter(step, sender, receiver, floats_by_kind(message), size)

    def _enter(
        self,
        step: str,
        sender: str,
        receiver: str,
        kinds: Mapping[str, int],
        size: int,
        relayed: bool = False,
    ) -> None:
        for recording in self._recordings:
            round_ = recording.ledger.rounds
            floats = sum(kinds.values())
            recording.ledger.record(
                Entry(round_, step, sender, receiver, kinds, floats, size, relayed)
            )


@contextmanager
def _naming(party: str) -> Iterator[None]:
    """Errors about a message get the name of its sender."""
    try:
        yield
    except EigenmeshError as error:
        if error.party is not None:
            raise
        raise type(error)(error.reason, party=party) from None


def _step_label(role: type[Party], step: str) -> str:
    return f"{role.__name__}.{step}"


def _step_names(role: type[Party], steps: Iterable[Step] | None) -> list[str]:
    return list(steps_of(role)) if steps is None else [step.name for step in steps]
