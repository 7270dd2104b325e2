"""Paper 000: He, Huang, Lv and Yang, "A Communication-efficient Distributed Algorithm for Kernel
Principal Component Analysis", section V.
"""

from typing import Any

from eigenmesh.data.splits import feasible_parties
from eigenmesh.reproduce.claim_checks import (
    Quantity,
    across_panels,
    below,
    both,
    falls,
    grows_as,
    of,
    steady,
    within,
)
from eigenmesh.reproduce.claims import Check, claim
from eigenmesh.reproduce.declare import BySize, DataRequest, Figure, Panel, rows_of
from eigenmesh.reproduce.experiments.column_problem import classification, columns

_METHODS = "pooled shipping default one-shot one-shot-wide"
_FEATURES = 1000  # of the simulation
_SPECTRUM = (5000.0, 2500.0, 1125.0)
_WIDTHS = BySize((100, 500), (10, 50, 200, 1000), (2, 10, 50, 100, 200, 500, 1000))
_SAMPLES = BySize((100, 200), (100, 300, 1000), (100, 200, 400, 800, 1600))
_TWO = {"n_components": 2}
_FIVE = {"n_components": 1, "n_parties": 5}
_EACH = BySize((30, 100), (50, 200, 1000), (42, 140, 423, 1411, 4233))
_GENE_SAMPLES = BySize((40, 60), (75, 150, 300), (100, 200, 300, 400, 537))
# exp(−d²/2σ²) with σ = √M/3: gamma = 4.5 / M.
_RBF: dict[str, Any] = {
    "n_components": BySize(3, 10, 10),
    "kernel": "rbf",
    "gamma_over_features": 4.5,
    "n_parties": None,
}
_SIXTY = {**_RBF, "n_parties": BySize(6, 20, 60)}


def _panel(title: str, data: DataRequest, sweep: str, values: Any, **fixed: Any) -> Panel:
    return Panel(title, data, columns, sweep, values, _METHODS, fixed)


def _own(measure: str, panels: str) -> Quantity:
    return of("one-shot", measure, panels=panels)


def _simulated(n_rows: Any, spectrum: tuple[float, ...] = _SPECTRUM) -> DataRequest:
    return rows_of("simulation", n_rows, spectrum=spectrum)


def _genes(n_rows: Any) -> DataRequest:
    return rows_of("gse2187", n_rows, n_genes=BySize(300, 2000, 8466))


def _as_central(n_samples: int) -> Check:
    fewest, most = feasible_parties(n_samples, _FEATURES, 2) or (1, 0)
    widths = [width for width in _WIDTHS.full if fewest <= _FEATURES / width <= most]
    own = of("one-shot", "seconds", where=widths, panels=f"(a) {n_samples}")
    return below(own, of("pooled", "seconds").times(3))


_OF_TIME = (
    "our parties decompose their columns, or take Lanczos, where the paper takes T³; put otherwise "
    "after a quick run: each T of (b) has a set of its own"
)

FIG2 = Figure(
    "000/fig2",
    "Error and time of the one-shot method, linear kernel, simulated data",
    shows="error seconds",
    panels=[
        _panel(f"(a) {n} samples, D = 2", _simulated(n), "features_a_party", _WIDTHS, **_TWO)
        for n in (200, 400, 600)
    ]
    + [_panel("(b) 5 parties, D = 1", _simulated("n_samples"), "n_samples", _SAMPLES, **_FIVE)],
    claims=[
        claim(
            "(a) the error is similar whatever the number of parties",
            "from 10 to 500 features each, within a factor of 10",
            steady(of("one-shot", "error", where=(10, 50, 100, 200, 500), panels="(a)"), 10),
        ),
        claim(
            "(a) time changes little from 100 to 1000 features each",
            "processor time of all parties, within a factor of 3",
            steady(of("one-shot", "seconds", where=(100, 200, 500, 1000), panels="(a)"), 3),
        ),
        claim(
            "(a) with a feasible number of parties the cost is that of a central algorithm",
            "those of section III; time of all parties at most 3 times that of pooled Lanczos",
            both(*(_as_central(n_samples) for n_samples in (200, 400, 600))),
        ),
        claim(
            "(b) the error decays as the sample grows", "by 1.5", falls(_own("error", "(b)"), 1.5)
        ),
        claim("(b) time grows as T³", "power 3 ± 0.7", grows_as(_own("seconds", "(b)"), 3.0, 0.7)),
    ],
    seeds=BySize(1, 3, 5),
    repeats=2,
    reading=_OF_TIME,
)

FIG3 = Figure(
    "000/fig3",
    "Error and time of the one-shot method, RBF kernel, gene expression",
    shows="error seconds",
    panels=[
        _panel("(a) D = 10", _genes(BySize(60, 150, 288)), "features_a_party", _EACH, **_RBF),
        _panel("(b) D = 10", _genes("n_samples"), "n_samples", _GENE_SAMPLES, **_SIXTY),
    ],
    claims=[
        claim(
            "(a) the error goes as that of linear kernels: similar whatever the parties",
            "σ = √M/3, D pairs sent, within a factor of 10",
            steady(_own("error", "(a)"), 10),
        ),
        claim(
            "(a) time too changes little",
            "processor time of all parties, within a factor of 5",
            steady(_own("seconds", "(a)"), 5),
        ),
        claim(
            "(b) the error shows little trend as the sample grows",
            "within a factor of 3",
            steady(_own("error", "(b)"), 3),
        ),
        claim(
            "the approximation is close",
            "‖sin Θ‖ at most a tenth of its largest value √D, D pairs",
            below(of("one-shot", "error"), 0.316),
            "D + 5 pairs",
            below(of("one-shot-wide", "error"), 0.316),
        ),
    ],
    seeds=BySize(1, 3, 5),
    reading="centred after the product of kernels; σ = √M/3 makes samples nearly orthogonal",
)

_ONE = {"n_components": 1, "n_iterations": BySize(1, 16, 20)}

FIG4 = Figure(
    "000/fig4",
    "One-shot against DPCA, linear kernel, by the outer rounds of DPCA",
    shows="projector_error",
    over="round",
    panels=[
        Panel(
            f"β = {beta}",
            _simulated(100, (5000.0, 5000.0 / beta)),
            *(columns, "n_parties", BySize((6,), (10,), (10,))),
            f"{_METHODS} dpca-3 dpca-5 dpca-10",
            _ONE,
        )
        for beta in (100, 2)
    ],
    claims=[
        claim(
            "one-shot is nearer where the eigengap is larger",
            "β = 100 against β = 2, by a factor of 10, one pair sent",
            across_panels(of("one-shot", "projector_error"), "β = 100", "β = 2", 10),
        ),
        claim(
            "DPCA converges faster where the eigengap is larger",
            "error after 5 rounds, 3 neighbours, by a factor of 10",
            across_panels(of("dpca-3", "projector_error", at=4), "β = 100", "β = 2", 10),
        ),
        claim(
            "DPCA's final accuracy changes little with the eigengap",
            "all neighbours, last round: both below 1e-6",
            below(of("dpca-10", "projector_error"), 1e-06),
        ),
        claim(
            "one-shot is more economical: 24 communication rounds for each outer round",
            "floats sent, against DPCA of 3 neighbours",
            below(of("one-shot", "floats"), of("dpca-3", "floats")),
        ),
    ],
    seeds=BySize(1, 3, 3),
    reading="D = 1 as in the text (the caption has 10); DPCA's penalty is a share of the curvature",
)

_OF_CLASSES = (
    "σ = 50 at M = 8,454 features, as a share of M where there are fewer; 10 parties; put "
    "otherwise after a full run: eq. (10), where the parties had projected new samples"
)
_POOLED, _LINEAR = of("pooled", "misclassified"), of("linear", "misclassified")
_SHOT = of("one-shot", "misclassified")
_PROJECTED = of("one-shot-projected", "misclassified")
_CLASSES = {"fibrate": (0,), "azole": (2,), "others": (0, 1, 2)}  # against toxicants, 3

TABLE1 = Figure(
    "000/table1",
    "Share misclassified by a linear support vector machine, by the number of features",
    shows="misclassified",
    panels=[
        Panel(
            f"toxicant vs {rivals}",
            _genes(BySize(120, 300, 537)),
            classification,
            "n_components",
            BySize((2, 10), (1, 5, 20, 50), (1, 5, 10, 20, 50, 100, 150, 200)),
            "pooled shipping default linear one-shot one-shot-projected",
            {
                "classes": ((3,), classes),
                "n_train": BySize(40, 100, 200),
                "n_parties": BySize(5, 10, 10),
                **{"gamma_over_features": 1.69, "kernel": "rbf"},
            },
        )
        for rivals, classes in _CLASSES.items()
    ],
    claims=[
        claim(
            "DKPCA approaches KPCA",
            "new samples by eq. (10), at most 0.03 more misclassified",
            within(_SHOT, _POOLED, 0.03),
            "samples projected by the parties",
            within(_PROJECTED, _POOLED, 0.03),
        ),
        claim(
            "DKPCA is generally better than linear PCA",
            "new samples by eq. (10), mean error not above that of linear PCA",
            below(_SHOT, _LINEAR),
            "samples projected by the parties",
            below(_PROJECTED, _LINEAR),
        ),
    ],
    seeds=BySize(1, 3, 10),
    reading=_OF_CLASSES,
)

FIGURES = (FIG2, FIG3, FIG4, TABLE1)
