"""What lives at a Dask worker: a party's host in an actor, and the threads in which it works."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from distributed import get_worker
from distributed.protocol import to_serialize

from eigenmesh.engines.faulty import Fault, FaultyHost, GuardedHost
from eigenmesh.runtime import wire
from eigenmesh.runtime.host import Host
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.site import Site
from eigenmesh.threads import one_thread

SiteBuilder = Callable[[str, Any], Site]  # from a party's name and its data, at its worker

NONE, LATE = b"", b"late"  # in place of a reply: there is none, or it took too long
_log = logging.getLogger("eigenmesh.site")


async def execute(rpc: Any, key: str, method: str, arguments: tuple[bytes, ...]) -> bytes:
    """Call a method of an actor; everything that passes is bytes."""
    payload = [to_serialize(argument) for argument in arguments]
    answer = await rpc.actor_execute(actor=key, function=method, args=payload, kwargs={})
    if answer["status"] != "OK":
        raise answer["exception"]
    reply: bytes = answer["result"]
    return reply


def with_actor(work: Callable[..., Any], handle: Any, *arguments: Any) -> Any:
    """In a task at the same worker: do something with the actor itself."""
    return work(get_worker().state.actors[handle.key], *arguments)


class PartyActor:
    """A party's host at a worker. Its methods take and give bytes.

    They run on the worker's event loop, so that neighbours on one worker can reach each other
    while both are in an exchange; what the host does runs in a thread.
    """

    def __init__(
        self,
        build_site: SiteBuilder,
        index: int,
        names: tuple[str, ...],
        data: Any,
        faults: Sequence[Fault],
        modules: Sequence[str],
    ) -> None:
        for module in modules:
            with suppress(ImportError):  # its roles will be refused as unknown, by name
                import_module(module)
        self._site = build_site(names[index], data)
        host = Host(self._site, index, names)
        self._host: GuardedHost = FaultyHost(host, faults, names) if faults else host
        self._index = index
        self._worker = get_worker()
        self._post = _NeighbourPost()
        self._peers: list[tuple[str, str]] = []

    async def meet(self, book: bytes) -> bytes:
        """Learn where the other parties are."""
        self._peers = [(home, key) for home, key in wire.loads(book)["peers"]]
        return b"met"

    async def is_there(self) -> bytes:
        """Say so; a worker that is stopped does not."""
        return NONE

    async def handle(self, request: bytes) -> bytes:
        """Answer a request of the coordinator."""
        return await _in_thread(self._host.handle, request) or NONE

    async def exchange(self, order: bytes, request: bytes) -> bytes:
        """Offer, send to the neighbours, wait for theirs and accept; gives the receipt."""
        plan = wire.loads(order)
        swap, near, seconds = plan["swap"], plan["near"], plan["seconds"]
        # Neighbours that take too long say so when their time is over, a little after ours.
        deadline = asyncio.get_running_loop().time() + 1.25 * seconds
        offer = _in_thread(self._host.offer, request)
        reply, outbox = await _within(seconds, offer, late=(LATE, None))
        for receiver in near:
            self._post.send(self._send(swap, receiver, (outbox or {}).get(receiver)), seconds)
        if outbox is None:
            self._post.end(swap)
            return reply or NONE
        inbox = await self._post.collect(swap, set(near), deadline)
        accept = _in_thread(self._host.accept, request, inbox)
        return await _within(seconds, accept, late=LATE) or NONE

    async def deliver(self, label: bytes, envelope: bytes) -> bytes:
        """Take a neighbour's message; an empty one says that none will come."""
        tree = wire.loads(label)
        self._post.take(tree["swap"], tree["sender"], envelope)
        return NONE

    # Between runs, by a task at the same worker.

    def kept(self, key: str) -> Any:
        """What the site's store has under this name."""
        return self._site.store[key]

    def keep(self, key: str, share: dict[str, Any]) -> None:
        """Put a share of a model into the site's store, unless it is there."""
        self._site.store.setdefault(key, share)

    def take_over(self, former: Policy) -> None:
        """The policy that the party had when a model was fitted, if its site states none."""
        self._site.take_over(former)

    async def _send(self, swap: int, receiver: int, envelope: bytes | None) -> None:
        label = wire.dumps({"swap": swap, "sender": self._index})
        home, key = self._peers[receiver]
        message = (label, envelope or NONE)
        neighbour = self._worker.state.actors.get(key)
        if neighbour is not None:
            await neighbour.deliver(*message)
            return
        try:
            await execute(self._worker.rpc(home), key, "deliver", message)
        except OSError:  # its worker is gone, so nothing will come from there either
            self._post.take(swap, receiver, NONE)
        except Exception:
            _log.exception("a message to party %s could not be delivered", receiver)


class _NeighbourPost:
    """Messages that have arrived, by exchange and sender. Lives on one event loop: no locks."""

    def __init__(self) -> None:
        self._over = 0  # the last exchange that is; what still comes for it is dropped
        self._boxes: dict[int, dict[int, bytes]] = {}
        self._news = asyncio.Event()
        self._leaving: set[asyncio.Task[None]] = set()  # the loop itself keeps no task alive

    def send(self, sending: Coroutine[Any, Any, None], seconds: float) -> None:
        """Let a message leave while its sender goes on: a dead receiver must not hold it up."""
        task = asyncio.ensure_future(_within(seconds, sending, late=None))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def take(self, swap: int, sender: int, envelope: bytes) -> None:
        """Keep a message of this exchange, or of one that other parties have begun already."""
        if swap > self._over:
            self._boxes.setdefault(swap, {}).setdefault(sender, envelope)
            self._news.set()

    async def collect(self, swap: int, senders: set[int], deadline: float) -> dict[int, bytes]:
        """The messages that came in time."""
        now = asyncio.get_running_loop().time
        while not senders <= self._boxes.get(swap, {}).keys() and (seconds := deadline - now()) > 0:
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), seconds)
        return {sender: envelope for sender, envelope in self.end(swap).items() if envelope}

    def end(self, swap: int) -> dict[int, bytes]:
        """Close an exchange; what came for it."""
        box = self._boxes.get(swap, {})
        self._over = max(self._over, swap)
        self._boxes = {later: own for later, own in self._boxes.items() if later > self._over}
        return box


async def _within(seconds: float, work: Awaitable[Any], late: Any) -> Any:
    """What the work gives, or `late` if it takes longer; its thread is then left alone."""
    try:
        return await asyncio.wait_for(work, seconds)
    except TimeoutError:
        return late


def _in_thread(work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    """Run in a thread that has nothing else to do."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    def run() -> None:
        result = None
        try:
            with one_thread():
                result = work(*arguments)
        except BaseException:  # a host never raises; whatever does gives no reply
            _log.exception("a host ended with an error")
        with suppress(RuntimeError):  # the worker has ended meanwhile
            loop.call_soon_threadsafe(settle, result)

    _crew.run(run)
    return future


class _StepThreads:
    """Daemon threads, as many as are needed; one that is idle for a second ends.

    A hung step then blocks neither a later request, which the host refuses at once, nor the end of
    the worker, as it would in `concurrent.futures`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = 0  # threads that wait for a job and have none in the queue yet
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._jobs.put(job)
            if self._idle:
                self._idle -= 1
                return
        threading.Thread(target=self._work, name="eigenmesh-party", daemon=True).start()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job()
            with self._lock:
                self._idle += 1

    def _next(self) -> Callable[[], None] | None:
        while True:
            with suppress(queue.Empty):
                return self._jobs.get(timeout=1.0)
            with self._lock:
                if self._jobs.empty():
                    self._idle -= 1
                    return None


_crew = _StepThreads()
