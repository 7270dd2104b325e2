"""RBF kernel PCA over column partitions by adding up squared distances; beyond paper 000.

Squared distances add over columns exactly, so the parties send coordinates that keep their own
distances: the top principal coordinates and, where these are not all, the norm of the rest.

===================  ======================================================================
party keeps          its columns X_j (T, m_j); its share: mean and loadings, not X_j
party reveals        at most local_rank numbers a sample: principal coordinates of X_j and,
                     if these leave something out, its norm (scores); a digest of sample ids
coordinator learns   the samples' distances in these columns, to that accuracy
===================  ======================================================================

With local_rank ≥ min(T, m_j) everywhere the distances, and so the components, are exact, at
Σ_j T·min(T, m_j) floats. Otherwise the parts left out of two samples are taken as orthogonal; the
error that this can make is bounded sample by sample and reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from eigenmesh.federation.federation import Federation
from eigenmesh.federation.ledger import Entry, forecast_entry
from eigenmesh.federation.message import (
    Floats,
    Message,
    NonEmpty,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
)
from eigenmesh.federation.party import Party, step
from eigenmesh.federation.protocol import protocol
from eigenmesh.federation.site import SiteView
from eigenmesh.numerics.columns import principal_coordinates, share_to_tree
from eigenmesh.numerics.fusion import DistanceFusion
from eigenmesh.protocols.column_model import ColumnModel, require_samples, split_residuals


class DistanceSetup(Message, reveals=None):
    """What the parties agree on; `model` is the name under which they keep their shares."""

    local_rank: Annotated[int, Positive]
    model: str
    seed: int


class LocalCoordinates(Message, reveals="scores"):
    """Coordinates of the samples in a party's columns."""

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere]
    n_columns: Annotated[int, Reveals("counts")]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    coordinates: Annotated[Floats, Shape("n_samples", "r"), NonEmpty]
    has_residual: bool  # whether the last coordinate is the norm of what the others leave out


class CoordinateHolder(Party):
    """Holds some columns of all samples."""

    Setup = DistanceSetup

    def __init__(self, site: SiteView, setup: DistanceSetup) -> None:
        super().__init__(site, setup)
        require_samples(site, rbf=True)

    @step
    def local_coordinates(self) -> LocalCoordinates:
        """Principal coordinates of the own columns; the loadings stay in the site's store."""
        X, agreed = self.site.data, self.setup
        coordinates, share = principal_coordinates(X, agreed.local_rank, agreed.seed)
        self.site.keep(agreed.model, share_to_tree(share))
        return LocalCoordinates(
            n_samples=X.shape[0],
            n_columns=X.shape[1],
            sample_ids=self.site.sample_ids_hash,
            coordinates=coordinates,
            has_residual=share.residual,
        )


@protocol("distance-fusion", roles=(CoordinateHolder,))
def distance_fusion(
    columns: Federation, setup: DistanceSetup, gamma: float, n_components: int, center: bool
) -> ColumnModel:
    """Add the parties' squared distances, apply the kernel, take the leading eigenvectors."""
    columns.enlist(CoordinateHolder, setup)
    replies = columns.ask(CoordinateHolder.local_coordinates)
    residual_sent = tuple(reply.has_residual for reply in replies)
    kept, norms = split_residuals([reply.coordinates for reply in replies], residual_sent)
    return ColumnModel(
        DistanceFusion.fit(kept, norms, gamma, n_components, center),
        name=setup.model,
        parties=replies.parties,
        widths=tuple(reply.n_columns for reply in replies),
        sent=tuple(reply.coordinates.shape[1] for reply in replies),
        residual_sent=residual_sent,
        n_samples=replies[0].n_samples,
    )


def forecast(
    names: Sequence[str], shapes: Sequence[tuple[int, int]], local_rank: int
) -> list[Entry]:
    """The ledger's entries for `local_coordinates`: T·min(local_rank, T, m_j) floats a party."""
    return [
        forecast_entry(CoordinateHolder.local_coordinates, name, n * min(local_rank, n, m))
        for name, (n, m) in zip(names, shapes, strict=True)
    ]
