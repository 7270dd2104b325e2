"""NVFlare, three sites with mutual TLS on the loopback: a job's start, rounds, processes that go.

`round`: median seconds of a broadcast-and-sum of some thousand floats, within fits of moments; in
the analyst's process as it waits for one, in the server's job by a site's own log, from the request
that begins a sum to the next that is none of its masks. Bounds: 0.06 s in the server's job, 0.12
from the analyst's process, 0.25 masked, 30 s for a job. Two cores with other work to do take
several times as long: see the load.

With `--kills` a site's job process, and a whole site, is killed before every request of a fit to
rows and of two to columns, the timeout being 300 s. `named`: fits that ended with the loss of that
site, within 15 s; `right`: answers that are those of the rest, or of all where nothing but the word
that the fit is over was missing. What was neither is printed. `longest`: seconds from a blow to the
end of its fit. A job's process takes the job with it, so that there is nobody to survive. Half a
minute a blow, half an hour in all; `--kills "one-shot, a site"` is a part of it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from _common import show
from _three_sites import SITES, three_sites
from sklearn.base import clone

import eigenmesh as em
from eigenmesh.connect import federation_on
from eigenmesh.errors import PartyLost
from eigenmesh.nvflare_jobs.orders import fit_at_server
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.requests import MASK_ROUNDS
from eigenmesh.runtime.site_log import read_log
from eigenmesh.site_folder import SiteFolder

WIDTH, FITS = 44, 12  # products of so many columns are 990 floats
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, WIDTH)) * np.linspace(3, 1, WIDTH)
ROWS, COLUMNS = np.split(X, [100, 180]), np.split(X, [10, 30], axis=1)
PARTS = {"heart": em.Partitioned(rows=ROWS), "genes": em.Partitioned(columns=COLUMNS)}
MODELS: dict[str, tuple[str, Callable[[], Any]]] = {  # each on a study
    "moments": ("heart", lambda: em.KernelPCA(2, kernel="linear", random_state=0)),
    "one-shot": ("genes", lambda: em.OneShotKPCA(2, local_rank=2)),
    "vfed": ("genes", lambda: em.VFedPCA(2, n_rounds=3, random_state=0)),
}


@contextmanager
def timed_totals() -> Iterator[list[float]]:
    """Seconds of each sum that a coordinator in this process asks for."""
    seconds: list[float] = []
    total = Federation.total

    def timed(self: Federation, *arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return total(self, *arguments, **options)
        finally:
            seconds.append(time.perf_counter() - started)

    Federation.total = timed  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        Federation.total = total  # type: ignore[method-assign]


def from_the_analyst(fed: Federation, secure: bool) -> float:
    own = federation_on(fed._engine, None, {"timeout": 300}, secure)
    moments = MODELS["moments"][1]
    moments().fit(own)  # what is loaded at the first
    with timed_totals() as seconds:
        for _ in range(FITS):
            moments().fit(own)
    return float(np.median(seconds))


def in_the_servers_job(federation: Any, fed: Federation, secure: bool) -> float:
    """From the request of a sum to the next but its masks', at a site, of one run each."""
    log = SiteFolder(federation.site_folder("heart", "north")).log_file
    before = sum(1 for _ in read_log(log))
    for _ in range(FITS):
        fit_at_server(fed._engine, MODELS["moments"][1](), {"secure": secure, "timeout": 300})
    lines = [own for own in list(read_log(log))[before:] if own.get("op") not in MASK_ROUNDS]
    pairs = [(a, b) for a, b in pairwise(lines) if a.get("run") == b.get("run")]
    return float(np.median([b["at"] - a["at"] for a, b in pairs if a["op"] in ("step", "sum")]))


def rounds(federation: Any) -> None:
    started = time.perf_counter()
    with federation.open("heart", timeout=300) as fed:
        up = time.perf_counter() - started
        rows = [["a job up", f"{up:.1f} s", "30 s"]]
        for secure, bound in ((False, 0.060), (True, 0.250)):
            words = ", masked" if secure else ""
            seconds = in_the_servers_job(federation, fed, secure)
            rows.append([f"round in the server's job{words}", f"{1e3 * seconds:.0f} ms"])
            rows[-1].append(f"{1e3 * bound:.0f} ms")
            seconds = from_the_analyst(fed, secure)
            rows.append([f"round from the analyst's process{words}", f"{1e3 * seconds:.0f} ms"])
            rows[-1].append(f"{1e3 * max(bound, 0.120):.0f} ms")
    load = " ".join(f"{own:.1f}" for own in os.getloadavg())
    show(f"NVFlare, three sites; load {load}", ["", "median", "at most"], rows)


@contextmanager
def before_request(fed: Federation, n: int, happens: Callable[[], None]) -> Iterator[list[float]]:
    """Let something happen before the coordinator's n-th request; gives when it did."""
    engine, call, calls, moments = fed._engine, fed._engine.call, count(1), []

    def counted(*arguments: Any) -> Any:
        if next(calls) == n:
            happens()
            moments.append(time.monotonic())
        return call(*arguments)

    engine.call = counted  # type: ignore[method-assign]
    try:
        yield moments
    finally:
        engine.call = call  # type: ignore[method-assign]


def kill_job_process(federation: Any, fed: Federation) -> None:
    for process in federation.job_processes("south"):
        if fed._engine._job.id in " ".join(process.cmdline()):
            process.kill()


BLOWS = (("its job's process", "raise"), ("a site", "raise"), ("a site", "survivors"))


def kills(federation: Any, only: list[str]) -> None:
    rows = [
        blows(federation, fit, killed, on_loss)
        for fit in MODELS
        for killed, on_loss in BLOWS
        if f"{fit}, {killed}, {on_loss}".startswith(tuple(only or [""]))
    ]
    columns = ["fit", "killed", "on_loss", "requests", "named", "right", "longest"]
    show(f"killed before every request; load {os.getloadavg()[0]:.1f}", columns, rows)


def blows(federation: Any, fit: str, killed: str, on_loss: str) -> list[str]:
    study, model = MODELS[fit]
    seconds: list[float] = []
    outcomes: list[str] = []
    with federation.open(study, secure=False, timeout=300) as fed:

        def kill() -> None:
            federation.kill("south") if killed == "a site" else kill_job_process(federation, fed)

        for n in count(1):
            own = federation_on(fed._engine, None, {"timeout": 300, "on_loss": on_loss}, False)
            with before_request(fed, n, kill) as moments:
                outcome = outcome_of(model(), own, PARTS[study])
            if not moments:  # a fit has no more requests
                break
            seconds.append(time.monotonic() - moments[0])
            outcomes.append("late" if outcome == "named" and seconds[-1] > 15 else outcome)
            if outcomes[-1] not in ("named", "right"):
                print(f"{fit}, {killed}, {on_loss}, request {n}: {outcomes[-1]}", flush=True)
            if killed == "a site":
                federation.start("south")
                federation.wait_for_sites()
            model().fit(fed)  # in another job
    counts = [str(outcomes.count(own)) for own in ("named", "right")]
    return [fit, killed, on_loss, str(n - 1), *counts, f"{max(seconds):.1f} s"]


def outcome_of(model: Any, fed: Federation, parts: em.Partitioned) -> str:
    try:
        return "right" if is_right(model.fit(fed), parts) else "wrong"
    except PartyLost as loss:
        return "named" if loss.party == "south" else str(loss)


def is_right(model: Any, parts: em.Partitioned) -> bool:
    names = dict(zip(SITES, parts.names, strict=True))
    covered = parts.select([names[own] for own in model.report_.parties])
    least = most = clone(model).fit(covered).eigenvalues_
    if "n_rounds" in model.get_params():  # a search that began anew has taken more of them
        most = clone(model).set_params(n_rounds=50).fit(covered).eigenvalues_
    values = model.eigenvalues_
    return bool((values >= least * (1 - 1e-8)).all() and (values <= most * (1 + 1e-8)).all())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kills", nargs="*", help="processes that go, not rounds; which blows, if not all"
    )
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", em.EigenmeshWarning)
    with (
        tempfile.TemporaryDirectory() as folder,
        three_sites(Path(folder)) as federation,
    ):
        federation.provision()
        federation.add_study("heart", "rows", ROWS, policy="min_parties = 2\n")
        ids = [f"P{i:03d}" for i in range(len(X))]
        federation.add_study("genes", "columns", COLUMNS, ids=ids)
        federation.start()
        federation.wait_for_sites()
        if chosen.kills is None:
            rounds(federation)
        else:
            kills(federation, chosen.kills)


if __name__ == "__main__":
    main()
