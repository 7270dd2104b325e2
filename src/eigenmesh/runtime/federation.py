"""The federation: the only handle that a protocol has on its parties."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import networkx as nx
import numpy as np

from eigenmesh.errors import (
    EigenmeshError,
    EigenmeshWarning,
    FederationError,
    InputError,
    MessageRefused,
    PartyFailed,
    PartyLost,
    StepRefused,
    TopologyError,
)
from eigenmesh.runtime import records
from eigenmesh.runtime.courier import Courier, Requests, naming
from eigenmesh.runtime.engine import Engine, Reply
from eigenmesh.runtime.exchange import Exchange
from eigenmesh.runtime.ledger import COORDINATOR, Books, Ledger, Recording, step_label
from eigenmesh.runtime.message import (
    NO_LIMITS,
    Limits,
    Message,
    OwnColumns,
    OwnRows,
    OwnSquares,
    add,
    check,
    decode,
    encode,
    fields_of,
    floats_by_kind,
    require_summable,
)
from eigenmesh.runtime.occupancy import Occupancy
from eigenmesh.runtime.party import Party, Step, steps_of
from eigenmesh.runtime.protocol import Protocol, role_name
from eigenmesh.runtime.requests import ON_LOSS, error_from, error_tree
from eigenmesh.runtime.results import Replies, Run, Total
from eigenmesh.runtime.schedule import (
    Ask,
    Places,
    Scope,
    fitting,
    loosest,
    of_rows,
)
from eigenmesh.runtime.site import Site
from eigenmesh.runtime.spanning_tree import Links, Losses, SpanningTree
from eigenmesh.runtime.statements import Statements, fair_in_a_sum, in_short
from eigenmesh.runtime.study import FitStudy, Guard, Stage, Study, read_study
from eigenmesh.runtime.topology import (
    TREE,
    Averaging,
    Topology,
    averaging_on,
    build_graph,
    links_of,
    mark_averaging,
    mark_losses,
    require_connected,
    require_two_ways,
    same_graph,
    senders_to,
    tolerance_on,
    way_and_tolerance,
)

if TYPE_CHECKING:  # what it needs is installed where sums are masked
    from eigenmesh.runtime.masked_sum import Collector

A = TypeVar("A")
R = TypeVar("R")

_REMEDIES = {
    "hashes": "give every party the same samples in the same order, or match them by ids with "
    "align='inner'",
    "counts": "check that every party holds the same samples, or the same columns",
}
MASKABLE_LOSSES = ("raise", "survivors")
_BESIDE_ANSWERS = {"counts", "hashes"}  # kinds of sizes and of names of samples
_LOSSES = (PartyLost, PartyFailed, MessageRefused)  # errors that `on_loss` decides about


class Federation:
    """Parties on an engine, with a coordinator or on a graph.

    It serves one thread at a time, of the process that opened it; another thread that comes
    meanwhile, and a fork, get an error.

    Parameters
    ----------
    engine : carries the bytes.
    split : "rows" or "columns", how the parties' data make up the whole.
    topology : None for a coordinator, else the graph on which `exchange` runs.
    timeout : seconds that a party has for one step; the engine's own default if None.
    on_loss : "raise" stops at the first lost party; "survivors" goes on without it and says so;
        "reuse" takes its last reply, up to `max_age` rounds old, and asks it again, unless the
        step is declared not reusable; "skip" goes on without it for this round and asks it again
        in the next, and says so in `dropped`, until it has missed more than `max_age` rounds in a
        row. "skip" needs a coordinator.
    secure : whether sums are masked, so that nobody sees a summand.
    averaging : how the nodes of a graph average: along a spanning "tree", by "gossip", or by
        "push-sum", for which links may go one way (an nx.DiGraph). ("gossip", t) and ("push-sum",
        t) end when a share t of the nodes' differences is left at most; 1e-12 if it is not told.
    """

    secure = False

    _prepared_as: str = ""  # the name under which sites keep how rows are prepared
    _prepare: Callable[[], Any] | None = None  # what is still to be done for it
    _how_to_prepare: Callable[[], Any] | None = None
    _in_preparation: Sequence[Ledger] = ()  # of the runs for it
    _n_runs = 0
    _preparation: Any = None  # how rows were prepared: its `apply`, `undo` and `width`

    def __init__(
        self,
        engine: Engine,
        *,
        split: str,
        topology: Topology | None = None,
        timeout: float | None = None,
        on_loss: str = "raise",
        max_age: int = 3,
        secure: bool = False,
        averaging: Averaging = TREE,
    ) -> None:
        if on_loss not in ON_LOSS:
            raise InputError(f"on_loss is {on_loss!r}; expected one of {', '.join(ON_LOSS)}")
        require_seconds(timeout)
        if on_loss == "skip" and topology is not None:
            raise InputError("on_loss is 'skip', which needs a coordinator; pass topology=None")
        if secure:
            _require_maskable(on_loss, topology)
        self.split = split
        self.secure = secure
        self.known_columns: Callable[[], Mapping[str, tuple[str, ...] | None]] = dict
        self.remarks: dict[str, str] = {}  # what users were warned of, by what it is about
        self._of_fit: list[str] = []  # likewise, of the fit that is on or was the last
        self.align = "strict"  # else the parties' samples are to be matched before each use
        self.timeout = engine.default_timeout if timeout is None else timeout
        self.on_loss = on_loss
        self.max_age = max_age
        self.lost: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self._in_answer: list[Ledger] = []  # of runs, as far as nothing began anew
        self.reused: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._statements = Statements()
        self._setups: dict[type[Party], Message] = {}  # of the run under way
        self._requests: Mapping[int, Message | None] = {}  # of the round under way
        self._occupancy = Occupancy()
        self._engine = engine
        self._names = engine.parties
        self._graph = None if topology is None else build_graph(topology, self._names)
        way, _ = way_and_tolerance(averaging)
        if self._graph is not None:
            require_two_ways(self._graph, way)
            mark_averaging(mark_losses(self._graph, on_loss != "raise"), averaging)
        self._courier = Courier(engine, self.timeout)
        self._guard: Guard | None = None
        self._cut: set[tuple[int, int]] = set()  # links over which nothing comes, in this run
        self._held_without = Losses((), ())  # what the graph was last seen to hold together
        self._collector: Collector | None = None
        self._sum_asked: Ask | None = None
        self._numbers: dict[str, int] = {}
        self._fit_fields: Mapping[str, Any] = {}
        self._reply_sizes = NO_LIMITS
        self._sizes_by_rows = NO_LIMITS  # for each row that a party has
        self._sizes_of_rows: dict[float, Limits] = {}  # both, by the rows that it has
        self._books = Books()
        self._last_reply: dict[tuple[str, int], tuple[int, Any]] = {}
        self._missed_in_a_row: Counter[str] = Counter()

    # Who is there.

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of the parties that are still in, in order."""
        return tuple(self._names[i] for i in self._active())

    @property
    def members(self) -> tuple[str, ...]:
        """Names of all parties that it was opened over, in order, whether or not they are in."""
        return self._names

    def leave_out(self, reasons: Mapping[str, str]) -> None:
        """Go on without some parties, each for a reason, until the recording that is on ends.

        Nothing more is asked of them, and the studies of the runs that follow say so.
        """
        assert self.is_recording, "who is left out is a matter of one fit"
        self.left_out = {**self.left_out, **reasons}
        if self._graph is not None:
            self._require_connected()

    @property
    def graph(self) -> nx.Graph | None:
        """The graph of the parties that are still in, by number; None with a coordinator."""
        return None if self._graph is None else self._graph.subgraph(self._active())

    @property
    def tree(self) -> SpanningTree:
        """The spanning tree of the parties that are still in, on a graph."""
        self._require_held_together()
        scope = self.scope if self._guard is None else self._guard.study.scope
        return scope.tree_without(self._missing())

    @property
    def averaged_by(self) -> str:
        """How nodes averaged in the last run; empty with a coordinator."""
        if self._graph is None or self._guard is None:
            return ""
        return self._guard.study.scope.averaging

    def _missing(self) -> Losses:
        """Who has left the run under way, and which links are cut."""
        gone = tuple(i for i, name in enumerate(self._names) if name in self.lost)
        return Losses(gone, tuple(sorted(self._cut)))

    def cut(self, sender: str, receiver: str) -> None:
        """Do without a link for the rest of the run; `TopologyError` if that parts the graph."""
        i, j = sorted(map(self._names.index, (sender, receiver)))
        self._cut.add((i, j))
        self._require_connected()

    @contextmanager
    def averaging(self, averaging: Averaging) -> Iterator[None]:
        """The runs inside average so: along a "tree", by "gossip" or by "push-sum"."""
        way, _ = way_and_tolerance(averaging)
        if self._graph is None:
            yield
            return
        require_two_ways(self._graph, way)
        before: Averaging = averaging_on(self._graph)
        if before != TREE:
            before = (str(before), tolerance_on(self._graph))
        mark_averaging(self._graph, averaging)
        try:
            yield
        finally:
            mark_averaging(self._graph, before)

    def require_topology(self, topology: Topology) -> None:
        """Refuse a topology that is not the one that this federation was opened with."""
        topology_text = f"topology is {topology!r}"
        if self._graph is None:
            raise TopologyError(
                f"{topology_text}, but the federation was opened with a coordinator; pass "
                f"em.federation(..., topology={topology!r})"
            )
        if not same_graph(build_graph(topology, self._names), self._graph):
            raise TopologyError(
                f"{topology_text}, but the federation was opened on another graph, with "
                f"{self._graph.number_of_edges()} edges between {len(self._names)} parties; open "
                f"it with this topology, or leave topology out to take the federation's"
            )

    own_rows: Any = None  # where they are the caller's, who asks nobody else and sends nothing
    own_values: Any = None  # room for kernel values of these
    own_weights: Any = None  # by which these count
    is_alone = False  # whether nobody could refuse what the owner of the rows asks

    def naming_errors(self) -> AbstractContextManager[None]:
        """Errors of work on the caller's own rows, as they come from a party."""
        return nullcontext()

    def local_sites(self) -> Mapping[str, Site]:
        """The sites that live in this process, by name. Their stores are theirs, not messages."""
        return {self._names[i]: site for i, site in self._engine.local_sites().items()}

    @property
    def values_stay(self) -> bool:
        """Whether weights and targets are the sites' own to name, and nobody else's to send."""
        return self._engine.values_stay

    @property
    def between_organisations(self) -> bool:
        """Whether the parties do not trust whoever coordinates, as far as is known here."""
        trusts = (site.trust for site in self.local_sites().values())
        return self.values_stay or "organisations" in trusts

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the parties, as they said themselves or as this process knows."""
        shapes = {}
        for name, facts in self._statements.facts.items():
            if {OwnRows, OwnColumns} <= facts.keys():
                shapes[name] = (int(facts[OwnRows]), int(facts[OwnColumns]))
        for name, site in self.local_sites().items():
            if name not in shapes and site.is_open:
                n_rows, n_columns = site.data.shape
                shapes[name] = (int(n_rows), int(n_columns))
        return shapes

    def column_names(self) -> dict[str, tuple[str, ...] | None]:
        """The columns' names of the parties that this process knows them of; nobody is asked."""
        names: dict[str, tuple[str, ...] | None] = {}
        with suppress(EigenmeshError):  # a file that cannot be read is told of by a step
            names = dict(self.known_columns())
        for name, site in self.local_sites().items():
            with suppress(EigenmeshError):
                names[name] = names.get(name) or site.names_columns()
        return names

    def log_heads(self) -> dict[str, str]:
        """Number and digest of the last line of the parties' own logs, of those that keep one.

        Whoever has them can tell later whether the tail of a log was cut off.
        """
        return {name: str(head) for name, head in self._courier.log_heads.items()}

    def remark(self, about: str, words: str) -> None:
        """Warn of something in the parties' data, once."""
        if about not in self.remarks:
            self.remarks[about] = words
            warnings.warn(words, EigenmeshWarning, stacklevel=2)

    def doubt(self, words: str) -> None:
        """Warn of something in the fit that is on, which is no matter of the next one."""
        self._of_fit.append(words)
        warnings.warn(words, EigenmeshWarning, stacklevel=3)

    def caveats(self) -> tuple[str, ...]:
        """What users were warned of, of the data and of the last fit; a report has it, too."""
        return tuple(filter(None, dict.fromkeys([*self.remarks.values(), *self._of_fit])))

    def _active(self) -> list[int]:
        gone = self.lost.keys() | self.left_out.keys()
        return [i for i, name in enumerate(self._names) if name not in gone]

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the engine's processes and threads; in a fork of this process there are none."""
        if self._occupancy.is_own_process:
            self._engine.close()

    # Running protocols.

    def require(self, role: type[Party], steps: Iterable[Step] | None = None) -> None:
        """Ask every party, before anything runs, whether its policy lets these replies out."""
        question = {"role": role_name(role), "steps": _step_names(role, steps)}
        self._together(lambda: self._broadcast("require", **question))

    def require_stages(self, *stages: Stage) -> None:
        """Ask every party, before anything runs, whether its policy lets these runs' replies out.

        Numbers that are found on the way, such as gamma, may be any of their kind here.
        """
        self._begin_anew()
        runs = [(stage.study(self.scope), stage) for stage in stages]
        for run, _ in runs:
            _ = run.tree  # what cannot be asked for is said here, in its own words
        studies = {run.document.decode(): stage for run, stage in runs}

        def question() -> None:
            for study, stage in studies.items():
                role = role_name(stage.protocol.roles[0])
                self._broadcast("require", role=role, steps=[], study=study, **self._fit_fields)

        self._together(question)

    def run(self, protocol: Protocol[R], *args: Any, **kwargs: Any) -> Run[R]:
        """Run a protocol from enlisting to dismissal."""
        self._n_runs += 1
        if not protocol.only_counts:
            self.prepare_now()
        run: Run[R] = self._together(lambda: self._run_until_all_stay(protocol, args, kwargs))
        if not self._engine.coordinates:
            self._books.absorb(run.recording.ledger)
            self.lost = dict(run.lost)
            self.reused, self.dropped = Counter(run.reused), Counter(run.dropped)
            self._statements.facts = {name: dict(facts) for name, facts in run.facts.items()}
        self._in_answer.append((run.last_try or run.recording).ledger)
        for site in self.local_sites().values():
            for about, words in site.remarks.items():
                self.remark(about, words)
        return run

    def sent_before_lost(self) -> dict[str, tuple[str, ...]]:
        """Whoever was lost, and the steps to which it had replied in runs that the answer is of.

        Sizes and names of samples are no part of an answer.
        """
        steps: dict[str, dict[str, None]] = {name: {} for name in self.lost}
        if steps:
            for total in chain.from_iterable(own.entries.totals() for own in self._in_answer):
                if total.sender in steps and not total.kinds.keys() <= _BESIDE_ANSWERS:
                    steps[total.sender][total.step] = None
        return {name: tuple(own) for name, own in steps.items()}

    def _run_until_all_stay(
        self, protocol: Protocol[R], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Run[R]:
        """Once, or as often as a party leaves a protocol whose answer is to be the survivors'.

        A masked sum is not asked for twice: the second, less the first, is who has left.
        """
        if not protocol.begins_anew or self.on_loss == "raise" or self.secure:
            return self._run_here(protocol, args, kwargs)
        with self.recording() as recording:  # who has left stays out
            while True:
                covered = self.parties
                try:
                    run = self._run_here(protocol, args, kwargs)
                except _LOSSES:
                    if self.parties == covered:
                        raise
                    continue
                if self.parties == covered:
                    break
        return replace(run, recording=recording, last_try=run.recording)

    def in_turn(self, first: Callable[[], A], then: Callable[[A], R]) -> R:
        """`then` of what `first` came to; on a graph both anew where a party has left in between.

        For runs that go on from each other's answers, how rows are prepared among them: one of some
        parties, and the next of others, would be a mixture of two questions. What asked nobody
        hangs on nobody, and each run sees to its own losses.
        """
        n_before = len(self._in_answer)
        while True:
            covered = []
            for work in (self.prepare_now, first):
                n_runs = self._n_runs
                start: Any = work()
                if self._n_runs > n_runs:
                    covered.append(self.parties)
            result = then(start)
            if self._graph is None or all(here == self.parties for here in covered):
                return result
            self._prepare = self._how_to_prepare
            del self._in_answer[n_before:]

    def _run_here(
        self, protocol: Protocol[R], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Run[R]:
        if self.on_loss == "skip" and not protocol.skips:
            raise InputError(
                f"on_loss is 'skip', but the parties of {protocol.name!r} must not miss a round; "
                f"'survivors' or 'raise' is expected"
            )
        if self.secure and protocol.schedule is None:
            raise InputError(
                f"secure is True, but protocol {protocol.name!r} has no schedule, which would say "
                f"what is summed; declare one, or pass secure=False"
            )
        self._begin_anew()
        self._courier.begin_run()
        self._follow_study(Study.of(protocol, self.scope, args, kwargs))
        self._last_reply.clear()
        self._missed_in_a_row.clear()
        with self.recording() as recording, self._engine.session():
            try:
                value = protocol.coordinate(self, *args, **kwargs)
            finally:
                self._dismiss()
        reason = getattr(value, "stop_reason", "finished")
        reused, dropped = dict(self.reused), dict(self.dropped)
        who = (self.parties, dict(self.lost), reused, dropped)
        return Run(value, recording, *who, reason, facts=self._statements.facts)

    # The study of the run under way.

    @property
    def scope(self) -> Scope:
        """Who takes part, on which graph, and what becomes of losses."""
        left_out = self.left_out if self.is_recording else {}
        edges, out = None, tuple(name for name in self._names if name in left_out)
        if self._graph is not None:
            taking_part = (i for i, name in enumerate(self._names) if name not in left_out)
            part = self._graph.subgraph(taking_part)
            edges = links_of(part)
        how = (self.split, self.on_loss, self.max_age, edges, self.secure)
        more: dict[str, Any] = {"left_out": out, "prepared": self._prepared_as}
        if self._graph is not None:
            more["averaging"] = averaging_on(self._graph)
            more["tolerance"] = tolerance_on(self._graph)
        return Scope(self._names, *how, **more)

    @contextmanager
    def masking(self) -> Iterator[None]:
        """The runs inside mask their sums, whether or not the federation was opened to."""
        _require_maskable(self.on_loss, self._graph)
        before, self.secure = self.secure, True
        try:
            yield
        finally:
            self.secure = before

    @contextmanager
    def prepared(self, name: str, prepare: Callable[[], Any]) -> Iterator[None]:
        """The runs inside see rows as `prepare` leaves them at the sites, under this name.

        It is called before the first run that looks at rows: policies have been asked by then. It
        gives what was done, with its `apply`, its `undo` to rows in their owners' units, and the
        `width` of prepared rows.
        """
        self._prepared_as, self._prepare, self._how_to_prepare = name, prepare, prepare
        try:
            yield
        finally:
            self._prepared_as, self._preparation = "", None
            self._prepare = self._how_to_prepare = None

    def in_own_units(self, points: Any) -> Any:
        """Points among prepared rows as their owners would write them; others as they are."""
        return points if self._preparation is None else self._preparation.undo(points)

    def prepare_now(self) -> Any:
        """What `prepared` is told, done now if it was not yet; None where rows are as they are."""
        if self._prepare is None:
            return self._preparation
        prepare, self._prepare = self._prepare, None
        name, self._prepared_as = self._prepared_as, ""
        n_before = len(self._in_answer)
        try:
            self._preparation = prepare()
        finally:
            self._prepared_as = name
        self._in_preparation = self._in_answer[n_before:]
        for facts in self._statements.facts.values():  # prepared rows have columns of their own
            facts.pop(OwnColumns, None)
            facts.pop(OwnSquares, None)
        return self._preparation

    @contextmanager
    def under(self, study: FitStudy) -> Iterator[None]:
        """Tell sites that approve studies which fit the runs inside belong to.

        ``with fed.under(em.study(estimator, fed)): estimator.fit(fed)`` is held, run by run, to
        the fit of that digest.
        """
        before, self._fit_fields = self._fit_fields, {"fit": study.digests}
        try:
            yield
        finally:
            self._fit_fields = before

    def belong_to(self, study: FitStudy) -> None:
        """Tell sites so of every run from now on."""
        self._fit_fields = {"fit": study.digests}

    def _follow_study(self, study: Study) -> None:
        # As hosts read it: those of this process then share what follows from it.
        shared = study if study.tree is None else read_study(study.document.decode())
        self._guard = Guard(shared, is_coordinators=True)
        self._numbers, self._sum_asked = {}, None
        self._reply_sizes = self._sizes_by_rows = NO_LIMITS
        self._sizes_of_rows.clear()
        self._cut.clear()
        self._collector = None

    def settle(self, **numbers: int) -> None:
        """Numbers on which the rest of the schedule hangs; every party hears of them."""
        self._numbers = {**self._numbers, **numbers}

    def _next_in_study(
        self, key: tuple[str, ...], messages: Iterable[Message | None] = (), summed: bool = False
    ) -> dict[str, Any]:
        """Hold a request against the study before it is sent; gives the fields that it adds.

        Where it fits in several places, the sizes of its messages tell in which.
        """
        if self._guard is None or self._guard.study.tree is None:
            return {}
        try:
            secure = self._guard.study.scope.secure
            places = _declared(self._guard.admit(key, self._numbers), summed, secure)
            places = _narrowed(places, messages)
        except StepRefused as error:
            raise FederationError(
                f"protocol {self._guard.study.protocol.name!r} breaks its own schedule: "
                f"{error.reason}"
            ) from None
        self._guard.move(places)
        asks = places.asks
        self._reply_sizes = loosest([node.common_up for node in asks])
        self._sizes_by_rows = loosest([node.up_by_rows for node in asks])
        self._sizes_of_rows.clear()
        self._sum_asked = asks[0] if asks else None
        return {"told": dict(self._numbers)} if self._numbers else {}

    def _together(self, action: Callable[[], Any]) -> Any:
        """Act where the coordinator is; everywhere else answer its requests until it has acted.

        Every process that runs the script ends with the same result, or the same error.
        """
        with self._occupancy.hold():
            return self._act(action)

    def _act(self, action: Callable[[], Any]) -> Any:
        if not self._engine.coordinates:
            return _result(self._engine.serve())
        if not self._engine.followers:
            return action()
        try:
            result = action()
            outcome = records.dumps({"result": result})  # not every result can travel
        except BaseException as error:
            self._engine.publish(records.dumps({"error": error_tree(_own_words(error), 0)}))
            raise
        self._engine.publish(outcome)
        return result

    @property
    def is_recording(self) -> bool:
        """Whether a recording is on."""
        return not self._books.idle

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Record the ledger and the seconds of everything inside.

        Runs recorded together belong together: a party lost in one is out of those that follow.
        """
        with self._occupancy.hold():
            self._begin_anew()
            with self._books.recording() as recording:
                yield recording

    @contextmanager
    def rehearsing(self) -> Iterator[None]:
        """For plans: whoever is left out inside is in again afterwards."""
        with self.recording():
            before = self.left_out
            try:
                yield
            finally:
                self.left_out = before

    def _begin_anew(self) -> None:
        """Everybody is in again, unless a recording is on, to which this belongs."""
        if self._books.idle:
            self.lost, self.left_out = {}, {}
            self._of_fit = []
            self._in_answer = list(self._in_preparation)
            self.reused, self.dropped = Counter(), Counter()
            self._statements = Statements()
            self._engine.begin_anew()

    def enlist(
        self, role: type[Party], setup: Message, steps: Iterable[Step] | None = None
    ) -> None:
        """Build a party of this role at every site; only the listed steps may then be asked for."""
        data, kinds = _encoded(setup)
        label = f"{role_name(role)}.enlist"
        assert data is not None
        for i in self._active():
            self._books.enter(label, COORDINATOR, self._names[i], kinds, data.size)
        self._setups[role] = setup
        names = _step_names(role, steps)
        fields = self._next_in_study(("enlist", role_name(role)))
        if self._guard is not None and self._guard.study.tree is not None:
            fields |= {"study": self._guard.study.document.decode(), **self._fit_fields}
            names = []  # the study says what may be asked; a role may offer more than it needs
        self._broadcast("enlist", role=role_name(role), steps=names, message=data, **fields)

    def _broadcast(self, operation: str, **fields: Any) -> None:
        request = {"op": operation, **fields}
        self._wave(dict.fromkeys(self._active(), request), None, lambda i, _: None)

    def _dismiss(self) -> None:
        # The run is over either way: a party that does not hear of it learns from the next run.
        request = {"op": "dismiss"}
        # Whoever gave no reply just now is not waited for once more.
        requests = {i: request for i in self._active() if i not in self._courier.silent}
        with suppress(*_LOSSES, FederationError):  # nor is an answer less whole for it
            for i, reply in self._courier.call(requests, min(self.timeout, 2.0)):
                with suppress(EigenmeshError):
                    self._courier.open(i, reply)  # which tells the last head of the party's log

    # Asking.

    def ask(
        self,
        step: Step,
        message: Message | None = None,
        *,
        each: Sequence[Message] | Mapping[str, Message | None] | None = None,
    ) -> Replies:
        """One round: every party runs `step`. `each` gives each party a message of its own."""
        received: list[tuple[int, Any]] = []
        addressed = self._addressed(message, each)
        self._round_of(step, addressed, lambda i, r: received.append((i, r)))
        if self.on_loss == "skip" and addressed and not received:
            raise PartyLost(f"no party answered {step.name!r} in this round")
        self._compare(step, received)
        return Replies(
            tuple(reply for _, reply in received), tuple(self._names[i] for i, _ in received)
        )

    def total(
        self,
        step: Step,
        message: Message | None = None,
        *,
        each: Sequence[Message] | Mapping[str, Message] | None = None,
        look: Callable[[str, Any], None] | None = None,
    ) -> Total:
        """One round: the sum of the parties' replies, added in party order as they come.

        Where sums are not masked, `look` is shown each reply with its party's name.
        """
        assert step.signature.gives is not None, f"{step!r} gives nothing to add up"
        require_summable(step.signature.gives)
        if self.secure:
            return self._masked_total(step, self._addressed(message, each))
        sums: list[Any] = []
        covered: list[str] = []

        def fold(i: int, reply: Any) -> None:
            try:
                sums[:] = [add(sums[0], reply) if sums else reply]
            except MessageRefused as error:  # which of them has the wrong shape is not known
                who = in_short([self._names[i], *covered])
                words = f"replies of {who} do not fit together: {error.reason}"
                raise MessageRefused(words, party=self._names[i]) from None
            covered.append(self._names[i])
            if look is not None:
                look(self._names[i], reply)

        self._round_of(step, self._addressed(message, each), fold, summed=True)
        if not sums:
            raise PartyLost(f"no party answered {step.name!r} in this round")
        check(sums[0])  # finite summands may have a sum that is not
        return Total(sums[0], tuple(covered))

    def _round_of(
        self,
        step: Step,
        messages: Mapping[int, Message | None],
        take: Callable[[int, Any], None],
        summed: bool = False,
    ) -> None:
        self._books.new_round()
        label = step_label(step)
        request = {"op": "step", "role": role_name(step.role), "step": step.name}
        distinct = {id(message): message for message in messages.values()}
        key = ("step", role_name(step.role), step.name)
        request |= self._next_in_study(key, distinct.values(), summed)
        request |= self._vouchers_for(step)
        encoded = {key: _encoded(message) for key, message in distinct.items()}  # broadcasts: once
        stamped = {key: {**request, "message": data} for key, (data, _) in encoded.items()}
        for i, message in messages.items():
            data, kinds = encoded[id(message)]
            if data is not None:
                self._books.enter(label, COORDINATOR, self._names[i], kinds, data.size)
            if any(kinds.values()):
                self._statements.reached.add(self._names[i])
        self._requests = messages
        self._wave({i: stamped[id(m)] for i, m in messages.items()}, step, take)
        if not self._active():
            raise PartyLost(f"no party is left to run {step.name!r}; {self._losses()}")

    def _vouchers_for(self, step: Step) -> dict[str, Any]:
        """The signatures that go with rows of other parties, where these have signed them."""
        takes = step.signature.takes
        if not self._courier.vouchers or takes is None or not takes.is_handed_on:
            return {}
        return {"vouchers": self._courier.vouchers}

    # Sums under masks.

    def _masked_total(self, step: Step, messages: Mapping[int, Message | None]) -> Total:
        """As many rounds as masks take: every party runs `step`, and nobody sees a summand."""
        from eigenmesh.runtime.masked_sum import Collector, Opening, describe

        assert self._guard is not None, "what is masked has a study"
        assert step.signature.gives is not None, "what is summed is given"
        label, study = step_label(step), self._guard.study
        if self._collector is None:
            self._collector = Collector(self._names, self.on_loss == "survivors")
        ask = partial(self._masked_round, label)
        distinct = {id(message): message for message in messages.values()}
        key = ("step", role_name(step.role), step.name)
        fields: dict[str, Any] = {"role": role_name(step.role), "step": step.name}
        fields |= self._next_in_study(key, distinct.values(), summed=True)
        fields |= self._vouchers_for(step)
        is_apart = self._sum_asked is not None and self._sum_asked.apart
        if self._sum_asked is not None and self._sum_asked.shows and self.between_organisations:
            fields["total"] = self._shown_total(label)
        openings: dict[int, Opening] = {}
        ask("sum", messages, Opening, openings.__setitem__, **fields)
        number = self._courier.turn
        first = next(iter(messages.values()), None)
        request = b"" if is_apart or first is None else encode(first)
        place = (self._courier.run, number, label, self._guard.numbers, request)
        total, covered = self._collector.total(
            describe(study, *place), step.signature.gives, openings, ask
        )
        names = tuple(self._names[i] for i in covered)
        return Total(total, names, self._collector.units)

    def _shown_total(self, label: str) -> Any:
        """The words of the last total, for parties that check what follows from it."""
        assert self._collector is not None, "a total was asked for before"
        assert self._collector.words is not None, "a total was asked for before"
        words = self._collector.words
        for i in self._active():
            kinds = {"aggregate": len(words) - 1}
            self._books.enter(label, COORDINATOR, self._names[i], kinds, words.nbytes)
        return words

    def _masked_round(
        self,
        label: str,
        round_: str,
        messages: Mapping[int, Message | None],
        gives: type[Message],
        take: Callable[[int, Any], None],
        *,
        late: bool = False,
        floats: int = 0,
        **fields: Any,
    ) -> None:
        """One round of a masked sum; replies go to `take` in party order, as they come.

        Who is missing when it is `late` is in the sum already: the next round will find it so.
        """
        self._books.new_round()
        encoded = {id(message): _encoded(message) for message in messages.values()}
        common = {"op": round_, **fields}
        requests = {key: {**common, "message": data} for key, (data, _) in encoded.items()}
        for i, message in messages.items():
            data, kinds = encoded[id(message)]
            if data is not None:
                self._books.enter(label, COORDINATOR, self._names[i], kinds, data.size)
        first_error: EigenmeshError | None = None
        addressed = {i: requests[id(message)] for i, message in messages.items()}
        for i, reply in self._courier.call(addressed):
            try:
                with naming(self._names[i]):
                    answer = _message_in(self._courier.open(i, reply))
                    message = decode(gives, answer.data)
                    way = (self._names[i], COORDINATOR)
                    self._books.enter(label, *way, {"aggregate": floats}, answer.size)
                    take(i, message)
            except EigenmeshError as raised:
                error = raised
                if round_ != "sum":  # by then it was sent the others' keys and sizes
                    error = fair_in_a_sum(raised, self._names[i], self.parties)
                survived = self.on_loss == "survivors" and isinstance(error, _LOSSES)
                if survived and not late:
                    self.lost[self._names[i]] = error.reason
                first_error = first_error if survived else first_error or error
        if first_error is not None:
            raise first_error

    def _losses(self) -> str:
        return "lost: " + "; ".join(f"{name!r} ({reason})" for name, reason in self.lost.items())

    def _addressed(
        self,
        message: Message | None,
        each: Sequence[Message] | Mapping[str, Message | None] | None,
    ) -> dict[int, Message | None]:
        active = self._active()
        if each is None:
            return dict.fromkeys(active, message)
        if isinstance(each, Mapping):
            unknown = set(each) - set(self._names)
            if unknown:
                raise InputError(
                    f"messages for {', '.join(map(repr, sorted(unknown)))}; "
                    f"the parties are {', '.join(map(repr, self._names))}"
                )
            return {i: each[self._names[i]] for i in active if self._names[i] in each}
        if len(each) != len(active):
            raise InputError(
                f"{len(each)} messages for {len(active)} parties; one each is expected"
            )
        return dict(zip(active, each, strict=True))

    def _compare(self, step: Step, received: list[tuple[int, Any]]) -> None:
        """Fields declared the same everywhere: name the party that differs from most."""
        if step.signature.gives is None or not received:
            return
        for declared in fields_of(step.signature.gives):
            if not declared.same:
                continue
            values = [getattr(reply, declared.name) for _, reply in received]
            remedy = _REMEDIES.get(declared.kind or "", "check what this party holds")
            common, holders = Counter(values).most_common(1)[0]
            first = self._names[received[values.index(common)][0]]
            others = "the others" if 2 * holders > len(values) else repr(first)
            for (i, _), value in zip(received, values, strict=True):
                if value != common:
                    raise MessageRefused(
                        f"party {self._names[i]!r} has {declared.name} {_short(value)}, {others} "
                        f"{_short(common)}; it must be the same everywhere: {remedy}",
                        party=self._names[i],
                    )

    # Neighbour rounds on a graph.

    def exchange(self, send: Step, receive: Step, times: int = 1) -> None:
        """`times` rounds: each party sends to its neighbours, then takes what they sent.

        A round in which a party is lost is undone at every party before the error is raised, or
        before it is repeated on the graph of the survivors: no party is ever a round ahead.
        """
        if self._graph is None:
            raise TopologyError("exchange needs a graph; pass topology= to the federation")
        key = ("exchange", role_name(send.role), send.name, receive.name)
        for _ in range(times):
            self._require_held_together()
            fields = self._next_in_study(key)
            self._books.new_round()
            while not self._exchange_once(send, receive, fields):
                self._require_connected()

    def pass_along(self, send: Step, receive: Step, way: str, links: Links) -> Links:
        """One round along links of `tree`, one way; gives those whose message has not come.

        If a party is lost the round is undone, and no link is left: on another tree others count.
        """
        key = ("exchange", role_name(send.role), send.name, receive.name)
        fields = self._next_in_study(key)
        self._books.new_round()
        round_ = self._exchange_once(send, receive, fields, self._along(way, links))
        if round_ is None:
            self._require_connected()
            return {}
        missed: dict[int, list[int]] = {}
        for sender, receiver in sorted(round_.missed):
            missed.setdefault(sender, []).append(receiver)
        return missed

    def _along(self, way: str, links: Links) -> dict[int, dict[str, Any]]:
        """What each party that takes part in a round along the tree is told of it."""
        tree, missing = self.tree, self._missing()
        senders: dict[int, list[int]] = {}
        for sender, receivers in links.items():
            for receiver in receivers:
                senders.setdefault(receiver, []).append(sender)
        return {
            i: {
                "way": way,
                "to": list(links.get(i, ())),
                "hears": senders.get(i, []),
                "parent": tree.parents.get(i, -1),
                "children": list(tree.children[i]),
                "gone": list(missing.nodes),
                "cut": [list(link) for link in missing.links],
            }
            for i in sorted(links.keys() | senders.keys())
        }

    def _exchange_once(
        self,
        send: Step,
        receive: Step,
        fields: Mapping[str, Any],
        along: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> Exchange | None:
        """The round if it was complete; if not, it has been undone and a party is out."""
        exchange = Exchange(self._courier, self._names, self._neighbours(), along, self._heard())
        self._statements.reached.update(self.parties)
        exchange.run(send, receive, self.on_loss, self.max_age, fields)
        self._book(send, exchange, is_repeated=along is not None)
        if not exchange.failures:
            return exchange
        for i, raised in exchange.failures.items():
            error = self._statements.fair(raised, self._names[i], self.parties)
            if self.on_loss == "raise" or not isinstance(error, _LOSSES):
                raise error
            if self.on_loss == "reuse" and not send.reusable:
                raise self._explained(error, send)
            self.lost[self._names[i]] = error.reason
        for i, error in exchange.not_undone.items():  # it may be a round ahead: it cannot go on
            self.lost[self._names[i]] = error.reason
        return None

    def _neighbours(self) -> dict[int, list[int]]:
        """Those of the parties that are in, by number. A subgraph of networkx is slow to walk."""
        assert self._graph is not None
        active = set(self._active())
        adjacent = self._graph.adj
        return {i: sorted(j for j in adjacent[i] if j in active) for i in sorted(active)}

    def _heard(self) -> dict[int, list[int]] | None:
        """From whom each hears, where links go one way; None where it is from whom it sends to."""
        assert self._graph is not None
        if not self._graph.is_directed():
            return None
        active, graph = set(self._active()), self._graph
        return {i: [j for j in senders_to(graph, i) if j in active] for i in sorted(active)}

    def _book(self, send: Step, exchange: Exchange, is_repeated: bool) -> None:
        """What has left has left, even if the round was undone.

        Nobody goes on without what is missed and `is_repeated`.
        """
        is_over = not exchange.failures and not is_repeated
        label, relayed = step_label(send), self._engine.relays != "no"
        for i, receipt in exchange.receipts.items():
            for receiver, kinds, size in receipt["sent"]:
                way = (self._names[i], self._names[receiver])
                self._books.enter(label, *way, kinds, size, relayed)
            for sender, _reason, replaced in receipt["missed"] if is_over else ():
                (self.reused if replaced else self.dropped)[self._names[sender]] += 1

    def _require_held_together(self) -> None:
        """Who was lost between exchanges may have parted the graph: then nothing would come of it
        but nodes that miss what others have, and are blamed for it one by one.
        """
        missing = self._missing()
        if missing != self._held_without:
            self._require_connected()
            self._held_without = missing

    def _require_connected(self) -> None:
        """After a loss: is there still a graph to go on with?"""
        if not self._active():
            raise PartyLost(f"no party is left to exchange messages; {self._losses()}")
        assert self._graph is not None
        graph = nx.restricted_view(self.graph, (), self._cut)
        try:
            require_connected(graph, self._names)
        except TopologyError as error:
            losses = f"; {self._losses()}" if self.lost else ""
            raise TopologyError(f"{error.reason}{losses}") from None

    # One wave of requests, and what becomes of its replies.

    def _wave(
        self,
        requests: Requests,
        step: Step | None,
        take: Callable[[int, Any], None],
    ) -> None:
        """Send, and hand decoded replies to `take` in party order. The first error is raised at
        the end, so that no party is still at work on this wave when the caller hears of it.
        """
        first_error: EigenmeshError | None = None
        for i, reply in self._courier.call(requests):
            if first_error is None:
                first_error = self._take(i, reply, step, take)
        if first_error is not None:
            raise first_error

    def _take(
        self, i: int, reply: Reply, step: Step | None, take: Callable[[int, Any], None]
    ) -> EigenmeshError | None:
        """The error that ends the run, if there is one; else the reply, if any, was taken."""
        try:
            answer = self._courier.open(i, reply)
            with naming(self._names[i]):
                message = self._received(i, answer, step)
            take(i, message)
        except EigenmeshError as raised:
            error = self._statements.fair(raised, self._names[i], self.parties)
            if not isinstance(error, _LOSSES):
                return error
            if self.on_loss == "survivors":
                self.lost[self._names[i]] = error.reason
            elif self.on_loss == "skip":
                self._skip(self._names[i], step, error)
            elif not self._reuse(i, step, take):
                return self._explained(error, step)
        else:
            self._missed_in_a_row.pop(self._names[i], None)
            if self.on_loss == "reuse" and step is not None and step.reusable:
                label = step_label(step)
                self._last_reply[label, i] = (self._books.rounds, message)
        return None

    def _skip(self, name: str, step: Step | None, error: EigenmeshError) -> None:
        """Go on without a party; one that was not built, or is silent too often, is out."""
        self._missed_in_a_row[name] += 1
        missed = self._missed_in_a_row[name]
        if step is None:
            self.lost[name] = error.reason
        elif missed > self.max_age:
            self.lost[name] = f"{error.reason}, in {missed} rounds in a row"
        else:
            self.dropped[name] += 1

    def _reuse(self, i: int, step: Step | None, take: Callable[[int, Any], None]) -> bool:
        """Whether a reply to this step, kept for "reuse", was young enough and could be taken."""
        label = "" if step is None else step_label(step)
        if (label, i) not in self._last_reply:
            return False
        round_, message = self._last_reply[label, i]
        if self._books.rounds - round_ > self.max_age:
            return False
        try:
            take(i, message)
        except EigenmeshError:  # the others' replies have another shape by now
            return False
        self.reused[self._names[i]] += 1
        return True

    def _explained(self, error: EigenmeshError, step: Step | None) -> EigenmeshError:
        """A loss that "reuse" could have made good, had the step not forbidden it, says so."""
        if step is None or step.reusable or self.on_loss != "reuse":
            return error
        words = f"on_loss is 'reuse', but an older reply must not stand in for one to {step.name!r}"
        return type(error)(f"{error.reason}; {words}", party=error.party)

    def _received(self, i: int, answer: Any, step: Step | None) -> Any:
        if step is None or step.signature.gives is None:
            return None
        answer, name = _message_in(answer), self._names[i]
        message = decode(step.signature.gives, answer.data, self._sizes_of(name))
        kinds = floats_by_kind(message)
        self._books.enter(step_label(step), name, COORDINATOR, kinds, answer.size)
        setup, request = self._setups.get(step.role), self._requests.get(i)
        self._statements.hear(name, message, setup, request)
        return message

    def _sizes_of(self, party: str) -> Limits:
        """How large a reply may be: also by how many rows its sender said that it has."""
        facts = self._statements.facts.get(party)
        if not self._sizes_by_rows or facts is None or OwnRows not in facts:
            return self._reply_sizes
        n_rows = facts[OwnRows]
        if n_rows not in self._sizes_of_rows:
            own = of_rows(self._sizes_by_rows, int(n_rows))
            self._sizes_of_rows[n_rows] = {**self._reply_sizes, **own}
        return self._sizes_of_rows[n_rows]


def require_seconds(timeout: float | None) -> None:
    """Refuse what is no time to wait."""
    if timeout is not None and not timeout > 0:
        raise InputError(f"timeout is {timeout}; a positive number of seconds is expected")


def _message_in(answer: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if not isinstance(answer, np.ndarray) or answer.dtype != np.uint8 or answer.ndim != 1:
        raise MessageRefused("its reply holds no message")
    return answer


def _require_maskable(on_loss: str, topology: Topology | None) -> None:
    """Refuse what masks cannot be sound with; or raise because the package for them is missing."""
    if topology is not None:
        raise InputError(
            "secure is True, but on a graph neighbours see each other's messages, which are no "
            "sums: masks need a coordinator; pass topology=None, or secure=False"
        )
    if on_loss not in MASKABLE_LOSSES:
        raise InputError(
            f"secure is True and on_loss {on_loss!r}; 'raise' or 'survivors' is expected: a masked "
            f"summand stands for its own sum alone, and one that comes later would expose its party"
        )
    import eigenmesh.runtime.masked_sum  # noqa: F401


def _encoded(message: Message | None) -> tuple[Any, Mapping[str, int]]:
    """A message as an array of bytes, and what it reveals; nothing for none."""
    if message is None:
        return None, {}
    return np.frombuffer(encode(message), np.uint8), floats_by_kind(message)


def _declared(places: Places, summed: bool, secure: bool) -> Places:
    """Of several places those that are declared as sums, or as not.

    Without masks it is no harm if replies are summed that might have been looked at.
    """
    fits = places.sums if summed else places.others
    if fits or (summed and not secure):
        return fits or places
    call, declared = ("total", "ask") if summed else ("ask", "total")
    name = places[0].node.key[-1]
    raise StepRefused(f"step {name!r} is run by {call}(), its schedule declares {declared}(...)")


def _narrowed(places: Places, messages: Iterable[Message | None]) -> Places:
    """Of several places those at which messages may be so large; all, if there is none."""
    if len(places) == 1:
        return places
    sent = [message for message in messages if message is not None]
    try:
        return fitting(places, sent, "down")
    except MessageRefused:
        return places


def _short(value: Any) -> str:
    return f"'{value[:8]}…'" if isinstance(value, str) and len(value) > 12 else repr(value)


def _own_words(error: BaseException) -> EigenmeshError:
    if isinstance(error, EigenmeshError):
        return error
    return FederationError(f"the coordinator failed with {type(error).__name__}; its log says why")


def _result(outcome: bytes) -> Any:
    tree = records.loads(outcome)
    if "error" in tree:
        raise error_from(tree["error"], tree["error"]["party"])
    return tree["result"]


def _step_names(role: type[Party], steps: Iterable[Step] | None) -> list[str]:
    return list(steps_of(role)) if steps is None else [step.name for step in steps]
