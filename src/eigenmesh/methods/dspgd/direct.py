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
    ProximalSpectrum,
    compression,
    lanczos_spectrum,
    step_size,
)
from eigenmesh.methods.dspgd.outcome import DSPGDResult, Goal, Log, require_few
from eigenmesh.methods.dspgd.party_side import DSPGDSetup, Features
from eigenmesh.methods.dspgd.protocol import (
    TOLERANCE,
    last_rotation,
    paper_threshold,
    require_columns,
    require_width,
    usual_products,
)
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import (
    Node,
    Scope,
    ask,
    at_most,
    enlist,
    loop,
    rows,
    sequence,
    settle,
    total,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_messages import RowCount, count


class RowsOfVector(Message, reveals="scores"):
    """A party's entries of a vector over all rows, in iteration t."""

    t: int
    entries: Annotated[Floats, Shape("n")]


class FeatureSum(Message, reveals="moments", covers=1):
    """Aᵀc, of a party or of all, in iteration t; of a c with one entry it is a row."""

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
        return count(self.site)

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


def schedule(scope: Scope, setup: DSPGDSetup, goal: Goal, n_iterations: int) -> Node:
    """Two rounds a product, as many as Lanczos takes; then every party gets its rows of H."""
    require_few(n_iterations)

    def iteration(t: int, features: Features, n_rows: int) -> Node:
        D, rank = features.width, goal.n_clusters + 3 if goal.rank is None else goal.rank
        usual = min(D + (rank if t > 1 else 0), usual_products(rank))
        return loop(
            n_rows,
            total(SampleHolder.project, apart=True, down={"t": t, "n": rows}, up={"t": 0, "D": D}),
            ask(SampleHolder.expand, down={"t": t, "D": D}, up={"n": rows}),
            fewest=1,
            usual=usual,
        )

    def rest(n_rows: int, n_columns: int) -> Node:
        features = Features.of(setup, n_columns)
        return sequence(
            *(iteration(t, features, n_rows) for t in range(1, n_iterations + 1)),
            ask(SampleHolder.keep_rows, n=rows, s=at_most(goal.n_eigenvectors)),
        )

    return sequence(
        enlist(SampleHolder, setup),
        ask(SampleHolder.count_samples),
        settle(
            lambda parties: {"n_rows": parties.n_rows, "n_columns": parties.shapes[0][1]},
            rest,
            lambda own, n_rows, n_columns: own.rows <= n_rows and own.columns == n_columns,
            n_rows=1,
            n_columns=1,
        ),
    )


@protocol("dspgd-direct", roles=(SampleHolder,), schedule=schedule)
def dspgd_direct(fed: Federation, setup: DSPGDSetup, goal: Goal, n_iterations: int) -> DSPGDResult:
    """Algorithm 1 with products of vectors over all rows."""
    if fed.on_loss != "raise":
        raise InputError(
            f"on_loss is {fed.on_loss!r}; 'raise' is expected without the mechanism: the "
            f"coordinator's vectors have the rows of everybody"
        )
    fed.enlist(SampleHolder, setup)
    sizes = fed.ask(SampleHolder.count_samples)
    centre = _Centre(fed, setup, sizes)
    fed.settle(n_rows=centre.n_rows, n_columns=centre.features.n_columns)
    require_width(centre.features.width, goal)
    threshold, log = 0.0, Log(centre.features.width)
    for t in range(1, n_iterations + 1):
        eta = step_size(setup.step_rule, t)
        rank = goal.first_rank if t == 1 else goal.rank
        spectrum, U = centre.eigenpairs(t, eta, rank, eta * threshold)
        if t == 1 and goal.rank is None:
            threshold = paper_threshold(spectrum.values, goal)
        X = require_columns(compression(spectrum, eta * threshold, goal.rank), t)
        log.note(eta, spectrum, X, 1.0)
        centre.move(U, spectrum, X)
    values, rotation, following = last_rotation(centre.B.T @ centre.B, goal, threshold)
    fed.ask(
        SampleHolder.keep_rows, each=[RowsOfScores(H) for H in centre.split(centre.B @ rotation)]
    )
    return DSPGDResult(
        model=centre.features.model(centre.steps, rotation),
        eigenvalues=values,
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
    ) -> tuple[ProximalSpectrum, Doubles]:
        """Eigenpairs of WᵀW, and the eigenvectors U of W Wᵀ from which they follow."""
        vectors: list[Doubles] = []
        summed: list[Doubles] = []  # Aᵀc of every product: Aᵀu then costs nothing more

        def apply(c: Doubles) -> Doubles:
            parts = [RowsOfVector(t=t, entries=part) for part in self.split(c)]
            sums = self._fed.total(SampleHolder.project, each=parts).sum.sums
            replies = self._fed.ask(SampleHolder.expand, FeatureSum(t=t, sums=sums))
            vectors.append(c)
            summed.append(sums)
            AAc = np.concatenate([reply.entries for reply in replies])
            moved: Doubles = (1 - eta) * (self.B @ (self.B.T @ c)) + eta * AAc
            return moved

        seeds = np.random.SeedSequence(self.features.seed, spawn_key=(t, 2))
        start = np.random.default_rng(seeds).standard_normal(self.n_rows)
        spectrum = lanczos_spectrum(apply, start, rank=rank, floor=floor, tol=TOLERANCE)
        U = spectrum.vectors
        AU = np.column_stack(summed) @ (np.column_stack(vectors).T @ U)
        WU = np.vstack([np.sqrt(eta) * AU, np.sqrt(1 - eta) * (self.B.T @ U)])
        V = WU / np.sqrt(np.maximum(spectrum.values, np.finfo(float).tiny))
        return ProximalSpectrum(spectrum.values, V, spectrum.n_products), U

    def move(self, U: Doubles, spectrum: ProximalSpectrum, X: Doubles) -> None:
        """B ← W X, from the eigenvectors that are at hand."""
        k = min(U.shape[1], X.shape[1])
        # W v = √θ u, and X is v but for its length and sign.
        along = np.einsum("ij,ij->j", X[:, :k], spectrum.vectors[:, :k])
        lengths = along * np.sqrt(np.maximum(spectrum.values[:k], 0.0))
        self.B = np.hstack([U[:, :k] * lengths, np.zeros((self.n_rows, X.shape[1] - k))])
        self.steps.append(X)
