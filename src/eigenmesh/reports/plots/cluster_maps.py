"""Clusters: how many there may be, where they lie, and how large they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenmesh.errors import InputError
from eigenmesh.reports.plots.picture_style import (
    MARK,
    PALETTE,
    WARN,
    add_legend,
    count_along,
    groups_of,
    new_picture,
    saved,
    scatter,
    titled,
)
from eigenmesh.reports.plots.score_maps import joined


def clusters(scores: Any, labels: Any, *, path: str | Path | None = None) -> Any:
    """Clusters in the first two components, with their sizes.

    >>> rng = np.random.default_rng(0)
    >>> picture = clusters(rng.normal(size=(30, 3)), np.arange(30) % 4)
    >>> picture.legends[0].get_texts()[0].get_text()
    'cluster 0: 8 rows'
    """
    Z, own = joined(scores, "scores"), joined(labels, "labels")
    if Z.ndim != 2 or Z.shape[1] < 1 or own.shape != Z.shape[:1]:
        raise InputError(
            f"scores of shape {Z.shape} and labels of shape {own.shape}; a label a row is expected"
        )
    picture, (axes,) = new_picture(7.2, 5.4)
    draw_clusters(axes, Z, own)
    add_legend(picture, axes, below=False)
    return saved(picture, path)


def draw_clusters(axes: Any, Z: NDArray[Any], labels: NDArray[Any]) -> None:
    """Scatter scores (n, k), a colour and a shape a cluster, named with its size."""
    plane = Z[:, :2] if Z.shape[1] > 1 else np.hstack([Z, np.zeros_like(Z)])
    groups = {
        f"cluster {name}: {int(rows.sum()):,} row{'' if rows.sum() == 1 else 's'}": rows
        for name, rows in groups_of(labels, len(Z)).items()
    }
    scatter(axes, plane, groups)
    axes.set_xlabel("component 1")
    axes.set_ylabel("component 2")


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


def eigengap(spectrum: ArrayLike, *, most: int = 20, path: str | Path | None = None) -> Any:
    """Eigenvalues, and by which factor each falls to the next.

    `spectrum` is `spectrum_` of a fitted KernelKMeans; fit it with `n_landmarks` well above `most`.

    >>> picture = eigengap([90.0, 8.0, 7.0, 1.0, 0.9, 0.8])
    >>> picture.axes[1].get_title(loc="left")
    'largest fall after 3: perhaps 3 clusters'
    """
    values = _positive(spectrum)[: most + 1]
    suggestion = suggested_clusters(values, most)
    numbers = np.arange(1, len(values) + 1)
    picture, (levels, steps) = new_picture(10, 4, 2)
    levels.semilogy(numbers, values, "o-", color=PALETTE[0])
    titled(levels, "eigenvalues of the kernel matrix")
    levels.set_ylabel("eigenvalue (powers of ten)")
    falls = values[1:-1] / values[2:]  # that of the first would dwarf them
    colours = [WARN if n == suggestion else MARK for n in numbers[1:-1]]
    steps.bar(numbers[1:-1], falls, color=colours)
    titled(steps, f"largest fall after {suggestion}: perhaps {suggestion} clusters")
    steps.set_ylabel("eigenvalue / the next one")
    for axes in (levels, steps):
        axes.set_xlabel("number of the eigenvalue")
        count_along(axes)
    return saved(picture, path)


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
