"""Pictures of clusters: how many there may be, and where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from eigenmesh.errors import InputError
from eigenmesh.reports.plots import PALETTE

_MOST_DRAWN = 20_000  # points of a scatter; more only blacken it


def suggested_clusters(spectrum: ArrayLike, most: int = 20) -> int:
    """The number of clusters after which the eigenvalues fall the most, λ_k / λ_{k+1}, from k = 2.

    The eigenvalues of an uncentred kernel matrix of k well separated groups are k large ones, then
    small ones. The first is that of a nearly constant vector, the rows' mean, and tells nothing of
    groups however far it stands above the second: its fall is left out, and so 1 is never
    suggested. A suggestion, not a test: look at the picture.

    >>> suggested_clusters([90.0, 8.0, 7.0, 1.0, 0.9, 0.8])
    3
    """
    values = _positive(spectrum)[: most + 1]
    return int(np.argmax(values[1:-1] / values[2:])) + 2


def eigengap_figure(
    spectrum: ArrayLike, *, most: int = 20, path: str | Path | None = None
) -> Figure:
    """Eigenvalues, and by which factor each falls to the next, saved if a path is given.

    `spectrum` is `spectrum_` of a fitted KernelKMeans; fit it with `n_landmarks` well above `most`.

    >>> figure = eigengap_figure([90.0, 8.0, 7.0, 1.0, 0.9, 0.8])
    >>> figure.axes[1].get_title(loc="left")
    'largest fall after 3'
    """
    values = _positive(spectrum)[: most + 1]
    suggestion = suggested_clusters(values, most)
    numbers = np.arange(1, len(values) + 1)
    figure = Figure(figsize=(10, 4), layout="constrained", facecolor="white")
    levels, steps = figure.subplots(1, 2)
    levels.semilogy(numbers, values, "o-", color=PALETTE[0])
    levels.set_title("eigenvalues", loc="left", fontsize=10.5)
    falls = values[1:-1] / values[2:]  # that of the first would dwarf them
    colours = [PALETTE[6] if n == suggestion else PALETTE[1] for n in numbers[1:-1]]
    steps.bar(numbers[1:-1], falls, color=colours)
    steps.set_title(f"largest fall after {suggestion}", loc="left", fontsize=10.5)
    steps.set_ylabel("λ_k / λ_{k+1}")
    for axes in (levels, steps):
        axes.set_xlabel("k")
        axes.spines[["top", "right"]].set_visible(False)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def cluster_figure(
    scores: ArrayLike, labels: ArrayLike, *, path: str | Path | None = None
) -> Figure:
    """Clusters in the first two components, saved if a path is given.

    >>> rng = np.random.default_rng(0)
    >>> len(cluster_figure(rng.normal(size=(30, 3)), rng.integers(4, size=30)).axes[0].collections)
    4
    """
    Z, own = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if Z.ndim != 2 or Z.shape[1] < 2 or own.shape != Z.shape[:1]:
        raise InputError(
            f"scores of shape {Z.shape} and labels of shape {own.shape}; two components or more "
            f"and a label a row are expected"
        )
    figure = Figure(figsize=(6, 5.4), layout="constrained", facecolor="white")
    axes: Any = figure.subplots()
    draw_clusters(axes, Z, own)
    axes.spines[["top", "right"]].set_visible(False)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def draw_clusters(axes: Any, Z: NDArray[Any], labels: NDArray[Any]) -> None:
    """Scatter scores (n, 2 or more), a colour and a marker a cluster."""
    points = np.random.default_rng(0).permutation(len(Z))[:_MOST_DRAWN]
    for i, cluster in enumerate(np.unique(labels)):
        members = points[labels[points] == cluster]
        colour, marker = PALETTE[i % len(PALETTE)], "os^Dv"[i // len(PALETTE) % 5]
        axes.scatter(*Z[members, :2].T, s=14, alpha=0.8, color=colour, marker=marker, linewidths=0)
    axes.set_xlabel("component 1")
    axes.set_ylabel("component 2")


def _positive(spectrum: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(spectrum, dtype=np.float64)
    if values.ndim != 1 or np.any(np.diff(values) > 0):
        raise InputError("the eigenvalues are not in falling order; pass spectrum_ as it is")
    # Eigenvalues of rounding size would show falls that mean nothing.
    large: NDArray[np.float64] = values[values > 1e-9 * values.max(initial=0.0)]
    if len(large) < 3:
        raise InputError(
            f"{len(large)} eigenvalues are not enough to see a gap; at least 3 are expected: fit "
            f"with more landmarks, or of columns and on graphs with more n_eigenvectors"
        )
    return large
