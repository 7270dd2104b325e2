"""One look for all pictures: hues that stay apart for colour-blind readers, and shapes besides."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from eigenmesh.errors import InputError

# Ten hues that stay apart for colour-blind readers (after P. Tol's "muted", pale ones darkened).
PALETTE = "#332288 #3b9dd1 #44aa99 #117733 #999933 #ddaa33 #cc6677 #882255 #aa4499 #222222".split()
MARK, WARN, REST = PALETTE[1], PALETTE[6], "0.72"

_SHAPES = "osD^v"
_MOST_DRAWN = 20_000  # points of a scatter; more only blacken it
_MOST_NAMED = 24  # groups in a legend
_DOTS_AN_INCH = 150


class Picture(Figure):
    """A figure that shows itself in notebooks, whatever their set-up."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png", dpi=110)
        return content.getvalue()


def new_picture(
    width: float, height: float, n_panels: int = 1, n_rows: int = 1, **sharing: Any
) -> tuple[Any, Any]:
    """A picture and its panels, side by side, in as many rows."""
    picture = Picture(figsize=(width, height), layout="constrained", facecolor="white")
    places = picture.subplots(n_rows, -(-n_panels // n_rows), squeeze=False, **sharing).ravel()
    for unused in places[n_panels:]:
        unused.remove()
    panels = places[:n_panels]
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
    return picture, panels


def headed(picture: Any, heading: str | None) -> None:
    """Give a picture its heading."""
    if heading:
        picture.suptitle(heading, x=0.01, ha="left", fontsize=13, fontweight="bold")


def titled(axes: Any, title: str) -> None:
    """Give a panel its title."""
    axes.set_title(title, loc="left", fontsize=10.5)


def count_along(axes: Any) -> None:
    """Whole numbers alone along the horizontal axis, also where it has a single one."""
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)


def saved(picture: Any, path: str | Path | None) -> Any:
    """The picture, written to a file if there is a path."""
    if path is not None:
        picture.savefig(path, dpi=_DOTS_AN_INCH)
    return picture


# Groups of points.


def groups_of(labels: ArrayLike | None, n: int) -> dict[str, NDArray[np.bool_]]:
    """Which samples carry each label; one nameless group without labels."""
    if labels is None:
        return {"": np.ones(n, dtype=bool)}
    own = np.asarray(labels)
    if own.shape != (n,):
        raise InputError(f"labels of shape {own.shape} for {n} samples; expected one a sample")
    return {str(label): own == label for label in np.unique(own)}


def look_of(place: int) -> dict[str, str]:
    """Hue and shape of a group by its place: neighbours differ in both, and 50 pairs are apart."""
    shape = (place + place // len(PALETTE)) % len(_SHAPES)
    return {"color": PALETTE[place % len(PALETTE)], "marker": _SHAPES[shape]}


def are_letters(groups: Any) -> bool:
    """Whether labels can be drawn as themselves, which needs no legend and no sense of colour."""
    return all(len(label) == 1 and label.isalnum() and label.isascii() for label in groups)


def scatter(axes: Any, Z: NDArray[Any], groups: dict[str, NDArray[np.bool_]]) -> None:
    """Points (n, 2) by group, as letters where the names of the groups are."""
    kept = np.zeros(len(Z), dtype=bool)
    kept[np.random.default_rng(0).permutation(len(Z))[:_MOST_DRAWN]] = True
    as_letters = are_letters(groups) and len(groups) > 1
    for place, (label, members) in enumerate(groups.items()):
        look = look_of(place)
        if as_letters:
            look["marker"] = f"${label}$"
        size = 34 if as_letters else 18 if len(Z) < 3000 else 7
        axes.scatter(*Z[members & kept].T, s=size, linewidths=0.2, alpha=0.85, label=label, **look)


def add_legend(picture: Any, axes: Any, *, below: bool = True) -> None:
    """Name the groups below or beside the panels; of very many the first."""
    handles, names = axes.get_legend_handles_labels()
    few = slice(0, _MOST_NAMED)
    columns = min(len(names), 6) if below else 1
    place = "outside lower center" if below else "outside right upper"
    title = None if len(names) <= _MOST_NAMED else f"{_MOST_NAMED} of {len(names)} groups"
    picture.legend(handles[few], names[few], loc=place, ncols=columns, frameon=False, title=title)
