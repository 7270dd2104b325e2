"""A party of paper 002's methods: what it does on its own columns. See `vfed_paper`.

Cheung, Jiang, Yu and Lou, "Vertical Federated Principal Component Analysis and Its Kernel Extension
on Feature-wise Distributed Data": Algorithm 1 (the kernel matrix of the party's own columns), the
clients' half of Algorithms 2 and 3 (power iterations, from a random start or a warm one), eq. (14)
(the update of the columns), and a node's half of Algorithm 5 (the merge with its neighbours).

A party's matrix is X_i X_iᵀ / f_i or its kernel matrix. Readings: the text prints x_iᵀx_i, but the
vectors that are merged are over the samples; (6) is a Rayleigh quotient; more components come by
deflation. Eq. (14) makes the columns rank one, X_i ← (X_i m) mᵀ with m ∝ X_iᵀu.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np

from eigenmesh.methods.vfed.paper_maths import apart, merge_weights, merged, power_iterations
from eigenmesh.numerics.arrays import Doubles, Rows, dense
from eigenmesh.numerics.centring import centre_in_place
from eigenmesh.numerics.column_pieces import KernelShare, Loadings, share_to_tree
from eigenmesh.numerics.column_preparation import ColumnPreparation
from eigenmesh.numerics.eigen import EPS
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import upper
from eigenmesh.numerics.plausible import exceeds
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
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.column_scores import require_samples
from eigenmesh.stages.prepare import prepared_columns

_DRAWS = 2  # key of a party's own draws


class PowerSetup(Message, reveals=None):
    """What the parties agree on; `model` is the name under which they keep their shares."""

    kernel: str
    gamma: float | None
    degree: Annotated[float, no_more_than(100)]
    coef0: float
    center: bool
    standardize: bool
    fill_missing: float | None
    local_iterations: Annotated[int, Positive, no_more_than(100_000)]
    warm_start: bool
    weight_scaling: bool
    merge: str
    align_signs: bool
    model: str
    seed: int


class Introduction(Message, reveals="moments"):
    """How much a party holds, and the trace of its matrix."""

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere, OwnRows]
    n_columns: Annotated[int, Reveals("counts"), OwnColumns]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    total: Annotated[float, NonNegative, OwnSquares]


class LocalPair(Message, reveals="eigenvectors"):
    """The top eigenpair of a party's matrix, as far as its power iterations went."""

    vector: Annotated[Floats, Shape("n"), NonEmpty]
    value: float
    component: int  # counts the components: an older one's must not count for the next

    def contradiction(self, context: Context) -> str | None:
        """As of `Captured`."""
        return more_than_all(context, abs(self.value))


class JointVector(Message, reveals="eigenvectors"):
    """The merged vector; `is_final` says that it is a component, and the next one is wanted."""

    vector: Annotated[Floats, Shape("n"), NonEmpty]
    is_final: bool


class Captured(Message, reveals="moments"):
    """The variance of a party's own columns along the components."""

    captured: Annotated[Floats, Shape("k"), NonEmpty]

    def contradiction(self, context: Context) -> str | None:
        """Components capture no more than there is."""
        return more_than_all(context, float(np.sum(np.abs(self.captured))))


class KernelSummand(Message, reveals="distances"):
    """A party's own kernel matrix, upper triangle: how far apart the samples are in its columns."""

    upper: Annotated[Floats, Shape("pairs"), NonEmpty]


class KernelVectors(Message, reveals="eigenvectors"):
    """The eigenvectors of the sum of all parties' kernel matrices."""

    vectors: Annotated[Floats, Shape("n", "k"), NonEmpty]


class NodeVector(Message, reveals="eigenvectors", covers="joint"):
    """A node's merged vector after a round, for whoever keeps a history."""

    vector: Annotated[Floats, Shape("n"), NonEmpty]


class NodeVectors(Message, reveals="eigenvectors", covers="joint"):
    """A node's components, the variance of its own columns along them, and how its vector moved."""

    vectors: Annotated[Floats, Shape("n", "k"), NonEmpty]
    captured: Annotated[Floats, Shape("k"), Reveals("moments")]
    moved: Annotated[Floats, Shape("rounds"), Reveals("moments")]


def more_than_all(context: Context, captured: float) -> str | None:
    """Why so much variance cannot be the sender's; an indefinite kernel has no such bound."""
    most, kernel = context.facts.get(OwnSquares), getattr(context.setup, "kernel", "")
    if most is None or kernel == "sigmoid" or not exceeds(captured, most):
        return None
    return f"{captured:.6g} of a variance of {most:.6g} is captured"


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
        self.total, self.rounding = self._trace()
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
        ids = self.site.sample_ids_hash
        return Introduction(n_samples=int(n), n_columns=int(m), sample_ids=ids, total=self.total)

    # With a coordinator.

    @step
    def local_pair(self) -> LocalPair:
        """The first round: local power iterations."""
        return self._work()

    @step
    def next_pair(self, joint: JointVector) -> LocalPair:
        """Eq. (14), or deflation where a component has been found; then power iterations."""
        self._take(joint.vector, joint.is_final)
        return self._work()

    @step
    def finish(self, joint: JointVector) -> Captured:
        """The last component; the share stays in the site's store."""
        self._take(joint.vector, is_component=True)
        return Captured(captured=self._kept_share())

    # By the sum of all kernel matrices.

    @step
    def kernel_summand(self) -> KernelSummand:
        """The own kernel matrix."""
        return KernelSummand(upper=upper(self._kernel_matrix(self.columns)))

    @step
    def take_vectors(self, joint: KernelVectors) -> Captured:
        """The components; the share stays in the site's store."""
        self.components = np.asarray(joint.vectors, np.float64)
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
        u = merge([pairs[i] for i in sorted(pairs)], self.setup, self.pair["component"])
        self.moved = [*self.moved, apart(u, self.joint) if self.joint.size else 1.0]
        self._take(u, is_component=False)

    @step(reusable=False)
    def tell_joint(self) -> NodeVector:
        """What the last round has come to."""
        return NodeVector(vector=self.joint)

    @step
    def work_alone(self) -> None:
        """No merge at all."""
        self.joint = np.asarray(self._work().vector)

    @step
    def next_component(self) -> None:
        """Keep the vector as a component."""
        self._take(self.joint, is_component=True)

    @step
    def tell_vectors(self) -> NodeVectors:
        """To whoever runs the protocol; the share stays in the site's store."""
        moved = np.asarray(self.moved, np.float64)
        return NodeVectors(vectors=self.components, captured=self._kept_share(), moved=moved)

    # What they do.

    def _work(self) -> LocalPair:
        n = self.columns.shape[0]
        start = self.joint if self.setup.warm_start and self.joint.size else self._random(n)
        times = self.setup.local_iterations
        vector, value = power_iterations(self._matrix(), start, times, self.rounding)
        component = int(self.components.shape[1])
        self.pair = {"vector": vector, "value": value, "component": component}
        return LocalPair(**self.pair)

    def _random(self, n: int) -> Doubles:
        self.draws += 1
        generator = self.site.generator(self.setup.seed, _DRAWS, self.draws)
        return self._deflated(generator.standard_normal(n))

    def _take(self, u: Floats, is_component: bool) -> None:
        if is_component:
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

    def _trace(self) -> tuple[float, float]:
        """The trace of the matrix, and the largest eigenvalue that may be nothing but rounding."""
        X = self.columns
        if self.setup.kernel == "linear":
            total = float(np.einsum("ij,ij->", X, X))
            return total, len(X) * EPS * total / X.shape[1]
        K = np.asarray(self.kernel.matrix(X), np.float64)
        rounding = rounding_of(K)
        if self.setup.center:
            centre_in_place(K)
        return float(np.abs(np.trace(K))), rounding

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
        self.site.keep(agreed.model, share_to_tree(share), for_any=True)
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
        captured[np.abs(captured) <= rounding_of(K)] = 0.0
        return KernelShare(X, U, *form, offset, self.preparation), captured


def rounding_of(K: Doubles) -> float:
    """What centring leaves of equal kernel values, by which eigenvalues are off; no variance.

    It goes by the values and not by what they differ in: the trace of what is left may be 0 where
    other entries are not. Powers are off by some EPS each.
    """
    return float(10 * len(K) * EPS * np.abs(K).max())


def _prepared(
    site: SiteView, setup: PowerSetup
) -> tuple[ColumnPreparation | None, Doubles, Doubles]:
    """The columns, dense, as the power iterations see them, and the mean that was subtracted."""
    preparation, X = prepared_columns(site, setup)
    X = dense(X).astype(np.float64, copy=False)
    centre = setup.center and setup.kernel == "linear"
    mean = X.mean(axis=0) if centre else np.zeros(X.shape[1])
    return preparation, X - mean, mean


def merge(pairs: Sequence[LocalPair], setup: PowerSetup, component: int) -> Doubles:
    """Eq. (13), or (15); a stale pair, of a component before this one, does not count."""
    pairs = [pair for pair in pairs if pair.component == component] or list(pairs)
    values = np.array([pair.value for pair in pairs])
    weights = merge_weights(values, setup.merge == "average", setup.weight_scaling)
    return merged(np.array([pair.vector for pair in pairs]), weights, setup.align_signs)
