"""Parties on the workers of a Dask cluster; the client's process coordinates.

Each party's host lives in a Dask actor, pinned to the worker where its data are. Neighbours send to
each other from worker to worker; only receipts reach the client. A step runs where its party is or
not at all: when a worker dies its parties are gone, also if Dask starts the worker anew.

A Dask cluster is one trust domain: who may submit work to it may run any code there and read any
party's data, and Dask pickles what it carries. Ours is pickled only at set-up (how to build a site,
and data that lie in the client's process) and when a fitted model is taken to new samples; while a
protocol runs, the envelopes hold bytes of our wire form and nothing else. Use TLS
(`distributed.Security`) on any network that is not your own.

A party has `timeout` seconds from when a request is sent; parties on one worker share its cores. A
worker that is stopped is known by its silence: it does not say that it is there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import Future as LocalFuture
from contextlib import suppress
from secrets import token_hex
from typing import Any

from distributed import Client, Future, get_client, wait
from distributed.actor import ProxyRPC

from eigenmesh.engines._dask_party import LATE, NONE, PartyActor, SiteBuilder, execute, with_actor
from eigenmesh.engines.faulty import Fault
from eigenmesh.errors import EigenmeshError, InputError, MissingPartyShare, PartyLost
from eigenmesh.runtime import wire
from eigenmesh.runtime.courier import naming
from eigenmesh.runtime.engine import Engine, Lost, Reply
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.protocol import known_roles
from eigenmesh.runtime.site import Site, stated_policy

_LATER = {NONE: "it gave no reply", LATE: "it gave no reply within {:g} s"}
_NO_CLIENT = "the Dask client is closed or does not answer"
_SILENT = "its Dask worker does not answer"
_PATIENCE = 2.5  # timeouts that an exchange may take: to offer, to wait and to accept
_PING_SECONDS = 1.0  # between two questions whether a worker is there
_FEW = 8  # requests under way, even if the workers have fewer threads: a wait costs a round trip
_LOOK_SECONDS = 0.1  # how often a wait looks whether the worker is still there
_FIRST = {"return_when": asyncio.FIRST_COMPLETED}


class Dask(Engine):
    """Hosts in actors, one a party, on the workers of `client`.

    Parameters
    ----------
    names : the parties.
    data : what each site is built from. A Dask future stays at the worker that holds it, and its
        party goes there; anything else is sent once, to the party's worker.
    build_site : makes a site of a name and these data, at the worker.
    policies : what the sites' own policies are, if the client knows.
    workers : addresses to place parties at, in turn; all workers if None.
    faults : a schedule of faults to inject.
    timeout : seconds within which all parties must be set up, and for each of a few questions
        between runs.
    """

    name = "dask"

    def __init__(
        self,
        names: Sequence[str],
        data: Sequence[Any],
        build_site: SiteBuilder,
        *,
        client: Client,
        workers: Sequence[str] | None = None,
        policies: Sequence[Policy] | None = None,
        faults: Sequence[Fault] = (),
        timeout: float = Engine.default_timeout,
    ) -> None:
        self.policies = list(policies or [Policy()] * len(names))
        self.parties = tuple(names)
        self._client = client
        self._swaps = 0
        self._gone: dict[int, str] = {}
        self._silent: set[str] = set()  # workers that did not answer when they were asked last
        self.timeout = timeout
        self._homes = _homes(client, names, data, workers)
        self._futures: list[Future] = []
        self._require_answers()
        threads = client.nthreads()
        self._most_under_way = max(_FEW, 2 * sum(threads[home] for home in set(self._homes)))
        self._futures = self._settle(data, build_site, faults)
        try:
            self._await_arrival()
            self._introduce()
        except BaseException:
            self.close()
            raise

    # Set-up: the only time at which anything but bytes travels.

    def _require_answers(self) -> None:
        """Dask would wait for a worker that is stopped."""
        homes = dict.fromkeys(self._homes)
        pings = {home: self._start(self._greet(home)) for home in homes}
        for name, home in zip(self.parties, self._homes, strict=True):
            if isinstance(reply := _outcome(pings[home], self.timeout), Lost):
                raise PartyLost(f"party {name!r} is lost: {reply.reason}", party=name)

    async def _greet(self, home: str) -> Reply:
        try:
            await asyncio.wait_for(self._rpc(home).identity(), self.timeout)
        except Exception:  # whatever Dask raises
            return Lost(f"{_SILENT} within {self.timeout:g} s")
        return NONE

    def _settle(
        self, data: Sequence[Any], build_site: SiteBuilder, faults: Sequence[Fault]
    ) -> list[Future]:
        # Roles live in modules, and a worker knows only those that it has imported.
        modules = sorted({role.__module__ for role in known_roles().values()})
        return [
            self._client.submit(
                PartyActor,
                *(build_site, i, self.parties, own, faults, modules),
                key=f"eigenmesh-party-{i}-{token_hex(8)}",
                workers=[home],
                allow_other_workers=False,
                retries=0,
                actor=True,
            )
            for i, (home, own) in enumerate(zip(self._homes, self._scatter(data), strict=True))
        ]

    def _scatter(self, data: Sequence[Any]) -> list[Future]:
        """A future for each party's data, at its worker; one message a worker."""
        at: dict[int, Future] = {i: own for i, own in enumerate(data) if isinstance(own, Future)}
        for home in set(self._homes):
            mine = [i for i, place in enumerate(self._homes) if place == home and i not in at]
            own = [data[i] for i in mine]
            futures = self._client.scatter(own, workers=[home], hash=False) if own else []
            at.update(zip(mine, futures, strict=True))
        return [at[i] for i in range(len(data))]

    def _await_arrival(self) -> None:
        """Wait until every actor is there, without fetching anything from it."""
        with suppress(TimeoutError):
            wait(self._futures, timeout=self.timeout)
        for name, home, future in zip(self.parties, self._homes, self._futures, strict=True):
            if future.status == "finished":
                continue
            error = future.exception() if future.status == "error" else None
            if isinstance(error, EigenmeshError):
                with naming(name):
                    raise error
            silence = f"its worker gave no answer within {self.timeout:g} s"
            why = f"{type(error).__name__}: {error}" if error else silence
            raise PartyLost(f"party {name!r} was not set up at worker {home}: {why}", party=name)

    def _introduce(self) -> None:
        """Tell every actor where the others are; a handle of Dask's would arrive without a way."""
        places = [[home, f.key] for home, f in zip(self._homes, self._futures, strict=True)]
        book = wire.dumps({"peers": places})
        asks = [self._ask(i, "meet", (book,), self.timeout) for i in range(len(places))]
        replies = [self._start(ask) for ask in asks]
        for name, reply in zip(self.parties, replies, strict=True):
            answer = _outcome(reply, self.timeout)
            if isinstance(answer, Lost):
                raise PartyLost(f"party {name!r} is lost: {answer.reason}", party=name)

    # What a federation calls.

    def call(self, requests: Mapping[int, bytes], timeout: float) -> Iterator[tuple[int, Reply]]:
        """Requests run in parallel; at most two a worker thread, or eight, are under way."""
        waiting = deque(requests.items())
        under_way: deque[tuple[int, LocalFuture[Reply]]] = deque()
        try:
            while waiting or under_way:
                while waiting and len(under_way) < self._most_under_way:
                    i, request = waiting.popleft()
                    ask = self._ask(i, "handle", (request,), timeout)
                    under_way.append((i, self._start(ask)))
                i, reply = under_way.popleft()
                yield i, _outcome(reply, timeout)
        finally:  # a caller that stops early does not want the rest
            for _, reply in under_way:
                reply.cancel()

    def swap(
        self, requests: Mapping[int, bytes], neighbours: Mapping[int, Sequence[int]], timeout: float
    ) -> Iterator[tuple[int, Reply]]:
        """The actors offer, send to each other and accept; only receipts come here."""
        self._swaps += 1
        receipts = [
            (i, self._start(self._exchange(i, request, neighbours[i], timeout)))
            for i, request in requests.items()
        ]
        for i, receipt in receipts:
            yield i, _outcome(receipt, _PATIENCE * timeout)

    def local_sites(self) -> Mapping[int, Site]:
        """Stand-ins: in one trust domain the client may see to the stores of all sites."""
        return {i: _StandIn(self, i) for i in range(len(self.parties))}

    def at_party(self, i: int, work: Callable[..., Any], *arguments: Any) -> Future:
        """Run `work(actor, ...)` at a party's worker, between runs; what it gives stays there."""
        return self._client.submit(
            with_actor,
            *(work, self._futures[i], *arguments),  # as an argument, the actor outlives a close
            workers=[self._homes[i]],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )

    def tell_party(self, i: int, work: Callable[..., Any], *arguments: Any) -> None:
        """The same, and wait for it. A party that is gone is told nothing: a run will say so."""
        if self._is_gone(i):
            return
        try:
            self.at_party(i, work, *arguments).result(timeout=self.timeout)
        except Exception as error:
            words = f"its Dask worker cannot be reached ({type(error).__name__})"
            raise PartyLost(words, party=self.parties[i]) from error

    def close(self) -> None:
        """Let the actors go, with what they hold; the cluster itself is the user's."""
        self._gone = dict.fromkeys(range(len(self.parties)), "its federation is closed")
        for future in self._futures:
            future.release()
        self._futures = []

    # On the client's event loop.

    def _start(self, work: Coroutine[Any, Any, Reply]) -> LocalFuture[Reply]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._client.loop.asyncio_loop)
        except RuntimeError:  # the loop has ended with the client
            work.close()
            reply: LocalFuture[Reply] = LocalFuture()
            reply.set_result(Lost(_NO_CLIENT))
            return reply

    async def _exchange(self, i: int, request: bytes, near: Sequence[int], timeout: float) -> Reply:
        """One party's part. Its neighbours need not wait for one that the client has lost."""
        swap = self._swaps
        order = wire.dumps({"swap": swap, "near": list(near), "seconds": float(timeout)})
        # The actor keeps to the timeout in both halves; this only bounds its silence.
        patience = _PATIENCE * timeout
        reply = await self._ask(i, "exchange", (order, request), timeout, patience)
        if isinstance(reply, Lost):
            label = wire.dumps({"swap": swap, "sender": i})
            await asyncio.gather(*(self._ask(j, "deliver", (label, NONE), 1.0) for j in near))
        return reply

    async def _ask(
        self,
        i: int,
        method: str,
        arguments: tuple[bytes, ...],
        timeout: float,
        patience: float | None = None,
    ) -> Reply:
        if i in self._gone:
            return Lost(self._gone[i])
        home = self._homes[i]
        if home in self._silent and not await self._is_there(i):
            return Lost(_SILENT)
        try:
            answer = self._reply(i, method, arguments)
            reply = await self._await_answer(i, answer, timeout, patience or timeout)
        except TimeoutError:
            if home in self._silent or not await self._is_there(i):
                return Lost(f"{_SILENT} within {timeout:g} s")
            reply = LATE
        except Exception as error:  # whatever Dask raises ends as a lost party
            if self._is_gone(i):
                self._gone[i] = "its Dask worker is gone"
            reason = f"its Dask worker cannot be reached ({type(error).__name__})"
            return Lost(self._gone.get(i, reason))
        return Lost(_LATER[reply].format(timeout)) if reply in _LATER else reply

    async def _reply(self, i: int, method: str, arguments: tuple[bytes, ...]) -> bytes:
        return await execute(self._rpc(self._homes[i]), self._futures[i].key, method, arguments)

    def _rpc(self, home: str) -> Any:
        # Dask's own handle of an actor takes the process's default client, which may be another's.
        client = self._client
        return client.rpc(home) if client.direct_to_workers else ProxyRPC(client.scheduler, home)

    async def _await_answer(
        self, i: int, answer: Awaitable[bytes], timeout: float, patience: float
    ) -> bytes:
        """Dask itself would go on trying to reach a worker that the scheduler has given up."""
        now = asyncio.get_running_loop().time
        deadline = now() + patience
        task = asyncio.ensure_future(answer)
        watch = asyncio.ensure_future(self._watch(i, timeout))
        try:
            while (rest := deadline - now()) > 0:
                await asyncio.wait({task, watch}, timeout=min(rest, _LOOK_SECONDS), **_FIRST)
                if task.done():
                    return task.result()
                if self._is_gone(i):
                    raise ConnectionError
                if watch.done():
                    break
            raise TimeoutError
        finally:
            task.cancel()
            watch.cancel()

    async def _watch(self, i: int, timeout: float) -> None:
        """Ends when the worker has been silent for so long; no step under way silences it."""
        while True:
            await asyncio.sleep(_PING_SECONDS)
            if not await self._is_there(i, max(timeout - _PING_SECONDS, _PING_SECONDS)):
                return

    async def _is_there(self, i: int, seconds: float = _PING_SECONDS) -> bool:
        """Whether a worker answers; one that does not is hardly waited for again."""
        try:
            await asyncio.wait_for(self._reply(i, "is_there", ()), seconds)
        except Exception:
            self._silent.add(self._homes[i])
            return False
        self._silent.discard(self._homes[i])
        return True

    def _is_gone(self, i: int) -> bool:
        """The scheduler marks an actor's key as soon as its worker is lost."""
        return not self._futures or self._futures[i].status != "finished"


def _outcome(reply: LocalFuture[Reply], seconds: float) -> Reply:
    """What the event loop gives; it keeps to the time itself, unless the client is closed."""
    try:
        return reply.result(seconds + 5.0)
    except (TimeoutError, CancelledError):
        return Lost(_NO_CLIENT)


def require_client(client: Any = None) -> Client:
    """The given client, or the one that is current in this process."""
    if client is None:
        try:
            client = get_client()
        except ValueError:
            raise InputError(
                "there is no Dask client, expected one; start it with distributed.Client(...) and "
                "pass client=, or bring the data here with .compute()"
            ) from None
    if not isinstance(client, Client) or client.asynchronous:
        raise InputError(f"client is {client!r}; a synchronous distributed.Client is expected")
    return client


def chunks_of(collection: Any, client: Client, split: str) -> tuple[str, list[Future]]:
    """The chunks of a Dask array or the partitions of a Dask DataFrame, one a party, in order.

    They are computed if they are not in the workers' memory already, and stay where they are.
    Returns how they split the whole: `split` itself where there is but one.
    """
    if not hasattr(collection, "numblocks"):
        split = "rows"
    elif len(collection.numblocks) != 2:
        raise InputError(f"the Dask array has {collection.ndim} dimensions, expected 2")
    elif min(collection.numblocks) > 1:
        raise InputError(
            f"the Dask array is cut into {' × '.join(map(str, collection.numblocks))} chunks, "
            "expected cuts one way, a chunk a party: x.rechunk({0: -1}) leaves columns, "
            "x.rechunk({1: -1}) rows"
        )
    elif max(collection.numblocks) > 1:
        split = "rows" if collection.numblocks[0] > 1 else "columns"
    # What is in memory already must not be asked for anew: Dask might put the answer elsewhere.
    chunks = _futures_behind(collection) or _futures_behind(client.persist(collection))
    wait(chunks)
    for chunk in chunks:
        if chunk.status == "error":
            chunk.result()  # raises what the user's own graph raised
    return split, chunks


def _futures_behind(collection: Any) -> list[Future]:
    """The futures behind a collection, in the order of its chunks; empty if it is not computed."""
    graph = dict(collection.__dask_graph__())
    values = [graph[key] for key in _flat(collection.__dask_keys__())]
    values = [graph.get(getattr(value, "target", None), value) for value in values]  # of an alias
    return values if all(isinstance(value, Future) for value in values) else []


def _flat(keys: Any) -> Iterator[Any]:
    for key in keys:
        yield from _flat(key) if isinstance(key, list) else [key]


def _homes(
    client: Client, names: Sequence[str], data: Sequence[Any], workers: Sequence[str] | None
) -> list[str]:
    """A worker a party: where its future is, else the next in turn."""
    present = client.nthreads()
    unknown = [worker for worker in workers or () if worker not in present]
    if unknown or not present:
        raise InputError(
            f"workers {', '.join(unknown) or 'are missing'}; the cluster has "
            f"{', '.join(present) or 'none yet'}; client.wait_for_workers(n) waits for them"
        )
    in_turn = list(workers or sorted(present))
    places = client.who_has([own for own in data if isinstance(own, Future)])
    holders = [places.get(own.key) if isinstance(own, Future) else in_turn for own in data]
    for name, holder in zip(names, holders, strict=True):
        if not holder:
            raise PartyLost("its chunk was lost with its worker; compute it again", party=name)
    return [
        min(holders[i]) if isinstance(own, Future) else in_turn[i % len(in_turn)]
        for i, own in enumerate(data)
    ]


# What parties keep between runs, seen from the client.


class Share(Mapping[str, Any]):
    """A party's share of a model, at a worker. It is brought here only if it is looked into."""

    def __init__(self, party: str, future: Future, timeout: float) -> None:
        self.future = future
        self._party = party
        self._timeout = timeout

    def _here(self) -> Mapping[str, Any]:
        try:
            share: Mapping[str, Any] = self.future.result(timeout=self._timeout)
        except Exception as error:
            raise MissingPartyShare(
                f"the share of {self._party!r} was at a Dask worker and is gone "
                f"({type(error).__name__}); fit again, or load a model saved with parties=True",
                party=self._party,
            ) from None
        return share

    def __getitem__(self, key: str) -> Any:
        return self._here()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._here())

    def __len__(self) -> int:
        return len(self._here())


class _Store(dict[str, Any]):
    """The store of a site at a worker: shares are taken and put there without passing here."""

    def __init__(self, engine: Dask, i: int) -> None:
        super().__init__()
        self._engine, self._i = engine, i

    def __getitem__(self, key: str) -> Share:
        future = self._engine.at_party(self._i, PartyActor.kept, key)
        return Share(self._engine.parties[self._i], future, self._engine.timeout)

    def setdefault(self, key: str, share: Any = None) -> Any:
        own = share.future if isinstance(share, Share) else dict(share)
        self._engine.tell_party(self._i, PartyActor.keep, key, own)
        return share


class _StandIn(Site):
    """A site at a worker: its store can be seen to from here, its data and policy cannot."""

    def __init__(self, engine: Dask, i: int) -> None:
        policy = engine.policies[i]
        super().__init__(engine.parties[i], _stay, policy, store=_Store(engine, i))
        self._place = (engine, i)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "policy" and "_place" in self.__dict__:
            raise InputError(
                f"the policy of {self.name!r} is its site's own, at a Dask worker, and is not "
                f"replaced from here; pass policies= when the federation is opened"
            )
        super().__setattr__(name, value)

    def take_over(self, former: Policy) -> None:
        """The site itself decides, by the same rule."""
        engine, i = self._place
        engine.tell_party(i, PartyActor.take_over, former)
        engine.policies[i] = stated_policy(self.policy, former)


def _stay() -> Any:
    raise InputError("the data of this site are at a Dask worker and stay there")
