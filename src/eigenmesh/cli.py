"""The command line: `eigenmesh demo | fit | transform | plan`; each DATA file is one party."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer
from rich.console import Console, RenderableType
from rich.table import Table

import eigenmesh
from eigenmesh.data import Partitioned
from eigenmesh.errors import InputError
from eigenmesh.estimators import OneShotKPCA, load
from eigenmesh.estimators import plan as forecast
from eigenmesh.estimators.model_file import share_path
from eigenmesh.federation.policy import Policy
from eigenmesh.reports.documents import (
    SCORE_SUFFIXES,
    account_tree,
    as_json,
    check_output,
    model_tree,
    write_scores,
)
from eigenmesh.reports.tables import components_table, plan_table, report_table, reveals_table
from eigenmesh.reports.terminal import answering, progress, say

app = typer.Typer(
    help="Kernel PCA over data that cannot be pooled: each DATA file is one party.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # they print local variables, and those may be data
)

_METHODS = {"one-shot": OneShotKPCA}

# The options that fit and plan share.
Data: TypeAlias = Annotated[
    list[Path],
    typer.Argument(help="One file a party: .npy, .npz, .csv or .parquet.", metavar="DATA"),
]
Split: TypeAlias = Annotated[
    Literal["columns", "rows"],
    typer.Option(help="What the parties hold: other columns of the same samples, or other rows."),
]
Method: TypeAlias = Annotated[Literal["one-shot"], typer.Option(help="How the parties compute.")]
Components: TypeAlias = Annotated[int, typer.Option(help="Components wanted.")]
Kernel: TypeAlias = Annotated[Literal["rbf", "linear"], typer.Option(help="The kernel.")]
Gamma: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="For rbf: a number, scale, median or mean-distance; 1/(number of columns) if left "
        "out. All but a number are found across the parties without pooling."
    ),
]
LocalRank: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="Eigenpairs that each party sends: more cost more and err less. "
        "Components + max(5, components) if left out."
    ),
]
Fusion: TypeAlias = Annotated[
    Literal["product", "distance"],
    typer.Option(help="For rbf: multiply the parties' kernels, or add their squared distances."),
]
Names: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The parties' names, in the order of the files: a,b,c; by default the files'."
    ),
]
Allow: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="A kind that may leave a party; may be repeated. Every kind if left out."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eigenmesh {eigenmesh.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and demo.json.")] = Path(
        "eigenmesh-demo"
    ),
    parties: Annotated[int, typer.Option(help="Parties over which the columns are split.")] = 4,
    json: AsJson = False,
) -> None:
    """Show what federated kernel PCA gives and costs, on digits and on wide data.

    Example: [bold]eigenmesh demo --parties 16[/bold]
    """
    with answering(json):
        # scikit-learn's data sets and matplotlib are slow to import; only the demo needs them.
        from eigenmesh.reports import demo as study
        from eigenmesh.reports import demo_view as view

        out.mkdir(parents=True, exist_ok=True)
        studies = (study.digits_study(), study.wide_study())
        with progress("demo", total=sum(len(s.trials) + 1 for s in studies)) as advance:
            outcomes = study.run_studies(studies, parties, advance)
            tree = view.save(outcomes, out)
        if json:
            typer.echo(as_json(tree))
            return
        digits, wide = outcomes
        _print(*view.outcome_view(digits), view.reading(), *view.disclosure_view(digits))
        _print(*view.outcome_view(wide))
        _print_files(*tree["files"].values())


@app.command()
def fit(
    data: Data,
    model: Annotated[Path, typer.Option(help="Where to save the model.", show_default=False)],
    split: Split = "columns",
    method: Method = "one-shot",
    components: Components = 2,
    kernel: Kernel = "linear",
    gamma: Gamma = None,
    local_rank: LocalRank = None,
    fusion: Fusion = "product",
    names: Names = None,
    allow: Allow = None,
    shares: Annotated[
        bool,
        typer.Option(
            help="Save the parties' shares beside the model; transform needs them. A share is "
            "private to its party and may hold its training columns."
        ),
    ] = True,
    scores: Annotated[
        Path | None, typer.Option(help="Save the samples' scores, as .npy or .csv.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Fit a model to the parties' files and save it; print what it cost and what left each party.

    Example: [bold]eigenmesh fit a.npy b.csv --model model.em --kernel rbf --gamma 0.1[/bold]
    """
    with answering(json):
        check_output(model, data)
        if scores:
            check_output(scores, [*data, model], SCORE_SUFFIXES)
        parts = _parties(data, split, names, allow)
        kpca = _estimator(method, components, kernel, gamma, local_rank, fusion)
        with progress("fitting"):
            Z = kpca.fit_transform(parts) if scores else kpca.fit(parts)
        kpca.save(model, parties=shares)
        own = [share_path(model, i) for i in range(parts.n_parties)] if shares else []
        if scores:
            _write_scores(scores, Z, kpca, parts)
        if json:
            files = {"model": model, "shares": own, "scores": scores}
            typer.echo(as_json({**files, **model_tree(kpca)}))
            return
        _print(components_table(kpca), report_table(kpca.report_, notes=False))
        if hasattr(kpca, "transform_report_"):
            _print(report_table(kpca.transform_report_, title="What the scores cost besides"))
        keeps = _kept(data, parts)
        _print(reveals_table(kpca.report_, keeps=keeps, title="What left each party in the fit"))
        _print_files(model, *([scores] if scores else []))
        if own:
            _print_files(*own, what="Private to its party, for transform:")


@app.command()
def transform(
    model: Annotated[Path, typer.Argument(help="A model that fit saved.", metavar="MODEL")],
    data: Data,
    out: Annotated[
        Path, typer.Option(help="Where to save the scores: .npy or .csv.", show_default=False)
    ],
    names: Names = None,
    json: AsJson = False,
) -> None:
    """Scores of new samples, one file a party.

    The files are matched to the model's parties in order, or by name if names are given.

    Example: [bold]eigenmesh transform model.em a-new.npy b-new.csv --out scores.npy[/bold]
    """
    with answering(json):
        check_output(out, [*data, model], SCORE_SUFFIXES)
        kpca = load(model)
        parts = Partitioned(columns=data, names=_names_for(kpca.model_.parties, data, names))
        with progress("transforming"):
            Z = kpca.transform(parts)
        _write_scores(out, Z, kpca, parts)
        report = kpca.transform_report_
        if json:
            shape = {"n_samples": Z.shape[0], "n_components": Z.shape[1]}
            typer.echo(as_json({"scores": out, **shape, "report": account_tree(report)}))
            return
        _print(report_table(report), reveals_table(report, keeps=_kept(data, parts)))
        _print_files(out, what=f"Scores of {Z.shape[0]:,} samples, {Z.shape[1]} components:")


@app.command()
def plan(
    data: Data,
    split: Split = "columns",
    method: Method = "one-shot",
    components: Components = 2,
    kernel: Kernel = "linear",
    gamma: Gamma = None,
    local_rank: LocalRank = None,
    fusion: Fusion = "product",
    names: Names = None,
    allow: Allow = None,
    json: AsJson = False,
) -> None:
    """Forecast what a fit would cost, what would leave each party and who would refuse.

    Nothing is computed and nothing leaves a party.

    Example: [bold]eigenmesh plan a.npy b.csv --local-rank 20 --allow counts[/bold]
    """
    with answering(json):
        parts = _parties(data, split, names, allow)
        kpca = _estimator(method, components, kernel, gamma, local_rank, fusion)
        expected = forecast(kpca, parts)
        if json:
            typer.echo(as_json(account_tree(expected)))
            return
        keeps = _kept(data, parts)
        title = "What would leave each party"
        _print(plan_table(expected), reveals_table(expected, keeps=keeps, title=title))


# From the command line to the library.


def _parties(
    data: list[Path], split: str, names: str | None, allow: list[str] | None
) -> Partitioned:
    if split == "rows":
        raise InputError(
            "--split rows: no method for parties that hold rows is on the command line yet; in "
            "Python em.DisKPCA is one. one-shot takes --split columns, where each file has other "
            "columns of the same samples"
        )
    kinds = [kind.strip() for entry in allow or () for kind in entry.split(",")]
    policy = Policy(allow=kinds) if allow else None
    return Partitioned(columns=data, names=_listed(names) or _stems(data), policies=policy)


def _stems(data: list[Path]) -> list[str] | None:
    """Files name their parties, unless two of them have the same name."""
    stems = [path.stem for path in data]
    return stems if len(set(stems)) == len(stems) else None


def _estimator(
    method: str, components: int, kernel: str, gamma: str | None, rank: int | None, fusion: str
) -> Any:
    if gamma is not None and kernel == "linear":
        raise InputError(f"--gamma {gamma} is for --kernel rbf; the linear kernel has no gamma")
    return _METHODS[method](
        components, kernel=kernel, gamma=_number_or_rule(gamma), local_rank=rank, fusion=fusion
    )


def _number_or_rule(gamma: str | None) -> float | str | None:
    try:
        return None if gamma is None else float(gamma)
    except ValueError:
        return gamma  # the estimator knows the rules


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",")]


def _names_for(parties: tuple[str, ...], data: list[Path], names: str | None) -> list[str]:
    given = _listed(names)
    if given is not None:
        return given
    if len(data) != len(parties):
        raise InputError(
            f"got {len(data)} DATA, expected {len(parties)}: one file a party, in the order "
            f"{', '.join(parties)}; or say with --names whose they are"
        )
    return list(parties)


def _write_scores(path: Path, Z: Any, kpca: Any, parts: Partitioned) -> None:
    ids = None if parts.sample_ids is None else parts.sample_ids[0]
    write_scores(path, Z, kpca.get_feature_names_out(), ids)


# From the library to the reader.


def _print(*items: RenderableType) -> None:
    console = Console()
    for item in items:
        if isinstance(item, Table):
            console.print()
        console.print(item)


def _print_files(*paths: Path, what: str = "Saved:") -> None:
    console = Console()
    for path in paths:
        say(console, f"{what} {path}", "cyan")


def _kept(data: list[Path], parts: Partitioned) -> dict[str, str]:
    """What stays with each party: its file."""
    trios = zip(parts.names, data, parts.shapes, strict=True)
    return {name: f"{path.name}, {n:,} × {d:,}" for name, path, (n, d) in trios}


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show Θ must not end the run.
            stream.reconfigure(errors="replace")
    app()
