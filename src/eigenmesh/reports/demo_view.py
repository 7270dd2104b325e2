"""The demonstration as people see it: tables, words and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

import eigenmesh
from eigenmesh.reports.demo import DemoResult, Row, notes_of, tree_of
from eigenmesh.reports.documents import as_json
from eigenmesh.reports.tables import LOOK, Account, figure, reveals_table, share_in_words

# The fit whose embedding is drawn: the paper's own, at the rank that costs least.
_DRAWN = ("product", 10)
_HEADERS = "local\nrank|sinΘ|proven\nsinΘ|held-out\nerror|floats\nsent|share|rounds|secs".split("|")
_COMPARED = (("product", 10), ("distance", 10))


def outcome_view(outcome: DemoResult) -> Iterator[RenderableType]:
    """The table of a study and, below it, what it shows and its caveats."""
    yield outcome_table(outcome)
    yield Text(_verdict(outcome))
    for note, rows in notes_of(outcome).items():
        yield Text.assemble((f"• {rows}: ", "bold yellow"), (note, "yellow"))


def outcome_table(outcome: DemoResult) -> Table:
    """Accuracy and cost of every fit, against shipping every column."""
    study, parts = outcome.study, outcome.parts
    n, d = study.X.shape
    title = (
        f"{study.name}: {n:,} samples × {d:,} columns over {parts.n_parties} parties; "
        f"{study.n_components} components, RBF"
    )
    table = Table(title=title, **LOOK, padding=(0, 1, 0, 0))
    table.add_column("method", min_width=10)  # the one that may wrap in narrow terminals
    for name in _HEADERS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in outcome.rows:
        table.add_row(*_cells(row, study.n_components), style="" if row.report else "bold")
    return table


def _cells(row: Row, n_components: int) -> Iterator[RenderableType]:
    bound = row.bound(n_components)
    yield row.method
    yield "" if row.local_rank is None else str(row.local_rank)
    yield figure(row.sin_theta)
    yield "none" if bound is None else figure(bound)
    yield figure(row.held_out_error)
    yield f"{row.floats:,}"
    dear = row.share > 1
    # The sign says it where colours do not show.
    mark = "!" if dear else " "
    colour = "red" if dear else "green" if row.share < 1 else ""
    yield Text(share_in_words(row.share) + mark, style=colour)
    yield str(row.rounds)
    yield f"{row.seconds:.2f}"


def _verdict(outcome: DemoResult) -> str:
    n, d = outcome.study.X.shape
    shares = sorted(row.share for row in outcome.rows if row.report)
    low, high = share_in_words(shares[0]), share_in_words(shares[-1])
    size = "few" if n < d else "many"
    return (
        f"The fits send {low} to {high} of what shipping every column takes: parties send vectors "
        f"with an entry a sample, and {n:,} samples are {size} beside {d:,} columns."
    )


def reading() -> Text:
    """How to read the columns of `outcome_table`."""
    return Text(
        "How to read it. sinΘ: distance of the subspace from the pooled one, from 0 to "
        "√components. proven: its limit as a fit can state it without the pooled data, none if "
        "above √components. held-out error: the largest in the scores of new samples, relative to "
        "the largest score. share: floats sent, of those that shipping every column takes; ! marks "
        "those that send more than that.",
        style="dim",
    )


def disclosure_view(outcome: DemoResult) -> Iterator[RenderableType]:
    """What left each party in two of the fits, what did not, and what that tells."""
    rows = [outcome.row(*trial) for trial in _COMPARED]
    runs: dict[str, Account] = {row.label: row.report for row in rows if row.report}
    keeps = {
        name: f"{n:,} × {d:,}"
        for name, (n, d) in zip(outcome.parts.names, outcome.parts.shapes, strict=True)
    }
    yield reveals_table(runs, keeps=keeps, title=f"{outcome.study.name}: what left each party")
    yield Text(_disclosed(rows), style="dim")


def _disclosed(rows: Sequence[Row]) -> str:
    whole = [row.label for row in rows if row.method == "distance" and row.share >= 1]
    stays = f", but for {whole[0]}, which sent them rotated" if whole else ""
    return (
        f"The columns stayed with their parties{stays}; so did each party's share of the model. "
        "What was sent does tell something: eigenvectors how alike the samples are in a party's "
        "columns, scores how far apart they are. Kinds of 0 floats are scalars: sizes, a digest "
        "of the sample ids. New samples are scored from one message a party, of kind scores."
    )


def draw(outcome: DemoResult, path: Path) -> None:
    """The pooled and a federated embedding side by side."""
    # Matplotlib takes a second to import; help and the other commands do without it.
    from eigenmesh.reports.plots import compare

    study, reference, row = outcome.study, outcome.rows[0], outcome.row(*_DRAWN)
    compare(
        reference.embedding,
        row.embedding,
        study.labels,
        titles=(
            f"Pooled: every column shipped\n{reference.floats:,} floats",
            f"Federated: {outcome.parts.n_parties} parties, {row.method}, local_rank "
            f"{row.local_rank}\n{row.floats:,} floats, {share_in_words(row.share)} of shipping; "
            f"sinΘ = {figure(row.sin_theta)} ({study.n_components} components)",
        ),
        heading=f"Kernel PCA of {len(study.X)} digits, pooled and federated",
        path=path,
    )


def save(outcomes: Sequence[DemoResult], folder: Path) -> dict[str, Any]:
    """Write the picture of the first outcome and the figures of all; gives the figures."""
    picture, figures = folder / "embedding.png", folder / "demo.json"
    draw(outcomes[0], picture)
    tree = {
        "version": eigenmesh.__version__,
        "studies": [tree_of(outcome) for outcome in outcomes],
        "files": {"picture": picture, "figures": figures},
    }
    figures.write_text(as_json(tree) + "\n", encoding="utf-8")
    return tree
