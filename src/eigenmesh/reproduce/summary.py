"""A page of Markdown with the verdict on every claim, from the JSON that runs left in a folder."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from eigenmesh.errors import InputError
from eigenmesh.reproduce.catalogue import catalogue
from eigenmesh.reproduce.page import results_in, tally
from eigenmesh.safe_files import write_whole

_HEAD = """# The papers, run again

Every table and figure of the five papers, run by one command, with our default, the pooled answer
and shipping every row beside the paper's method. This page is written by
`eigenmesh reproduce --summary docs/papers.md` from the JSON of the runs.

    eigenmesh reproduce                    # what there is
    eigenmesh reproduce 003/fig3 --quick   # a picture, numbers with seeds, a line a claim
    make reproduce                         # all at full size; goes on where it was cut short

Data come from the folder in `EIGENMESH_DATA`, by scikit-learn's fetchers where there is a network,
else from a synthetic stand-in of the same shape; what is said of a stand-in is no verdict on the
paper's own set, and is marked. A claim *held* if it held in every case that was looked at, *in
part* if in some. Where words can be read in several ways each reading is a check of its own: the
verdict is that of the paper's own, as near to what it prints as can be run, and what the others
give is named beside it. Tolerances stand in the declarations (`src/eigenmesh/reproduce/figures`):
papers seldom print any, so most are ours. What a claim asks for was put otherwise after a run had
been looked at where it had not been the paper's words; the figure then says so, and no tolerance
was made wider. Times are processor time with linear algebra at one
thread; the pooled answer is that of Lanczos.
"""


def write_summary(folder: Path, path: Path) -> None:
    """From all results in the folder, each at its largest size."""
    trees = results_in(folder)
    if not trees:
        raise InputError(f"{folder} holds no results; run `eigenmesh reproduce all --quick` first")
    missing = [own for own in catalogue() if own not in {tree["id"] for tree in trees}]
    left_out = f" Not run for this page: {', '.join(missing)}." if missing else ""
    parts = [_HEAD, f"{tally(trees)}, each as its paper has it.{left_out}\n"]
    for paper, own in groupby(trees, key=lambda tree: tree["paper"]):
        parts.append(f"## Paper {paper}\n")
        parts += [_figure(tree) for tree in own]
    write_whole(path, "\n".join(parts).rstrip().encode() + b"\n", durable=False)


def _figure(tree: dict[str, Any]) -> str:
    seeds, size = len(tree["seeds"]), tree["size"]
    facts = f"{size} size, {seeds} seed{'s' if seeds > 1 else ''}"
    stands_in = [title for title, origin in tree["data"].items() if "stand-in" in origin]
    lines = [f"### {tree['id']}: {tree['title']}", ""]
    lines.append(f"{tree['reading'] + '; ' if tree['reading'] else ''}{facts}.")
    if stands_in:
        which = "all panels" if len(stands_in) == len(tree["data"]) else ", ".join(stands_in)
        lines.append(f"Stand-ins: {which}.")
    lines += ["", "| claim | verdict | reading | measured |", "|---|---|---|---|"]
    lines += [_row(claim) for claim in tree["claims"]]
    return "\n".join(lines) + "\n"


def _row(claim: dict[str, Any]) -> str:
    others = "".join(f"; {v}: {r}" for r, v in claim["other_readings"].items())
    cells = (claim["claim"], claim["verdict"], f"{claim['reading']}{others}", claim["measured"])
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
