"""Starts of as many clusters as the points have, where fewer starting points differ.

What parties give to start from may be few: a party of nine rows has one mean of five, and landmarks
of a cosine kernel that lie in one direction have one score. Centres are then split in two, beside
where their points are, and moved by sums as in any step of Lloyd's, until there are as many as
clusters or no part has other points than the rest. It asks for what Lloyd's steps ask for.
"""

from __future__ import annotations

import numpy as np

from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.centroids import MIN_CLUSTER
from eigenmesh.numerics.kmeans import SAME, WeightedPoints, different_parts, split_centres
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.schedule import Node, at_most, loop, maybe, times, total
from eigenmesh.stages.kmeans_party import Centres

_STEPS = 2  # of Lloyd's, after centres are split
# Groups a cluster: of 90 drawn sets the inertia was more than 1.1 of the best in 58 % where there
# were 2 to 4, in 16 % where there were 5 to 10.
GROUPS_EACH = 5
_MASKED = "(a coordinator and secure=True), which may then be over single rows"
IN_VAIN = 3  # tries in a row that part no cluster, each in directions of its own


def growing(k: int, dim: int, sums: Step, restarts: int) -> Node:
    """The rounds of `grown`: none in a plan, since only the data tell whether starts are few.

    Of few tries in a row one gives a centre more, but for the last.
    """
    first = total(sums, r=1, k=at_most(k), dim=dim)
    steps = times(_STEPS, total(sums, r=restarts, k=at_most(2 * k), dim=dim))
    return maybe(first, loop(IN_VAIN * k, steps, usual=0), planned=False)


def grown(
    fed: Federation,
    start: Doubles,
    k: int,
    sums: Step,
    restarts: int,
    rng: np.random.Generator,
) -> Doubles:
    """As many as k centres from those of a `start` (m, dim) of fewer, (restarts, k', dim)."""
    parts, cost = _moved(fed, start[None], sums)
    cells = different_parts(parts[0], k)
    centres, in_vain = np.repeat(cells[None], restarts, axis=0), 0
    rounding = np.square(SAME * np.abs(cells).max())
    while len(centres[0]) < k and in_vain < IN_VAIN and cost > rounding:
        split = np.stack([split_centres(own, cost, 2, rng) for own in centres])
        for _ in range(_STEPS):
            parts, cost = _moved(fed, split, sums)
            split = np.stack([part.points for part in parts])
        candidates = [different_parts(part, k) for part in parts]
        most = max(map(len, candidates))
        if most <= len(centres[0]):
            in_vain += 1
            continue
        in_vain = 0
        # Where a draw has parted fewer, restarts go on from what others have parted.
        best = [own for own in candidates if len(own) == most]
        centres = np.stack([best[i % len(best)] for i in range(restarts)])
    return centres


def _moved(fed: Federation, centres: Doubles, sums: Step) -> tuple[list[WeightedPoints], float]:
    """Each restart's clusters, those without points where they were; what a point costs at most."""
    totals = fed.total(sums, Centres(centres)).sum
    weights, means = totals.weights, centres.copy()
    filled = weights > 0
    means[filled] = totals.sums[filled] / weights[filled][:, None]
    parts = [WeightedPoints(*own) for own in zip(means, weights, strict=True)]
    return parts, float((totals.costs / weights.sum(axis=1)).max())


def no_groups(holder: str) -> str:
    """What to say where sums are over groups and there are none."""
    return (
        f"no {holder} has rows enough for a group, {MIN_CLUSTER} that weigh something; join some, "
        f"or mask sums {_MASKED}"
    )


def few_groups(n_clusters: int, n_rows: int) -> tuple[str, ...]:
    """The caveat that groups of rows are too few to be told into clusters."""
    most = n_rows // MIN_CLUSTER
    if most >= GROUPS_EACH * n_clusters:
        return ()
    return (
        f"{n_rows} rows make at most {most} groups of {MIN_CLUSTER}, over which sums are, and of "
        f"fewer than {GROUPS_EACH} a cluster clusters may be far from the best, or empty; pass "
        f"n_clusters={max(most // GROUPS_EACH, 1)} or fewer, or mask sums {_MASKED}",
    )


def shortfall(
    n_clusters: int, n_starts: int, n_filled: int, of_groups: bool = False, looked: bool = True
) -> tuple[str, ...]:
    """What to say where there are fewer clusters than were asked for: why, and what would help.

    `looked` says whether others were looked for, in place of starts that are alike.
    """
    n = min(n_starts, n_filled)
    if n >= n_clusters:
        return ()
    wish, fewer = f"{n_clusters} clusters were asked for, {n} came out", f"n_clusters={n}"
    if not looked:
        why = "no more starting points differ, and none are looked for by a coreset that is not"
        return (f"{wish}: {why} refined, nor where older replies count (reuse); pass {fewer}",)
    if n_starts == n:
        whose = f"groups of rows, over which sums are, differ; mask sums {_MASKED}, or pass"
        whose = whose if of_groups else "rows differ, or no more of their components; pass"
        return (f"{wish}: no more {whose} {fewer}",)
    return (f"{wish}: the others are empty; pass {fewer}, or raise n_init",)
