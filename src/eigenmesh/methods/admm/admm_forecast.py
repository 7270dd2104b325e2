"""What decentralised kernel PCA will send, from the graph and the nodes' sizes alone."""

from __future__ import annotations

from eigenmesh.graphs.consensus import mixes_on
from eigenmesh.graphs.graph_forecast import GraphForecast
from eigenmesh.methods.admm.messages import AUTO, AdmmSetup
from eigenmesh.methods.admm.neighbourhood import (
    ATTEMPTS,
    NeighbourhoodSetup,
    RowNeighbour,
    by_row_mean,
)
from eigenmesh.methods.admm.protocol import VARIANCE_ACCURACY, AdmmPeer, repeats
from eigenmesh.numerics.centroids import MIN_CLUSTER


def forecast_neighbourhood(known: GraphForecast, setup: NeighbourhoodSetup) -> None:
    """`admm_neighbourhood`."""
    node = RowNeighbour
    known.told(node.count_rows, [0] * len(known.names))
    if setup.origin == "landmarks":
        _forecast_landmarks(known, setup)
    totals = [known.graph.degree(i) * known.sizes[i] * known.width for i in known.nodes]
    if len(known.names) > 1:
        known.told(node.offer_rows, totals)
    else:
        known.asked()
    if known.lossy:  # those that came are not sent again
        known.asked(2 * (ATTEMPTS - 1))
    known.asked()  # settle_origin


def _forecast_landmarks(known: GraphForecast, setup: NeighbourhoodSetup) -> None:
    landmarks = 1
    if by_row_mean(setup, list(known.sizes)):
        known.asked(2)
        known.to_neighbours(RowNeighbour.offer_mixture, known.width + 1, known.mixes)
    else:
        counts = [min(setup.n_centroids, n // MIN_CLUSTER) for n in known.sizes]
        landmarks = sum(counts)
        known.asked()
        known.spread(RowNeighbour.offer_centroids, counts)
    if setup.kernel != "linear":
        known.asked()
        known.to_neighbours(RowNeighbour.offer_mixture, landmarks + 1, known.mixes)


def forecast_admm(
    known: GraphForecast,
    setup: AdmmSetup,
    n_iterations: int,
    watched: bool,
    n_reference: int | None,
) -> None:
    """`admm_kpca`, if it does not stop early; `n_reference` rows are compared with, if any."""
    k, peer = setup.n_components, AdmmPeer
    zeros = [0] * len(known.names)
    if n_reference is not None:
        known.asked()
        known.broadcast(peer.take_reference, n_reference * (known.width + k))
        known.told(peer.tell_similarity, zeros)
    if setup.penalty == AUTO:
        known.to_neighbours(peer.offer_peak, 1, known.across)
        known.asked()
    if len(known.names) > 1:
        totals = [known.around(i) * k * _times_spoken(known, setup, i) for i in known.nodes]
        known.told(peer.offer_alignment, totals, known.across)
    for _ in range(n_iterations):
        _forecast_iteration(known, k)
        if n_reference is not None:
            known.told(peer.tell_similarity, zeros)
        if watched:
            known.asked()
            known.to_neighbours(peer.offer_peak, 1, known.across)
            known.told(peer.tell_change, zeros)
    known.asked()
    mixes = mixes_on(known.graph, VARIANCE_ACCURACY)
    known.to_neighbours(peer.offer_mixture, k * k + k + 4, mixes)
    known.told(peer.finish, [2 * k] * len(known.names))


def _times_spoken(known: GraphForecast, setup: AdmmSetup, node: int) -> int:
    """Rounds of the alignment in which a node gives the root's sign on, once it knows it."""
    left = known.across - known.distances[setup.root][node]
    return int(min(left, repeats(known.lossy)))


def _forecast_iteration(known: GraphForecast, k: int) -> None:
    """3·deg(j)·n·k floats a node where all have n rows."""
    if len(known.names) == 1:
        known.asked(2)
        return
    own = [2 * known.graph.degree(i) * known.sizes[i] * k for i in known.nodes]
    known.told(AdmmPeer.offer_coefficients, own)
    known.told(AdmmPeer.offer_projections, [known.around(i) * k for i in known.nodes])
