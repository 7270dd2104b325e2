"""Paper 003: He, Yang, Shi and Huang, "Decentralized Kernel PCA with Projection Consensus
Constraints", section 6.
"""

from collections.abc import Callable
from typing import Any

from eigenmesh.reproduce.claim_checks import above, below, gain_shrinks, of, steady
from eigenmesh.reproduce.claims import Check, claim
from eigenmesh.reproduce.declare import BySize, Figure, Panel, rows_of
from eigenmesh.reproduce.experiments.graph_problem import graph_rows

_MNIST = rows_of("mnist", BySize(600, 6_000, 40_000))
_ITERATIONS = BySize(3, 10, 30)
_TIMED = {"n_iterations": _ITERATIONS, "timed": True}
_NODES = {"n_nodes": BySize(5, 14, 20)}
_READING = (
    "gamma = 0.5 / median squared distance; centred over all rows; as printed: Algorithm 1 from "
    "random directions, ‖z‖ ≤ 1, penalties 100 and 10, 50, 100; own start: from a node's own "
    "component, signs along a tree, ‖z‖ = 1; that works: from the neighbours' components, penalty "
    "of Assumption 2"
)
_LOCAL, _NEIGHBOURS = of("local", "similarity"), of("neighbours", "similarity")
_METHODS = "pooled shipping default local admm-printed admm-paper admm"


def _readings(check: Callable[[str], Check], suffix: str = "") -> list[Any]:
    """A check of the three ADMMs, that of the text first."""
    names = {"as printed": "admm-printed", "own start": "admm-paper", "that works": "admm"}
    pairs = [(f"w, {words}{suffix}", check(method)) for words, method in names.items()]
    return [entry for pair in pairs for entry in pair]


FIG3 = Figure(
    "003/fig3",
    "Similarity to the pooled component, and time, by the number of nodes",
    shows="similarity node_seconds",
    panels=[
        Panel(
            "MNIST 0, 3, 5, 8; 4 neighbours",
            _MNIST,
            graph_rows,
            "n_nodes",
            BySize((5, 7), (10, 20), (10, 20, 40, 80)),
            _METHODS,
            {"rows_a_node": BySize(15, 70, 100), "n_neighbours": 4, **_TIMED},
        )
    ],
    claims=[
        claim(
            "the similarity stays above 0.912 (the paper: up to 80 nodes)",
            *_readings(lambda method: above(of(method, "similarity"), 0.912)),
        ),
        claim(
            "faster than central kPCA",
            "time a node against Lanczos on the pooled matrix",
            below(of("admm-printed", "node_seconds"), of("pooled", "seconds")),
            "time of all nodes together",
            below(of("admm-printed", "seconds"), of("pooled", "seconds")),
        ),
        claim(
            "time is independent of the network's size",
            "time a node, within a factor of 1.5",
            steady(of("admm-printed", "node_seconds"), 1.5),
        ),
    ],
    seeds=BySize(1, 3, 3),
    reading=_READING,
)

FIG4 = Figure(
    "003/fig4",
    "Similarity to the pooled component, by the rows of a node",
    shows="similarity",
    panels=[
        Panel(
            "4 neighbours",
            _MNIST,
            graph_rows,
            "rows_a_node",
            BySize((12, 20), (40, 150), (40, 100, 200, 300)),
            _METHODS,
            {**_NODES, "n_neighbours": 4, "n_iterations": _ITERATIONS},
        )
    ],
    claims=[
        claim(
            "with few rows a node, consensus improves on a node's own component",
            *_readings(
                lambda method: above(of(method, "similarity", where=(12, 40)), _LOCAL), ", 40 rows"
            ),
        ),
        claim(
            "the improvement is smaller where nodes have more rows",
            *_readings(
                lambda method: gain_shrinks(of(method, "similarity"), _LOCAL),
                " less local, first against last",
            ),
        ),
    ],
    seeds=BySize(1, 3, 3),
    reading=_READING
    + "; put otherwise after a quick run: where nothing is gained there is no smaller gain",
)

FIG5 = Figure(
    "003/fig5",
    "Similarity to the pooled component, by iteration and number of neighbours",
    shows="similarity",
    over="round",
    rounds="iteration",
    panels=[
        Panel(
            f"{n} neighbours",
            _MNIST,
            graph_rows,
            "n_neighbours",
            (n,),
            "pooled shipping default neighbours admm-printed admm-paper admm admm-z",
            {**_NODES, "rows_a_node": BySize(15, 60, 100), "n_iterations": _ITERATIONS},
        )
        for n in (2, 4, 8, 12)
    ],
    claims=[
        claim(
            "after about 4 iterations it exceeds the component of all neighbours' rows",
            *_readings(lambda method: above(of(method, "similarity", at=3), _NEIGHBOURS)),
            "z, the consensus model",
            above(of("admm-z", "similarity", at=3), _NEIGHBOURS),
        ),
        claim(
            "converged, it is similar to (2) or much better than (4 … 12) gathering neighbours",
            *_readings(lambda method: above(of(method, "similarity"), _NEIGHBOURS), ", not below"),
            "z, the consensus model, not below",
            above(of("admm-z", "similarity"), _NEIGHBOURS),
        ),
    ],
    seeds=BySize(1, 3, 3),
    reading=_READING,
)

FIGURES = (FIG3, FIG4, FIG5)
