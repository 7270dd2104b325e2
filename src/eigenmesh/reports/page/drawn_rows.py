"""The rows that are drawn: their scores, and what they are coloured by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.data import Partitioned
from eigenmesh.errors import InputError
from eigenmesh.estimators.base import FrontDoor
from eigenmesh.numerics.arrays import dense
from eigenmesh.numerics.kmeans import nearest
from eigenmesh.runtime.federation import Federation

Array = NDArray[np.float64]

MOST_DRAWN = 6000  # rows of a page; more only blacken it, and a page is to stay below 2 MB
MOST_COMPONENTS = 10
_EACH = 1  # rows of every party at least


@dataclass(frozen=True)
class Colouring:
    """A name for each row: `names[codes[i]]`, of `sizes` rows in all that are drawn."""

    names: tuple[str, ...]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, values: Any, words: str = "") -> Colouring:
        """By the values themselves, in their order."""
        names, codes = np.unique(np.asarray(values), return_inverse=True)
        return cls(tuple(f"{words}{name}" for name in names.tolist()), codes.ravel())


@dataclass(frozen=True)
class Embedding:
    """Scores (m, k) of the rows that are drawn, of `n_rows` in all.

    `rows` are these rows as the model knows them, prepared; None where parties hold columns.
    """

    scores: Array
    n_rows: int
    colourings: Mapping[str, Colouring]
    rows: Array | None


def drawn_rows(model: Any, data: Any, labels: Any = None) -> Embedding:
    """Score the data, of many rows some, drawn by a fixed seed from each party in proportion.

    >>> import eigenmesh as em
    >>> X = np.random.default_rng(0).normal(size=(60, 4))
    >>> parts = em.split(X, 2, random_state=0)
    >>> embedding = drawn_rows(em.KernelPCA(2, random_state=0).fit(parts), parts)
    >>> embedding.scores.shape, embedding.colourings["party"].names
    ((60, 2), ('party-0', 'party-1'))
    """
    if isinstance(data, Federation) or hasattr(data, "__dask_keys__"):
        raise InputError(
            f"data is a {type(data).__name__}, whose rows are not in this process; an array or a "
            f"Partitioned is expected, or None for a page without scores of single rows"
        )
    of_columns = isinstance(data, Partitioned) and data.split == "columns"
    return _samples(model, data, labels) if of_columns else _rows(model, data, labels)


def _samples(model: Any, data: Partitioned, labels: Any) -> Embedding:
    """Samples whose columns the parties hold; scoring them takes a message a party."""
    Z = np.asarray(model.transform(data), dtype=np.float64)
    names = None if labels is None else _checked_labels(labels, len(Z), "all samples")
    kept = _draw([len(Z)])[0]
    colourings = dict(_of_values(model, Z[kept], None if names is None else names[kept]))
    return Embedding(Z[kept], len(Z), colourings, None)


def _rows(model: Any, data: Any, labels: Any) -> Embedding:
    parties, parts = _parts(model, data)
    sizes = [part.shape[0] for part in parts]
    names = _labels_by_party(labels, parties, sizes)
    kept = _draw(sizes)
    rows = np.vstack([dense(part[own]) for part, own in zip(parts, kept, strict=True)])
    prepared = model._as_prepared(rows) if isinstance(model, FrontDoor) else rows
    Z = np.asarray(_scores(model, rows), dtype=np.float64)
    codes = np.repeat(np.arange(len(parties)), [len(own) for own in kept])
    colourings = {"party": Colouring(tuple(parties), codes)}
    shown = [np.asarray(own)[some] for own, some in zip(names, kept, strict=True)]
    colourings |= dict(_of_values(model, Z, np.concatenate(shown) if labels is not None else None))
    return Embedding(Z, sum(sizes), colourings, np.asarray(dense(prepared), dtype=np.float64))


def _scores(model: Any, rows: Any) -> Any:
    """Of checked rows in the fit's order of columns."""
    return model._scores_of(rows) if hasattr(model, "_scores_of") else model._scores(rows)


def _parts(model: Any, data: Any) -> tuple[Sequence[str], Sequence[Any]]:
    if isinstance(data, Partitioned):
        return data.names, model._rows_in_order(data).parts
    return ("all rows",), [model._checked(data, reset=False)]


def _of_values(model: Any, Z: Array, labels: Any) -> Iterator[tuple[str, Colouring]]:
    if hasattr(model, "cluster_centers_"):
        yield "cluster", Colouring.of(nearest(Z, model.cluster_centers_)[0], "cluster ")
    if labels is not None:
        yield "label", Colouring.of(labels)


def _labels_by_party(labels: Any, parties: Sequence[str], sizes: Sequence[int]) -> list[Any]:
    if labels is None:
        return [np.zeros(n) for n in sizes]
    if isinstance(labels, Mapping):
        if set(labels) != set(parties):
            raise InputError(
                f"labels are of {', '.join(map(repr, labels))}; of each party is expected: "
                f"{', '.join(map(repr, parties))}"
            )
        labels = [labels[party] for party in parties]
    if len(parties) == 1 and (not len(labels) or np.ndim(labels[0]) == 0):
        labels = [labels]
    if len(labels) != len(parties):
        raise InputError(
            f"labels has {len(labels)} entries for {len(parties)} parties; a list with the labels "
            f"of each party's rows is expected"
        )
    trios = zip(labels, sizes, parties, strict=True)
    return [_checked_labels(own, n, f"party {party!r}") for own, n, party in trios]


def _checked_labels(labels: Any, n: int, whose: str) -> NDArray[Any]:
    values = np.asarray(labels)
    if values.shape != (n,):
        raise InputError(
            f"labels of {whose} have shape {values.shape}; ({n},) is expected, one a row"
        )
    # Words and numbers side by side have no order: all are taken as words then.
    return values.astype(str) if values.dtype.kind == "O" else values


def _draw(sizes: Sequence[int]) -> list[NDArray[np.int64]]:
    """Which rows of each party are drawn: all, or in proportion and at least one."""
    total = sum(sizes)
    rng = np.random.default_rng(0)
    kept = []
    for n in sizes:
        most = n if total <= MOST_DRAWN else max(_EACH, MOST_DRAWN * n // total)
        kept.append(np.sort(rng.choice(n, min(n, most), replace=False)))
    return kept
