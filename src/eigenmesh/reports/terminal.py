"""What a command says while it works: errors, warnings and progress, all on stderr."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console

from eigenmesh.errors import CostWarning, EigenmeshError, EigenmeshWarning
from eigenmesh.estimators.progress_bar import delayed_bar, rows_shown
from eigenmesh.reports.documents import as_json


def errors() -> Console:
    """The console of standard error; stdout is for answers alone."""
    return Console(stderr=True)


def say(console: Console, words: str, style: str) -> None:
    """One line, whatever it holds: no markup, no :abc: for a picture, no folding."""
    console.print(words, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)


@contextmanager
def answering(as_document: bool) -> Iterator[None]:
    """Our errors in one line, or as a JSON document, with exit code 2; warnings once."""
    with warnings_said_once():
        try:
            yield
        except EigenmeshError as error:
            _fail(type(error).__name__, str(error), error.party, as_document)
        except BrokenPipeError:
            raise  # the reader has seen enough, as in `| head`; no error to tell
        except OSError as error:
            file = "" if error.filename is None else f"{error.filename}: "
            _fail(type(error).__name__, f"{file}{error.strerror or error}", None, as_document)


def _fail(kind: str, message: str, party: str | None, as_document: bool) -> NoReturn:
    if as_document:
        print(as_json({"error": kind, "message": message, "party": party}))
    else:
        say(errors(), f"{kind}: {message}", "red")
    raise SystemExit(2)


@contextmanager
def warnings_said_once() -> Iterator[None]:
    """Warnings as one yellow line each on stderr, without file and source line.

    Of other libraries' come those that Python's filters let through.
    """
    messages: set[str] = set()

    def show(message: Any, *where: Any, **more: Any) -> None:
        words = " ".join(str(message).split())
        if words not in messages:
            messages.add(words)
            say(errors(), f"warning: {words}", "yellow")

    with warnings.catch_warnings():
        warnings.simplefilter("always", EigenmeshWarning)
        warnings.simplefilter("always", CostWarning)
        warnings.showwarning = show
        yield


@contextmanager
def progress(words: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A bar on stderr for work that takes long; gives the call that moves it on by one.

    Without a total it follows the passes over rows, and says how many rows a second.
    """
    if total is None:
        with rows_shown(words):
            yield lambda: None
        return
    with delayed_bar(words, total) as (bar, task):
        yield lambda: bar.advance(task)


@contextmanager
def following(words: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr for work that is done elsewhere; gives the call that says how far it is."""
    with errors().status(words) as status:
        yield lambda more: status.update(f"{words}: {more}" if more else words)
