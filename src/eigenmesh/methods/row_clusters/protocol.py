"""Rows as they are become the points of `stages/distributed_kmeans.py`, which says the rest.

Balcan, Ehrlich and Liang, "Distributed k-means and k-median clustering on general topologies",
NeurIPS 2013 ("coreset"), and its relatives there.

===================  ==========================================================================
party keeps          its rows, and their labels
party reveals        how many rows it holds (counts); where the clustering that follows lets out
                     single points, that these are rows: a policy that keeps rows refuses here
coordinator learns   these, and what distributed k-means tells
===================  ==========================================================================
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from eigenmesh.numerics.arrays import as_rows, dense
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Message, Reveals
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Node, Scope, ask, enlist, sequence
from eigenmesh.stages.row_messages import RowCount, count


class RowPointSetup(Message, reveals=None):
    """Under which key of its own store a site keeps its rows as points."""

    points: str


class OpenRowCount(RowCount, reveals="counts"):
    """How many rows there are; single ones may leave as the points of what comes next."""

    may_leave: Annotated[bool, Reveals("rows")]


class RowPoints(Party):
    """Holds rows."""

    Setup = RowPointSetup

    @step
    def keep_rows(self) -> RowCount:
        """Points for whoever tells no single one of them."""
        self._keep()
        return count(self.site)

    @step
    def open_rows(self) -> OpenRowCount:
        """Points of which single ones may leave."""
        self._keep()
        return OpenRowCount(**vars(count(self.site)), may_leave=True)

    def _keep(self) -> None:
        points = dense(as_rows(self.site.data, np.float64))
        self.site.keep(self.setup.points, {"points": points})


def schedule(scope: Scope, setup: RowPointSetup, may_leave: bool) -> Node:
    """One question."""
    question = RowPoints.open_rows if may_leave else RowPoints.keep_rows
    return sequence(enlist(RowPoints, setup), ask(question))


@protocol("row-points", roles=(RowPoints,), schedule=schedule)
def row_points(rows: Federation, setup: RowPointSetup, may_leave: bool) -> tuple[int, int]:
    """How many columns rows have, and what shipping them would take."""
    rows.enlist(RowPoints, setup)
    sizes = rows.ask(RowPoints.open_rows if may_leave else RowPoints.keep_rows)
    return sizes[0].n_columns, sum(size.n_values for size in sizes)
