"""Commands whose parties are sites of an NVFlare federation, and not files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import typer

from eigenmesh.cli import options
from eigenmesh.connect import federation
from eigenmesh.engines.nvflare import Relayed
from eigenmesh.errors import InputError
from eigenmesh.extras import extra
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.study import load_study

Engine: TypeAlias = Annotated[
    Literal["in-process", "nvflare"],
    typer.Option(
        help="in-process: DATA are files of this machine. nvflare: the parties are organisations' "
        "own sites, which --startup-kit reaches, and there is no DATA."
    ),
]
StartupKit: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="For nvflare: the analyst's folder, as `nvflare package` made it."),
]
Study: TypeAlias = Annotated[
    str | None,
    typer.Option(help="For nvflare: the name under which the sites have agreed to work together."),
]
Approved: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="For nvflare: the study's file that the sites' owners have approved."),
]


class Sites(NamedTuple):
    """Where the sites of a study are reached, and which of them are wanted."""

    startup_kit: Path
    study: str
    names: list[str] | None
    approved: Path | None


@dataclass(frozen=True)
class SiteOptions:
    """Who the parties are: files of this machine, or sites."""

    engine: Engine = "in-process"
    startup_kit: StartupKit = None
    study: Study = None
    approved: Approved = None

    def sites(
        self, data: list[Path] | None, reading: options.FileOptions, **of_files: Any
    ) -> Sites | None:
        """The sites, or None for files; refuses what is for the other of them only."""
        if self.engine == "in-process":
            if any(own is not None for own in (self.startup_kit, self.study, self.approved)):
                raise InputError("--startup-kit, --study and --approved are for --engine nvflare")
            if not data:
                raise typer.BadParameter("Missing argument 'DATA...': one file a party.")
            return None
        if data:
            raise InputError(f"DATA {data[0]} with --engine nvflare: the sites name their own data")
        of_files |= {**asdict(reading), "names": None}  # whom to ask is the analyst's to say
        for name, value in of_files.items():
            if value not in (None, "strict"):
                option = "--" + name.replace("_", "-")
                raise InputError(f"{option} with --engine nvflare: that is the sites' to say")
        if self.startup_kit is None or self.study is None:
            raise InputError("--engine nvflare needs --startup-kit and --study")
        names = options.listed(reading.names)
        if names is None and self.approved is not None:  # who takes part, in the study's order
            names = list(load_study(self.approved).parties)
        return Sites(self.startup_kit, self.study, names, self.approved)


@contextmanager
def _opened_job(sites: Sites) -> Iterator[Relayed]:
    """A job whose process at the server may be the coordinator."""
    with extra("nvflare", "--engine nvflare"):
        import nvflare  # noqa: F401
    engine = Relayed(*sites[:3])
    try:
        yield engine
    finally:
        engine.close()


def fitted(estimator: Any, sites: Sites, on_progress: Callable[[str], None]) -> Any:
    """The model that the server's job fits; labels, shares and scores of rows stay at the sites."""
    from eigenmesh.nvflare_jobs.orders import fit_at_server

    with _opened_job(sites) as engine:
        how = {"topology": estimator.topology, "approved": sites.approved}
        return fit_at_server(engine, estimator, how, on_progress)


def scores(model: Any, sites: Sites) -> Any:
    """Scores of the samples whose columns the sites have."""
    from eigenmesh.nvflare_jobs.orders import scores_at_server

    with _opened_job(sites) as engine:
        return scores_at_server(engine, model, {"approved": sites.approved})


def opened(sites: Sites) -> Federation:
    """A federation of the sites, for what is asked of them from this process."""
    kit, study, names, file = sites
    approved = None if file is None else load_study(file)
    return federation(engine="nvflare", startup_kit=kit, study=study, names=names, under=approved)
