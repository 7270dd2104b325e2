"""The post between MPI ranks: frames, how to wait for them, and what is said when a rank dies.

A *frame* is a fixed prefix and our own bytes, sent as raw buffers on a communicator of our own. MPI
is called from the main thread alone, and never blocks: whoever waits looks again and again.

When a rank is killed, `mpirun` wakes the others (SIGCONT), tells them to end (SIGTERM) and ends
them, all within half a second. The first of them on that machine looks whose process is gone, and
says which party that was.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import signal
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import count
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from eigenmesh.errors import FederationError, InputError

# Who a frame is for. MPI keeps the order of frames from one rank to another under one tag.
TO_PARTY, TO_COORDINATOR, TO_NEIGHBOUR = 1, 2, 3
# What a frame is.
HANDLE, EXCHANGE, OUTCOME, REPLY, LOST, ENVELOPE, NOTHING, CLOSED = range(8)

_PREFIX = struct.Struct("<BBxxIQ")  # kind, whether more follows, federation, turn
_LONGEST = 1 << 30  # bytes in one MPI message, whose count is a C int
_SPIN, _ATTENTIVE, _DOZING = 5e-3, 1e-4, 5e-3  # seconds: no sleep yet, a short one, the longest
_GLANCE = 1e-3  # seconds between two looks while a step is running
_START = 600.0  # seconds within which all ranks must have opened a federation
_LAST_WORDS = 0.3  # seconds in which every rank can still say something before the job ends
_ALL = 0  # in place of a federation's number: the process has ended
_give_way = getattr(os, "sched_yield", partial(time.sleep, 0))  # macOS has none


class Pause:
    """How to wait: at first only give way, then sleep a tenth of the time that has passed.

    A wait is thus never prolonged by much, and eighty idle ranks leave two cores to those at work.
    `running(seconds)` waits for a step under way; it is False if there is none.
    """

    def __init__(self, post: Post, running: Callable[[float], bool] | None = None) -> None:
        self._post = post
        self._running = running
        self._since = time.perf_counter()

    def __call__(self) -> None:
        seconds_so_far = time.perf_counter() - self._since
        # A long message moves a piece at a time, whenever both ends attend to it.
        longest = _ATTENTIVE if self._post.is_sending else _DOZING
        seconds = min(max(seconds_so_far / 10, _ATTENTIVE / 2), longest)
        # Nothing is worth interrupting a step for; its end wakes this thread at once.
        if self._running is not None and self._running(max(seconds, _GLANCE)):
            return
        if seconds_so_far < _SPIN or self._post.is_receiving:
            _give_way()
        else:
            time.sleep(seconds)


class Frame(NamedTuple):
    """What travels. `number` is that of the federation."""

    kind: int
    number: int
    turn: int
    body: bytes


class _Transfer(NamedTuple):
    """A message that is being received."""

    request: MPI.Request
    buffer: bytearray
    since: float


class Post:
    """Frames between ranks, whole and in order, for all federations of this process."""

    def __init__(self) -> None:
        self.turn = 0
        self.numbers = count(_ALL + 1)
        self.parties: tuple[str, ...] = ()  # of the federation that was opened last
        self.has_explained = False  # why the job ends
        self.closed: set[int] = set()
        self._sending: list[tuple[MPI.Request, bytes]] = []  # MPI reads the bytes until it is done
        self._receiving: dict[tuple[int, int], _Transfer] = {}
        self._parts: dict[tuple[int, int], list[bytes]] = {}
        self._left: set[tuple[int, int]] = set()
        # The user's own messages on COMM_WORLD must not meet ours.
        self._comm, request = MPI.COMM_WORLD.Idup()
        self._wait_for_all(request)

    # Opening.

    def _wait_for_all(self, request: MPI.Request) -> None:
        deadline = time.monotonic() + _START
        pause = Pause(self)
        while not request.Test():
            if time.monotonic() > deadline:
                raise FederationError(
                    f"not every rank has opened the federation within {_START:g} s; every rank "
                    f"must run the same script"
                )
            pause()

    def agree(self, number: int, parties: tuple[str, ...]) -> None:
        """Raise an error, at every rank, unless all have opened the same federation."""
        text = f"{number} {parties}"
        digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
        mine, least = np.array([digest, -digest]), np.empty(2, np.int64)
        self._wait_for_all(
            self._comm.Iallreduce([mine, MPI.INT64_T], [least, MPI.INT64_T], MPI.MIN)
        )
        if least[0] != -least[1]:
            raise InputError(
                "the ranks have opened different federations; every rank must run the same "
                "script, with the same parties in the same order"
            )
        self.parties = parties

    def processes(self) -> list[int]:
        """The process of each rank on this machine, 0 for ranks elsewhere."""
        machine = zlib.crc32(MPI.Get_processor_name().encode())
        mine = np.array([os.getpid(), machine], np.int64)
        all_ranks = np.empty((self._comm.size, 2), np.int64)
        self._wait_for_all(self._comm.Iallgather([mine, MPI.INT64_T], [all_ranks, MPI.INT64_T]))
        return [pid if place == machine else 0 for pid, place in all_ranks.tolist()]

    # Sending.

    def send(self, to: int, tag: int, frame: Frame) -> list[MPI.Request]:
        """Begin to send; whoever waits for anything moves it on."""
        starts = range(0, len(frame.body), _LONGEST) or [0]
        requests = []
        for start in starts:
            more = start != starts[-1]
            prefix = _PREFIX.pack(frame.kind, more, frame.number, frame.turn)
            message = prefix + frame.body[start : start + _LONGEST]
            requests.append(self._comm.Isend([message, MPI.BYTE], to, tag))
            self._sending.append((requests[-1], message))
        return requests

    def wait(self, requests: Sequence[MPI.Request], timeout: float) -> None:
        """Until these are sent; one that nobody takes in is given up after the timeout."""
        deadline = time.monotonic() + timeout
        pause = Pause(self)
        while self._unsent(requests) and time.monotonic() < deadline:
            pause()

    def _unsent(self, requests: Sequence[MPI.Request]) -> bool:
        self._forget_sent()
        under_way = {id(request) for request, _ in self._sending}
        return any(id(request) in under_way for request in requests)

    def _forget_sent(self) -> None:
        self._sending = [item for item in self._sending if not item[0].Test()]

    # Receiving.

    def receive(self, source: int, tag: int) -> Frame | None:
        """The next frame from a rank under a tag, if all of it is here."""
        if self._sending:
            self._forget_sent()
        lane = (source, tag)
        while (buffer := self._message(lane)) is not None:
            kind, more, number, turn = _PREFIX.unpack_from(buffer)
            parts = self._parts.setdefault(lane, [])
            parts.append(bytes(memoryview(buffer)[_PREFIX.size :]))
            if not more:
                del self._parts[lane]
                if kind == CLOSED:
                    self._left.add((source, number))
                    continue
                return Frame(kind, number, turn, parts[0] if len(parts) == 1 else b"".join(parts))
        return None

    def _message(self, lane: tuple[int, int]) -> bytearray | None:
        transfer = self._receiving.pop(lane, None) or self._match(lane)
        if transfer is None:
            return None
        if transfer.request.Test():
            return transfer.buffer
        self._receiving[lane] = transfer
        return None

    def _match(self, lane: tuple[int, int]) -> _Transfer | None:
        status = MPI.Status()
        message = self._comm.Improbe(*lane, status)
        if message is None:
            return None
        buffer = bytearray(status.Get_count(MPI.BYTE))
        return _Transfer(message.Irecv([buffer, MPI.BYTE]), buffer, time.monotonic())

    @property
    def is_sending(self) -> bool:
        """Whether something is on its way from here."""
        return bool(self._sending)

    @property
    def is_receiving(self) -> bool:
        """Whether something is on its way to this rank."""
        return bool(self._receiving)

    def is_replying(self, source: int, timeout: float) -> bool:
        """Whether a reply is on its way, and not for longer than the timeout."""
        transfer = self._receiving.get((source, TO_COORDINATOR))
        return transfer is not None and time.monotonic() - transfer.since < timeout

    # Leaving.

    def has_left(self, rank: int, number: int) -> bool:
        """Whether a rank has closed a federation, or ended."""
        return not self._left.isdisjoint([(rank, number), (rank, _ALL)])

    def say_goodbye(self, number: int = _ALL) -> None:
        """To the followers if this rank coordinates, else to the coordinator."""
        if MPI.Is_finalized():
            return
        rank, size = self._comm.rank, self._comm.size
        tag = TO_COORDINATOR if rank else TO_PARTY
        for other in range(1, size) if rank == 0 else [0]:
            self.send(other, tag, Frame(CLOSED, number, self.turn, b""))
        self._forget_sent()


@cache
def the_post() -> Post:
    """The post of this process; its ranks end together from now on."""
    post = Post()
    if MPI.COMM_WORLD.size > 1:
        atexit.register(post.say_goodbye)
        sys.excepthook = partial(_abort, post, sys.excepthook)
        say_who_is_gone = partial(_say_who_is_gone, post, post.processes(), MPI.COMM_WORLD.rank)
        _handle(signal.SIGCONT, lambda *_: say_who_is_gone())
        _handle(signal.SIGTERM, partial(_end, say_who_is_gone))
    return post


def _abort(
    post: Post,
    hook: Callable[..., Any],
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """An uncaught exception ends the job, also where `-m mpi4py` was forgotten: else the other
    ranks would wait for this one, and it for them in MPI_Finalize.
    """
    post.has_explained = True
    hook(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_LAST_WORDS)  # an error of a run is every rank's error: let them all say so
    MPI.COMM_WORLD.Abort(1)


def _handle(signum: int, handler: Callable[[int, FrameType | None], None]) -> None:
    """A handler of the user's own stays; other threads than the main one may not set any."""
    is_default = signal.getsignal(signum) is signal.SIG_DFL
    if is_default and threading.current_thread() is threading.main_thread():
        signal.signal(signum, handler)


def _end(say_who_is_gone: Callable[[], None], signum: int, frame: FrameType | None) -> None:
    signal.signal(signum, signal.SIG_DFL)
    say_who_is_gone()
    time.sleep(_LAST_WORDS)  # the others look who is gone, too
    os.kill(os.getpid(), signum)


def _say_who_is_gone(post: Post, processes: Sequence[int], own_rank: int) -> None:
    """If anybody is, and if that is for this rank to say."""
    dead = [rank for rank, pid in enumerate(processes) if pid and not _is_alive(pid)]
    first = next(rank for rank, pid in enumerate(processes) if pid and rank not in dead)
    if dead and post.parties and first == own_rank and not post.has_explained:
        post.has_explained = True
        names = ", ".join(f"{post.parties[rank]!r} (rank {rank})" for rank in dead)
        print(
            f"eigenmesh: party {names} is lost: its process has died", file=sys.stderr, flush=True
        )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
