"""How the default engine works off its calls, and that a large federation stays small."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from tests.engines.contract import Direction, Surveyor, SurveySetup, run

import eigenmesh as em
from eigenmesh.engines.in_process import _LITTLE, _Crew
from eigenmesh.runtime import requests, wire
from eigenmesh.runtime.engine import Lost

MANY = 500


@pytest.fixture
def crew():
    found = _Crew(3)
    yield found
    found.close()


class Calls:
    """Calls that note when they begin, and give a reply of a certain length."""

    def __init__(self, n, length=1, seconds=0.0):
        self.begun = []
        self.all = {10 * k: lambda k=k: self._reply(k, length, seconds) for k in range(n)}

    def _reply(self, k, length, seconds):
        self.begun.append(k)
        time.sleep(seconds)
        return bytes([k % 256]) * length


@pytest.mark.parametrize("seconds", [0.0, 0.002])
def test_results_come_in_the_order_of_the_calls(crew, seconds):
    calls = Calls(60, seconds=seconds)
    assert list(crew.run(calls.all, 5.0)) == [(10 * k, bytes([k])) for k in range(60)]
    assert sorted(calls.begun) == list(range(60))


def test_few_large_replies_are_held(crew):
    calls, ahead = Calls(40, length=_LITTLE), []
    for taken, _ in enumerate(crew.run(calls.all, 5.0), start=1):
        time.sleep(0.002)  # the threads go on as far as they may
        ahead.append(len(calls.begun) - taken)
    assert max(ahead) <= 2 * 3  # two a thread


def test_small_replies_do_not_wait_for_each_other_to_be_taken(crew):
    calls = Calls(MANY)
    results = crew.run(calls.all, 5.0)
    next(results)
    deadline = time.monotonic() + 5.0
    while len(calls.begun) < MANY and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(calls.begun) == MANY
    assert len(list(results)) == MANY - 1


def test_long_calls_are_spread_over_all_threads(crew):
    together = threading.Barrier(3)
    results = list(crew.run({i: lambda: together.wait(5.0) for i in range(3)}, 5.0))
    assert sorted(found for _, found in results) == [0, 1, 2]


def test_calls_that_hang_are_given_up_and_their_threads_replaced(crew):
    leave = threading.Event()
    calls = {i: (lambda: leave.wait(30.0)) if i < 4 else (lambda: b"done") for i in range(6)}
    try:
        results = list(crew.run(calls, 0.1))
        assert all(isinstance(found, Lost) and "0.1 s" in found.reason for _, found in results[:4])
        assert results[4:] == [(4, b"done"), (5, b"done")]
        assert list(crew.run({0: lambda: b"again"}, 5.0)) == [(0, b"again")]
    finally:
        leave.set()


def test_result_that_comes_after_its_time_is_not_taken_for_another(crew):
    leave = threading.Event()
    assert isinstance(next(crew.run({0: lambda: leave.wait(30.0) and b"late"}, 0.05))[1], Lost)
    results = crew.run({0: lambda: b"first", 1: lambda: b"second"}, 5.0)
    leave.set()
    assert list(results) == [(0, b"first"), (1, b"second")]


def test_caller_that_stops_early_leaves_no_calls_behind(crew):
    inside, leave = threading.Event(), threading.Event()
    calls = {0: lambda: b"first", 1: lambda: inside.set() or leave.wait(30.0)}
    calls |= {i: lambda: pytest.fail("called") for i in range(2, 9)}
    one = _Crew(1)
    results = one.run(calls, 5.0)
    next(results)
    assert inside.wait(5.0)
    results.close()
    assert list(one.run({0: lambda: b"next"}, 5.0)) == [(0, b"next")]
    leave.set()
    one.close()


def test_error_of_a_host_is_a_lost_party(crew):
    def broken():
        raise SystemExit(3)

    ((_, found),) = crew.run({0: broken}, 5.0)
    assert found == Lost("its host ended with SystemExit")


# A federation of many parties.


def many(n):
    return em.Partitioned(rows=[np.full((1, 2), float(i)) for i in range(n)])


def test_a_broadcast_is_read_once_for_all_parties():
    """What a party costs in a round must not be what a message costs to take apart."""

    def coordinate(parties):
        parties.enlist(Surveyor, SurveySetup())
        before = wire._remembered_plan.cache_info().misses
        total = parties.total(Surveyor.sum_rows)
        return total, wire._remembered_plan.cache_info().misses - before

    with em.federation(many(MANY)) as fed:
        total, n_read = run(fed, coordinate).value
    assert total.sum.n_rows == MANY
    np.testing.assert_array_equal(total.sum.sums, [MANY * (MANY - 1) / 2] * 2)
    assert n_read <= 4  # the request, the reply, and what both carry


def test_a_request_and_its_message_are_the_same_for_all_parties_and_nobody_changes_them():
    """What a request says is the same for all, and is not worked out at each of 1,000 parties."""
    seen = []

    def coordinate(parties):
        parties.enlist(Surveyor, SurveySetup())
        before = requests._read_once.cache_info().misses
        parties.ask(Surveyor.project, Direction(np.ones(2)))
        seen.extend(message for _, kind, message in requests._messages if kind is Direction)
        return requests._read_once.cache_info().misses - before

    with em.federation(many(MANY)) as fed:
        n_read = run(fed, coordinate).value
    assert n_read <= 2  # once by each of the threads that came first
    assert len(seen) <= 2
    assert not any(message.vector.flags.writeable for message in seen)


def test_rounds_of_many_parties_on_a_ring_keep_in_step():
    def coordinate(parties):
        parties.enlist(Surveyor, SurveySetup())
        parties.exchange(Surveyor.offer_count, Surveyor.take_counts, times=3)
        return [reply.calls for reply in parties.ask(Surveyor.tell_width)]

    with em.federation(many(MANY), topology="ring") as fed:
        found = run(fed, coordinate)
    assert found.value == [3 + 1] * MANY
    sent = [entry for entry in found.recording.ledger if entry.step == "Surveyor.offer_count"]
    assert len(sent) == 3 * 2 * MANY


def test_entries_of_the_ledger_share_what_is_equal():
    """It keeps every message of every round: an entry must not carry a table of its own."""

    def coordinate(parties):
        parties.enlist(Surveyor, SurveySetup())
        for _ in range(2):
            parties.ask(Surveyor.sum_rows)

    with em.federation(many(MANY)) as fed:
        ledger = run(fed, coordinate).recording.ledger
    replies = [entry.kinds for entry in ledger if entry.step == "Surveyor.sum_rows"]
    assert len(replies) == 2 * MANY
    assert all(kinds is replies[0] for kinds in replies)
