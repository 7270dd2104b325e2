"""k-means of points that stay at their parties: exact distributed Lloyd, or a coreset.

"lloyd": Lloyd's iteration from k-means‖ seeds, Bahmani, Moseley, Vattani, Kumar and Vassilvitskii,
"Scalable K-Means++", VLDB 2012. "coreset": Balcan, Ehrlich and Liang, "Distributed k-means and
k-median clustering on general topologies", NeurIPS 2013.

===================  ============================================================================
party keeps          its points (n_i, dim) and their labels
party reveals        "lloyd": the candidates drawn from it (scores), the number (counts) and sum
                     (moments) of its points in each cluster, round by round; a party with a single
                     point in a cluster so reveals that point
                     "coreset": its part of the coreset (scores), once; "means": in its place
                     means of at least five of its points (centroids); "groups": as "lloyd", of
                     groups of at least five points that stay together
coordinator learns   these, and the centres
===================  ============================================================================

However it began, clusters may then be split and joined (`searches`): each in some parts, a few of
Lloyd's rounds, Ward's rule until there are k again, and Lloyd to the end. What is better stays. It
takes sums alone, and finds what no start shows: means of five points hide clusters of two. Parts
begin on either side of a centre or, in every third search, where points are far from it.

Readings: of k-means‖, the first batch is drawn by weight and every later one has exactly 2k points,
shared out by the parties' costs, so that the traffic is known beforehand; all restarts of Lloyd
run in the same rounds. Of coresets: draws that outweigh their cluster are scaled down, since a
centre cannot have a negative weight.

Above the usual length, since two methods with three ways of seeding share their end, and each of
them has its part of the schedule beside its part of the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np

from eigenmesh.errors import InputError, PartyLost
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.centroids import MIN_CLUSTER
from eigenmesh.numerics.coresets import settle as corrected
from eigenmesh.numerics.kmeans import (
    WeightedPoints,
    distinct,
    other_grouping,
    shares,
    split_centres,
    weighted_kmeans,
)
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import add
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import (
    Node,
    Own,
    Parties,
    Scope,
    ask,
    at_most,
    enlist,
    loop,
    maybe,
    sequence,
    settle,
    times,
    total,
)
from eigenmesh.stages.kmeans_party import (
    CandidateShare,
    Centres,
    CoresetAsk,
    FarAsk,
    FarCentres,
    FinalCentres,
    KMeansSetup,
    LocalAsk,
    NewCandidates,
    PointHolder,
    Points,
)
from eigenmesh.stages.more_centres import growing, grown, no_groups, shortfall

METHODS = ("lloyd", "coreset", "means", "groups")
CORESETS = ("coreset", "means")
SEEDS = 20  # drawn where nothing is known of points but their moments, times the clusters
PASSES = 5  # batches of candidates; Bahmani et al. find no gain from more
BATCH = 2  # candidates in a batch, times the number of clusters
RESTARTS = 4  # by default
USUAL_ITERATIONS = 20  # of Lloyd in a plan: only the data decide
# Of splitting and joining: into how many parts clusters are split, in turn, since one finds what
# the other does not; rounds before parts are joined; rounds before they are given up, and those
# that a plan takes for usual; and how often in a row the cost may fall by less than the gain. On
# a ring Lloyd is slow: three rounds on trial did not tell what was better in the end.
FAR = 0  # in place of a number of parts: two, of which one begins where points are far
PARTS, SPLIT_ROUNDS, TRIAL_ROUNDS, USUAL_TRIAL = (2, 3, FAR), 2, 10, 4
PATIENCE, LEAST_GAIN = 6, 1e-3
# Of few coordinates sums are small, and optima many: of 40 rings two stayed 2 % above the best. Two
# clusters have few groupings: of 60 sets of rows none had better ones after twice as many searches.
FEW_COORDINATES, FEW_CLUSTERS, TIMES_AS_MANY = 3, 2, 2
FAR_SUMS = {
    PointHolder.sum_clusters: PointHolder.sum_far,
    PointHolder.sum_groups: PointHolder.sum_far_groups,
}
CORESET_DRAWS, LEAST_DRAWS = 50, 200  # draws of a coreset, times the number of clusters; at least


@record
@dataclass(frozen=True)
class KMeansResult:
    """Centres and how the points fall to them; the labels are at the parties."""

    centres: Doubles  # (k', dim)
    inertia: float  # Σ w ‖x − nearest centre‖²
    sizes: Any  # (k',) points of each cluster
    weights: Doubles  # (k',) their weight
    n_iter: int
    stop_reason: str
    notes: tuple[str, ...]
    history: Doubles  # mean squared distance to the nearest centre, round by round


# The schedule.


def schedule(
    scope: Scope,
    setup: KMeansSetup,
    n_clusters: int,
    method: str = "lloyd",
    n_init: int = RESTARTS,
    max_iter: int = 100,
    coreset_size: int | None = None,
    refine: int = 0,
    candidates: tuple[int, int] | None = None,
    start: tuple[int, int] | None = None,
    leading: Sequence[int] = (),
    dim: int | None = None,
    squares: tuple[int] | None = None,
    searches: int = 0,
) -> Node:
    """A coreset; or seeds, then Lloyd's iterations. In the end everybody labels its points.

    Settled on the way: how many `coordinates` points have, `dim` or those of known points at most;
    how many `candidates` there are; and of how many `centres` they allow.
    """
    given_points = start or candidates
    most = given_points[1] if given_points else squares[0] if squares else dim
    sums = PointHolder.sum_groups if method == "groups" else PointHolder.sum_clusters

    def planned(parties: Parties) -> dict[str, int]:
        if most is None:
            raise InputError("dim is None; a plan needs the number of the points' coordinates")
        return {"coordinates": most}

    def after_seeding(coordinates: int, centres: int) -> Node:
        far = candidates is None and method == "lloyd"  # single points may leave
        how = (centres, coordinates, max_iter, sums)
        return sequence(
            *(_lloyd_rounds(n_init, *how, usual=0, leading=width) for width in leading),
            _lloyd_rounds(n_init + len(leading), *how, far=far, planned=n_init),
            _search_rounds(searches, *how),
            _labelling(*how),
        )

    def rest(coordinates: int) -> Node:
        if method in CORESETS:
            draws = default_draws(n_clusters) if coreset_size is None else coreset_size
            how = (coordinates, n_clusters, draws, n_init, refine)
            search = (searches, max_iter)
            return _coreset_rounds(*how, search, of_means=method == "means")
        if start is not None:
            return sequence(
                _lloyd_rounds(1, start[0], coordinates, max_iter, sums, far=method == "lloyd"),
                _labelling(start[0], coordinates, max_iter),
            )
        then = (growing(n_clusters, coordinates, sums, _n_grown(n_init, searches)), after_seeding)
        n_known = None if candidates is None else candidates[0]
        if squares is None or candidates is not None:
            return _seeding(scope, n_clusters, coordinates, n_known, *then)
        return sequence(
            total(sums, r=1, k=1, dim=coordinates),
            _seeding(scope, n_clusters, coordinates, SEEDS * n_clusters, *then),
        )

    return sequence(
        enlist(PointHolder, setup),
        ask(PointHolder.solve_locally, n_clusters=n_clusters)
        if method in CORESETS
        else ask(PointHolder.tell_size if given_points or squares else PointHolder.count_points),
        settle(
            planned,
            rest,
            lambda own, coordinates: most is None or coordinates <= most,
            coordinates=1,
        ),
    )


def _seeding(
    scope: Scope,
    k: int,
    dim: int,
    n_known: int | None,
    growth: Node,
    after: Callable[[int, int], Node],
) -> Node:
    """Candidates, unless there are `n_known`; their weights; `growth`; and what comes `after`."""
    batch, most_batches = BATCH * k, _most_batches(scope, k)

    def weighing(candidates: int) -> Node:
        return sequence(
            total(
                PointHolder.weigh_candidates,
                down={"n": candidates, "dim": dim},
                up={"m": candidates},
            ),
            growth,
            settle(
                lambda parties: {"centres": k},
                lambda centres: after(dim, centres),
                lambda own, centres: centres <= k,
                centres=k,
            ),
        )

    usual, most = (PASSES * batch, most_batches * batch) if n_known is None else (n_known, n_known)
    return sequence(
        _drawing(dim, batch, most_batches) if n_known is None else None,
        settle(
            lambda parties: {"candidates": usual},
            weighing,
            lambda own, candidates: candidates <= most,
            candidates=usual,
        ),
    )


def _drawing(dim: int, batch: int, most_batches: int) -> Node:
    """Batches of candidates; the last cost says that no point is left which is not among them."""
    draw = ask(
        PointHolder.draw_candidates,
        down={"n_points": at_most(batch)},
        up={"n": at_most(batch, planned=planned_share(batch)), "dim": dim},
        missable=True,
    )
    cost = ask(PointHolder.candidate_cost, n=at_most(batch), dim=dim)
    further = loop(most_batches - 1, cost, draw, usual=PASSES - 1)
    return sequence(draw, further, maybe(cost, planned=False))


def _most_batches(scope: Scope, k: int) -> int:
    """Each has a point that differs from all before, unless an older reply stood in for one."""
    stale = scope.max_age if scope.on_loss in ("reuse", "skip") else 0
    return max(PASSES, k) * (1 + stale)


def planned_share(count: int) -> Callable[[Own], int]:
    """In a plan, how many of `count` points are a party's: costs are taken to be as sizes."""

    def share(own: Own) -> int:
        assert own.parties is not None, "whose points are drawn is for plans"
        return _shares_by_rows(own.parties, count)[own.index]

    return share


@lru_cache(maxsize=16)
def _shares_by_rows(parties: Parties, count: int) -> list[int]:
    return shares(np.array([n for n, _ in parties.shapes], dtype=float), count)


def _lloyd_rounds(
    restarts: int,
    k: int,
    dim: int,
    max_iter: int,
    sums: Step,
    far: bool = False,
    usual: int = USUAL_ITERATIONS,
    planned: int | None = None,
    leading: int | None = None,
) -> Node:
    """Sums of all restarts in one round; `far` points are asked for by restart, if they may be.

    Centres may have the `leading` coordinates alone; the sums have all.
    """
    far_points = ask(
        PointHolder.farthest_points,
        down={"k": k, "dim": dim, "n_points": at_most(k)},
        up={"m": at_most(k), "dim": dim},
    )
    return loop(
        max_iter,
        total(
            sums,
            down={"dim": leading or dim},
            up={"dim": dim},
            r=at_most(restarts, planned),
            k=k,
        ),
        loop(restarts, far_points, usual=0) if far else None,
        fewest=min(usual, 1),
        usual=usual,
    )


def _search_rounds(
    searches: int, k: int, dim: int, max_iter: int, sums: Step, solutions: int = 1
) -> Node | None:
    """Lloyd to its end; then clusters in parts, joined ones on trial, and the best to its end."""
    if not searches:
        return None
    all_of_them, to_the_end = (
        _lloyd_rounds(restarts, k, dim, max_iter, sums, usual=USUAL_TRIAL)
        for restarts in (solutions, 1)
    )
    trial = _lloyd_rounds(1, k, dim, TRIAL_ROUNDS, sums, usual=USUAL_TRIAL)

    far = total(FAR_SUMS[sums], k=k, dim=dim)

    def one(parts: int) -> Node:
        split = times(SPLIT_ROUNDS, total(sums, r=1, k=(parts or 2) * k, dim=dim))
        begin = far if parts == FAR else None
        return sequence(begin, split, trial, maybe(to_the_end, planned=False))

    tries = parts_in_turn(searches, k, dim)
    in_turn = (maybe(one(parts), planned=n < patience(k, dim)) for n, parts in tries)
    return maybe(all_of_them, *in_turn)


def parts_in_turn(searches: int, k: int, dim: int) -> list[tuple[int, int]]:
    """Each search's number, and into how many parts it splits clusters."""
    return [(n, PARTS[n % len(PARTS)]) for n in range(searches * _as_many(k, dim))]


def patience(k: int, dim: int) -> int:
    """How many searches in a row may find nothing."""
    return PATIENCE * _as_many(k, dim)


def _as_many(k: int, dim: int) -> int:
    return TIMES_AS_MANY if dim <= FEW_COORDINATES and k > FEW_CLUSTERS else 1


def _coreset_rounds(
    dim: int,
    k: int,
    n_draws: int,
    n_init: int,
    refine: int,
    search: tuple[int, int],
    of_means: bool,
) -> Node:
    """A party with few points gives them all, or where they are means as many as it has."""
    share = planned_share(n_draws)
    has_sums = refine or search[0]

    def usual(own: Own) -> int:
        return min(own.rows // MIN_CLUSTER if of_means else own.rows, share(own) + k)

    drawing = ask(
        PointHolder.give_means if of_means else PointHolder.draw_coreset,
        down={"n_points": at_most(n_draws)},
        up={"m": at_most(n_draws + k, planned=usual), "dim": dim},
    )

    def rest(centres: int) -> Node:
        sums = total(PointHolder.sum_clusters, r=n_init, k=centres, dim=dim)
        searches, max_iter = search
        return sequence(
            times(refine, sums),
            _search_rounds(searches, centres, dim, max_iter, PointHolder.sum_clusters, n_init),
            _labelling(centres, dim, max_iter, PointHolder.sum_clusters if has_sums else None),
        )

    few_enough = settle(
        lambda parties: {"centres": k}, rest, lambda own, centres: centres <= k, centres=k
    )
    growth = growing(k, dim, PointHolder.sum_clusters, _n_grown(n_init, search[0]))
    return sequence(drawing, growth if has_sums else None, few_enough)


def _labelling(k: int, dim: int, max_iter: int, sums: Step | None = None) -> Node:
    """Twice, where clusters came out empty and `sums` find others in their place."""
    labels = total(PointHolder.assign, k=k, dim=dim)
    if sums is None:
        return labels
    fewer = at_most(k)
    others = loop(max_iter, total(sums, r=1, k=fewer, dim=dim), fewest=1, usual=1)
    again = sequence(others, total(PointHolder.assign, k=fewer, dim=dim))
    return sequence(labels, growing(k, dim, sums, 1), maybe(again, planned=False))


@protocol("distributed-kmeans", roles=(PointHolder,), skips=True, schedule=schedule)
def distributed_kmeans(
    fed: Federation,
    setup: KMeansSetup,
    n_clusters: int,
    *,
    method: str = "lloyd",
    n_init: int = RESTARTS,
    max_iter: int = 100,
    tol: float = 1e-4,
    coreset_size: int | None = None,
    refine: int = 0,
    candidates: Doubles | None = None,
    start: Doubles | None = None,
    leading: Sequence[int] = (),
    dim: int | None = None,
    squares: Doubles | None = None,
    searches: int = 0,
    enough: float = 0.0,
) -> KMeansResult:
    """k-means of the points that each site keeps under `setup.points`.

    `site.kept(setup.points)` has "points" (n_i, dim) and perhaps "weights" (n_i,); the labels are
    kept under `setup.labels` as {"labels": …}. Lloyd ends when the squared move of the centres is
    at most `tol` of the mean squared distance of a point to its centre. The `n_init` best solutions
    of a coreset are corrected by the means of all points `refine` times, and the best is taken.

    `candidates` (m, dim) that the coordinator knows take the place of k-means‖, so that no single
    point leaves its party; `start` (k, dim) that of all seeding. "groups", whose `setup` says so,
    takes candidates, or the mean `squares` (dim,) of uncorrelated coordinates: it then draws some
    of the normal law that has these and the points' mean. Where there are fewer different
    points than clusters, each is a cluster. Of points whose first coordinates matter most, Lloyd
    also starts from the clusters of the `leading` ones: few coordinates have few poor optima. Of
    at most `dim` coordinates, which the parties hold the run to, and plans count. Clusters are
    split and joined up to `searches` times, while that makes the cost less and it is above
    `enough`, a mean squared distance of points to their centres.
    """
    if method not in METHODS:
        raise InputError(f"method is {method!r}; one of {', '.join(METHODS)} is expected")
    fed.enlist(PointHolder, setup)
    how, search = (max_iter, tol), (searches, enough)
    rng = np.random.default_rng(np.random.SeedSequence(setup.seed, spawn_key=(n_clusters,)))
    if method in CORESETS:
        draws = default_draws(n_clusters) if coreset_size is None else coreset_size
        part = _coreset(fed, n_clusters, draws, method == "means")
        has_sums = bool(refine or searches)
        if not len(part.points):
            part = _origin(part.points.shape[1], has_sums)
        starts = weighted_kmeans(part, n_clusters, rng, n_init)
        if has_sums:
            starts = _enough(fed, starts, n_clusters, PointHolder.sum_clusters, searches, rng)
        fed.settle(centres=starts.shape[1])
        solutions, courses = _refined(fed, part, starts, refine)
        of_what = "means" if method == "means" else "points"
        reason = f"the coreset of {len(part.points)} {of_what} is clustered"
        first = LloydEnd(solutions[0], refine, reason, courses[0])
        end = _searched(fed, first, solutions, PointHolder.sum_clusters, how, search, rng)
        return _concluded(
            fed, end, n_clusters, PointHolder.sum_clusters if has_sums else None, how, rng
        )
    sums = PointHolder.sum_groups if method == "groups" else PointHolder.sum_clusters
    by_weight = candidates is None and start is None and squares is None
    counts = fed.ask(PointHolder.count_points if by_weight else PointHolder.tell_size)
    if by_weight:
        _require_weight(sum(count.weight for count in counts))
    fed.settle(coordinates=counts[0].dim)
    if start is not None:
        starts = np.array(start, dtype=np.float64)[None]
    else:
        if candidates is not None:
            points = candidates
        elif squares is not None:
            points = _drawn(fed, squares, SEEDS * n_clusters, rng)
        else:
            points = _candidates(fed, counts, n_clusters)
        fed.settle(candidates=len(points))
        weights = fed.total(PointHolder.weigh_candidates, Points(points)).sum.weights
        _require_weight(weights.sum(), method == "groups")
        seeds = WeightedPoints(points, weights)
        starts = weighted_kmeans(seeds, n_clusters, rng, n_init)
        starts = _enough(fed, starts, n_clusters, sums, searches, rng)
        fed.settle(centres=starts.shape[1])
        for width in leading:
            few = weighted_kmeans(seeds._replace(points=points[:, :width]), n_clusters, rng, n_init)
            starts = np.concatenate([starts, _lifted(fed, few, starts.shape, max_iter, tol)])
    refill = candidates is None and method == "lloyd"
    end = _lloyd(fed, starts, max_iter, tol, sums, refill=refill)
    end = _searched(fed, end, end.centres[None], sums, how, search, rng)
    return _concluded(fed, end, n_clusters, sums if start is None else None, how, rng)


def _enough(
    fed: Federation, starts: Doubles, k: int, sums: Step, searches: int, rng: np.random.Generator
) -> Doubles:
    """Starts (n_init, k', dim) of k centres, as far as points differ, from those of candidates.

    Where older sums may stand in for lost ones these must be of one size.
    """
    if starts.shape[1] >= k or fed.on_loss == "reuse":
        return starts
    n_init = len(starts)
    centres = grown(fed, starts[0], k, sums, _n_grown(n_init, searches), rng)
    return np.asarray(centres[np.arange(n_init) % len(centres)])


def _n_grown(n_init: int, searches: int) -> int:
    """Restarts that are begun apart where starts are few; searches better a single one."""
    return 1 if searches else n_init


def _drawn(fed: Federation, squares: Doubles, count: int, rng: np.random.Generator) -> Doubles:
    """Points of the normal law that has the moments of all points."""
    origin = Centres(np.zeros((1, 1, len(squares))))
    totals = fed.total(PointHolder.sum_groups, origin).sum
    _require_weight(float(totals.weights.sum()), of_groups=True)
    mean = totals.sums[0, 0] / totals.weights[0, 0]
    values, axes = np.linalg.eigh(np.diag(squares) - np.outer(mean, mean))
    normal = rng.normal(size=(count, len(squares)))
    points: Doubles = mean + (normal * np.sqrt(np.maximum(values, 0.0))) @ axes.T
    return points


def default_draws(n_clusters: int) -> int:
    """Draws of a coreset where no other number is asked for."""
    return max(LEAST_DRAWS, CORESET_DRAWS * n_clusters)


def _require_weight(weight: float, of_groups: bool = False) -> None:
    if not weight > 0:
        weightless = "the points weigh 0 in all; a positive weight is expected of some"
        raise InputError(no_groups("party") if of_groups else weightless)


def _concluded(
    fed: Federation,
    end: LloydEnd,
    n_clusters: int,
    sums: Step | None,
    how: tuple[int, float],
    rng: np.random.Generator,
) -> KMeansResult:
    """Every party labels its points; the sizes and the inertia are of who is still there.

    Where clusters came out empty, and `sums` may be asked for, others are found in their place.
    """
    total = _labelled(fed, end.centres)
    filled, n_centres = total.sizes > 0, len(end.centres)
    if sums is not None and not filled.all() and fed.on_loss != "reuse":
        centres = grown(fed, end.centres[filled], n_centres, sums, 1, rng)
        if centres.shape[1] > np.count_nonzero(filled):
            more = _lloyd(fed, centres, *how, sums, refill=False)
            course = np.concatenate([end.course, more.course])
            end = end._replace(centres=more.centres, n_iter=end.n_iter + more.n_iter, course=course)
            total = _labelled(fed, end.centres)
    sizes = (n_clusters, len(end.centres), int(np.count_nonzero(total.sizes)))
    looked = sums is not None and fed.on_loss != "reuse"
    notes = shortfall(*sizes, sums == PointHolder.sum_groups, looked)
    facts = (total.cost, total.sizes, total.weights, end.n_iter, end.reason, notes)
    return KMeansResult(end.centres, *facts, history=end.course)


def _labelled(fed: Federation, centres: Doubles) -> Any:
    totals = [fed.total(PointHolder.assign, FinalCentres(centres))]
    for _ in range(fed.max_age if fed.on_loss == "skip" else 0):  # who missed it is asked again
        missed = set(fed.parties).difference(*(total.parties for total in totals))
        if not missed:
            break
        with suppress(PartyLost):
            again = dict.fromkeys(sorted(missed), FinalCentres(centres))
            totals.append(fed.total(PointHolder.assign, each=again))
    return reduce(add, [part.sum for part in totals])


# Seeding: k-means‖.


def _candidates(fed: Federation, counts: Replies, k: int) -> Doubles:
    """Batches of points, each drawn by the distance to those before."""
    masses = {name: c.weight for name, c in zip(counts.parties, counts, strict=True)}
    batches = [_draw(fed, masses, BATCH * k)]
    while len(batches) < PASSES or _too_few(batches, k):
        new = NewCandidates(points=batches[-1], are_first=len(batches) == 1)
        replies = fed.ask(PointHolder.candidate_cost, new)
        masses = {name: r.cost for name, r in zip(replies.parties, replies, strict=True)}
        if not sum(masses.values()) > 0:
            break  # every different point is a candidate by now
        batches.append(_draw(fed, masses, BATCH * k))
    return np.vstack(batches)


def _too_few(batches: Sequence[Doubles], k: int) -> bool:
    candidates = np.vstack(batches)
    return len(distinct(WeightedPoints(candidates, np.ones(len(candidates)))).points) < k


def _draw(fed: Federation, masses: dict[str, float], count: int) -> Doubles:
    """A batch of candidates, shared out by the parties' masses; only those concerned are asked."""
    counts = zip(masses, shares(np.array(list(masses.values())), count), strict=True)
    each = {name: CandidateShare(n) for name, n in counts if n}
    return np.vstack([reply.points for reply in fed.ask(PointHolder.draw_candidates, each=each)])


# Lloyd.


def _lifted(
    fed: Federation, few: Doubles, shape: tuple[int, ...], max_iter: int, tol: float
) -> Doubles:
    """The clusters by the leading coordinates alone, as centres (1, k, dim) in all.

    None, where fewer points differ in these.
    """
    _, k, dim = shape
    if few.shape[1] < k:
        return np.zeros((0, k, dim))
    centres = np.zeros((len(few), k, dim))
    centres[:, :, : few.shape[2]] = few
    how = (max_iter, tol, PointHolder.sum_clusters, False, few.shape[2])
    return _lloyd(fed, centres, *how).centres[None]


class LloydEnd(NamedTuple):
    """Where Lloyd's iteration ended."""

    centres: Doubles
    n_iter: int
    reason: str
    course: Doubles  # mean squared distance of a point to its centre, before each round's move

    @property
    def cost(self) -> float:
        """Before the last move."""
        return float(self.course[-1])


def _lloyd(
    fed: Federation,
    centres: Doubles,
    max_iter: int,
    tol: float,
    sums: Step,
    refill: bool,
    leading: int | None = None,
) -> LloydEnd:
    """The best of all restarts; each is done when its centres stay, and is then left out.

    Nearest is meant by the `leading` coordinates, if not by all.
    """
    costs, n_iter = np.full(len(centres), np.inf), np.zeros(len(centres), dtype=int)
    moving, settled = np.arange(len(centres)), np.zeros(len(centres), dtype=bool)
    courses = []
    for _ in range(max_iter):
        before = np.ascontiguousarray(centres[moving][:, :, :leading])
        total = fed.total(sums, Centres(before)).sum
        filler = fed if refill else None
        pairs = zip(centres[moving], total.sums, total.weights, strict=True)
        means = np.stack([_moved(filler, *own) for own in pairs])
        shifts = np.square(means[:, :, :leading] - before).sum(axis=(1, 2))
        # A mean, since parties may miss a round: sums over different ones do not compare.
        spreads = total.costs / total.weights.sum(axis=1)
        centres[moving], costs[moving], settled[moving] = means, spreads, shifts <= tol * spreads
        n_iter[moving] += 1
        courses.append(costs.copy())
        if settled.all():
            break
        if fed.on_loss != "reuse":  # older sums stand in only where as many are asked for
            moving = np.flatnonzero(~settled)
    best = int(np.argmin(costs))
    stays = f"the centres moved by no more than {tol:g}" if tol else "the centres stayed"
    reason = stays if settled[best] else f"{max_iter} rounds were made"
    rounds = int(n_iter[best])
    return LloydEnd(centres[best], rounds, reason, np.array(courses)[:rounds, best])


def _moved(fed: Federation | None, centres: Doubles, sums: Doubles, weights: Doubles) -> Doubles:
    """The means; an empty cluster starts again at the point farthest from its centre, or stays."""
    empty = np.flatnonzero(weights <= 0)
    if len(empty) and fed is not None:
        replies = fed.ask(PointHolder.farthest_points, FarAsk(centres, len(empty)))
        sums, weights = _refilled(replies, sums.copy(), weights.copy(), empty)
    means = centres.copy()
    filled = weights > 0
    means[filled] = sums[filled] / weights[filled, None]
    return means


def _refilled(
    replies: Sequence[Any], sums: Doubles, weights: Doubles, empty: Any
) -> tuple[Doubles, Doubles]:
    far = [
        (-reply.squared[i], n, i, reply)
        for n, reply in enumerate(replies)
        for i in range(len(reply.squared))
        if reply.squared[i] > 0
    ]
    for cluster, (_, _, i, reply) in zip(empty, sorted(far, key=lambda f: f[:3]), strict=False):
        weight, summand = reply.weights[i], reply.weights[i] * reply.points[i]
        sums[reply.labels[i]] -= summand
        weights[reply.labels[i]] -= weight
        sums[cluster], weights[cluster] = summand, weight
    return sums, weights


# Splitting and joining.


def _searched(
    fed: Federation,
    before: LloydEnd,
    solutions: Doubles,
    sums: Step,
    how: tuple[int, float],
    search: tuple[int, float],
    rng: np.random.Generator,
) -> LloydEnd:
    """The best centres, with all rounds that they took; `how` ends Lloyd's iteration.

    `solutions` (r, k, dim) are there, the first being that of `before`, and the best as far as that
    is known. Where an older reply may stand in for a lost one all rounds must ask for as many sums
    as the first, and there is no search.
    """
    searches, enough = search
    if not searches or fed.on_loss == "reuse" or solutions.shape[1] < 2:
        return before
    best = _lloyd(fed, solutions.copy(), *how, sums, refill=False)
    courses, n_iter, in_vain = [before.course, best.course], before.n_iter + best.n_iter, 0
    size = solutions.shape[1:]
    for _, parts in parts_in_turn(searches, *size):
        if best.cost <= enough or in_vain == patience(*size):
            break
        start = _split_and_joined(fed, best, parts, sums, rng)
        trial = _lloyd(fed, start[None], TRIAL_ROUNDS, how[1], sums, refill=False)
        n_iter, in_vain = n_iter + SPLIT_ROUNDS + trial.n_iter, in_vain + 1
        if trial.cost < best.cost:
            end = _lloyd(fed, trial.centres[None].copy(), *how, sums, refill=False)
            in_vain = 0 if end.cost < (1 - LEAST_GAIN) * best.cost else in_vain
            courses += [trial.course, end.course]
            best, n_iter = end, n_iter + end.n_iter
    return best._replace(n_iter=n_iter, reason=before.reason, course=np.concatenate(courses))


def _split_and_joined(
    fed: Federation, best: LloydEnd, n_parts: int, sums: Step, rng: np.random.Generator
) -> Doubles:
    """Centres (k, dim) from what the clusters' parts come to."""
    if n_parts == FAR:
        parts = np.vstack([best.centres, _far_from(fed, best, sums)])
    else:
        parts = split_centres(best.centres, best.cost, n_parts, rng)
    for _ in range(SPLIT_ROUNDS):
        total = fed.total(sums, Centres(parts[None])).sum
        parts = _moved(None, parts, total.sums[0], total.weights[0])
    return other_grouping(WeightedPoints(parts, total.weights[0]), best.centres, rng)


def _far_from(fed: Federation, best: LloydEnd, sums: Step) -> Doubles:
    """Where points are far from their centres, one place (k, dim) a cluster."""
    far = fed.total(FAR_SUMS[sums], FarCentres(best.centres, best.cost)).sum
    return _moved(None, best.centres, far.sums, far.masses)


# Coresets.


def _coreset(fed: Federation, k: int, n_draws: int, of_means: bool) -> WeightedPoints:
    """Weighted points that stand for all."""
    local = fed.ask(PointHolder.solve_locally, LocalAsk(k))
    _require_weight(sum(reply.weight for reply in local))
    fed.settle(coordinates=local[0].dim)
    costs = np.array([reply.cost for reply in local])
    price = float(costs.sum()) / n_draws
    each = {
        name: CoresetAsk(n, price)
        for name, n in zip(local.parties, shares(costs, n_draws), strict=True)
    }
    parts = fed.ask(PointHolder.give_means if of_means else PointHolder.draw_coreset, each=each)
    points = np.vstack([part.points for part in parts])
    return WeightedPoints(points, np.concatenate([part.weights for part in parts]))


def _origin(dim: int, has_sums: bool) -> WeightedPoints:
    """Where no party has rows enough for a mean, to begin from the mean of all by their sums."""
    if not has_sums:
        raise InputError(
            f"no party has {MIN_CLUSTER} rows, of whose scores it could give a mean; join parties, "
            f"or pass kmeans='coreset', by which scores of single rows leave"
        )
    return WeightedPoints(np.zeros((1, dim)), np.ones(1))


def _refined(
    fed: Federation, part: WeightedPoints, starts: Doubles, times: int
) -> tuple[Doubles, Doubles]:
    """A coreset's solutions, best first, each moved by the means of all points `times` times.

    And what each cost before every move, (r, times).
    Between two such rounds the coreset, corrected by what they told, is iterated to the end. All
    solutions go through all rounds, so that the traffic is known beforehand.
    """
    courses = np.zeros((len(starts), times))
    for done in range(times):
        total = fed.total(PointHolder.sum_clusters, Centres(starts)).sum
        pairs = zip(starts, total.sums, total.weights, strict=True)
        means = np.stack([_moved(None, *own) for own in pairs])
        if len(part.points) > means.shape[1]:  # fewer say nothing of where the centres lead
            means = np.stack([corrected(part, *own) for own in zip(starts, means, strict=True)])
        starts = means
        courses[:, done] = total.costs / total.weights.sum(axis=1)
    order = np.argsort(courses[:, -1] if times else np.zeros(len(starts)), kind="stable")
    return np.asarray(starts[order]), courses[order]
