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

Rounding leaves errors of ε λ₁ in A Q, which an eigenvalue 10⁻¹² as large does not bear. So leading
pairs that have converged are *locked* where others are that small: Q starts anew beside them, and
of products nothing along them is believed, for there they are known to be zero. What is left of the
error is ε √(λ₁ λ), since it came from a product with a factor of A, and lies along the large ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.eigen import EPS, SPECTRUM_ROUNDING, left_singular

# A start inside an invariant subspace would never see what lies outside: a little noise does.
_NOISE = 1e-6
# Columns of a model: of one party as a multiple of the components, and of all together.
_OWN_WIDTH = 4
_JOINT_WIDTH = 200


# Share of the trace below which what is left of it is not known, where it is an average.
_TRACE_ACCURACY = 1e-11
# Residuals at which a pair is locked: its error enters all that come after it.
_LOCKED_ACCURACY = 1e-13
# A smaller share of an eigenvalue is not worth a new start.
_WORTH_LOCKING = 1e-10


@dataclass(frozen=True)
class JointPairs:
    """Top eigenpairs of Ã, each with a proven bound of ‖A u − λ u‖ as a share of its own λ.

    Of A without what is locked, where pairs are: these have bounds of their own.
    """

    values: Doubles  # (k,), descending, none above that of A
    vectors: Doubles  # (n, k), orthonormal
    next_value: float
    residuals: Doubles  # (k,)
    rounding: Doubles  # (k,), shares that no further product improves; part of the residuals
    directions: Doubles  # (n, at most k), Ritz vectors beside those that are locked

    @property
    def residual(self) -> float:
        """The largest of the bounds."""
        return float(self.residuals.max())

    def unsettled(self, tolerance: float) -> NDArray[np.intp]:
        """Places of the pairs whose bound is above the tolerance, and above rounding."""
        return np.flatnonzero(self.residuals > np.maximum(tolerance, 2 * self.rounding))

    @property
    def shortfalls(self) -> Doubles:
        """Shares of the eigenvalues that may be missing, as estimated from the residuals.

        The residual where it is large, else its square over the gap, as for any Ritz value.
        """
        following = np.append(self.values[1:], self.next_value)
        gaps = 1 - following / np.maximum(self.values, np.finfo(float).tiny)
        r = self.residuals
        off = np.where(r > gaps / 10, r, r**2 / np.maximum(gaps, np.finfo(float).tiny))
        return np.asarray(off / (1 + off))


@dataclass(frozen=True)
class LockedPairs:
    """Eigenpairs that have converged, and stay as they are."""

    values: Doubles  # (m,)
    vectors: Doubles  # (n, m)
    residuals: Doubles  # (m,)

    @classmethod
    def none(cls, n: int) -> LockedPairs:
        """Nothing is locked."""
        return cls(np.zeros(0), np.zeros((n, 0)), np.zeros(0))

    def and_first(self, m: int, pairs: JointPairs) -> LockedPairs:
        """With the first m pairs beside them."""
        end = len(self.values) + m
        return LockedPairs(pairs.values[:end], pairs.vectors[:, :end], pairs.residuals[:end])


@dataclass(frozen=True)
class JointOperator:
    """What is known of A: its trace, models, and its products with a basis."""

    starts: tuple[Doubles, ...]  # G_i as the parties sent them: G_i G_iᵀ ⪯ A_i
    models: tuple[Doubles, ...]  # G_i (n, r_i) with what was learnt since, outside the span of Q
    trace: float
    Q: Doubles  # (n, d), orthonormal
    AQ: Doubles
    locked: LockedPairs  # neither Q nor AQ has anything along these

    @classmethod
    def start(
        cls, models: Sequence[Doubles], trace: float, n: int, locked: LockedPairs | None = None
    ) -> JointOperator:
        """Nothing but models of the parties' matrices, or not even these."""
        nothing, locked = np.zeros((n, 0)), locked or LockedPairs.none(n)
        beside = tuple(_outside(G, locked.vectors) for G in models)
        return cls(tuple(models), beside, trace, nothing, nothing, locked)

    def grown(self, block: Doubles, products: Sequence[Doubles]) -> JointOperator:
        """With a further block Q' and A_i Q' of every party, or A Q' where there are no models."""
        total = _outside(np.sum(products, axis=0), self.locked.vectors)
        Q, AQ = np.hstack([self.Q, block]), np.hstack([self.AQ, total])
        around = np.hstack([self.locked.vectors, Q])
        learnt = [
            _learnt(G, block, product, around)
            for G, product in zip(self.models, products, strict=bool(self.models))
        ]
        return JointOperator(self.starts, tuple(learnt), self.trace, Q, AQ, self.locked)

    def top(self, k: int) -> JointPairs:
        """The top k eigenpairs: those that are locked, and of Ã beside them."""
        Q, locked = self.Q, self.locked
        values, U, unknown = self._ritz(k)
        count = k - len(locked.values)
        outside = np.linalg.norm(_outside(U[:, :count], Q), axis=0)
        rounding = self._rounding(values[:count])
        least = max(SPECTRUM_ROUNDING * self.trace, np.finfo(float).tiny)
        own = unknown * outside / np.maximum(values[:count], least)
        return JointPairs(
            values=np.append(locked.values, values[:count]),
            vectors=np.hstack([locked.vectors, U[:, :count]]),
            next_value=float(values[count]) if len(values) > count else 0.0,
            residuals=np.append(locked.residuals, own + rounding),
            rounding=np.append(locked.residuals, rounding),
            directions=U,
        )

    def _ritz(self, k: int) -> tuple[Doubles, Doubles, float]:
        """All eigenvalues of Ã beside those locked, k vectors, and a bound of ‖A − Ã‖."""
        Q, C, locked = self.Q, self._joint_model(k), self.locked
        B = _orthonormal(np.hstack([Q, self.AQ, C]), least=k)
        QB, CB = Q.T @ B, C.T @ B
        half = QB.T @ (self.AQ.T @ B)
        T = half + half.T - QB.T @ (Q.T @ self.AQ) @ QB + CB.T @ CB
        values, Y = scipy.linalg.eigh((T + T.T) / 2)
        U = _outside(B @ Y[:, ::-1][:, :k], locked.vectors)
        # A − Ã lives outside Q, and its norm is at most its trace.
        covered = float(np.vdot(Q, self.AQ)) + float(np.vdot(C, C)) + float(locked.values.sum())
        least = (_TRACE_ACCURACY if not self.models else float(np.sqrt(len(Q))) * EPS) * self.trace
        return np.maximum(values[::-1], 0.0), U, max(self.trace - covered, least)

    def _rounding(self, values: Doubles) -> Doubles:
        """Shares of eigenvalues that rounding may take: of the products, and of their factors."""
        largest = max(float(values[:1].sum()), float(self.locked.values[:1].sum()))
        least = np.maximum(values, max(SPECTRUM_ROUNDING * largest, np.finfo(float).tiny))
        shares = values[:1] / least
        roots = np.sqrt(largest / least)
        return self._rounded * np.asarray(np.maximum(shares, roots))

    @property
    def _rounded(self) -> float:
        """What rounding leaves of a product's length, as a share of it."""
        return 10 * EPS * float(np.sqrt(len(self.Q)))

    def _joint_model(self, k: int) -> Doubles:
        if not self.models:
            return np.zeros((len(self.Q), 0))
        G, width = np.hstack(self.models), max(_JOINT_WIDTH, 2 * k)
        return G if G.shape[1] <= width else _leading(G, width)

    def lockable(self, pairs: JointPairs, tolerance: float) -> int:
        """How many more pairs to lock: those beside which rounding hides the last one wanted."""
        m = len(self.locked.values)
        values, rounding = pairs.values[m:], pairs.rounding[m:]
        share = max(tolerance, _WORTH_LOCKING)
        last = max(float(pairs.values[-1]), SPECTRUM_ROUNDING * float(pairs.values[0]))
        large = values * self._rounded > share * last
        settled = pairs.residuals[m:] <= np.maximum(_LOCKED_ACCURACY, 2 * rounding)
        ready = large & settled
        return int(np.argmin(np.append(ready, False)))

    def relieved(self, m: int, pairs: JointPairs) -> JointOperator:
        """With m more pairs locked, and Q and models anew: these hold outside of Q alone."""
        locked = self.locked.and_first(m, pairs)
        return JointOperator.start(self.starts, self.trace, len(self.Q), locked)

    def next_block(self, pairs: JointPairs, seed: int) -> Doubles:
        """What to multiply next, (n, at most k), orthonormal; without columns if nothing is left.

        A first block gets a little noise: a start in an invariant subspace would not leave it.
        """
        first, U = not self.Q.shape[1], pairs.directions
        n = len(U)
        if first:
            U = U + _NOISE * np.random.default_rng(seed).standard_normal(U.shape) / np.sqrt(n)
        around = np.hstack([self.locked.vectors, self.Q])
        # Of Ritz vectors that were locked since, a first block has nothing but noise.
        return new_directions(U, around, floor=0.5 if first else n * EPS)


def _learnt(G: Doubles, block: Doubles, product: Doubles, Q: Doubles) -> Doubles:
    """A party's model with what A_i Q' adds: E Q' (Q'ᵀ E Q')^(-1/2), E = A_i − G Gᵀ, outside Q."""
    EQ = product - G @ (G.T @ block)
    inner = block.T @ EQ
    values, W = np.linalg.eigh((inner + inner.T) / 2)
    # Leaving out what is near rounding only makes the model weaker.
    large = values > 1e-10 * max(float(np.abs(block.T @ product).max()), np.finfo(float).tiny)
    added = EQ @ (W[:, large] / np.sqrt(values[large]))
    grown = _outside(np.hstack([G, added]), Q)
    width = max(_OWN_WIDTH * block.shape[1], G.shape[1])
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
