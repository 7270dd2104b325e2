"""Who may use a federation: one thread at a time, of the process that opened it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from eigenmesh.errors import FederationError


class Occupancy:
    """Turns, rounds and the ledger are of one run: a second one beside it would mix with the first.

    >>> occupancy = Occupancy()
    >>> with occupancy.hold(), occupancy.hold():
    ...     occupancy.is_own_process
    True
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._holder = ""

    @property
    def is_own_process(self) -> bool:
        """Whether this is no fork of the process that opened the federation."""
        return os.getpid() == self._process

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other threads out; who comes meanwhile is not made to wait, perhaps for ever."""
        if not self.is_own_process:
            raise FederationError(
                f"the federation was opened in process {self._process}, and this is a fork of it, "
                f"{os.getpid()}, without its threads and connections; open a federation here"
            )
        if not self._lock.acquire(blocking=False):
            raise FederationError(
                f"the federation is at work for thread {self._holder!r}, and serves one thread at "
                f"a time; wait for it, or open a federation for each thread"
            )
        try:
            self._holder = threading.current_thread().name
            yield
        finally:
            self._lock.release()
