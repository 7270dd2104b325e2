"""Rolls: whom the masked sums of a site have covered.

Two sums of the same numbers over parties that differ by one tell what that one sent. So whoever
helps to open a sum remembers of whom it was, and helps with no other that is nearly the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.safe_files import write_whole

_MOST = 10_000  # sums that a site remembers
Roll = frozenset[str]


def require_apart(one: Collection[str], other: Collection[str], fewest: int) -> None:
    """Refuse two sums of the same numbers that differ by fewer parties than a sum must have.

    >>> require_apart("abcd", "abcd", fewest=3)
    >>> require_apart("abcd", "a", fewest=3)
    >>> require_apart("abcd", "abc", fewest=3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    eigenmesh.errors.PolicyRefusal: its policy forbids it: this sum was opened over 4 parties ...
    """
    apart = len(set(one) ^ set(other))
    if 0 < apart < fewest:
        raise PolicyRefusal(
            f"its policy forbids it: this sum was opened over {len(one)} parties before, and over "
            f"{len(other)} now: the two together would tell what {apart} sent, where at least "
            f"{fewest} must be in a sum; begin a run in which nobody is lost",
            rule="min_parties",
        )


class Rolls:
    """What a site has helped to open, and over whom; in its folder if it has one."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._rolls: dict[str, list[Roll]] = {}
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        *lines, torn = path.read_text(encoding="utf-8").split("\n")  # by a power cut, else empty
        try:
            for subject, names in map(json.loads, lines[-_MOST:]):
                self._rolls.setdefault(str(subject), []).append(frozenset(map(str, names)))
        except (ValueError, TypeError):
            raise InputError(
                f"{path} cannot be read, in which a site keeps whom its sums covered; restore it, "
                f"or remove it: sums that differ by one party may then be asked for once more"
            ) from None
        if torn or len(lines) > 2 * _MOST:
            write_whole(path, "".join(f"{line}\n" for line in lines[-_MOST:]).encode())

    def note(self, subjects: Iterable[bytes], names: Iterable[str], fewest: int) -> None:
        """A sum of this is to be opened over these parties; or raise `PolicyRefusal`."""
        roll, texts = frozenset(names), [subject.hex() for subject in subjects]
        for text in texts:
            for earlier in self._rolls.get(text, ()):
                require_apart(sorted(earlier), sorted(roll), fewest)
        for text in texts:
            if roll not in self._rolls.setdefault(text, []):
                self._rolls[text].append(roll)
                self._write(text, roll)
        while len(self._rolls) > _MOST:
            del self._rolls[next(iter(self._rolls))]

    def _write(self, subject: str, roll: Roll) -> None:
        if self._path is None:
            return
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps([subject, sorted(roll)]) + "\n")
