"""MPI: every rank runs the same script and hosts the party of its own number; rank 0 coordinates.

::

    mpirun -n 5 python -m mpi4py script.py

With a coordinator, rank 0 sends requests and the others answer. On a graph it only says when a
round begins: the neighbours' messages go from rank to rank, and rank 0 hears of receipts.

All that travels are raw buffers (`_mpi_post.py`). A frame carries the turn it belongs to, so what
comes late is known and dropped. MPI is called from the main thread alone; a party's step runs on a
thread beside it, so that a step that hangs holds up neither its rank nor the job.

Every wait ends: at a timeout, or, between requests, when rank 0 has given no sign of life for as
long (it may compute for hours, and then it gives signs). A rank that dies makes `mpirun` end the
whole job within seconds (`_mpi_end.py`); under `mpirun --with-ft ulfm` the others live, its party
is lost, and a run goes on as `on_loss` says, unless it was rank 0.
"""

from __future__ import annotations

import queue
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from mpi4py import MPI

from eigenmesh.engines._mpi_end import TOLERATES_DEATH, the_job
from eigenmesh.engines._mpi_post import (
    ABSENT,
    ENVELOPE,
    EXCHANGE,
    HANDLE,
    LOST,
    NOTHING,
    OUTCOME,
    REPLY,
    TO_COORDINATOR,
    TO_NEIGHBOUR,
    TO_PARTY,
    Frame,
    Pause,
    Post,
)
from eigenmesh.engines.faulty import GuardedHost
from eigenmesh.errors import FederationError, InputError, PartyLost
from eigenmesh.runtime.engine import Engine, Lost, Reply
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.site import Site
from eigenmesh.threads import one_thread

T = TypeVar("T")
Waiting = Generator[None, None, T]  # yields while there is nothing to do but wait

_ORDER = struct.Struct("<dI")  # seconds for the step, number of neighbours
_RANK = struct.Struct("<I")
_WINDOW = 4  # replies that the coordinator receives ahead of the one it is waiting for
_LOOK_SECONDS = 0.1  # how often the coordinator looks who is missing in an exchange


class MPIEngine(Engine):
    """One party a rank; rank 0 coordinates and hosts a party too."""

    name = "mpi"
    # Without ULFM a party that hangs or fails can be lost, a process cannot.
    survives_loss = TOLERATES_DEATH

    def __init__(
        self,
        sites: Sequence[Site],
        wrap: Callable[[Host], GuardedHost] | None = None,
        timeout: float = Engine.default_timeout,
    ) -> None:
        self._rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
        if len(sites) != size:
            raise InputError(
                f"{len(sites)} parties and {size} MPI ranks; each rank hosts one party, so "
                f"start the script with mpirun -n {len(sites)} python -m mpi4py ..."
            )
        _require_threads(size)
        self.parties = tuple(site.name for site in sites)
        self.coordinates = self._rank == 0
        self.followers = size > 1
        self._job = the_job()
        self._post = self._job.post
        self._number = next(self._post.numbers)
        self._site = sites[self._rank]
        host = Host(self._site, self._rank, self.parties)
        self._own_replies: dict[int, Reply] = {}
        self._station = _Station(wrap(host) if wrap else host, self._post, self._answer)
        self._timeout = timeout
        self._job.opening.open(self._number, self.parties, self._timeout)

    def local_sites(self) -> Mapping[int, Site]:
        """The site of this rank."""
        return {self._rank: self._site}

    def session(self) -> AbstractContextManager[object]:
        """One BLAS thread a rank: the ranks of one machine would fight for its cores."""
        return one_thread()

    # The coordinator's side.

    def call(self, requests: Mapping[int, bytes], timeout: float) -> Iterator[tuple[int, Reply]]:
        """All parties work at once; their replies are received a few at a time."""
        orders = {i: _Order(timeout, (), request) for i, request in requests.items()}
        return self._replies(HANDLE, orders, timeout, timeout)

    def swap(
        self, requests: Mapping[int, bytes], neighbours: Mapping[int, Sequence[int]], timeout: float
    ) -> Iterator[tuple[int, Reply]]:
        """The ranks keep time themselves; this one waits longer, in case one of them is frozen."""
        orders = {
            i: _Order(timeout, tuple(neighbours[i]), request) for i, request in requests.items()
        }
        return self._replies(EXCHANGE, orders, timeout, 2 * _with_grace(timeout))

    def _replies(
        self, kind: int, orders: Mapping[int, _Order], timeout: float, patience: float
    ) -> Iterator[tuple[int, Reply]]:
        turn = self._give(kind, orders)
        deadline = time.monotonic() + patience
        parties = list(orders)
        replies: dict[int, Reply] = {}
        absent = _Absent(orders if kind == EXCHANGE else {}, self._timeout)
        for k, i in enumerate(parties):
            pause = Pause(self._post, self._station.wait)
            while not self._collect(parties[k : k + _WINDOW], turn, replies):
                if time.monotonic() > deadline and not self._post.is_replying(i, timeout):
                    replies[i] = Lost(f"it gave no reply within {timeout:g} s")
                    break
                for rank, near in absent.look(self._post):
                    self._excuse(rank, near, turn)
                pause()
            yield i, replies.pop(i)

    def _excuse(self, rank: int, neighbours: Sequence[int], turn: int) -> None:
        """Neighbours need not wait for a rank from which nothing will come."""
        for i in neighbours:
            if i == self._rank:
                self._station.do_without(turn, rank)
            else:
                frame = Frame(ABSENT, self._number, turn, _RANK.pack(rank))
                self._post.send(i, TO_PARTY, frame)

    def _give(self, kind: int, orders: Mapping[int, _Order]) -> int:
        """Send the orders out, that to this rank's own party last: it shares the processor."""
        self._post.turn += 1
        for i, order in orders.items():
            if i != self._rank:
                self._post.send(i, TO_PARTY, self._frame(kind, order.pack()))
        if self._rank in orders:
            self._station.begin(self._post.turn, kind, orders[self._rank])
        return self._post.turn

    def _frame(self, kind: int, body: bytes = b"") -> Frame:
        return Frame(kind, self._number, self._post.turn, body)

    def _collect(self, parties: Sequence[int], turn: int, replies: dict[int, Reply]) -> bool:
        """Receive what has come from these parties; whether that of the first is there."""
        self._station.advance()
        for i in parties:
            if i not in replies:
                reply = self._own_reply(turn) if i == self._rank else self._received(i, turn)
                if reply is not None:
                    replies[i] = reply
        return parties[0] in replies

    def _own_reply(self, turn: int) -> Reply | None:
        reply = self._own_replies.get(turn)
        self._own_replies.clear()  # any other is late
        return reply

    def _received(self, i: int, turn: int) -> Reply | None:
        while (frame := self._post.receive(i, TO_COORDINATOR)) is not None:
            if frame.turn == turn:
                return frame.body if frame.kind == REPLY else Lost(frame.body.decode())
        if self._post.has_left(i, self._number):
            return Lost("its rank has left the federation")
        why = self._post.why_missing(i, self._timeout)
        return Lost(why) if why else None

    def publish(self, outcome: bytes) -> None:
        """To every rank; a large outcome moves only while this rank attends to it."""
        for i in range(1, len(self.parties)):
            if not self._post.has_left(i, self._number):
                self._post.send(i, TO_PARTY, self._frame(OUTCOME, outcome))
        self._post.flush(self._timeout)

    # The side of a party.

    def _answer(self, turn: int, reply: Reply) -> None:
        if self.coordinates:
            self._own_replies[turn] = reply
            return
        kind, body = (LOST, reply.reason.encode()) if isinstance(reply, Lost) else (REPLY, reply)
        self._post.send(0, TO_COORDINATOR, Frame(kind, self._number, turn, body))

    def serve(self) -> bytes:
        """Answer requests until rank 0 publishes the outcome, or has left."""
        pause = Pause(self._post, self._station.wait)
        with self.session():
            while True:
                frame = self._next_frame()
                if frame is None:
                    if not self._station.advance():
                        pause()
                elif frame.kind == OUTCOME:
                    return frame.body
                elif frame.kind == ABSENT:
                    self._station.do_without(frame.turn, *_RANK.unpack(frame.body))
                else:
                    self._station.begin(frame.turn, frame.kind, _Order.unpack(frame.body))
                    pause = Pause(self._post, self._station.wait)

    def _next_frame(self) -> Frame | None:
        """From rank 0, if there is one; what was meant for a federation closed here is dropped."""
        while (frame := self._post.receive(0, TO_PARTY)) is not None:
            if frame.number == self._number:
                return frame
            if frame.number not in self._post.closed:
                raise FederationError(
                    "rank 0 is at work on another federation; every rank must run the same script"
                )
        if self._post.has_left(0, self._number):
            raise FederationError("rank 0 has closed the federation before the end of a run")
        if why := self._post.why_missing(0, self._timeout):
            self._job.has_explained = True
            name = self.parties[0]
            raise PartyLost(f"party {name!r}, who coordinates, is lost: {why}", party=name)
        return None

    def close(self) -> None:
        """Tell those who might wait for this rank. Waits for nobody: some may have failed."""
        if self._number not in self._post.closed:
            self._post.closed.add(self._number)
            self._station.close()
            self._post.say_goodbye(self._number)


class _Absent:
    """Who is missing in an exchange, each told once; a look now and then is enough."""

    def __init__(self, orders: Mapping[int, _Order], timeout: float) -> None:
        self._orders = dict(orders)
        self._timeout = timeout
        self._next_look = time.monotonic() + _LOOK_SECONDS

    def look(self, post: Post) -> Iterator[tuple[int, Sequence[int]]]:
        """Ranks of which it was not known, and their neighbours."""
        if not self._orders or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_SECONDS
        for rank in [r for r in self._orders if post.why_missing(r, self._timeout)]:
            yield rank, self._orders.pop(rank).neighbours


class _Order(NamedTuple):
    """A request on its way to a party."""

    timeout: float
    neighbours: tuple[int, ...]
    request: bytes

    def pack(self) -> bytes:
        near = np.array(self.neighbours, np.uint32).tobytes()
        return b"".join([_ORDER.pack(self.timeout, len(self.neighbours)), near, self.request])

    @classmethod
    def unpack(cls, body: bytes) -> _Order:
        timeout, n = _ORDER.unpack_from(body)
        near = np.frombuffer(body, np.uint32, n, _ORDER.size)
        return cls(timeout, tuple(near.tolist()), body[_ORDER.size + near.nbytes :])


class _Station:
    """A party at its rank: works off one order at a time, without ever holding up its caller."""

    def __init__(self, host: GuardedHost, post: Post, answer: Callable[[int, Reply], None]) -> None:
        self._host = host
        self._post = post
        self._answer = answer
        self._helper = _Helper()
        self._work: Waiting[None] | None = None
        self._early: dict[int, Frame] = {}  # of neighbours that are a turn ahead
        self._absent: set[tuple[int, int]] = set()  # turn and rank of those that will not send

    def begin(self, turn: int, kind: int, order: _Order) -> None:
        """Take up an order. An earlier one is overdue: its reply would be dropped anyway."""
        self._helper.leave()
        self._absent.clear()
        self._work = self._fulfil(turn, kind, order)
        self.advance()

    def do_without(self, turn: int, rank: int) -> None:
        """Wait no longer for what this neighbour was to send in this turn."""
        self._absent.add((turn, rank))

    def advance(self) -> bool:
        """Go on as far as possible; whether the order under way is now fulfilled."""
        if self._work is None:
            return False
        try:
            next(self._work)
        except StopIteration:
            self._work = None
            return True
        return False

    def wait(self, seconds: float) -> bool:
        """Let a step that is running go on; False if there is none."""
        return self._helper.wait(seconds)

    def close(self) -> None:
        """Let the thread end."""
        self._work = None
        self._helper.close()

    def _fulfil(self, turn: int, kind: int, order: _Order) -> Waiting[None]:
        if kind == EXCHANGE:
            reply = yield from self._exchange(turn, order)
        else:
            reply = yield from self._run(partial(self._host.handle, order.request), order.timeout)
        self._answer(turn, Lost("it gave no reply") if reply is None else reply)

    def _run(self, step: Callable[[], T], timeout: float) -> Waiting[T | Lost]:
        job = self._helper.start(step)
        deadline = time.monotonic() + timeout
        while not job.done:
            if time.monotonic() > deadline:
                self._helper.leave()
                return Lost(f"it gave no reply within {timeout:g} s")
            yield
        return job.result  # type: ignore[no-any-return]

    def _exchange(self, turn: int, order: _Order) -> Waiting[Reply | None]:
        """Offer, send, receive, accept. Neighbours hear of a failed offer at once."""
        deadline = time.monotonic() + _with_grace(order.timeout)
        offer = yield from self._run(partial(self._host.offer, order.request), order.timeout)
        reply, outbox = (offer, None) if isinstance(offer, Lost) else offer
        for j in order.neighbours:
            message = (outbox or {}).get(j)
            kind = NOTHING if message is None else ENVELOPE
            self._post.send(j, TO_NEIGHBOUR, Frame(kind, 0, turn, message or b""))
        if outbox is None:
            return reply
        inbox = yield from self._inbox(turn, order.neighbours, deadline)
        accept = partial(self._host.accept, order.request, inbox)
        return (yield from self._run(accept, order.timeout))

    def _inbox(
        self, turn: int, neighbours: Sequence[int], deadline: float
    ) -> Waiting[dict[int, bytes]]:
        inbox: dict[int, bytes] = {}
        missing = list(neighbours)
        while True:
            frames = {j: self._envelope(j, turn) for j in missing}
            arrivals = {j: frame for j, frame in frames.items() if frame is not None}
            inbox |= {j: f.body for j, f in arrivals.items() if f.kind == ENVELOPE}
            awaited = (j for j in missing if j not in arrivals and j not in self._post.gone)
            missing = [j for j in awaited if (turn, j) not in self._absent]
            if not missing or time.monotonic() > deadline:
                return {j: inbox[j] for j in neighbours if j in inbox}
            yield

    def _envelope(self, j: int, turn: int) -> Frame | None:
        """What a neighbour sent in this turn; older frames are dropped, younger ones wait."""
        while True:
            frame = self._early.pop(j, None) or self._post.receive(j, TO_NEIGHBOUR)
            if frame is None or frame.turn == turn:
                return frame
            if frame.turn > turn:
                self._early[j] = frame
                return None


class _Call:
    """A call on the helper's thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._running = threading.Lock()
        self._running.acquire()
        self.done = False
        self.result: Any = None

    def run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:  # a host never raises; whatever does ends as a lost party
            self.result = Lost(f"its host ended with {type(error).__name__}")
        self.done = True
        self._running.release()

    def wait(self, seconds: float) -> None:
        if self._running.acquire(timeout=seconds):
            self._running.release()


class _Helper:
    """A daemon thread that runs steps. One whose step hangs is left behind, not waited for."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Call | None] | None = None
        self._job: _Call | None = None

    def start(self, work: Callable[[], Any]) -> _Call:
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            thread = threading.Thread(
                target=_work_off, args=(self._jobs,), name="eigenmesh-party", daemon=True
            )
            thread.start()
        self._job = _Call(work)
        self._jobs.put(self._job)
        return self._job

    def wait(self, seconds: float) -> bool:
        """Wait for the step under way; False if there is none."""
        if self._job is None or self._job.done:
            return False
        self._job.wait(seconds)
        return True

    def leave(self) -> None:
        """Go on with another thread if this one is still busy."""
        if self._job is not None and not self._job.done:
            self.close()

    def close(self) -> None:
        """Let the thread end once it has nothing to do."""
        if self._jobs is not None:
            self._jobs.put(None)
        self._jobs = self._job = None


def _work_off(jobs: queue.SimpleQueue[_Call | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()


def _require_threads(size: int) -> None:
    """Signs of life come from a thread beside the script's own calls of MPI."""
    if size > 1 and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise InputError(
            f"MPI was started with thread level {MPI.Query_thread()}, MPI_THREAD_MULTIPLE "
            f"({MPI.THREAD_MULTIPLE}) is expected; leave mpi4py.rc.thread_level as it is"
        )


def _with_grace(timeout: float) -> float:
    """Ranks do not begin at the same instant."""
    return 1.25 * timeout
