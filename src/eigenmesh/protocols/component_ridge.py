"""Ridge regression on kernel components, from sums; the targets stay with their rows.

Principal component regression as in Balcan et al. (KDD 2016), section 6: components from disKPCA,
then ridge on the rows' scores, from normal equations that add up over the parties.

===================  ============================================================================
party keeps          its rows, their scores Z_i (n_i, k) and targets y_i (n_i, m)
party reveals        what it reveals in disKPCA, and sums over its rows (moments): of its targets,
                     Z_iᵀZ_i and Z_iᵀy_i
coordinator learns   these; the targets' mean goes to all parties
===================  ============================================================================

A party of one row so reveals its target, as any sum over one row does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.federation.federation import Federation
from eigenmesh.federation.message import Floats, Message, Reveals, Shape
from eigenmesh.federation.party import Step, step
from eigenmesh.federation.protocol import protocol
from eigenmesh.federation.records import record
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.protocols.landmark_scores import (
    ScoreSetup,
    ScoringRows,
    find_components,
    keep_scores,
    scoring_steps,
)
from eigenmesh.protocols.row_messages import full, upper


class RidgeSetup(ScoreSetup, reveals=None):
    """Under which key of its own store a site keeps its rows' targets."""

    targets: str


class TargetSums(Message, reveals="moments"):
    """Sum of the targets, and over how many rows."""

    sums: Annotated[Floats, Shape("m")]
    n_rows: Annotated[int, Reveals("counts")]


class TargetMean(Message, reveals="moments"):
    """The mean target of all rows."""

    mean: Annotated[Floats, Shape("m")]


class NormalEquations(Message, reveals="moments"):
    """ZᵀZ by its upper triangle, Zᵀ(y − ȳ), Zᵀ1, Σ(y − ȳ) and Σ(y − ȳ)²."""

    upper: Annotated[Floats, Shape("k(k+1)/2")]
    cross: Annotated[Floats, Shape("k", "m")]
    score_sums: Annotated[Floats, Shape("k")]
    target_sums: Annotated[Floats, Shape("m")]
    target_squares: Annotated[Floats, Shape("m")]
    n_rows: Annotated[int, Reveals("counts")]


class TargetRows(ScoringRows):
    """Holds rows and their targets."""

    Setup = RidgeSetup

    @step
    def sum_targets(self) -> TargetSums:
        """What the targets add up to."""
        y = self._targets()
        return TargetSums(sums=y.sum(axis=0), n_rows=len(y))

    @step
    def normal_equations(self, centre: TargetMean) -> NormalEquations:
        """What scores and targets add up to; targets less their mean, to keep their digits."""
        y = self._targets() - centre.mean
        Z = self._scores()
        return NormalEquations(
            upper=upper(Z.T @ Z),
            cross=Z.T @ y,
            score_sums=Z.sum(axis=0),
            target_sums=y.sum(axis=0),
            target_squares=np.square(y).sum(axis=0),
            n_rows=len(y),
        )

    def _scores(self) -> Doubles:
        kept = self.site.kept(self.setup.scores)
        assert kept is not None, "scores are kept before their sums are asked for"
        return np.asarray(kept["points"], dtype=np.float64)

    def _targets(self) -> Doubles:
        kept = self.site.kept(self.setup.targets)
        found = np.zeros((0, 1)) if kept is None else np.asarray(kept["targets"])
        if len(found) != self.n_rows:
            raise InputError(
                f"party {self.site.name!r} has {self.n_rows} rows and {len(found)} targets; one a "
                f"row is expected",
                party=self.site.name,
            )
        return found.reshape(self.n_rows, -1)


@record
@dataclass(frozen=True)
class RidgeResult:
    """prediction(x) = score(x) `coefficients` + `intercept`."""

    model: LandmarkModel
    coefficients: Doubles  # (k, m)
    intercept: Doubles  # (m,)
    r_squared: Doubles  # (m,) of the rows that were fitted
    outside: float
    leverage_skew: float | None
    baseline_floats: int
    stop_reason: str = "the normal equations are solved"


def regression_steps(landmarks: str) -> list[Step]:
    """The steps that a choice of landmarks asks for."""
    sums = [TargetRows.sum_targets, TargetRows.normal_equations]
    return [*scoring_steps(landmarks, TargetRows), *sums]


@protocol("component-ridge", roles=(TargetRows,))
def component_ridge(
    rows: Federation,
    setup: RidgeSetup,
    n_components: int,
    n_landmarks: int,
    landmarks: str,
    alpha: float,
) -> RidgeResult:
    """Components, then ridge with penalty `alpha` on their scores and a free intercept."""
    rows.enlist(TargetRows, setup, regression_steps(landmarks))
    # Targets that do not fit their rows are told before anything else leaves.
    targets = rows.total(TargetRows.sum_targets).sum
    wanted = (n_components, n_landmarks, landmarks, True)
    found = find_components(rows, TargetRows, setup, *wanted).result
    keep_scores(rows, TargetRows, found.model)
    centre = TargetMean(targets.sums / targets.n_rows)
    sums = rows.total(TargetRows.normal_equations, centre).sum
    coefficients, intercept, r_squared = solve(sums, centre.mean, alpha)
    return RidgeResult(
        found.model,
        coefficients,
        intercept,
        r_squared,
        found.outside,
        found.leverage_skew,
        found.baseline_floats,
    )


def solve(sums: Any, centre: Floats, alpha: float) -> tuple[Doubles, Doubles, Doubles]:
    """Coefficients, intercept and R² from the sums; exactly centred whoever they cover."""
    z = sums.score_sums / sums.n_rows
    y = sums.target_sums / sums.n_rows
    G = full(sums.upper) - sums.n_rows * np.outer(z, z)
    C = sums.cross - sums.n_rows * np.outer(z, y)
    W = np.linalg.lstsq(G + alpha * np.eye(len(G)), C, rcond=None)[0]
    total = sums.target_squares - sums.n_rows * y**2
    left = total - 2 * np.einsum("km,km->m", W, C) + np.einsum("km,kl,lm->m", W, G, W)
    r_squared = 1 - left / np.where(total > 0, total, 1.0)
    return W, np.asarray(centre + y - z @ W), np.asarray(r_squared)
