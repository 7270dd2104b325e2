"""Ridge regression on kernel components, from sums; the targets stay with their rows.

Principal component regression as in Balcan et al. (KDD 2016), section 6: components from disKPCA,
or from summed moments, then ridge on the rows' scores, from normal equations that add up over the
parties.

===================  ============================================================================
party keeps          its rows, their scores Z_i (n_i, k) and targets y_i (n_i, m)
party reveals        what it reveals for the components, and sums over its rows (moments): of its
                     targets, Z_iᵀZ_i and Z_iᵀy_i
coordinator learns   these; the targets' mean goes to all parties
===================  ============================================================================

A party of one row so reveals its target, as any sum over one row does. Three runs: "row-targets",
before anything else leaves; "landmark-scores" or "moments", whose scores stay in the sites' stores;
and "component-ridge" on these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.methods.diskpca.scores import LandmarkScores
from eigenmesh.methods.moments.protocol import MomentResult
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.landmark_sums import full, upper
from eigenmesh.numerics.plausible import is_gram
from eigenmesh.numerics.ridge import RidgeFit, RidgeSums, ridge, ridge_sums
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Context,
    Floats,
    Message,
    NonNegative,
    OwnRows,
    Reveals,
    Shape,
)
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import Node, Scope, at_most, enlist, sequence, total
from eigenmesh.runtime.site import SiteView
from eigenmesh.runtime.study import Stage
from eigenmesh.stages.coverage import Coverage
from eigenmesh.stages.row_messages import (
    NOT_A_GRAM,
)

record(RidgeFit)

MOST_TARGETS = 10_000  # a row
LOOKED_AT = 4  # targets, of a reply that may be a lie


class TargetSetup(Message, reveals=None):
    """Under which key of its own store a site keeps its rows' targets."""

    targets: str


class RidgeSetup(TargetSetup, reveals=None):
    """And under which their scores."""

    scores: str


class TargetSums(Message, reveals="moments"):
    """Sum of the targets, and over how many rows."""

    sums: Annotated[Floats, Shape("m")]
    n_rows: Annotated[int, Reveals("counts"), OwnRows]


class TargetMean(Message, reveals="moments"):
    """The mean target of all rows."""

    mean: Annotated[Floats, Shape("m")]


class NormalEquations(Message, reveals="moments"):
    """ZᵀZ by its upper triangle, Zᵀ(y − ȳ), Zᵀ1, Σ(y − ȳ) and Σ(y − ȳ)²."""

    upper: Annotated[Floats, Shape("k*(k+1)//2")]
    cross: Annotated[Floats, Shape("k", "m")]
    score_sums: Annotated[Floats, Shape("k")]
    target_sums: Annotated[Floats, Shape("m")]
    target_squares: Annotated[Floats, Shape("m"), NonNegative]
    n_rows: Annotated[int, Reveals("counts"), OwnRows]

    def contradiction(self, context: Context) -> str | None:
        """All are sums over the same rows: scores, and with them each of the first targets."""
        gram = full(self.upper)
        for j in range(min(self.cross.shape[1], LOOKED_AT)):
            c, squares = self.cross[:, j : j + 1], self.target_squares[j]
            joint = np.block([[gram, c], [c.T, np.array([[squares]])]])
            if not is_gram(joint, np.append(self.score_sums, self.target_sums[j]), self.n_rows):
                return NOT_A_GRAM
        return None


def targets_of(site: SiteView, key: str) -> Doubles:
    """The targets of the site's rows, (n, m)."""
    n, share = int(site.data.shape[0]), site.kept(key, "targets")
    targets = np.zeros((0, 1)) if share is None else np.asarray(share["targets"])
    if len(targets) != n:
        raise InputError(
            f"party {site.name!r} has {n} rows and {len(targets)} targets; one a row is expected",
            party=site.name,
        )
    return targets.reshape(n, -1)


# Targets.


class TargetHolder(Party):
    """Holds rows, and their targets under the key that its setup names."""

    Setup: ClassVar[type[Message]] = TargetSetup

    @step
    def sum_targets(self) -> TargetSums:
        """What the targets add up to."""
        y = self.own_targets()
        return TargetSums(sums=y.sum(axis=0), n_rows=len(y))

    def own_targets(self) -> Doubles:
        """The rows' targets, (n, m)."""
        return targets_of(self.site, self.setup.targets)


def target_schedule(scope: Scope, setup: TargetSetup) -> Node:
    """One question; how many targets a row has is known by the replies."""
    question = total(TargetHolder.sum_targets, m=at_most(MOST_TARGETS, planned=1))
    return sequence(enlist(TargetHolder, setup), question)


@protocol("row-targets", roles=(TargetHolder,), schedule=target_schedule)
def mean_target(rows: Federation, setup: TargetSetup) -> TargetMean:
    """Asked first: targets that do not fit their rows are told before anything else leaves."""
    rows.enlist(TargetHolder, setup)
    targets = rows.total(TargetHolder.sum_targets).sum
    return TargetMean(targets.sums / targets.n_rows)


# Normal equations.


class ScoredTargets(Party):
    """Holds targets of rows whose scores are in its site's store."""

    Setup = RidgeSetup

    @step
    def normal_equations(self, centre: TargetMean) -> NormalEquations:
        """What scores and targets add up to; targets less their mean, to keep their digits."""
        share = self.site.kept(self.setup.scores, "points")
        assert share is not None, "scores are kept before their sums are asked for"
        Z = np.asarray(share["points"], dtype=np.float64)
        y = targets_of(self.site, self.setup.targets)
        sums = ridge_sums(Z, y - centre.mean)._asdict()
        return NormalEquations(upper=upper(sums.pop("gram")), **sums)


def ridge_schedule(
    scope: Scope, setup: RidgeSetup, mean: tuple[int, ...], n_components: int
) -> Node:
    """One question, with the targets' mean."""
    (m,) = mean
    question = total(ScoredTargets.normal_equations, m=m, k=n_components)
    return sequence(enlist(ScoredTargets, setup), question)


@protocol("component-ridge", roles=(ScoredTargets,), schedule=ridge_schedule)
def component_ridge(
    rows: Federation, setup: RidgeSetup, mean: Doubles, n_components: int, alpha: float
) -> RidgeFit:
    """Ridge with penalty `alpha` on the scores that the sites keep, and a free intercept."""
    rows.enlist(ScoredTargets, setup)
    total = rows.total(ScoredTargets.normal_equations, TargetMean(mean)).sum
    sums = (full(total.upper), *(getattr(total, name) for name in RidgeSums._fields[1:]))
    return ridge(RidgeSums(*sums), mean, alpha)


# Components, then ridge.


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
    exact: bool = False  # the components are those of the kernel
    outside: float | None = None  # of the rows' squares, the landmarks' span


def moment_ridge(
    fed: Federation, scoring: Stage, targets: str, mean: Doubles, alpha: float
) -> RidgeResult:
    """Ridge on the scores that a run of `moment_pca`, `scoring`, leaves at the sites."""
    result: MomentResult = scoring.run(fed).value
    setup = RidgeSetup(targets=targets, scores=scoring.args[0].scores)
    rank, d = len(result.model.eigenvalues), result.model.n_columns
    fit = fed.run(component_ridge, setup, mean, rank, alpha).value
    claims = ("the components are exact", result.baseline_floats)
    return RidgeResult(result.model, fit, d, "rows", *claims, exact=True)


def landmark_ridge(
    fed: Federation, scoring: Stage, targets: str, mean: Doubles, alpha: float
) -> RidgeResult:
    """Ridge on the scores that a run of `landmark_scores`, `scoring`, leaves at the sites."""
    scores: LandmarkScores = scoring.run(fed).value
    setup = RidgeSetup(targets=targets, scores=scoring.args[0].scores)
    rank = len(scores.model.eigenvalues)
    fit = fed.run(component_ridge, setup, mean, rank, alpha).value
    result, d = scores.result, int(scores.model.landmarks.shape[1])
    worth = f"the landmarks miss {result.outside:.3g} of the rows' summed squares, before centring"
    claims = (worth, result.baseline_floats)
    return RidgeResult(
        scores.model,
        fit,
        d,
        "landmarks",
        *claims,
        coverage=result.coverage,
        outside=result.outside,
    )
