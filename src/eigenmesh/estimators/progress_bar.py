"""Bars on stderr for work that takes long; short work shows none, nor does a stream that is no
terminal. In notebooks they stand below the cell.

Estimators show the rows of their passes so::

    with rows_shown("fitting", verbose):
        ...
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from eigenmesh.numerics.progress import watched

PATIENCE = 2.0  # seconds: work that ends before needs no bar


class _RowsASecond(ProgressColumn):
    """Nothing until rows have been counted."""

    def render(self, task: Task) -> Text:
        speed = task.fields.get("rows", 0) and (task.finished_speed or task.speed)
        return Text(f"{speed:,.0f} rows/s" if speed else "", style="progress.data.speed")


class _NotebookBar(Progress):
    """A line below the cell, changed in place: rich's own needs ipywidgets."""

    _EVERY = 0.2  # seconds

    def __init__(self, *columns: ProgressColumn, console: Console) -> None:
        super().__init__(*columns, console=console, auto_refresh=False)
        self._shown: Any = None
        self._last = 0.0

    def start(self) -> None:
        from IPython.display import display

        self._shown = display(self._words(), raw=True, display_id=True)

    def stop(self) -> None:
        if self._shown is not None:
            self._shown.update({"text/plain": ""}, raw=True)

    def update(self, *args: Any, **changes: Any) -> None:
        super().update(*args, **changes)
        now = time.monotonic()
        if self._shown is not None and now - self._last >= self._EVERY:
            self._last = now
            self._shown.update(self._words(), raw=True)

    def refresh(self) -> None:
        """Nothing but what `update` shows."""

    def _words(self) -> dict[str, str]:
        task = self.tasks[0]
        share = f"{task.percentage:3.0f} %" if task.total else "…"
        filled = round(task.percentage / 5) if task.total else 0
        elapsed = f"{task.elapsed or 0.0:.0f} s"
        return {"text/plain": f"{task.description} [{'█' * filled:<20}] {share} {elapsed}"}


@contextmanager
def delayed_bar(words: str, total: int | None = None) -> Iterator[tuple[Progress, Any]]:
    """A bar that appears if the work takes longer than PATIENCE; gives it and its task."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        _RowsASecond(),
    )
    bar: Progress
    if console.is_jupyter:
        bar = _NotebookBar(*columns, console=console)
    else:
        bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(words, total=total)
    timer = threading.Timer(PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar, task
    finally:
        timer.cancel()
        timer.join()  # a bar that started a moment ago must be there to be stopped
        bar.stop()


class RowsBar:
    """An observer of passes, for `numerics.progress.watched`: moves a bar by the rows done."""

    def __init__(self, words: str, bar: Progress, task: Any) -> None:
        self._words, self._bar, self._task = words, bar, task
        self._lock = threading.Lock()
        self._under_way = self._done = self._total = 0

    def begin(self, words: str, rows: int) -> None:
        """Add rows to what is to do; a new bar if nothing was under way."""
        with self._lock:
            if not self._under_way:
                self._done = self._total = 0
                self._bar.reset(self._task, total=None)
            self._under_way += 1
            self._total += rows
            self._show(f"{self._words}: {words}")

    def advance(self, rows: int) -> None:
        """Move on."""
        with self._lock:
            self._done += rows
            self._show()

    def end(self, words: str) -> None:
        """One pass less."""
        with self._lock:
            self._under_way -= 1

    def _show(self, words: str | None = None) -> None:
        self._bar.update(
            self._task, description=words, completed=self._done, total=self._total, rows=self._done
        )


@contextmanager
def _rows_shown(words: str) -> Iterator[None]:
    with delayed_bar(words) as (bar, task), watched(RowsBar(words, bar, task)):
        yield


def rows_shown(words: str, verbose: bool = True) -> AbstractContextManager[None]:
    """Show the passes over rows meanwhile, with rows per second; nothing unless `verbose`.

    >>> with rows_shown("fitting", verbose=False):
    ...     pass
    """
    return _rows_shown(words) if verbose else nullcontext()
