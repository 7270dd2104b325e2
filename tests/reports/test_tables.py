"""Tables say what the reports say, in any terminal and for any name."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

import eigenmesh as em
from eigenmesh.reports.tables import components_table, plan_table, report_table, reveals_table

pytestmark = pytest.mark.filterwarnings("ignore::eigenmesh.errors.EigenmeshWarning")


def shown(renderable, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(renderable)
    return console.export_text()


@pytest.fixture(scope="module")
def parts():
    X = np.random.default_rng(0).normal(size=(40, 6))
    return em.Partitioned(columns=[X[:, :2], X[:, 2:]], names=["[red]north[/red]", "south"])


def test_a_report_is_told_whole(parts):
    kpca = em.OneShotKPCA(2, kernel="rbf", gamma=0.1, local_rank=7).fit(parts)
    text = " ".join(shown(report_table(kpca.report_)).split())
    assert "574 floats up, 0 down, in 1 round" in text
    assert "240 floats if everything were shipped, so 239% of that" in text
    assert "more than shipping everything" in text
    assert "lower local_rank" in text
    assert "lower local_rank" not in shown(report_table(kpca.report_, notes=False))


def test_names_are_never_taken_for_markup(parts):
    kpca = em.OneShotKPCA(2, local_rank=2).fit(parts)
    assert "[red]north[/red]" in shown(report_table(kpca.report_))
    assert "[red]north[/red]" in shown(reveals_table(kpca.report_))


def test_a_forecast_names_who_refuses_and_what():
    X = np.ones((9, 4))
    only_counts = [None, em.Policy(allow={"counts", "hashes"})]
    parts = em.Partitioned(columns=[X, X], names=["north", "south"], policies=only_counts)
    plan = em.plan(em.OneShotKPCA(), parts)
    assert "south: columns, eigenvectors may not leave it" in shown(plan_table(plan))
    assert shown(reveals_table(plan)).count("REFUSED") == 1


def test_many_equal_parties_share_a_line():
    X = np.random.default_rng(0).normal(size=(30, 41))
    kpca = em.OneShotKPCA(2, local_rank=2).fit(em.split(X, 20, by="columns"))
    keeps = {f"party-{i}": "3 columns" if i == 0 else "2 columns" for i in range(20)}
    text = " ".join(shown(reveals_table(kpca.report_, keeps=keeps), width=120).split())
    assert "party-0 3 columns" in text
    assert "party-1 … party-19, each of 19 2 columns" in text


def test_accounts_stand_side_by_side(parts):
    fits = {
        rank: em.OneShotKPCA(1, kernel="rbf", gamma=0.1, local_rank=rank).fit(parts).report_
        for rank in (2, 3)
    }
    text = shown(reveals_table({f"rank {rank}": report for rank, report in fits.items()}))
    assert text.count("eigenvectors: 82") == text.count("eigenvectors: 123") == 2


def test_components_are_listed_up_to_ten(parts):
    kpca = em.OneShotKPCA(12, kernel="rbf", gamma=0.1, local_rank=30).fit(parts)
    table = components_table(kpca)
    assert table.row_count == 11
    assert f"{kpca.eigenvalues_[0]:.6g}" in shown(table)
