"""What share of a fit is consent: checks of policy, content, schedule and study, unmasked.

    python benchmarks/bench_consent.py        # parties 5, 50, 200; columns; a ring
    python benchmarks/bench_consent.py 20     # only parties of 20

Processor time of all threads, medians of some fits; checks are timed where they are entered, at
hosts and the coordinator, and count once however they call each other. What looking at a clock
takes, which would be a third of it, is taken off both. Policies are those that most sites have,
which allow every kind; "kept" is one that keeps rows and columns, so that content is looked at, and
"apart" the same between organisations.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from _common import show

import eigenmesh as em
from eigenmesh.runtime import study
from eigenmesh.runtime.consent import Consent
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.host import Host

REPEATS = 5  # fits that a median is of
KEPT = em.Policy().allow - {"rows", "columns"}
CHECKS: dict[str, list[tuple[Any, str]]] = {
    "study": [(Host, "_consent"), (study.Study, "of"), (Federation, "_follow_study")],
    "schedule": [
        *((Host, name) for name in ("_admitted", "_fitting", "_plain_or_masked", "_take_turn")),
        *((Host, name) for name in ("_checked_neighbours", "_take_place_on_tree")),
        (study.Guard, "move"),
        (Federation, "_next_in_study"),
    ],
    "policy": [(Host, "_permit"), (Host, "_release"), (Consent, "begin"), (Consent, "question")],
    "signatures": [(Host, name) for name in ("_require_vouched", "_voucher", "_shown_total")],
}


class Clock(threading.local):
    """How deep in checks this thread is."""

    depth = 0


class Watch:
    """Processor time of checks by kind, of the outermost alone, and how often each was watched."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self.outer: Counter[str] = Counter()
        self.inner: Counter[str] = Counter()
        self._clock, self._lock = Clock(), threading.Lock()

    def over(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, watched."""

        def call(*args: Any, **kwargs: Any) -> Any:
            clock = self._clock
            if clock.depth:
                self.inner[kind] += 1
                return function(*args, **kwargs)
            clock.depth, begin = 1, time.thread_time_ns()
            try:
                return function(*args, **kwargs)
            finally:
                clock.depth, used = 0, time.thread_time_ns() - begin
                with self._lock:
                    self.spent[kind] += used
                    self.outer[kind] += 1

        return call

    def of(self, kind: str, empty: Empty) -> float:
        """Seconds of a kind of checks, without those of being watched."""
        watched = self.outer[kind] * empty.noted + self.inner[kind] * empty.inside
        return (self.spent[kind] - watched) / 1e9

    def own(self, empty: Empty) -> float:
        """Seconds that watching has taken in all."""
        outer, inner = self.outer.total(), self.inner.total()
        return (outer * empty.outside + inner * empty.inside) / 1e9


class Empty(NamedTuple):
    """What watching a function that does nothing takes, in nanoseconds a call."""

    outside: float  # in all, of an outermost one
    noted: float  # of that what is taken for the function's own
    inside: float  # in all, of one within another


def watching(repeats: int = 50_000) -> Empty:
    """What it takes here and now."""

    def nothing() -> None: ...

    def per_call(function: Callable[[], None]) -> float:
        begin = time.thread_time_ns()
        for _ in range(repeats):
            function()
        return (time.thread_time_ns() - begin) / repeats

    watch = Watch()
    watched, plain = watch.over("", nothing), per_call(nothing)
    outside, noted = per_call(watched) - plain, watch.spent[""] / repeats
    inside: list[float] = []
    watch.over("", lambda: inside.append(per_call(watched) - plain))()
    return Empty(outside, noted - plain, inside[0])


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Watch all checks inside."""
    with ExitStack() as stack:
        for kind, places in CHECKS.items():
            for owner, name in places:
                patch = mock.patch.object(owner, name, watch.over(kind, getattr(owner, name)))
                stack.enter_context(patch)
        yield


def fits(only: int | None) -> Iterator[tuple[str, Callable[[], Any], Any, dict[str, Any]]]:
    """Name, estimator, data and how the federation is opened."""
    rng = np.random.default_rng(0)
    rbf = lambda: em.KernelPCA(5, kernel="rbf", gamma=0.05, random_state=0)  # noqa: E731
    for m in (5, 50, 200) if only is None else (only,):
        rows = [rng.normal(size=(100, 10)) * np.arange(1, 11) ** -0.5 for _ in range(m)]
        yield f"rows, {m} parties of 100, RBF", rbf, {"rows": rows}, {}
        linear = lambda: em.KernelPCA(5, kernel="linear")  # noqa: E731
        yield f"rows, {m} parties of 100, linear", linear, {"rows": rows}, {}
    if only is not None:
        return
    rows = [rng.normal(size=(1000, 10)) * np.arange(1, 11) ** -0.5 for _ in range(5)]
    yield "rows, 5 parties of 1,000, RBF", rbf, {"rows": rows}, {}
    clusters = lambda: em.KernelKMeans(4, gamma=0.05, random_state=0)  # noqa: E731
    yield "k-means, 5 parties of 1,000", clusters, {"rows": rows}, {}
    columns = [rng.normal(size=(500, 8)) for _ in range(4)]
    by_sums = lambda: em.VFedPCA(3, n_rounds=4)  # noqa: E731
    yield "columns, 4 parties, linear", by_sums, {"columns": columns}, {}
    one_shot = lambda: em.OneShotKPCA(3, local_rank=5, gamma=0.05)  # noqa: E731
    yield "columns, 4 parties, one-shot", one_shot, {"columns": columns}, {}
    ring = [rng.normal(size=(200, 10)) for _ in range(10)]
    yield "ring of 10, RBF", rbf, {"rows": ring}, {"topology": "ring"}


def shares(
    estimator: Any, parts: dict[str, Any], how: dict[str, Any], empty: Empty
) -> tuple[float, dict[str, float]]:
    """Seconds of a fit, and those of its checks by kind: medians, after a first that warms up."""
    policies, opened = how.get("policies"), {k: v for k, v in how.items() if k != "policies"}
    source = em.Partitioned(**parts, policies=policies)
    lines: list[list[float]] = []
    for _ in range(1 + REPEATS):
        watch = Watch()
        with warnings.catch_warnings(), em.federation(source, **opened) as fed, watched(watch):
            warnings.simplefilter("ignore")
            begin = time.process_time()
            estimator().fit(fed)
            seconds = time.process_time() - begin - watch.own(empty)
        lines.append([seconds, *(watch.of(kind, empty) for kind in CHECKS)])
    median = np.median(lines[1:], axis=0)
    return float(median[0]), dict(zip(CHECKS, map(float, median[1:]), strict=True))


def main(only: int | None = None) -> None:
    """A line a fit and kind of policy."""
    lines: list[list[str]] = []
    empty = watching()
    for name, estimator, parts, how in fits(only):
        kept = em.Policy(allow=KEPT)
        for label, more in (
            ("", {}),
            ("kept", {"policies": kept}),
            ("apart", {"policies": kept, "trust": "organisations"}),
        ):
            try:
                seconds, spent = shares(estimator, parts, {**how, **more}, empty)
            except em.EigenmeshError:  # such a policy refuses it
                continue
            percent = [100 * spent[kind] / seconds for kind in CHECKS]
            figures = [f"{share:.1f}" for share in (*percent, sum(percent))]
            lines.append([name, label, f"{1e3 * seconds:.0f}", *figures])
    columns = ["fit", "policy", "ms", *(f"{kind} %" for kind in CHECKS), "all %"]
    show("Consent, of the processor time of a fit", columns, lines)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
