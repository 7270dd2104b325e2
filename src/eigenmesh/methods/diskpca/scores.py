"""Components from landmarks, and every row's scores in them, kept where the row is.

Kernel PCA by disKPCA (`protocol.py`), one more round in which the coordinator sends the components,
and the scores are in each site's store for whatever comes next: k-means, regression.

===================  ============================================================================
party keeps          its rows, the landmarks and its rows' scores
party reveals        what it reveals in disKPCA, without what only the total variance takes
coordinator learns   the same
===================  ============================================================================
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from eigenmesh.methods.diskpca.drawn import SummedRows
from eigenmesh.methods.diskpca.landmark_fits import (
    Accuracy,
    DisKPCAResult,
    LandmarkSet,
    Numbers,
    SpanFit,
)
from eigenmesh.methods.diskpca.looks import ProbedComponents
from eigenmesh.methods.diskpca.protocol import (
    RowHolder,
    choose_landmarks,
    choosing,
    fit_in_span,
    fit_rounds,
    fit_until_accurate,
    gram_rounds,
    growing,
    leverage_by_gram,
    more_landmarks,
    most_after,
    require_fresh_replies,
    result_of,
)
from eigenmesh.methods.diskpca.site_scores import LandmarkSetup, ScoredComponents
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Replies
from eigenmesh.runtime.schedule import Node, Own, Scope, ask, enlist, sequence, settle
from eigenmesh.stages.row_messages import kernel_of

# Where nothing is sent: scores in all, and the share of the variance that may be left out.
AFFORDABLE, NEGLIGIBLE = 2**20, 1e-4
SENT = 2  # components between parties, times those asked for, where more of them pay


@record
@dataclass(frozen=True)
class LandmarkScores:
    """The components whose scores the sites keep, and what is known of those left out."""

    result: DisKPCAResult
    spectrum: Doubles  # eigenvalues of all components that the landmarks determine
    basis: Doubles  # B (q, r) with BᵀK(Y, Y)B = I, for whoever goes on in the landmarks' span
    stop_reason: str = "every site keeps the scores of its rows"

    @property
    def model(self) -> LandmarkModel:
        """The components."""
        return self.result.model


def schedule(
    scope: Scope,
    setup: LandmarkSetup,
    n_components: int,
    n_landmarks: int,
    landmarks: str,
    center: bool,
    accuracy: Accuracy | None,
    more: bool,
    is_counted: bool,
) -> Node:
    """Rounds of disKPCA, without those of the total variance; then the components go to all."""

    def fit(numbers: Numbers, is_sure: bool) -> Node:
        return fit_rounds(scope, setup, numbers, is_sure, center=False)

    def components(numbers: Numbers) -> Node:
        if accuracy is None:
            return sequence(fit(numbers, True), keeping(numbers.q, numbers.q))
        probes = ProbedComponents(setup.kernel, n_components, False, center)
        fits = growing(scope, RowHolder, landmarks, probes, accuracy, numbers, fit)
        most = most_after(accuracy, numbers, landmarks)
        return sequence(fits, keeping(numbers.q, max(numbers.q, most)))

    def keeping(q: int, most: int) -> Node:
        def fits(own: Own, q_kept: int, k: int) -> bool:
            return 0 < q_kept <= most and 0 < k <= (q_kept if more else n_components)

        def planned(q: int) -> dict[str, int]:
            return {"q_kept": q, "k": min(q, SENT * n_components) if more else n_components}

        return settle(
            lambda parties: planned(q),
            lambda q_kept, k: ask(RowHolder.keep_scores, q=q_kept, k=k),
            fits,
            lambda parties: planned(most),
            **planned(q),
        )

    leverage = gram_rounds(RowHolder)
    return sequence(
        enlist(RowHolder, setup),
        choosing(RowHolder, setup, n_landmarks, landmarks, leverage, components, is_counted),
    )


@protocol("landmark-scores", roles=(RowHolder, SummedRows), schedule=schedule)
def landmark_scores(
    rows: Federation,
    setup: LandmarkSetup,
    n_components: int,
    n_landmarks: int,
    landmarks: str,
    center: bool,
    accuracy: Accuracy | None = None,
    more: bool = False,
    is_counted: bool = False,
    sizes: Replies | None = None,
) -> LandmarkScores:
    """disKPCA, with the scores kept at the sites; fewer components where there are fewer.

    With an accuracy landmarks may become more, and the result says what they miss. With `more` a
    single party's rows are scored in as many further components as pay, and those of several in
    twice as many. If the parties are
    counted already (`is_counted`), their `sizes` are known here; no party learns those of others.
    """
    require_fresh_replies(rows)
    rows.enlist(RowHolder, setup)
    leverage = leverage_by_gram(RowHolder)
    first = choose_landmarks(rows, RowHolder, setup, n_landmarks, landmarks, leverage, sizes)

    def fit(landmark_set: LandmarkSet) -> SpanFit:
        how = (kernel_of(setup), None, landmark_set, center)
        return fit_in_span(rows, *how, in_total=False, tells_parties=accuracy is not None)

    if accuracy is None:
        landmark_set, in_span, coverage = first, fit(first), None
    else:
        few = dataclasses.replace(accuracy, most_wanted=n_components)
        draw_more = more_landmarks(rows, RowHolder, setup, landmarks)
        landmark_set, in_span, coverage = fit_until_accurate(
            rows, RowHolder, few, center, first, fit, draw_more
        )
    complete, k = in_span.model, n_components
    if more:
        alone = len(rows.members) == 1
        spectrum = complete.eigenvalues
        k = worthwhile(spectrum, complete.n_rows, n_components) if alone else SENT * n_components
    model = first_components(complete, k)
    _keep_scores(rows, model)
    result = result_of(landmark_set, in_span._replace(model=model), coverage)
    return LandmarkScores(result, complete.eigenvalues, in_span.span.basis)


def _keep_scores(rows: Federation, model: LandmarkModel) -> None:
    """Every party scores its own rows."""
    q, k = model.coefficients.shape
    rows.settle(q_kept=q, k=k)
    message = ScoredComponents(
        coefficients=model.coefficients, offset=model.offset, eigenvalues=model.eigenvalues
    )
    rows.ask(RowHolder.keep_scores, message)


def worthwhile(spectrum: Doubles, n_rows: int, least: int) -> int:
    """Components in which a single party's rows are scored: until the rest is negligible.

    The fewest of those that matter and that are affordable, but not fewer than `least`.
    """
    left = spectrum.sum() - np.cumsum(spectrum)
    matter = int(np.count_nonzero(left > NEGLIGIBLE * spectrum.sum())) + 1
    return max(least, min(matter, AFFORDABLE // max(n_rows, 1)))


def first_components(model: LandmarkModel, k: int) -> LandmarkModel:
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
