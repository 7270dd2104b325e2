"""Parties with so few rows that sums over them tell them: left out, or taken by consent.

What a party of a few rows adds to a sum is its rows in another form. Under masks nobody sees what
it adds. Without them a front door goes on without it, and says so; `small_parties="reveal"` takes
it all the same. Nothing of its data is asked for. Where k(x, x) is 1 its number of rows bounds what
it may have outside the landmarks' span, and what it may add to an eigenvalue; of other kernels
nobody knows, and a warning has its rows beside all there are.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from eigenmesh.errors import EigenmeshWarning, InputError, TopologyError
from eigenmesh.estimators.accuracy import in_short
from eigenmesh.numerics.centroids import MIN_CLUSTER
from eigenmesh.numerics.kernels import UNIT_NORM
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

_UNKNOWN = "What share of the variance is theirs is not known, since nothing of it was asked for"
_REMEDIES = {
    False: "secure=True (em.federation, or --secure), by which only sums over all parties are seen",
    True: "a coordinator and secure=True, by which only sums over all parties are seen",
}
_REVEALING = "small_parties='reveal' (--small-parties reveal), by which"

_REVEALING_ROWS = (
    "small_parties='reveal' with landmarks='uniform' (--small-parties reveal --landmarks uniform), "
    "by which"
)


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
    """Who is left out of a fit: of which members whom, with how many rows, and of which graph."""

    members: tuple[str, ...]
    names: tuple[str, ...]
    who: str  # in words
    n_rows: int
    graph: nx.Graph | None = None  # of all members, by number; None with a coordinator
    share: str = _UNKNOWN  # of the variance, in words
    rows_kept: bool = False  # whether one of them is known to let no rows out

    @property
    def words(self) -> str:
        """Who is left out, what of, and what would count them in."""
        remedy = _REMEDIES[self.graph is not None]
        reveal = "" if self.rows_kept else f"; or {_REVEALING} their rows can be told"
        return f"{self.who}. {self.share}. What would count them in: {remedy}{reveal}"

    def beside(
        self, eigenvalues: Any, kernel: Any, center: bool, outside: float | None = None
    ) -> LeftOut:
        """The same after a fit of the others, with what their number says of their share.

        `outside` is what the others' rows have out of the landmarks' span; None if not known.
        """
        k = len(eigenvalues)
        if not self.names or not k or not eigenvalues[-1] > 0:
            return self
        most = self.may_add(kernel, center) / float(eigenvalues[-1])
        if not np.isfinite(most):
            return self
        share = (
            ""
            if outside is None
            else (
                f" and have at most {self.n_rows / (self.n_rows + outside):.1%} of the variance "
                f"outside the landmarks' span"
            )
        )
        words = (
            f"As each of their rows has length 1 in feature space, they can add {most:.1%} to "
            f"eigenvalue {k} at most{share}; nothing of their data was asked for"
        )
        return self._replace(share=words)

    def may_add(self, kernel: Any, center: bool) -> float:
        """The most that an eigenvalue of all rows may be above that of the others' rows.

        Around the others' mean m a row has ‖φ(x) − m‖² = 1 − 2⟨φ(x), m⟩ + ‖m‖², and no pooled
        component has less variance than it has in the others' rows.
        """
        if kernel not in UNIT_NORM:
            return float("inf")
        # Kernel values are not negative, but for cosines.
        return self.n_rows * (1.0 if not center else 4.0 if kernel == "cosine" else 2.0)

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


def left_out_of(
    sizes: Sizes, graph: nx.Graph | None = None, rows_kept: Collection[str] = ()
) -> LeftOut:
    """The small ones among parties of these sizes; an error if that is everybody.

    Some are known to let no rows out: whoever these are among is not told to reveal them.
    """
    on_graph = graph is not None
    small = {name: own for name, own in sizes.items() if own.is_small}
    if small and len(small) == len(sizes):
        raise InputError(_nobody_left(small, on_graph, bool(rows_kept)))
    who, kept = _in_words(small, sizes) if small else "", not set(rows_kept).isdisjoint(small)
    return LeftOut(tuple(sizes), tuple(small), who, _rows_of(small), graph, rows_kept=kept)


def leave_out(fed: Federation, sizes: Sizes) -> LeftOut:
    """Go on without the small ones among parties of these sizes."""
    sites = fed.local_sites().items()
    kept = [name for name, site in sites if site.policy.forbids({"rows"})]
    left_out = left_out_of(sizes, fed.graph, kept)
    try:
        fed.leave_out({name: _reason(sizes[name]) for name in left_out.names})
    except TopologyError as error:
        raise TopologyError(f"{left_out.words}. But without them {error.reason}") from None
    return left_out


def _reason(own: RowSize) -> str:
    return f"of {own.n_rows} rows, where a sum must be over {own.min_rows}"


def _nobody_left(small: Sizes, on_graph: bool, rows_kept: bool) -> str:
    fewest = min(own.min_rows for own in small.values())
    how = "each party's rows can be told from what it sends"
    # Who may be in sums may yet have too few rows for a mean, as landmarks are.
    makes_means = max(own.n_rows for own in small.values()) >= MIN_CLUSTER
    revealing = _REVEALING if makes_means else _REVEALING_ROWS
    reveal = "" if rows_kept else f"; or {revealing} {how}"
    return (
        f"no party has the {fewest} rows that a sum must be over, so that everybody would be left "
        f"out: pass {_REMEDIES[on_graph]}{reveal}"
    )


def _rows_of(sizes: Sizes) -> int:
    return sum(own.n_rows for own in sizes.values())


def _in_words(small: Sizes, sizes: Sizes) -> str:
    """Who is left out, and what of."""
    rows, in_all = _rows_of(small), _rows_of(sizes)
    who = f"party {in_short(list(small))} is" if len(small) == 1 else _several(list(small))
    fewest = max(own.min_rows for own in small.values())
    return (
        f"{who} left out, with {rows:,} of all {in_all:,} rows: fewer than {fewest} a party can be "
        f"told from their sums"
    )


def _several(names: Sequence[str]) -> str:
    return f"{len(names):,} parties ({in_short(names)}) are"
