"""Who may use how many cores of this machine: never more threads at work than cores.

Parties of one process are worked side by side, and one party's long pass over its rows is spread
over whatever cores are idle. Both count here. BLAS is held at one thread meanwhile: threads of its
own would fight for the cores, and those of a call just before still spin.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, Self

from threadpoolctl import OpenBLASController, ThreadpoolController

Worker = Callable[[Iterator[int]], None]
"""Works off the numbers of its tasks, with buffers of its own; called once on every core."""


@cache
def cores() -> int:
    """Cores that this process may use, by its affinity where the system has one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _controller() -> Any:
    """Looking for the BLAS libraries takes milliseconds, so it is done once."""
    return ThreadpoolController()


def _from_any_thread(change: Callable[[], Any]) -> Any:
    """Change how many threads BLAS has.

    threadpoolctl 3.8 lets only the thread that did so first, as long as it lives, and ignores the
    others without a word. Here a lock keeps threads apart, so each may.
    """
    release = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    release(force=True)
    try:
        return change()
    finally:
        release(force=True)


class _Cores:
    """How many threads are at work: parties' own, and helpers that serve while a core is idle."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._depth = threading.local()
        self._own = self._helpers = self._alone = self._limits = 0
        self._blas: Any = None

    # BLAS at one thread, as long as anyone asks for it.

    def limit(self, limit: _Limit) -> None:
        with _uninterrupted(), self._change:
            if not self._limits:
                self._blas = _from_any_thread(
                    lambda: _controller().limit(limits=1, user_api="blas")
                )
            self._limits += 1
            self._alone += limit.alone
            limit.is_on = True

    def unlimit(self, limit: _Limit) -> None:
        with _uninterrupted(), self._change:
            if not limit.is_on:
                return
            limit.is_on = False
            self._limits -= 1
            self._alone -= limit.alone
            if not self._limits:
                _from_any_thread(self._blas.restore_original_limits)

    # A fork has one thread, and would wait for ever for a lock that another had.

    def before_fork(self) -> None:
        self._change.acquire()

    def after_fork(self) -> None:
        self._change.release()

    def begin_anew(self) -> None:
        """In a fork: as if nothing were at work. Limits of before end without an effect."""
        if self._limits:
            _from_any_thread(self._blas.restore_original_limits)
        self.__init__()  # type: ignore[misc]

    # Threads at work.

    def enter(self) -> None:
        """Count this thread, once; helpers make room at their next task, and are waited for."""
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1
        if depth:
            return
        with self._change:
            self._own += 1
            try:
                self._change.wait_for(lambda: not (self._helpers and self._crowded()))
            except BaseException:  # the user's interrupt: this thread does not come to work
                self._own, self._depth.value = self._own - 1, depth
                raise

    def leave(self) -> None:
        depth = getattr(self._depth, "value", 0)
        if not depth:  # in a fork of a thread at work
            return
        self._depth.value = depth - 1
        if depth == 1:
            with self._change:
                self._own -= 1

    def lend(self) -> bool:
        """Whether there was an idle core; it is then a helper's."""
        with self._change:
            idle = not self._alone and self._own + self._helpers < cores()
            self._helpers += idle
            return idle

    def give_back(self) -> None:
        with self._change:
            self._helpers -= 1
            self._change.notify_all()

    def wanted(self) -> bool:
        """Whether a helper should make room."""
        with self._change:
            return self._crowded()

    def _crowded(self) -> bool:
        return self._own + self._helpers > cores()


class _Limit(AbstractContextManager["_Limit"]):
    """In force from its making to its end, as threadpoolctl's own; dropped, it ends."""

    def __init__(self, alone: bool) -> None:
        self.alone = alone
        self.is_on = False
        self._process = os.getpid()
        _cores.limit(self)

    def restore_original_limits(self) -> None:
        """End it."""
        if self._process == os.getpid():
            _cores.unlimit(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.restore_original_limits()

    def __del__(self) -> None:
        # An interrupt between its making and the block that it was made for.
        if self.is_on:
            self.restore_original_limits()


class _uninterrupted(AbstractContextManager[None]):  # noqa: N801
    """The user's interrupt waits until the block has ended; only the main thread gets any.

    Halfway through a change the number of threads that BLAS had before would be lost.
    """

    def __init__(self) -> None:
        self._handler: Any = None
        self._interrupt: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self._handler = handler
                signal.signal(signal.SIGINT, self._note)

    def _note(self, *interrupt: Any) -> None:
        self._interrupt = interrupt

    def __exit__(self, *exception: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            if self._interrupt:
                self._handler(*self._interrupt)


_cores = _Cores()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_cores.before_fork,
        after_in_parent=_cores.after_fork,
        after_in_child=_cores.begin_anew,
    )


def one_blas_thread() -> _Limit:
    """Hold BLAS at one thread; idle cores still help with long passes.

    Any number of threads may do so at once; the last to end lifts it.
    """
    return _Limit(alone=False)


def one_thread() -> _Limit:
    """One core for this process, which is one of several on its machine: BLAS, and no helpers."""
    return _Limit(alone=True)


def one_openmp_thread() -> AbstractContextManager[object]:
    """For this thread's calls of scikit-learn: several threads add up in any order, and what hangs
    on a last digit would differ from run to run and from machine to machine.
    """
    limit: AbstractContextManager[object] = _controller().limit(limits=1, user_api="openmp")
    return limit


@contextmanager
def at_work() -> Iterator[None]:
    """Count this thread as one that keeps a core busy."""
    _cores.enter()
    try:
        yield
    finally:
        _cores.leave()


def spread(worker: Worker, count: int) -> None:
    """Work off the tasks 0 … count − 1 on this thread and on idle cores, now or later.

    Tasks begin in their order. The first error ends the work and is raised here.

    >>> squares = [0] * 5
    >>> def worker(tasks):
    ...     for i in tasks:
    ...         squares[i] = i * i
    >>> spread(worker, 5)
    >>> squares
    [0, 1, 4, 9, 16]
    """
    with one_blas_thread(), at_work():
        if count == 1:
            worker(iter((0,)))
        else:
            _Tasks(worker, count).run()


class _Tasks:
    """Hands out numbers; hires a helper for every core that falls idle before they are gone."""

    def __init__(self, worker: Worker, count: int) -> None:
        self._worker = worker
        self._count = count
        self._next = 0
        self._lock = threading.Lock()
        self._helpers: list[threading.Thread] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._worker(self._hand_out())
        finally:
            self._close()
        if self._error is not None:
            raise self._error

    def _close(self) -> None:
        """No more tasks; those under way end."""
        with self._lock:
            self._count = 0
            helpers = list(self._helpers)
        for helper in helpers:
            helper.join()

    def _hand_out(self, helping: bool = False) -> Iterator[int]:
        while not (helping and _cores.wanted()):
            with self._lock:
                task, self._next = self._next, self._next + 1
                if task >= self._count:
                    return
                self._hire(self._count - self._next)
            yield task

    def _hire(self, most: int) -> None:
        while most > 0 and _cores.lend():
            helper = threading.Thread(target=self._help, name="eigenmesh-helper", daemon=True)
            self._helpers.append(helper)
            helper.start()
            most -= 1

    def _help(self) -> None:
        try:
            self._worker(self._hand_out(helping=True))
        except BaseException as error:  # it is the caller's, whose thread has to raise it
            with self._lock:
                self._error, self._count = self._error or error, 0
        finally:
            _cores.give_back()
