"""Budgets: what all studies of a data set may cost together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eigenmesh.errors import InputError


@dataclass(frozen=True)
class Budget:
    """What may be spent over the life of a data set; None is no limit.

    Parameters
    ----------
    studies : how many different studies are answered. One that is asked again, request by request,
        costs nothing.
    draws : how many draws of the site's own, such as samples of rows, studies may see.
    numbers : how many numbers may be released, beside those that the site has: 0.5 is half as many
        as rows times columns.

    Examples
    --------
    >>> Budget(studies=20, numbers=0.5)
    Budget(studies=20, draws=None, numbers=0.5)
    """

    studies: int | None = None
    draws: int | None = None
    numbers: float | None = None

    def __post_init__(self) -> None:
        for name, limit in (("studies", self.studies), ("draws", self.draws)):
            if limit is not None and (type(limit) is not int or limit < 0):
                raise InputError(f"{name} is {limit!r}; a whole number from 0 is expected")
        if self.numbers is not None and not _is_share(self.numbers):
            raise InputError(
                f"numbers is {self.numbers!r}; a share of the site's own numbers, such as 0.5, "
                f"is expected"
            )


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
