"""All figures that can be run: those in the modules of `figures`, and those of a study's file."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.reproduce import figures
from eigenmesh.reproduce.datasets import SETS
from eigenmesh.reproduce.declare import Figure
from eigenmesh.reproduce.runner import jobs_of


def catalogue() -> dict[str, Figure]:
    """By id, in the order of the papers.

    >>> len([name for name in catalogue() if name.startswith("003/")])
    3
    """
    modules = [
        import_module(f"{figures.__name__}.{module.name}")
        for module in pkgutil.iter_modules(figures.__path__)
    ]
    by_id = {figure.id: figure for module in modules for figure in module.FIGURES}
    return dict(sorted(by_id.items(), key=lambda entry: order_of(entry[0])))


def order_of(figure_id: str) -> tuple[str, bool, int]:
    """fig2 before fig10, tables last."""
    paper, _, name = figure_id.partition("/")
    return paper, not name.startswith("fig"), int("".join(filter(str.isdigit, name)) or 0)


def figures_in(path: Path) -> list[Figure]:
    """The figures that a study's file names, which is run as the program that it is."""
    if not path.is_file():
        raise InputError(f"{path} is no file; expected a study in Python, which names FIGURES")
    # Not by an import, whose bytecode hangs on second and size: a change may keep both.
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    exec(compile(path.read_bytes(), path, "exec"), vars(module))
    figures = list(getattr(module, "FIGURES", ()))
    if not figures:
        raise InputError(f"{path} has no figures; expected FIGURES, which names one at least")
    for figure in figures:
        if figure.id in catalogue():
            raise InputError(
                f"{path} has the figure {figure.id!r}, which is one of ours; an id of its own is "
                f"expected, as '900/fig1'"
            )
    return figures


def selected(ids: Sequence[str]) -> list[Figure]:
    """Figures by id; a paper's number stands for all of its own, "all" for all, a file for its."""
    figures = catalogue()
    selection: list[Figure] = []
    for name in ids:
        if name.endswith(".py"):
            own = figures_in(Path(name))
        else:
            own = [f for f in figures.values() if name in ("all", f.id, f.paper)]
        if not own:
            raise InputError(
                f"{name!r} is no table or figure; expected 'all', a paper, a study's file or one "
                f"of {', '.join(figures)}"
            )
        selection += [figure for figure in own if figure not in selection]
    return selection


def entry(figure: Figure, size: str = "full") -> dict[str, Any]:
    """What is told of a figure before it is run."""
    names = list(dict.fromkeys(panel.data.name for panel in figure.panels))
    return {
        "id": figure.id,
        "paper": figure.paper,
        "title": figure.title,
        "claims": [claim.words for claim in figure.claims],
        "data": {name: SETS[name].shape for name in names},
        "cost": {"trials": len(jobs_of(figure, size)), "size": size},
    }
