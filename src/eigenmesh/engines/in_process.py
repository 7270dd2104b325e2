"""The default engine: every host in this process, a thread a core, the same bytes as anywhere."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from eigenmesh.engines.faulty import GuardedHost
from eigenmesh.federation.engine import Engine, Lost, Reply
from eigenmesh.federation.host import Host
from eigenmesh.federation.site import Site
from eigenmesh.threads import one_thread


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
        self._crew = _Crew(min(len(sites), os.cpu_count() or 1))

    def call(self, requests: Mapping[int, bytes], timeout: float) -> Iterator[tuple[int, Reply]]:
        """Requests run in parallel; at most two a thread are under way."""
        jobs = {i: partial(self._hosts[i].handle, request) for i, request in requests.items()}
        for i, reply in self._crew.run(jobs, timeout):
            yield i, _or_lost(reply)

    def swap(
        self, requests: Mapping[int, bytes], neighbours: Mapping[int, Sequence[int]], timeout: float
    ) -> Iterator[tuple[int, Reply]]:
        """All offers, then all acceptances: a party that failed to offer does not accept."""
        failed: dict[int, Reply] = {}
        outboxes: dict[int, Mapping[int, bytes]] = {}
        offers = {i: partial(self._hosts[i].offer, request) for i, request in requests.items()}
        for i, result in self._crew.run(offers, timeout):
            reply, outbox = (result, None) if isinstance(result, Lost) else result
            if outbox is None:
                failed[i] = _or_lost(reply)
            else:
                outboxes[i] = outbox
        accepts = {
            i: partial(self._hosts[i].accept, requests[i], _inbox(i, neighbours[i], outboxes))
            for i in outboxes
        }
        receipts = self._crew.run(accepts, timeout)
        for i in requests:
            yield i, failed[i] if i in failed else _or_lost(next(receipts)[1])

    def local_sites(self) -> Mapping[int, Site]:
        """All of them."""
        return dict(enumerate(self._sites))

    def session(self) -> AbstractContextManager[object]:
        """One BLAS thread a worker: BLAS threads of several workers would fight for the cores."""
        if len(self._hosts) == 1:
            return nullcontext()
        return one_thread()

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


class _Job:
    """A call under way on some thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.started = threading.Event()
        self.done = threading.Event()
        self.start_time = 0.0
        self.result: Any = None
        self.abandoned = False
        self._lock = threading.Lock()

    def run(self) -> None:
        if self.abandoned:
            return
        self.start_time = time.monotonic()
        self.started.set()
        try:
            self.result = self.work()
        except BaseException as error:  # a host never raises; whatever does ends as a lost party
            self.result = Lost(f"its host ended with {type(error).__name__}")
        with self._lock:
            self.done.set()

    def abandon(self) -> bool:
        """Give up waiting, unless it is done; its thread is then no longer counted on."""
        with self._lock:
            self.abandoned = not self.done.is_set()
            return self.abandoned

    def wait(self, timeout: float) -> bool:
        self.started.wait()
        return self.done.wait(max(0.0, self.start_time + timeout - time.monotonic()))


class _Crew:
    """Daemon threads that work off jobs. One whose job overruns is replaced, not waited for.

    `concurrent.futures` would wait for a hung step when the interpreter ends.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._started = False

    def run(
        self, calls: Mapping[int, Callable[[], Any]], timeout: float
    ) -> Iterator[tuple[int, Any]]:
        """Results in the order of `calls`; `Lost` for one that takes longer than `timeout`."""
        self._start()
        waiting = deque(calls.items())
        under_way: deque[tuple[int, _Job]] = deque()
        try:
            while waiting or under_way:
                while waiting and len(under_way) < 2 * self._size:
                    i, work = waiting.popleft()
                    under_way.append((i, _Job(work)))
                    self._jobs.put(under_way[-1][1])
                i, job = under_way[0]
                in_time = job.wait(timeout) or not self._replace(job)
                under_way.popleft()
                yield i, job.result if in_time else Lost(f"it gave no reply within {timeout:g} s")
        finally:  # a caller that stops early must not leave threads on which the next one waits
            for _, job in under_way:
                self._replace(job)

    def _replace(self, job: _Job) -> bool:
        """Whether the job had to be abandoned; another thread then takes the place of its own."""
        abandoned = job.abandon()
        if abandoned:
            self._hire()
        return abandoned

    def close(self) -> None:
        if self._started:
            for _ in range(self._size):
                self._jobs.put(None)
            self._started = False

    def _start(self) -> None:
        if not self._started:
            self._started = True
            for _ in range(self._size):
                self._hire()

    def _hire(self) -> None:
        threading.Thread(target=self._work, name="eigenmesh-party", daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            if job.abandoned:
                return  # another thread has taken this one's place
