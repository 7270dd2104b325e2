"""How much memory there is, so that a matrix that will not fit is refused before it is made."""

from __future__ import annotations

import os
from math import isqrt
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
# What a container may use, and uses; of the first and the second version of control groups.
_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
# A kernel matrix, the solver's copy of it, and one more that is under way.
_MATRICES = 3
_UNKNOWN = 1 << 40


def available_bytes() -> int:
    """Memory that can still be had, by what the system says; a terabyte where it says nothing.

    >>> available_bytes() > 0
    True
    """
    containers = [rest for limit in _LIMITS if (rest := _left_in_container(*limit)) is not None]
    return max(min([_left_on_machine(), *containers]), 0)


def most_pairs_of_rows() -> int:
    """Rows of which a matrix of all pairs, and what is needed to solve it, can be held now.

    >>> most_pairs_of_rows() > 100
    True
    """
    return isqrt(available_bytes() // (8 * _MATRICES))


def _left_on_machine() -> int:
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN


def _left_in_container(limit: str, usage: str) -> int | None:
    try:
        return int(Path(limit).read_text()) - int(Path(usage).read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None
