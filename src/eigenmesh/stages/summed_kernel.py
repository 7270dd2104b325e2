"""Kernel PCA over column partitions by adding up what the kernel is a function of.

Squared distances, L1 distances and inner products of samples add over columns exactly. So every
party says once how far apart (or how alike) the samples are in its own columns; the centre adds,
applies the kernel, and has the kernel matrix of the pooled columns. Beyond papers 000 and 002: the
former multiplies kernel matrices of low rank, the latter averages eigenvectors of them.

===================  ============================================================================
party keeps          its columns X_j (T, m_j); its share: loadings, or the columns of all samples
                     or of the landmarks
party reveals        coordinates that keep its distances (or products): at most `local_rank`
                     numbers a sample, the norm of the rest the last of them; or in the bytes of so
                     many all coordinates, rounded, and how long each sample is; or all of them
                     (distances, gram), as coordinates or pair by pair, whichever is shorter
                     masked: its sizes, and pair by pair what only the sum of all parties is seen of
coordinator learns   the samples' distances (or products) in these columns, to that accuracy
                     masked: those in all parties' columns together, and nobody's own
===================  ============================================================================

With all of them the components are exact. With `local_rank`, the parts left out of two samples are
taken as orthogonal; the error that this can make is bounded sample by sample and reported. For more
samples than a (T, T) matrix can hold, every party sends the same of all samples with the same few,
drawn by a shared seed, and components are the best in the span of these.

Above the usual length: local coordinates, whole or in spread bits, distances and products are four
forms of one sum, of all samples or with a few, with one role and one end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from eigenmesh.errors import MessageRefused, TooManySamples
from eigenmesh.numerics.arrays import Doubles, Rows, squared_norms
from eigenmesh.numerics.column_fusion import Wanted
from eigenmesh.numerics.column_pieces import (
    ArgumentShare,
    Loadings,
    principal_coordinates,
    share_to_tree,
)
from eigenmesh.numerics.gamma_rules import moments_of
from eigenmesh.numerics.kernel_of_sums import (
    ArgumentFusion,
    LandmarkFusion,
    Piece,
    PieceRounding,
    full_matrix,
    n_pairs,
    rounded_shares,
    upper_triangle,
)
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.spread_bits import change_of_distances, spread_bits
from eigenmesh.runtime import column_form
from eigenmesh.runtime.column_form import MOST_BITS
from eigenmesh.runtime.compact import EXACT, is_exact
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Compact,
    Context,
    Floats,
    Integers,
    Message,
    NonEmpty,
    NonNegative,
    OwnColumns,
    OwnRows,
    Positive,
    Reveals,
    SameEverywhere,
    Shape,
    Wide,
)
from eigenmesh.runtime.party import Party, Step, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import (
    Node,
    Own,
    Scope,
    ask,
    at_most,
    enlist,
    rows,
    sequence,
    total,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.column_scores import (
    ColumnModel,
    ask_everyone,
    landmarks_of,
    require_samples,
)
from eigenmesh.stages.prepare import prepared_columns

Places = NDArray[np.int64]
KERNELS = ("poly", "rbf", "sigmoid", "laplacian", "cosine", "arc-cosine")
_MOST_SEARCHED = 2000
# How many times as much columns of one party vary as those of the others, before it is said.
OTHER_UNITS = 100.0
_RESOLVED = 1e-6  # of an eigenvalue: what rounding does below it is not told
_TOO_COARSE = 0.01  # of an eigenvalue: what it does above it is warned of
_DIGITS = 17  # of 62 bits, less those for the number of parties
BITS_A_NUMBER = 64
_COLUMN_BYTES = column_form.SCALE_BYTES + 2  # a column's scale and bits, and up to one to fill
_LENGTH_BITS = 8  # of squared lengths: 12 and 16 were hardly ever better on ten sets


def other_units(party: str, times: float) -> str:
    """What is said of a party whose columns vary so many times as much as the others'."""
    return (
        f"a column of {party!r} varies {times:,.0f} times as much as one of the others, on "
        f"average, so that it alone decides how far apart samples are; gamma=None, 1 / n_features, "
        f"is for columns of one scale: pass standardize=True"
    )


class ArgumentSetup(Message, reveals=None):
    """What the parties agree on; `model` is the name under which they keep their shares.

    A party sends all that there is if `local_rank` is None. Landmarks serve if there are more than
    `most_samples` samples.
    """

    kernel: str
    local_rank: Annotated[int | None, Positive]
    n_landmarks: Annotated[int, Positive]
    most_samples: Annotated[int, NonNegative]
    standardize: bool
    fill_missing: float | None
    model: str
    seed: int
    compares_units: bool = False  # whether an owner of louder columns is to hear of it, masked
    spread: bool = False  # whether all coordinates share the bits of `local_rank` numbers


class LocalCoordinates(Message, reveals="scores"):
    """Coordinates of the samples in a party's columns."""

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere, OwnRows]
    n_columns: Annotated[int, Reveals("counts"), OwnColumns]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    coordinates: Annotated[Floats, Shape("n_samples", "r"), NonEmpty]
    has_residual: bool  # whether the last coordinate is the norm of what the others leave out


class SpreadCoordinates(Message, reveals="columns"):
    """All coordinates of the samples that get any bits, and by how much squared lengths are off.

    The latter are the last column, unless all travel as they are. `changes` is how much squared
    distances are off, ‖D − D̂‖_F, at most.
    """

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere, OwnRows]
    n_columns: Annotated[int, Reveals("counts"), OwnColumns]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    bits: Annotated[Integers, Reveals("counts"), Shape("r")]
    coordinates: Annotated[Floats, Shape("n_samples", "r"), NonEmpty, Compact("bits")]
    changes: Annotated[float, NonNegative]
    new_width: Annotated[int, Reveals("counts")]

    def contradiction(self, context: Context) -> str | None:
        """What travels as it is changes nothing."""
        if is_exact(self.bits) and self.changes:
            return "all bits were sent, and distances are said to be off"
        return None


class AllDistances(Message, reveals="distances"):
    """Distances of all samples in a party's columns: from coordinates, by pairs, or to landmarks.

    `norms` are squared, and there only for products with landmarks. New samples will come in
    `new_width` numbers each.
    """

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere, OwnRows]
    n_columns: Annotated[int, Reveals("counts"), OwnColumns]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]
    coordinates: Annotated[Floats | None, Shape("n_samples", "r"), NonEmpty]
    pairs: Annotated[Floats | None, Shape("pairs")]
    to_landmarks: Annotated[Floats | None, Shape("n_samples", "q")]
    norms: Annotated[Floats | None, Shape("n_norms")]
    new_width: Annotated[int, Reveals("counts")]


class AllProducts(AllDistances, reveals="gram", covers=1):
    """Inner products of all samples in a party's columns, in the same forms."""


class SampleSizes(Message, reveals="counts"):
    """How many samples and columns a party has, where more is seen in sums only."""

    n_samples: Annotated[int, Reveals("counts"), SameEverywhere, OwnRows]
    n_columns: Annotated[int, Reveals("counts"), OwnColumns]
    sample_ids: Annotated[str, Reveals("hashes"), SameEverywhere]


class ArgumentSummand(Message, reveals="distances"):
    """What adds up over the columns: of all pairs of samples, or of all with the landmarks.

    `norms` are squared, and there only for products with landmarks.
    """

    arguments: Annotated[Floats, Shape("n_arguments"), NonEmpty]
    norms: Annotated[Floats, Shape("n_norms")]


class AngleSummand(ArgumentSummand, reveals="distances"):
    """The same of kernels of angles, in which small samples count as much as large ones."""

    arguments: Annotated[Floats, Shape("n_arguments"), NonEmpty, Wide]
    norms: Annotated[Floats, Shape("n_norms"), Wide]


class JointSpread(Message, reveals="moments"):
    """The sum of squares of all parties' centred columns, and how many these are."""

    n_columns: Annotated[int, Reveals("counts"), Positive]
    spread: Annotated[float, NonNegative]


class ArgumentHolder(Party):
    """Holds some columns of all samples."""

    Setup = ArgumentSetup

    def __init__(self, site: SiteView, setup: ArgumentSetup) -> None:
        super().__init__(site, setup)
        # Landmarks span no subspace that an indefinite kernel could be projected on.
        require_samples(site, kernel_matrix=setup.kernel == "sigmoid")
        if setup.spread:
            _require_all_pairs(site, setup)
        self.preparation, self.columns = prepared_columns(site, setup)

    @step
    def local_coordinates(self) -> LocalCoordinates:
        """The leading coordinates of the own columns; the loadings stay in the site's store."""
        X, agreed = self.columns, self.setup
        centre = Kernel(agreed.kernel, 1.0).of == "distance"
        coordinates, share = principal_coordinates(X, agreed.local_rank, agreed.seed, centre)
        # A new sample may lie outside the span of these; of a product that tells nothing.
        outside = centre and share.loadings.shape[1] < X.shape[1]
        self._keep(Loadings(share.mean, share.loadings, residual=outside))
        return LocalCoordinates(
            **self._about(), coordinates=coordinates, has_residual=share.residual
        )

    @step
    def spread_coordinates(self) -> SpreadCoordinates:
        """Coordinates of the own columns in the bits of `local_rank` numbers."""
        X, rank, seed = self.columns, self.setup.local_rank, self.setup.seed
        assert rank is not None, "without a rank there are no bits to share"
        if rank >= min(X.shape):
            coordinates, share = principal_coordinates(X, None, seed)
            loadings, bits, changes = share.loadings, np.full(coordinates.shape[1], EXACT), 0.0
        else:
            Z, share = principal_coordinates(X, min(BITS_A_NUMBER * rank, *X.shape), seed)
            coordinates, bits, changes = _in_few_bits(Z, share.residual, rank)
            loadings = share.loadings[:, bits[:-1] > 0]
        # A new sample may lie outside the span of what is sent of these.
        outside = loadings.shape[1] < X.shape[1]
        self._keep(Loadings(share.mean, loadings, residual=outside))
        return SpreadCoordinates(
            **self._about(),
            bits=bits[bits > 0].astype(np.uint8),
            coordinates=coordinates[:, bits > 0],
            changes=changes,
            new_width=loadings.shape[1] + outside,
        )

    @step
    def all_distances(self) -> AllDistances:
        """All distances; the loadings or the columns stay in the site's store."""
        return AllDistances(**self._about(), **self._everything())

    @step
    def all_products(self) -> AllProducts:
        """All inner products, likewise."""
        return AllProducts(**self._about(), **self._everything())

    @step
    def sample_sizes(self) -> SampleSizes:
        """Who is there, before sums are masked."""
        return SampleSizes(**self._about())

    @step
    def argument_summand(self) -> ArgumentSummand:
        """Distances or products, to be seen in the sum of all parties; the columns stay."""
        return ArgumentSummand(**self._summand())

    @step
    def angle_summand(self) -> AngleSummand:
        """Products, likewise."""
        return AngleSummand(**self._summand())

    def _summand(self) -> dict[str, Doubles]:
        X, kernel, agreed = self.columns, Kernel(self.setup.kernel, 1.0, degree=1), self.setup
        places = landmarks_of(agreed, X.shape[0])
        self._keep(ArgumentShare(X if places is None else X[places], agreed.kernel))
        if places is None:
            return {"arguments": upper_triangle(kernel, X), "norms": np.zeros(0)}
        arguments = np.asarray(kernel.summed.arguments(X, X[places]), np.float64)
        inner = kernel.summed.of == "inner"
        norms = np.asarray(squared_norms(X), np.float64) if inner else np.zeros(0)
        return {"arguments": arguments.ravel(), "norms": norms}

    @step(reusable=False)
    def compare_units(self, joint: JointSpread) -> None:
        """Remark to the own site that its columns vary far more than the others'."""
        m, others = self.columns.shape[1], joint.n_columns - self.columns.shape[1]
        own = moments_of(self.columns).deviation
        rest = max(joint.spread - own, np.finfo(float).tiny)
        times = own / m / (rest / max(others, 1))
        if others > 0 and times >= OTHER_UNITS:
            self.site.remark("units", other_units(self.site.name, times))

    def _about(self) -> dict[str, Any]:
        n, m = self.site.data.shape
        ids = self.site.sample_ids_hash
        return {"n_samples": int(n), "n_columns": int(m), "sample_ids": ids}

    def _everything(self) -> dict[str, Any]:
        """Whichever is shorter, coordinates or arguments, and how new samples will come."""
        X, kernel, agreed = self.columns, Kernel(self.setup.kernel, 1.0, degree=1), self.setup
        n = X.shape[0]
        places = landmarks_of(agreed, n)
        limit = n_pairs(kernel, n) / n if places is None else len(places)
        empty = dict.fromkeys(("coordinates", "pairs", "to_landmarks", "norms"))
        exact = _exact_coordinates(X, kernel, agreed.seed, limit)
        if exact is not None and exact[0].shape[1] < limit:
            coordinates, share = exact
            self._keep(share)
            width = coordinates.shape[1] + share.residual
            return {**empty, "coordinates": coordinates, "new_width": int(width)}
        Y = X if places is None else X[places]
        self._keep(ArgumentShare(Y, agreed.kernel))
        fields = {**empty, "new_width": int(Y.shape[0]) + (kernel.of == "cosine")}
        if places is None:
            return {**fields, "pairs": upper_triangle(kernel, X)}
        if kernel.summed.of == "inner":
            fields["norms"] = np.asarray(squared_norms(X), np.float64)
        return {**fields, "to_landmarks": np.asarray(kernel.summed.arguments(X, Y), np.float64)}

    def _keep(self, share: Loadings | ArgumentShare) -> None:
        own = type(share)(**{**vars(share), "preparation": self.preparation})
        self.site.keep(self.setup.model, share_to_tree(own), for_any=True)


def _require_all_pairs(site: SiteView, setup: ArgumentSetup) -> None:
    """Refuse more samples than a matrix of all pairs can hold: rounded ones span no subspace."""
    if landmarks_of(setup, site.data.shape[0]) is not None:
        raise TooManySamples(
            f"party {site.name!r} has {site.data.shape[0]} samples; coordinates share their bits "
            f"of {setup.most_samples} samples at most; fit a part of the samples, or send numbers "
            f"as they are",
            party=site.name,
        )


def _in_few_bits(
    Z: Doubles, has_residual: bool, rank: int
) -> tuple[Doubles, NDArray[np.int64], float]:
    """Coordinates in the bits of so many numbers a sample, their bits, and what that changes.

    Z may have the norm of what its columns leave out as a last one. A last column of what is given
    back is what the others lack of squared lengths.
    """
    n = len(Z)
    Z, rest = (Z[:, :-1], np.square(Z[:, -1])) if has_residual else (Z, np.zeros(n))
    column_cost = _COLUMN_BYTES * 8 / n
    budget = BITS_A_NUMBER * rank - _LENGTH_BITS - column_cost
    variances = np.asarray(np.square(Z).mean(axis=0), np.float64)
    bits = spread_bits(variances, budget, column_cost, MOST_BITS)
    Q, some = np.zeros_like(Z), bits > 0
    Q[:, some] = column_form.rounded(Z[:, some], bits[some])
    missing = np.asarray(squared_norms(Z) + rest - squared_norms(Q), np.float64)
    lengths = column_form.rounded(missing[:, None], np.array([_LENGTH_BITS]))
    changes = change_of_distances(Z, Q, missing - lengths[:, 0], float(rest.sum()))
    return np.hstack([Q, lengths]), np.append(bits, _LENGTH_BITS), changes


def _exact_coordinates(
    X: Rows, kernel: Kernel, seed: int, limit: float
) -> tuple[Doubles, Loadings] | None:
    """Coordinates that keep all that the kernel sees; there are none of L1 distances.

    A large matrix of more than `limit` columns is not searched for a lower rank.
    """
    too_large = X.shape[1] >= limit and min(X.shape) > _MOST_SEARCHED
    if kernel.of == "manhattan" or too_large:
        return None
    how = {"centre": kernel.of == "distance", "angles": kernel.of == "cosine"}
    coordinates, share = principal_coordinates(X, None, seed, **how)
    # A new sample may lie outside the span of these; its distances or length need what is left.
    outside = kernel.of != "inner" and coordinates.shape[1] < X.shape[1]
    return coordinates, Loadings(share.mean, share.loadings, residual=outside)


# The coordinator's side.


def schedule(scope: Scope, setup: ArgumentSetup) -> Node:
    """One message from each party, in the shortest form; a rank below the shape is shorter yet.

    Where sums are masked, sizes and a sum: no form is shorter than what adds up.
    """
    step = needed_step(setup)
    if is_masked(scope, setup):
        return _masked_schedule(setup)
    if setup.local_rank is not None:
        rank = setup.local_rank
        if setup.spread:
            most = at_most(lambda own: _most_spread(rank, own))
            return sequence(enlist(ArgumentHolder, setup), ask(step, n_samples=rows, r=most))
        sizes = ask(
            step,
            n_samples=rows,
            r=lambda own: min(rank, own.rows, own.columns),
            directions="r",
        )
        return sequence(enlist(ArgumentHolder, setup), sizes)

    kernel = Kernel(setup.kernel, 1.0, degree=1)

    def planned(name: str) -> Callable[[Own], int]:
        return lambda own: _planned_sizes(setup, own.rows, own.columns).get(name, 0)

    everything = ask(
        step,
        n_samples=rows,
        r=at_most(lambda own: min(own.rows, own.columns), planned("r")),
        pairs=at_most(lambda own: n_pairs(kernel, own.rows), planned("pairs")),
        q=at_most(setup.n_landmarks, planned("q")),
        n_norms=at_most(rows, planned("n_norms")),
        directions="r",
    )
    return sequence(enlist(ArgumentHolder, setup), everything)


def _most_spread(rank: int, own: Own) -> int:
    """Columns of coordinates that share the bits of so many numbers: each has one at least."""
    full = min(own.rows, own.columns)
    return full if rank >= full else min(full, BITS_A_NUMBER * rank) + 1


def is_masked(scope: Scope, setup: ArgumentSetup) -> bool:
    """Whether only the sum of all parties is seen; coordinates that are cut short do not add up."""
    return scope.secure and setup.local_rank is None


def _masked_schedule(setup: ArgumentSetup) -> Node:
    kernel = Kernel(setup.kernel, 1.0, degree=1)

    def arguments(own: Own) -> int:
        landmarks = _are_too_many(setup, own.rows)
        return own.rows * setup.n_landmarks if landmarks else n_pairs(kernel, own.rows)

    def norms(own: Own) -> int:
        inner = kernel.summed.of == "inner"
        return own.rows if inner and _are_too_many(setup, own.rows) else 0

    summand = total(_summand_step(kernel), n_arguments=arguments, n_norms=norms)
    return sequence(
        enlist(ArgumentHolder, setup),
        ask(ArgumentHolder.sample_sizes),
        summand,
        ask(ArgumentHolder.compare_units) if setup.compares_units else None,
    )


def _summand_step(kernel: Kernel) -> Step:
    step: Any = ArgumentHolder.argument_summand
    if kernel.of == "cosine":
        step = ArgumentHolder.angle_summand
    assert isinstance(step, Step)
    return step


def _are_too_many(setup: ArgumentSetup, n: int) -> bool:
    """Whether landmarks stand for so many samples."""
    return n > setup.most_samples and n > setup.n_landmarks


def _planned_sizes(setup: ArgumentSetup, n: int, m: int) -> dict[str, int]:
    """Of what a party with n samples of m columns sends, if they have full rank."""
    kernel = Kernel(setup.kernel, 1.0, degree=1).summed
    inner, q = kernel.of == "inner", setup.n_landmarks
    landmarks = _are_too_many(setup, n)
    limit = q if landmarks else n_pairs(kernel, n) / n
    rank = min(m, n if inner else n - 1)
    if kernel.of in ("inner", "distance") and rank < limit:
        return {"r": rank}
    return {"q": q, "n_norms": n * inner} if landmarks else {"pairs": n_pairs(kernel, n)}


def needed_step(setup: ArgumentSetup) -> Step:
    """What the parties are asked for."""
    step: Any = ArgumentHolder.local_coordinates
    if setup.spread:
        step = ArgumentHolder.spread_coordinates
    if setup.local_rank is None:
        inner = Kernel(setup.kernel, 1.0, degree=1).summed.of == "inner"
        step = ArgumentHolder.all_products if inner else ArgumentHolder.all_distances
    assert isinstance(step, Step)
    return step


@protocol("argument-fusion", roles=(ArgumentHolder,), schedule=schedule)
def argument_fusion(
    columns: Federation, setup: ArgumentSetup, kernel: Kernel, n_components: Wanted, center: bool
) -> ColumnModel:
    """Add the parties' arguments, apply the kernel, take the leading eigenvectors."""
    columns.enlist(ArgumentHolder, setup)
    if is_masked(columns.scope, setup):
        return _fused_sum(columns, setup, kernel, n_components, center)
    replies = ask_everyone(columns, needed_step(setup))
    n = replies[0].n_samples
    places = landmarks_of(setup, n)
    pieces = [_piece(reply, setup, kernel, places, name) for reply, name in _named(replies)]
    norms = None if places is None else _norms(replies, pieces)
    fusion = _fused(pieces, n, places, norms, kernel, n_components, center)
    return ColumnModel(
        fusion,
        name=setup.model,
        parties=replies.parties,
        widths=tuple(reply.n_columns for reply in replies),
        sent=tuple(_new_width(reply, setup, kernel) for reply in replies),
        n_samples=n,
        notes=fusion_notes(fusion),
        sampled=sampling_words(fusion, n),
        spreads=_spreads(pieces, n, kernel),
    )


def _fused(
    pieces: Sequence[Piece],
    n: int,
    places: Places | None,
    norms: Doubles | None,
    kernel: Kernel,
    n_components: Wanted,
    center: bool,
) -> ArgumentFusion | LandmarkFusion:
    if places is None or norms is None:
        return ArgumentFusion.fit(pieces, n, kernel, n_components, center)
    return LandmarkFusion.fit(pieces, places, norms, kernel, n_components, center)


def _fused_sum(
    columns: Federation, setup: ArgumentSetup, kernel: Kernel, n_components: Wanted, center: bool
) -> ColumnModel:
    """The same from a masked sum, which is one piece: whose columns it is of nobody can tell."""
    sizes = ask_everyone(columns, ArgumentHolder.sample_sizes)
    total_of = columns.total(_summand_step(kernel))
    sums, covered = total_of.sum, total_of.parties
    n, places = sizes[0].n_samples, landmarks_of(setup, sizes[0].n_samples)
    arguments = sums.arguments if places is None else sums.arguments.reshape(n, len(places))
    if kernel.summed.of != "inner":  # rounded in fixed point, two equal samples may be below 0
        arguments = np.maximum(arguments, 0.0)
    norms = sums.norms if len(sums.norms) else np.zeros(n)
    fused = (n, places, norms, kernel, n_components, center)
    fusion = _fused([Piece(arguments=arguments)], *fused)
    off = _rounding_of(fusion, arguments, places, norms, total_of.rounding("arguments"))
    if fusion.shortfalls is not None and off.max(initial=0.0) > _RESOLVED:
        fusion = replace(fusion, shortfalls=np.minimum(fusion.shortfalls + off, 1.0))
    n_new = n if places is None else len(places)
    widths = tuple(s.n_columns for s, name in _named(sizes) if name in covered)
    if setup.compares_units:
        spread = _spread(Piece(arguments=arguments), n)
        joint = JointSpread(n_columns=sum(widths), spread=spread)
        ask_everyone(columns, ArgumentHolder.compare_units, joint)
    return ColumnModel(
        fusion,
        name=setup.model,
        parties=covered,
        widths=widths,
        sent=(n_new + (kernel.of == "cosine"),) * len(covered),
        n_samples=n,
        notes=(*fusion_notes(fusion), *_rounding_words(off)),
        sampled=sampling_words(fusion, n),
        stop_reason="the masked sum of all parties is known",
        summed=True,
    )


def _rounding_of(
    fusion: ArgumentFusion | LandmarkFusion,
    arguments: Doubles,
    places: Places | None,
    norms: Doubles,
    deviation: float,
) -> Doubles:
    """By which share each eigenvalue may be off since arguments were rounded to be masked: (k,).

    Of landmarks by their own arguments, in which rounding shows more than in those of all samples.
    """
    kernel, components = fusion.kernel, fusion.components
    U, z, n = components.eigenvectors, components.eigenvalues, len(components.eigenvectors)
    if places is None:
        A = full_matrix(kernel, arguments, n)
        norms = np.diagonal(A)
    else:
        share = len(places) / n
        A, norms, U, z = arguments[places], norms[places], U[places] / np.sqrt(share), z * share
    return rounded_shares(kernel, A, norms, U, z, deviation)


def _rounding_words(off: Doubles) -> tuple[str, ...]:
    """That sums were too coarse for their smallest numbers, if they were."""
    if off.max(initial=0.0) <= _TOO_COARSE:
        return ()
    worst = int(off.argmax())
    return (
        f"masked sums have {_DIGITS} digits of their largest number, too few for samples that are "
        f"this much smaller or nearer to each other: eigenvalue {worst + 1} may be off by "
        f"{min(off[worst], 1.0):.1%}; standardize columns or leave out what dwarfs the rest, or "
        f"pass method='vfed-akpca', whose sums are not masked and tell columns up to rotation",
    )


def _named(replies: Replies) -> list[tuple[Any, str]]:
    return list(zip(replies, replies.parties, strict=True))


def _piece(
    reply: Any, setup: ArgumentSetup, kernel: Kernel, places: Places | None, party: str
) -> Piece:
    if setup.spread:
        C = reply.coordinates
        if is_exact(reply.bits):
            return Piece(C)
        half_steps = column_form.half_steps(C, reply.bits)[:-1]
        return Piece(C[:, :-1], rounding=PieceRounding(C[:, -1], half_steps, reply.changes))
    if setup.local_rank is not None:
        C = reply.coordinates
        return Piece(C[:, :-1], C[:, -1]) if reply.has_residual else Piece(C)
    if reply.coordinates is not None:
        return Piece(reply.coordinates)
    expected: tuple[int, ...] = (n_pairs(kernel, reply.n_samples),)
    arguments = reply.pairs
    if places is not None:
        arguments, expected = reply.to_landmarks, (reply.n_samples, len(places))
    _require_shape(arguments, expected, "arguments", party)
    if places is not None and kernel.summed.of == "inner":
        _require_shape(reply.norms, (reply.n_samples,), "norms", party)
    return Piece(arguments=arguments)


def _require_shape(array: Any, expected: tuple[int, ...], name: str, party: str) -> None:
    shape = None if array is None else array.shape
    if shape != expected:
        words = f"it sent {name} of shape {shape}; {expected} is expected"
        raise MessageRefused(words, party=party)


def _spreads(pieces: Sequence[Piece], n: int, kernel: Kernel) -> tuple[float, ...]:
    """Sums of squares of the parties' centred columns, from what they sent; for distances alone."""
    return tuple(_spread(piece, n) for piece in pieces) if kernel.of == "distance" else ()


def _spread(piece: Piece, n: int) -> float:
    if piece.coordinates is not None:
        return float(np.square(piece.coordinates).sum()) + float(piece.left_out(n).sum())
    A = np.asarray(piece.arguments)
    # Σ of all pairs is n times the spread; of samples with landmarks, on average twice a sample's.
    return float(A.sum()) / n if A.ndim == 1 else float(A.sum()) / (2 * A.shape[1])


def _norms(replies: Replies, pieces: Sequence[Piece]) -> Doubles:
    """Squared norms of all samples over all parties, as far as they were sent."""
    norms = np.zeros(replies[0].n_samples)
    for reply, piece in zip(replies, pieces, strict=True):
        if piece.coordinates is not None:
            norms += squared_norms(piece.coordinates)
            norms += 0.0 if piece.residuals is None else np.square(piece.residuals)
        elif reply.norms is not None:
            norms += reply.norms
    return norms


def _new_width(reply: Any, setup: ArgumentSetup, kernel: Kernel) -> int:
    """Numbers in which a new sample will come."""
    if setup.local_rank is None or setup.spread:
        return int(reply.new_width)
    own = int(reply.coordinates.shape[1] - reply.has_residual)
    return own + (kernel.of == "distance" and own < reply.n_columns)


def sampling_words(fusion: ArgumentFusion | LandmarkFusion, n_samples: int) -> tuple[str, ...]:
    """That some samples stand for all, where they do."""
    if not isinstance(fusion, LandmarkFusion):
        return ()
    left = fusion.error_bound / max(fusion.total, np.finfo(float).tiny)
    return (
        f"{n_samples:,} samples are too many for a matrix of all pairs: components are the best in "
        f"the span of {len(fusion.coefficients)} of them, which leaves out at most {left:.2%} of "
        f"the variance",
    )


def fusion_notes(fusion: ArgumentFusion | LandmarkFusion) -> tuple[str, ...]:
    """What must be said of the model: negative eigenvalues."""
    negative = int(np.count_nonzero(fusion.components.eigenvalues < 0))
    if not negative:
        return ()
    return (
        f"the {fusion.kernel.name} kernel is indefinite here: components are in order of |λ|, "
        f"and {negative} of them have a negative eigenvalue",
    )
