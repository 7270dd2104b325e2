"""The default engine: every host in this process, a thread a core, the same bytes as anywhere."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from eigenmesh.engines.faulty import GuardedHost
from eigenmesh.runtime.engine import Engine, Lost, Reply
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.site import Site
from eigenmesh.threads import at_work, cores, one_blas_thread

_LITTLE = 1 << 20  # bytes of replies that may be held however many they are
_PATIENCE = 1e-3  # seconds after which a second thread is worth waking
_LOOK_AGAIN = 0.05  # seconds, at most, by which a timeout is exceeded


class InProcess(Engine):
    """Hosts in this process, worked by min(parties, cores) threads with one BLAS thread each."""

    name = "in-process"
    default_timeout = 3600.0  # no network can lose a party here: only a hung step must end

    def __init__(
        self, sites: Sequence[Site], wrap: Callable[[Host], GuardedHost] | None = None
    ) -> None:
        self.parties = tuple(site.name for site in sites)
        self._sites = tuple(sites)
        hosts = [Host(site, i, self.parties) for i, site in enumerate(sites)]
        self._hosts: list[GuardedHost] = [wrap(host) if wrap else host for host in hosts]
        self._crew = _Crew(min(len(sites), cores()))

    def call(self, requests: Mapping[int, bytes], timeout: float) -> Iterator[tuple[int, Reply]]:
        """Requests run in parallel; at most two replies a thread are held, or a megabyte."""
        jobs = {i: partial(self._hosts[i].handle, request) for i, request in requests.items()}
        for i, reply in self._crew.run(jobs, timeout):
            yield i, _or_lost(reply)

    def swap(
        self, requests: Mapping[int, bytes], neighbours: Mapping[int, Sequence[int]], timeout: float
    ) -> Iterator[tuple[int, Reply]]:
        """All offers, then all acceptances: a party that failed to offer does not accept."""
        failures: dict[int, Reply] = {}
        outboxes: dict[int, Mapping[int, bytes]] = {}
        offers = {i: partial(self._hosts[i].offer, request) for i, request in requests.items()}
        for i, result in self._crew.run(offers, timeout):
            reply, outbox = (result, None) if isinstance(result, Lost) else result
            if outbox is None:
                failures[i] = _or_lost(reply)
            else:
                outboxes[i] = outbox
        accepts = {
            i: partial(self._hosts[i].accept, requests[i], _inbox(i, neighbours[i], outboxes))
            for i in outboxes
        }
        receipts = self._crew.run(accepts, timeout)
        for i in requests:
            yield i, failures[i] if i in failures else _or_lost(next(receipts)[1])

    def local_sites(self) -> Mapping[int, Site]:
        """All of them."""
        return dict(enumerate(self._sites))

    def session(self) -> AbstractContextManager[object]:
        """One BLAS thread a worker: those of several workers would fight for the cores.

        A party that is alone gains nothing by more: its passes are spread over the cores without
        BLAS, and small matrices are decomposed many times slower by two threads than by one.
        """
        return one_blas_thread()

    def close(self) -> None:
        """Let the threads end."""
        self._crew.close()


def _or_lost(reply: Any) -> Reply:
    return Lost("it gave no reply") if reply is None else reply


def _inbox(
    receiver: int, senders: Sequence[int], outboxes: Mapping[int, Mapping[int, bytes]]
) -> dict[int, bytes]:
    return {
        sender: outboxes[sender][receiver]
        for sender in senders
        if receiver in outboxes.get(sender, {})
    }


class _Wave:
    """Calls that are worked off in order, by whichever threads come to it.

    A thread passes its result on and goes to the next call without waiting for anybody, so that
    many small calls cost little more than their own time. A few results are held, or many small
    ones.
    """

    def __init__(self, calls: Sequence[Callable[[], Any]], few: int) -> None:
        self._calls = calls
        self._few = few
        self._changed = threading.Condition()
        self._taken = 0
        self._handed_on = 0
        self._since: dict[int, float] = {}  # when the calls under way began
        self._given_up: set[int] = set()
        self._results: dict[int, Any] = {}
        self._held_bytes = 0

    # In a thread.

    def work_off(self) -> bool:
        """Call until nothing is left to call; False if a call took so long that it was given up."""
        while (k := self._take()) is not None:
            try:
                result = self._calls[k]()
            except BaseException as error:  # a host never raises; whatever does is a lost party
                result = Lost(f"its host ended with {type(error).__name__}")
            if not self._put(k, result):
                return False
        return True

    def _take(self) -> int | None:
        with self._changed:
            while self.has_more and self._is_full():
                self._changed.wait()
            if not self.has_more:
                return None
            k, self._taken = self._taken, self._taken + 1
            self._since[k] = time.monotonic()
            return k

    @property
    def has_more(self) -> bool:
        """Whether there are calls that no thread has taken."""
        return self._taken < len(self._calls)

    def _is_full(self) -> bool:
        return self._taken - self._handed_on >= self._few and self._held_bytes >= _LITTLE

    def _put(self, k: int, result: Any) -> bool:
        with self._changed:
            if k in self._given_up:
                return False
            del self._since[k]
            self._results[k] = result
            self._held_bytes += _size(result)
            if k == self._handed_on:  # the one that is waited for
                self._changed.notify_all()
            return True

    # In the thread that wants the results.

    def hand_on(self, seconds: float) -> list[Any]:
        """The results that come next: small ones as many as are there. Waits for the first."""
        with self._changed:
            self._changed.wait_for(lambda: self._handed_on in self._results, seconds)
            results: list[Any] = []
            size = 0
            while self._handed_on in self._results and size < _LITTLE:
                results.append(self._results.pop(self._handed_on))
                size += _size(results[-1])
                self._handed_on += 1
            self._held_bytes -= size
            self._changed.notify_all()
            return results

    def give_up(self, timeout: float) -> bool:
        """Do without the result that comes next, if its call takes longer than the timeout."""
        with self._changed:
            k, now = self._handed_on, time.monotonic()
            overdue = k not in self._results and now - self._since.get(k, now) >= timeout
            if overdue:
                self._given_up.add(k)
                del self._since[k]
                self._handed_on += 1
            return overdue

    def end(self) -> int:
        """Begin no more calls and give up those under way; how many these are."""
        with self._changed:
            self._taken = len(self._calls)
            self._given_up.update(self._since)
            self._changed.notify_all()
            return len(self._since)


def _size(result: Any) -> int:
    return len(result) if isinstance(result, bytes) else 0


class _Crew:
    """Daemon threads that work off waves. One whose call overruns is replaced, not waited for.

    `concurrent.futures` would wait for a hung step when the interpreter ends.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._waves: queue.SimpleQueue[_Wave | None] = queue.SimpleQueue()
        self._started = False

    def run(
        self, calls: Mapping[int, Callable[[], Any]], timeout: float
    ) -> Iterator[tuple[int, Any]]:
        """Results in the order of `calls`; `Lost` for one that takes longer than `timeout`."""
        self._start()
        wave = _Wave(list(calls.values()), 2 * self._size)
        self._waves.put(wave)
        helpers, patience = self._size - 1, _PATIENCE
        waiting = deque(calls)
        try:
            while waiting:
                results = wave.hand_on(min(patience, timeout))
                if not results and wave.give_up(timeout):
                    self._hire()
                    results = [Lost(f"it gave no reply within {timeout:g} s")]
                    self._waves.put(wave)
                elif not results:
                    patience = min(2 * patience, _LOOK_AGAIN)
                    if helpers and wave.has_more:
                        helpers -= 1
                        self._waves.put(wave)
                for result in results:
                    yield waiting.popleft(), result
        finally:  # a caller that stops early must not leave threads on which the next one waits
            for _ in range(wave.end()):
                self._hire()

    def close(self) -> None:
        if self._started:
            for _ in range(self._size):
                self._waves.put(None)
            self._started = False

    def _start(self) -> None:
        if not self._started:
            self._started = True
            for _ in range(self._size):
                self._hire()

    def _hire(self) -> None:
        threading.Thread(target=self._work, name="eigenmesh-party", daemon=True).start()

    def _work(self) -> None:
        while (wave := self._waves.get()) is not None:
            with at_work():
                in_time = wave.work_off()
            if not in_time:
                return  # another thread has taken this one's place
