"""Budgets: what all studies of a data set may cost together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import EigenmeshError, InputError, PolicyRefusal
from eigenmesh.runtime import wire
from eigenmesh.runtime.privacy import epsilon_of, require_promise
from eigenmesh.safe_files import write_whole


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
    epsilon : how much privacy all studies together may cost, each row's, at `delta`: they are
        composed by the accountant. Then nothing is told of rows but under noise.

    Examples
    --------
    >>> Budget(studies=20, numbers=0.5)
    Budget(studies=20, draws=None, numbers=0.5, epsilon=None, delta=1e-06)
    """

    studies: int | None = None
    draws: int | None = None
    numbers: float | None = None
    epsilon: float | None = None
    delta: float = 1e-6

    def __post_init__(self) -> None:
        for name, limit in (("studies", self.studies), ("draws", self.draws)):
            if limit is not None and (type(limit) is not int or limit < 0):
                raise InputError(f"{name} is {limit!r}; a whole number from 0 is expected")
        if self.numbers is not None and not _is_share(self.numbers):
            raise InputError(
                f"numbers is {self.numbers!r}; a share of the site's own numbers, such as 0.5, "
                f"is expected"
            )
        if self.epsilon is not None:
            require_promise(self.epsilon, self.delta)


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


# What has been spent, at a site.

_MOST_CHAINS = 20_000  # questions that are remembered; older ones cost again
_MOST_VERSIONS = 100
_ROUNDING = 1e-9  # of an epsilon, that the accountant's search may be off by
_MULTIPLIERS = np.random.default_rng(0x5EED).integers(0, 2**63, 1 << 12, dtype=np.uint64) * 2 + 1
Digests = NDArray[np.uint64]


def row_digests(data: Any) -> Digests:
    """One number a row, sorted: the same for the same values, however they lie in memory.

    >>> X = np.arange(6.0).reshape(3, 2)
    >>> bool((row_digests(X) == row_digests(X[::-1].astype(np.float32))).all())
    True
    """
    factors = _factors(int(data.shape[1]))
    sums = np.zeros(data.shape[0], np.uint64)
    if hasattr(data, "tocoo"):
        entries = data.tocoo()
        np.add.at(sums, entries.row, _mixed(entries.data) * factors[entries.col])
    else:
        for start in range(0, len(sums), 4096):
            block = _mixed(np.asarray(data[start : start + 4096])) * factors
            sums[start : start + 4096] = block.sum(axis=1, dtype=np.uint64)
    return np.sort(sums)


@lru_cache(maxsize=8)
def _factors(n_columns: int) -> Digests:
    places = np.arange(n_columns)
    return _MULTIPLIERS[places % len(_MULTIPLIERS)] * (places.astype(np.uint64) * 2 + 1)


def _mixed(values: Any) -> Digests:
    bits = (np.asarray(values, np.float64) + 0.0).view(np.uint64)  # -0.0 is 0.0
    return bits ^ (bits >> np.uint64(29))


def rows_changed(before: Digests, after: Digests) -> int:
    """How many rows were added or withdrawn between two versions.

    >>> rows_changed(np.array([1, 2, 2], np.uint64), np.array([2, 3], np.uint64))
    3
    """
    return len(before) + len(after) - 2 * _common(before, after)


def _common(one: Digests, other: Digests) -> int:
    values, places = np.unique(np.concatenate([one, other]), return_inverse=True)
    counts = [np.bincount(p, minlength=len(values)) for p in np.split(places, [len(one)])]
    return int(np.minimum(*counts).sum())


@dataclass
class Spent:
    """What the studies of one data set have cost, through all its versions."""

    versions: list[Digests]
    studies: int = 0
    draws: int = 0
    numbers: float = 0.0  # beside those that the site has
    loss: float = 0.0  # of privacy; see `runtime.privacy`

    def joined(self, other: Spent) -> Spent:
        """Of two data sets that turn out to be one."""
        return Spent(
            self.versions + other.versions,
            self.studies + other.studies,
            self.draws + other.draws,
            self.numbers + other.numbers,
            self.loss + other.loss,
        )


class Account:
    """What a site has spent, by data set; kept in its folder if it has one.

    `folder_file` gives the path of a file of the site by its ending.
    """

    def __init__(self, folder_file: Callable[[str], Path] | None) -> None:
        self._file = folder_file
        self.sets: list[Spent] = []
        self.chains: dict[str, None] = {}  # digests of all that was asked up to a reply
        self._read()

    def of(self, digests: Digests, min_rows: int) -> Spent:
        """What is spent of the data set with these rows, as a version of what it was before.

        Raises `PolicyRefusal` if too few rows changed: the difference of two answers would be
        theirs.
        """
        mine = self.related(digests)
        changes = [rows_changed(version, digests) for own in mine for version in own.versions]
        self.require_apart(digests, min_rows)
        if len(mine) == 1 and 0 in changes:
            return mine[0]
        if len(changes) >= _MOST_VERSIONS:
            raise _over(f"the data have had {_MOST_VERSIONS} versions")
        whole = reduce(Spent.joined, mine, Spent([digests]))
        self.sets = [own for own in self.sets if own not in mine] + [whole]
        self._write(versions=True)
        return whole

    def related(self, digests: Digests) -> list[Spent]:
        """What was spent of data that have a row in common with these."""
        return [own for own in self.sets if any(_common(v, digests) for v in own.versions)]

    def require_apart(self, digests: Digests, min_rows: int) -> None:
        """Raise `PolicyRefusal` if these rows differ in too few from an earlier version."""
        changes = [rows_changed(v, digests) for own in self.related(digests) for v in own.versions]
        if not all(change == 0 or change >= min_rows for change in changes):
            raise PolicyRefusal(
                f"its policy forbids it: the data differ from what they were in fewer than "
                f"{min_rows} rows, which two answers would tell",
                rule="min_rows",
            )

    def charge(self, spent: Spent, cost: Spent, budget: Budget, chain: str) -> None:
        """Spend, or raise `PolicyRefusal`; what was asked before costs nothing."""
        for name in ("studies", "draws", "numbers"):
            limit, total = getattr(budget, name), getattr(spent, name) + getattr(cost, name)
            if limit is not None and total > limit:
                raise _over(f"its {name} are spent: {limit:g} over the life of the data")
        require_epsilon(spent.loss + cost.loss, budget)
        spent.studies += cost.studies
        spent.draws += cost.draws
        spent.numbers += cost.numbers
        spent.loss += cost.loss
        self.chains[chain] = None
        while len(self.chains) > _MOST_CHAINS:
            del self.chains[next(iter(self.chains))]
        self._write()

    # On the site's own disk: rows change seldom, what is spent with every new question.

    def _write(self, versions: bool = False) -> None:
        if self._file is None:
            return
        costs = [[own.studies, own.draws, own.numbers, own.loss] for own in self.sets]
        spent = [[*c, len(own.versions)] for c, own in zip(costs, self.sets, strict=True)]
        if versions:
            rows = [v.view(np.int64) for own in self.sets for v in own.versions]
            whole = wire.dumps({"spent": spent, "rows": rows})
            write_whole(self._file(".versions"), whole, private=True)
        tree = {"spent": spent, "chains": list(self.chains)}
        write_whole(self._file(".budget"), wire.dumps(tree), private=True)

    def _read(self) -> None:
        if self._file is None or not self._file(".versions").exists():
            return
        try:
            rows = wire.loads(self._file(".versions").read_bytes())["rows"]
            tree = wire.loads(self._file(".budget").read_bytes())
            versions = iter(np.asarray(own).view(np.uint64) for own in rows)
            for *cost, n in tree["spent"]:
                self.sets.append(Spent(list(islice(versions, n)), *cost))
            self.chains = dict.fromkeys(tree["chains"])
        except (OSError, EigenmeshError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"what was spent of the site's budget cannot be read ({error}); restore its files "
                f"{self._file('.budget').name!r} and {self._file('.versions').name!r}"
            ) from None


def require_epsilon(loss: float, budget: Budget) -> None:
    """Raise `PolicyRefusal` if releases of this loss in all cost more epsilon than there is."""
    if budget.epsilon is None:
        return
    if epsilon_of(loss, budget.delta) > budget.epsilon * (1 + _ROUNDING):
        raise _over(f"its epsilon is spent: {budget.epsilon:g} over the life of the data")


def _over(words: str) -> PolicyRefusal:
    return PolicyRefusal(f"its policy's budget forbids it: {words}", rule="budget")
