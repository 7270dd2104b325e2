"""`eigenmesh site`: what the owner of a site does and sees, all of it in the site's own folder."""

from __future__ import annotations

import csv
import getpass
import io
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer
from rich.console import Console

from eigenmesh.cli import options
from eigenmesh.errors import InputError, PartitionError
from eigenmesh.estimators.base import load
from eigenmesh.nvflare_jobs.kit import local_folder, secure_site
from eigenmesh.reports.documents import account_tree, as_json, check_output
from eigenmesh.reports.dry_run import dry_run as run_dry
from eigenmesh.reports.site_views import (
    log_table,
    results_table,
    site_facts,
    study_view,
)
from eigenmesh.reports.tables import facts_table, report_table, reveals_table
from eigenmesh.reports.terminal import answering, progress, say
from eigenmesh.runtime.site_log import Head, read_log, verify_log
from eigenmesh.runtime.study import load_study
from eigenmesh.safe_files import write_whole
from eigenmesh.site_folder import SiteFolder
from eigenmesh.site_folder import owner_acts as acts
from eigenmesh.site_folder.new_folder import LEAST, new_folder, policy_text, public_key
from eigenmesh.site_folder.row_results import RowResults, results_about_rows, rows_of_results
from eigenmesh.site_folder.settings import Column, SiteSettings

app = typer.Typer(
    help="A site's own kit: what its owner says, sees, approves and keeps. Nothing here is sent.",
    no_args_is_help=True,
)

Folder: TypeAlias = Annotated[
    Path, typer.Option("--site", help="The site's folder.", envvar="EIGENMESH_SITE")
]
StudyFile: TypeAlias = Annotated[
    Path, typer.Argument(help="A study that `eigenmesh study` wrote.", metavar="STUDY")
]
By: TypeAlias = Annotated[
    str | None, typer.Option("--by", help="Who does it, for the record; this user if left out.")
]
HERE = Path(".")
_REMEDIES = "here: --id-column, --columns, --categories or --allow-missing"


@app.command()
def init(
    data: Annotated[
        list[Path], typer.Argument(help="The site's file; several are rows of one.", metavar="DATA")
    ],
    name: Annotated[str, typer.Option(help="The site's name, as all others call it.")],
    site: Folder = HERE,
    split: Annotated[
        Literal["rows", "columns"],
        typer.Option(help="Whether it holds other rows than the others, or other columns."),
    ] = "rows",
    id_column: options.IdColumn = None,
    columns: Annotated[
        str | None, typer.Option(help="Features, in this order: age,bmi; all others if left out.")
    ] = None,
    categories: Annotated[
        str | None,
        typer.Option(help="Features that hold levels, as words or numbers: ward,sex."),
    ] = None,
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing", help="Let gaps in, for fits whose preparation fills them."),
    ] = False,
    targets: Annotated[str | None, typer.Option(help="What a regression predicts: a,b.")] = None,
    weights: Annotated[str | None, typer.Option(help="The column of the rows' weights.")] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A kind that may leave; may be repeated. By default {', '.join(LEAST)}."
        ),
    ] = None,
    approve: Annotated[
        Literal["each", "listed", "any"], typer.Option(help="Who approves studies; see policies.")
    ] = "each",
    min_rows: Annotated[int, typer.Option(help="Fewest rows behind a number that leaves.")] = 5,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="Another site's public key, NAME=KEY, as its owner told it to you."),
    ] = None,
    startup_kit: Annotated[
        Path | None,
        typer.Option(help="The site's NVFlare kit: no code, shell or logs by it; needs --study."),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="With --startup-kit: the name that the sites agreed on.")
    ] = None,
    submitter: Annotated[
        list[str] | None,
        typer.Option(help="With --startup-kit: whose jobs reach this site; may be repeated."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Make a site's folder: settings, a policy that reveals little, and a key.

    Example: [bold]eigenmesh site init ward.csv --name north --id-column patient --site north[/bold]
    """
    with answering(json):
        settings = SiteSettings(
            name,
            tuple(_relative(file, site) for file in data),
            split,
            id_column,
            _columns(columns),
            _columns(targets) or (),
            (_columns(weights) or (None,))[0],
            categories=tuple(options.listed(categories) or ()),
            allow_missing=allow_missing,
            peers=dict(_pair(own) for own in peer or ()),
        )
        if startup_kit is not None and (study is None or not submitter):
            raise InputError("--startup-kit needs --study and --submitter: who may do what by it")
        if startup_kit is not None:
            local_folder(startup_kit)  # before the site's folder is made
        kinds = [kind.strip() for entry in allow or LEAST for kind in entry.split(",")]
        policy = policy_text(kinds, approve=approve, min_rows=min_rows)
        try:
            folder = new_folder(site, settings, policy)
        except PartitionError as error:
            raise PartitionError(f"{error.reason}; {_REMEDIES}", party=error.party) from None
        if startup_kit is not None:
            secure_site(startup_kit, str(study), site, submitter or ())
        if json:
            typer.echo(as_json({"site": site, "public_key": public_key(folder)}))
            return
        _say(f"Made {folder.settings_file} and {folder.policy_file}: read them, and change them.")
        _say(f"Public key, for the other sites' [peers]: {public_key(folder)}")
        _say("Then: eigenmesh site check")


@app.command()
def check(site: Folder = HERE, json: options.AsJson = False) -> None:
    """Say what the site holds, what may leave it, what would be refused, and what was spent."""
    with answering(json):
        facts = site_facts(SiteFolder(site))
        if json:
            typer.echo(as_json(facts))
            return
        codes = {name: facts.pop(name) for name in ("public key", "log head")}
        Console().print(facts_table("This site", facts))
        for name, code in codes.items():  # on lines of their own, to be copied
            _say(f"{name}: {code}")


@app.command()
def plan(study: StudyFile, site: Folder = HERE, json: options.AsJson = False) -> None:
    """Show what a study would ask, what would leave, what that is worth, and what is refused.

    Nothing is computed from the data, and nothing leaves.
    """
    with answering(json):
        view = study_view(SiteFolder(site), load_study(study))
        if json:
            typer.echo(as_json(view.to_tree()))
            return
        Console().print(*view.renderables())
        _say(f"digest: {view.study.digest}")


@app.command()
def approve(
    study: StudyFile,
    site: Folder = HERE,
    by: By = None,
    submitter: Annotated[
        list[str] | None, typer.Option(help="Who may submit it; may be repeated. Else anybody.")
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Let a study happen at this site. Look at `eigenmesh site plan` first."""
    with answering(json):
        folder, proposal = SiteFolder(site), load_study(study)
        refusals = study_view(folder, proposal).refusals
        acts.approve(folder, proposal, by or getpass.getuser(), submitter or ())
        if json:
            tree = {"approved": proposal.digest, "by": by, "submitters": submitter or []}
            typer.echo(as_json({**tree, "refusals": list(refusals)}))
            return
        whom = ", ".join(submitter or ()) or "any submitter"
        _say(f"Approved: study {proposal.digest}, for {whom}")
        if refusals:
            _say("The policy refuses it all the same: eigenmesh site plan says why.", "yellow")


@app.command()
def revoke(
    study: Annotated[str, typer.Argument(help="A study's file, or its digest.", metavar="STUDY")],
    site: Folder = HERE,
    by: By = None,
    json: options.AsJson = False,
) -> None:
    """Let a study happen no more: a run under way gets no further reply."""
    with answering(json):
        folder = SiteFolder(site)
        digest = load_study(study).digest if Path(study).exists() else study
        acts.revoke(folder, digest, by or getpass.getuser())
        listed = digest in folder.policy().approved
        if json:
            typer.echo(as_json({"revoked": digest, "listed_in_policy": listed}))
            return
        _say(f"Revoked: study {digest}")
        if listed:
            _say("policy.toml lists it as approved: take it out there as well.", "yellow")


@app.command()
def log(
    site: Folder = HERE,
    last: Annotated[int, typer.Option(help="How many lines, from the end.")] = 20,
    study: Annotated[
        str | None, typer.Option(help="Only lines of this study or fit: how its digest begins.")
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Show what was asked of the site and what left it, after checking that nothing was changed."""
    with answering(json):
        lines = [line for line in _log_lines(SiteFolder(site)) if _is_of(line, study)]
        shown = lines[-last:] if last > 0 else lines
        if json:
            typer.echo(as_json(shown))
            return
        Console().print(log_table(shown))


@app.command()
def verify(
    site: Folder = HERE,
    head: Annotated[
        list[str] | None,
        typer.Option(
            help="A head NUMBER:DIGEST that somebody else has of this site's log, such as "
            "report_.log_heads; may be repeated. Without one a cut tail does not show."
        ),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Find out whether the log is what was written: one changed byte is found."""
    with answering(json):
        heads = [_head(text) for text in head or ()]
        own = verify_log(SiteFolder(site).log_file, *heads)
        if json:
            typer.echo(as_json({"lines": own.number, "head": str(own), "heads": head or []}))
            return
        n_heads = "head that was told" if len(heads) == 1 else f"{len(heads)} heads that were told"
        heads_text = f", and has the {n_heads}" if heads else ""
        _say(f"The log is as it was written: {_lines(own.number)}{heads_text}.", "green")
        _say(f"Its head: {own}")
        if not heads:
            _say("Without a --head from elsewhere, lines that were cut off at its end do not show.")


@app.command()
def scores(
    site: Folder = HERE,
    out: Annotated[
        Path | None, typer.Option(help="Write them as .csv, for this user alone to read.")
    ] = None,
    study: Annotated[
        str, typer.Option(help="Only of this study or fit: how its digest begins.")
    ] = "",
    model: Annotated[
        Path | None,
        typer.Option(help="A model that was released: score the site's own rows by it, here."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """List scores and clusters of the site's own rows that fits left here, or write them with ids.

    Example: [bold]eigenmesh site scores --out scores.csv[/bold]
    """
    with answering(json):
        folder = SiteFolder(site)
        if model is None:
            shares = results_about_rows(folder, study)
            if out is None:
                _list_results(shares, json)
                return
            if not shares:
                raise InputError("no fit has left scores or clusters here; pass --model, or fit")
            results = rows_of_results(folder, shares)
        else:
            results = _scored(folder, model)
        if out is None:
            raise InputError("--model scores rows; say with --out where to write them")
        check_output(out, [folder.path / file for file in folder.settings.data], (".csv",))
        write_whole(out, _as_csv(results), private=True)
        if json:
            typer.echo(
                as_json({"scores": out, "n_samples": len(results.ids), "columns": results.names})
            )
            return
        _say(f"Wrote {out}: {len(results.ids):,} rows, {', '.join(results.names)}", "cyan")


@app.command()
def withdraw(
    ids: Annotated[
        list[str], typer.Argument(help="Ids of rows, or @FILE with one a line.", metavar="IDS")
    ],
    site: Folder = HERE,
    by: By = None,
    pause: Annotated[
        bool,
        typer.Option(
            help="Take out fewer rows than may be told apart, and refuse studies until more follow."
        ),
    ] = False,
    json: options.AsJson = False,
) -> None:
    """Take rows out of the data set; the file is not changed, and what was spent stays spent."""
    with answering(json):
        folder = SiteFolder(site)
        names = [own for entry in ids for own in _listed_ids(entry)]
        left = acts.withdraw(folder, names, by or getpass.getuser(), pause=pause)
        if json:
            typer.echo(as_json({"withdrawn": len(set(names)), "left": left}))
            return
        n = len(set(names))
        rows = "1 row is" if n == 1 else f"{n:,} rows are"
        _say(f"{rows} out from the next run on; {left:,} are left.")
        _say("What left before cannot be called back; results in the store go without these rows.")


@app.command("dry-run")
def dry_run(
    study: StudyFile,
    site: Folder = HERE,
    rows: Annotated[
        int | None, typer.Option(help="Rows of each party; as many as here if left out.")
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Run a study here on drawn data of the same shape, with as many parties as it has.

    The site's data are not used and nothing is spent; its policy holds.
    """
    with answering(json):
        with progress("running the study on drawn data"):
            trial = run_dry(SiteFolder(site), load_study(study), rows)
        if json:
            tree = {"shape": trial.shape, "is_same_study": trial.is_same}
            typer.echo(
                as_json({**tree, "party": trial.party, "report": account_tree(trial.report)})
            )
            return
        title = f"What it cost with {trial.shape[0]:,} × {trial.shape[1]:,} drawn numbers a party"
        Console().print(report_table(trial.report, title=title), reveals_table(trial.report))
        if not trial.is_same:
            _say(
                "The parties' sizes decide what is run, and others than drawn here were planned "
                "with: the study itself differs in some of its runs.",
                "yellow",
            )


# From words to what they mean.


def _relative(file: Path, site: Path) -> str:
    """A file in the site's folder goes with it; another stays where it is."""
    file, folder = file.absolute(), site.absolute()
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)


def _columns(text: str | None) -> tuple[Column, ...] | None:
    """Names, or numbers of columns that have none."""
    names = options.listed(text)
    if names is None:
        return None
    return tuple(int(name) if name.isdecimal() else name for name in names)


def _pair(text: str) -> tuple[str, str]:
    name, equals, key = text.partition("=")
    if not equals:
        raise InputError(f"--peer {text}: NAME=KEY is expected")
    return name, key


def _head(text: str) -> Head:
    head = Head.read(text)
    if head is None:
        raise InputError(f"--head {text}: NUMBER:DIGEST is expected, the digest of 64 digits")
    return head


def _listed_ids(entry: str) -> list[str]:
    if not entry.startswith("@"):
        return [entry]
    try:
        text = Path(entry[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{entry[1:]!r} cannot be read: {error.strerror}") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _log_lines(folder: SiteFolder) -> list[dict[str, Any]]:
    return list(read_log(folder.log_file)) if folder.log_file.exists() else []


def _is_of(line: dict[str, Any], study: str | None) -> bool:
    return study is None or any(line.get(key, "").startswith(study) for key in ("study", "fit"))


def _scored(folder: SiteFolder, model: Path) -> RowResults:
    """The site's own rows in a released model; nothing is sent."""
    estimator, rows = load(model), folder.rows()
    Z = estimator.transform(rows.X)
    ids = list(range(len(Z))) if rows.ids is None else rows.ids.tolist()
    return RowResults(ids, list(map(str, estimator.get_feature_names_out())), Z.tolist())


def _as_csv(results: RowResults) -> bytes:
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["id", *results.names])
    out.writerows([own, *row] for own, row in zip(results.ids, results.values, strict=True))
    return text.getvalue().encode()


def _list_results(shares: list[Any], json: bool) -> None:
    if json:
        facts = [
            {"key": s.key, "study": s.origin.study, "fit": s.origin.fit, "at": s.at} for s in shares
        ]
        typer.echo(as_json(facts))
        return
    Console().print(results_table(shares))


def _lines(n: int) -> str:
    return "1 line" if n == 1 else f"{n:,} lines"


def _say(words: str, style: str = "") -> None:
    say(Console(), words, style)
