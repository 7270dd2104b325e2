"""What rows add up to in folds that their sites draw: all that cross-validation needs of them.

===================  ============================================================================
party keeps          its rows and targets, and which row is in which fold
party reveals        what it reveals in disKPCA for landmarks, and sums of kernel values with them
                     over each of its folds (gram, moments), with the targets where there are any
coordinator learns   these; from all folds but one it fits, and the one that is left is the test
===================  ============================================================================

A fold is made of parcels of at least as many rows as the site's policy lets a sum be over. Parcels
are drawn by the site's key, for any number of folds the same: no seed, and no series of studies
with other numbers of folds, gives sums over fewer rows by their differences.

Letters: Y landmarks, |Y| = q; B (q, r) with BᵀK(Y, Y)B = I; c the column means of K(Y, Y).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigenmesh.cross_validation.candidates import Comparison, FoldScores, scores_of_folds
from eigenmesh.errors import InputError
from eigenmesh.methods.diskpca.drawn import SummedRows
from eigenmesh.methods.diskpca.landmark_fits import Numbers
from eigenmesh.methods.diskpca.protocol import (
    NewLandmarks,
    RowHolder,
    choose_landmarks,
    choosing,
    gram_rounds,
    landmarks_of_fit,
    leverage_by_gram,
    require_fresh_replies,
)
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup
from eigenmesh.numerics.arrays import Doubles, Rows, as_rows, blocks
from eigenmesh.numerics.fold_sums import FoldTotals
from eigenmesh.numerics.landmark_sums import Span, full, landmark_sums, upper
from eigenmesh.numerics.plausible import is_gram
from eigenmesh.regression.component_ridge import LOOKED_AT, targets_of
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Context,
    Floats,
    Integers,
    Message,
    NonNegative,
    OwnRows,
    Positive,
    Reveals,
    Shape,
    no_more_than,
)
from eigenmesh.runtime.party import Worth, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Node, Scope, enlist, sequence, total
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_messages import NOT_A_GRAM, kernel_of, wrong_trace
from eigenmesh.threads import one_blas_thread

MOST_FOLDS = 50


# Messages.


class FoldSetup(LandmarkSetup, reveals=None):
    """How many folds; and under which key a site keeps its rows' targets, empty without any."""

    n_folds: Annotated[int, Positive, no_more_than(MOST_FOLDS)] = 5
    targets: str = ""


class FoldLandmarks(NewLandmarks, reveals="rows"):
    """The last of the landmarks, and the targets' mean, of no target where there is none."""

    centre: Annotated[Floats, Reveals("moments"), Shape("m")]


class FoldSums(Message, reveals="gram", covers="fewest"):
    """`numerics.fold_sums.FoldTotals`; zeros for a fold in which a party has no rows."""

    upper: Annotated[Floats, Shape("f", "q*(q+1)//2")]
    sums: Annotated[Floats, Shape("f", "q")]
    n_rows: Annotated[Integers, Reveals("counts"), Shape("f"), NonNegative]
    traces: Annotated[Floats, Reveals("moments"), Shape("f")]
    cross: Annotated[Floats, Reveals("moments"), Shape("f", "q", "m")]
    target_sums: Annotated[Floats, Reveals("moments"), Shape("f", "m")]
    target_squares: Annotated[Floats, Reveals("moments"), Shape("f", "m"), NonNegative]

    def contradiction(self, context: Context) -> str | None:
        """In each fold sums over the same rows, and all rows are in one."""
        rows = context.facts.get(OwnRows)
        if rows is not None and int(self.n_rows.sum()) != rows:
            return f"folds of {int(self.n_rows.sum())} rows in all, of a party with {rows:g}"
        wrong = (self._wrong_fold(context, f) for f in range(len(self.n_rows)))
        return next((words for words in wrong if words), None)

    def _wrong_fold(self, context: Context, f: int) -> str | None:
        n, gram, sums = int(self.n_rows[f]), full(self.upper[f]), self.sums[f]
        if not is_gram(gram, sums, n):
            return NOT_A_GRAM
        for j in range(min(self.cross.shape[2], LOOKED_AT)):
            c, squares = self.cross[f, :, j : j + 1], self.target_squares[f, j]
            joint = np.block([[gram, c], [c.T, np.array([[squares]])]])
            if not is_gram(joint, np.append(sums, self.target_sums[f, j]), n):
                return NOT_A_GRAM
        return wrong_trace(context, float(self.traces[f]), n)


# The party.


def _rows_behind(party: Any, reply: FoldSums) -> Worth:
    """As many as the smallest fold has in which there are any."""
    return Worth(covers=int(reply.n_rows[reply.n_rows > 0].min(initial=np.iinfo(np.int64).max)))


class FoldedRows(RowHolder):
    """Holds some rows of all columns, in folds of its own."""

    Setup: ClassVar[type[Message]] = FoldSetup

    @step(reusable=False, worth=_rows_behind)
    def fold_sums(self, others: FoldLandmarks) -> FoldSums:
        """What the rows of each fold add up to with all landmarks."""
        A, Y, key = self.site.data, self.take_up(others), self.setup.targets
        y = np.zeros((A.shape[0], 0)) if not key else targets_of(self.site, key) - others.centre
        span, numbers = Span.of(self.kernel, Y), folds_of(self.site, self.setup.n_folds)
        each = [
            sums_of_fold(span, A[rows], y[rows])
            for rows in (np.flatnonzero(numbers == f) for f in range(self.setup.n_folds))
        ]
        names = OneFold._fields
        return FoldSums(**{name: np.array([getattr(own, name) for own in each]) for name in names})


def folds_of(site: SiteView, n_folds: int) -> NDArray[np.int64]:
    """The fold of every row of a site, by draws that only the site can repeat.

    A site of few rows has some in fewer folds: where it begins hangs on its place among the others.
    """
    rng = site.private_generator(cross_validation.number)
    return draw_folds(int(site.data.shape[0]), n_folds, site.min_rows, rng, site.index)


def draw_folds(
    n_rows: int, n_folds: int, fewest: int, rng: np.random.Generator, first: int = 0
) -> NDArray[np.int64]:
    """Folds (n,) that are made of parcels of at least `fewest` rows, or of all there are.

    >>> np.bincount(draw_folds(23, 3, 5, np.random.default_rng(0)))
    array([11,  6,  6])
    """
    n_parcels = max(n_rows // max(fewest, 1), 1)
    parcels = np.array_split(rng.permutation(n_rows), n_parcels)
    folds = np.empty(n_rows, dtype=np.int64)
    for parcel, rows in enumerate(parcels):
        folds[rows] = (first + parcel) % n_folds
    return folds


class OneFold(NamedTuple):
    """A fold's part of `FoldSums`, which has these fields for all folds."""

    upper: Doubles
    sums: Doubles
    n_rows: int
    traces: float
    cross: Doubles
    target_sums: Doubles
    target_squares: Doubles


def sums_of_fold(span: Span, A: Rows, y: Doubles) -> OneFold:
    """What the rows of a fold and their targets (n, m) add up to."""
    q, n, m = len(span.K), int(A.shape[0]), y.shape[1]
    gram, sums, trace, cross = np.zeros((q, q)), np.zeros(q), 0.0, np.zeros((q, m))
    if n:
        gram, sums, _, trace = landmark_sums(span.kernel, A, span.landmarks, span)
    with one_blas_thread():
        for rows in blocks(n) if m else ():
            X = as_rows(A[rows], np.float64)
            K = np.asarray(span.kernel.block(X, span.landmarks), dtype=np.float64) - span.shift
            cross += K.T @ y[rows]
    return OneFold(
        upper=upper(gram),
        sums=sums,
        n_rows=n,
        traces=trace,
        cross=cross,
        target_sums=y.sum(axis=0),
        target_squares=np.square(y).sum(axis=0),
    )


# The schedule, and the coordinator's side.


def schedule(
    scope: Scope, setup: FoldSetup, n_landmarks: int, landmarks: str, centre: tuple[int, ...]
) -> Node:
    """Landmarks as in disKPCA, then one question."""
    (m,) = centre

    def fold_rounds(numbers: Numbers) -> Node:
        new = landmarks_of_fit(numbers)
        down = {**new.pop("down"), "m": m}
        return total(
            FoldedRows.fold_sums,
            down=down,
            up={"f": setup.n_folds, "q": numbers.q, "m": m},
            **new,
        )

    leverage = gram_rounds(FoldedRows)
    return sequence(
        enlist(FoldedRows, setup),
        choosing(FoldedRows, setup, n_landmarks, landmarks, leverage, fold_rounds),
    )


@protocol("cross-validation", roles=(FoldedRows, SummedRows), schedule=schedule)
def cross_validation(
    rows: Federation,
    setup: FoldSetup,
    n_landmarks: int,
    landmarks: str,
    centre: Doubles,
    comparison: Comparison,
) -> FoldScores:
    """The scores of all that is asked about, at one gamma; `centre` is the targets' mean, (m,)."""
    require_fresh_replies(rows)
    rows.enlist(FoldedRows, setup)
    leverage = leverage_by_gram(FoldedRows)
    landmark_set = choose_landmarks(rows, FoldedRows, setup, n_landmarks, landmarks, leverage)
    news = landmark_set.unseen
    messages = {id(new): FoldLandmarks(**vars(new), centre=centre) for new in news.values()}
    each = {name: messages[id(new)] for name, new in news.items()}
    sums = rows.total(FoldedRows.fold_sums, each=each).sum
    span = Span.of(kernel_of(setup), landmark_set.Y)
    return scores_of_folds(comparison, span, _in_use(sums), landmark_set.n_values)


def _in_use(sums: FoldSums) -> list[FoldTotals]:
    """Of every fold that has rows."""
    in_use = np.flatnonzero(sums.n_rows)
    if len(in_use) < 2:
        raise InputError(
            f"all rows are in {len(in_use)} of {len(sums.n_rows)} folds, each of which takes as "
            f"many rows of a party as its policy lets a sum be over (min_rows); more rows are "
            f"expected, or secure=True, by which parties of any size count"
        )
    return [
        FoldTotals(
            full(sums.upper[f]),
            sums.sums[f],
            int(sums.n_rows[f]),
            float(sums.traces[f]),
            sums.cross[f],
            sums.target_sums[f],
            sums.target_squares[f],
        )
        for f in in_use
    ]
