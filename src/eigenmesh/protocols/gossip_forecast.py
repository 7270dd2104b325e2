"""What kernel PCA by gossip will send, from the graph and the nodes' sizes alone."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from eigenmesh.federation.ledger import Ledger
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.protocols.consensus import mixes_on
from eigenmesh.protocols.gossip_kpca import MIXED, GossipNode, GossipSetup
from eigenmesh.protocols.graph_forecast import GraphForecast
from eigenmesh.protocols.shared_centroids import MIN_CLUSTER


def forecast_gossip(
    ledger: Ledger,
    names: Sequence[str],
    shapes: Sequence[tuple[int, int]],
    graph: nx.Graph,
    setup: GossipSetup,
    n_rounds: int,
    n_mixes: int | None,
    watched: bool,
) -> None:
    """`gossip_kpca`, if it does not stop early and the centroids are independent of each other."""
    known = GraphForecast(names, [n for n, _ in shapes], shapes[0][1], graph, ledger)
    node, zeros = GossipNode, [0] * len(names)
    known.told(node.count_rows, zeros)
    width = _width(known, setup)
    s = min(setup.n_components + 1, width)
    if setup.features == "centroids":
        known.asked()
        known.spread(node.offer_centroids, _centroids(known, setup))
    known.asked(2)  # begin_mean, begin_tracking
    known.to_neighbours(node.offer_mixture, width + 1, known.mixes)
    mixes = n_rounds * (n_mixes or mixes_on(graph, MIXED))
    known.to_neighbours(node.offer_mixture, width * s, mixes)
    known.asked(n_rounds)  # turn
    if watched:
        known.to_neighbours(node.offer_peak, 1, n_rounds * known.across)
        known.told(node.tell_moved, zeros, n_rounds)
    known.asked(2)  # begin_agreement, begin_variances
    known.to_neighbours(node.offer_mixture, width * s, known.mixes)
    known.to_neighbours(node.offer_mixture, s * s + 2, known.mixes)
    known.told(node.finish, [setup.n_components] * len(names))


def _centroids(known: GraphForecast, setup: GossipSetup) -> list[int]:
    return [min(setup.n_centroids, n // MIN_CLUSTER) for n in known.sizes]


def _width(known: GraphForecast, setup: GossipSetup) -> int:
    if setup.features != "random":
        landmarks = known.sizes[0] if len(known.names) == 1 else sum(_centroids(known, setup))
        return min(landmarks, known.width) if setup.kernel in ("linear", "cosine") else landmarks
    return embedded_width(setup.kernel, known.width, setup.n_features)
