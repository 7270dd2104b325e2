"""Pages about fits, and the command that makes one of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eigenmesh.cli import options
from eigenmesh.cli.new_samples import samples_for
from eigenmesh.data import Partitioned
from eigenmesh.data.readers import peek_names, read_words
from eigenmesh.errors import InputError
from eigenmesh.estimators.base import load
from eigenmesh.reports.documents import as_json, check_output
from eigenmesh.reports.page import report as write_report
from eigenmesh.reports.terminal import answering, progress

PAGE_SUFFIXES = (".html", ".htm")


def report(
    model: Annotated[Path, typer.Argument(help="A model that fit saved.", metavar="MODEL")],
    data: Annotated[
        list[Path] | None,
        typer.Argument(help="Files whose rows are scored and drawn, or none.", metavar="DATA"),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="Where to write the page.", show_default=False)],
    reading: options.FileOptions,
    label_column: options.LabelColumn = None,
    json: options.AsJson = False,
) -> None:
    """Write one page about a saved model, which needs no network: what it found, cost and told.

    A model keeps no scores of the rows that it was fitted to, and the page shows none. The rows of
    DATA, if any are named, are scored as `transform` does it and drawn: they may be those of the
    fit.

    Example: [bold]eigenmesh report model.em north.csv south.csv --out page.html[/bold]
    """
    with answering(json):
        files = data or []
        check_output(out, [*files, model], PAGE_SUFFIXES)
        fitted = load(model)
        parts = labels = None
        if files:
            features = features_beside(label_column, files, reading)
            parts = samples_for(fitted, files, reading, features)
            labels = labels_in(files, label_column, reading)
        elif label_column is not None:
            raise InputError("--label-column is for the rows of DATA, and there are none")
        with progress("scoring"):
            write_page(fitted, out, parts, labels)
        shows = "with scores of single rows" if files else "without scores of single rows"
        typer.echo(as_json({"page": out, "shows": shows}) if json else f"Saved, {shows}: {out}")


def write_page(
    model: Any,
    path: Path,
    parts: Partitioned | None = None,
    labels: Any = None,
    *,
    no_rows: str = "",
) -> None:
    """A page about a model; `no_rows` says why none are drawn."""
    write_report(model, path, data=parts, labels=labels, no_rows=no_rows)


def features_beside(
    label_column: str | None, files: list[Path], reading: options.RowFileOptions
) -> list[str] | None:
    """The columns that are features, without the one that rows are coloured by; None for all."""
    features = options.listed(reading.columns)
    if label_column is None or not files:
        return features
    if features is None:
        names = peek_names(files[0], reading.id_column, **reading.text_words())
        if names is None:
            raise InputError(
                f"--label-column {label_column}: {files[0].name} has no names of columns"
            )
        features = list(names)
    return [name for name in features if name != label_column]


def labels_in(
    files: list[Path], label_column: str | None, reading: options.RowFileOptions
) -> list[Any] | None:
    """What each file has in the column that rows are coloured by; None without one."""
    if label_column is None:
        return None
    return [read_words(file, label_column, **reading.text_words()) for file in files]
