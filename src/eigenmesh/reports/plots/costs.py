"""What accuracy costs: error against bytes, a line a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.reports.plots.picture_style import look_of, new_picture, saved


def error_against_bytes(
    methods: Mapping[str, Sequence[tuple[float, float]]],
    *,
    shipping: float | None = None,
    error: str = "error",
    path: str | Path | None = None,
) -> Any:
    """Error against bytes sent, on scales of powers of ten; further down and left is better.

    Parameters
    ----------
    methods : by name, pairs of bytes (`report_.bytes`) and error, one a fit.
    shipping : bytes that shipping everything takes, a dashed line.
    error : what the error is, in words.

    >>> picture = error_against_bytes({"one shot": [(1e3, 0.1), (1e4, 0.01)]}, shipping=1e6)
    >>> picture.axes[0].get_xlabel()
    'bytes sent'
    """
    picture, (axes,) = new_picture(7, 4.8)
    for place, (name, points) in enumerate(methods.items()):
        pairs = np.asarray(sorted(points), dtype=np.float64)
        if pairs.ndim != 2 or pairs.shape[1] != 2 or not (pairs > 0).all():
            raise InputError(f"{name!r} has {points!r}; pairs of bytes and error expected, above 0")
        axes.loglog(
            *pairs.T, linestyle="-", linewidth=1.2, markersize=6, label=name, **look_of(place)
        )
    if shipping is not None:
        axes.axvline(shipping, color="0.4", linestyle="--", label="shipping everything")
    axes.set_xlabel("bytes sent")
    axes.set_ylabel(error)
    axes.legend(frameon=False)
    return saved(picture, path)
