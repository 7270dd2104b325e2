"""How far long passes over rows have come, for whoever watches.

Nobody watches by default, and a pass then pays for one look at a variable. Passes run in the
threads of engines, so the observer is the whole process's, not a thread's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Observer(Protocol):
    """Is told what passes do; calls come from several threads at once."""

    def begin(self, words: str, rows: int) -> None:
        """A pass over so many rows begins; passes of several parties may be under way."""

    def advance(self, rows: int) -> None:
        """So many rows more are done."""

    def end(self, words: str) -> None:
        """A pass is over."""


_observer: Observer | None = None


@contextmanager
def watched(observer: Observer) -> Iterator[None]:
    """Tell `observer` of all passes meanwhile; the one before takes over again afterwards.

    >>> class Log:
    ...     def begin(self, words, rows): print(words, rows)
    ...     def advance(self, rows): print("+", rows)
    ...     def end(self, words): print("done")
    >>> with watched(Log()), over_rows("counting", 5) as done:
    ...     done(3)
    ...     done(2)
    counting 5
    + 3
    + 2
    done
    """
    global _observer
    before, _observer = _observer, observer
    try:
        yield
    finally:
        _observer = before


def is_watched() -> bool:
    """Whether anybody is told: asking others how far they are costs time."""
    return _observer is not None


@contextmanager
def over_rows(words: str, rows: int) -> Iterator[Callable[[int], object]]:
    """One pass; gives the call that says how many rows more are done."""
    observer = _observer
    if observer is None:
        yield int  # a call that leaves nothing behind
        return
    observer.begin(words, rows)
    try:
        yield observer.advance
    finally:
        observer.end(words)
