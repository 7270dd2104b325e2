"""What estimators over graphs share: opening the graph, and one model a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import networkx as nx
import numpy as np

from eigenmesh.data import Partitioned
from eigenmesh.errors import InputError
from eigenmesh.estimators import model_file
from eigenmesh.estimators.base import Shapes
from eigenmesh.estimators.rows import RowEstimator
from eigenmesh.graphs.node_models import KEPT, first_model
from eigenmesh.numerics.arrays import Floats, Rows
from eigenmesh.numerics.kernels import Kernel
from eigenmesh.numerics.landmarks import LandmarkModel
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.records import record
from eigenmesh.runtime.schedule import Parties
from eigenmesh.runtime.study import stage
from eigenmesh.runtime.topology import AUTO, USUAL, build_graph, graph_from_tree, graph_to_tree


@record
@dataclass(frozen=True)
class NodeModel:
    """What one node ends with.

    `local` is w_j, inside the span of its own rows; `consensus` is z_j, in that of its neighbours'
    too, and nearer to the components of all rows.
    """

    local: LandmarkModel
    consensus: LandmarkModel

    def transform(self, X: Rows) -> Floats:
        """Scores of any rows on the common components."""
        return self.consensus.transform(X)


class GraphEstimator(RowEstimator):
    """Base of estimators over graphs. A plain array is a graph of one node."""

    n_components: Any
    topology: Any
    node_models_: dict[str, Any]
    nodes_: tuple[str, ...]

    @contextmanager
    def _on_graph(self, X: Any) -> Iterator[Federation]:
        source = self._source(X)
        alone = isinstance(source, Partitioned) and (source is not X or len(source.names) == 1)
        topology = "full" if alone else graph_topology(self.topology, source)
        with self._opened(source, topology) as fed:
            self._require_rows(fed)
            yield fed

    def _planned_span(self, parties: Parties) -> tuple[str, int]:
        """What `_common_span` will be of a fit to these parties, and how wide."""
        return "scores", int(self.n_components)

    def _common_span(self) -> str:
        """What of the rows all nodes describe alike: "scores", "landmarks" or "features"."""
        return "scores"

    def _plan_notes(self, names: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
        early = getattr(self, "tolerance", None) is not None
        return ("at most: a fit that ends by its tolerance sends less",) if early else ()

    def _planned_graph(self, names: Sequence[str]) -> nx.Graph:
        topology = "full" if len(names) == 1 else graph_topology(self.topology)
        return self._averaged_on(build_graph(topology, names))

    def _require_model(self, fed: Federation, points: str) -> None:
        """Before anything runs: will the first node tell its model, if nobody else has one here?"""
        fed.require_stages(stage(first_model, points, int(self.n_components), None))

    def _take_models(
        self, fed: Federation, parties: Sequence[str], points: str, facts: Any
    ) -> None:
        """The models of the nodes that are here; where there may be none, the first node is asked.

        `points` are what the models are made of, as `node_models.first_model` has it.
        """
        sites, members = fed.local_sites(), len(fed.members)
        here = {name: site for name, site in sites.items() if name in parties}
        shares = {name: site.store[KEPT] for name, site in here.items()}
        both = {name: NodeModel(**own) for name, own in shares.items() if "local" in own}
        self.nodes_ = tuple(parties)
        self.node_models_ = both or {name: own["consensus"] for name, own in shares.items()}
        # Of processes with a node each one may have nothing but a node that left: all have to ask.
        if not sites or (len(sites) < members and len(parties) < members):
            self.model_ = fed.run(first_model, points, len(facts.eigenvalues), facts).value
        else:
            self.model_ = next(iter(shares.values()))["consensus"]

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    # Files.

    def _tree(self) -> dict[str, Any]:
        tree = super()._tree()
        fields = {"topology": plain_topology(self.topology)}
        if "reference" in tree["params"]:
            fields["reference"] = None  # pooled rows have no place in a model
        return {**tree, "params": {**tree["params"], **fields}}

    @classmethod
    def _from_tree(cls, tree: dict[str, Any]) -> Self:
        return super()._from_tree(with_graph(tree))

    def _shares_to_save(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for i, name in enumerate(self.nodes_):
            if name in self.node_models_:
                yield i, {"node": name, "model": self.node_models_[name]}

    def _load_shares(self, path: str | Path) -> None:
        self.node_models_ = {}
        for i in range(len(self.nodes_)):
            share = model_file.share_path(path, i)
            if share.exists():
                tree = model_file.read(share, model_file.SHARE)
                self.node_models_[tree["node"]] = tree["model"]


def graph_among(parties: Parties) -> nx.Graph:
    """The graph of those whom a plan without a centre is for."""
    assert parties.graph is not None, "nodes are those of a graph"
    return parties.graph


def graph_topology(topology: Any, source: Any = None) -> Any:
    """Of estimators that have no coordinator; "auto" is an open federation's, else a ring.

    >>> graph_topology("auto"), graph_topology("star")
    ('ring', 'star')
    """
    if topology is None:
        raise InputError(
            "topology is None; a graph is expected, such as 'ring' or ('lattice', 4): without a "
            "centre nodes need neighbours"
        )
    if isinstance(source, Federation) or not isinstance(topology, str) or topology != AUTO:
        return topology
    return USUAL


def plain_topology(topology: Any) -> Any:
    """A topology as it goes into a file: a networkx graph by its nodes and edges."""
    if not isinstance(topology, nx.Graph):
        return topology
    return graph_to_tree(topology)


def with_graph(tree: dict[str, Any]) -> dict[str, Any]:
    """A saved estimator's tree, with the graph that `plain_topology` took apart."""
    topology = tree["params"]["topology"]
    if not isinstance(topology, dict):
        return tree
    return {**tree, "params": {**tree["params"], "topology": graph_from_tree(topology)}}


def unplaced_model(kernel: Kernel, facts: Any) -> LandmarkModel:
    """A model that lacks only what a node keeps: landmarks, coefficients and offset."""
    nothing = np.zeros((0, 0))
    numbers = {n: getattr(facts, n) for n in ("eigenvalues", "next_eigenvalue", "total", "n_rows")}
    return LandmarkModel(kernel, nothing, nothing, np.zeros(0), **numbers)


def count_from_zero(value: Any, name: str) -> int:
    """A whole number from 0, or `InputError`."""
    if isinstance(value, Integral) and value is not True and int(value) >= 0:
        return int(value)
    raise InputError(f"{name} is {value!r}; a whole number from 0 is expected")


def number_from_zero(value: Any, name: str) -> float:
    """A number from 0, or `InputError`."""
    if isinstance(value, Real) and 0 <= float(value) < np.inf:
        return float(value)
    raise InputError(f"{name} is {value!r}; a number from 0 is expected")
