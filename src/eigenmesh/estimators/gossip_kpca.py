"""Kernel PCA on a graph without a centre and without sending rows, as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

from eigenmesh.errors import EigenmeshWarning
from eigenmesh.estimators.base import seed_of
from eigenmesh.estimators.checks import missing_gap, one_of, whole_number
from eigenmesh.estimators.graph_estimator import (
    NO_GRAPH,
    GraphEstimator,
    count_from_zero,
    number_from_zero,
    unplaced_model,
)
from eigenmesh.estimators.kernel_gamma import forecast_gamma, kernel_gamma, psd_kernel
from eigenmesh.estimators.run_report import RunReport
from eigenmesh.federation.ledger import Ledger
from eigenmesh.numerics.embeddings import embedding
from eigenmesh.numerics.feature_model import FeatureModel
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.protocols.consensus import mixing
from eigenmesh.protocols.gossip_forecast import forecast_gossip
from eigenmesh.protocols.gossip_kpca import (
    FEATURES,
    GossipNode,
    GossipResult,
    GossipSetup,
    gossip_kpca,
    steps_for,
)
from eigenmesh.protocols.graph_models import ModelHolder

_TELLS = {
    "rows": ModelHolder.tell_row_model,
    "centroids": ModelHolder.tell_centroid_model,
    "random": ModelHolder.tell_embedded_model,
}


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
    kernel : "linear", "poly", "rbf", "laplacian", "cosine" or "arc-cosine", as in `DisKPCA`.
    gamma : a number, None for 1/n_features, "scale", "median" or "mean-distance".
    features : "centroids", kernel values with means of at least 5 rows each, which all nodes get
        to know; or "random", features from a common seed, with which only moments are sent. Random
        features need many more dimensions for the same accuracy.
    n_features : dimensions of the features in all; centroids are shared out evenly.
    n_rounds : of the subspace iteration.
    n_mixes : exchanges with the neighbours in a round; if None, as many as leave at most a quarter
        of the differences between nodes. With too few the iteration does not converge.
    tolerance : stop once no node's directions move by more than this (sine of the angle).
    center : centre in feature space, with respect to all rows.
    random_state : seed of all draws.

    Attributes
    ----------
    node_models_ : by node, its model; all are alike up to rounding.
    eigenvalues_ : of the (centred) kernel matrix of all rows, inside the features' span.
    total_variance_, residual_, explained_variance_ratio_ : the variance in feature space, an upper
        bound if centred; with "random" that of the random features.
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
    ) -> None:
        self.n_components = n_components
        self.topology = topology
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

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to rows at the nodes: a Partitioned, a Federation on a graph, or a plain array."""
        self._check()
        with self._on_graph(X) as fed, fed.recording() as recording:
            n_nodes, watched = len(fed.parties), self.tolerance is not None
            setup = self._agreed(mixing(fed), self._kernel(1.0), n_nodes)
            fed.require(GossipNode, steps_for(setup, watched))
            tells = _TELLS[setup.features]
            if not fed.local_sites():
                fed.require(ModelHolder, [tells])
            gamma = kernel_gamma(fed, self.kernel, self.gamma, seed_of(self.random_state))
            setup = self._agreed(mixing(fed), self._kernel(gamma), n_nodes)
            run = (setup, int(self.n_rounds), self.n_mixes, self.tolerance)
            result = fed.run(gossip_kpca, *run).value
            known = self._unplaced(setup, result, gamma)
            self._take_models(fed, result.parties, tells, known)
        self._adopt(result, gamma)
        caveats = missing_gap(self.eigenvalues_, result.outcome.next_eigenvalue)
        self.report_ = RunReport.of(
            recording,
            fed,
            stop_reason=result.stop_reason,
            baseline_floats=result.baseline_floats,
            notes=(*caveats, *self._facts(setup, result)),
            cheaper=self._less(fed.split, fed.graph is not None),
        )
        for caveat in caveats:
            warnings.warn(caveat, EigenmeshWarning, stacklevel=2)
        return self

    def _check(self) -> None:
        for name in ("n_components", "n_features"):
            whole_number(getattr(self, name), name)
        count_from_zero(self.n_rounds, "n_rounds")
        if self.n_mixes is not None:
            whole_number(self.n_mixes, "n_mixes")
        if self.tolerance is not None:
            number_from_zero(self.tolerance, "tolerance")
        kernel = self._kernel(1.0)
        if one_of(self.features, "features", FEATURES) == "random":
            embedding(kernel, 1, 1, 0)  # some kernels have none, and say so

    def _kernel(self, gamma: float | None) -> Kernel:
        return psd_kernel(self.kernel, gamma, self.degree, self.coef0)

    def _agreed(self, graph: dict[str, Any], kernel: Kernel, n_nodes: int) -> GossipSetup:
        return GossipSetup(
            **graph,
            kernel=kernel.name,
            gamma=kernel.gamma,
            degree=float(kernel.degree),
            coef0=float(kernel.coef0),
            features="rows" if n_nodes == 1 else self.features,
            n_features=int(self.n_features),
            n_centroids=-(-int(self.n_features) // n_nodes),
            n_components=int(self.n_components),
            center=bool(self.center),
            seed=seed_of(self.random_state),
        )

    def _unplaced(self, setup: GossipSetup, result: GossipResult, gamma: float | None) -> Any:
        model = unplaced_model(self._kernel(gamma), result.outcome)
        if setup.features != "random":
            return model
        how = (model.kernel, result.n_columns, setup.n_features, setup.seed)
        facts = (model.eigenvalues, model.next_eigenvalue, model.total, model.n_rows)
        return FeatureModel(*how, model.coefficients, model.offset, *facts)

    def _forecast(self, names: Sequence[str], shapes: Sequence[tuple[int, int]]) -> Ledger:
        """The ledger that a fit to dense rows will have, if it loses and skips nothing."""
        self._check()
        ledger = Ledger()
        forecast_gamma(ledger, self.kernel, self.gamma, names, shapes)
        setup = self._agreed(NO_GRAPH, self._kernel(1.0), len(names))
        rounds = (int(self.n_rounds), self.n_mixes, self.tolerance is not None)
        forecast_gossip(ledger, names, shapes, self._planned_graph(names), setup, *rounds)
        return ledger

    def _adopt(self, result: GossipResult, gamma: float | None) -> None:
        whole = result.outcome
        self.gamma_ = gamma
        self.eigenvalues_ = whole.eigenvalues
        self.total_variance_ = whole.total
        self.residual_ = max(whole.total - float(whole.eigenvalues.sum()), 0.0)
        self.explained_variance_ratio_ = whole.eigenvalues / whole.total
        self.n_features_in_ = result.n_columns
        self._last_transform: list[RunReport] = []

    def _facts(self, setup: GossipSetup, result: GossipResult) -> tuple[str, ...]:
        if setup.features == "rows":
            return ("a single node: exact kernel PCA of its rows",)
        width = result.outcome.n_dimensions
        return (f"components inside the span of {width} {setup.features} features, approximate",)
