"""What share of a fit is consent: checks of policy, content, schedule and study, unmasked.

    python benchmarks/bench_consent.py        # parties 5, 50, 200; columns; a ring
    python benchmarks/bench_consent.py 20     # only parties of 20

Processor time of all threads; checks are timed where they are entered, at hosts and the
coordinator, and count once however they call each other. Policies are those that most sites have,
which allow every kind; "kept" is one that keeps rows and columns, so that content is looked at, and
"apart" the same between organisations.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
from _common import show

import eigenmesh as em
from eigenmesh.runtime import federation, host, study
from eigenmesh.runtime.consent import Consent
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.host import Host

KEPT = em.Policy().allow - {"rows", "columns"}
CHECKS: dict[str, list[tuple[Any, str]]] = {
    "study": [(Host, "_consent"), (study.Study, "of"), (Federation, "_follow_study")],
    "schedule": [
        *((Host, name) for name in ("_admitted", "_possible", "_plain_or_masked", "_take_turn")),
        *((host, name) for name in ("check_sizes",)),
        *((Host, name) for name in ("_checked_neighbours", "_take_place_on_tree")),
        (study.Guard, "move"),
        (Federation, "_next_in_study"),
        (federation, "check_sizes"),
    ],
    "policy": [(Host, "_permit"), (Host, "_release"), (Consent, "begin"), (Consent, "question")],
    "signatures": [(Host, name) for name in ("_require_vouched", "_voucher", "_shown_total")],
}


class Clock(threading.local):
    """How deep in checks this thread is."""

    depth = 0


@contextmanager
def timed(spent: dict[str, float]) -> Iterator[None]:
    """Note the processor time of checks inside, of the outermost alone."""
    clock, lock = Clock(), threading.Lock()

    def watched(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if clock.depth:
                return function(*args, **kwargs)
            clock.depth, begin = 1, time.thread_time_ns()
            try:
                return function(*args, **kwargs)
            finally:
                clock.depth, used = 0, time.thread_time_ns() - begin
                with lock:
                    spent[kind] += used / 1e9

        return call

    patches = [
        mock.patch.object(owner, name, watched(kind, getattr(owner, name)))
        for kind, places in CHECKS.items()
        for owner, name in places
    ]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


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
    estimator: Any, parts: dict[str, Any], how: dict[str, Any]
) -> tuple[float, dict[str, float]]:
    """Seconds of a second fit, and those of its checks by kind."""
    spent: dict[str, float] = defaultdict(float)
    policies, opened = how.get("policies"), {k: v for k, v in how.items() if k != "policies"}
    source = em.Partitioned(**parts, policies=policies)
    for _ in range(2):  # the first builds what is then kept
        spent.clear()
        with warnings.catch_warnings(), em.federation(source, **opened) as fed, timed(spent):
            warnings.simplefilter("ignore")
            begin = time.process_time()
            estimator().fit(fed)
            seconds = time.process_time() - begin
    return seconds, spent


def main(only: int | None = None) -> None:
    """A line a fit and kind of policy."""
    lines: list[list[str]] = []
    for name, estimator, parts, how in fits(only):
        kept = em.Policy(allow=KEPT)
        for label, more in (
            ("", {}),
            ("kept", {"policies": kept}),
            ("apart", {"policies": kept, "trust": "organisations"}),
        ):
            try:
                seconds, spent = shares(estimator, parts, {**how, **more})
            except em.EigenmeshError:  # such a policy refuses it
                continue
            percent = [100 * spent.get(kind, 0.0) / seconds for kind in CHECKS]
            figures = [f"{share:.1f}" for share in (*percent, sum(percent))]
            lines.append([name, label, f"{1e3 * seconds:.0f}", *figures])
    columns = ["fit", "policy", "ms", *(f"{kind} %" for kind in CHECKS), "all %"]
    show("Consent, of the processor time of a fit", columns, lines)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
