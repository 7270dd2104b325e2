"""DSPGD without its communication-efficient mechanism: the comparison that the paper makes.

Section 4.1 of the paper that `dspgd` implements. The coordinator runs Lanczos on vectors with one
entry a row of all parties, so the traffic grows with the rows: n + M·D floats a product from M
parties, in two rounds, where the mechanism takes M·(D + r) in one.

===================  ============================================================================
party keeps          its rows, and at the end its rows of H
party reveals        Aᵀc of its own rows, and one number a row (scores) for every product
coordinator learns   these, and H, all coordinates of all rows
===================  ============================================================================

It is here to be measured, not to be used: more leaves the parties, and more is sent.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from eigenmesh.errors import InputError, MessageRefused
from eigenmesh.methods.dspgd.maths import (
    Spectrum,
    compression,
    lanczos_spectrum,
    step_size,
)
from eigenmesh.methods.dspgd.outcome import DSPGDResult, Goal, Log
from eigenmesh.methods.dspgd.party_side import DSPGDSetup, Features
from eigenmesh.methods.dspgd.protocol import (
    TOLERANCE,
    last_rotation,
    paper_threshold,
    require_columns,
    require_width,
)
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, Shape
from eigenmesh.runtime.party import Party, Step, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_messages import RowCount, count


class RowsOfVector(Message, reveals="scores"):
    """A party's entries of a vector over all rows, in iteration t."""

    t: int
    entries: Annotated[Floats, Shape("n")]


class FeatureSum(Message, reveals="sketch"):
    """Aᵀc, of a party or of all, in iteration t."""

    t: int
    sums: Annotated[Floats, Shape("D")]


class Expanded(Message, reveals="scores"):
    """A times the summed Aᵀc: one number a row."""

    entries: Annotated[Floats, Shape("n")]


class RowsOfScores(Message, reveals="scores"):
    """A party's rows of H."""

    rows: Annotated[Floats, Shape("n", "s")]


class SampleHolder(Party):
    """Holds rows, and multiplies with their features."""

    Setup = DSPGDSetup

    def __init__(self, site: SiteView, setup: DSPGDSetup) -> None:
        super().__init__(site, setup)
        self.features = Features.of(setup, site.data.shape[1])
        self._current: dict[int, Doubles] = {}  # A of the iteration under way; can be made again

    @step
    def count_samples(self) -> RowCount:
        """Rows and columns."""
        return count(self.site.data)

    @step
    def project(self, vector: RowsOfVector) -> FeatureSum:
        """Aᵀc over the own rows."""
        A = self._features(vector.t)
        if len(vector.entries) != len(A):
            raise MessageRefused(f"a vector has {len(vector.entries)} entries for {len(A)} rows")
        return FeatureSum(t=0, sums=A.T @ vector.entries)

    @step
    def expand(self, total: FeatureSum) -> Expanded:
        """A Aᵀc at the own rows."""
        return Expanded(entries=self._features(total.t) @ total.sums)

    @step
    def keep_rows(self, scores: RowsOfScores) -> None:
        """Keep H at the site."""
        self.site.keep(self.setup.scores, {"points": np.array(scores.rows)})

    def _features(self, t: int) -> Doubles:
        if t not in self._current:
            self._current.clear()
            self._current[t] = self.features.of_rows(self.site.data, t)
        return self._current[t]


STEPS: list[Step] = [
    SampleHolder.count_samples,
    SampleHolder.project,
    SampleHolder.expand,
    SampleHolder.keep_rows,
]


@protocol("dspgd-direct", roles=(SampleHolder,))
def dspgd_direct(fed: Federation, setup: DSPGDSetup, goal: Goal, n_iterations: int) -> DSPGDResult:
    """Algorithm 1 with products of vectors over all rows."""
    if fed.on_loss != "raise":
        raise InputError(
            f"on_loss is {fed.on_loss!r}; 'raise' is expected without the mechanism: the "
            f"coordinator's vectors have the rows of everybody"
        )
    fed.enlist(SampleHolder, setup, STEPS)
    sizes = fed.ask(SampleHolder.count_samples)
    centre = _Centre(fed, setup, sizes)
    require_width(centre.features.width, goal)
    threshold, log = 0.0, Log(centre.features.width)
    for t in range(1, n_iterations + 1):
        eta = step_size(setup.step_rule, t)
        wanted = goal.first_rank if t == 1 else goal.rank
        found, U = centre.eigenpairs(t, eta, wanted, eta * threshold)
        if t == 1 and goal.rank is None:
            threshold = paper_threshold(found.values, goal)
        X = require_columns(compression(found, eta * threshold, goal.rank), t)
        log.note(eta, found, X, 1.0)
        centre.move(U, found, X)
    kept, rotation, following = last_rotation(centre.B.T @ centre.B, goal, threshold)
    fed.ask(
        SampleHolder.keep_rows, each=[RowsOfScores(H) for H in centre.split(centre.B @ rotation)]
    )
    return DSPGDResult(
        model=centre.features.model(centre.steps, rotation),
        eigenvalues=kept,
        next_eigenvalue=following,
        threshold=threshold,
        trace=log.trace(centre.n_rows, None),
        n_rows=centre.n_rows,
        baseline_floats=sum(size.n_values for size in sizes),
        stop_reason=f"{n_iterations} iterations were made",
    )


class _Centre:
    """What the coordinator holds: the iterate of all rows."""

    def __init__(self, fed: Federation, setup: DSPGDSetup, sizes: Replies) -> None:
        self._fed = fed
        self._ends = np.cumsum([size.n_rows for size in sizes])
        self.features = Features.of(setup, sizes[0].n_columns)
        self.n_rows = int(self._ends[-1])
        self.B = np.zeros((self.n_rows, 0))
        self.steps: list[Doubles] = []

    def split(self, rows: Doubles) -> list[Doubles]:
        """Each party's entries."""
        return np.split(rows, self._ends[:-1])

    def eigenpairs(
        self, t: int, eta: float, rank: int | None, floor: float
    ) -> tuple[Spectrum, Doubles]:
        """Eigenpairs of WᵀW, and the eigenvectors U of W Wᵀ from which they follow."""
        asked: list[Doubles] = []
        summed: list[Doubles] = []  # Aᵀc of every product: Aᵀu then costs nothing more

        def apply(c: Doubles) -> Doubles:
            vectors = [RowsOfVector(t=t, entries=part) for part in self.split(c)]
            sums = self._fed.total(SampleHolder.project, each=vectors).sum.sums
            replies = self._fed.ask(SampleHolder.expand, FeatureSum(t=t, sums=sums))
            asked.append(c)
            summed.append(sums)
            AAc = np.concatenate([reply.entries for reply in replies])
            moved: Doubles = (1 - eta) * (self.B @ (self.B.T @ c)) + eta * AAc
            return moved

        seeds = np.random.SeedSequence(self.features.seed, spawn_key=(t, 2))
        start = np.random.default_rng(seeds).standard_normal(self.n_rows)
        found = lanczos_spectrum(apply, start, rank=rank, floor=floor, tol=TOLERANCE)
        U = found.vectors
        AU = np.column_stack(summed) @ (np.column_stack(asked).T @ U)
        WU = np.vstack([np.sqrt(eta) * AU, np.sqrt(1 - eta) * (self.B.T @ U)])
        V = WU / np.sqrt(np.maximum(found.values, np.finfo(float).tiny))
        return Spectrum(found.values, V, found.n_products), U

    def move(self, U: Doubles, found: Spectrum, X: Doubles) -> None:
        """B ← W X, from the eigenvectors that are at hand."""
        k = min(U.shape[1], X.shape[1])
        # W v = √θ u, and X is v but for its length and sign.
        along = np.einsum("ij,ij->j", X[:, :k], found.vectors[:, :k])
        lengths = along * np.sqrt(np.maximum(found.values[:k], 0.0))
        self.B = np.hstack([U[:, :k] * lengths, np.zeros((self.n_rows, X.shape[1] - k))])
        self.steps.append(X)
