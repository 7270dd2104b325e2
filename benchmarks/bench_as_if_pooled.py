"""The front doors on random configurations: as if pooled, or said so?

Each configuration comes from one seed (`configuration(seed)`; `--one SEED` runs it again). What
is within: of KernelPCA every wanted eigenvalue, the squared length of its scores and what these
span within `ACCURACY` of the pooled ones; of KernelKMeans the true inertia of the labels at most
1.02 times the best of ten exact runs; of KernelPCRegressor R² in sample within 0.01 of ridge
regression on pooled components; an eigenvalue of these that lacks more is SILENT if nothing says
so. The pooled answer is taken at the fitted `gamma_`, and that is
held against its rule apart. WARNED: not within, and a warning concerns the answer. GAP: within, and
the warning is that the data do not determine the last component, or fewer than were asked for, or
a hint (at units, gamma) that is true of the data: whoever fits has to hear that a kernel matrix is
nearly the identity, however exact its components are. Where small parties are left out the warning
must say how many, and excuses only what they change: of the rows that count the answer must be
within, or another warning concern it. NAMED: within all the same, and no other warning, since who
is left out has to be said before anything is known of them.
ALARM: within, and another warning; a hint that is not true alarms too, and none excuses anything.
What is sent, if more than shipping, is warned of apart and neither excuses nor alarms.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import signal
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from _common import show
from _drawn import Configuration, configuration
from _pooled import (
    Spectrum,
    best_inertia,
    distance_from_rule,
    gamma_by_rule,
    inertia,
    kernel_matrix,
    r2,
    ridge_r2,
)
from threadpoolctl import threadpool_limits

import eigenmesh as em

ACCURACY = 0.01
INERTIA = 1.02
SECONDS = 60  # of the processor, so that a busy machine is not taken for a slow method
GAMMA_TOLERANCE = {"none": 1e-9, "scale": 1e-6, "mean-distance": 1e-6, "median": 0.08}
GOOD = ("WITHIN", "GAP", "NAMED", "WARNED", "ERROR")
BAD = ("ALARM", "SILENT", "FOREIGN", "SLOW")
COST = re.compile(r"floats were sent|than shipping|shipping every")
GAP = re.compile(r"not determined by the data|does not determine|differ by")
ASIDE = re.compile(r"different units|median kernel value|standardize=True|like an id")
RULE = re.compile(r"^gamma=")
GAMMA_VALUE = 0.15  # relative: a median between two clusters of distances has many ranks
ANSWER = re.compile(r"eigenvalue|landmark|shortfall")
LEFT_OUT = re.compile(r"left out")
MIN_ROWS = 5  # of a party that counts
APART = ("case", "of_those_in")
RIGHT = ("WITHIN", "GAP", "NAMED", "ALARM")
NEARLY_IDENTITY = 0.05  # the median kernel value of two rows
LOUD = 100  # times the variance of the other columns
FEWER = re.compile(r"(components|clusters) were asked for")


class TimeIsUp(BaseException):
    """Not an Exception, so that no handler of the library takes it for a party's fault."""


@dataclass
class Verdict:
    """What became of one configuration."""

    case: Configuration
    verdict: str = ""
    method: str = ""
    misses: list[str] = field(default_factory=list)
    of_those_in: Verdict | None = None  # where parties are left out: beside the pooled others
    notes: list[str] = field(default_factory=list)  # warnings that concern the answer
    gaps: list[str] = field(default_factory=list)
    fewer: list[str] = field(default_factory=list)
    asides: list[str] = field(default_factory=list)  # of the data: they alarm, and excuse nothing
    rules: list[str] = field(default_factory=list)  # of gamma
    costs: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)  # warnings that are not the library's
    error: str = ""
    gamma: float | None = None  # distance from the rule
    gamma_value: float | None = (
        None  # of a median, whose distance is one of ranks, the relative one
    )
    shortfall: tuple[float, float] | None = None  # claimed, true
    gap: float | None = None
    typical: float = 1.0  # median kernel value of two rows
    loudest: float = 1.0  # variance of a column beside that of the others on average
    avoidable: bool = False  # an error where the pooled rows have an answer
    seconds: float = 0.0

    def words(self) -> dict[str, Any]:
        """For a file."""
        own = {key: value for key, value in vars(self).items() if key not in APART}
        inner = {} if self.of_those_in is None else {"misses of those in": self.of_those_in.misses}
        return {"seed": self.case.seed, "case": str(self.case), **own, **inner}


def judge(case: Configuration) -> Verdict:
    """Fit and score within the time limit, then hold the answer against the pooled one."""
    outcome = Verdict(case)
    source, targets = case.source, case.targets
    started = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model, answer = bounded(case, source, targets)
        except TimeIsUp:
            outcome.verdict = "SLOW"
        except em.EigenmeshError as error:
            outcome.verdict, outcome.error = "ERROR", f"{type(error).__name__}: {error}"
            outcome.avoidable = has_answer(case)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno}"
            outcome.verdict = "FOREIGN"
            outcome.error = f"{type(error).__name__} at {place}: {error}"
    outcome.seconds = time.process_time() - started
    sort_warnings(outcome, caught)
    if not outcome.verdict:
        compare(outcome, model, answer)
        outcome.verdict = said(outcome)
    return outcome


def has_answer(case: Configuration) -> bool:
    """Whether the pooled rows determine as many components as are wanted."""
    gamma = case.model().gamma
    if not isinstance(gamma, float):
        gamma = gamma_by_rule(case.dense, case.gamma, case.kernel)
    K = kernel_matrix(case.dense, case.kernel, gamma, case.degree, case.coef0)
    truth = Spectrum.of(K, case.k, centred(case))
    return bool(truth.values[min(case.k, len(truth.values)) - 1] > 1000 * truth.floor)


def centred(case: Configuration) -> bool:
    return case.door == "KernelPCRegressor" or (case.door == "KernelPCA" and case.center)


def bounded(case: Configuration, source: Any, targets: Any) -> tuple[Any, np.ndarray]:
    def stop(*_: Any) -> None:
        raise TimeIsUp

    signal.signal(signal.SIGALRM, stop)
    signal.signal(signal.SIGPROF, stop)
    signal.alarm(10 * SECONDS)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        model = case.model().fit(source, targets)
        if case.door == "KernelKMeans":
            return model, case.pooled(model.labels_)
        after = model.transform if case.door == "KernelPCA" else model.predict
        return model, case.pooled(after(source))
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def sort_warnings(outcome: Verdict, caught: list[warnings.WarningMessage]) -> None:
    cost = getattr(em.errors, "CostWarning", None)
    for one in caught:
        text = str(one.message)
        if not issubclass(one.category, em.EigenmeshWarning):
            outcome.others.append(f"{one.category.__name__}: {text}")
        elif (cost and issubclass(one.category, cost)) or COST.search(text):
            outcome.costs.append(text)
        elif GAP.search(text):
            outcome.gaps.append(text)
        elif RULE.search(text):
            outcome.rules.append(text)
        elif FEWER.search(text):
            outcome.fewer.append(text)
        elif ASIDE.search(text) and not ANSWER.search(text):
            outcome.asides.append(text)
        else:
            outcome.notes.append(text)


def said(outcome: Verdict) -> str:
    # Which of two equal components was taken changes a regression, but no eigenvalue or inertia.
    gaps = outcome.gaps if outcome.case.door == "KernelPCRegressor" else []
    if is_off(outcome) and not outcome.rules and not leaves_out(outcome):
        outcome.misses.append(f"gamma_ is {outcome.gamma:.2g} off its rule")
        return "SILENT"
    others = outcome.of_those_in
    if outcome.misses and others is not None and others.misses:
        notes = [note for note in outcome.notes if not LEFT_OUT.search(note)]
        if not notes + outcome.fewer + outcome.rules + gaps:
            outcome.misses += [f"of the rows that count: {miss}" for miss in others.misses]
            return "SILENT"
    if outcome.misses:
        return "WARNED" if outcome.notes + outcome.fewer + gaps else "SILENT"
    notes = [note for note in outcome.notes if not LEFT_OUT.search(note)]
    false_hints = [hint for hint in outcome.asides if not is_true(outcome, hint)]
    if notes + false_hints or (outcome.rules and not is_off(outcome)):
        return "ALARM"
    if lacking(outcome) > ACCURACY and not outcome.fewer + outcome.gaps:
        outcome.misses.append(f"an eigenvalue lacks {lacking(outcome):.3g}, unsaid")
        return "SILENT"
    if outcome.notes:
        return "NAMED"
    return "GAP" if outcome.gaps + outcome.fewer + outcome.asides else "WITHIN"


def lacking(outcome: Verdict) -> float:
    """The largest share that is truly missing of a wanted eigenvalue, whatever clusters and R²."""
    return 0.0 if outcome.shortfall is None else outcome.shortfall[1]


def is_true(outcome: Verdict, hint: str) -> bool:
    """Whether a hint at units or gamma is so of the pooled rows."""
    if "median kernel value" in hint:
        return outcome.typical < NEARLY_IDENTITY
    return "varies" in hint and outcome.loudest >= LOUD


def leaves_out(outcome: Verdict) -> bool:
    """Whether it is said that rows do not count: then gamma and eigenvalues are of the others."""
    return any(map(LEFT_OUT.search, outcome.notes))


def is_off(outcome: Verdict) -> bool:
    """Whether gamma is not what its rule says: a median neither in rank nor in value."""
    if outcome.gamma is None:
        return False
    far = outcome.gamma > GAMMA_TOLERANCE[outcome.case.gamma]
    return far and (outcome.gamma_value is None or outcome.gamma_value > GAMMA_VALUE)


def compare(outcome: Verdict, model: Any, answer: np.ndarray) -> None:
    """With all rows pooled and, where parties are left out, with those that count."""
    compare_pooled(outcome, model, answer)
    if not leaves_out(outcome):
        return
    case, rows = outcome.case, rows_that_count(outcome.case)
    those_in = copy.copy(case)
    vars(those_in).update(dense=case.dense[rows], y=case.y[rows])
    inner = Verdict(those_in)
    compare_pooled(inner, model, answer[rows])
    n_out = sum(len(own) < MIN_ROWS for own in case.order)
    note = next(filter(LEFT_OUT.search, outcome.notes))
    if not says_how_many(note, n_out):
        inner.misses.append(f"{n_out} parties are out, and the warning does not say so: {note}")
    if is_off(inner) and not outcome.rules:
        inner.misses.append(f"gamma_ is {inner.gamma:.2g} off its rule")
    outcome.of_those_in, outcome.shortfall = inner, inner.shortfall


def rows_that_count(case: Configuration) -> np.ndarray:
    return np.sort(np.concatenate([own for own in case.order if len(own) >= MIN_ROWS]))


def says_how_many(note: str, n_out: int) -> bool:
    """Whether so many parties are named, or some and how many more."""
    more = re.search(r"and (\d+) more", note)
    return len(re.findall(r"'party-\d+'", note)) + int(more[1] if more else 0) >= n_out


def compare_pooled(outcome: Verdict, model: Any, answer: np.ndarray) -> None:
    case = outcome.case
    outcome.method = str(model.method_).split(":")[0]
    gamma = float(model.gamma_) if getattr(model, "gamma_", None) is not None else 1.0
    if case.kernel in ("rbf", "laplacian", "poly") and case.gamma != "number":
        outcome.gamma = distance_from_rule(case.dense, gamma, case.gamma, case.kernel)
        if case.gamma == "median":
            outcome.gamma_value = abs(gamma / gamma_by_rule(case.dense, "median", case.kernel) - 1)
    K = kernel_matrix(case.dense, case.kernel, gamma, case.degree, case.coef0)
    if case.kernel in ("rbf", "laplacian"):
        outcome.typical = float(np.median(K[np.triu_indices(len(K), 1)]))
    variances = np.sort(case.dense.var(axis=0))
    outcome.loudest = float(variances[-1] / max(variances[:-1].mean(), np.finfo(float).tiny))
    truth = Spectrum.of(K, case.k, centred(case))
    if not np.isfinite(answer).all():
        outcome.misses.append("the answer is not finite")
        return
    {
        "KernelPCA": compare_components,
        "KernelKMeans": compare_clusters,
        "KernelPCRegressor": compare_regression,
    }[case.door](outcome, model, answer, truth)
    compare_shortfall(outcome, model, truth)


def compare_components(outcome: Verdict, model: Any, Z: np.ndarray, truth: Spectrum) -> None:
    k = outcome.case.k
    true = truth.values[:k]
    if Z.shape[1] != k:
        outcome.misses.append(f"{Z.shape[1]} components for {k}")
        return
    far = worst(np.asarray(model.eigenvalues_)[:k], true, truth.floor)
    if far > ACCURACY:
        outcome.misses.append(f"an eigenvalue is off by {far:.3g}")
    far = worst((Z**2).sum(axis=0), true, truth.floor)
    if far > ACCURACY:
        outcome.misses.append(f"squared scores add up to {far:.3g} off an eigenvalue")
    captured = truth.captured(Z)
    lost = 1 - (captured.sum() + truth.floor) / true.sum()
    each = float(np.max((true - captured - truth.floor) / np.maximum(true, truth.floor)))
    if lost > ACCURACY or each > 2 * ACCURACY:
        outcome.misses.append(f"the scores' span loses {lost:.3g} in all, {each:.3g} at worst")
    ratio = np.asarray(model.explained_variance_ratio_)[:k]
    apart = np.abs(ratio - true / truth.trace)
    if (apart > 2 * ACCURACY * ratio + 1e-3 + truth.floor / truth.trace).any():
        outcome.misses.append(f"explained_variance_ratio_ is off by {apart.max():.3g}")


def worst(values: np.ndarray, true: np.ndarray, floor: float) -> float:
    """Largest relative distance, what is above rounding."""
    beyond = np.maximum(np.abs(values - true) - floor, 0)
    return float(np.max(beyond / np.maximum(true, floor)))


def compare_clusters(outcome: Verdict, model: Any, labels: np.ndarray, truth: Spectrum) -> None:
    rng = np.random.default_rng([outcome.case.seed, 9])
    best = best_inertia(truth.K, outcome.case.k, 10, rng)
    own = inertia(truth.K, labels)
    clusters = len(np.unique(labels))
    if clusters < min(outcome.case.k, len(np.unique(outcome.case.dense, axis=0))):
        outcome.misses.append(f"{clusters} clusters for {outcome.case.k}")
    if own > INERTIA * best + 500 * truth.floor:
        outcome.misses.append(f"inertia is {own / max(best, truth.floor):.4f} of the best of ten")


def compare_regression(outcome: Verdict, model: Any, fitted: np.ndarray, truth: Spectrum) -> None:
    case = outcome.case
    pooled = ridge_r2(truth, case.k, case.y, case.alpha)
    given = len(model.eigenvalues_)
    if given < case.k and truth.values[case.k - 1] > 1000 * truth.floor:
        outcome.misses.append(f"{given} components for {case.k}")
    own = r2(case.y, fitted.reshape(case.y.shape))
    if abs(own - pooled) > ACCURACY:
        gap = 1 - truth.values[case.k] / truth.values[case.k - 1]
        outcome.misses.append(f"R² is {own:.4f}, pooled {pooled:.4f} (gap {gap:.3g})")


def compare_shortfall(outcome: Verdict, model: Any, truth: Spectrum) -> None:
    values, k = truth.values, outcome.case.k
    if len(values) > k:
        outcome.gap = float((values[k - 1] - values[k]) / max(values[k - 1], truth.floor))
    claimed = getattr(model, "shortfall_", None)
    own = np.asarray(getattr(model, "eigenvalues_", ()), dtype=float)[:k]
    if claimed is None or not len(own):
        return
    beyond = values[: len(own)] - own - truth.floor
    true = float(np.max(beyond / np.maximum(values[: len(own)], truth.floor)))
    outcome.shortfall = (float(claimed), max(true, 0.0))


def shortfall_is_right(claimed: float, true: float) -> bool:
    near = abs(claimed - true) <= 0.002
    return near or (claimed > 0 and true > 0 and 0.5 <= claimed / true <= 2)


def within(outcome: Verdict) -> bool:
    """Whether a fit is within `accuracy`, which is of eigenvalues, of clusters and R² as well."""
    return outcome.verdict in RIGHT and lacking(outcome) <= ACCURACY


def table(outcomes: list[Verdict], key: str) -> None:
    names = sorted({getattr(one.case, key) for one in outcomes})
    rows = []
    for name in [*names, "all"]:
        own = [one for one in outcomes if name in ("all", getattr(one.case, key))]
        counts = Counter(one.verdict for one in own)
        rows.append([name, str(len(own)), *(str(counts[verdict]) for verdict in (*GOOD, *BAD))])
    show(f"Verdicts by {key}", [key, "cases", *GOOD, *BAD], rows)


def ratios(outcomes: list[Verdict]) -> None:
    right = [one for one in outcomes if one.verdict in RIGHT]
    accurate = list(filter(within, outcomes))
    alarms, all_alarms = (sum(o.verdict == "ALARM" for o in some) for some in (accurate, right))
    gaps = [one for one in outcomes if one.gaps]
    wide = sum(one.gap is not None and one.gap > 0.1 for one in gaps)
    claims = [one.shortfall for one in outcomes if one.shortfall]
    near = sum(shortfall_is_right(*claim) for claim in claims)
    rules = [one for one in outcomes if one.gamma is not None]
    off = list(filter(is_off, rules))
    silent = sum(one.verdict in ("SILENT", "FOREIGN", "SLOW") for one in outcomes)
    print(f"silent, foreign or slow: {silent} of {len(outcomes)} (wanted: 0)")
    print(f"alarms of those within accuracy: {alarms} of {len(accurate)} (wanted: at most 5 %)")
    named = sum(bool(one.notes) for one in accurate)
    print(f"  with parties left out, or another warning: {named} of {len(accurate)}")
    aside = sum(o.verdict == "ALARM" and not o.notes + o.rules for o in accurate)
    print(f"  of which hints at units, which say nothing of the answer: {aside}")
    print(
        f"  of those whose scores, clusters or R² are right, eigenvalues or not: "
        f"{all_alarms} of {len(right)}"
    )
    print(f"  with costs warned of: {sum(bool(one.costs) for one in accurate)} more or as well")
    print(f"gaps warned of: {len(gaps)}, of which truly above 10 %: {wide}")
    print(f"shortfall_ within a factor of 2 or 0.002: {near} of {len(claims)} (wanted: 9 of 10)")
    said_so = sum(bool(one.rules) for one in off)
    print(f"gamma_ off its rule: {len(off)} of {len(rules)} ({GAMMA_TOLERANCE}), {said_so} said so")
    for one in off:
        print(f"  --one {one.case.seed}: {one.gamma:.3g} off; {one.case}")


def listing(outcomes: list[Verdict]) -> None:
    for verdict in ("SILENT", "FOREIGN", "SLOW", "ALARM"):
        for one in outcomes:
            if one.verdict == verdict:
                words = "; ".join(
                    [*one.misses, *filter(None, [one.error]), *one.notes, *one.rules, *one.asides][
                        :3
                    ]
                )
                print(
                    f"{verdict} --one {one.case.seed} [{one.method}] {words[:400]}\n    {one.case}"
                )
    for title, texts in (
        ("Errors where the pooled rows have an answer", errors(outcomes, avoidable=True)),
        ("Other errors", errors(outcomes, avoidable=False)),
        (
            "Warnings of the answer",
            [
                text
                for one in outcomes
                for text in {*one.notes, *one.fewer, *one.rules, *one.asides}
            ],
        ),
        ("Warnings of others", [text for one in outcomes for text in set(one.others)]),
    ):
        print(f"{title}:")
        for text, count in Counter(re.sub(r"\d[\d.,e+-]*", "#", t)[:220] for t in texts).items():
            print(f"  {count} × {text}")


def errors(outcomes: list[Verdict], avoidable: bool) -> list[str]:
    own = [one for one in outcomes if one.verdict == "ERROR" and one.avoidable == avoidable]
    return [one.error for one in own]


def draw(seed: int, number: int, only: str | None) -> list[Configuration]:
    cases: list[Configuration] = []
    step = 0
    while len(cases) < number:
        case = configuration(1000 * seed + step)
        step += 1
        if only is None or only == case.door:
            cases.append(case)
    return cases


def run(arguments: argparse.Namespace) -> None:
    cases = draw(arguments.seed, arguments.configurations, arguments.only)
    if arguments.one is not None:
        cases = [configuration(arguments.one)]
    outcomes = []
    for case in cases:
        outcomes.append(judge(case))
        if arguments.verbose or arguments.one is not None:
            print(json.dumps(outcomes[-1].words(), default=float, ensure_ascii=False), flush=True)
    table(outcomes, "door")
    table(outcomes, "split")
    ratios(outcomes)
    listing(outcomes)
    if arguments.json:
        words = [one.words() for one in outcomes]
        arguments.json.write_text(json.dumps(words, default=float, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--configurations", type=int, default=200)
    parser.add_argument("--only", choices=["KernelPCA", "KernelKMeans", "KernelPCRegressor"])
    parser.add_argument("--one", type=int, help="the seed of a single configuration")
    parser.add_argument("--json", type=Path, help="where every verdict is written")
    parser.add_argument("--verbose", action="store_true", help="every verdict as it comes")
    with threadpool_limits(1, user_api="blas"):
        run(parser.parse_args())
