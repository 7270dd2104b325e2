"""Landmarks on their way: how many each party draws, to whom they are new, and in which rounds.

===================  ============================================================================
party reveals        how many rows it has, what its scores and distances add up to, and the rows,
                     or means of rows, that are drawn from it
coordinator learns   these; the landmarks go to all parties
===================  ============================================================================

`choose_landmarks` and `more_landmarks` serve every protocol with landmarks; the schedules of their
rounds stand before them.
Above the usual length for this reason: a draw, its schedule and what follows from its sizes are
read together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np

from eigenmesh.errors import InputError, PartitionError
from eigenmesh.methods.diskpca.leverage import LeverageMass, skew_of
from eigenmesh.numerics.allocation import allocate
from eigenmesh.numerics.arrays import Rows
from eigenmesh.numerics.centroids import MIN_CLUSTER
from eigenmesh.numerics.embeddings import embedded_width
from eigenmesh.numerics.mean_outside import SAMPLE_ROWS
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Message, NonNegative, Reveals
from eigenmesh.runtime.party import Step
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import (
    Node,
    Own,
    Parties,
    ask,
    at_most,
    by_rows,
    sequence,
    settle,
)
from eigenmesh.stages.row_messages import (
    KernelSetup,
    RowBlock,
    RowCount,
    by_party,
    pack,
    stack,
    unpack,
)
from eigenmesh.stages.unit_check import compare_units

LANDMARKS = ("diskpca", "uniform", "leverage", "rpcholesky", "centroids")
RPCHOLESKY_BLOCKS = 8  # more blocks are nearer to the sequential method, and cost rounds
_BY_LEVERAGE = ("diskpca", "leverage")
_MANY = 10**9  # rows, for which every step occurs that may


class LandmarkShare(Message, reveals=None):
    """How many rows a party is to draw."""

    n_rows: Annotated[int, NonNegative]


class NewLandmarks(RowBlock, reveals="rows"):
    """Landmarks of the other parties; `before` of them come before the receiver's own."""

    before: Annotated[int, Reveals("counts"), NonNegative]


class LandmarkSet(NamedTuple):
    """Landmarks, and what each party has not seen of them."""

    Y: Rows
    unseen: dict[str, NewLandmarks]
    skew: float | None
    n_values: int  # that shipping every row would take
    share: float  # of the rows, to be looked at from outside the span; 0 if all are landmarks
    sizes: dict[str, int]  # rows of each party
    most: dict[str, int]  # landmarks that each can give
    left: dict[str, int]  # how many more

    @property
    def unheard(self) -> tuple[str, ...]:
        """Parties that can give none."""
        return tuple(name for name, most in self.most.items() if not most)


# How many.


def most_landmarks(landmarks: str, n_rows: int) -> int:
    """How many landmarks a party can give: every row, or clusters that are large enough."""
    return n_rows // MIN_CLUSTER if landmarks == "centroids" else n_rows


def shares_of(landmarks: str, q: int, n: int) -> list[int]:
    """How many landmarks are drawn before the distances to their span are measured again."""
    if q == n:
        return [q]
    parts = min(q, {"diskpca": 2, "rpcholesky": RPCHOLESKY_BLOCKS}.get(landmarks, 1))
    return [q * (i + 1) // parts - q * i // parts for i in range(parts)]


def share_seen(q: int, n: int) -> float:
    """The share of n rows that is looked at from outside the span of q landmarks."""
    return min(1.0, SAMPLE_ROWS / n) if q < n else 0.0


# The schedule of the draws.


class Numbers(NamedTuple):
    """What is known once the first landmarks are drawn."""

    n: int  # rows in all
    d: int  # columns
    most: int  # landmarks that the parties can give
    q: int  # landmarks that they have given
    quota: int  # that they were to give
    last: int  # of the quota, in the last draw
    last_planned: int  # where a draw may be smaller, what a plan counts

    @property
    def is_every_row(self) -> bool:
        """Whether as many landmarks as rows were asked for, so that nothing is outside."""
        return self.quota >= self.n


def choosing(
    role: Any,
    setup: KernelSetup,
    n_landmarks: int,
    landmarks: str,
    leverage: Callable[[int], Node],
    rest: Callable[[Numbers], Node],
    is_counted: bool = False,
) -> Node:
    """The rounds of `choose_landmarks`, then `rest`; `leverage` has those of its namesake.

    With `is_counted` the coordinator knows by an earlier run how many rows there are.
    """

    def after_counts(n: int, d: int, most: int) -> Node:
        q = min(n_landmarks, most)
        shares = shares_of(landmarks, q, n)
        scores = _scores(role, setup, landmarks, leverage, d) if q < n else None
        draws: list[Node] = []
        for i, share in enumerate(shares):
            if i:
                draws.append(ask(role.residual_mass, **unseen_sizes(shares[i - 1], d)))
            draws.append(drawing(role, landmarks, share, d))
        last = shares[-1] if shares else 0
        drawn = settle(
            lambda parties: {"q": q},
            lambda q: rest(Numbers(n, d, most, q, min(n_landmarks, most), last, last)),
            lambda own, q: 0 <= q <= min(n_landmarks, most),
            q=q,
        )
        return sequence(scores, *draws, drawn)

    def planned(parties: Parties) -> dict[str, int]:
        most = sum(most_landmarks(landmarks, rows) for rows, _ in parties.shapes)
        return {"n": parties.n_rows, "d": parties.shapes[0][1], "most": most}

    def fits(own: Own, n: int, d: int, most: int) -> bool:
        own_most, all_most = most_landmarks(landmarks, own.rows), most_landmarks(landmarks, n)
        return n >= own.rows and d == own.columns and own_most <= most <= all_most

    many = max(_MANY, 100 * n_landmarks)
    most = most_landmarks(landmarks, many)
    sizes = settle(planned, after_counts, fits, n=many, d=100, most=most)
    return sizes if is_counted else sequence(ask(role.count_rows), sizes)


def _scores(
    role: Any, setup: KernelSetup, landmarks: str, leverage: Callable[[int], Node], d: int
) -> Node | None:
    """What the first landmarks are drawn by, if rows do not all count the same."""
    if landmarks in _BY_LEVERAGE:
        return leverage(embedded_width(setup.kernel, d, setup.embedding_dim))
    return ask(role.norm_mass) if landmarks == "rpcholesky" else None


def drawing(role: Any, landmarks: str, share: int, d: int, planned: int | None = None) -> Node:
    """One draw of `share` landmarks in all, or at most so many; a plan counts `planned`."""
    step = role.local_centroids if landmarks == "centroids" else role.draw_rows
    own_most = at_most(lambda own: min(share, most_landmarks(landmarks, own.rows)))
    count = share if planned is None else planned
    return ask(
        step,
        down={"n_rows": own_most},
        up={"n": at_most(share, by_rows(count)), "n_columns": d, "n_plus_1": at_most(share + 1)},
    )


def drawing_more(role: Any, landmarks: str, share: int, d: int, planned: int) -> Node:
    """The rounds of `more_landmarks`, with at most `share` new ones."""
    by_distance = landmarks not in ("uniform", "centroids")
    far = ask(role.residual_mass, **unseen_sizes(0, d)) if by_distance else None
    return sequence(far, drawing(role, landmarks, share, d, planned))


def unseen_sizes(share: int, d: int, planned: int | None = None) -> dict[str, Any]:
    """The sizes of `NewLandmarks` of one draw: to each what fell to the others."""
    count = share if planned is None else planned
    return {
        "down": {
            "n": at_most(share, lambda own: count - by_rows(count)(own)),
            "n_columns": d,
            "n_plus_1": at_most(share + 1),
            "before": at_most(share),
        }
    }


# The coordinator's side.


Leverage = Callable[[Federation], dict[str, LeverageMass]]


def choose_landmarks(
    rows: Federation,
    role: Any,
    setup: KernelSetup,
    n_landmarks: int,
    landmarks: str,
    leverage: Leverage,
    known: Replies | None = None,
) -> LandmarkSet:
    """Steps 1 and 2 of Algorithm 1, with `leverage` as disLS.

    `known` are the parties' sizes, if they have told them; who has left since does not count.
    """
    counts = by_party(rows.ask(role.count_rows) if known is None else known)
    sizes: dict[str, RowCount] = {name: counts[name] for name in counts if name in rows.parties}
    n = sum(size.n_rows for size in sizes.values())
    most = {name: most_landmarks(landmarks, size.n_rows) for name, size in sizes.items()}
    left, q = most, min(n_landmarks, sum(most.values()))
    draw = role.local_centroids if landmarks == "centroids" else role.draw_rows
    rng = np.random.default_rng(setup.seed)

    if not q:
        raise PartitionError(
            f"every party has fewer than {MIN_CLUSTER} rows, the fewest that a mean may stand for; "
            f"join some parties, or pass landmarks='uniform' or 'diskpca' if rows may leave"
        )
    rows.settle(n=n, d=next(iter(sizes.values())).n_columns, most=sum(most.values()))

    # 1. Leverage scores of the embedded rows; without them, each row counts the same.
    masses, skew = {name: float(size.n_rows) for name, size in sizes.items()}, None
    if q < n and landmarks in _BY_LEVERAGE:
        scores = leverage(rows)
        masses, skew = masses_of(scores, left), skew_of(scores, n)
    elif q < n and landmarks == "rpcholesky":
        masses = masses_of(by_party(rows.ask(role.norm_mass)), left)

    # 2. Landmarks, in one or more shares: after the first, by distance to the span so far.
    Y: list[Rows] = []
    fresh: dict[str, Rows] = {}
    for share in shares_of(landmarks, q, n):
        if fresh:
            far = rows.ask(role.residual_mass, each=new_to_each(fresh))
            masses = masses_of(by_party(far), left)
        fresh = draw_from(rows, draw, masses, left, share, rng)
        left = {name: left[name] - part.shape[0] for name, part in fresh.items()}
        Y.extend(fresh.values())
    landmark_rows = stack(Y)
    rows.settle(q=landmark_rows.shape[0])
    n_values = sum(size.n_values for size in sizes.values())
    n_rows = {name: size.n_rows for name, size in sizes.items()}
    seen = share_seen(q, n)
    return LandmarkSet(landmark_rows, new_to_each(fresh), skew, n_values, seen, n_rows, most, left)


def more_landmarks(
    rows: Federation, role: Any, setup: KernelSetup, landmarks: str
) -> Callable[[LandmarkSet, int], LandmarkSet]:
    """What draws more of the same kind, up to a number in all: centroids anew, else more rows."""

    def draw_more(before: LandmarkSet, count: int) -> LandmarkSet:
        rng = np.random.default_rng((setup.seed, count))
        Y, left, draw = [before.Y], before.left, role.draw_rows
        if landmarks == "centroids":
            Y, left, draw = [], before.most, role.local_centroids
        masses = {name: float(size) for name, size in before.sizes.items() if name in left}
        if landmarks not in ("uniform", "centroids"):
            nothing = NewLandmarks(**pack(before.Y[:0]), before=0)
            masses = masses_of(by_party(rows.ask(role.residual_mass, nothing)), left)
        fresh = draw_from(rows, draw, masses, left, count - sum(y.shape[0] for y in Y), rng)
        drawn = {name: part.shape[0] for name, part in fresh.items()}
        return before._replace(
            Y=stack([*Y, *fresh.values()]),
            unseen=new_to_each(fresh),
            share=share_seen(count, sum(before.sizes.values())),
            left={name: left[name] - own for name, own in drawn.items()},
        )

    return draw_more


def masses_of(replies: Mapping[str, Any], known: Collection[str]) -> dict[str, float]:
    """By party, the mass that it said; a party that missed an earlier round stays out."""
    return {name: reply.mass for name, reply in replies.items() if name in known}


def draw_from(
    rows: Federation,
    draw: Step,
    masses: Mapping[str, float],
    left: Mapping[str, int],
    count: int,
    rng: np.random.Generator,
) -> dict[str, Rows]:
    """Rows from the parties in proportion to their masses, at most as many as each has left."""
    counts = allocate(list(masses.values()), [left[name] for name in masses], count, rng)
    requests = {name: LandmarkShare(n_rows=k) for name, k in zip(masses, counts, strict=True)}
    fresh = {name: unpack(r) for name, r in by_party(rows.ask(draw, each=requests)).items()}
    compare_units(rows, fresh, means=draw.name == "local_centroids")
    return fresh


def new_to_each(fresh: Mapping[str, Rows]) -> dict[str, NewLandmarks]:
    """To each party what the others drew; it holds its own."""
    drawn = stack(list(fresh.values()))
    all_of_them = NewLandmarks(**pack(drawn), before=0)  # one for all who drew none: they are many
    messages, before = {}, 0
    for name, own in fresh.items():
        after = before + own.shape[0]
        if after == before:
            messages[name] = all_of_them
        else:
            others = stack([drawn[:before], drawn[after:]])
            messages[name] = NewLandmarks(**pack(others), before=before)
        before = after
    return messages


def require_fresh_replies(rows: Federation) -> None:
    """For protocols with steps of their own that an old reply could stand in for."""
    if rows.on_loss == "reuse":
        raise InputError(
            "on_loss is 'reuse'; 'raise' or 'survivors' is expected: an old draw in place of a "
            "lost one would leave the parties with different landmarks, whose sums do not add up"
        )
