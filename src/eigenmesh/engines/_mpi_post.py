"""The post between MPI ranks: frames, and how to wait for them.

A *frame* is a fixed prefix and our own bytes, sent as raw buffers on a communicator of our own.
Frames are sent and received by the main thread alone, and that never blocks: whoever waits looks
again and again, and gives up at a timeout, or when the one it waits for gives no sign of life
(`_mpi_pulse.py`) or its process has died, in a job that survives that (`mpirun --with-ft ulfm`).
How a federation is opened is in `_mpi_open.py`, how a job ends in `_mpi_end.py`.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import NamedTuple

from mpi4py import MPI

from eigenmesh.engines._mpi_pulse import Pulse, note_death

# Who a frame is for. MPI keeps the order of frames from one rank to another under one tag.
TO_PARTY, TO_COORDINATOR, TO_NEIGHBOUR = 1, 2, 3
SIGN_OF_LIFE, HERE = 4, 5  # tags of empty messages, which are no frames
# What a frame is.
HANDLE, EXCHANGE, OUTCOME, ABSENT, REPLY, LOST, ENVELOPE, NOTHING = range(8)
OPENING, VERDICT, END, CLOSED = range(8, 12)

_NOTES = (OPENING, VERDICT, END)  # kinds that are set aside, whoever was receiving
_PREFIX = struct.Struct("<BBxxIQ")  # kind, whether more follows, federation, turn
_LONGEST = 1 << 30  # bytes in one MPI message, whose count is a C int
_SPIN, _ATTENTIVE, _DOZING = 5e-3, 1e-4, 5e-3  # seconds: no sleep yet, a short one, the longest
_GLANCE = 1e-3  # seconds between two looks while a step is running
ALL = 0  # in place of a federation's number: the process has ended
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


class _Departure(NamedTuple):
    """A message that is being sent. MPI reads the bytes until it is done."""

    to: int
    request: MPI.Request
    message: bytes


class Post:
    """Frames between ranks, whole and in order, for all federations of this process."""

    def __init__(self) -> None:
        self.rank, self.size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
        # All talk to rank 0, and neighbours to each other in an exchange.
        self.others = range(1, self.size) if self.rank == 0 else range(1)
        self.turn = 0
        self.numbers = count(ALL + 1)
        self.closed: set[int] = set()
        self.gone: set[int] = set()  # ranks whose process has died
        # Of the federation that was opened last.
        self.parties: tuple[str, ...] = ()
        self.timeout = 0.0
        self.processes: dict[int, int] = {}  # of the ranks on this machine
        self._comm: MPI.Intracomm = MPI.COMM_WORLD
        self._pulse: Pulse | None = None
        self._sending: list[_Departure] = []
        self._receiving: dict[tuple[int, int], _Transfer] = {}
        self._parts: dict[tuple[int, int], list[bytes]] = {}
        self._left: set[tuple[int, int]] = set()
        self._notes: dict[tuple[int, int, int], bytes] = {}

    def start(self, comm: MPI.Intracomm) -> None:
        """Use a communicator that no messages of the user's own are on."""
        self._comm = comm

    def start_pulse(self) -> None:
        """Give signs of life from now on, and listen to those of others."""
        if self._pulse is None and self.size > 1:
            self._pulse = Pulse(self._comm, SIGN_OF_LIFE, self.others, self.gone)

    @property
    def is_open(self) -> bool:
        """Whether all ranks have once opened a federation together."""
        return self._pulse is not None

    def named(self, ranks: Iterable[int]) -> str:
        """The parties of these ranks, in words."""
        return ", ".join(f"{self.parties[rank]!r} (rank {rank})" for rank in ranks)

    # Sending.

    def send(self, to: int, tag: int, frame: Frame) -> None:
        """Begin to send; whoever waits for anything moves it on."""
        starts = range(0, len(frame.body), _LONGEST) or [0]
        for start in starts:
            more = start != starts[-1]
            prefix = _PREFIX.pack(frame.kind, more, frame.number, frame.turn)
            message = prefix + frame.body[start : start + _LONGEST]
            if to in self.gone:
                return
            try:
                request = self._comm.Isend([message, MPI.BYTE], to, tag)
            except MPI.Exception as error:
                note_death(error, to, self.gone)
            else:
                self._sending.append(_Departure(to, request, message))

    def flush(self, timeout: float) -> None:
        """Until all is sent; what nobody takes in is given up after the timeout."""
        deadline = time.monotonic() + timeout
        pause = Pause(self)
        while self._is_under_way(timeout) and time.monotonic() < deadline:
            pause()

    def _is_under_way(self, timeout: float) -> bool:
        self._forget_sent()
        return any(not self.why_missing(departure.to, timeout) for departure in self._sending)

    def _forget_sent(self) -> None:
        self._sending = [departure for departure in self._sending if not self._is_sent(departure)]

    def _is_sent(self, departure: _Departure) -> bool:
        try:
            return bool(departure.request.Test())
        except MPI.Exception as error:
            note_death(error, departure.to, self.gone)
            return True

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
            if more:
                continue
            del self._parts[lane]
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            if kind == CLOSED:
                self._left.add((source, number))
            elif kind in _NOTES:
                self._notes[source, kind, number] = body
            else:
                return Frame(kind, number, turn, body)
            return None  # whoever waited for this must see it before the next frame is taken
        return None

    def note(self, source: int, kind: int, number: int) -> bytes | None:
        """What a rank has said about opening a federation or ending the job, if it has."""
        return self._notes.get((source, kind, number))

    def forget_notes(self, number: int) -> None:
        """What was said about a federation that is open now."""
        self._notes = {key: note for key, note in self._notes.items() if key[2] != number}

    def _message(self, lane: tuple[int, int]) -> bytearray | None:
        if lane[0] in self.gone:
            return None
        try:
            transfer = self._receiving.pop(lane, None) or self._match(lane)
            if transfer is None:
                return None
            if transfer.request.Test():
                return transfer.buffer
        except MPI.Exception as error:
            note_death(error, lane[0], self.gone)
            return None
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

    # Who is there.

    def is_silent(self, rank: int, seconds: float) -> bool:
        """Whether a rank has given no sign of life for so long."""
        if self._pulse is None:
            return False
        return self._pulse.is_silent(rank, seconds, self.processes.get(rank, 0))

    def why_missing(self, rank: int, seconds: float) -> str:
        """What has become of a rank from which nothing will come; empty if something may."""
        if rank in self.gone:
            return "its process has died"
        if self.is_silent(rank, seconds):
            return f"its process has given no sign of life for more than {seconds:g} s"
        return ""

    def has_left(self, rank: int, number: int = ALL) -> bool:
        """Whether a rank has closed a federation, or ended."""
        return not self._left.isdisjoint([(rank, number), (rank, ALL)])

    # Leaving.

    def say_goodbye(self, number: int = ALL) -> None:
        """To the followers if this rank coordinates, else to the coordinator."""
        self.tell_others(Frame(CLOSED, number, self.turn, b""))

    def tell_others(self, frame: Frame) -> None:
        """A frame that each of them is to receive, or for rank 0."""
        for other in self.others:
            self.send(other, TO_COORDINATOR if self.rank else TO_PARTY, frame)
        self._forget_sent()

    def hear_others(self) -> None:
        """Take in what they say between runs; a frame of a run that is over is dropped."""
        for other in self.others:
            self.receive(other, TO_PARTY if self.rank else TO_COORDINATOR)

    def stop(self) -> None:
        """Call MPI no more from another thread."""
        if self._pulse is not None:
            self._pulse.stop()
