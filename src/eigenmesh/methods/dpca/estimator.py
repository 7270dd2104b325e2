"""The decentralised linear PCA of Schizas and Aduroja, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from eigenmesh.data import Partitioned
from eigenmesh.estimators.checks import whole_number
from eigenmesh.estimators.column_checks import concluded, positive, prepared_as
from eigenmesh.estimators.columns import LinearColumnEstimator
from eigenmesh.estimators.graphs import graph_topology, plain_topology, with_graph
from eigenmesh.graphs.consensus import mixing
from eigenmesh.graphs.graph_forecast import GraphForecast
from eigenmesh.methods.dpca.protocol import DpcaNode, DpcaSetup, dpca
from eigenmesh.methods.registry import Method, register
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.ledger import Ledger
from eigenmesh.runtime.topology import build_graph


class DPCA(LinearColumnEstimator):
    """Linear PCA of samples whose columns are held by the nodes of a graph, by ADMM.

    A baseline: every step exchanges estimates of all scores with the neighbours, twice, and there
    are `n_iterations` × `n_inner` of them. `VFedPCA(topology=...)` reaches the same answer with
    far less traffic.

    Parameters
    ----------
    n_components : components wanted.
    topology : "ring", "star", "full", "grid", "random-regular", ("lattice", k) or a graph;
        "auto" for that of a federation that is open, else "ring".
    n_iterations : fits of the loadings.
    n_inner : ADMM steps after each.
    penalty : of the ADMM, as a share of the largest curvature of any node.
    tolerance : residual ‖A u − λ u‖, as a share of its own eigenvalue, above which a warning
        says that the answer has not converged.
    center, standardize, fill_missing : as in `VFedPCA`.
    random_state : seed of the common start.

    Attributes
    ----------
    eigenvalues_, eigenvectors_ : of the Gram matrix of the pooled columns, as the first node has
        them.
    relative_residual_ : largest residual of any node, as a share of its own eigenvalue.
    node_vectors_ : the eigenvectors at every node, (nodes, n, k).
    report_ : what it cost, and what left each node.

    Examples
    --------
    >>> import eigenmesh as em
    >>> from sklearn.datasets import load_wine
    >>> parts = em.split(load_wine().data, n_parties=4, by="columns")
    >>> pca = em.DPCA(1, topology="ring", standardize=True).fit(parts)
    >>> pca.explained_variance_ratio_.round(3)
    array([0.362])
    """

    _cheaper = "lower n_iterations or n_inner, or take VFedPCA"
    _fitted = (
        "eigenvalues_",
        "eigenvectors_",
        "explained_variance_ratio_",
        "total_variance_",
        "residual_",
        "relative_residual_",
        "node_vectors_",
        "gamma_",
        "model_",
    )

    def __init__(
        self,
        n_components: int = 2,
        *,
        topology: Any = "auto",
        n_iterations: int = 20,
        n_inner: int = 12,
        penalty: float = 0.1,
        tolerance: float = 1e-2,
        center: bool = True,
        standardize: bool = False,
        fill_missing: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.topology = topology
        self.n_iterations = n_iterations
        self.n_inner = n_inner
        self.penalty = penalty
        self.tolerance = tolerance
        self.center = center
        self.standardize = standardize
        self.fill_missing = fill_missing
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to columns at the nodes: a Partitioned, a Federation on a graph, or a plain array."""
        steps = self._steps()
        source = self._source(X)
        alone = isinstance(source, Partitioned) and len(source.names) == 1
        topology = "full" if alone else graph_topology(self.topology, source)
        with self._opened(source, topology) as fed, fed.recording() as recording:
            self._require_columns(fed)
            matched = self._align(fed)
            fed.require(DpcaNode)
            found = fed.run(dpca, self._agreed(fed), *steps).value
            self._keep_shares(fed, found.model)
        self._adopt(found.model, None, found.shortfalls)
        self.relative_residual_ = float(found.convergence[-1])
        self.node_vectors_ = found.node_vectors
        caveats = self._caveats()
        reason, cheaper = found.stop_reason, self._less(fed.split, True)
        self.report_ = concluded(found.model, matched, caveats, reason, recording, fed, cheaper)
        return self

    def _steps(self) -> tuple[int, int]:
        return (
            whole_number(self.n_iterations, "n_iterations"),
            whole_number(self.n_inner, "n_inner"),
        )

    def _agreed(self, fed: Federation) -> DpcaSetup:
        return DpcaSetup(
            **mixing(fed),
            n_components=whole_number(self.n_components, "n_components"),
            center=bool(self.center),
            penalty=positive(self.penalty, "penalty"),
            n_nodes=len(fed.parties),
            **prepared_as(self),
        )

    def _caveats(self) -> tuple[str, ...]:
        most = positive(self.tolerance, "tolerance")
        if self.relative_residual_ <= most:
            return ()
        return (
            f"not converged: residuals are up to {self.relative_residual_:.1e} of their "
            f"eigenvalues, {most:.1e} was asked for; raise n_iterations or n_inner",
        )

    def _tree(self) -> dict[str, Any]:
        tree = super()._tree()
        kept = {"topology": plain_topology(self.topology)}
        return {**tree, "params": {**tree["params"], **kept}}

    @classmethod
    def _from_tree(cls, tree: dict[str, Any]) -> Self:
        return super()._from_tree(with_graph(tree))

    def _forecast(self, names: Sequence[str], shapes: Sequence[tuple[int, int]]) -> Ledger:
        """The ledger of a fit."""
        (n_iterations, n_inner), k = self._steps(), whole_number(self.n_components, "n_components")
        graph = build_graph("full" if len(names) == 1 else graph_topology(self.topology), names)
        known = GraphForecast(names, [d for _, d in shapes], 1, graph)
        size = shapes[0][0] * k
        known.told(DpcaNode.introduce, np.zeros(len(names), dtype=int).tolist())
        known.asked(2 * n_iterations)
        known.to_neighbours(DpcaNode.offer_peak, 1, n_iterations * known.across)
        known.to_neighbours(DpcaNode.offer_estimates, size, n_iterations * n_inner)
        known.to_neighbours(DpcaNode.offer_bridge, size, n_iterations * n_inner)
        known.asked()
        known.to_neighbours(DpcaNode.offer_mixture, size, known.mixes)
        known.told(DpcaNode.keep_loadings, [size] * len(names))
        return known.ledger


register(
    Method(
        "dpca",
        "columns",
        ("linear",),
        DPCA,
        "neighbours exchange estimates of all scores, by ADMM, and agree on the components",
        graph=True,
        task="comparison",
    )
)
