"""Kernel PCA over row partitions from sums alone, where the kernel's feature space is small.

Principal components follow from the mean and the products of the features (Pearson, "On lines and
planes of closest fit to systems of points in space", Philosophical Magazine 2, 1901), and both are
sums over rows. Of a linear kernel the features are the columns; of a cosine kernel those of unit
rows; of a polynomial kernel the products of up to `degree` columns.

===================  ============================================================================
party keeps          its rows A_i (n_i, d), and if asked to their scores
party reveals        how many rows it has (counts); the sum of its rows' features, and the sum of
                     their products about the mean of all rows (moments)
coordinator learns   these, or with masked sums their totals alone; the mean, and the components
                     if scores are to be kept, go to all parties
===================  ============================================================================

Letters: E features (n, D), m their mean. Two passes, m before Σ(e − m)(e − m)ᵀ: the products of
columns far from 0 would leave none of their digits to the variance. Nothing is drawn, nothing is
approximated, and D(D+1)/2 + D numbers leave a party however many rows it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import InputError
from eigenmesh.numerics.arrays import Doubles
from eigenmesh.numerics.explicit_features import (
    ExplicitFeatures,
    centred_products,
    explicit_width,
    feature_sums,
)
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import full, upper
from eigenmesh.numerics.moment_model import MomentModel
from eigenmesh.numerics.plausible import is_gram
from eigenmesh.numerics.unit_factors import ColumnMoments
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import (
    Context,
    Floats,
    Message,
    NonNegative,
    OwnRows,
    Reveals,
    Shape,
    Wide,
    no_more_than,
)
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import (
    Node,
    Own,
    Scope,
    ask,
    at_most,
    enlist,
    restarted,
    sequence,
    total,
)
from eigenmesh.runtime.site import SiteView
from eigenmesh.stages.row_messages import (
    NOT_A_GRAM,
    RowCount,
    by_party,
    count,
    kernel_of,
)
from eigenmesh.stages.site_points import keep_points, weights_of
from eigenmesh.stages.unit_check import compare_moments

for kind in (MomentModel, Kernel):
    record(kind)

MOST_FEATURES = 2000  # whose products take 16 MB, and a party 32 MB to add up
_CANCELLED = 1e-12  # of squares about the common mean: less is what rounding left of a variance


class MomentSetup(Message, reveals=None):
    """The kernel, and keys of a site's own store: of its rows' weights, and scores; or empty."""

    kernel: str
    gamma: float | None
    degree: Annotated[float, no_more_than(100)]
    coef0: float
    center: bool
    scores: str = ""
    weights: str = ""
    weighted: bool = True  # whether weights count here, and not only in what comes after


class FeatureSums(Message, reveals="moments"):
    """Σ w e, and Σ w."""

    sums: Annotated[Floats, Shape("t"), Wide]
    weight: Annotated[float, Reveals("counts"), NonNegative]


class FeatureMean(Message, reveals="moments"):
    """The mean of all rows' features."""

    mean: Annotated[Floats, Shape("t")]


class CentredProducts(Message, reveals="moments"):
    """Σ w (e − m)(e − m)ᵀ by its upper triangle, and over how many rows."""

    # A small feature's products are scaled up before anything is made of them, with what masked
    # sums have rounded: in one word they are nothing beside a large one's.
    upper: Annotated[Floats, Shape("t*(t+1)//2"), Wide]
    n_rows: Annotated[int, Reveals("counts"), OwnRows]

    def contradiction(self, context: Context) -> str | None:
        """A sum of squares is positive."""
        return None if is_gram(full(self.upper)) else NOT_A_GRAM


class FeatureComponents(Message, reveals="moments"):
    """Scores are (e − m) `components`."""

    mean: Annotated[Floats, Shape("t")]
    components: Annotated[Floats, Shape("t", "k")]


class MomentRows(Party):
    """Holds some rows of all columns."""

    Setup = MomentSetup

    def __init__(self, site: SiteView, setup: MomentSetup) -> None:
        super().__init__(site, setup)
        width = features_of(setup, int(site.data.shape[1]))
        if not 0 < width <= MOST_FEATURES:
            raise InputError(
                f"the rows have {width:,} features under the {setup.kernel!r} kernel; from 1 to "
                f"{MOST_FEATURES:,} are expected, whose products can be added up: choose "
                f"landmarks='centroids'"
            )
        self.features = ExplicitFeatures(kernel_of(setup), int(site.data.shape[1]))

    @property
    def weights(self) -> Doubles | None:
        """How much each row counts; None if all count alike."""
        key = self.setup.weights if self.setup.weighted else ""
        return np.asarray(weights_of(self.site, key), dtype=np.float64) if key else None

    @step
    def count_rows(self) -> RowCount:
        """Rows and columns."""
        return count(self.site)

    @step(reusable=False)
    def feature_sums(self) -> FeatureSums:
        """Σ w e."""
        X, w = self.site.data, self.weights
        weight = float(X.shape[0] if w is None else w.sum())
        return FeatureSums(sums=feature_sums(self.features, X, w), weight=weight)

    @step(reusable=False)
    def centred_products(self, centre: FeatureMean) -> CentredProducts:
        """Σ w (e − m)(e − m)ᵀ."""
        X = self.site.data
        products = centred_products(self.features, X, np.asarray(centre.mean), self.weights)
        return CentredProducts(upper=upper(products), n_rows=int(X.shape[0]))

    @step(reusable=False)
    def keep_scores(self, answer: FeatureComponents) -> None:
        """The rows' scores, in the site's store."""
        model = scoring_model(self.features, answer)
        keep_points(self.site, self.setup, model.transform(self.site.data))


def features_of(setup: MomentSetup, n_columns: int) -> int:
    """How many features rows of so many columns have."""
    return explicit_width(setup.kernel, n_columns, setup.degree, setup.coef0)


def scoring_model(features: ExplicitFeatures, answer: FeatureComponents) -> MomentModel:
    """What scores rows, of components that came without their eigenvalues."""
    W = np.asarray(answer.components, dtype=np.float64)
    facts = (np.zeros(W.shape[1]), 0.0, 0.0, 0, features.n_columns)
    return MomentModel(features.kernel, np.asarray(answer.mean), W, *facts)


@record
@dataclass(frozen=True)
class MomentResult:
    """The components, which are exact."""

    model: MomentModel
    baseline_floats: int
    stop_reason: str = "the features' moments are complete"


def schedule(scope: Scope, setup: MomentSetup, n_components: int | None) -> Node:
    """Sizes, the mean, products about it; then the components, if scores are to be kept.

    Where a party is lost between mean and products both are asked for again, of those left.
    """

    def width(own: Own) -> int:
        return features_of(setup, own.columns)

    mean = total(MomentRows.feature_sums, t=width)
    moments = restarted(scope, mean, total(MomentRows.centred_products, t=width))
    k = at_most(width) if n_components is None else at_most(n_components)
    scores = ask(MomentRows.keep_scores, t=width, k=k) if setup.scores else None
    return sequence(enlist(MomentRows, setup), ask(MomentRows.count_rows), moments, scores)


@protocol("moments", roles=(MomentRows,), schedule=schedule)
def moment_pca(rows: Federation, setup: MomentSetup, n_components: int | None) -> MomentResult:
    """Three rounds, and one more if sites are to keep scores; then fewer components may do."""
    rows.enlist(MomentRows, setup)
    sizes = by_party(rows.ask(MomentRows.count_rows))
    d = next(iter(sizes.values())).n_columns
    features = ExplicitFeatures(kernel_of(setup), d)
    mean, products = _moments(rows, setup, features)
    facts = (features, mean, full(products.upper), products.n_rows, n_components)
    model = MomentModel.fit(*facts, fewer=bool(setup.scores))
    if setup.scores:
        message = FeatureComponents(mean=model.mean, components=model.components)
        rows.ask(MomentRows.keep_scores, message)
    return MomentResult(model, sum(size.n_values for size in sizes.values()))


def _moments(
    rows: Federation, setup: MomentSetup, features: ExplicitFeatures
) -> tuple[Doubles, Any]:
    """Mean, or 0 if not centred, and products over the same rows."""
    while True:
        summands = _Summands(features)
        first = rows.total(MomentRows.feature_sums, look=summands.take_sums)
        if first.sum.weight <= 0:
            raise InputError("sample_weight is 0 everywhere; at least one must be larger")
        mean = np.asarray(first.sum.sums / first.sum.weight, dtype=np.float64)
        centre = mean if setup.center else np.zeros(features.width)
        products = rows.total(
            MomentRows.centred_products, FeatureMean(mean=centre), look=summands.take_products
        )
        if products.parties == first.parties:
            moments = summands.moments(centre, rows.in_own_units)
            cosine = setup.kernel == "cosine"
            compare_moments(rows, moments, power=summands.power, unit_rows=cosine)
            return centre, products.sum


class _Summands:
    """Of each party what its columns add up to; of nobody's where sums are masked."""

    def __init__(self, features: ExplicitFeatures) -> None:
        self.places, self.factors, self.power = features.of_one_column
        self.squares = features.width * self.places - self.places * (self.places - 1) // 2
        self.has_units = features.kernel.name != "cosine" and self.power == 1
        self.means: dict[str, tuple[Doubles, float]] = {}
        self.parties: dict[str, tuple[Doubles, int]] = {}

    def take_sums(self, party: str, own: FeatureSums) -> None:
        if own.weight > 0:
            self.means[party] = np.asarray(own.sums)[self.places] / own.weight, own.weight

    def take_products(self, party: str, own: CentredProducts) -> None:
        """Of the upper triangle the diagonal, at the columns' places."""
        self.parties[party] = np.asarray(own.upper)[self.squares], own.n_rows

    def moments(
        self, centre: Doubles, in_own_units: Callable[[Any], Any]
    ) -> dict[str, ColumnMoments]:
        """Of each party's columns, or powers of columns, as its owner would write them."""
        about = centre[self.places]
        moments = {}
        for party in self.means.keys() & self.parties.keys():
            (mean, weight), (squares, n_rows) = self.means[party], self.parties[party]
            second = squares / weight
            variance = second - (mean - about) ** 2
            spread = np.sqrt(np.where(variance > _CANCELLED * second, variance, 0.0))
            points = np.stack([mean, mean + spread]) / self.factors
            low, high = in_own_units(points) if self.has_units else points
            moments[party] = ColumnMoments(low, (high - low) ** 2, n_rows)
        return {party: moments[party] for party in self.parties if party in moments}
