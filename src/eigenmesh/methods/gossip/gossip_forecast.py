"""What kernel PCA by gossip will send, from the graph and the nodes' sizes alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import networkx as nx

from eigenmesh.graphs.consensus import mixes_on
from eigenmesh.graphs.graph_forecast import GraphForecast
from eigenmesh.methods.gossip.protocol import (
    MIXED,
    PROBED,
    GossipNode,
    GossipSetup,
    Wanted,
    centroids_given,
    features_for,
    fills_all,
    probe_budget,
)
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.numerics.shortfall import probed
from eigenmesh.runtime.ledger import Ledger


def forecast_gossip(
    ledger: Ledger,
    names: Sequence[str],
    shapes: Sequence[tuple[int, int]],
    graph: nx.Graph,
    setup: GossipSetup,
    wanted: Wanted,
) -> None:
    """`gossip_kpca`, if it does not stop early and the centroids are independent of each other.

    Also, with an accuracy, if the first features are enough.
    """
    setup = dataclasses.replace(setup, features=features_for(setup, wanted, [n for n, _ in shapes]))
    n_rounds, k = wanted.n_rounds, setup.n_components
    known = GraphForecast(names, [n for n, _ in shapes], shapes[0][1], graph, ledger)
    node, zeros = GossipNode, [0] * len(names)
    known.told(node.count_rows, zeros)
    width = _width(known, setup, wanted)
    s = min(k + 1, width)
    known.asked()  # begin_features
    if setup.features == "centroids":
        known.spread(node.offer_centroids, _centroids(known, wanted))
    known.asked(2)  # begin_mean, begin_tracking
    known.to_neighbours(node.offer_mixture, width + 1, known.mixes)
    mixes = n_rounds * (wanted.n_mixes or mixes_on(graph, MIXED))
    known.to_neighbours(node.offer_mixture, width * s, mixes)
    known.asked(n_rounds)  # turn
    if wanted.tolerance is not None:
        known.to_neighbours(node.offer_peak, 1, n_rounds * known.across)
        known.told(node.tell_moved, zeros, n_rounds)
    known.asked(2)  # begin_agreement, begin_variances
    known.to_neighbours(node.offer_mixture, width * s, known.mixes)
    known.to_neighbours(node.offer_mixture, s * s + 3, known.mixes)
    known.told(node.finish, [k] * len(names))
    complete = fills_all(setup, width, known.width)
    if wanted.accuracy is not None and setup.features == "centroids" and not complete:
        _forecast_probes(known, wanted, width, k)


def _forecast_probes(known: GraphForecast, wanted: Wanted, width: int, k: int) -> None:
    node, mixes = GossipNode, mixes_on(known.graph, PROBED)
    which, t = probed(k, 0, probe_budget(known.graph, wanted, width, k))
    p = len(which)
    known.asked(2)  # begin_probes, begin_level
    known.to_neighbours(node.offer_mixture, p * t + t + p + 2, mixes)
    known.to_neighbours(node.offer_mixture, t, mixes)
    known.told(node.tell_missing, [2 * k] * len(known.names))


def _centroids(known: GraphForecast, wanted: Wanted) -> list[int]:
    asked = -(-wanted.n_features // len(known.names))
    return [centroids_given(n, asked) for n in known.sizes]


def _width(known: GraphForecast, setup: GossipSetup, wanted: Wanted) -> int:
    if setup.features != "random":
        landmarks = known.sizes[0] if len(known.names) == 1 else sum(_centroids(known, wanted))
        return min(landmarks, known.width) if setup.kernel in ("linear", "cosine") else landmarks
    return embedded_width(setup.kernel, known.width, wanted.n_features)
