"""A model's components: how much they explain, which columns move them, how they were reached."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.patches import Patch

from eigenmesh.errors import InputError
from eigenmesh.reports.page.drawn_rows import drawn_rows
from eigenmesh.reports.page.facts import convergence_of, spectrum_of
from eigenmesh.reports.page.moving_columns import moving_columns
from eigenmesh.reports.plots.picture_style import (
    MARK,
    PALETTE,
    REST,
    WARN,
    count_along,
    new_picture,
    saved,
    titled,
)

_COLOURS = {"raises": MARK, "lowers": PALETTE[5], "both": REST}
_WORDS = {"raises": "raises the score", "lowers": "lowers it", "both": "both, by row"}
_SHOWN = 6  # components whose columns are drawn
_ABREAST = 3  # panels in a row
_LONGEST = 28  # characters of a column's name
_NARROW = 26  # characters of a line below a panel


def scree(model: Any, *, path: str | Path | None = None) -> Any:
    """The share of the variance that each component explains, and what is missing of it.

    >>> import eigenmesh as em
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> scree(em.KernelPCA(3).fit(X)).axes[0].get_ylabel()
    'share of the variance'
    """
    spectrum = spectrum_of(model)
    has_shares = spectrum.shares is not None
    heights = spectrum.shares if spectrum.shares is not None else spectrum.values
    if not len(heights):
        raise InputError(f"{type(model).__name__} has no eigenvalues to draw")
    numbers = np.arange(1, len(heights) + 1)
    picture, (axes,) = new_picture(7, 4.4)
    axes.bar(numbers, heights, color=MARK, label="found")
    if spectrum.missing is not None and spectrum.missing.max() > 0:
        lacks = np.minimum(spectrum.missing, 0.95)
        more = heights * lacks / (1 - lacks)
        axes.bar(
            numbers,
            more,
            bottom=heights,
            color="none",
            edgecolor=WARN,
            hatch="////",
            linewidth=0,
            label="missing, about",
        )
    if has_shares:
        axes.plot(numbers, np.cumsum(heights), "o-", color=PALETTE[0], label="all so far")
        axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axes.set_ylabel("share of the variance" if has_shares else "eigenvalue")
    axes.set_xlabel("component")
    count_along(axes)
    unknown = spectrum.missing is None
    titled(axes, "what is missing is not known with this method" if unknown else "")
    axes.legend(frameon=False)
    return saved(picture, path)


def loadings(model: Any, data: Any = None, *, path: str | Path | None = None) -> Any:
    """The columns that move each component most: loadings, or for kernels by the page's rule.

    `data` are rows or samples as `transform` takes them; where the model keeps landmarks or is
    linear, none are needed.

    >>> import eigenmesh as em
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> picture = loadings(em.KernelPCA(2).fit(X))
    >>> [axes.get_title(loc="left") for axes in picture.axes]
    ['component 1', 'component 2']
    """
    drawn = None if data is None else drawn_rows(model, data)
    columns = moving_columns(model, data, drawn)
    if columns is None:
        raise InputError(
            "which columns move the components is not known of this model alone; pass data="
        )
    components = columns.by_component[:_SHOWN]
    n, n_rows = len(components), -(-len(components) // _ABREAST)
    picture, panels = new_picture(4.2 * -(-n // n_rows), 0.5 + 3.3 * n_rows, n, n_rows)
    for j, (axes, strongest) in enumerate(zip(panels, components, strict=True)):
        names = [_short(own.name) for own in strongest]
        places = np.arange(len(names))[::-1]
        axes.barh(
            places, [own.size for own in strongest], color=[_COLOURS[o.way] for o in strongest]
        )
        axes.set_yticks(places, names)
        axes.grid(visible=False, axis="y")
        titled(axes, f"component {j + 1}")
        axes.set_xlabel(fill(columns.unit, _NARROW))  # long names leave a panel little width
        axes.xaxis.get_major_locator().set_params(nbins=5)  # else numbers run into each other
    ways = [way for way in _WORDS if any(own.way == way for some in components for own in some)]
    handles = [Patch(color=_COLOURS[way], label=_WORDS[way]) for way in ways]
    picture.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return saved(picture, path)


def convergence(model: Any, *, path: str | Path | None = None) -> Any:
    """The course of a method's iterations, of those that iterate and keep it.

    >>> import eigenmesh as em
    >>> X = np.random.default_rng(0).normal(size=(60, 6))
    >>> vfed = em.VFedPCA(2).fit(em.split(X, 3, by="columns"))
    >>> convergence(vfed).axes[0].get_xlabel()
    'iteration'
    """
    course = convergence_of(model)
    if course is None:
        raise InputError(
            f"{type(model).__name__} keeps no course of iterations; VFedPCA, FedKernelKMeans and "
            f"ADMMKPCA with a reference do. It stopped because {model.report_.stop_reason}"
        )
    values = np.asarray(course.values)
    picture, (axes,) = new_picture(7, 4.2)
    numbers = np.arange(1, len(values) + 1)
    axes.plot(numbers, values, "o-" if len(values) <= 80 else "-", color=MARK, markersize=4)
    if values.min() > 0 and values.max() > 30 * values.min():
        axes.set_yscale("log")
    titled(axes, course.what)
    axes.set_xlabel("iteration")
    count_along(axes)
    return saved(picture, path)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
