"""Rows prepared as the pooled rows would be, where there is no coordinator: by averages.

=============  =============================================================================
node keeps     its rows, though its neighbours see its sums in the first mix
node reveals   to its neighbours: rows; of every column the values that are there, their sum
               and their squared differences from the mean of all (moments)
first node     tells whoever asked for the fit the columns' fillings, means and deviations
=============  =============================================================================

What `prepare_rows` does with sums, nodes do with two averages, each for itself: means over rows are
ratios of averages. Levels and medians are not counted so: an average is off by 1e-12 of it, and a
hash of a level by as much is another.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.graphs.consensus import (
    MixingParty,
    MixingSetup,
    NodeTotal,
    average,
    enlist_left,
    graph_in,
    mixing_on,
    mixing_rounds,
    node_total,
    require_graph,
)
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, NonNegative, Reveals, Shape
from eigenmesh.runtime.party import step
from eigenmesh.runtime.prepared import FIELDS, store_key
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Node, Scope, ask, columns, sequence
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.prepare_rows import (
    ColumnFacts,
    ColumnMeans,
    PrepareSetup,
    RowPreparer,
    conclude,
    require_share,
)
from eigenmesh.stages.row_preparation import RowPreparation

# A mean that is an average is off by 1e-12 of the largest of its column's sums.
_CONSTANT = 1e-8  # of a mean: a deviation that may be rounding


class GraphPrepareSetup(MixingSetup, reveals=None):
    """What is to be done, as in a `PrepareSetup`."""

    log: str
    standardize: bool
    fill_missing: float | None


class CommonFacts(Message, reveals="moments", covers="joint"):
    """What is known of all columns."""

    n_rows: Annotated[float, Reveals("counts"), NonNegative]
    n_sparse: Annotated[float, Reveals("counts"), NonNegative]
    missing: Annotated[Floats, Shape("d")]
    mean: Annotated[Floats, Shape("d")]
    deviation: Annotated[Floats, Shape("d"), NonNegative]


class PreparingNode(MixingParty):
    """Holds rows, and ends with what all rows are prepared by."""

    Setup: ClassVar[type[Message]] = GraphPrepareSetup
    state = (*MixingParty.state, "middle")

    def __init__(self, site: SiteView, setup: GraphPrepareSetup) -> None:
        super().__init__(site, setup)
        self._own = RowPreparer(site, _of_rows(setup))
        self.middle = np.zeros(0)  # the first average: rows, sparse nodes, values present, sums

    @step(reusable=False)
    def begin_sums(self) -> None:
        """Average what the means follow from."""
        own = self._own.sums()
        self.start_mixing(np.concatenate([[own.n_rows, own.n_sparse], own.n_present, own.sums]))

    @step(reusable=False)
    def begin_squares(self) -> None:
        """Average squared differences from the mean of all."""
        self.middle = self.mixture
        means = ColumnMeans(means=self._means())
        self.start_mixing(self._own.squares(means).squares)

    @step(reusable=False)
    def take_average(self, whole: NodeTotal) -> None:
        """From here on runs of this fit see the rows prepared."""
        setup = _of_rows(self.setup)
        rule = conclude(setup, self._facts(whole.n_nodes), rounding=_CONSTANT).rule
        self.site.keep(store_key(setup.name), {name: getattr(rule, name) for name in FIELDS})

    @step
    def tell_facts(self, whole: NodeTotal) -> CommonFacts:
        """What all nodes know, for whoever scores new rows."""
        facts = self._facts(whole.n_nodes)
        return CommonFacts(
            n_rows=float(facts.n_rows),
            n_sparse=float(facts.sparse),
            missing=facts.missing,
            mean=facts.mean,
            deviation=facts.deviation,
        )

    def _means(self) -> Doubles:
        _, _, present, sums = self._middle()
        return np.asarray(sums / np.where(present > 0, present, 1.0))

    def _middle(self) -> tuple[float, float, Doubles, Doubles]:
        d = (len(self.middle) - 2) // 2
        n, sparse = self.middle[:2]
        return float(n), float(sparse), self.middle[2 : 2 + d], self.middle[2 + d :]

    def _facts(self, n_nodes: int) -> ColumnFacts:
        n, sparse, present, _ = self._middle()
        missing = np.maximum(np.round(n_nodes * (n - present)), 0.0)
        require_share(missing / (n_nodes * n), self.setup.fill_missing)
        mean, squares = self._means(), np.maximum(self.mixture, 0.0)
        deviation = np.sqrt(squares / n)
        n_rows, is_sparse = round(n_nodes * n), n_nodes * sparse > 0.5
        return ColumnFacts(n_rows, mean, mean, deviation, missing, is_sparse)


def _of_rows(setup: Any) -> PrepareSetup:
    how = {name: getattr(setup, name) for name in ("log", "standardize", "fill_missing")}
    return PrepareSetup(**how, categories="", fill_with="mean", min_rows=1)


def require_suits_graph(setup: PrepareSetup) -> None:
    """Raise unless averages are all that is needed."""
    if setup.categories or setup.fill_with != "mean":
        raise InputError(
            "categories and medians are counted by a coordinator, and the parties are on a graph; "
            "leave out topology, or fill with means and encode categories at the parties"
        )


def _agreed(setup: PrepareSetup, graph: Any) -> GraphPrepareSetup:
    how = {name: getattr(setup, name) for name in ("log", "standardize", "fill_missing")}
    return GraphPrepareSetup(**mixing_on(graph), **how)


def schedule(scope: Scope, setup: PrepareSetup) -> Node:
    """Two averages, and what every node makes of them."""
    node = PreparingNode
    return sequence(
        enlist_left(scope, node, _agreed(setup, graph_in(scope))),
        ask(node.begin_sums),
        mixing_rounds(scope, node, lambda own: 2 + 2 * own.columns),
        ask(node.begin_squares),
        mixing_rounds(scope, node, columns),
        ask(node.take_average, down=node_total(scope)),
        ask(node.tell_facts, down=node_total(scope), up={"d": columns}, missable=True),
    )


@protocol("prepare-rows-on-graph", roles=(PreparingNode,), schedule=schedule)
def prepare_rows_on_graph(nodes: Federation, setup: PrepareSetup) -> RowPreparation:
    """Every node learns how all rows are prepared."""
    require_suits_graph(setup)
    nodes.enlist(PreparingNode, _agreed(setup, require_graph(nodes)))
    for begin in (PreparingNode.begin_sums, PreparingNode.begin_squares):
        nodes.ask(begin)
        average(nodes, PreparingNode)
    whole = NodeTotal(n_nodes=len(nodes.parties))
    nodes.ask(PreparingNode.take_average, whole)
    reply = nodes.ask(PreparingNode.tell_facts, each={nodes.parties[0]: whole})[0]
    facts = ColumnFacts(
        round(reply.n_rows),
        reply.mean,
        reply.mean,
        reply.deviation,
        reply.missing,
        reply.n_sparse > 0.5,
    )
    return conclude(setup, facts, rounding=_CONSTANT)
