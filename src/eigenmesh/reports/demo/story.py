"""What happens in the demonstration, chapter by chapter, and what each came to."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import KernelPCA as WholeMatrixKPCA
from sklearn.metrics import adjusted_rand_score

import eigenmesh as em
from eigenmesh.connect import federation_on
from eigenmesh.data.check_files import check_files
from eigenmesh.errors import CostWarning, EigenmeshWarning, PolicyRefusal
from eigenmesh.estimators.plan import Plan
from eigenmesh.estimators.report import RunReport
from eigenmesh.reports.demo.clinics import (
    ID_COLUMN,
    N_COLUMNS,
    N_GROUPS,
    NAMES,
    ClinicProcesses,
    Clinics,
    write_files,
)
from eigenmesh.reports.meanings import KINDS_IN_WORDS

CHAPTERS = 8
MILLION = 1_000_000
SUBSET = 5000  # rows that scikit-learn can still take
_WIDTH = 20  # columns of the million rows
_LANDMARKS = 40
_GAMMA = 1 / (6 * N_COLUMNS)
_LOSSES = {"timeout": 60.0, "on_loss": "survivors"}


@dataclass(frozen=True)
class TwoAnswers:
    """The pooled and the federated answer of the same patients."""

    pooled: NDArray[np.float64]  # (n, 2)
    federated: NDArray[np.float64]
    error: float  # largest difference of a score, as a share of the largest score
    parties: NDArray[np.int64]


@dataclass(frozen=True)
class Speed:
    """A million rows beside what scikit-learn takes for a few thousand."""

    seconds: float
    whole_matrix_seconds: float
    whole_matrix_terabytes: float  # that a million rows would take


@dataclass(frozen=True)
class Story:
    """Everything that the demonstration shows."""

    clinics: Clinics
    problems: int
    plan: Plan
    model: Any
    report: RunReport
    comparison: TwoAnswers
    refusal: PolicyRefusal  # of a method that sends rows
    instead: str  # what is sent in its place, in words
    loss: dict[str, str]
    survivors: tuple[str, ...]
    clusters: int
    agreement: float  # of the clusters with the groups of the patients
    speed: Speed
    seconds: float


def tell(folder: Path, advance: Callable[[], None]) -> Story:
    """Run every chapter; `advance` is called after each."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        # What they warn of, the page says.
        warnings.simplefilter("ignore", EigenmeshWarning)
        warnings.simplefilter("ignore", CostWarning)
        return _told(folder, advance, start)


def _told(folder: Path, advance: Callable[[], None], start: float) -> Story:
    clinics = write_files(folder)
    findings = check_files(list(clinics.files), ID_COLUMN)
    advance()
    carrier = ClinicProcesses(clinics.files)
    try:
        kpca = _kernel_pca()
        with _opened(carrier) as fed:
            plan = em.plan(kpca, fed)
            advance()
            kpca.fit(fed)
            advance()
            refusal = _refused(fed)
            advance()
        carrier.kill_at_request("west", 4)
        with _opened(carrier) as fed:
            kmeans = em.KernelKMeans(N_GROUPS, gamma=_GAMMA, random_state=0).fit(fed)
            lost, survivors = _reasons(fed.lost), fed.parties
        advance()
    finally:
        carrier.end()
    advance()
    rest = np.isin(clinics.parties, [NAMES.index(name) for name in survivors])
    labels = np.asarray(kmeans.predict(clinics.X[rest]))
    comparison = _compare(clinics, kpca)
    advance()
    speed = _speed()
    advance()
    return Story(
        clinics=clinics,
        problems=sum(not finding.is_note for finding in findings),
        plan=plan,
        model=kpca,
        report=kpca.report_,
        comparison=comparison,
        refusal=refusal,
        instead=KINDS_IN_WORDS["centroids"],
        loss=lost,
        survivors=survivors,
        clusters=len(kmeans.cluster_centers_),
        agreement=float(adjusted_rand_score(clinics.groups[rest], labels)),
        speed=speed,
        seconds=time.perf_counter() - start,
    )


def _kernel_pca(**more: Any) -> em.KernelPCA:
    how = {"n_landmarks": _LANDMARKS, "random_state": 0, **more}
    return em.KernelPCA(2, kernel="rbf", gamma=_GAMMA, **how)


def _opened(carrier: ClinicProcesses) -> Any:
    return federation_on(carrier, None, _LOSSES, secure=False)


def _refused(fed: Any) -> PolicyRefusal:
    """Ask for a sharper method, which takes some patients' rows; who refuses says so."""
    try:
        _kernel_pca(landmarks="diskpca").fit(fed)
    except PolicyRefusal as refusal:
        return refusal
    raise AssertionError("a clinic let rows out that its policy forbids")


def _reasons(lost: Mapping[str, str]) -> dict[str, str]:
    """Why parties are gone; that they are, and who, is said beside it."""
    return {name: reason.rpartition(": ")[2] for name, reason in lost.items()}


def _compare(clinics: Clinics, kpca: em.KernelPCA) -> TwoAnswers:
    """Only the demonstration has all rows in one place, to see what pooling them would give."""
    whole = WholeMatrixKPCA(2, kernel="rbf", gamma=_GAMMA, eigen_solver="arpack", random_state=0)
    pooled = whole.fit_transform(clinics.X)
    federated = np.asarray(kpca.transform(clinics.X))
    # Both leave open how the plane of two components is turned where these explain alike.
    U, _, Vt = np.linalg.svd(federated.T @ pooled)
    turned = federated @ U @ Vt
    error = float(np.abs(turned - pooled).max() / np.abs(pooled).max())
    return TwoAnswers(pooled, turned, error, clinics.parties)


def _speed() -> Speed:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((MILLION, _WIDTH), dtype=np.float32)
    start = time.perf_counter()
    em.KernelPCA(5, kernel="rbf", gamma=0.01, random_state=0).fit(X)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    WholeMatrixKPCA(5, kernel="rbf", gamma=0.01, eigen_solver="arpack").fit(X[:SUBSET])
    return Speed(ours, time.perf_counter() - start, 8e-12 * MILLION**2)
