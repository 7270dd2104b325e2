"""PCA over column partitions, exactly: block Lanczos over the parties from a one-shot start.

The setting, and the traffic of a round, are those of Cheung, Jiang, Yu and Lou, "Vertical Federated
Principal Component Analysis and Its Kernel Extension on Feature-wise Distributed Data" (their own
method is in `vfed_paper`): every round a vector a component goes up from each party, and one down.

===================  ==========================================================================
party keeps          its columns X_i (n, m_i); its share: mean and loadings
party reveals        its top left singular vectors, scaled, some more than k; then X_i X_iᵀ Q for
                     the blocks Q that it is sent; how many samples and columns, a digest of the
                     sample ids
coordinator learns   these; a party learns Q, and in the end the joint scores
===================  ==========================================================================

Round 1 fuses the parties' own vectors, MORE than are wanted: what comes next at each party may come
first of all together, and what a fusion of k vectors makes of that is luck. Every further round
multiplies a block with A = Σ_i X_i X_iᵀ and takes the best vectors that these products and the
parties' own vectors allow for, see `methods.vfed.maths`. It stops when a proven bound of every
residual ‖A u − λ u‖ is a small share of its own λ; components beside far larger ones are sought
without these.

Above the usual length: the search begins anew, among those who are left, whenever a party is lost.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import numpy as np

from eigenmesh.methods.vfed.maths import JointOperator, JointPairs
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.column_fusion import number_of
from eigenmesh.numerics.column_pieces import share_to_tree
from eigenmesh.numerics.eigen import SPECTRUM_ROUNDING
from eigenmesh.numerics.plausible import TOLERANCE, exceeds
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Context,
    Floats,
    Message,
    NonEmpty,
    NonNegative,
    OwnColumns,
    OwnRows,
    OwnSquares,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
    no_more_than,
)
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import (
    Node,
    Own,
    Scope,
    ask,
    at_most,
    enlist,
    loop,
    maybe,
    rows,
    sequence,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.column_scores import ask_everyone
from eigenmesh.stages.linear_columns import VFedResult, model_of, prepared_block

# Own vectors of a party beside as many as are wanted: decision 159 has what others cost.
MORE = 5


class VFedSetup(Message, reveals=None):
    """What the parties agree on; `model` is the name under which they keep their shares."""

    n_components: Annotated[int, Positive, no_more_than(100_000)]
    n_rounds: Annotated[int, Positive]  # at most
    at_most: bool  # fewer where the columns determine fewer, or fewer explain the share
    share: float | None
    center: bool
    standardize: bool
    fill_missing: float | None
    model: str
    seed: int


class LocalStart(Message, reveals="eigenvectors"):
    """Top left singular vectors of a party's columns, each times its singular value."""

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere, OwnRows]
    n_columns: Annotated[int, Reveals("counts"), OwnColumns]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    vectors: Annotated[Floats, Shape("n_samples", "s"), NonEmpty]
    total: Annotated[float, NonNegative, OwnSquares]  # of the columns

    def contradiction(self, context: Context) -> str | None:
        """Singular values are of the columns."""
        if exceeds(float(np.vdot(self.vectors, self.vectors)), self.total):
            return "the vectors have larger squares than all columns"
        return None


class Directions(Message, reveals="eigenvectors"):
    """A block of directions over the samples."""

    number: int
    vectors: Annotated[Floats, Shape("n", "b"), NonEmpty]


class GramProduct(Message, reveals="gram", covers=1):
    """X_i X_iᵀ times the block of that number."""

    number: int
    product: Annotated[Floats, Shape("n", "b"), NonEmpty]

    def contradiction(self, context: Context) -> str | None:
        """X Xᵀ is positive, and multiplies by no more than the sum of its squares."""
        request, most = context.request, context.facts.get(OwnSquares)
        if request is None or most is None or request.vectors.shape != self.product.shape:
            return None
        along = np.einsum("ij,ij->j", request.vectors, self.product)
        lengths = np.einsum("ij,ij->j", request.vectors, request.vectors)
        if np.any(along < -TOLERANCE * most * lengths):
            return "a square is negative"
        if np.any(np.linalg.norm(self.product, axis=0) > (1 + TOLERANCE) * most * np.sqrt(lengths)):
            return f"products too long for columns whose squares add up to {most:.6g}"
        return None


class JointScores(Message, reveals="scores"):
    """The samples' scores, unit eigenvectors times the root of their eigenvalues."""

    scores: Annotated[Floats, Shape("n", "k"), NonEmpty]


class VectorHolder(Party):
    """Holds some columns of all samples."""

    Setup = VFedSetup

    def __init__(self, site: SiteView, setup: VFedSetup) -> None:
        super().__init__(site, setup)
        self.columns = prepared_block(site, setup)

    @step
    def local_start(self) -> LocalStart:
        """Round 1. A party of fewer than k columns sends zeros in the place of missing vectors."""
        n, m = self.columns.shape
        number = own_vectors(self.setup, Own(n, m))
        return LocalStart(
            n_samples=n,
            n_columns=m,
            sample_ids=self.site.sample_ids_hash,
            vectors=self.columns.top_vectors(number, self.setup.seed),
            total=self.columns.total,
        )

    @step
    def multiply(self, block: Directions) -> GramProduct:
        """X_i X_iᵀ Q."""
        product = self.columns.times(self.columns.transposed_times(block.vectors))
        return GramProduct(number=block.number, product=product)

    @step(reusable=False)
    def keep_loadings(self, joint: JointScores) -> None:
        """The party's loadings, X_iᵀ u / √λ, stay in its store."""
        share = self.columns.share_of(joint.scores)
        self.site.keep(self.setup.model, share_to_tree(share), for_any=True)


def own_vectors(setup: VFedSetup, own: Own) -> int:
    """How many a party begins with: k, and MORE as far as they do not make up its columns.

    Nor, with all products that may follow, if these alone do not: so that they are of no kind that
    a study without them is not.
    """
    k, enough = setup.n_components, min(own.columns, max(own.rows - 1, 1))
    to_spare = enough - 1 - k * setup.n_rounds
    return max(k, k + min(MORE, to_spare if to_spare >= 0 else enough - 1 - k))


def schedule(scope: Scope, setup: VFedSetup) -> Node:
    """Own vectors, then k vectors up and down a round; a loss begins the search anew."""
    k, n_rounds = setup.n_components, setup.n_rounds
    own = partial(own_vectors, setup)
    product = ask(VectorHolder.multiply, n=rows, b=k, directions="b")
    keep = ask(VectorHolder.keep_loadings, n=rows, k=at_most(k))
    # A party lost while blocks are multiplied, or as loadings are kept: the search begins anew.
    return sequence(
        enlist(VectorHolder, setup),
        ask(VectorHolder.local_start, n_samples=rows, s=own, directions="s"),
        loop(n_rounds - 1, product),
        loop(scope.restarts, maybe(keep, planned=False), loop(n_rounds, product), usual=0),
        keep,
    )


@protocol("vfed-pca", roles=(VectorHolder,), schedule=schedule)
def vfed_pca(
    columns: Federation,
    setup: VFedSetup,
    tolerance: float,
    keep_history: bool = False,
) -> VFedResult:
    """The coordinator's side, in at most `n_rounds` rounds of one vector a component up and down.

    `keep_history` keeps the vectors of every round. A party that leaves takes its part of A with
    it: the search is then begun anew, from what the others sent and the best vectors so far.
    """
    columns.enlist(VectorHolder, setup)
    starts = ask_everyone(columns, VectorHolder.local_start)
    search = _Search(columns, starts, setup, tolerance, keep_history)
    while True:
        pairs = search.run(setup.n_rounds)
        total = float(sum(start.total for start in search.starts))
        k = n_components_of(setup, pairs.values, total)
        ordered = np.append(pairs.values, pairs.next_value)
        model = model_of(search.starts, ordered, pairs.vectors, k, setup.model)
        scores = JointScores(scores=model.fusion.components.scores)
        ask_everyone(columns, VectorHolder.keep_loadings, scores)
        if not search.lost():
            return VFedResult(
                model,
                tuple(search.trace),
                pairs.residuals[:k],
                pairs.shortfalls[:k],
                search.converged,
                search.why(),
                history=tuple(search.history),
            )


class _Search:
    """Rounds of products until the residuals are small, over the parties that are there."""

    def __init__(
        self,
        columns: Federation,
        starts: Replies,
        setup: VFedSetup,
        tolerance: float,
        keep_history: bool,
    ) -> None:
        self.columns, self.setup, self.tolerance = columns, setup, tolerance
        self.keep_history, self.history = keep_history, list[Doubles]()
        self.rounds, self.begun, self.trace = 1, 0, list[float]()
        self._begin(starts)
        self._propose()

    def _begin(self, starts: Replies) -> None:
        """From nothing but what these parties sent of their own."""
        self.starts = starts
        models = [start.vectors for start in starts]
        total = float(sum(start.total for start in starts))
        self.operator = JointOperator.start(models, total, starts[0].n_samples)
        self._look()

    def _look(self) -> None:
        self.pairs = self.operator.top(min(self.setup.n_components, len(self.operator.Q)))
        self.trace.append(self.pairs.residual)
        if self.keep_history:
            self.history.append(self.pairs.vectors)

    def _propose(self) -> None:
        """What to multiply next; where pairs are to be locked, the others anew."""
        more = self.operator.lockable(self.pairs, self.tolerance)
        if more:
            self.operator = self.operator.relieved(more, self.pairs)
        self.relieved = bool(more)
        self.block = self.operator.next_block(self.pairs, self.setup.seed)

    @property
    def converged(self) -> bool:
        """Whether all residuals are small, and none is known only beside what was just locked."""
        return not (self.relieved or len(self.pairs.unsettled(self.tolerance)))

    @property
    def exhausted(self) -> bool:
        """Whether products have been taken with all that there is."""
        return not self.block.shape[1]

    def lost(self) -> bool:
        """Whether a party has left; if so, the search begins anew without it."""
        here = self.columns.parties
        replies = list(zip(self.starts, self.starts.parties, strict=True))
        if here == self.starts.parties:
            return False
        self.begun, self.block = self.rounds, np.asarray(self.pairs.vectors)
        self.relieved = False
        remaining = [(start, name) for start, name in replies if name in here]
        self._begin(Replies(*(tuple(part) for part in zip(*remaining, strict=True))))
        return True

    def run(self, n_rounds: int) -> JointPairs:
        """Until converged, or out of rounds or of directions."""
        while not (self.converged or self.exhausted or self.rounds - self.begun >= n_rounds):
            self._multiply()
        return self.pairs

    def _multiply(self) -> None:
        self.rounds += 1
        n, width = self.block.shape
        # Zeros in the place of dropped directions: the traffic is known beforehand.
        padded = np.hstack([self.block, np.zeros((n, self.setup.n_components - width))])
        question = Directions(number=self.rounds, vectors=padded)
        replies = self.columns.ask(VectorHolder.multiply, question)
        stale = any(reply.number != self.rounds for reply in replies)
        if self.lost() or stale or replies.parties != self.starts.parties:
            return  # a reply is missing, or an older one stood in: the block is asked for again
        products = [reply.product[:, :width] for reply in replies]
        self.operator = self.operator.grown(self.block, products)
        self._look()
        self._propose()

    def why(self) -> str:
        """Why it stopped."""
        size = f"residuals are at most {self.pairs.residual:.1e} of their eigenvalues"
        if self.converged:
            return f"{size}, after {self.rounds} rounds"
        if self.exhausted:
            return f"no direction is left after {self.rounds} rounds; {size}"
        return f"{self.rounds} rounds were asked for; {size}"


def n_components_of(setup: Any, values: Doubles, total: float) -> int:
    """How many components the model gets: all that were sought, or fewer if these will do."""
    if not setup.at_most:
        return int(setup.n_components)
    return number_of(setup.share, values, total, SPECTRUM_ROUNDING)
