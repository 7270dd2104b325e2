"""What a party lets out. The host of the party enforces it, at the party's own side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.runtime.message import KINDS


@dataclass(frozen=True)
class Policy:
    """The kinds of message that may leave a party, and how often.

    Parameters
    ----------
    allow : kinds that may leave; every kind by default.
    calls_per_run : how many times one step may be answered in a run; no limit by default.
        A Gram product asked for with unit vectors, often enough, would extract the Gram matrix.

    Examples
    --------
    >>> Policy(allow={"eigenvectors", "counts"}).forbids({"rows", "counts"})
    ('rows',)
    """

    allow: frozenset[str] = KINDS
    calls_per_run: int | None = None

    def __init__(self, allow: Iterable[str] = KINDS, calls_per_run: int | None = None) -> None:
        kinds = frozenset([allow] if isinstance(allow, str) else allow)
        unknown = kinds - KINDS
        if unknown:
            raise InputError(
                f"a policy cannot allow {', '.join(map(repr, sorted(unknown)))}; "
                f"the kinds are {', '.join(sorted(KINDS))}"
            )
        if calls_per_run is not None and (type(calls_per_run) is not int or calls_per_run < 1):
            raise InputError(f"calls_per_run is {calls_per_run}; a whole number from 1 is expected")
        object.__setattr__(self, "allow", kinds)
        object.__setattr__(self, "calls_per_run", calls_per_run)

    def forbids(self, kinds: Iterable[str]) -> tuple[str, ...]:
        """Those of `kinds` that may not leave."""
        return tuple(sorted(set(kinds) - self.allow))

    def check_kinds(self, kinds: Iterable[str], step: str, party: str) -> None:
        """Raise `PolicyRefusal` if one of `kinds` may not leave."""
        forbidden = self.forbids(kinds)
        if forbidden:
            raise PolicyRefusal(
                f"party {party!r} refuses step {step!r}: its policy does not let "
                f"{', '.join(map(repr, forbidden))} leave (it allows "
                f"{', '.join(sorted(self.allow)) or 'nothing'})",
                party=party,
            )

    def check_calls(self, calls: int, step: str, party: str) -> None:
        """Raise `PolicyRefusal` if a step has been answered often enough in this run."""
        if self.calls_per_run is not None and calls > self.calls_per_run:
            raise PolicyRefusal(
                f"party {party!r} refuses step {step!r}: its policy allows "
                f"{self.calls_per_run} calls of a step in a run",
                party=party,
            )
