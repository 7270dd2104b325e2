"""Rows prepared as the pooled rows would be: logarithms, filled gaps, standardised, levels.

===================  =========================================================================
party keeps          its rows
party reveals        how many rows it has (counts); of every column of numbers the sum of the
                     values that are there, how many these are, and the sum of squared
                     differences from the mean of all (moments); for medians, how many values
                     are below thresholds that close in on it (moments over single rows); of
                     categories, tables of how many rows have levels of a hash (moments, hashes)
coordinator learns   these, where sums are masked totals alone; each party learns the columns'
                     fillings, means and deviations, and hashes of the levels that have columns
===================  =========================================================================

Each is as in scikit-learn's SimpleImputer, StandardScaler and OneHotEncoder on the pooled rows: the
mean or median of the values that are there fills the gaps, the deviation is that of the filled
columns, and levels of fewer than `min_rows` rows share one column, as do levels that come later. A
gap in a category is a level. Constant columns are left out. Sparse rows are divided by their
deviations and not centred, by all parties if one has such rows.

Levels are counted in tables (`numerics.level_tables`). A party whose policy lets no rows out puts
only levels into them that its own `min_rows` rows have: who told of fewer would tell of single
rows, by name for whoever guesses it. Such levels count as other, and the outcome says of how many
rows. A column of a party that has few values counts as that many rows.

Above the usual length: sums, medians and levels are three preparations, each with messages and a
round of its own, which end in one rule for the rows.

Runs of the same fit then see the prepared rows at each site (`Scope.prepared`); the site's own data
stay as they are.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from eigenmesh.errors import InputError, PartitionError, StepRefused
from eigenmesh.numerics.arrays import Doubles, dense, is_sparse
from eigenmesh.numerics.level_tables import BUCKETS, TURNS, LevelSums, levels_in, table_of
from eigenmesh.numerics.medians import THRESHOLDS, MedianSearch, counts_below
from eigenmesh.numerics.medians import TURNS as MEDIAN_TURNS
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.levels import keys_of
from eigenmesh.runtime.message import (
    Floats,
    Integers,
    Message,
    NonNegative,
    Positive,
    Reveals,
    Shape,
    Wide,
)
from eigenmesh.runtime.party import Party, Worth, step
from eigenmesh.runtime.prepared import (
    FIELDS,
    OTHER,
    RowRule,
    logarithms,
    store_key,
    sum_over_blocks,
)
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.results import require_all_stayed
from eigenmesh.runtime.schedule import (
    Node,
    Scope,
    ask,
    at_most,
    columns,
    enlist,
    loop,
    sequence,
    times,
    total,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_preparation import RowPreparation, level_words

ROUNDING = 10 * np.finfo(np.float64).eps  # of a mean: a deviation that is rounding
USUAL_TURNS = 2  # in which a table comes apart


# What travels.


class PrepareSetup(Message, reveals=None):
    """What is to be done; columns by their places, as "0,3"."""

    log: str
    categories: str
    standardize: bool
    fill_missing: float | None
    fill_with: str
    min_rows: int

    @property
    def log_columns(self) -> tuple[int, ...]:
        """Whose logarithms are taken."""
        return _places(self.log)

    @property
    def level_columns(self) -> tuple[int, ...]:
        """That hold levels."""
        return _places(self.categories)

    @property
    def name(self) -> str:
        """Of the preparation at the sites: the same for all fits that prepare alike."""
        words = [self.log, self.standardize, self.fill_missing, self.fill_with]
        words += [self.categories, self.min_rows] if self.categories else []
        return hashlib.sha256(repr(words).encode()).hexdigest()[:16]


def _places(text: str) -> tuple[int, ...]:
    return tuple(int(column) for column in text.split(",") if column)


class ColumnSums(Message, reveals="moments"):
    """Of every column, the sum of the values that are there, and how many these are."""

    n_rows: Annotated[int, Reveals("counts"), Positive]
    n_sparse: Annotated[int, Reveals("counts"), NonNegative]  # parties that have sparse rows
    n_present: Annotated[Floats, Shape("d"), NonNegative]
    sums: Annotated[Floats, Shape("d"), Wide]


class Thresholds(Message, reveals="moments", covers="joint"):
    """Of every column, numbers on both sides of its middle."""

    values: Annotated[Floats, Shape("d", "t")]


class CountsBelow(Message, reveals="moments", covers=1):
    """Of every column, how many values are no larger than the thresholds."""

    n_below: Annotated[Integers, Shape("d", "t"), NonNegative]


class ColumnMeans(Message, reveals="moments"):
    """The columns' means over all rows, gaps filled."""

    means: Annotated[Floats, Shape("d")]


class ColumnSquares(Message, reveals="moments"):
    """Of every column, the sum of squared differences from the mean of all."""

    squares: Annotated[Floats, Shape("d"), NonNegative, Wide]


class KnownLevels(Message, reveals="hashes"):
    """The levels that are known by now, which the next table leaves out."""

    turn: int
    columns: Annotated[Integers, Shape("k"), NonNegative]
    keys: Annotated[Integers, Shape("k")]


class LevelTable(Message, reveals="moments"):
    """Of every category, rows by hash of their level, with sums by which a level is known."""

    counts: Annotated[Integers, Shape("c", "b"), NonNegative]
    low: Annotated[Integers, Reveals("hashes"), Shape("c", "b"), NonNegative]
    high: Annotated[Integers, Reveals("hashes"), Shape("c", "b"), NonNegative]
    checks: Annotated[Integers, Reveals("hashes"), Shape("c", "b"), NonNegative]


class RuleForRows(Message, reveals="moments"):
    """A `RowRule`, which all parties prepare their rows by."""

    kept: Annotated[Integers, Shape("m"), NonNegative]
    fill: Annotated[Floats, Shape("m")]
    mean: Annotated[Floats, Shape("m")]
    scale: Annotated[Floats, Shape("m"), Positive]
    level_columns: Annotated[Integers, Reveals("hashes"), Shape("k"), NonNegative]
    level_keys: Annotated[Integers, Reveals("hashes"), Shape("k")]


# The party's side.


def values_behind(party: Any, reply: Any) -> Worth:
    """The fewest values behind a sum; a column without any tells nothing."""
    present = party.n_present[party.numbers]
    return Worth(covers=int(present[present > 0].min(initial=party.site.shape[0])))


def _rows_behind(party: Any, reply: Any) -> Worth:
    """The fewest rows of a level that is told."""
    counts = reply.counts[reply.counts > 0]
    return Worth(covers=int(counts.min(initial=party.site.shape[0])))


class RowPreparer(Party):
    """Holds rows that are to be prepared."""

    Setup: ClassVar[type[Message]] = PrepareSetup
    state: ClassVar[tuple[str, ...]] = ("search",)

    def __init__(self, site: SiteView, setup: PrepareSetup) -> None:
        super().__init__(site, setup)
        self._levels = setup.level_columns
        self.search: dict[str, Any] = {}  # for medians, where totals are shown
        n_columns = site.unprepared.shape[1]
        self._require_possible(n_columns)
        self.numbers = np.setdiff1d(np.arange(n_columns), self._levels)

    def _require_possible(self, n_columns: int) -> None:
        for words, own in (("log=", self.setup.log_columns), ("categories=", self._levels)):
            if any(column >= n_columns for column in own):
                raise self._refuse(f"has {n_columns} columns, and {words} names one beyond")
        unnamed = set(self.site.level_columns) - set(self._levels)
        if unnamed:
            raise self._refuse(
                f"holds levels in column {min(unnamed)} (counted from 0), which is not among the "
                f"categories= of the preparation; name it there, or leave it out"
            )
        if is_sparse(self.site.unprepared) and (self.setup.log or self._levels):
            raise self._refuse(
                "has sparse rows, of which logarithms and levels cannot be taken; pass dense ones"
            )

    @property
    def n_present(self) -> Doubles:
        """Values of every column that are there; of categories all, since a gap is a level."""
        return self.site.once("values present", self._count_present)

    def _count_present(self) -> Doubles:
        X = self.site.unprepared
        if is_sparse(X):
            gaps = np.bincount(X.indices[np.isnan(X.data)], minlength=X.shape[1])
        else:
            gaps = sum_over_blocks(X, lambda block: np.isnan(block).sum(axis=0))
        return np.asarray(X.shape[0] - gaps, dtype=np.float64)

    @step(reusable=False, worth=values_behind)
    def column_sums(self) -> ColumnSums:
        """Sums over the own rows."""
        return self.sums()

    def sums(self) -> ColumnSums:
        """Of values and of how many there are, if no more are missing than may be."""
        n, sparse = self.site.unprepared.shape[0], is_sparse(self.site.unprepared)
        present = self.n_present.copy()
        present[list(self._levels)] = n
        if self.setup.fill_missing is None and (present < n).any():
            column = int(np.argmax(present < n))
            raise self._refuse(
                f"lacks {n - int(present[column])} values in column {column} (counted from 0), "
                f"expected none; pass fill_missing=share, the most that a column may lack"
            )
        sums = self._over_rows(lambda block: np.nansum(block, axis=0))
        return ColumnSums(n_rows=n, n_sparse=int(sparse), n_present=present, sums=sums)

    @step(reusable=False)
    def count_below(self, thresholds: Thresholds) -> CountsBelow:
        """How many values are no larger than the thresholds."""
        cuts = thresholds.values
        self._require_next(cuts)

        def counted(block: Doubles) -> Any:
            return np.array([counts_below(x, t) for x, t in zip(block.T, cuts, strict=True)])

        return CountsBelow(n_below=self._over_rows(counted))

    def _require_next(self, cuts: Floats) -> None:
        """Refuse thresholds that do not follow from the total before, where that is shown.

        By thresholds of its own choice a coordinator had the largest value of every column, or that
        of any other rank: one row's, from sums that nobody sees but in total.
        """
        if self.site.shown is None:
            return
        if self.search:
            search = MedianSearch(self.search["n"], self.search["bounds"])
            search.narrow(self.site.shown(CountsBelow).n_below)
            n = self.search["n"]
        else:
            n = np.round(self.site.shown(ColumnSums).n_present)
            search = MedianSearch(n)
        if not np.array_equal(cuts, search.thresholds()):
            raise StepRefused("thresholds do not follow from the totals", party=self.site.name)
        self.search = {"n": n, "bounds": search.bounds}

    @step(reusable=False, worth=values_behind)
    def column_squares(self, common: ColumnMeans) -> ColumnSquares:
        """Squared differences from the mean of all, of the values that are there."""
        return self.squares(common)

    def squares(self, common: ColumnMeans) -> ColumnSquares:
        """Sums of squared differences."""
        squares = self._over_rows(lambda block: np.nansum(np.square(block - common.means), axis=0))
        return ColumnSquares(squares=squares)

    @step(reusable=False, worth=_rows_behind)
    def level_table(self, before: KnownLevels) -> LevelTable:
        """Rows by hashes of their levels, but for those that are known."""
        tables = []
        for column in self._levels:
            keys, counts = self._levels_told(column)
            news = ~np.isin(keys, before.keys[before.columns == column])
            tables.append(table_of(keys[news], counts[news], before.turn))
        return LevelTable(**{name: np.array([getattr(t, name) for t in tables]) for name in _SUMS})

    @step(reusable=False)
    def take_rule(self, rule: RuleForRows) -> None:
        """From here on runs of this fit see the rows prepared."""
        own = {name: getattr(rule, name) for name in FIELDS if name != "log"}
        log = np.array(self.setup.log_columns, dtype=np.int64)
        self.site.keep(store_key(self.setup.name), {"log": log, **own})

    def _levels_told(self, column: int) -> tuple[Any, Any]:
        """Keys of the levels in a column and their rows, as far as the site's policy tells them."""

        def counted() -> tuple[Any, Any]:
            codes, counts = np.unique(self.site.unprepared[:, column], return_counts=True)
            return keys_of(codes), counts

        keys, counts = self.site.once(f"levels of column {column}", counted)
        fewest = 1 if self.site.may_tell_rows else self.site.min_rows
        return keys[counts >= fewest], counts[counts >= fewest]

    def _over_rows(self, of_block: Any) -> Any:
        """A sum over blocks of rows, dense ones with the logarithms taken; levels count as 0."""

        def of_rows(block: Any) -> Any:
            values = logarithms(dense(block), self.setup.log_columns)
            values[:, list(self._levels)] = 0.0
            return of_block(values)

        try:
            return sum_over_blocks(self.site.unprepared, of_rows)
        except InputError as error:
            raise self._refuse(f"has bad rows: {error.reason}") from None

    def _refuse(self, complaint: str) -> PartitionError:
        party = self.site.name
        return PartitionError(f"party {party!r} {complaint}", party=party)


_SUMS = LevelSums._fields


# The coordinator's side.


def schedule(scope: Scope, setup: PrepareSetup) -> Node:
    """Sums, and what came of them goes down."""
    party, n = RowPreparer, len(setup.level_columns)
    most = at_most(n * BUCKETS * TURNS, planned=0)
    middle = total(party.count_below, d=columns, t=2 * THRESHOLDS, shows=True)
    tables = total(party.level_table, down={"k": most}, up={"c": n, "b": BUCKETS})
    return sequence(
        enlist(party, setup),
        total(party.column_sums, d=columns),
        times(MEDIAN_TURNS, middle) if setup.fill_with == "median" else None,
        total(party.column_squares, d=columns),
        loop(TURNS, tables, fewest=1, usual=USUAL_TURNS) if n else None,
        ask(party.take_rule, down={"m": at_most(columns), "k": most}),
    )


@protocol("prepare-rows", roles=(RowPreparer,), schedule=schedule, begins_anew=True)
def prepare_rows(rows: Federation, setup: PrepareSetup) -> RowPreparation:
    """Learn from all rows how each is prepared, and tell every party."""
    rows.enlist(RowPreparer, setup)
    first = rows.total(RowPreparer.column_sums)
    sums = first.sum
    n, present = int(sums.n_rows), np.round(sums.n_present)
    require_share(np.maximum(n - present, 0.0) / n, setup.fill_missing)
    fill = sums.sums / present
    if setup.fill_with == "median":
        fill = _medians(rows, present)
    mean = filled_means(n, present, sums.sums, fill)
    then = rows.total(RowPreparer.column_squares, ColumnMeans(means=mean))
    require_all_stayed(first, then, "open the federation without who has left")
    squares = then.sum.squares
    levels = _levels_of(rows, setup) if setup.level_columns else NO_LEVELS
    facts = ColumnFacts.of(n, present, fill, mean, squares, sums.n_sparse > 0)
    outcome = conclude(setup, facts, levels)
    rule = outcome.rule
    rows.ask(
        RowPreparer.take_rule,
        RuleForRows(**{name: getattr(rule, name) for name in FIELDS if name != "log"}),
    )
    return outcome


def _medians(rows: Federation, present: Doubles) -> Doubles:
    """The middle value of every column, or the mean of the two that are in the middle."""
    search = MedianSearch(present)
    for _ in range(MEDIAN_TURNS):
        question = Thresholds(values=search.thresholds())
        search.narrow(rows.total(RowPreparer.count_below, question).sum.n_below)
    return search.values()


def filled_means(n_rows: float, present: Doubles, sums: Doubles, fill: Doubles) -> Doubles:
    """Of every column with its gaps filled; of averages as of sums."""
    return np.asarray((sums + np.maximum(n_rows - present, 0.0) * fill) / n_rows)


class ColumnFacts(NamedTuple):
    """What is known of all columns of numbers."""

    n_rows: int
    fill: Doubles
    mean: Doubles
    deviation: Doubles
    missing: Doubles
    sparse: bool

    @classmethod
    def of(
        cls,
        n_rows: int,
        present: Doubles,
        fill: Doubles,
        mean: Doubles,
        squares: Doubles,
        sparse: bool,
    ) -> ColumnFacts:
        """From sums over all rows."""
        missing = np.maximum(n_rows - present, 0.0)
        filled = np.maximum(squares, 0.0) + missing * np.square(fill - mean)
        return cls(n_rows, fill, mean, np.sqrt(filled / n_rows), missing, sparse)


class LevelFacts(NamedTuple):
    """What is known of the categories: columns, keys and rows of their levels."""

    columns: Any
    keys: Any
    counts: Any

    def with_new(self, column: int, keys: Any, counts: Any) -> LevelFacts:
        """And these."""
        of = np.full(len(keys), column, dtype=np.int64)
        parts = zip(self, (of, keys, counts), strict=True)
        return LevelFacts(*(np.concatenate(pair) for pair in parts))

    def with_table(self, level_columns: Any, table: Any) -> tuple[LevelFacts, int]:
        """And those that lie alone in a table of totals; in how many places several do."""
        levels, crowded = self, 0
        for i, column in enumerate(level_columns):
            sums = LevelSums(*(np.asarray(getattr(table, name)[i]) for name in _SUMS))
            keys, counts, several = levels_in(sums)
            levels, crowded = levels.with_new(column, keys, counts), crowded + several
        return levels, crowded

    @property
    def n_most(self) -> int:
        """Of one column."""
        return int(np.bincount(self.columns).max(initial=0))

    def without_rare(self, level_columns: Any, min_rows: int) -> LevelFacts:
        """Levels of fewer rows put together, as `OTHER`: which they are need not be told."""
        levels = LevelFacts(*(own[self.counts >= min_rows] for own in self))
        for column in level_columns:
            n_rare = self.counts[(self.columns == column) & (self.counts < min_rows)].sum()
            if n_rare:
                levels = levels.with_new(column, np.array([OTHER]), np.array([n_rare]))
        return levels


NO_LEVELS = LevelFacts(*(np.zeros(0, dtype=np.int64) for _ in range(3)))


def _levels_of(rows: Federation, setup: PrepareSetup) -> LevelFacts:
    """All levels that are told, by tables in which they come to lie apart."""
    levels = NO_LEVELS
    for turn in range(TURNS):
        before = KnownLevels(turn=turn, columns=levels.columns, keys=levels.keys)
        table = rows.total(RowPreparer.level_table, before).sum
        levels, n_crowded = levels.with_table(setup.level_columns, table)
        if not n_crowded:
            return levels
    raise too_many_levels(levels.n_most)


def too_many_levels(n_most: int) -> InputError:
    """What is wrong with levels that do not come apart."""
    return InputError(
        f"a category has so many levels that they do not come apart (more than {n_most} in one "
        f"column), some {BUCKETS} are expected; leave free text out of categories="
    )


def conclude(
    setup: PrepareSetup,
    facts: ColumnFacts,
    levels: LevelFacts = NO_LEVELS,
    rounding: float = ROUNDING,
) -> RowPreparation:
    """The rule that follows from what all rows come to; a deviation may be `rounding` of a mean."""
    numbers = np.setdiff1d(np.arange(len(facts.fill)), setup.level_columns)
    # A constant column has nothing but rounding to scale up.
    constant = facts.deviation <= rounding * np.abs(facts.mean)
    kept = numbers[~constant[numbers]]
    centred = setup.standardize and not facts.sparse
    mean = facts.mean if centred else np.zeros_like(facts.mean)
    scale = facts.deviation if setup.standardize else np.ones_like(facts.mean)
    columns_of, keys = _own_columns(setup, facts.n_rows, levels)
    left_out = {*numbers[constant[numbers]].tolist(), *setup.level_columns} - {*columns_of}
    if not len(kept) and not columns_of:
        raise InputError("every column is constant; rows that differ are expected")
    rows_told = {c: int(levels.counts[levels.columns == c].sum()) for c in setup.level_columns}
    withheld = {column: facts.n_rows - n for column, n in rows_told.items() if n < facts.n_rows}
    rule = RowRule.of(
        setup.log_columns, kept, facts.fill[kept], mean[kept], scale[kept], columns_of, keys
    )
    usual, log = facts.mean.copy(), list(setup.log_columns)
    usual[log] = np.exp(usual[log])
    return RowPreparation(
        setup.name,
        rule,
        usual,
        facts.n_rows,
        facts.missing,
        setup.fill_with,
        setup.standardize,
        centred,
        tuple(sorted(left_out)),
        level_words(keys),
        tuple(withheld),
        sum(withheld.values()),
    )


def _own_columns(
    setup: PrepareSetup, n_rows: int, levels: LevelFacts
) -> tuple[list[int], list[int]]:
    """Which levels have a column of their own, category by category; what is left has one."""
    columns_of: list[int] = []
    keys: list[int] = []
    for column in setup.level_columns:
        own = levels.columns == column
        frequent = own & (levels.counts >= setup.min_rows) & (levels.keys != OTHER)
        rest = [OTHER] if levels.counts[frequent].sum() < n_rows else []
        listed = [*sorted(levels.keys[frequent].tolist()), *rest]
        if len(listed) > 1:  # a single one would be constant
            columns_of += [column] * len(listed)
            keys += listed
    return columns_of, keys


def require_share(missing: Doubles, most: float | None) -> None:
    """Raise unless every column lacks at most a share of its values."""
    worst = int(np.argmax(missing))
    if missing[worst] <= (most or 0.0) and missing[worst] < 1.0:
        return
    remedy = "drop the column" if missing[worst] == 1.0 else "raise fill_missing or drop the column"
    raise InputError(
        f"column {worst} (counted from 0) lacks {missing[worst]:.1%} of its values over all "
        f"parties, at most {most or 0.0:.1%} are expected; {remedy}"
    )
