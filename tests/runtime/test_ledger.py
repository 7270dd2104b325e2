from __future__ import annotations

from typing import Annotated

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.runtime.ledger import COORDINATOR, Entry, Ledger
from eigenmesh.runtime.message import Floats, Integers, Message, Reveals, Shape, encode
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol


class LedgerSetup(Message, reveals=None):
    """Scalars only."""

    seed: int
    gamma: float
    kernel: str


class Landmarks(Message, reveals="centroids"):
    """A broadcast."""

    points: Annotated[Floats, Shape("m", "d")]


class EveryType(Message, reveals="moments"):
    """Arrays of floats count as floats, everything else only in bytes."""

    double: Annotated[Floats, Shape(2, 3)]
    single: Annotated[Floats, Shape(4), Reveals("sketch")]
    point: Annotated[Floats, Shape()]
    whole: Annotated[Integers, Reveals("counts")]
    n: Annotated[int, Reveals("counts")]
    x: float
    name: str
    digest: Annotated[str, Reveals("hashes")]


class LedgerHolder(Party):
    """Gives the same message whatever its data."""

    Setup = LedgerSetup

    @step
    def answer(self, landmarks: Landmarks) -> EveryType:
        return EveryType(
            np.ones((2, 3)),
            np.ones(4, np.float32),
            np.array(1.0),
            np.arange(100),
            3,
            0.5,
            "x" * 100,
            "ab",
        )

    @step
    def nod(self) -> None:
        return None

    @step
    def offer(self) -> Landmarks:
        return Landmarks(np.ones((1, 2)))

    @step
    def take(self, received: dict[int, Landmarks]) -> None:
        return None


@protocol("ledger-test", roles=(LedgerHolder,))
def one_round(parties):
    parties.enlist(LedgerHolder, LedgerSetup(1, 0.5, "rbf"))
    return parties.ask(LedgerHolder.answer, Landmarks(np.ones((5, 2))))


@pytest.fixture
def ledger():
    parts = em.Partitioned(rows=[np.ones((2, 2))] * 3, names=["a", "b", "c"])
    with em.federation(parts) as fed:
        return fed.run(one_round).recording.ledger


def test_floats_are_elements_of_float_arrays_and_nothing_else(ledger):
    up = [e for e in ledger if e.sender != COORDINATOR]
    assert [e.floats for e in up] == [6 + 4] * 3
    assert up[0].kinds == {"counts": 0, "hashes": 0, "moments": 6, "sketch": 4}
    assert up[0].kind == "counts+hashes+moments+sketch"


def test_broadcast_counts_once_per_receiver(ledger):
    down = [e for e in ledger if e.step == "LedgerHolder.answer" and e.sender == COORDINATOR]
    assert [e.receiver for e in down] == ["a", "b", "c"]
    assert [e.floats for e in down] == [10] * 3
    assert ledger.floats_down == 30
    assert ledger.floats_up == 30


def test_scalars_integers_and_strings_count_in_bytes(ledger):
    setups = [e for e in ledger if e.step == "LedgerHolder.enlist"]
    assert [(e.floats, e.kinds) for e in setups] == [(0, {})] * 3
    assert all(e.bytes == len(encode(LedgerSetup(1, 0.5, "rbf"))) for e in setups)
    up = [e for e in ledger if e.sender != COORDINATOR]
    assert all(e.bytes > 8 * 100 + 100 for e in up)  # the integers and the name
    assert ledger.bytes == sum(e.bytes for e in ledger)


def test_sums_by_step_and_by_party_agree_with_the_totals(ledger):
    assert ledger.by_step() == {"LedgerHolder.answer": 60}  # a setup tells of nobody's data
    assert ledger.by_party(["c", "d"]) == {"c": 10, "d": 0, "a": 10, "b": 10}
    assert set(ledger.revealed()) == {"a", "b", "c"}
    assert ledger.revealed()["b"] == {"counts": 0, "hashes": 0, "moments": 6, "sketch": 4}


def test_enlisting_is_no_round_and_each_ask_and_exchange_is_one():
    parts = em.Partitioned(rows=[np.ones((2, 2))] * 3)
    with em.federation(parts, topology="ring") as fed, fed.recording() as recording:
        fed.enlist(LedgerHolder, LedgerSetup(1, 0.5, "rbf"))
        assert recording.ledger.rounds == 0
        fed.ask(LedgerHolder.nod)
        fed.exchange(LedgerHolder.offer, LedgerHolder.take, times=4)
    assert recording.ledger.rounds == 1 + 4
    sent = [e for e in recording.ledger if e.step == "LedgerHolder.offer"]
    assert sorted({e.round for e in sent}) == [2, 3, 4, 5]
    assert len(sent) == 4 * 3 * 2
    assert {e.bytes for e in sent} == {len(encode(Landmarks(np.ones((1, 2)))))}
    assert recording.ledger.floats_up == 4 * 3 * 2 * 2
    assert recording.ledger.floats_down == 0
    assert not any(e.relayed for e in sent)


def test_nested_recordings_each_count_what_passed_in_them():
    parts = em.Partitioned(rows=[np.ones((2, 2))] * 2)
    with em.federation(parts) as fed, fed.recording() as outer:
        with fed.recording() as empty:
            pass
        fed.enlist(LedgerHolder, LedgerSetup(1, 0.5, "rbf"))
        with fed.recording() as inner:
            fed.ask(LedgerHolder.nod)
        fed.ask(LedgerHolder.nod)
    assert (outer.ledger.rounds, inner.ledger.rounds, empty.ledger.rounds) == (2, 1, 0)
    assert len(outer.ledger.entries) == 2
    assert empty.ledger.entries == inner.ledger.entries == []
    assert outer.seconds > inner.seconds > 0


def test_an_inner_recording_stands_in_the_outer_one_in_its_place_even_if_it_ends_in_an_error():
    parts = em.Partitioned(rows=[np.ones((2, 2))] * 2)
    with em.federation(parts) as fed, fed.recording() as outer:
        fed.enlist(LedgerHolder, LedgerSetup(1, 0.5, "rbf"))
        fed.ask(LedgerHolder.nod)
        with pytest.raises(ValueError), fed.recording() as inner:
            fed.enlist(LedgerHolder, LedgerSetup(1, 0.5, "rbf"))
            raise ValueError
        fed.enlist(LedgerHolder, LedgerSetup(1, 0.5, "rbf"))
    assert [entry[0] for entry in inner.ledger.entries] == [0, 0]
    assert [entry[0] for entry in outer.ledger.entries] == [0, 0, 1, 1, 1, 1]
    assert outer.ledger.rounds == 1


def test_empty_ledger_is_all_zeros():
    ledger = Ledger()
    assert (ledger.floats_up, ledger.floats_down, ledger.bytes, ledger.rounds) == (0, 0, 0, 0)
    assert ledger.revealed() == ledger.by_step() == ledger.by_party([]) == {}


def test_what_was_revealed_adds_up_over_messages():
    ledger = Ledger()
    for floats in (3, 4):
        ledger.entries.append(
            Entry(1, "s", "a", COORDINATOR, {"gram": floats, "counts": 0}, floats, 99)
        )
    ledger.entries.append(Entry(1, "s", COORDINATOR, "a", {"seed": 5}, 5, 99))
    assert ledger.revealed() == {"a": {"gram": 7, "counts": 0}}
