"""Averaging over a graph: weights, the spectrum that sets the pace, and Chebyshev's recurrence.

One mix of values x is x ← Wx, with the Metropolis weights W of the graph (Xiao, Boyd and Lall,
2005). W is symmetric with unit row sums: the mean stays, all else shrinks by the next largest
eigenvalue. Chebyshev's polynomials shrink it far faster, at no cost in messages (Arioli and Scott,
2014); they need to know an interval that holds every eigenvalue of W but the 1.
"""

from __future__ import annotations

from typing import NamedTuple

import networkx as nx
import numpy as np

from eigenmesh.errors import TopologyError
from eigenmesh.numerics.arrays import Doubles

ACCURACY = 1e-12  # of averages that must be equal everywhere; rounding alone leaves about 1e-15
_ROUNDING = 1e-12
_ROUNDING_OF_POWERS = 1e-14
_LEFT_BY_LOSSES = 0.5  # of the differences, by a mix at best where messages may be lost


def metropolis_weight(degree: int, other: int) -> float:
    """The weight of an edge between nodes of these degrees.

    >>> metropolis_weight(3, 1)
    0.25
    """
    # By the larger degree, so that both ends say the same; and 1 more, so that every node keeps a
    # part: without it W may have the eigenvalue −1, and two nodes would swap their values for ever.
    return 1.0 / (1 + max(degree, other))


def lossy_mixes(graph: nx.Graph, accuracy: float = ACCURACY) -> int:
    """Mixes by equal shares and without acceleration; twice over, for what gets lost.

    A node of d neighbours keeps a (1 + d)-th and gives as much to each of them.

    >>> lossy_mixes(nx.complete_graph(4), 1e-6), lossy_mixes(nx.star_graph(30), 1e-6)
    (40, 40)
    """
    # weight=None: what an edge is annotated with says nothing of how values are mixed over it.
    adjacency = nx.to_numpy_array(graph, weight=None) + np.eye(len(graph))
    roots = np.sqrt(adjacency.sum(axis=1))
    # D^-½ A D^-½ has the eigenvalues of the shares D⁻¹A, and is symmetric, as eigvalsh takes it.
    values = np.linalg.eigvalsh(adjacency / np.outer(roots, roots))[:-1]  # those of the shares
    return _doubled(float(np.abs(values).max(initial=0.0)), accuracy)


def lossy_mixes_of_parts(
    graph: nx.Graph, accuracy: float = ACCURACY, n_left: int = 0
) -> tuple[int, int]:
    """The fewest and the most `lossy_mixes` that a connected part of a graph can have.

    It is a part from which `n_left` nodes, or more, have left.

    1 − the next largest eigenvalue of the shares is at least λ₂ / (1 + widest degree), with
    λ₂ ≥ 4 / (n · diameter) of the Laplacian of every connected graph (Mohar, "Eigenvalues,
    diameter, and mean distance in graphs", 1991), and at least 1 / (diameter · Σ (1 + degree))
    (Chung, "Spectral graph theory", 1997, lemma 1.9). The least eigenvalue is no lower than
    2 / (1 + widest degree) − 1, as every node keeps a share.

    >>> lossy_mixes_of_parts(nx.path_graph(3), 1e-6)
    (40, 110)
    """
    degrees = [degree for _, degree in graph.degree]
    n = max(len(graph) - n_left, 1)
    widest, longest = min(max(degrees, default=0), n - 1), max(n - 1, 1)
    weight = n + min(sum(degrees), n * widest)
    gap = max(4 / (n * longest * (1 + widest)), 1 / (longest * weight))
    slow = max(1 - gap, (widest - 1) / (widest + 1))
    return _doubled(0.0, accuracy), _doubled(slow, accuracy)


def _doubled(left: float, accuracy: float) -> int:
    # A full graph is level after one mix, unless one message is lost.
    return 2 * int(np.ceil(np.log(accuracy) / np.log(max(left, _LEFT_BY_LOSSES))))


def push_sum_mixes(graph: nx.Graph, accuracy: float = ACCURACY, times: int = 1) -> int:
    """Mixes by equal shares after which value over weight is the average everywhere.

    That is, off by at most a share `accuracy` of the values, or by rounding; `times` over, for what
    gets lost. Links may go one way.

    >>> push_sum_mixes(nx.DiGraph([(0, 1), (1, 2), (2, 0)]), 1e-6)
    21
    """
    shares = _shares(graph)
    most, n = most_push_sum_mixes(graph), len(shares)
    accuracy = max(accuracy, _ROUNDING_OF_POWERS * n)
    # Squares of squares, and then back by halves: dozens of products, where one by one there may be
    # a thousand a node.
    powers = [shares]
    while _off(powers[-1]) > accuracy and 2 ** len(powers) < most:
        powers.append(powers[-1] @ powers[-1])
    if _off(powers[-1]) > accuracy:
        raise TopologyError(
            f"news takes more than {most:,} exchanges to be level among these {n} nodes; choose a "
            f"graph with more links, or with both directions of them"
        )
    whole, count = np.eye(n), 0
    for i in reversed(range(len(powers) - 1)):  # the largest power that is not enough
        if _off(further := whole @ powers[i]) > accuracy:
            whole, count = further, count + 2**i
    return max(times * (count + 1), 1)


def most_push_sum_mixes(graph: nx.Graph) -> int:
    """More are not waited for: in directed graphs there are some that mix for ever."""
    return 1000 * (1 + len(graph))


def _shares(graph: nx.Graph) -> Doubles:
    """A (n, n): what a node keeps and what it gives to whom; columns add up to 1."""
    A = nx.to_numpy_array(graph, nodelist=sorted(graph), weight=None).T + np.eye(len(graph))
    return np.asarray(A / A.sum(axis=0))


def _off(power: Doubles) -> float:
    """By how much of a value of 1 at one node any node's estimate is off, times their number."""
    n = len(power)
    return float(np.abs(n * power / power.sum(axis=1, keepdims=True) - 1).max(initial=0.0))


def metropolis(graph: nx.Graph) -> Doubles:
    """W (n, n), nodes in sorted order.

    >>> metropolis(nx.path_graph(3)).round(2)
    array([[0.67, 0.33, 0.  ],
           [0.33, 0.33, 0.33],
           [0.  , 0.33, 0.67]])
    """
    nodes = sorted(graph)
    place = {node: i for i, node in enumerate(nodes)}
    W = np.zeros((len(nodes), len(nodes)))
    for i, j in graph.edges:
        weight = metropolis_weight(graph.degree(i), graph.degree(j))
        W[place[i], place[j]] = W[place[j], place[i]] = weight
    W[np.diag_indices_from(W)] = 1.0 - W.sum(axis=1)
    return W


class MixingSpectrum(NamedTuple):
    """An interval with every eigenvalue of W but the 1: its centre, and how fast that makes mixing.

    `radius` is half its length, as a share of the distance from the centre to 1.
    """

    centre: float
    radius: float

    @classmethod
    def of(cls, graph: nx.Graph) -> MixingSpectrum:
        """Of a connected graph, which is public: whoever runs the schedule may compute it.

        >>> MixingSpectrum.of(nx.complete_graph(5)).radius
        0.0
        """
        others = np.linalg.eigvalsh(metropolis(graph))[:-1]
        if not others.size:
            return cls(0.0, 0.0)
        low, high = float(others[0]), float(others[-1])
        centre = (low + high) / 2
        radius = (high - low) / 2 / (1 - centre)
        return cls(centre, radius if radius > _ROUNDING else 0.0)

    def shrinks_to(self, n_mixes: int) -> float:
        """What `n_mixes` leave at most of the differences between nodes, as a share.

        >>> MixingSpectrum.of(nx.complete_graph(5)).shrinks_to(1)
        0.0
        """
        if not n_mixes or not self.radius:
            return 0.0 if n_mixes else 1.0
        # 1 / T_m(1 / radius): no polynomial of degree m that is 1 at 1 stays smaller on the
        # interval.
        return float(1.0 / np.cosh(n_mixes * np.arccosh(1.0 / self.radius)))

    def mixes(self, accuracy: float = ACCURACY) -> int:
        """Mixes after which at most a share of `accuracy` is left of the differences.

        >>> MixingSpectrum.of(nx.cycle_graph(20)).mixes(1e-10)
        76
        """
        if not self.radius:
            return 1
        return int(np.ceil(np.arccosh(1.0 / accuracy) / np.arccosh(1.0 / self.radius)))


def next_omega(omega: float, radius: float) -> float:
    """Chebyshev's factors, one after the other; 0 stands for none yet.

    x_{m+1} = x_{m−1} + ω_{m+1} (y_m − x_{m−1}), where y_m is x_m mixed once with W shifted by
    `centre` and scaled back to unit row sums: y = x + (Wx − x) / (1 − centre).

    >>> next_omega(0.0, 0.8), round(next_omega(1.0, 0.8), 4)
    (1.0, 1.4706)
    """
    if not omega:
        return 1.0
    # The recurrence itself begins at 2, but the first mix is a plain one, whose factor is 1.
    return 1.0 / (1.0 - radius**2 * (2.0 if omega == 1.0 else omega) / 4)
