"""Rows in one place: by their whole kernel matrix or through which landmarks, at once or in blocks.

Everything here takes the parameters of a `KernelPCA`, `kpca`, and gives back what it is to adopt.
"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from eigenmesh.errors import EigenmeshWarning, InputError, RankError
from eigenmesh.estimators.accuracy import caveats_of, lost_in_rounding, n_resolved
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import components_asked
from eigenmesh.estimators.kernel_gamma import PSD_KERNELS, kernel_gamma
from eigenmesh.estimators.naming import frame_in_order
from eigenmesh.estimators.party_values import NONE
from eigenmesh.kernel_pca.exact import ExactModel, PairwiseKernel
from eigenmesh.kernel_pca.streams import ROWS_A_LANDMARK, LandmarkStream
from eigenmesh.methods.registry import method_called
from eigenmesh.numerics import kernels
from eigenmesh.numerics.arrays import Doubles, Rows, is_sparse, require_moderate
from eigenmesh.numerics.embeddings import leverage_skew
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmark_sums import KernelValues
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.numerics.moment_model import MomentModel
from eigenmesh.numerics.shortfall import Shortfall, nothing_missing, spans_all
from eigenmesh.runtime.alone import Alone
from eigenmesh.runtime.site import OWN_WEIGHTS
from eigenmesh.stages.coverage import Coverage
from eigenmesh.threads import one_blas_thread

EXACT_ROWS = 2000  # up to here the whole kernel matrix takes about a second
EXACT_RATHER = 6000  # and so many, if landmarks miss more than they may
EXACT_MOST = 30_000  # its kernel matrix takes 7 GB
SKEWED = 20.0  # leverage max/mean above which a few rows carry the variance
SKEW_ROWS = 20_000  # rows on which the skew of a plain array is measured
ALIKE_ROWS = 2048  # the same where k(x, x) = 1: a rare row that is missed weighs no more
ROWS_A_CENTROID = 10  # fewer rows have no clusters worth a mean
MOST_LANDMARKS = 2000  # that are taken unasked
_ROUNDED = 100 * np.finfo(np.float64).eps  # of the trace: a kernel matrix knows nothing smaller

LANDMARK_KERNELS = PSD_KERNELS  # the others have no feature space that landmarks could span

NO_VARIANCE = (
    "the rows do not differ in feature space: every eigenvalue is 0 but for rounding; check that "
    "the rows differ, and gamma if there is one"
)

Model = TypeVar("Model", ExactModel, LandmarkModel, MomentModel)


@dataclass(frozen=True)
class MethodChoice:
    """A method by name, and why it was chosen."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


@dataclass(frozen=True)
class LandmarkFacts:
    """What of the rows lies outside the landmarks' span, and how well their mean is known."""

    outside: float
    residual_error: float = 0.0
    leverage_skew: float | None = None


@dataclass(frozen=True)
class ComponentFit:
    """Components of rows that are in one place, or that landmarks stand for; what is known of them.

    `caveats` say that landmarks miss more than they may.
    """

    model: Any  # an ExactModel or a LandmarkModel
    gamma: float | None
    words: str
    missing: Shortfall
    facts: LandmarkFacts | None = None  # of landmarks
    caveats: tuple[str, ...] = ()

    @classmethod
    def by_landmarks(
        cls, estimator: Any, gamma: float | None, words: str, share: float | None
    ) -> ComponentFit:
        """What an estimator with landmarks gave, of which a share of the variance is wanted."""
        facts = LandmarkFacts(
            estimator.landmark_residual_, estimator.residual_error_, estimator.leverage_skew_
        )
        missing = Shortfall(estimator.shortfalls_, estimator._shortfall_errors)
        model = explaining(estimator.model_, share)
        return cls(model, gamma, words, missing, facts, estimator._missing_in_words)

    @classmethod
    def by_moments(cls, estimator: Any, words: str, share: float | None) -> ComponentFit:
        """What sums of features gave, of which nothing is missing."""
        model = explaining(estimator.model_, share)
        return cls(model, estimator.gamma_, words, nothing_missing(len(model.eigenvalues)))


def fit_rows(
    kpca: Any, X: Rows, weights: Doubles | None, kept: KernelValues | None = None
) -> ComponentFit:
    """Components of checked rows, exactly or through landmarks that are drawn from them.

    `kept` gets the rows' kernel values with the landmarks.
    """
    choice = pooled_choice(kpca, X.shape[0])
    if choice.name == "exact":
        return _fit_exact(kpca, X, choice, weights)
    may_be_exact = _would_rather_be_exact(kpca, X)
    try:
        components = _fit_landmarks(kpca, X, choice, weights, kept)
    except RankError:  # of rows far from 0, say, of which landmarks' floats show one direction
        if not may_be_exact:
            raise
        why = f"landmarks of {X.shape[0]:,} rows determine fewer components than are wanted"
    else:
        if not (components.caveats and may_be_exact):
            return components
        few = components.model.landmarks.shape[0]
        why = f"{few:,} landmarks of {X.shape[0]:,} rows miss too much"
    return _fit_exact(kpca, X, MethodChoice("exact", why), weights)


def pooled_choice(kpca: Any, n_rows: int) -> MethodChoice:
    """How a `KernelPCA` fits so many rows in one place."""
    return choose_pooled(
        kpca.method,
        kpca.kernel,
        n_rows,
        wants_landmarks=kpca.n_landmarks is not None or kpca.landmarks_are_given,
        eigen_solver=kpca.eigen_solver,
    )


def _would_rather_be_exact(kpca: Any, X: Rows) -> bool:
    """Whether landmarks that were not asked for may give way, for rows that are not many."""
    unasked = kpca.method == "auto" and kpca.n_landmarks is None and kpca.landmarks == "auto"
    return unasked and X.shape[0] <= EXACT_RATHER and kpca.n_components is not None


# The kernel.


def pairwise_kernel(kpca: Any, gamma: float | None) -> PairwiseKernel:
    """The kernel, as scikit-learn has it."""
    params = dict(kpca.kernel_params or {})
    return PairwiseKernel(kpca.kernel, gamma, kpca.degree, kpca.coef0, params, kpca.n_jobs)


def _pooled_gamma(kpca: Any, X: Rows) -> float:
    """Gamma as a number; where the kernel has none, what scikit-learn would state."""
    if isinstance(kpca.gamma, str) and _uses_gamma(kpca.kernel):
        gamma = kernel_gamma(Alone(X), kpca.kernel, kpca.gamma, seed_of(kpca.random_state))
        return float(gamma or 0.0)
    return float(kpca.gamma) if isinstance(kpca.gamma, Real) else 1 / int(X.shape[1])


def _uses_gamma(kernel: Any) -> bool:
    return isinstance(kernel, str) and (
        kernel in kernels.KERNELS and kernels.KERNELS[kernel].uses_gamma
    )


def landmark_gamma(kpca: Any, X: Rows) -> float | None:
    """The same; None where the kernel has none."""
    return _pooled_gamma(kpca, X) if _uses_gamma(kpca.kernel) else None


def stated_gamma(model: LandmarkModel) -> float:
    """That of a model, or what scikit-learn would state."""
    gamma = model.kernel.gamma
    return 1 / int(model.landmarks.shape[1]) if gamma is None else float(gamma)


# The whole kernel matrix.


def _fit_exact(kpca: Any, X: Rows, choice: MethodChoice, weights: Doubles | None) -> ComponentFit:
    share, k = components_asked(kpca.n_components)
    gamma = _pooled_gamma(kpca, X)
    kernel = pairwise_kernel(kpca, gamma)
    rows = X.copy() if kpca.copy_X and kernel.name != "precomputed" else X
    solver = {
        # A share needs the whole spectrum, which only "dense" gives.
        "eigen_solver": kpca.eigen_solver if share is None else "dense",
        "tol": kpca.tol,
        "max_iter": kpca.max_iter,
        "iterated_power": kpca.iterated_power,
        "remove_zero_eig": kpca.remove_zero_eig,
        "random_state": kpca.random_state,
        "copy_X": kpca.copy_X,
    }
    whole = ExactModel.fit(kernel, rows, k, bool(kpca.center), solver, weights)
    model = explaining(whole, share)
    missing = nothing_missing(len(model.eigenvalues))
    caveats = () if k is None else _undetermined(model)
    return ComponentFit(model, gamma, str(choice), missing, caveats=caveats)


def _undetermined(model: ExactModel) -> tuple[str, ...]:
    """The caveat that the last eigenvalues are rounding, or 0 as scikit-learn leaves them."""
    k, uncentred = len(model.eigenvalues), model.total
    if model.means is not None:
        uncentred += model.n_rows * model.means.overall
    rank = int(np.count_nonzero(model.eigenvalues > _ROUNDED * abs(uncentred)))
    if rank == k or not rank:  # without any variance there is another caveat
        return ()
    return (
        f"{k} components were asked for, the rows determine {rank}: from eigenvalue {rank + 1} on "
        f"they are 0 but for rounding; set n_components to at most {rank}, or check that the rows "
        f"differ, and that no column or row dwarfs the others",
    )


# Landmarks.


def _fit_landmarks(
    kpca: Any,
    X: Rows,
    choice: MethodChoice,
    weights: Doubles | None,
    kept: KernelValues | None,
) -> ComponentFit:
    share, k = components_asked(kpca.n_components)
    # One limit over all: threads of a single product before it would spin through the fit.
    with one_blas_thread():
        gamma = landmark_gamma(kpca, X)
        estimator, why = with_landmarks(kpca, X, gamma, k, kpca.accuracy)
        learn_alone(estimator, X, gamma, kept, weights)
    stated = stated_gamma(estimator.model_)
    return ComponentFit.by_landmarks(estimator, stated, f"{choice}; {why}", share)


def with_landmarks(
    kpca: Any, X: Rows, gamma: float | None, k: int | None, accuracy: float | None
) -> tuple[Any, str]:
    """The estimator for rows in one place, and why with these landmarks."""
    q = kpca.n_landmarks
    q = default_landmarks(k, kpca.kernel, X.shape[1]) if q is None else q
    landmarks, why = kpca.landmarks, f"the landmarks are {kpca.landmarks!r}, as asked for"
    if landmarks == "auto":
        landmarks, why = landmarks_for(kpca, gamma, X, q, k or 10)
    estimator = method_called("diskpca").estimator(
        k,
        kernel=kpca.kernel,
        gamma=gamma,
        degree=kpca.degree,
        coef0=kpca.coef0,
        n_landmarks=q,
        landmarks=landmarks,
        # Without an accuracy only the landmarks are wanted, which do not hang on the centre.
        center=kpca.center and accuracy is not None,
        random_state=kpca.random_state,
        accuracy=accuracy,
        max_landmarks=None if accuracy is None else landmarks_at_most(kpca, q),
    )
    estimator._variance_share = components_asked(kpca.n_components)[0]
    return estimator, why


def learn_alone(
    estimator: Any,
    X: Rows,
    gamma: float | None,
    kept: KernelValues | None = None,
    weights: Doubles | None = None,
) -> Any:
    """What the estimator learns of rows in one place, whose gamma is known: nobody is asked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EigenmeshWarning)  # remarks on columns are given before
        key = NONE if weights is None else OWN_WEIGHTS
        return estimator._learn(Alone(X, kept, weights), gamma, key)


def landmarks_at_most(kpca: Any, n_landmarks: int) -> int:
    """Up to how many landmarks may double: numbers that are given, of either kind, stay."""
    grows = kpca.n_landmarks is None and kpca.n_components is not None
    return MOST_LANDMARKS if grows else n_landmarks


# Blocks.


def require_sums_suit(kpca: Any) -> None:
    """Refuse parameters that are for rows which are all here."""
    if kpca.kernel not in LANDMARK_KERNELS or kpca.method not in ("auto", "diskpca"):
        raise InputError(f"method is {kpca.method!r}; {only_landmarks(kpca.kernel)}")


def only_landmarks(kernel: Any) -> str:
    """What blocks need, in words."""
    return (
        f"kernel is {kernel!r}; blocks of rows add up over landmarks: method 'auto' or 'diskpca' "
        f"is expected, and one of the kernels {', '.join(LANDMARK_KERNELS)}"
    )


def new_stream(kpca: Any, block: Rows) -> LandmarkStream:
    """What blocks of rows add up in, beginning with this one, which is not added yet."""
    require_sums_suit(kpca)
    if kpca.landmarks_are_given:
        return stream_of_given(kpca, block)
    q = kpca.n_landmarks
    if q is None:
        _, k = components_asked(kpca.n_components)
        q = default_landmarks(k, kpca.kernel, block.shape[1])

    def first_model(rows: Rows) -> LandmarkModel:
        gamma = landmark_gamma(kpca, rows)
        estimator, _ = with_landmarks(kpca, rows, gamma, None, accuracy=None)
        model: LandmarkModel = learn_alone(estimator, rows, gamma).model
        return model

    return LandmarkStream(first_model, ROWS_A_LANDMARK * q)


def stream_of_given(kpca: Any, block: Rows) -> LandmarkStream:
    """What adds up over landmarks that are given as rows, before any row is added."""
    landmarks = frame_in_order(kpca.landmarks, kpca._known_names)
    Y = landmarks if is_sparse(landmarks) else np.asarray(landmarks)
    if Y.ndim != 2 or Y.shape[1] != block.shape[1] or Y.dtype.kind not in "biuf":
        raise InputError(
            f"landmarks have shape {Y.shape}; numbers of shape (q, {block.shape[1]}) are "
            f"expected, a landmark a row"
        )
    require_moderate(Y, "landmarks=")
    kernel = Kernel(kpca.kernel, landmark_gamma(kpca, block), kpca.degree, kpca.coef0)
    return LandmarkStream.resumed(kernel, Y.astype(block.dtype), None)


def stream_components(kpca: Any, stream: LandmarkStream) -> ComponentFit:
    """The components of all blocks so far."""
    share, k = components_asked(kpca.n_components)
    whole = stream.model(k, bool(kpca.center))
    model = explaining(whole.model, share)
    whence = "given" if kpca.landmarks_are_given else "from the first rows"
    words = f"diskpca: rows add up block by block; the landmarks are {whence}"
    q, outside = int(model.landmarks.shape[0]), whole.outside
    missing = nothing_missing(len(model.eigenvalues))
    if not spans_all(outside, whole.model.total, q, model.n_rows):
        missing = stream.missing(model, outside, bool(kpca.center))
    wants_number = kpca.n_components is not None
    how = (q, "given", wants_number, False, n_resolved(model))
    caveats = caveats_of(Coverage(missing, {}, ()), kpca.accuracy, *how)
    caveats = tuple(f"{caveat}{_of_stream(kpca, stream, model)}" for caveat in caveats)
    if wants_number or not caveats:  # else they say already that not all there are can be had
        caveats += lost_in_rounding(model)
    facts = LandmarkFacts(whole.outside, whole.error)
    return ComponentFit(model, stated_gamma(whole.model), words, missing, facts, caveats)


def _of_stream(kpca: Any, stream: LandmarkStream, model: LandmarkModel) -> str:
    """What blocks have to do with what is missing."""
    words = ""
    if not kpca.landmarks_are_given:
        words += (
            "; the landmarks are from the first rows: if rows come in an order, shuffle them, or "
            "pass all in one array, or landmarks= from all of them"
        )
    if stream.unseen is not None:
        words += (
            f"; {stream.unseen.n_rows:,} of {model.n_rows:,} rows were added before this model was "
            f"loaded, or elsewhere, and what is missing of them is not known"
        )
    return words


# Which method, and which landmarks.


def choose_pooled(
    method: str, kernel: Any, n_rows: int, *, wants_landmarks: bool, eigen_solver: str
) -> MethodChoice:
    """The whole kernel matrix, or landmarks."""
    only_exact = callable(kernel) or kernel not in LANDMARK_KERNELS
    if method not in ("auto", "exact", "diskpca"):
        raise InputError(
            f"method is {method!r}; for one array 'auto', 'exact', 'diskpca' are there"
        )
    if only_exact:
        return _must_be_exact(method, kernel, n_rows)
    if method == "exact":
        _require_size(n_rows, "pass method='auto', which takes landmarks")
        return MethodChoice("exact", "as asked for")
    if method == "diskpca" or wants_landmarks:
        return MethodChoice("diskpca", "landmarks were asked for")
    if n_rows <= EXACT_ROWS:
        return MethodChoice(
            "exact", f"{n_rows:,} rows are few enough for their whole kernel matrix"
        )
    if eigen_solver != "auto" and n_rows <= EXACT_MOST:
        return MethodChoice(
            "exact", f"eigen_solver={eigen_solver!r} is for the whole kernel matrix"
        )
    return MethodChoice("diskpca", f"{n_rows:,} rows are too many for their whole kernel matrix")


def _must_be_exact(method: str, kernel: Any, n_rows: int) -> MethodChoice:
    shown = "a function" if callable(kernel) else repr(kernel)
    if method == "diskpca":
        raise InputError(
            f"kernel is {shown}, which has no landmarks; {', '.join(LANDMARK_KERNELS)} have: "
            f"choose one of these, or method='exact'"
        )
    if kernel != "precomputed":
        _require_size(n_rows, f"choose a kernel that has: {', '.join(LANDMARK_KERNELS)}")
    return MethodChoice("exact", f"a kernel that is {shown} has no landmarks")


def _require_size(n_rows: int, remedy: str) -> None:
    if n_rows > EXACT_MOST:
        raise InputError(
            f"X has {n_rows:,} rows, whose kernel matrix takes {8e-9 * n_rows**2:.0f} GB; "
            f"{EXACT_MOST:,} rows at most are expected without landmarks: {remedy}"
        )


def landmarks_for(
    kpca: Any, gamma: float | None, X: Rows, count: int, rank: int
) -> tuple[str, str]:
    """The best landmarks for rows in one place, and why: their leverage may be looked at.

    >>> from eigenmesh import KernelPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 4))
    >>> landmarks_for(KernelPCA(kernel="rbf"), 0.1, X, 20, 3)[0]
    'centroids'
    >>> heavy = X * rng.pareto(1, size=(500, 1))
    >>> landmarks_for(KernelPCA(kernel="poly", degree=2, coef0=0.0), 1.0, heavy, 20, 3)[0]
    'diskpca'
    """
    if X.shape[0] < ROWS_A_CENTROID * count:
        return "diskpca", f"{X.shape[0]:,} rows have no {count} clusters, so landmarks are rows"
    kernel = Kernel(kpca.kernel, gamma, kpca.degree, kpca.coef0)
    looked_at = ALIKE_ROWS if kernel.is_level else SKEW_ROWS
    skew = leverage_skew(kernel, X, rank, seed_of(kpca.random_state), looked_at)
    skewness = f"leverage max/mean is {skew:.3g}"
    if skew >= SKEWED:
        return "diskpca", f"{skewness}: few rows matter most, so they are drawn by it as landmarks"
    return "centroids", f"{skewness}: no row stands out, so the landmarks are centroids"


def default_landmarks(n_components: int | None, kernel: Any, n_features: int | None) -> int:
    """Landmarks where their number is not given: ten a component, from 100 to MOST_LANDMARKS.

    As many as columns make the linear kernel exact, so they are taken for one array, where
    landmarks cost no traffic.

    >>> default_landmarks(5, "rbf", 784), default_landmarks(30, "rbf", 784)
    (100, 300)
    >>> default_landmarks(5, "linear", 784), default_landmarks(None, "rbf", 784)
    (784, 500)
    """
    count = 500 if n_components is None else max(100, 10 * n_components)
    if kernel == "linear" and n_features is not None:
        count = max(count, n_features)
    return max(min(count, MOST_LANDMARKS), 2 * (n_components or 0))


# A share of the variance.


def first_components(model: Model, k: int) -> Model:
    """The first k components of a model."""
    fields: dict[str, Any] = {"eigenvalues": model.eigenvalues[:k]}
    if len(model.eigenvalues) > k:
        fields["next_eigenvalue"] = float(model.eigenvalues[k])
    if isinstance(model, ExactModel):
        fields["eigenvectors"] = model.eigenvectors[:, :k]
    elif isinstance(model, MomentModel):
        fields["components"] = model.components[:, :k]
    else:
        fields["coefficients"], fields["offset"] = model.coefficients[:, :k], model.offset[:k]
    return dataclasses.replace(model, **fields)


def explaining(model: Model, share: float | None) -> Model:
    """The fewest of all components that explain at least `share` of the variance; None for all."""
    if share is None:
        return model
    if model.total == 0:
        raise InputError(f"n_components is {share}, a share of the variance, but {NO_VARIANCE}")
    shares = np.cumsum(model.eigenvalues) / model.total
    enough = np.flatnonzero(shares >= share - 1e-12)
    if not len(enough):
        most = float(shares[-1]) if len(shares) else 0.0
        raise InputError(
            f"n_components is {share}: all {len(shares)} components that the landmarks span "
            f"explain {most:.4f} of the variance; ask for less, or take more landmarks: "
            f"n_landmarks, or landmarks='diskpca' where they are means and rows may leave"
        )
    return first_components(model, int(enough[0]) + 1)
