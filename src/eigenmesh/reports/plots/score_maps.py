"""Where samples lie in two components: of one model, or of two side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenmesh.errors import InputError
from eigenmesh.reports.plots.picture_style import (
    add_legend,
    are_letters,
    groups_of,
    headed,
    new_picture,
    saved,
    scatter,
    titled,
)


def embedding(
    scores: Any,
    labels: Any = None,
    *,
    components: tuple[int, int] = (1, 2),
    names: Sequence[str] | None = None,
    heading: str | None = None,
    path: str | Path | None = None,
) -> Any:
    """Samples in two components, coloured by label; scores of several parties by party.

    Parameters
    ----------
    scores : what `transform` gives: an array (n, k), or a list with one a party.
    labels : one a sample, in the form of the scores.
    components : across and up, from 1.
    names : of the parties, where scores are a list and there are no labels.

    >>> Z = np.random.default_rng(0).normal(size=(20, 3))
    >>> embedding([Z[:5], Z[5:]], components=(1, 3)).axes[0].get_ylabel()
    'component 3'
    """
    Z, groups = _grouped(scores, labels, names)
    places = _checked_components(components, Z.shape[1])
    picture, (axes,) = new_picture(6.4, 5.4)
    scatter(axes, Z[:, places], groups)
    _name_axes(axes, components)
    headed(picture, heading)
    _explain(picture, axes, groups)
    return saved(picture, path)


def compare(
    reference: ArrayLike,
    estimate: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    titles: Sequence[str] = ("pooled", "federated"),
    heading: str | None = None,
    path: str | Path | None = None,
) -> Any:
    """Two embeddings side by side in their first two components.

    The signs of the estimate are aligned to the reference: kernel PCA leaves them open. Samples
    are drawn as their labels where these are single characters.

    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(20, 2))
    >>> picture = compare(Z, -Z, rng.integers(3, size=20))
    >>> [axes.get_title(loc="left") for axes in picture.axes]
    ['pooled', 'federated']
    """
    truth, guess = _plane(reference), _plane(estimate)
    if truth.shape != guess.shape:
        raise InputError(f"embeddings of {len(truth)} and {len(guess)} samples; expected the same")
    groups = groups_of(labels, len(truth))
    picture, panels = new_picture(11, 5.6, 2, sharex=True, sharey=True)
    for axes, Z, title in zip(panels, (truth, align_signs(guess, truth)), titles, strict=True):
        scatter(axes, Z, groups)
        titled(axes, title)
        _name_axes(axes, (1, 2))
        axes.tick_params(labelleft=True)
    headed(picture, heading)
    _explain(picture, panels[0], groups)
    return saved(picture, path)


def align_signs(Z: NDArray[Any], reference: NDArray[Any]) -> NDArray[Any]:
    """Z with the sign of each column turned towards the reference.

    >>> align_signs(np.array([[1.0], [-2.0]]), np.array([[-1.0], [2.0]])).ravel().tolist()
    [-1.0, 2.0]
    """
    signs = np.where(np.einsum("ij,ij->j", Z, reference) < 0, -1.0, 1.0)
    return np.asarray(Z * signs)


def joined(values: Any, what: str) -> NDArray[Any]:
    """One array of what may be a list with an array a party."""
    if isinstance(values, Mapping):
        values = list(values.values())
    try:
        is_split = isinstance(values, list) and np.ndim(values[0]) > (0 if what == "labels" else 1)
        return np.concatenate(values) if is_split else np.asarray(values)
    except (TypeError, ValueError, IndexError):
        raise InputError(
            f"{what} are no array and no list with an array a party; expected what transform gives"
        ) from None


def _grouped(scores: Any, labels: Any, names: Sequence[str] | None) -> tuple[Any, Any]:
    Z = joined(scores, "scores").astype(np.float64)
    if Z.ndim != 2 or Z.shape[1] < 1:
        raise InputError(f"scores of shape {Z.shape}; an array (n_samples, n_components) expected")
    if Z.shape[1] == 1:  # along a line
        Z = np.hstack([Z, np.zeros_like(Z)])
    if labels is None and isinstance(scores, list):
        sizes = [len(own) for own in scores]
        words = [f"party-{i}" for i in range(len(sizes))] if names is None else list(names)
        if len(words) != len(sizes):
            raise InputError(f"names of {len(words)} parties, scores of {len(sizes)}; as many are")
        parties = np.repeat(np.arange(len(sizes)), sizes)
        return Z, {word: parties == i for i, word in enumerate(words)}
    return Z, groups_of(None if labels is None else joined(labels, "labels"), len(Z))


def _checked_components(components: Sequence[int], k: int) -> list[int]:
    if len(components) != 2 or not all(type(c) is int and 1 <= c <= k for c in components):
        raise InputError(f"components are {components!r}; two whole numbers from 1 to {k} expected")
    return [c - 1 for c in components]


def _plane(Z: ArrayLike) -> NDArray[np.float64]:
    points = np.asarray(Z, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] < 2:
        raise InputError(f"an embedding of shape {points.shape}; expected two components or more")
    return points[:, :2]


def _name_axes(axes: Any, components: Sequence[int]) -> None:
    axes.set_xlabel(f"component {components[0]}")
    axes.set_ylabel(f"component {components[1]}")


def _explain(picture: Any, axes: Any, groups: Any) -> None:
    if len(groups) > 1 and not are_letters(groups):
        add_legend(picture, axes)
