"""Leverage scores of rows that stay with their owners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import whole_number
from eigenmesh.estimators.kernel_gamma import agreed_fields, kernel_gamma, psd_kernel
from eigenmesh.estimators.party_values import of_sites
from eigenmesh.estimators.report import RunReport
from eigenmesh.estimators.rows import RowEstimator
from eigenmesh.methods.diskpca.leverage import STORE
from eigenmesh.methods.diskpca.leverage import leverage_scores as leverage_protocol
from eigenmesh.runtime.study import stage
from eigenmesh.stages.row_messages import KernelSetup

_EXACT_WIDTH = 1000  # up to so many columns a linear or cosine kernel is taken as it is
_WIDTH_A_COMPONENT = 20


@dataclass(frozen=True)
class LeverageScores:
    """Scores of rows with respect to a rank, and what is known of them.

    Attributes
    ----------
    scores : an array for a plain array; for split rows a list of arrays in party order; scores
        that are at a site and not in this process say so in their place.
    skew : largest score / mean; above about 20 a few rows carry the variance. Parties whose
        policies keep rows tell the mean of their `min_rows` largest in its place.
    exact : whether they are the kernel's own, or those of an embedding.
    gamma : the kernel's.
    report : what it cost, and what left each party.
    """

    scores: Any
    skew: float
    exact: bool
    gamma: float | None
    report: RunReport


class _LeverageRows(RowEstimator):
    """Takes rows in any form."""


def leverage_scores(
    source: Any,
    n_components: int = 10,
    *,
    kernel: str = "linear",
    gamma: float | str | None = None,
    degree: int = 3,
    coef0: float = 1.0,
    embedding_dim: int | None = None,
    random_state: Any = None,
) -> LeverageScores:
    """Leverage scores of rows in feature space with respect to rank `n_components`.

    A row's score is its share in the `n_components` largest directions of the uncentred kernel
    matrix: the squared length of its row in the matrix of their eigenvectors. Scores sum to
    `n_components`. They stay with the rows' owners; what leaves a party is the Gram matrix of its
    rows, embedded in `embedding_dim` dimensions by a shared seed, and the sum and largest of its
    scores.

    They are exact for "linear" and "cosine" kernels of no more columns than `embedding_dim` (1000
    if None), and for one array of up to 2000 rows; else those of the embedded rows, by default in
    20·n_components dimensions. `source` is whatever can be fitted; `kernel`, `gamma`, `degree`
    and `coef0` are those of `DisKPCA`, and `random_state` seeds the embedding.

    >>> import numpy as np, eigenmesh as em
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> X[7] *= 1000
    >>> found = em.leverage_scores(X, 1)
    >>> int(found.scores.argmax()), round(found.skew), found.exact
    (7, 200, True)
    """
    k = whole_number(n_components, "n_components")
    width = _width(kernel, k) if embedding_dim is None else embedding_dim

    def agreed(number: float | None) -> KernelSetup:
        kernel_used = psd_kernel(kernel, number, degree, coef0)
        return KernelSetup(**agreed_fields(kernel_used, k, width, random_state))

    planned = stage(leverage_protocol, agreed(1.0))  # wrong parameters are told at once
    rows = _LeverageRows()
    opened = rows._source(source)
    with rows._opened(opened) as fed, fed.recording() as recording:
        rows._require_rows(fed)
        fed.require_stages(planned)
        number = kernel_gamma(fed, kernel, gamma, seed_of(random_state))
        outcome = fed.run(leverage_protocol, agreed(number)).value
        scores = list(of_sites(fed, STORE, "scores").values())
        report = RunReport.of(
            recording,
            fed,
            stop_reason=outcome.stop_reason,
            baseline_floats=outcome.baseline_floats,
            notes=() if outcome.exact else (f"estimated in {width} dimensions",),
        )
    plain = opened is not source
    return LeverageScores(
        scores[0] if plain else scores, outcome.skew, outcome.exact, number, report
    )


def _width(kernel: str, k: int) -> int:
    return _EXACT_WIDTH if kernel in ("linear", "cosine") else _WIDTH_A_COMPONENT * k
