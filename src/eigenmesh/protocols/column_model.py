"""A model over column partitions: the coordinator's part, and how new samples reach it.

===================  =============================================================
party keeps          its share of the model, made when the model was fitted
party reveals        coordinates of its columns of new samples (scores), r_j a sample
coordinator learns   these coordinates, and the scores of the new samples
===================  =============================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from eigenmesh.errors import InputError, MessageRefused, MissingPartyShare, PartitionError
from eigenmesh.federation.federation import Federation
from eigenmesh.federation.message import Floats, Message, Reveals, SameEverywhere, Shape
from eigenmesh.federation.party import Party, step
from eigenmesh.federation.protocol import protocol
from eigenmesh.federation.records import record
from eigenmesh.federation.site import SiteView
from eigenmesh.numerics.centring import KernelMeans
from eigenmesh.numerics.columns import share_from_tree
from eigenmesh.numerics.fusion import Components, DistanceFusion, Fusion, ProductFusion, SumFusion

for kind in (SumFusion, ProductFusion, DistanceFusion, Components, KernelMeans):
    record(kind)


@record
@dataclass(frozen=True)
class ColumnModel:
    """What the coordinator keeps. `sent` is the number of coordinates a sample of each party."""

    fusion: Fusion
    name: str  # under which the parties keep their shares
    parties: tuple[str, ...]
    widths: tuple[int, ...]
    sent: tuple[int, ...]
    residual_sent: tuple[bool, ...]  # whether the last coordinate is a residual norm
    n_samples: int
    stop_reason: str = "every party has sent its one message"


# The joint RBF kernel matrix is (T, T) at the centre: 7 GB at this size.
MOST_RBF_SAMPLES = 30_000


def require_samples(site: SiteView, rbf: bool) -> None:
    """Refuse too few samples, or more than a kernel matrix can hold, before any work is done."""
    n = site.data.shape[0]
    if n < 2:
        raise PartitionError(
            f"party {site.name!r} has n_samples = {n}; kernel PCA needs at least 2 samples",
            party=site.name,
        )
    if rbf and n > MOST_RBF_SAMPLES:
        raise PartitionError(
            f"party {site.name!r} has {n} samples; the joint RBF kernel matrix would take "
            f"{8e-9 * n**2:.0f} GB, {MOST_RBF_SAMPLES} samples at most are expected; fit a part "
            f"of the samples and transform the rest, or use kernel='linear'",
            party=site.name,
        )


class ModelName(Message, reveals=None):
    """Which of its shares a party is to use."""

    model: str


class NewCoordinates(Message, reveals="scores"):
    """A party's columns of new samples, in the coordinates that the model uses."""

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    coordinates: Annotated[Floats, Shape("n_samples", "r")]


class ShareHolder(Party):
    """Holds columns of new samples, and its share of a fitted model."""

    Setup = ModelName

    def __init__(self, site: SiteView, setup: ModelName) -> None:
        super().__init__(site, setup)
        kept = site.kept(setup.model)
        if kept is None:
            raise MissingPartyShare(
                f"party {site.name!r} has no share of this model; fit it here, or load it with "
                f"the share that save(..., parties=True) wrote",
                party=site.name,
            )
        self.share = share_from_tree(kept)
        if site.data.shape[1] != self.share.n_columns:
            raise PartitionError(
                f"party {site.name!r} has {site.data.shape[1]} columns of new samples; "
                f"the model was fitted with {self.share.n_columns}",
                party=site.name,
            )

    @step
    def project_samples(self) -> NewCoordinates:
        """Coordinates of the site's samples."""
        return NewCoordinates(
            n_samples=self.site.data.shape[0],
            sample_ids=self.site.sample_ids_hash,
            coordinates=self.share.project(self.site.data),
        )


@protocol("column-scores", roles=(ShareHolder,))
def column_scores(columns: Federation, model: ColumnModel) -> Floats:
    """Scores of new samples; one message from each party of the model."""
    if columns.parties != model.parties:
        raise InputError(
            f"the model was fitted with the parties {', '.join(model.parties)}; "
            f"new samples came from {', '.join(columns.parties)}"
        )
    columns.enlist(ShareHolder, ModelName(model=model.name))
    replies = columns.ask(ShareHolder.project_samples)
    if replies.parties != model.parties:
        lost = sorted(set(model.parties) - set(replies.parties))
        raise MissingPartyShare(f"scores need every party of the model; {', '.join(lost)} is lost")
    coordinates = [reply.coordinates for reply in replies]
    _check_widths(model, coordinates)
    return _scores(model, coordinates)


def _check_widths(model: ColumnModel, coordinates: Sequence[Floats]) -> None:
    for party, expected, own in zip(model.parties, model.sent, coordinates, strict=True):
        if own.shape[1] != expected:
            raise MessageRefused(
                f"it sent {own.shape[1]} coordinates a sample; the model has {expected}; its share "
                f"belongs to another model",
                party=party,
            )


def _scores(model: ColumnModel, coordinates: Sequence[Floats]) -> Floats:
    if not isinstance(model.fusion, DistanceFusion):
        return model.fusion.scores(coordinates)
    kept, norms = split_residuals(coordinates, model.residual_sent)
    return model.fusion.scores(kept, norms)


def split_residuals(
    coordinates: Sequence[Floats], residual_sent: Sequence[bool]
) -> tuple[list[Floats], list[Floats]]:
    """Coordinates and residual norms of every party; the norms are 0 where none were needed."""
    pairs = list(zip(coordinates, residual_sent, strict=True))
    kept = [C[:, :-1] if residual else C for C, residual in pairs]
    norms = [C[:, -1] if residual else 0 * C[:, 0] for C, residual in pairs]
    return kept, norms
