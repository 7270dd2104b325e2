"""Kernel PCA on a graph without a centre and without sending rows, as a scikit-learn estimator."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import networkx as nx
import numpy as np
from sklearn.utils.validation import check_is_fitted

from eigenmesh.errors import EigenmeshWarning, InputError
from eigenmesh.estimators.accuracy import in_short, missing_gap
from eigenmesh.estimators.base import DoorArguments, Needs, seed_of
from eigenmesh.estimators.checks import checked_accuracy, one_of, whole_number
from eigenmesh.estimators.graphs import (
    GraphEstimator,
    count_from_zero,
    graph_among,
    number_from_zero,
    unplaced_model,
)
from eigenmesh.estimators.kernel_gamma import PSD_KERNELS, gamma_stages, kernel_gamma, psd_kernel
from eigenmesh.estimators.report import RunReport
from eigenmesh.graphs.consensus import mixing_on, require_graph
from eigenmesh.methods.gossip.protocol import (
    FEATURES,
    GossipGoal,
    GossipResult,
    GossipSetup,
    Growth,
    Missing,
    asked_of_each,
    centroids_given,
    features_for,
    gossip_kpca,
    schedule,
    shortfall_of,
)
from eigenmesh.methods.registry import Method, register
from eigenmesh.numerics.arrays import as_rows
from eigenmesh.numerics.centroids import MIN_CLUSTER
from eigenmesh.numerics.embeddings import embedded_width, embedding
from eigenmesh.numerics.feature_model import FeatureModel
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.schedule import Parties, forecast
from eigenmesh.runtime.study import Stage, stage


class GossipKPCA(GraphEstimator):
    """Kernel PCA of rows held by the nodes of a graph: no centre, and no row leaves its node.

    The nodes compute the same features of their rows, and find the principal directions of all
    features by averaging with their neighbours. Every node ends with the same model, which scores
    any rows.

    Parameters
    ----------
    n_components : components wanted.
    topology : who is whose neighbour: "ring", "star", "full", "grid", "random-regular",
        ("lattice", k) or a networkx graph; "auto" for that of a federation that is open, else
        "ring". A plain array is a single node, whose answer is exact.
    averaging : how nodes of a graph add up: along a spanning "tree", exactly and in 2(n − 1)
        messages, or by "gossip", for those who trust no tree; or by "push-sum", which any graph
        does for, and a directed one (nx.DiGraph, strongly connected) for features="random": nobody
        need know who hears whom elsewhere, and messages may be lost. ("gossip", t) and
        ("push-sum", t) end when a share t of the nodes' differences is left, not 1e-12. "auto" for
        what a federation that is open has, else a tree.
    kernel : "linear", "poly", "rbf", "laplacian", "cosine" or "arc-cosine", as in `DisKPCA`.
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance".
    degree, coef0 : of polynomial kernels; `degree` also of "arc-cosine".
    features : "centroids", kernel values with means of at least 5 rows each, which all nodes get
        to know; or "random", features from a common seed, with which only moments are sent. Random
        features need many more dimensions for the same accuracy.
    n_features : dimensions of the features in all; centroids are shared out evenly, as far as a
        fifth of each node's rows goes. Nodes with fewer than 5 rows give none.
    n_rounds : of the subspace iteration; with an accuracy, up to ten times as many while an
        eigenvalue still grows by more than a tenth of it, and a warning if that is not enough.
    n_mixes : exchanges with the neighbours in a round; if None, as many as leave at most a quarter
        of the differences between nodes. With too few the iteration does not converge.
    tolerance : stop once no node's directions move by more than this (sine of the angle).
    center : centre in feature space, with respect to all rows.
    random_state : seed of all draws.
    accuracy : None, or the largest share of a wanted eigenvalue that the features may miss: one
        more average measures it, and a warning says if it is more.
    max_features : with an accuracy, centroids double up to so many while they miss more; None for
        `n_features`, which then stay. No node gives more centroids than a fifth of its rows.
        Random features stay as many as they are: it would take too many.
    keep_history : for research: after every round each node tells its directions, counted as sent.

    Attributes
    ----------
    node_models_ : by node, its model; all are alike up to rounding.
    eigenvalues_ : of the (centred) kernel matrix of all rows, inside the features' span.
    total_variance_, residual_, explained_variance_ratio_ : the variance in feature space, an upper
        bound if centred; with "random" that of the random features.
    shortfalls_ : with an accuracy, the share of each eigenvalue that the features miss, estimated,
        (k,); of random features, by how much they are off, mostly too large, as a share of the
        larger one of what is there and what is true. `shortfall_` is the largest and
        `shortfall_error_` its standard error.
    history_ : with `keep_history`, every node's directions after every round, not yet rotated, as
        coefficients of the centroids, or of random features, (rounds, nodes, n_features,
        n_components + 1); `transform_history` gives scores. None without, and where sums along a
        tree leave no rounds; not saved.
    report_ : what it cost, and what left each node.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data / 16
    >>> parts = em.split(X, n_parties=6, random_state=0)
    >>> kpca = em.GossipKPCA(2, topology="ring", kernel="rbf", gamma=0.05).fit(parts)
    >>> "rows" in kpca.report_.reveals["party-0"]
    False
    >>> kpca.node_models_["party-5"].transform(X[:10]).shape
    (10, 2)
    """

    _cheaper = "lower n_features or n_rounds, or take a coordinator if there can be one"
    _fitted = (
        "eigenvalues_",
        "explained_variance_ratio_",
        "total_variance_",
        "residual_",
        "gamma_",
        "nodes_",
        "model_",
    )

    def __init__(
        self,
        n_components: int = 2,
        *,
        topology: Any = "auto",
        averaging: str | tuple[str, float] = "auto",
        kernel: str = "linear",
        gamma: float | str | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        features: str = "centroids",
        n_features: int = 100,
        n_rounds: int = 20,
        n_mixes: int | None = None,
        tolerance: float | None = None,
        center: bool = True,
        random_state: Any = None,
        accuracy: float | None = None,
        max_features: int | None = None,
        keep_history: bool = False,
    ) -> None:
        self.n_components = n_components
        self.topology = topology
        self.averaging = averaging
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.features = features
        self.n_features = n_features
        self.n_rounds = n_rounds
        self.n_mixes = n_mixes
        self.tolerance = tolerance
        self.center = center
        self.random_state = random_state
        self.accuracy = accuracy
        self.max_features = max_features
        self.keep_history = keep_history

    _optional = ("shortfalls_", "shortfall_", "shortfall_error_")

    def _require_links(self, graph: nx.Graph) -> None:
        if self.features != "random":  # centroids are asked for, and answers go back
            super()._require_links(graph)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows at the nodes: a Partitioned, a Federation on a graph, or a plain array."""
        self._check()
        with self._on_graph(X) as fed, fed.recording() as recording:
            fed.require_stages(self._run(require_graph(fed), self._kernel(1.0)))
            if not fed.local_sites():
                self._require_model(fed, self._features(len(fed.parties)))
            gamma, setup, result = fed.in_turn(
                partial(self._find_gamma, fed), partial(self._search, fed)
            )
            facts = self._unplaced(setup, result, gamma)
            self._take_models(fed, result.parties, result.features, facts)
        self._adopt(result, gamma)
        caveats = self._gap_caveats(result)
        caveats += graph_caveats(result, setup.features, self.accuracy)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=result.stop_reason,
            baseline_floats=result.baseline_floats,
            notes=(*caveats, *self._facts(result)),
            cheaper=self._less(fed.split, fed.graph is not None),
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    @classmethod
    def _for_door(cls, arguments: DoorArguments, options: Mapping[str, Any]) -> Self:
        """A front door's landmarks are the features here."""
        sizes = {
            "n_features": arguments.n_landmarks,
            "accuracy": arguments.accuracy,
            "max_features": arguments.most_landmarks,
        }
        estimator = super()._for_door(arguments, {**options, **sizes})
        estimator._or_random = True
        estimator._n_wanted = arguments.n_wanted
        return estimator

    def _needs(self, fed: Federation, *, weighted: bool = False) -> Needs:
        return [self._run(require_graph(fed), self._kernel(1.0))]

    def _planned_span(self, parties: Parties) -> tuple[str, int]:
        sizes, features = [n for n, _ in parties.shapes], self._features(len(parties.names))
        if features == "random":
            return "features", embedded_width(self.kernel, parties.shapes[0][1], self.n_features)
        return "landmarks", sizes[0] if features == "rows" else self._n_centroids(sizes)

    def _common_span(self) -> str:
        return "features" if isinstance(self.model_, FeatureModel) else "landmarks"

    def _check(self) -> None:
        for name in ("n_components", "n_features"):
            whole_number(getattr(self, name), name)
        count_from_zero(self.n_rounds, "n_rounds")
        if self.n_mixes is not None:
            whole_number(self.n_mixes, "n_mixes")
        if self.tolerance is not None:
            number_from_zero(self.tolerance, "tolerance")
        if self.accuracy is not None:
            checked_accuracy(self.accuracy)
        if self.max_features is not None:
            whole_number(self.max_features, "max_features")
        kernel = self._kernel(1.0)
        if one_of(self.features, "features", FEATURES) == "random":
            embedding(kernel, 1, 1, 0)  # some kernels have none, and say so

    def _kernel(self, gamma: float | None) -> Kernel:
        return psd_kernel(self.kernel, gamma, self.degree, self.coef0)

    def _features(self, n_nodes: int) -> str:
        return "rows" if n_nodes == 1 else self.features

    def _run(self, graph: nx.Graph, kernel: Kernel) -> Stage:
        return stage(gossip_kpca, self._agreed(graph, kernel), self._goal())

    def _agreed(self, graph: nx.Graph, kernel: Kernel) -> GossipSetup:
        return GossipSetup(
            **mixing_on(graph),
            kernel=kernel.name,
            gamma=kernel.gamma,
            degree=float(kernel.degree),
            coef0=float(kernel.coef0),
            features=self._features(len(graph)),
            n_components=int(self.n_components),
            n_wanted=min(self._n_wanted or self.n_components, self.n_components),
            center=bool(self.center),
            seed=seed_of(self.random_state),
        )

    def _goal(self) -> GossipGoal:
        most = self.n_features if self.max_features is None else self.max_features
        return GossipGoal(
            int(self.n_features),
            int(self.n_rounds),
            None if self.n_mixes is None else int(self.n_mixes),
            None if self.tolerance is None else float(self.tolerance),
            None if self.accuracy is None else float(self.accuracy),
            int(most),
            self._or_random,
            bool(self.keep_history),
        )

    _judges_shortfall = True
    _or_random = False  # of a front door: where no node has rows enough, no centroids are meant

    def _gap_caveats(self, result: GossipResult) -> tuple[str, ...]:
        """Of the last component, unless it was taken only because there was one more."""
        if self._n_wanted is not None:
            return ()
        return missing_gap(self.eigenvalues_, result.outcome.next_eigenvalue)

    def _n_centroids(self, sizes: Sequence[int]) -> int:
        """Centroids that nodes of these sizes give at first."""
        count = asked_of_each(sizes, int(self.n_features))
        return sum(centroids_given(n, count) for n in sizes)

    def _find_gamma(self, fed: Federation) -> float | None:
        return kernel_gamma(fed, self.kernel, self.gamma, seed_of(self.random_state))

    def _search(
        self, fed: Federation, gamma: float | None
    ) -> tuple[float | None, GossipSetup, GossipResult]:
        setup = self._agreed(require_graph(fed), self._kernel(gamma))
        return gamma, setup, fed.run(gossip_kpca, setup, self._goal()).value

    def _unplaced(self, setup: GossipSetup, result: GossipResult, gamma: float | None) -> Any:
        model = unplaced_model(self._kernel(gamma), result.outcome)
        if result.features != "random":
            return model
        how = (model.kernel, result.n_columns, result.n_features, setup.seed)
        facts = (model.eigenvalues, model.next_eigenvalue, model.total, model.n_rows)
        return FeatureModel(*how, model.coefficients, model.offset, *facts)

    def _stages(self, parties: Parties) -> list[Stage]:
        """What a fit runs, one after the other."""
        self._check()
        seed = seed_of(self.random_state)
        search = gamma_stages(self.kernel, self.gamma, parties, seed)
        return [*search, self._run(graph_among(parties), self._kernel(1.0))]

    def _plan_notes(
        self, names: Sequence[str], shapes: Sequence[tuple[int, int]]
    ) -> tuple[str, ...]:
        """What it would cost if rounds went on, and features doubled, as often as they may."""
        goal = self._goal()
        if goal.accuracy is None:
            return super()._plan_notes(names, shapes)
        parties = Parties(tuple(names), tuple(shapes), self._planned_graph(names))
        setup, scope = self._agreed(graph_among(parties), self._kernel(1.0)), parties.scope("rows")
        rows = {name: n for name, (n, _) in zip(names, shapes, strict=True)}
        taken = features_for(setup, goal, list(rows.values()))
        growth = Growth.of(dataclasses.replace(setup, features=taken), goal, rows)

        def floats(n_features: int, is_fullest: bool = True) -> int:
            fit = dataclasses.replace(goal, n_features=n_features)
            ledger = forecast(schedule(scope, setup, fit, is_fullest), parties)
            return ledger.floats_up + ledger.floats_down

        more = floats(goal.n_features) - floats(goal.n_features, is_fullest=False)
        while not growth.is_done:
            growth = growth.doubled()
            more += floats(growth.total)
        if not more:
            return ()
        return (
            f"as if {self.n_features} features and {goal.n_rounds} rounds were enough: rounds go "
            f"on and features double while more than accuracy={self.accuracy:g} lets them is "
            f"missing, which takes at most {more:,} floats more; on a tree a look ends at the root "
            f"where little is outside the features' span",
        )

    def _adopt(self, result: GossipResult, gamma: float | None) -> None:
        whole = result.outcome
        self.gamma_ = gamma
        self.eigenvalues_ = whole.eigenvalues
        self.total_variance_ = whole.total
        self.residual_ = max(whole.total - float(whole.eigenvalues.sum()), 0.0)
        self.explained_variance_ratio_ = whole.eigenvalues / whole.total
        self.n_features_in_ = result.n_columns
        for name in self._optional:
            self.__dict__.pop(name, None)
        if result.missing is not None:
            self.shortfalls_ = result.missing.values
            if result.growing.size:
                self.shortfalls_ = 1 - (1 - self.shortfalls_) * (1 - result.growing)
            self.shortfall_ = float(self.shortfalls_.max())
            self.shortfall_error_ = float(result.missing.errors[self.shortfalls_.argmax()])
        self._last_transform: list[RunReport] = []
        self._keep(result)

    def _keep(self, result: GossipResult) -> None:
        """What nodes told after every round."""
        self.history_: Any = None
        if result.history:
            turns, model = np.array(result.history), self.model_
            is_random = isinstance(model, FeatureModel)
            lines = len(model.components if is_random else model.landmarks)
            s = turns.shape[2] // (lines + 1)
            self.history_ = turns[:, :, : lines * s].reshape(*turns.shape[:2], lines, s)
            self._history_offsets = turns[:, :, lines * s :]

    def transform_history(self, X: Any) -> Iterator[Any]:
        """Scores of rows after each round at every node, (nodes, n, n_components): for research.

        The directions of a round span what they span; they are not yet turned to the principal
        ones.

        >>> import eigenmesh as em
        >>> from sklearn.datasets import load_iris
        >>> parts = em.split(load_iris().data, n_parties=4, random_state=0)
        >>> kpca = em.GossipKPCA(1, averaging="gossip", n_rounds=6, keep_history=True).fit(parts)
        >>> [scores.shape for scores in kpca.transform_history(load_iris().data[:10])][:2]
        [(4, 10, 1), (4, 10, 1)]
        """
        check_is_fitted(self)
        if getattr(self, "history_", None) is None:
            raise InputError(
                "no history was kept; keep_history=True is expected, and rounds: averaging='gossip'"
            )
        model, k, rows = self.model_, len(self.eigenvalues_), as_rows(X, np.float64)
        if isinstance(model, FeatureModel):
            E = embedding(model.kernel, model.n_columns, model.width, model.seed)(rows)
        else:
            E = np.asarray(model.kernel.matrix(rows, model.landmarks))
        for directions, offsets in zip(self.history_, self._history_offsets, strict=True):
            yield np.array([E @ C[:, :k] - m[:k] for C, m in zip(directions, offsets, strict=True)])

    def _saved_names(self) -> list[str]:
        return [*super()._saved_names(), *(name for name in self._optional if hasattr(self, name))]

    def _facts(self, result: GossipResult) -> tuple[str, ...]:
        if result.features == "rows":
            return ("a single node: exact kernel PCA of its rows",)
        width = result.outcome.n_dimensions
        return (f"components inside the span of {width} {result.features} features, approximate",)


def _with_features(features: str, why: str) -> Method:
    return Method(
        "gossip",
        "rows",
        PSD_KERNELS,
        GossipKPCA,
        why,
        graph=True,
        rank=30,
        discloses="means" if features == "centroids" else "sums",
        accurate=features == "centroids",
        options={"features": features},
        cheaper="lower n_landmarks, or take a coordinator if there can be one",
    )


register(
    _with_features(
        "centroids", "neighbours average what rows are against centroids, and no row leaves"
    )
)
register(
    _with_features(
        "random", "neighbours average moments of random features, and nothing else leaves"
    )
)


_BY_ROWS = "ADMMKPCA (KernelPCA's method='admm'), by which rows go to neighbours"


def graph_caveats(result: GossipResult, features: str, accuracy: float | None) -> tuple[str, ...]:
    """Caveats of nodes with too few rows, and of features that miss more than they may.

    `features` are those that were asked for.
    """
    caveats = []
    if features != result.features:
        caveats.append(
            f"no node has the {MIN_CLUSTER} rows that a centroid needs, so {result.n_features} "
            f"random features are taken, which show only sums; the answer is theirs. Other "
            f"choices: nodes that join their rows, or {_BY_ROWS}"
        )
    missing = result.missing
    if missing is not None and accuracy is not None:
        if not shortfall_of(missing).is_within(accuracy):
            caveats.append(f"{_how_much(result, missing, accuracy)}{_what_helps(result)}")
        if float(result.growing.max(initial=0.0)) > accuracy:
            caveats.append(_still_growing(result))
    elif result.without:
        caveats.append(f"{_without(result)} and give none: the components are inside the others'")
    return tuple(caveats)


def _how_much(result: GossipResult, missing: Missing, accuracy: float) -> str:
    worst = int(missing.values.argmax())
    verb = "are off by" if result.features == "random" else "miss"
    verdict = "more" if float(missing.values[worst]) > accuracy else "perhaps more"
    return (
        f"the {result.outcome.n_dimensions} {_called(result)} {verb} about "
        f"{missing.values[worst]:.1%} (± {missing.errors[worst]:.1%}) of eigenvalue {worst + 1}, "
        f"{verdict} than accuracy={accuracy:g} lets them"
    )


def _called(result: GossipResult) -> str:
    return "random features" if result.features == "random" else result.features


def _still_growing(result: GossipResult) -> str:
    worst = int(result.growing.argmax())
    return (
        f"the iteration has not come to rest: {result.stop_reason}, and eigenvalue {worst + 1} may "
        f"lack {result.growing[worst]:.1%}; ask for another number of components, raise n_mixes or "
        f"n_rounds (of GossipKPCA), or choose a graph with more edges"
    )


def _what_helps(result: GossipResult) -> str:
    if result.without:
        return (
            f". {_without(result)}. What would count them in: their rows joined with another "
            f"node's, or {_BY_ROWS}"
        )
    if result.exhausted:
        return (
            f": there are no more means of {MIN_CLUSTER} rows. Ask for fewer components, or take "
            f"{_BY_ROWS}"
        )
    return ": raise n_landmarks (of GossipKPCA n_features), or ask for fewer components"


def _without(result: GossipResult) -> str:
    verb = "has" if len(result.without) == 1 else "have"
    return (
        f"node {in_short(result.without)} {verb} fewer than the {MIN_CLUSTER} rows that a centroid "
        f"needs"
    )
