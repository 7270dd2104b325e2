"""The demonstration: three processes, one map, a refusal, a death, and a page about it all."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.chromium import browser
from typer.testing import CliRunner

from eigenmesh.cli.commands import app
from eigenmesh.reports.demo import story

# Four interpreters and a whole kernel matrix: on a busy machine that takes its time.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """One run, with fewer rows than a million: how long these take is for benchmarks."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(story, "MILLION", 20_000)
        patch.setattr(story, "SUBSET", 500)
        result = CliRunner().invoke(app, ["demo", "--out", str(folder)], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return folder, result


@pytest.fixture(scope="module")
def figures(shown):
    return json.loads((shown[0] / "demo.json").read_text(encoding="utf-8"))


def test_the_map_is_the_pooled_one_for_a_twentieth_of_the_rows(figures):
    assert figures["share_of_shipping"] < 0.05
    assert figures["error"] < 0.05
    assert figures["agreement"] > 0.95


def test_a_clinic_refuses_by_name_and_another_is_killed_and_named(figures):
    assert "'south'" in figures["refusal"]
    assert "rows" in figures["refusal"]
    assert figures["lost"] == {"west": "its process was killed"}


def test_a_dozen_lines_say_it_within_80_columns(shown, figures):
    folder, result = shown
    lines = [line for line in result.stdout.splitlines() if str(folder) not in line]
    assert max(map(len, lines)) <= 80
    assert len(figures["lines"]) <= 12
    for number in range(1, len(figures["lines"]) + 1):
        assert any(line.split()[:1] == [str(number)] for line in lines)
    screen = " ".join(result.stdout.split())
    assert "south" in screen
    assert "west is gone: its process was killed" in screen
    assert f"{figures['share_of_shipping']:.1%}" in screen
    assert result.stderr == ""


def test_the_page_opens_and_says_the_same(shown, figures):
    folder, _ = shown
    with browser() as tab:
        for width in (1200, 390):
            tab.open(folder / "demo.html", width=width)
            assert tab.value("document.documentElement.scrollWidth") <= width
            assert tab.value("document.querySelector('img').clientWidth") > 500
            words = tab.value("document.body.innerText")
            assert all(line["words"] in words for line in figures["lines"])
        assert tab.complaints == []


def test_clinics_files_hold_what_was_compared(shown):
    rows = [
        np.loadtxt(shown[0] / f"{name}.csv", delimiter=",", skiprows=1, usecols=range(1, 61))
        for name in ("north", "south", "west")
    ]
    assert [len(own) for own in rows] == [3000, 2000, 1000]
