"""Entries kept as numbers are what was put in, take little memory, and arrive as they were sent."""

import tracemalloc

import numpy as np
import pytest

from eigenmesh.errors import MessageRefused
from eigenmesh.runtime import records
from eigenmesh.runtime.entries import Entries, Entry
from eigenmesh.runtime.ledger import COORDINATOR, Ledger


def some(n, seed=0):
    rng = np.random.default_rng(seed)
    names = ["north", "south", COORDINATOR, "Toy.tell", ""]
    kinds = [{}, {"rows": 7}, {"gram": 3, "counts": 0}, {"counts": 0, "gram": 3}]
    return [
        Entry(
            round=int(rng.integers(9)),
            step=f"Toy.{rng.integers(3)}",
            sender=names[rng.integers(5)],
            receiver=names[rng.integers(5)],
            kinds=kinds[rng.integers(4)],
            floats=int(rng.integers(2**40)),
            bytes=int(rng.integers(2**40)),
            relayed=bool(rng.integers(2)),
        )
        for _ in range(n)
    ]


def test_a_list_by_another_name():
    given = some(200)
    entries = Entries(given[:50])
    entries += given[50:199]
    entries.append(given[199])
    assert list(entries) == given == entries[:]
    assert entries == given
    assert entries != given[:-1]
    assert (len(entries), entries[7], entries[-1]) == (200, given[7], given[-1])
    assert entries[3:9] == given[3:9]
    assert [list(e.kinds) for e in entries] == [list(e.kinds) for e in given]
    with pytest.raises(IndexError):
        entries[200]


def test_sums_are_those_over_the_entries():
    given = some(500)
    ledger = Ledger.of(given)
    up = [e for e in given if e.sender != COORDINATOR]
    assert ledger.floats_up == sum(e.floats for e in up)
    assert ledger.floats_down == sum(e.floats for e in given) - ledger.floats_up
    assert ledger.bytes == sum(e.bytes for e in given)
    for name, sent in ledger.by_party(["east"]).items():
        assert sent == sum(e.floats for e in up if e.sender == name)
    for step, sent in ledger.by_step().items():
        assert sent == sum(e.floats for e in given if e.step == step and e.kinds)
    for name, kinds in ledger.revealed().items():
        for kind, floats in kinds.items():
            assert floats == sum(e.kinds.get(kind, 0) for e in up if e.sender == name)


def test_another_ledger_comes_later():
    own, others = Entries(some(20)), Entries(some(30, seed=1))
    own.extend_later(others, 5)
    own.extend_later(Entries(), 1)
    assert own == some(20) + [e._replace(round=e.round + 5) for e in some(30, seed=1)]
    assert others == some(30, seed=1)


def test_nothing_adds_up_to_nothing():
    ledger = Ledger()
    assert (ledger.floats_up, ledger.floats_down, ledger.bytes) == (0, 0, 0)
    assert ledger.by_step() == ledger.revealed() == {}
    assert list(ledger) == []


def test_arrives_as_it_was_sent():
    ledger = Ledger.of(some(100), rounds=4)
    arrived = records.loads(records.dumps(ledger))
    assert arrived == ledger
    arrived.entries += some(3, seed=1)
    assert list(arrived) == some(100) + some(3, seed=1)


@pytest.mark.parametrize(
    "table",
    [
        np.zeros((2, 7), np.int64),
        np.zeros((2, 8), np.float64),
        np.zeros(8, np.int64),
        np.full((1, 8), 1),
        np.full((1, 8), -1),
    ],
    ids=["narrow", "floats", "flat", "not listed", "negative"],
)
def test_numbers_that_name_nothing_are_refused(table):
    sent = Entries([Entry(1, "a", "a", "a", {}, 0, 0)])
    tree = records.to_tree(sent) | {"table": table}
    with pytest.raises(MessageRefused, match="malformed"):
        records.from_tree(tree)


def test_messages_take_less_than_a_hundred_bytes_each():
    entries, repeated = Entries(), some(100)
    tracemalloc.start()
    for _ in range(1000):
        entries += repeated
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 100 * len(entries)
