"""The demonstration: pooled kernel PCA against one message a party, where it pays and where not.

Two column-split studies. Digits has more samples than columns, so that eigenvectors of its
samples are hardly smaller than the columns themselves; expression data have few samples and
thousands of columns, and there one message is a small part of the data.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA
from threadpoolctl import threadpool_limits

from eigenmesh.data import Partitioned, split
from eigenmesh.data.synthetic import gene_like
from eigenmesh.errors import CostWarning, EigenmeshWarning
from eigenmesh.estimators.report import RunReport
from eigenmesh.methods.one_shot.estimator import OneShotKPCA
from eigenmesh.metrics import aligned_error, sin_theta

Array = NDArray[np.float64]

SHIPPED = "ship every column"


@dataclass(frozen=True)
class DemoFit:
    """Training and held-out samples, and the fits to compare: (fusion, local_rank) each."""

    name: str
    X: Array
    X_new: Array
    labels: NDArray[Any]
    gamma: float
    n_components: int
    trials: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Row:
    """One line of the table; `report` is None for the pooled reference."""

    method: str
    local_rank: int | None
    sin_theta: float
    held_out_error: float
    floats: int
    share: float
    rounds: int
    seconds: float
    embedding: Array
    report: RunReport | None = None

    @property
    def label(self) -> str:
        """The method and its rank, in short."""
        return self.method if self.local_rank is None else f"{self.method} {self.local_rank}"

    def bound(self, n_components: int) -> float | None:
        """The proven limit of sinΘ, or None if it is no lower than the largest sinΘ there is."""
        limit = self.report.bounds["sin_theta"] if self.report else 0.0
        return limit if limit < math.sqrt(n_components) * (1 - 1e-9) else None


@dataclass(frozen=True)
class DemoResult:
    """What a study gave: the pooled reference first, then a row a trial."""

    study: DemoFit
    parts: Partitioned
    rows: tuple[Row, ...]

    def row(self, method: str, local_rank: int) -> Row:
        """The row of one trial."""
        return next(r for r in self.rows if (r.method, r.local_rank) == (method, local_rank))


def digits_study() -> DemoFit:
    """Images of handwritten digits in the set-up in which the method was first tried."""
    X, labels = load_digits(return_X_y=True)
    return DemoFit(
        name="Digits",
        **_prepare(X / 16.0, 600),
        labels=labels[:600],
        gamma=3 / 128,
        n_components=5,
        trials=(
            ("product", 10),
            ("product", 20),
            ("product", 50),
            ("distance", 10),
            ("distance", 20),
        ),
    )


def wide_study() -> DemoFit:
    """Synthetic expression levels: few samples, thousands of columns."""
    X, labels = gene_like(n_samples=160, n_features=5000, random_state=0)
    return DemoFit(
        name="Genes (synthetic)",
        **_prepare(X, 120),
        labels=labels[:120],
        gamma=1 / 5000,
        n_components=2,
        trials=(("product", 5), ("product", 10), ("product", 20), ("distance", 10)),
    )


def _prepare(X: Array, n_train: int) -> dict[str, Array]:
    """Columns centred and all divided by one number, both from the training samples."""
    train = X[:n_train] - X[:n_train].mean(axis=0)
    new = X[n_train:] - X[:n_train].mean(axis=0)
    return {"X": train / train.std(), "X_new": new / train.std()}


def run_studies(
    studies: Sequence[DemoFit], n_parties: int, advance: Callable[[], None]
) -> list[DemoResult]:
    """Every study in turn, on one BLAS thread: the parties have no more."""
    with threadpool_limits(1):
        return [run_study(study, n_parties, advance) for study in studies]


def run_study(study: DemoFit, n_parties: int, advance: Callable[[], None]) -> DemoResult:
    """Fit the pooled reference and every trial; `advance` is called after each fit."""
    parts = split(study.X, n_parties, by="columns")
    new_parts = split(study.X_new, n_parties, by="columns")
    start = time.perf_counter()
    reference = KernelPCA(
        study.n_components, kernel="rbf", gamma=study.gamma, eigen_solver="dense"
    ).fit(study.X)
    seconds = time.perf_counter() - start
    advance()
    rows = [_pooled_row(study, reference, seconds)]
    for fusion, rank in study.trials:
        rows.append(_trial_row(study, parts, new_parts, reference, fusion, rank))
        advance()
    return DemoResult(study, parts, tuple(rows))


def _pooled_row(study: DemoFit, reference: Any, seconds: float) -> Row:
    return Row(
        method=SHIPPED,
        local_rank=None,
        sin_theta=0.0,
        held_out_error=0.0,
        floats=study.X.size,
        share=1.0,
        rounds=1,
        seconds=seconds,
        embedding=reference.eigenvectors_ * np.sqrt(reference.eigenvalues_),
    )


def _trial_row(
    study: DemoFit,
    parts: Partitioned,
    new_parts: Partitioned,
    reference: Any,
    fusion: str,
    rank: int,
) -> Row:
    kpca = OneShotKPCA(
        study.n_components, kernel="rbf", gamma=study.gamma, local_rank=rank, fusion=fusion
    )
    with warnings.catch_warnings():
        # The notes of every report are shown below the tables.
        warnings.simplefilter("ignore", EigenmeshWarning)
        warnings.simplefilter("ignore", CostWarning)
        kpca.fit(parts)
    report = kpca.report_
    return Row(
        method=fusion,
        local_rank=rank,
        sin_theta=sin_theta(kpca.eigenvectors_, reference.eigenvectors_),
        held_out_error=aligned_error(kpca.transform(new_parts), reference.transform(study.X_new)),
        floats=report.floats_up + report.floats_down,
        share=report.share_of_baseline,
        rounds=report.rounds,
        seconds=report.seconds,
        embedding=kpca.eigenvectors_ * np.sqrt(kpca.eigenvalues_),
        report=report,
    )


def notes_of(outcome: DemoResult) -> Mapping[str, str]:
    """The caveats of an outcome in words, each with the rows that it is about."""
    about: dict[str, list[str]] = {}
    for row in outcome.rows:
        for note in _notes_of_row(row, outcome):
            about.setdefault(note, []).append(row.label)
    return {note: ", ".join(labels) for note, labels in about.items()}


def _notes_of_row(row: Row, outcome: DemoResult) -> tuple[str, ...]:
    if row.report is None:
        return ()
    if row.method != "distance" or row.share < 1:
        return row.report.notes
    widest = max(width for _, width in outcome.parts.shapes)
    everything = (
        f"no party has more than {widest} columns, so each sends its columns whole, merely "
        f"rotated: exact, at the price of shipping them, and it tells as much"
    )
    return (*row.report.notes, everything)


def tree_of(outcome: DemoResult) -> dict[str, Any]:
    """Everything that the tables say, for machines."""
    study = outcome.study
    settings = {"kernel": "rbf", "gamma": study.gamma, "n_components": study.n_components}
    sizes = {"n_samples": len(study.X), "n_features": study.X.shape[1], "n_new": len(study.X_new)}
    return {
        "name": study.name,
        **sizes,
        **settings,
        "parties": dict(zip(outcome.parts.names, outcome.parts.shapes, strict=True)),
        "rows": [_row_tree(row, study.n_components) for row in outcome.rows],
        "notes": [{"rows": rows, "note": note} for note, rows in notes_of(outcome).items()],
    }


def _row_tree(row: Row, n_components: int) -> dict[str, Any]:
    names = "method local_rank sin_theta held_out_error floats share rounds seconds".split()
    return {
        **{name: getattr(row, name) for name in names},
        "proven_sin_theta": row.bound(n_components),
        "costs_more_than_shipping": row.share > 1,
        "report": row.report.to_tree() if row.report else None,
    }
