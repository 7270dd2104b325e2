"""Runs declared figures: every trial once, kept on disk, so that what was cut short goes on.

A trial is all methods of a panel on one problem: they are timed in one run, one after the other,
with linear algebra at one thread, in seconds of processor time. Trials lie in files named by a
digest of all that they hang on, so figures that ask for the same share them.
"""

from __future__ import annotations

import gc
import hashlib
import json
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_limits

from eigenmesh.errors import CostWarning, EigenmeshWarning
from eigenmesh.reports.documents import as_json
from eigenmesh.reproduce.claims import Verdict, judged
from eigenmesh.reproduce.datasets import load, source
from eigenmesh.reproduce.declare import Figure, Panel, at_size
from eigenmesh.reproduce.trial_results import Results, Trial
from eigenmesh.safe_files import write_whole
from eigenmesh.version import __version__

_LONG = 1.0  # seconds; a collection takes a tenth
_KEPT = {"key", "source", "origin", "measures", "cpu_seconds"}  # of a trial on disk


@dataclass(frozen=True)
class Job:
    """One trial to be made."""

    panel: int
    value: Any
    seed: int
    key: dict[str, Any]

    @property
    def digest(self) -> str:
        """Of all that its numbers hang on."""
        return hashlib.sha256(as_json(self.key).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class FigureOutcome:
    """A figure that was run."""

    figure: Figure
    size: str
    results: Results
    data: tuple[str, ...]  # where each panel's rows are from
    verdicts: tuple[Verdict, ...]
    cpu_seconds: float

    def tree(self) -> dict[str, Any]:
        """For machines."""
        return {
            "id": self.figure.id,
            "paper": self.figure.paper,
            "title": self.figure.title,
            "size": self.size,
            "reading": self.figure.reading,
            "data": dict(zip(self.results.titles, self.data, strict=True)),
            "versions": versions(),
            "seeds": sorted({trial.seed for trial in self.results.trials}),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "claims": [asdict(verdict) for verdict in self.verdicts],
            "panels": [
                {"title": title, "sweep": sweep}
                for title, sweep in zip(self.results.titles, self.results.sweeps, strict=True)
            ],
            "trials": [asdict(trial) for trial in self.results.trials],
        }


def versions() -> dict[str, str]:
    """Of all that computes."""
    return {
        "eigenmesh": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "machine": platform.machine(),
    }


def jobs_of(figure: Figure, size: str) -> list[Job]:
    """All trials of a figure, panel by panel."""
    return list(_jobs(figure, size))


def _jobs(figure: Figure, size: str) -> Iterator[Job]:
    for index, panel in enumerate(figure.panels):
        for value in at_size(panel.values, size):
            for seed in range(at_size(figure.seeds, size)):
                yield Job(index, value, seed, _key(figure, panel, value, seed, size))


def _key(figure: Figure, panel: Panel, value: Any, seed: int, size: str) -> dict[str, Any]:
    settings = {name: at_size(entry, size) for name, entry in panel.fixed.items()}
    name, n_rows, options = panel.data.at(size)
    again = value != at_size(panel.values, size)[0]
    return {
        "data": (name, value if n_rows == panel.sweep else n_rows, options),
        "experiment": panel.on.name,
        "settings": {**settings, panel.sweep: value},
        "methods": [m for m in panel.methods.split() if not (again and m in panel.once.split())],
        "seed": seed,
        "repeats": figure.repeats if size != "smoke" else 1,
        "eigenmesh": __version__,
    }


def run(
    figure: Figure,
    size: str,
    folder: Path,
    *,
    fresh: bool = False,
    offline: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> FigureOutcome:
    """All trials of a figure that are not on disk yet, then its verdicts; `advance` once a trial.

    `fresh` makes all trials anew. What was measured is written to the folder as JSON.
    """
    store = folder / "trials"
    store.mkdir(parents=True, exist_ok=True)
    trials, origins, seconds = [], dict[int, str](), 0.0
    at_start: dict[tuple[int, int], Any] = {}  # what the first swept value's trial measured
    for job in jobs_of(figure, size):
        panel = figure.panels[job.panel]
        kept = None if fresh else _kept(store / f"{job.digest}.json", offline, job)
        if kept is None:
            kept = _made(panel, job, offline)
            write_whole(store / f"{job.digest}.json", as_json(kept).encode(), durable=False)
        first = at_start.setdefault((job.panel, job.seed), kept["measures"])
        own = {name: kept["measures"].get(name, first[name]) for name in first}
        trials.append(Trial(job.panel, job.value, job.seed, own))
        origins[job.panel] = _in_words(kept["origin"], job)
        seconds += kept["cpu_seconds"]
        advance()
    titles = [panel.title for panel in figure.panels]
    results = Results(titles, [panel.sweep for panel in figure.panels], trials)
    verdicts = tuple(judged(claim, results) for claim in figure.claims)
    data = tuple(origins[i] for i in range(len(titles)))
    outcome = FigureOutcome(figure, size, results, data, verdicts, seconds)
    path = result_path(folder, figure.id, size)
    write_whole(path, as_json(outcome.tree()).encode(), durable=False)
    return outcome


def _in_words(origin: str, job: Job) -> str:
    """Where rows are from, and how many were drawn; what was made for a run has as many."""
    n_rows = job.key["data"][1]
    whole = n_rows is None or origin.startswith(("synthetic", "as the paper"))
    return origin if whole else f"{origin}; at most {n_rows:,} rows are drawn"


def result_path(folder: Path, figure_id: str, size: str, suffix: str = "json") -> Path:
    """Where a figure's numbers, or its picture, lie.

    >>> result_path(Path("out"), "003/fig3", "quick", "png").name
    '003-fig3.quick.png'
    """
    return folder / f"{figure_id.replace('/', '-')}.{size}.{suffix}"


def _kept(path: Path, offline: bool, job: Job) -> dict[str, Any] | None:
    """A trial on disk, if it is of this very problem, on rows that are still what can be had."""
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(kept, dict) or set(kept) != _KEPT:
        return None
    same = kept["key"] == json.loads(as_json(job.key))
    return kept if same and kept["source"] == source(job.key["data"][0], offline=offline) else None


def _made(panel: Panel, job: Job, offline: bool) -> dict[str, Any]:
    name, n_rows, options = job.key["data"]
    rows = load(name, n_rows, job.seed, offline=offline, **options)
    started = time.process_time()
    with threadpool_limits(1), warnings.catch_warnings():
        # Figures are about how far methods are off: their warnings say the same.
        warnings.simplefilter("ignore", EigenmeshWarning)
        warnings.simplefilter("ignore", CostWarning)
        problem = panel.on.prepare(rows, job.key["settings"], job.seed)
        measures = {
            method: _timed(panel.on.methods[method], problem, job.key["repeats"])
            for method in job.key["methods"]
        }
    spent = time.process_time() - started
    return {
        "key": job.key,
        "source": source(name, offline=offline),
        "origin": rows.origin,
        "measures": measures,
        "cpu_seconds": spent,
    }


def _timed(method: Callable[[Any], Any], problem: Any, repeats: int) -> dict[str, Any]:
    """What a method measured, beside the processor time of its fastest fit.

    A method that knows better which part of its work is to be timed says so itself.
    """
    fastest, measures = np.inf, {}
    for _ in range(repeats):
        started = time.process_time()
        own = dict(method(problem))
        whole = time.process_time() - started
        spent = own.pop("seconds", whole)
        if whole > _LONG:
            # Large fits leave gigabytes in cycles, which would stay or go in another's time.
            gc.collect()
        if spent < fastest:
            fastest, measures = spent, own
    plain = json.loads(as_json({**measures, "seconds": fastest}))
    return {name: value for name, value in plain.items() if value is not None}
