"""Parties with so few rows that sums over them tell them: left out, or taken by consent.

What a party of a few rows adds to a sum is its rows in another form. Under masks nobody sees what
it adds. Without them a front door goes on without it, and says so; `small_parties="reveal"` takes
it all the same. Nothing of its data is asked for, so that nobody knows which share of the variance
is its own: a warning has its rows beside all there are.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import networkx as nx

from eigenmesh.errors import EigenmeshWarning, InputError, TopologyError
from eigenmesh.estimators.accuracy import in_short
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.policy import Policy
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.study import stage
from eigenmesh.runtime.topology import renumbered
from eigenmesh.stages.count import survey

CHOICES = LEAVE_OUT, REVEAL = "leave-out", "reveal"  # what becomes of small parties
NO_ROWS = ("auto", "centroids", "drawn")  # landmarks that are no rows
SURVEY = stage(survey)
USUALLY_FEWEST = Policy().min_rows

_REMEDIES = {
    False: "secure=True (em.federation, or --secure), by which only sums over all parties are seen",
    True: "a coordinator and secure=True, by which only sums over all parties are seen",
}


class RowSize(NamedTuple):
    """Rows and columns of a party, and the fewest rows that it lets a sum be over."""

    n_rows: int
    n_columns: int
    min_rows: int = USUALLY_FEWEST

    @property
    def is_small(self) -> bool:
        """Whether its sums would tell its rows."""
        return self.n_rows < self.min_rows

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n_rows, self.n_columns


Sizes = Mapping[str, RowSize]


def sizes_in(replies: Replies) -> dict[str, RowSize]:
    """By party, of replies to a survey."""
    return {
        name: RowSize(reply.n_rows, reply.n_columns, getattr(reply, "min_rows", 1))
        for name, reply in zip(replies.parties, replies, strict=True)
    }


class LeftOut(NamedTuple):
    """Who is left out of a fit: of which members whom, in words, and of which graph."""

    members: tuple[str, ...]
    names: tuple[str, ...]
    words: str
    graph: nx.Graph | None = None  # of all members, by number; None with a coordinator

    @property
    def numbers_in(self) -> list[int]:
        """Who takes part, by number."""
        return [i for i, name in enumerate(self.members) if name not in self.names]

    @property
    def graph_in(self) -> nx.Graph | None:
        """The graph of those who take part, numbered from 0."""
        return None if self.graph is None else renumbered(self.graph.subgraph(self.numbers_in))

    def warn(self) -> None:
        """Say so, to whoever fits."""
        if self.names:
            warnings.warn(self.words, EigenmeshWarning, stacklevel=4)


def numbered(shapes: Sequence[tuple[int, int]]) -> dict[str, RowSize]:
    """Parties without names, of these shapes and the usual policy."""
    return {f"party-{i}": RowSize(*shape) for i, shape in enumerate(shapes)}


def some_or_none(left_out: LeftOut | None) -> LeftOut | None:
    """None where nobody is left out."""
    return left_out if left_out is not None and left_out.names else None


def names_of(left_out: LeftOut | None) -> tuple[str, ...]:
    """Of those who are left out."""
    return () if left_out is None else left_out.names


def adopt_left_out(planned: Any, left_out: LeftOut | None) -> Any:
    """A planned estimator, for those who take part."""
    if left_out is not None:
        planned._left_out = left_out
        if left_out.graph is not None:
            planned.set_params(topology=left_out.graph_in)
    return planned


def left_out_of(sizes: Sizes, graph: nx.Graph | None = None) -> LeftOut:
    """The small ones among parties of these sizes; an error if that is everybody."""
    on_graph = graph is not None
    small = {name: own for name, own in sizes.items() if own.is_small}
    if small and len(small) == len(sizes):
        raise InputError(_nobody_left(small, on_graph))
    words = _in_words(small, sizes, on_graph) if small else ""
    return LeftOut(tuple(sizes), tuple(small), words, graph)


def leave_out(fed: Federation, sizes: Sizes) -> LeftOut:
    """Go on without the small ones among parties of these sizes."""
    left_out = left_out_of(sizes, fed.graph)
    try:
        fed.leave_out({name: _reason(sizes[name]) for name in left_out.names})
    except TopologyError as error:
        raise TopologyError(f"{left_out.words}. But without them {error.reason}") from None
    return left_out


def _reason(own: RowSize) -> str:
    return f"of {own.n_rows} rows, where a sum must be over {own.min_rows}"


def _nobody_left(small: Sizes, on_graph: bool) -> str:
    fewest = min(own.min_rows for own in small.values())
    return (
        f"no party has the {fewest} rows that a sum must be over, so that everybody would be left "
        f"out: pass {_REMEDIES[on_graph]}; or small_parties='reveal' (--small-parties reveal), by "
        f"which each party's rows can be told from what it sends"
    )


def _in_words(small: Sizes, sizes: Sizes, on_graph: bool) -> str:
    """Who is left out, what of, and what would count them in."""
    rows, in_all = (sum(own.n_rows for own in some.values()) for some in (small, sizes))
    who = f"party {in_short(list(small))} is" if len(small) == 1 else _several(list(small))
    fewest = max(own.min_rows for own in small.values())
    return (
        f"{who} left out, with {rows:,} of all {in_all:,} rows: fewer than {fewest} a party can be "
        f"told from their sums. What share of the variance is theirs is not known, since nothing "
        f"of it was asked for. What would count them in: {_REMEDIES[on_graph]}; or "
        f"small_parties='reveal' (--small-parties reveal), by which their rows can be told"
    )


def _several(names: Sequence[str]) -> str:
    return f"{len(names):,} parties ({in_short(names)}) are"
