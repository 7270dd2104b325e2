"""disKPCA as the paper has it: sketches from the right where `diskpca` sends Gram matrices.

Balcan, Liang, Song, Woodruff and Xie, "Communication Efficient Distributed Kernel Principal
Component Analysis", KDD 2016, Algorithms 1 to 3. For comparison with the paper: the exact form
sends less (q/2 floats a landmark and party against `sketch_size`·q here), errs less, and its
messages add up.

===================  ============================================================================
party keeps          what it keeps in `diskpca`
party reveals        sketches of its embedded rows and of its rows' coordinates in the landmarks'
                     span (a party of no more rows than a sketch has: these, turned), the rows that
                     are drawn from it, and what the components capture of its rows
coordinator learns   these; landmarks, a factor and the components go to all parties
===================  ============================================================================

Letters: E embedded rows (n, t), Π = K(A, Y) B coordinates (n, q) in the basis φ(Y) B of the span;
T^i the party's own sketch, p = `sketch_size`·t and w = `sketch_size`·q columns.

Readings: rows of B beyond the rank of K(Y, Y) are zero, so that the traffic is known beforehand.
Beyond the paper: 1ᵀT^i and the sum of Π make the centring exact; and a last round measures what the
components capture, so that eigenvalues are facts, the residual is as good as in `diskpca`, and only
the subspace is sketched.
Above the usual length: three algorithms, with the party's and the coordinator's side of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from eigenmesh.methods.diskpca.landmark_fits import DisKPCAResult, LandmarkSet, Numbers
from eigenmesh.methods.diskpca.looks import outside_of
from eigenmesh.methods.diskpca.protocol import (
    LeverageMass,
    NewLandmarks,
    RowHolder,
    Whitening,
    choose_landmarks,
    choosing,
    square,
    unseen_sizes,
)
from eigenmesh.numerics.arrays import Doubles, Rows, blocks
from eigenmesh.numerics.eigen import (
    clip_spectrum,
    fix_signs,
    numerical_rank,
    pseudo_inverse_root,
    require_rank,
    top_eigenpairs,
)
from eigenmesh.numerics.embeddings import whitening_of
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import Span, full, upper
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.mean_outside import corrected, outside_sizes
from eigenmesh.numerics.plausible import exceeds
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Context,
    Floats,
    Message,
    NonNegative,
    OwnRows,
    Positive,
    Reveals,
    Shape,
)
from eigenmesh.runtime.party import step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Node, Scope, ask, at_most, enlist, sequence, total
from eigenmesh.stages.row_messages import (
    NOT_A_GRAM,
    CentredSums,
    GramSums,
    KernelSetup,
    by_party,
    kernel_of,
    wrong_trace,
)

REDUCTIONS = ("gaussian", "hadamard")


class SketchSetup(KernelSetup, reveals=None):
    """What is agreed on; a sketch has `sketch_size` times the columns of what it sketches."""

    sketch_size: Annotated[int, Positive]
    reduction: str  # of a tensor sketch, to the embedding's width: one of REDUCTIONS


class EmbeddingSketch(Message, reveals="sketch", covers="all"):
    """(E^i)ᵀT^i, transposed."""

    columns: Annotated[Floats, Shape("p", "t")]


class CoordinateSketch(Message, reveals="sketch", covers="all"):
    """(Π^i)ᵀT^i and 1ᵀT^i, transposed; and exactly the sum and the squares of Π^i."""

    columns: Annotated[Floats, Shape("w", "q")]
    ones: Annotated[Floats, Shape("w")]
    sums: Annotated[Floats, Shape("q")]
    n_rows: Annotated[int, Reveals("counts"), OwnRows]
    inside: Annotated[float, Reveals("moments"), NonNegative]
    trace: Annotated[float, Reveals("moments")]

    def contradiction(self, context: Context) -> str | None:
        """What is inside the span is no more than there is."""
        if exceeds(self.inside, self.trace):
            return "more is inside the landmarks' span than there is"
        if exceeds(float(np.vdot(self.sums, self.sums)), self.n_rows * self.inside):
            return NOT_A_GRAM
        return wrong_trace(context, self.trace, self.n_rows)


class ComponentCoefficients(Message, reveals="eigenvectors"):
    """Coefficients of the components in φ(Y)."""

    coefficients: Annotated[Floats, Shape("q", "k")]


class SampledCoefficients(ComponentCoefficients, reveals="eigenvectors"):
    """And which share of its rows a party shall look at from outside the landmarks' span."""

    share: Annotated[float, Positive]


class CapturedSums(GramSums, reveals="gram"):
    """Of the rows' scores in components that are orthonormal."""

    def contradiction(self, context: Context) -> str | None:
        """Components hold no more of the rows than there is."""
        return _too_much(self) or super().contradiction(context)


class CapturedCentred(CentredSums, reveals="gram"):
    """The same, and what the rows add up to outside the landmarks' span."""

    def contradiction(self, context: Context) -> str | None:
        """As of `CapturedSums`."""
        return _too_much(self) or super().contradiction(context)


def _too_much(sums: GramSums) -> str | None:
    variance = float(np.trace(full(sums.upper)))
    return "components hold more than there is" if exceeds(variance, sums.trace) else None


class SketchingRowHolder(RowHolder):
    """Holds some rows of all columns, and sketches what it says of them."""

    Setup = SketchSetup

    @step
    def sketched_embedding(self) -> EmbeddingSketch:
        """The embedded rows, sketched with the party's own T^i."""
        first, *rest = self.embedded()
        p = self.setup.sketch_size * first.shape[1]
        return EmbeddingSketch(columns=self._sketch(iter([first, *rest]), p, 0))

    @step(reusable=False)
    def sketched_coordinates(self, others: NewLandmarks) -> CoordinateSketch:
        """Where the rows lie in the landmarks' span, sketched."""
        Y = self.take_up(others)
        B = square(pseudo_inverse_root(self.kernel.matrix(Y)))
        w = self.setup.sketch_size * len(B)
        sums, inside = np.zeros(len(B)), [0.0]

        def counted() -> Iterator[Doubles]:
            for P in self._scores(Y, B):
                sums[:] += P.sum(axis=0)
                inside[0] += float(np.vdot(P, P))
                yield np.hstack([P, np.ones((len(P), 1))])

        sketch = self._sketch(counted(), w, 1)
        n = int(self.site.data.shape[0])
        return CoordinateSketch(sketch[:, :-1], sketch[:, -1], sums, n, inside[0], self._trace)

    @property
    def _trace(self) -> float:
        """Σ k(x, x)."""
        return float(self.kernel.diagonal(self.site.data).sum(dtype=np.float64))

    @step
    def captured(self, components: ComponentCoefficients) -> CapturedSums:
        """Gram matrix and sum of the rows' scores."""
        return CapturedSums(*self._score_sums(self.all_landmarks(), components))

    @step
    def captured_centred(self, components: SampledCoefficients) -> CapturedCentred:
        """The same, and what the rows add up to outside the landmarks' span."""
        Y = self.all_landmarks()
        outside = self.outside(Span.of(self.kernel, Y), components.share)
        return CapturedCentred(*self._score_sums(Y, components), **outside)

    def _score_sums(
        self, Y: Rows, components: ComponentCoefficients
    ) -> tuple[Doubles, Doubles, int, float]:
        k = components.coefficients.shape[1]
        gram, sums = np.zeros((k, k)), np.zeros(k)
        for Z in self._scores(Y, components.coefficients):
            gram += Z.T @ Z
            sums += Z.sum(axis=0)
        return upper(gram), sums, int(self.site.data.shape[0]), self._trace

    def _scores(self, Y: Rows, coefficients: Floats) -> Iterator[Doubles]:
        A = self.site.data
        for rows in blocks(A.shape[0]):
            yield self.kernel.block(A[rows], Y).astype(np.float64, copy=False) @ coefficients

    def _sketch(self, parts: Iterator[Doubles], width: int, round_: int) -> Doubles:
        # Who knew the weights of the rows in their sums could solve for the rows.
        # Parties with equal rows weigh them differently, or the errors would add up.
        rng = self.site.private_generator(diskpca_sketched.number, 2 * self.site.index + round_)
        return right_sketch(parts, self.site.data.shape[0], width, rng)


def schedule(
    scope: Scope,
    setup: SketchSetup,
    n_components: int | None,
    n_landmarks: int,
    landmarks: str,
    center: bool,
) -> Node:
    """Landmarks, sketches of coordinates in their span, and what the components capture."""
    role, width = SketchingRowHolder, setup.sketch_size

    def leverage(t: int) -> Node:
        sketch = ask(role.sketched_embedding, p=width * t, t=t)
        return sequence(sketch, ask(role.leverage_mass, t=t, r=t))

    def subspace(numbers: Numbers) -> Node:
        q, d = numbers.q, numbers.d
        k = at_most(q) if n_components is None else n_components
        coordinates = {"w": width * q, "q": q}
        sketch = ask(role.sketched_coordinates, **unseen_sizes(numbers.last, d), up=coordinates)
        down, up = {"q": q, "k": k}, {"q": k}
        if not center or numbers.is_every_row:
            return sequence(sketch, total(role.captured, down=down, up=up))
        t, f = outside_sizes(setup.kernel, d) if len(scope.parties) > 1 else (0, 0)
        return sequence(sketch, total(role.captured_centred, down=down, up={**up, "t": t, "f": f}))

    landmark_rounds = choosing(role, setup, n_landmarks, landmarks, leverage, subspace)
    return sequence(enlist(role, setup), landmark_rounds)


@protocol("diskpca-sketched", roles=(SketchingRowHolder,), skips=True, schedule=schedule)
def diskpca_sketched(
    rows: Federation,
    setup: SketchSetup,
    n_components: int | None,
    n_landmarks: int,
    landmarks: str,
    center: bool,
) -> DisKPCAResult:
    """Algorithm 1 with sketches."""
    role = SketchingRowHolder
    rows.enlist(role, setup)
    first = choose_landmarks(rows, role, setup, n_landmarks, landmarks, leverage_by_sketch)
    return _subspace(rows, kernel_of(setup), n_components, first, center)


def leverage_by_sketch(rows: Federation) -> dict[str, LeverageMass]:
    """Algorithm 2, disLS: QR of the stacked sketches, whose triangle whitens the embedded rows."""
    sketches = rows.ask(SketchingRowHolder.sketched_embedding)
    _, Z = np.linalg.qr(np.vstack([sketch.columns for sketch in sketches]))
    whitening = Whitening(matrix=square(whitening_of(Z.T @ Z)))
    return by_party(rows.ask(SketchingRowHolder.leverage_mass, whitening))


def _subspace(
    rows: Federation,
    kernel: Kernel,
    n_components: int | None,
    landmark_set: LandmarkSet,
    center: bool,
) -> DisKPCAResult:
    """Algorithm 3, disLR; then what the components hold."""
    parts = by_party(rows.ask(SketchingRowHolder.sketched_coordinates, each=landmark_set.unseen))
    stacked = _stacked(list(parts.values()), center)
    n = sum(part.n_rows for part in parts.values())
    k = max(numerical_rank(stacked.spectrum, n), 1) if n_components is None else n_components
    require_rank(stacked.spectrum, k, n, f"{len(stacked.mean)} landmarks")
    B = square(pseudo_inverse_root(kernel.matrix(landmark_set.Y)))
    C = B @ stacked.directions[:, :k]

    role, message = SketchingRowHolder, ComponentCoefficients(coefficients=C)
    estimated = center and landmark_set.share > 0
    if estimated:
        message = SampledCoefficients(coefficients=C, share=landmark_set.share)
    step = role.captured_centred if estimated else role.captured
    sums = rows.total(step, each=dict.fromkeys(parts, message))
    left = [parts[name] for name in sums.parties]  # the claims are of those who are still there
    if len(left) < len(parts):
        stacked = _stacked(left, center)
    model = _model(
        kernel, landmark_set.Y, C, sums.sum, stacked, sum(part.trace for part in left), center
    )
    outside = max(sum(part.trace - part.inside for part in left), 0.0)
    error = 0.0
    if estimated:
        model, error = corrected(model, outside_of(sums.sum), outside)
    return DisKPCAResult(model, landmark_set.skew, outside, landmark_set.n_values, error)


class Stacked(NamedTuple):
    """The mean of the rows, and the singular values, squared, and vectors of their sketches."""

    mean: Doubles
    spectrum: Doubles
    directions: Doubles  # (q, q)


def _stacked(parts: Sequence[CoordinateSketch], center: bool) -> Stacked:
    n = sum(part.n_rows for part in parts)
    mean = np.asarray(sum(part.sums for part in parts)) / n * center
    columns = np.vstack([part.columns - np.outer(part.ones, mean) for part in parts])
    _, singular, Vt = np.linalg.svd(columns, full_matrices=False)
    return Stacked(mean, clip_spectrum(singular**2, n), Vt.T)


def _model(
    kernel: Kernel,
    Y: Rows,
    C: Doubles,
    sums: GramSums,
    stacked: Stacked,
    trace: float,
    center: bool,
) -> LandmarkModel:
    """The components, turned so that their scores are uncorrelated."""
    n, k = sums.n_rows, C.shape[1]
    mean = sums.sums / n * center
    values, W = top_eigenpairs(full(sums.upper) - n * np.outer(mean, mean), k)
    W = np.asarray(fix_signs(W))
    after = min(stacked.spectrum[k], values[-1]) if len(stacked.spectrum) > k else 0.0
    return LandmarkModel(
        kernel=kernel,
        landmarks=Y,
        coefficients=C @ W,
        offset=mean @ W,
        eigenvalues=np.maximum(values, 0.0),
        next_eigenvalue=float(after),
        total=trace - n * float(stacked.mean @ stacked.mean),
        n_rows=n,
    )


_BUCKETS = 8  # so many times the width are the buckets that rows are first counted into


def right_sketch(parts: Iterable[Doubles], n: int, width: int, rng: np.random.Generator) -> Doubles:
    """TᵀF (width, m) of the n rows of F, which come in blocks: CountSketch, then Gaussian.

    No more rows than `width` are only turned, so that FᵀTTᵀF = FᵀF.

    >>> F = np.arange(12.0).reshape(4, 3)
    >>> S = right_sketch([F[:1], F[1:]], 4, 6, np.random.default_rng(0))
    >>> S.shape, bool(np.allclose(S.T @ S, F.T @ F))
    ((6, 3), True)
    """
    buckets, start = min(n, _BUCKETS * width), 0
    counted: Any = 0.0
    for part in parts:
        own = np.arange(start, start + len(part))
        places = own if n <= buckets else rng.integers(buckets, size=len(part))
        counted = counted + _signed_counts(part, places, buckets, rng)
        start += len(part)
    return np.asarray(_mixing(buckets, width, rng) @ counted)


def _signed_counts(
    F: Doubles, places: NDArray[np.int64], buckets: int, rng: np.random.Generator
) -> Doubles:
    """The rows of F, each with a random sign, added up where their places are the same."""
    signs = rng.choice([-1.0, 1.0], size=len(F))
    S = sp.csr_array((signs, (places, np.arange(len(F)))), shape=(buckets, len(F)))
    return np.asarray(S @ F)


def _mixing(buckets: int, width: int, rng: np.random.Generator) -> Doubles:
    """(width, buckets): columns orthonormal where there is room for them, Gaussian where not."""
    G = rng.standard_normal((width, buckets))
    return np.linalg.qr(G)[0] if buckets <= width else G / np.sqrt(width)
