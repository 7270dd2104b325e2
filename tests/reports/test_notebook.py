"""In notebooks reports, plans, audits and pictures show themselves; bars stand below the cell."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import eigenmesh as em
from eigenmesh.estimators import progress_bar


@pytest.fixture(scope="module")
def fitted():
    X = np.random.default_rng(0).normal(size=(60, 4))
    parts = em.Partitioned(rows=[X[:30], X[30:]], names=["<b>north</b>", "south"])
    return em.MomentPCA(2).fit(parts), parts


def test_reports_plans_and_audits_are_tables_and_names_are_text(fitted):
    model, parts = fitted
    for shown in (model.report_, em.plan(model, parts), em.audit(model.report_)):
        page = shown._repr_html_()
        assert page.count("<table>") >= 1
        assert "&lt;b&gt;north" in page
        assert "<b>" not in page
    assert f"{model.report_.floats_up:,} floats up" in model.report_._repr_html_()


def test_a_picture_shows_itself(fitted):
    model, parts = fitted
    picture = em.plot.embedding(model.transform(parts), names=parts.names)
    assert picture._repr_png_().startswith(b"\x89PNG")


def test_a_bar_below_a_cell_moves_and_goes(monkeypatch):
    lines = []

    def display(data, *, raw, display_id):
        lines.append(data["text/plain"])
        return SimpleNamespace(update=lambda more, raw: lines.append(more["text/plain"]))

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(progress_bar, "PATIENCE", 0.01)
    with progress_bar.delayed_bar("fitting", total=4) as (bar, task):
        time.sleep(0.2)
        bar.update(task, completed=2)
    assert lines[0].startswith("fitting [")
    assert "50 %" in lines[1]
    assert lines[-1] == ""
