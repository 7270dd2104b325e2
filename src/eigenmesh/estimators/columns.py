"""What estimators over column partitions share: data in, parties' shares, scores of new samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigenmesh.connect import is_dask_collection
from eigenmesh.data import Partitioned, split_columns
from eigenmesh.data.column_names import columns_in_order
from eigenmesh.data.table import Table
from eigenmesh.errors import InputError, MissingPartyShare, PartitionError
from eigenmesh.estimators import model_file
from eigenmesh.estimators.base import FederatedEstimator, one_party
from eigenmesh.estimators.checks import checked_scores, components_asked
from eigenmesh.estimators.naming import FIT, columns_of_parties_in_order, renamed_by_columns
from eigenmesh.estimators.report import RunReport
from eigenmesh.numerics.column_fusion import Wanted, residual
from eigenmesh.numerics.column_pieces import Loadings, share_from_tree
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.policy import Policy
from eigenmesh.stages.column_scores import ColumnModel, scoring
from eigenmesh.stages.private_match import alignment

_SHORTFALLS = ("shortfalls_", "shortfall_")  # not in every model, nor in older files


class ColumnEstimator(FederatedEstimator):
    """Base of estimators over columns: a coordinator's model, and one share a party."""

    n_components: int | float | None
    _closer: str = ""  # what a front door says to whom it is not close enough
    model_: ColumnModel
    shortfalls_: Any
    shortfall_: float

    # Data in.

    def _takes_missing(self) -> bool:
        return getattr(self, "fill_missing", None) is not None

    def _source(self, X: Any) -> Any:
        if not isinstance(X, Federation | Partitioned) and not is_dask_collection(X):
            return one_party(self._checked(X, reset=True, min_samples=2))
        source = self._columns_of(X) if isinstance(X, Partitioned) else X
        self._take_names(source)
        return source

    def _columns_of(self, parts: Partitioned) -> Partitioned:
        if parts.split != "columns":
            raise InputError(
                f"the parties hold rows; {type(self).__name__} is for columns: pass "
                f"Partitioned(columns=[...]) or em.split(X, n_parties, by='columns')"
            )
        return parts

    def _require_columns(self, fed: Federation) -> None:
        if fed.split != "columns":
            name = type(self).__name__
            raise InputError(f"this federation's parties hold rows; {name} needs columns")

    def _align(self, fed: Federation) -> tuple[str, ...]:
        """Match the parties' samples, if they may differ; says how many they have in common."""
        if fed.align == "strict":
            return ()
        matching = alignment(fed.align)
        fed.require_stages(matching)
        return (str(matching.run(fed).value),)

    def _wanted(self) -> Wanted:
        """Components asked for: a number, a share of the variance, or None for all."""
        share, k = components_asked(self.n_components)
        return k if share is None else share

    # What a fit leaves behind.

    def _keep_shares(self, fed: Federation, model: ColumnModel) -> None:
        """In this process the estimator holds the parties' shares and knows their policies."""
        sites = dict(fed.local_sites())
        self._shares = {
            name: sites[name].store[model.name] for name in model.parties if name in sites
        }
        self._policies = {name: site.policy for name, site in sites.items()}

    def _adopt(self, model: ColumnModel, gamma: float | None, shortfalls: Any = None) -> None:
        components = model.fusion.components
        self.model_ = model
        self.gamma_ = gamma
        self.eigenvalues_ = components.eigenvalues
        self.eigenvectors_ = components.eigenvectors
        self.total_variance_ = model.fusion.total
        self.explained_variance_ratio_ = np.abs(components.eigenvalues) / model.fusion.total
        self.residual_ = residual(model.fusion)
        self._adopt_shortfalls(shortfalls)
        self.n_features_in_ = sum(model.widths)
        if hasattr(self, "party_names_"):  # and not one array; parties may have been lost
            fitted_names = self._columns_by_party
            self._keep_names("columns", {name: fitted_names.get(name) for name in model.parties})
        self._last_transform: list[RunReport] = []

    def _adopt_shortfalls(self, shortfalls: Any) -> None:
        """The share of each eigenvalue that may be missing; None where nothing is known of it."""
        for name in _SHORTFALLS:
            self.__dict__.pop(name, None)
        if shortfalls is not None:
            self.shortfalls_ = np.asarray(shortfalls, np.float64)
            self.shortfall_ = float(self.shortfalls_.max())

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit, and the scores of the fitted samples; equal to `fit(X).transform(X)`.

        Where the centre knows these scores already, nothing more is sent.
        """
        self.fit(X, y, **fit_params)
        return self._fitted_scores(X)

    def _fitted_scores(self, X: Any) -> Any:
        if not self._knows_scores():
            return self.transform(X)
        return self.model_.fusion.components.scores.astype(dtype_of(X), copy=False)

    def _knows_scores(self) -> bool:
        """Whether the fit gave the fitted samples' scores to the centre."""
        return False

    # New samples.

    def transform(self, X: Any) -> Any:
        """Scores of samples: one message from each party."""
        check_is_fitted(self)
        is_elsewhere = isinstance(X, Federation) or is_dask_collection(X)
        source = X if is_elsewhere else self._new_samples(X)
        model = self.model_
        with (
            self._opened(source) as fed,
            fed.recording() as recording,
            fed.masking() if model.summed else nullcontext(),
        ):
            self._require_columns(fed)
            self._require_same_names(fed)
            self._bring_along(fed)
            notes = self._align(fed)
            scores = scoring(model).run(fed).value
        self._last_transform[:] = [
            RunReport.of(
                recording,
                fed,
                stop_reason="every party has sent its one message",
                baseline_floats=shipping(model, len(scores)),
                notes=notes,
            )
        ]
        return scores.astype(dtype_of(X), copy=False)

    def _new_samples(self, X: Any) -> Partitioned:
        names, widths = self.model_.parties, self.model_.widths
        if not isinstance(X, Partitioned):
            blocks = split_columns(self._checked(X, reset=False), widths)
            return Partitioned.from_tables("columns", [Table(b) for b in blocks], names=names)
        columns = self.party_feature_names_
        parts = renamed_by_columns(self._columns_of(X), columns)
        missing = [name for name in names if name not in parts.names]
        unknown = [n for n in parts.names if n not in names and n not in self.report_.lost]
        if missing or unknown:
            raise MissingPartyShare(
                f"the new samples come from {_listed(parts.names)}, the model from "
                f"{_listed(names)}; parties are matched by name, and "
                f"{_listed(missing or unknown)} {'is missing' if missing else 'has no share'}",
                party=(missing or unknown)[0],
            )
        return columns_of_parties_in_order(parts.select(names), columns, type(self).__name__)

    def _require_same_names(self, fed: Federation) -> None:
        """In a federation a party's columns stay in their order, which must be that of the fit."""
        names = self.party_feature_names_
        for party, own in fed.column_names().items():
            own_names = names.get(party)
            if own is None or own_names is None:
                continue
            if columns_in_order(own, own_names, party, FIT) is not None:
                raise PartitionError(
                    f"party {party!r} has its columns in another order than the fit; give them in "
                    f"that order, or pass a Partitioned, whose columns are put in order by name",
                    party=party,
                )

    def _bring_along(self, fed: Federation) -> None:
        for name, site in fed.local_sites().items():
            if name in self._shares:
                site.store.setdefault(self.model_.name, self._shares[name])
            if name in self._policies:
                site.take_over(self._policies[name])

    def _saved_names(self) -> list[str]:
        return [*super()._saved_names(), *(name for name in _SHORTFALLS if hasattr(self, name))]

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    # Shares.

    def _share(self, party: str) -> Any:
        check_is_fitted(self)
        if party not in self.model_.parties:
            raise InputError(f"{party!r} is no party of this model: {_listed(self.model_.parties)}")
        if party not in self._shares:
            raise MissingPartyShare(f"the share of {party!r} is not in this process", party=party)
        return share_from_tree(self._shares[party])

    def _shares_to_save(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for i, name in enumerate(self.model_.parties):
            self._share(name)
            yield (
                i,
                {
                    "party": name,
                    "model": self.model_.name,
                    "share": dict(self._shares[name]),
                    "policy": self._policies[name].to_tree(),
                },
            )

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
                older = {own: tree.get(own) for own in ("allow", "calls_per_run")}
                self._policies[name] = Policy.from_tree(tree.get("policy", older))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class LinearColumnEstimator(ColumnEstimator):
    """Base of linear models: each owner keeps its loadings, and can restore its own columns."""

    @property
    def components_(self) -> Any:
        """Loadings of all columns, (k, n_features), where this process has every share."""
        return np.hstack([self.loadings(name).T for name in self.model_.parties])

    def loadings(self, party: str) -> Any:
        """Loadings of one party's columns, (columns, k), from its share."""
        share = self._share(party)
        assert isinstance(share, Loadings), "linear models have loadings for shares"
        return share.loadings

    def inverse_transform(self, Z: Any, *, party: str | None = None) -> Any:
        """Columns from scores (n, k): those of one party from its share, or all of them.

        Nothing is sent: whoever has the scores and a share can do it.
        """
        check_is_fitted(self)
        scores = checked_scores(Z, len(self.eigenvalues_))
        names = self.model_.parties if party is None else (party,)
        columns = np.hstack([self._share(name).restore(scores) for name in names])
        return columns.astype(dtype_of(scores), copy=False)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def shipping(model: ColumnModel, n_samples: int) -> int:
    """Floats that shipping every column would take."""
    return n_samples * sum(model.widths)


def dtype_of(X: Any) -> Any:
    """Scores come back in the precision of the samples."""
    dtype = getattr(X.part(0) if isinstance(X, Partitioned) else X, "dtype", None)
    return np.float32 if dtype in (np.float32, np.float16) else np.float64
