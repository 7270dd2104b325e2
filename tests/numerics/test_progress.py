"""Passes say how far they have come to whoever watches; the bar shows rows per second."""

import threading
import time

import numpy as np
import pytest

from eigenmesh.estimators import progress_bar
from eigenmesh.numerics import progress
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import landmark_sums, residuals

X = np.random.default_rng(0).normal(size=(5000, 4))


class Log:
    def __init__(self):
        self.begun, self.rows, self.ended = [], 0, []
        self._lock = threading.Lock()

    def begin(self, words, rows):
        self.begun.append((words, rows))

    def advance(self, rows):
        with self._lock:
            self.rows += rows

    def end(self, words):
        self.ended.append(words)


def test_every_row_is_counted_once():
    log = Log()
    with progress.watched(log):
        landmark_sums(Kernel("rbf", 0.5), X, X[:10])
    assert log.begun == [("kernel sums", 5000)]
    assert log.rows == 5000
    assert log.ended == ["kernel sums"]


def test_nobody_is_told_afterwards_and_watchers_nest():
    outer, inner = Log(), Log()
    with progress.watched(outer):
        with progress.watched(inner):
            residuals(Kernel("linear"), X, X[:3])
        residuals(Kernel("linear"), X[:100], X[:3])
    residuals(Kernel("linear"), X, X[:3])
    assert (inner.rows, outer.rows) == (5000, 100)


def test_a_pass_that_fails_is_over_too():
    log = Log()
    with progress.watched(log), pytest.raises(ZeroDivisionError):
        with progress.over_rows("dividing", 10) as done:
            done(3)
            1 / 0  # noqa: B018
    assert (log.rows, log.ended) == (3, ["dividing"])


def test_the_bar_shows_rows_per_second_once_work_takes_long(monkeypatch, capsys):
    monkeypatch.setattr(progress_bar, "PATIENCE", 0.02)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar.rows_shown("fitting"):
        with progress.over_rows("kernel sums", 1000) as done:
            for _ in range(10):
                done(90)
                time.sleep(0.02)
    output = capsys.readouterr()
    assert "fitting: kernel sums" in output.err
    assert "rows/s" in output.err
    assert output.out == ""


def test_short_work_and_silent_work_show_nothing(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar.rows_shown("fitting"):
        landmark_sums(Kernel("linear"), X, X[:3])
    monkeypatch.setattr(progress_bar, "PATIENCE", 0.0)
    with progress_bar.rows_shown("fitting", verbose=False):
        landmark_sums(Kernel("linear"), X, X[:3])
    assert "fitting" not in capsys.readouterr().err


def test_passes_of_several_parties_share_one_bar():
    bar = progress_bar.Progress(disable=True)
    task = bar.add_task("x", total=None)
    rows = progress_bar.RowsBar("fitting", bar, task)
    rows.begin("kernel sums", 100)
    rows.begin("kernel sums", 50)
    rows.advance(60)
    assert (bar.tasks[0].total, bar.tasks[0].completed) == (150, 60)
    rows.end("kernel sums")
    rows.end("kernel sums")
    rows.begin("scores", 20)
    assert (bar.tasks[0].total, bar.tasks[0].completed) == (20, 0)
