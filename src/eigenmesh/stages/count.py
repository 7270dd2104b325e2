"""How many rows and columns each site holds, before a method is chosen or its cost forecast.

===================  ====================================================================
party keeps          its rows or columns
party reveals        how many rows and columns it holds, and of rows the fewest that it lets
                     a sum be over (counts)
coordinator learns   these numbers, and which party's do not fit the others'
===================  ====================================================================

Parties of a row split must agree on their columns, those of a column split on their rows; hence
two steps, whose messages differ only in what must be the same everywhere.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Message,
    NonNegative,
    OwnColumns,
    OwnRows,
    Positive,
    Reveals,
    SameEverywhere,
)
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import Node, Scope, ask, enlist, sequence
from eigenmesh.stages.ask_again import Patient


class SurveySetup(Message, reveals=None):
    """Nothing to agree on."""


class SiteShape(Message, reveals="counts"):
    """How much a site holds."""

    n_rows: Annotated[int, Reveals("counts"), Positive, OwnRows]
    n_columns: Annotated[int, Reveals("counts"), Positive, OwnColumns]


class RowSiteShape(SiteShape, reveals="counts"):
    """Of a site that holds rows: all have the same columns."""

    n_columns: Annotated[int, Reveals("counts"), Positive, SameEverywhere, OwnColumns]


class ColumnSiteShape(SiteShape, reveals="counts"):
    """Of a site that holds columns: all have the same rows."""

    n_rows: Annotated[int, Reveals("counts"), Positive, SameEverywhere, OwnRows]


class RowSiteSize(RowSiteShape, reveals="counts"):
    """And what else front doors go by.

    `n_values` are the numbers that shipping its rows would take, `min_rows` the fewest rows that it
    lets a sum be over.
    """

    n_values: Annotated[int, Reveals("counts"), NonNegative]
    min_rows: Annotated[int, Reveals("counts"), Positive]


class SurveyedSite(Party):
    """Holds rows or columns."""

    Setup: ClassVar[type[Message]] = SurveySetup

    @property
    def shape(self) -> dict[str, int]:
        """The fields of a SiteShape, for messages that carry more."""
        n_rows, n_columns = self.site.shape
        return {"n_rows": n_rows, "n_columns": n_columns}

    @step
    def count_rows(self) -> RowSiteSize:
        """Its size, where sites hold rows."""
        n_values, min_rows = self.site.n_values, self.site.min_rows
        return RowSiteSize(**self.shape, n_values=n_values, min_rows=min_rows)

    @step
    def count_columns(self) -> ColumnSiteShape:
        """Its size, where sites hold columns."""
        return ColumnSiteShape(**self.shape)


def schedule(scope: Scope) -> Node:
    """One question."""
    return sequence(enlist(SurveyedSite, SurveySetup()), ask(count_step(scope.split)))


def count_step(split: str) -> Any:
    """The step that counts, by how the sites' data make up the whole."""
    return SurveyedSite.count_rows if split == "rows" else SurveyedSite.count_columns


@protocol("survey", roles=(SurveyedSite,), skips=True, schedule=schedule, only_counts=True)
def survey(sites: Federation) -> Replies:
    """A `SiteShape` from every party; an error names the one that does not fit the others.

    Who misses the round is asked again where that is allowed: a size cannot be guessed.
    """
    sites.enlist(SurveyedSite, SurveySetup())
    return Patient(sites).ask(count_step(sites.split))
