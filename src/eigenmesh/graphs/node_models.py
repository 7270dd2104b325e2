"""Models of the nodes of a graph, where they lie: in the stores of their sites.

=============  ============================================================================
node keeps     its model, made by `admm_kpca` or `gossip_kpca`
node reveals   if asked: the model, with the rows or centroids that are in it (rows, centroids)
=============  ============================================================================

In one process, and at the ranks of an MPI job, whoever fits has the sites at hand and nothing needs
to be sent. Where sites are elsewhere (Dask), the first node is asked for its model.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np

from eigenmesh.errors import MissingPartyShare, TooManySamples
from eigenmesh.runtime.federation import Federation
from eigenmesh.runtime.message import Floats, Message, Reveals, Shape
from eigenmesh.runtime.party import Party, step
from eigenmesh.runtime.protocol import protocol
from eigenmesh.runtime.schedule import Node, Scope, ask, enlist, sequence
from eigenmesh.stages.row_messages import RowBlock, pack, unpack

KEPT = "the model of this node of a graph"
MOST_ROWS = 20_000  # whose kernel matrix, over 3 GB, a node may form


def require_few(n_rows: int, node: str) -> None:
    """Refuse rows whose kernel matrix does not fit a node."""
    if n_rows > MOST_ROWS:
        raise TooManySamples(
            f"node {node!r} knows {n_rows} rows; at most {MOST_ROWS} are expected, since their "
            f"kernel matrix takes {8e-9 * n_rows**2:.0f} GB: use GossipKPCA over more nodes, or "
            f"DisKPCA",
            party=node,
        )


class ModelSetup(Message, reveals=None):
    """Nothing to agree on."""


class Question(Message, reveals=None):
    """Nothing but the question."""


class RowModel(RowBlock, reveals="rows", covers="joint"):
    """A model over rows: score(x) = k(x, rows) coefficients − offset."""

    coefficients: Annotated[Floats, Shape("q", "k"), Reveals("eigenvectors")]
    offset: Annotated[Floats, Shape("k"), Reveals("moments")]


class CentroidModel(RowModel, reveals="centroids", covers="joint"):
    """The same over centroids."""


class EmbeddedModel(Message, reveals="eigenvectors", covers="joint"):
    """Components of embedded rows."""

    components: Annotated[Floats, Shape("t", "k")]
    offset: Annotated[Floats, Shape("k"), Reveals("moments")]


class ModelHolder(Party):
    """Has a fitted model in its store."""

    Setup = ModelSetup

    def _model(self) -> Any:
        share = self.site.kept(KEPT, "consensus")
        if share is None:
            raise MissingPartyShare("this node has no model", party=self.site.name)
        return share["consensus"]

    def _over_points(self) -> dict[str, Any]:
        model = self._model()
        return {
            **pack(model.landmarks),
            "coefficients": model.coefficients,
            "offset": model.offset,
        }

    @step
    def tell_row_model(self, question: Question) -> RowModel:
        """A model whose landmarks are rows."""
        return RowModel(**self._over_points())

    @step
    def tell_centroid_model(self, question: Question) -> CentroidModel:
        """A model whose landmarks are centroids."""
        return CentroidModel(**self._over_points())

    @step
    def tell_embedded_model(self, question: Question) -> EmbeddedModel:
        """A model of embedded rows."""
        model = self._model()
        return EmbeddedModel(components=model.components, offset=model.offset)


_TELLS: dict[str, Any] = {
    "rows": ModelHolder.tell_row_model,
    "centroids": ModelHolder.tell_centroid_model,
    "random": ModelHolder.tell_embedded_model,
}


def schedule(scope: Scope, points: str, n_components: int) -> Node:
    """One question, to one node."""
    # How many landmarks there are hangs on what the nodes know of each other.
    tell = ask(_TELLS[points], k=n_components, missable=True)
    return sequence(enlist(ModelHolder, ModelSetup()), tell)


@protocol("graph-models", roles=(ModelHolder,), schedule=schedule)
def first_model(nodes: Federation, points: str, n_components: int, facts: Any) -> Any:
    """The first node's model; `facts` is a model with all that is no secret already in place.

    `points` are what it is made of: "rows", "centroids" or, of embedded rows, "random" features.
    """
    nodes.enlist(ModelHolder, ModelSetup())
    reply = nodes.ask(_TELLS[points], each={nodes.parties[0]: Question()})[0]
    arrays: dict[str, Any] = {"offset": np.asarray(reply.offset)}
    if isinstance(reply, EmbeddedModel):
        arrays["components"] = np.asarray(reply.components)
    else:
        arrays |= {"landmarks": unpack(reply), "coefficients": np.asarray(reply.coefficients)}
    return dataclasses.replace(facts, **arrays)
