"""What vertical federated PCA will send, from the graph and the parties' sizes alone."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from eigenmesh.graphs.graph_forecast import GraphForecast
from eigenmesh.methods.vfed.graph import PeerHolder
from eigenmesh.runtime.ledger import Ledger, forecast_entry

Shapes = Sequence[tuple[int, int]]


def peers_forecast(
    names: Sequence[str], shapes: Shapes, graph: nx.Graph, k: int, n_rounds: int
) -> Ledger:
    """`vfed_peers`, if all products are run: a bound, since it stops when residuals are small.

    Every product costs the same, so what a run of fewer will send is known as well.
    """
    n = shapes[0][0]
    width = n * min(k, n)
    known = GraphForecast(names, [n for n, _ in shapes], 0, graph)
    known.told(PeerHolder.introduce, [0] * len(names))
    known.asked(2 * n_rounds)  # propose, multiply
    known.to_neighbours(PeerHolder.offer_peak, width + 1, n_rounds * known.across)
    known.to_neighbours(PeerHolder.offer_peak, width, known.across)
    known.settled(PeerHolder, width + 1, n_rounds)
    known.told(PeerHolder.look, [0] * len(names), n_rounds)
    known.asked()  # propose_scores
    known.asked()  # keep_loadings
    for name in names:
        bounds = 2 * min(k, n)
        entry = forecast_entry(PeerHolder.keep_loadings, name, width + bounds)
        kinds = {**entry.kinds, "scores": width, "moments": bounds}
        known.ledger.entries.append(entry._replace(kinds=kinds))
    return known.ledger
