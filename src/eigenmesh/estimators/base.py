"""What every estimator shares: taking data in any form, reports, saving and loading."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import networkx as nx
import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from eigenmesh.connect import chunk_split, federation, is_dask_collection
from eigenmesh.data import Partitioned
from eigenmesh.data.odd_columns import warn_of_columns, warn_of_columns_of_parties
from eigenmesh.data.odd_ids import warn_of_ids
from eigenmesh.data.table import Table, as_table, check_finite, require_no_words
from eigenmesh.errors import EigenmeshError, InputError, ModelFileError, NotNumbers, TopologyError
from eigenmesh.estimators import model_file
from eigenmesh.estimators.block_scores import block_scores, mapped_in_spark
from eigenmesh.estimators.checks import require_switches
from eigenmesh.estimators.naming import (
    Names,
    as_array,
    columns_of,
    frame_in_order,
    rows_in_order,
    warn_nameless,
    whole_names,
)
from eigenmesh.estimators.preparation import Preparation
from eigenmesh.estimators.report import RunReport
from eigenmesh.estimators.score_frames import FramesByParty
from eigenmesh.estimators.small_parties import LeftOut, names_of
from eigenmesh.numerics.arrays import Floats, Samples
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.protocol import load_extensions
from eigenmesh.runtime.schedule import Parties, masks_are_planned
from eigenmesh.runtime.study import Stage, forecast_stages
from eigenmesh.runtime.topology import (
    AUTO,
    USUAL,
    Topology,
    averaging_on,
    build_graph,
    graph_from_tree,
    graph_to_tree,
    is_graph_tree,
    mark_averaging,
    require_two_ways,
)
from eigenmesh.stages.row_preparation import RowPreparation

_NAMES = ("feature_names_in_", "party_names_", "_columns_by_party")
Shapes = Sequence[tuple[int, int]]

# What tells the methods of one estimator apart.
_TOLD = ("kernel", "landmarks", "features", "fusion", "variant", "solver", "topology")

_ESTIMATORS: dict[str, type[FederatedEstimator]] = {}

# A role, and which of its steps, None for all; or the runs that a fit makes.
Needs = list[Stage]  # runs that parties must let happen, with stand-ins for what is found


@dataclass(frozen=True)
class DoorArguments:
    """What a front door tells the estimator behind it, of which it takes what it has a use for."""

    door: str  # the class's name
    params: Mapping[str, Any]  # the door's own, by name
    n_components: int | None  # None for all, or for a share
    share: float | None  # of the variance that is wanted
    n_landmarks: int
    most_landmarks: int | None  # up to which they may double
    accuracy: float | None
    n_wanted: int | None = None  # of the components, if more are taken as far as there are more

    def shared_with(self, estimator: type[FederatedEstimator]) -> dict[str, Any]:
        """The door's parameters that an estimator has, too."""
        names = set(estimator._get_param_names()) - {"accuracy"}
        if self.params["topology"] is None:  # an open federation may have a graph all the same
            names.discard("topology")
        return {name: value for name, value in self.params.items() if name in names}


class FederatedEstimator(ClassNamePrefixFeaturesOutMixin, FramesByParty, BaseEstimator):
    """Base of all estimators: scikit-learn's conventions over a protocol."""

    _fitted: ClassVar[tuple[str, ...]] = ()  # attributes that a saved model needs, without report_

    _cheaper: str = ""  # how a fit can send less
    _chosen_as: str = ""  # the words of a front door for it, of which it is the choice
    _preceding: tuple[Stage, ...] = ()  # what a front door runs before it takes this estimator
    _left_out: LeftOut | None = None  # of a plan, whom a front door goes on without
    _behind: str | None = None  # the front door that built it
    _n_wanted: int | None = None  # of its components, where more are taken if there are more
    _is_exact: bool = True  # where it says nothing of what is missing
    _has_looked: bool = False  # whether who built it has looked at the array's columns
    _column_caveats: tuple[str, ...] = ()  # what was warned of in the columns of one array
    _judges_shortfall: bool = False  # whether its own warnings say that too much is missing

    _switches: ClassVar[tuple[str, ...]] = ()  # parameters that are True or False

    _split: ClassVar[str] = "columns"  # what a Dask array of a single chunk is taken for

    report_: RunReport
    party_names_: tuple[str, ...]
    feature_names_in_: Any
    _columns_by_party: dict[str, Names | None]  # unless all parties have `feature_names_in_`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        defaults = inspect.signature(cls).parameters.items()
        cls._switches = tuple(name for name, own in defaults if isinstance(own.default, bool))
        if cls._fitted:  # a base of other estimators has nothing to save
            _ESTIMATORS[cls.__name__] = cls

    if TYPE_CHECKING:  # every estimator has its own; that of a loaded model is known by this

        @overload
        def transform(self, X: Samples) -> Floats: ...
        @overload
        def transform(self, X: Any) -> Any: ...
        def transform(self, X: Any) -> Any:
            """Scores of samples."""

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit, and the scores of the fitted rows; equal to `fit(X).transform(X)`."""
        return self.fit(X, y, **fit_params).transform(X)

    def _fitted_scores(self, X: Any) -> Any:
        """The scores of the rows that were fitted."""
        return self.transform(X)

    # Behind a front door.

    @classmethod
    def _for_door(cls, arguments: DoorArguments, options: Mapping[str, Any]) -> Self:
        """The estimator that a front door takes, in the variant that `options` make."""
        estimator = cls(**{**arguments.shared_with(cls), **options})
        estimator._behind = arguments.door  # whose parameters its advice must be about
        return estimator

    def _needs(self, fed: Federation, *, weighted: bool = False) -> Needs | None:
        """What a fit will ask of the parties; None where only the fit can tell, and will."""
        return None

    # Before anything runs.

    def _masks_unasked(self, source: Any) -> bool:
        """Whether a fit to `source` masks its sums though it was not opened to."""
        return False

    def _stages(self, parties: Parties) -> list[Stage]:
        """The runs of a fit to these parties, one after the other."""
        raise NotImplementedError

    def _score_stages(self, parties: Parties) -> list[Stage]:
        """The runs by which `fit_transform` scores the fitted samples, where a fit does not."""
        return []

    def _forecast(self, names: Sequence[str], shapes: Shapes) -> Ledger:
        """The ledger that a fit will have."""
        who = (tuple(names), tuple(shapes), self._planned_graph(names))
        parties = Parties(*who, left_out=names_of(self._left_out))
        runs = [*self._preceding, *self._stages(parties)]
        return forecast_stages(runs, parties, self._split)

    def _planned_graph(self, names: Sequence[str]) -> nx.Graph | None:
        """The graph that a fit will run on; None with a coordinator."""
        topology = getattr(self, "topology", None)
        return None if topology is None else self._averaged_on(build_graph(topology, names))

    def _averaged_on(self, graph: nx.Graph) -> nx.Graph:
        """The graph, with how its nodes average, if that is said here."""
        averaging = getattr(self, "averaging", AUTO)
        if averaging != AUTO:
            mark_averaging(graph, averaging)
        require_two_ways(graph, averaging_on(graph))
        self._require_links(graph)
        return graph

    def _require_links(self, graph: nx.Graph) -> None:
        """Refuse a graph whose links go one way, where nodes have to answer each other."""
        if graph.is_directed():
            raise TopologyError(
                f"the graph is directed, and nodes of {type(self).__name__} answer each other; an "
                f"nx.Graph is expected, or GossipKPCA(features='random', averaging='push-sum')"
            )

    def _less(self, split: str, on_graph: bool) -> str:
        """How a fit can send less."""
        return self._cheaper

    def _plan_method(self, shapes: Shapes) -> str:
        """What a fit to parties of these shapes runs, in words."""
        if self._chosen_as:
            return self._chosen_as
        own = self.get_params(deep=False)
        settings = [f"{name}={_shown(own[name])}" for name in _TOLD if own.get(name) is not None]
        return f"{type(self).__name__}({', '.join(settings)})"

    def _plan_notes(self, names: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
        """What a forecast hangs on; "at most: …" where it is a bound."""
        return ()

    # Data in.

    def _checked(self, X: Any, *, reset: bool, min_samples: int = 1) -> Any:
        """A plain array, checked as scikit-learn does it, with our class of error."""
        require_no_iterator(X)
        if reset:
            self._forget_names()
        elif hasattr(self, "party_names_"):
            # scikit-learn refuses another order; parties need not agree on one to begin with.
            X = frame_in_order(X, self._known_names)
        checked = self._validated(X, reset, min_samples)
        if reset:
            self._look_at_columns(checked, self._known_names)
        return checked

    def _look_at_columns(self, X: Any, names: Any) -> None:
        """Warn of what looks like ids or gaps in one array, for the report to say, too."""
        if not self._has_looked:
            self._column_caveats = warn_of_columns(X, names)

    def _validated(self, X: Any, reset: bool, min_samples: int) -> Any:
        require_switches(self)
        allow_missing = self._takes_missing()
        require_no_words(X)
        try:
            checked = validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                ensure_min_samples=min_samples,
                ensure_all_finite=False,  # once, below, which says where
            )
        except ValueError as error:
            raise self._in_our_words(X, str(error)) from None
        except TypeError as error:
            raise NotNumbers(str(error)) from None
        check_finite(checked, allow_missing=allow_missing)
        return checked

    def _in_our_words(self, X: Any, words: str) -> InputError:
        first_line = words.partition("\n")[0]
        if "with dim" in first_line or "inhomogeneous" in first_line:
            return InputError(
                f"X is a {type(X).__name__} of {len(X)} and no table of numbers; an array "
                f"(n_samples, n_features) is expected: rows of several parties are passed as "
                f"em.Partitioned(rows=X)"
            )
        # NaN or infinity, but not where; or another width, and no number of it was looked at.
        if " contains " in first_line or " features" in first_line:
            try:
                as_table(X, allow_missing=self._takes_missing())
            except InputError as error:
                if " at row " in error.reason:
                    return error
        # What follows are the array, or advice on other estimators.
        brief = " contains " in first_line or "Complex" in first_line
        return InputError(first_line if brief else words)

    def _takes_missing(self) -> bool:
        """Whether NaN stands for a missing value."""
        return False

    def _reads_rows(self) -> dict[str, Any]:
        """What a Partitioned of new rows is told of them."""
        return {"allow_missing": self._takes_missing()}

    # Names of parties and columns.

    def _take_names(self, source: Any) -> None:
        """Keep what this process knows of split data's names; nobody is asked for them."""
        opened = isinstance(source, Federation | Partitioned)
        split = source.split if opened else chunk_split(source)
        columns = columns_of(source)
        self._taken_in = (source, columns)
        self._keep_names(split, columns)

    def _warn_of_columns(self, fed: Federation) -> None:
        """After a run: a party that refuses has not had its data opened."""
        taken_in = self.__dict__.pop("_taken_in", None)
        if taken_in is not None:
            fed.remarks |= {words: words for words in warn_of_columns_of_parties(*taken_in)}
            if isinstance(taken_in[0], Partitioned):
                fed.remarks |= {words: words for words in warn_of_ids(taken_in[0])}

    def _keep_names(self, split: str, columns: Mapping[str, Names | None]) -> None:
        self._forget_names()
        self.party_names_ = tuple(columns)
        if split == "columns" or None in columns.values():
            self._columns_by_party = dict(columns)
        names = whole_names(split, columns)
        if names is not None:
            self.feature_names_in_ = as_array(names)

    def _keep_names_of(self, fitted: Any) -> None:
        """Those of the estimator that did the work, which may have lost a party."""
        self._forget_names()
        for name in _NAMES:
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))

    def _forget_names(self) -> None:
        for name in _NAMES:
            self.__dict__.pop(name, None)

    @property
    def _known_names(self) -> Any:
        return getattr(self, "feature_names_in_", None)

    @property
    def party_feature_names_(self) -> dict[str, Names | None]:
        """The columns' names of each party that was fitted; None where they are not known here."""
        check_is_fitted(self)
        if hasattr(self, "_columns_by_party"):
            return dict(self._columns_by_party)
        names = None if self._known_names is None else tuple(self._known_names)
        return dict.fromkeys(getattr(self, "party_names_", ("party-0",)), names)

    def _rows_in_order(self, parts: Partitioned) -> Partitioned:
        """Rows of parties, each with the columns of the fit in their order."""
        if parts.split == "rows":
            if None in parts.feature_names and self._known_names is not None:
                warn_nameless(type(self).__name__)
            parts = rows_in_order(parts, self._known_names)
        if parts.split != "rows" or parts.n_features != self.n_features_in_:
            raise InputError(
                f"the new data are {parts!r}; rows of {self.n_features_in_} features are expected"
            )
        return parts

    @contextmanager
    def _opened(self, source: Any, topology: Topology | None = None) -> Iterator[Federation]:
        """A federation over the source; closed at the end only if it was opened here.

        An open federation has its own topology: the estimator's must not contradict it.
        """
        require_switches(self)
        if isinstance(source, Federation):
            self._require_topology(source, topology)
            with self._averaging_in(source):
                yield source
            self._warn_of_columns(source)
            return
        engine = "dask" if is_dask_collection(source) else "in-process"
        how: dict[str, Any] = {"split": self._split, "topology": topology}
        how["secure"] = topology is None and masks_are_planned()
        averaging = getattr(self, "averaging", AUTO)
        if topology is not None and averaging != AUTO:
            how["averaging"] = averaging
        how |= self._reads_rows() if engine == "dask" else {}
        with federation(source, engine=engine, **how) as fed:
            fed.remarks["ids"] = ""  # they are looked for in the source itself
            caveats = self.__dict__.pop("_column_caveats", ())  # of one array, looked at before
            fed.remarks |= {words: words for words in caveats}
            with self._averaging_in(fed):
                yield fed
            self._warn_of_columns(fed)

    def _averaging_in(self, fed: Federation) -> AbstractContextManager[None]:
        if fed.graph is not None:
            self._require_links(fed.graph)
        averaging = getattr(self, "averaging", AUTO)
        return nullcontext() if averaging == AUTO else fed.averaging(averaging)

    def _require_topology(self, fed: Federation, topology: Topology | None) -> None:
        if isinstance(topology, str) and topology == AUTO:
            topology = USUAL if fed.graph is None else None
        if topology is not None:
            fed.require_topology(topology)
        elif fed.graph is not None and not hasattr(self, "topology"):
            raise TopologyError(
                f"{type(self).__name__} needs a coordinator, but the federation was opened on a "
                f"graph; open it without topology, or fit an estimator that has a topology"
            )

    @property
    def transform_report_(self) -> RunReport:
        """The account of the last transform."""
        check_is_fitted(self)
        if not self._last_transform:
            raise AttributeError("transform_report_ is there after transform has been called")
        report: RunReport = self._last_transform[0]
        return report

    # Models out and in.

    def save(self, path: str | Path, *, parties: bool = False) -> None:
        """Write the coordinator's share of the model; with `parties`, every party's beside it.

        The shares are private to their parties: give each to its owner, or keep them together
        only where one person may hold all data.
        """
        check_is_fitted(self)
        model = model_file.ModelFile(path, model_file.MODEL, self._tree())
        shares = self._shares_to_save() if parties else ()
        files = (
            model_file.ModelFile(model_file.share_path(path, i), model_file.SHARE, tree)
            for i, tree in shares
        )
        model_file.write(chain([model], files))

    def _tree(self) -> dict[str, Any]:
        """What a file holds of the coordinator's share."""
        params = {name: _plain(value) for name, value in self.get_params(deep=False).items()}
        fitted = {name: _plain(getattr(self, name)) for name in self._saved_names()}
        tree = {"estimator": type(self).__name__, "params": params, "fitted": fitted}
        return {**tree, "report": self.report_.to_tree()}

    def _saved_names(self) -> list[str]:
        also = ("n_features_in_", *_NAMES)
        return [name for name in (*self._fitted, *also) if hasattr(self, name)]

    def _shares_to_save(self) -> Iterable[tuple[int, dict[str, Any]]]:
        """What only a party keeps, by its number."""
        raise InputError(f"{type(self).__name__} has no parties' shares to save")

    def _load_shares(self, path: str | Path) -> None:
        """Nothing, for models without shares."""

    @classmethod
    def _from_tree(cls, tree: dict[str, Any]) -> Self:
        missing = set(cls._fitted) - set(tree["fitted"])
        if missing:
            raise KeyError(f"{', '.join(sorted(missing))} missing")
        estimator = cls(**{name: _from_plain(value) for name, value in tree["params"].items()})
        for name, value in tree["fitted"].items():
            names = name == "feature_names_in_"
            setattr(estimator, name, np.asarray(value, dtype=object) if names else value)
        estimator.report_ = RunReport.from_tree(tree["report"])
        estimator._last_transform = []
        return estimator


def _shown(value: Any) -> str:
    return f"a graph of {len(value)} nodes" if isinstance(value, nx.Graph) else repr(value)


def load(path: str | Path) -> FederatedEstimator:
    """Load the model that `save` wrote to `path`; parties' shares beside it are taken up.

    >>> import tempfile, numpy as np, eigenmesh as em
    >>> X = np.random.default_rng(0).normal(size=(30, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     em.OneShotKPCA(n_components=2).fit(X).save(folder + "/model.em", parties=True)
    ...     em.load(folder + "/model.em").transform(X).shape
    (30, 2)
    """
    load_extensions()  # a model may be another package's
    tree = model_file.read(path, model_file.MODEL)
    name = Path(path).name
    if str(tree.get("estimator")) not in _ESTIMATORS:
        choices = ", ".join(_ESTIMATORS)
        raise ModelFileError(
            f"{name} holds a {tree.get('estimator')!r}; this version has {choices}"
        )
    try:
        estimator = estimator_from_tree(tree)
        estimator._load_shares(path)
    except EigenmeshError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ModelFileError(f"{name} is damaged: {error}") from None
    return estimator


def estimator_from_tree(tree: dict[str, Any]) -> FederatedEstimator:
    """The estimator of a tree, without parties' shares."""
    return _ESTIMATORS[str(tree["estimator"])]._from_tree(tree)


def described(estimator: Any) -> dict[str, Any]:
    """An estimator that is not fitted, in words and numbers."""
    params = {name: _plain(value) for name, value in estimator.get_params(deep=False).items()}
    numbers = {name: v.item() if isinstance(v, np.generic) else v for name, v in params.items()}
    return {"name": type(estimator).__name__, "params": numbers}


def from_description(tree: Any) -> Any:
    """The estimator that `described` was given; raises `InputError` for anything else."""
    load_extensions()
    try:
        params = {
            name: tuple(value) if isinstance(value, list) else _from_plain(value)
            for name, value in tree["params"].items()
        }
        return _ESTIMATORS[tree["name"]](**params)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"the study names no estimator that this version has ({type(error).__name__}: {error})"
        ) from None


def require_no_iterator(X: Any) -> None:
    """Blocks that can be looked at once are for those who say that they take them."""
    if isinstance(X, Iterator):
        raise InputError(
            f"X is a {type(X).__name__}; an array is expected here: pass np.vstack(list(X)), or to "
            f"transform and predict one block after the other"
        )


def one_party(X: Any) -> Partitioned:
    """A plain, checked array as the columns of a single party."""
    return Partitioned.from_tables("columns", [Table(X)])


def seed_of(random_state: Any) -> int:
    """A seed for shared draws; None means 0, since no answer should depend on it."""
    if random_state is None:
        return 0
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, Integral) and 0 <= int(random_state) < 2**32:
        return int(random_state)
    raise InputError(f"random_state is {random_state!r}; None or a whole number is expected")


def _plain(value: Any) -> Any:
    """Numpy scalars and string arrays as plain values; a generator of random numbers as None."""
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        return [str(item) for item in value]
    if isinstance(value, Preparation):
        return value.to_tree()
    if isinstance(value, nx.Graph):  # a topology
        return graph_to_tree(value)
    if isinstance(value, range):
        return list(value)
    if isinstance(value, FederatedEstimator):  # one that another compares
        return described(value)
    return value


def _from_plain(value: Any) -> Any:
    """The parameter that `_plain` wrote."""
    if is_graph_tree(value):
        return graph_from_tree(value)
    if isinstance(value, dict) and {"standardize", "fill_missing", "log"} <= set(value):
        return Preparation(**value)
    if isinstance(value, dict) and set(value) == {"name", "params"}:
        return from_description(value)
    return value


class FrontDoor(FederatedEstimator):
    """Saves and loads `estimator_` with itself: the fitted one behind the door, or None.

    Rows are prepared first, as `preparation` says: `preparation_` is what was learnt, or None.
    """

    estimator_: Any
    model_: Any
    preparation: Preparation | None
    preparation_: RowPreparation | None = None

    def _takes_missing(self) -> bool:
        return self.preparation is not None and self.preparation.fill_missing is not None

    def _reads_rows(self) -> dict[str, Any]:
        own = () if self.preparation is None else self.preparation.categories
        words = [name for name in own if isinstance(name, str)]
        return {**super()._reads_rows(), "categories": words}

    def _checked_preparation(self) -> Preparation | None:
        value: Any = self.preparation  # a user's
        if value is None or isinstance(value, Preparation):
            return value
        raise InputError(f"preparation is {value!r}; em.Preparation(...) or None is expected")

    def _checked(self, X: Any, *, reset: bool, min_samples: int = 1) -> Any:
        preparation = self._checked_preparation()
        X = X if preparation is None else preparation.with_codes(X)
        return super()._checked(X, reset=reset, min_samples=min_samples)

    def _rows_in_order(self, parts: Partitioned) -> Partitioned:
        own_categories = () if self.preparation is None else self.preparation.categories
        strange = [name for name in parts.categories if name not in own_categories]
        if strange:
            raise InputError(
                f"the new data have levels in {strange[0]!r}, which was no category of the fit; "
                f"leave it out of categories="
            )
        return super()._rows_in_order(parts)

    def _preparing_stages(
        self, names: Sequence[str] | None, on_graph: bool = False
    ) -> tuple[Stage, ...]:
        """The run that prepares rows, if there is one."""
        preparation = self._checked_preparation()
        return () if preparation is None else (preparation.stage(names, on_graph),)

    def _require_rows_to_prepare(self, split: str) -> None:
        if self.preparation is not None and split != "rows":
            own = hasattr(self, "standardize")
            remedy = (
                "pass standardize= and fill_missing=" if own else "let each owner prepare its own"
            )
            raise InputError(f"preparation is for rows, not for columns; {remedy}")

    @contextmanager
    def _preparing(self, fed: Federation) -> Iterator[None]:
        """The runs inside see rows as they are prepared, if they are."""
        self.preparation_ = None
        self._require_rows_to_prepare(fed.split)
        on_graph = fed.graph is not None and len(fed.members) > 1
        stages = self._preparing_stages(self._known_names, on_graph)
        if not stages:
            yield
            return
        fed.require_stages(*stages)

        def prepare() -> RowPreparation:
            preparation: RowPreparation = stages[0].run(fed).value
            self.preparation_ = preparation
            return preparation

        with fed.prepared(stages[0].args[0].name, prepare):
            yield

    def _require_none_for_spark(self, sample_weight: Any = None) -> None:
        """Refuse what is not done to rows in Spark."""
        self.preparation_ = None
        if self.preparation is not None:
            raise InputError(
                "preparation is given, and a Spark frame is taken as it is; None is expected: "
                "pyspark.ml.feature has StandardScaler and Imputer, whose vectors are features here"
            )
        if sample_weight is not None:
            raise InputError(
                "sample_weight is given for a Spark frame, which takes none; None is expected"
            )

    def _mapped_in_spark(
        self, X: Any, then: Any = None, names: Sequence[str] = (), dtype: str = ""
    ) -> Any:
        """A Spark frame of scores, or of what `then` makes of them, under these names."""
        if self.model_ is None:
            raise InputError(
                "X is in Spark, and the model is of parties who score together; rows that are here "
                "are expected: frame.toPandas()"
            )
        score = partial(block_scores, model=self.model_, preparation=self.preparation_)
        out = list(names or self.get_feature_names_out())
        return mapped_in_spark(self, X, score, out, then, dtype)

    def _as_prepared(self, X: Any) -> Any:
        """New rows as the model knows them."""
        return X if self.preparation_ is None else self.preparation_.apply(X)

    def _for_inner(self, X: Any) -> Any:
        """New rows for the estimator behind the door, which knows prepared ones."""
        if self.preparation_ is None:
            return X
        if isinstance(X, Partitioned):
            parts = self._rows_in_order(X)
            tables = [Table(self.preparation_.apply(part)) for part in parts.parts]
            return Partitioned.from_tables("rows", tables, names=parts.names)
        return self.preparation_.apply(self._checked(X, reset=False))

    def _unprepared(self, X: Any) -> Any:
        """Rows of the model in their owners' units."""
        return X if self.preparation_ is None else self.preparation_.restore(X)

    def _scores(self, X: Any) -> Any:
        """Scores (n, k) of checked rows."""
        return self.model_.transform(self._as_prepared(X))

    def _note_preparation(self) -> None:
        """After a fit that prepared its rows."""
        assert self.preparation_ is not None
        words = self.preparation_.in_words(self._known_names)
        self.n_features_in_ = self.preparation_.n_columns  # of rows as their owners have them
        inner = self.estimator_
        while inner is not None:  # which has not seen the columns that have these names
            inner._forget_names()
            inner = getattr(inner, "estimator_", None)
        self.report_ = replace(self.report_, notes=(*self.report_.notes, words))

    def _saved_names(self) -> list[str]:
        own = [] if self.preparation_ is None else ["preparation_"]
        return [*super()._saved_names(), *own]

    def _tree(self) -> dict[str, Any]:
        tree = super()._tree()
        if self.estimator_ is not None:
            tree["fitted"]["estimator_"] = self.estimator_._tree()
        return tree

    @classmethod
    def _from_tree(cls, tree: dict[str, Any]) -> Self:
        loaded = super()._from_tree(tree)
        if loaded.estimator_ is not None:
            loaded.estimator_ = estimator_from_tree(loaded.estimator_)
            loaded._last_transform = loaded.estimator_._last_transform
        return loaded

    def _shares_to_save(self) -> Iterable[tuple[int, dict[str, Any]]]:
        if self.estimator_ is None:
            return super()._shares_to_save()  # which says that there are none
        shares: Iterable[tuple[int, dict[str, Any]]] = self.estimator_._shares_to_save()
        return shares

    def _load_shares(self, path: str | Path) -> None:
        if self.estimator_ is not None:
            self.estimator_._load_shares(path)
