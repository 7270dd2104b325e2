"""A study on drawn data of the same shape: what would leave a site, and how long it takes.

Nothing of the site's data is used but their shape and their columns' names, and nothing is spent.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from eigenmesh.connect import federation
from eigenmesh.data import Partitioned
from eigenmesh.data.table import Table
from eigenmesh.errors import InputError, PolicyRefusal
from eigenmesh.estimators.base import from_description
from eigenmesh.estimators.plan import study as study_of
from eigenmesh.estimators.report import RunReport
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.study import FitStudy
from eigenmesh.site_folder import SiteFolder, open_site

MOST_ROWS = 20_000  # of each party, unless more are asked for


@dataclasses.dataclass(frozen=True)
class DryRun:
    """The account of a study on drawn data; `is_same` says whether it was this very study."""

    party: str
    report: RunReport
    shape: tuple[int, int]
    is_same: bool


def dry_run(folder: SiteFolder, study: FitStudy, n_rows: int | None = None) -> DryRun:
    """Run a study in this process, with as many parties as it has, each as large as this site.

    The site's own policy holds for its stand-in, but that nobody has to approve.
    """
    if study.estimator is None:
        raise InputError(
            "the study's file does not say which estimator it is of, so that it cannot be run; "
            "write it by save() of em.study(...), or by `eigenmesh study`"
        )
    site, scope = open_site(folder.path), study.runs[0].scope
    rows, columns = map(int, site.data.shape)
    shape = (n_rows or min(rows, MOST_ROWS), columns)
    parts = _drawn(scope.parties, scope.split, shape, _stand_ins(site, scope.parties))
    estimator = from_description(study.estimator)
    options: dict[str, Any] = {"topology": scope.graph, "on_loss": scope.on_loss}
    options |= {"max_age": scope.max_age, "secure": scope.secure, "trust": "organisations"}
    with _own_words(site.name), federation(parts, **options) as fed:
        planned = study_of(estimator, fed, at_sites=True)
        estimator.fit(fed, *_targets(estimator, parts))
    is_same = set(study.digests) <= set(planned.digests)
    return DryRun(site.name, estimator.report_, shape, is_same)


@contextmanager
def _own_words(party: str) -> Iterator[None]:
    """A refusal in the words that stay at a site: here its owner asks."""
    words: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: words.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("eigenmesh.site")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    except PolicyRefusal as refusal:
        reasons = "; ".join(dict.fromkeys(own for own in words if repr(party) in own))
        raise PolicyRefusal(reasons or refusal.reason, party=refusal.party) from None
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def _stand_ins(site: Any, parties: tuple[str, ...]) -> list[Policy]:
    if site.name not in parties:
        raise InputError(f"the study is of {', '.join(parties)}, and not of {site.name!r}")
    values = {name: getattr(site.policy, name) for name in site.policy.__dataclass_fields__}
    own = Policy(**{**values, "approve": "any"})
    return [own if name == site.name else Policy() for name in parties]


def _drawn(
    names: tuple[str, ...], split: str, shape: tuple[int, int], policies: list[Policy]
) -> Partitioned:
    """Groups of rows, so that there are components and clusters to find."""
    rng = np.random.default_rng(0)
    centres = rng.normal(scale=2, size=(4, shape[1] * len(names)))
    tables = []
    groups = rng.integers(len(centres), size=shape[0])
    for i in range(len(names)):
        own = groups if split == "columns" else rng.integers(len(centres), size=shape[0])
        place = slice(i * shape[1], (i + 1) * shape[1]) if split == "columns" else slice(shape[1])
        tables.append(Table(centres[own, place] + rng.normal(size=shape)))
    checked: Literal["rows", "columns"] = "columns" if split == "columns" else "rows"
    return Partitioned.from_tables(checked, tables, names=list(names), policies=policies)


def _targets(estimator: Any, parts: Partitioned) -> tuple[Any, ...]:
    """For a regression, the first column."""
    if not hasattr(estimator, "predict") or hasattr(estimator, "n_clusters"):
        return ()
    values = [np.asarray(X[:, 0]) for X in parts.parts]
    return (values if parts.split == "rows" else values[0],)
