"""disLS for its own sake: leverage scores of rows in feature space, known only to a row's owner.

Balcan, Liang, Song, Woodruff and Xie, "Communication Efficient Distributed Kernel Principal
Component Analysis", KDD 2016, Algorithm 2; `protocol.py` has its steps, which begin disKPCA, too.

===================  ============================================================================
party keeps          its rows A_i (n_i, d) and their scores
party reveals        the Gram matrix of its embedded rows, the sum of its scores and its largest,
                     or the mean of its `min_rows` largest where its policy keeps rows
coordinator learns   these; the factor of the summed Gram matrix goes to all parties
===================  ============================================================================

Readings: the exact Gram matrix takes the place of a right-hand sketch: it adds up over the parties,
and at this size costs no more. `diskpca_sketched` has the sketch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eigenmesh.methods.diskpca.protocol import (
    LeverageMass,
    ScoredRows,
    Whitening,
    largest_of,
    skew_of,
)
from eigenmesh.numerics.eigen import require_rank, top_eigenpairs
from eigenmesh.numerics.embeddings import embedded_width, is_exact, whitening_of
from eigenmesh.numerics.landmark_sums import full
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import (
    Node,
    Own,
    Parties,
    Scope,
    ask,
    enlist,
    sequence,
    settle,
    total,
)
from eigenmesh.stages.row_messages import (
    KernelSetup,
    by_party,
)

EXACT_ROWS = 2000  # a party that is alone takes the kernel matrix itself up to here
STORE = "leverage-scores"  # where a site keeps its rows' scores


class ScoreKeeper(ScoredRows):
    """Keeps the scores in its site's store, for whoever works there next."""

    @step
    def leverage_mass(self, whitening: Whitening) -> LeverageMass:
        """The scores with respect to rank k; they stay."""
        reply: LeverageMass = super().leverage_mass(whitening)
        self.site.keep(STORE, {"scores": self.scores})
        return reply

    @step
    def exact_mass(self) -> LeverageMass:
        """The same from the kernel matrix, at a party that holds all rows."""
        k = self.setup.leverage_rank
        K = self.kernel.matrix(self.site.data)
        values, vectors = top_eigenpairs(K, min(k, len(K)))
        require_rank(values, k, len(K), "the rows")
        self.scores = np.square(vectors).sum(axis=1)
        self.site.keep(STORE, {"scores": self.scores})
        return LeverageMass(mass=float(k), largest=largest_of(self.scores, self.site), rank=k)


@record
@dataclass(frozen=True)
class LeverageResult:
    """How skewed the scores are; the scores themselves are with their owners."""

    skew: float  # largest score / mean
    n_rows: int
    exact: bool  # scores of the kernel's own feature space, not of an embedding
    baseline_floats: int
    stop_reason: str = "every party knows the scores of its rows"


def schedule(scope: Scope, setup: KernelSetup) -> Node:
    """Sizes, then Gram matrices and scores; of few rows in one place, the scores themselves."""
    k = setup.leverage_rank

    def scores(n: int, d: int, n_parties: int) -> Node:
        if n_parties == 1 and n <= EXACT_ROWS:
            return ask(ScoreKeeper.exact_mass)
        t = embedded_width(setup.kernel, d, setup.embedding_dim)
        return sequence(
            total(ScoreKeeper.embedded_gram, t=t), ask(ScoreKeeper.leverage_mass, t=t, r=k)
        )

    def planned(parties: Parties) -> dict[str, int]:
        return {"n": parties.n_rows, "d": parties.shapes[0][1], "n_parties": len(parties.names)}

    def fits(own: Own, n: int, d: int, n_parties: int) -> bool:
        return n >= own.rows and d == own.columns and 0 < n_parties <= scope.n_taking_part

    sizes = settle(planned, scores, fits, n=10**9, d=100, n_parties=scope.n_taking_part)
    return sequence(enlist(ScoreKeeper, setup), ask(ScoreKeeper.count_rows), sizes)


@protocol("leverage-scores", roles=(ScoreKeeper,), schedule=schedule)
def leverage_scores(rows: Federation, setup: KernelSetup) -> LeverageResult:
    """Algorithm 2 for its own sake: scores with respect to rank k, kept where the rows are."""
    rows.enlist(ScoreKeeper, setup)
    sizes = by_party(rows.ask(ScoreKeeper.count_rows))
    n, d = sum(size.n_rows for size in sizes.values()), next(iter(sizes.values())).n_columns
    rows.settle(n=n, d=d, n_parties=len(sizes))
    exact = len(sizes) == 1 and n <= EXACT_ROWS
    if exact:
        masses = by_party(rows.ask(ScoreKeeper.exact_mass))
    else:
        R = whitening_of(full(rows.total(ScoreKeeper.embedded_gram).sum.upper))
        k = setup.leverage_rank
        require_rank(np.ones(R.shape[1]), k, n, "the embedded rows", "embed in more dimensions")
        masses = by_party(rows.ask(ScoreKeeper.leverage_mass, Whitening(matrix=R[:, :k])))
    exact = exact or is_exact(setup.kernel, d, setup.embedding_dim)
    n = sum(size.n_rows for name, size in sizes.items() if name in masses)
    return LeverageResult(
        skew_of(masses, n), n, exact, sum(size.n_values for size in sizes.values())
    )
