"""Every method and front door between running sites, against the same sites in one process.

The sites have the same keys in both. `answer`: the largest difference of the components' variances
and of the model's answers for new samples, relative to the largest; bound to 1e-8, under masks to
1e-6 (where noise is drawn, to 1e-4). `ledger`: whether rounds, bytes, messages of each step and
what was revealed are the same. Under masks: fits that masked sums are enough for, and the refusal
of others, which has to be the same. Five minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _common import show
from _three_sites import SITES, three_sites

import eigenmesh as em
from eigenmesh.connect import federation_on
from eigenmesh.errors import EigenmeshError

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.contracts.fits import FITS, X, Y, columns, rows, rows_of_levels

KINDS = {"rows": rows, "levels": rows_of_levels, "columns": columns}


def add_studies(federation: Any) -> None:
    cuts = {study: source() for study, source in KINDS.items()}
    for study, parts in cuts.items():
        split, starts = parts.split, np.cumsum([0, *(len(own) for own in parts.parts)])
        ids = [f"P{i:03d}" for i in range(len(X))] if split == "columns" else None
        blocks = [np.asarray(own) for own in parts.parts]
        federation.add_study(study, split, blocks, policy="min_parties = 2\n", ids=ids)
        for site, own, start in zip(SITES, blocks, starts[:-1], strict=True):
            targets = Y if split == "columns" else Y[start : start + len(own)]
            add_targets(federation.site_folder(study, site), own.shape[1], targets)


def add_targets(folder: Path, width: int, targets: Any) -> None:
    """A column that the site's owner names as the target."""
    header, *lines = (folder / "ward.csv").read_text().splitlines()
    lines = [f"{line},{float(y)!r}" for line, y in zip(lines, targets, strict=True)]
    (folder / "ward.csv").write_text("\n".join([f"{header},dose", *lines]) + "\n")
    names = ", ".join(f'"x{j}"' for j in range(width))
    own = (folder / "site.toml").read_text()
    (folder / "site.toml").write_text(f'columns = [{names}]\ntargets = ["dose"]\n{own}')


def rehearsal(federation: Any, study: str, folder: Path) -> list[Path]:
    """The same sites, with the same keys, in this process, without what they have seen."""
    copies = []
    for site in SITES:
        own = folder / study / site
        shutil.copytree(federation.site_folder(study, site), own)
        for spent in (own / "private").glob("*.r*"):
            spent.unlink()
        copies.append(own)
    return copies


class Outcome(NamedTuple):
    """What a fit came to on one engine."""

    answers: list[Any]
    ledger: tuple[Any, ...]
    refusal: str
    seconds: float


def outcome_of(fit: Any, fed: Any) -> Outcome:
    started = time.perf_counter()
    try:
        model = fit.build()
        model.fit(fed) if fit.y is None else model.fit(fed, y="sites")
    except EigenmeshError as error:
        words = f"{type(error).__name__}: {error.reason}"
        return Outcome([], (), words, time.perf_counter() - started)
    answers = [getattr(model, "eigenvalues_", None)]
    question = getattr(model, "predict", None) or model.transform
    is_at_sites = fit.parts is columns
    answers.append(question(fed) if is_at_sites and not fit.options else None)
    answers.append(None if is_at_sites else question(X))
    report = model.report_
    ledger = (report.rounds, report.bytes, report.by_step, report.reveals)
    seconds = time.perf_counter() - started
    answers = [np.asarray(own) for own in answers if own is not None]
    return Outcome([own for own in answers if own.size], ledger, "", seconds)


def compared(fit: Any, secure: bool, there: Outcome, here: Outcome) -> list[str]:
    pairs = zip(there.answers, here.answers, strict=True)
    gaps = [float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300)) for a, b in pairs]
    bound = 1e-4 if "private" in fit.name else 1e-6 if secure else 1e-8
    if there.refusal or here.refusal:
        same = there.refusal == here.refusal
        words = there.refusal.split(":")[0] if same else f"{there.refusal} / {here.refusal}"
        return [fit.name, "yes" if secure else "no", words, "", "ok" if same else "DIFFERS", ""]
    ok = max(gaps) <= bound and there.ledger == here.ledger
    ledger = "equal" if there.ledger == here.ledger else "DIFFERS"
    row = [fit.name, "yes" if secure else "no", f"{max(gaps):.0e}", ledger]
    return [*row, "ok" if ok else "DIFFERS", f"{there.seconds:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="fits whose names have this")
    only = parser.parse_args().only
    warnings.simplefilter("ignore")
    table: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder, three_sites(Path(folder)) as federation:
        federation.provision()
        add_studies(federation)
        federation.start()
        federation.wait_for_sites()
        for study, source in KINDS.items():
            fits = [fit for fit in FITS if fit.parts is source and only in fit.name]
            if fits:
                copies = rehearsal(federation, study, Path(folder) / "here")
                with federation.open(study, secure=False, timeout=300) as job:
                    table += [row for fit in fits for row in walked(fit, job, copies)]
    columns_ = ["fit", "masked", "answer", "ledger", "", "seconds"]
    show("between sites against one process", columns_, table)
    sys.exit(any("DIFFERS" in row for row in table))


def walked(fit: Any, job: Any, copies: list[Path]) -> list[list[str]]:
    options = dict(fit.options)
    topology = options.pop("topology", None)
    rows_ = []
    for secure in (False,) if topology is not None else (False, True):
        there = federation_on(job._engine, topology, {"timeout": 300, **options}, secure)
        with em.federation(sites=copies, topology=topology, secure=secure, **options) as here:
            rows_.append(compared(fit, secure, outcome_of(fit, there), outcome_of(fit, here)))
        print(*rows_[-1], flush=True)
    return rows_


if __name__ == "__main__":
    main()
