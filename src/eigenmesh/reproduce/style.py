"""One look for all pictures: a method has its colour, mark and line wherever it appears.

Colours are those of Okabe and Ito, which stay apart for colour-blind readers, and of P. Tol's
"muted" where these run out; marks differ besides. Our default is blue, what is pooled black.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Look(NamedTuple):
    """Of a method."""

    label: str
    colour: str
    marker: str
    line: str = "-"


BLUE, BLACK, GREY = "#0072B2", "#000000", "#8A8A8A"
VERMILION, ORANGE, GREEN = "#D55E00", "#E69F00", "#009E73"
PURPLE, SKY, WINE, OLIVE = "#AA4499", "#56B4E9", "#882255", "#999933"

METHODS = {
    "default": Look("eigenmesh's default", BLUE, "o"),
    "pooled": Look("pooled answer", BLACK, "", "--"),
    "shipping": Look("shipping every row", GREY, "", ":"),
    # Paper 000
    "one-shot": Look("one-shot, D pairs (paper)", VERMILION, "s"),
    "one-shot-wide": Look("one-shot, D + 5 pairs (authors' code)", WINE, "D"),
    "one-shot-projected": Look("one-shot, samples projected by the parties", WINE, "D"),
    "dpca-3": Look("DPCA, 3 neighbours", GREEN, "v", ":"),
    "dpca-5": Look("DPCA, 5 neighbours", SKY, "^", "--"),
    "dpca-10": Look("DPCA, all neighbours", OLIVE, ">"),
    "linear": Look("linear PCA, pooled", PURPLE, "x", "-."),
    # Papers 001 and 004
    "diskpca": Look("disKPCA (sums)", ORANGE, "s"),
    "diskpca-paper": Look("disKPCA (paper, sketches)", VERMILION, "D"),
    "diskpca-hadamard": Look("disKPCA (paper, Hadamard, best of 2)", WINE, "P", "-."),
    "uniform": Look("uniform landmarks", PURPLE, "v"),
    "sketching": Look("sketching-PCA", OLIVE, "^"),
    "random-features": Look("random features + k-means", GREEN, "^"),
    "nystrom": Look("Nyström, cloud", OLIVE, "P", "-."),
    "fk": Look("FK k-means, rank cap", SKY, "D"),
    "fk-paper": Look("FK k-means (paper)", VERMILION, "s"),
    "fk-direct": Look("FK k-means without CEM", PURPLE, "v"),
    # Paper 002
    "vfed": Look("VFed (paper, signs aligned)", VERMILION, "s"),
    "vfed-unaligned": Look("VFed (as printed)", WINE, "D", "--"),
    "vfed-average": Look("VFedAvg", ORANGE, "v"),
    "vfed-warm": Look("VFed, warm start", PURPLE, "^"),
    "vfed-scaled": Look("VFed, weight scaling", GREEN, ">"),
    "vfed-sum": Look("sum of clients' kernels, exact", SKY, "P"),
    "isolated": Look("isolated", OLIVE, "x", "-."),
    "horizontal": Look("rows split, same merge", SKY, "v"),
    # Paper 003
    "admm": Look("ADMM, readings that work", ORANGE, "D"),
    "admm-printed": Look("ADMM (paper: random start, ‖z‖ ≤ 1)", VERMILION, "s"),
    "admm-paper": Look("ADMM (paper's penalties, own start)", WINE, "P", "-."),
    "admm-z": Look("ADMM, consensus model z", PURPLE, "^", "--"),
    "local": Look("own rows only", OLIVE, "x", "-."),
    "neighbours": Look("neighbours' rows pooled", SKY, "v"),
}


class Measure(NamedTuple):
    """How a measure is drawn."""

    label: str
    log: bool = False
    less: float = 0.0  # what is taken off before it is drawn
    short_of: float = 0.0  # or what it is short of, which is drawn in its place
    floor: float = 1e-16  # what is drawn of a logarithm's nothing
    of_error: bool = False  # exact answers have none: they are drawn at the bottom

    def drawn(self, values: Any) -> Any:
        """What is drawn of measured values."""
        return self.short_of - values if self.short_of else values - self.less


MEASURES = {
    "error": Measure("‖sin Θ‖ to the pooled answer", log=True, floor=1e-10, of_error=True),
    "projector_error": Measure("‖UUᵀ − ÛÛᵀ‖² to the pooled", log=True, of_error=True),
    "misclassified": Measure("share misclassified"),
    "ratio": Measure("squared residual / optimum − 1", log=True, less=1.0, floor=1e-4),
    "cost_ratio": Measure("k-means cost / pooled cost"),
    "regression_error": Measure("‖y − ŷ‖ / ‖y‖"),
    "leverage": Measure("leverage score / mean", log=True),
    "distance": Measure("distance to the pooled vector", log=True, of_error=True),
    "image_error": Measure("1 − |cos| to the pooled image", log=True, of_error=True),
    "nmi": Measure("NMI with the labels"),
    "similarity": Measure("1 − |cos| to the pooled component", True, short_of=1.0, of_error=True),
    "recovery": Measure("‖K̂ − K_s‖² / n²", log=True, floor=1e-8),
    "products": Measure("Lanczos products an iteration"),
    "rank": Measure("rank of the iterate"),
    "floats": Measure("floats sent, all ways", log=True),
    "floats_up": Measure("floats sent by the parties", log=True),
    "floats_an_iteration": Measure("floats up an iteration", log=True),
    "seconds": Measure("processor seconds", log=True),
    "node_seconds": Measure("processor seconds a node", log=True),
}
