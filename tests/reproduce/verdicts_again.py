"""What the papers claim, judged a second time from the numbers that a run wrote to its JSON.

Nothing here comes from `eigenmesh.reproduce`: thresholds are stated again, and means, ratios and
slopes are computed with numpy alone. A figure has a function a claim, in order, which gives the
cases under the paper's own reading.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

SLACK = 1e-9  # relative: what is equal but for rounding is equal
MNIST_FIRST = ("MNIST8M", "CT slices")
SKEWED = ("20 newsgroups", "HIGGS")


class Numbers:
    """Means over seeds, by panel and swept value, in the order of the run."""

    def __init__(self, tree):
        self.titles = [panel["title"] for panel in tree["panels"]]
        self.draws = defaultdict(list)
        for trial in tree["trials"]:
            where = self.titles[trial["panel"]], trial["value"]
            for method, measures in trial["measures"].items():
                for measure, value in measures.items():
                    self.draws[method, measure, where].append(np.atleast_1d(value))

    def courses(self, method, measure, panels="", only=None):
        """Lists, entry by entry; shorter ones stay at their last."""
        found = {}
        for (m, name, where), draws in self.draws.items():
            title, value = where
            if (m, name) != (method, measure) or not title.startswith(panels):
                continue
            if only is None or value in only:
                length = max(map(len, draws))
                found[where] = np.mean([np.pad(d, (0, length - len(d)), "edge") for d in draws], 0)
        return found

    def means(self, method, measure, panels="", only=None, at=-1):
        """Entry `at` of lists, or the last there is."""
        return {
            where: np.mean([d[at] if at < len(d) else d[-1] for d in self.draws[key]])
            for where in self.courses(method, measure, panels, only)
            for key in [(method, measure, where)]
        }

    def along(self, method, measure, panels="", only=None):
        """Of each panel, swept values and means."""
        panels_of = defaultdict(list)
        for (title, value), mean in self.means(method, measure, panels, only).items():
            panels_of[title].append((value, mean))
        return [tuple(map(list, zip(*own, strict=True))) for own in panels_of.values()]


def no_more(left, right, factor=1.0):
    """At every point where both are; the right side may be a number."""
    bound = right if isinstance(right, dict) else dict.fromkeys(left, right)
    return [left[w] <= factor * bound[w] * (1 + SLACK) for w in left if w in bound]


def no_less(left, right, factor=1.0):
    bound = right if isinstance(right, dict) else dict.fromkeys(left, right)
    return [left[w] >= factor * bound[w] * (1 - SLACK) for w in left if w in bound]


def near(left, right, share):
    return [abs(left[w] - right[w]) <= share * abs(right[w]) for w in left if w in right]


def within_factor(along, factor):
    return [max(means) <= factor * min(means) for _, means in along]


def rests(courses, share=0.01):
    """From the second entry on."""
    return [np.abs(c[1:] - c[-1]).max() <= share * abs(c[-1]) for c in courses.values()]


def anywhere(cases):
    return [any(cases)]


def feasible(n, where):
    """Paper 000, section III.C: (M / J + (D + 1) J) T² ≤ T³ with M = 1000, D = 2."""
    width = where[1]
    return 1000 * width / 1000 + 3 * (1000 / width) <= n


def as_central(n):
    own, pooled = (n.means(m, "seconds", "(a)") for m in ("one-shot", "pooled"))
    samples = {w: int(w[0].split()[1]) for w in own}
    return [own[w] <= 3 * pooled[w] for w in own if feasible(samples[w], w)]


def slope(along):
    (values, means) = along
    return np.polyfit(np.log(values), np.log(means), 1)[0]


def below_curve(n):
    """Uniform's error read off at the floats that disKPCA took, over logarithms of floats."""
    own, spent = (n.means("diskpca-paper", m) for m in ("ratio", "floats"))
    cases = []
    for where, floats in spent.items():
        title = where[0]
        x, y = (
            [mean for (t, _), mean in n.means("uniform", m).items() if t == title]
            for m in ("floats", "ratio")
        )
        if floats >= min(x):
            cases.append(own[where] <= np.interp(np.log(floats), np.log(x), y) * (1 + SLACK))
    return cases


def still_below(n):
    own = n.means("diskpca-paper", "ratio", only=(15, 50))
    rival = n.means("uniform", "ratio", only=(15, 20, 50, 100, 200))
    return [own[w] <= min(mean for (title, _), mean in rival.items() if title == w[0]) for w in own]


def flatter(n):
    skew = {title: mean for (title, _), mean in n.means("pooled", "skew").items()}
    return [skew[flat] < skew[skewed] for flat in MNIST_FIRST for skewed in SKEWED]


def ranks_agree(n):
    pairs = [(s, n.means("default", "gap")[w]) for w, s in n.means("default", "skew").items()]
    a, b = (np.argsort(np.argsort(column)) for column in zip(*pairs, strict=True))
    return [np.corrcoef(a, b)[0, 1] >= 0.5]


def gap_matters(n, method, measure, at, low="β = 100", high="β = 2"):
    means = {title: mean for (title, _), mean in n.means(method, measure, at=at).items()}
    return [means[high] >= 10 * means[low]]


def improvement_shrinks(n):
    local = n.means("local", "similarity")
    gains = [own - local[w] for w, own in n.means("admm-printed", "similarity").items()]
    return [-SLACK <= gains[-1] < gains[0]]


def decays(n, heights):
    return [
        np.max(course * np.arange(1, len(course) + 1)) <= heights[title]
        for (title, _), course in n.courses("fk-paper", "recovery").items()
    ]


def falls_as_one_over_t(n):
    cases = []
    for course in n.courses("fk-paper", "recovery").values():
        scaled = course * np.arange(1, len(course) + 1)
        cases.append(scaled[-1] <= 2 * scaled[min(4, len(scaled) // 2)])
    return cases


def last_quarter_rests(n, share=0.2):
    cases = []
    for course in n.courses("fk-paper", "rank").values():
        rest = course[len(course) - max(len(course) // 4, 2) :]
        cases.append(np.abs(rest - rest[-1]).max() <= share * rest[-1])
    return cases


def distance(n, method, **where):
    return n.means(method, "distance", **where)


def merged_better_than(method, factor):
    return lambda n: no_more(distance(n, "vfed"), distance(n, method), factor)


def exceeds_neighbours(at):
    return lambda n: no_less(
        n.means("admm-printed", "similarity", at=at), n.means("neighbours", "similarity")
    )


SEEN_AT_FIRST = (2, 5, 10)  # iterations of the first point of 004/fig3, at any size


def sends_less(n, title, rival):
    own = n.means("fk-paper", "floats_up", title, only=SEEN_AT_FIRST)
    return no_more(own, n.means(rival, "floats_up"), 0.4)


JUDGES = {
    "000/fig2": [
        lambda n: within_factor(n.along("one-shot", "error", "(a)", (10, 50, 100, 200, 500)), 10),
        lambda n: within_factor(n.along("one-shot", "seconds", "(a)", (100, 200, 500, 1000)), 3),
        as_central,
        lambda n: [y[0] >= 1.5 * y[-1] for _, y in n.along("one-shot", "error", "(b)")],
        lambda n: [abs(slope(own) - 3) <= 0.7 for own in n.along("one-shot", "seconds", "(b)")],
    ],
    "000/fig3": [
        lambda n: within_factor(n.along("one-shot", "error", "(a)"), 10),
        lambda n: within_factor(n.along("one-shot", "seconds", "(a)"), 5),
        lambda n: within_factor(n.along("one-shot", "error", "(b)"), 3),
        lambda n: no_more(n.means("one-shot", "error"), 0.316),
    ],
    "000/fig4": [
        lambda n: gap_matters(n, "one-shot", "projector_error", -1),
        lambda n: gap_matters(n, "dpca-3", "projector_error", 4),
        lambda n: no_more(n.means("dpca-10", "projector_error"), 1e-6),
        lambda n: no_more(n.means("one-shot", "floats"), n.means("dpca-3", "floats")),
    ],
    "000/table1": [
        lambda n: [
            own <= n.means("pooled", "misclassified")[w] + 0.03
            for w, own in n.means("one-shot", "misclassified").items()
        ],
        lambda n: no_more(n.means("one-shot", "misclassified"), n.means("linear", "misclassified")),
    ],
    "001/fig1": [
        lambda n: no_more(n.means("diskpca-paper", "ratio"), n.means("uniform", "ratio")),
        below_curve,
        still_below,
    ],
    "001/fig2": [
        lambda n: no_more(n.means("diskpca-paper", "seconds"), n.means("uniform", "seconds"), 3)
    ],
    "001/fig3": [
        lambda n: no_more(n.means("diskpca-paper", "cost_ratio"), n.means("uniform", "cost_ratio")),
        lambda n: no_less(
            n.means("uniform", "cost_ratio", "HIGGS", (15, 20, 50)),
            n.means("diskpca-paper", "cost_ratio"),
            1.5,
        ),
    ],
    "001/fig4": [
        lambda n: no_more(
            n.means("diskpca-paper", "seconds", "HIGGS"), n.means("uniform", "seconds"), 1.5
        )
    ],
    "001/fig5": [
        lambda n: no_less(
            n.means("sketching", "regression_error"), n.means("diskpca", "regression_error")
        ),
        lambda n: near(
            n.means("uniform", "regression_error"), n.means("diskpca", "regression_error"), 0.1
        ),
    ],
    "001/fig6": [
        lambda n: anywhere(no_less(n.means("sketching", "seconds"), n.means("diskpca", "seconds")))
    ],
    "001/fig7": [flatter, ranks_agree],
    "002/fig6": [
        merged_better_than("isolated", 0.5),
        lambda n: anywhere(no_less(distance(n, "vfed"), distance(n, "vfed", at=0))),
        lambda n: [y[-1] >= 1.5 * y[0] for _, y in n.along("vfed", "floats", "(a, b)")],
        lambda n: no_more(distance(n, "vfed"), 0.01),
        lambda n: [
            *no_more(distance(n, "vfed", panels="(c, d)"), distance(n, "isolated")),
            *rests(n.courses("vfed", "distance", "(c, d)")),
        ],
    ],
    "002/fig7": [
        lambda n: no_more(distance(n, "vfed", panels="Single", at=0), distance(n, "vfed"), 1.01),
        lambda n: [
            *no_more(distance(n, "vfed", panels="Mixture"), distance(n, "isolated")),
            *rests(n.courses("vfed", "distance", "Mixture")),
        ],
        merged_better_than("isolated", 1.0),
    ],
    "002/fig8": [
        lambda n: no_more(distance(n, "vfed-warm", only=(10,)), distance(n, "vfed"), 0.9),
        lambda n: no_more(distance(n, "vfed-scaled"), distance(n, "vfed"), 0.99),
        lambda n: rests(n.courses("vfed-scaled", "distance")),
    ],
    "002/fig9": [
        lambda n: no_more(distance(n, "horizontal", panels="vertical"), distance(n, "vfed"))
    ],
    "002/fig10": [
        lambda n: no_less(n.means("vfed", "image"), 0.99),
        merged_better_than("isolated", 0.5),
        merged_better_than("vfed-average", 0.9),
    ],
    "002/fig11": [
        lambda n: no_less(n.means("vfed", "image"), 0.99),
        merged_better_than("isolated", 1.0),
    ],
    "002/fig12": [
        lambda n: no_more(distance(n, "vfed"), 0.05),
        lambda n: no_more(n.means("vfed", "seconds"), n.means("pooled", "seconds")),
    ],
    "002/fig14": [
        lambda n: no_less(n.means("vfed", "image"), 0.99),
        lambda n: no_more(n.means("vfed", "spread", only=("full", "ring", "star")), 0.01),
    ],
    "003/fig3": [
        lambda n: no_less(n.means("admm-printed", "similarity"), 0.912),
        lambda n: no_more(n.means("admm-printed", "node_seconds"), n.means("pooled", "seconds")),
        lambda n: within_factor(n.along("admm-printed", "node_seconds"), 1.5),
    ],
    "003/fig4": [
        lambda n: no_less(
            n.means("admm-printed", "similarity", only=(12, 40)), n.means("local", "similarity")
        ),
        improvement_shrinks,
    ],
    "003/fig5": [exceeds_neighbours(3), exceeds_neighbours(-1)],
    "004/fig1": [
        lambda n: decays(n, {"Mushrooms": 0.4, "MNIST": 0.03}),
        falls_as_one_over_t,
        lambda n: near(n.means("fk-paper", "recovery"), n.means("fk-direct", "recovery"), 0.05),
    ],
    "004/fig2": [
        lambda n: no_more(
            n.means("fk-paper", "floats_an_iteration"),
            n.means("fk-direct", "floats_an_iteration"),
            0.02,
        )
    ],
    "004/fig3": [
        lambda n: no_less(
            n.means("fk-paper", "nmi", ("Mushrooms", "MNIST", "Covtype")),
            n.means("pooled", "nmi"),
            0.9,
        ),
        lambda n: [
            case
            for rival in ("random-features", "diskpca")
            for case in no_less(
                n.means("fk-paper", "nmi", ("Mushrooms", "MNIST")), n.means(rival, "nmi")
            )
        ],
        lambda n: sends_less(n, "MNIST", "random-features"),
        lambda n: sends_less(n, "Covtype", "diskpca"),
        lambda n: near(
            n.means("fk-paper", "nmi", "Covtype"), n.means("random-features", "nmi"), 0.1
        ),
    ],
    "004/fig4": [
        lambda n: near(n.means("fk-paper", "products"), n.means("fk-direct", "products"), 0.25)
    ],
    "004/fig5": [
        last_quarter_rests,
        lambda n: no_more(n.means("fk-paper", "rank"), n.means("fk", "rank_bound")),
    ],
}


def verdicts(tree):
    """Of every claim of a figure, from the JSON of its run: the word, cases that hold, and all."""
    numbers = Numbers(tree)
    cases = [judge(numbers) for judge in JUDGES[tree["id"]]]
    return [(verdict_on(own), int(np.sum(own)), len(own)) for own in cases]


def verdict_on(cases):
    if not cases:
        return "no case"
    return "held" if all(cases) else "held in part" if any(cases) else "not held"
