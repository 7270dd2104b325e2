"""Dask: seconds to start, and the median round, for bare actors and through our layer.

A round with a coordinator sends 1000 floats to each of 5 parties and adds up 1000 from each; a ring
round sends 1000 floats to both neighbours. Bare Dask does the same with `async` actors that take
and give arrays, without checks, ledger, timeouts or names. Rounds of all contestants are
interleaved in one run, on a cluster of this machine. Run with `python benchmarks/bench_dask.py`.
"""

from __future__ import annotations

import asyncio
import os
import time
from itertools import pairwise
from typing import Any

import numpy as np
from _adder import ring_rounds, star_rounds, timed
from _common import show
from distributed import Actor, Client, LocalCluster, get_worker

import eigenmesh as em

PARTIES, FLOATS, ROUNDS, REPEATS = 5, 1000, 30, 7


class BareAdder:
    """What one would write without us: a step for a sum, and a round with both neighbours."""

    def __init__(self) -> None:
        self.worker = get_worker()
        self.value = np.ones(FLOATS)
        self.heard: list[np.ndarray] = []
        self.peers: list[Any] = []

    async def meet(self, places: list[tuple[str, str]]) -> None:
        """Where the neighbours are."""
        self.peers = [Actor(BareAdder, *place, worker=self.worker) for place in places]

    async def double(self, vector: np.ndarray) -> np.ndarray:
        """As much again."""
        return vector * 2.0

    async def hear(self, vector: np.ndarray) -> None:
        """A neighbour's vector."""
        self.heard.append(vector)

    async def mix(self) -> None:
        """The mean of the neighbours' vectors and its own."""
        await asyncio.gather(*(peer.hear(self.value) for peer in self.peers))
        while len(self.heard) < len(self.peers):
            await asyncio.sleep(0.0005)
        self.value = (self.value + sum(self.heard)) / (1 + len(self.peers))
        self.heard = []


def bare_actors(client: Client) -> list[Any]:
    homes = sorted(client.nthreads())
    dealt = [homes[i % len(homes)] for i in range(PARTIES)]
    futures = [client.submit(BareAdder, workers=[home], actor=True, pure=False) for home in dealt]
    places = [(home, future.key) for home, future in zip(dealt, futures, strict=True)]
    actors = [future.result() for future in futures]
    for i, actor in enumerate(actors):
        actor.meet([places[i - 1], places[(i + 1) % PARTIES]]).result()
    return actors


def bare_star(actors: list[Any]) -> np.ndarray:
    vector = np.ones(FLOATS)
    return sum(reply.result() for reply in [actor.double(vector) for actor in actors])


def bare_ring(actors: list[Any]) -> None:
    for receipt in [actor.mix() for actor in actors]:
        receipt.result()


def main() -> None:
    clock = {"start": time.perf_counter()}
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with cluster, Client(cluster) as client:
        clock["cluster of 2 workers and client"] = time.perf_counter()
        parts = em.Partitioned(rows=[np.ones((2, 2))] * PARTIES)
        with em.federation(parts, engine="dask", client=client, topology="ring") as fed:
            clock["first federation of 5 parties"] = time.perf_counter()
            with em.federation(parts, engine="dask", client=client):
                clock["another federation"] = time.perf_counter()
            compare(fed, bare_actors(client), clock)


def compare(fed: Any, actors: list[Any], clock: dict[str, float]) -> None:
    bare = {"star, bare": bare_star, "ring, bare": bare_ring}
    ours = {"star, ours": star_rounds, "ring, ours": ring_rounds}
    seconds: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        for name, a_round in bare.items():
            seconds.setdefault(name, []).extend(timed(lambda r=a_round: r(actors), ROUNDS))
        for name, protocol in ours.items():
            seconds.setdefault(name, []).extend(fed.run(protocol, FLOATS, ROUNDS).value)
    show_all(seconds, clock)


def show_all(seconds: dict[str, list[float]], clock: dict[str, float]) -> None:
    times = list(clock.items())
    rows = [[name, f"{end - start:.2f} s"] for (_, start), (name, end) in pairwise(times)]
    show("Start-up", ["", "seconds"], rows)
    rows = []
    for name, own in seconds.items():
        ratio = np.median(own) / np.median(seconds[name.split(",")[0] + ", bare"])
        spread = f"{1e3 * np.quantile(own, 0.25):.1f}–{1e3 * np.quantile(own, 0.75):.1f}"
        rows.append([name, f"{1e3 * np.median(own):.2f}", spread, f"{ratio:.2f}×"])
    title = f"Median round, {FLOATS} floats, {PARTIES} parties, {os.cpu_count()} cores (ms)"
    show(f"{title}; asked for: 30 ms, 1.5×", ["round", "median", "quartiles", "of bare"], rows)


if __name__ == "__main__":
    main()
