"""What vertical federated PCA will send, from the graph and the parties' sizes alone."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from eigenmesh.methods.vfed.paper_party import PowerHolder
from eigenmesh.runtime.ledger import Entry, Ledger, forecast_entry, forecast_message

Shapes = Sequence[tuple[int, int]]


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
    offered = [
        forecast_entry(PowerHolder.offer_pair, name, graph.degree(i) * shapes[0][0] * k * n_rounds)
        for i, name in enumerate(names)
        if len(names) > 1
    ]
    entries = [*_introduced(names), *offered, *_told(names, shapes, k, k * n_rounds)]
    rounds = k * n_rounds + k + 2  # offer_pair; next_component, introduce and tell_vectors
    return Ledger.of(entries, rounds=rounds)


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
