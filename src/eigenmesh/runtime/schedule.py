"""Schedules: which steps a protocol asks for, in which order, how often, how large their messages.

A protocol declares its schedule once, as a function of what its coordinator is given::

    def schedule(scope, setup, n_rounds):
        return sequence(
            enlist(Holder, setup),
            ask(Holder.local_start, k=setup.n_components),
            loop(n_rounds, total(Holder.multiply, k=setup.n_components)),
            ask(Holder.keep_loadings, k=at_most(setup.n_components)),
        )

Everything that follows from order and size of messages is derived from it: the forecast
(`forecast`), the kinds that a policy must allow (`kinds_in`), which steps a host answers and when
(`Program`), the table on the method's page (`table`).

`scope` says who takes part and what becomes of losses. Sizes are bound by the names that the
messages' `Shape` annotations use: a number, a function of what a party owns, `at_most` of either,
or `shared`, of which only the sum over the parties is known. Branches are plain Python, on
parameters; what only the data decide is a `loop` with a fewest and a most. Numbers that are known
after some replies, such as how many rows there are, are settled once: the coordinator says them,
every host checks them against what it knows, and the rest is built from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, NamedTuple

import networkx as nx

from eigenmesh.errors import MessageRefused, StepRefused
from eigenmesh.runtime.ledger import COORDINATOR, Entry, Ledger, step_label
from eigenmesh.runtime.message import (
    Form,
    Limit,
    Limits,
    Message,
    check_sizes,
    decode,
    encode,
    form_of,
    in_letters,
    planned_floats,
)
from eigenmesh.runtime.party import Party, Step
from eigenmesh.runtime.requests import MASK_ROUNDS, ON_LOSS
from eigenmesh.runtime.spanning_tree import BOTH, NOBODY, Losses, SpanningTree
from eigenmesh.runtime.topology import (
    AVERAGING,
    PUSH_SUM,
    ROUGHEST,
    TREE,
    USUAL_TOLERANCE,
    averaging_on,
    is_lossy,
    links_of,
    mark_averaging,
    mark_losses,
    tolerance_on,
)

_OLDEST = 1000  # rounds that a party may miss in a row, at the most
_LONGEST = 100_000  # instructions of a program
MASKED = frozenset({"aggregate"})  # what a masked summand reveals

# What sizes may depend on.


@dataclass(frozen=True, slots=True)
class Own:
    """What a party knows of itself: the shape of its data and its place in the graph."""

    rows: int
    columns: int
    degree: int = 0
    index: int = 0
    parties: Parties | None = None  # all of them; known in a plan only
    receiver: Own | None = None  # the neighbour that a message of a plan goes to


@lru_cache(maxsize=1 << 14)
def own_of(rows: int, columns: int, degree: int, index: int) -> Own:
    """The same record again: a host says what it owns several times a request."""
    return Own(rows, columns, degree, index)


Amount = int | Callable[[Own], int]


@dataclass(frozen=True)
class Size:
    """One size of a message: exactly so much, or at most; `usual` is what a plan counts."""

    amount: Amount
    exact: bool = True
    usual: Amount | None = None

    def limit(self, own: Own) -> Limit:
        """What a host lets pass."""
        common = self.common
        return Limit(_of(self.amount, own), self.exact) if common is None else common

    @cached_property
    def common(self) -> Limit | None:
        """What whoever sees a message knows of its size; None if that depends on its party."""
        return None if callable(self.amount) else Limit(int(self.amount), self.exact)

    def planned(self, own: Own) -> int:
        """What a plan counts for a party."""
        return _of(self.amount if self.usual is None else self.usual, own)


def limits(sizes: Mapping[str, Size], own: Own) -> Limits:
    """How large the messages of a party may be."""
    return {name: size.limit(own) for name, size in sizes.items()}


def common_limits(sizes: Mapping[str, Size]) -> Limits:
    """How large anybody's messages may be, as far as all know; equal sizes share one record."""
    return _common_limits(tuple(sizes.items()))


@lru_cache(maxsize=1024)
def _common_limits(sizes: tuple[tuple[str, Size], ...]) -> Limits:
    limits = {name: size.common for name, size in sizes}
    return {name: limit for name, limit in limits.items() if limit is not None}


def of_rows(sizes: Limits, n_rows: int) -> Limits:
    """How large the messages of a party are that has so many rows."""
    return {name: Limit(n_rows * limit.size, limit.exact) for name, limit in sizes.items()}


def loosest(several: Sequence[Limits]) -> Limits:
    """What is known of a message's sizes, if it may belong to any of several places."""
    if len({id(one) for one in several}) < 2:  # rounds of equal sizes have one record of them
        return several[0] if several else {}
    names = set.intersection(*(set(one) for one in several))
    return {name: _looser([one[name] for one in several]) for name in sorted(names)}


def _looser(one_size: Sequence[Limit]) -> Limit:
    exact = all(limit == one_size[0] for limit in one_size) and one_size[0].exact
    return Limit(max(limit.size for limit in one_size), exact)


def _of(amount: Amount, own: Own) -> int:
    return int(amount(own)) if callable(amount) else int(amount)


def at_most(amount: Amount, planned: Amount | None = None) -> Size:
    """A size that may be smaller; a plan counts `planned`, or the most."""
    return Size(amount, exact=False, usual=planned)


def rows(own: Own) -> int:
    """As many as a party has rows."""
    return own.rows


def columns(own: Own) -> int:
    """As many as a party has columns."""
    return own.columns


def by_rows(count: int) -> Callable[[Own], int]:
    """In a plan, how many of `count` draws fall to a party: by rows, the first has the rest.

    What falls to whom is drawn, so that a party's own part is an expectation and the sum is exact.
    """

    def part(own: Own) -> int:
        assert own.parties is not None, "how draws fall is for plans"
        return own.parties.by_rows(count)[own.index]

    return part


Sizes = Mapping[str, Size | Amount]


# The tree.


@dataclass(frozen=True, eq=False)
class Enlist:
    """A party of a role is built, from this setup; some of its numbers may vary, within bounds."""

    role: type[Party]
    setup: Message
    varies: Mapping[str, tuple[float, float]]

    def agrees(self, data: bytes) -> bool:
        """Whether a setup in wire form is this one, but for what may vary."""
        if not self.varies:
            return self._encoded == data
        other = decode(type(self.setup), data)
        bounds = [(getattr(other, name), *ends) for name, ends in self.varies.items()]
        agreed = {name: getattr(self.setup, name) for name in self.varies}
        same = encode(replace(other, **agreed)) == encode(self.setup)  # type: ignore[type-var]
        return same and all(low <= number <= high for number, low, high in bounds)

    @cached_property
    def _encoded(self) -> bytes:
        return encode(self.setup)

    @property
    def key(self) -> tuple[str, ...]:
        """What a request must name."""
        return ("enlist", self.role.__name__)


@dataclass(frozen=True, eq=False)
class Ask:
    """One round: a step at every party, or between neighbours if there is a step to receive."""

    step: Step
    receive: Step | None
    down: Mapping[str, Size]
    up: Mapping[str, Size]
    missable: bool = False  # whether it may be addressed to some parties only
    summed: bool = False  # whether only the sum of the replies is wanted
    apart: bool = False  # whether parties are sent different messages before they are summed
    shows: bool = False  # whether the total before it is shown, and checked between organisations
    directions: str | int = 0  # products with a party's own columns: so many, or a size by name
    ways: tuple[str, ...] = ()  # along a spanning tree, of whose links a round uses one level

    @property
    def is_sure(self) -> bool:
        """Whether it is asked of everybody, or of all whose turn it is on a tree."""
        return bool(self.ways) or not self.missable

    def reveals(self, secure: bool) -> frozenset[str]:
        """The kinds that leave a party: of a masked summand nothing but what the sum tells."""
        return MASKED if secure and self.summed else self.step.reveals

    @cached_property
    def common_down(self) -> Limits:
        """How large what is sent to parties may be, as far as all know."""
        return common_limits(self.down)

    @cached_property
    def common_up(self) -> Limits:
        """The same of what they give."""
        return common_limits(self.up)

    @cached_property
    def up_by_rows(self) -> Limits:
        """The sizes of what they give that are a party's number of rows; for each of these."""
        return {n: Limit(1, size.exact) for n, size in self.up.items() if size.amount is rows}

    def limits(self, way: str, own: Own) -> Limits:
        """How large messages "up" or "down" may be of a party that owns this."""
        common: Limits = getattr(self, f"common_{way}")
        sizes: Mapping[str, Size] = getattr(self, way)
        return common if len(common) == len(sizes) else limits(sizes, own)

    @cached_property
    def key(self) -> tuple[str, ...]:
        """What a request must name."""
        if self.receive is None:
            return ("step", self.step.role.__name__, self.step.name)
        return ("exchange", self.step.role.__name__, self.step.name, self.receive.name)


@dataclass(frozen=True, eq=False)
class Loop:
    """Something from `fewest` to `most` times; a plan counts `usual`, or the most."""

    body: Node
    most: int
    fewest: int
    usual: int


@dataclass(frozen=True, eq=False)
class CutShort:
    """Something that may end anywhere, because a party has left."""

    body: Node


@dataclass(frozen=True, eq=False)
class InOrder:
    """One thing after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Settle:
    """Numbers that the coordinator says once, and what follows from them.

    `planned` gives them to a plan, and `fullest` to one of all that may be sent; `accepts` is a
    host's check, by what it owns; `typical` are such that all steps occur which may.
    """

    typical: Mapping[str, int]
    planned: Callable[[Parties], Mapping[str, int]]
    rest: Callable[..., Node]
    accepts: Callable[..., bool]
    fullest: Callable[[Parties], Mapping[str, int]]

    @property
    def names(self) -> tuple[str, ...]:
        """What is told."""
        return tuple(self.typical)


Node = Enlist | Ask | Loop | CutShort | InOrder | Settle


def enlist(
    role: type[Party], setup: Message, varies: Mapping[str, tuple[float, float]] | None = None
) -> Enlist:
    """Parties of a role, built at every site.

    `varies` bounds the numbers of the setup that are others once a party has left.
    """
    return Enlist(role, setup, varies or {})


def ask(
    step: Any,
    *,
    down: Sizes | None = None,
    up: Sizes | None = None,
    missable: bool = False,
    directions: str | int = 0,
    **both: Size | Amount,
) -> Ask:
    """One round of `step`; `down` binds sizes of what it takes, `up` of what it gives.

    `directions` counts what a reply tells of a party's own columns: products with them, or
    coordinates in them, so many or as many as the size of that name. As many as there are columns
    determine them.
    """
    return Ask(step, None, _sizes(both, down), _sizes(both, up), missable, directions=directions)


def total(
    step: Any,
    *,
    down: Sizes | None = None,
    up: Sizes | None = None,
    apart: bool = False,
    shows: bool = False,
    **both: Size | Amount,
) -> Ask:
    """One round of `step` of whose replies only the sum is wanted, as `Federation.total` gives it.

    `apart` says that parties are sent different messages: what they sum is then not compared.
    `shows` says that the request follows from the masked total before it: between organisations
    that is shown, and each party checks both.
    """
    sizes = _sizes(both, down), _sizes(both, up)
    return Ask(step, None, *sizes, summed=True, apart=apart, shows=shows)


def exchange(
    send: Any,
    receive: Any,
    times: int = 1,
    fewest: int | None = None,
    usual: int | None = None,
    directions: str | int = 0,
    ways: tuple[str, ...] = (),
    **sizes: Size | Amount,
) -> Loop:
    """`times` rounds between neighbours, or from `fewest` to `times`.

    With `ways` along a spanning tree: of its levels a round uses one, and as many rounds as it is
    high use each link once, in each of the ways.
    """
    bound, least = _sizes(sizes, None), times if fewest is None else fewest
    swap = Ask(send, receive, bound, bound, bool(ways), directions=directions, ways=ways)
    return loop(times, swap, fewest=least, usual=usual)


def loop(
    most: int, *body: Node | None, fewest: int | None = None, usual: int | None = None
) -> Loop:
    """`body` from `fewest` times, 0 if not told, to `most` times."""
    if type(most) is not int or most < 0:
        raise StepRefused(f"a loop goes around {most!r} times; a whole number is expected")
    least = 0 if fewest is None else min(fewest, most)
    return Loop(sequence(*body), most, least, most if usual is None else min(usual, most))


def times(count: int, *body: Node | None) -> Loop:
    """`body` exactly `count` times."""
    return loop(count, *body, fewest=count)


def maybe(*body: Node | None, planned: bool = True) -> Loop:
    """Once or not at all, as the data decide."""
    return loop(1, *body, usual=int(planned))


def restarted(scope: Scope, *attempt: Node | None) -> Node:
    """`attempt`, once; before it others that end anywhere, each because a party has left."""
    whole = sequence(*attempt)
    return sequence(loop(scope.restarts, CutShort(whole), usual=0), whole)


def sequence(*parts: Node | None) -> Node:
    """One after the other; None stands for nothing."""
    present = tuple(part for part in parts if part is not None)
    return present[0] if len(present) == 1 else InOrder(present)


def settle(
    planned: Callable[[Parties], Mapping[str, int]],
    rest: Callable[..., Node],
    accepts: Callable[..., bool] = lambda own, **numbers: True,
    fullest: Callable[[Parties], Mapping[str, int]] | None = None,
    **typical: int,
) -> Settle:
    """Numbers that are told once: ``accepts(own, **numbers)``, then ``rest(**numbers)`` follows.

    `typical` names them, with values for which all steps occur that may.
    """
    return Settle(typical, planned, rest, accepts, fullest or planned)


def _sizes(both: Sizes, one_way: Sizes | None) -> dict[str, Size]:
    sizes = {**both, **(one_way or {})}
    return {name: s if isinstance(s, Size) else Size(s) for name, s in sizes.items()}


@dataclass(frozen=True)
class Scope:
    """Who takes part in a run, on which graph, and what becomes of losses."""

    parties: tuple[str, ...]
    split: str
    on_loss: str = "raise"
    max_age: int = 3
    edges: tuple[tuple[int, int], ...] | None = None  # None: there is a coordinator
    secure: bool = False  # whether sums are masked
    left_out: tuple[str, ...] = ()  # of the parties, who takes no part
    prepared: str = ""  # the name of how rows were prepared before; as they are if empty
    averaging: str = TREE  # how nodes of a graph average; by push-sum edges have directions
    tolerance: float = USUAL_TOLERANCE  # which share of their differences mixing may leave

    @cached_property
    def not_in(self) -> frozenset[str]:
        """Who is left out, to be looked up by each of many parties."""
        return frozenset(self.left_out)

    @property
    def n_taking_part(self) -> int:
        """How many of the parties a run is of."""
        return len(self.parties) - len(self.left_out)

    def require_sound(self) -> None:
        """Raise `StepRefused` unless these are words and numbers that a run can have."""
        n, edges = len(self.parties), self.edges or ()
        sound = (
            self.split in ("rows", "columns")
            and self.on_loss in ON_LOSS
            and type(self.max_age) is int
            and 0 <= self.max_age <= _OLDEST
            and all(type(i) is type(j) is int and 0 <= min(i, j) != max(i, j) < n for i, j in edges)
            and all(i < j or self.averaging == PUSH_SUM for i, j in edges)
            and not (self.on_loss == "skip" and self.edges is not None)
            and type(self.secure) is bool
            and type(self.prepared) is str
            and self.averaging in AVERAGING
            and 0 < self.tolerance <= ROUGHEST
            and not (self.secure and (self.forgiving or self.edges is not None))
            and list(self.left_out) == [name for name in self.parties if name in self.not_in]
        )
        if not sound:
            raise StepRefused("the study's parties, graph or losses are none that a run can have")

    @cached_property
    def graph(self) -> nx.Graph | None:
        """The graph by number, as the federation has it."""
        if self.edges is None:
            return None
        graph = nx.DiGraph() if self.averaging == PUSH_SUM else nx.Graph()
        graph.add_nodes_from(i for i, name in enumerate(self.parties) if name not in self.not_in)
        graph.add_edges_from(self.edges)
        how = (self.averaging, self.tolerance) if self.gossips else self.averaging
        return mark_losses(mark_averaging(graph, how), self.on_loss != "raise")

    @cached_property
    def _trees(self) -> dict[Losses, SpanningTree]:
        return {}

    def tree_without(self, missing: Losses = NOBODY) -> SpanningTree:
        """The spanning tree of those who are left, over the links that work."""
        assert self.graph is not None, "a tree spans a graph"
        if missing not in self._trees:
            left = nx.Graph(self.graph)
            left.remove_nodes_from(missing.nodes)
            left.remove_edges_from(missing.links)
            self._trees[missing] = SpanningTree.of(left)
        return self._trees[missing]

    @property
    def lossy(self) -> bool:
        """Whether messages between neighbours may be missing."""
        return self.graph is not None and is_lossy(self.graph)

    @property
    def gossips(self) -> bool:
        """Whether nodes average by gossip, and along no tree."""
        return self.averaging != TREE

    @property
    def forgiving(self) -> bool:
        """Whether a party may miss a round and take part in the next."""
        return self.on_loss in ("reuse", "skip")

    @property
    def restarts(self) -> int:
        """How often a search may begin anew, because a party has left."""
        return 0 if self.on_loss == "raise" else len(self.parties)


# Plans.


@dataclass(frozen=True, eq=False)
class Parties:
    """Names and shapes of those whom a plan is for."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...]
    graph: nx.Graph | None = None
    left_out: tuple[str, ...] = ()  # members of the federation that take no part

    def scope(self, split: str) -> Scope:
        """As if these were the parties of a run in which nothing is lost, or might be."""
        edges, lossy, averaging, tolerance = None, False, TREE, USUAL_TOLERANCE
        if self.graph is not None:
            edges = links_of(self.graph)
            lossy, averaging = is_lossy(self.graph), averaging_on(self.graph)
            tolerance = tolerance_on(self.graph)
        on_loss, secure = "survivors" if lossy else "raise", masks_are_planned()
        masked = secure and edges is None
        members = (*self.names, *self.left_out)
        how: dict[str, Any] = {"averaging": averaging, "tolerance": tolerance}
        return Scope(members, split, on_loss, 3, edges, masked, self.left_out, **how)

    @cached_property
    def owns(self) -> tuple[Own, ...]:
        """What each knows of itself."""
        degrees = [0 if self.graph is None else len(self.graph.adj[i]) for i in self.numbers]
        return tuple(Own(*self.shapes[i], degrees[i], i, self) for i in self.numbers)

    @cached_property
    def tree(self) -> SpanningTree:
        """The spanning tree of their graph."""
        assert self.graph is not None, "a tree spans a graph"
        return SpanningTree.of(self.graph)

    def by_rows(self, count: int) -> list[int]:
        """A number divided by the parties' rows."""
        if count not in self._divided:
            parts = [count * rows // self.n_rows for rows, _ in self.shapes]
            parts[0] += count - sum(parts)
            self._divided[count] = parts
        return self._divided[count]

    @cached_property
    def _divided(self) -> dict[int, list[int]]:
        return {}

    @property
    def numbers(self) -> range:
        """The parties by number."""
        return range(len(self.names))

    @cached_property
    def n_rows(self) -> int:
        """Of all, where they hold rows."""
        return sum(rows for rows, _ in self.shapes)


class Round(NamedTuple):
    """A round of a schedule, how often a plan counts it, and whether it will be just so often."""

    ask: Ask
    times: int
    exact: bool


def rounds_of(node: Node, parties: Parties, most: bool = False) -> Iterator[Round]:
    """Every round of a schedule, in order; with `most`, of loops all turns that there may be."""
    match node:
        case Ask():
            yield Round(node, 1, node.is_sure)
        case InOrder():
            for part in node.parts:
                yield from rounds_of(part, parties, most)
        case Loop():
            sure, turns = node.fewest == node.most, node.most if most else node.usual
            for step, count, exact in rounds_of(node.body, parties, most):
                yield Round(step, count * turns, exact and sure)
        case CutShort():
            yield from rounds_of(node.body, parties, most)
        case Settle():
            numbers = node.fullest(parties) if most else node.planned(parties)
            yield from rounds_of(node.rest(**numbers), parties, most)


class Turns(NamedTuple):
    """How often a round is asked for, as far as a study alone tells."""

    ask: Ask
    fewest: int
    most: int


def turns_of(node: Node, fewest: int = 1, most: int = 1) -> Iterator[Turns]:
    """Every round, in order; of those that hang on settled numbers only that they may come."""
    match node:
        case Ask():
            # Along a tree everybody sends at least once: a sum, or as its root the total.
            least = min(fewest, int(node.ways == BOTH)) if node.ways else fewest
            yield Turns(node, least if node.is_sure else 0, most)
        case InOrder():
            for part in node.parts:
                yield from turns_of(part, fewest, most)
        case Loop() if node.most:
            yield from turns_of(node.body, fewest * node.fewest, most * node.most)
        case CutShort():
            yield from turns_of(node.body, 0, most)
        case Settle():
            yield from turns_of(node.rest(**node.typical), 0, 0)


# Rounds that a sum takes in what is planned: estimators plan their runs, and none knows of masks.
_sum_rounds: ContextVar[int] = ContextVar("sum_rounds", default=1)


@contextmanager
def planned_masks(on_loss: str | None) -> Iterator[None]:
    """Plan as if sums were masked, where this becomes of losses; with None as if they were not."""
    masked = {"raise": 2, "survivors": 1 + len(MASK_ROUNDS)}
    token = _sum_rounds.set(1 if on_loss is None else masked[on_loss])
    try:
        yield
    finally:
        _sum_rounds.reset(token)


def masks_are_planned() -> bool:
    """Whether what is planned now is for sums under masks."""
    return _sum_rounds.get() > 1


def forecast(node: Node, parties: Parties, most: bool = False) -> Ledger:
    """The ledger of a run that keeps to the plan, or makes the `most` of it; without bytes."""
    ledger, sum_rounds = Ledger(), _sum_rounds.get()
    for round_ in rounds_of(node, parties, most):
        ledger.rounds += round_.times * (sum_rounds if round_.ask.summed else 1)
        if round_.times:
            ledger.entries += _entries(round_, parties, masked=sum_rounds > 1)
    return ledger


def _entries(round_: Round, parties: Parties, masked: bool = False) -> Iterator[Entry]:
    ask, times = round_.ask, round_.times
    if ask.ways:  # each link is used once in as many rounds as the tree is high
        times = -(-times // max(len(ask.ways) * parties.tree.height, 1))
    label, signature = step_label(ask.step), ask.step.signature
    for name, own in zip(parties.names, parties.owns, strict=True):
        if ask.receive is not None:
            for receiver, kinds in _to_neighbours(ask, own):
                yield _entry(label, name, receiver, kinds, times)
            continue
        if signature.takes is not None:
            kinds = planned_floats(signature.takes, _planned(ask.down, own))
            yield _entry(label, COORDINATOR, name, kinds, times)
        if signature.gives is not None:
            kinds = planned_floats(signature.gives, _planned(ask.up, own))
            if masked and ask.summed:
                kinds = {"aggregate": sum(kinds.values())}
            yield _entry(label, name, COORDINATOR, kinds, times)


def _entry(step: str, sender: str, receiver: str, kinds: Mapping[str, int], times: int) -> Entry:
    counts = {kind: floats * times for kind, floats in kinds.items()}
    return Entry(0, step, sender, receiver, counts, sum(counts.values()), 0)


def _planned(sizes: Mapping[str, Size], own: Own) -> dict[str, int]:
    return {name: size.planned(own) for name, size in sizes.items()}


def _to_neighbours(ask: Ask, own: Own) -> Iterator[tuple[str, dict[str, int]]]:
    """Each neighbour, and floats by kind of a message of the node to it."""
    parties, gives = own.parties, ask.step.signature.gives
    assert gives is not None, f"{ask.step!r} gives nothing to neighbours"
    assert parties is not None, "who is near is known in a plan"
    assert parties.graph is not None, "an exchange is planned on a graph"
    near = parties.graph.neighbors(own.index)
    if ask.ways:
        near = chain(*(parties.tree.receivers(own.index, way) for way in ask.ways))
    for j in near:
        to = replace(own, receiver=parties.owns[j])
        yield parties.names[j], planned_floats(gives, _planned(ask.up, to))


# What hosts follow.


class _Begin(NamedTuple):
    most: int
    fewest: int
    end: int


class _End(NamedTuple):
    begin: int


class _Await(NamedTuple):
    settle: Settle


class _Cut(NamedTuple):
    """Instructions from which one may go straight to the `end`, out of all loops but `depth`."""

    begin: int
    end: int
    depth: int


Position = tuple[int, tuple[int, ...]]  # place in the program, turns of the loops around it
Positions = frozenset[Position]
START: Positions = frozenset({(0, ())})


class Match(NamedTuple):
    """A place of the program that a request fits, and where the party is after it."""

    node: Ask | Enlist
    after: Position


class Places(tuple[Match, ...]):
    """All places of a program that a request fits, the earliest first.

    They equal themselves alone: hosts of one process, and requests of successive rounds, share
    them, so that what follows from them is looked up and not worked out again.
    """

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    @cached_property
    def after(self) -> Positions:
        """Where a party is then."""
        return frozenset(match.after for match in self)

    @cached_property
    def first(self) -> Places:
        """The earliest alone."""
        return self if len(self) < 2 else Places(self[:1])

    @cached_property
    def asks(self) -> list[Ask]:
        """The rounds that stand there, each once: many places are turns of one loop."""
        return [node for node in dict.fromkeys(p.node for p in self) if isinstance(node, Ask)]

    @cached_property
    def sums(self) -> Places:
        """Those of rounds of which only the sum is wanted."""
        return self._only(p for p in self if isinstance(p.node, Ask) and p.node.summed)

    @cached_property
    def others(self) -> Places:
        """All but these."""
        return self._only(p for p in self if not isinstance(p.node, Ask) or not p.node.summed)

    @cached_property
    def shows(self) -> bool:
        """Whether a total before it is shown at any of them."""
        return any(ask.shows for ask in self.asks)

    @cached_property
    def all_summed(self) -> bool:
        """Whether only sums are wanted of all of them."""
        return bool(self.asks) and all(ask.summed for ask in self.asks)

    @cached_property
    def directions(self) -> tuple[str | int, ...]:
        """How many products with a party's columns replies have: numbers, or sizes by name."""
        return tuple({ask.directions for ask in self.asks if ask.directions})

    def _only(self, places: Iterable[Match]) -> Places:
        some = Places(places)
        return self if len(some) == len(self) else some

    @cached_property
    def hang_on_own(self) -> frozenset[str]:
        """The ways on which a size of a message hangs on what its party owns."""
        asks = self.asks
        down = any(len(ask.common_down) < len(ask.down) for ask in asks)
        up = any(len(ask.common_up) < len(ask.up) for ask in asks)
        return frozenset([*["down"] * down, *["up"] * up])


NOWHERE = Places()


@lru_cache(maxsize=4096)
def going(places: Places, way: str) -> Places:
    """Those of rounds along a tree this way; with no way, of rounds between all neighbours."""
    ways = ((p, p.node.ways if isinstance(p.node, Ask) else ()) for p in places)
    return places._only(p for p, own in ways if (way in own if way else not own))


def fitting(
    places: Places,
    messages: Sequence[Message],
    way: str,
    owns: Callable[[], Own] | None = None,
) -> Places:
    """The places at which messages "up" or "down" may be as large as they are.

    Raises `MessageRefused` if there is none. Whoever does not know what a party owns goes by the
    sizes that do not hang on it.
    """
    if not messages or not places:
        return places
    forms = tuple(map(form_of, messages))
    if owns is None or way not in places.hang_on_own:
        return _fitting_all(places, forms, way)
    own = owns()
    alike = (own.rows, own.columns, own.degree)
    index = own.index if _hang_on_index(places, way, alike) else 0
    return _fitting_own(places, forms, way, (*alike, index))


@lru_cache(maxsize=4096)
def _fitting_all(places: Places, forms: tuple[Form, ...], way: str) -> Places:
    return _fitting(places, forms, [getattr(ask, f"common_{way}") for ask in places.asks])


@lru_cache(maxsize=4096)
def _fitting_own(
    places: Places, forms: tuple[Form, ...], way: str, numbers: tuple[int, int, int, int]
) -> Places:
    """At any party of these numbers of rows, columns and neighbours, and in this place."""
    return _fitting(places, forms, [ask.limits(way, Own(*numbers)) for ask in places.asks])


@lru_cache(maxsize=4096)
def _hang_on_index(places: Places, way: str, alike: tuple[int, int, int]) -> bool:
    """Whether it matters which one of the parties that own as much a party is."""
    try:
        for ask in places.asks:
            ask.limits(way, _Anyone(*alike))
    except _WhichOne:
        return True
    return False


class _WhichOne(Exception):
    """A size hangs on it."""


class _Anyone(Own):
    """What a party knows of itself, but for which one it is."""

    def __getattribute__(self, name: str) -> Any:
        if name == "index":
            raise _WhichOne
        return super().__getattribute__(name)


def _fitting(places: Places, forms: tuple[Form, ...], limits: Sequence[Limits]) -> Places:
    """By the `limits` of each round; those that several have are looked at once."""
    keys = [tuple(each.items()) for each in limits]
    refusals = {key: _size_refusal(forms, dict(key)) for key in set(keys)}
    of_asks = {ask: refusals[key] for ask, key in zip(places.asks, keys, strict=True)}
    fits = [p for p in places if isinstance(p.node, Ask) and not of_asks[p.node]]
    if not fits:
        raise next(filter(None, of_asks.values()))
    return places._only(fits)


def _size_refusal(forms: Iterable[Form], limits: Limits) -> MessageRefused | None:
    try:
        for form in forms:
            check_sizes(form, limits)
    except MessageRefused as error:
        return error
    return None


@dataclass(frozen=True, eq=False)
class Program:
    """A schedule as a list of instructions, so that a position in it is a few whole numbers.

    `told` are numbers settled so far; the program ends at the first that is not. It is followed
    by parties, or by the coordinator, who misses no round.
    """

    tree: Node
    scope: Scope
    numbers: tuple[tuple[str, int], ...] = ()
    is_coordinators: bool = False
    instructions: list[Any] = field(default_factory=list)
    cuts: list[_Cut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._compile(self.tree, dict(self.numbers), 0)

    def _append(self, *instructions: Any) -> None:
        """A study from outside must not make a program without end."""
        if len(self.instructions) > _LONGEST:
            raise StepRefused(f"the study has more than {_LONGEST:,} steps; loop over them")
        self.instructions.extend(instructions)

    def _compile(self, node: Node, numbers: Mapping[str, int], depth: int) -> bool:
        """Whether all of it is known; it stands inside so many loops."""
        match node:
            case InOrder():
                return all(self._compile(part, numbers, depth) for part in node.parts)
            case Loop():
                return self._compile_loop(node, numbers, depth)
            case CutShort():
                begin = len(self.instructions)
                is_whole = self._compile(node.body, numbers, depth)
                self.cuts.append(_Cut(begin, len(self.instructions), depth))
                return is_whole
            case Ask() if self.scope.on_loss == "skip":
                # Who missed it is asked again, until it has been silent too often.
                self._wrap(node, self.scope.max_age + 1)
            case Settle():
                if not set(node.names) <= numbers.keys():
                    self._append(_Await(node))
                    return False
                return self._compile(
                    node.rest(**{n: numbers[n] for n in node.names}), numbers, depth
                )
            case _:
                self._append(node)
        return True

    def _compile_loop(self, node: Loop, numbers: Mapping[str, int], depth: int) -> bool:
        begin = len(self.instructions)
        self._append(None)
        is_whole = self._compile(node.body, numbers, depth + 1)
        self._append(_End(begin))
        self.instructions[begin] = _Begin(node.most, node.fewest, len(self.instructions) - 1)
        return is_whole

    def _wrap(self, node: Ask, most: int) -> None:
        begin, fewest = len(self.instructions), int(self.is_coordinators)
        self._append(_Begin(most, fewest, begin + 2), node, _End(begin))

    @property
    def forgiving(self) -> bool:
        """Whether a party may miss a round and take part in the next."""
        return not self.is_coordinators and self.scope.forgiving

    @cached_property
    def around(self) -> list[tuple[int, ...]]:
        """The beginnings of the loops around each instruction."""
        loops, around = list[int](), []
        for pc, instruction in enumerate(self.instructions):
            if isinstance(instruction, _End):
                loops.pop()
            around.append(tuple(loops))
            if isinstance(instruction, _Begin):
                loops.append(pc)
        return around

    def awaits(self, positions: Positions) -> Settle | None:
        """The numbers that are to be told before anything else, if there are any."""
        for node, _ in _reachable(self, positions):
            if isinstance(node, _Await):
                return node.settle
        return None

    def matches(self, positions: Positions, key: tuple[str, ...]) -> Places:
        """Where a request fits, in time; nowhere if it is out of order or comes too often."""
        return _matches(self, positions, key)

    def is_over(self, positions: Positions) -> bool:
        """Whether nothing need come any more."""
        return any(node is None for node, _ in _reachable(self, positions))


@lru_cache(maxsize=4096)
def _matches(program: Program, positions: Positions, key: tuple[str, ...]) -> Places:
    fits = []
    for node, (pc, turns) in _reachable(program, positions):
        if isinstance(node, Ask | Enlist) and node.key == key:
            fits.append(Match(node, (pc + 1, turns)))
    return Places(sorted(fits, key=lambda match: _in_time(program, match)))


def _in_time(program: Program, match: Match) -> tuple[int, ...]:
    """Less for what comes earlier: turns of outer loops count for more than places in them."""
    pc, turns = match.after
    loops = zip(program.around[pc - 1], turns, strict=True)
    return (*(number for loop_ in loops for number in loop_), pc)


@lru_cache(maxsize=4096)
def _reachable(program: Program, positions: Positions) -> tuple[tuple[Any, Position], ...]:
    """What may come next: every instruction that is reached without a request."""
    reached: dict[Position, Any] = {}
    # A loop whose body was passed over whole is not gone through again: that leads nowhere new.
    waiting = [(position, frozenset[int]()) for position in positions]
    while waiting:
        position, entered = waiting.pop()
        pc, turns = position
        if position in reached:
            continue
        node = program.instructions[pc] if pc < len(program.instructions) else None
        reached[position] = node
        match node:
            case _Begin():
                waiting += _into(node, pc, turns, entered)
            case _End() if node.begin in entered:
                waiting.append(((pc + 1, turns[:-1]), entered))
            case _End():
                waiting += _onwards(program, node.begin, turns, entered)
            case Ask() if node.missable or program.forgiving:
                waiting.append(((pc + 1, turns), entered))
        for cut in program.cuts:
            if cut.begin < pc < cut.end:
                waiting.append(((cut.end, turns[: cut.depth]), entered))
    return tuple((node, position) for position, node in reached.items())


Move = tuple[Position, frozenset[int]]


def _into(begin: _Begin, pc: int, turns: tuple[int, ...], entered: frozenset[int]) -> list[Move]:
    """Into a loop that is come to from outside, or past it."""
    moves = [((pc + 1, (*turns, 0)), entered | {pc})] if begin.most else []
    return [*moves, ((begin.end + 1, turns), entered)] if not begin.fewest else moves


def _onwards(
    program: Program, begin: int, turns: tuple[int, ...], entered: frozenset[int]
) -> list[Move]:
    """Into the next turn of a loop, or out of it."""
    loop_, done = program.instructions[begin], turns[-1] + 1
    moves = []
    if done < loop_.most:
        moves.append(((begin + 1, (*turns[:-1], done)), entered | {begin}))
    if done >= loop_.fewest or program.forgiving:
        moves.append(((loop_.end + 1, turns[:-1]), entered))
    return moves


# What must be allowed, and what people read.


def asks_in(node: Node) -> list[Ask]:
    """All rounds that may be asked for, in order; of numbers that are settled, typical ones."""
    match node:
        case Ask():
            return [node]
        case InOrder():
            return [each for part in node.parts for each in asks_in(part)]
        case Loop() if node.most:
            return asks_in(node.body)
        case CutShort():
            return asks_in(node.body)
        case Settle():
            return asks_in(node.rest(**node.typical))
    return []


def kinds_in(node: Node, secure: bool = False) -> dict[Step, frozenset[str]]:
    """All steps that may be asked for, in order, with the kinds that leave a party by them."""
    kinds: dict[Step, frozenset[str]] = {}
    for each in asks_in(node):
        kinds[each.step] = kinds.get(each.step, frozenset()) | each.reveals(secure)
    return kinds


class TableRow(NamedTuple):
    """A step as people read it: who is asked for what, how often, and what passes."""

    step: str
    fewest: int
    most: int
    gets: str  # what a party is sent, kinds and sizes by the letters of the messages
    sends: str  # what leaves it
    summed: bool = False  # whether only the sum over the parties is wanted

    def __str__(self) -> str:
        passes = [f"gets {self.gets}"] if self.gets else []
        passes += [f"sends {self.sends}"] if self.sends else ["sends nothing"]
        return f"{self.step}: {self.times}; {'; '.join(passes)}"

    @property
    def times(self) -> str:
        """How often, in words."""
        if self.fewest == self.most:
            return "once" if self.most == 1 else f"{self.most:,} times"
        return f"{self.fewest:,} to {self.most:,} times" if self.fewest else f"up to {self.most:,}"


def table(node: Node, fewest: int = 1, most: int = 1) -> list[TableRow]:
    """Every step in order; one that stands several times in a row is counted together."""
    match node:
        case Ask():
            near = node.receive is not None
            signature = node.step.signature
            label = step_label(node.step) + (" → neighbours" if near else "")
            gets = "" if near or signature.takes is None else in_letters(signature.takes)
            sends = "" if signature.gives is None else in_letters(signature.gives)
            least = 0 if node.missable else fewest
            return [TableRow(label, least, most, gets, sends, node.summed)]
        case InOrder():
            return _joined([row for part in node.parts for row in table(part, fewest, most)])
        case Loop() if node.most:
            return table(node.body, fewest * node.fewest, most * node.most)
        case CutShort():
            return table(node.body, 0, most)
        case Settle():
            return table(node.rest(**node.typical), fewest, most)
    return []


def _joined(rows: list[TableRow]) -> list[TableRow]:
    """Rows of one step, one row; in the order in which steps are first asked for."""
    joined: dict[str, TableRow] = {}
    for row in rows:
        before = joined.get(row.step)
        if before is not None:
            row = row._replace(
                fewest=before.fewest + row.fewest,
                most=before.most + row.most,
                summed=before.summed and row.summed,
            )
        joined[row.step] = row
    return list(joined.values())
