"""Every table and figure runs to its end, small, and judges each claim as its numbers do."""

import ast
import json
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
from tests.reproduce import verdicts_again

from eigenmesh.reproduce import figures as declarations
from eigenmesh.reproduce.catalogue import catalogue, entry
from eigenmesh.reproduce.picture import draw
from eigenmesh.reproduce.runner import result_path, run
from eigenmesh.reproduce.style import MEASURES, METHODS

WANTED = {
    "000": ["fig2", "fig3", "fig4", "table1"],
    "001": [f"fig{i}" for i in range(1, 8)],
    "002": [f"fig{i}" for i in (6, 7, 8, 9, 10, 11, 12, 14)],
    "003": ["fig3", "fig4", "fig5"],
    "004": [f"fig{i}" for i in range(1, 6)],
}
IDS = [f"{paper}/{name}" for paper, names in WANTED.items() for name in names]
# Figures of one experiment share their trials: they are run in one folder.
SHARED = [("001/fig1", "001/fig2"), ("001/fig3", "001/fig4"), ("001/fig5", "001/fig6")]
GROUPS = SHARED + [(own,) for own in IDS if not any(own in pair for pair in SHARED)]


def test_none_is_missing():
    assert list(catalogue()) == IDS


@pytest.mark.parametrize("ids", GROUPS, ids="+".join)
def test_runs_to_its_end_and_judges_every_claim(ids, tmp_path, monkeypatch):
    monkeypatch.delenv("EIGENMESH_DATA", raising=False)
    for figure_id in ids:
        figure = catalogue()[figure_id]
        outcome = run(figure, "smoke", tmp_path, offline=True)
        picture = result_path(tmp_path, figure_id, "smoke", "png")
        draw(outcome, picture)
        assert picture.read_bytes().startswith(b"\x89PNG")
        tree = json.loads(result_path(tmp_path, figure_id, "smoke").read_text())
        assert [claim["claim"] for claim in tree["claims"]] == entry(figure)["claims"]
        told = [
            (own["verdict"], sum(case["holds"] for case in own["cases"]), len(own["cases"]))
            for own in tree["claims"]
        ]
        assert told == verdicts_again.verdicts(tree)
        assert all(total for _, _, total in told)
        assert tree["seeds"] == [0]
        assert {"eigenmesh", "numpy", "scikit-learn"} <= set(tree["versions"])


@pytest.mark.parametrize("figure", catalogue().values(), ids=lambda figure: figure.id)
def test_every_panel_has_the_default_and_shipping_and_known_looks(figure):
    for panel in figure.panels:
        names = panel.methods.split()
        assert {"default", "shipping"} <= set(names)
        assert set(names) <= set(METHODS) & set(panel.on.methods)
        looks = [(METHODS[name].colour, METHODS[name].line) for name in names]
        assert len(set(looks)) == len(looks), "two methods look alike"
    assert set(figure.shows.split()) <= set(MEASURES)


def lines_by_figure(path):
    """Lines of each declaration, with the functions that it alone needs; sizes are data."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    calls = {
        node.targets[0].id: node
        for node in tree.body
        if isinstance(getattr(node, "value", None), ast.Call)
        and getattr(node.value.func, "id", "") == "Figure"
    }

    def needs(node):
        names = {own.id for own in ast.walk(node) if isinstance(own, ast.Name)} & set(functions)
        return names.union(*(needs(functions[name]) for name in names))

    uses = Counter(name for node in calls.values() for name in needs(node))
    return {
        figure: sum(
            own.end_lineno - own.lineno + 1
            for own in (node, *(functions[name] for name in needs(node) if uses[name] == 1))
        )
        for figure, node in calls.items()
    }


def test_a_declaration_is_short():
    for path in Path(declarations.__path__[0]).glob("[a-z]*.py"):
        for figure, lines in lines_by_figure(path).items():
            assert lines <= 40, f"{path.name}: {figure} has {lines} lines"


def test_a_further_paper_is_one_module():
    for path in Path(declarations.__path__[0]).glob("[a-z]*.py"):
        module = import_module(f"{declarations.__name__}.{path.stem}")
        assert module.FIGURES
