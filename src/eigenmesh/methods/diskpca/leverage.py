"""disLS: statistical leverage scores of rows in feature space, each known only to its row's owner.

Balcan, Liang, Song, Woodruff and Xie, "Communication Efficient Distributed Kernel Principal
Component Analysis", KDD 2016, Algorithm 2.

===================  ============================================================================
party keeps          its rows A_i (n_i, d) and their scores
party reveals        the Gram matrix of its embedded rows, the sum of its scores and its largest
coordinator learns   these; the factor of the summed Gram matrix goes to all parties
===================  ============================================================================

Letters: E embedded rows (n, t), t `embedding_dim`; E R with orthonormal columns, so that the score
of a row is its squared length in E R. The first k columns of R belong to the k largest directions:
they give the scores with respect to rank k, `leverage_rank`.

Readings: the exact Gram matrix takes the place of a right-hand sketch: it adds up over the parties,
and at this size costs no more. `diskpca_sketched` has the sketch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from eigenmesh.numerics.arrays import Doubles, Rows, blocks
from eigenmesh.numerics.eigen import pseudo_inverse_root, require_rank, top_eigenpairs
from eigenmesh.numerics.embeddings import embedded_width, embedding, is_exact
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, NonNegative, Positive, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import Node, Own, Parties, Scope, ask, enlist, sequence, settle
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_messages import (
    KernelSetup,
    RowCount,
    UpperGram,
    by_party,
    count,
    full,
    kernel_of,
    upper,
)

EXACT_ROWS = 2000  # a party that is alone takes the kernel matrix itself up to here
STORE = "leverage-scores"  # where a site keeps its rows' scores


class Whitening(Message, reveals="gram"):
    """R: makes the embedded rows of all parties together orthonormal, largest direction first."""

    matrix: Annotated[Floats, Shape("t", "r")]


class LeverageMass(Message, reveals="moments"):
    """The sum of a party's scores, and its largest with respect to rank k."""

    mass: Annotated[float, NonNegative]
    largest: Annotated[float, NonNegative]
    rank: Annotated[int, Positive]  # k, or less where the embedded rows have less


class ScoredRows(Party):
    """Holds some rows of all columns, and learns their leverage."""

    Setup: ClassVar[type[Message]] = KernelSetup
    state: ClassVar[tuple[str, ...]] = ("scores",)

    def __init__(self, site: SiteView, setup: KernelSetup) -> None:
        super().__init__(site, setup)
        self.kernel = kernel_of(setup)
        self.scores = np.ones(site.data.shape[0])

    @step
    def count_rows(self) -> RowCount:
        """Rows and columns."""
        return count(self.site.data)

    @step
    def embedded_gram(self) -> UpperGram:
        """EᵀE of the embedded rows."""
        gram: Any = sum(E.T @ E for E in self.embedded())
        return UpperGram(upper=upper(gram))

    @step
    def leverage_mass(self, whitening: Whitening) -> LeverageMass:
        """‖E_a R‖² of every row a: its share in the rank-t row space of all rows."""
        rank = int(np.count_nonzero(whitening.matrix.any(axis=0)))
        n, k = len(self.scores), min(self.setup.leverage_rank, rank)
        scores, largest = np.empty(n), 0.0
        for rows, E in zip(blocks(n), self.embedded(), strict=True):
            squares = np.square(E @ whitening.matrix)
            scores[rows] = squares.sum(axis=1)
            largest = max(largest, float(squares[:, :k].sum(axis=1).max()))
        self.scores = scores
        return LeverageMass(mass=float(scores.sum()), largest=largest, rank=k)

    def embedded(self) -> Iterator[Doubles]:
        """Blocks of E."""
        return embedded_blocks(self.setup, self.site.data)


def embedded_blocks(setup: KernelSetup, A: Rows) -> Iterator[Doubles]:
    """Rows A embedded by the shared seed, block by block: every party embeds alike."""
    embed = embedding(kernel_of(setup), A.shape[1], setup.embedding_dim, setup.seed)
    return (embed(A[rows]) for rows in blocks(A.shape[0]))


def leverage_by_gram(role: Any) -> Callable[[Federation], dict[str, LeverageMass]]:
    """Algorithm 2, disLS, with the exact Gram matrix in place of a sketched QR."""

    def leverage(rows: Federation) -> dict[str, LeverageMass]:
        gram = full(rows.total(role.embedded_gram).sum.upper)
        whitening = Whitening(matrix=square(pseudo_inverse_root(gram)))
        return by_party(rows.ask(role.leverage_mass, whitening))

    return leverage


def gram_rounds(role: Any) -> Callable[[int], Node]:
    """The rounds of `leverage_by_gram` in t dimensions."""
    return lambda t: sequence(ask(role.embedded_gram, t=t), ask(role.leverage_mass, t=t, r=t))


def square(B: Doubles) -> Doubles:
    """Columns of zeros make up for a rank below t, so that the traffic is known beforehand."""
    return np.hstack([B, np.zeros((len(B), len(B) - B.shape[1]))])


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
        return LeverageMass(mass=float(k), largest=float(self.scores.max()), rank=k)


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
            ask(ScoreKeeper.embedded_gram, t=t), ask(ScoreKeeper.leverage_mass, t=t, r=k)
        )

    def planned(parties: Parties) -> dict[str, int]:
        return {"n": parties.n_rows, "d": parties.shapes[0][1], "n_parties": len(parties.names)}

    def fits(own: Own, n: int, d: int, n_parties: int) -> bool:
        return n >= own.rows and d == own.columns and 0 < n_parties <= len(scope.parties)

    sizes = settle(planned, scores, fits, n=10**9, d=100, n_parties=len(scope.parties))
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
        R = pseudo_inverse_root(full(rows.total(ScoreKeeper.embedded_gram).sum.upper))
        k = setup.leverage_rank
        require_rank(np.ones(R.shape[1]), k, n, "the embedded rows", "embed in more dimensions")
        masses = by_party(rows.ask(ScoreKeeper.leverage_mass, Whitening(matrix=R[:, :k])))
    exact = exact or is_exact(setup.kernel, d, setup.embedding_dim)
    n = sum(size.n_rows for name, size in sizes.items() if name in masses)
    return LeverageResult(
        skew_of(masses, n), n, exact, sum(size.n_values for size in sizes.values())
    )


def skew_of(masses: dict[str, LeverageMass], n_rows: int) -> float:
    """Largest rank-k score / mean: 1 if all rows matter alike, n/k if some row is a direction."""
    rank = max(score.rank for score in masses.values())
    return n_rows * max(score.largest for score in masses.values()) / rank
