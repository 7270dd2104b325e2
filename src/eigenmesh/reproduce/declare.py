"""How a table or figure of a paper is declared: sets, methods, sweep and claims.

A declaration says what the paper's experiment section says, and nothing of how it is run, drawn or
kept: one runner does that for all. ::

    FIG3 = Figure(
        "003/fig3",
        "Similarity to the pooled component, by the number of nodes",
        shows="similarity seconds",
        panels=[Panel("MNIST", rows_of("mnist"), graph_rows, "n_nodes", (10, 20, 40), METHODS)],
        claims=[claim("above 0.912", "as printed", above(of("admm", "similarity"), 0.912))],
    )
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from eigenmesh.reproduce.claims import Claim
from eigenmesh.reproduce.datasets import Rows

T = TypeVar("T")
SIZES = ("smoke", "quick", "full")
Measures = Mapping[str, Any]  # numbers, or lists of numbers: one a round


@dataclass(frozen=True)
class BySize(Generic[T]):
    """A value for each size of run.

    >>> at_size(BySize(1, 2, 5), "quick"), at_size(7, "full")
    (2, 7)
    """

    smoke: T
    quick: T
    full: T


def at_size(value: Any, size: str) -> Any:
    """The value for that size; one that is not by size is the same for all."""
    return getattr(value, size) if isinstance(value, BySize) else value


@dataclass(frozen=True)
class DataRequest:
    """A set by name, how many rows of it, and what else its loader takes; all may be by size.

    `n_rows` may be the name of the setting that is swept: each value then has rows of its own.
    """

    name: str
    n_rows: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def at(self, size: str) -> tuple[str, int | str | None, dict[str, Any]]:
        """Name, rows and options of a run."""
        options = {key: at_size(value, size) for key, value in self.options.items()}
        return self.name, at_size(self.n_rows, size), options


def rows_of(name: str, n_rows: Any = None, **options: Any) -> DataRequest:
    """A set of `datasets.SETS`; all rows if their number is left out."""
    return DataRequest(name, n_rows, options)


@dataclass(frozen=True)
class Experiment:
    """How rows become a problem, and the methods that can be run on it, by the names of `style`.

    `prepare(rows, settings, seed)` gives a problem; a method takes it and gives what it measured.
    """

    name: str
    prepare: Callable[[Rows, Mapping[str, Any], int], Any]
    methods: Mapping[str, Callable[[Any], Measures]]


@dataclass(frozen=True)
class Panel:
    """One plot: a set, an experiment, the setting that is swept, and the methods compared.

    Methods of `once` do not hang on that setting: they are run at its first value, for all.
    """

    title: str
    data: DataRequest
    on: Experiment
    sweep: str
    values: Any  # of the setting; may be by size
    methods: str  # names, with spaces between
    fixed: Mapping[str, Any] = field(default_factory=dict)  # other settings; may be by size
    once: str = ""  # names, with spaces between


@dataclass(frozen=True)
class Figure:
    """A table or figure of a paper.

    `shows` names the measures that are drawn, with spaces between; `over` is what they are drawn
    over: "sweep", "round" (measures are then lists) or another measure, as "floats". Each method is
    fitted `repeats` times, and the fastest is timed.
    """

    id: str
    title: str
    shows: str
    panels: Sequence[Panel]
    claims: Sequence[Claim]
    over: str = "sweep"
    seeds: Any = BySize(1, 3, 5)
    repeats: int = 1
    rounds: str = "round"  # what the entries of lists are
    round_names: Sequence[str] = ()  # of each entry; their numbers if left out
    reading: str = ""  # what was read into the paper's words, of all claims

    @property
    def paper(self) -> str:
        """Its number."""
        return self.id.partition("/")[0]
