"""Whoever holds points that are to be clustered: what travels, and the party's side.

The coordinator's side, with who learns what, is in `kmeans.py`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.numerics.coresets import Groups, coreset, local_solution
from eigenmesh.numerics.kmeans import (
    WeightedPoints,
    cluster_sums,
    cost_of,
    draw_far,
    far_sums,
    nearest,
    weight_of_each,
)
from eigenmesh.runtime.message import (
    Floats,
    Integers,
    Message,
    NonNegative,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
    Wide,
)
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.site_centroids import site_groups

MOST_GROUPS = 1000  # of a party's points, of which sums are made
_NUMBER = 0x6B6D  # of this role in the keys of random draws


class KMeansSetup(Message, reveals=None):
    """Under which keys of its own store a site keeps the points, and is to keep the labels."""

    points: str
    labels: str
    seed: Annotated[int, NonNegative] = 0
    groups: bool = False  # whether sums are over whole groups of points


class PointSize(Message, reveals="counts"):
    """How many points a party holds, of how many coordinates."""

    n_points: Annotated[int, NonNegative]
    dim: Annotated[int, SameEverywhere]


class PointCount(Message, reveals="counts"):
    """How many points a party holds, of how many coordinates, and their weight."""

    n_points: Annotated[int, NonNegative]
    dim: Annotated[int, SameEverywhere]
    weight: Annotated[float, Reveals("moments"), NonNegative]


class CandidateShare(Message, reveals=None):
    """How many points a party is to draw."""

    n_points: Annotated[int, NonNegative]


class Points(Message, reveals="scores"):
    """Single points."""

    has_single_rows: ClassVar[bool] = True
    points: Annotated[Floats, Shape("n", "dim")]


class NewCandidates(Points, reveals="scores"):
    """Candidates that the receiver has not seen."""

    are_first: Annotated[bool, Reveals("counts")]


class Cost(Message, reveals="scores"):
    """Weighted sum of squared distances to the nearest of all candidates so far.

    Candidates of the asker's choice would tell single points by it, whose scores leave anyway.
    """

    cost: Annotated[float, NonNegative]


class CandidateWeights(Message, reveals="counts"):
    """The weight of the points that are nearest to each candidate."""

    weights: Annotated[Floats, Shape("m"), NonNegative]


class Centres(Message, reveals="moments"):
    """Centres of one or more restarts, (restarts, clusters, dim), perhaps without the last ones."""

    centres: Annotated[Floats, Shape("r", "k", "dim")]


class Sums(Message, reveals="moments", covers=1):
    """For each restart and cluster the sum of the points; a sum over one point is that point."""

    sums: Annotated[Floats, Shape("r", "k", "dim")]
    weights: Annotated[Floats, Reveals("counts"), Shape("r", "k"), NonNegative]
    costs: Annotated[Floats, Shape("r"), NonNegative]


class GroupSums(Sums, reveals="moments", covers="fewest"):
    """The same over whole groups of points, each as many as a party lets a sum be over."""


class FarCentres(Message, reveals="moments"):
    """Centres, and the mean squared distance of points to them."""

    centres: Annotated[Floats, Shape("k", "dim")]
    spread: Annotated[float, Positive]


class FarSums(Message, reveals="moments", covers=1):
    """For each cluster the sum of the points, weighed by how far they are; near a far one's own."""

    steepness: ClassVar[int] = 8  # of a distance's eighth power
    sums: Annotated[Floats, Shape("k", "dim"), Wide]
    masses: Annotated[Floats, Shape("k"), NonNegative, Wide]


class FarGroupSums(FarSums, reveals="moments", covers="fewest"):
    """The same over whole groups of points, each as many as a party lets a sum be over."""


class FarAsk(Message, reveals="moments"):
    """Centres some of which are nobody's nearest, and how many."""

    centres: Annotated[Floats, Shape("k", "dim")]
    n_points: Annotated[int, Positive]


class FarPoints(Message, reveals="scores"):
    """The points that are farthest from their centres, farthest first."""

    has_single_rows: ClassVar[bool] = True
    points: Annotated[Floats, Shape("m", "dim")]
    weights: Annotated[Floats, Shape("m"), NonNegative]
    squared: Annotated[Floats, Shape("m"), NonNegative]
    labels: Annotated[Integers, Shape("m"), NonNegative]


class LocalAsk(Message, reveals=None):
    """How many centres a party's own solution is to have."""

    n_clusters: Annotated[int, Positive]


class LocalCost(PointCount, reveals="counts"):
    """Cost of a party's points with centres of its own."""

    cost: Annotated[float, Reveals("moments"), NonNegative]


class CoresetAsk(Message, reveals="moments"):
    """How many points to draw; `cost_of_a_draw` is the cost of all / the draws of all."""

    n_points: Annotated[int, Reveals("counts"), NonNegative]
    cost_of_a_draw: Annotated[float, NonNegative]


class CoresetPart(Message, reveals="scores"):
    """A party's part of the coreset."""

    has_single_rows: ClassVar[bool] = True
    points: Annotated[Floats, Shape("m", "dim")]
    weights: Annotated[Floats, Shape("m"), NonNegative]


class MeanPart(Message, reveals="centroids", covers="fewest"):
    """Means of a party's points, and what each stands for."""

    points: Annotated[Floats, Shape("m", "dim")]
    weights: Annotated[Floats, Shape("m"), NonNegative]


class FinalCentres(Message, reveals="moments"):
    """The centres that were found."""

    centres: Annotated[Floats, Shape("k", "dim")]


class ClusterSizes(Message, reveals="counts"):
    """Points and weight of each cluster, and what they cost; of groups, whole groups."""

    sizes: Annotated[Integers, Shape("k"), NonNegative]
    weights: Annotated[Floats, Shape("k"), NonNegative]
    cost: Annotated[float, Reveals("moments"), NonNegative]


class PointHolder(Party):
    """Holds points in its site's store; its labels end there, too."""

    Setup = KMeansSetup
    state = ("squared", "draws", "own_centres")

    def __init__(self, site: SiteView, setup: KMeansSetup) -> None:
        super().__init__(site, setup)
        self.data = _stored_points(site, setup.points)
        self.squared = np.ones(len(self.data.points))  # at first no point is farther than others
        self.draws = 0
        self.own_centres = np.zeros((0, self.data.points.shape[1]))
        # Where rows are kept, whatever the setup says: cells of single points would tell them.
        keeps_points = not site.may_tell_rows and site.n_summed == 1
        self.groups = self._whole_groups if setup.groups or keeps_points else None

    @cached_property
    def _whole_groups(self) -> Groups:
        return self._groups(MOST_GROUPS)

    @step
    def tell_size(self) -> PointSize:
        """Size alone, where nobody has to draw by weight."""
        n, dim = self.data.points.shape
        return PointSize(n_points=n, dim=dim)

    @step
    def count_points(self) -> PointCount:
        """Size and weight."""
        return PointCount(**self._count())

    def _count(self) -> dict[str, Any]:
        n, dim = self.data.points.shape
        return {"n_points": n, "dim": dim, "weight": float(self.data.weights.sum())}

    # Seeding: k-means‖.

    @step
    def draw_candidates(self, share: CandidateShare) -> Points:
        """Points in proportion to their part in the cost; these leave, so a seed may tell which."""
        chances = self.data.weights * self.squared
        self.draws += 1
        return Points(draw_far(self.data.points, chances, share.n_points, self._candidate_draws()))

    @step
    def candidate_cost(self, new: NewCandidates) -> Cost:
        """What is left of the cost with these candidates, too."""
        _, squared = nearest(self.data.points, new.points)
        self.squared = squared if new.are_first else np.minimum(self.squared, squared)
        return Cost(float(self.data.weights @ self.squared))

    @step
    def weigh_candidates(self, all_of_them: Points) -> CandidateWeights:
        """How much lies nearest to each candidate, of whole groups where sums are over these.

        Whoever chooses the candidates would else find single points, in cells as small as it likes.
        """
        points, weights = self.data if self.groups is None else self.groups.means
        labels, _ = nearest(points, all_of_them.points)
        return CandidateWeights(weight_of_each(labels, weights, len(all_of_them.points)))

    # Lloyd.

    @step
    def sum_clusters(self, restarts: Centres) -> Sums:
        """The sums of a Lloyd step, for every restart."""
        totals = [cluster_sums(self.data, centres) for centres in restarts.centres]
        return Sums(
            sums=np.stack([own.sums for own in totals]),
            weights=np.stack([own.weights for own in totals]),
            costs=np.array([own.cost for own in totals]),
        )

    @step
    def sum_groups(self, restarts: Centres) -> GroupSums:
        """The same of groups, which go to the centre nearest to their mean.

        Groups stay as they are: sums of any two rounds, or restarts, differ by whole groups.
        """
        assert self.groups is not None, "the setup says that sums are over groups"
        totals = [cluster_sums(self.groups.means, centres) for centres in restarts.centres]
        return GroupSums(
            sums=np.stack([own.sums for own in totals]),
            weights=np.stack([own.weights for own in totals]),
            costs=np.array([own.cost for own in totals]),
        )

    @step
    def sum_far(self, request: FarCentres) -> FarSums:
        """Where points are far from their centres; where rows are kept, groups of points.

        Masks hide whose a sum is, and such a sum is one row, of the asker's choice.
        """
        points = self.data if self.site.may_tell_rows else self._whole_groups.means
        return FarSums(*far_sums(points, request.centres, request.spread))

    @step
    def sum_far_groups(self, request: FarCentres) -> FarGroupSums:
        """Where whole groups are."""
        assert self.groups is not None, "the setup says that sums are over groups"
        return FarGroupSums(*far_sums(self.groups.means, request.centres, request.spread))

    @step
    def farthest_points(self, request: FarAsk) -> FarPoints:
        """Where an empty cluster should start again."""
        labels, squared = nearest(self.data.points, request.centres)
        squared = np.where(self.data.weights > 0, squared, 0.0)
        far = np.argsort(-squared, kind="stable")[: request.n_points]
        points, weights = self.data.points[far], self.data.weights[far]
        return FarPoints(points=points, weights=weights, squared=squared[far], labels=labels[far])

    # Coresets.

    @step
    def solve_locally(self, request: LocalAsk) -> LocalCost:
        """A clustering of the own points; only its cost is told."""
        points = self._counting() if self.groups is None else self.groups.means
        self.own_centres = local_solution(points, request.n_clusters, self._own_draws())
        cost = self._cost_of(self.own_centres) if len(self.own_centres) else 0.0
        return LocalCost(**self._count(), cost=cost)

    def _cost_of(self, centres: Floats) -> float:
        """What the points cost with these centres; of groups, each goes whole where its mean does.

        By every point's own nearest centre the costs of two sets of centres, of the asker's choice,
        differed by what one point costs that is alone near to one of them.
        """
        if self.groups is None or self.site.n_summed > 1:
            _, squared = nearest(self.data.points, centres)
            return float(self.data.weights @ squared)
        labels, _ = nearest(self.groups.means.points, centres)
        return cost_of(self._counting(), centres, labels[self.groups.labels])

    @step
    def draw_coreset(self, request: CoresetAsk) -> CoresetPart:
        """Weighted points that stand for all of the own; nobody else knows which rows they are."""
        drawing = (request.n_points, request.cost_of_a_draw, self._own_draws(1))
        part = coreset(self._counting(), self.own_centres, *drawing)
        return CoresetPart(points=part.points, weights=part.weights)

    @step
    def give_means(self, request: CoresetAsk) -> MeanPart:
        """Means of as many of the own points as a sum must be over, for all of them."""
        part = self._groups(request.n_points + len(self.own_centres)).means
        return MeanPart(points=part.points, weights=part.weights)

    def _groups(self, most: int) -> Groups:
        # Which points a mean covers must not be known: the draw is the site's own.
        return site_groups(self.site, self.data, most)

    def _counting(self) -> WeightedPoints:
        """The points that have a weight."""
        counting = self.data.weights > 0
        if counting.all():
            return self.data
        return WeightedPoints(self.data.points[counting], self.data.weights[counting])

    def _candidate_draws(self) -> np.random.Generator:
        return self.site.generator(self.setup.seed, _NUMBER, self.draws)

    def _own_draws(self, round_: int = 0) -> np.random.Generator:
        return self.site.private_generator(_NUMBER, round_)

    # The end.

    @step
    def assign(self, final: FinalCentres) -> ClusterSizes:
        """Keep the labels; tell how many points each cluster has, or of groups, the groups'."""
        labels, _ = nearest(self.data.points, final.centres)
        self.site.keep(self.setup.labels, {"labels": labels})
        cost, k = self._cost_of(final.centres), len(final.centres)
        if self.groups is None:
            weights, counts = self.data.weights, np.ones(len(labels), dtype=int)
        else:
            (means, weights), counts = self.groups.means, self.groups.sizes
            labels, _ = nearest(means, final.centres)
        return ClusterSizes(
            sizes=np.bincount(labels, counts, minlength=k).astype(int),
            weights=weight_of_each(labels, weights, k),
            cost=cost,
        )


def _stored_points(site: SiteView, key: str) -> WeightedPoints:
    share = site.kept(key, "points")
    if share is None:
        raise InputError(
            f"party {site.name!r} keeps nothing under {key!r}; its points are expected there: run "
            f"the protocol that computes them first, on the same federation"
        )
    points = np.ascontiguousarray(share["points"], dtype=np.float64)
    weights = np.ones(len(points)) if share.get("weights") is None else share["weights"]
    return WeightedPoints(points, np.asarray(weights, dtype=np.float64))
