"""How candidates of a cross-validation do on rows that were held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eigenmesh.cross_validation.result import COUNTS, Candidate, CrossValidationResult
from eigenmesh.reports.plots.picture_style import WARN, count_along, look_of, new_picture, saved


def cross_validation(result: CrossValidationResult, *, path: str | Path | None = None) -> Any:
    """Scores against the number of components or clusters, a line a gamma (and alpha).

    Bars are standard errors over the folds; a ring marks the candidate that is taken.

    >>> import eigenmesh as em, numpy as np
    >>> parts = em.split(np.random.default_rng(0).normal(size=(90, 4)), 3, random_state=0)
    >>> result = em.cross_validate(em.KernelPCA(), parts, n_components=[1, 2, 3], n_folds=3)
    >>> cross_validation(result).axes[0].get_xlabel()
    'number of components'
    """
    count = COUNTS[result.task]
    picture, (axes,) = new_picture(7.5, 4.6)
    values = {name: {one.params[name] for one in result.candidates} for name in result.best_params}
    varied = [name for name, own in values.items() if len(own) > 1 and name != count]
    lines: dict[str, list[Candidate]] = {}
    for one in result.candidates:
        others = (f"{name} {one.params[name]:.3g}" for name in varied)
        lines.setdefault(", ".join(others) or "score", []).append(one)
    for place, (name, own) in enumerate(lines.items()):
        own.sort(key=lambda one: one.params[count])
        axes.errorbar(
            [one.params[count] for one in own],
            [one.score for one in own],
            yerr=[one.error for one in own],
            linewidth=1.2,
            markersize=5,
            capsize=2,
            label=name,
            **look_of(place),
        )
    best = result.best
    ring = {"s": 170, "facecolors": "none", "edgecolors": WARN, "linewidths": 2}
    axes.scatter([best.params[count]], [best.score], zorder=3, label="taken", **ring)
    axes.set_xlabel("number of components" if count == "n_components" else "number of clusters")
    axes.set_ylabel(result.measure)
    count_along(axes)
    picture.legend(loc="outside right upper", frameon=False)
    return saved(picture, path)
