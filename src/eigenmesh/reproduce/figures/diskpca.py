"""Paper 001: Balcan, Liang, Song, Woodruff and Xie, "Communication Efficient Distributed Kernel
Principal Component Analysis", section 5.
"""

from collections.abc import Sequence

from eigenmesh.reproduce.claim_checks import (
    above,
    alike,
    below,
    below_curve,
    correlated,
    of,
    ranked,
    somewhere,
    still_below,
)
from eigenmesh.reproduce.claims import claim
from eigenmesh.reproduce.declare import BySize, Experiment, Figure, Panel, rows_of
from eigenmesh.reproduce.experiments.row_problem import (
    SHARES,
    leverage,
    row_clusters,
    row_components,
    row_regression,
)

_ROWS = BySize(90, 500, 2000)
_SETS = {
    "20 newsgroups": "news20",
    "CT slices": "ct_slice",
    "Year MSD": "year_msd",
    "MNIST8M": "mnist8m",
    "HIGGS": "higgs",
    "SUSY": "susy",
    "BoW PubMed": "pubmed",
}
_LANDMARKS = BySize((15,), (20, 50, 200), (20, 50, 100, 200, 400))
_FIXED = {"n_components": BySize(4, 10, 10), "n_parties": BySize(4, 10, 20)}
_READING = "polynomial kernel (x·y)², not centred; |Y| landmarks of each method; floats to and fro"
_METHODS = "pooled shipping default diskpca-paper diskpca uniform"
_COMPONENTS = _METHODS.replace("diskpca-paper", "diskpca-paper diskpca-hadamard")
_UNIFORM_TO_200 = of("uniform", "ratio", where=(15, 20, 50, 100, 200))


def _panels(on: Experiment, methods: str, sets: Sequence[str] = tuple(_SETS)) -> list[Panel]:
    alike, once = (_LANDMARKS, methods, _FIXED), "pooled shipping default"
    return [
        Panel(title, rows_of(_SETS[title], _ROWS), on, "n_landmarks", *alike, once)
        for title in sets
    ]


FIG1 = Figure(
    "001/fig1",
    "Low-rank error of kernel PCA against communication",
    shows="ratio",
    over="floats",
    panels=_panels(row_components, _COMPONENTS),
    claims=[
        claim(
            "with the same landmarks disKPCA errs less than uniform sampling",
            "the paper's sketches",
            below(of("diskpca-paper", "ratio"), of("uniform", "ratio")),
            "Hadamard in place of Gaussians, the better of two repetitions",
            below(of("diskpca-hadamard", "ratio"), of("uniform", "ratio")),
            "sums in place of sketches",
            below(of("diskpca", "ratio"), of("uniform", "ratio")),
        ),
        claim(
            "at the same communication disKPCA errs less",
            "the paper's sketches; uniform's error at disKPCA's floats, read off its curve",
            below_curve(of("diskpca-paper", "ratio"), of("uniform", "ratio"), "floats"),
            "sums in place of sketches",
            below_curve(of("diskpca", "ratio"), of("uniform", "ratio"), "floats"),
        ),
        claim(
            "uniform needs about 5 times the communication for a small error, or cannot reach it",
            "error at 50 landmarks (sketches) against uniform's at up to 5 times as many",
            still_below(of("diskpca-paper", "ratio", where=(15, 50)), _UNIFORM_TO_200),
            "error at 50 landmarks (sums) against uniform's at up to 5 times as many",
            still_below(of("diskpca", "ratio", where=(15, 50)), _UNIFORM_TO_200),
        ),
    ],
    seeds=BySize(1, 3, 5),
    reading=_READING,
)

FIG2 = Figure(
    "001/fig2",
    "Running time of kernel PCA against communication",
    shows="seconds",
    over="floats",
    panels=_panels(row_components, _COMPONENTS),
    claims=[
        claim(
            "disKPCA takes about twice the time of uniform sampling",
            "the paper's sketches, at most 3 times",
            below(of("diskpca-paper", "seconds"), of("uniform", "seconds").times(3)),
            "sums in place of sketches, at most 3 times",
            below(of("diskpca", "seconds"), of("uniform", "seconds").times(3)),
        )
    ],
    seeds=BySize(1, 3, 5),
    reading=_READING,
)

_CLUSTERED = ("20 newsgroups", "CT slices", "MNIST8M", "HIGGS", "SUSY")
_UNIFORM_ON_HIGGS = of("uniform", "cost_ratio", where=(15, 20, 50), panels="HIGGS")

FIG3 = Figure(
    "001/fig3",
    "Cost of k-means after kernel PCA against communication",
    shows="cost_ratio",
    over="floats",
    panels=_panels(row_clusters, _METHODS, _CLUSTERED),
    claims=[
        claim(
            "clusters after disKPCA cost less than after uniform sampling",
            "the paper's sketches; distributed k-means by coresets, cost in feature space",
            below(of("diskpca-paper", "cost_ratio"), of("uniform", "cost_ratio")),
            "sums in place of sketches",
            below(of("diskpca", "cost_ratio"), of("uniform", "cost_ratio")),
        ),
        claim(
            "on HIGGS uniform's cost is almost twice disKPCA's",
            "the paper's sketches, at least 1.5 times, 20 to 50 landmarks",
            above(_UNIFORM_ON_HIGGS, of("diskpca-paper", "cost_ratio").times(1.5)),
            "sums in place of sketches",
            above(_UNIFORM_ON_HIGGS, of("diskpca", "cost_ratio").times(1.5)),
        ),
    ],
    seeds=BySize(1, 3, 5),
    reading=_READING,
)

FIG4 = Figure(
    "001/fig4",
    "Running time of kernel PCA and k-means against communication",
    shows="seconds",
    over="floats",
    panels=_panels(row_clusters, _METHODS, _CLUSTERED),
    claims=[
        claim(
            "on HIGGS the running time is almost the same as uniform's",
            "the paper's sketches, at most 1.5 times",
            below(
                of("diskpca-paper", "seconds", panels="HIGGS"), of("uniform", "seconds").times(1.5)
            ),
            "sums in place of sketches, at most 1.5 times",
            below(of("diskpca", "seconds", panels="HIGGS"), of("uniform", "seconds").times(1.5)),
        )
    ],
    seeds=BySize(1, 3, 5),
    reading=_READING,
)

_REGRESSED = {"CT slices": "ct_slice", "Year MSD": "year_msd", "Protein": "protein"}
_REGRESSION = [
    Panel(
        title,
        rows_of(name, _ROWS),
        row_regression,
        "n_components",
        BySize((3,), (5, 20), (5, 10, 20, 40)),
        "pooled shipping default diskpca uniform sketching",
        {"n_parties": BySize(4, 10, 20), "kernel": "rbf"},
    )
    for title, name in _REGRESSED.items()
]

FIG5 = Figure(
    "001/fig5",
    "Error of regression on kernel components, by their number",
    shows="regression_error",
    panels=_REGRESSION,
    claims=[
        claim(
            "sketching-PCA errs more on all sets",
            "than disKPCA",
            above(of("sketching", "regression_error"), of("diskpca", "regression_error")),
        ),
        claim(
            "uniform sampling and disKPCA do alike",
            "means within 10 %",
            alike(of("uniform", "regression_error"), of("diskpca", "regression_error"), 0.1),
        ),
    ],
    seeds=BySize(1, 3, 5),
    reading="RBF kernel, gamma = 1 / mean squared distance; 10 k landmarks; training rows",
)

FIG6 = Figure(
    "001/fig6",
    "Running time of regression on kernel components",
    shows="seconds",
    panels=_REGRESSION,
    claims=[
        claim(
            "sketching-PCA takes more time on some sets",
            "on any set more than disKPCA, mean over seeds",
            somewhere(above(of("sketching", "seconds"), of("diskpca", "seconds"))),
        )
    ],
    seeds=BySize(1, 3, 5),
    reading="as 001/fig5",
)

FIG7 = Figure(
    "001/fig7",
    "Leverage scores, sorted, over their mean",
    shows="leverage",
    over="round",
    panels=[
        Panel(
            title,
            rows_of(name, _ROWS),
            leverage,
            "n_landmarks",
            BySize((20,), (50,), (50,)),
            "pooled shipping default diskpca-paper",
            _FIXED,
        )
        for title, name in _SETS.items()
    ],
    claims=[
        claim(
            "MNIST8M and CT slices have more uniform scores than 20 newsgroups and HIGGS",
            "exact scores, largest over mean",
            ranked(of("pooled", "skew"), ("MNIST8M", "CT slices"), ("20 newsgroups", "HIGGS")),
        ),
        claim(
            "the less uniform the scores, the larger the gap between disKPCA and uniform",
            "rank correlation over the sets at least 0.5",
            correlated(of("default", "skew"), of("default", "gap"), 0.5),
        ),
    ],
    seeds=BySize(1, 3, 5),
    rounds="within the top … of rows",
    round_names=[f"{share:.1%}".replace(".0%", "%") for share in SHARES],
)

FIGURES = (FIG1, FIG2, FIG3, FIG4, FIG5, FIG6, FIG7)
