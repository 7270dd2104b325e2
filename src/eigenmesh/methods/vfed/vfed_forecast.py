"""What vertical federated PCA will send, from the graph and the parties' sizes alone."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from eigenmesh.graphs.graph_forecast import GraphForecast
from eigenmesh.methods.vfed.graph import PeerHolder
from eigenmesh.methods.vfed.paper_party import PowerHolder
from eigenmesh.runtime.ledger import Entry, Ledger, forecast_entry, forecast_message

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


def paper_forecast(
    names: Sequence[str],
    shapes: Shapes,
    graph: nx.Graph | None,
    k: int,
    n_rounds: int,
    isolated: bool,
) -> Ledger:
    """`vfed_paper`, to the float."""
    if isolated:
        rounds = 2 * k + 2  # work_alone and next_component, introduce and tell_vectors
        return Ledger.of([*_introduced(names), *_told(names, shapes, k, 0)], rounds=rounds)
    if graph is None:
        entries = [*_introduced(names), *_with_coordinator(names, shapes, k, n_rounds)]
        return Ledger.of(entries, rounds=k * n_rounds + 2)
    known = GraphForecast(names, [n for n, _ in shapes], 0, graph)
    known.ledger.entries += _introduced(names)
    known.to_neighbours(PowerHolder.offer_pair, shapes[0][0], k * n_rounds)
    known.ledger.entries += _told(names, shapes, k, k * n_rounds)
    known.asked(k + 2)  # next_component, introduce and tell_vectors
    return known.ledger


def _introduced(names: Sequence[str]) -> list[Entry]:
    return [forecast_entry(PowerHolder.introduce, name, 0) for name in names]


def _with_coordinator(names: Sequence[str], shapes: Shapes, k: int, n_rounds: int) -> list[Entry]:
    """Up and down k vectors a round, and the variances in the end."""
    entries = []
    for name, (n, _) in zip(names, shapes, strict=True):
        entries.append(forecast_entry(PowerHolder.local_pair, name, n))
        for _ in range(k * n_rounds - 1):
            entries.append(forecast_message(PowerHolder.next_pair, name, n))
            entries.append(forecast_entry(PowerHolder.next_pair, name, n))
        entries.append(forecast_message(PowerHolder.finish, name, n))
        entries.append(forecast_entry(PowerHolder.finish, name, k))
    return entries


def _told(names: Sequence[str], shapes: Shapes, k: int, moved: int) -> list[Entry]:
    """Every node's vectors, with the variances and the moves, which are moments."""
    entries = []
    for name, (n, _) in zip(names, shapes, strict=True):
        entry = forecast_entry(PowerHolder.tell_vectors, name, n * k + k + moved)
        kinds = {**entry.kinds, "eigenvectors": n * k, "moments": k + moved}
        entries.append(entry._replace(kinds=kinds))
    return entries
