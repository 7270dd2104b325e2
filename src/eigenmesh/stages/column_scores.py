"""A model over column partitions: the coordinator's part, and how new samples reach it.

===================  =============================================================
party keeps          its share of the model, made when the model was fitted
party reveals        coordinates of its columns of new samples (scores), r_j a sample; of a model
                     that was made of masked sums, summands that are seen in the sum only
coordinator learns   these coordinates, or their sum, and the scores of the new samples
===================  =============================================================

Above the usual length: how many samples fit into the parties' memory is asked here, by all
who score or fit over columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import (
    InputError,
    MessageRefused,
    MissingPartyShare,
    PartitionError,
    TooManySamples,
)
from eigenmesh.numerics.centring import KernelMeans
from eigenmesh.numerics.column_fusion import (
    Components,
    Fusion,
    ProductFusion,
    Rounded,
    SampledProductFusion,
    SumFusion,
)
from eigenmesh.numerics.column_pieces import share_from_tree
from eigenmesh.numerics.column_preparation import ColumnPreparation
from eigenmesh.numerics.kernel_of_sums import ArgumentFusion, LandmarkFusion
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.memory import most_pairs_of_rows
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, Reveals, SameEverywhere, Shape, Wide
from eigenmesh.runtime.party import Party, Step, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import formerly, record
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import Node, Scope, ask, enlist, rows, sequence, total
from eigenmesh.runtime.site import SiteView
from eigenmesh.runtime.study import Stage, stage

_RECORDS: tuple[type, ...] = (
    SumFusion,
    ProductFusion,
    Rounded,
    SampledProductFusion,
    ArgumentFusion,
    LandmarkFusion,
)
for kind in (*_RECORDS, Components, KernelMeans, Kernel, ColumnPreparation):
    record(kind)
formerly("Preparation")(ColumnPreparation)


@record
@dataclass(frozen=True)
class ColumnModel:
    """What the coordinator keeps. `sent` is the number of coordinates a sample of each party."""

    fusion: Fusion
    name: str  # under which the parties keep their shares
    parties: tuple[str, ...]
    widths: tuple[int, ...]
    sent: tuple[int, ...]
    n_samples: int
    notes: tuple[str, ...] = ()
    sampled: tuple[str, ...] = ()  # that some samples stand for all, where they do
    spreads: tuple[float, ...] = ()  # sums of squares of the parties' centred columns, where known
    stop_reason: str = "every party has sent its one message"
    summed: bool = False  # whether all parties send alike, of which only the sum was seen


# Beyond this the joint kernel matrix, (T, T) at the centre, takes over 3 GB: landmarks serve.
MOST_KERNEL_SAMPLES = 20_000
# Masked, every pair is a number of every party's: beyond this there are 36 MB of them a party.
MOST_MASKED_SAMPLES = 3_000


def most_samples(limit: int) -> int:
    """Samples of which a matrix of all pairs is formed: so many, or fewer if memory is short."""
    return min(limit, most_pairs_of_rows())


def require_memory(site: SiteView) -> None:
    """Refuse a matrix of all pairs of samples that this site's machine has no room for."""
    n, room = site.data.shape[0], most_pairs_of_rows()
    if n > room:
        raise TooManySamples(
            f"party {site.name!r} has {n} samples; a matrix of all their pairs and its solution "
            f"take {24e-9 * n**2:.1f} GB, more than its machine has free: {room} samples at most "
            f"are expected; free memory there, or fit a part of the samples",
            party=site.name,
        )


def require_samples(site: SiteView, kernel_matrix: bool) -> None:
    """Refuse too few samples, or more than a kernel matrix can hold, before any work is done."""
    n = site.data.shape[0]
    if n < 2:
        raise PartitionError(
            f"party {site.name!r} has n_samples = {n}; kernel PCA needs at least 2 samples",
            party=site.name,
        )
    most = most_samples(MOST_KERNEL_SAMPLES)
    if kernel_matrix and n > most:
        raise TooManySamples(
            f"party {site.name!r} has {n} samples; the joint kernel matrix would take "
            f"{8e-9 * n**2:.1f} GB, {most} samples at most are expected; fit a part "
            f"of the samples, or choose a kernel that is positive semi-definite, which landmark "
            f"samples serve",
            party=site.name,
        )


# Samples that stand for all, where there are more.
N_LANDMARKS = 500
_LANDMARK_DRAWS = 7  # key of the draw of landmark samples


def landmarks_of(setup: Any, n: int) -> NDArray[np.int64] | None:
    """The landmark samples of a setup, the same at every party; None where every pair counts."""
    if n <= setup.most_samples or n <= setup.n_landmarks:
        return None
    rng = np.random.default_rng(np.random.SeedSequence(setup.seed, spawn_key=(_LANDMARK_DRAWS,)))
    return np.sort(rng.choice(n, setup.n_landmarks, replace=False))


def ask_everyone(columns: Federation, step: Step, message: Message | None = None) -> Replies:
    """Replies of every party that is in; who missed a round, and may, is asked again."""
    while True:
        replies = columns.ask(step, message)
        if replies.parties == columns.parties:
            return replies


class ModelName(Message, reveals=None):
    """Which of its shares a party is to use, and whether only the sum of the replies is wanted."""

    model: str
    summed: bool = False


class NewCoordinates(Message, reveals="scores"):
    """A party's columns of new samples, in the coordinates that the model uses."""

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    coordinates: Annotated[Floats, Shape("n_samples", "r")]


class NewSamples(Message, reveals="counts"):
    """Who is there, before sums are masked."""

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]


class NewSummand(Message, reveals="scores"):
    """What of new samples adds up over the columns; one far sample must not round the others."""

    arguments: Annotated[Floats, Shape("n_samples", "r"), Wide]


class ShareHolder(Party):
    """Holds columns of new samples, and its share of a fitted model."""

    Setup = ModelName

    def __init__(self, site: SiteView, setup: ModelName) -> None:
        super().__init__(site, setup)
        share = site.kept(setup.model, "form")
        if share is None:
            raise MissingPartyShare(
                f"party {site.name!r} has no share of this model; fit it here, or load it with "
                f"the share that save(..., parties=True) wrote",
                party=site.name,
            )
        self.share = share_from_tree(share)
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

    @step
    def count_samples(self) -> NewSamples:
        """How many samples the site has, and which."""
        n, ids = self.site.data.shape[0], self.site.sample_ids_hash
        return NewSamples(n_samples=n, sample_ids=ids)

    @step
    def project_summand(self) -> NewSummand:
        """The same as coordinates, to be seen in the sum of all parties."""
        return NewSummand(arguments=self.share.project(self.site.data))


def schedule(
    scope: Scope, setup: ModelName, parties: tuple[str, ...], widths: tuple[int, ...]
) -> Node:
    """One message from each party of the model; of a model of masked sums, sizes and a sum."""
    width = dict(zip(parties, widths, strict=True))
    if setup.summed:
        return sequence(
            enlist(ShareHolder, setup),
            ask(ShareHolder.count_samples),
            total(ShareHolder.project_summand, n_samples=rows, r=widths[0] if widths else 0),
        )
    return sequence(
        enlist(ShareHolder, setup),
        ask(
            ShareHolder.project_samples,
            n_samples=rows,
            r=lambda own: width.get(scope.parties[own.index], 0),
        ),
    )


def scoring(model: ColumnModel) -> Stage:
    """The run that scores the samples that the parties hold."""
    setup = ModelName(model=model.name, summed=model.summed)
    return stage(column_scores, setup, model.parties, model.sent, model)


@protocol("column-scores", roles=(ShareHolder,), schedule=schedule)
def column_scores(
    columns: Federation,
    setup: ModelName,
    parties: tuple[str, ...],
    widths: tuple[int, ...],
    model: ColumnModel,
) -> Floats:
    """Scores of new samples, in so many coordinates of each of the model's parties."""
    if columns.parties != model.parties:
        raise InputError(
            f"the model was fitted with the parties {', '.join(model.parties)}; "
            f"new samples came from {', '.join(columns.parties)}"
        )
    columns.enlist(ShareHolder, setup)
    if setup.summed:
        ask_everyone(columns, ShareHolder.count_samples)
        total_of = columns.total(ShareHolder.project_summand)
        _require_everyone(model, total_of.parties)
        return model.fusion.scores([total_of.sum.arguments])
    replies = ask_everyone(columns, ShareHolder.project_samples)
    _require_everyone(model, replies.parties)
    coordinates = [reply.coordinates for reply in replies]
    _check_widths(model, coordinates)
    return model.fusion.scores(coordinates)


def _require_everyone(model: ColumnModel, parties: Sequence[str]) -> None:
    lost = sorted(set(model.parties) - set(parties))
    if lost:
        raise MissingPartyShare(f"scores need every party of the model; {', '.join(lost)} is lost")


def _check_widths(model: ColumnModel, coordinates: Sequence[Floats]) -> None:
    for party, expected, own in zip(model.parties, model.sent, coordinates, strict=True):
        if own.shape[1] != expected:
            raise MessageRefused(
                f"it sent {own.shape[1]} coordinates a sample; the model has {expected}; its share "
                f"belongs to another model",
                party=party,
            )
