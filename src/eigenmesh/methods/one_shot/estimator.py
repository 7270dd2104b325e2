"""One-shot kernel PCA over column partitions, as a scikit-learn estimator."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.accuracy import missing_gap
from eigenmesh.estimators.base import Needs, seed_of
from eigenmesh.estimators.checks import (
    AUTO,
    checked_gamma,
    checked_precision,
    find_gamma,
    finite_number,
    preparation_fields,
    share_of_missing,
    whole_number,
)
from eigenmesh.estimators.column_checks import sampling_caveats, sampling_note, unit_caveats
from eigenmesh.estimators.columns import ColumnEstimator, shipping
from eigenmesh.estimators.kernel_gamma import gamma_stages
from eigenmesh.estimators.precision import (
    AUTO_BITS,
    SPREAD,
    precision_in_words,
    precision_notes,
)
from eigenmesh.estimators.report import RunReport
from eigenmesh.methods.one_shot.protocol import OneShotSetup, one_shot_kpca
from eigenmesh.methods.registry import Method, register
from eigenmesh.numerics.column_fusion import Wanted, eigengap, sin_theta_bound
from eigenmesh.numerics.kernel_of_sums import ArgumentFusion, LandmarkFusion
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.compact import EXACT
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, stage
from eigenmesh.stages.column_scores import (
    MOST_KERNEL_SAMPLES,
    N_LANDMARKS,
    ColumnModel,
    ModelName,
    column_scores,
    most_samples,
)
from eigenmesh.stages.summed_kernel import (
    ArgumentSetup,
    argument_fusion,
)

# Eigenpairs of each party where the number of components is not known beforehand.
RANK_OF_MANY = 20
DISCREET = "discreet"  # the local_rank of parties that choose it themselves, such as tells little


class Settings(NamedTuple):
    """The constructor's arguments, checked."""

    n_components: Wanted
    local_rank: int | None  # None: each party's own choice
    gamma: float | str | None
    kernel: str
    degree: int
    coef0: float
    fusion: str  # "sum", "product" or "arguments": inner products or distances
    center: bool
    standardize: bool
    fill_missing: float | None
    precision: int | str  # bits, "auto" or "spread"
    seed: int

    def agreed(self, model: str) -> ArgumentSetup:
        """What the parties agree on to add up arguments."""
        return ArgumentSetup(
            kernel=self.kernel,
            local_rank=self.local_rank,
            n_landmarks=N_LANDMARKS,
            most_samples=most_samples(MOST_KERNEL_SAMPLES),
            standardize=self.standardize,
            fill_missing=self.fill_missing,
            model=model,
            seed=self.seed,
            spread=self.precision == SPREAD,
        )

    @property
    def any_gamma(self) -> float | None:
        """What stands in for a gamma that is found on the way; None where there is none."""
        return None if self.fusion == "sum" else 1.0


class OneShotKPCA(ColumnEstimator):
    """Kernel PCA of samples whose columns are held by several parties, from one message each.

    Every party sends the top `local_rank` eigenpairs of its own kernel matrix, once; the centre
    fuses them into an estimate of the joint kernel matrix and takes its components. With
    `local_rank` at the number of samples (or, for the linear kernel, of columns) the answer is
    that of scikit-learn's KernelPCA on the pooled data.

    Parameters
    ----------
    n_components : components wanted; None for all that the spectra sent determine, a number between
        0 and 1 for the fewest of these that explain so much of the variance.
    kernel : "linear", "rbf", exp(−gamma ‖x−y‖²), or "poly", (gamma x·y + coef0)^degree. With the
        σ of exp(−‖x−y‖²/2σ²), gamma = 1/(2σ²). Beyond 20,000 samples of "rbf" and "poly" the
        parties send the same, and some samples stand for all in what is made of it.
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance"; all but a
        number are found across the parties without pooling. Not for "linear".
    degree, coef0 : of "poly".
    local_rank : eigenpairs that each party sends; n_components + max(5, n_components) if None, and
        20 if n_components is no number. More of them: less error, more sent. "discreet", of "rbf"
        and "product": each party sends no more than tell of no distances between samples in its
        columns, 2 to 7 on real data, which miss a tenth of an eigenvalue or most of it.
    fusion : "product" multiplies the parties' kernel matrices, as the paper does; "distance" adds
        their squared distances, which is exact from `local_rank` at the number of a party's columns
        on, and below that was closer in 3 of 16 comparisons on real gene data. For "rbf"; inner
        products of "poly" are always added.
    center : centre in feature space, exactly.
    standardize : subtract each column's mean and divide by its standard deviation, at its owner.
    fill_missing : share of a column's values that may be missing (NaN) and are then filled with the
        column's mean, at its owner; None for none.
    random_state : seed of the pairs drawn for gamma="median".
    precision : "exact", 64 bits; 32, 16, 8 or 4, in which the eigenvectors travel, each column
        with a scale; or "auto", 16 where eigenpairs are left out anyway and all bits where they are
        not. `report_.precision_error` says by which share of an eigenvalue that may be off, and
        `shortfalls_` and the proven limits have it in them. For "linear", and for "rbf" with
        fusion="product". "spread", of fusion="distance": all of a party's coordinates, in the bytes
        of `local_rank` numbers a sample, most bits for those in which samples vary most. It errs
        29 times less than the product of as many bytes, or better, on eight real sets, and tells a
        party's columns up to rotation. For at most 20,000 samples.

    Attributes
    ----------
    eigenvalues_, eigenvectors_ : of the (centred) joint kernel matrix, as estimated.
    explained_variance_ratio_, total_variance_, residual_ : the variance in feature space; the last
        two are exact for the linear kernel and upper bounds for "rbf".
    shortfalls_, shortfall_ : the share of each eigenvalue that is missing, roughly estimated from
        what the last pairs sent have added, and the largest: in one fit of eleven it is less than
        half of the truth, which `report_` limits.
    gamma_ : the gamma used, None for the linear kernel.
    report_ : what it cost, what left each party, and proven limits of the error.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from eigenmesh.data.synthetic import gene_like
    >>> X, _ = gene_like(n_samples=60, n_features=900, random_state=0)
    >>> parts = em.split(X, n_parties=3, by="columns")
    >>> kpca = em.OneShotKPCA(n_components=2, kernel="rbf", gamma="mean-distance").fit(parts)
    >>> kpca.transform(parts).shape
    (60, 2)
    >>> kpca.report_.floats_up, kpca.report_.baseline_floats
    (1281, 54000)
    >>> small = em.OneShotKPCA(2, kernel="rbf", gamma="mean-distance", precision=16).fit(parts)
    >>> small.report_.bytes < kpca.report_.bytes / 2, small.report_.precision_error < 0.001
    (True, True)
    """

    _cheaper = "lower local_rank"
    _closer = "; method 'vfed-pca', of linear kernels, and 'vfed-akpca', of others, miss nothing"
    _fitted = (
        "eigenvalues_",
        "eigenvectors_",
        "explained_variance_ratio_",
        "total_variance_",
        "residual_",
        "gamma_",
        "model_",
    )

    def __init__(
        self,
        n_components: int | float | None = 2,
        *,
        kernel: str = "linear",
        gamma: float | str | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        local_rank: int | str | None = None,
        fusion: str = "product",
        center: bool = True,
        standardize: bool = False,
        fill_missing: float | None = None,
        random_state: Any = None,
        precision: int | str = "exact",
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.local_rank = local_rank
        self.fusion = fusion
        self.center = center
        self.standardize = standardize
        self.fill_missing = fill_missing
        self.random_state = random_state
        self.precision = precision

    # Fitting.

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to columns split over parties: a Partitioned, a Federation, or a plain array.

        Of a Dask array in chunks of columns every chunk is a party, at the worker that holds it.
        """
        settings = self._settings()
        source = self._source(X)
        with self._opened(source) as fed, fed.recording() as recording:
            self._require_columns(fed)
            matched = self._align(fed)
            gamma = self._find_gamma(fed, settings)
            model = _method(settings, gamma).run(fed).value
            self._keep_shares(fed, model)
        self._adopt(model, gamma, model.fusion.shortfalls)
        caveats = self._caveats(settings)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=model.stop_reason,
            baseline_floats=shipping(model, model.n_samples),
            bounds=_bounds(model),
            notes=(
                *matched,
                *sampling_caveats(model)[0],
                *caveats,
                *_told_whole(model, self._is_short),
            ),
            cheaper="" if self._is_short else self._less(fed.split, fed.graph is not None),
            precision=precision_in_words(settings.precision),
            precision_error=_precision_error(model),
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    def _less(self, split: str, on_graph: bool) -> str:
        by_rule = isinstance(self.gamma, str) and self.kernel != "linear"
        return f"{self._cheaper}, or give gamma as a number" if by_rule else self._cheaper

    @property
    def _is_short(self) -> bool:
        """Whether coordinates share their bits: then their number does not tell what they cost."""
        return isinstance(self.precision, str) and self.precision == SPREAD

    def _knows_scores(self) -> bool:
        fusion = self.model_.fusion
        # What coordinates leave out of a sample is orthogonal to that of others, itself if new too.
        cut = isinstance(fusion, LandmarkFusion) and fusion.residuals is not None
        # Parties score by the vectors that they have, and not by what is left of them in few bits.
        return not (cut or isinstance(fusion, ArgumentFusion) or fusion.rounding.likely)

    def _needs(self, fed: Federation, *, weighted: bool = False) -> Needs:
        settings = self._settings()
        return [_method(settings, settings.any_gamma)]

    def _settings(self) -> Settings:
        k = self._wanted()
        usual = k + max(5, k) if isinstance(k, int) else RANK_OF_MANY
        rank = usual if self.local_rank is None else self.local_rank
        if self.kernel not in ("linear", "poly", "rbf"):
            raise InputError(
                f"kernel is {self.kernel!r}; one-shot kernel PCA fuses 'linear', 'poly' or 'rbf' "
                f"kernels"
            )
        if self.fusion not in ("product", "distance"):
            raise InputError(f"fusion is {self.fusion!r}; 'product' or 'distance' is expected")
        if self.kernel == "linear" and self.fusion == "distance":
            raise InputError("fusion='distance' is for kernel='rbf'; linear kernels simply add up")
        fusion = {"linear": "sum", "poly": "arguments"}.get(self.kernel, self.fusion)
        fusion = "arguments" if fusion == "distance" else fusion
        if fusion == "arguments" and rank == 1:
            raise InputError(
                "local_rank is 1; where distances or inner products are added, a coordinate and a "
                "residual are sent: 2 at least are expected"
            )
        return Settings(
            n_components=k,
            local_rank=self._checked_rank(rank, fusion),
            gamma=checked_gamma(self.gamma),
            kernel=self.kernel,
            degree=whole_number(self.degree, "degree"),
            coef0=finite_number(self.coef0, "coef0"),
            fusion=fusion,
            center=bool(self.center),
            standardize=bool(self.standardize),
            fill_missing=share_of_missing(self.fill_missing),
            precision=self._checked_precision(fusion),
            seed=seed_of(self.random_state),
        )

    def _checked_precision(self, fusion: str) -> int | str:
        if self._is_short:
            if self.kernel == "rbf" and self.fusion == "distance":
                return SPREAD
            raise InputError(
                f"precision is {SPREAD!r}, which is for kernel='rbf' and fusion='distance'; "
                f"'exact', 'auto' or a number of bits is expected"
            )
        precision = checked_precision(self.precision)
        if fusion != "arguments" or precision == EXACT:
            return precision
        if precision == AUTO:
            return EXACT
        raise InputError(
            f"precision is {self.precision!r}; where distances or inner products are added, "
            f"numbers travel as they are: 'exact' or 'auto' is expected, or fusion='product', or "
            f"{SPREAD!r} of fusion='distance'"
        )

    @staticmethod
    def _checked_rank(rank: Any, fusion: str) -> int | None:
        if rank != DISCREET:
            return whole_number(rank, "local_rank")
        if fusion != "product":
            raise InputError(
                f"local_rank is {DISCREET!r}, which is for kernel='rbf' and fusion='product'; a "
                f"whole number from 1 is expected"
            )
        return None

    def _find_gamma(self, fed: Federation, settings: Settings) -> float | None:
        """Check what every party allows, then run the gamma rule if one is asked for."""
        fed.require_stages(_method(settings, settings.any_gamma))
        if settings.fusion == "sum":
            return None
        return find_gamma(fed, settings.gamma, settings.seed, **preparation_fields(self))

    def _caveats(self, settings: Settings) -> tuple[str, ...]:
        model, components = self.model_, self.model_.fusion.components
        k, rank = len(components.eigenvalues), settings.local_rank
        caveats = [
            (
                settings.fusion == "product"
                and settings.center
                and isinstance(settings.n_components, int)
                and rank is not None
                and rank <= k < model.n_samples,
                f"local_rank={rank} with n_components={k}: the top vector of an RBF kernel matrix "
                f"is nearly its mean, so one more is needed",
            ),
        ]
        gap = missing_gap(components.eigenvalues, components.next_eigenvalue)
        own = (words for applies, words in caveats if applies)
        sampled = sampling_caveats(model)[1]
        return (*model.notes, *sampled, *gap, *own, *unit_caveats(self, model))

    def _plan_notes(
        self, names: Sequence[str], shapes: Sequence[tuple[int, int]]
    ) -> tuple[str, ...]:
        settings = self._settings()
        own = super()._plan_notes(names, shapes)
        if settings.local_rank is None:
            own += ("at most: parties send fewer eigenpairs, before these tell of distances",)
        if settings.precision == SPREAD:
            own += ("at most: coordinates that get no bits do not leave",)
        own += precision_notes(settings.precision)
        sampled = sampling_note(shapes[0][0], settings.agreed(""))
        return own if settings.fusion == "sum" else (*own, *sampled)

    def _stages(self, parties: Parties) -> list[Stage]:
        settings = self._settings()
        kernel, rule, own = settings.kernel, settings.gamma, preparation_fields(self)
        search = gamma_stages(kernel, rule, parties, settings.seed, **own)
        return [*search, _method(settings, settings.any_gamma)]

    def _score_stages(self, parties: Parties) -> list[Stage]:
        """Of coordinates that were cut short: fitted samples are scored like new ones."""
        settings = self._settings()
        if settings.fusion != "arguments":
            return []
        widths = []
        for n, m in parties.shapes:
            rank = min(settings.local_rank or n, n, m)
            # What is left out is a coordinate of a distance, but not of an inner product.
            is_cut = rank < min(n, m)
            of_rest = 0 if is_cut or rank == m else 1
            widths.append(rank - is_cut if settings.kernel == "poly" else rank + of_rest)
        return [stage(column_scores, ModelName(model=""), parties.names, tuple(widths), None)]


def _method(settings: Settings, gamma: float | None) -> Stage:
    """The run that finds the components, with a gamma that may be a stand-in."""
    name = f"one-shot-{secrets.token_hex(8)}"
    k, center = settings.n_components, settings.center
    if settings.fusion == "arguments":
        kernel = Kernel(settings.kernel, gamma, settings.degree, settings.coef0)
        return stage(argument_fusion, settings.agreed(name), kernel, k, center)
    return stage(one_shot_kpca, _spectra(settings, gamma, name), k)


def _spectra(settings: Settings, gamma: float | None, name: str) -> OneShotSetup:
    return OneShotSetup(
        gamma=gamma,
        local_rank=settings.local_rank,
        n_landmarks=N_LANDMARKS,
        most_samples=most_samples(MOST_KERNEL_SAMPLES),
        center=settings.center,
        standardize=settings.standardize,
        fill_missing=settings.fill_missing,
        bits=AUTO_BITS if isinstance(settings.precision, str) else settings.precision,
        spare_exact=settings.precision == AUTO,
        model=name,
        seed=settings.seed,
    )


def _told_whole(model: ColumnModel, spread: bool) -> tuple[str, ...]:
    """Coordinates of full rank are the columns themselves, rotated: say whose."""
    if not isinstance(model.fusion, ArgumentFusion | LandmarkFusion):
        return ()
    if spread:
        rounded = " and rounded" if model.fusion.rounding.proven else ""
        return (f"what the parties sent are their columns, centred, rotated{rounded}",)
    ranks = zip(model.parties, model.widths, model.fusion.kept, strict=True)
    whole = [name for name, m, s in ranks if s == min(m, model.n_samples)]
    if not whole:
        return ()
    return (
        f"local_rank leaves nothing out of the columns of {', '.join(map(repr, whole))}: what "
        f"they sent are their columns, centred and rotated",
    )


def _precision_error(model: ColumnModel) -> float:
    """By which share of a wanted eigenvalue, at most, fewer bits are likely to be off."""
    values = np.abs(model.fusion.components.eigenvalues)
    return float(model.fusion.rounding.likely / values.min())


def _bounds(model: ColumnModel) -> dict[str, float]:
    return {
        "kernel_error": model.fusion.error_bound,
        "eigengap": eigengap(model.fusion),
        "sin_theta": sin_theta_bound(model.fusion),
    }


register(
    Method(
        "one-shot",
        "columns",
        ("linear", "poly", "rbf"),
        OneShotKPCA,
        "every party sends one message, the top of its own spectrum",
        rank=70,
        discloses="columns",
        n_components="or share",
    )
)
register(
    Method(
        "one-shot",
        "columns",
        ("rbf",),
        OneShotKPCA,
        "every party sends the top of its own spectrum, so little that it tells no distances in "
        "its columns",
        rank=70,
        discloses="means",
        accurate=False,
        options={"local_rank": DISCREET},
        n_components="or share",
    )
)
