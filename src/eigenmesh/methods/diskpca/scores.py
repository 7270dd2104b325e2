"""Components from landmarks, and every row's scores in them, kept where the row is.

Kernel PCA by disKPCA (`diskpca.py`), one more round in which the coordinator sends the components,
and the scores are in each site's store for whatever comes next: k-means, regression.

===================  ============================================================================
party keeps          its rows and their scores
party reveals        what it reveals in disKPCA
coordinator learns   the same
===================  ============================================================================
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.methods.diskpca.landmark_draws import Chosen
from eigenmesh.methods.diskpca.landmark_growth import Accuracy, SpanFit, fit_until_accurate
from eigenmesh.methods.diskpca.leverage import LeverageMass, Whitening
from eigenmesh.methods.diskpca.protocol import (
    DisKPCAResult,
    RowHolder,
    choose_landmarks,
    drawing_steps,
    growing_steps,
    more_landmarks,
    require_fresh_replies,
    square,
)
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.eigen import pseudo_inverse_root
from eigenmesh.numerics.float32_sums import Span
from eigenmesh.numerics.landmarks import LandmarkModel, LandmarkSums
from eigenmesh.numerics.span_residual import span_residual
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, Shape
from eigenmesh.runtime.party import Step, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_messages import (
    KernelSetup,
    by_party,
    full,
    kernel_of,
)


class ScoreSetup(KernelSetup, reveals=None):
    """Keys of a site's own store: where the scores shall be, and the rows' weights are, if any."""

    scores: str
    weights: str  # empty if every row counts the same


class ScoredComponents(Message, reveals="gram"):
    """Scores are k(x, Y) `coefficients` − `offset`; the receiver holds Y."""

    coefficients: Annotated[Floats, Shape("q", "k")]
    offset: Annotated[Floats, Shape("k")]
    eigenvalues: Annotated[Floats, Shape("k")]


class ScoringRows(RowHolder):
    """Holds rows, and ends with their scores."""

    Setup: ClassVar[type[Message]] = ScoreSetup

    @step
    def keep_scores(self, found: ScoredComponents) -> None:
        """Score the own rows; nothing is said of it."""
        model = LandmarkModel(
            self.kernel,
            self.all_landmarks(),
            coefficients=np.array(found.coefficients, dtype=np.float64),
            offset=np.array(found.offset, dtype=np.float64),
            eigenvalues=np.array(found.eigenvalues, dtype=np.float64),
            next_eigenvalue=0.0,
            total=0.0,
            n_rows=self.n_rows,
        )
        keep_points(self.site, self.setup, model.transform(self.site.data))

    @property
    def n_rows(self) -> int:
        """The rows of this party."""
        return int(self.site.data.shape[0])


def keep_points(site: SiteView, setup: ScoreSetup, points: Floats) -> None:
    """Put rows as points into the site's store, with their weights where the site has any."""
    if not setup.weights:
        site.keep(setup.scores, {"points": points})
        return
    weights = (site.kept(setup.weights) or {}).get("weights", ())
    n, n_weights = len(points), len(weights)
    if n != n_weights:
        raise InputError(
            f"party {site.name!r} has {n} rows and {n_weights} weights; one a row is expected",
            party=site.name,
        )
    site.keep(setup.scores, {"points": points, "weights": weights})


def scoring_steps(landmarks: str, role: type[ScoringRows] = ScoringRows) -> list[Step]:
    """The steps that a choice of landmarks asks for."""
    drawing = [*drawing_steps(landmarks, role), role.projected_gram, role.keep_scores]
    return list(dict.fromkeys([*drawing, *growing_steps(landmarks, role)]))


@protocol("landmark-scores", roles=(ScoringRows,))
def landmark_scores(
    rows: Federation,
    setup: ScoreSetup,
    n_components: int,
    n_landmarks: int,
    landmarks: str,
    center: bool,
) -> DisKPCAResult:
    """disKPCA, with the scores kept at the sites; fewer components where there are fewer."""
    rows.enlist(ScoringRows, setup, scoring_steps(landmarks))
    wanted = (n_components, n_landmarks, landmarks, center)
    found = find_components(rows, ScoringRows, setup, *wanted)
    keep_scores(rows, ScoringRows, found.result.model)
    return found.result


class Found(NamedTuple):
    """The components, and what is known of those that were left out."""

    result: DisKPCAResult
    spectrum: Doubles  # eigenvalues of all components that the landmarks determine
    complete: LandmarkModel  # with all components that the landmarks determine


def find_components(
    rows: Federation,
    role: type[ScoringRows],
    setup: ScoreSetup,
    n_components: int,
    n_landmarks: int,
    landmarks: str,
    center: bool,
    accuracy: Accuracy | None = None,
) -> Found:
    """The components of disKPCA, with parties that are enlisted already.

    With an accuracy landmarks may become more, and the result says what they miss.
    """
    require_fresh_replies(rows)

    def leverage(parties: Federation) -> dict[str, LeverageMass]:
        gram = full(parties.total(role.embedded_gram).sum.upper)
        whitening = Whitening(matrix=square(pseudo_inverse_root(gram)))
        return by_party(parties.ask(role.leverage_mass, whitening))

    def fit(chosen: Chosen) -> SpanFit:
        total = rows.total(role.projected_gram, each=chosen.unseen).sum
        sums = LandmarkSums(full(total.upper), total.sums, total.n_rows, total.trace)
        span = Span.of(kernel_of(setup), chosen.Y)
        model = LandmarkModel.fit(span.kernel, chosen.Y, sums, None, center, span)
        return SpanFit(model, span_residual(span, sums))

    chosen = choose_landmarks(rows, role, setup, n_landmarks, landmarks, leverage)
    if accuracy is None:
        in_span, coverage = fit(chosen), None
    else:
        wanted = dataclasses.replace(accuracy, most_wanted=n_components)
        more = more_landmarks(rows, role, setup, landmarks)
        chosen, in_span, coverage = fit_until_accurate(
            rows, role.probe_outside, wanted, center, chosen, fit, more
        )
    complete = in_span.model
    known = (chosen.skew, in_span.outside, chosen.n_values)
    result = DisKPCAResult(first(complete, n_components), *known, coverage=coverage)
    return Found(result, complete.eigenvalues, complete)


def keep_scores(rows: Federation, role: type[ScoringRows], model: LandmarkModel) -> None:
    """Every party scores its own rows."""
    found = ScoredComponents(
        coefficients=model.coefficients, offset=model.offset, eigenvalues=model.eigenvalues
    )
    rows.ask(role.keep_scores, found)


def first(model: LandmarkModel, k: int) -> LandmarkModel:
    """The first k components, or all if there are fewer."""
    if len(model.eigenvalues) <= k:
        return model
    return dataclasses.replace(
        model,
        coefficients=np.ascontiguousarray(model.coefficients[:, :k]),
        offset=model.offset[:k],
        eigenvalues=model.eigenvalues[:k],
        next_eigenvalue=float(model.eigenvalues[k]),
    )
