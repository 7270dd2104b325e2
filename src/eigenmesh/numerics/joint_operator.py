"""The top eigenpairs of A = Σ_i A_i, A_i = X_i X_iᵀ, from a few products and models of the rest.

Q is a basis for which A Q is known, P = QQᵀ; models G_i G_iᵀ ⪯ A_i, made of what each party sent,
stand for A where Q does not reach:

    Ã = A on the range and co-range of Q,  (I − P) Σ_i G_i G_iᵀ (I − P) beyond.

Then Ã ⪯ A, so no eigenvalue of Ã overstates one of A; and an eigenvector of Ã inside the span of Q
is one of A. So its top eigenvectors, as far as they are outside, are what to multiply next. A
party's own product A_i Q says more of A_i than its part in A Q: the model learns from it (it is a
Nyström approximation, grown like a pivoted Cholesky factor). Without models this is block Lanczos;
with them it takes half the rounds. A naive block Lanczos falls apart where the blocks exceed the
rank of A: here directions that are inside already are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.eigen import EPS, left_singular

# A start inside an invariant subspace would never see what lies outside: a little noise does.
_NOISE = 1e-6
# Columns of a model: of one party as a multiple of the components, and of all together.
_OWN_WIDTH = 4
_JOINT_WIDTH = 200


@dataclass(frozen=True)
class JointPairs:
    """Top eigenpairs of Ã; `residual` is a proven bound of ‖A u − λ u‖ / λ₁ for all of them."""

    values: Doubles  # (k,), descending, none above that of A
    vectors: Doubles  # (n, k), orthonormal
    next_value: float
    residual: float


@dataclass(frozen=True)
class JointOperator:
    """What is known of A: its trace, models, and its products with a basis."""

    models: tuple[Doubles, ...]  # G_i (n, r_i), outside the span of Q
    trace: float
    Q: Doubles  # (n, d), orthonormal
    AQ: Doubles

    @classmethod
    def start(cls, models: Sequence[Doubles], trace: float, n: int) -> JointOperator:
        """Nothing but models of the parties' matrices, or not even these."""
        nothing = np.zeros((n, 0))
        return cls(tuple(models), trace, nothing, nothing)

    def grown(self, block: Doubles, products: Sequence[Doubles]) -> JointOperator:
        """With a further block Q' and A_i Q' of every party, or A Q' where there are no models."""
        Q, AQ = np.hstack([self.Q, block]), np.hstack([self.AQ, np.sum(products, axis=0)])
        learnt = [
            _learnt(G, block, product, Q)
            for G, product in zip(self.models, products, strict=bool(self.models))
        ]
        return JointOperator(tuple(learnt), self.trace, Q, AQ)

    def top(self, k: int) -> JointPairs:
        """The top k eigenpairs of Ã."""
        Q, C = self.Q, self._joint_model()
        B = _orthonormal(np.hstack([Q, self.AQ, C]), least=k)
        QB, CB = Q.T @ B, C.T @ B
        half = QB.T @ (self.AQ.T @ B)
        T = half + half.T - QB.T @ (Q.T @ self.AQ) @ QB + CB.T @ CB
        values, Y = scipy.linalg.eigh((T + T.T) / 2)
        values = np.maximum(values[::-1], 0.0)
        U = B @ Y[:, ::-1][:, :k]
        after = float(values[k]) if len(values) > k else 0.0
        # A − Ã lives outside Q, and its norm is at most its trace.
        unknown = self.trace - float(np.vdot(Q, self.AQ)) - float(np.vdot(C, C))
        unknown = max(unknown, len(Q) * EPS * self.trace)
        outside = float(np.linalg.norm(_outside(U, Q), axis=0).max())
        residual = unknown * outside / max(float(values[0]), np.finfo(float).tiny)
        rounding = 10 * EPS * float(np.sqrt(len(Q)))
        return JointPairs(values[:k], U, after, float(residual) + rounding)

    def _joint_model(self) -> Doubles:
        if not self.models:
            return np.zeros((len(self.Q), 0))
        G = np.hstack(self.models)
        return G if G.shape[1] <= _JOINT_WIDTH else _leading(G, _JOINT_WIDTH)

    def next_block(self, pairs: JointPairs, seed: int) -> Doubles:
        """What to multiply next, (n, at most k), orthonormal; without columns if nothing is left.

        The first block gets a little noise: a start in an invariant subspace would not leave it.
        """
        U, k = pairs.vectors, pairs.vectors.shape[1]
        if not self.Q.shape[1]:
            n = len(U)
            noise = np.random.default_rng(seed).standard_normal((n, k)) / np.sqrt(n)
            return np.asarray(np.linalg.qr(U + _NOISE * noise)[0])
        return new_directions(U, self.Q, floor=len(U) * EPS)


def _learnt(G: Doubles, block: Doubles, product: Doubles, Q: Doubles) -> Doubles:
    """A party's model with what A_i Q' adds: E Q' (Q'ᵀ E Q')^(-1/2), E = A_i − G Gᵀ, outside Q."""
    EQ = product - G @ (G.T @ block)
    inner = block.T @ EQ
    values, W = np.linalg.eigh((inner + inner.T) / 2)
    # Leaving out what is near rounding only makes the model weaker.
    kept = values > 1e-10 * max(float(np.abs(block.T @ product).max()), np.finfo(float).tiny)
    added = EQ @ (W[:, kept] / np.sqrt(values[kept]))
    grown = _outside(np.hstack([G, added]), Q)
    width = _OWN_WIDTH * max(block.shape[1], G.shape[1] // _OWN_WIDTH, 1)
    return grown if grown.shape[1] <= width else _leading(grown, width)


def _leading(G: Doubles, width: int) -> Doubles:
    """The leading part of G Gᵀ, as a factor."""
    values, vectors = left_singular(G, width)
    return np.asarray(vectors * np.sqrt(values))


def new_directions(W: Doubles, Q: Doubles, floor: float) -> Doubles:
    """An orthonormal basis of what W has outside the span of Q, above `floor`.

    >>> abs(new_directions(np.array([[1.0], [2.0], [0.0]]), np.array([[1.0], [0.0], [0.0]]), 1e-9))
    array([[0.],
           [1.],
           [0.]])
    """
    U, sizes, _ = scipy.linalg.svd(_outside(W, Q), full_matrices=False)
    U = U[:, sizes > floor][:, : max(len(Q) - Q.shape[1], 0)]
    # What was small beside W is now of unit length, and so is what it kept of Q.
    return _orthonormal(_outside(U, Q)) if U.shape[1] else U


def _outside(W: Doubles, Q: Doubles) -> Doubles:
    R = W - Q @ (Q.T @ W)
    R -= Q @ (Q.T @ R)
    return np.asarray(R)


def _orthonormal(A: Doubles, least: int = 0) -> Doubles:
    """Orthonormal columns, `least` or more, whose span holds A's; more than its rank do no harm."""
    n = len(A)
    if A.shape[1] < least:
        A = np.hstack([A, np.eye(n, least)])
    return np.asarray(np.linalg.qr(A)[0])
