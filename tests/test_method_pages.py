"""The method pages say what the schedules say."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("make_tables", ROOT / "docs" / "make_tables.py")
make_tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_tables)
PAGES = sorted(make_tables.PAGES.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_are_those_of_the_schedules(page):
    assert make_tables.updated(page.read_text()) == page.read_text(), (
        "run python docs/make_tables.py"
    )


def test_there_are_tables_at_all():
    calls = [mark[1] for page in PAGES for mark in make_tables.MARK.findall(page.read_text())]
    assert len(calls) >= 8
