"""Kernel PCA over row partitions with differential privacy: noised moments of random features.

Random features (Rahimi and Recht, 2007) have norm 1, so that one row moves the sum of their
products by a known amount, and Gaussian noise hides it: Dwork, Talwar, Thakurta and Zhang, "Analyze
Gauss", STOC 2014. Here for rows of several parties, each of which adds noise from its own entropy.

===================  ============================================================================
party keeps          its rows A_i (n_i, d)
party reveals        how many rows it has (counts); the sum of products of its rows' features, under
                     noise that hides what any one row holds (moments)
coordinator learns   these: by themselves (ε, δ)-private where sums are plain; with masked sums the
                     total alone, which has all the noise that it takes
===================  ============================================================================

Who adds how much: a party computes the noise from ε and δ of the study itself, and is told no σ.
Where its sum is seen, it adds all of it. Where sums are masked, each of s parties adds σ²/h of
variance, h = ⌈s/2⌉ (`runtime.privacy.honest_fewest`): any half of the parties have noise enough,
whoever of the others is lost, adds none, or tells its own.

Letters: t features and a constant; ẽ and the sensitivity √2 are in `maths`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np

from eigenmesh.errors import InputError, MessageRefused
from eigenmesh.methods.private_features.maths import (
    MOMENTS_SENSITIVITY,
    TopOfMoments,
    UnitFeatures,
    impossible_moments,
    moment_vector,
    unit_width,
)
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.feature_model import FeatureModel
from eigenmesh.numerics.kernels import UNIT_NORM, Kernel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Context,
    Message,
    Numbers,
    OwnColumns,
    OwnRows,
    Positive,
    Reveals,
    Shape,
    Whole,
    no_more_than,
)
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.privacy import GaussianMechanism, loss_of
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.results import Total
from eigenmesh.runtime.schedule import Node, Own, Scope, ask, enlist, sequence, total
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_messages import RowCount, by_party, count

MOST_FEATURES = 2000  # whose products take 16 MB


class PrivateSetup(Message, reveals=None):
    """Kernel and features, which hang on no data, and the promise: of one row, ε and δ."""

    kernel: str
    gamma: float | None
    n_features: Annotated[int, Positive, no_more_than(MOST_FEATURES)]
    seed: int
    center: bool
    epsilon: Annotated[float, Positive]
    delta: Annotated[float, Positive]

    moments_share: ClassVar[float] = 1.0  # of the loss, for the moments


class NoisedMoments(Message, reveals="moments", noised=True):
    """Σ ẽẽᵀ as a vector under noise, in whole numbers of its grid, and over how many rows."""

    upper: Annotated[Numbers, Shape("t*(t+1)//2"), Whole]
    n_rows: Annotated[int, Reveals("counts"), OwnRows]

    def contradiction(self, context: Context) -> str | None:
        """Norms of 1 add up to the number of rows; noise moves sums by no more than it may."""
        n_columns = context.facts.get(OwnColumns)
        expected = None if n_columns is None else _n_moments(context.setup, int(n_columns))
        if expected not in (None, len(self.upper)):
            return f"it has {len(self.upper)} moments, {expected} are expected"
        mechanism = moments_mechanism(context.setup, len(self.upper))
        return self.impossible(context.setup, mechanism, mechanism.sigma)

    def impossible(
        self, setup: PrivateSetup, mechanism: GaussianMechanism, sigma: float
    ) -> str | None:
        """Why no rows have these moments under noise of so much; also of a sum over parties."""
        vector = mechanism.read(self.upper)
        return impossible_moments(vector, sigma, self.n_rows, setup.kernel, setup.center)


def _n_moments(setup: PrivateSetup, n_columns: int) -> int:
    t = unit_width(setup.kernel, n_columns, setup.n_features) + int(setup.center)
    return t * (t + 1) // 2


class PrivateRows(Party):
    """Holds some rows of all columns."""

    Setup: ClassVar[type[PrivateSetup]] = PrivateSetup

    def __init__(self, site: SiteView, setup: PrivateSetup) -> None:
        super().__init__(site, setup)
        self.features = features_of(setup, int(site.data.shape[1]))

    @step
    def count_rows(self) -> RowCount:
        """Rows and columns."""
        return count(self.site)

    @step(reusable=False)
    def noised_moments(self) -> NoisedMoments:
        """Σ ẽẽᵀ, under noise that is drawn anew each time, and each time its loss is counted."""
        X = self.site.data
        vector = moment_vector(self.features, X, self.setup.center)
        mechanism = moments_mechanism(self.setup, len(vector))
        self.site.loss += mechanism.loss
        noised = mechanism.release(vector, self.site.n_summed)
        return NoisedMoments(upper=noised, n_rows=int(X.shape[0]))


def features_of(setup: PrivateSetup, n_columns: int) -> UnitFeatures:
    """The features that the parties agreed on."""
    if setup.kernel not in UNIT_NORM:
        raise InputError(
            f"kernel is {setup.kernel!r}, whose features have no bound; one of "
            f"{', '.join(map(repr, UNIT_NORM))} is expected, whose features have norm 1"
        )
    width = unit_width(setup.kernel, n_columns, setup.n_features)
    if width > MOST_FEATURES:
        raise InputError(
            f"the rows have {width:,} features; at most {MOST_FEATURES:,} are expected: choose "
            f"kernel='rbf' with a lower n_features"
        )
    kernel = Kernel(setup.kernel, setup.gamma, 3.0, 1.0)
    return UnitFeatures(kernel, n_columns, setup.n_features, setup.seed)


def moments_mechanism(setup: PrivateSetup, size: int) -> GaussianMechanism:
    """The noise of so many numbers of moments."""
    loss = setup.moments_share * loss_of(setup.epsilon, setup.delta)
    return GaussianMechanism(loss, MOMENTS_SENSITIVITY, size)


class SummedMoments(NamedTuple):
    """What all parties' moments add up to, and the noise in every number of it."""

    vector: Doubles
    sigma: float
    n_rows: int

    @classmethod
    def of(cls, rows: Federation, setup: PrivateSetup, released: Total) -> Self:
        """Read, and refused if no rows have it: masks hide whose part of it is wrong."""
        moments: NoisedMoments = released.sum
        mechanism = moments_mechanism(setup, len(moments.upper))
        sigma = sigma_in_sum(rows, mechanism, len(released.parties))
        words = moments.impossible(setup, mechanism, sigma)
        if words is not None:
            raise MessageRefused(f"{words}; whose words are wrong cannot be told")
        return cls(mechanism.read(moments.upper), sigma, moments.n_rows)


@record
@dataclass(frozen=True)
class PrivateResult:
    """The components that were found under noise, and about how much of the best they have."""

    model: FeatureModel
    edge: float  # the largest eigenvalue that noise has by itself
    share_of_best: float
    aligned: Doubles  # squared cosines between components and what they would be without noise
    sigma: float  # of the noise in every number of the sum
    baseline_floats: int
    stop_reason: str = "the noised moments are complete"

    @property
    def n_told_apart(self) -> int:
        """Components whose eigenvalue is above what noise alone would give."""
        return int(np.count_nonzero(self.aligned))


def schedule(scope: Scope, setup: PrivateSetup, n_components: int) -> Node:
    """Sizes, and one noised sum."""

    def t(own: Own) -> int:
        return unit_width(setup.kernel, own.columns, setup.n_features) + int(setup.center)

    return sequence(
        enlist(PrivateRows, setup),
        ask(PrivateRows.count_rows),
        total(PrivateRows.noised_moments, t=t),
    )


@protocol("private-features", roles=(PrivateRows,), schedule=schedule)
def private_pca(rows: Federation, setup: PrivateSetup, n_components: int) -> PrivateResult:
    """Two rounds: sizes, and the noised moments; all else is made of these."""
    rows.enlist(PrivateRows, setup)
    sizes = by_party(rows.ask(PrivateRows.count_rows))
    features = features_of(setup, next(iter(sizes.values())).n_columns)
    require_components(n_components, features.width)
    released = rows.total(PrivateRows.noised_moments)
    moments = SummedMoments.of(rows, setup, released)
    top = TopOfMoments.of(*moments, setup.center)
    return PrivateResult(
        features.model(top, n_components, moments.n_rows),
        top.edge,
        top.share_of_best(n_components),
        top.aligned[:n_components],
        moments.sigma,
        sum(size.n_values for size in sizes.values()),
    )


def sigma_in_sum(rows: Federation, mechanism: GaussianMechanism, n_in_sum: int) -> float:
    """The noise in a sum that covers so many of the parties."""
    if not rows.secure:
        return mechanism.sigma * float(np.sqrt(n_in_sum))
    n = rows.scope.n_taking_part
    return mechanism.sum_sigma(n, masked=True) * float(np.sqrt(n_in_sum / n))


def require_components(n_components: int, width: int) -> None:
    """Raise `InputError` unless the features can have so many components."""
    if n_components > width:
        raise InputError(
            f"{n_components} components of {width} features are asked for; at most as many as "
            f"features are expected: raise n_features"
        )
