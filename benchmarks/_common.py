"""Shared by the benchmarks: timings are medians of interleaved repeats, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits


def medians(contestants: Mapping[str, Callable[[], Any]], repeats: int = 5) -> dict[str, float]:
    """Median seconds of each; rounds are interleaved, so that a noisy moment hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    with threadpool_limits(1, user_api="blas"):
        for _ in range(repeats + 1):
            for name, work in contestants.items():
                started = time.perf_counter()
                work()
                seconds[name].append(time.perf_counter() - started)
    return {name: float(np.median(own[1:])) for name, own in seconds.items()}  # first: warm-up


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)
