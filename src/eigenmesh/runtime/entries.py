"""What the ledger keeps of a message, and how it keeps millions of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

from eigenmesh.runtime.records import record

Numbers = NDArray[np.int64]

_AT_ONCE = 4096  # entries made of numbers


class Entry(NamedTuple):
    """One message. `kinds` maps what it revealed to the floats that revealed it."""

    round: int
    step: str
    sender: str
    receiver: str
    kinds: Mapping[str, int]
    floats: int
    bytes: int
    relayed: bool = False

    @property
    def kind(self) -> str:
        """What it revealed, as one word."""
        return "+".join(self.kinds)


class StepTotal(NamedTuple):
    """What some messages of one step and sender add up to, each of which revealed `kinds`."""

    step: str
    sender: str
    kinds: Mapping[str, int]
    floats: int
    messages: int


class Flow(NamedTuple):
    """All messages of one step from one sender to one receiver, each of which revealed `kinds`."""

    step: str
    sender: str
    receiver: str
    kinds: Mapping[str, int]
    messages: int


class LinkTotal(NamedTuple):
    """All that one sender sent one receiver."""

    sender: str
    receiver: str
    floats: int
    bytes: int


@record
class Entries(Sequence[Entry]):
    """Entries in the order in which they came. Only numbers are kept: 64 bytes a message.

    >>> entries = Entries([Entry(1, "Toy.tell", "north", "coordinator", {"counts": 2}, 2, 90)])
    >>> entries[0].sender, len(entries)
    ('north', 1)
    """

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        *,
        words: Iterable[str] = (),
        kinds: Iterable[Mapping[str, int]] = (),
        table: Numbers | None = None,
    ) -> None:
        self._words = {word: i for i, word in enumerate(words)}  # steps, senders and receivers
        self._kinds = {tuple(some.items()): i for i, some in enumerate(kinds)}
        self._table = array("q")
        if table is not None:
            self._table.frombytes(self._checked(table).tobytes())
        self.extend(entries)

    def _checked(self, table: Numbers) -> Numbers:
        if table.dtype != np.int64 or table.ndim != 2 or table.shape[1] != len(Entry._fields):
            raise ValueError(f"entries of shape {table.shape} and dtype {table.dtype}")
        words, kinds = table[:, 1:4], table[:, 4]
        for numbers, names in ((words, self._words), (kinds, self._kinds)):
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(names):
                raise ValueError("entries name what is not listed")
        return table

    def _asdict(self) -> dict[str, Any]:
        """What a record is made of."""
        kinds = [dict(some) for some in self._kinds]
        return {"words": list(self._words), "kinds": kinds, "table": self._numbers().copy()}

    def _numbers(self) -> Numbers:
        """A view, not to be kept: the array cannot grow meanwhile."""
        return np.frombuffer(self._table, dtype=np.int64).reshape(-1, len(Entry._fields))

    # A list of entries.

    def append(self, entry: Entry) -> None:
        """Add one."""
        at, step, sender, receiver, kinds, floats, size, relayed = entry
        self.enter(at, step, sender, receiver, tuple(kinds.items()), floats, size, relayed)

    def enter(
        self,
        at: int,
        step: str,
        sender: str,
        receiver: str,
        kinds: tuple[tuple[str, int], ...],
        floats: int,
        size: int,
        relayed: bool,
    ) -> None:
        """Add one by what it says."""
        words = self._words
        names = (
            words.setdefault(step, len(words)),
            words.setdefault(sender, len(words)),
            words.setdefault(receiver, len(words)),
        )
        number = self._kinds.setdefault(kinds, len(self._kinds))
        self._table.extend((at, *names, number, floats, size, relayed))

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add several."""
        for entry in entries:
            self.append(entry)

    def extend_later(self, others: Entries, rounds: int) -> None:
        """Add those of another ledger, that many rounds later."""
        words = [self._words.setdefault(word, len(self._words)) for word in others._words]
        kinds = [self._kinds.setdefault(some, len(self._kinds)) for some in others._kinds]
        table = others._numbers().copy()
        table[:, 0] += rounds
        table[:, 1:4] = np.array(words, np.int64)[table[:, 1:4]]
        table[:, 4] = np.array(kinds, np.int64)[table[:, 4]]
        self._table.frombytes(table.tobytes())

    def __iadd__(self, entries: Iterable[Entry]) -> Self:
        self.extend(entries)
        return self

    def __len__(self) -> int:
        return len(self._table) // len(Entry._fields)

    def __iter__(self) -> Iterator[Entry]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self[start : start + _AT_ONCE]

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        words, kinds = list(self._words), [dict(some) for some in self._kinds]

        def entry(row: list[int]) -> Entry:
            at, step, sender, receiver, number, floats, size, relayed = row
            names = (words[step], words[sender], words[receiver])
            return Entry(at, *names, kinds[number], floats, size, bool(relayed))

        numbers = self._numbers()[index].tolist()
        return [entry(row) for row in numbers] if isinstance(index, slice) else entry(numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self[:] == list(other)

    def __repr__(self) -> str:
        return f"Entries({self[:]!r})"

    # Sums, without making entries of the numbers.

    @property
    def bytes(self) -> int:
        """Of all messages."""
        return int(self._numbers()[:, 6].sum())

    def by_round(self, rounds: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Floats and bytes of each round; the first are those before round 1."""
        table, sums = self._numbers(), np.zeros((2, rounds + 1), np.int64)
        np.add.at(sums.T, table[:, 0], table[:, 5:7])
        floats, sizes = sums.tolist()
        return tuple(floats), tuple(sizes)

    def by_link(self) -> list[LinkTotal]:
        """Sums over rounds and steps, by sender and receiver."""
        table, words = self._numbers(), list(self._words)
        keys = table[:, 2] * len(words) + table[:, 3]
        alike, group = np.unique(keys, return_inverse=True)
        sums = np.zeros((len(alike), 2), np.int64)
        np.add.at(sums, group, table[:, 5:7])
        ends = [divmod(key, len(words)) for key in alike.tolist()]
        return [
            LinkTotal(words[sender], words[receiver], *own)
            for (sender, receiver), own in zip(ends, sums.tolist(), strict=True)
        ]

    def flows(self) -> list[Flow]:
        """Sums over rounds: who sent what to whom."""
        table, n_words, n_kinds = self._numbers(), len(self._words), len(self._kinds)
        keys = (table[:, 1] * n_words + table[:, 2]) * n_words + table[:, 3]
        alike, counts = np.unique(keys * n_kinds + table[:, 4], return_counts=True)
        words, kinds = list(self._words), [dict(some) for some in self._kinds]
        flows = []
        for key, messages in zip(alike.tolist(), counts.tolist(), strict=True):
            names, number = divmod(key, n_kinds)
            pair, receiver = divmod(names, n_words)
            step, sender = divmod(pair, n_words)
            way = (words[step], words[sender], words[receiver])
            flows.append(Flow(*way, kinds[number], messages))
        return flows

    def totals(self) -> list[StepTotal]:
        """Sums over rounds and receivers, in the order in which steps and senders appeared."""
        table, words_count, kinds_count = self._numbers(), len(self._words), len(self._kinds)
        keys = (table[:, 1] * words_count + table[:, 2]) * kinds_count + table[:, 4]
        alike, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
        floats = np.zeros(len(alike), np.int64)
        np.add.at(floats, group, table[:, 5])
        words, kinds = list(self._words), [dict(some) for some in self._kinds]
        sums = []
        for key, own, messages in zip(
            alike.tolist(), floats.tolist(), counts.tolist(), strict=True
        ):
            names, number = divmod(key, kinds_count)
            step, sender = divmod(names, words_count)
            sums.append(StepTotal(words[step], words[sender], kinds[number], own, messages))
        return sums
