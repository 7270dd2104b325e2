"""k-means of points that stay at their parties: exact distributed Lloyd, or a coreset.

"lloyd": Lloyd's iteration from k-means‖ seeds, Bahmani, Moseley, Vattani, Kumar and Vassilvitskii,
"Scalable K-Means++", VLDB 2012. "coreset": Balcan, Ehrlich and Liang, "Distributed k-means and
k-median clustering on general topologies", NeurIPS 2013.

===================  ============================================================================
party keeps          its points (n_i, dim) and their labels
party reveals        "lloyd": the candidates drawn from it (scores), the number (counts) and sum
                     (moments) of its points in each cluster, round by round; a party with a single
                     point in a cluster so reveals that point
                     "coreset": its part of the coreset (scores), once
coordinator learns   these, and the centres
===================  ============================================================================

Readings: of k-means‖, the first batch is drawn by weight and every later one has exactly 2k points,
shared out by the parties' costs, so that the traffic is known beforehand; all restarts of Lloyd
run in the same rounds. Of coresets: draws that outweigh their cluster are scaled down, since a
centre cannot have a negative weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from eigenmesh.errors import InputError, PartyLost
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.coresets import settle
from eigenmesh.numerics.kmeans import WeightedPoints, distinct, shares, weighted_kmeans
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Entry, Ledger, forecast_entry, forecast_message
from eigenmesh.runtime.message import add
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Replies
from eigenmesh.stages.kmeans_party import (
    CandidateShare,
    Centres,
    CoresetAsk,
    FarAsk,
    FinalCentres,
    KMeansSetup,
    LocalAsk,
    NewCandidates,
    PointHolder,
    Points,
)

METHODS = ("lloyd", "coreset")
PASSES = 5  # batches of candidates; Bahmani et al. find no gain from more
BATCH = 2  # candidates in a batch, times the number of clusters
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
    notes: tuple[str, ...] = ()


SEEDING = ("k-means||", "candidates", "start")


def steps_for(method: str, seeding: str = "k-means||", refine: int = 0) -> list[Step]:
    """The steps that a method asks for.

    `seeding` is "k-means||", or "candidates" or "start" where these are given.
    """
    if method == "coreset":
        refining = [PointHolder.sum_clusters] if refine else []
        drawing = [PointHolder.solve_locally, PointHolder.draw_coreset]
        return [*drawing, *refining, PointHolder.assign]
    lloyd = [PointHolder.count_points, PointHolder.sum_clusters, PointHolder.assign]
    further = {
        "k-means||": [
            PointHolder.draw_candidates,
            PointHolder.candidate_cost,
            PointHolder.weigh_candidates,
            PointHolder.farthest_points,
        ],
        "candidates": [PointHolder.weigh_candidates],
        "start": [PointHolder.farthest_points],
    }
    return [*lloyd, *further[seeding]]


@protocol("distributed-kmeans", roles=(PointHolder,), skips=True)
def distributed_kmeans(
    fed: Federation,
    setup: KMeansSetup,
    n_clusters: int,
    *,
    method: str = "lloyd",
    n_init: int = 4,
    max_iter: int = 100,
    tol: float = 1e-4,
    coreset_size: int | None = None,
    refine: int = 0,
    candidates: Doubles | None = None,
    start: Doubles | None = None,
    leading: Sequence[int] = (),
) -> KMeansResult:
    """k-means of the points that each site keeps under `setup.points`.

    `site.kept(setup.points)` has "points" (n_i, dim) and perhaps "weights" (n_i,); the labels are
    kept under `setup.labels` as {"labels": …}. Lloyd ends when the squared move of the centres is
    at most `tol` of the mean squared distance of a point to its centre. The `n_init` best solutions
    of a coreset are corrected by the means of all points `refine` times, and the best is taken.

    `candidates` (m, dim) that the coordinator knows take the place of k-means‖, so that no single
    point leaves its party; `start` (k, dim) that of all seeding. Where there are fewer different
    points than clusters, each is a cluster. Of points whose first coordinates matter most, Lloyd
    also starts from the clusters of the `leading` ones: few coordinates have few poor optima.
    """
    if method not in METHODS:
        raise InputError(f"method is {method!r}; one of {', '.join(METHODS)} is expected")
    given = (candidates is not None, start is not None)
    seeding = SEEDING[1] if given[0] else SEEDING[2] if given[1] else SEEDING[0]
    fed.enlist(PointHolder, setup, steps_for(method, seeding, refine))
    rng = np.random.default_rng(np.random.SeedSequence(setup.seed, spawn_key=(n_clusters,)))
    if method == "coreset":
        draws = default_draws(n_clusters) if coreset_size is None else coreset_size
        part = _coreset(fed, n_clusters, draws)
        starts = weighted_kmeans(part, n_clusters, rng, n_init)
        centres = _refined(fed, part, starts, refine)
        reason = f"the coreset of {len(part.points)} points is clustered"
        return _concluded(fed, centres, n_clusters, refine, reason)
    counts = fed.ask(PointHolder.count_points)
    _require_weight(counts)
    if start is not None:
        starts = np.array(start, dtype=np.float64)[None]
    else:
        if candidates is None:
            candidates = _candidates(fed, counts, n_clusters)
        weights = fed.total(PointHolder.weigh_candidates, Points(candidates)).sum.weights
        seeds = WeightedPoints(candidates, weights)
        starts = weighted_kmeans(seeds, n_clusters, rng, n_init)
        for width in leading:
            few = weighted_kmeans(
                seeds._replace(points=candidates[:, :width]), n_clusters, rng, n_init
            )
            starts = np.concatenate([starts, _lifted(fed, few, starts.shape, max_iter, tol)])
    refill = PointHolder.farthest_points in steps_for(method, seeding)
    centres, n_iter, reason = _lloyd(fed, starts, max_iter, tol, refill)
    return _concluded(fed, centres, n_clusters, n_iter, reason)


def default_draws(n_clusters: int) -> int:
    """Draws of a coreset where no other number is asked for."""
    return max(LEAST_DRAWS, CORESET_DRAWS * n_clusters)


def _require_weight(counts: Sequence[Any]) -> None:
    if not sum(count.weight for count in counts) > 0:
        raise InputError("the points weigh 0 in all; a positive weight is expected of some")


def _concluded(
    fed: Federation, centres: Doubles, n_clusters: int, n_iter: int, reason: str
) -> KMeansResult:
    """Every party labels its points; the sizes and the inertia are of who is still there."""
    found = [fed.total(PointHolder.assign, FinalCentres(centres))]
    for _ in range(fed.max_age if fed.on_loss == "skip" else 0):  # who missed it is asked again
        missed = set(fed.parties).difference(*(total.parties for total in found))
        if not missed:
            break
        with suppress(PartyLost):
            again = dict.fromkeys(sorted(missed), FinalCentres(centres))
            found.append(fed.total(PointHolder.assign, each=again))
    total = reduce(add, [part.sum for part in found])
    notes = shortfall(n_clusters, len(centres), int(np.count_nonzero(total.sizes)))
    return KMeansResult(centres, total.cost, total.sizes, total.weights, n_iter, reason, notes)


def shortfall(asked: int, found: int, filled: int) -> tuple[str, ...]:
    """What to say where there are fewer clusters than were asked for."""
    if found < asked:
        return (f"{asked} clusters were asked for, but only {found} starting points differ",)
    if filled < asked:
        return (f"{asked} clusters were asked for, but {asked - filled} of them came out empty",)
    return ()


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
    given = shares(np.array(list(masses.values())), count)
    asked = {name: CandidateShare(n) for name, n in zip(masses, given, strict=True) if n}
    return np.vstack([reply.points for reply in fed.ask(PointHolder.draw_candidates, each=asked)])


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
    return _lloyd(fed, centres, max_iter, tol, False, few.shape[2])[0][None]


def _lloyd(
    fed: Federation,
    centres: Doubles,
    max_iter: int,
    tol: float,
    refill: bool,
    leading: int | None = None,
) -> tuple[Doubles, int, str]:
    """The best of all restarts; each is done when its centres stay, and is then left out.

    Nearest is meant by the `leading` coordinates, if not by all.
    """
    costs, n_iter = np.full(len(centres), np.inf), np.zeros(len(centres), dtype=int)
    moving, stayed = np.arange(len(centres)), np.zeros(len(centres), dtype=bool)
    for _ in range(max_iter):
        seen = np.ascontiguousarray(centres[moving][:, :, :leading])
        found = fed.total(PointHolder.sum_clusters, Centres(seen)).sum
        filler = fed if refill else None
        pairs = zip(centres[moving], found.sums, found.weights, strict=True)
        moved = np.stack([_moved(filler, *own) for own in pairs])
        shifts = np.square(moved[:, :, :leading] - seen).sum(axis=(1, 2))
        # A mean, since parties may miss a round: sums over different ones do not compare.
        spreads = found.costs / found.weights.sum(axis=1)
        centres[moving], costs[moving], stayed[moving] = moved, spreads, shifts <= tol * spreads
        n_iter[moving] += 1
        if stayed.all():
            break
        if fed.on_loss != "reuse":  # older sums stand in only where as many are asked for
            moving = np.flatnonzero(~stayed)
    best = int(np.argmin(costs))
    stays = f"the centres moved by no more than {tol:g}" if tol else "the centres stayed"
    reason = stays if stayed[best] else f"{max_iter} rounds were made"
    return centres[best], int(n_iter[best]), reason


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
        weight, moved = reply.weights[i], reply.weights[i] * reply.points[i]
        sums[reply.labels[i]] -= moved
        weights[reply.labels[i]] -= weight
        sums[cluster], weights[cluster] = moved, weight
    return sums, weights


# Coresets.


def _coreset(fed: Federation, k: int, n_draws: int) -> WeightedPoints:
    """Weighted points that stand for all."""
    local = fed.ask(PointHolder.solve_locally, LocalAsk(k))
    _require_weight(local)
    costs = np.array([reply.cost for reply in local])
    price = float(costs.sum()) / n_draws
    asked = {
        name: CoresetAsk(n, price)
        for name, n in zip(local.parties, shares(costs, n_draws), strict=True)
    }
    parts = fed.ask(PointHolder.draw_coreset, each=asked)
    points = np.vstack([part.points for part in parts])
    return WeightedPoints(points, np.concatenate([part.weights for part in parts]))


def _refined(fed: Federation, part: WeightedPoints, starts: Doubles, times: int) -> Doubles:
    """The best of a coreset's solutions, each moved by the means of all points `times` times.

    Between two such rounds the coreset, corrected by what they told, is iterated to the end. All
    solutions go through all rounds, so that the traffic is known beforehand.
    """
    best = 0
    for _ in range(times):
        found = fed.total(PointHolder.sum_clusters, Centres(starts)).sum
        pairs = zip(starts, found.sums, found.weights, strict=True)
        means = np.stack([_moved(None, *own) for own in pairs])
        starts = np.stack([settle(part, *own) for own in zip(starts, means, strict=True)])
        best = int(np.argmin(found.costs))
    settled: Doubles = starts[best]
    return settled


# What it will cost.


def forecast(
    names: Sequence[str],
    sizes: Sequence[int],
    dim: int,
    n_clusters: int,
    *,
    method: str = "lloyd",
    n_init: int = 4,
    n_iter: int = 20,
    coreset_size: int | None = None,
    refine: int = 0,
) -> Ledger:
    """The ledger of a run over parties with so many points.

    Lloyd: if every restart takes `n_iter` rounds, which only the data decide, and no cluster runs
    empty. Whose points are drawn is decided by their distances; here it goes by the parties' sizes.
    """
    if method == "coreset":
        draws = default_draws(n_clusters) if coreset_size is None else coreset_size
        ledger = _coreset_forecast(names, sizes, dim, n_clusters, draws)
        ledger.rounds += refine
        for name in names if refine else ():
            ledger.entries += _lloyd_entries(name, n_clusters, dim, n_init, refine)
        return ledger
    k, batch = n_clusters, BATCH * n_clusters
    drawn = dict(zip(names, shares(np.array(sizes, dtype=float), batch), strict=True))
    ledger = Ledger(rounds=2 * PASSES + 1 + n_iter + 1)
    for name in names:
        ledger.entries.append(forecast_entry(PointHolder.count_points, name, 0))
        ledger.entries += [
            forecast_entry(PointHolder.draw_candidates, name, PASSES * drawn[name] * dim),
            forecast_message(PointHolder.candidate_cost, name, (PASSES - 1) * batch * dim),
            forecast_entry(PointHolder.candidate_cost, name, 0),
            forecast_message(PointHolder.weigh_candidates, name, PASSES * batch * dim),
            forecast_entry(PointHolder.weigh_candidates, name, PASSES * batch),
            *_lloyd_entries(name, k, dim, n_init, n_iter),
            forecast_message(PointHolder.assign, name, k * dim),
            forecast_entry(PointHolder.assign, name, k),
        ]
    return ledger


def _lloyd_entries(name: str, k: int, dim: int, n_init: int, n_iter: int) -> list[Entry]:
    times = n_iter * n_init
    return [
        forecast_message(PointHolder.sum_clusters, name, times * k * dim),
        forecast_entry(PointHolder.sum_clusters, name, times * (k * dim + k + 1)),
    ]


def _coreset_forecast(
    names: Sequence[str], sizes: Sequence[int], dim: int, k: int, n_draws: int
) -> Ledger:
    """Costs are taken to be in proportion to sizes; a party with few points gives them all."""
    ledger = Ledger(rounds=3)
    drawn = shares(np.array(sizes, dtype=float), n_draws)
    for name, size, draws in zip(names, sizes, drawn, strict=True):
        given = min(size, draws + min(k, size))
        ledger.entries += [
            forecast_entry(PointHolder.solve_locally, name, 0),
            forecast_entry(PointHolder.draw_coreset, name, given * (dim + 1)),
            forecast_message(PointHolder.assign, name, k * dim),
            forecast_entry(PointHolder.assign, name, k),
        ]
    return ledger
