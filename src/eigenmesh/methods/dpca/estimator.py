"""The decentralised linear PCA of Schizas and Aduroja, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import networkx as nx

from eigenmesh.data import Partitioned
from eigenmesh.estimators.checks import whole_number
from eigenmesh.estimators.column_checks import concluded, positive, prepared_as
from eigenmesh.estimators.columns import LinearColumnEstimator
from eigenmesh.estimators.graphs import graph_among, graph_topology, plain_topology, with_graph
from eigenmesh.graphs.consensus import mixing_on, require_graph
from eigenmesh.methods.dpca.protocol import DpcaSetup, dpca
from eigenmesh.methods.registry import Method, register
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import Stage, stage
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
    averaging : on a graph "tree" or "gossip", as in `GossipKPCA`.
    n_iterations : fits of the loadings.
    n_inner : ADMM steps after each.
    penalty : of the ADMM, as a share of the largest curvature of any node.
    tolerance : residual ‖A u − λ u‖, as a share of its own eigenvalue, above which a warning
        says that the answer has not converged.
    center, standardize, fill_missing : as in `VFedPCA`.
    keep_history : for research: after every fit of the loadings each node tells its estimate of
        the scores' span, which is counted as sent.
    random_state : seed of the common start.

    Attributes
    ----------
    eigenvalues_, eigenvectors_ : of the Gram matrix of the pooled columns, as the first node has
        them.
    relative_residual_ : largest residual of any node, as a share of its own eigenvalue.
    node_vectors_ : the eigenvectors at every node, (nodes, n, k).
    history_ : with `keep_history`, after every fit of the loadings an orthonormal basis of the
        scores at every node, (nodes, n, k); fewer nodes after one has left. Not in a saved model.
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
        averaging: str | tuple[str, float] = "auto",
        n_iterations: int = 20,
        n_inner: int = 12,
        penalty: float = 0.1,
        tolerance: float = 1e-2,
        center: bool = True,
        standardize: bool = False,
        fill_missing: float | None = None,
        keep_history: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.topology = topology
        self.averaging = averaging
        self.n_iterations = n_iterations
        self.n_inner = n_inner
        self.penalty = penalty
        self.tolerance = tolerance
        self.center = center
        self.standardize = standardize
        self.fill_missing = fill_missing
        self.keep_history = keep_history
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to columns at the nodes: a Partitioned, a Federation on a graph, or a plain array."""
        self._steps()
        source = self._source(X)
        alone = isinstance(source, Partitioned) and len(source.names) == 1
        topology = "full" if alone else graph_topology(self.topology, source)
        with self._opened(source, topology) as fed, fed.recording() as recording:
            self._require_columns(fed)
            matched = self._align(fed)
            run = self._run(require_graph(fed))
            fed.require_stages(run)
            result = run.run(fed).value
            self._keep_shares(fed, result.model)
        self._adopt(result.model, None, result.shortfalls)
        self.relative_residual_ = float(result.convergence[-1])
        self.node_vectors_ = result.node_vectors
        self.history_ = result.history
        caveats = self._caveats()
        reason, cheaper = result.stop_reason, self._less(fed.split, True)
        self.report_ = concluded(result.model, matched, caveats, reason, recording, fed, cheaper)
        return self

    def _steps(self) -> tuple[int, int]:
        return (
            whole_number(self.n_iterations, "n_iterations"),
            whole_number(self.n_inner, "n_inner"),
        )

    def _run(self, graph: nx.Graph) -> Stage:
        setup = DpcaSetup(
            **mixing_on(graph),
            n_components=whole_number(self.n_components, "n_components"),
            center=bool(self.center),
            penalty=positive(self.penalty, "penalty"),
            **prepared_as(self),
        )
        return stage(dpca, setup, *self._steps(), bool(self.keep_history))

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
        fields = {"topology": plain_topology(self.topology)}
        return {**tree, "params": {**tree["params"], **fields}}

    @classmethod
    def _from_tree(cls, tree: dict[str, Any]) -> Self:
        return super()._from_tree(with_graph(tree))

    def _planned_graph(self, names: Sequence[str]) -> nx.Graph:
        topology = "full" if len(names) == 1 else graph_topology(self.topology)
        return self._averaged_on(build_graph(topology, names))

    def _stages(self, parties: Parties) -> list[Stage]:
        """What a fit runs."""
        return [self._run(graph_among(parties))]


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
