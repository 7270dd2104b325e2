"""The command line: `eigenmesh demo | check | fit | report | transform | cluster | plan | …`.

A DATA file is a party.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

import eigenmesh
from eigenmesh.cli import options, organisations
from eigenmesh.cli.cross_validate import cross_validate
from eigenmesh.cli.new_samples import column_holders, samples_for
from eigenmesh.cli.pages import PAGE_SUFFIXES, features_beside, labels_in, report, write_page
from eigenmesh.cli.reproduce import reproduce
from eigenmesh.cli.site_commands import app as site_app
from eigenmesh.cli.spread import spread
from eigenmesh.connect import federation
from eigenmesh.data import Partitioned
from eigenmesh.data.text_format import TextFormat
from eigenmesh.errors import InputError
from eigenmesh.estimators.base import load
from eigenmesh.estimators.model_file import share_path
from eigenmesh.estimators.plan import plan as forecast
from eigenmesh.estimators.plan import study as study_of
from eigenmesh.extras import extra
from eigenmesh.kernel_kmeans.estimator import KernelKMeans
from eigenmesh.kernel_pca.estimator import KernelPCA
from eigenmesh.nvflare_jobs.kit import secure_server
from eigenmesh.reports.documents import (
    SCORE_SUFFIXES,
    account_tree,
    as_json,
    check_output,
    cluster_tree,
    ids_path,
    model_tree,
    write_scores,
)
from eigenmesh.reports.page.facts import AT_SITES
from eigenmesh.reports.tables import (
    clusters_table,
    components_table,
    findings_table,
    plan_table,
    report_table,
    reveals_table,
)
from eigenmesh.reports.terminal import answering, following, progress, say

app = typer.Typer(
    help="Kernel PCA and kernel k-means over data that cannot be pooled: each DATA file is one "
    "party.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # they print local variables, and those may be data
)


def _print_version(show: bool) -> None:
    if show:
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
    out: Annotated[
        Path, typer.Option(help="Folder for the page, the picture and demo.json.")
    ] = Path("eigenmesh-demo"),
    json: options.AsJson = False,
) -> None:
    """Show in a minute what this is for: three clinics, one map, and a page about it.

    Example: [bold]eigenmesh demo --out shown[/bold]
    """
    with answering(json):
        # scikit-learn's solver and matplotlib are slow to import; only the demo needs them.
        with extra("files,plot", "eigenmesh demo"):
            import matplotlib  # noqa: F401  # missed now rather than after half a minute

            from eigenmesh.reports.demo import story, view

        out.mkdir(parents=True, exist_ok=True)
        with progress("demo", total=story.CHAPTERS) as advance:
            tale = story.tell(out, advance)
            tree = view.save(tale, out)
        if json:
            typer.echo(as_json(tree))
            return
        for number, line in enumerate(view.lines(tale), start=1):
            _say_line(number, line.title, line.words)
        _print_files(tree["files"]["page"], what=f"All of it in {tale.seconds:.0f} s. Open:")


@app.command()
@spread
def check(
    data: options.Files,
    *,
    reading: options.TextOptions,
    json: options.AsJson = False,
) -> None:
    """List all problems of all files at once, with the files' own lines and a remedy each.

    Each file is looked at by itself; nothing is sent. The exit code is 1 if there is a problem.

    Example: [bold]eigenmesh check north.csv south.csv --id-column patient[/bold]
    """
    with answering(json):
        # Arrow takes long to import.
        with extra("files", "eigenmesh check"):
            from eigenmesh.data.check_files import LEARNT, check_files

        with progress("checking"):
            findings = check_files(data, reading.id_column, TextFormat(**reading.text_words()))
        problems = [finding for finding in findings if not finding.is_note]
        if json:
            tree = {"problems": len(problems), "findings": [asdict(own) for own in findings]}
            typer.echo(as_json({**tree, "learnt": LEARNT}))
        else:
            _print(*([findings_table(findings)] if findings else []))
            count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
            _say(f"{count} in {len(data)} file{'s' if len(data) > 1 else ''}; {LEARNT}.")
    if problems:
        raise typer.Exit(1)


@app.command()
@spread
def fit(
    data: options.Data = None,
    *,
    model: Annotated[Path, typer.Option(help="Where to save the model.", show_default=False)],
    split: options.SplitIfTold = None,
    components: options.Components = "2",
    how: options.FitOptions,
    of_columns: options.OneShotOptions,
    seed: options.Seed = 0,
    reading: options.FileOptions,
    shares: Annotated[
        bool,
        typer.Option(
            help="For columns: save the parties' shares beside the model; transform needs them. A "
            "share is private to its party and may hold its training columns."
        ),
    ] = True,
    scores: Annotated[
        Path | None,
        typer.Option(help="Save the samples' scores, as .npy or .csv; for rows, a file a party."),
    ] = None,
    page: options.Page = None,
    label_column: options.LabelColumn = None,
    where: organisations.SiteOptions,
    json: options.AsJson = False,
) -> None:
    """Fit a model to the parties' files and save it; print what it cost and what left each party.

    With --engine nvflare the sites hold the data, the server's job is the coordinator, and the
    model is fetched from there; labels, scores and shares stay at the sites.

    Example: [bold]eigenmesh fit a.npy b.csv --model model.em --kernel rbf --gamma 0.1[/bold]
    """
    with answering(json):
        theirs = {"allow": how.allow, "scores": scores, "label_column": label_column}
        sites = where.sites(data, reading, **theirs, split=split)
        files = data or []
        check_output(model, files)
        if scores:
            check_output(scores, [*files, model], SCORE_SUFFIXES)
        if page:
            check_output(page, [*files, model], PAGE_SUFFIXES)
        kpca = _components(components, how, of_columns, seed)
        if sites:
            with following("fitting") as follow:
                kpca = organisations.fitted(kpca, sites, follow)
            _show_fitted(kpca, model, page, json)
            return
        parts = _parties(files, split, "columns", label_column, reading, how)
        kpca = _preparing(kpca, how, parts.split)
        labels = labels_in(files, label_column, reading)
        with progress("fitting"):
            Z = _fit(kpca, parts, how.secure, scores is not None)
        own = [share_path(model, i) for i in range(parts.n_parties)] if shares else []
        own = own if parts.split == "columns" else []
        kpca.save(model, parties=bool(own))
        score_files = _write_scores(scores, Z, kpca, parts) if scores else []
        if page:
            write_page(kpca, page, parts, labels)
        written_files = {"model": model, "shares": own, "scores": score_files, "page": page}
        written_files["ids"] = _id_files(score_files, parts)
        _show_fitted_files(kpca, _stays(parts), written_files, json)


@app.command()
@spread
def transform(
    model: Annotated[Path, typer.Argument(help="A model that fit saved.", metavar="MODEL")],
    data: options.Data = None,
    *,
    out: Annotated[
        Path,
        typer.Option(
            help="Where to save the scores: .npy or .csv; for rows, a file a party.",
            show_default=False,
        ),
    ],
    reading: options.FileOptions,
    where: organisations.SiteOptions,
    json: options.AsJson = False,
) -> None:
    """Scores of new samples, one file a party.

    Where parties hold columns, the files are matched to the model's parties by --names, else by
    the names of their columns, else by their own (a.npy and a-new.npy are party a's), and only
    where neither tells by their order. Rows are scored file by file: nothing is sent. Columns are
    matched by name, and refused where a name is missing or new.

    Example: [bold]eigenmesh transform model.em a-new.npy b-new.csv --out scores.npy[/bold]
    """
    with answering(json):
        sites = where.sites(data, reading)
        files = data or []
        check_output(out, [*files, model], SCORE_SUFFIXES)
        kpca = load(model)
        holders = column_holders(kpca)
        if sites:
            _show_scores_of_sites(kpca, sites, out, json)
            return
        parts = samples_for(kpca, files, reading, options.listed(reading.columns))
        with progress("transforming"):
            Z = kpca.transform(parts)
        score_files = _write_scores(out, Z, kpca, parts)
        report = kpca.transform_report_ if holders is not None else None
        sizes = list(map(len, Z)) if isinstance(Z, list) else [len(Z)]
        k = len(kpca.eigenvalues_)
        if json:
            account = None if report is None else account_tree(report)
            saved = {"scores": score_files, "ids": _id_files(score_files, parts)}
            typer.echo(
                as_json({**saved, "n_samples": sum(sizes), "n_components": k, "report": account})
            )
            return
        if report is not None:
            _print(report_table(report), reveals_table(report, keeps=_stays(parts)))
        for score_file, n in zip(score_files, sizes, strict=True):
            _print_files(score_file, what=f"Scores of {n:,} samples, {k} components:")
        _print_files(*_id_files(score_files, parts), what="Ids of these samples:")


@app.command()
@spread
def cluster(
    data: options.Data = None,
    *,
    clusters: Annotated[int, typer.Option(help="Clusters wanted.", show_default=False)],
    labels: Annotated[
        Path | None,
        typer.Option(help="Save the clusters, as .npy or .csv; for rows, a file a party."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Where to save the model; for columns, with the parties' private shares beside it."
        ),
    ] = None,
    split: options.SplitIfTold = None,
    how: options.ClusterOptions,
    seed: options.Seed = 0,
    reading: options.FileOptions,
    page: options.Page = None,
    label_column: options.LabelColumn = None,
    where: organisations.SiteOptions,
    json: options.AsJson = False,
) -> None:
    """Kernel k-means of rows or columns that parties hold; labels of rows stay with the rows.

    Example: [bold]eigenmesh cluster a.npy b.npy --clusters 3 --labels labels.csv[/bold]
    """
    with answering(json):
        theirs = {"allow": how.allow, "labels": labels, "label_column": label_column}
        sites = where.sites(data, reading, **theirs, split=split)
        files = data or []
        for file, suffixes in ((labels, SCORE_SUFFIXES), (model, ()), (page, PAGE_SUFFIXES)):
            if file:
                check_output(file, files, suffixes)
        kmeans = _clusters(clusters, how, seed)
        if sites:
            with following("clustering") as follow:
                kmeans = organisations.fitted(kmeans, sites, follow)
            _show_clusters_of_sites(kmeans, model, page, json)
            return
        parts = _parties(files, split, "rows", label_column, reading, how)
        kmeans = _preparing(kmeans, how, parts.split)
        with progress("clustering"), _opened(parts, how.secure) as source:
            kmeans.fit(source)
        if model:
            kmeans.save(model, parties=parts.split == "columns")
        label_files = _write_labels(labels, kmeans.labels_, parts) if labels else []
        if page:
            write_page(kmeans, page, parts, labels_in(files, label_column, reading))
        if json:
            saved = {"model": model, "labels": label_files, "ids": _id_files(label_files, parts)}
            saved["page"] = page
            typer.echo(as_json({**saved, **cluster_tree(kmeans)}))
            return
        _print(clusters_table(kmeans), report_table(kmeans.report_, notes=False))
        _say(f"method {kmeans.method_}")
        _say_of_data(kmeans.report_)
        _print(reveals_table(kmeans.report_, keeps=_stays(parts)))
        _print_files(*([model] if model else []), *label_files, *_id_files(label_files, parts))
        _print_files(*([page] if page else []), what="A page about it, with scores of single rows:")


@app.command()
@spread
def plan(
    data: options.Data = None,
    *,
    split: options.SplitIfTold = None,
    components: options.Components = "2",
    clusters: Annotated[
        int | None, typer.Option(help="Forecast a clustering instead of a fit.")
    ] = None,
    how: options.FitOptions,
    of_columns: options.OneShotOptions,
    reading: options.FileOptions,
    label_column: options.LabelColumn = None,
    where: organisations.SiteOptions,
    json: options.AsJson = False,
) -> None:
    """Forecast what a fit would cost, what would leave each party and who would refuse.

    Nothing is computed and nothing leaves a party.

    Example: [bold]eigenmesh plan a.npy b.csv --local-rank 20 --allow counts[/bold]
    """
    with answering(json):
        theirs = {"allow": how.allow, "label_column": label_column, "split": split}
        sites = where.sites(data, reading, **theirs)
        estimator = (
            _clusters(clusters, how) if clusters else _components(components, how, of_columns)
        )
        if sites:
            keeps: dict[str, str] = {}
            with organisations.opened(sites) as source:
                account = forecast(estimator, source)
        else:
            usual, files = "rows" if clusters else "columns", data or []
            parts = _parties(files, split, usual, label_column, reading, how)
            estimator = _preparing(estimator, how, parts.split)
            keeps = _stays(parts)
            with _opened(parts, how.secure) as source:
                account = forecast(estimator, source)
        if json:
            typer.echo(as_json(account_tree(account)))
            return
        title = "What would leave each party"
        _print(plan_table(account), reveals_table(account, keeps=keeps, title=title))


@app.command()
@spread
def study(
    out: Annotated[Path, typer.Option(help="Where to save the study.", show_default=False)],
    data: Annotated[
        list[Path] | None, typer.Argument(help="One file a party, or none.", metavar="DATA")
    ] = None,
    party: Annotated[
        list[str] | None,
        typer.Option(help="A party whose data are elsewhere: NAME=ROWSxCOLUMNS; repeated."),
    ] = None,
    *,
    split: options.SplitIfTold = None,
    components: options.Components = "2",
    clusters: Annotated[
        int | None, typer.Option(help="The study of a clustering instead of a fit.")
    ] = None,
    how: options.FitOptions,
    of_columns: options.OneShotOptions,
    seed: options.Seed = 0,
    names: options.Names = None,
    json: options.AsJson = False,
) -> None:
    """Write what a fit asks of its parties to a file, for the sites' owners to look at and approve.

    Example: [bold]eigenmesh study --party north=120x5 --party south=90x5 --out study.json[/bold]
    """
    with answering(json):
        check_output(out, data or [])
        usual = "rows" if clusters or party else "columns"
        parts = options.sized_parties(data or [], party or [], split or usual, names, how.allow)
        estimator = (
            _clusters(clusters, how, seed)
            if clusters
            else _components(components, how, of_columns, seed)
        )
        estimator = _preparing(estimator, how, parts.split)
        proposal = study_of(estimator, parts, secure=how.secure, at_sites=True)
        proposal.save(out)
        if json:
            runs = [run.protocol.name for run in proposal.runs]
            typer.echo(as_json({"study": out, "digest": proposal.digest, "runs": runs}))
            return
        typer.echo(str(proposal))
        _print_files(out)


@app.command()
def server(
    kit: Annotated[Path, typer.Argument(help="The server's own NVFlare kit.", metavar="KIT")],
) -> None:
    """Settle what an NVFlare server lets be done: jobs of ours, no code that travels, no shell.

    Example: [bold]eigenmesh server kits/hub.example.org[/bold]
    """
    with answering(False):
        secure_server(kit)
        _say(f"{kit}: jobs name installed classes only, and what is stored stays in this folder.")


app.command()(spread(report))
app.command()(spread(cross_validate))
app.command()(reproduce)
app.add_typer(site_app, name="site")


def _show_fitted_files(
    kpca: KernelPCA, keeps: dict[str, str], files: dict[str, Any], json: bool
) -> None:
    if json:
        typer.echo(as_json({**files, **model_tree(kpca)}))
        return
    _print(components_table(kpca), report_table(kpca.report_, notes=False))
    _say(f"method {kpca.method_}")
    _say_of_data(kpca.report_)
    if hasattr(kpca, "transform_report_"):
        _print(report_table(kpca.transform_report_, title="What the scores cost besides"))
    _print(reveals_table(kpca.report_, keeps=keeps, title="What left each party in the fit"))
    _print_files(files["model"], *files["scores"], *files["ids"])
    if files["page"]:
        _print_files(files["page"], what="A page about it, with scores of single rows:")
    if files["shares"]:
        _print_files(*files["shares"], what="Private to its party, for transform:")


# Where the parties are sites elsewhere.


def _show_fitted(kpca: KernelPCA, model: Path, page: Path | None, json: bool) -> None:
    kpca.save(model)
    if page:
        write_page(kpca, page, no_rows=AT_SITES)
    if json:
        typer.echo(as_json({"model": model, "page": page, **model_tree(kpca)}))
        return
    _print(components_table(kpca), report_table(kpca.report_, notes=False))
    _say(f"method {kpca.method_}")
    _print(reveals_table(kpca.report_, title="What left each site in the fit"))
    _print_files(model, *([page] if page else []))


def _show_clusters_of_sites(
    kmeans: KernelKMeans, model: Path | None, page: Path | None, json: bool
) -> None:
    if model:
        kmeans.save(model)
    if page:
        write_page(kmeans, page, no_rows=AT_SITES)
    if json:
        account = account_tree(kmeans.report_)
        typer.echo(as_json({"model": model, "page": page, "report": account}))
        return
    _print(report_table(kmeans.report_, notes=False))
    _say(f"method {kmeans.method_}")
    _print(reveals_table(kmeans.report_))
    _say("Clusters of rows are at their sites, where `eigenmesh site scores` writes them.")
    _print_files(*(file for file in (model, page) if file))


def _show_scores_of_sites(kpca: Any, sites: organisations.Sites, out: Path, json: bool) -> None:
    if column_holders(kpca) is None:
        raise InputError(
            "the model scores rows on its own, and rows are at their sites, where `eigenmesh site "
            "scores` writes their scores"
        )
    with following("transforming"):
        Z = organisations.scores(kpca, sites)
    write_scores(out, Z, kpca.get_feature_names_out(), None)
    if json:
        typer.echo(as_json({"scores": [out], "n_samples": len(Z), "n_components": Z.shape[1]}))
        return
    _print_files(out, what=f"Scores of {len(Z):,} samples, {Z.shape[1]} components:")


# From the command line to the library.


def _parties(
    files: list[Path],
    split: Any,
    usual: str,
    label_column: str | None,
    reading: options.FileOptions,
    how: options.FitOptions,
) -> Partitioned:
    """The files as parties; who names columns that all have speaks of rows."""
    features = features_beside(label_column, files, reading)
    if split is None and (features is not None or how.categories):
        split = "rows"
    text = reading.text_words()
    split = options.split_of(split, files, usual, reading.id_column, **text)
    words = {**reading.words(), **how.choice_words(features)}
    return options.parties(files, split, reading.names, how.allow, **words)


def _components(
    components: str, how: options.FitOptions, of_columns: options.OneShotOptions, seed: int = 0
) -> KernelPCA:
    """The front door of a fit."""
    return KernelPCA(options.components(components), **how.words(seed), **asdict(of_columns))


def _clusters(clusters: int, how: options.FitOptions, seed: int = 0) -> KernelKMeans:
    """The front door of a clustering; without a gamma, by the rule that it takes by default."""
    words = how.words(seed)
    return KernelKMeans(clusters, **{**words, "gamma": words["gamma"] or "mean-distance"})


def _preparing(door: Any, how: options.FitOptions, split: str) -> Any:
    """The front door as it prepares what parties hold: columns are prepared by their owners."""
    if split == "rows" or door.preparation is None:
        return door
    own = how.column_words()
    if not own.keys() <= door.get_params().keys():
        raise InputError(
            "--standardize and --fill-missing are for rows, and clusters of columns are of these "
            "as they are; let each owner prepare its own file"
        )
    return door.set_params(preparation=None, **own)


@contextmanager
def _opened(parts: Partitioned, secure: bool) -> Iterator[Any]:
    """The parties, or a federation of them whose sums are masked."""
    if not secure:
        yield parts
        return
    with federation(parts, secure=True) as fed:
        yield fed


def _fit(kpca: KernelPCA, parts: Partitioned, secure: bool, with_scores: bool) -> Any:
    """Fit, and the scores if they are wanted; who holds rows scores them, and sends nothing."""
    if not secure:
        return kpca.fit_transform(parts) if with_scores else kpca.fit(parts)
    with _opened(parts, secure) as fed:
        kpca.fit(fed)
    return kpca.transform(parts) if with_scores else None


def _write_scores(path: Path, Z: Any, kpca: Any, parts: Partitioned) -> list[Path]:
    """One file for all samples; where parties hold rows, one for each party's own."""
    return _write_columns(path, Z, kpca.get_feature_names_out(), parts)


def _write_labels(path: Path, labels: Any, parts: Partitioned) -> list[Path]:
    own_labels = labels if isinstance(labels, list) else [labels]
    columns = [np.asarray(own)[:, None] for own in own_labels]
    return _write_columns(path, columns if own_labels is labels else columns[0], ["cluster"], parts)


def _write_columns(path: Path, values: Any, names: Any, parts: Partitioned) -> list[Path]:
    if not isinstance(values, list):
        write_scores(path, values, names, _ids(parts, 0))
        return [path]
    files = _party_files(path, parts)
    for i, (file, own) in enumerate(zip(files, values, strict=True)):
        write_scores(file, own, names, _ids(parts, i))
    return files


def _party_files(path: Path, parts: Partitioned) -> list[Path]:
    """scores.csv of party a becomes scores.a.csv; a single party's keeps its name."""
    if parts.n_parties == 1:
        return [path]
    return [path.with_name(f"{path.stem}.{name}{path.suffix}") for name in parts.names]


def _ids(parts: Partitioned, party: int) -> Any:
    return parts.matched().part_ids(party)


def _id_files(files: list[Path], parts: Partitioned) -> list[Path]:
    """The files that have the ids of those of scores or labels that have no room for them."""
    binary = [(i, file) for i, file in enumerate(files) if file.suffix.lower() == ".npy"]
    return [ids_path(file) for i, file in binary if _ids(parts, i) is not None]


# From the library to the reader.


def _print(*items: RenderableType) -> None:
    console = Console()
    for item in items:
        if isinstance(item, Table):
            console.print()
        console.print(item)


def _say(words: str) -> None:
    Console().print(words, style="dim", markup=False, highlight=False)


def _say_line(number: int, title: str, words: str) -> None:
    """A numbered line, folded under its own beginning."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", style="dim", width=2)
    table.add_column(style="bold", width=16)
    table.add_column(overflow="fold")
    table.add_row(str(number), Text(title), Text(words))
    Console().print(table)


def _say_of_data(report: Any) -> None:
    """How samples were matched and rows prepared: who lost how many, what was left out."""
    for note in report.notes:
        if "common to all parties" in note or "rows were prepared" in note:
            _say(note)


def _print_files(*paths: Path, what: str = "Saved:") -> None:
    console = Console()
    for path in paths:
        say(console, f"{what} {path}", "cyan")


def _stays(parts: Partitioned) -> dict[str, str]:
    """What stays with each party: its file."""
    # The parties' own paths: columns may have come in another order than the model's parties.
    trios = zip(parts.names, parts.paths, parts.shapes, strict=True)
    return {name: f"{path.name}, {n:,} × {d:,}" for name, path, (n, d) in trios if path}


def main() -> None:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show Θ must not end the run.
            stream.reconfigure(errors="replace")
    app()
