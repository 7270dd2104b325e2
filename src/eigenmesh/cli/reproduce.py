"""`eigenmesh reproduce`: the papers' tables and figures, listed, run, and shown side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from eigenmesh.cli import options
from eigenmesh.errors import InputError
from eigenmesh.extras import extra
from eigenmesh.reports.documents import as_json
from eigenmesh.reports.terminal import answering, progress


def reproduce(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            help="Figures as 003/fig3, papers as 003, all, or a study's file as mine.py; left out, "
            "they are listed.",
            metavar="[ID]...",
        ),
    ] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="In seconds: does it run?")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Each in less than a minute.")] = False,
    out: Annotated[
        Path, typer.Option(help="Folder for numbers, pictures and the page; runs go on from it.")
    ] = Path("eigenmesh-papers"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure all anew.")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Fetch nothing: files, or stand-ins.")
    ] = False,
    summary: Annotated[
        Path | None,
        typer.Option(help="Write all results in the folder to this page of Markdown as well."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Run the papers' tables and figures again, our default beside them, and judge each claim.

    Data are taken from the folder in EIGENMESH_DATA, fetched by scikit-learn, or stood in for; the
    figures say which. What was measured before is not measured again.

    Example: [bold]eigenmesh reproduce 003/fig3 --quick[/bold]
    """
    with answering(json):
        if smoke and quick:
            raise InputError("--smoke and --quick are both given; one of them is expected")
        size = "smoke" if smoke else "quick" if quick else "full"
        if ids:
            _run(ids, size, out, fresh=fresh, offline=offline, json=json)
        if summary is not None:
            from eigenmesh.reproduce.summary import write_summary

            write_summary(out, summary)
        elif not ids:
            _list(size, json)


def _list(size: str, json: bool) -> None:
    from eigenmesh.reproduce.catalogue import catalogue, entry

    entries = [entry(figure, size) for figure in catalogue().values()]
    if json:
        typer.echo(as_json(entries))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("id", "what it shows", "data", "claims"):
        table.add_column(column, overflow="fold")
    for own in entries:
        names = ", ".join(own["data"])
        table.add_row(own["id"], own["title"], names, str(len(own["claims"])))
    Console().print(table)


def _run(ids: list[str], size: str, out: Path, *, fresh: bool, offline: bool, json: bool) -> None:
    # scikit-learn's data sets and matplotlib are slow to import; other commands need neither.
    from eigenmesh.reproduce.catalogue import selected
    from eigenmesh.reproduce.page import write_page

    with extra("plot", "eigenmesh reproduce"):
        from eigenmesh.reproduce.picture import draw
    from eigenmesh.reproduce.runner import jobs_of, result_path, run

    figures = selected(ids)
    out.mkdir(parents=True, exist_ok=True)
    trees: list[Any] = []
    for figure in figures:
        words = f"{figure.id} ({len(trees) + 1} of {len(figures)})"
        with progress(words, total=len(jobs_of(figure, size))) as advance:
            outcome = run(figure, size, out, fresh=fresh, offline=offline, advance=advance)
        picture = result_path(out, figure.id, size, "png")
        draw(outcome, picture)
        trees.append(outcome.tree())
        if not json:
            _say(outcome, picture)
    page = write_page(out)
    if json:
        typer.echo(as_json(trees))
    else:
        Console().print(f"page: {os.fspath(page)}", highlight=False, soft_wrap=True)


def _say(outcome: Any, picture: Path) -> None:
    console = Console()
    console.print(f"[bold]{outcome.figure.id}[/bold] {outcome.figure.title}", highlight=False)
    for verdict in outcome.verdicts:
        under = f" (reading: {verdict.reading})"
        line = f"  {verdict.verdict.upper()}: {verdict.claim}; {verdict.measured}{under}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
        for reading, other in verdict.other_readings.items():
            words = f"    {other} if read as: {reading}"
            console.print(words, markup=False, highlight=False, soft_wrap=True)
    console.print(f"  picture: {picture}", markup=False, highlight=False, soft_wrap=True)
