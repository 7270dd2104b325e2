"""Shared by the benchmarks: timings are medians of interleaved repeats, in one run.

What is shown is kept as well, as JSON with a description of the machine, in the folder that the
variable EIGENMESH_RESULTS names; `write_results.py` makes a page of it.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_info, threadpool_limits

MEASURED = ("eigenmesh", "numpy", "scipy", "scikit-learn")


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
    """Print a table, and keep it if somebody gathers results."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)
    if folder := os.environ.get("EIGENMESH_RESULTS"):
        keep(Path(folder), {"title": title, "columns": columns, "rows": rows})


def keep(folder: Path, table: Mapping[str, Any]) -> None:
    """Add a table to what this benchmark has shown, in place of one of the same title."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{Path(sys.argv[0]).stem}.json"
    record = json.loads(path.read_text()) if path.exists() else {"tables": []}
    others = [one for one in record["tables"] if one["title"] != table["title"]]
    about = (sys.modules["__main__"].__doc__ or "").split("\n\n")
    record |= {
        "purpose": about[0],
        "options": sys.argv[1:],
        "machine": machine(),
        "tables": [*others, table],
    }
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False, default=str) + "\n")


def machine() -> dict[str, Any]:
    """What the figures were taken on; a load above the number of cores makes times doubtful."""
    cpu, memory = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    models = [
        line.split(":", 1)[1].strip()
        for line in (cpu.read_text().splitlines() if cpu.exists() else [])
        if line.startswith("model name")
    ]
    kilobytes = int(memory.read_text().split()[1]) if memory.exists() else 0
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(kilobytes / 2**20),
        "load": [round(one, 1) for one in os.getloadavg()],
        "system": platform.system(),
        "python": platform.python_version(),
        "blas": sorted({str(one["internal_api"]) for one in threadpool_info()}),
        "versions": {name: version(name) for name in MEASURED},
        "day": time.strftime("%Y-%m-%d"),
    }
