"""gamma of the RBF kernel by rule on a graph: what `bandwidth` finds, without a coordinator.

=============  =============================================================================
node keeps     its rows or columns
node reveals   to its neighbours, on their way to averages, and by rule

               - "scale": number and sum of its entries, their deviation (moments)
               - "mean-distance": in a row split the sum of its rows, which of one row is that
                 row; how far rows are from the mean of all (moments)
               - "median": of columns, squared distances of up to 1000 pairs (distances); of
                 rows the moments above with counts of how often its own rows' distances of some
                 size go with sketches' of some, and to all nodes half the dimensions, 64 at
                 most, of about 500 rows of all (sketch)
=============  =============================================================================

The first node tells gamma to whoever runs the schedule. All that is averaged comes from rows with
noise where noise is asked for (`row_noise`).

Above the usual length: it has every rule of `bandwidth`, and for each what is averaged.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import networkx as nx
import numpy as np

from eigenmesh.graphs.consensus import (
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
from eigenmesh.graphs.shared_centroids import CentroidNode, SharedCentroids, spread, spreading
from eigenmesh.numerics.arrays import Doubles, raw_rows
from eigenmesh.numerics.gamma_rules import (
    Moments,
    entry_moments,
    gamma_mean_distance,
    gamma_median,
    gamma_scale,
    moments_of,
    pair_squared_distances,
    require_median,
    sample_pairs,
)
from eigenmesh.numerics.sketched_median import (
    SketchedMedian,
    Spread,
    compared_pairs,
    comparison_shape,
    sketch_basis,
    sketch_width,
    sketched_median,
    sketched_unit,
)
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Message, NonNegative, Positive
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Amount, Node, Parties, Scope, ask, at_most, sequence
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.count import ColumnSiteShape, RowSiteShape
from eigenmesh.stages.gamma import (
    MAX_PAIRS,
    MAX_SKETCHED_ROWS,
    Bandwidth,
    DrawRows,
    bandwidth,
    rows_drawn,
    shared_rng,
)
from eigenmesh.stages.prepare import prepared_columns
from eigenmesh.stages.row_noise import noisy_rows

_ROUNDING = 1e-9  # of all rows, below which a count is none


class GraphMeasureSetup(MixingSetup, reveals=None):
    """The rule, the shared seed, and what owners do to their data first."""

    rule: str
    split: str
    seed: Annotated[int, NonNegative]
    row_noise: Annotated[float, NonNegative]
    standardize: bool
    fill_missing: float | None


class PairMixture(Mixture, reveals="distances"):
    """Squared distances on their way to an average."""


class SharedSketches(SharedCentroids, reveals="sketch"):
    """Drawn rows, each as its coordinates in the fixed subspace, passed on."""


class GraphGamma(Message, reveals="moments"):
    """What the rule gives, and by how much its rank among all distances may be off."""

    gamma: Annotated[float, Positive]
    rank_error: Annotated[float, NonNegative]


class BandwidthNode(CentroidNode):
    """Holds rows or columns, and ends with what the rule needs of all."""

    Setup = GraphMeasureSetup
    state = (*CentroidNode.state, "middle")
    Shared = SharedSketches

    def __init__(self, site: SiteView, setup: GraphMeasureSetup) -> None:
        super().__init__(site, setup)
        prepares = setup.standardize or setup.fill_missing is not None
        columns = prepared_columns(site, setup)[1] if prepares else site.data
        self.data = noisy_rows(site, setup.row_noise) if setup.split == "rows" else columns
        self.middle = np.zeros(0)  # the first average: count, sum, and columns
        if (setup.rule, setup.split) == ("median", "rows"):
            self.shared = np.zeros((0, sketch_width(site.data.shape[1])))

    @step
    def count_rows(self) -> RowSiteShape:
        """Its size, where nodes hold rows."""
        n, d = self.data.shape
        return RowSiteShape(n_rows=int(n), n_columns=int(d))

    @step
    def count_columns(self) -> ColumnSiteShape:
        """Its size, where nodes hold columns."""
        n, d = self.data.shape
        return ColumnSiteShape(n_rows=int(n), n_columns=int(d))

    # Averages.

    @step(reusable=False)
    def begin_middle(self) -> None:
        """Average what the common mean follows from: of entries, or of rows."""
        if self.setup.rule == "scale":
            entries = entry_moments(self.data)
            sums = [entries.count, entries.count * entries.mean, self.data.shape[1]]
            self.start_mixing(np.array(sums))
        else:
            rows = moments_of(self.data)
            self.start_mixing(np.append(rows.count * rows.mean, rows.count))

    @step(reusable=False)
    def begin_deviation(self) -> None:
        """Average the squared deviation from it; of columns each is about its own mean."""
        if self.setup.rule == "scale":
            self.middle = self.mixture
            entries = entry_moments(self.data)
            apart = (entries.mean - self.middle[1] / self.middle[0]) ** 2
            self.start_mixing([entries.deviation + entries.count * apart])
            return
        own = moments_of(self.data)
        deviation = own.deviation
        if self.setup.split == "rows":
            self.middle = self.mixture
            mean = self.middle[:-1] / self.middle[-1]
            deviation += own.count * float(np.sum((own.mean - mean) ** 2))
        sketched = (self.setup.rule, self.setup.split) == ("median", "rows")
        self.start_mixing([deviation, *(self._own_pairs(own) if sketched else ())])

    def _own_pairs(self, own: Moments) -> list[float]:
        """What the other nodes are to know of pairs of the own rows."""
        unit = require_median(sketched_unit(self._sketches()[0]))
        table = compared_pairs(self.data, unit, self.site.private_generator(bandwidth.number, 1))
        return [own.count**2, own.count * own.deviation, *table.ravel()]

    def _sketches(self) -> tuple[Doubles, Any]:
        """Everybody's, and whose they are."""
        sketches = [self.centroids_of[owner] for owner in sorted(self.centroids_of, key=int)]
        owners = np.repeat(np.arange(len(sketches)), [len(own) for own in sketches])
        return np.vstack([self.shared, *sketches]), owners

    @step(reusable=False)
    def begin_pairs(self) -> None:
        """Average the squared distances of the pairs that the seed draws alike everywhere."""
        i, j = sample_pairs(self.data.shape[0], MAX_PAIRS, shared_rng(self.setup.seed))
        self.start_mixing(pair_squared_distances(self.data, i, j))

    # Sketches.

    @step(reusable=False)
    def begin_sketches(self, draw: DrawRows) -> None:
        """Half the dimensions of rows that the node draws itself, and nobody else knows."""
        n, d = self.data.shape
        rng = self.site.private_generator(bandwidth.number)
        rows = np.sort(rng.choice(n, min(draw.n_rows, n), replace=False))
        if len(rows):
            sketches = raw_rows(self.data)[rows].astype(float) @ sketch_basis(d)
            self.centroids_of = {str(self.site.index): sketches}

    @step(cumulative=True)
    def offer_sketches(self) -> dict[int, SharedSketches]:
        """Answers to the neighbours' questions, and the own questions."""
        return self.offers()

    @step
    def take_sketches(self, received: dict[int, SharedSketches]) -> None:
        """Keep what came."""
        self.take(received)

    # The end.

    @step(reusable=False)
    def tell_gamma(self, whole: NodeTotal) -> GraphGamma:
        """What the rule gives."""
        sums, n_nodes = self.mixture * whole.n_nodes, whole.n_nodes
        if (self.setup.rule, self.setup.split) != ("median", "rows"):
            return GraphGamma(gamma=self._gamma(sums, n_nodes), rank_error=0.0)
        median = self._median(sums, n_nodes)
        gamma = gamma_median(np.array([median.value]))
        return GraphGamma(gamma=gamma, rank_error=median.rank_error)

    def _gamma(self, sums: Doubles, n_nodes: int) -> float:
        n, d = self.data.shape
        by_rows = self.setup.split == "rows"
        if self.setup.rule == "scale":
            count, _, width = self.middle * n_nodes
            return gamma_scale(d if by_rows else round(width), float(sums[0] / count))
        if self.setup.rule == "median":
            return gamma_median(sums)
        n = round(self.middle[-1] * n_nodes) if by_rows else n
        return gamma_mean_distance(n, float(sums[0]))

    def _median(self, sums: Doubles, n_nodes: int) -> SketchedMedian:
        """Of rows, of which all nodes have sketches."""
        deviation, own_pairs, own_deviation = sums[:3]
        n = round(self.middle[-1] * n_nodes)
        spread = Spread.of(n, float(deviation), float(own_pairs), float(own_deviation))
        # Averages of counts that are 0 at all nodes may be rounding.
        table = np.where(sums[3:] > _ROUNDING * n, sums[3:], 0.0).reshape(comparison_shape())
        return sketched_median(*self._sketches(), table, spread, int(self.data.shape[1]))


class PairNode(BandwidthNode):
    """Of columns: what is averaged are distances."""

    @step(cumulative=True)
    def offer_mixture(self) -> PairMixture:
        """The running average of squared distances."""
        return PairMixture(**self.mixture_fields())

    @step
    def take_mixture(self, received: dict[int, PairMixture]) -> None:
        """One mix."""
        self.mix(received)


def role_for(rule: str, split: str) -> type[BandwidthNode]:
    """The role whose messages are of the kind that the rule needs."""
    return PairNode if (rule, split) == ("median", "columns") else BandwidthNode


def schedule(
    scope: Scope,
    rule: str,
    seed: int,
    row_noise: float,
    standardize: bool,
    fill_missing: float | None,
) -> Node:
    """Sizes, of rows for "median" their sketches, and one average or two."""
    node: Any = role_for(rule, scope.split)
    by_rows = scope.split == "rows"
    agreed = _agreed(graph_in(scope), scope.split, rule, seed, row_noise, standardize, fill_missing)
    return sequence(
        enlist_left(scope, node, agreed),
        ask(node.count_rows if by_rows else node.count_columns),
        _sketches(scope, node) if rule == "median" and by_rows else None,
        *_averages(scope, node, rule),
        ask(node.tell_gamma, down=node_total(scope), missable=True),  # of the first node alone
    )


def _sketches(scope: Scope, node: Any) -> Node:
    most, width = MAX_SKETCHED_ROWS, lambda own: sketch_width(own.columns)
    steps = (node.offer_sketches, node.take_sketches)
    return sequence(
        ask(node.begin_sketches, n_rows=at_most(lambda own: min(own.rows, most))),
        spreading(scope, node, _drawn, most, width, *steps),
    )


def _drawn(parties: Parties) -> list[int]:
    return rows_drawn([n_rows for n_rows, _ in parties.shapes])


def _averages(scope: Scope, node: Any, rule: str) -> list[Node]:
    def averaged(begin: Any, size: Amount) -> list[Node]:
        return [ask(begin), mixing_rounds(scope, node, size)]

    deviation = averaged(node.begin_deviation, 1)
    if rule == "scale":
        return averaged(node.begin_middle, 3) + deviation
    if scope.split == "rows":
        if rule == "median":
            deviation = averaged(node.begin_deviation, 3 + math.prod(comparison_shape()))
        return averaged(node.begin_middle, lambda own: own.columns + 1) + deviation
    pairs = averaged(node.begin_pairs, lambda own: min(own.rows * (own.rows - 1) // 2, MAX_PAIRS))
    return pairs if rule == "median" else deviation


def _agreed(
    graph: nx.Graph,
    split: str,
    rule: str,
    seed: int,
    row_noise: float,
    standardize: bool,
    fill_missing: float | None,
) -> GraphMeasureSetup:
    return GraphMeasureSetup(
        **mixing_on(graph),
        rule=rule,
        split=split,
        seed=seed,
        row_noise=row_noise,
        standardize=standardize,
        fill_missing=fill_missing,
    )


@protocol("graph-bandwidth", roles=(BandwidthNode, PairNode), schedule=schedule, begins_anew=True)
def graph_bandwidth(
    nodes: Federation,
    rule: str,
    seed: int,
    *,
    row_noise: float = 0.0,
    standardize: bool = False,
    fill_missing: float | None = None,
) -> Bandwidth:
    """The gamma of a rule: "scale", "mean-distance" or "median"."""
    node: Any = role_for(rule, nodes.split)
    how = (nodes.split, rule, seed, row_noise, standardize, fill_missing)
    nodes.enlist(node, _agreed(require_graph(nodes), *how))
    by_rows = nodes.split == "rows"
    sizes = nodes.ask(node.count_rows if by_rows else node.count_columns)
    if rule == "median" and by_rows:
        draws = rows_drawn([size.n_rows for size in sizes])
        each = {name: DrawRows(k) for name, k in zip(sizes.parties, draws, strict=True)}
        nodes.ask(node.begin_sketches, each=each)
        spread(nodes, node, node.offer_sketches, node.take_sketches)
    _average(nodes, node, rule)
    whole = NodeTotal(n_nodes=len(nodes.parties))
    reply = nodes.ask(node.tell_gamma, each={nodes.parties[0]: whole})[0]
    exact = (rule, nodes.split) != ("median", "rows")
    return Bandwidth(reply.gamma, f"{rule!r}, by averages of neighbours", exact, reply.rank_error)


def _average(nodes: Federation, node: Any, rule: str) -> None:
    if (rule, nodes.split) == ("median", "columns"):
        nodes.ask(node.begin_pairs)
        average(nodes, node)
        return
    if (rule, nodes.split) != ("mean-distance", "columns"):
        nodes.ask(node.begin_middle)
        average(nodes, node)
    nodes.ask(node.begin_deviation)
    average(nodes, node)
