"""Ridge regression on components of embedded rows, from sums: the baseline of disKPCA's paper.

Balcan, Liang, Song, Woodruff and Xie, "Communication Efficient Distributed Kernel Principal
Component Analysis", KDD 2016, section 6: what regression on disKPCA's components is compared with.

===================  ============================================================================
party keeps          its rows A_i (n_i, d) and their targets y_i (n_i, m)
party reveals        what it reveals in Sketching-PCA, and sums over its rows (moments): of its
                     targets, and E_iᵀy_i with its embedded rows E_i
coordinator learns   these; the targets' mean goes to all parties
===================  ============================================================================

Letters: E embedded rows (n, t), W (t, k) their components. Scores are EW less an offset, so that
their normal equations follow from EᵀE and Eᵀy: no component needs to go down.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np

from eigenmesh.methods.diskpca.sketching import embedded_sums, of_width
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.embeddings import is_exact
from eigenmesh.numerics.feature_model import FeatureModel
from eigenmesh.numerics.landmark_sums import full
from eigenmesh.numerics.ridge import RidgeSums, ridge
from eigenmesh.regression.component_ridge import RidgeResult, TargetMean, targets_of
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Reveals, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Node, Scope, ask, enlist, sequence, total
from eigenmesh.stages.row_messages import (
    GramSums,
    KernelSetup,
    RowCount,
    by_party,
    count,
    kernel_of,
)


class EmbeddedRidgeSetup(KernelSetup, reveals=None):
    """Under which key of its own store a site keeps its rows' targets."""

    targets: str


class EmbeddedEquations(GramSums, reveals="gram"):
    """And Eᵀ(y − ȳ), Σ(y − ȳ) and Σ(y − ȳ)²."""

    cross: Annotated[Floats, Reveals("moments"), Shape("t", "m")]
    target_sums: Annotated[Floats, Reveals("moments"), Shape("m")]
    target_squares: Annotated[Floats, Reveals("moments"), Shape("m")]


class RowsWithTargets(Party):
    """Holds rows and their targets."""

    Setup = EmbeddedRidgeSetup

    @step
    def count_rows(self) -> RowCount:
        """Rows and columns."""
        return count(self.site)

    @step
    def embedded_equations(self, centre: TargetMean) -> EmbeddedEquations:
        """EᵀE and all that goes with it, over the same rows: a party is in all sums or in none."""
        y = targets_of(self.site, self.setup.targets) - centre.mean
        cross: Any = [0.0]

        def take(rows: slice, E: Doubles) -> None:
            cross[0] = cross[0] + E.T @ y[rows]

        sums = embedded_sums(self.setup, self.site.data, take)
        return EmbeddedEquations(
            **vars(sums),
            cross=cross[0],
            target_sums=y.sum(axis=0),
            target_squares=np.square(y).sum(axis=0),
        )


def schedule(scope: Scope, setup: EmbeddedRidgeSetup, mean: tuple[int, ...]) -> Node:
    """Sizes, and what embedded rows and targets add up to."""
    (m,) = mean
    return sequence(
        enlist(RowsWithTargets, setup),
        ask(RowsWithTargets.count_rows),
        of_width(setup, lambda t: total(RowsWithTargets.embedded_equations, m=m, q=t, t=t)),
    )


@protocol("embedded-ridge", roles=(RowsWithTargets,), schedule=schedule)
def embedded_ridge(
    rows: Federation, setup: EmbeddedRidgeSetup, mean: Doubles, n_components: int, alpha: float
) -> RidgeResult:
    """Two rounds, once the targets' mean is known: sizes, and all sums."""
    rows.enlist(RowsWithTargets, setup)
    sizes = by_party(rows.ask(RowsWithTargets.count_rows))
    d = next(iter(sizes.values())).n_columns
    rows.settle(d=d)
    total = rows.total(RowsWithTargets.embedded_equations, TargetMean(mean)).sum
    how = (kernel_of(setup), d, setup.embedding_dim, setup.seed)
    gram = full(total.upper)
    complete = FeatureModel.fit(how, gram, total.sums, total.n_rows, None, True)
    model = _first(complete, n_components)
    fit = ridge(_in_components(model, total), mean, alpha)
    off = abs(float(np.trace(gram)) / total.trace - 1) if total.trace else 0.0
    worth = (
        f"components are those of rows embedded in {len(gram)} dimensions, not of the kernel; the "
        f"embedding is off by {off:.1%} in the rows' squares"
    )
    if is_exact(setup.kernel, d, setup.embedding_dim):
        worth = "the embedding is the kernel's own feature space: exact"
    baseline = sum(size.n_values for size in sizes.values())
    return RidgeResult(model, fit, d, "embedded dimensions", worth, baseline)


def _in_components(model: FeatureModel, equations: EmbeddedEquations) -> RidgeSums:
    """The sums of scores Z = EW − 1oᵀ, which are centred and uncorrelated."""
    cross = model.components.T @ equations.cross - np.outer(model.offset, equations.target_sums)
    nothing = np.zeros(len(model.eigenvalues))
    sums, squares = (
        np.asarray(y, dtype=float) for y in (equations.target_sums, equations.target_squares)
    )
    return RidgeSums(np.diag(model.eigenvalues), cross, nothing, sums, squares, equations.n_rows)


def _first(model: FeatureModel, k: int) -> FeatureModel:
    """The first k components, or all if there are fewer."""
    if len(model.eigenvalues) <= k:
        return model
    return dataclasses.replace(
        model,
        components=np.ascontiguousarray(model.components[:, :k]),
        offset=model.offset[:k],
        eigenvalues=model.eigenvalues[:k],
        next_eigenvalue=float(model.eigenvalues[k]),
    )
