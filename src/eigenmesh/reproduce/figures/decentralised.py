"""Paper 003: He, Yang, Shi and Huang, "Decentralized Kernel PCA with Projection Consensus
Constraints", section 6.
"""

from eigenmesh.reproduce.claim_checks import above, below, gain_shrinks, of, steady
from eigenmesh.reproduce.claims import claim
from eigenmesh.reproduce.declare import BySize, Figure, Panel, rows_of
from eigenmesh.reproduce.experiments.graph_problem import graph_rows

_MNIST = rows_of("mnist", BySize(600, 20_000, 40_000))
_ITERATIONS = BySize(3, 10, 30)
_TIMED = {"n_iterations": _ITERATIONS, "timed": True}
_NODES = {"n_nodes": BySize(5, 14, 20)}
_READING = (
    "gamma = 0.5 / median squared distance; centred over all rows; 'readings that work' start from "
    "the neighbours' components with signs along a tree and take the penalty of Assumption 2"
)

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
            "pooled shipping default local admm-paper admm",
            {"rows_a_node": BySize(15, 100, 100), "n_neighbours": 4, **_TIMED},
        )
    ],
    claims=[
        claim(
            "the similarity stays above 0.912 (the paper: up to 80 nodes)",
            "the paper's start and penalties",
            above(of("admm-paper", "similarity"), 0.912),
            "readings that work",
            above(of("admm", "similarity"), 0.912),
        ),
        claim(
            "faster than central kPCA",
            "time a node against Lanczos on the pooled matrix",
            below(of("admm-paper", "node_seconds"), of("pooled", "seconds")),
            "time of all nodes together",
            below(of("admm-paper", "seconds"), of("pooled", "seconds")),
        ),
        claim(
            "time is independent of the network's size",
            "time a node, within a factor of 1.5",
            steady(of("admm-paper", "node_seconds"), 1.5),
        ),
    ],
    seeds=BySize(1, 1, 3),
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
            "pooled shipping default local admm-paper admm",
            {**_NODES, "n_neighbours": 4, "n_iterations": _ITERATIONS},
        )
    ],
    claims=[
        claim(
            "with few rows a node, consensus improves on a node's own component",
            "the paper's start and penalties, 40 rows",
            above(of("admm-paper", "similarity", where=(12, 40)), of("local", "similarity")),
            "readings that work, 40 rows",
            above(of("admm", "similarity", where=(12, 40)), of("local", "similarity")),
        ),
        claim(
            "the improvement is smaller where nodes have more rows",
            "admm − local, first against last",
            gain_shrinks(of("admm", "similarity"), of("local", "similarity")),
            "the paper's start and penalties",
            gain_shrinks(of("admm-paper", "similarity"), of("local", "similarity")),
        ),
    ],
    seeds=BySize(1, 1, 3),
    reading=_READING,
)

FIG5 = Figure(
    "003/fig5",
    "Similarity to the pooled component, by iteration and number of neighbours",
    shows="similarity",
    over="round",
    panels=[
        Panel(
            f"{n} neighbours",
            _MNIST,
            graph_rows,
            "n_neighbours",
            (n,),
            "pooled shipping default neighbours admm-paper admm admm-z",
            {**_NODES, "rows_a_node": BySize(15, 60, 100), "n_iterations": _ITERATIONS},
        )
        for n in (2, 4, 8, 12)
    ],
    claims=[
        claim(
            "after about 4 iterations it exceeds the component of all neighbours' rows",
            "w, the paper's solution, its start and penalties",
            above(of("admm-paper", "similarity", at=3), of("neighbours", "similarity")),
            "w, readings that work",
            above(of("admm", "similarity", at=3), of("neighbours", "similarity")),
            "z, the consensus model",
            above(of("admm-z", "similarity", at=3), of("neighbours", "similarity")),
        ),
        claim(
            "converged, it is similar to (2) or much better than (4 … 12) gathering neighbours",
            "w, the paper's start and penalties, not below",
            above(of("admm-paper", "similarity"), of("neighbours", "similarity")),
            "w, readings that work, not below",
            above(of("admm", "similarity"), of("neighbours", "similarity")),
            "z, the consensus model, not below",
            above(of("admm-z", "similarity"), of("neighbours", "similarity")),
        ),
    ],
    seeds=BySize(1, 1, 3),
    reading=_READING,
)

FIGURES = (FIG3, FIG4, FIG5)
