"""One BLAS thread a party: those of several parties would fight for the cores."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[object]:
    """Hold BLAS at one thread."""
    limiter: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limiter


@cache
def _controller() -> Any:
    """Looking for the BLAS libraries takes milliseconds, so it is done once."""
    return ThreadpoolController()
