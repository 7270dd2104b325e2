"""Writes into the method pages what each method asks of a party, from the methods' own schedules.

    python docs/make_tables.py          # rewrites the tables between <!-- schedule: … --> marks
    python docs/make_tables.py --check  # fails if a page is not up to date

A table is of a fit with the defaults shown in its mark, to three parties of 1,000 rows and 10
columns (columns: of 1,000 samples and 10 columns each), on a ring where there is no coordinator.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import eigenmesh as em
from eigenmesh.runtime.schedule import Parties, TableRow, table
from eigenmesh.runtime.topology import build_graph

PAGES = Path(__file__).parent / "methods"
NAMES = ("north", "south", "west")
SHAPES = ((1000, 10),) * 3
MARK = re.compile(r"(<!-- schedule: (.+?) -->\n)(.*?)(<!-- end of schedule -->)", re.S)


def rows_of(call: str) -> list[tuple[str, TableRow]]:
    """The steps of a fit, each with its protocol; `call` is an estimator as users write it."""
    estimator: Any = eval(call, {"em": em})  # our own pages
    graph = None
    if getattr(estimator, "topology", None) is not None:
        graph = build_graph("ring", NAMES)
    parties = Parties(NAMES, SHAPES, graph)
    scope = parties.scope(estimator._split)
    runs = [(run.protocol.name, run.study(scope).tree) for run in estimator._stages(parties)]
    return [(name, row) for name, tree in runs if tree is not None for row in table(tree)]


def as_markdown(call: str) -> str:
    """The table of one estimator."""
    lines = ["| run | step | how often | a party gets | a party sends |", "|---|---|---|---|---|"]
    for name, row in rows_of(call):
        gets, sends = row.gets or "–", row.sends or "–"
        lines.append(f"| {name} | `{row.step}` | {row.times} | {gets} | {sends} |")
    return "\n".join(lines) + "\n"


def updated(page: str) -> str:
    """A page with its tables made anew."""
    return MARK.sub(lambda m: m[1] + "\n" + as_markdown(m[2]) + "\n" + m[4], page)


def main() -> None:
    stale = []
    for path in sorted(PAGES.glob("*.md")):
        before = path.read_text()
        after = updated(before)
        if after != before:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(after)
    if stale and "--check" in sys.argv:
        sys.exit(f"not up to date: {', '.join(stale)}; run python docs/make_tables.py")


if __name__ == "__main__":
    main()
