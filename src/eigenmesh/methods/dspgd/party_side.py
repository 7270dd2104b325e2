"""Whoever holds rows in DSPGD: what travels, and the party's side.

The coordinator's side, with who learns what, is in `protocol.py`; the letters are those of
`methods.dspgd.maths`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import MessageRefused
from eigenmesh.methods.dspgd.features import LAWS, feature_width, fresh_features
from eigenmesh.methods.dspgd.maths import (
    SpectralFeatures,
    advance,
    sketch_draw,
    step_size,
)
from eigenmesh.numerics.arrays import Doubles, Rows, blocks
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import full, upper
from eigenmesh.numerics.plausible import TOLERANCE, is_gram
from eigenmesh.runtime.message import (
    Context,
    Floats,
    Integers,
    Message,
    OwnRows,
    Positive,
    Reveals,
    Shape,
    no_more_than,
)
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_messages import (
    NOT_A_GRAM,
    RowCount,
    count,
)

# Random directions of a sketch beside B: floats are better spent on columns of B. At first there is
# no B, and what is overlooked then comes back slowly: that sketch is wider.
EXTRA_DRAWS = 2
FIRST_SKETCH = 3


class DSPGDSetup(Message, reveals=None):
    """Kernel, features, steps and seed, the same for all; `scores` is where a site keeps H[m]."""

    kernel: str
    gamma: float | None
    degree: Annotated[float, no_more_than(100)]
    coef0: float
    n_features: Annotated[int, Positive, no_more_than(100_000)]
    sketch_width: Annotated[int, Positive, no_more_than(100_000)]
    step_rule: str
    seed: int
    scores: str
    law: str = LAWS[0]


class Updates(Message, reveals="eigenvectors"):
    """The X's of iterations `first`, `first` + 1, …, row by row; `ranks` before and after each."""

    first: Annotated[int, Positive]
    ranks: Annotated[Integers, Shape("m")]
    coefficients: Annotated[Floats, Shape("c")]


class Ending(Updates, reveals="eigenvectors"):
    """The last X's, and what takes B to H."""

    rotation: Annotated[Floats, Shape("r", "s")]


class Direction(Message, reveals="eigenvectors"):
    """A vector to multiply."""

    vector: Annotated[Floats, Shape("w")]


class Present(Message, reveals="counts"):
    """A party is there, with so many rows."""

    n_rows: Annotated[int, Positive, OwnRows]


class Product(Present, reveals="gram"):
    """WᵀW times a vector."""

    n_rows: Annotated[int, Reveals("counts"), Positive, OwnRows]
    vector: Annotated[Floats, Shape("w")]

    def contradiction(self, context: Context) -> str | None:
        """WᵀW is positive."""
        v = getattr(context.request, "vector", None)
        if v is None or v.shape != self.vector.shape:
            return None
        longest = float(np.linalg.norm(v) * np.linalg.norm(self.vector))
        if not np.isfinite(longest):
            return "its square is not finite"
        return "a square is negative" if v @ self.vector < -TOLERANCE * longest else None


class GramTriangle(Present, reveals="gram"):
    """[A B]ᵀ[A B], or BᵀB, by the upper triangle."""

    n_rows: Annotated[int, Reveals("counts"), Positive, OwnRows]
    upper: Annotated[Floats, Shape("w*(w+1)//2")]

    def contradiction(self, context: Context) -> str | None:
        """A sum of squares is positive."""
        return None if is_gram(full(self.upper)) else NOT_A_GRAM


class GramSketch(Present, reveals="gram"):
    """AᵀAΩ and AᵀB, and BᵀB by its upper triangle."""

    n_rows: Annotated[int, Reveals("counts"), Positive, OwnRows]
    drawn: Annotated[Floats, Shape("D", "p")]
    cross: Annotated[Floats, Shape("D", "r")]
    basis: Annotated[Floats, Shape("r*(r+1)//2")]

    def contradiction(self, context: Context) -> str | None:
        """A sum of squares is positive."""
        return None if is_gram(full(self.basis)) else NOT_A_GRAM


# The party's side.


class FeatureHolder(Party):
    """Holds rows, and their share of the iterate."""

    Setup = DSPGDSetup
    state = ("t", "B")

    def __init__(self, site: SiteView, setup: DSPGDSetup) -> None:
        super().__init__(site, setup)
        self.features = Features.of(setup, site.data.shape[1])
        self.t = 0  # iterations that B has seen
        self.B = np.zeros((site.data.shape[0], 0))
        self._current: dict[int, Doubles] = {}  # A of the iteration under way; can be made again

    @step
    def count_rows(self) -> RowCount:
        """Rows and columns."""
        return count(self.site)

    @step
    def gram(self, updates: Updates) -> GramTriangle:
        """All of [A B]ᵀ[A B]."""
        self._catch_up(updates)
        total: Any = 0.0
        for A, B in self._blocks():
            AB = np.hstack([A, B])
            total = total + AB.T @ AB
        return GramTriangle(n_rows=len(self.B), upper=upper(total))

    @step
    def sketch(self, updates: Updates) -> GramSketch:
        """What Nyström's approximation needs of it."""
        self._catch_up(updates)
        omega = self.features.omega(self.t + 1, self.B.shape[1])
        drawn: Any = 0.0
        cross: Any = 0.0
        for A, B in self._blocks():
            drawn, cross = drawn + A.T @ (A @ omega), cross + A.T @ B
        basis = upper(self.B.T @ self.B)
        return GramSketch(n_rows=len(self.B), drawn=drawn, cross=cross, basis=basis)

    @step
    def advance(self, updates: Updates) -> Present:
        """Get ready for products with W."""
        self._catch_up(updates)
        self._current.clear()
        return Present(n_rows=len(self.B))

    @step
    def multiply(self, direction: Direction) -> Product:
        """WᵀW c."""
        t, c = self.t + 1, np.asarray(direction.vector, dtype=np.float64)
        if t not in self._current:
            self._current[t] = self.features.of_rows(self.site.data, t)
        A, eta = self._current[t], step_size(self.setup.step_rule, t)
        if len(c) != A.shape[1] + self.B.shape[1]:
            raise MessageRefused(f"a direction has {len(c)} entries; W has other columns")
        u = advance(A, self.B, c[:, None], eta)
        product = np.concatenate([np.sqrt(eta) * (A.T @ u), np.sqrt(1 - eta) * (self.B.T @ u)])
        return Product(n_rows=len(self.B), vector=product.ravel())

    @step
    def basis_gram(self, updates: Updates) -> GramTriangle:
        """BᵀB after the last iteration."""
        self._catch_up(updates)
        self._current.clear()
        return GramTriangle(n_rows=len(self.B), upper=upper(self.B.T @ self.B))

    @step
    def keep_scores(self, ending: Ending) -> Present:
        """Keep H at the site."""
        self._catch_up(ending)
        if ending.rotation.shape[0] != self.B.shape[1]:
            raise MessageRefused("a rotation does not fit the iterate")
        self.site.keep(self.setup.scores, {"points": self.B @ ending.rotation})
        return Present(n_rows=len(self.B))

    def _catch_up(self, updates: Updates) -> None:
        """B ← W X for every X that B has not seen."""
        for t, X in unpack(updates, self.features.width):
            if t > self.t + 1:
                raise MessageRefused(f"update {t} came to a party that has seen {self.t}")
            if t == self.t + 1:
                if len(X) != self.features.width + self.B.shape[1]:
                    raise MessageRefused(f"update {t} does not fit the iterate")
                self.B = self._moved(t, X)
                self.t = t

    def _moved(self, t: int, X: Doubles) -> Doubles:
        eta = step_size(self.setup.step_rule, t)
        moved = np.empty((len(self.B), X.shape[1]))
        for rows in blocks(len(self.B)):
            A = self.features.of_rows(self.site.data[rows], t)
            moved[rows] = advance(A, self.B[rows], X, eta)
        return moved

    def _blocks(self) -> Iterator[tuple[Doubles, Doubles]]:
        for rows in blocks(len(self.B)):
            yield self.features.of_rows(self.site.data[rows], self.t + 1), self.B[rows]


@dataclass(frozen=True)
class Features:
    """The shared random features of every iteration, from the setup."""

    kernel: Kernel
    n_columns: int
    width: int  # D
    sketch_width: int
    seed: int
    step_rule: str
    law: str

    @classmethod
    def of(cls, setup: DSPGDSetup, n_columns: int) -> Features:
        """The features that the parties agreed on."""
        kernel = Kernel(setup.kernel, setup.gamma, setup.degree, setup.coef0)
        width = feature_width(setup.kernel, n_columns, setup.n_features, setup.law)
        drawn = (setup.sketch_width, setup.seed, setup.step_rule, setup.law)
        return cls(kernel, n_columns, width, *drawn)

    def of_rows(self, rows: Rows, t: int) -> Doubles:
        """A_t of some rows."""
        drawn = (self.kernel, self.n_columns, self.width, self.seed, t, self.law)
        return fresh_features(*drawn)(rows)

    def omega(self, t: int, rank: int) -> Doubles:
        """Ω of iteration t: B fills as much of the sketch as it can."""
        return sketch_draw(self.width, self.n_drawn(t, rank), self.seed, t)

    def model(self, steps: Sequence[Doubles], rotation: Doubles) -> SpectralFeatures:
        """The map of a row, from all X's and what takes the last B to H."""
        shape = (self.kernel, self.n_columns, self.width, self.seed)
        return SpectralFeatures(*shape, self.step_rule, tuple(steps), rotation, self.law)

    def n_drawn(self, t: int, rank: int) -> int:
        """Columns of Ω in iteration t, beside `rank` columns of B."""
        if not rank or step_size(self.step_rule, t) == 1:  # B has no part in W
            return min(self.width, FIRST_SKETCH * self.sketch_width)
        return min(self.width, max(self.sketch_width - rank, EXTRA_DRAWS))


def pack(first: int, ranks: Sequence[int], steps: Sequence[Doubles]) -> dict[str, Any]:
    """The fields of Updates."""
    flat = np.concatenate([X.ravel() for X in steps]) if steps else np.zeros(0)
    return {"first": first, "ranks": np.asarray(ranks, dtype=np.int64), "coefficients": flat}


def unpack(updates: Updates, width: int) -> Iterator[tuple[int, Doubles]]:
    """Iterations and their X's; refuses what does not fit together."""
    shapes = [
        (width + int(a), int(b)) for a, b in zip(updates.ranks, updates.ranks[1:], strict=False)
    ]
    sizes = [rows * columns for rows, columns in shapes]
    if min(updates.ranks, default=-1) < 0 or sum(sizes) != len(updates.coefficients):
        raise MessageRefused("updates hold another number of coefficients than their ranks say")
    start = 0
    for t, (shape, size) in enumerate(zip(shapes, sizes, strict=True), start=updates.first):
        X = np.asarray(updates.coefficients[start : start + size], dtype=np.float64)
        yield t, X.reshape(shape)
        start += size
