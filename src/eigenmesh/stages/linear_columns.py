"""Messages, models and results that methods of linear PCA over columns share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from eigenmesh.graphs.consensus import Mixture
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.column_fusion import Components, SumFusion
from eigenmesh.numerics.column_pieces import ColumnBlock
from eigenmesh.numerics.eigen import SPECTRUM_ROUNDING
from eigenmesh.numerics.plausible import require_possible_sums
from eigenmesh.runtime.message import (
    Message,
    NonNegative,
    OwnColumns,
    OwnRows,
    Reveals,
    SameEverywhere,
)
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.column_scores import ColumnModel, require_samples
from eigenmesh.stages.prepare import preparation_of


class PeerStart(Message, reveals="counts"):
    """What a node holds."""

    n_samples: Annotated[int, SameEverywhere, OwnRows]
    n_columns: Annotated[int, OwnColumns]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    total: Annotated[float, Reveals("moments"), NonNegative]


class GramMixture(Mixture, reveals="gram", covers=1):
    """A running average of products."""


def prepared_block(site: SiteView, setup: Any) -> ColumnBlock:
    """A site's columns as the setup wants them; an unusable column is an error with its name."""
    require_samples(site, kernel_matrix=False)
    return ColumnBlock.of(site.data, setup.center, preparation_of(site, setup))


@record
@dataclass(frozen=True)
class VFedResult:
    """The coordinator's model, and how far it is from the answer."""

    model: ColumnModel
    convergence: tuple[float, ...]  # after every round, the largest bound of a relative residual
    residuals: Doubles  # (k,), the last bounds, of each component
    shortfalls: Doubles  # (k,), shares of the eigenvalues that may be missing
    converged: bool
    stop_reason: str
    node_vectors: Doubles | None = None  # (nodes, n, k), where there is no coordinator
    history: tuple[Doubles, ...] = ()  # after every round, the vectors as far as they were known


def model_of(starts: Replies, ordered: Doubles, vectors: Doubles, k: int, name: str) -> ColumnModel:
    """The coordinator's share: scores of new samples are the sums of what parties project.

    `ordered` are the eigenvalues of the k components, and those after them, as far as known.
    """
    p = len(starts)
    components = Components.first(
        ordered,
        vectors,
        k,
        "the columns",
        rounding=SPECTRUM_ROUNDING,
        advice="check that the samples differ",
    )
    total = float(sum(start.total for start in starts))
    require_possible_sums(float(components.eigenvalues.sum()), total)
    # K̂ is what the components have of K; what is left of its trace bounds what is left of it.
    left = max(total - float(components.eigenvalues.sum()), 0.0)
    fusion = SumFusion(components, (np.eye(k),) * p, total, left)
    return ColumnModel(
        fusion,
        name=name,
        parties=starts.parties,
        widths=tuple(start.n_columns for start in starts),
        sent=(k,) * p,
        n_samples=starts[0].n_samples,
    )
