"""Data split over parties, checked party by party and never pooled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eigenmesh.data.agreement import Shape, check_ids, check_shapes
from eigenmesh.data.column_names import columns_in_order, in_order
from eigenmesh.data.matching import ALIGNMENTS, SampleMatcher
from eigenmesh.data.matching import id_secret as make_secret
from eigenmesh.data.readers import (
    has_named_columns,
    peek_names,
    peek_shape,
    peek_single,
    read_table,
)
from eigenmesh.data.sample_ids import as_sample_ids, check_unique, hash_sample_ids, is_id_like
from eigenmesh.data.table import (
    Ids,
    Matrix,
    Table,
    as_matrix,
    as_table,
    frame_index,
    is_frame,
    refuse,
)
from eigenmesh.data.text_format import TextFormat
from eigenmesh.errors import InputError, PartitionError
from eigenmesh.numerics.common_samples import common_rows

if TYPE_CHECKING:
    from eigenmesh.runtime.policy import Policy

__all__ = ["Partitioned", "hash_sample_ids"]

Split: TypeAlias = Literal["rows", "columns"]


class Partitioned:
    """Rows or columns of one data set, held by several parties.

    Each entry of `rows` or `columns` is one party's data: an array, memmap, sparse matrix,
    DataFrame, nested list, or the path of a file, which is opened when first needed. Columns that
    have names are matched by them: rows of all parties get the columns' order of the first.

    Parameters
    ----------
    rows, columns : sequence with one entry a party; exactly one of the two
    names : the parties' names, by default "party-0", "party-1", …
    policies : one Policy for all parties, or one (or None) a party
    sample_ids : one sequence of whole numbers or strings a party; if none are given, the index of
        DataFrames and the id column of files serve
    id_column : the column of DataFrames and files that has the sample ids, and is no feature; if
        None, a column "id" or "sample_id" of a file
    align : "strict": every party has the same samples in the same order; "inner", for columns:
        orders may differ and samples may be missing, those whose ids all parties have are used
    id_secret : of "inner": what the parties key the hashes of their ids with, at least 8 characters
        that the coordinator does not know; if None the environment variable EIGENMESH_ID_SECRET of
        each party, or a new one where all parties live in this process
    allow_missing : take NaN for missing values, for estimators with `fill_missing`
    features : for rows, the names of the columns that are features, in this order; what else is in
        files and DataFrames is not looked at, be it text or dates. All but the ids if None
    delimiter, decimal : of text files: comma, semicolon or tab, and "." or ","; told from the
        files if None
    categories : for rows, the names of columns that hold levels, as words or numbers; they are
        features of fits whose `em.Preparation(categories=)` names them, and of no others

    Examples
    --------
    >>> parts = Partitioned(rows=[[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], names=["north", "south"])
    >>> parts
    Partitioned(rows, 2 parties, 3 samples × 2 features: 'north' 1×2, 'south' 2×2)
    >>> parts.parts[1].shape
    (2, 2)
    """

    split: Split
    names: tuple[str, ...]
    policies: tuple[Policy | None, ...]
    paths: tuple[Path | None, ...]
    order: tuple[NDArray[np.intp], ...] | None  # where `split` took each party's rows from
    align: str = "strict"
    _secret: str = ""
    _allow_missing: bool = False
    _id_column: str | None = None
    has_stated_ids: bool = False  # by id_column= or sample_ids=, not by an index alone
    _text: Mapping[str, Any] = {}  # what is stated of text files
    _features: tuple[str, ...] | None = None  # the columns that are features, if not all
    categories: tuple[str, ...] = ()  # features that hold codes of levels
    _dtype: Any = None  # of all parties' numbers: the widest that one of them has
    _agreed_names: tuple[str, ...] | None = None  # of rows, where other parties have been left out

    def __init__(
        self,
        *,
        rows: Sequence[Any] | None = None,
        columns: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
        policies: Policy | Sequence[Policy | None] | None = None,
        sample_ids: Sequence[Iterable[Any]] | None = None,
        id_column: str | None = None,
        align: str = "strict",
        id_secret: str | None = None,
        allow_missing: bool | None = False,
        delimiter: str | None = None,
        decimal: str | None = None,
        features: Sequence[str] | None = None,
        categories: Sequence[str] | None = (),
    ) -> None:
        split, sources = _one_split(rows, columns)
        self.align = checked_align(align, split)
        self._secret = make_secret(id_secret) if align != "strict" else ""
        self._allow_missing = bool(allow_missing)
        TextFormat(delimiter, decimal)  # checks both
        self._text = {"delimiter": delimiter, "decimal": decimal}
        self._id_column = checked_id_column(id_column, sample_ids)
        self.has_stated_ids = id_column is not None or sample_ids is not None
        self._features = checked_features(features, split)
        self.categories = checked_categories(categories, split)
        if id_column is not None and id_column in (*(self._features or ()), *self.categories):
            raise InputError(
                f"{id_column!r} is the id column and among the features, which an id is not; leave "
                f"it out of features= and categories= (--columns, --categories)"
            )
        if self._features is not None:
            self._features = tuple(dict.fromkeys((*self._features, *self.categories)))
        names = checked_names(names, len(sources))
        tables = [
            None
            if _is_path(source)
            else as_table(
                source, name, self._allow_missing, id_column, self._features, self.categories
            )
            for source, name in zip(sources, names, strict=True)
        ]
        paths = tuple(Path(source) if _is_path(source) else None for source in sources)
        if sample_ids is None and id_column is None and split == "columns":
            sample_ids = _frame_indexes(sources)
        self._assemble(split, tables, paths, names, policies, sample_ids)

    @classmethod
    def from_tables(
        cls,
        split: Split,
        tables: Sequence[Table],
        *,
        names: Sequence[str] | None = None,
        policies: Policy | Sequence[Policy | None] | None = None,
        sample_ids: Sequence[Iterable[Any]] | None = None,
        order: Sequence[NDArray[np.intp]] | None = None,
    ) -> Self:
        """Parties of tables cut from checked data: their values are not scanned again."""
        self = cls.__new__(cls)
        names = checked_names(names, len(tables))
        self._assemble(split, tables, (None,) * len(tables), names, policies, sample_ids)
        self.order = None if order is None else tuple(order)
        return self

    def _assemble(
        self,
        split: Split,
        tables: Sequence[Table | None],
        paths: tuple[Path | None, ...],
        names: Sequence[str],
        policies: Policy | Sequence[Policy | None] | None,
        sample_ids: Sequence[Iterable[Any]] | None,
    ) -> None:
        self.split, self.names, self.paths, self.order = split, tuple(names), paths, None
        self.policies = checked_policies(policies, len(names))
        self._tables = list(tables)  # whose dtypes and names are looked at in the next lines
        if self._dtype is None:
            single = all(self._has_single(party) for party in range(len(names)))
            self._dtype = np.dtype(np.float32 if single else np.float64)
        self._tables = [
            t if t is None else self._arrange_columns(i, self._as_wide(t))
            for i, t in enumerate(tables)
        ]
        self._shapes = [self._known_shape(party) for party in range(len(names))]
        self._ids = None if sample_ids is None else self._checked_ids(sample_ids)
        self._check_together(self._shapes)

    # What the parties hold.

    def part(self, party: int) -> Matrix:
        """The matrix of one party; opens its file if need be, and no other's."""
        return self._table(party).X

    @property
    def parts(self) -> tuple[Matrix, ...]:
        """The matrices, in party order."""
        return tuple(self.part(party) for party in range(self.n_parties))

    @property
    def sample_ids(self) -> tuple[Ids, ...] | None:
        """Ids of the samples, one array a party, or None; of rows, if every party has some."""
        if self._ids is None:
            self._ids = self._own_ids()
        return self._ids

    def part_ids(self, party: int) -> Ids | None:
        """The sample ids of one party; opens its file if need be, and no other's."""
        if self._ids is not None:
            return self._ids[party]
        if not self._may_have_ids(party):
            return None
        ids, name = self._table(party).sample_ids, self.names[party]
        if ids is None:
            return None
        if self.split == "rows" and self._id_column is None and not is_id_like(ids):
            return None  # an index of dates or the like, which rows need not be known by
        ids = as_sample_ids(ids, name)
        if self.split == "columns":
            check_unique(ids, name)
        return ids

    @property
    def feature_names(self) -> tuple[tuple[str, ...] | None, ...]:
        """Column names of DataFrames and of files with a header; None for the other parties."""
        return tuple(self.part_names(party) for party in range(self.n_parties))

    def part_categories(self, party: int) -> tuple[int, ...]:
        """Which columns of one party hold codes of levels, by number."""
        names = self.part_names(party) or () if self.categories else ()
        return tuple(names.index(name) for name in self.categories if name in names)

    def part_names(self, party: int) -> tuple[str, ...] | None:
        """The column names of one party; of a file that is not open its header is looked at."""
        own = self._own_names(party)
        return own if self.split == "columns" or own is None else self._reference()[0]

    @property
    def n_parties(self) -> int:
        """Number of parties."""
        return len(self.names)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Rows and columns of every party."""
        return tuple(self._shape(party) for party in range(self.n_parties))

    @property
    def n_samples(self) -> int:
        """Number of samples over all parties."""
        if self.align != "strict":
            return self.matched().n_samples
        return self._shape(0)[0] if self.split == "columns" else sum(n for n, _ in self.shapes)

    @property
    def n_features(self) -> int:
        """Number of features over all parties."""
        return self._shape(0)[1] if self.split == "rows" else sum(d for _, d in self.shapes)

    @property
    def widths(self) -> tuple[int, ...] | int:
        """Columns of every party; in a row split the one width that all share."""
        return tuple(d for _, d in self.shapes) if self.split == "columns" else self.n_features

    def take_samples(self, indices: Any) -> Partitioned:
        """The same parties with some of their samples; for column splits.

        >>> parts = Partitioned(columns=[[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
        >>> parts.take_samples([2, 0]).parts[1].tolist()
        [[6.0], [4.0]]
        """
        if self.split != "columns":
            raise InputError(
                "take_samples was called on a row split, expected a column split; "
                "choose rows at each party before Partitioned(rows=...)"
            )
        if self.align != "strict":
            return self.matched().take_samples(indices)
        rows = _checked_indices(indices, self.n_samples)
        ids = None if self.sample_ids is None else [own[rows] for own in self.sample_ids]
        tables = [
            Table(X[rows], feature_names=features)
            for X, features in zip(self.parts, self.feature_names, strict=True)
        ]
        return type(self).from_tables(
            "columns", tables, names=self.names, policies=self.policies, sample_ids=ids
        )

    def matcher(self, party: int) -> SampleMatcher:
        """One party's samples, still to be matched with the others'; unless align="strict"."""
        own, ids = partial(self.part, party), partial(self.part_ids, party)
        return SampleMatcher(own, ids, self._secret, self.align)

    def matched(self) -> Partitioned:
        """The samples whose ids all parties have, in the first party's order, with align="strict".

        For whoever has all parties' data at hand; a federation matches by keyed hashes.

        >>> parts = Partitioned(
        ...     columns=[[[1.0], [2.0], [3.0]], [[6.0], [4.0]]],
        ...     sample_ids=[["a", "b", "c"], ["c", "a"]],
        ...     align="inner",
        ... )
        >>> parts.matched().parts[1].tolist()
        [[4.0], [6.0]]
        """
        if self.align == "strict":
            return self
        hashes = [self.matcher(party).hashes() for party in range(self.n_parties)]
        rows = common_rows(hashes)
        ids = self.sample_ids
        assert ids is not None, "hashes were made of ids"
        own_ids = [own[places] for own, places in zip(ids, rows, strict=True)]
        tables = [
            Table(self.part(i)[places], feature_names=self.part_names(i))
            for i, places in enumerate(rows)
        ]
        return type(self).from_tables(
            "columns", tables, names=self.names, policies=self.policies, sample_ids=own_ids
        )

    def select(self, names: Sequence[str]) -> Partitioned:
        """Some of the parties, in the order asked for; files that were not opened stay closed.

        >>> parts = Partitioned(columns=[[[1.0]], [[2.0]]], names=["north", "south"])
        >>> parts.select(["south"]).names
        ('south',)
        """
        if tuple(names) == self.names:
            return self
        numbers = [self.names.index(name) for name in names]
        ids = None if self._ids is None else [self._ids[party] for party in numbers]
        tables = [self._tables[party] for party in numbers]
        selection = self._another()
        selection._agreed_names = self._reference()[0]
        selection._assemble(
            self.split,
            tables,
            tuple(self.paths[party] for party in numbers),
            tuple(names),
            [self.policies[party] for party in numbers],
            ids,
        )
        return selection

    def rename(self, new_names: Mapping[str, str]) -> Partitioned:
        """The same parties under other names, in the order of these.

        >>> parts = Partitioned(columns=[[[1.0]], [[2.0]]])
        >>> parts.rename({"party-1": "south", "party-0": "north"}).names
        ('south', 'north')
        """
        parts = self.select(list(new_names))
        if parts is self:
            parts = self._another()
            parts.__dict__.update(self.__dict__)
        parts.names = checked_names(list(new_names.values()), self.n_parties)
        return parts

    def arrange(self, columns: Mapping[str, Sequence[str] | None], whose: str) -> Partitioned:
        """The same parties, each with its columns in the order of `columns`, by name.

        A party that lacks a name or has another is refused, in words that say `whose` these
        names are; one without names is taken as it is.

        >>> import pandas as pd
        >>> parts = Partitioned(columns=[pd.DataFrame({"b": [1.0], "a": [2.0]})], names=["north"])
        >>> parts.arrange({"north": ("a", "b")}, "the fit").part(0).tolist()
        [[2.0, 1.0]]
        """
        differ = [
            party
            for party, name in enumerate(self.names)
            if None not in (self.part_names(party), columns.get(name))
            and self.part_names(party) != tuple(columns[name] or ())
        ]
        if not differ:
            return self
        tables = list(self._tables)
        for party in differ:
            name = self.names[party]
            # The header is enough for a refusal; the file is read for what fits.
            columns_in_order(self.part_names(party) or (), columns[name] or (), name, whose)
            tables[party] = in_order(self._table(party), columns[name], name, whose)
        parts = self._another()
        if self.split == "rows":
            parts._agreed_names = next(t.feature_names for t in tables if t and t.feature_names)
        parts._assemble(self.split, tables, self.paths, self.names, list(self.policies), self._ids)
        parts.order = self.order
        return parts

    def _another(self) -> Self:
        """One that will treat its parties in the same way."""
        another = type(self).__new__(type(self))
        of_ids = ("align", "_secret", "_id_column", "has_stated_ids")
        as_read = ("_allow_missing", "_text", "_features", "categories", "_dtype")
        for name in (*of_ids, *as_read):
            setattr(another, name, getattr(self, name))
        return another

    def __len__(self) -> int:
        return self.n_parties

    def __repr__(self) -> str:
        parts = [
            f"{name!r} {'unread' if shape is None else f'{shape[0]}×{shape[1]}'}"
            for name, shape in zip(self.names[:5], self._shapes[:5], strict=True)
        ]
        parties = "1 party" if self.n_parties == 1 else f"{self.n_parties} parties"
        # A repr must not open files, nor match samples.
        unknown = None in self._shapes or self.align != "strict"
        size = "" if unknown else f", {self.n_samples} samples × {self.n_features}"
        size += " features" if size else ""
        more = ", …" if self.n_parties > 5 else ""
        return f"Partitioned({self.split}, {parties}{size}: {', '.join(parts)}{more})"

    # Files are read here, at first use.

    def _table(self, party: int) -> Table:
        table = self._tables[party]
        if table is None:
            table = self._read(party)
            shapes = list(self._shapes)
            shapes[party] = table.X.shape
            # Kept only once it fits: a second look must not pass what the first refused.
            self._check_together(shapes)
            self._tables[party], self._shapes[party] = table, table.X.shape
        return table

    def _read(self, party: int) -> Table:
        path, name = self.paths[party], self.names[party]
        assert path is not None, "a party has a table or a path"
        with _blaming(name):
            table = read_table(
                path,
                self._id_column,
                columns=self._features,
                allow_missing=self._allow_missing,
                categories=self.categories,
                **self._text,
            )
        X = as_matrix(table.X, name, self._allow_missing)
        table = self._as_wide(Table(X, table.sample_ids, table.feature_names))
        return self._arrange_columns(party, table)

    def _has_single(self, party: int) -> bool:
        """Whether a party's numbers are float32; those of a file by its header."""
        table, path = self._tables[party], self.paths[party]
        if table is not None:
            return bool(table.X.dtype == np.float32)
        assert path is not None, "a party has a table or a path"
        # What is wrong with a file is said where it is read; of one elsewhere nothing is known.
        with suppress(InputError):
            return peek_single(path, self._id_column, self._features, self.categories)
        return True

    def _as_wide(self, table: Table) -> Table:
        """In the widest float of any party: float32 in float64 loses no digit."""
        return replace(table, X=table.X.astype(self._dtype, copy=False))

    # Names of columns. Those of a file are looked up in its header.

    def _own_names(self, party: int) -> tuple[str, ...] | None:
        """The names as the party has them."""
        table, path = self._tables[party], self.paths[party]
        if table is not None:
            return table.feature_names
        assert path is not None, "a party has a table or a path"
        if self._features is not None:
            return self._features
        with _blaming(self.names[party]):
            return peek_names(path, self._id_column, **self._text)

    def _reference(self) -> tuple[tuple[str, ...] | None, str]:
        """Of rows, the names of the columns in their order, and who has them so."""
        if self.split == "columns" or self._agreed_names is not None:
            return self._agreed_names, "the first party"
        for party, name in enumerate(self.names):
            own = self._own_names(party)
            if own is not None:
                return own, f"party {name!r}"
        return None, ""

    def _arrange_columns(self, party: int, table: Table) -> Table:
        """Rows of all parties have their columns in one order, where they have names."""
        if self.split == "columns" or table.feature_names is None:
            return table
        names, whose = self._reference()
        return in_order(table, names, self.names[party], whose)

    def _known_shape(self, party: int) -> Shape | None:
        table, path = self._tables[party], self.paths[party]
        if table is not None:
            rows, columns = table.X.shape
            return rows, columns
        assert path is not None, "a party has a table or a path"
        with _blaming(self.names[party]):
            shape = peek_shape(path, self._id_column)
        features = self._features
        return shape if shape is None or features is None else (shape[0], len(features))

    def _shape(self, party: int) -> Shape:
        shape = self._shapes[party]
        return self._table(party).X.shape if shape is None else shape

    # Checks that need more than one party.

    def _check_together(self, shapes: Sequence[Shape | None]) -> None:
        if self.split == "rows" and len({shape[1] for shape in shapes if shape}) > 1:
            self._check_names()  # the column that is missing or new says more than its number
        if self.align == "strict":
            check_shapes(self.split, self.names, shapes)
        if self._ids is not None:
            check_ids(self.split, self.names, shapes, self._ids)

    def _check_names(self) -> None:
        names, whose = self._reference()
        for party, name in enumerate(self.names):
            own = self._own_names(party)
            if own is not None and names is not None:
                columns_in_order(own, names, name, whose)

    def _checked_ids(self, sample_ids: Sequence[Iterable[Any]]) -> tuple[Ids, ...]:
        sample_ids = list(sample_ids)
        if len(sample_ids) != self.n_parties:
            raise InputError(
                f"sample_ids has {len(sample_ids)} entries, expected {self.n_parties}: "
                "one sequence of ids a party"
            )
        pairs = zip(sample_ids, self.names, strict=True)
        return tuple(as_sample_ids(own, name) for own, name in pairs)

    def _may_have_ids(self, party: int) -> bool:
        table, path = self._tables[party], self.paths[party]
        if table is None:
            return path is not None and has_named_columns(path)
        return table.sample_ids is not None

    def _own_ids(self) -> tuple[Ids, ...] | None:
        own_ids = [self.part_ids(party) for party in range(self.n_parties)]
        ids = tuple(own for own in own_ids if own is not None)
        if self.split == "rows" and len(ids) < self.n_parties:
            return None
        if ids and len(ids) < self.n_parties:
            without = next(n for n, own in zip(self.names, own_ids, strict=True) if own is None)
            complaint = "has no sample ids while other parties have some"
            raise refuse(without, f"{complaint}; give it a column 'id' or an index, or sample_ids=")
        return ids or None


def _is_path(source: object) -> bool:
    return isinstance(source, str | Path)


@contextmanager
def _blaming(party: str) -> Iterator[None]:
    """Errors about a file become errors about the party that holds it."""
    try:
        yield
    except InputError as error:
        raise PartitionError(f"party {party!r}: {error.reason}", party=party) from None


def checked_align(align: str, split: str) -> str:
    """How samples are matched, or `InputError`."""
    if align not in ALIGNMENTS:
        raise InputError(f"align is {align!r}; 'strict', 'inner' or 'psi' is expected")
    if align != "strict" and split == "rows":
        raise InputError(
            f"align={align!r} matches samples over columns; rows are different samples"
        )
    return align


def checked_id_column(id_column: Any, sample_ids: Any = None) -> str | None:
    """The name of a column, or None."""
    if id_column is not None and (not isinstance(id_column, str) or not id_column):
        raise InputError(f"id_column is {id_column!r}; the name of a column is expected")
    if id_column is not None and sample_ids is not None:
        raise InputError(f"id_column is {id_column!r} and sample_ids are given; pass one of them")
    return id_column


def checked_features(features: Any, split: str) -> tuple[str, ...] | None:
    """The names of columns, or None."""
    if features is None:
        return None
    names = () if isinstance(features, str) else tuple(features)
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{features!r} is given; a list of columns' names is expected")
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise InputError(f"column {twice[0]!r} is given twice; each name is expected once")
    if split == "columns":
        raise InputError(
            "features= is for rows, whose parties have the same columns; of columns each owner "
            "leaves out its own: data[[...]]"
        )
    return names


def checked_categories(categories: Any, split: str) -> tuple[str, ...]:
    """The names of columns that hold levels; none for columns that parties hold."""
    names = tuple(checked_features(categories, "rows") or ()) if len(categories or ()) else ()
    if names and split == "columns":
        raise InputError(
            "categories= is for rows, whose parties agree on levels; of columns each owner encodes "
            "its own, e.g. with sklearn's OneHotEncoder"
        )
    return names


def _one_split(rows: Any, columns: Any) -> tuple[Split, list[Any]]:
    if (rows is None) == (columns is None):
        number = "neither" if rows is None else "both"
        raise InputError(
            f"Partitioned got {number} of rows= and columns=, expected exactly one: rows= if "
            "parties hold different samples, columns= if they hold different features"
        )
    split: Split = "columns" if rows is None else "rows"
    return split, _one_entry_a_party(split, columns if rows is None else rows)


def _one_entry_a_party(split: Split, data: Any) -> list[Any]:
    # A 2-D array would pass for a sequence of 1-D parties, with a puzzling error later on.
    is_stack = isinstance(data, np.ndarray) and data.ndim == 3
    if not (isinstance(data, list | tuple) or is_stack):
        raise InputError(
            f"{split}= is a {type(data).__name__}, expected a list with one entry a party; "
            f"em.split(X, n_parties, by={split!r}) cuts one array into parties"
        )
    if len(data) == 0:
        raise InputError(f"{split}= has no entries, expected at least one party's data")
    return list(data)


def checked_names(names: Sequence[str] | None, n_parties: int) -> tuple[str, ...]:
    """One name a party, all different; "party-0", "party-1", … if none are given."""
    if names is None:
        return tuple(f"party-{party}" for party in range(n_parties))
    names = names if isinstance(names, str) else list(names)
    if isinstance(names, str) or len(names) != n_parties:
        raise InputError(f"names is {names!r}, expected a list of {n_parties} names, one a party")
    for name in names:
        if not isinstance(name, str) or not name:
            raise InputError(f"a party's name is {name!r}, expected a non-empty string")
    if len(set(names)) < n_parties:
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InputError(f"two parties are named {twice!r}, expected names that differ")
    return tuple(str(name) for name in names)


def checked_policies(policies: Any, n_parties: int) -> tuple[Policy | None, ...]:
    """One policy, or none, a party."""
    own = policies if isinstance(policies, list | tuple) else [policies] * n_parties
    if len(own) != n_parties:
        raise InputError(
            f"policies has {len(own)} entries, expected {n_parties}: one Policy or None a party, "
            "or a single Policy for all"
        )
    for policy in own:
        if policy is not None and not hasattr(policy, "allow"):
            raise InputError(f"a policy is {policy!r}, expected an em.Policy(allow=...) or None")
    return tuple(own)


def _frame_indexes(sources: Sequence[Any]) -> list[Ids] | None:
    """The indexes of DataFrames, if all are DataFrames and any has an index of its own."""
    if not all(is_frame(source) for source in sources):
        return None
    indexes = [frame_index(source) for source in sources]
    if all(index is None for index in indexes):
        return None
    return [np.asarray(source.index.to_numpy()) for source in sources]


def _checked_indices(indices: Any, n_samples: int) -> Any:
    selector = indices if isinstance(indices, slice) else np.asarray(indices)
    if isinstance(selector, slice) or (selector.ndim == 1 and selector.dtype.kind in "biu"):
        with suppress(IndexError):
            rows = np.arange(n_samples)[selector]
            if len(rows):
                return indices if isinstance(indices, slice) else rows  # slices keep views
    raise InputError(
        f"indices select none or not only of the {n_samples} samples, expected a slice, whole "
        f"numbers from {-n_samples} to {n_samples - 1}, or a boolean mask of length {n_samples}"
    )
