"""One HTML page with all figures that a folder holds, each beside its verdicts."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from eigenmesh.reproduce.catalogue import order_of
from eigenmesh.reproduce.declare import SIZES
from eigenmesh.reproduce.runner import result_path
from eigenmesh.safe_files import write_whole

_COLOURS = {"held": "#117733", "held in part": "#997700", "not held": "#aa3322"}
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 1500px;
  padding: 0 1rem; color: #222; }
nav a { margin-right: .8rem; white-space: nowrap; }
section { border-top: 1px solid #ccc; padding: .6rem 0 1.4rem; }
.side { display: grid; grid-template-columns: minmax(0, 3fr) minmax(20rem, 2fr); gap: 1.2rem; }
@media (max-width: 60rem) { .side { grid-template-columns: 1fr; } }
img { width: 100%; height: auto; }
@media (max-width: 40rem) { .side > a { overflow-x: auto; } .side img { min-width: 44rem; } }
li { margin-bottom: .7rem; }
.verdict { color: #fff; border-radius: 3px; padding: .05rem .45rem; font-size: .85rem; }
.small { color: #555; font-size: .85rem; }
@media (prefers-color-scheme: dark) {
  body { background: #16181d; color: #d9dce1; }
  a { color: #8ab8ff; }
  .small { color: #a5adb8; }
  section { border-color: #444b56; }
}
"""


def results_in(folder: Path) -> list[dict[str, Any]]:
    """The trees of all figures that were run there, each at the largest size."""
    largest: dict[str, dict[str, Any]] = {}
    for size in SIZES:
        for path in folder.glob(f"*.{size}.json"):
            tree = json.loads(path.read_text(encoding="utf-8"))
            largest[tree["id"]] = tree
    return [largest[figure_id] for figure_id in sorted(largest, key=order_of)]


def write_page(folder: Path) -> Path:
    """`index.html` of the folder; its pictures lie beside it."""
    trees = results_in(folder)
    links = " ".join(f'<a href="#{_anchor(t)}">{t["id"]}</a>' for t in trees)
    body = "\n".join(_section(tree) for tree in trees)
    count = tally(trees)
    text = (
        f"<!doctype html><html lang=en><meta charset=utf-8>"
        f"<meta name=viewport content='width=device-width'><title>The papers, run again</title>"
        f"<style>{_STYLE}</style><h1>The papers, run again</h1><p>{escape(count)}</p>"
        f"<nav>{links}</nav>{body}</html>"
    )
    path = folder / "index.html"
    write_whole(path, text.encode(), durable=False)
    return path


def tally(trees: list[dict[str, Any]]) -> str:
    """How many claims hold.

    >>> tally([{"claims": [{"verdict": "held"}, {"verdict": "not held"}]}])
    '1 figures, 2 claims: 1 held, 0 held in part, 1 not held'
    """
    verdicts = [claim["verdict"] for tree in trees for claim in tree["claims"]]
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in _COLOURS)
    return f"{len(trees)} figures, {len(verdicts)} claims: {counts}"


def _anchor(tree: dict[str, Any]) -> str:
    return str(tree["id"]).replace("/", "-")


def _section(tree: dict[str, Any]) -> str:
    picture = result_path(Path(), tree["id"], tree["size"], "png").name
    claims = "".join(_claim(claim) for claim in tree["claims"])
    data = "; ".join(f"{title}: {origin}" for title, origin in tree["data"].items())
    seeds = len(tree["seeds"])
    facts = f"{tree['size']} size, {seeds} seeds, {tree['cpu_seconds']:.0f} s of processor time"
    return (
        f'<section id="{_anchor(tree)}"><h2>{tree["id"]} {escape(tree["title"])}</h2>'
        f'<div class=side><a href="{picture}"><img src="{picture}" loading=lazy '
        f'alt="{escape(tree["title"])}"></a><div><ul>{claims}</ul>'
        f"<p class=small>{escape(tree['reading'])}</p><p class=small>{facts}. "
        f"Data: {escape(data)}</p></div></div></section>"
    )


def _claim(claim: dict[str, Any]) -> str:
    colour = _COLOURS[claim["verdict"]]
    others = "".join(
        f"<br>{escape(verdict)}, if read as: {escape(reading)}"
        for reading, verdict in claim["other_readings"].items()
    )
    return (
        f'<li><span class=verdict style="background:{colour}">{claim["verdict"]}</span> '
        f"{escape(claim['claim'])}<br><span class=small>{escape(claim['measured'])} "
        f"(reading: {escape(claim['reading'])}){others}</span></li>"
    )
