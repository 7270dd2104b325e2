"""A site's data as its settings say: features, ids, targets and weights of the rows still in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from eigenmesh.data.readers import has_named_columns, peek_names, read_table
from eigenmesh.data.sample_ids import check_unique
from eigenmesh.data.table import Ids, Matrix, Table, as_matrix
from eigenmesh.errors import InputError, PartitionError
from eigenmesh.site_folder.settings import Column, SiteSettings


@dataclass(frozen=True)
class SiteRows:
    """What the files hold: `X` features, `ids`, and `targets` and `weights` where there are any."""

    X: Matrix
    ids: Ids | None
    names: tuple[str, ...] | None
    targets: NDArray[np.float64] | None
    weights: NDArray[np.float64] | None

    def without(self, withdrawn: Iterable[str]) -> SiteRows:
        """Only the rows whose ids are not withdrawn."""
        gone = set(withdrawn)
        if not gone:
            return self
        assert self.ids is not None, "only ids are withdrawn"
        rows = np.array([str(own) not in gone for own in self.ids.tolist()])
        if not rows.any():
            raise InputError("every row of the site is withdrawn; nothing is left to answer with")
        return SiteRows(
            self.X[rows],
            self.ids[rows],
            self.names,
            None if self.targets is None else self.targets[rows],
            None if self.weights is None else self.weights[rows],
        )


def read_rows(settings: SiteSettings, folder: Path) -> SiteRows:
    """Read the files; errors name the site and not the file's folder."""
    try:
        tables = [_read(folder / file, settings) for file in settings.data]
        whole = tables[0] if len(tables) == 1 else _stacked(tables)
        return _taken_apart(whole, settings)
    except InputError as error:
        words = f"party {settings.name!r}: {error.reason}"
        raise PartitionError(words, party=settings.name) from None


def feature_names(settings: SiteSettings, folder: Path) -> tuple[str, ...] | None:
    """Names of the features, from a file's header alone; None if it has none."""
    names = peek_names(folder / settings.data[0], settings.id_column)
    if names is None or not has_named_columns(folder / settings.data[0]):
        return None
    return tuple(map(str, _features(settings, names)))


def _apart(settings: SiteSettings) -> list[Column]:
    return [*settings.targets, *([] if settings.weights is None else [settings.weights])]


def _features(settings: SiteSettings, everything: Sequence[Column]) -> list[Column]:
    if settings.columns is not None:
        return list(settings.columns)
    return [column for column in everything if column not in _apart(settings)]


def _read(path: Path, settings: SiteSettings) -> Table:
    """One file: features first, then targets and weights."""
    if has_named_columns(path):
        names = peek_names(path, settings.id_column)
        if names is None:
            return _by_place(read_table(path, settings.id_column), settings)
        columns = [*_features(settings, names), *_apart(settings)]
        return read_table(
            path,
            settings.id_column,
            columns=[str(column) for column in columns],
            categories=settings.categories,
            allow_missing=settings.allow_missing,
        )
    return _by_place(read_table(path, settings.id_column), settings)


def _by_place(table: Table, settings: SiteSettings) -> Table:
    """Columns of a file without names."""
    everything = range(table.X.shape[1])
    columns = [*_features(settings, everything), *_apart(settings)]
    wrong = [column for column in columns if column not in everything]
    if wrong:
        raise InputError(
            f"column {wrong[0]!r} is named in site.toml, and the file has columns without names; "
            f"a number from 0 to {len(everything) - 1} is expected"
        )
    if columns == list(everything):
        return table  # a memory map stays one
    return Table(table.X[:, columns], table.sample_ids)


def _stacked(tables: Sequence[Table]) -> Table:
    names = {table.feature_names for table in tables}
    widths = {table.X.shape[1] for table in tables}
    if len(names) > 1 or len(widths) > 1:
        raise InputError("the site's files have different columns; the same are expected in all")
    blocks = [table.X for table in tables]
    X = sp.vstack(blocks, format="csr") if any(map(sp.issparse, blocks)) else np.vstack(blocks)
    ids = [table.sample_ids for table in tables]
    whole = (
        None
        if any(own is None for own in ids)
        else np.concatenate([own for own in ids if own is not None])
    )
    return Table(X, whole, tables[0].feature_names)


def _taken_apart(table: Table, settings: SiteSettings) -> SiteRows:
    n_targets, n_apart = len(settings.targets), len(_apart(settings))
    X = as_matrix(table.X, settings.name, settings.allow_missing)
    d = X.shape[1] - n_apart
    if d < 1:
        raise InputError("no column is left for a feature; name fewer targets, or more columns")
    if table.sample_ids is not None:
        check_unique(table.sample_ids, settings.name)
    rest = _dense(X[:, d:]) if n_apart else None
    if rest is not None and np.isnan(rest).any():
        raise InputError("a target or a weight is missing; one for every row is expected")
    targets = None if rest is None or not n_targets else rest[:, :n_targets]
    if n_targets == 1 and targets is not None:
        targets = targets[:, 0]
    weights = None if rest is None or settings.weights is None else rest[:, -1]
    if weights is not None and (weights < 0).any():
        raise InputError("a weight is negative; none below 0 is expected, and 0 ignores a row")
    names = None if table.feature_names is None else table.feature_names[:d]
    return SiteRows(X[:, :d] if n_apart else X, table.sample_ids, names, targets, weights)


def _dense(block: Any) -> NDArray[np.float64]:
    values = block.toarray() if hasattr(block, "toarray") else block
    return np.asarray(values, dtype=np.float64)
