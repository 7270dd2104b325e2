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
from eigenmesh.methods.diskpca.landmark_growth import Accuracy
from eigenmesh.methods.diskpca.scores import (
    ScoreSetup,
    ScoringRows,
    find_components,
    keep_scores,
    scoring_steps,
)
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.ridge import RidgeFit, RidgeSums, ridge, ridge_sums
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, Reveals, Shape
from eigenmesh.runtime.party import Party, Step, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.stages.coverage import Coverage
from eigenmesh.stages.row_messages import full, upper

record(RidgeFit)


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

    upper: Annotated[Floats, Shape("k*(k+1)//2")]
    cross: Annotated[Floats, Shape("k", "m")]
    score_sums: Annotated[Floats, Shape("k")]
    target_sums: Annotated[Floats, Shape("m")]
    target_squares: Annotated[Floats, Shape("m")]
    n_rows: Annotated[int, Reveals("counts")]


class TargetHolder(Party):
    """Base of parties with targets, whose setup names the key that they are kept under."""

    @step
    def sum_targets(self) -> TargetSums:
        """What the targets add up to."""
        y = self.own_targets()
        return TargetSums(sums=y.sum(axis=0), n_rows=len(y))

    def own_targets(self) -> Doubles:
        """The rows' targets, (n, m)."""
        n = int(self.site.data.shape[0])
        kept = self.site.kept(self.setup.targets)
        found = np.zeros((0, 1)) if kept is None else np.asarray(kept["targets"])
        if len(found) != n:
            raise InputError(
                f"party {self.site.name!r} has {n} rows and {len(found)} targets; one a row is "
                f"expected",
                party=self.site.name,
            )
        return found.reshape(n, -1)


class TargetRows(TargetHolder, ScoringRows):
    """Holds rows and their targets."""

    Setup = RidgeSetup

    @step
    def normal_equations(self, centre: TargetMean) -> NormalEquations:
        """What scores and targets add up to; targets less their mean, to keep their digits."""
        kept = self.site.kept(self.setup.scores)
        assert kept is not None, "scores are kept before their sums are asked for"
        Z = np.asarray(kept["points"], dtype=np.float64)
        sums = ridge_sums(Z, self.own_targets() - centre.mean)._asdict()
        return NormalEquations(upper=upper(sums.pop("gram")), **sums)


@record
@dataclass(frozen=True)
class RidgeResult:
    """Components, and ridge on their scores."""

    model: Any  # a LandmarkModel or, of embedded rows, a FeatureModel
    fit: RidgeFit
    n_columns: int
    source: str  # what the components come from
    worth: str  # how good they are, in words
    baseline_floats: int
    stop_reason: str = "the normal equations are solved"
    coverage: Coverage | None = None  # what landmarks miss; None if nobody asked


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
    accuracy: Accuracy | None = None,
) -> RidgeResult:
    """Components, then ridge with penalty `alpha` on their scores and a free intercept."""
    rows.enlist(TargetRows, setup, regression_steps(landmarks))
    centre = mean_target(rows, TargetRows)
    wanted = (n_components, n_landmarks, landmarks, True, accuracy)
    found = find_components(rows, TargetRows, setup, *wanted).result
    keep_scores(rows, TargetRows, found.model)
    told = rows.total(TargetRows.normal_equations, centre).sum
    sums = (full(told.upper), *(getattr(told, name) for name in RidgeSums._fields[1:]))
    fit = ridge(RidgeSums(*sums), np.asarray(centre.mean), alpha)
    worth = f"the landmarks leave {found.outside:.3g} of the uncentred variance out"
    d = int(found.model.landmarks.shape[1])
    claims = (worth, found.baseline_floats)
    return RidgeResult(found.model, fit, d, "landmarks", *claims, coverage=found.coverage)


def mean_target(rows: Federation, role: type[TargetHolder]) -> TargetMean:
    """Asked first: targets that do not fit their rows are told before anything else leaves."""
    targets = rows.total(role.sum_targets).sum
    return TargetMean(targets.sums / targets.n_rows)
