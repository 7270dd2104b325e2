"""From data to a federation: `em.federation`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from eigenmesh.data import Partitioned, hash_sample_ids
from eigenmesh.data.matching import shared_secret
from eigenmesh.data.partitioned import (
    checked_align,
    checked_id_column,
    checked_names,
    checked_policies,
)
from eigenmesh.data.table import frame_names, is_frame
from eigenmesh.engines._mpi_start import starting
from eigenmesh.engines.faulty import Fault, with_faults
from eigenmesh.engines.in_process import InProcess
from eigenmesh.errors import EigenmeshError, InputError
from eigenmesh.extras import extra
from eigenmesh.runtime.content import TRUSTS, Trust
from eigenmesh.runtime.engine import Engine
from eigenmesh.runtime.federation import Federation, require_seconds
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.site import Site
from eigenmesh.runtime.study import FitStudy
from eigenmesh.runtime.topology import TREE, Averaging, Topology
from eigenmesh.site_folder import open_site
from eigenmesh.stages.column_agreement import agree_on_columns


def _in_process(sites: Sequence[Site], wrap: Any, timeout: float | None) -> Engine:
    return InProcess(sites, wrap)


def _mpi(sites: Sequence[Site], wrap: Any, timeout: float | None) -> Engine:
    seconds = Engine.default_timeout if timeout is None else timeout
    with extra("mpi", "engine='mpi'"), starting([site.name for site in sites], seconds):
        from eigenmesh.engines.mpi import MPIEngine
    return MPIEngine(sites, wrap, seconds)


# What an engine needs is imported when it is first asked for.
_ENGINES: dict[str, Callable[[Sequence[Site], Any, float | None], Engine]] = {
    "in-process": _in_process,
    "mpi": _mpi,
}


def federation(
    source: Partitioned | Sequence[str | Path] | None = None,
    *,
    sites: Sequence[str | Path] | None = None,
    study: str | None = None,
    under: FitStudy | None = None,
    engine: str = "in-process",
    split: str = "rows",
    names: Sequence[str] | None = None,
    policies: Policy | Sequence[Policy | None] | None = None,
    id_column: str | None = None,
    align: str = "strict",
    id_secret: str | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    features: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
    allow_missing: bool | None = None,
    topology: Topology | None = None,
    averaging: Averaging = TREE,
    timeout: float | None = None,
    on_loss: str = "raise",
    max_age: int = 3,
    faults: Sequence[Fault] = (),
    client: Any = None,
    workers: Sequence[str] | None = None,
    trust: Trust | None = None,
    secure: bool | None = None,
    startup_kit: str | Path | None = None,
) -> Federation:
    """Open a federation over data that stay where they are.

    Parameters
    ----------
    source : a Partitioned, or a list of paths, each opened by its own party. For "dask" also a
        Dask array, a party a chunk of columns or of rows, or a Dask DataFrame, a party a
        partition: chunks stay at the workers that hold them, and parties are in their order. A
        path is opened at its party's worker; arrays in this process are sent there, once. None
        for "nvflare", whose sites own their data and say themselves how they are split.
    sites : in place of `source`, folders of sites that `eigenmesh site init` made, opened in this
        process: a rehearsal of what happens between organisations. Data, names and policies are
        the folders', and nothing in them can be reached from here but by asking their hosts.
    study : for "nvflare", the name under which the sites' owners have agreed to work together.
    under : the study that all runs belong to, for sites that approve studies: `em.study`.
    engine : what carries the messages; "in-process" is this very process, "mpi" a job in which
        every rank runs the same script and hosts one party, "dask" a cluster whose workers host
        the parties, "nvflare" a federation of organisations, each of which hosts its own.
    split : for a list of paths, whether each holds "rows" or "columns".
    names, policies : of the parties, as in `Partitioned`, for any other source than that. For
        "nvflare", the names of sites that must take part, in this order; all that are connected,
        by name, if None; policies are the sites' own.
    id_column : for a list of paths or a Dask DataFrame, the column that has the sample ids, as in
        `Partitioned`.
    align, id_secret : for a list of paths of columns, as in `Partitioned`: "inner" matches samples
        by the files' id columns. Parties that open their files in processes of their own each need
        the secret in their environment, as EIGENMESH_ID_SECRET, where the coordinator has none.
    delimiter, decimal : for a list of paths of text files, as in `Partitioned`.
    features, categories, allow_missing : for any other source than a Partitioned, as there.
    topology : None for a coordinator; "star", "full", "ring", "grid", "random-regular",
        ("lattice", k) or a networkx graph for neighbours without one; a directed one, of links that
        go one way, with averaging="push-sum".
    averaging : how they add up then: along a spanning "tree", by "gossip" or by "push-sum"; see
        `GossipKPCA`.
    timeout : seconds that a party has for one step; None for the engine's own default.
    on_loss : "raise", "survivors", "reuse" or "skip"; see `Federation`.
    max_age : with "reuse", how many rounds old a reply may be; with "skip", how many rounds in a
        row a party may miss.
    faults : a schedule of faults to inject, for tests and rehearsals: `em.Fault`, at parties or on
        the links between them.
    client : for "dask": a `distributed.Client`; the current one if None.
    workers : for "dask": addresses of the workers among which parties are dealt; all if None.
    trust : "domain" if everybody in it may know of everybody's errors; "organisations" rehearses
        what sites do that do not trust each other: stricter policies, and refusals that tell the
        name of a rule and nothing of the data. "domain" if None, but for "nvflare", whose sites
        decide for themselves.
    secure : True masks every sum that a protocol forms over the parties, so that neither the
        coordinator nor another party sees a summand; it needs a coordinator, at least two parties,
        and on_loss "raise" or "survivors". If None, it is so for "nvflare" where there is a
        coordinator, and for no other engine.
    startup_kit : for "nvflare": the analyst's folder, as `nvflare package` made it.

    Examples
    --------
    >>> import eigenmesh as em
    >>> parts = em.Partitioned(rows=[[[1.0], [2.0]], [[3.0]]])
    >>> with em.federation(parts, topology="full") as fed:
    ...     fed.parties
    ('party-0', 'party-1')
    """
    whose = {
        "names": names,
        "policies": policies,
        "id_column": checked_id_column(id_column),
        "align": align,
        "id_secret": id_secret,
        "delimiter": delimiter,
        "decimal": decimal,
        "features": features,
        "categories": categories,
        "allow_missing": allow_missing,
    }
    losses: dict[str, Any] = {"timeout": timeout, "on_loss": on_loss, "max_age": max_age}
    losses |= {"averaging": averaging}
    if engine == "nvflare":
        theirs = {"source": source, "sites": sites, **whose, "trust": trust, "faults": faults}
        if names is None and under is not None:  # else by name, which is another study's order
            names = under.parties
        sites_elsewhere = _on_nvflare(startup_kit, study, names, theirs)
        return federation_on(sites_elsewhere, topology, losses, secure, under)
    if (source is None) == (sites is None):
        number = "neither" if sites is None else "both"
        raise InputError(f"{number} of source and sites= are given; one of them is expected")
    _check_options(source, whose)
    trust_asked, secure, trust = trust, bool(secure), trust or "domain"
    if trust not in TRUSTS:
        raise InputError(f"trust is {trust!r}; expected one of {', '.join(map(repr, TRUSTS))}")
    require_seconds(timeout)  # engines open within it
    _refuse_options("nvflare", engine, startup_kit=startup_kit, study=study)
    if sites is not None:
        theirs = {**whose, "trust": trust_asked}
        carrier, split, align = _on_folders(sites, theirs, engine, faults)
    elif engine == "dask":
        place = {"client": client, "workers": workers, "timeout": timeout}
        carrier, split = _on_dask(source, split, whose, faults, place, trust)
    else:
        _refuse_options("dask", engine, client=client, workers=workers)
        carrier, split = _on_sites(engine, source, split, whose, faults, trust, timeout)
    run = Federation(carrier, split=split, topology=topology, secure=secure, **losses)
    run.align = source.align if isinstance(source, Partitioned) else align
    run.known_columns = partial(_known_columns, source, run.parties, id_column)
    return _ready_to_run(run, source, under, engine, faults)


def _ready_to_run(
    run: Federation, source: Any, under: FitStudy | None, engine: str, faults: Sequence[Fault]
) -> Federation:
    """What has to be agreed on before: the study, each other's keys, that columns are the same."""
    if under is not None:
        run.belong_to(under)
    if run.secure or run.between_organisations:
        _introduce(run.local_sites())
    try:
        _check_links(faults, run)
        if source is None and run.split == "rows":  # folders, whose owners looked at them apart
            _require_same_columns(run)
        elif engine != "in-process" and run.split == "rows" and _are_paths(source):
            agree_on_columns(run)  # in one process `Partitioned` sees to it
    except EigenmeshError:
        run.close()
        raise
    return run


class _Folders(InProcess):
    """Sites in their folders: what they hold is not for whoever opened them."""

    values_stay = True

    def local_sites(self) -> Mapping[int, Site]:
        """None: they could as well be elsewhere."""
        return {}


def _on_folders(
    folders: Sequence[str | Path], whose: Whose, engine: str, faults: Sequence[Fault]
) -> tuple[Engine, str, str]:
    """The sites in these folders, how their data are split, and whether samples are matched."""
    own = [name for name, value in whose.items() if value not in (None, "strict")]
    if own or engine != "in-process":
        option = own[0] if own else "engine"
        raise InputError(f"{option}= beside sites=, whose own folders say; leave it out")
    if isinstance(folders, str | Path) or len(folders) == 0:
        raise InputError("sites is a list of folders, one a site")
    opened = [open_site(folder) for folder in folders]
    checked_names([site.name for site in opened], len(opened))
    for name, values in (
        ("split", {site.name: site.split for site in opened}),
        ("align", {site.name: _align_of(site) for site in opened}),
    ):
        if len(set(values.values())) > 1:
            raise InputError(f"the sites' settings differ in {name}: {values}; make them agree")
    _check_faults(faults, [site.name for site in opened])
    wrap: Any = with_faults(faults, [site.name for site in opened]) if faults else None
    return _Folders(opened, wrap), str(opened[0].split), _align_of(opened[0])


def _align_of(site: Site) -> str:
    return "strict" if site.matcher is None else str(site.matcher.align)


def _require_same_columns(run: Federation) -> None:
    """Ask the sites for digests of their columns' names; a warning if one does not tell."""
    refusal = agree_on_columns(run)
    if refusal is not None:
        run.remark(
            "columns",
            f"whether the sites have the same columns in the same order is not known: {refusal}; "
            f"let them approve em.study(..., at_sites=True) and pass it as under=",
        )


def _introduce(sites: Mapping[str, Site]) -> None:
    """Sites of one process know each other's keys without being told by a coordinator."""
    from eigenmesh.runtime.masks import identity

    keys = {name: identity(site.identity) for name, site in sites.items()}
    for site in sites.values():
        site.peers = {**keys, **site.peers}  # what its owner has pinned stays


def _are_paths(source: Any) -> bool:
    return not isinstance(source, Partitioned) and not is_dask_collection(source)


def _known_columns(
    source: Any, parties: Sequence[str], id_column: str | None
) -> dict[str, tuple[str, ...] | None]:
    """Names of the columns of data that this process has, wherever their parties are."""
    if isinstance(source, Partitioned):
        return dict(zip(source.names, source.feature_names, strict=True))
    if not (is_dask_collection(source) and is_frame(source)):
        return {}
    names = frame_names(source)
    own = names if names is None else tuple(name for name in names if name != id_column)
    return dict.fromkeys(parties, own)


Whose = Mapping[str, Any]  # what a Partitioned has of its own: names, policies, how to match


def _check_options(source: Any, whose: Whose) -> None:
    conflicts = [name for name, value in whose.items() if value not in (None, "strict")]
    if isinstance(source, Partitioned) and conflicts:
        raise InputError(
            f"{'=, '.join(conflicts)}= beside a Partitioned, which has its own; pass them to "
            "Partitioned"
        )
    if is_dask_collection(source) and whose["align"] != "strict":
        raise InputError(
            f"align is {whose['align']!r}; the chunks of a Dask collection have no sample ids: "
            f"pass files with an id column, or Partitioned(columns=..., sample_ids=...)"
        )


def _on_sites(
    engine: str,
    source: Any,
    split: str,
    whose: Whose,
    faults: Sequence[Fault],
    trust: Trust,
    timeout: float | None,
) -> tuple[Engine, str]:
    if engine not in _ENGINES:
        engines = ", ".join(map(repr, [*_ENGINES, "dask", "nvflare"]))
        raise InputError(f"engine {engine!r} is unknown; expected {engines}")
    if engine == "mpi" and not isinstance(source, Partitioned):
        sites = _unopened_sites(source, split, whose)
    else:
        parts = source if isinstance(source, Partitioned) else _partitioned(source, split, whose)
        sites, split = sites_of(parts), parts.split
    _check_faults(faults, [site.name for site in sites])
    sites = [_trusting(site, trust) for site in sites]
    wrap: Any = with_faults(faults, [site.name for site in sites]) if faults else None
    return _ENGINES[engine](sites, wrap, timeout), split


def _unopened_sites(paths: Sequence[str | Path], split: str, whose: Whose) -> list[Site]:
    """Sites that do not even look whether a file is there: only its own party can know."""
    _check_paths(paths, split)
    checked_align(whose["align"], split)
    sites = []
    for name, policy, path in zip(*_checked(whose, len(paths)), paths, strict=True):
        own = cache(partial(site_at, split, name, path, matching=_matching(whose)))
        opens, identifies = partial(_data_of, own), partial(_ids_of, own)
        names_columns, levels = partial(_names_of, own), partial(_levels_of, own)
        how = (opens, policy or Policy(), identifies, names_columns, levels)
        site = Site(name, *how, split=split)
        site.matcher = None if whose["align"] == "strict" else _MatcherOf(own, whose["align"])
        sites.append(site)
    return sites


class _MatcherOf:
    """The matcher of a site that is opened when it is first used."""

    def __init__(self, site: Callable[[], Site], align: str) -> None:
        self._site, self.align = site, align

    @property
    def n_samples(self) -> int:
        return int(self._site().matcher.n_samples)

    def hashes(self) -> Any:
        return self._site().matcher.hashes()

    def choose(self, rows: Any) -> None:
        self._site().matcher.choose(rows)


def _matching(whose: Whose) -> dict[str, Any]:
    return {name: value for name, value in whose.items() if name not in ("names", "policies")}


def _checked(whose: Whose, n: int) -> tuple[tuple[str, ...], tuple[Policy | None, ...]]:
    return checked_names(whose["names"], n), checked_policies(whose["policies"], n)


def _data_of(site: Callable[[], Site]) -> Any:
    return site().opens()


def _ids_of(site: Callable[[], Site]) -> str:
    return site().identifies()


def _names_of(site: Callable[[], Site]) -> tuple[str, ...] | None:
    return site().names_columns()


def _levels_of(site: Callable[[], Site]) -> tuple[int, ...]:
    return site().level_columns()


def _refuse_options(other: str, engine: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name}= is for engine={other!r}; the engine is {engine!r}")


# On NVFlare sites own all that is theirs.


def _on_nvflare(
    startup_kit: str | Path | None,
    study: str | None,
    names: Sequence[str] | None,
    theirs: Mapping[str, Any],
) -> Any:
    usual = (None, "strict", ())
    passed = [name for name, own in theirs.items() if name != "names" and own not in usual]
    if passed:
        raise InputError(
            f"{'=, '.join(passed)}= with engine='nvflare': sites take data, policies and ids from "
            f"their own folders only; leave it out"
        )
    if startup_kit is None or study is None:
        raise InputError(
            "engine='nvflare' needs startup_kit=, the analyst's folder, and study=, the name that "
            "the sites have agreed on"
        )
    with extra("nvflare", "engine='nvflare'"):
        import nvflare  # noqa: F401
    from eigenmesh.engines.nvflare import Relayed

    return Relayed(startup_kit, study, names)


def federation_on(
    carrier: Any,
    topology: Topology | None,
    losses: Mapping[str, Any],
    secure: bool | None,
    under: FitStudy | None = None,
) -> Federation:
    """A federation of sites elsewhere; sums are masked where there is a coordinator."""
    try:
        masked = topology is None if secure is None else secure
        run = Federation(carrier, split=carrier.split, topology=topology, secure=masked, **losses)
        run.align = carrier.align
        if under is not None:
            run.belong_to(under)
        if run.split == "rows":
            _require_same_columns(run)
    except BaseException:
        carrier.close()
        raise
    return run


# On Dask sites are built at the workers, from what lies there or is sent there.


def is_dask_collection(source: object) -> bool:
    """Whether this is a Dask array or DataFrame; Dask is optional, and not imported to find out."""
    package = type(source).__module__.partition(".")[0]
    return package in ("dask", "dask_expr") and hasattr(source, "__dask_keys__")


def chunk_shapes(array: Any) -> list[tuple[int, int]]:
    """Rows and columns of the chunks of a Dask array, without computing it."""
    rows, columns = getattr(array, "chunks", ((float("nan"),), (1,)))
    if not all(size == size for size in (*rows, *columns)):  # Dask writes nan for not known
        raise InputError(
            "the sizes of the Dask chunks are not known, expected them to be; open a federation, "
            "which asks the parties, or call compute_chunk_sizes() on an array"
        )
    return [(int(n), int(d)) for n in rows for d in columns]


def chunk_split(array: Any) -> str:
    """What the chunks of a Dask collection hold: "columns" if there are several side by side."""
    chunks = getattr(array, "chunks", ((), ()))
    return "columns" if len(chunks) == 2 and len(chunks[1]) > 1 else "rows"


def _on_dask(
    source: Any,
    split: str,
    whose: Whose,
    faults: Sequence[Fault],
    place: Mapping[str, Any],
    trust: Trust,
) -> tuple[Engine, str]:
    with extra("dask", "engine='dask'"):
        from eigenmesh.engines import dask
    client = dask.require_client(place["client"])
    data: Sequence[Any]
    if is_dask_collection(source):
        split, data = dask.chunks_of(source, client, split)
    elif isinstance(source, Partitioned):
        split, data = source.split, [source.select([name]) for name in source.names]
    else:
        _check_paths(source, split)
        checked_align(whose["align"], split)
        data = source
    if isinstance(source, Partitioned):
        whose = {**whose, "names": source.names, "policies": source.policies}
    names, policies = _checked(whose, len(data))
    _check_faults(faults, names)
    own_policies = {name: policy for name, policy in zip(names, policies, strict=True) if policy}
    build = partial(site_at, split, policies=own_policies, matching=_matching(whose), trust=trust)
    site_policies = [policy or Policy() for policy in policies]
    seconds = Engine.default_timeout if place["timeout"] is None else place["timeout"]
    place = {**place, "client": client, "timeout": seconds}
    return dask.Dask(names, data, build, policies=site_policies, faults=faults, **place), split


def site_at(
    split: str,
    name: str,
    data: Any,
    policies: Mapping[str, Policy] | None = None,
    matching: Mapping[str, Any] | None = None,
    trust: Trust = "domain",
) -> Site:
    """At a worker: the site over its part of a Partitioned, a chunk of rows or columns, or a path.

    An unusable file or chunk is refused here, before anything runs.
    """
    if isinstance(data, Partitioned):
        return _trusting(sites_of(data)[0], trust)
    how = dict(matching or {})
    if how.get("align", "strict") != "strict":
        how["id_secret"] = shared_secret(how["id_secret"], name)
    rows, columns = ([data], None) if split == "rows" else (None, [data])
    policy = (policies or {}).get(name)
    parts = Partitioned(rows=rows, columns=columns, names=[name], policies=policy, **how)
    return _trusting(sites_of(parts)[0], trust)


def _trusting(site: Site, trust: Trust) -> Site:
    site.trust = trust
    return site


def _check_faults(faults: Sequence[Fault], names: Sequence[str]) -> None:
    for party in (party for fault in faults for party in (fault.party, fault.to)):
        if party is not None and party not in names:
            raise InputError(
                f"a fault is set for {party!r}; the parties are {', '.join(map(repr, names))}"
            )


def _check_links(faults: Sequence[Fault], run: Federation) -> None:
    """A fault on a link that is not there would be no fault, without a word."""
    numbers = {name: i for i, name in enumerate(run.parties)}
    for fault in (fault for fault in faults if fault.to is not None):
        graph, i, j = run.graph, numbers.get(fault.party or ""), numbers[str(fault.to)]
        if graph is None or (i is not None and not graph.has_edge(i, j)):
            raise InputError(
                f"a fault is set on the link from {fault.party or 'everybody'!r} to {fault.to!r}; "
                f"{'there is no graph' if graph is None else 'they are no neighbours'}: pass a "
                f"topology that has this link"
            )


def _partitioned(paths: Sequence[str | Path], split: str, whose: Whose) -> Partitioned:
    _check_paths(paths, split)
    rows, columns = (paths, None) if split == "rows" else (None, paths)
    return Partitioned(rows=rows, columns=columns, **whose)


def _check_paths(paths: Any, split: str) -> None:
    if split not in ("rows", "columns"):
        raise InputError(f"split is {split!r}; 'rows' or 'columns' is expected")
    alone = isinstance(paths, str | Path) or not hasattr(paths, "__len__") or len(paths) == 0
    if alone or not all(isinstance(path, str | Path) for path in paths):
        raise InputError(
            "a federation is opened over a Partitioned or a list of paths, one a party; "
            "for arrays pass em.Partitioned(rows=[...]) or em.Partitioned(columns=[...])"
        )


def sites_of(parts: Partitioned) -> list[Site]:
    """One site a party; its data are opened when it first needs them."""
    if parts.align != "strict":
        return [_matching_site(parts, i) for i in range(parts.n_parties)]
    return [
        Site(
            name,
            opens=partial(parts.part, i),
            policy=parts.policies[i] or Policy(),
            identifies=partial(_ids_digest, parts, i),
            names_columns=partial(parts.part_names, i),
            level_columns=partial(parts.part_categories, i),
            split=parts.split,
        )
        for i, name in enumerate(parts.names)
    ]


def _matching_site(parts: Partitioned, i: int) -> Site:
    """A site whose samples are still to be matched with the others'."""
    matcher = parts.matcher(i)
    policy = parts.policies[i] or Policy()
    names = partial(parts.part_names, i)
    site = Site(parts.names[i], matcher.data, policy, matcher.digest, names, split=parts.split)
    site.matcher = matcher
    return site


def _ids_digest(parts: Partitioned, i: int) -> str:
    return hash_sample_ids(parts.part_ids(i))
