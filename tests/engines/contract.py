"""What the engine contract runs: the engines, a toy protocol, and parties that misbehave.

A later engine is listed in `ENGINES` and nothing else: a function that opens a federation over a
`Partitioned` with the options of `em.federation`. Whatever a party does wrong is asked for in its
setup, so that it does it in whichever process the engine puts it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import networkx as nx
import numpy as np
import pandas as pd
from tests.engines.dask_cluster import open_on_dask
from tests.engines.nvflare_sides import open_here

import eigenmesh as em
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.message import (
    Descending,
    Floats,
    Message,
    NonNegative,
    Orthonormal,
    Reveals,
    SameEverywhere,
    Shape,
)
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import Protocol, protocol
from eigenmesh.runtime.results import Run


@dataclass(frozen=True)
class EngineUnderTest:
    """An engine, how to open a federation on it, and how soon a hung party may be given up."""

    name: str
    open: Callable[..., Federation]
    short_timeout: float


ENGINES = [
    EngineUnderTest("in-process", partial(em.federation, engine="in-process"), 0.2),
    EngineUnderTest("dask", open_on_dask, 1.0),
    EngineUnderTest("nvflare", open_here, 0.5),
]

NAMES = ("north", "east", "south", "west", "centre")
WIDTH = 3


def some_rows(**options: Any) -> em.Partitioned:
    """Five parties of unequal size."""
    rng = np.random.default_rng(7)
    rows = [rng.normal(loc=i, size=(4 + i, WIDTH)) for i in range(len(NAMES))]
    return em.Partitioned(rows=rows, names=list(NAMES), **options)


def messy_rows() -> em.Partitioned:
    """The same with words and gaps, to be prepared."""
    rng = np.random.default_rng(8)
    frames = []
    for i in range(len(NAMES)):
        n = 12 + 3 * i
        frame = pd.DataFrame(rng.normal(i, 1, size=(n, 2)), columns=["age", "dose"])
        frame.loc[rng.random(n) < 0.2, "dose"] = np.nan
        frame["ward"] = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
        frames.append(frame)
    return em.Partitioned(rows=frames, names=list(NAMES), categories=["ward"], allow_missing=True)


PREPARED = em.Preparation(
    standardize=True, fill_missing=0.5, fill_with="median", categories=["ward"], min_rows=3
)


# A toy protocol with a coordinator, on whose party every wrong reply can be ordered.

SECRET = "patient 4711 has"  # what a foreign exception says, and must not leave the site


class SurveySetup(Message, reveals=None):
    """Who misbehaves, at which of its calls, and how."""

    culprit: str = ""
    manner: str = ""
    at: int = 1
    seconds: float = 0.0


class Direction(Message, reveals="sketch"):
    """A vector to project on."""

    vector: Annotated[Floats, Shape("d")]


class Sums(Message, reveals="moments"):
    """Number of rows and sum of the columns."""

    n_rows: Annotated[int, Reveals("counts")]
    sums: Annotated[Floats, Shape("d")]


class Projections(Message, reveals="scores"):
    """One number a row."""

    n_rows: Annotated[int, Reveals("counts")]
    values: Annotated[Floats, Shape("n_rows")]


class Width(Message, reveals="counts"):
    """Number of columns, and of the steps that the party has run."""

    width: Annotated[int, SameEverywhere]
    calls: int


class Spectrum(Message, reveals="eigenvectors"):
    """Eigenpairs of the party's own moment matrix."""

    vectors: Annotated[Floats, Shape("d", "r"), Orthonormal]
    values: Annotated[Floats, Shape("r"), Descending, NonNegative]


class Query(Message, reveals=None):
    """Nothing but the question."""


class Count(Message, reveals="counts"):
    """Exchanges that a party has completed."""

    rounds: int


class Surveyor(Party):
    """Holds rows, answers a coordinator, and misbehaves when its setup says so."""

    Setup = SurveySetup
    state = ("calls", "rounds")

    def __init__(self, site: Any, setup: SurveySetup) -> None:
        super().__init__(site, setup)
        self.calls = 0
        self.rounds = 0

    def _fails(self, manner: str) -> bool:
        mine = self.setup.culprit == self.site.name and self.setup.manner == manner
        return mine and self.calls == self.setup.at

    def _begin(self) -> None:
        self.calls += 1
        if self._fails("raise"):
            raise RuntimeError(f"{SECRET} {self.site.data[0, 0]!r}")
        if self._fails("exit"):
            raise SystemExit(SECRET)
        if self._fails("sleep"):
            time.sleep(self.setup.seconds)
        if self._fails("undeclared"):
            self.hidden = SECRET

    @step
    def sum_rows(self) -> Sums:
        """Count and column sums; wrong in the manner that the setup orders."""
        self._begin()
        sums = self.site.data.sum(axis=0)
        if self._fails("wrong type"):
            return Query()  # type: ignore[return-value]
        if self._fails("nothing"):
            return None  # type: ignore[return-value]
        wrong = {
            "nan": np.full(WIDTH, np.nan),
            "infinite": np.full(WIDTH, np.inf),
            "row": sums[None, :],
            "integers": sums.astype(int),
            "objects": sums.astype(object),
            "complex": sums.astype(complex),
            "list": list(sums),
            "short": sums[:-1],
        }
        found = [value for manner, value in wrong.items() if self._fails(manner)]
        return Sums(n_rows=len(self.site.data), sums=found[0] if found else sums)

    @step
    def project(self, direction: Direction) -> Projections:
        """Inner products with the rows."""
        self._begin()
        return Projections(len(self.site.data), self.site.data @ direction.vector)

    @step
    def tell_width(self) -> Width:
        """Number of columns, larger at a culprit."""
        self._begin()
        return Width(self.site.data.shape[1] + self._fails("width"), self.calls)

    @step
    def spectrum(self) -> Spectrum:
        """Eigenpairs, largest first unless ordered otherwise."""
        self._begin()
        values, vectors = np.linalg.eigh(self.site.data.T @ self.site.data)
        order = slice(None) if self._fails("ascending") else slice(None, None, -1)
        scale = 2.0 if self._fails("not orthonormal") else 1.0
        sign = -1.0 if self._fails("negative") else 1.0
        return Spectrum(scale * vectors[:, order], np.abs(sign * values[order][:WIDTH]) * sign)

    @step
    def offer_count(self) -> Count:
        """To the neighbours: the completed exchanges."""
        self._begin()
        return Count(rounds=float("nan") if self._fails("nan") else self.rounds)  # type: ignore[arg-type]

    @step
    def take_counts(self, received: dict[int, Count]) -> None:
        """One more exchange is complete; everybody else must be exactly as far."""
        self.rounds += 1
        assert all(other.rounds == self.rounds - 1 for other in received.values())
        if self._fails("raise late"):
            raise RuntimeError(SECRET)

    @step
    def tell_count(self, query: Query) -> Count:
        """To whoever runs the protocol."""
        return Count(rounds=self.rounds)


class Bystander(Party):
    """Holds rows, and is asked for nothing."""

    Setup = SurveySetup


class SurveyResult(NamedTuple):
    """What the coordinator learns."""

    n_rows: int
    mean: Floats
    projections: list[Floats]
    halves: list[Floats]


@protocol("toy-survey", roles=(Surveyor, Bystander))
def survey(parties: Federation, setup: SurveySetup) -> SurveyResult:
    """Three rounds: a total, an ask to all, an ask with a message for each."""
    parties.enlist(Surveyor, setup)
    total = parties.total(Surveyor.sum_rows)
    mean = total.sum.sums / total.sum.n_rows
    whole = parties.ask(Surveyor.project, Direction(mean))
    own = [Direction(mean * (i + 1)) for i in range(len(parties.parties))]
    scaled = parties.ask(Surveyor.project, each=own)
    return SurveyResult(
        total.sum.n_rows, mean, [r.values for r in whole], [r.values for r in scaled]
    )


SURVEY_ROUNDS = 3


def run(parties: Federation, coordinate: Callable[..., Any], *args: Any) -> Run[Any]:
    """Run a coordinator's side that a test has written down, without registering it."""
    return parties.run(Protocol("in a test", (Surveyor,), coordinate), *args)


def by_step(ledger: Ledger) -> dict[str, tuple[int, int, int]]:
    """Messages, floats and bytes of each step."""
    sums: dict[str, tuple[int, int, int]] = {}
    for entry in ledger:
        n, floats, size = sums.get(entry.step, (0, 0, 0))
        sums[entry.step] = (n + 1, floats + entry.floats, size + entry.bytes)
    return sums


def mix(values: Floats, graph: nx.Graph, n_rounds: int) -> Floats:
    """Metropolis averaging done centrally: what gossip-average must give, row by row."""
    nodes = sorted(graph)
    W = np.eye(len(values))
    for i, j in graph.edges:
        W[i, j] = W[j, i] = 1 / (1 + max(graph.degree(i), graph.degree(j)))
    for i in nodes:
        W[i, i] = 2 - W[i].sum()
    return np.asarray(np.linalg.matrix_power(W, n_rounds) @ values)
