"""What a page says of a fitted model: every fact in one record, and nothing of how it looks.

Scores of single rows are on a page only where the caller passes the data: a model's own landmarks
and the scores that it may hold are never drawn.
"""

from __future__ import annotations

import inspect
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import scipy
import sklearn
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from eigenmesh.estimators.report import RunReport
from eigenmesh.reports.audit import Audit, audit
from eigenmesh.reports.page.drawn_rows import Embedding, drawn_rows
from eigenmesh.reports.page.moving_columns import MovingColumns, innermost, moving_columns
from eigenmesh.version import __version__

Array = NDArray[np.float64]

NOT_PASSED = (
    "No scores of single rows are on this page. A saved model keeps none of the rows that it was "
    "fitted to; who has rows can name them beside the model, and they are drawn."
)
AT_SITES = (
    "No scores of single rows are on this page: the rows belong to the sites, and so do their "
    "scores, which each site writes for itself (eigenmesh site scores)."
)
_LONGEST = 120  # characters of a parameter


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues, the largest first; `shares` of the variance and what is `missing`, if known."""

    values: Array
    shares: Array | None
    missing: Array | None

    @property
    def explained(self) -> float | None:
        """The share of the variance that all components explain."""
        return None if self.shares is None else float(self.shares.sum())


@dataclass(frozen=True)
class Convergence:
    """A number that falls, or rises, from one iteration to the next."""

    what: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Parameter:
    """A parameter of the estimator, in words."""

    name: str
    value: str
    is_default: bool


@dataclass(frozen=True)
class PageFacts:
    """All that a page says."""

    estimator: str
    task: str  # "Kernel PCA", "Kernel k-means" or "Kernel regression"
    method: str
    kernel: str
    report: RunReport
    audit: Audit | None  # None where a report of an earlier version has no facts for one
    spectrum: Spectrum
    embedding: Embedding | None
    no_rows: str  # why there is no embedding
    columns: MovingColumns | None
    cluster_sizes: tuple[int, ...]
    r_squared: float | None  # of the fitted rows, where something was predicted
    convergence: Convergence | None
    parameters: tuple[Parameter, ...]
    versions: Mapping[str, str]

    @property
    def n_rows(self) -> int | None:
        """Rows or samples that the fit covers, where the report knows."""
        sizes = [rows for name, (rows, _) in self.report.shapes.items() if name in self._in]
        if not sizes:
            return None
        return sizes[0] if self.report.split == "columns" else sum(sizes)

    @property
    def _in(self) -> set[str]:
        return set(self.report.parties) - set(self.report.left_out)


def facts_of(model: Any, data: Any = None, labels: Any = None, no_rows: str = "") -> PageFacts:
    """Gather what a page says of a fitted model, with the scores of `data` if they are passed.

    >>> import eigenmesh as em
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> kpca = em.KernelPCA(2, random_state=0).fit(em.split(X, 2, random_state=0))
    >>> facts = facts_of(kpca)
    >>> facts.task, facts.embedding is None, facts.n_rows
    ('Kernel PCA', True, 60)
    """
    check_is_fitted(model)
    embedding = None if data is None else drawn_rows(model, data, labels)
    kernel = str(getattr(model, "kernel", "linear"))
    gamma = getattr(model, "gamma_", None)
    report: RunReport = model.report_
    return PageFacts(
        estimator=type(model).__name__,
        task=_task(model),
        method=getattr(model, "method_", "") or type(model).__name__,
        kernel=f"{kernel} kernel" + ("" if gamma is None else f" with gamma {gamma:.4g}"),
        report=report,
        audit=_audit(report),
        spectrum=spectrum_of(model),
        embedding=embedding,
        no_rows=no_rows or NOT_PASSED,
        columns=moving_columns(model, data, embedding),
        cluster_sizes=_cluster_sizes(model),
        r_squared=getattr(model, "r_squared_", None),
        convergence=convergence_of(model),
        parameters=tuple(_parameters(model)),
        versions=_versions(),
    )


def _task(model: Any) -> str:
    if hasattr(model, "cluster_centers_"):
        return "Kernel k-means"
    return "Kernel regression" if hasattr(model, "coef_") else "Kernel PCA"


def _audit(report: RunReport) -> Audit | None:
    is_bare = not report.disclosures and any(report.by_party.values())
    return None if is_bare else audit(report)


def spectrum_of(model: Any) -> Spectrum:
    """The eigenvalues of a fitted model, with what is known of them."""
    missing = getattr(model, "shortfalls_", None)
    shares = getattr(model, "explained_variance_ratio_", None)
    return Spectrum(
        values=np.asarray(model.eigenvalues_, dtype=np.float64),
        shares=None if shares is None else np.asarray(shares, dtype=np.float64),
        missing=None if missing is None else np.asarray(missing, dtype=np.float64),
    )


def _cluster_sizes(model: Any) -> tuple[int, ...]:
    """Of the fitted rows, where this process has their labels."""
    labels = getattr(model, "_labels", None)
    parts: list[Any] = labels if isinstance(labels, list) else [labels]
    if not all(isinstance(own, np.ndarray) for own in parts):
        return ()
    counts = np.bincount(np.concatenate(parts), minlength=len(model.cluster_centers_))
    return tuple(counts.tolist())


def convergence_of(model: Any) -> Convergence | None:
    """What the iterations of a method have left, of those that iterate and keep it."""
    worker = innermost(model)
    if getattr(worker, "convergence_", None) is not None:
        words = "largest residual that is possible, as a share of its eigenvalue, after each round"
        return Convergence(words, _numbers(worker.convergence_))
    trace = getattr(worker, "trace_", None)
    if trace is None or not len(trace):
        return None
    if isinstance(trace, np.ndarray):  # of a graph that was compared with a reference
        words = "likeness of the nodes' components to the reference's, after each iteration"
        return Convergence(words, _numbers(trace[:, 1]))
    changes = [entry.change for entry in trace if entry.change is not None]
    words = "squared change of the kernel matrix's estimate, in each iteration"
    return Convergence(words, _numbers(changes)) if changes else None


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _parameters(model: Any) -> list[Parameter]:
    defaults = inspect.signature(type(model)).parameters
    return [
        Parameter(name, _in_words(value), _is(value, defaults[name].default))
        for name, value in sorted(model.get_params(deep=False).items())
    ]


def _is(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


def _in_words(value: Any) -> str:
    if isinstance(value, nx.Graph):
        return f"a graph of {len(value)} nodes and {value.number_of_edges()} edges"
    if hasattr(value, "shape"):
        return f"an array of shape {tuple(value.shape)}"
    words = value if isinstance(value, str) else repr(value)
    return words if len(words) <= _LONGEST else words[:_LONGEST] + "…"


def _versions() -> dict[str, str]:
    return {
        "eigenmesh": __version__,
        "Python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def listed(names: Sequence[str], most: int = 6) -> str:
    """Some names, and how many more.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"
