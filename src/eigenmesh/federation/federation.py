"""The federation: the only handle that a protocol has on its parties."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
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
from eigenmesh.federation.host import ON_LOSS, error_from
from eigenmesh.federation.ledger import COORDINATOR, Entry, Ledger, step_label
from eigenmesh.federation.message import (
    KINDS,
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

_REMEDIES = {
    "hashes": "give every party the same samples in the same order",
    "counts": "check that every party holds the same samples, or the same columns",
}
_LOSSES = (PartyLost, PartyFailed, MessageRefused)  # errors that `on_loss` decides about


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


@dataclass(eq=False)
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
        self._round = 0
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
        label = f"{role_name(role)}.enlist"
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
        label = step_label(step)
        request = {"op": "step", "role": role_name(step.role), "step": step.name}
        requests = {}
        for i, message in messages.items():
            data = None if message is None else np.frombuffer(encode(message), np.uint8)
            requests[i] = {**request, "message": data}
            if message is not None and data is not None:
                self._record(label, COORDINATOR, self._names[i], message, data.size)
        self._wave(requests, step, take)
        if not self._active():
            raise PartyLost(f"no party is left to run {step.name!r}; {self._losses()}")

    def _losses(self) -> str:
        return "lost: " + "; ".join(f"{name!r} ({reason})" for name, reason in self.lost.items())

    def _addressed(
        self,
        message: Message | None,
        each: Sequence[Message] | Mapping[str, Message] | None,
    ) -> dict[int, Message | None]:
        active = self._active()
        if each is None:
            return dict.fromkeys(active, message)
        if isinstance(each, Mapping):
            unknown = set(each) - set(self._names)
            if unknown:
                raise InputError(
                    f"messages for {', '.join(map(repr, sorted(unknown)))}; "
                    f"the parties are {', '.join(map(repr, self._names))}"
                )
            return {i: each[self._names[i]] for i in active if self._names[i] in each}
        if len(each) != len(active):
            raise InputError(
                f"{len(each)} messages for {len(active)} parties; one each is expected"
            )
        return dict(zip(active, each, strict=True))

    def _compare(self, step: Step, received: list[tuple[int, Any]]) -> None:
        """Fields declared the same everywhere: name the party that differs from most."""
        if step.signature.gives is None or not received:
            return
        for declared in fields_of(step.signature.gives):
            if not declared.same:
                continue
            values = [getattr(reply, declared.name) for _, reply in received]
            remedy = _REMEDIES.get(declared.kind or "", "check what this party holds")
            common, _ = Counter(values).most_common(1)[0]
            for (i, _), value in zip(received, values, strict=True):
                if value != common:
                    raise MessageRefused(
                        f"party {self._names[i]!r} has {declared.name} {value!r}, the others "
                        f"{common!r}; it must be the same everywhere: {remedy}",
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
                self._require_connected()

    def _require_connected(self) -> None:
        """After a loss: is there still a graph to go on with?"""
        if not self._active():
            raise PartyLost(f"no party is left to exchange messages; {self._losses()}")
        try:
            require_connected(self.graph, self._names)
        except TopologyError as error:
            raise TopologyError(f"{error.reason}; {self._losses()}") from None

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
        receipts, failures, silent = self._swap(requests, neighbours)
        self._book_sent(send, receipts)  # what has left has left, even if the round is undone
        if not failures:
            self._book_missed(receipts)
            return True
        self._undo(turn, silent)
        for i, error in failures.items():
            if self.on_loss == "raise" or not isinstance(error, _LOSSES):
                raise error
            self.lost[self._names[i]] = error.reason
        return False

    def _swap(
        self, requests: dict[int, bytes], neighbours: dict[int, list[int]]
    ) -> tuple[dict[int, Any], dict[int, EigenmeshError], set[int]]:
        """Receipts; what went wrong, by the party concerned; the parties that did not answer."""
        receipts: dict[int, Any] = {}
        failures: dict[int, EigenmeshError] = {}
        silent: set[int] = set()
        for i, reply in self._engine.swap(requests, neighbours, self.timeout):
            if isinstance(reply, Lost):
                silent.add(i)
            near = {self._names[j]: j for j in neighbours[i]}
            try:
                receipts[i] = self._receipt(i, self._opened(i, reply, near), neighbours[i])
            except EigenmeshError as error:
                if error.party in near:  # counts less than what the engine says of that party
                    failures.setdefault(near[error.party], error)
                else:
                    failures[i] = error
        return receipts, failures, silent

    def _receipt(self, i: int, answer: Any, near: list[int]) -> Any:
        """A receipt of the form that the ledger relies on."""
        match answer:
            case {"sent": list(sent), "missed": list(missed)}:
                if all(_is_sent(s, near) for s in sent) and all(
                    _is_missed(m, near) for m in missed
                ):
                    return answer
        raise MessageRefused("its receipt of the exchange is malformed", party=self._names[i])

    def _undo(self, turn: int, silent: set[int]) -> None:
        """Undo the exchange of a turn at every party that answers, whatever was said of it."""
        answering = [i for i in self._active() if i not in silent]
        requests = self._stamped({i: {"op": "rollback", "undo": turn} for i in answering})
        for i, reply in self._engine.call(requests, self.timeout):
            try:
                self._opened(i, reply)
            except EigenmeshError as error:  # it may be a round ahead, so it cannot go on
                if self.on_loss != "raise":
                    self.lost[self._names[i]] = error.reason

    def _book_sent(self, step: Step, receipts: Mapping[int, Any]) -> None:
        for i, receipt in receipts.items():
            for receiver, kinds, size in receipt["sent"]:
                self._enter(
                    step_label(step),
                    self._names[i],
                    self._names[receiver],
                    kinds,
                    size,
                    relayed=self._engine.relays,
                )

    def _book_missed(self, receipts: Mapping[int, Any]) -> None:
        for receipt in receipts.values():
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
                message = self._received(i, self._opened(i, reply), step)
                take(i, message)
        except EigenmeshError as error:
            if not isinstance(error, _LOSSES):
                return error
            if self.on_loss == "survivors":
                self.lost[self._names[i]] = error.reason
            elif not self._reuse(i, step, take):
                return error
        else:
            if self.on_loss == "reuse" and step is not None:
                label = step_label(step)
                self._last_reply[label, i] = (self._round, message)
        return None

    def _reuse(self, i: int, step: Step | None, take: Callable[[int, Any], None]) -> bool:
        """Whether a reply to this step, kept for "reuse", was young enough and could be taken."""
        label = "" if step is None else step_label(step)
        if (label, i) not in self._last_reply:
            return False
        round_, message = self._last_reply[label, i]
        if self._round - round_ > self.max_age:
            return False
        try:
            take(i, message)
        except EigenmeshError:  # the others' replies have another shape by now
            return False
        self.reused[self._names[i]] += 1
        return True

    def _stamped(self, requests: Mapping[int, Mapping[str, Any]]) -> dict[int, bytes]:
        self._turn += 1
        stamp = {"run": self._run_id, "turn": self._turn}
        return {i: wire.dumps({**request, **stamp}) for i, request in requests.items()}

    def _opened(self, i: int, reply: Reply, near: Container[str] = ()) -> Any:
        """The host's answer; raises what the host reports, or what is wrong with the reply."""
        name = self._names[i]
        if isinstance(reply, Lost):
            raise PartyLost(f"party {name!r} is lost: {reply.reason}", party=name)
        with _naming(name):
            tree = wire.loads(reply)
            if not isinstance(tree, dict):
                raise MessageRefused("its reply is malformed")
        if "error" in tree:
            raise error_from(tree, name, near)
        turn = tree.get("turn")
        if type(turn) is not int or turn != self._turn:
            raise StaleRound("its reply belongs to another turn", party=name)
        return tree.get("ok")

    def _received(self, i: int, answer: Any, step: Step | None) -> Any:
        if step is None or step.signature.gives is None:
            return None
        if not isinstance(answer, np.ndarray) or answer.dtype != np.uint8:
            raise MessageRefused("its reply holds no message")
        data = answer.tobytes()
        message = decode(step.signature.gives, data)
        label = step_label(step)
        self._record(label, self._names[i], COORDINATOR, message, len(data))
        return message

    # The ledger.

    def _new_round(self) -> None:
        self._round += 1
        for recording in self._recordings:
            recording.ledger.rounds += 1

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


def _is_sent(item: Any, near: list[int]) -> bool:
    match item:
        case [int(receiver), dict(kinds), int(size)]:
            counts = kinds.values()
            known = receiver in near and kinds.keys() <= KINDS
            return known and all(type(n) is int and n >= 0 for n in [*counts, size])
    return False


def _is_missed(item: Any, near: list[int]) -> bool:
    match item:
        case [int(sender), str(), bool()]:
            return sender in near
    return False


def _step_names(role: type[Party], steps: Iterable[Step] | None) -> list[str]:
    return list(steps_of(role)) if steps is None else [step.name for step in steps]
