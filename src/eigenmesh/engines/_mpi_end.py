"""How a process leaves its MPI job, and how a job ends that cannot go on.

`MPI_Finalize` waits for every rank, also for one that is stopped or never came. So ranks first say
goodbye to rank 0 and wait until it has heard all of them; if one gives no sign of life, rank 0 ends
the job.

When a rank is killed, `mpirun` wakes the others (SIGCONT), tells them to end (SIGTERM) and ends
them, all within half a second. The first of them on that machine looks whose process is gone, and
says which party that was. Under `mpirun --with-ft ulfm` it leaves them alone, and a run goes on as
`on_loss` says.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from types import FrameType, TracebackType
from typing import Any

from mpi4py import MPI

from eigenmesh.engines._mpi_open import RankOpening
from eigenmesh.engines._mpi_post import ALL, END, Frame, Pause, Post

_ULFM = "OMPI_MCA_mpi_ft_enable"  # set by mpirun --with-ft ulfm
TOLERATES_DEATH = os.environ.get(_ULFM) == "1"
_LAST_WORDS = 0.3  # seconds in which every rank can still say something before the job ends
_FAREWELL = 5.0  # seconds in which rank 0 ends a job that it has said it will end
# How it will end. MPI_Finalize may wait for the dead, too.
_FINALIZE, _EXIT, _ABORT = b"finalize", b"exit", b"abort"


@cache
def the_job() -> RankJob:
    """The job of this process; its ranks end together from now on."""
    return RankJob()


class RankJob:
    """Where this process is one of the ranks."""

    def __init__(self) -> None:
        self.post = Post()
        self.opening = RankOpening(self.post)
        self.has_explained = False  # why the job ends
        self._process = os.getpid()
        self._has_left = False
        if self.post.size > 1:
            atexit.register(self.leave)
            _call_at_finalize(self.leave)
            sys.excepthook = partial(self._abort, sys.excepthook)
            _handle(signal.SIGCONT, lambda *_: self._say_who_is_gone())
            _handle(signal.SIGTERM, self._end)

    # At the end of the script.

    def leave(self) -> None:
        """Wait for all ranks to end, and end the job if one of them never will."""
        if self._has_left or MPI.Is_finalized() or os.getpid() != self._process:
            return
        self._has_left = True
        if not self.post.is_open and not self.opening.is_under_way:
            return
        missing: list[int] = []
        if self.post.is_open:
            self.post.say_goodbye()
            missing = self._await_end() if self.post.rank else self._await_all()
            self.post.stop()
        if missing or not self.post.is_open:  # who did not come to open will not finalise either
            self._say_who_is_silent(missing)
            self._end_job()
        elif self.post.gone:
            _exit(0)

    def _await_all(self) -> list[int]:
        """At rank 0: until the others have said goodbye. Gives those that never will."""
        post = self.post
        self._wait(lambda: all(post.has_left(r) or self._is_missing(r) for r in post.others))
        how = _ABORT if self._silent() else _EXIT if post.gone else _FINALIZE
        post.tell_others(Frame(END, ALL, 0, how))
        # One that was stopped just now would keep all others in MPI_Finalize.
        self._wait(lambda: all(self._hears(r) or self._is_missing(r) for r in post.others))
        return self._silent()

    def _await_end(self) -> list[int]:
        """At any other rank: until rank 0 says that all have ended, unless it is silent itself."""
        post = self.post
        self._wait(lambda: self._hears(0) or self._is_missing(0))
        if not self._hears(0):
            return self._silent()
        self.has_explained = True
        post.tell_others(Frame(END, ALL, 0, b""))
        post.flush(_FAREWELL)
        how = post.note(0, END, ALL)
        if how == _ABORT:
            time.sleep(0.0 if TOLERATES_DEATH else _FAREWELL)
        if how != _FINALIZE:
            _exit(int(how == _ABORT))
        return []

    def _hears(self, rank: int) -> bool:
        return self.post.note(rank, END, ALL) is not None

    def _is_missing(self, rank: int) -> bool:
        return bool(self.post.why_missing(rank, self.post.timeout))

    def _silent(self) -> list[int]:
        return [rank for rank in self.post.others if self.post.is_silent(rank, self.post.timeout)]

    def _wait(self, is_over: Callable[[], bool]) -> None:
        pause = Pause(self.post)
        while not is_over():
            self.post.hear_others()
            pause()

    def _say_who_is_silent(self, ranks: list[int]) -> None:
        if ranks and not self.has_explained:
            self._say(
                f"{self.post.named(ranks)} has given no sign of life for more than "
                f"{self.post.timeout:g} s; the others have ended, and the job ends without it"
            )

    def _say(self, words: str) -> None:
        self.has_explained = True
        print(f"eigenmesh: party {words}", file=sys.stderr, flush=True)

    def _end_job(self) -> None:
        """Abort it, or end this process alone: where others may live, one rank has to abort."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_LAST_WORDS)  # an error of a run is every rank's error: let them all say so
        if TOLERATES_DEATH and not self._is_for_this_rank_to_abort():
            _exit(1)
        MPI.COMM_WORLD.Abort(1)

    def _is_for_this_rank_to_abort(self) -> bool:
        """If several do, mpirun may wait for ever. Ranks of this machine need only be killed."""
        if self.opening.absent:
            return self.post.rank == min(set(range(self.post.size)) - set(self.opening.absent))
        silent = self._silent()
        for process in filter(None, map(self.post.processes.get, silent)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return not all(rank in self.post.processes for rank in silent)

    # At another end.

    def _abort(
        self,
        hook: Callable[..., Any],
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        """An uncaught exception ends the job, also where `-m mpi4py` was forgotten: else the other
        ranks would wait for this one, and it for them in MPI_Finalize.
        """
        if os.getpid() != self._process:  # a fork of it has no part in the job
            hook(kind, error, trace)
            return
        self.has_explained = True
        hook(kind, error, trace)
        self._end_job()

    def _end(self, signum: int, frame: FrameType | None) -> None:
        signal.signal(signum, signal.SIG_DFL)
        if os.getpid() == self._process:
            self._say_who_is_gone()
            time.sleep(_LAST_WORDS)  # the others look who is gone, too
        os.kill(os.getpid(), signum)

    def _say_who_is_gone(self) -> None:
        """If anybody is, and if that is for this rank to say."""
        processes = self.post.processes
        dead = [rank for rank, process in processes.items() if not _is_alive(process)]
        first = next((rank for rank in processes if rank not in dead), None)
        if dead and first == self.post.rank and not self.has_explained:
            self._say(f"{self.post.named(dead)} is lost: its process has died")


def _exit(code: int) -> None:
    """Without MPI_Finalize."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _call_at_finalize(leave: Callable[[], None]) -> None:
    """Scripts may finalise MPI themselves; it then first deletes what is attached to COMM_SELF."""
    key = MPI.Comm.Create_keyval(delete_fn=lambda *_: leave())
    MPI.COMM_SELF.Set_attr(key, True)


def _handle(signum: int, handler: Callable[[int, FrameType | None], None]) -> None:
    """A handler of the user's own stays; other threads than the main one may not set any."""
    is_default = signal.getsignal(signum) is signal.SIG_DFL
    if is_default and threading.current_thread() is threading.main_thread():
        signal.signal(signum, handler)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
