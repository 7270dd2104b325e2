"""Rolls: whom the masked sums of a site have covered.

Two sums of the same numbers over parties that differ by one tell what that one sent, and of nearly
the same numbers about that; several whose parties differ by many do as well, if they cancel: of
seven parties, less three, less three others. So whoever helps to open a sum remembers of whom it
was. What is the same question is asked of no nearly equal parties; what is of the same data, of no
other parties at all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.safe_files import write_whole

_MOST = 10_000  # sums that a site remembers
MOST_ROSTERS = 100_000  # lines: of these there are few, unless a coordinator makes them up
_REMEDY = (
    "begin a run of the parties of before, in which nobody is lost; sites whose policies have "
    'same_sum="question" compare sums of the same parameters only'
)
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
            f"{fewest} must be in a sum; {_REMEDY}",
            rule="min_parties",
        )


class Rolls:
    """What a site has helped to open, and over whom; in its folder if it has one.

    `most` lines of it are kept.
    """

    def __init__(self, path: Path | None = None, most: int | None = None) -> None:
        self._path, self._most = path, _MOST if most is None else most
        self._rolls: dict[str, dict[Roll, str]] = {}  # with the run in which each came first
        if path is not None and path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        *lines, torn = path.read_text(encoding="utf-8").split("\n")  # by a power cut, else empty
        try:
            for subject, names, *run in map(json.loads, lines[-self._most :]):
                roll, first = frozenset(map(str, names)), "".join(map(str, run))
                self._rolls.setdefault(str(subject), {}).setdefault(roll, first)
        except (ValueError, TypeError):
            raise InputError(
                f"{path} cannot be read, in which a site keeps whom its sums covered; restore it, "
                f"or remove it: sums that differ by one party may then be asked for once more"
            ) from None
        if torn or len(lines) > 2 * self._most:
            write_whole(path, "".join(f"{line}\n" for line in lines[-self._most :]).encode())

    def note(self, subjects: Iterable[bytes], names: Iterable[str], fewest: int) -> None:
        """A sum of this is to be opened over these parties; or raise `PolicyRefusal`."""
        roll, texts = frozenset(names), [subject.hex() for subject in subjects]
        for earlier in chain.from_iterable(self._rolls.get(text, {}) for text in texts):
            require_apart(sorted(earlier), sorted(roll), fewest)
        self._add(texts, roll)

    def require_circle(self, data: Iterable[bytes], names: Iterable[str], run: str) -> None:
        """Refuse other parties than those of an earlier sum of these data, if there was one.

        A run may go on without parties that it lost, if no other run was before: it compares its
        own sums itself.
        """
        roll = frozenset(names)
        earlier = [entry for mark in data for entry in self._rolls.get(mark.hex(), {}).items()]
        others = [one for one, first in earlier if first != run]
        if others and roll not in dict(earlier):
            raise PolicyRefusal(
                f"its policy forbids it: sums of its data were opened over {len(others[-1])} "
                f"parties before, and would be over {len(roll)} now, who are others: sums over "
                f"several circles together may tell what one party sent; {_REMEDY}",
                rule="min_parties",
            )

    def note_circle(self, data: Collection[bytes], names: Collection[str], run: str) -> None:
        """A sum of these data is to be opened over these parties; or raise `PolicyRefusal`."""
        self.require_circle(data, names, run)
        self._add([mark.hex() for mark in data], frozenset(names), run)

    def _add(self, texts: Iterable[str], roll: Roll, run: str = "") -> None:
        for text in texts:
            if roll not in self._rolls.setdefault(text, {}):
                self._rolls[text][roll] = run
                self._write(text, roll, run)
        while len(self._rolls) > self._most:
            del self._rolls[next(iter(self._rolls))]

    def _write(self, subject: str, roll: Roll, run: str) -> None:
        if self._path is None:
            return
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps([subject, sorted(roll), *([run] if run else [])]) + "\n")
