"""The steps of kernel PCA by consensus at one node: arrays in, arrays out.

A node has n rows, K = V Λ Vᵀ their centred Gram matrix, α (n, k) coefficients with w = φ(X)α, and
for each constraint that ties it to a node l (itself included) a penalty ρ_l and a multiplier
B_l = φ(X)ᵀη_l, (n, k). z is the consensus direction, as coefficients c on all rows that it knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from eigenmesh.errors import InputError, RankError
from eigenmesh.numerics.arrays import Doubles, Floats, Rows, as_rows, is_sparse
from eigenmesh.numerics.eigen import fix_signs, relative_gap, top_eigenpairs
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.records import record

CUTOFF = 1e-10  # directions below this share of λ₁ are rounding: an inverse would blow them up


@record
@dataclass(frozen=True)
class CentringOrigin:
    """A point Σ βφ(Y) of feature space, from which all nodes measure; none if Y has no rows.

    >>> Y = np.array([[0.0], [2.0]])
    >>> CentringOrigin(Kernel("linear"), Y, np.array([0.5, 0.5])).gram(np.array([[1.0], [4.0]]))
    array([[0., 0.],
           [0., 9.]])
    """

    kernel: Kernel
    points: Rows  # (q, d)
    weights: Doubles  # (q,)

    @classmethod
    def nearest_to_mean(cls, kernel: Kernel, points: Rows, mean: Doubles) -> Self:
        """The point of span φ(Y) that is nearest to the mean, from the mean of k(x, Y) (q,)."""
        values, vectors = np.linalg.eigh(np.asarray(kernel.matrix(points), dtype=np.float64))
        large = values > CUTOFF * values[-1]
        V = vectors[:, large]
        return cls(kernel, points, V @ (V.T @ mean / values[large]))

    @property
    def squared_norm(self) -> float:
        """‖origin‖²."""
        if not len(self.weights):
            return 0.0
        return float(self.weights @ self.kernel.matrix(self.points) @ self.weights)

    def heights(self, X: Rows) -> Doubles:
        """⟨φ(x), origin⟩ of every row."""
        if not len(self.weights):
            return np.zeros(X.shape[0])
        return np.asarray(self.kernel.matrix(X, self.points) @ self.weights, dtype=np.float64)

    def gram(self, X: Rows) -> Doubles:
        """Inner products of the rows as seen from the origin, exactly symmetric."""
        K = np.asarray(self.kernel.matrix(X), dtype=np.float64)
        half = self.heights(X) - self.squared_norm / 2
        return np.asarray(K - (half[:, None] + half))


@dataclass(frozen=True)
class NeighbourhoodSpectrum:
    """K = V Λ Vᵀ without the directions that are only rounding."""

    values: Doubles  # (r,), descending
    vectors: Doubles  # (n, r)

    @classmethod
    def of(cls, K: Doubles) -> Self:
        """Of a node's Gram matrix."""
        values, vectors = top_eigenpairs(K, len(K))
        large = values > max(CUTOFF * values[0], 0.0)
        return cls(values[large], vectors[:, large])

    def solve(self, right: Doubles) -> Doubles:
        """K⁺ times a vector or matrix."""
        return np.asarray(self.vectors @ ((self.vectors.T @ right).T / self.values).T)

    def start(self, k: int) -> Doubles:
        """Coefficients of the node's own k components, of unit norm; signs are fixed."""
        if k > len(self.values):
            raise RankError(
                f"{k} components were asked for, the rows of this node determine "
                f"{len(self.values)}; lower n_components or give the node more rows"
            )
        return np.asarray(fix_signs(self.vectors[:, :k]) / np.sqrt(self.values[:k]))

    def sufficient_penalty(self, n_constraints: int) -> float:
        """ρ of the paper's Assumption 2, which keeps the steps bounded.

        It does not make the augmented Lagrangian fall with every iteration, as the paper's
        Theorem 2 has it: measured, it rises at times.

        >>> round(NeighbourhoodSpectrum.of(np.diag([4.0, 1.0])).sufficient_penalty(2), 3)
        10.307
        """
        first, cubes = self.values[0], np.sum(self.values**3)
        root = np.sqrt(first**2 + 8 * n_constraints * cubes / first)
        return float((first + root) / n_constraints)

    def update(self, penalty: float, right: Doubles) -> Doubles:
        """α-step (12): (ρK − 2K²)⁺ times the right side, ρ being the sum of the penalties."""
        if penalty <= 2 * self.values[0]:
            raise InputError(
                f"the penalties of this node's constraints add up to {penalty:.3g}; more than "
                f"{2 * self.values[0]:.3g} is expected, or the iteration grows without bound: use "
                f"penalty='auto'"
            )
        factors = self.values * (penalty - 2 * self.values)
        return np.asarray(self.vectors @ ((self.vectors.T @ right).T / factors).T)


class Neighbourhood:
    """What a node can compute from the rows that it knows, its own and its neighbours'.

    `members` are these nodes in order; a direction is given by coefficients c (m, k) on all their
    rows, and `projected(c, l)` are its inner products with the rows of l.
    """

    def __init__(self, origin: CentringOrigin, rows: Mapping[int, Rows], own: int) -> None:
        self.origin = origin
        self.own = own
        self.members = tuple(sorted(rows))
        self.rows = stack_rows([rows[node] for node in self.members])
        ends = np.cumsum([0, *(rows[node].shape[0] for node in self.members)]).tolist()
        self.places = {n: slice(*ends[i : i + 2]) for i, n in enumerate(self.members)}
        self.gram = origin.gram(self.rows)
        self.spectra = {
            n: NeighbourhoodSpectrum.of(self.gram[p, p]) for n, p in self.places.items()
        }

    @property
    def spectrum(self) -> NeighbourhoodSpectrum:
        """Of the own rows."""
        return self.spectra[self.own]

    def local_start(self, k: int) -> Doubles:
        """The node's own components."""
        c = np.zeros((len(self.gram), k))
        c[self.places[self.own]] = self.spectrum.start(k)
        return c

    def pooled_start(self, k: int) -> tuple[Doubles, float]:
        """The components of all rows known here, and their gap (λ_k − λ_{k+1}) / λ_k."""
        values, vectors = top_eigenpairs(self.gram, min(k + 1, len(self.gram)))
        large = values > max(CUTOFF * values[0], 0.0)
        pooled = NeighbourhoodSpectrum(values[large], vectors[:, large])
        return pooled.start(k), relative_gap(values, k)

    def projected(self, c: Doubles, node: int) -> Doubles:
        """φ(X_l)ᵀz."""
        return np.asarray(self.gram[self.places[node]] @ c)

    def coefficients(self, projections: Doubles) -> Doubles:
        """α of the nearest direction in the span of the own rows, from φ(X)ᵀz."""
        return self.spectrum.solve(projections)

    def consensus(
        self,
        parts: Mapping[int, Doubles],
        penalties: Mapping[int, float],
        before: Doubles,
        corrections: int,
        unit_ball: bool = False,
    ) -> Doubles:
        """z-step: `parts` are K_l⁺B_l + ρ_l α_l of the nodes l that were heard.

        Without corrections it is (10, 11), where z stands for its projection P_l z in constraint
        l. The problem itself, min Σ ρ_l ‖w_l − P_l z‖²/2 − ⟨η_l, P_l z⟩ with orthonormal z, can be
        solved here too, since all its rows are known: each correction majorises ΣρP by Σρ and moves
        from the last z to the minimum. It costs no message. In the `unit_ball` a z that comes out
        shorter stays as short, as (11) has it; else it gets unit length.
        """
        right = np.zeros_like(before)
        for node, part in parts.items():
            right[self.places[node]] = part
        if unit_ball:
            return within_ball(right / sum(penalties.values()), self.gram)
        z = before
        for _ in range(corrections):
            z = orthonormal(right + self._rest(z, penalties), self.gram)
        return z if corrections else orthonormal(right, self.gram)

    def _rest(self, z: Doubles, penalties: Mapping[int, float]) -> Doubles:
        """Σ ρ_l (z − P_l z), as coefficients."""
        heights = self.gram @ z
        rest = sum(penalties.values()) * z
        for node, penalty in penalties.items():
            place = self.places[node]
            rest[place] -= penalty * self.spectra[node].solve(heights[place])
        return np.asarray(rest)

    def expansion(self, c: Doubles) -> tuple[Rows, Doubles, Doubles]:
        """Points, coefficients and offset of the scores ⟨φ(x) − origin, z⟩ of any x."""
        origin = self.origin
        sums = c.sum(axis=0)
        heights = origin.heights(self.rows) @ c - origin.squared_norm * sums
        if not len(origin.weights):
            return self.rows, c, heights
        points = stack_rows([self.rows, as_rows(origin.points, np.float64)])
        return points, np.vstack([c, -np.outer(origin.weights, sums)]), heights

    def heights_of(self, points: Rows, weights: Floats) -> Doubles:
        """⟨φ(x) − origin, Σ wφ(y)⟩ of every row known here, (m, k)."""
        kernel = self.origin.kernel
        there = kernel.matrix(self.rows, points) @ weights
        if not len(self.origin.weights):
            return np.asarray(there)
        return np.asarray(
            there - self.origin.weights @ kernel.matrix(self.origin.points, points) @ weights
        )


def stack_rows(parts: Sequence[Rows]) -> Rows:
    """Rows below each other, in float64: an inverse needs the digits; sparse if any part is."""
    if any(is_sparse(part) for part in parts):
        return sp.csr_array(sp.vstack([as_rows(sp.csr_array(p), np.float64) for p in parts]))
    return np.vstack([as_rows(part, np.float64) for part in parts])


def orthonormal(c: Doubles, G: Doubles) -> Doubles:
    """The polar factor: directions c made orthonormal while they move as little as possible.

    >>> orthonormal(np.array([[2.0], [0.0]]), np.eye(2)).ravel()
    array([1., 0.])
    """
    inner = c.T @ G @ c
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    if values[0] <= CUTOFF * max(values[-1], 0.0) or values[-1] <= 0:
        raise RankError(
            f"the consensus has lost a component (eigenvalues {values}); raise the penalty or "
            f"lower n_components"
        )
    return np.asarray(c @ (vectors / np.sqrt(values)) @ vectors.T)


def within_ball(c: Doubles, G: Doubles) -> Doubles:
    """The nearest directions c whose span holds no vector longer than 1, by (11).

    >>> within_ball(np.array([[2.0], [0.0]]), np.eye(2)).ravel()
    array([1., 0.])
    >>> within_ball(np.array([[0.5], [0.0]]), np.eye(2)).ravel()
    array([0.5, 0. ])
    """
    inner = c.T @ G @ c
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    shorter = 1 / np.sqrt(np.maximum(values, 1.0))
    return np.asarray(c @ (vectors * shorter) @ vectors.T)


def alignment(inner: Doubles) -> Doubles:
    """The rotation that brings directions nearest to others; `inner` (k, k) own against others'.

    >>> alignment(np.array([[-0.3]]))
    array([[-1.]])
    """
    U, _, Vt = np.linalg.svd(inner)
    return np.asarray(U @ Vt)


def cosines(inner: Doubles) -> Doubles:
    """Of the principal angles between directions and others, the largest first."""
    return np.asarray(np.minimum(np.linalg.svd(inner, compute_uv=False), 1.0))


class Penalties(NamedTuple):
    """From some iteration on: of the constraint that ties w to the node's own z, and of those to
    the neighbours'.
    """

    from_iteration: int
    own: float
    neighbours: float


# Section 6.1 raises the neighbours' "gradually"; after how many iterations is our reading.
PAPER_PENALTIES = (Penalties(0, 100, 10), Penalties(4, 100, 50), Penalties(8, 100, 100))


def penalties_at(schedule: Sequence[Penalties], iteration: int) -> tuple[float, float]:
    """Of the own constraint and of the neighbours'.

    >>> penalties_at(PAPER_PENALTIES, 0), penalties_at(PAPER_PENALTIES, 20)
    ((100, 10), (100, 100))
    """
    stage = [stage for stage in schedule if stage.from_iteration <= iteration][-1]
    return stage.own, stage.neighbours


def in_words(schedule: Sequence[Penalties]) -> str:
    """One word, as all nodes are told.

    >>> in_words(PAPER_PENALTIES)
    '0:100:10 4:100:50 8:100:100'
    >>> from_words(in_words(PAPER_PENALTIES)) == PAPER_PENALTIES
    True
    """
    return " ".join(f"{t}:{own:.17g}:{others:.17g}" for t, own, others in schedule)


def from_words(words: str) -> tuple[Penalties, ...]:
    """The schedule that `in_words` wrote."""
    stages = [word.split(":") for word in words.split()]
    return tuple(Penalties(int(t), float(own), float(others)) for t, own, others in stages)
