"""What work costs in time and in memory that the process holds for itself (RssAnon)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Cost(NamedTuple):
    seconds: float
    cpu: float
    megabytes: float  # at most, of anonymous memory

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s"


def anonymous_megabytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def cost_of(work: Callable[[], Any], repeats: int = 1) -> Cost:
    """The fastest of some repeats, and the most memory of all."""
    most, over = [anonymous_megabytes()], threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            most.append(anonymous_megabytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    times = []
    for _ in range(repeats):
        started, cpu = time.perf_counter(), time.process_time()
        work()
        times.append((time.perf_counter() - started, time.process_time() - cpu))
    over.set()
    watcher.join()
    return Cost(*min(times), max(most))
