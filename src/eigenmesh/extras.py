"""Packages that a plain install does without: each comes with an extra, and errors name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eigenmesh.errors import InputError


@contextmanager
def extra(name: str, purpose: str, otherwise: str = "") -> Iterator[None]:
    """Around an import: what is missing is an error that says what to install.

    `purpose` is what needs it, `otherwise` a way that does without.

    >>> with extra("plot", "em.plot"):
    ...     import no_such_package
    Traceback (most recent call last):
    eigenmesh.errors.InputError: No module named 'no_such_package'; em.plot needs
    pip install 'eigenmesh[plot]'
    """
    try:
        yield
    except ImportError as error:
        remedy = f"pip install 'eigenmesh[{name}]'{otherwise and ', or '}{otherwise}"
        raise InputError(f"{error}; {purpose} needs {remedy}") from None
