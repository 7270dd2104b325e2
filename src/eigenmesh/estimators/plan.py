"""Forecasts: what a fit will cost and what will leave each party, before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np

from eigenmesh.connect import chunk_shapes, is_dask_collection
from eigenmesh.data import Partitioned
from eigenmesh.data.table import Table
from eigenmesh.errors import InputError
from eigenmesh.estimators.base import described
from eigenmesh.estimators.disclosure import Disclosure, disclosures_in
from eigenmesh.estimators.naming import columns_of, whole_names
from eigenmesh.estimators.notebook_display import Shown
from eigenmesh.estimators.small_parties import SURVEY, LeftOut
from eigenmesh.runtime.consent import expected_releases
from eigenmesh.runtime.content import Release, Trust, is_determined, numbers_over_rows
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.privacy import in_words, promised_by
from eigenmesh.runtime.schedule import (
    Parties,
    Scope,
    forecast,
    masks_are_planned,
    planned_masks,
)
from eigenmesh.runtime.study import FitStudy, Stage, Study, forecast_stages, stage
from eigenmesh.runtime.topology import averaging_on, links_of
from eigenmesh.stages.column_agreement import column_agreement
from eigenmesh.stages.count import survey
from eigenmesh.stages.private_match import WHO_LEARNS, alignment

Shapes = Sequence[tuple[int, int]]

# How a note begins that makes a bound, or an estimate, of the figures.
AT_MOST, ABOUT = "at most", "about"


@dataclass(frozen=True)
class Plan(Shown):
    """The forecast of a fit; its names are those of `report_`.

    `method` says what will run; `refusals` names the parties whose own policy would refuse, and the
    kinds that it forbids; `notes` says where the figures are bounds; `privacy` has epsilon and
    delta of each row, where noise is added.
    """

    floats_up: int
    floats_down: int
    rounds: int
    by_step: Mapping[str, int]
    by_party: Mapping[str, int]
    reveals: Mapping[str, Mapping[str, int]]
    parties: tuple[str, ...]
    baseline_floats: int
    refusals: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()
    method: str = ""
    split: str = ""
    shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    disclosures: tuple[Disclosure, ...] = ()
    privacy: Mapping[str, float] = field(default_factory=dict)
    averaging: str = ""  # of the nodes of a graph: along a "tree", or by "gossip"

    @classmethod
    def of(
        cls,
        ledger: Ledger,
        shapes: Mapping[str, tuple[int, int]],
        split: str,
        policies: Any,
        notes: tuple[str, ...] = (),
        method: str = "",
        content: Mapping[str, Collection[str]] | None = None,
        privacy: Mapping[str, float] | None = None,
    ) -> Self:
        """The plan that a forecast ledger amounts to; `content` are kinds that sizes tell of."""
        names, reveals = tuple(shapes), ledger.revealed()
        more = content or {}
        refused = {
            name: policies[name].forbids({*reveals.get(name, {}), *more.get(name, ())})
            for name in policies
        }
        return cls(
            floats_up=ledger.floats_up,
            floats_down=ledger.floats_down,
            rounds=ledger.rounds,
            by_step=ledger.by_step(),
            by_party=ledger.by_party(names),
            reveals=reveals,
            parties=names,
            baseline_floats=sum(n * d for n, d in shapes.values()),
            refusals={name: kinds for name, kinds in refused.items() if kinds},
            notes=notes,
            method=method,
            split=split,
            shapes=shapes,
            disclosures=disclosures_in(ledger),
            privacy=privacy or {},
        )

    @property
    def is_bound(self) -> bool:
        """Whether a fit may send less than this, as a note says why."""
        return any(note.startswith(AT_MOST) for note in self.notes)

    @property
    def share_of_baseline(self) -> float:
        """Floats to be sent as a share of shipping everything."""
        return (self.floats_up + self.floats_down) / self.baseline_floats

    def __str__(self) -> str:
        kinds = sorted({kind for own in self.reveals.values() for kind in own})
        estimated = any(note.startswith(ABOUT) for note in self.notes)
        bound = f"{AT_MOST} " if self.is_bound else f"{ABOUT} " if estimated else ""
        lines = [
            self.method,
            f"{bound}{self.floats_up:,} floats up, {self.floats_down:,} down, {self.rounds} rounds",
            f"{bound}{self.share_of_baseline:.1%} of the {self.baseline_floats:,} floats that "
            f"shipping everything would cost",
            f"will leave the parties: {', '.join(kinds) or 'nothing'}",
        ]
        lines += [
            f"{party!r} would refuse: {', '.join(forbidden)}"
            for party, forbidden in self.refusals.items()
        ]
        return "\n".join([*lines, *self.notes])


def plan(estimator: Any, source: Any, *, secure: bool = False) -> Plan:
    """Forecast a fit of `estimator` to `source`, without running it.

    Nothing is computed and nothing leaves a party; of a Federation the parties are asked for their
    numbers of rows and columns. `secure` plans for data that a federation with masked sums will be
    opened over; one that is open knows.

    >>> import eigenmesh as em, numpy as np
    >>> parts = em.Partitioned(columns=[np.ones((100, 30)), np.ones((100, 20))])
    >>> em.plan(em.OneShotKPCA(n_components=2, local_rank=5), parts).floats_up
    1010
    """
    with planned_masks(_losses_under_masks(estimator, source, secure)):
        return _plan(estimator, source)


def _losses_under_masks(estimator: Any, source: Any, secure: bool) -> str | None:
    """What becomes of losses where sums are masked; None where they are not."""
    is_open = isinstance(source, Federation)
    masked = source.secure if is_open else secure
    if not masked and hasattr(estimator, "_masks_unasked"):
        masked = estimator._masks_unasked(source)
    if not masked:
        return None
    return source.on_loss if is_open else "raise"


def _plan(estimator: Any, source: Any) -> Plan:
    door, estimator = estimator, _estimator_for(estimator, source)
    preparing = _preparing(door, source)
    names, shapes, policies = _parties_of(source)
    align = getattr(source, "align", "strict")
    aligned = align != "strict"
    notes: tuple[str, ...] = ()
    if aligned and isinstance(source, Federation):
        shapes, notes = _as_if_all_matched(shapes)
    members = dict(zip(names, shapes, strict=True))
    left_out = estimator._left_out
    if left_out is not None:
        names, shapes = _taking_part(members, left_out.names)
        notes += (left_out.words,)
    shapes_after = _as_prepared(door, shapes) if preparing else shapes
    ledger = estimator._forecast(names, shapes_after)
    if left_out is not None:  # who say how few rows they have, and no more
        left_out_parties = Parties(left_out.names, tuple(members[name] for name in left_out.names))
        ledger.entries += forecast_stages([SURVEY], left_out_parties, "rows").entries
    graph = estimator._planned_graph(names)
    parties, linked = (Parties(tuple(names), tuple(shapes), links) for links in (None, graph))
    ledger.extend(forecast_stages(preparing, linked, "rows"))
    notes += door.preparation.plan_notes() if preparing else ()
    notes += _if_nothing_is_lost(source)
    notes += estimator._plan_notes(names, shapes_after)
    if aligned:
        notes += (WHO_LEARNS[align],)
        ledger.extend(forecast_stages([alignment(align)], parties, "columns"))
    floats = ledger.floats_up + ledger.floats_down
    # In spread bits as many numbers as all data have cost fewer bytes.
    is_short = getattr(estimator, "_is_short", False)
    if floats > sum(n * d for n, d in shapes) and len(names) > 1 and not is_short:
        notes += (f"more than shipping everything: {_less(door, estimator, source)}",)
    by_name = dict(zip(names, shapes, strict=True))
    split, method = _split_of(estimator, source), estimator._plan_method(shapes)
    policies = {name: own for name, own in policies.items() if name in by_name}
    stages = estimator._stages(parties) if _promises(estimator) else []
    privacy = promised_by(term for run in stages for term in run.args)
    content: dict[str, set[str]] = {}
    if any(policy.minds_content for policy in policies.values()):
        runs = _runs_of(estimator, source, names, shapes, preparing)
        content = _kinds_by_content(runs, linked, policies, source)
    whole = Plan.of(ledger, by_name, split, policies, notes, method, content, privacy)
    return replace(whole, averaging="" if graph is None else averaging_on(graph))


def _kinds_by_content(
    runs: Sequence[Study], parties: Parties, policies: Mapping[str, Policy], source: Any
) -> dict[str, set[str]]:
    """By party, the kinds that messages are of by what they hold, whatever they are called."""
    elsewhere = isinstance(source, Federation) and source.between_organisations
    trust: Trust = "organisations" if elsewhere else "domain"
    shapes = dict(zip(parties.names, parties.shapes, strict=True))
    content = {name: _by_content(runs, shapes[name], own, trust) for name, own in policies.items()}
    if elsewhere:
        _add_determined(content, runs, parties)
    return content


def _promises(estimator: Any) -> bool:
    return getattr(estimator, "epsilon", None) is not None


def _as_prepared(door: Any, shapes: Shapes) -> list[tuple[int, int]]:
    """Shapes of rows as the runs after preparing see them."""
    return [(n, door.preparation.planned_width(d)) for n, d in shapes]


def _taking_part(
    members: Mapping[str, tuple[int, int]], left_out: Collection[str]
) -> tuple[tuple[str, ...], Shapes]:
    names = tuple(name for name in members if name not in left_out)
    return names, [members[name] for name in names]


def study(estimator: Any, source: Any, *, secure: bool = False, at_sites: bool = False) -> FitStudy:
    """What a fit of `estimator` to `source` asks parties to agree to, before anything runs.

    Its `digest` is the same whoever builds it; `print` shows every step that a party may be asked
    for, how often, and what it sends. Numbers that are found on the way, such as gamma by a rule,
    are stand-ins here. `source` may also be the parties' sizes, ``{"north": (120, 5), …}`` for rows
    and columns, where the data are at their sites; `at_sites` then adds what is asked when these
    are opened: sizes, and for rows digests of the columns' names. `secure` masks every sum.

    >>> import eigenmesh as em, numpy as np
    >>> parts = em.Partitioned(rows=[np.ones((100, 3)), np.ones((80, 3))], names=["a", "b"])
    >>> asked = em.study(em.DisKPCA(2, landmarks="uniform", random_state=0), parts)
    >>> [run.protocol.name for run in asked.runs]
    ['diskpca']
    >>> print(asked)
    study ... of 2 parties: 'a', 'b'
    diskpca
      RowHolder.count_rows: once; sends counts
      RowHolder.draw_rows: once; sends counts, rows: n × n_columns
      RowHolder.centred_gram: once; gets counts, rows: n × n_columns; sends counts, gram: ...
    """
    if isinstance(source, Mapping):
        source = _of_these_sizes(source, estimator)
    with planned_masks(_losses_under_masks(estimator, source, secure)):
        return _study(estimator, source, at_sites)


def _study(door: Any, source: Any, at_sites: bool) -> FitStudy:
    estimator = _estimator_for(door, source)
    names, shapes, _ = _parties_of(source)
    if estimator._left_out is not None:
        members = dict(zip(names, shapes, strict=True))
        names, shapes = _taking_part(members, estimator._left_out.names)
    runs = _runs_of(estimator, source, names, shapes, _preparing(door, source))
    if at_sites:  # last: they may come at any time, and the first run begins a fit anew
        opening = [stage(survey)]
        opening += [stage(column_agreement)] if runs[0].scope.split == "rows" else []
        digests = {run.digest for run in runs}
        as_they_are = replace(runs[0].scope, prepared="")  # nothing is prepared yet
        later = [run.study(as_they_are) for run in opening]
        runs += [run for run in later if run.digest not in digests]
    return FitStudy(tuple(run.as_agreed for run in runs), described(door))


def plan_of_study(study: FitStudy, party: str, shape: tuple[int, int], policy: Policy) -> Plan:
    """What a study would make leave one party; the others are as large, as far as it can know."""
    scope = study.runs[0].scope
    shapes = dict.fromkeys(scope.parties, shape)
    parties = Parties(scope.parties, tuple(shapes.values()), scope.graph)
    ledger = Ledger()
    with planned_masks(scope.on_loss if scope.secure else None):
        for run in study.runs:
            ledger.extend(forecast(run.tree, parties) if run.tree is not None else Ledger())
    content = None
    if policy.minds_content:
        content = {party: _by_content(study.runs, shape, policy, "organisations")}
    notes: tuple[str, ...] = (
        f"{ABOUT}: as if every party had {shape[0]:,} rows and {shape[1]:,} columns",
    )
    method = ", ".join(dict.fromkeys(run.protocol.name for run in study.runs))
    privacy = promised_by(term for run in study.runs for term in run.terms.values())
    if privacy:
        notes += (f"differential privacy of each row: {in_words(privacy)}",)
    who = (scope.split, {party: policy})
    whole = Plan.of(ledger, shapes, *who, notes, method, content, privacy)
    return replace(whole, averaging="" if scope.edges is None else scope.averaging)


def _of_these_sizes(sizes: Mapping[str, tuple[int, int]], estimator: Any) -> Partitioned:
    """Parties whose data are somewhere else: only their sizes matter."""
    same_rows = len({n for n, _ in sizes.values()}) == 1
    same_columns = len({d for _, d in sizes.values()}) == 1
    split: Literal["rows", "columns"] = "rows" if same_columns else "columns"
    if same_rows and same_columns:
        split = "columns" if estimator._split == "columns" else "rows"
    if not (same_rows or same_columns):
        raise InputError(
            f"the parties have sizes {dict(sizes)}; the same number of columns is expected where "
            f"rows are split, and of rows where columns are"
        )
    tables = [Table(np.broadcast_to(np.float64(0), size)) for size in sizes.values()]
    return Partitioned.from_tables(split, tables, names=list(sizes))


def _preparing(door: Any, source: Any) -> list[Stage]:
    """The run that prepares rows, of a front door that does."""
    if getattr(door, "preparation", None) is None:
        return []
    split, graph = _split_of(door, source), getattr(source, "graph", None)
    on_graph = graph is not None or getattr(door, "topology", None) is not None
    door._require_rows_to_prepare(split)
    has_names = isinstance(source, Federation | Partitioned)
    names = whole_names(split, columns_of(source)) if has_names else None
    return list(door._preparing_stages(names, on_graph))


def _runs_of(
    estimator: Any, source: Any, names: Sequence[str], shapes: Shapes, preparing: Sequence[Stage]
) -> list[Study]:
    """The studies of a fit's runs, with stand-ins for what is found on the way."""
    left_out = estimator._left_out
    if isinstance(source, Federation) and left_out is None:
        graph = source.graph
        scope = replace(source.scope, secure=graph is None and masks_are_planned())
    else:
        graph = estimator._planned_graph(names)
        scope = Parties(tuple(names), tuple(shapes), graph).scope(_split_of(estimator, source))
    if left_out is not None:
        of_source = source.scope if isinstance(source, Federation) else scope
        how = {name: getattr(of_source, name) for name in ("on_loss", "max_age", "secure")}
        scope = replace(_scope_without(scope, left_out), **how)
    parties = Parties(tuple(names), tuple(shapes), graph)
    matching = getattr(source, "align", "strict")
    align = [] if matching == "strict" else [alignment(matching)]
    prepare = [run.study(scope) for run in preparing]
    scope = replace(scope, prepared=preparing[0].args[0].name if preparing else "")
    whole = _whole(scope, left_out)
    before = [run.study(whole) for run in [*align, *estimator._preceding]]
    return [*before, *prepare, *(run.study(scope) for run in estimator._stages(parties))]


def _scope_without(scope: Scope, left_out: LeftOut) -> Scope:
    """The scope of those who take part, numbered as all members are."""
    numbers, edges = left_out.numbers_in, scope.edges
    if edges is not None:
        edges = tuple((numbers[i], numbers[j]) for i, j in edges)
    return replace(scope, parties=left_out.members, edges=edges, left_out=left_out.names)


def _whole(scope: Scope, left_out: LeftOut | None) -> Scope:
    """The scope before anybody was left out."""
    if left_out is None:
        return scope
    edges = None
    if left_out.graph is not None:
        edges = links_of(left_out.graph)
    return replace(scope, edges=edges, left_out=())


def _by_content(
    runs: Sequence[Study], shape: tuple[int, int], policy: Policy, trust: Trust
) -> set[str]:
    """The kinds that will leave a party, as its host would see them before the runs begin."""
    kinds: set[str] = set()
    for run in runs:
        nothing = Release(shape[0], 0, *shape, policy.min_rows, trust, run.scope.split)
        kinds.update(*(expected.kinds for expected in expected_releases(run, nothing)))
    return kinds


def _add_determined(
    content: Mapping[str, set[str]], runs: Sequence[Study], parties: Parties
) -> None:
    """What a fit's numbers are worth by then if there are as many as a party has itself."""
    numbers: Counter[str] = Counter()
    for run in runs:
        if run.tree is None:
            continue
        revealed = forecast(run.tree, parties).revealed()
        for name, shape in zip(parties.names, parties.shapes, strict=True):
            numbers[name] += numbers_over_rows(revealed.get(name, {}))
            if name in content and is_determined(numbers[name], *shape):
                content[name].add("columns" if run.scope.split == "columns" else "rows")


def _split_of(estimator: Any, source: Any) -> str:
    return str(getattr(source, "split", None) or getattr(estimator, "_split", "rows"))


def _estimator_for(estimator: Any, source: Any) -> Any:
    """Whose fit it will be: of a front door, the estimator that it opens to."""
    if not hasattr(estimator, "_forecast"):
        raise InputError(f"{type(estimator).__name__} cannot be planned; pass an em estimator")
    if isinstance(source, Federation):
        estimator._require_topology(source, getattr(estimator, "topology", None))
    if hasattr(estimator, "_planned"):
        estimator = estimator._planned(source)
    return _on_graph_of(source, estimator)


def _less(door: Any, estimator: Any, source: Any) -> str:
    """How a fit can send less, in the words that it would use itself."""
    graph = getattr(source, "graph", None) or getattr(door, "topology", None)
    speaker = estimator if hasattr(estimator, "_less") else door
    words = speaker._less(getattr(source, "split", door._split), graph is not None)
    return f"{words}, or pool the data if you may"


def _as_if_all_matched(shapes: Shapes) -> tuple[Shapes, tuple[str, ...]]:
    """Parties at their sites have not matched their samples yet, and no plan makes them."""
    n = min(rows for rows, _ in shapes)
    note = f"at most: as if all {n:,} samples of the smallest party were known to all the others"
    return [(n, columns) for _, columns in shapes], (note,)


def _if_nothing_is_lost(source: Any) -> tuple[str, ...]:
    on_loss = source.on_loss if isinstance(source, Federation) else "raise"
    if on_loss == "raise":
        return ()
    return (f"on_loss is {on_loss!r}: as if nothing were lost; what is lost is sent anew",)


def _on_graph_of(source: Any, estimator: Any) -> Any:
    """The estimator, with the graph of an open federation: a fit takes that, too."""
    graph = source.graph if isinstance(source, Federation) else None
    if graph is None or estimator._left_out is not None or not hasattr(estimator, "topology"):
        return estimator
    return copy(estimator).set_params(topology=graph)


def _parties_of(source: Any) -> tuple[tuple[str, ...], Shapes, dict[str, Policy]]:
    if isinstance(source, Federation):
        replies = source.run(survey).value
        local = {name: site.policy for name, site in source.local_sites().items()}
        return replies.parties, [(r.n_rows, r.n_columns) for r in replies], local
    if is_dask_collection(source):
        shapes = chunk_shapes(source)
        return tuple(f"party-{i}" for i in range(len(shapes))), shapes, {}
    parts = source
    if not isinstance(parts, Partitioned):
        shape = source.shape if hasattr(source, "shape") else np.shape(source)
        if len(shape) != 2:
            raise InputError(f"the data have shape {shape}; rows and columns are expected")
        return ("party-0",), [(int(shape[0]), int(shape[1]))], {}
    own = {n: p or Policy() for n, p in zip(parts.names, parts.policies, strict=True)}
    return parts.names, parts.matched().shapes, own
