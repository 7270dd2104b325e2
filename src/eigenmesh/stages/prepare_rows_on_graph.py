"""Rows prepared as the pooled rows would be, where there is no coordinator: by averages.

=============  =============================================================================
node keeps     its rows; but who gets its summand, its parent in the tree or by gossip its
               neighbours, sees the same that a coordinator sees of a party
node reveals   rows; of every column the values that are there, their sum and their squared
               differences from the mean of all (moments); for medians, how many values are
               below thresholds that close in on it (moments over single rows); of categories,
               tables of how many rows have levels of a hash (moments, hashes)
first node     tells whoever asked for the fit the columns' fillings, means and deviations, the
               levels that have columns (hashes), and how many rows have another
=============  =============================================================================

What `prepare_rows` does with sums, nodes do with averages, each for itself: means over rows are
ratios of averages. Levels and medians need whole numbers that are exact: totals that have come
down a spanning tree, to the last bit the same at every node. By gossip an average is off by 1e-12
of it, and a hash of a level by as much is another, so that there they are refused.

Above the usual length: as `prepare_rows`, it is three preparations that end in one rule, each with
messages of its own kind on their way through the graph.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, ClassVar

import numpy as np

from eigenmesh.errors import InputError, MessageRefused
from eigenmesh.graphs.consensus import (
    MixingParty,
    MixingSetup,
    Mixture,
    NodeTotal,
    average,
    enlist_left,
    graph_in,
    mixing_on,
    mixing_rounds,
    node_total,
    require_graph,
)
from eigenmesh.graphs.tree_rounds import along_tree, tree_rounds
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.level_tables import BUCKETS, TURNS, LevelSums
from eigenmesh.numerics.medians import THRESHOLDS, MedianSearch
from eigenmesh.numerics.medians import TURNS as MEDIAN_TURNS
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Integers, Message, NonNegative, Reveals, Shape
from eigenmesh.runtime.party import Worth, step
from eigenmesh.runtime.prepared import FIELDS, store_key
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import (
    Node,
    Own,
    Scope,
    ask,
    at_most,
    columns,
    loop,
    sequence,
    times,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.runtime.topology import TREE, averaging_on
from eigenmesh.stages.prepare_rows import (
    NO_LEVELS,
    ROUNDING,
    USUAL_TURNS,
    ColumnFacts,
    ColumnMeans,
    KnownLevels,
    LevelFacts,
    PrepareSetup,
    RowPreparer,
    Thresholds,
    conclude,
    filled_means,
    require_share,
    too_many_levels,
    values_behind,
)
from eigenmesh.stages.row_preparation import RowPreparation

# By gossip a mean is off by 1e-12 of the largest of its column's sums.
_ROUNDING_OF_AVERAGES = 1e-8  # of a mean: a deviation that may be rounding
_MOST_WHOLE = 2.0**53  # up to which floats hold whole numbers
_PART = 1 << 24  # checks have 31 bits, which in one sum would pass that in 4 million rows


class GraphPrepareSetup(MixingSetup, reveals=None):
    """What is to be done, as in a `PrepareSetup`, and how nodes average."""

    log: str
    categories: str
    standardize: bool
    fill_missing: float | None
    fill_with: str
    min_rows: int
    averaging: str


class CountMixture(Mixture, reveals="moments", covers=1):
    """How many values are no larger than thresholds, which close in on one that is there."""


class LevelMixture(Mixture, reveals="moments"):
    """Rows by hash of their level, with sums by which a level is known."""

    value: Annotated[Floats, Reveals("hashes"), Shape("n")]


class CrowdedPlaces(Message, reveals="counts"):
    """In how many places of the tables levels met, and the most levels that are known of a column.

    All nodes have the same totals, and so say the same.
    """

    n_crowded: Annotated[int, NonNegative]
    n_levels: Annotated[int, NonNegative]


class CommonFacts(Message, reveals="moments", covers="joint"):
    """What is known of all columns of numbers."""

    n_rows: Annotated[float, Reveals("counts"), NonNegative]
    n_sparse: Annotated[float, Reveals("counts"), NonNegative]
    missing: Annotated[Floats, Shape("d")]
    fill: Annotated[Floats, Shape("d")]
    mean: Annotated[Floats, Shape("d")]
    deviation: Annotated[Floats, Shape("d"), NonNegative]


class CommonLevels(Message, reveals="moments", covers="joint"):
    """What is known of all categories; levels of few rows as one."""

    columns: Annotated[Integers, Reveals("hashes"), Shape("k"), NonNegative]
    keys: Annotated[Integers, Reveals("hashes"), Shape("k")]
    counts: Annotated[Integers, Shape("k"), NonNegative]


_PARTS_OF_TABLE = 5  # counts, low, high, and checks in two


def _values_behind(node: Any, reply: Any) -> Worth:
    return values_behind(node.preparer, reply)


def _rows_behind(node: Any, reply: Any) -> Worth:
    """The fewest rows of a level that the node itself tells."""
    counts = node.mixing["own"].reshape(_PARTS_OF_TABLE, -1)[0]
    return Worth(covers=int(counts[counts > 0].min(initial=node.site.shape[0])))


class PreparingNode(MixingParty):
    """Holds rows, and ends with what all rows are prepared by."""

    Setup: ClassVar[type[Message]] = GraphPrepareSetup
    state = (*MixingParty.state, "middle", "n_values", "bounds", "squares", "levels", "turn")

    def __init__(self, site: SiteView, setup: GraphPrepareSetup) -> None:
        super().__init__(site, setup)
        self.agreed = _of_rows(setup)
        self.preparer = RowPreparer(site, self.agreed)
        self.middle = np.zeros(0)  # the first average: rows, sparse nodes, values present, sums
        self.n_values = np.zeros(0)  # of every column, at all nodes; where medians are looked for
        self.bounds = MedianSearch(self.n_values).bounds  # between which they are
        self.squares = np.zeros(0)
        self.levels: dict[str, Any] = NO_LEVELS._asdict()
        self.turn = 0

    # 1. Sums.

    @step(reusable=False)
    def begin_sums(self) -> None:
        """Average what the means follow from."""
        own = self.preparer.sums()
        self.start_mixing(np.concatenate([[own.n_rows, own.n_sparse], own.n_present, own.sums]))

    @step(cumulative=True, worth=_values_behind)
    def offer_mixture(self) -> Mixture:
        """Sums over values; a column of few values is as few rows."""
        return Mixture(**self.mixture_fields())

    # 2. Medians, if they are asked for.

    @step(reusable=False)
    def begin_counts(self) -> None:
        """Count values below thresholds that close in on the middle of every column."""
        self._end_average()
        cuts = MedianSearch(self.n_values, self.bounds).thresholds()
        self.start_mixing(self.preparer.count_below(Thresholds(values=cuts)).n_below)

    @step(cumulative=True)
    def offer_counts(self) -> CountMixture:
        """How many there are, at the nodes below or at all."""
        return CountMixture(**self.mixture_fields())

    @step
    def take_counts(self, received: dict[int, CountMixture]) -> None:
        """Of the children, or of all."""
        self.mix(received)

    def _end_average(self) -> None:
        """Take up what was summed last: of the columns, or below thresholds."""
        if not self.middle.size:
            self.middle = self.mixture
            if self.agreed.fill_with == "median":
                _, _, present, _ = _parts_of(self.tree_total)
                self.n_values = _whole(present)
                self.bounds = MedianSearch(self.n_values).bounds
        elif self.agreed.fill_with == "median":
            search = MedianSearch(self.n_values, self.bounds)
            search.narrow(_whole(self.tree_total))
            self.bounds = search.bounds

    # 3. Squared differences.

    @step(reusable=False)
    def begin_squares(self) -> None:
        """Average squared differences from the mean of all."""
        self._end_average()
        n, _, present, sums = _parts_of(self.middle)
        means = ColumnMeans(means=filled_means(n, present, sums, self._fill()))
        self.start_mixing(self.preparer.squares(means).squares)

    def _fill(self) -> Doubles:
        """What fills gaps."""
        if self.agreed.fill_with == "median":
            return MedianSearch(self.n_values, self.bounds).values()
        _, _, present, sums = _parts_of(self.middle)
        return np.asarray(sums / np.where(present > 0, present, 1.0))

    # 4. Levels, if there are any.

    @step(reusable=False)
    def begin_levels(self) -> None:
        """Deal the levels that are not known yet into a table."""
        if self.turn == 0:
            self.squares = self.mixture
        before = KnownLevels(self.turn, self.levels["columns"], self.levels["keys"])
        own = self.preparer.level_table(before)
        checks = np.divmod(own.checks, _PART)
        self.start_mixing(np.array([own.counts, own.low, own.high, *checks]))

    @step(cumulative=True, worth=_rows_behind)
    def offer_levels(self) -> LevelMixture:
        """The table, of the nodes below or of all."""
        return LevelMixture(**self.mixture_fields())

    @step
    def take_levels(self, received: dict[int, LevelMixture]) -> None:
        """Of the children, or of all."""
        self.mix(received)

    @step(reusable=False)
    def end_levels(self) -> CrowdedPlaces:
        """Take up which levels lie alone."""
        counts, low, high, times_part, rest = _whole(self.tree_total)
        table = LevelSums(counts, low, high, times_part * _PART + rest)
        facts = LevelFacts(**self.levels)
        levels, n_crowded = facts.with_table(self.agreed.level_columns, table)
        self.levels, self.turn = levels._asdict(), self.turn + 1
        return CrowdedPlaces(n_crowded=n_crowded, n_levels=levels.n_most)

    # 5. The end.

    @step(reusable=False)
    def take_average(self, whole: NodeTotal) -> None:
        """From here on runs of this fit see the rows prepared."""
        levels = LevelFacts(**self.levels)
        rule = conclude(self.agreed, self._facts(whole.n_nodes), levels, _rounding(self.setup)).rule
        self.site.keep(store_key(self.agreed.name), {name: getattr(rule, name) for name in FIELDS})

    @step
    def tell_facts(self, whole: NodeTotal) -> CommonFacts:
        """What all nodes know, for whoever scores new rows."""
        facts = self._facts(whole.n_nodes)
        return CommonFacts(
            n_rows=float(facts.n_rows),
            n_sparse=float(facts.sparse),
            missing=facts.missing,
            fill=facts.fill,
            mean=facts.mean,
            deviation=facts.deviation,
        )

    @step
    def tell_levels(self, _: NodeTotal) -> CommonLevels:
        """The levels that have columns, and how many rows have another."""
        levels, agreed = LevelFacts(**self.levels), self.agreed
        return CommonLevels(**levels.without_rare(agreed.level_columns, agreed.min_rows)._asdict())

    def _facts(self, n_nodes: int) -> ColumnFacts:
        n, sparse, present, sums = _parts_of(self.middle)
        n_rows, n_present = round(n_nodes * n), np.round(n_nodes * present)
        require_share(np.maximum(n_rows - n_present, 0.0) / n_rows, self.agreed.fill_missing)
        fill = self._fill()
        mean = filled_means(n, present, sums, fill)
        squares = n_nodes * (self.squares if self.turn else self.mixture)
        return ColumnFacts.of(n_rows, n_present, fill, mean, squares, n_nodes * sparse > 0.5)


def _parts_of(sums: Doubles) -> tuple[float, float, Doubles, Doubles]:
    """Rows, nodes with sparse ones, and of every column values present and their sum."""
    d = (len(sums) - 2) // 2
    return float(sums[0]), float(sums[1]), sums[2 : 2 + d], sums[2 + d :]


def _whole(sums: Doubles) -> Any:
    """Sums of whole numbers, which are exact."""
    if np.any(sums != np.rint(sums)) or np.max(np.abs(sums), initial=0.0) > _MOST_WHOLE:
        raise MessageRefused(
            "a sum of whole numbers over all nodes is none, or is above 2^53, up to which it would "
            "be exact: what a node sent is wrong, or there are too many rows to count levels of"
        )
    return sums.astype(np.int64)


def _rounding(setup: Any) -> float:
    return ROUNDING if setup.averaging == TREE else _ROUNDING_OF_AVERAGES


_AGREED = tuple(own.name for own in fields(PrepareSetup))


def _of_rows(setup: Any) -> PrepareSetup:
    return PrepareSetup(**{name: getattr(setup, name) for name in _AGREED})


def _agreed(setup: PrepareSetup, graph: Any) -> GraphPrepareSetup:
    how = {name: getattr(setup, name) for name in _AGREED}
    return GraphPrepareSetup(**mixing_on(graph), **how, averaging=averaging_on(graph))


# Whoever runs it.


def _require_exact(scope: Scope, setup: PrepareSetup) -> None:
    """Raise unless averages are exact, where they have to be."""
    if scope.gossips and (setup.categories or setup.fill_with == "median"):
        what = "categories are" if setup.categories else "a median is"
        raise InputError(
            f"averaging is {scope.averaging!r}, and on a graph {what} counted by sums that are "
            f"exact; pass averaging='tree', or fill with means and encode categories at the nodes"
        )


def schedule(scope: Scope, setup: PrepareSetup) -> Node:
    """Two averages, between and after them what is counted, and what every node makes of them."""
    _require_exact(scope, setup)
    node, n = PreparingNode, len(setup.level_columns)
    levels = at_most(n * (BUCKETS * TURNS + 1), planned=0)
    return sequence(
        enlist_left(scope, node, _agreed(setup, graph_in(scope))),
        ask(node.begin_sums),
        mixing_rounds(scope, node, lambda own: 2 + 2 * own.columns),
        _median_rounds(scope) if setup.fill_with == "median" else None,
        ask(node.begin_squares),
        mixing_rounds(scope, node, columns),
        _level_rounds(scope, n) if n else None,
        ask(node.take_average, down=node_total(scope)),
        ask(node.tell_facts, down=node_total(scope), up={"d": columns}, missable=True),
        ask(node.tell_levels, down=node_total(scope), up={"k": levels}, missable=True)
        if n
        else None,
    )


def _n_counts(own: Own) -> int:
    return 2 * THRESHOLDS * own.columns


def _median_rounds(scope: Scope) -> Node:
    node = PreparingNode
    counts = tree_rounds(scope, node.offer_counts, node.take_counts, n=_n_counts)
    return times(MEDIAN_TURNS, ask(node.begin_counts), counts)


def _level_rounds(scope: Scope, n_columns: int) -> Node:
    node, size = PreparingNode, _PARTS_OF_TABLE * n_columns * BUCKETS
    tables = tree_rounds(scope, node.offer_levels, node.take_levels, n=size)
    turn = (ask(node.begin_levels), tables, ask(node.end_levels))
    return loop(TURNS, *turn, fewest=1, usual=USUAL_TURNS)


@protocol("prepare-rows-on-graph", roles=(PreparingNode,), schedule=schedule, begins_anew=True)
def prepare_rows_on_graph(nodes: Federation, setup: PrepareSetup) -> RowPreparation:
    """Every node learns how all rows are prepared."""
    _require_exact(nodes.scope, setup)
    node, agreed = PreparingNode, _agreed(setup, require_graph(nodes))
    nodes.enlist(node, agreed)
    nodes.ask(node.begin_sums)
    average(nodes, node)
    for _ in range(MEDIAN_TURNS if setup.fill_with == "median" else 0):
        nodes.ask(node.begin_counts)
        along_tree(nodes, node.offer_counts, node.take_counts)
    nodes.ask(node.begin_squares)
    average(nodes, node)
    if setup.level_columns:
        _count_levels(nodes)
    whole = NodeTotal(n_nodes=len(nodes.parties))
    nodes.ask(node.take_average, whole)
    first = nodes.parties[0]
    reply = nodes.ask(node.tell_facts, each={first: whole})[0]
    facts = ColumnFacts(
        round(reply.n_rows),
        reply.fill,
        reply.mean,
        reply.deviation,
        reply.missing,
        reply.n_sparse > 0.5,
    )
    levels = NO_LEVELS
    if setup.level_columns:
        common = nodes.ask(node.tell_levels, each={first: whole})[0]
        levels = LevelFacts(common.columns, common.keys, common.counts)
    return conclude(setup, facts, levels, _rounding(agreed))


def _count_levels(nodes: Federation) -> None:
    """By tables, until all levels lie apart in one."""
    node = PreparingNode
    for _ in range(TURNS):
        nodes.ask(node.begin_levels)
        along_tree(nodes, node.offer_levels, node.take_levels)
        reply = nodes.ask(node.end_levels)[0]
        if not reply.n_crowded:
            return
    raise too_many_levels(reply.n_levels)
