"""Documents are valid JSON whatever a report holds; warnings are one line each."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.estimators import progress_bar
from eigenmesh.reports import terminal
from eigenmesh.reports.documents import as_json, write_scores


def test_json_has_no_infinities_and_no_numpy():
    tree = {"a": np.inf, "b": [np.float64(1.5), np.nan], "c": np.arange(2), "d": Path("x"), 1: ()}
    assert json.loads(as_json(tree)) == {
        "a": None,
        "b": [1.5, None],
        "c": [0, 1],
        "d": "x",
        "1": [],
    }


def test_scores_survive_text_to_the_last_digit(tmp_path):
    Z = np.random.default_rng(0).normal(size=(5, 2))
    write_scores(tmp_path / "z.csv", Z, ["p", "q"])
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "z.csv", delimiter=",", skiprows=1), Z)


def test_warnings_of_all_libraries_are_one_line_each_and_said_once(capsys):
    with warnings.catch_warnings(), terminal.warnings_said_once():
        warnings.simplefilter("always")
        warnings.warn("X does not\n  have names", UserWarning, stacklevel=1)
        for _ in range(3):
            warnings.warn("[bold]ours", em.EigenmeshWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: X does not have names\nwarning: [bold]ours\n"


def test_warnings_that_python_keeps_quiet_about_stay_quiet(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with terminal.warnings_said_once():
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert not capsys.readouterr().err


def test_bugs_are_not_dressed_up_as_errors():
    with pytest.raises(ZeroDivisionError), terminal.answering(as_document=False):
        1 / 0  # noqa: B018


@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_a_bar_that_may_have_started_is_always_stopped(delay, monkeypatch, capsys):
    monkeypatch.setattr(progress_bar, "PATIENCE", 0.05)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with terminal.progress("working", total=2) as advance:
        advance()
        time.sleep(delay)
    output = capsys.readouterr().err
    assert ("working" in output) == (delay > 0.05)
