"""Pictures of embeddings. Matplotlib is imported here: import this module when you draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from eigenmesh.errors import InputError

# Ten hues that stay apart for colour-blind readers (after P. Tol's "muted", pale ones darkened).
PALETTE = "#332288 #3b9dd1 #44aa99 #117733 #999933 #ddaa33 #cc6677 #882255 #aa4499 #222222".split()


def embedding_figure(
    reference: ArrayLike,
    estimate: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    titles: Sequence[str] = ("pooled", "federated"),
    heading: str | None = None,
    path: str | Path | None = None,
) -> Figure:
    """Two embeddings side by side in their first two components, saved if a path is given.

    The signs of the estimate are aligned to the reference: kernel PCA leaves them open. Samples
    are drawn as their labels where these are single characters, else as dots.

    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(20, 2))
    >>> figure = embedding_figure(Z, -Z, rng.integers(3, size=20))
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['pooled', 'federated']
    """
    truth, guess = _plane(reference), _plane(estimate)
    if truth.shape != guess.shape:
        raise InputError(f"embeddings of {len(truth)} and {len(guess)} samples; expected the same")
    groups = _groups(labels, len(truth))
    figure = Figure(figsize=(11, 5.6), layout="constrained", facecolor="white")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, Z, title in zip(panels, (truth, align_signs(guess, truth)), titles, strict=True):
        _draw(axes, Z, groups, title)
    panels[0].set_ylabel("component 2")
    if heading:
        figure.suptitle(heading, x=0.01, ha="left", fontsize=13, fontweight="bold")
    if len(groups) > 1 and not _are_letters(groups):
        _add_legend(figure, panels[0])
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def align_signs(Z: NDArray[Any], reference: NDArray[Any]) -> NDArray[Any]:
    """Z with the sign of each column turned towards the reference.

    >>> align_signs(np.array([[1.0], [-2.0]]), np.array([[-1.0], [2.0]])).ravel().tolist()
    [-1.0, 2.0]
    """
    signs = np.where(np.einsum("ij,ij->j", Z, reference) < 0, -1.0, 1.0)
    return np.asarray(Z * signs)


def _plane(Z: ArrayLike) -> NDArray[np.float64]:
    points = np.asarray(Z, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] < 2:
        raise InputError(f"an embedding of shape {points.shape}; expected two components or more")
    return points[:, :2]


def _groups(labels: ArrayLike | None, n: int) -> dict[str, NDArray[np.bool_]]:
    """Which samples carry each label; one nameless group without labels."""
    if labels is None:
        return {"": np.ones(n, dtype=bool)}
    own = np.asarray(labels)
    if own.shape != (n,):
        raise InputError(f"labels of shape {own.shape} for {n} samples; expected one a sample")
    return {str(label): own == label for label in np.unique(own)}


def _are_letters(groups: Iterable[str]) -> bool:
    """Whether labels can be drawn as themselves, which needs no legend and no sense of colour."""
    return all(len(label) == 1 and label.isalnum() and label.isascii() for label in groups)


def _draw(axes: Any, Z: NDArray[Any], groups: dict[str, NDArray[np.bool_]], title: str) -> None:
    as_letters = _are_letters(groups)
    for i, (label, members) in enumerate(groups.items()):
        axes.scatter(
            *Z[members].T,
            marker=f"${label}$" if as_letters else "os^Dv"[i // len(PALETTE) % 5],
            s=34 if as_letters else 18,
            color=PALETTE[i % len(PALETTE)],
            linewidths=0.2,
            alpha=0.85,
            label=label,
        )
    axes.set_title(title, loc="left", fontsize=10.5)
    axes.set_xlabel("component 1")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelleft=True)


def _add_legend(figure: Figure, axes: Any) -> None:
    handles, names = axes.get_legend_handles_labels()
    columns = min(len(names), 10)
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False)
