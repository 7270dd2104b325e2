"""Sketching-PCA: embed the rows, then linear PCA of what is embedded. A baseline.

Balcan, Liang, Song, Woodruff and Xie, "Communication Efficient Distributed Kernel Principal
Component Analysis", KDD 2016, Section 5: what disKPCA is compared with.

===================  ============================================================================
party keeps          its rows A_i (n_i, d)
party reveals        Gram matrix and sum of its embedded rows, and Σ k(x, x)
coordinator learns   these
===================  ============================================================================

Letters: E embedded rows (n, t), t `embedding_dim`. No row leaves, and nothing but the seed goes
down; but t must be large before E Eᵀ is near the kernel matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.methods.diskpca.protocol import ScoredRows, embedded_blocks
from eigenmesh.numerics.arrays import Doubles, Rows, blocks
from eigenmesh.numerics.embeddings import embedded_width, is_exact
from eigenmesh.numerics.feature_model import FeatureModel
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import full, upper
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import Node, Scope, ask, enlist, sequence, settle, total
from eigenmesh.stages.row_messages import (
    GramSums,
    KernelSetup,
    by_party,
    kernel_of,
)

for kind in (FeatureModel, Kernel):
    record(kind)


class EmbeddedRows(ScoredRows):
    """Holds some rows of all columns."""

    @step
    def embedded_sums(self) -> GramSums:
        """EᵀE, Eᵀ1 and Σ k(x, x)."""
        return embedded_sums(self.setup, self.site.data)


def embedded_sums(
    setup: KernelSetup, A: Rows, take: Callable[[slice, Doubles], None] | None = None
) -> GramSums:
    """EᵀE, Eᵀ1 and Σ k(x, x) of rows A; `take` is given every block of E, and where it belongs."""
    kernel, trace = kernel_of(setup), 0.0
    gram: Any = 0.0
    sums: Any = 0.0
    for rows, E in zip(blocks(A.shape[0]), embedded_blocks(setup, A), strict=True):
        gram, sums = gram + E.T @ E, sums + E.sum(axis=0)
        trace += float(kernel.diagonal(A[rows]).sum(dtype=np.float64))
        if take is not None:
            take(rows, E)
    return GramSums(upper=upper(gram), sums=sums, n_rows=int(A.shape[0]), trace=trace)


@record
@dataclass(frozen=True)
class SketchingPCAResult:
    """The model, and how near the embedding is to the kernel."""

    model: FeatureModel
    kernel_trace: float  # Σ k(x, x)
    embedded_trace: float  # Σ ‖E(x)‖², which stands for it
    exact: bool  # the embedding is the kernel's own feature space
    baseline_floats: int
    stop_reason: str = "the embedded rows' sums are complete"


def schedule(scope: Scope, setup: KernelSetup) -> Node:
    """Sizes, and what the embedded rows add up to."""
    return sequence(
        enlist(EmbeddedRows, setup),
        ask(EmbeddedRows.count_rows),
        of_width(setup, lambda t: total(EmbeddedRows.embedded_sums, q=t)),
    )


def of_width(setup: KernelSetup, rest: Callable[[int], Node]) -> Node:
    """`rest` for rows embedded in so many dimensions, once the number of columns is told."""
    return settle(
        lambda parties: {"d": parties.shapes[0][1]},
        lambda d: rest(embedded_width(setup.kernel, d, setup.embedding_dim)),
        lambda own, d: d == own.columns,
        d=100,
    )


@protocol("sketching-pca", roles=(EmbeddedRows,), schedule=schedule)
def sketching_pca(
    rows: Federation, setup: KernelSetup, n_components: int | None, center: bool
) -> SketchingPCAResult:
    """Two rounds: sizes, and what the embedded rows add up to."""
    rows.enlist(EmbeddedRows, setup)
    sizes = by_party(rows.ask(EmbeddedRows.count_rows))
    d = next(iter(sizes.values())).n_columns
    rows.settle(d=d)
    total = rows.total(EmbeddedRows.embedded_sums).sum
    gram = full(total.upper)
    how = (kernel_of(setup), d, setup.embedding_dim, setup.seed)
    model = FeatureModel.fit(how, gram, total.sums, total.n_rows, n_components, center)
    return SketchingPCAResult(
        model,
        total.trace,
        float(np.trace(gram)),
        is_exact(setup.kernel, d, setup.embedding_dim),
        sum(size.n_values for size in sizes.values()),
    )
