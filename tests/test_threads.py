"""Never more threads at work than cores, and never a wait for ever."""

import os
import signal
import threading
import time

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from eigenmesh import threads


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 4)


class Meter:
    """How many workers are at work at the same time, at most."""

    def __init__(self):
        self._lock = threading.Lock()
        self.now = self.most = 0
        self.threads = set()

    def __enter__(self):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.threads.add(threading.get_ident())

    def __exit__(self, *exception):
        with self._lock:
            self.now -= 1


def worked(meter, seen, seconds=0.01):
    def worker(tasks):
        for i in tasks:
            with meter:
                seen.append(i)
                time.sleep(seconds)

    return worker


def blas_threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_a_single_pass_uses_every_core_and_each_task_once(four_cores):
    meter, seen = Meter(), []
    threads.spread(worked(meter, seen), 40)
    assert sorted(seen) == list(range(40))
    assert meter.most == 4


def test_few_tasks_hire_few_helpers(four_cores):
    meter, seen = Meter(), []
    threads.spread(worked(meter, seen), 1)
    assert (seen, meter.threads) == ([0], {threading.get_ident()})


def test_passes_side_by_side_stay_within_the_cores(four_cores):
    meter, seen = Meter(), []

    def party():
        with threads.at_work():
            threads.spread(worked(meter, seen), 30)

    parties = [threading.Thread(target=party) for _ in range(3)]
    for thread in parties:
        thread.start()
    for thread in parties:
        thread.join(20)
    assert len(seen) == 90
    assert meter.most <= 4


def test_a_party_that_comes_later_gets_its_core_back(four_cores):
    meter, seen, others = Meter(), [], []
    pass_ = threading.Thread(target=threads.spread, args=(worked(meter, seen, 0.02), 60))
    pass_.start()
    while meter.most < 4:
        time.sleep(0.001)
    for _ in range(3):
        with threads.at_work(), meter:
            others.append(meter.now)
            time.sleep(0.03)
    pass_.join(20)
    assert sorted(seen) == list(range(60))
    assert max(others) <= 4
    assert meter.most <= 4


def test_a_core_that_falls_idle_during_a_pass_is_taken_up(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    meter, seen, busy = Meter(), [], threading.Event()

    def other():
        with threads.at_work():
            busy.set()
            time.sleep(0.05)

    neighbour = threading.Thread(target=other)
    neighbour.start()
    busy.wait()
    threads.spread(worked(meter, seen), 40)
    neighbour.join()
    assert len(meter.threads) == 2


def test_one_thread_means_no_helpers(four_cores):
    meter, seen = Meter(), []
    with threads.one_thread():
        threads.spread(worked(meter, seen), 10)
    assert meter.most == 1


@pytest.mark.parametrize("culprit", [0, 7])
def test_an_error_ends_the_work_and_reaches_the_caller(four_cores, culprit):
    seen = []

    def worker(tasks):
        for i in tasks:
            if i == culprit:
                raise RuntimeError("task failed")
            seen.append(i)
            time.sleep(0.005)

    with pytest.raises(RuntimeError, match="task failed"):
        threads.spread(worker, 1000)
    assert len(seen) < 900
    meter = Meter()
    threads.spread(worked(meter, []), 40)
    assert meter.most == 4  # the helpers' cores were given back


def test_more_parties_than_cores_do_not_wait_for_each_other(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 1)
    seen = []
    with threads.at_work():  # a party whose step opens a federation of its own
        inner = threading.Thread(target=threads.spread, args=(worked(Meter(), seen), 3))
        inner.start()
        inner.join(10)
    assert seen == [0, 1, 2]


def test_limits_that_end_in_any_order_are_lifted_by_the_last():
    before = blas_threads()
    first, second = threads.one_blas_thread(), threads.one_thread()
    assert blas_threads() == {1}
    first.restore_original_limits()
    assert blas_threads() == {1}
    second.restore_original_limits()
    assert blas_threads() == before


def in_another_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(10)
    return found[0]


def test_any_thread_may_limit_and_lift_whoever_did_before():
    with threadpool_limits(2, user_api="blas"):  # by this thread, which lives on
        limit = in_another_thread(threads.one_thread)
        assert blas_threads() == {1}
        in_another_thread(limit.restore_original_limits)
        assert blas_threads() == {2}


# Ctrl-C, and a fork.


@pytest.fixture
def two_blas_threads():
    with threadpool_limits(2, user_api="blas"):
        yield
        assert blas_threads() == {2}


@pytest.mark.parametrize("moment", ["limit", "restore_original_limits"])
def test_interrupt_in_the_middle_of_a_change_leaves_blas_as_it_was(
    two_blas_threads, monkeypatch, moment
):
    change = threads._from_any_thread
    strikes = iter([moment == "limit", moment != "limit"])

    def interrupted(work):
        if next(strikes):
            os.kill(os.getpid(), signal.SIGINT)
        return change(work)

    monkeypatch.setattr(threads, "_from_any_thread", interrupted)
    with pytest.raises(KeyboardInterrupt):
        with threads.one_blas_thread():
            assert moment != "limit"
    monkeypatch.undo()
    assert blas_threads() == {2}
    with threads.one_blas_thread():
        assert blas_threads() == {1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_of_a_process_at_work_begins_anew(two_blas_threads):
    """Another thread is at work, and has BLAS limited, when the process forks."""
    has_begun, may_end = threading.Event(), threading.Event()

    def work():
        with threads.one_blas_thread(), threads.at_work():
            has_begun.set()
            may_end.wait(20)

    thread = threading.Thread(target=work)
    thread.start()
    has_begun.wait(20)
    child = os.fork()
    if child == 0:
        seen = []
        is_free = blas_threads() == {2}
        threads.spread(worked(Meter(), seen, 0.0), 5)
        os._exit(0 if is_free and sorted(seen) == list(range(5)) else 1)
    may_end.set()
    thread.join(20)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
