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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenmesh.methods.diskpca.leverage import ScoredRows
from eigenmesh.numerics.arrays import blocks
from eigenmesh.numerics.embeddings import embedded_width, is_exact
from eigenmesh.numerics.feature_model import FeatureModel
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Ledger, forecast_entry
from eigenmesh.runtime.party import Step, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.stages.row_messages import (
    GramSums,
    KernelSetup,
    by_party,
    full,
    kernel_of,
    upper,
)

for kind in (FeatureModel, Kernel):
    record(kind)


class EmbeddedRows(ScoredRows):
    """Holds some rows of all columns."""

    @step
    def embedded_sums(self) -> GramSums:
        """EᵀE, Eᵀ1 and Σ k(x, x)."""
        A = self.site.data
        gram: Any = 0.0
        sums: Any = 0.0
        trace = 0.0
        for rows, E in zip(blocks(A.shape[0]), self.embedded(), strict=True):
            gram, sums = gram + E.T @ E, sums + E.sum(axis=0)
            trace += float(self.kernel.diagonal(A[rows]).sum(dtype=np.float64))
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


def sketching_steps() -> list[Step]:
    """The steps that are asked for."""
    return [EmbeddedRows.count_rows, EmbeddedRows.embedded_sums]


@protocol("sketching-pca", roles=(EmbeddedRows,))
def sketching_pca(
    rows: Federation, setup: KernelSetup, n_components: int | None, center: bool
) -> SketchingPCAResult:
    """Two rounds: sizes, and what the embedded rows add up to."""
    rows.enlist(EmbeddedRows, setup, sketching_steps())
    sizes = by_party(rows.ask(EmbeddedRows.count_rows))
    d = next(iter(sizes.values())).n_columns
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


def forecast(names: Sequence[str], shapes: Sequence[tuple[int, int]], setup: KernelSetup) -> Ledger:
    """The ledger of a run."""
    t = embedded_width(setup.kernel, shapes[0][1], setup.embedding_dim)
    ledger = Ledger(rounds=2)
    for name in names:
        ledger.entries.append(forecast_entry(EmbeddedRows.count_rows, name, 0))
        ledger.entries.append(
            forecast_entry(EmbeddedRows.embedded_sums, name, t * (t + 1) // 2 + t)
        )
    return ledger
