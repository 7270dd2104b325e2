"""What kernel k-means over parties is worth, beside what it cost: figures, a table, a picture.

Matplotlib is imported when the picture is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from eigenmesh.data import Partitioned
from eigenmesh.metrics import recovery_error
from eigenmesh.numerics.eigen import top_eigenpairs
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.reports.tables import LOOK
from eigenmesh.stages.row_messages import stack

EXACT_ROWS = 6000  # up to here the kernel matrix of all rows is affordable


@dataclass(frozen=True)
class ClusterQuality:
    """Cost and worth of a fit. None stands for what cannot be known: no labels, too many rows."""

    floats_up: int
    rounds: int
    baseline_floats: int
    nmi: float | None
    ari: float | None
    recovery_error: float | None  # ‖H Hᵀ − K_s‖²_F / n², from the exact eigenvectors


def cluster_quality(
    model: Any, parts: Partitioned, labels: ArrayLike | None = None
) -> ClusterQuality:
    """Measure a fitted k-means estimator on the rows that it was fitted to, in one place.

    `labels` are those of the rows before they were split. For who may see all rows: a rehearsal,
    or a study on public data.

    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> parts = em.split(X, 3, random_state=0)
    >>> model = em.FedKernelKMeans(3, n_iterations=20, random_state=0).fit(parts)
    >>> quality = cluster_quality(model, parts, y)
    >>> quality.nmi > 0.6, quality.recovery_error < 1e-3
    (True, True)
    """
    clusters = np.concatenate(model.predict(parts))
    nmi = ari = error = None
    if labels is not None:
        true = np.asarray(labels)
        if parts.order is not None:
            true = true[np.concatenate(parts.order)]
        nmi = float(normalized_mutual_info_score(true, clusters))
        ari = float(adjusted_rand_score(true, clusters))
    if len(clusters) <= EXACT_ROWS:
        error = _recovery(model, parts)
    report = model.report_
    costs = (report.floats_up, report.rounds, report.baseline_floats)
    return ClusterQuality(*costs, nmi, ari, error)


def _recovery(model: Any, parts: Partitioned) -> float:
    kernel = Kernel(model.kernel, model.gamma_, model.degree, model.coef0)
    scores = np.vstack(model.transform(parts))
    exact = top_eigenpairs(kernel.matrix(stack(parts.parts)), scores.shape[1])
    return recovery_error(scores, *exact)


def quality_table(methods: Mapping[str, ClusterQuality], title: str = "Kernel k-means") -> Table:
    """A row a method, and what shipping every row would have cost.

    >>> quality_table({"fed": ClusterQuality(10, 2, 100, 0.5, None, None)}).row_count
    2
    """
    table = Table(title=title, **LOOK)
    table.add_column("")
    for name in ("floats up", "rounds", "of shipping", "NMI", "ARI", "recovery error"):
        table.add_column(name, justify="right")
    for name, quality in methods.items():
        share = quality.floats_up / quality.baseline_floats
        costs = (f"{quality.floats_up:,}", f"{quality.rounds:,}", f"{share:.1%}")
        scores = (_number(quality.nmi, ".3f"), _number(quality.ari, ".3f"))
        table.add_row(name, *costs, *scores, _number(quality.recovery_error, ".1e"))
    if methods:
        every = max(quality.baseline_floats for quality in methods.values())
        table.add_row("every row, shipped", f"{every:,}", "1", "100.0%", "", "", "")
    return table


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def cluster_figure(model: Any, parts: Partitioned, path: str | Path | None = None) -> Any:
    """Clusters in the first two components, and how the iterations settled; saved to `path`.

    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_iris
    >>> parts = em.split(load_iris().data, 3, random_state=0)
    >>> figure = cluster_figure(em.FedKernelKMeans(3, n_iterations=5).fit(parts), parts)
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['clusters', 'change of an iteration']
    """
    from matplotlib.figure import Figure

    from eigenmesh.reports.plots.cluster_maps import draw_clusters

    figure = Figure(figsize=(11, 5.2), layout="constrained", facecolor="white")
    clusters, changes = figure.subplots(1, 2)
    scores = np.vstack(model.transform(parts))
    draw_clusters(clusters, scores, np.concatenate(model.predict(parts)))
    _draw_trace(changes, model.trace_)
    for axes, title in ((clusters, "clusters"), (changes, "change of an iteration")):
        axes.set_title(title, loc="left", fontsize=10.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _draw_trace(axes: Any, trace: Any) -> None:
    points = [(entry.t, entry.change) for entry in trace if entry.change and entry.t > 1]
    if points:
        t, change = np.array(points).T
        axes.loglog(t, change, "o", color="#332288", markersize=4, label="measured")
        level = float(np.median(change * t**2))
        axes.loglog(t, level / t**2, color="0.6", linewidth=1, label="as 1 / t²")
        axes.legend(frameon=False)
        axes.minorticks_off()
        axes.set_xticks([tick for tick in (2, 5, 10, 20, 50, 100, 200, 500) if tick <= t.max()])
        axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_xlabel("iteration")
    axes.set_ylabel("‖Z' − Z‖² / n²")
