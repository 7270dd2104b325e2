"""Which columns move each component most: loadings, or for kernels a rule that is stated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.data import Partitioned
from eigenmesh.errors import MissingPartyShare
from eigenmesh.numerics.arrays import dense
from eigenmesh.numerics.column_influence import Influence, correlations, loadings, moved_scores
from eigenmesh.reports.page.drawn_rows import MOST_COMPONENTS, Embedding

Array = NDArray[np.float64]

SHOWN = 8  # columns of each component
_POINTS = 100  # rows at which scores are moved
_MOST_MOVED = 500  # columns; of more it is said what goes with the scores
_ONE_WAY = 0.5  # of its size, that a move leans to one side

_LOADINGS = (
    "Loadings: by how much the score rises where the column alone rises by 1 (in the units of the "
    "model, after any preparation)."
)
_MOVES = (
    "Each column is moved by its own standard deviation, all others kept, at {points}; the bar is "
    "how many standard deviations of the component its score then moves (root mean square). A "
    "kernel is not linear: a column may raise the score of some rows and lower that of others."
)
_CORRELATIONS = (
    "How far a column goes with the component's score over the {points}: the size of their "
    "correlation, from 0 to 1. {why}"
)
_BY_ONE = "loading"
_BY_SPREAD = "the score moves, in its standard deviations"
_CORRELATED = "correlation"


@dataclass(frozen=True)
class MovingColumn:
    """A column, how much it moves a component, and which way: "raises", "lowers" or "both"."""

    name: str
    size: float
    way: str


@dataclass(frozen=True)
class MovingColumns:
    """For each component its columns, the strongest first, by a rule in words."""

    rule: str
    unit: str  # of a size, in a few words
    by_component: tuple[tuple[MovingColumn, ...], ...]
    n_columns: int


def innermost(model: Any) -> Any:
    """The estimator that did the work, behind the front doors."""
    while getattr(model, "estimator_", None) is not None:
        model = model.estimator_
    return model


def moving_columns(model: Any, data: Any, embedding: Embedding | None) -> MovingColumns | None:
    """The columns that count, from the data or from what the model keeps; None if neither has it.

    >>> import eigenmesh as em
    >>> X = np.random.default_rng(0).normal(size=(60, 3)) * [9.0, 1.0, 1.0]
    >>> kpca = em.KernelPCA(1, random_state=0).fit(em.split(X, 2, random_state=0))
    >>> moving_columns(kpca, None, None).by_component[0][0].name
    'column 1'
    """
    worker = innermost(model)
    if isinstance(data, Partitioned) and data.split == "columns" and embedding is not None:
        return _of_columns(worker, data, embedding)
    if not hasattr(getattr(worker, "model_", None), "transform"):
        return _of_shares(worker)
    if getattr(model, "kernel", "") == "precomputed":
        return None  # its columns are other samples
    names = _names(model)
    if getattr(model, "kernel", "linear") == "linear":
        width = _width(worker.model_, embedding)
        own = None if width is None else loadings(worker.model_.transform, width)
        return None if own is None else _named(_LOADINGS, _BY_ONE, own, names)
    return _of_kernel(worker.model_, embedding, names)


def _names(model: Any) -> Any:
    """Names of the columns as the model sees them, prepared; None where they have none."""
    names = getattr(model, "feature_names_in_", None)
    preparation = getattr(model, "preparation_", None)
    return names if preparation is None else preparation.names_out(names)


def _width(model: Any, embedding: Embedding | None) -> int | None:
    if embedding is not None and embedding.rows is not None:
        return int(embedding.rows.shape[1])
    points = _own_points(model)
    width: int | None = getattr(model, "n_columns", None if points is None else points.shape[1])
    return width


def _of_kernel(model: Any, embedding: Embedding | None, names: Any) -> MovingColumns | None:
    own = embedding is not None and embedding.rows is not None
    rows = embedding.rows if own and embedding is not None else _own_points(model)
    if rows is None or not len(rows):
        return None
    words = "rows that are drawn" if own else "points that the model keeps"
    filled = np.where(np.isfinite(rows), rows, 0.0)
    if rows.shape[1] > _MOST_MOVED:
        why = f"With more than {_MOST_MOVED} columns they are not moved one by one."
        rule = _CORRELATIONS.format(points=words, why=why)
        goes_with = correlations(filled, np.asarray(model.transform(filled)))
        return _named(rule, _CORRELATED, goes_with, names)
    some = filled[np.unique(np.linspace(0, len(rows) - 1, _POINTS).astype(int))]
    influence = moved_scores(model.transform, some, filled.std(axis=0))
    spread = np.asarray(model.transform(filled), dtype=np.float64).std(axis=0)
    scaled = influence.size / np.where(spread > 0, spread, 1.0)
    rule = _MOVES.format(points=f"{len(some)} of the {words}")
    return _named(rule, _BY_SPREAD, influence._replace(size=scaled), names)


def _own_points(model: Any) -> Array | None:
    """Landmarks, or the rows of an exact fit; what is drawn from them are sums over all."""
    points = getattr(model, "landmarks", None)
    if points is None and getattr(getattr(model, "kernel", None), "name", "") != "precomputed":
        points = getattr(model, "rows", None)
    return None if points is None else np.asarray(dense(points), dtype=np.float64)


def _of_columns(worker: Any, data: Partitioned, embedding: Embedding) -> MovingColumns | None:
    exact = _of_shares(worker)
    if exact is not None:
        return exact
    if len(embedding.scores) != embedding.n_rows:
        return None  # the samples that are drawn are not known by number here
    parts = data.matched()
    influences = [
        correlations(np.asarray(dense(part), dtype=np.float64), embedding.scores)
        for part in parts.parts
    ]
    both = Influence(*(np.vstack(own) for own in zip(*influences, strict=True)))
    rule = _CORRELATIONS.format(points="samples", why="The columns are at several parties.")
    return _named(
        rule, _CORRELATED, both, _names_of_parties(parts.names, parts.feature_names, parts.shapes)
    )


def _of_shares(worker: Any) -> MovingColumns | None:
    """Loadings that the owners of columns keep, where this process has them all."""
    try:
        components = getattr(worker, "components_", None)
    except MissingPartyShare:
        return None
    if components is None:
        return None
    V = np.asarray(components, dtype=np.float64).T
    columns = worker.party_feature_names_
    shapes = [(0, width) for width in worker.model_.widths]
    names = _names_of_parties(tuple(columns), tuple(columns.values()), shapes)
    return _named(_LOADINGS, _BY_ONE, Influence(np.abs(V), np.sign(V)), names)


def _names_of_parties(
    parties: Sequence[str], columns: Sequence[Any], shapes: Sequence[tuple[int, int]]
) -> list[str]:
    return [
        f"{party}: {own[i] if own is not None else f'column {i + 1}'}"
        for party, own, (_, width) in zip(parties, columns, shapes, strict=True)
        for i in range(width)
    ]


def _named(rule: str, unit: str, influence: Influence, names: Any) -> MovingColumns:
    d, k = influence.size.shape
    own = names if names is not None and len(names) == d else [f"column {i + 1}" for i in range(d)]
    components = tuple(_strongest(influence, own, j) for j in range(min(k, MOST_COMPONENTS)))
    return MovingColumns(rule, unit, components, d)


def _strongest(influence: Influence, names: Sequence[str], j: int) -> tuple[MovingColumn, ...]:
    size, lean = influence.size[:, j], influence.lean[:, j]
    order = np.argsort(-size, kind="stable")[:SHOWN]
    return tuple(MovingColumn(str(names[i]), float(size[i]), _way(lean[i])) for i in order)


def _way(lean: float) -> str:
    if abs(lean) < _ONE_WAY:
        return "both"
    return "raises" if lean > 0 else "lowers"
