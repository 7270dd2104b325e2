"""What decentralised kernel PCA prepares: neighbours' rows, one origin in feature space for all.

=============  ===========================================================================
node keeps     its rows; in its site's store, the neighbours' rows and the origin
node reveals   to its neighbours: its rows (rows), and sums of kernel values on their way to an
               average (moments); to all nodes: means of at least MIN_CLUSTER rows each
               (centroids); all of it of rows with noise, if noise is asked for (`row_noise`)
=============  ===========================================================================

Kernel PCA measures from the mean of all rows in feature space, which nobody can compute; to centre
each node's block by its own mean goes wrong where nodes hold different classes. Here the nodes
share a few centroids Y, average k(x, Y) over all rows, and measure from the point of span φ(Y) that
is nearest to the mean. It is the same point everywhere, so all inner products are consistent. On
digits, with one centroid a node, the leading component keeps a cos² of 0.9999 with that about the
true mean. It is the mean itself for the linear kernel, for one node, and where everybody is
everybody's neighbour.

A little above the usual length: means, rows, receipts and the origin are one preparation, whose
steps, schedule and coordinator are read together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import networkx as nx
import numpy as np

from eigenmesh.graphs.consensus import MixingSetup, average, mixing_rounds
from eigenmesh.graphs.shared_centroids import CentroidNode, spread, spreading
from eigenmesh.methods.admm.maths import CentringOrigin, stack_rows
from eigenmesh.numerics.arrays import Doubles, Rows
from eigenmesh.numerics.centroids import MIN_CLUSTER, most_centroids
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Message, NonNegative, Positive
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import (
    Node,
    Own,
    Parties,
    Scope,
    ask,
    at_most,
    columns,
    enlist,
    exchange,
    rows,
    sequence,
    settle,
    times,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_messages import RowBlock, RowCount, count, pack, unpack
from eigenmesh.stages.row_noise import noisy_rows

STORE = "admm-kpca: rows of the neighbours, and the origin"
ATTEMPTS = 4  # to get rows across, where messages may be lost


class NeighbourhoodSetup(MixingSetup, reveals=None):
    """The kernel, how rows leave, and from where they are seen."""

    kernel: str
    gamma: float | None
    degree: float
    coef0: float
    row_noise: Annotated[float, NonNegative]
    origin: str  # "none", "rows" (all of them are known here) or "landmarks"
    n_centroids: Annotated[int, Positive]
    seed: int


class Receipt(Message, reveals=None):
    """Whether the receiver's rows have come."""

    came: bool


class RowNeighbour(CentroidNode):
    """Holds rows; ends with its neighbours' and the common origin in its store."""

    Setup = NeighbourhoodSetup
    state = (*CentroidNode.state, "sent_to")

    def __init__(self, site: SiteView, setup: NeighbourhoodSetup) -> None:
        super().__init__(site, setup)
        self.kernel = Kernel(setup.kernel, setup.gamma, setup.degree, setup.coef0)
        self.own_rows = noisy_rows(site, setup.row_noise)
        self.sent_to: list[int] = []
        site.keep(STORE, {"rows": {}, "origin": None})

    @step
    def count_rows(self) -> RowCount:
        """Rows and columns."""
        return count(self.site)

    # 1. The origin.

    @step(reusable=False)
    def begin_row_mean(self) -> None:
        """Average the rows: their mean is the one landmark."""
        X = self.own_rows
        sums = np.asarray(X.sum(axis=0, dtype=np.float64)).ravel()
        self.start_mixing(np.append(sums, X.shape[0]))

    @step(reusable=False)
    def adopt_row_mean(self) -> None:
        """The landmark."""
        self.shared = (self.mixture[:-1] / self.mixture[-1])[None]

    @step(reusable=False)
    def begin_centroids(self) -> None:
        """The own centroids."""
        self.start_sharing(self.own_rows, self.setup.n_centroids)

    @step(reusable=False)
    def begin_kernel_means(self) -> None:
        """Average the kernel values with the landmarks over all rows."""
        self.end_sharing()
        K = self.kernel.matrix(stack_rows([self.own_rows]), self.shared)
        self.start_mixing(np.append(K.sum(axis=0), len(K)))

    # 2. Rows.

    @step
    def offer_rows(self) -> dict[int, RowBlock]:
        """The own rows, to neighbours that have not said that they came."""
        rows = RowBlock(**pack(self.own_rows))
        nothing = RowBlock(**pack(self.site.data[:0]))
        return {n: nothing if n in self.sent_to else rows for n in self.site.neighbours}

    @step
    def take_rows(self, received: dict[int, RowBlock]) -> None:
        """Into the store: they are no part of what is exported after every round."""
        came = {n: unpack(message) for n, message in received.items()}
        share: Any = self.site.kept(STORE, "rows")
        rows = {**share["rows"], **{n: X for n, X in came.items() if X.shape[0]}}
        self.site.keep(STORE, {**share, "rows": rows})

    @step
    def offer_receipts(self) -> dict[int, Receipt]:
        """Which neighbours' rows have come."""
        share: Any = self.site.kept(STORE, "rows")
        return {n: Receipt(came=n in share["rows"]) for n in self.site.neighbours}

    @step
    def take_receipts(self, received: dict[int, Receipt]) -> None:
        """Rows that came need not be sent again."""
        self.sent_to = sorted({*self.sent_to, *(n for n, r in received.items() if r.came)})

    @step(reusable=False)
    def settle_origin(self) -> None:
        """Into the store, with the own rows as the neighbours have them.

        If a node used its own rows without the noise, its neighbours' picture of them would never
        agree with its own, and the multipliers would grow for ever.
        """
        share: Any = self.site.kept(STORE, "rows")
        rows = {**share["rows"], self.site.index: self.own_rows}
        self.site.keep(STORE, {"rows": rows, "origin": self._origin(rows)})

    def _origin(self, rows: dict[int, Rows]) -> CentringOrigin:
        if self.setup.origin == "rows":
            points = stack_rows([rows[n] for n in sorted(rows)])
            return CentringOrigin(
                self.kernel, points, np.full(points.shape[0], 1.0 / points.shape[0])
            )
        if self.setup.origin == "landmarks" and self.setup.kernel == "linear":
            return CentringOrigin(self.kernel, self.shared, np.ones(1))
        if self.setup.origin == "landmarks":
            means: Doubles = self.mixture[:-1] / self.mixture[-1]
            return CentringOrigin.nearest_to_mean(self.kernel, self.shared, means)
        nowhere = np.zeros((0, self.site.data.shape[1]))
        return CentringOrigin(self.kernel, nowhere, np.zeros(0))


def origin_for(graph: nx.Graph, center: bool) -> str:
    """How the origin is found on this graph."""
    n = graph.number_of_nodes()
    everybody_knows_all = graph.number_of_edges() == n * (n - 1) // 2
    if not center:
        return "none"
    return "rows" if everybody_knows_all else "landmarks"


def by_row_mean(setup: NeighbourhoodSetup, n_rows: list[int]) -> bool:
    """Whether the mean row is the landmark: it is exact, or nobody has rows for a centroid."""
    return setup.kernel == "linear" or max(n_rows) < MIN_CLUSTER


def schedule(scope: Scope, setup: NeighbourhoodSetup) -> Node:
    """Landmarks of the origin, if it needs any; then rows, again where they may be lost."""
    node = RowNeighbour
    sent = exchange(node.offer_rows, node.take_rows, n=at_most(rows), n_columns=columns)
    again = sequence(
        exchange(node.offer_receipts, node.take_receipts),
        exchange(node.offer_rows, node.take_rows, n=at_most(rows, planned=0), n_columns=columns),
    )
    return sequence(
        enlist(node, setup),
        ask(node.count_rows),
        _by_landmarks(
            scope,
            setup,
            sequence(
                sent, times(ATTEMPTS - 1, again) if scope.lossy else None, ask(node.settle_origin)
            ),
        ),
    )


def _by_landmarks(scope: Scope, setup: NeighbourhoodSetup, rest: Node) -> Node:
    if setup.origin != "landmarks":
        return rest
    if setup.kernel == "linear":
        return sequence(_row_mean(scope), rest)
    n, most = scope.n_taking_part, setup.n_centroids

    def counted(parties: Parties) -> Mapping[str, int]:
        sizes = [n_rows for n_rows, _ in parties.shapes]
        return {"most_rows": max(sizes), "q": n_landmarks(setup, sizes)}

    def averaged(most_rows: int, q: int) -> Node:
        one = by_row_mean(setup, [most_rows])
        return sequence(
            _row_mean(scope) if one else _centroids(scope, setup, q),
            ask(RowNeighbour.begin_kernel_means),
            mixing_rounds(scope, RowNeighbour, at_most(q + 1)),
            rest,
        )

    def accepts(own: Own, most_rows: int, q: int) -> bool:
        return own.rows <= most_rows and 0 < q <= n * most

    return settle(counted, averaged, accepts, most_rows=10**9, q=n * most)


def _row_mean(scope: Scope) -> Node:
    return sequence(
        ask(RowNeighbour.begin_row_mean),
        mixing_rounds(scope, RowNeighbour, lambda own: own.columns + 1),
        ask(RowNeighbour.adopt_row_mean),
    )


def _centroids(scope: Scope, setup: NeighbourhoodSetup, q: int) -> Node:
    def given(parties: Parties) -> list[int]:
        return [min(setup.n_centroids, most_centroids(n_rows)) for n_rows, _ in parties.shapes]

    return sequence(
        ask(RowNeighbour.begin_centroids), spreading(scope, RowNeighbour, given, q, columns)
    )


@protocol("admm-neighbourhood", roles=(RowNeighbour,), schedule=schedule)
def admm_neighbourhood(nodes: Federation, setup: NeighbourhoodSetup) -> int:
    """Fill every node's store; gives the numbers that shipping all rows would take."""
    nodes.enlist(RowNeighbour, setup)
    sizes = nodes.ask(RowNeighbour.count_rows)
    if setup.origin == "landmarks":
        _find_landmarks(nodes, setup, [size.n_rows for size in sizes])
    nodes.exchange(RowNeighbour.offer_rows, RowNeighbour.take_rows)
    for _ in range(ATTEMPTS - 1 if setup.lossy else 0):
        nodes.exchange(RowNeighbour.offer_receipts, RowNeighbour.take_receipts)
        nodes.exchange(RowNeighbour.offer_rows, RowNeighbour.take_rows)
    nodes.ask(RowNeighbour.settle_origin)
    return sum(size.n_values for size in sizes)


def n_landmarks(setup: NeighbourhoodSetup, n_rows: list[int]) -> int:
    """How many points the origin is made of."""
    if by_row_mean(setup, n_rows):
        return 1
    return sum(min(setup.n_centroids, most_centroids(n)) for n in n_rows)


def _find_landmarks(nodes: Federation, setup: NeighbourhoodSetup, n_rows: list[int]) -> None:
    if setup.kernel != "linear":
        nodes.settle(most_rows=max(n_rows), q=n_landmarks(setup, n_rows))
    if by_row_mean(setup, n_rows):
        nodes.ask(RowNeighbour.begin_row_mean)
        average(nodes, RowNeighbour)
        nodes.ask(RowNeighbour.adopt_row_mean)
    else:
        nodes.ask(RowNeighbour.begin_centroids)
        spread(nodes, RowNeighbour)
    if setup.kernel != "linear":
        nodes.ask(RowNeighbour.begin_kernel_means)
        average(nodes, RowNeighbour)
