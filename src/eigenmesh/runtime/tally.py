"""How much of a site's data a fit has told, through all its runs.

A host knows that a run goes on from another by what it reads: the site keeps what a run leaves, and
with it what that run had told. No name that a coordinator gives is needed for it, or undoes it.
"""

from __future__ import annotations

_MOST = 100  # runs that are told apart


class Tally:
    """Numbers that a run has let out, and products with the site's own columns.

    With what the runs told that it goes on from, each once, however often it reads what they left.

    >>> first, second = Tally(), Tally()
    >>> first.add(40, 1)
    >>> second.go_on_from(first)
    >>> second.add(2, 0)
    >>> second.go_on_from(first)
    >>> second.numbers, second.directions, first.numbers
    (42, 1, 40)
    """

    def __init__(self, numbers: int = 0, directions: int = 0) -> None:
        self._own = (numbers, directions)
        self._before: frozenset[Tally] = frozenset()

    def add(self, numbers: int, directions: int) -> None:
        """What is about to leave."""
        self._own = (self._own[0] + numbers, self._own[1] + directions)

    def go_on_from(self, other: Tally) -> None:
        """Something is read that a run has left."""
        before = self._before | {other} | other._before
        self._before = before - {self}
        if len(self._before) > _MOST:
            own = self._own
            self._before = frozenset({Tally(self.numbers - own[0], self.directions - own[1])})

    def begun_anew(self) -> Tally:
        """Of the same run once more: what it told was told for nothing, and is told again."""
        again = Tally()
        again._before = self._before
        return again

    @property
    def numbers(self) -> int:
        """In all."""
        before = sum(run._own[0] for run in self._before) if self._before else 0
        return self._own[0] + before

    @property
    def directions(self) -> int:
        """In all."""
        before = sum(run._own[1] for run in self._before) if self._before else 0
        return self._own[1] + before
