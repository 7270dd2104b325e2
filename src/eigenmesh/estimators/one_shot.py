"""One-shot kernel PCA over column partitions, as a scikit-learn estimator."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigenmesh.connect import is_dask_collection
from eigenmesh.data import Partitioned, split_columns
from eigenmesh.data.table import Table
from eigenmesh.errors import EigenmeshWarning, InputError, MissingPartyShare
from eigenmesh.estimators import model_file
from eigenmesh.estimators.base import FederatedEstimator, one_party, seed_of
from eigenmesh.estimators.checks import checked_gamma, find_gamma, missing_gap, whole_number
from eigenmesh.estimators.run_report import RunReport
from eigenmesh.federation.federation import Federation
from eigenmesh.federation.ledger import Ledger
from eigenmesh.federation.party import Party
from eigenmesh.federation.policy import Policy
from eigenmesh.numerics.fusion import DistanceFusion, eigengap, residual, sin_theta_bound
from eigenmesh.protocols.bandwidth import forecast as bandwidth_forecast
from eigenmesh.protocols.bandwidth import forecast_rounds
from eigenmesh.protocols.column_model import ColumnModel, column_scores
from eigenmesh.protocols.distance_fusion import CoordinateHolder, DistanceSetup, distance_fusion
from eigenmesh.protocols.distance_fusion import forecast as distance_forecast
from eigenmesh.protocols.one_shot_kpca import ColumnHolder, OneShotSetup, one_shot_kpca
from eigenmesh.protocols.one_shot_kpca import forecast as spectrum_forecast

# Below this median kernel value of two samples the kernel matrix is nearly the identity.
_NEARLY_IDENTITY = 0.05


class Settings(NamedTuple):
    """The constructor's arguments, checked."""

    n_components: int
    local_rank: int
    gamma: float | str | None
    fusion: str  # "sum", "product" or "distance"
    center: bool
    seed: int

    @property
    def role(self) -> type[Party]:
        """Who sends what."""
        return CoordinateHolder if self.fusion == "distance" else ColumnHolder

    @property
    def needs_gamma_rule(self) -> bool:
        """Whether gamma is to be found from the data."""
        return self.fusion != "sum" and not isinstance(self.gamma, float)


class OneShotKPCA(FederatedEstimator):
    """Kernel PCA of samples whose columns are held by several parties, from one message each.

    Every party sends the top `local_rank` eigenpairs of its own kernel matrix, once; the centre
    fuses them into an estimate of the joint kernel matrix and takes its components. With
    `local_rank` at the number of samples (or, for the linear kernel, of columns) the answer is
    that of scikit-learn's KernelPCA on the pooled data.

    Parameters
    ----------
    n_components : components wanted.
    kernel : "linear" or "rbf", exp(−gamma ‖x−y‖²). With the σ of exp(−‖x−y‖²/2σ²),
        gamma = 1/(2σ²).
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance"; all but a
        number are found across the parties without pooling. Only for "rbf".
    local_rank : eigenpairs that each party sends; n_components + max(5, n_components) if None.
        More of them: less error, more sent.
    fusion : "product" multiplies the parties' kernel matrices, as the paper does; "distance" adds
        their squared distances, often closer at the same cost. Only for "rbf".
    center : centre in feature space, exactly.
    random_state : seed of the pairs drawn for gamma="median".

    Attributes
    ----------
    eigenvalues_, eigenvectors_ : of the (centred) joint kernel matrix, as estimated.
    explained_variance_ratio_, total_variance_, residual_ : the variance in feature space; the last
        two are exact for the linear kernel and upper bounds for "rbf".
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
    """

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
        n_components: int = 2,
        *,
        kernel: str = "linear",
        gamma: float | str | None = None,
        local_rank: int | None = None,
        fusion: str = "product",
        center: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.local_rank = local_rank
        self.fusion = fusion
        self.center = center
        self.random_state = random_state

    # Fitting.

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to columns split over parties: a Partitioned, a Federation, or a plain array.

        Of a Dask array in chunks of columns every chunk is a party, at the worker that holds it.
        """
        settings = self._settings()
        source = self._source(X)
        with self._opened(source) as fed, fed.recording() as recording:
            self._require_columns(fed)
            gamma = self._find_gamma(fed, settings)
            model = _run(fed, settings, gamma)
            sites = dict(fed.local_sites())
            self._shares = {
                name: sites[name].store[model.name] for name in model.parties if name in sites
            }
            self._policies = {name: site.policy for name, site in sites.items()}
        self._adopt(model, gamma)
        caveats = self._caveats(settings, recording.ledger.floats_up)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=model.stop_reason,
            baseline_floats=_baseline(model, model.n_samples),
            bounds=_bounds(model),
            notes=(*caveats, *_told_whole(model)),
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit, and the scores of the fitted samples; equal to `fit(X).transform(X)`.

        With the sum and product fusions the centre knows these scores already, so nothing is sent.
        """
        self.fit(X)
        if self._settings().fusion == "distance":
            return self.transform(X)
        return (self.eigenvectors_ * np.sqrt(self.eigenvalues_)).astype(_dtype_of(X), copy=False)

    def _settings(self) -> Settings:
        k = whole_number(self.n_components, "n_components")
        rank = k + max(5, k) if self.local_rank is None else self.local_rank
        if self.kernel not in ("linear", "rbf"):
            raise InputError(
                f"kernel is {self.kernel!r}; one-shot kernel PCA fuses 'linear' or 'rbf' kernels"
            )
        if self.fusion not in ("product", "distance"):
            raise InputError(f"fusion is {self.fusion!r}; 'product' or 'distance' is expected")
        if self.kernel == "linear" and self.fusion == "distance":
            raise InputError("fusion='distance' is for kernel='rbf'; linear kernels simply add up")
        if self.fusion == "distance" and rank == 1:
            raise InputError("local_rank is 1; fusion='distance' sends a coordinate and a residual")
        return Settings(
            n_components=k,
            local_rank=whole_number(rank, "local_rank"),
            gamma=checked_gamma(self.gamma),
            fusion="sum" if self.kernel == "linear" else self.fusion,
            center=bool(self.center),
            seed=seed_of(self.random_state),
        )

    def _source(self, X: Any) -> Any:
        if not isinstance(X, Federation | Partitioned) and not is_dask_collection(X):
            return one_party(self._checked(X, reset=True, min_samples=2))
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit, to a DataFrame
        return _columns_of(X) if isinstance(X, Partitioned) else X

    def _require_columns(self, fed: Federation) -> None:
        if fed.split != "columns":
            raise InputError("this federation's parties hold rows; OneShotKPCA needs columns")

    def _find_gamma(self, fed: Federation, settings: Settings) -> float | None:
        """Check what every party allows, then run the gamma rule if one is asked for."""
        fed.require(settings.role)
        return None if settings.fusion == "sum" else find_gamma(fed, settings.gamma, settings.seed)

    def _adopt(self, model: ColumnModel, gamma: float | None) -> None:
        components = model.fusion.components
        self.model_ = model
        self.gamma_ = gamma
        self.eigenvalues_ = components.eigenvalues
        self.eigenvectors_ = components.eigenvectors
        self.total_variance_ = model.fusion.total
        self.explained_variance_ratio_ = components.eigenvalues / model.fusion.total
        self.residual_ = residual(model.fusion)
        self.n_features_in_ = sum(model.widths)
        self._last_transform: list[RunReport] = []

    def _caveats(self, settings: Settings, floats_up: int) -> tuple[str, ...]:
        model, components = self.model_, self.model_.fusion.components
        typical = model.fusion.typical_value
        shipping = _baseline(model, model.n_samples)
        k, rank = settings.n_components, settings.local_rank
        caveats = [
            (
                typical is not None and typical < _NEARLY_IDENTITY,
                f"the median kernel value of two samples is {typical or 0:.2g}: the kernel matrix "
                f"is close to the identity, and its components explain little; lower gamma",
            ),
            (
                settings.fusion == "product" and settings.center and rank <= k < model.n_samples,
                f"local_rank={rank} with n_components={k}: the top vector of an RBF kernel matrix "
                f"is nearly its mean, so one more is needed",
            ),
            (
                floats_up > shipping and len(model.parties) > 1,
                f"{floats_up:,} floats were sent where shipping every column takes {shipping:,}; "
                f"lower local_rank, give gamma as a number, or pool if you may",
            ),
        ]
        gap = missing_gap(components.eigenvalues, components.next_eigenvalue)
        return (*gap, *(words for applies, words in caveats if applies))

    def _forecast(self, names: Sequence[str], shapes: Sequence[tuple[int, int]]) -> Ledger:
        """The ledger that a fit will have."""
        settings = self._settings()
        ledger = Ledger(rounds=1)
        if settings.needs_gamma_rule:
            rule: Any = settings.gamma
            ledger.entries += bandwidth_forecast(rule, "columns", names, shapes)
            ledger.rounds += forecast_rounds(rule, "columns", len(names))
        if settings.fusion == "distance":
            ledger.entries += distance_forecast(names, shapes, settings.local_rank)
        else:
            linear = settings.fusion == "sum"
            ledger.entries += spectrum_forecast(names, shapes, settings.local_rank, linear)
        return ledger

    # New samples.

    def transform(self, X: Any) -> Any:
        """Scores of samples: one message from each party."""
        check_is_fitted(self)
        known = isinstance(X, Federation) or is_dask_collection(X)
        source = X if known else self._new_samples(X)
        model = self.model_
        with self._opened(source) as fed, fed.recording() as recording:
            self._require_columns(fed)
            self._bring_along(fed)
            scores = fed.run(column_scores, model).value
        self._last_transform[:] = [
            RunReport.of(
                recording,
                fed,
                stop_reason=model.stop_reason,
                baseline_floats=_baseline(model, len(scores)),
            )
        ]
        return scores.astype(_dtype_of(X), copy=False)

    def _new_samples(self, X: Any) -> Partitioned:
        names, widths = self.model_.parties, self.model_.widths
        if not isinstance(X, Partitioned):
            blocks = split_columns(self._checked(X, reset=False), widths)
            return Partitioned.from_tables("columns", [Table(b) for b in blocks], names=names)
        known = _columns_of(X)
        missing = [name for name in names if name not in known.names]
        unknown = [n for n in known.names if n not in names and n not in self.report_.lost]
        if missing or unknown:
            raise MissingPartyShare(
                f"the new samples come from {_listed(known.names)}, the model from "
                f"{_listed(names)}; parties are matched by name, and "
                f"{_listed(missing or unknown)} {'is missing' if missing else 'has no share'}",
                party=(missing or unknown)[0],
            )
        return known.select(names)

    def _bring_along(self, fed: Federation) -> None:
        """In this process the model holds the parties' shares and knows their policies."""
        for name, site in fed.local_sites().items():
            if name in self._shares:
                site.store.setdefault(self.model_.name, self._shares[name])
            if name in self._policies and site.policy == Policy():
                site.policy = self._policies[name]

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    # Shares.

    def _save_shares(self, path: str | Path) -> None:
        for i, name in enumerate(self.model_.parties):
            if name not in self._shares:
                raise MissingPartyShare(f"the share of {name!r} is not in this process", party=name)
            policy = self._policies[name]
            tree = {
                "party": name,
                "model": self.model_.name,
                "share": dict(self._shares[name]),
                "allow": sorted(policy.allow),
                "calls_per_run": policy.calls_per_run,
            }
            model_file.write(model_file.share_path(path, i), model_file.SHARE, tree)

    def _load_shares(self, path: str | Path) -> None:
        self._shares, self._policies = {}, {}
        for i, name in enumerate(self.model_.parties):
            share_path = model_file.share_path(path, i)
            if not share_path.exists():
                continue
            tree = model_file.read(share_path, model_file.SHARE)
            # A share that an earlier model left here is of no use to this one.
            if (tree.get("party"), tree.get("model")) == (name, self.model_.name):
                self._shares[name] = tree["share"]
                self._policies[name] = Policy(tree["allow"], tree["calls_per_run"])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _run(fed: Federation, settings: Settings, gamma: float | None) -> ColumnModel:
    name = f"one-shot-{secrets.token_hex(8)}"
    k, rank, seed = settings.n_components, settings.local_rank, settings.seed
    if settings.fusion == "distance":
        agreed = DistanceSetup(local_rank=rank, model=name, seed=seed)
        return fed.run(distance_fusion, agreed, gamma, k, settings.center).value
    setup = OneShotSetup(
        gamma=gamma, local_rank=rank, center=settings.center, model=name, seed=seed
    )
    return fed.run(one_shot_kpca, setup, k).value


def _columns_of(parts: Partitioned) -> Partitioned:
    if parts.split != "columns":
        raise InputError(
            "the parties hold rows; OneShotKPCA is for columns: pass Partitioned(columns=[...]) "
            "or em.split(X, n_parties, by='columns')"
        )
    return parts


def _told_whole(model: ColumnModel) -> tuple[str, ...]:
    """Coordinates of full rank are the columns themselves, rotated: say whose."""
    if not isinstance(model.fusion, DistanceFusion) or all(model.residual_sent):
        return ()
    whole = [n for n, cut in zip(model.parties, model.residual_sent, strict=True) if not cut]
    return (
        f"local_rank leaves nothing out of the columns of {', '.join(map(repr, whole))}: what "
        f"they sent are their columns, centred and rotated",
    )


def _bounds(model: ColumnModel) -> dict[str, float]:
    return {
        "kernel_error": model.fusion.error_bound,
        "eigengap": eigengap(model.fusion),
        "sin_theta": sin_theta_bound(model.fusion),
    }


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _baseline(model: ColumnModel, n_samples: int) -> int:
    return n_samples * sum(model.widths)


def _dtype_of(X: Any) -> Any:
    """Scores come back in the precision of the samples."""
    dtype = getattr(X.part(0) if isinstance(X, Partitioned) else X, "dtype", None)
    return np.float32 if dtype in (np.float32, np.float16) else np.float64
