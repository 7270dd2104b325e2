"""Kernel PCA over row partitions from a few landmarks, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.accuracy import (
    caveats_of,
    growth_notes,
    lost_in_rounding,
    missing_gap,
    n_resolved,
    residual_claim,
    rows_are_kept,
)
from eigenmesh.estimators.base import DoorArguments, Needs, seed_of
from eigenmesh.estimators.checks import (
    checked_accuracy,
    checked_gram_rank,
    one_of,
    whole_number,
)
from eigenmesh.estimators.kernel_gamma import (
    PSD_KERNELS,
    agreed_fields,
    gamma_stages,
    kernel_gamma,
    psd_kernel,
)
from eigenmesh.estimators.party_values import NONE, at_sites, in_order_of_ids
from eigenmesh.estimators.precision import landmark_bits, landmarks_in_words
from eigenmesh.estimators.report import RunReport
from eigenmesh.estimators.rows import RowEstimator
from eigenmesh.estimators.serving import Served
from eigenmesh.methods.diskpca.landmark_fits import Accuracy, DisKPCAResult, most_landmarks
from eigenmesh.methods.diskpca.paper import REDUCTIONS, SketchSetup, diskpca_sketched
from eigenmesh.methods.diskpca.protocol import GRAMS, LANDMARKS, diskpca
from eigenmesh.methods.diskpca.site_scores import RANK_BY_RULE, LandmarkSetup
from eigenmesh.methods.diskpca.weighted import weighted_kpca
from eigenmesh.methods.registry import Disclosure, Method, register
from eigenmesh.numerics.embeddings import is_exact, require_tensor_sketch
from eigenmesh.numerics.kernels import UNIT_NORM
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, floats_besides, stage
from eigenmesh.stages.row_messages import KernelSetup

_RANK_UNASKED = 10  # of the leverage, where all components are wanted


class DisKPCA(Served, RowEstimator):
    """Kernel PCA of rows held by several parties, from a few well-chosen landmarks.

    The parties agree on landmarks, rows or means of rows, and send what their rows add up to in the
    landmarks' span; the traffic does not grow with the number of rows. With `n_landmarks` at the
    number of rows the answer is that of scikit-learn's KernelPCA on the pooled rows.

    Parameters
    ----------
    n_components : components wanted; None for all that the landmarks determine.
    kernel : "linear"; "poly", (gamma x·y + coef0)^degree; "rbf", exp(−gamma ‖x−y‖²); "laplacian",
        exp(−gamma ‖x−y‖₁); "cosine"; or "arc-cosine", whose order is `degree`: 0, 1 (that of ReLU
        features) or 2.
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance".
    n_landmarks : distinct landmarks in all; the number of rows or more means every row.
    landmarks : "diskpca" draws half by leverage score and half by distance to the span of these,
        right for skewed data; "uniform"; "leverage"; "rpcholesky" draws 4 blocks, each by distance
        to the span of those before, in 10 rounds; "centroids" takes means of clusters of at
        least 5 rows of a party, best for "rbf" on real data, and no row leaves; "drawn" takes
        points of the normal law that has the mean and the largest directions of all rows, and means
        of the rows near them, whosever they are: parties of any size count, by sums alone.
    embedding_dim : dimensions in which leverage is measured; 2·n_components if None, or 20.
    center : centre in feature space, exactly.
    exact : True sums Gram matrices over the parties; False is the paper's own form, with sketches
        in their place: it sends more and errs more, and is there for comparison.
    sketch_size : of exact=False, columns of a sketch for each of what it sketches.
    reduction : of exact=False and "poly", what brings a tensor sketch down to `embedding_dim`:
        "gaussian", or "hadamard", the other form of the paper.
    n_repeats : fits with other draws each, of which the one that captures most is kept: a bad draw
        that happens once in ten is kept once in a hundred of two. Costs as many times as much.
    gram : "sum" adds up what the parties' rows add up to. "median" takes the geometric median of
        what each party has a row: a party that lies by any factor, without contradicting itself,
        moves it no further than the honest ones are spread. It takes three parties or more, no
        masks, landmarks "uniform" or "centroids" and no accuracy; where parties differ it is not
        the answer of the pooled rows.
    gram_rank : None, or in how many leading directions of the landmarks' span, which all know, the
        rows are added up: r (r + 1)/2 numbers a party in place of q (q + 1)/2, so that landmarks
        may be many. "auto" takes as many as matter for `n_components` within `accuracy`, or within
        2 % of the last eigenvalue. What is outside these directions is missing as what is outside
        the landmarks' span is: it is in `residual_`, `landmark_residual_` and `shortfalls_`.
    precision : "exact", or 32, 16, 8 or 4 bits, to which parties round landmarks before anybody
        has them, as multiples of a step that goes by how far their rows spread; "auto" is 8, which
        moved the excess over the optimal residual by 2e-4 at most; 4 double it or more. With a
        `gram_rank` sums travel in float32, and `report_.precision_error` says what that may do.
    random_state : seed of all draws.
    accuracy : None, or the largest share of a wanted eigenvalue that the landmarks may miss: one
        more round measures it, and a warning says if it is more.
    max_landmarks : with an accuracy, landmarks double up to so many while they miss more; None for
        `n_landmarks`, which then stay.

    Attributes
    ----------
    eigenvalues_ : of the (centred) kernel matrix of all rows, inside the landmarks' span.
    total_variance_, residual_, explained_variance_ratio_ : the variance in feature space. If
        centred, what of the mean lies outside the landmarks' span is estimated, and total and
        residual are 1.5 standard errors above: upper bounds, but for one case in fifteen. Exact
        otherwise, and if every row is a landmark.
    residual_error_ : that standard error; 0 if exact. With sample_weight, the most by which total
        and residual may be too large.
    landmark_residual_ : squared distance of all rows to the landmarks' span, the trace that they
        leave of the uncentred kernel matrix.
    landmarks_ : the landmarks, (q, n_features).
    gram_rank_ : in how many directions of their span rows were added up.
    leverage_skew_ : largest leverage score with respect to rank n_components / mean, as measured in
        the embedding; None where it was not measured. Above about 20 "diskpca" beats "uniform" by
        far.
    shortfalls_ : with an accuracy, the share of each wanted eigenvalue that the landmarks miss,
        estimated, (k,); `shortfall_` is the largest and `shortfall_error_` its standard error.
    report_ : what it cost, and what left each party; its notes say what is exact and what is not.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_digits
    >>> parts = em.split(load_digits().data / 16, n_parties=5, law="power", random_state=0)
    >>> kpca = em.DisKPCA(3, kernel="rbf", gamma="mean-distance", landmarks="centroids").fit(parts)
    >>> [Z.shape[1] for Z in kpca.transform(parts)]
    [3, 3, 3, 3, 3]
    >>> "rows" in kpca.report_.reveals["party-0"]
    False
    """

    _cheaper = "lower n_landmarks, or ask for less accuracy"
    _fitted = (
        "eigenvalues_",
        "explained_variance_ratio_",
        "total_variance_",
        "residual_",
        "residual_error_",
        "landmark_residual_",
        "gamma_",
        "leverage_skew_",
        "model_",
    )
    _optional = ("shortfalls_", "shortfall_", "shortfall_error_", "gram_rank_")

    def __init__(
        self,
        n_components: int | None = 2,
        *,
        kernel: str = "linear",
        gamma: float | str | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        n_landmarks: int = 100,
        landmarks: str = "diskpca",
        embedding_dim: int | None = None,
        center: bool = True,
        exact: bool = True,
        sketch_size: int = 4,
        reduction: str = "gaussian",
        n_repeats: int = 1,
        gram: str = "sum",
        gram_rank: int | str | None = None,
        precision: int | str = "exact",
        random_state: Any = None,
        accuracy: float | None = None,
        max_landmarks: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.landmarks = landmarks
        self.embedding_dim = embedding_dim
        self.center = center
        self.exact = exact
        self.sketch_size = sketch_size
        self.reduction = reduction
        self.n_repeats = n_repeats
        self.gram = gram
        self.gram_rank = gram_rank
        self.precision = precision
        self.random_state = random_state
        self.accuracy = accuracy
        self.max_landmarks = max_landmarks

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to rows split over parties: a Partitioned, a Federation, or a plain array.

        `sample_weight` says as how many copies a row counts: an array for an array, for parties a
        list with one each, which goes into its own party's site and no further. It counts in the
        components, not in the choice of landmarks; `total_variance_` is then an upper bound, and
        what landmarks miss a coarse estimate.

        Of a Dask array in chunks of rows, or a Dask DataFrame, every chunk is a party.
        """
        self._check(sample_weight is not None)
        with self._opened(self._source(X)) as fed, fed.recording() as recording:
            self._require_rows(fed)
            outcome = self._run(fed, in_order_of_ids(X, sample_weight))
        caveats = missing_gap(outcome.model.eigenvalues, outcome.model.next_eigenvalue)
        caveats += self._missing_in_words
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=outcome.stop_reason,
            baseline_floats=outcome.baseline_floats,
            notes=(*caveats, *self._facts()),
            cheaper=self._less(fed.split, fed.graph is not None),
            precision=landmarks_in_words(self.precision),
            precision_error=outcome.rounding / float(outcome.model.eigenvalues.min()),
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    def _check(self, weighted: bool) -> None:
        """Wrong parameters are told before anybody is asked."""
        self._planned_stages(weighted)

    def _planned_stages(self, weighted: bool) -> list[Stage]:
        """The runs of a fit as they are before anything is known of the data."""
        return self._repeated(1.0, "sample_weight" if weighted else NONE)

    def _repeated(self, gamma: float | None, weights: str = NONE) -> list[Stage]:
        """The run of a fit, as often as it is repeated."""
        n_repeats = whole_number(self.n_repeats, "n_repeats")
        return [self._stage(gamma, weights, repeat) for repeat in range(n_repeats)]

    def _run(self, fed: Federation, sample_weight: Any) -> DisKPCAResult:
        fed.require_stages(*self._planned_stages(sample_weight is not None))
        self._rows_kept = rows_are_kept(fed)
        gamma = kernel_gamma(fed, self.kernel, self.gamma, seed_of(self.random_state))
        with at_sites(fed, sample_weight, "sample_weight") as weights:
            return self._learn(fed, gamma, weights)

    def _learn(self, fed: Federation, gamma: float | None, weights: str) -> DisKPCAResult:
        """The fit itself: gamma is a number, and sites keep the weights under that key."""
        outcome: DisKPCAResult | None = None
        for repeated in self._repeated(gamma, weights):
            other: DisKPCAResult = repeated.run(fed).value
            if outcome is None or _captured(other) > _captured(outcome):
                outcome = other
        assert outcome is not None, "there is at least one"
        self._adopt(outcome, gamma)
        self._weighted = weights != NONE
        return outcome

    @classmethod
    def _for_door(cls, arguments: DoorArguments, options: Mapping[str, Any]) -> Self:
        own = arguments.shared_with(cls)
        if own["landmarks"] == "auto":
            own.update(options)
        own.update(
            n_components=arguments.n_components,
            n_landmarks=arguments.n_landmarks,
            accuracy=arguments.accuracy,
            max_landmarks=arguments.most_landmarks,
        )
        estimator = cls(**own)
        estimator._variance_share = arguments.share
        return estimator

    def _needs(self, fed: Federation, *, weighted: bool = False) -> Needs:
        return self._planned_stages(weighted)

    def _less(self, split: str, on_graph: bool) -> str:
        if self.kernel not in ("linear", "cosine"):
            return self._cheaper
        return "take SketchingPCA (method='sketching-pca'), which is exact for few columns"

    def _stages(self, parties: Parties) -> list[Stage]:
        """What a fit without weights runs."""
        seed = seed_of(self.random_state)
        return [*gamma_stages(self.kernel, self.gamma, parties, seed), *self._repeated(1.0)]

    def _stage(self, gamma: float | None, weights: str = NONE, repeat: int = 0) -> Stage:
        """The run of a fit; `weights` is the key under which sites keep their rows' weights."""
        self._require_median(weights)
        self._require_plain_sums(weights)
        choice = one_of(self.landmarks, "landmarks", LANDMARKS)
        q = whole_number(self.n_landmarks, "n_landmarks")
        accuracy, agreed = self._accuracy(q), self._agreed(gamma, repeat)
        how = (self._wanted(), q, choice, bool(self.center))
        if choice == "drawn" and not self.exact:
            raise InputError(
                "landmarks is 'drawn' and exact is False; sketches take rows or centroids: another "
                "choice is expected, or exact=True"
            )
        if weights != NONE:
            if not self.exact:
                raise InputError(
                    "sample_weight is given and exact is False; sketches have no weights: None is "
                    "expected, or exact=True"
                )
            weighted = LandmarkSetup(**{**vars(agreed), "weights": weights})
            return stage(weighted_kpca, weighted, *how, accuracy)
        return (
            stage(diskpca, agreed, *how, accuracy, self.gram)
            if self.exact
            else stage(diskpca_sketched, agreed, *how)
        )

    def _require_median(self, weights: str) -> None:
        """Whatever else is added up plainly could be lied about."""
        if one_of(self.gram, "gram", GRAMS) == "sum":
            return
        wrong = {
            "exact": not self.exact,
            "accuracy": self.accuracy is not None,
            "sample_weight": weights != NONE,
            "landmarks": self.landmarks not in ("uniform", "centroids"),
        }
        for name, is_wrong in wrong.items():
            if is_wrong:
                raise InputError(
                    f"gram is 'median' and {name} takes other sums, which are not robust; "
                    f"exact=True is expected, without accuracy and sample_weight, and "
                    f"landmarks='uniform' or 'centroids'"
                )

    def _require_plain_sums(self, weights: str) -> None:
        """Sketches travel as they are; of weighted sums nobody looks at what directions lose."""
        if not self.exact and self.precision != "exact":
            raise InputError(
                f"precision is {self.precision!r} and exact is False, where landmarks and sketches "
                f"travel as they are; 'exact' is expected, or exact=True"
            )
        if self.gram_rank is not None and not (self.exact and weights == NONE):
            reason = "exact is False" if not self.exact else "sample_weight is given"
            raise InputError(
                f"gram_rank is {self.gram_rank!r} and {reason}, where sums are in all directions; "
                f"None is expected: fewer n_landmarks, and precision where sums are exact, send "
                f"less"
            )

    def _checked_gram_rank(self) -> int | None:
        k, rank = self._wanted(), checked_gram_rank(self.gram_rank)
        if isinstance(rank, str):
            return None if k is None else RANK_BY_RULE
        if k is not None and rank is not None and rank < k:
            raise InputError(
                f"gram_rank is {rank} and n_components {k}; a direction for each component is "
                f"expected at least, and several times as many are better"
            )
        return rank

    def _accuracy(self, n_landmarks: int) -> Accuracy | None:
        if self.accuracy is None:
            return None
        if not self.exact:
            raise InputError(
                "accuracy is given and exact is False; what sketches miss is not measured: "
                "accuracy=None is expected, or exact=True"
            )
        most = self.max_landmarks
        most = n_landmarks if most is None else whole_number(most, "max_landmarks")
        return Accuracy(checked_accuracy(self.accuracy), most, self._variance_share)

    _rows_kept = False  # whether a policy, known here, lets none out
    _weighted = False  # whether the last fit had weights
    _variance_share: float | None = None  # of a front door: so much is all that is wanted

    def _missing(self, outcome: DisKPCAResult) -> tuple[str, ...]:
        coverage = outcome.coverage
        assert coverage is not None
        n_landmarks, numbered = outcome.model.landmarks.shape[0], self.n_components is not None
        limited = numbered or self._variance_share is not None
        assert self.accuracy is not None
        sound = n_resolved(outcome.model)
        how = (n_landmarks, self.landmarks, limited, self._rows_kept, sound)
        words = caveats_of(coverage, self.accuracy, *how)
        rounded = lost_in_rounding(outcome.model, len(coverage.shortfall.values))
        if words and not limited:  # they say already that not all there are can be had
            rounded = ()
        self.shortfalls_ = coverage.shortfall.values
        self.shortfall_ = coverage.shortfall.largest
        self.shortfall_error_ = coverage.shortfall.error
        self._shortfall_errors = coverage.shortfall.errors
        return (*words, *rounded)

    def _agreed(self, gamma: float | None, repeat: int = 0) -> KernelSetup:
        rank, gram_rank = self._wanted() or _RANK_UNASKED, self._checked_gram_rank()
        bits = landmark_bits(self.precision)
        kernel = psd_kernel(self.kernel, gamma, self.degree, self.coef0)
        width = 2 * rank if self.embedding_dim is None else self.embedding_dim
        agreed = agreed_fields(kernel, rank, width, self.random_state)
        if repeat:
            draws = np.random.SeedSequence(agreed["seed"], spawn_key=(repeat,))
            agreed["seed"] = int(draws.generate_state(1)[0])
        reduction = one_of(self.reduction, "reduction", REDUCTIONS)
        if self.exact:
            return LandmarkSetup(**agreed, gram_rank=gram_rank, bits=bits)
        if reduction == "hadamard":
            require_tensor_sketch(kernel)
        size = whole_number(self.sketch_size, "sketch_size")
        return SketchSetup(**agreed, sketch_size=size, reduction=reduction)

    def _plan_notes(
        self, names: Sequence[str], shapes: Sequence[tuple[int, int]]
    ) -> tuple[str, ...]:
        """What it would cost if landmarks doubled as often as they may, and what is not sure."""
        notes: tuple[str, ...] = ()
        if self.exact and self._checked_gram_rank() == RANK_BY_RULE:
            notes = ("about: sums are in as many directions as matter, which landmarks will tell",)
        if self.accuracy is None:
            return notes
        parties = Parties(tuple(names), tuple(shapes))
        more = floats_besides(self._repeated(1.0), parties, "rows")
        return (*notes, *self._growth_notes(names, shapes, more))

    def _growth_notes(
        self, names: Sequence[str], shapes: Sequence[tuple[int, int]], more: int
    ) -> tuple[str, ...]:
        assert self.accuracy is not None
        q, n = self.n_landmarks, sum(most_landmarks(self.landmarks, rows) for rows, _ in shapes)
        return growth_notes(q, min(self.max_landmarks or q, n), self.accuracy, more, len(names))

    def _adopt(self, outcome: DisKPCAResult, gamma: float | None) -> None:
        model = outcome.model
        for name in self._optional:
            self.__dict__.pop(name, None)
        self._missing_in_words = () if self.accuracy is None else self._missing(outcome)
        self.model_ = model
        self.gamma_ = gamma
        self.eigenvalues_ = model.eigenvalues
        self.total_variance_ = model.total
        self.residual_ = model.residual
        self.explained_variance_ratio_ = model.eigenvalues / model.total
        self.landmark_residual_ = outcome.outside
        self.residual_error_ = outcome.residual_error
        self.leverage_skew_ = outcome.leverage_skew
        self.gram_rank_ = outcome.rank or int(model.landmarks.shape[0])
        self.n_features_in_ = int(model.landmarks.shape[1])
        self._last_transform: list[RunReport] = []

    def _saved_names(self) -> list[str]:
        return [*super()._saved_names(), *(name for name in self._optional if hasattr(self, name))]

    def _facts(self) -> tuple[str, ...]:
        """What the answer is worth, in words."""
        q, span = self.model_.landmarks.shape[0], "the landmarks miss"
        if self.gram_rank_ < q:
            span = f"{self.gram_rank_} directions of the span of {q} landmarks miss"
        shown = f"{span} {self.landmark_residual_:.3g} of the rows' summed squares, before centring"
        claim = residual_claim(self.residual_, self.residual_error_, self._weighted)
        if self.gram == "median":
            shown = f"sums are the median party's a row, times the rows: {shown}"
        if self.leverage_skew_ is None:
            return (claim, shown)
        agreed = self._agreed(self.gamma_)
        t = agreed.embedding_dim
        how = (
            "exact"
            if self.exact and is_exact(agreed.kernel, self.n_features_in_, t)
            else f"estimated in {t} dimensions"
        )
        skew = f"the largest leverage of rank {agreed.leverage_rank} is {self.leverage_skew_:.1f}"
        return (claim, shown, f"{skew} times the mean, {how}")

    @property
    def landmarks_(self) -> Any:
        """The landmarks."""
        check_is_fitted(self)
        return self.model_.landmarks

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)


def _captured(outcome: DisKPCAResult) -> float:
    return float(outcome.model.eigenvalues.sum())


_DISCLOSES: dict[str, Disclosure] = {"centroids": "means", "drawn": "sums"}


def _with_landmarks(
    landmarks: str, kernels: tuple[str, ...], why: str, rank: int = 10, masked: bool = False
) -> Method:
    return Method(
        "diskpca",
        "rows",
        kernels,
        DisKPCA,
        why,
        rank=rank,
        discloses=_DISCLOSES.get(landmarks, "rows"),
        options={"landmarks": landmarks},
        n_components="or share",
        span="landmarks",
        landmarks=LANDMARKS,
        takes_weights=True,
        masked=masked,
    )


register(
    _with_landmarks(
        "drawn",
        PSD_KERNELS,
        "landmarks are drawn from sums over all parties, in which those of any size count",
        rank=8,
        masked=True,
    )
)
register(
    _with_landmarks(
        "centroids",
        UNIT_NORM,
        "centroids are the best landmarks where every row weighs the same, and no row leaves",
    )
)
register(
    _with_landmarks(
        "diskpca",
        PSD_KERNELS,
        "landmarks are rows drawn by leverage and distance, since a few may carry the variance",
    )
)
register(_with_landmarks("centroids", PSD_KERNELS, "landmarks are centroids, and no row leaves"))
