"""Vertical federated PCA and kernel PCA as their paper has them. Not recommended: see `vfed_pca`.

Cheung, Jiang, Yu and Lou, "Vertical Federated Principal Component Analysis and Its Kernel Extension
on Feature-wise Distributed Data": Algorithms 1 to 5.

===================  ========================================================================
party keeps          its columns X_i (n, f_i); its share: columns or loadings, and the vectors
party reveals        the top eigenpair (α_i, a_i) of its own matrix, every round, to the
                     coordinator or to its neighbours; how many samples and columns, a digest of
                     the sample ids; in the end the variance that the joint vectors capture
coordinator learns   these; a party learns the merged vectors
===================  ========================================================================

A party's matrix is X_i X_iᵀ / f_i or the kernel matrix of its own columns. Local power iterations
(Alg. 2; warm-started, Alg. 3) give a_i; the merge is Σ ω_i a_i, ω_i = α_i/Σα (Alg. 4 scales the
weights); then each party replaces its columns by eq. (14). Alg. 5 merges with the neighbours only.

Readings: signs are aligned before merging and the merged vector has unit length; (6) is a Rayleigh
quotient; |α| counts where a kernel is indefinite; more components by deflation. What follows from
the text: eq. (14) makes the columns rank one, X_i ← (X_i m) mᵀ with m ∝ X_iᵀu, so nothing moves
after the second round; and neighbours that merge once a round do not come to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import InputError, PartitionError
from eigenmesh.federation.federation import Federation
from eigenmesh.federation.ledger import Entry, forecast_entry, forecast_message
from eigenmesh.federation.message import (
    Floats,
    Message,
    NonEmpty,
    NonNegative,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
)
from eigenmesh.federation.party import Party, step
from eigenmesh.federation.protocol import protocol
from eigenmesh.federation.records import record
from eigenmesh.federation.results import Replies
from eigenmesh.federation.site import SiteView
from eigenmesh.numerics.arrays import Doubles, Rows, is_sparse
from eigenmesh.numerics.centring import centre_in_place
from eigenmesh.numerics.columns import KernelShare, Loadings, share_to_tree
from eigenmesh.numerics.fusion import Components, SumFusion
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.power_merge import apart, merge_weights, merged, power_iterations
from eigenmesh.numerics.preparation import Preparation
from eigenmesh.protocols.column_model import ColumnModel, ask_everyone, require_samples

MERGES = ("weighted", "average", "isolated")


class PowerSetup(Message, reveals=None):
    """What the parties agree on; `model` is the name under which they keep their shares."""

    kernel: str
    gamma: float | None
    degree: float
    coef0: float
    center: bool
    standardize: bool
    fill_missing: float | None
    local_iterations: Annotated[int, Positive]
    warm_start: bool
    weight_scaling: bool
    merge: str
    align_signs: bool
    model: str
    seed: int


class Introduction(Message, reveals="moments"):
    """How much a party holds, and the trace of its matrix."""

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere]
    n_columns: Annotated[int, Reveals("counts")]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    total: Annotated[float, NonNegative]


class LocalPair(Message, reveals="eigenvectors"):
    """The top eigenpair of a party's matrix, as far as its power iterations went."""

    vector: Annotated[Floats, Shape("n"), NonEmpty]
    value: float


class JointVector(Message, reveals="eigenvectors"):
    """The merged vector; `found` says that it is a component, and the next one is wanted."""

    vector: Annotated[Floats, Shape("n"), NonEmpty]
    found: bool


class Captured(Message, reveals="moments"):
    """The variance of a party's own columns along the components."""

    captured: Annotated[Floats, Shape("k"), NonEmpty]


class NodeVectors(Message, reveals="eigenvectors"):
    """A node's components, the variance of its own columns along them, and how its vector moved."""

    vectors: Annotated[Floats, Shape("n", "k"), NonEmpty]
    captured: Annotated[Floats, Shape("k"), Reveals("moments")]
    moved: Annotated[Floats, Shape("rounds"), Reveals("moments")]


class PowerHolder(Party):
    """Holds some columns of all samples. `direction` is the m of eq. (14), once there is one."""

    Setup = PowerSetup
    state = ("direction", "components", "joint", "pair", "moved", "draws")

    def __init__(self, site: SiteView, setup: PowerSetup) -> None:
        super().__init__(site, setup)
        require_samples(site, kernel_matrix=setup.kernel != "linear")
        self.kernel = Kernel(setup.kernel, setup.gamma, setup.degree, setup.coef0)
        self.preparation, self.columns, self.mean = _prepared(site, setup)
        n = self.columns.shape[0]
        self.direction = np.zeros(0)
        self.components = np.zeros((n, 0))
        self.joint = np.zeros(0)
        self.pair: dict[str, Any] = {}
        self.moved: list[float] = []
        self.draws = 0

    @step
    def introduce(self) -> Introduction:
        """Who is there, with what."""
        n, m = self.site.data.shape
        ids, total = self.site.sample_ids_hash, float(self._trace())
        return Introduction(n_samples=int(n), n_columns=int(m), sample_ids=ids, total=total)

    # With a coordinator.

    @step
    def local_pair(self) -> LocalPair:
        """The first round: local power iterations."""
        return self._work()

    @step
    def next_pair(self, joint: JointVector) -> LocalPair:
        """Eq. (14), or deflation where a component has been found; then power iterations."""
        self._take(joint.vector, joint.found)
        return self._work()

    @step
    def finish(self, joint: JointVector) -> Captured:
        """The last component; the share stays in the site's store."""
        self._take(joint.vector, found=True)
        return Captured(captured=self._kept_share())

    # On a graph, or alone.

    @step
    def offer_pair(self) -> LocalPair:
        """Local power iterations; the pair, to every neighbour."""
        return self._work()

    @step
    def merge_pairs(self, received: dict[int, LocalPair]) -> None:
        """Alg. 5: merge with the neighbours, update the columns."""
        pairs = {**received, self.site.index: LocalPair(**self.pair)}
        u = merge([pairs[i] for i in sorted(pairs)], self.setup)
        self.moved = [*self.moved, apart(u, self.joint) if self.joint.size else 1.0]
        self._take(u, found=False)

    @step
    def work_alone(self) -> None:
        """No merge at all."""
        self.joint = np.asarray(self._work().vector)

    @step
    def next_component(self) -> None:
        """Keep the vector as a component."""
        self._take(self.joint, found=True)

    @step
    def tell_vectors(self) -> NodeVectors:
        """To whoever runs the protocol; the share stays in the site's store."""
        moved = np.asarray(self.moved, np.float64)
        return NodeVectors(vectors=self.components, captured=self._kept_share(), moved=moved)

    # What they do.

    def _work(self) -> LocalPair:
        n = self.columns.shape[0]
        start = self.joint if self.setup.warm_start and self.joint.size else self._random(n)
        vector, value = power_iterations(self._matrix(), start, self.setup.local_iterations)
        self.pair = {"vector": vector, "value": value}
        return LocalPair(vector=vector, value=value)

    def _random(self, n: int) -> Doubles:
        self.draws += 1
        generator = self.site.generator(self.setup.seed, vfed_paper.number, self.draws)
        return self._deflated(generator.standard_normal(n))

    def _take(self, u: Floats, found: bool) -> None:
        if found:
            self.components = np.column_stack([self.components, u])
            self.direction, self.joint = np.zeros(0), np.zeros(0)
            return
        M = self._current().T @ self._deflated(np.asarray(u, np.float64))
        size = float(np.linalg.norm(M))
        if not self.direction.size and size:  # later M is a multiple of the first: X_i stays
            self.direction = np.asarray(M / size)
        self.joint = np.asarray(u, np.float64)

    def _current(self) -> Rows:
        """X_i after eq. (14): (X_i m) mᵀ, told by a column with the same products and distances."""
        X, m = self.columns, self.direction
        if not m.size:
            return X
        length = np.abs(m).sum() if self.kernel.of == "manhattan" else 1.0
        return (X @ m)[:, None] * length

    def _deflated(self, v: Doubles) -> Doubles:
        return np.asarray(v - self.components @ (self.components.T @ v))

    def _matrix(self) -> Callable[[Doubles], Doubles]:
        """The matrix of the power iterations, deflated, as a function."""
        X = self._current()
        if self.setup.kernel == "linear":
            f = self.columns.shape[1]
            return lambda v: self._deflated(X @ (X.T @ self._deflated(v))) / f
        K = self._kernel_matrix(X)
        return lambda v: self._deflated(K @ self._deflated(v))

    def _kernel_matrix(self, X: Rows) -> Doubles:
        K = np.asarray(self.kernel.matrix(X), np.float64)
        if self.setup.center:
            centre_in_place(K)
        return K

    def _trace(self) -> float:
        if self.setup.kernel == "linear":
            return float(np.einsum("ij,ij->", self.columns, self.columns))
        return float(np.abs(np.trace(self._kernel_matrix(self.columns))))

    def _kept_share(self) -> Doubles:
        """Keep the share; returns the variance of the own columns along the components."""
        U, X, agreed = self.components, self.columns, self.setup
        share: Loadings | KernelShare
        if agreed.kernel == "linear":
            Z = np.asarray(X.T @ U)  # Vᵀ X of eq. (10), transposed
            share = Loadings(self.mean, Z, False, self.preparation)
            captured = np.asarray(np.einsum("ij,ij->j", Z, Z))
        else:
            share, captured = self._kernel_share(U, X)
        self.site.keep(agreed.model, share_to_tree(share))
        return captured

    def _kernel_share(self, U: Doubles, X: Rows) -> tuple[KernelShare, Doubles]:
        agreed = self.setup
        K = np.asarray(self.kernel.matrix(X), np.float64)
        offset = None
        if agreed.center:
            # Sums over the samples vanish for centred vectors: the column means are all it takes.
            U = U - U.mean(axis=0)
            offset = K.mean(axis=0) @ U
        form = (agreed.gamma, agreed.kernel, agreed.degree, agreed.coef0)
        captured = np.einsum("ij,ij->j", U, K @ U)
        return KernelShare(X, U, *form, offset, self.preparation), captured


def _prepared(site: SiteView, setup: PowerSetup) -> tuple[Preparation | None, Doubles, Doubles]:
    """The columns, dense, as the power iterations see them, and the mean that was subtracted."""
    try:
        preparation = None
        if setup.standardize or setup.fill_missing is not None:
            preparation = Preparation.of(site.data, setup.standardize, setup.fill_missing)
        X = site.data if preparation is None else preparation.apply(site.data)
    except InputError as error:
        raise PartitionError(f"party {site.name!r}: {error.reason}", party=site.name) from None
    X = np.asarray(X.toarray() if is_sparse(X) else X, dtype=np.float64)
    centre = setup.center and setup.kernel == "linear"
    mean = X.mean(axis=0) if centre else np.zeros(X.shape[1])
    return preparation, X - mean, mean


def merge(pairs: Sequence[LocalPair], setup: PowerSetup) -> Doubles:
    """Eq. (13), or (15)."""
    values = np.array([pair.value for pair in pairs])
    weights = merge_weights(values, setup.merge == "average", setup.weight_scaling)
    return merged(np.array([pair.vector for pair in pairs]), weights, setup.align_signs)


@record
@dataclass(frozen=True)
class PaperResult:
    """The model, the merged vector of every round, how far it moved, and every node's vectors."""

    model: ColumnModel
    history: Doubles  # (rounds, n), of the first component, where there is a coordinator
    convergence: tuple[float, ...]
    node_vectors: Doubles | None  # (nodes, n, k), where there is none
    stop_reason: str
    converged: bool = False


@protocol("vfed-paper", roles=(PowerHolder,))
def vfed_paper(columns: Federation, setup: PowerSetup, k: int, n_rounds: int) -> PaperResult:
    """Algorithms 2 to 4 with a coordinator, Algorithm 5 on a graph; k times, by deflation."""
    columns.enlist(PowerHolder, setup)
    known = ask_everyone(columns, PowerHolder.introduce)
    if setup.merge == "isolated":
        return _alone(columns, known, setup, k)
    if columns.graph is not None:
        return _among_neighbours(columns, known, setup, k, n_rounds)
    history: list[Doubles] = []
    pairs = columns.ask(PowerHolder.local_pair)
    for t in range(1, k * n_rounds):
        history.append(merge(list(pairs), setup))
        message = JointVector(vector=history[-1], found=t % n_rounds == 0)
        pairs = columns.ask(PowerHolder.next_pair, message)
    history.append(merge(list(pairs), setup))
    last = JointVector(vector=history[-1], found=True)
    ends = ask_everyone(columns, PowerHolder.finish, last)
    vectors = np.column_stack(history[n_rounds - 1 :: n_rounds])
    first = history[:n_rounds]
    moved = [apart(u, v) for u, v in zip(first[1:], first, strict=False)]
    model = _model(known, ends, vectors, setup)
    reason = f"{n_rounds} rounds were asked for"
    return PaperResult(model, np.array(first), (1.0, *moved), None, reason)


def _among_neighbours(
    columns: Federation, known: Replies, setup: PowerSetup, k: int, n_rounds: int
) -> PaperResult:
    for _ in range(k):
        columns.exchange(PowerHolder.offer_pair, PowerHolder.merge_pairs, times=n_rounds)
        columns.ask(PowerHolder.next_component)
    ends = columns.ask(PowerHolder.tell_vectors)
    moved = tuple(float(step) for step in ends[0].moved[:n_rounds])
    reason = f"{n_rounds} rounds were asked for"
    return _of_nodes(known, ends, setup, moved, reason)


def _alone(columns: Federation, known: Replies, setup: PowerSetup, k: int) -> PaperResult:
    for _ in range(k):
        columns.ask(PowerHolder.work_alone)
        columns.ask(PowerHolder.next_component)
    ends = columns.ask(PowerHolder.tell_vectors)
    return _of_nodes(known, ends, setup, (), "every party has worked on its own")


def _of_nodes(
    known: Replies, ends: Replies, setup: PowerSetup, moved: tuple[float, ...], reason: str
) -> PaperResult:
    """The first node's vectors stand for the model; all of them are told."""
    model = _model(known, ends, ends[0].vectors, setup)
    vectors = np.array([end.vectors for end in ends])
    return PaperResult(model, np.zeros((0, 0)), moved, vectors, reason)


def _model(known: Replies, ends: Replies, found: Doubles, setup: PowerSetup) -> ColumnModel:
    """The vectors in order of the variance that they capture at all parties."""
    about: Mapping[str, Any] = dict(zip(known.parties, known, strict=True))
    captured = np.sum([end.captured for end in ends], axis=0)
    order = np.argsort(-np.abs(captured), kind="stable")
    k, p = len(order), len(ends)
    by_size = setup.kernel == "sigmoid"
    vectors = found[:, order]
    components = Components.first(captured[order], vectors, k, "the columns", by_size)
    # The parties project on their vectors as they found them: order and sign are the centre's.
    signs = np.sign(np.einsum("ij,ij->j", components.eigenvectors, vectors))
    mixing = np.zeros((k, k))
    mixing[order, np.arange(k)] = signs / np.sqrt(np.abs(components.eigenvalues))
    total = float(sum(about[name].total for name in ends.parties))
    return ColumnModel(
        SumFusion(components, (mixing,) * p, total, total),
        name=setup.model,
        parties=ends.parties,
        widths=tuple(about[name].n_columns for name in ends.parties),
        sent=(k,) * p,
        n_samples=known[0].n_samples,
    )


def forecast(
    names: Sequence[str], shapes: Sequence[tuple[int, int]], k: int, n_rounds: int
) -> list[Entry]:
    """The ledger's entries with a coordinator: k vectors up and down a round, and the end."""
    entries = []
    for name, (n, _) in zip(names, shapes, strict=True):
        entries.append(forecast_entry(PowerHolder.introduce, name, 0))
        entries.append(forecast_entry(PowerHolder.local_pair, name, n))
        for _ in range(k * n_rounds - 1):
            entries.append(forecast_message(PowerHolder.next_pair, name, n))
            entries.append(forecast_entry(PowerHolder.next_pair, name, n))
        entries.append(forecast_message(PowerHolder.finish, name, n))
        entries.append(forecast_entry(PowerHolder.finish, name, k))
    return entries
